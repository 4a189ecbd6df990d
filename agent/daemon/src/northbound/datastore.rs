//! What the services need of the core. Tests put a small one of their own in its place.

use std::future::Future;
use std::sync::Arc;

use holdfast_config::edit::{Edit, EditErrors};
use holdfast_config::schema::{Origin, Schema};
use holdfast_config::{InstancePath, Value};
use tokio::sync::watch;

use crate::caller::Caller;
use crate::store::StoreError;
use crate::telemetry::Revision;

/// A change that is durable, in the kernel, and visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// When it was committed, in nanoseconds since 1970.
    pub time_ns: u64,
    /// The first revision that shows it.
    pub revision: u64,
}

/// Why a change was not made. Configuration and kernel are as they were before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommitError {
    #[error("the request cannot be carried out")]
    Edit(#[source] EditErrors),
    #[error("{path}: {reason}")]
    Object { path: String, reason: String },
    #[error("cannot change {object}: {message}")]
    Failed {
        object: String,
        errno: Option<i32>,
        message: String,
        /// False when the way back failed as well; the engine goes on repairing.
        undone: bool,
    },
    #[error("cannot record the change")]
    Store(#[source] StoreError),
    #[error("too many changes wait already")]
    Overloaded,
    #[error("the change could not be examined: {reason}")]
    Internal { reason: String },
    #[error("the agent is stopping")]
    Stopped,
}

/// Reads snapshots and hands over changes.
pub trait Datastore: Clone + Send + Sync + 'static {
    fn schema(&self, origin: Origin) -> &Schema;

    /// The newest revision.
    fn revision(&self) -> Arc<Revision>;

    /// Tells of every new revision.
    fn watch(&self) -> watch::Receiver<Arc<Revision>>;

    /// Leaves that change without events, read now.
    fn polled(&self, origin: Origin) -> impl Future<Output = Vec<(InstancePath, Value)>> + Send;

    /// Carries out one request as one transaction.
    fn commit(
        &self,
        caller: &Caller,
        edit: Edit,
    ) -> impl Future<Output = Result<Committed, CommitError>> + Send;
}
