//! Work for the caller of the engine.

use std::time::Duration;

use crate::history::SystemChange;
use crate::key::Key;
use crate::operation::{OpId, Operation, OperationError};
use crate::outcome::{TransactionOutcome, WaitResult};
use crate::value::SharedValue;

/// Work for the caller. Each list may be empty.
#[derive(Debug, Default)]
pub struct EngineOutput {
    /// Pre-images of adopted objects that were added (`Some`) or dropped (`None`): must be durable before `submit` of
    /// this step, and of later ones, is handed out.
    pub restores: Vec<(Key, Option<SharedValue>)>,
    /// For the transports, in order.
    pub submit: Vec<Operation>,
    /// Submitted operations that are no longer wanted. A transport that can end them, or has not begun them, answers
    /// with
    /// [`OperationError::cancelled`]; one that cannot may ignore this.
    pub cancel: Vec<OpId>,
    /// Keys to be read and returned as facts, one for each key, also when nothing is there.
    pub read: Vec<Key>,
    pub finished: Vec<TransactionOutcome>,
    /// Waits that have ended: the level was reached, or the time is over.
    pub reached: Vec<WaitResult>,
    /// Objects, by their labels, that the system did not take back: they stay as it has them.
    pub left: Vec<(String, OperationError)>,
    /// Values of ours that the system changed or took away, or that are in place again without us.
    pub system_changes: Vec<SystemChange>,
    /// True when everything is to be retrieved and given to [`Engine::resync`](crate::Engine::resync).
    pub retrieve: bool,
    /// True when a complete set of facts for everything is taken in.
    pub is_complete: bool,
    /// Keys whose planes or status changed.
    pub changed: Vec<Key>,
    /// Time to call [`Engine::due`](crate::Engine::due), on the clock of [`Now::monotonic`]. Replaces that of earlier steps.
    pub deadline: Option<Duration>,
}
