//! Selection of transactions, of this run and of earlier ones.

use holdfast_scheduler::TransactionRecord;

/// Selection of transactions.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransactionFilter {
    /// Earliest end, in nanoseconds since 1970.
    pub(super) since: u64,
    /// Latest start, in nanoseconds since 1970.
    pub(super) until: u64,
    pub(super) after: u64,
    pub(super) limit: usize,
}

impl TransactionFilter {
    pub(super) fn matches(&self, record: &TransactionRecord) -> bool {
        record.ended_ns >= self.since && record.started_ns <= self.until
    }
}
