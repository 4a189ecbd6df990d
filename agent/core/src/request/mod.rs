//! Requests to the core, and their answers: what a caller asks for, on which terms, and what comes of it.

mod abandon;
pub(crate) mod differences;
mod election;
mod error;
mod follow_up;
mod intent;
mod log_note;
mod options;
pub(crate) mod preview;
mod reply;
mod restoration;
mod secret_keeper;
pub(crate) mod service_preview;

use holdfast_base::Caller;
use tokio::sync::oneshot;
use tokio::time::Instant;

pub(crate) use abandon::CancelOnDrop;
pub(crate) use differences::differences;
pub use differences::{BoundedList, ConfigChange, MAX_LISTED};
pub use election::ElectionError;
pub(crate) use election::Elections;
pub use error::{CommitError, CommitStamp, ConfirmError};
pub use follow_up::FollowUp;
pub use intent::{CredentialChange, Intent, Values, Walks};
pub(crate) use log_note::LogNote;
pub use options::{
    Comment, CommitOptions, ConfirmAction, Confirmation, Election, InvalidComment, InvalidPlanHash,
    MAX_COMMENT, PlanHash,
};
pub use preview::{ObjectChange, ObjectEffect, PendingObject, Preview};
pub(crate) use reply::Reply;
pub use restoration::{Restoration, RestoreRequest};
pub use secret_keeper::UserSecrets;
pub use service_preview::{ServiceChange, StateChange, StateEffect};

#[derive(Debug)]
pub(crate) struct CommitRequest {
    pub(crate) caller: Caller,
    pub(crate) intent: Intent,
    pub(crate) options: CommitOptions,
    pub(crate) received: Instant,
    pub(crate) reply: ReplySender,
}

/// Reply channel of a request.
#[derive(Debug)]
pub(crate) enum ReplySender {
    Commit(oneshot::Sender<Result<CommitStamp, CommitError>>),
    /// A dry run: it ends when its plan is made.
    Preview(oneshot::Sender<Result<Preview, CommitError>>),
}
