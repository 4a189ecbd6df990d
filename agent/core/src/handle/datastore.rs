//! The core as the services need it. Tests replace it by a small fake.

use std::collections::BTreeSet;
use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::Caller;
use holdfast_config::edit::Edit;
use holdfast_config::schema::Origin;
use holdfast_config::services::Applied;
use holdfast_config::{ClaimKey, Configuration, Models, ServiceTag};
use holdfast_scheduler::ValueStatus;
use holdfast_telemetry::{BoundaryReceiver, PolledReading, Revision};
use smol_str::SmolStr;
use tokio::sync::watch;

use super::polled::{PolledCatalog, PolledSources};
use super::remarks::Remark;
use crate::examination::IncompleteEntry;
use crate::publication::ServiceState;
use crate::request::{CommitError, CommitOptions, CommitStamp, Intent, Preview};

/// Snapshots to read, and transactions to change them.
pub trait Datastore: Clone + Send + Sync + 'static {
    /// Models of the newest configuration. Their schemas have every node that a revision shows so far.
    fn models(&self) -> Arc<Models>;

    /// The newest revision. It may lack a large change that was answered a moment ago.
    fn revision(&self) -> Arc<Revision>;

    /// The newest revision, once it shows all changes that were answered before the call.
    fn current_revision(&self) -> impl Future<Output = Arc<Revision>> + Send;

    /// A receiver of each new revision.
    fn watch(&self) -> watch::Receiver<Arc<Revision>>;

    /// All layers and their union, as of the newest revision or of a change that it lacks.
    fn configuration(&self) -> Configuration;

    /// The leaves that each source of polled state gives.
    fn polled_catalog(&self) -> Arc<PolledCatalog>;

    /// State that these sources give, read now. Other sources are not asked.
    fn polled(
        &self,
        origin: Origin,
        sources: &PolledSources,
    ) -> impl Future<Output = PolledReading> + Send;

    /// The names of these that are accounts of the box itself.
    fn accounts_of_box(
        &self,
        names: Vec<SmolStr>,
    ) -> impl Future<Output = Result<BTreeSet<SmolStr>, CommitError>> + Send;

    /// Shows state of a service; returns when a revision has it. The state stays until the service changes it, even if
    /// configuration beside it is deleted. Leaves of states of service plans are the exception: they go with their state,
    /// and one that comes later is not shown.
    fn show_state(&self, leaves: ServiceState) -> impl Future<Output = ()> + Send;

    /// A receiver of each commit from now on.
    fn boundaries(&self) -> BoundaryReceiver;

    /// Carries out one request as one transaction.
    fn commit(
        &self,
        caller: &Caller,
        edit: Edit,
        options: CommitOptions,
    ) -> impl Future<Output = Result<CommitStamp, CommitError>> + Send;

    /// Plans a change and returns its effects, without changing anything.
    fn preview(
        &self,
        caller: &Caller,
        intent: Intent,
        options: CommitOptions,
    ) -> impl Future<Output = Result<Preview, CommitError>> + Send;

    /// Reads the whole box again and repairs what differs; then finds the states of service instances with objects
    /// that are not in the kernel, each with the first such object.
    fn unapplied(
        &self,
        services: BTreeSet<ServiceTag>,
    ) -> impl Future<Output = Result<Vec<(ClaimKey, Applied)>, CommitError>> + Send;

    /// Carries out a change of any layers as one transaction, if it has the plan that the options expect.
    fn change_with(
        &self,
        caller: &Caller,
        intent: Intent,
        options: CommitOptions,
    ) -> impl Future<Output = Result<CommitStamp, CommitError>> + Send;

    /// Carries out a change of any layers as one transaction.
    fn change(
        &self,
        caller: &Caller,
        intent: Intent,
    ) -> impl Future<Output = Result<CommitStamp, CommitError>> + Send {
        self.change_with(caller, intent, CommitOptions::default())
    }
}

/// Source of the values in the engine.
#[tonic::async_trait]
pub trait Statuses: Send + Sync + 'static {
    /// All values, or only those that are intended and not configured, or configured only in part.
    async fn statuses(
        &self,
        pending_only: bool,
    ) -> Result<Vec<ValueStatus>, Box<dyn Error + Send + Sync>>;

    /// Present time, on the clock of the times in statuses.
    async fn monotonic_now(&self) -> Result<Duration, Box<dyn Error + Send + Sync>>;

    /// Entries of the configuration that give no value, because a leaf is missing.
    async fn incomplete_entries(
        &self,
    ) -> Result<Vec<IncompleteEntry>, Box<dyn Error + Send + Sync>>;

    /// Values that are in the system and do not have their effect, with the reason.
    async fn remarks(&self) -> Result<Vec<Remark>, Box<dyn Error + Send + Sync>>;
}
