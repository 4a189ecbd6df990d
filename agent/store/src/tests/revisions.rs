//! The log of configuration revisions: the way back after any history, its bounds, and kills at every write.

use std::collections::BTreeMap;

use holdfast_config::LayerDifference;
use redb::ReadableDatabase;

use super::*;
use crate::revisions::LogLimits;
use crate::tables::{META, META_LAST_TRANSACTION};

/// First byte of the keys of rows of client native.
const CLIENT: u8 = 5;

/// A revision with one line.
fn revision(line: &str) -> Box<ConfigRevision> {
    let lines = vec![format!("+ {line}")];
    Box::new(ConfigRevision {
        author: "ada".to_owned(),
        by: ChangeSource::Gnmi,
        trace: "t".to_owned(),
        difference: LayerDifference { leaves: 1, lines, total_lines: 1 },
        ..ConfigRevision::default()
    })
}

/// A change of a row of clients; of a service with `~`, of a secret with `$`, of a note with `#`.
fn row(text: &str) -> Change {
    let (key, value) = text.split_once('=').unwrap();
    let value = (!value.is_empty()).then(|| value.into());
    let octets = |first: u8, key: &str| [&[first][..], key.as_bytes()].concat();
    let (table, key) = match key.split_at(1) {
        ("~", key) => (Table::Layer, octets(12, key)),
        ("$", key) => (Table::Secret, octets(0xff, key)),
        ("#", key) => (Table::Note, key.as_bytes().to_vec()),
        _ => (Table::Layer, octets(CLIENT, key)),
    };
    Change { table, key, value }
}

fn shown(rows: ClientRows) -> String {
    let rows = rows.into_iter().map(|(key, value)| {
        let mark = if key[0] == CLIENT { "" } else { "$" };
        let key = String::from_utf8_lossy(&key[1..]).into_owned();
        format!("{mark}{key}={}", String::from_utf8_lossy(&value))
    });
    rows.collect::<Vec<_>>().join(" ")
}

/// The configuration after a revision, or why there is none.
fn at(database: &mut Database, number: u64) -> String {
    match database.rows_at(&RevisionTarget::Number(number)) {
        Ok(rows) => shown(rows),
        Err(error) => error.to_string(),
    }
}

/// Runs one step. `c1` commits ticket 1 as a revision, `C1` as none; `u`, `j` and `e` begin, join and end a wait.
fn step(folder: &Path, database: &mut Option<Database>, step: &str) -> Result<(), StoreError> {
    if step == "reopen" {
        *database = None;
        *database = Some(Database::open(folder)?);
        return Ok(());
    }
    let mut words = step.split(' ');
    let (verb, numbers) = words.next().unwrap().split_at(1);
    let changes: Vec<_> = words.map(row).collect();
    let open = database.as_mut().unwrap();
    let ticket = || Ticket(numbers.parse().unwrap());
    let mut commit = |unconfirmed, is_revision: bool| {
        let number = open.load()?.last_transaction + 1;
        let revision = is_revision.then(|| revision(step));
        let content = FinalContent { rows: changes.clone(), revision, ..FinalContent::default() };
        open.commit_with(ticket(), number, unconfirmed, &content)
    };
    match verb {
        "c" => commit(Unconfirmed::Stays, true),
        "C" => commit(Unconfirmed::Stays, false),
        "u" => commit(Unconfirmed::Begins, true),
        "j" => commit(Unconfirmed::Joins, true),
        "e" => commit(Unconfirmed::Ends, true),
        "p" => open.prepare(ticket(), &changes),
        "a" => open.abort(ticket()),
        "k" => open.confirm(),
        _ => open.write(&changes),
    }
}

#[track_caller]
fn run(steps: &[&str]) -> (TempDir, Option<Database>) {
    let folder = TempDir::new().unwrap();
    let mut database = Some(Database::open(folder.path()).unwrap());
    steps.iter().for_each(|it| step(folder.path(), &mut database, it).unwrap());
    (folder, database)
}

/// Checks the configuration after each revision, from state 0 on.
#[track_caller]
fn check_states(steps: &[&str], want: &[&str]) {
    let (_folder, mut database) = run(steps);
    let database = database.as_mut().unwrap();
    let last = database.revisions(RevisionRange::ALL).unwrap().last;
    let states: Vec<_> = (0..=last).map(|number| at(database, number)).collect();
    assert_eq!(states, want, "after {steps:?}");
}

#[test]
fn every_earlier_configuration_is_found() {
    check_states(&[], &[""]);
    check_states(&["w a=0"], &["a=0"]);
    check_states(
        &["p1 a=1 b=1", "c1", "p2 a=2 b= c=2", "c2", "p3 a=", "c3"],
        &["", "a=1 b=1", "a=2 c=2", "c=2"],
    );
    check_states(&["p1 a=1", "c1", "reopen", "p1 a=2", "c1", "reopen"], &["", "a=1", "a=2"]);
    // rows of others than clients do not belong to it; secrets do
    check_states(
        &["p1 a=1 ~x=1 #n=1 $s=1", "c1", "p2 ~x=2 $s=2", "c2"],
        &["", "a=1 $s=1", "a=1 $s=2"],
    );
    // transactions that are prepared, given up or no revisions
    check_states(&["p1 a=1", "c1", "p2 a=2 b=2"], &["", "a=1"]);
    check_states(&["p1 a=1", "c1", "p2 a=2", "a2"], &["", "a=1"]);
    check_states(&["p1 a=1", "c1", "p2 a=2", "reopen"], &["", "a=1"]);
    check_states(&["p1 a=1 b=1", "p2 c=2", "c2", "c1"], &["", "c=2", "a=1 b=1 c=2"]);
    check_states(&["p1 a=1", "c1", "p2 ~x=2", "C2", "p3 b=3", "c3"], &["", "a=1", "a=1 b=3"]);
    // later content of rows
    check_states(&["p1 a=1", "c1 a=2", "p2 a=3", "c2"], &["", "a=2", "a=3"]);
    // a write outside of transactions is there in all, unless a later revision wrote the row
    check_states(&["p1 a=1", "c1", "w z=1"], &["z=1", "a=1 z=1"]);
    check_states(&["p1 a=1", "c1", "w a=9", "p2 a=2", "c2"], &["", "a=9", "a=2"]);
}

#[test]
fn a_commit_that_waits_is_in_the_log_and_so_is_its_end() {
    check_states(&["p1 a=1", "c1", "p2 a=2", "u2", "k"], &["", "a=1", "a=2"]);
    check_states(&["p1 a=1", "c1", "p2 a=2", "u2", "p3 a=1", "e3"], &["", "a=1", "a=2", "a=1"]);
    let restarted = ["p1 a=1", "c1", "p2 a=2 b=2", "u2", "reopen"];
    check_states(&restarted, &["", "a=1", "a=2 b=2", "a=1"]);
    check_states(&[&restarted[..], &["reopen"]].concat(), &["", "a=1", "a=2 b=2", "a=1"]);
    let (_folder, mut database) = run(&restarted);
    let last =
        database.as_mut().unwrap().revisions(RevisionRange::ALL).unwrap().revisions.pop().unwrap();
    let ConfigRevision { number, by, author, difference, .. } = last.revision;
    assert_eq!((number, by, author.as_str()), (3, ChangeSource::Rollback, "agent"));
    assert_eq!(difference.lines, ["- u2"]);
    assert!(last.restorable);
    // what joined goes with it, and what others committed beside it stays
    check_states(&["p1 a=1", "u1", "p2 ~x=1 b=2", "j2", "reopen"], &["", "a=1", "a=1 b=2", "b=2"]);
}

#[test]
fn a_list_says_what_can_be_restored() {
    let (folder, mut database) = run(&["p1 a=1", "c1", "p2 a=2", "c2"]);
    let listed = database.as_mut().unwrap().revisions(RevisionRange::ALL).unwrap();
    let numbers = listed.revisions.iter().map(|it| (it.revision.number, it.restorable));
    assert_eq!(numbers.collect::<Vec<_>>(), [(1, true), (2, true)]);
    assert_eq!((listed.last, listed.oldest_restorable), (2, 0));
    assert_eq!(listed.revisions[0].revision, ConfigRevision { number: 1, ..*revision("c1") });
    let json = serde_json::to_value(&listed.revisions[0]).unwrap();
    assert_eq!(
        (&json["by"], &json["leaves"], &json["restorable"]),
        (&"gnmi".into(), &1.into(), &true.into())
    );
    let unknown = at(database.as_mut().unwrap(), 3);
    assert_eq!(
        unknown,
        "the configuration cannot go back to revision 3: there is none with this number"
    );
    drop(folder);
}

/// Opens a database with a log of this size, and commits a revision for each of these changes.
fn bounded(limits: LogLimits, changes: &[Vec<Change>]) -> (TempDir, Database) {
    let folder = TempDir::new().unwrap();
    let mut database = Database::open(folder.path()).unwrap();
    database.log_limits = limits;
    for (number, changes) in (1..).zip(changes) {
        database.prepare(Ticket(number), changes).unwrap();
        let revision = Some(revision("a line"));
        let content = FinalContent { revision, ..FinalContent::default() };
        database.commit_with(Ticket(number), number, Unconfirmed::Stays, &content).unwrap();
    }
    (folder, database)
}

fn kept(database: &mut Database) -> Vec<(u64, bool)> {
    let listed = database.revisions(RevisionRange::ALL).unwrap().revisions;
    listed.into_iter().map(|it| (it.revision.number, it.restorable)).collect()
}

#[test]
fn the_oldest_revisions_go_first() {
    let changes: Vec<_> = (1..=5).map(|it| vec![row(&format!("a={it}"))]).collect();
    let limits = LogLimits { revisions: 3, ..LogLimits::default() };
    let (folder, mut database) = bounded(limits, &changes);
    assert_eq!(kept(&mut database), [(3, true), (4, true), (5, true)]);
    let gone = "the configuration cannot go back to revision 1: what was changed after it is no longer kept";
    assert_eq!([1, 2, 3].map(|number| at(&mut database, number)), [gone, "a=2", "a=3"]);
    // Numbers go on after a restart.
    drop(database);
    let mut database = Some(Database::open(folder.path()).unwrap());
    step(folder.path(), &mut database, "p9 a=6").unwrap();
    step(folder.path(), &mut database, "c9").unwrap();
    assert_eq!(database.unwrap().revisions(RevisionRange::ALL).unwrap().last, 6);
}

#[test]
fn octets_are_bounded_and_counted() {
    let large = |number: u64| {
        vec![Change::layer(vec![CLIENT, b'a'], Some(vec![u8::try_from(number).unwrap(); 4000]))]
    };
    let changes: Vec<_> = (1..=6).map(large).collect();
    let limits = LogLimits { octets: 13_500, ..LogLimits::default() };
    let (folder, mut database) = bounded(limits, &changes);
    assert_eq!(kept(&mut database), [(4, true), (5, true), (6, true)]);
    let octets = database.revisions(RevisionRange::ALL).unwrap().octets;
    assert!((12_000..=13_500).contains(&octets), "{octets}");
    assert_eq!(counted(&database), octets);
    // A revision that is too large alone leaves its document, and no way back.
    let more: Vec<_> =
        (0..4_u8).map(|it| Change::layer(vec![CLIENT, b'b', it], Some(vec![it; 4000]))).collect();
    database.write(&more).unwrap();
    let deletes: Vec<_> = more.into_iter().map(|it| Change { value: None, ..it }).collect();
    database.prepare(Ticket(7), &deletes).unwrap();
    let content = FinalContent { revision: Some(revision("all")), ..FinalContent::default() };
    database.commit_with(Ticket(7), 7, Unconfirmed::Stays, &content).unwrap();
    assert_eq!(kept(&mut database), [(4, false), (5, false), (6, false), (7, true)]);
    assert_eq!(counted(&database), database.revisions(RevisionRange::ALL).unwrap().octets);
    drop(folder);
}

/// Bytes of the documents and undo records, by reading them.
fn counted(database: &Database) -> u64 {
    use redb::{ReadableTable, TableDefinition};
    const REVISIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("revisions");
    const UNDO: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("revision-undo");
    let read = database.redb().unwrap().begin_read().unwrap();
    let documents = read.open_table(REVISIONS).unwrap();
    let documents = documents.iter().unwrap().map(|row| row.unwrap().1.value().len());
    let undo = read.open_table(UNDO).unwrap();
    let undo = undo.iter().unwrap().map(|row| row.unwrap().1.value().len());
    (documents.sum::<usize>() + undo.sum::<usize>()) as u64
}

#[test]
fn a_change_does_not_read_the_log() {
    let changes: Vec<_> = (1..=MAX_REVISIONS).map(|it| vec![row(&format!("a={it}"))]).collect();
    let (_folder, database) = bounded(LogLimits::default(), &changes);
    let before = database.log_work();
    assert_eq!(before, LogWork { read: 0, written: 2 * MAX_REVISIONS, removed: 0 });
    // The next one takes the place of the oldest, whatever its size; a document and three pieces are written.
    let rows = (0..20_000).map(|it| row(&format!("route {it:06}={}", "x".repeat(8)))).collect();
    let (_folder, mut database) = {
        let mut changes = changes;
        changes.push(rows);
        bounded(LogLimits::default(), &changes)
    };
    let work = database.log_work();
    assert_eq!((work.read, work.removed), (2, 2));
    assert!(work.written - before.written <= 4, "{work:?}");
    assert_eq!(kept(&mut database).len() as u64, MAX_REVISIONS);
}

/// An earlier version of the agent counts its transactions, and does not know of the log.
fn older_agent(folder: &TempDir, work: impl Fn(&redb::WriteTransaction)) {
    let redb = redb::Database::open(folder.path().join(FILE_NAME)).unwrap();
    let write = redb.begin_write().unwrap();
    work(&write);
    write.commit().unwrap();
}

#[test]
fn an_earlier_version_in_between_ends_the_way_back() {
    let (folder, database) = run(&["p1 a=1", "c1", "p2 a=2", "c2"]);
    drop(database);
    older_agent(&folder, |write| {
        write.open_table(META).unwrap().insert(META_LAST_TRANSACTION, 3).unwrap();
    });
    let mut database = Some(Database::open(folder.path()).unwrap());
    assert_eq!(kept(database.as_mut().unwrap()), [(1, false), (2, true)]);
    for it in ["p9 a=4", "c9", "reopen"] {
        step(folder.path(), &mut database, it).unwrap();
    }
    let mut database = database.unwrap();
    assert_eq!(kept(&mut database), [(1, false), (2, true), (3, true)]);
    assert_eq!(at(&mut database, 2), "a=2");
    assert!(at(&mut database, 1).contains("no longer kept"));
}

#[test]
fn an_earlier_version_that_rolls_a_waiting_commit_back_ends_the_way_back() {
    let (folder, database) = run(&["p1 a=1", "c1", "p2 a=2", "u2"]);
    drop(database);
    older_agent(&folder, |write| {
        let unconfirmed: redb::TableDefinition<'_, (u64, u32), &[u8]> =
            redb::TableDefinition::new("unconfirmed");
        write.delete_table(unconfirmed).unwrap();
    });
    let mut database = Database::open(folder.path()).unwrap();
    assert_eq!(kept(&mut database), [(1, false), (2, true)]);
}

#[test]
fn a_failed_commit_leaves_neither_part_and_a_misreported_one_both() {
    for (fault, last, state) in [(Fault::Lost, 1, "a=1"), (Fault::Misreported, 2, "a=2")] {
        let (folder, mut database) = run(&["p1 a=1", "c1", "p2 a=2"]);
        database.as_mut().unwrap().fault = Some(fault);
        let result = step(folder.path(), &mut database, "c2");
        let mut open = database.take().unwrap();
        open.note(&result);
        open.mend().unwrap();
        assert_eq!(open.revisions(RevisionRange::ALL).unwrap().last, last, "{fault:?}");
        assert_eq!([at(&mut open, 1), at(&mut open, last)], ["a=1", state], "{fault:?}");
        assert_eq!(counted(&open), open.revisions(RevisionRange::ALL).unwrap().octets);
    }
}

/// Writes of an agent, each once the one before is answered.
async fn write(store: Store) {
    let content = |line| FinalContent { revision: Some(revision(line)), ..FinalContent::default() };
    for number in 1..=2 {
        let ticket = store.new_ticket();
        let changes = vec![row(&format!("a={number}")), row(&format!("b{number}=1"))];
        store.prepare(ticket, changes).await.unwrap();
        let unconfirmed = if number == 2 { Unconfirmed::Begins } else { Unconfirmed::Stays };
        store.commit_with(ticket, number, unconfirmed, content("x")).await.unwrap();
        if number == 1 {
            let name: CheckpointName = "one".parse().unwrap();
            store.set_checkpoint(named(&name)).await.unwrap();
        }
    }
    let ticket = store.new_ticket();
    store.prepare(ticket, vec![row("c=3")]).await.unwrap();
    store.abort(ticket).await.unwrap();
    store.confirm().await.unwrap();
    store.delete_checkpoint("one".parse().unwrap()).await.unwrap();
    let ticket = store.new_ticket();
    store.prepare(ticket, vec![row("a=3")]).await.unwrap();
    store.commit_with(ticket, 3, Unconfirmed::Stays, content("y")).await.unwrap();
}

fn named(name: &CheckpointName) -> NewCheckpoint {
    let author = "ada".to_owned();
    let comment = Some("as it was".to_owned());
    NewCheckpoint { name: name.clone(), time_ns: 7, author, comment }
}

#[tokio::test]
async fn a_kill_at_any_write_leaves_a_log_that_fits_the_configuration() {
    const WRITES: usize = 11;
    let one = "a=1 b1=1";
    let two = "a=2 b1=1 b2=1";
    let rolled_back = ["", one, two, one];
    for nth in 1..=WRITES {
        for is_made in [false, true] {
            let folder = TempDir::new().unwrap();
            let (store, _) = Store::open(folder.path()).unwrap();
            let stopped_rx = store.stop_at(nth, is_made).await.unwrap();
            let writes = tokio::spawn(write(store.clone()));
            stopped_rx.await.unwrap();
            writes.abort();
            store.close().await.unwrap();
            let made = if is_made { nth } else { nth - 1 };
            let want: &[&str] = match made {
                0 | 1 => &rolled_back[..1],
                2..=4 => &rolled_back[..2],
                // It waits to be confirmed, and the restart rolls it back.
                5..=7 => &rolled_back,
                8..=10 => &rolled_back[..3],
                _ => &["", one, two, "a=3 b1=1 b2=1"],
            };
            let mut database = Database::open(folder.path()).unwrap();
            let last = database.revisions(RevisionRange::ALL).unwrap().last;
            let states: Vec<_> = (0..=last).map(|number| at(&mut database, number)).collect();
            assert_eq!(states, want, "write {nth}, made: {is_made}");
            let present = layers(&database.load().unwrap()).replace('\u{5}', "");
            assert_eq!(present, want[want.len() - 1]);
            assert_eq!(counted(&database), database.revisions(RevisionRange::ALL).unwrap().octets);
            let checkpoints = database.checkpoints().unwrap();
            assert_eq!(checkpoints.len(), usize::from((3..=8).contains(&made)), "{made}");
            if !checkpoints.is_empty() {
                let target = RevisionTarget::Checkpoint("one".parse().unwrap());
                assert_eq!(shown(database.rows_at(&target).unwrap()), one);
            }
        }
    }
}

#[test]
fn checkpoints_are_whole_copies() {
    let (folder, mut database) = run(&["p1 a=1 b=1 $s=1 ~x=1", "c1", "p2 a=2"]);
    let name: CheckpointName = "good".parse().unwrap();
    let open = database.as_mut().unwrap();
    let made = open.set_checkpoint(named(&name)).unwrap();
    assert_eq!((made.revision, made.rows), (1, 3));
    for it in ["c2", "p3 b= $s=3", "c3", "reopen"] {
        step(folder.path(), &mut database, it).unwrap();
    }
    let open = database.as_mut().unwrap();
    let target = RevisionTarget::Checkpoint(name.clone());
    assert_eq!(shown(open.rows_at(&target).unwrap()), "a=1 b=1 $s=1");
    assert_eq!(open.checkpoints().unwrap(), [made]);
    // The same name again, and names that begin alike.
    open.set_checkpoint(named(&"good.".parse().unwrap())).unwrap();
    open.set_checkpoint(named(&name)).unwrap();
    assert_eq!(shown(open.rows_at(&target).unwrap()), "a=2 $s=3");
    assert!(open.delete_checkpoint(&name).unwrap());
    assert!(!open.delete_checkpoint(&name).unwrap());
    let gone = open.rows_at(&target).unwrap_err();
    assert_eq!(gone.to_string(), "there is no checkpoint `good`");
    let other = RevisionTarget::Checkpoint("good.".parse().unwrap());
    assert_eq!(shown(open.rows_at(&other).unwrap()), "a=2 $s=3");
    // There are only so many.
    for number in 1..MAX_CHECKPOINTS {
        open.set_checkpoint(named(&format!("n{number}").parse().unwrap())).unwrap();
    }
    let refused = open.set_checkpoint(named(&name)).unwrap_err();
    assert!(matches!(refused, StoreError::TooManyCheckpoints { .. }), "{refused}");
    open.set_checkpoint(named(&"n1".parse().unwrap())).unwrap();
}

#[test]
fn checkpoints_take_only_so_many_octets() {
    let mut large = Vec::new();
    for number in 0..=3 {
        let octets = usize::try_from(MAX_CHECKPOINT_OCTETS / 4).unwrap();
        large.push(Change::layer(vec![CLIENT, number], Some(vec![number; octets / 4])));
    }
    let folder = TempDir::new().unwrap();
    let mut database = Database::open(folder.path()).unwrap();
    database.write(&large).unwrap();
    for name in ["a", "b", "c"] {
        database.set_checkpoint(named(&name.parse().unwrap())).unwrap();
    }
    let refused = database.set_checkpoint(named(&"d".parse().unwrap())).unwrap_err();
    assert!(matches!(refused, StoreError::CheckpointsTooLarge { .. }), "{refused}");
}

#[test]
fn a_factory_reset_empties_the_log() {
    let (folder, mut database) = run(&["p1 a=1", "c1"]);
    database.as_mut().unwrap().set_checkpoint(named(&"x".parse().unwrap())).unwrap();
    let open = database.as_mut().unwrap();
    open.prepare(Ticket(2), &[row("a="), Change::factory_reset(false)]).unwrap();
    for it in ["c2", "reopen"] {
        step(folder.path(), &mut database, it).unwrap();
    }
    let open = database.as_mut().unwrap();
    assert_eq!(open.revisions(RevisionRange::ALL).unwrap(), RevisionList::default());
    assert!(open.checkpoints().unwrap().is_empty());
    for it in ["p3 b=3", "c3"] {
        step(folder.path(), &mut database, it).unwrap();
    }
    let mut open = database.unwrap();
    assert_eq!((kept(&mut open), at(&mut open, 0)), (vec![(1, true)], String::new()));
}

/// The configuration after each revision, kept whole, by what a history did.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelLog {
    /// Rows of clients after each revision, beginning with state 0.
    states: Vec<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Keys that each revision wrote; none for state 0.
    touched: Vec<BTreeMap<Vec<u8>, ()>>,
}

impl ModelLog {
    fn ensure_begun(&mut self) {
        if self.states.is_empty() {
            self.states.push(BTreeMap::new());
            self.touched.push(BTreeMap::new());
        }
    }

    pub(super) fn last(&self) -> u64 {
        self.states.len().saturating_sub(1) as u64
    }

    pub(super) fn state(&self, number: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.states.get(usize::try_from(number).unwrap()).cloned().unwrap_or_default()
    }

    /// Notes a revision that gave rows this content.
    pub(super) fn revise(&mut self, rows: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        self.ensure_begun();
        let mut state = self.states.last().unwrap().clone();
        let mut touched = BTreeMap::new();
        for (key, value) in rows {
            touched.insert(key.clone(), ());
            put(&mut state, key, value);
        }
        self.states.push(state);
        self.touched.push(touched);
    }

    /// Notes a write without a revision: it shows in each state except those before a revision that wrote the row.
    pub(super) fn write(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.ensure_begun();
        for number in (0..self.states.len()).rev() {
            put(&mut self.states[number], key.to_vec(), value.map(<[u8]>::to_vec));
            if self.touched[number].contains_key(key) {
                return;
            }
        }
    }
}

fn put(rows: &mut BTreeMap<Vec<u8>, Vec<u8>>, key: Vec<u8>, value: Option<Vec<u8>>) {
    match value {
        Some(value) => drop(rows.insert(key, value)),
        None => drop(rows.remove(&key)),
    }
}
