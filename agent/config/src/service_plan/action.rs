//! Actions of states: work outside of the configuration, done once when a state is reached or left.
//!
//! ```text
//!            +--- cancelled <---+
//!            v                  |
//! asked again <-- failed <-- queued --> dispatched --> succeeded
//!            ^       ^                    |     |
//!            |       +--------------------+     v
//!            +------------------------------ in doubt
//! ```
//!
//! The plan of a state holds its last call, so the service plans of all instances are the queue.

use std::sync::Arc;

use smol_str::SmolStr;

use super::origin::ActionCause;
use super::plan::{ComponentPlan, StatePlan};
use crate::claims::{ClaimKey, ServiceTag};

/// Action that a state has asked for, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionPlan {
    /// Identifies the call among those of all instances: about the time at which it was asked for, in nanoseconds since
    /// 1970.
    pub id: u64,
    pub phase: ActionPhase,
    pub progress: ActionProgress,
    /// Number of times that it was dispatched.
    pub attempts: u64,
    /// Time of the last change of its progress, in nanoseconds since 1970.
    pub since_ns: u64,
    pub call: ActionCall,
    /// `None` for one that an earlier version of the agent has noted.
    pub cause: Option<Arc<ActionCause>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionPhase {
    Create,
    Delete,
}

/// How far a call is. The texts are reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionProgress {
    /// Waits for the objects of its state, or for its turn.
    Queued,
    /// Recorded as about to begin, so it may have begun.
    Dispatched,
    Succeeded,
    Failed(Arc<str>),
    /// Interrupted where its end cannot be found out: done or not.
    InDoubt(Arc<str>),
    /// Given up before it began.
    Cancelled(Arc<str>),
}

/// Request for the action, fixed when its state was reached or left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionCall {
    pub target: ActionTarget,
    /// Values by the names of the parameters: a JSON object.
    pub params: Arc<str>,
    /// Actions with equal texts run one after the other; empty for none.
    pub serial: Arc<str>,
    /// Longest time that it may take, in seconds.
    pub timeout_s: u64,
}

/// Program that carries an action out, with the name of the action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionTarget {
    /// The agent itself.
    Builtin(SmolStr),
    /// A handler that is attached for this action of the type.
    Handler(SmolStr),
}

/// News of an action that a state asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionUpdate {
    /// State of the action, by the name of its claim.
    pub state: ClaimKey,
    /// Identifies the call; news of an earlier call changes nothing.
    pub id: u64,
    pub event: ActionEvent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionEvent {
    /// Beginning of the action, recorded before it.
    Dispatched,
    /// End of the action with this result, a JSON document.
    Ended(Arc<str>),
    /// Failure of the action, with the reason.
    Failed(Arc<str>),
    /// It was under way, and nobody can tell what came of it.
    Lost(Arc<str>),
    /// An operator wants it not to begin.
    Cancelled(Arc<str>),
    /// An operator says what came of it: success, or the reason for which it failed.
    Resolved(Result<(), Arc<str>>),
    /// An operator wants another call in its place.
    Rescheduled,
}

impl ActionEvent {
    /// True when a call that is so far can meet with the event. Late news do not change a call that has ended.
    pub fn fits(&self, progress: &ActionProgress) -> bool {
        use ActionProgress as Progress;
        match self {
            Self::Dispatched | Self::Ended(_) | Self::Failed(_) => {
                matches!(progress, Progress::Queued | Progress::Dispatched)
            }
            Self::Lost(_) => *progress == Progress::Dispatched,
            Self::Cancelled(_) => *progress == Progress::Queued,
            Self::Resolved(_) | Self::Rescheduled => {
                matches!(
                    progress,
                    Progress::Failed(_) | Progress::InDoubt(_) | Progress::Cancelled(_)
                )
            }
        }
    }
}

impl ActionProgress {
    /// Name in the model.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Dispatched => "dispatched",
            Self::Succeeded => "succeeded",
            Self::Failed(_) => "failed",
            Self::InDoubt(_) => "in-doubt",
            Self::Cancelled(_) => "cancelled",
        }
    }

    /// Reason for which it has not succeeded, and does not go on without a request.
    pub fn failure(&self) -> Option<&Arc<str>> {
        match self {
            Self::Failed(reason) | Self::InDoubt(reason) | Self::Cancelled(reason) => Some(reason),
            Self::Queued | Self::Dispatched | Self::Succeeded => None,
        }
    }
}

impl ActionTarget {
    /// Name of the action.
    pub fn name(&self) -> &SmolStr {
        match self {
            Self::Builtin(name) | Self::Handler(name) => name,
        }
    }

    pub fn is_of_handler(&self) -> bool {
        matches!(self, Self::Handler(_))
    }
}

// Name in the model.
crate::enum_names!(ActionPhase {
    Create = "create",
    Delete = "delete",
});

impl ActionPlan {
    /// Name of the status of its state in the model.
    pub fn status(&self) -> &'static str {
        match (&self.progress, self.phase) {
            (ActionProgress::Succeeded, ActionPhase::Create) => "create-reached",
            (ActionProgress::Succeeded, ActionPhase::Delete) => "delete-reached",
            _ if self.failure().is_some() => "failed",
            (_, ActionPhase::Create) => "create-init",
            (_, ActionPhase::Delete) => "delete-init",
        }
    }

    pub fn is_under_way(&self) -> bool {
        matches!(self.progress, ActionProgress::Queued | ActionProgress::Dispatched)
    }

    pub fn failure(&self) -> Option<&Arc<str>> {
        self.progress.failure()
    }
}

/// A call with the component and the state that asked for it.
#[derive(Clone, Copy, Debug)]
pub struct CallRef<'p> {
    pub component: &'p ComponentPlan,
    pub state: &'p StatePlan,
    pub action: &'p ActionPlan,
}

impl CallRef<'_> {
    /// Name of the claim of the state.
    pub fn key(&self, tag: &ServiceTag) -> ClaimKey {
        let component = [self.component.component_type.clone(), self.component.name.clone()];
        ClaimKey { tag: tag.clone(), component, state: self.state.name.clone() }
    }
}
