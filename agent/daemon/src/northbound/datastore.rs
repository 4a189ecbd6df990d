//! What the services need of the core. Tests put a small one of their own in its place.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use holdfast_base::Caller;
use holdfast_config::edit::Edit;
use holdfast_config::schema::{Origin, Schema};
use holdfast_config::{Configuration, InstancePath, Value};
use holdfast_telemetry::{Boundaries, Revision};
use smol_str::SmolStr;
use tokio::sync::watch;

use crate::core::{CommitError, CommitOptions, Committed, Intent, Preview, ServiceState};

/// Reads snapshots and hands over changes.
pub trait Datastore: Clone + Send + Sync + 'static {
    fn schema(&self, origin: Origin) -> &Schema;

    /// The newest revision. A large change may have been answered just before its own is there.
    fn revision(&self) -> Arc<Revision>;

    /// The newest revision, when it shows all changes that were answered before.
    fn current_revision(&self) -> impl Future<Output = Arc<Revision>> + Send;

    /// Tells of every new revision.
    fn watch(&self) -> watch::Receiver<Arc<Revision>>;

    /// What was asked, and what it comes to: that of the newest revision or a newer one.
    fn configuration(&self) -> Configuration;

    /// Leaves that change without events, read now.
    fn polled(&self, origin: Origin) -> impl Future<Output = Vec<(InstancePath, Value)>> + Send;

    /// Which of these are accounts of the box itself.
    fn accounts_of_box(
        &self,
        names: Vec<SmolStr>,
    ) -> impl Future<Output = Result<BTreeSet<SmolStr>, CommitError>> + Send;

    /// Shows state that a service keeps; done when a revision has it. It stays until it is told otherwise, whatever
    /// becomes of the configuration beside it.
    fn show_state(&self, leaves: ServiceState) -> impl Future<Output = ()> + Send;

    /// Tells of every commit from now on.
    fn boundaries(&self) -> Boundaries;

    /// Carries out one request as one transaction.
    fn commit(
        &self,
        caller: &Caller,
        edit: Edit,
        options: CommitOptions,
    ) -> impl Future<Output = Result<Committed, CommitError>> + Send;

    /// What the same request would do. Nothing is changed.
    fn preview(
        &self,
        caller: &Caller,
        edit: Edit,
        options: CommitOptions,
    ) -> impl Future<Output = Result<Preview, CommitError>> + Send;

    /// Carries out a change of whichever layers as one transaction.
    fn change(
        &self,
        caller: &Caller,
        intent: Intent,
    ) -> impl Future<Output = Result<Committed, CommitError>> + Send;
}
