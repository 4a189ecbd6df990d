//! Messages between the agent and its handlers, without their form on the wire.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use holdfast_config::limits::error_text;
use holdfast_config::services::{
    ActionCause, ActionPhase, ChangeAuthor, HandlerCall, HandlerRefusal, Plane, ServedCall,
    WalkCause, WorkFailureKind,
};
use holdfast_config::{ClaimKey, Limit, LimitExceeded, ServiceTag};
use smol_str::SmolStr;

/// Request of a process to be a handler.
#[derive(Clone, Debug, Default)]
pub struct Registration {
    /// Name of the process, for messages and logs.
    pub name: SmolStr,
    pub calls: BTreeSet<ServedCall>,
    pub actions: BTreeSet<ActionName>,
    /// Actions that may be done twice.
    pub idempotent_actions: BTreeSet<ActionName>,
}

/// Bytes of the name of a handler. It stands in logs, in errors and in the state of the box; those in use are like a
/// program and its box.
const NAME_OCTETS: usize = 128;

impl Registration {
    /// Checks the name.
    ///
    /// # Errors
    /// When it is empty, too long, or would break a line of the log.
    pub(super) fn check_name(&self) -> Result<(), HandlerError> {
        let invalid = |text: &str| Err(HandlerError::new(HandlerErrorKind::Invalid, text));
        match &*self.name {
            "" => invalid("a registration has a name, and calls or actions"),
            name if name.len() > NAME_OCTETS => {
                invalid(&format!("the name of a handler has at most {NAME_OCTETS} bytes"))
            }
            name if name.contains(char::is_control) => {
                invalid("the name of a handler has no control characters")
            }
            _ => Ok(()),
        }
    }
}

/// An action of a service type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActionName {
    pub service: SmolStr,
    pub action: SmolStr,
}

impl fmt::Display for ActionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the action `{}` of `{}`", self.action, self.service)
    }
}

/// Call of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionRequest {
    /// Identifies the call among those of all instances.
    pub id: u64,
    /// State that asked for it, by the name of its claim.
    pub state: ClaimKey,
    pub phase: ActionPhase,
    /// Name of the action.
    pub action: SmolStr,
    /// Values by the names of the parameters: a JSON object.
    pub params: Arc<str>,
    /// Variables of the tree nodes that made the component: a JSON object, empty for none.
    pub vars: Arc<str>,
    /// Trace of the request that changed the instance last.
    pub trace: SmolStr,
    /// Change in which it was asked for; `None` where an earlier version of the agent has noted it.
    pub cause: Option<Arc<ActionCause>>,
    /// Longest time that it may take, in seconds.
    pub timeout_s: u64,
}

impl ActionRequest {
    pub fn name(&self) -> ActionName {
        ActionName { service: self.state.tag.service.clone(), action: self.action.clone() }
    }
}

/// Message of a handler.
#[derive(Clone, Debug)]
pub enum HandlerMessage {
    Edit {
        tid: u64,
        call: usize,
        content: OwnedEdit,
        /// Name of the instance; empty for that of the call.
        creator: String,
    },
    Done {
        tid: u64,
        served: Vec<ServedWork>,
    },
    Error {
        tid: u64,
        origin: String,
        reason: String,
    },
    /// It needs so many seconds from now on.
    More {
        tid: u64,
        seconds: u32,
    },
    /// A leaf of state of an instance; empty JSON when it is gone.
    Publish {
        path: String,
        json: String,
    },
    /// News of the action with this identifier.
    Action {
        id: u64,
        news: ActionNews,
    },
    Pong,
}

/// News of an action. A result is JSON, empty for none; a failure has its reason.
#[derive(Clone, Debug)]
pub enum ActionNews {
    /// The handler will know of it when it is asked.
    Accepted,
    Ended(Result<String, String>),
    /// Answer to a query.
    Status(ReportedProgress),
}

/// How far an action is, as its handler says.
#[derive(Clone, Debug)]
pub enum ReportedProgress {
    /// The handler cannot tell.
    Unknown,
    NeverSeen,
    Running,
    Ended(Result<String, String>),
}

impl ActionNews {
    /// Name for logs.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Ended(_) => "ended",
            Self::Status(ReportedProgress::Unknown) => "cannot tell",
            Self::Status(ReportedProgress::NeverSeen) => "never seen",
            Self::Status(ReportedProgress::Running) => "running",
            Self::Status(ReportedProgress::Ended(_)) => "ended before",
        }
    }
}

/// Content of one edit.
#[derive(Clone, Debug)]
pub enum OwnedEdit {
    Document { path: String, value: String },
    Lines(String),
}

impl OwnedEdit {
    pub(super) fn octets(&self) -> usize {
        match self {
            Self::Document { path, value } => path.len() + value.len(),
            Self::Lines(text) => text.len(),
        }
    }
}

/// End of the work for one call.
#[derive(Clone, Debug)]
pub struct ServedWork {
    pub call: usize,
    /// JSON object; empty to keep the opaque values that the state has.
    pub opaque: String,
    /// Reason for which the state is not to be left yet; empty to leave it.
    pub keep: String,
}

/// Message of the agent.
#[derive(Clone, Debug)]
pub enum AgentMessage {
    Registered,
    /// All calls were sent that waited for the handler.
    Synced,
    ServicesCommit {
        tid: u64,
        trace: String,
        cause: &'static str,
        is_dry_run: bool,
        /// Each with its number in the transaction.
        calls: Vec<(usize, HandlerCall)>,
        /// Causes of the walks of these instances, if nobody asked for them.
        causes: BTreeMap<ServiceTag, WalkCause>,
    },
    /// No answer is waited for any more.
    Abort {
        tid: u64,
        reason: String,
    },
    /// The transaction has ended.
    Closed {
        tid: u64,
        result: Result<(), String>,
    },
    /// A message was not accepted.
    Refused {
        tid: u64,
        /// Identifier of the action that it was about; 0 for none.
        action: u64,
        error: HandlerError,
    },
    /// An action is to be carried out.
    Action(ActionRequest),
    /// The agent asks how far an action is.
    QueryAction {
        id: u64,
        tag: ServiceTag,
        /// Name of the action.
        action: SmolStr,
    },
    /// The end of an action is recorded.
    ActionRecorded {
        id: u64,
    },
    /// The agent is about to stop.
    Drain,
    Ping,
}

/// Bytes that the tags, lengths and numbers of a message or of one call take at most.
const FIELD_OCTETS: usize = 96;

static HANDLER_MESSAGE_SIZE: Limit = Limit {
    name: "handler-message-size",
    figure: 4 << 20,
    unit: "bytes in a message to a handler",
    reason: "what gRPC clients accept by default",
};

impl AgentMessage {
    /// Checks that a handler accepts the message, by a size that is never less than the one on the wire.
    ///
    /// # Errors
    /// When it is larger than the limit.
    pub fn check_size(&self) -> Result<(), LimitExceeded> {
        HANDLER_MESSAGE_SIZE.check(self.most_octets())
    }

    /// The largest size that the message can have on the wire.
    pub(crate) fn most_octets(&self) -> usize {
        let content = match self {
            Self::ServicesCommit { trace, cause, calls, causes, .. } => {
                let of_call = |(_, call): &(usize, HandlerCall)| {
                    let cause = causes.get(&call.place.state.tag);
                    most_octets_of_call(call) + cause.map_or(0, most_octets_of_cause)
                };
                trace.len() + cause.len() + calls.iter().map(of_call).sum::<usize>()
            }
            Self::Action(ActionRequest { state, action, params, vars, trace, cause, .. }) => {
                let own = action.len() + params.len() + vars.len() + trace.len();
                let cause = cause.as_deref().map_or(0, most_octets_of_action_cause);
                own + cause + state.tag.service.len() + name_octets(state)
            }
            Self::Abort { reason, .. } => reason.len(),
            Self::Closed { result, .. } => result.as_ref().err().map_or(0, String::len),
            Self::Refused { error, .. } => error.text.len(),
            Self::QueryAction { tag, action, .. } => {
                tag.service.len() + tag.to_string().len() + action.len()
            }
            Self::Registered
            | Self::Synced
            | Self::ActionRecorded { .. }
            | Self::Drain
            | Self::Ping => 0,
        };
        content + FIELD_OCTETS
    }
}

fn most_octets_of_action_cause(ActionCause { kind, author, walk }: &ActionCause) -> usize {
    let ChangeAuthor { user, trace } = author;
    let texts = kind.len() + user.len() + trace.len();
    texts + walk.as_ref().map_or(0, most_octets_of_cause) + FIELD_OCTETS
}

fn most_octets_of_cause(cause: &WalkCause) -> usize {
    let WalkCause { kind, subject, before, after, places } = cause;
    let values = [before, after].into_iter().flatten().map(|it| it.len());
    let places = places.iter().map(|it| it.len() + FIELD_OCTETS);
    FIELD_OCTETS + kind.name().len() + subject.len() + values.chain(places).sum::<usize>()
}

fn most_octets_of_call(call: &HandlerCall) -> usize {
    let HandlerCall { place, version: _, params, vars, opaque, own_opaque } = call;
    let values = params.len() + vars.len() + opaque.len() + own_opaque.len();
    values + name_octets(&place.state) + FIELD_OCTETS
}

fn name_octets(state: &ClaimKey) -> usize {
    let [component_type, component] = &state.component;
    state.tag.to_string().len() + component_type.len() + component.len() + state.state.len()
}

/// The reason that a handler gives, cut to the longest text that errors and the state of the box can hold.
pub(super) fn reason_of_handler(text: &str) -> String {
    error_text(text)
}

/// Leaves that a handler wants to read.
#[derive(Clone, Debug)]
pub struct ReadQuestion {
    pub source: ReadSource,
    pub plane: Plane,
    pub path: String,
}

/// The box that is read.
#[derive(Clone, Debug)]
pub enum ReadSource {
    /// As it was when a call was made: transaction and number of the call.
    Call(u64, usize),
    /// As it is, by the grants of this type.
    Newest(SmolStr),
}

/// Class of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerErrorKind {
    Invalid,
    Unknown,
    Denied,
    Exists,
    Exhausted,
    Precondition,
    Unavailable,
}

/// Reason to refuse a message or a stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct HandlerError {
    pub kind: HandlerErrorKind,
    pub text: String,
}

impl HandlerError {
    /// An error with a text of a bounded length, since it may quote what a handler has sent.
    pub fn new(kind: HandlerErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: error_text(&text.into()) }
    }
}

impl From<HandlerRefusal> for HandlerError {
    fn from(HandlerRefusal { kind, text }: HandlerRefusal) -> Self {
        let kind = match kind {
            WorkFailureKind::Denied => HandlerErrorKind::Denied,
            WorkFailureKind::Limit => HandlerErrorKind::Exhausted,
            _ => HandlerErrorKind::Invalid,
        };
        Self::new(kind, text)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_config::services::{CallPhase, CallPlace};

    use super::*;

    fn state() -> ClaimKey {
        let tag = "access[name='acme']".parse().unwrap();
        ClaimKey { tag, component: ["port".into(), "eth1".into()], state: "sized".into() }
    }

    fn commit(sizes: &[usize]) -> AgentMessage {
        let call = |octets: &usize| HandlerCall {
            place: CallPlace { state: state(), phase: CallPhase::Create },
            version: "1.0.0".into(),
            params: "x".repeat(*octets).into(),
            vars: "".into(),
            opaque: "".into(),
            own_opaque: "".into(),
        };
        let calls = sizes.iter().map(call).enumerate().collect();
        let trace = "trace".to_owned();
        let cause = "set";
        let causes = BTreeMap::new();
        AgentMessage::ServicesCommit { tid: 1, trace, cause, is_dry_run: false, calls, causes }
    }

    fn action(octets: usize) -> AgentMessage {
        AgentMessage::Action(ActionRequest {
            id: 1,
            state: state(),
            phase: ActionPhase::Create,
            action: "prepare".into(),
            params: "x".repeat(octets).into(),
            vars: "".into(),
            trace: "trace".into(),
            cause: Some(Arc::new(ActionCause {
                kind: "walk".into(),
                author: ChangeAuthor { user: "ops".into(), trace: "trace".into() },
                walk: Some(WalkCause::object("link eth9", "PENDING")),
            })),
            timeout_s: 1,
        })
    }

    #[test]
    fn a_message_may_have_as_many_octets_as_the_limit_and_no_more() {
        let limit = HANDLER_MESSAGE_SIZE.figure;
        for sized in [action, |octets| commit(&[octets]), |octets| commit(&[1000, 0, octets])] {
            let room = limit - sized(0).most_octets();
            assert!(room > limit - 1500, "names take little: {room}");
            sized(room).check_size().unwrap();
            let error = sized(room + 1).check_size().unwrap_err().to_string();
            assert!(error.contains("4194304 bytes in a message to a handler"), "{error}");
        }
    }
}
