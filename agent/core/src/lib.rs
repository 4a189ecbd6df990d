//! The one owner of layers and engine, on a thread of its own.
//!
//! Start at [`Datastore::change`] to follow a change, at [`commit`] for the states that it passes, at [`task`] for the
//! loop. Everything that takes time (parsing a request, the store, the kernel) comes back to the loop as an event, so
//! facts flow while a change is carried out. Readers never come here: they take the newest [`Revision`] from a `watch`
//! channel.
//!
//! Absent on purpose: retries of failed requests (the client decides), decisions about order or dependencies (the plan
//! holds them), and anything that knows gRPC.

mod changes;
mod commit;
mod examination;
#[cfg(feature = "fixtures")]
pub mod fixtures;
mod handle;
mod planning;
mod publication;
mod reports;
mod request;
mod service_history;
mod shared_engine;
mod startup;
mod state;
mod task;

pub use commit::UnconfirmedCommit;
pub use examination::{
    CredentialSource, HandlerCalls, HandlerQuestion, HandlerReply, HandlerTransaction,
    IncompleteEntry, ObservedBox, SettingsCheck, package_row,
};
pub use handle::{
    AccessChanges, CertificateId, ConfiguredUsers, Core, CoreHandle, CoreView, Datastore,
    DrainPlan, DrainTarget, EntryImpact, FenceRequest, LastWay, MAX_DRAINED_HOPS, PolledCatalog,
    PolledSources, PolledState, Remark, Statuses,
};
pub use planning::MaintainedLinks;
pub use publication::ServiceState;
pub use reports::{CoreEvent, GraphVersion, ShortStatus};
pub use request::{
    BoundedList, Comment, CommitError, CommitOptions, CommitStamp, ConfigChange, ConfirmAction,
    ConfirmError, Confirmation, CredentialChange, Election, ElectionError, FollowUp, Intent,
    InvalidComment, InvalidPlanHash, MAX_COMMENT, MAX_LISTED, ObjectChange, ObjectEffect,
    PendingObject, PlanHash, Preview, Restoration, RestoreRequest, ServiceChange, StateChange,
    StateEffect, UserSecrets, Values, Walks,
};
pub use startup::{Parts, StartError, stored_configuration};
