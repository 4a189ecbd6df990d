//! History of the last transactions, within a budget of memory, indexed by number, time and key.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::change::Author;
use crate::key::{FixedMap, Key, KindId};
use crate::operation::{Action, OperationError, TxnId};
use crate::outcome::TransactionOutcome;
use crate::planned_operation::Cause;
use crate::status::ValueState;
use crate::value::SharedValue;

/// Memory of all records together. A day of single changes fits many times.
const HISTORY_OCTETS: usize = 16 << 20;
/// Operations kept of one transaction. The rest of a larger one is only counted.
pub(crate) const OPERATIONS_KEPT: usize = 4096;
/// Estimate for one operation: its key here and in the index, and two shared values that may live on only here.
const OPERATION_OCTETS: usize = 640;
/// Estimate for a record without operations.
const RECORD_OCTETS: usize = 256;
/// Changes of the system that are remembered, some 250 bytes each. An object that others change every second has those of
/// the last hours; of a link that takes all its routes with it, the last ones are known.
const SYSTEM_CHANGES_MOST: usize = 16_384;

/// Reason for a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// A change of intent.
    Change,
    /// Blocked values became ready, drift, or a retry.
    Convergence,
}

impl Trigger {
    /// Name as shown to clients.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Change => "Change",
            Self::Convergence => "Convergence",
        }
    }
}

/// Record of one transaction.
#[derive(Clone, Debug)]
pub struct TransactionRecord {
    pub txn: TxnId,
    pub trigger: Trigger,
    pub description: String,
    /// `None` for transactions that the engine began without a request.
    pub author: Option<Arc<Author>>,
    /// Wall clock, nanoseconds since 1970.
    pub started_ns: u64,
    pub ended_ns: u64,
    /// Requested values, ascending by key; bounded as the operations are.
    pub requested: Vec<(Key, Option<SharedValue>)>,
    /// Operations in the order of the plan, then those of the rollback.
    pub operations: Vec<RecordedOperation>,
    /// Number of operations beyond those kept.
    pub omitted: usize,
    pub outcome: TransactionOutcome,
}

/// Change of a value of ours that the system made: it is gone or changed, or in place again.
#[derive(Clone, Debug)]
pub struct SystemChange {
    pub key: Key,
    /// Time at which the system told, nanoseconds since 1970.
    pub time_ns: u64,
    /// State of the value since then, until the next change or transaction.
    pub state: ValueState,
    /// The value as the system has it; of one that is gone, as it was applied.
    pub value: Option<SharedValue>,
}

/// One operation of a transaction.
#[derive(Clone, Debug)]
pub struct RecordedOperation {
    pub action: Action,
    pub key: Key,
    pub cause: Cause,
    pub old: Option<SharedValue>,
    pub new: Option<SharedValue>,
    pub result: OperationResult,
    /// True for operations of the rollback.
    pub undo: bool,
}

/// Result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationResult {
    Verified,
    /// Verified, apart from what the operation was to give back: the system refused that, and keeps it as it is.
    NotGivenBack(OperationError),
    /// Completed; the transaction failed before the operation was verified.
    Completed,
    Failed(OperationError),
    /// Never submitted, because another one had failed.
    NotTried,
}

/// Count and duration of transactions or operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub count: u64,
    pub failed: u64,
    /// Nanoseconds of wall clock; zero where only the count is known.
    pub total_ns: u64,
    pub least_ns: u64,
    pub most_ns: u64,
}

impl Tally {
    /// Adds one that took this long.
    pub fn add(&mut self, failed: bool, took_ns: u64) {
        self.least_ns = if self.count == 0 { took_ns } else { self.least_ns.min(took_ns) };
        self.most_ns = self.most_ns.max(took_ns);
        self.total_ns += took_ns;
        self.count += 1;
        self.failed += u64::from(failed);
    }
}

/// Counts of the operations that a record leaves out.
#[derive(Debug, Default)]
pub(crate) struct OmittedItems {
    pub(crate) count: usize,
    tallies: Vec<((KindId, Action), Tally)>,
    /// Operations of each kind that repair what others have changed, where the engine began the transaction.
    repairs: BTreeMap<KindId, u64>,
}

impl OmittedItems {
    pub(crate) fn add(
        &mut self,
        kind: KindId,
        action: Action,
        cause: Cause,
        result: &OperationResult,
    ) {
        self.count += 1;
        if *result == OperationResult::NotTried {
            return;
        }
        if has_repaired(Trigger::Convergence, cause, result) {
            *self.repairs.entry(kind).or_default() += 1;
        }
        let sort = (kind, action);
        let at = self.tallies.iter().position(|(other, _)| *other == sort);
        let at = at.unwrap_or_else(|| {
            self.tallies.push((sort, Tally::default()));
            self.tallies.len() - 1
        });
        self.tallies[at].1.add(matches!(result, OperationResult::Failed(_)), 0);
    }
}

/// The last transactions, oldest first.
#[derive(Debug, Default)]
pub struct History {
    records: VecDeque<Arc<TransactionRecord>>,
    /// Records that touch a key, ascending.
    touching: FixedMap<Key, SmallVec<[TxnId; 2]>>,
    octets: usize,
    /// The last changes of the system, in the order in which they were found out.
    system_changes: VecDeque<SystemChange>,
    /// Number of changes that were forgotten: that of the first one which is remembered.
    forgotten_changes: u64,
    /// Numbers of the changes of a key, ascending.
    changes_by_key: FixedMap<Key, SmallVec<[u64; 2]>>,
    operations: BTreeMap<(KindId, Action), Tally>,
    transactions: BTreeMap<&'static str, Tally>,
    losses: BTreeMap<KindId, u64>,
    repairs: BTreeMap<KindId, u64>,
}

impl History {
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Arc<TransactionRecord>> {
        self.records.iter()
    }

    pub fn record(&self, txn: TxnId) -> Option<&Arc<TransactionRecord>> {
        let at = self.records.binary_search_by_key(&txn, |record| record.txn).ok()?;
        self.records.get(at)
    }

    /// Records with a higher number, ascending. Costs as much as it returns.
    pub fn after(&self, txn: TxnId) -> impl Iterator<Item = &Arc<TransactionRecord>> {
        let from = self.records.partition_point(|record| record.txn <= txn);
        self.records.range(from..)
    }

    /// Records that ended after a time, the last one first. Costs as much as it returns, as long as transactions end in
    /// the order in which they began.
    pub fn since(&self, time_ns: u64) -> impl Iterator<Item = &Arc<TransactionRecord>> {
        self.records.iter().rev().take_while(move |record| record.ended_ns > time_ns)
    }

    /// Records that touch a key, ascending. Costs as much as it returns.
    pub fn touching(&self, key: &Key) -> impl Iterator<Item = &Arc<TransactionRecord>> {
        let txns = self.touching.get(key).map_or(&[][..], |txns| txns);
        txns.iter().filter_map(|&txn| self.record(txn))
    }

    /// Changes of a value that the system made, in the order of their times. Costs as much as it returns.
    pub fn system_changes(&self, key: &Key) -> impl Iterator<Item = &SystemChange> {
        let numbers = self.changes_by_key.get(key).map_or(&[][..], |numbers| numbers);
        let place = |number: &u64| usize::try_from(number - self.forgotten_changes).ok();
        numbers.iter().filter_map(move |number| self.system_changes.get(place(number)?))
    }

    /// Keys that some record touches, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.touching.keys()
    }

    /// Operations carried out in the life of the engine, by kind.
    pub fn operations(&self) -> impl Iterator<Item = (KindId, Action, Tally)> {
        self.operations.iter().map(|(&(kind, action), &tally)| (kind, action, tally))
    }

    /// Values of each kind that the system lost or changed in the life of the engine. A value that went with another
    /// value, and waits for that one then, is not counted.
    pub fn losses(&self) -> impl Iterator<Item = (KindId, u64)> {
        self.losses.iter().map(|(&kind, &count)| (kind, count))
    }

    /// Operations of each kind in the life of the engine that repaired what the system had lost or changed.
    pub fn repairs(&self) -> impl Iterator<Item = (KindId, u64)> {
        self.repairs.iter().map(|(&kind, &count)| (kind, count))
    }

    /// Transactions in the life of the engine, by trigger.
    pub fn transactions(&self) -> impl Iterator<Item = (&'static str, Tally)> {
        self.transactions.iter().map(|(&trigger, &tally)| (trigger, tally))
    }

    pub(crate) fn push(&mut self, mut record: TransactionRecord) {
        self.count(&record);
        record.requested.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.octets += octets(&record);
        let txn = record.txn;
        for key in record.keys() {
            let txns = self.touching.entry(key.clone()).or_default();
            let at = txns.partition_point(|&other| other < txn);
            if txns.get(at) != Some(&txn) {
                txns.insert(at, txn);
            }
        }
        // A queued transaction gets its number before those that end first, so the place is nearly always the end.
        let later = self.records.iter().rev().take_while(|other| other.txn > record.txn).count();
        self.records.insert(self.records.len() - later, Arc::new(record));
        while self.octets > HISTORY_OCTETS {
            let Some(oldest) = self.records.pop_front() else { break };
            self.forget(&oldest);
        }
    }

    pub(crate) fn push_system_change(&mut self, change: SystemChange) {
        if matches!(change.state, ValueState::Missing | ValueState::Drifted) {
            *self.losses.entry(change.key.kind()).or_default() += 1;
        }
        let number = self.forgotten_changes + self.system_changes.len() as u64;
        self.changes_by_key.entry(change.key.clone()).or_default().push(number);
        self.system_changes.push_back(change);
        if self.system_changes.len() <= SYSTEM_CHANGES_MOST {
            return;
        }
        let Some(oldest) = self.system_changes.pop_front() else { return };
        self.forgotten_changes += 1;
        let Some(numbers) = self.changes_by_key.get_mut(&oldest.key) else { return };
        numbers.retain(|number| *number >= self.forgotten_changes);
        if numbers.is_empty() {
            self.changes_by_key.remove(&oldest.key);
        }
    }

    fn forget(&mut self, record: &TransactionRecord) {
        self.octets -= octets(record);
        for key in record.keys() {
            let Some(txns) = self.touching.get_mut(key) else { continue };
            txns.retain(|txn| *txn != record.txn);
            if txns.is_empty() {
                self.touching.remove(key);
            }
        }
    }

    /// Adds the counts of operations that a record leaves out.
    pub(crate) fn count_omitted(&mut self, trigger: Trigger, omitted: &OmittedItems) {
        if trigger == Trigger::Convergence {
            for (kind, count) in &omitted.repairs {
                *self.repairs.entry(*kind).or_default() += count;
            }
        }
        for (sort, tally) in &omitted.tallies {
            let all = self.operations.entry(*sort).or_default();
            all.count += tally.count;
            all.failed += tally.failed;
        }
    }

    fn count(&mut self, record: &TransactionRecord) {
        let failed = !matches!(record.outcome, TransactionOutcome::Done { .. });
        let took = record.ended_ns.saturating_sub(record.started_ns);
        self.transactions.entry(record.trigger.as_str()).or_default().add(failed, took);
        for alike in record.operations.chunk_by(|a, b| a.sort() == b.sort()) {
            let tally = self.operations.entry(alike[0].sort()).or_default();
            for operation in alike.iter().filter(|it| it.result != OperationResult::NotTried) {
                tally.add(matches!(operation.result, OperationResult::Failed(_)), 0);
            }
        }
        for repair in record.operations.iter().filter(|it| it.is_repair(record.trigger)) {
            *self.repairs.entry(repair.key.kind()).or_default() += 1;
        }
    }
}

impl TransactionRecord {
    /// Keys that the transaction requested, worked on, or left waiting; some of them more than once.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let requested = self.requested.iter().map(|(key, _)| key);
        let left: [&[Key]; 2] = match &self.outcome {
            TransactionOutcome::Done { pending, failed, .. } => [pending, failed],
            TransactionOutcome::Failed { key, .. } => [std::slice::from_ref(key), &[]],
            TransactionOutcome::Refused { .. } | TransactionOutcome::Cancelled { .. } => [&[], &[]],
        };
        let left = left.into_iter().flatten();
        requested.chain(self.operations.iter().map(|operation| &operation.key)).chain(left)
    }
}

impl RecordedOperation {
    /// True for an operation of a transaction with this trigger that has repaired what the system had lost or changed.
    pub fn is_repair(&self, trigger: Trigger) -> bool {
        has_repaired(trigger, self.cause, &self.result)
    }

    fn sort(&self) -> (KindId, Action) {
        (self.key.kind(), self.action)
    }
}

fn has_repaired(trigger: Trigger, cause: Cause, result: &OperationResult) -> bool {
    trigger == Trigger::Convergence
        && matches!(cause, Cause::Drift | Cause::Orphan)
        && *result == OperationResult::Verified
}

fn octets(record: &TransactionRecord) -> usize {
    let values = record.operations.len() + record.requested.len();
    RECORD_OCTETS + record.description.len() + values * OPERATION_OCTETS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::of(KindId(1)).str(name)
    }

    fn record(txn: u64, keys: &[&str], pending: &[&str]) -> TransactionRecord {
        let operation = |name: &&str| RecordedOperation {
            action: Action::Create,
            key: key(name),
            cause: Cause::Requested,
            old: None,
            new: None,
            result: OperationResult::Verified,
            undo: false,
        };
        TransactionRecord {
            txn: TxnId(txn),
            trigger: Trigger::Change,
            description: String::new(),
            author: None,
            started_ns: txn * 10,
            ended_ns: txn * 10 + 5,
            requested: Vec::new(),
            operations: keys.iter().map(operation).collect(),
            omitted: 0,
            outcome: TransactionOutcome::Done {
                txn: TxnId(txn),
                pending: pending.iter().map(|name| key(name)).collect(),
                failed: Vec::new(),
            },
        }
    }

    #[test]
    fn records_are_found_by_number_time_and_key() {
        let mut history = History::default();
        for one in [record(1, &["a"], &[]), record(3, &["b"], &["c"]), record(2, &["a"], &[])] {
            history.push(one);
        }
        let numbers = |records: Vec<&Arc<TransactionRecord>>| {
            records.into_iter().map(|record| record.txn.0).collect::<Vec<_>>()
        };
        assert_eq!(numbers(history.records().collect()), [1, 2, 3]);
        assert_eq!(numbers(history.after(TxnId(1)).collect()), [2, 3]);
        assert_eq!(numbers(history.since(25).collect()), [3]);
        assert_eq!(numbers(history.touching(&key("a")).collect()), [1, 2]);
        assert_eq!(numbers(history.touching(&key("c")).collect()), [3]);
        assert_eq!(history.transactions().collect::<Vec<_>>()[0].1.most_ns, 5);
    }

    #[test]
    fn repairs_are_counted_where_the_engine_began_them() {
        let mut history = History::default();
        let repaired = |trigger, cause| {
            let mut one = record(1, &["a", "b"], &[]);
            one.operations.iter_mut().for_each(|operation| operation.cause = cause);
            TransactionRecord { trigger, ..one }
        };
        history.push(repaired(Trigger::Convergence, Cause::Drift));
        history.push(repaired(Trigger::Convergence, Cause::Unblocked));
        history.push(repaired(Trigger::Change, Cause::Drift));
        let mut omitted = OmittedItems::default();
        for result in [OperationResult::Verified, OperationResult::NotTried] {
            omitted.add(KindId(1), Action::Create, Cause::Orphan, &result);
        }
        history.count_omitted(Trigger::Change, &omitted);
        assert_eq!(history.repairs().collect::<Vec<_>>(), [(KindId(1), 2)]);
        history.count_omitted(Trigger::Convergence, &omitted);
        assert_eq!(history.repairs().collect::<Vec<_>>(), [(KindId(1), 3)]);
    }

    #[test]
    fn losses_are_counted_without_what_went_with_them() {
        let mut history = History::default();
        for state in
            [ValueState::Missing, ValueState::Pending, ValueState::Configured, ValueState::Drifted]
        {
            history.push_system_change(SystemChange {
                key: key("a"),
                time_ns: 1,
                state,
                value: None,
            });
        }
        assert_eq!(history.losses().collect::<Vec<_>>(), [(KindId(1), 2)]);
    }

    #[test]
    fn old_changes_of_the_system_are_dropped_with_their_index() {
        let mut history = History::default();
        let change = |name: &str, time_ns| SystemChange {
            key: key(name),
            time_ns,
            state: ValueState::Missing,
            value: None,
        };
        let times = |history: &History, name| {
            history.system_changes(&key(name)).map(|it| it.time_ns).collect::<Vec<_>>()
        };
        history.push_system_change(change("a", 1));
        history.push_system_change(change("b", 2));
        history.push_system_change(change("a", 3));
        assert_eq!((times(&history, "a"), times(&history, "b")), (vec![1, 3], vec![2]));
        for time in 0..SYSTEM_CHANGES_MOST as u64 - 1 {
            history.push_system_change(change("c", 4 + time));
        }
        assert_eq!((times(&history, "a"), times(&history, "b")), (vec![3], vec![]));
        assert_eq!((history.changes_by_key.len(), times(&history, "c")[0]), (2, 4));
    }

    #[test]
    fn old_records_are_dropped_with_their_index() {
        let mut history = History::default();
        let many = HISTORY_OCTETS / RECORD_OCTETS + 1;
        for txn in 1..=many as u64 {
            history.push(record(txn, &[&format!("k{txn}")], &[]));
        }
        assert!(history.octets <= HISTORY_OCTETS);
        assert_eq!(history.touching.len(), history.records.len());
        assert_eq!(history.touching(&key("k1")).count(), 0);
        assert_eq!(history.record(TxnId(1)).map(|record| record.txn), None);
    }
}
