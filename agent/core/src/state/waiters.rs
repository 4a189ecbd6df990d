//! Requests that wait for something to be over.

use std::sync::Arc;

use holdfast_scheduler::{TransactionRecord, TxnId};
use tokio::sync::oneshot;

/// A request that waits for a complete reading of the box and the repairs that follow.
#[derive(Debug)]
pub(crate) struct Resync {
    pub(crate) answer: oneshot::Sender<Vec<Arc<TransactionRecord>>>,
    /// The last transaction before the request.
    pub(crate) after: TxnId,
    /// True once the complete reading was handled.
    pub(crate) is_read: bool,
}
