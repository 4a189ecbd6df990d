//! Results of changes: their stamps, and the reasons for which they are not made.

use holdfast_config::edit::EditErrors;
use holdfast_store::StoreError;
use smol_str::SmolStr;
use tokio::task::JoinError;

use crate::request::{ElectionError, PlanHash};

/// Result of a change that is durable and in the kernel. [`Datastore::current_revision`] shows it from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitStamp {
    /// Time of the commit, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Number of the revision that shows the change: those with smaller numbers do not, all later ones do.
    pub revision: u64,
}

/// Reason for which a change was not made. Configuration and kernel are as they were before.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    #[error("the request cannot be carried out")]
    Edit(#[source] EditErrors),
    #[error("{path}: {reason}")]
    Object { path: String, reason: String },
    #[error("{}cannot change {object}: {message}{}", place(path), symbol(*.errno))]
    Failed {
        /// The entry that asks for the object; `None` where the request does not change one.
        path: Option<String>,
        object: String,
        errno: Option<i32>,
        message: String,
        /// False when the rollback failed as well; the engine goes on repairing.
        undone: bool,
    },
    #[error("cannot record the change")]
    Store(#[source] StoreError),
    /// The log of configuration revisions or a checkpoint was not read or written.
    #[error("cannot {attempt}")]
    Log { attempt: &'static str, source: StoreError },
    #[error(transparent)]
    Confirm(#[from] ConfirmError),
    #[error(transparent)]
    Election(#[from] ElectionError),
    #[error("the hash of the plan is {found}, not {expected} as expected: repeat the dry run")]
    PlanDiffers { expected: PlanHash, found: PlanHash },
    #[error(
        "{path}: nothing new is placed on {link} while the maintenance session {session} is open"
    )]
    Closed { path: String, link: SmolStr, session: SmolStr },
    #[error("too many changes wait already: try again later")]
    Overloaded,
    /// Something that the work of handlers depends on changed each time before they had answered.
    #[error("failed in {service}: the configuration kept changing; try again")]
    Unsettled { service: String },
    /// The client has gone before anything of the change was recorded.
    #[error("the client no longer waits for the answer")]
    Abandoned,
    #[error("the change could not be examined: {reason}")]
    Internal { reason: String },
    #[error("the agent is stopping")]
    Stopped,
}

/// The path of an entry in front of what is said about it.
fn place(path: &Option<String>) -> String {
    path.as_ref().map(|path| format!("{path}: ")).unwrap_or_default()
}

/// The name of an errno in parentheses, such as ` (EBUSY)`; empty without one.
fn symbol(errno: Option<i32>) -> String {
    errno.map(|number| format!(" ({:?})", nix::errno::Errno::from_raw(number))).unwrap_or_default()
}

/// Contradiction between a request and the commit that waits, or the absence of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfirmError {
    #[error(
        "the commit `{id}` waits to be confirmed or cancelled; until then nothing else is changed"
    )]
    Waiting { id: SmolStr },
    #[error("no commit waits to be confirmed")]
    NoneWaits,
    #[error("the commit that waits to be confirmed is not `{id}`")]
    OtherId { id: SmolStr },
    #[error("a request that {what} a commit cannot change the configuration as well")]
    WithPayload { what: &'static str },
    #[error(
        "a dry run shows a change of the configuration; it cannot confirm, cancel or extend a commit"
    )]
    DryRun,
}

impl CommitError {
    /// Error for a thread that did not come to the end of an examination or a plan.
    pub(crate) fn ended(error: &JoinError) -> Self {
        let reason = if error.is_panic() { "its examination panicked" } else { "cancelled" };
        Self::Internal { reason: reason.to_owned() }
    }
}
