//! Ends of transactions and of waits, and the reasons for which there is no plan.

use crate::change::Level;
use crate::dependency::Facet;
use crate::key::Key;
use crate::operation::{OperationError, TxnId};

/// End of a transaction, including those that the engine began without a request.
#[derive(Clone, Debug)]
pub enum TransactionOutcome {
    /// Everything possible is done and verified. `pending` values wait for dependencies. `failed` values are tried
    /// again: those the transaction did not name, or, in a best-effort one, any.
    Done { txn: TxnId, pending: Vec<Key>, failed: Vec<Key> },
    /// The change was refused when its turn came. Nothing was done.
    Refused { txn: TxnId, reason: PlanError },
    /// The change was cancelled: see [`Engine::cancel`](crate::Engine::cancel).
    Cancelled { txn: TxnId, undone: bool },
    /// An operation failed. `undone` is true when everything is as it was before.
    Failed { txn: TxnId, key: Key, label: String, error: OperationError, undone: bool },
}

impl TransactionOutcome {
    /// Copy with at most this many keys in each list.
    pub(crate) fn bounded(&self, most: usize) -> Self {
        let first = |keys: &[Key]| keys.iter().take(most).cloned().collect();
        match self {
            Self::Done { txn, pending, failed } => {
                Self::Done { txn: *txn, pending: first(pending), failed: first(failed) }
            }
            other => other.clone(),
        }
    }

    pub fn txn(&self) -> TxnId {
        match self {
            Self::Done { txn, .. }
            | Self::Refused { txn, .. }
            | Self::Cancelled { txn, .. }
            | Self::Failed { txn, .. } => *txn,
        }
    }
}

/// Reason why there is no plan for a change. The change is refused as a whole, nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error("{label} cannot exist: {reason}")]
    Invalid { key: Key, label: String, reason: String },
    #[error("{label} is of an unknown kind")]
    Unimplemented { key: Key, label: String },
    #[error("{label} is named twice in one change, with different values")]
    Twice { key: Key, label: String },
    #[error("{label} conflicts with {other}: only one of them can exist{}", both_claim(claimed))]
    Conflict {
        key: Key,
        label: String,
        other: String,
        /// The identity in the system that both claim; `None` for two values of one key.
        claimed: Option<Facet>,
    },
    #[error("the plan has changed: its hash is {found:016x}, {expected:016x} was expected")]
    Differs { expected: u64, found: u64 },
}

/// The end of a sentence that says what two values claim.
fn both_claim(claimed: &Option<Facet>) -> String {
    claimed
        .as_ref()
        .map(|identity| format!(", because both claim `{identity}`"))
        .unwrap_or_default()
}

/// End of a wait: the level was reached, or the time is over. A change that is refused, fails or is cancelled is
/// reported by its [`TransactionOutcome`] alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitResult {
    pub txn: TxnId,
    pub level: Level,
    /// Values that were not as intended when the time was over, ascending; empty when the level was reached.
    pub missing: Vec<Key>,
    pub in_time: bool,
}
