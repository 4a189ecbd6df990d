//! Transactions that are prepared at the same time, against a naive model: every end, in every order, with refusals of
//! the disk, kills and openings between.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::blocks::check_sizes;
use super::revisions::ModelLog;
use super::*;

/// Transactions that run side by side.
const SLOTS: usize = 4;
/// Numbers of rows for which there are four tables; most are of the layers.
const ROWS: usize = 130;
/// Numbers of rows that are service plans, and the first byte of their keys.
const PLANS: std::ops::Range<usize> = 80..120;
const PLAN: u8 = 12;
/// Numbers of rows that are of a client layer, and the first byte of their keys.
const CLIENTS: std::ops::Range<usize> = 0..50;
const CLIENT: u8 = 5;

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
    log: ModelLog,
    /// The commit that waits is a revision.
    waits_as_revision: bool,
    /// Rows that were taken back since the file was opened.
    noted: BTreeSet<Vec<u8>>,
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

    /// Notes rows of clients with the content that they have now, as a revision or as none.
    fn log(&mut self, keys: impl IntoIterator<Item = RowKey>, is_revision: bool) {
        let of_clients = keys.into_iter().filter(|(table, key)| table.is_of_clients(key));
        let rows: Vec<_> =
            of_clients.map(|row| (row.1.clone(), self.rows.get(&row).cloned())).collect();
        if is_revision {
            return self.log.revise(rows);
        }
        for (key, value) in rows {
            self.log.write(&key, value.as_deref());
        }
    }

    fn restore(&mut self, before: PreImages) {
        for (key, value) in before {
            match value {
                Some(value) => self.rows.insert(key, value),
                None => self.rows.remove(&key),
            };
        }
    }

    fn note(&mut self, (table, key): &RowKey, before: Option<Vec<u8>>) {
        if *table == Table::Layer && self.noted.insert(key.clone()) {
            self.taken_back.insert(key.clone(), before);
        }
    }

    fn reopen(&mut self) {
        self.noted.clear();
        let waiting = self.waiting.take();
        let undone: Vec<RowKey> = waiting.iter().flatten().map(|(key, _)| key.clone()).collect();
        let has_waited = waiting.is_some();
        let prepared = std::mem::take(&mut self.prepared).into_values();
        for mut before in prepared.chain(waiting) {
            before.retain(|(table, _), value| *table != Table::Restore || value.is_some());
            for key in before.keys() {
                self.note(key, self.rows.get(key).cloned());
            }
            self.restore(before);
        }
        let is_revision = std::mem::take(&mut self.waits_as_revision)
            || undone.iter().any(|(table, key)| table.is_of_clients(key));
        if has_waited && is_revision {
            self.log(undone, true);
        }
    }

    /// Every second row that a transaction has prepared, with another content.
    fn later_rows(&self, ticket: Ticket, octets: Option<usize>) -> Vec<Change> {
        let prepared = self.prepared.get(&ticket).into_iter().flatten().step_by(2);
        let rows = prepared.filter_map(|((table, key), _)| {
            Some(Change { table: *table, key: key.clone(), value: Some(vec![b'z'; octets?]) })
        });
        rows.collect()
    }

    /// Ends a transaction; true when it becomes final.
    fn commit(
        &mut self,
        (ticket, number): (Ticket, u64),
        unconfirmed: Unconfirmed,
        (later, is_revision): (&[Change], bool),
        is_lost: bool,
    ) -> bool {
        let is_alone = self.prepared.len() == 1;
        let Some(before) = self.prepared.remove(&ticket) else { return false };
        let fits = match unconfirmed {
            Unconfirmed::Stays => true,
            Unconfirmed::Begins => is_alone && self.waiting.is_none(),
            Unconfirmed::Joins => self.waiting.is_some(),
            Unconfirmed::Ends => is_alone,
        };
        if !fits || is_lost {
            self.restore(before);
            return false;
        }
        self.apply(later);
        self.log(before.keys().cloned(), is_revision);
        match unconfirmed {
            Unconfirmed::Stays => {}
            Unconfirmed::Begins => {
                self.waiting = Some(before);
                self.waits_as_revision = is_revision;
            }
            Unconfirmed::Joins => {
                let waiting = self.waiting.get_or_insert_default();
                for (row, earlier) in before.into_iter().filter(|((_, key), _)| key[0] == PLAN) {
                    waiting.entry(row).or_insert(earlier);
                }
            }
            Unconfirmed::Ends => {
                self.waiting = None;
                self.waits_as_revision = false;
            }
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
    /// With bytes, rows have another content from the last write on.
    Commit(usize, Unconfirmed, Option<usize>, Option<Fault>),
    Abort(usize, Option<Fault>),
    Write(Vec<RowOp>, Option<Fault>),
    WriteOver(Vec<RowOp>),
    ForgetTakenBack,
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
        let mut key = format!("a list, {:03}, {}", self.number, self.slot).into_bytes();
        if PLANS.contains(&self.number) {
            key[0] = PLAN;
        }
        if CLIENTS.contains(&self.number) {
            key[0] = CLIENT;
        }
        let letter = b'a' + u8::try_from(self.slot).unwrap();
        Change { table, key, value: self.octets.map(|octets| vec![letter; octets]) }
    }
}

fn changes(ops: &[RowOp]) -> Vec<Change> {
    ops.iter().map(RowOp::change).collect()
}

/// Runs one command as the thread of the database does.
pub(super) fn attempt<T>(
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
        let model = Model::default();
        let slots = [None; SLOTS];
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
            Step::Commit(slot, unconfirmed, octets, fault) => {
                let ticket = self.slots[*slot].take().unwrap_or(Ticket(0));
                self.last_number += 1;
                database.fault = *fault;
                let number = self.last_number;
                let rows = self.model.later_rows(ticket, *octets);
                // Most commits are revisions, whatever rows they have.
                let revision = (!number.is_multiple_of(4)).then(Box::<ConfigRevision>::default);
                let content = FinalContent { rows, revision, ..FinalContent::default() };
                let result = attempt(database, |database| {
                    database.commit_with(ticket, number, *unconfirmed, &content)
                });
                let is_lost = *fault == Some(Fault::Lost);
                let later = (&content.rows[..], content.revision.is_some());
                let want = self.model.commit((ticket, number), *unconfirmed, later, is_lost);
                assert_eq!(result.is_ok(), want, "{step:?}: {result:?}");
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
                    let before = self.model.apply(&changes);
                    self.model.log(before.into_keys(), false);
                }
            }
            Step::WriteOver(ops) => {
                let changes = changes(ops);
                let is_refused = self.model.touches_prepared(&changes);
                let written = attempt(database, |database| database.write_over(&changes));
                assert_eq!(written.is_ok(), !is_refused, "{written:?}");
                if written.is_ok() {
                    let replaced = self.model.apply(&changes);
                    self.model.log(replaced.keys().cloned(), false);
                    for (key, before) in replaced {
                        self.model.note(&key, before);
                    }
                }
            }
            Step::ForgetTakenBack => {
                attempt(database, Database::forget_taken_back).unwrap();
                self.model.taken_back.clear();
                self.model.noted.clear();
            }
            Step::LayOut(slot, ops) => {
                let changes = changes(ops);
                let ticket = Ticket(self.last_ticket + 1);
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
                self.model.waits_as_revision = false;
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
        check_log(database, &self.model, step);
    }
}

/// Compares an earlier configuration with that of the model; after an opening, all of them.
fn check_log(database: &mut Database, model: &Model, step: &Step) {
    let last = database.revisions(RevisionRange::ALL).unwrap().last;
    assert_eq!(last, model.log.last(), "after {step:?}");
    let numbers = match step {
        Step::Reopen => (0..=last).collect(),
        _ => vec![last / 2, last],
    };
    for number in numbers {
        let rows = database.rows_at(&RevisionTarget::Number(number)).unwrap();
        let rows: BTreeMap<_, _> = rows.into_iter().collect();
        assert_eq!(rows, model.log.state(number), "revision {number} after {step:?}");
    }
}

fn stored(loaded: &StoredState) -> BTreeMap<RowKey, Vec<u8>> {
    let mut rows = BTreeMap::new();
    let take = |key: &[u8], value: &[u8]| -> Result<(), StoreError> {
        // Rows of the layers come first; the slots have no row in both tables.
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
        5 => Just(Unconfirmed::Stays), 2 => Just(Unconfirmed::Joins), 1 => Just(Unconfirmed::Begins), 1 => Just(Unconfirmed::Ends)
    ];
    let of_prepare = some_fault([Fault::Unprepared, Fault::MisreportedPrepare]);
    let of_commit = some_fault([Fault::Lost, Fault::Misreported]);
    let of_abort = some_fault([Fault::NotRolledBack, Fault::MisreportedRollBack]);
    let of_write = some_fault([Fault::Unwritten, Fault::Unwritten]);
    prop_oneof![
        10 => (own_ops(), of_prepare).prop_map(|((slot, ops), fault)| Step::Prepare(slot, ops, fault)),
        6 => (slot(), unconfirmed, prop::option::of(0..50_usize), of_commit)
            .prop_map(|(slot, it, octets, fault)| Step::Commit(slot, it, octets, fault)),
        4 => (slot(), of_abort).prop_map(|(slot, fault)| Step::Abort(slot, fault)),
        2 => (some_ops(SLOTS), of_write).prop_map(|(ops, fault)| Step::Write(ops, fault)),
        1 => some_ops(SLOTS).prop_map(Step::WriteOver),
        1 => Just(Step::ForgetTakenBack),
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
