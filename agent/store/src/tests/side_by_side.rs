//! Transactions that are prepared at the same time, against a naive model: every end, in every order, with refusals of
//! the disk, kills and openings between.

use std::collections::BTreeMap;
use std::process::{Command as Process, Output};

use proptest::prelude::*;

use super::blocks::check_sizes;
use super::*;

/// Transactions that run side by side.
const SLOTS: usize = 4;
/// Numbers of rows for which there are four tables; most are of the layers.
const ROWS: usize = 130;

type RowKey = (Table, Vec<u8>);
/// Content of rows before a change.
type PreImages = BTreeMap<RowKey, Option<Vec<u8>>>;

/// Rows as they shall be.
#[derive(Clone, Debug, Default)]
struct Model {
    rows: BTreeMap<RowKey, Vec<u8>>,
    prepared: BTreeMap<Ticket, PreImages>,
    /// The commit that waits to be confirmed.
    waiting: Option<PreImages>,
    last_transaction: u64,
    taken_back: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Model {
    fn touches_prepared(&self, changes: &[Change]) -> bool {
        let mut keys = changes.iter().map(|change| (change.table, change.key.clone()));
        keys.any(|key| self.prepared.values().any(|it| it.contains_key(&key)))
    }

    fn apply(&mut self, changes: &[Change]) -> PreImages {
        let mut before = PreImages::new();
        for Change { table, key, value } in changes {
            let key = (*table, key.clone());
            let earlier = match value {
                Some(value) => self.rows.insert(key.clone(), value.clone()),
                None => self.rows.remove(&key),
            };
            before.entry(key).or_insert(earlier);
        }
        before
    }

    fn restore(&mut self, before: PreImages) {
        for (key, value) in before {
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }

    fn reopen(&mut self) {
        self.taken_back.clear();
        let prepared = std::mem::take(&mut self.prepared).into_values();
        for mut before in prepared.chain(self.waiting.take()) {
            before.retain(|(table, _), value| *table != Table::Restore || value.is_some());
            for (table, key) in before.keys().filter(|(table, _)| *table == Table::Layer) {
                let now = self.rows.get(&(*table, key.clone())).cloned();
                self.taken_back.entry(key.clone()).or_insert(now);
            }
            self.restore(before);
        }
    }

    /// Ends a transaction; true when it becomes final.
    fn commit(
        &mut self,
        ticket: Ticket,
        number: u64,
        unconfirmed: Unconfirmed,
        is_lost: bool,
    ) -> bool {
        let is_alone = self.prepared.len() == 1;
        let Some(before) = self.prepared.remove(&ticket) else { return false };
        let fits = match unconfirmed {
            Unconfirmed::Stays => true,
            Unconfirmed::Begins => is_alone && self.waiting.is_none(),
            Unconfirmed::Ends => is_alone,
        };
        if !fits || is_lost {
            self.restore(before);
            return false;
        }
        match unconfirmed {
            Unconfirmed::Stays => {}
            Unconfirmed::Begins => self.waiting = Some(before),
            Unconfirmed::Ends => self.waiting = None,
        }
        self.last_transaction = number;
        true
    }
}

/// The database, the model, and the transactions under way.
struct Bench {
    folder: TempDir,
    database: Option<Database>,
    model: Model,
    slots: [Option<Ticket>; SLOTS],
    last_ticket: u64,
    last_number: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Prepare(usize, Vec<RowOp>, Option<Fault>),
    Commit(usize, Unconfirmed, Option<Fault>),
    Abort(usize, Option<Fault>),
    Write(Vec<RowOp>, Option<Fault>),
    /// A layout that some other write gives up, unless its transaction is prepared next.
    LayOut(usize, Vec<RowOp>),
    Confirm,
    Reopen,
}

/// A change of a row. Rows of all slots lie between each other, so they share blocks.
#[derive(Clone, Debug)]
struct RowOp {
    slot: usize,
    number: usize,
    octets: Option<usize>,
}

impl RowOp {
    fn change(&self) -> Change {
        let table = match self.number {
            ..120 => Table::Layer,
            120..124 => Table::Secret,
            124..127 => Table::Note,
            _ => Table::Restore,
        };
        let key = format!("a list, {:03}, {}", self.number, self.slot).into_bytes();
        let letter = b'a' + u8::try_from(self.slot).unwrap();
        Change { table, key, value: self.octets.map(|octets| vec![letter; octets]) }
    }
}

fn changes(ops: &[RowOp]) -> Vec<Change> {
    ops.iter().map(RowOp::change).collect()
}

/// Runs one command as the thread of the database does.
fn attempt<T>(
    database: &mut Database,
    work: impl FnOnce(&mut Database) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let result = database.mend().and_then(|()| work(database));
    database.note(&result);
    database.fault = None;
    result
}

impl Bench {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let database = Some(Database::open(folder.path()).unwrap());
        let (model, slots) = (Model::default(), [None; SLOTS]);
        Self { folder, database, model, slots, last_ticket: 0, last_number: 0 }
    }

    fn run(&mut self, step: &Step) {
        let database = self.database.as_mut().unwrap();
        match step {
            Step::Prepare(slot, ops, fault) => {
                if self.slots[*slot].is_none() {
                    self.prepare(*slot, &changes(ops), *fault);
                }
            }
            Step::Commit(slot, unconfirmed, fault) => {
                let ticket = self.slots[*slot].take().unwrap_or(Ticket(0));
                self.last_number += 1;
                database.fault = *fault;
                let number = self.last_number;
                let made =
                    attempt(database, |database| database.commit(ticket, number, *unconfirmed));
                let is_lost = *fault == Some(Fault::Lost);
                let want = self.model.commit(ticket, number, *unconfirmed, is_lost);
                assert_eq!(made.is_ok(), want, "{step:?}: {made:?}");
            }
            Step::Abort(slot, fault) => {
                let ticket = self.slots[*slot].take().unwrap_or(Ticket(0));
                database.fault = *fault;
                let aborted = attempt(database, |database| database.abort(ticket));
                let before = self.model.prepared.remove(&ticket);
                let want = before.is_some() && fault.is_none();
                assert_eq!(aborted.is_ok(), want, "{step:?}: {aborted:?}");
                self.model.restore(before.unwrap_or_default());
            }
            Step::Write(ops, fault) => {
                let changes = changes(ops);
                let is_refused = self.model.touches_prepared(&changes);
                database.fault = *fault;
                let written = attempt(database, |database| database.write(&changes));
                assert_eq!(written.is_ok(), !is_refused && fault.is_none(), "{written:?}");
                if written.is_ok() {
                    self.model.apply(&changes);
                }
            }
            Step::LayOut(slot, ops) => {
                let (changes, ticket) = (changes(ops), Ticket(self.last_ticket + 1));
                let laid_out = attempt(database, |database| database.lay_out(ticket, &changes));
                assert_eq!(laid_out.is_ok(), !self.model.touches_prepared(&changes));
                if self.slots[*slot].is_none() && ops.len() % 2 == 0 {
                    self.prepare(*slot, &changes, None);
                } else {
                    self.last_ticket += 1;
                }
            }
            Step::Confirm => {
                attempt(database, Database::confirm).unwrap();
                self.model.waiting = None;
            }
            Step::Reopen => {
                self.database = None;
                self.database = Some(Database::open(self.folder.path()).unwrap());
                self.model.reopen();
                (self.slots, self.last_ticket) = ([None; SLOTS], 0);
            }
        }
        self.check(step);
    }

    fn prepare(&mut self, slot: usize, changes: &[Change], fault: Option<Fault>) {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        let is_refused = self.model.touches_prepared(changes);
        let database = self.database.as_mut().unwrap();
        database.fault = fault;
        let prepared = attempt(database, |database| database.prepare(ticket, changes));
        assert_eq!(prepared.is_ok(), !is_refused && fault.is_none(), "{prepared:?}");
        if is_refused {
            assert!(matches!(prepared, Err(StoreError::RowInUse { .. })), "{prepared:?}");
        }
        if prepared.is_ok() {
            let before = self.model.apply(changes);
            self.model.prepared.insert(ticket, before);
            self.slots[slot] = Some(ticket);
        }
    }

    fn check(&mut self, step: &Step) {
        let database = self.database.as_mut().unwrap();
        // A layout is not to be given up by the check.
        if !database.has_layout() {
            database.mend().unwrap();
        }
        let loaded = database.load().unwrap();
        assert_eq!(stored(&loaded), self.model.rows, "after {step:?}");
        assert_eq!(loaded.last_transaction, self.model.last_transaction, "after {step:?}");
        assert_eq!(loaded.taken_back, self.model.taken_back, "after {step:?}");
        check_sizes(database);
    }
}

fn stored(loaded: &StoredState) -> BTreeMap<RowKey, Vec<u8>> {
    let mut rows = BTreeMap::new();
    let take = |key: &[u8], value: &[u8]| -> Result<(), StoreError> {
        // Those of the layers come first; the slots have no row in both tables.
        let number: usize = std::str::from_utf8(&key[8..11]).unwrap().parse().unwrap();
        let table = if number < 120 { Table::Layer } else { Table::Secret };
        rows.insert((table, key.to_vec()), value.to_vec());
        Ok(())
    };
    loaded.layers.visit(take).unwrap();
    let notes = loaded.notes.iter().map(|row| (Table::Note, row));
    let restores = loaded.restore.iter().map(|row| (Table::Restore, row));
    rows.extend(notes.chain(restores).map(|(table, (key, it))| ((table, key.clone()), it.clone())));
    rows
}

/// Changes of rows of one slot, and rarely of another one.
fn some_ops(slot: usize) -> impl Strategy<Value = Vec<RowOp>> {
    let slots = prop_oneof![60 => Just(slot), 1 => 0..=SLOTS];
    let octets =
        prop_oneof![3 => (0..50_usize).prop_map(Some), 1 => Just(Some(3000)), 2 => Just(None)];
    let op = (slots, 0..ROWS, octets);
    let op = op.prop_map(|(slot, number, octets)| RowOp { slot, number, octets });
    prop::collection::vec(op, 0..40)
}

fn some_fault(faults: [Fault; 2]) -> impl Strategy<Value = Option<Fault>> {
    prop_oneof![8 => Just(None), 1 => Just(Some(faults[0])), 1 => Just(Some(faults[1]))]
}

fn some_step() -> impl Strategy<Value = Step> {
    let slot = || 0..SLOTS;
    let own_ops = || slot().prop_flat_map(|slot| (Just(slot), some_ops(slot)));
    let unconfirmed = prop_oneof![
        6 => Just(Unconfirmed::Stays), 1 => Just(Unconfirmed::Begins), 1 => Just(Unconfirmed::Ends)
    ];
    let of_prepare = some_fault([Fault::Unprepared, Fault::MisreportedPrepare]);
    let of_commit = some_fault([Fault::Lost, Fault::Misreported]);
    let of_abort = some_fault([Fault::NotRolledBack, Fault::MisreportedRollBack]);
    let of_write = some_fault([Fault::Unwritten, Fault::Unwritten]);
    prop_oneof![
        10 => (own_ops(), of_prepare).prop_map(|((slot, ops), fault)| Step::Prepare(slot, ops, fault)),
        6 => (slot(), unconfirmed, of_commit).prop_map(|(slot, it, fault)| Step::Commit(slot, it, fault)),
        4 => (slot(), of_abort).prop_map(|(slot, fault)| Step::Abort(slot, fault)),
        2 => (some_ops(SLOTS), of_write).prop_map(|(ops, fault)| Step::Write(ops, fault)),
        2 => own_ops().prop_map(|(slot, ops)| Step::LayOut(slot, ops)),
        1 => Just(Step::Confirm),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever ends in whatever order, rows are those of the model.
    #[test]
    fn transactions_side_by_side_are_those_of_the_model(
        steps in prop::collection::vec(some_step(), 1..40),
    ) {
        let mut bench = Bench::new();
        steps.iter().for_each(|step| bench.run(step));
        bench.run(&Step::Reopen);
    }
}

/// Set in a child process: the folder it works in.
const CHILD_FOLDER: &str = "HOLDFAST_TEST_SIDE_BY_SIDE_FOLDER";
/// Set in a child process that is to kill itself: the number of the script, and that of the steps before the kill.
const CHILD_STEPS: &str = "HOLDFAST_TEST_SIDE_BY_SIDE_STEPS";

/// Runs a test of this module in a child process, which is a shell that does `first`.
fn in_child(test: &str, folder: &TempDir, first: &str, steps: &str) -> Output {
    Process::new("sh")
        .args(["-c", &format!("{first} exec \"$@\""), "sh"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", &format!("tests::side_by_side::{test}"), "--nocapture"])
        .env(CHILD_FOLDER, folder.path())
        .env(CHILD_STEPS, steps)
        .output()
        .unwrap()
}

fn kill() -> ! {
    nix::sys::signal::raise(nix::sys::signal::Signal::SIGKILL).unwrap();
    unreachable!("the signal cannot be caught")
}

/// Every pair of ends of two transactions side by side; another one begins between them.
const ENDS: [[&str; 2]; 8] = [
    ["c2:2", "c3:3"],
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
        for change in changes.split(' ').map(change) {
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
        let (number, count) = steps.split_once(':').unwrap();
        let script = script(ENDS[number.parse::<usize>().unwrap()]);
        return run_and_kill(&folder, &script[..count.parse().unwrap()]);
    }
    for (number, ends) in ENDS.into_iter().enumerate() {
        let script = script(ends);
        for count in 0..=script.len() {
            let folder = TempDir::new().unwrap();
            let test = "a_kill_after_any_step_leaves_what_was_committed";
            let child = in_child(test, &folder, "", &format!("{number}:{count}"));
            assert_eq!(child.status.signal(), Some(9), "{child:?}");
            let steps = &script[..count];
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
fn run_and_kill(folder: &str, steps: &[&str]) {
    let mut database = Database::open(Path::new(folder)).unwrap();
    for step in steps {
        let mut words = step.split(' ');
        let (verb, numbers) = words.next().unwrap().split_at(1);
        let changes: Vec<_> = words.map(change).collect();
        match verb {
            "p" => database.prepare(Ticket(numbers.parse().unwrap()), &changes).unwrap(),
            "c" => commit(&mut database, numbers, Unconfirmed::Stays).unwrap(),
            _ => database.abort(Ticket(numbers.parse().unwrap())).unwrap(),
        }
    }
    let changes: Vec<_> = (0..1000).map(|number| change(&format!("row{number}=5"))).collect();
    database.lay_out(Ticket(5), &changes).unwrap();
    kill();
}

/// Blocks of 512 octets that a child may write into a file.
const FILE_LIMIT: u32 = 6400;
/// Octets of the first row with which a child fills the disk, and of an artefact that a commit writes.
const LARGE: usize = 60_000;

/// Children prepare the deletion of rows in two transactions, fill the disk until it refuses rows of a size, and end
/// both. What was answered holds, and nothing else.
#[test]
fn a_full_disk_leaves_what_was_answered() {
    if let Ok(folder) = env::var(CHILD_FOLDER) {
        return fill_and_end(Path::new(&folder), &env::var(CHILD_STEPS).unwrap());
    }
    let mut refused = std::collections::BTreeSet::new();
    for (least, ends) in
        [100_000, 60_000, 8_000, 1_000, 100, 10].into_iter().zip(ENDS.iter().cycle())
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
                    let gone = rows_of(step[1..2].parse().unwrap());
                    want.retain(|row| !gone.contains(row));
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

/// The row of a step that fills the disk: its key, and its number of octets.
fn filler(step: &str) -> Vec<Change> {
    let (key, octets) = step.split_once(' ').unwrap();
    vec![Change::layer(key.into(), Some(vec![b'w'; octets.parse().unwrap()]))]
}

/// Prepares two deletions, fills the disk with rows down to a size, and ends the transactions.
fn fill_and_end(folder: &Path, steps: &str) {
    let mut database = Database::open(folder).unwrap();
    let answer = |step: &str, result: Result<(), StoreError>| {
        println!("answer {step} is {}", if result.is_ok() { "made" } else { "refused" });
        result.is_ok()
    };
    for ticket in [2, 3] {
        database.write(&rows_of(ticket)).unwrap();
        let gone: Vec<_> =
            rows_of(ticket).into_iter().map(|row| Change { value: None, ..row }).collect();
        database.prepare(Ticket(ticket), &gone).unwrap();
    }
    let mut words = steps.split(' ');
    let least: usize = words.next().unwrap().parse().unwrap();
    let (mut octets, mut written) = (LARGE, 0);
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
                database.commit_with(ticket, number.parse().unwrap(), Unconfirmed::Stays, &[large])
            }
            _ => database.abort(Ticket(numbers.parse().unwrap())),
        });
        answer(step, ended);
    }
    kill();
}

/// A thread of the database that is driven by the test, with `count` transactions of which nothing is decided.
fn undecided(
    folder: &TempDir,
    count: u64,
) -> (DatabaseThread, Vec<oneshot::Receiver<Result<(), StoreError>>>) {
    let (_, command_rx) = mpsc::channel(1);
    let mut thread = DatabaseThread::new(Database::open(folder.path()).unwrap(), command_rx);
    let prepare = |ticket| {
        let (answer, answered) = oneshot::channel();
        let changes = vec![change(&format!("row{ticket}=1"))];
        thread.carry_out(Command::Prepare { ticket: Ticket(ticket), changes, answer });
        answered
    };
    let answers = (1..=count).map(prepare).collect();
    (thread, answers)
}

fn decide(thread: &mut DatabaseThread, ticket: u64, is_wanted: bool) {
    thread.carry_out(Command::Decide { ticket: Ticket(ticket), is_wanted });
}

#[test]
fn a_decision_does_not_wait_for_that_of_another_transaction() {
    let folder = TempDir::new().unwrap();
    let (mut thread, mut answers) = undecided(&folder, 3);
    assert!(thread.lay_out_ahead(), "the first is laid out");
    assert!(!thread.lay_out_ahead(), "one at a time");
    decide(&mut thread, 2, true);
    answers[1].try_recv().unwrap().unwrap();
    assert!(answers[0].try_recv().is_err(), "it is undecided still");
    assert!(thread.lay_out_ahead(), "the third is laid out");
    let (answer, mut written) = oneshot::channel();
    thread.carry_out(Command::Write { changes: vec![change("other=1")], answer });
    written.try_recv().unwrap().unwrap();
    assert!(!thread.lay_out_ahead(), "once for each");
    decide(&mut thread, 3, false);
    let withdrawn = answers[2].try_recv().unwrap();
    assert!(matches!(withdrawn, Err(StoreError::Withdrawn { ticket: Ticket(3) })));
    decide(&mut thread, 1, true);
    answers[0].try_recv().unwrap().unwrap();
    for (ticket, number) in [(2, 1), (1, 2)] {
        let (answer, mut made) = oneshot::channel();
        let (unconfirmed, artefacts) = (Unconfirmed::Stays, Vec::new());
        let ticket = Ticket(ticket);
        thread.carry_out(Command::Commit { ticket, number, unconfirmed, artefacts, answer });
        made.try_recv().unwrap().unwrap();
    }
    drop(thread);
    let loaded = Database::open(folder.path()).unwrap().load().unwrap();
    assert_eq!((layers(&loaded).as_str(), loaded.rolled_back), ("other=1 row1=1 row2=1", 0));
}

#[test]
fn a_layout_is_written_as_it_is_unless_something_came_between() {
    for (between, laid_out) in [(false, 1), (true, 2)] {
        let folder = TempDir::new().unwrap();
        let (mut thread, _answers) = undecided(&folder, 1);
        assert!(thread.lay_out_ahead());
        if between {
            let (answer, _) = oneshot::channel();
            thread.carry_out(Command::SetUser { user: user("ada"), answer });
        }
        decide(&mut thread, 1, true);
        assert_eq!(thread.block_work().written, laid_out);
    }
}

/// Four commits whose consents come in every order, with other commands between: none of them waits for another one.
#[tokio::test]
async fn consents_come_in_any_order() {
    let folder = TempDir::new().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    let mut number = 0;
    for order in 0..24_usize {
        let mut waiting = Vec::new();
        for slot in 0..4 {
            let ticket = store.new_ticket();
            let changes = vec![change(&format!("row{slot}={order}"))];
            waiting.push((ticket, store.prepare_ahead(ticket, changes)));
        }
        for places in [order / 6, order % 6 / 2, order % 2, 0] {
            // The thread has nothing else to do, so it has laid rows out, or does so at any time from here on.
            store.write(vec![change(&format!("other={number}"))]).await.unwrap();
            let (ticket, (answer, consent)) = waiting.remove(places);
            number += 1;
            if number % 5 == 0 {
                drop(consent);
                assert!(matches!(answer.await, Err(StoreError::Withdrawn { .. })));
                continue;
            }
            consent.give();
            answer.await.unwrap();
            store.commit(ticket, number, Unconfirmed::Stays).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_full_queue_loses_no_decision() {
    let folder = TempDir::new().unwrap();
    let (store, _) = Store::open(folder.path()).unwrap();
    let (answer, consent) = store.prepare_ahead(store.new_ticket(), vec![change("a=1")]);
    let mut others = Vec::new();
    let refused = loop {
        let (answer, consent) = store.prepare_ahead(store.new_ticket(), vec![change("b=1")]);
        match answer.0 {
            Ok(_) => others.push((answer, consent)),
            Err(_) => break answer.await,
        }
    };
    assert!(matches!(refused, Err(StoreError::Overloaded)));
    consent.give();
    answer.await.unwrap();
    drop(others);
}
