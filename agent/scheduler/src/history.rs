//! What was done: the last transactions, within a budget of memory.

use std::collections::VecDeque;

use crate::engine::Outcome;
use crate::key::Key;
use crate::operation::{Action, OperationError, TxnId};
use crate::plan::Cause;
use crate::value::SharedValue;

/// Memory of all records together. A day of single changes fits many times.
const HISTORY_OCTETS: usize = 16 << 20;
/// Operations kept of one transaction; of a larger one the rest is counted only.
const OPERATIONS_KEPT: usize = 4096;
/// Estimate for one operation: its key, two shared values that may live on only here, its place in the list.
const OPERATION_OCTETS: usize = 512;
/// Estimate for a record without operations.
const RECORD_OCTETS: usize = 256;

/// What made a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A change of intent.
    Change,
    /// Values that woke up, drift, another try.
    Convergence,
    /// A complete retrieve.
    Resync,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Record {
    pub txn: TxnId,
    pub origin: Origin,
    pub description: String,
    /// Wall clock, nanoseconds since 1970.
    pub started_ns: u64,
    pub ended_ns: u64,
    /// In the order of the plan, those of the way back after them.
    pub operations: Vec<RecordedOperation>,
    /// Operations beyond those kept.
    pub omitted: usize,
    pub outcome: Outcome,
}

/// One operation of a transaction.
#[derive(Clone, Debug)]
pub struct RecordedOperation {
    pub action: Action,
    pub key: Key,
    pub cause: Cause,
    pub old: Option<SharedValue>,
    pub new: Option<SharedValue>,
    pub result: Executed,
    /// Belongs to the way back.
    pub undo: bool,
}

/// What became of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executed {
    Verified,
    /// Completed; the transaction failed before it was verified.
    Completed,
    Failed(OperationError),
    /// Never handed out, because another one had failed.
    NotTried,
}

/// The last transactions, oldest first.
#[derive(Debug, Default)]
pub struct History {
    records: VecDeque<Record>,
    octets: usize,
}

impl History {
    pub fn records(&self) -> impl DoubleEndedIterator<Item = &Record> {
        self.records.iter()
    }

    pub fn record(&self, txn: TxnId) -> Option<&Record> {
        let at = self.records.binary_search_by_key(&txn, |record| record.txn).ok()?;
        self.records.get(at)
    }

    pub(crate) fn push(&mut self, mut record: Record) {
        record.omitted += record.operations.len().saturating_sub(OPERATIONS_KEPT);
        record.operations.truncate(OPERATIONS_KEPT);
        self.octets += octets(&record);
        // Queued transactions get their number before those that run first: nearly always the place is the end.
        let later = self.records.iter().rev().take_while(|other| other.txn > record.txn).count();
        self.records.insert(self.records.len() - later, record);
        while self.octets > HISTORY_OCTETS {
            let Some(oldest) = self.records.pop_front() else { break };
            self.octets -= octets(&oldest);
        }
    }
}

fn octets(record: &Record) -> usize {
    RECORD_OCTETS + record.description.len() + record.operations.len() * OPERATION_OCTETS
}
