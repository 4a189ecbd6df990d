//! Maintenance sessions: a resource is emptied, taken out of service, and given back.
//!
//! ```text
//!  announced ---> draining ---> ready ---> in-maintenance ---> restoring ---> over
//!      |             |            |               |                |  |
//!      +-------------+------------+---------------+----------------+  +-----> cancelled, failed
//!                    cancel, or something that cannot be done
//! ```
//!
//! Start at [`Session::advance`], which goes as far as time, replies and fences permit. A session is a value: what it wants
//! fenced follows from its state ([`Session::wants`]), and so does everything else that holds while it is in a state. So it
//! goes on after a restart from its row alone. Waiting is by the monotonic clock, and `starts-at` by the wall clock.
//!
//! Absent on purpose: who stands on a resource (the caller walks the graph), how a link is drained or shut, and who may ask.

mod create;
mod machine;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::InstancePath;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::resource::Resource;

pub(crate) use self::machine::Unsent;
use self::machine::{Clock, Restoring};

/// Id of the consumer of what no entry of `maintenance/consumer` names. Nobody replies for it but an administrator.
pub const DEFAULT_CONSUMER: &str = "default";
/// Sessions that are open at a time: a controller makes one after another.
pub(crate) const MAX_SESSIONS: usize = 32;
/// Sessions that are kept when they have ended: those of some months.
pub(crate) const KEPT_SESSIONS: usize = 100;

const NS_PER_S: u64 = 1_000_000_000;

/// How much is done to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionKind {
    /// The resource is emptied and shut, and tested before it is given back.
    Full,
    /// The resource is started anew, and objects may stay on it.
    Restart,
}

holdfast_config::enum_names!(SessionKind {
    Full = "full",
    Restart = "restart",
});

/// A state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// Nothing new is placed on the resource, and consumers may reply.
    Announced,
    /// Objects on the resource are moved or stopped.
    Draining,
    /// All that was to be done before has been done, and the start has not come.
    Ready,
    InMaintenance,
    /// The resource is given back, and looked at.
    Restoring,
    Over,
    Cancelled,
    Failed,
}

holdfast_config::enum_names!(SessionState {
    Announced = "announced",
    Draining = "draining",
    Ready = "ready",
    InMaintenance = "in-maintenance",
    Restoring = "restoring",
    Over = "over",
    Cancelled = "cancelled",
    Failed = "failed",
});

impl SessionState {
    /// The name of the state in OPNFV Doctor, where that has one.
    pub fn alias(self) -> Option<&'static str> {
        match self {
            Self::Announced => Some("MAINTENANCE"),
            Self::Draining => Some("PLANNED_MAINTENANCE"),
            Self::InMaintenance => Some("IN_MAINTENANCE"),
            Self::Over => Some("MAINTENANCE_COMPLETE"),
            Self::Cancelled => Some("MAINTENANCE_CANCELLED"),
            Self::Failed => Some("MAINTENANCE_FAILED"),
            Self::Ready | Self::Restoring => None,
        }
    }

    /// True until nothing of the session is in force any more.
    pub fn is_open(self) -> bool {
        !matches!(self, Self::Over | Self::Cancelled | Self::Failed)
    }
}

/// The action on an object before maintenance begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectAction {
    /// The object stays. In sessions of the kind restart alone.
    Leave,
    /// The agent moves its traffic to another way.
    Move,
    /// Its consumer does something, and says when that is done.
    OwnAction,
    /// The object goes down with the resource.
    Stop,
}

holdfast_config::enum_names!(ObjectAction {
    Leave = "leave",
    Move = "move",
    OwnAction = "own-action",
    Stop = "stop",
});

impl ObjectAction {
    /// Actions that a consumer may choose from.
    pub fn allowed(kind: SessionKind) -> &'static [Self] {
        match kind {
            SessionKind::Full => &[Self::Move, Self::OwnAction, Self::Stop],
            SessionKind::Restart => &Self::ALL,
        }
    }

    /// The default action of a consumer in a session of a kind: one that may not leave moves.
    fn in_kind(self, kind: SessionKind) -> Self {
        match (self, kind) {
            (Self::Leave, SessionKind::Full) => Self::Move,
            (action, _) => action,
        }
    }

    /// True for objects that are elsewhere, or do not care, once the action is done.
    fn empties(self) -> bool {
        matches!(self, Self::Move | Self::OwnAction)
    }
}

/// The configuration of maintenance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaintenanceSettings {
    /// Least time for consumers to reply in.
    pub minimum_lead_time: Duration,
    pub default_action: ObjectAction,
    /// Time for a drain.
    pub drain_timeout: Duration,
    pub consumers: Vec<Consumer>,
}

impl Default for MaintenanceSettings {
    /// The defaults of the model.
    fn default() -> Self {
        Self {
            minimum_lead_time: Duration::from_secs(10),
            default_action: ObjectAction::Move,
            drain_timeout: Duration::from_secs(30),
            consumers: Vec::new(),
        }
    }
}

/// One who is affected by maintenance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumer {
    pub id: SmolStr,
    /// User who replies. Without one, an administrator does.
    pub identity: Option<SmolStr>,
    /// Its objects are those of the instances of this type of services,
    pub service_type: Option<SmolStr>,
    /// and entries of the native model with all that they contain.
    pub paths: Vec<InstancePath>,
    pub requires_agreement: bool,
    pub default_action: Option<ObjectAction>,
    /// Objects that open sessions may affect together.
    pub max_impacted: Option<u32>,
    /// Time that it needs to reply.
    pub lead_time: Option<Duration>,
}

impl Consumer {
    fn has(&self, object: &SessionObject) -> bool {
        self.paths.iter().any(|path| object.path.starts_with(path))
            || self.service_type.as_ref().is_some_and(|it| object.services.contains(it))
    }
}

/// Everything that stands on the resources of a session, as it was found last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Objects that consumers are asked about.
    pub objects: Vec<SessionObject>,
    /// Entries that do not work without the resources, those of the resources among them.
    pub without: BTreeSet<InstancePath>,
    /// Names of all entries, for comparison with other sessions.
    pub names: BTreeSet<SmolStr>,
}

/// An entry of the native model that stands on a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionObject {
    pub path: InstancePath,
    pub name: SmolStr,
    /// Types of services whose instances ask for it.
    pub services: BTreeSet<SmolStr>,
    /// Some of it works without the resources.
    pub has_other_way: bool,
    /// True for a resource of the session, and for objects within it, such as an address of the port. The session asks only a
    /// consumer whose `path` contains the object.
    pub is_of_resource: bool,
}

/// A request for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPlan {
    pub resources: BTreeSet<Resource>,
    pub kind: SessionKind,
    /// Nanoseconds since 1970.
    pub starts_at_ns: u64,
    pub ends_at_ns: Option<u64>,
    /// A resource is shut even if something loses its last way.
    pub allows_isolation: bool,
    pub created_by: SmolStr,
}

/// A session. Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    pub id: SmolStr,
    pub resources: BTreeSet<Resource>,
    pub kind: SessionKind,
    pub starts_at_ns: u64,
    pub ends_at_ns: Option<u64>,
    pub allows_isolation: bool,
    pub created_by: SmolStr,
    pub created_ns: u64,
    pub state: SessionState,
    /// When it has come to its state.
    pub since_ns: u64,
    /// Why it was cancelled, or has failed.
    pub reason: SmolStr,
    /// Until when consumers reply.
    pub reply_by_ns: u64,
    /// Its planned end has passed, and nobody has said that the work is done.
    pub is_overdue: bool,
    pub consumers: BTreeMap<SmolStr, SessionConsumer>,
    /// Names of everything that stands on its resources.
    contents: BTreeSet<SmolStr>,
    drain_timeout: Duration,
    /// The boot of the box in which it was in maintenance.
    boot: SmolStr,
    restoring: Option<Restoring>,
    /// True when it has failed, and its traffic stays elsewhere.
    keeps_drain: bool,
    /// True when it is forgotten at its end.
    is_deleted: bool,
    #[serde(skip)]
    clock: Clock,
    #[serde(skip)]
    unsent: Vec<Unsent>,
}

/// A consumer in a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionConsumer {
    pub identity: Option<SmolStr>,
    pub requires_agreement: bool,
    pub default_action: ObjectAction,
    /// The state that it was told last.
    pub told: SessionState,
    pub answer: Option<Answer>,
    /// The user who has answered, and the words.
    pub answered_by: SmolStr,
    pub text: SmolStr,
    /// Its objects, by their names.
    pub objects: BTreeMap<SmolStr, ObjectProgress>,
}

/// The progress of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectProgress {
    /// The action that its consumer has chosen, or that is carried out.
    pub action: Option<ObjectAction>,
    pub is_done: bool,
    /// True for a resource of the session, and for objects within it. Traffic cannot be moved away from these.
    #[serde(default)]
    pub is_of_resource: bool,
}

impl ObjectProgress {
    /// The action that was chosen, or the default action of the consumer. A part of a resource stops instead of moving.
    pub fn action_or(&self, default: ObjectAction) -> ObjectAction {
        let default = match default {
            ObjectAction::Move if self.is_of_resource => ObjectAction::Stop,
            action => action,
        };
        self.action.unwrap_or(default)
    }
}

/// The answer of a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    Ack,
    Nack,
}

holdfast_config::enum_names!(Answer {
    Ack = "ack",
    Nack = "nack",
});

/// The reply of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Without one, the reply tells of objects that are done.
    pub answer: Option<Answer>,
    /// Action of all objects that `actions` does not name; without one, the default.
    pub action: Option<ObjectAction>,
    pub actions: BTreeMap<SmolStr, ObjectAction>,
    /// Objects whose own action is done.
    pub done: BTreeSet<SmolStr>,
    pub text: SmolStr,
    pub by: SmolStr,
    pub is_by_admin: bool,
}

/// How far the drain of a session has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Nothing is carried any more.
    pub is_quiet: bool,
    /// Names of objects that have no other way.
    pub left: BTreeSet<SmolStr>,
}

/// The health of the resources of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Why they do not; nothing when they do.
    pub trouble: Option<SmolStr>,
    /// Probes send by them, so they have to work for a while.
    pub is_probed: bool,
}

/// The fences of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    pub drain: bool,
    pub shut: bool,
}

/// A step of a session that somebody is told of, with the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionEvent {
    pub step: Arc<SessionStep>,
    /// The session after all steps that came at the same time. Where the step is told later: as it is then.
    pub session: Arc<Session>,
}

/// A step of a session, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStep {
    /// Ascends, also over restarts of the agent; alarms have their ids from the same sequence.
    pub id: u64,
    pub time_ns: u64,
    /// Id of the session.
    pub session: SmolStr,
    /// The consumer that is told; administrators without one.
    pub consumer: Option<SmolStr>,
    pub change: SessionChange,
    /// The state as it is told: a consumer with nothing left is told `over` when maintenance begins.
    pub state: SessionState,
}

/// A kind of step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionChange {
    State,
    /// A consumer has replied.
    Replied(SmolStr),
    /// The action of an object is done.
    ActionDone(SmolStr, ObjectAction),
    /// Its planned end has passed.
    Overdue,
    /// The session is not kept any more.
    Forgotten,
}

impl SessionChange {
    pub fn name(&self) -> &'static str {
        match self {
            Self::State => "state",
            Self::Replied(_) => "replied",
            Self::ActionDone(..) => "instance-action-done",
            Self::Overdue => "overdue",
            Self::Forgotten => "forgotten",
        }
    }
}

/// A request about a session.
#[derive(Clone, Debug)]
pub enum SessionRequest {
    Create { plan: SessionPlan, contents: Contents },
    Reply { session: SmolStr, consumer: SmolStr, reply: Reply },
    WorkDone { session: SmolStr },
    Cancel { session: SmolStr, by: SmolStr },
    Delete { session: SmolStr, by: SmolStr },
}

/// News for a session.
#[derive(Clone, Debug)]
pub enum SessionInput {
    Contents(Contents),
    /// Its change of fences with this number was carried out, or refused.
    Fenced {
        number: u32,
        result: Result<(), SmolStr>,
    },
    Drained(Drained),
    Health(Health),
}

/// Reason for which a request about a session is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    #[error("there is no session `{0}`")]
    Unknown(SmolStr),
    #[error("a session needs a resource")]
    NoResource,
    #[error("{0} cannot be maintained: only interfaces and the box can")]
    Resource(Resource),
    #[error("the box cannot be emptied: a session of the box must be of the kind restart")]
    FullBox,
    #[error("`ends-at` is not after `starts-at`")]
    Ends,
    #[error(
        "the session starts too soon: the longest lead time and the drain take {least} s, but the start is in {ahead} s"
    )]
    TooSoon { least: u64, ahead: u64 },
    #[error("`{object}` is in the session `{session}` already, which is {state}")]
    Overlap { object: SmolStr, session: SmolStr, state: SessionState },
    #[error("{0} sessions are open already, which is the limit: end one first")]
    TooMany(usize),
    #[error(
        "open sessions would affect {count} objects of the consumer `{consumer}`, whose `max-impacted` is {most}"
    )]
    MaxImpacted { consumer: SmolStr, count: usize, most: u32 },
    #[error("the session `{session}` does not affect a consumer `{consumer}`")]
    UnknownConsumer { session: SmolStr, consumer: SmolStr },
    #[error("`{by}` is not the `identity` of the consumer `{consumer}`")]
    Identity { consumer: SmolStr, by: SmolStr },
    #[error("the session `{session}` is {state}: replies are taken while it is announced")]
    Late { session: SmolStr, state: SessionState },
    #[error("`leave` is not possible in a session of the kind full, which empties the resource")]
    Leave,
    #[error("`{object}` is not an object of the consumer `{consumer}` in this session")]
    NotItsObject { consumer: SmolStr, object: SmolStr },
    #[error("the session `{session}` is {state}: work is done while it is in-maintenance")]
    NotInMaintenance { session: SmolStr, state: SessionState },
    #[error("the session `{session}` has ended: it is {state}")]
    Ended { session: SmolStr, state: SessionState },
}
