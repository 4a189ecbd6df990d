//! Kills and a full disk while two transactions are prepared, in child processes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command as Process, Output};

use super::side_by_side::attempt;
use super::*;

/// Set in a child process: the folder it works in.
const CHILD_FOLDER: &str = "HOLDFAST_TEST_KILLS_FOLDER";
/// Set in a child process: the steps that it does before it kills itself.
const CHILD_STEPS: &str = "HOLDFAST_TEST_KILLS_STEPS";

/// Runs a test of this module in a child process, which is a shell that does `first`.
fn in_child(test: &str, folder: &TempDir, first: &str, steps: &str) -> Output {
    Process::new("sh")
        .args(["-c", &format!("{first} exec \"$@\""), "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", &format!("tests::kills::{test}"), "--nocapture"])
        .env(CHILD_FOLDER, folder.path())
        .env(CHILD_STEPS, steps)
        .output()
        .unwrap()
}

fn kill() -> ! {
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
    unreachable!("the signal cannot be caught")
}

/// Every pair of ends of two transactions side by side; another one begins between them. One last write has rows.
const ENDS: [[&str; 2]; 9] = [
    ["c2:2", "c3:3"],
    ["c2:2 a=7 n=", "c3:3"],
    ["c3:2", "c2:3"],
    ["c2:2", "a3"],
    ["a3", "c2:2"],
    ["a2", "c3:2"],
    ["c3:2", "a2"],
    ["a2", "a3"],
    ["a3", "a2"],
];

fn script([first, second]: [&'static str; 2]) -> [&'static str; 8] {
    ["p1 a=1 b=1 c=1", "c1", "p2 a=2 b= n=2", "p3 c=3 m=3", first, "p4 z=4", second, "c4:9"]
}

/// Rows of the transactions that the steps commit, in the order of their numbers.
fn committed(steps: &[&str]) -> String {
    let mut rows = BTreeMap::new();
    for ticket in steps.iter().filter_map(|step| step.strip_prefix('c')) {
        let begins = format!("p{} ", &ticket[..1]);
        let changes = steps.iter().find_map(|step| step.strip_prefix(&begins)).unwrap();
        let later = ticket.split(' ').skip(1);
        for change in changes.split(' ').chain(later).map(change) {
            match change.value {
                Some(value) => drop(rows.insert(change.key, value)),
                None => drop(rows.remove(&change.key)),
            }
        }
    }
    text(&rows.into_iter().collect::<Vec<_>>())
}

#[test]
fn a_kill_after_any_step_leaves_what_was_committed() {
    if let Ok(folder) = env::var(CHILD_FOLDER) {
        let steps = env::var(CHILD_STEPS).unwrap();
        return run_and_kill(&folder, steps.split(';').filter(|step| !step.is_empty()));
    }
    for script in ENDS.map(script) {
        for count in 0..=script.len() {
            let folder = TempDir::new().unwrap();
            let test = "a_kill_after_any_step_leaves_what_was_committed";
            let steps = &script[..count];
            let child = in_child(test, &folder, "", &steps.join(";"));
            assert_eq!(child.status.signal(), Some(9), "{child:?}");
            let loaded = Database::open(folder.path()).unwrap().load().unwrap();
            assert_eq!(layers(&loaded), committed(steps), "killed after {steps:?}");
            let begun = steps.iter().filter(|step| step.starts_with('p')).count();
            assert_eq!(loaded.rolled_back, 2 * begun - steps.len(), "killed after {steps:?}");
            // Nothing is left that a second opening would roll back.
            let loaded = Database::open(folder.path()).unwrap().load().unwrap();
            assert_eq!((layers(&loaded), loaded.rolled_back), (committed(steps), 0));
        }
    }
}

/// Runs steps, and is killed while the rows of another transaction are laid out.
fn run_and_kill<'s>(folder: &str, steps: impl Iterator<Item = &'s str>) {
    let mut database = Database::open(Path::new(folder)).unwrap();
    for step in steps {
        let mut words = step.split(' ');
        let (verb, numbers) = words.next().unwrap().split_at(1);
        let changes: Vec<_> = words.map(change).collect();
        match verb {
            "p" => database.prepare(Ticket(numbers.parse().unwrap()), &changes).unwrap(),
            "c" => commit(&mut database, (numbers, changes), Unconfirmed::Stays).unwrap(),
            _ => database.abort(Ticket(numbers.parse().unwrap())).unwrap(),
        }
    }
    let changes: Vec<_> = (0..1000).map(|number| change(&format!("row{number}=5"))).collect();
    database.lay_out(Ticket(5), &changes).unwrap();
    kill();
}

/// Blocks of 512 bytes that a child may write into a file.
const FILE_LIMIT: u32 = 6400;
/// Bytes of the first row with which a child fills the disk, and of an artefact that a commit writes.
const LARGE: usize = 60_000;

/// Children prepare the deletion of rows in two transactions, fill the disk until it refuses rows of a size, and end
/// both. Answered changes hold, and no others.
#[test]
fn a_full_disk_leaves_what_was_answered() {
    if let Ok(folder) = env::var(CHILD_FOLDER) {
        return fill_and_end(Path::new(&folder), &env::var(CHILD_STEPS).unwrap());
    }
    let mut refused = BTreeSet::new();
    for (least, ends) in [100_000, 60_000, 8_000, 1_000, 100, 10]
        .into_iter()
        .zip(ENDS.iter().filter(|it| !it[0].contains(' ')).cycle())
    {
        let folder = TempDir::new().unwrap();
        let first = format!("trap '' XFSZ; ulimit -f {FILE_LIMIT};");
        let steps = format!("{least} {}", ends.join(" "));
        let child = in_child("a_full_disk_leaves_what_was_answered", &folder, &first, &steps);
        assert_eq!(child.status.signal(), Some(9), "{child:?}");
        let output = String::from_utf8(child.stdout).unwrap();
        let answers = output.lines().filter_map(|line| line.strip_prefix("answer "));
        let mut want = [rows_of(2), rows_of(3)].concat();
        let mut artefacts = 0;
        for (step, answer) in answers.map(|it| it.split_once(" is ").unwrap()) {
            match (&step[..1], answer) {
                ("w", "made") => want.extend(filler(step)),
                ("c", "made") => {
                    let deleted = rows_of(step[1..2].parse().unwrap());
                    want.retain(|row| !deleted.contains(row));
                    artefacts += 1;
                }
                (verb, "refused") => drop(refused.insert(verb.to_owned())),
                _ => {}
            }
        }
        want.sort_by(|one, other| one.key.cmp(&other.key));
        let want: Vec<_> = want.into_iter().map(|it| (it.key, it.value.unwrap())).collect();
        let loaded = Database::open(folder.path()).unwrap().load().unwrap();
        assert!(text(&want) == layers(&loaded), "{steps}: {output}, {loaded:?}");
        assert_eq!(loaded.artefacts[&ArtefactTable::Certz].len(), artefacts, "{steps}: {output}");
    }
    assert!(["a", "c", "w"].iter().all(|verb| refused.contains(*verb)), "{refused:?}");
}

/// Rows of one of two transactions, which lie between those of the other one.
fn rows_of(ticket: u64) -> Vec<Change> {
    let key = |row: usize| format!("a list, {row:02}, {ticket}").into_bytes();
    (0..40).map(|row| Change::layer(key(row), Some(vec![b'a'; 5000]))).collect()
}

/// The row of a step that fills the disk: its key, and its number of bytes.
fn filler(step: &str) -> Vec<Change> {
    let (key, octets) = step.split_once(' ').unwrap();
    vec![Change::layer(key.into(), Some(vec![b'w'; octets.parse().unwrap()]))]
}

/// Prepares two deletions, fills the disk with rows down to a size, and ends the transactions.
fn fill_and_end(folder: &Path, steps: &str) {
    let mut database = Database::open(folder).unwrap();
    let answer = |step: &str, result: Result<(), StoreError>| {
        let answer = if result.is_ok() { "made" } else { "refused" };
        writeln!(io::stdout(), "answer {step} is {answer}").unwrap();
        result.is_ok()
    };
    for ticket in [2, 3] {
        database.write(&rows_of(ticket)).unwrap();
        let deletes: Vec<_> =
            rows_of(ticket).into_iter().map(|row| Change { value: None, ..row }).collect();
        database.prepare(Ticket(ticket), &deletes).unwrap();
    }
    let mut words = steps.split(' ');
    let least: usize = words.next().unwrap().parse().unwrap();
    let mut octets = LARGE;
    let mut written = 0;
    while octets >= least {
        let step = format!("w{written:04} {octets}");
        written += 1;
        if !answer(&step, attempt(&mut database, |database| database.write(&filler(&step)))) {
            octets /= 2;
        }
    }
    for step in words {
        let (verb, numbers) = step.split_at(1);
        let ended = attempt(&mut database, |database| match verb {
            "c" => {
                let (ticket, number) = numbers.split_once(':').unwrap();
                let ticket = Ticket(ticket.parse().unwrap());
                let content = "a".repeat(LARGE);
                let large = artefact(ArtefactTable::Certz, numbers, Some(&content));
                let content = FinalContent { artefacts: vec![large], ..FinalContent::default() };
                database.commit_with(ticket, number.parse().unwrap(), Unconfirmed::Stays, &content)
            }
            _ => database.abort(Ticket(numbers.parse().unwrap())),
        });
        answer(step, ended);
    }
    kill();
}
