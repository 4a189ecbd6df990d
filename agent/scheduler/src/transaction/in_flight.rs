//! Table of the transactions in flight.

use super::Transaction;
use crate::graph::NodeIdx;
use crate::operation::{OpId, TxnId};

/// Transactions in flight, oldest first. There are few: a list is quicker than a map.
#[derive(Debug, Default)]
pub(crate) struct InFlight(Vec<Transaction>);

impl InFlight {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Transaction> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Transaction> {
        self.0.iter_mut()
    }

    pub(crate) fn numbers(&self) -> Vec<TxnId> {
        self.0.iter().map(|transaction| transaction.txn).collect()
    }

    pub(crate) fn contains(&self, txn: TxnId) -> bool {
        self.0.iter().any(|transaction| transaction.txn == txn)
    }

    /// Transaction whose plan is being taken over; there is one at most.
    pub(crate) fn in_take_over(&self) -> Option<TxnId> {
        let transaction = self.0.iter().find(|transaction| transaction.take_over.is_some());
        transaction.map(|transaction| transaction.txn)
    }

    /// The oldest transaction of whose way back a portion is due.
    pub(crate) fn in_rollback(&self) -> Option<TxnId> {
        let transaction = self.0.iter().find(|transaction| transaction.has_rollback_due());
        transaction.map(|transaction| transaction.txn)
    }

    /// Transaction of an operation.
    pub(crate) fn of(&mut self, op: OpId) -> Option<&mut Transaction> {
        self.0.iter_mut().find(|transaction| transaction.has(op))
    }

    pub(crate) fn get(&mut self, txn: TxnId) -> Option<&mut Transaction> {
        self.0.iter_mut().find(|transaction| transaction.txn == txn)
    }

    /// Marks a value dirty when a transaction has ended.
    pub(crate) fn mark_dirty_after(&mut self, txn: TxnId, idx: NodeIdx) {
        if let Some(transaction) = self.get(txn) {
            transaction.dirty_after.push(idx);
        }
    }

    pub(crate) fn take(&mut self, txn: TxnId) -> Option<Transaction> {
        let at = self.0.iter().position(|transaction| transaction.txn == txn)?;
        Some(self.0.remove(at))
    }

    pub(crate) fn put(&mut self, transaction: Transaction) {
        let at = self.0.partition_point(|other| other.txn < transaction.txn);
        self.0.insert(at, transaction);
    }
}
