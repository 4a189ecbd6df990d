//! Questions to the faults of the box, and listeners.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use holdfast_config::{EffectiveStatus, FenceOwner, InstancePath};
use holdfast_core::CoreHandle;
use holdfast_faults::{
    Alarm, Condition, LatchError, LatchRequest, LogEntry, MonitorError, OperatorError,
    OperatorState, OutsideReport, ResetError, Resource, Session, SessionEvent, SessionPlan,
    SessionRequest, Transition,
};
use holdfast_introspect::Distribution;
use smol_str::SmolStr;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, oneshot};

use super::drains::{Drain, DrainError, Drains};
use super::fencer;
use super::guard::{FenceError, Guard};
use super::objects::BoxObjects;
use super::sessions::{self, FollowedSessions, SessionAnswer, SessionFollower, SessionRefusal};
use super::stamps::Raise;

/// Requests that wait for the task of faults, which answers each within microseconds.
const REQUESTS: usize = 64;

/// Access to the faults of the box. Clones share it.
#[derive(Clone, Debug)]
pub struct FaultService {
    requests: mpsc::Sender<Request>,
    core: CoreHandle,
    objects: Arc<BoxObjects>,
    guard: Arc<Guard>,
    drains: Arc<Drains>,
}

/// The task of faults has ended, with the agent or by a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent is stopping, and no longer looks for faults")]
pub struct FaultsStopped;

/// One question, with the channel for its answer.
#[derive(Debug)]
pub(super) enum Request {
    Alarms(oneshot::Sender<Vec<Alarm>>),
    Log {
        after: u64,
        answer: oneshot::Sender<Vec<LogEntry>>,
    },
    Operate {
        word: OperatorWord,
        answer: oneshot::Sender<Result<bool, OperatorError>>,
    },
    Listen {
        after: Option<u64>,
        answer: oneshot::Sender<Listening>,
    },
    Report {
        reporter: Reporter,
        report: OutsideReport,
        answer: oneshot::Sender<Result<(), ReportError>>,
    },
    Affected {
        alarm: Condition,
        limit: usize,
        answer: oneshot::Sender<Vec<(InstancePath, EffectiveStatus)>>,
    },
    Raises {
        after: u64,
        answer: oneshot::Sender<Vec<Raise>>,
    },
    Times(oneshot::Sender<Vec<(&'static str, Distribution)>>),
    ResetRule {
        owner: SmolStr,
        name: SmolStr,
        answer: oneshot::Sender<Result<bool, ResetError>>,
    },
    Latch {
        request: LatchRequest,
        answer: oneshot::Sender<Result<bool, LatchRefusal>>,
    },
    Session {
        request: SessionRequest,
        answer: oneshot::Sender<Result<SessionAnswer, SessionRefusal>>,
    },
    FollowSessions {
        after: Option<u64>,
        answer: oneshot::Sender<FollowedSessions>,
    },
    Sessions(oneshot::Sender<Vec<Session>>),
    SessionSteps(oneshot::Sender<Vec<SessionEvent>>),
}

/// Reporter, with the name of its `monitor` entry.
#[derive(Clone, Debug)]
pub struct Reporter {
    pub monitor: SmolStr,
    /// The user, who has to be the identity of the entry. The command on the box needs none.
    pub caller: Option<SmolStr>,
}

/// Reason for which a report from outside is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    #[error("`{caller}` is not the `identity` of a monitor `{monitor}`")]
    Identity { monitor: SmolStr, caller: SmolStr },
    #[error("the monitor `{monitor}` reports more than {rate} times a second")]
    Rate { monitor: SmolStr, rate: u32 },
    #[error("there is no {0}, neither in the configuration nor on the box")]
    NoSuchResource(Resource),
}

/// Reason for which a latch is neither set nor lifted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LatchRefusal {
    #[error(transparent)]
    Latch(#[from] LatchError),
    #[error(transparent)]
    Fence(FenceError),
    #[error("there is no {0}, neither in the configuration nor on the box")]
    NoSuchResource(Resource),
}

/// Bytes of an operator's text: a ticket's number and a sentence or two.
const MAX_OPERATOR_TEXT: usize = 1024;

/// An operator's word on an alarm.
#[derive(Clone, Debug)]
pub struct OperatorWord {
    condition: Condition,
    state: OperatorState,
    operator: String,
    text: String,
}

/// Reason for which a text of an operator or a reporter is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WordError {
    #[error("the text has {0} bytes, and may have {MAX_OPERATOR_TEXT} at most")]
    Length(usize),
    #[error("the text has a control character, such as the end of a line")]
    Control,
}

/// Checks a text that alarms are shown with.
///
/// # Errors
/// When it is too long, or has more than one line.
pub fn check_text(text: &str) -> Result<(), WordError> {
    if text.len() > MAX_OPERATOR_TEXT {
        return Err(WordError::Length(text.len()));
    }
    if text.contains(char::is_control) {
        return Err(WordError::Control);
    }
    Ok(())
}

impl OperatorWord {
    /// # Errors
    /// When the text is too long, or has more than one line.
    pub fn new(
        condition: Condition,
        state: OperatorState,
        operator: String,
        text: String,
    ) -> Result<Self, WordError> {
        check_text(&text)?;
        Ok(Self { condition, state, operator, text })
    }

    pub(super) fn condition(&self) -> &Condition {
        &self.condition
    }

    pub(super) fn state(&self) -> OperatorState {
        self.state
    }

    /// Name of the operator, and the text.
    pub(super) fn said(&self) -> [&str; 2] {
        [&self.operator, &self.text]
    }
}

/// One message to a listener.
#[derive(Clone, Debug)]
pub enum News {
    /// All open alarms: one that is not among them has ended. `is_gap` when the log does not have all that came since the
    /// listener's last transition.
    Snapshot {
        alarms: Vec<Alarm>,
        is_gap: bool,
        last_id: u64,
    },
    Transition(Arc<Transition>),
    /// The listener knows everything up to this transition.
    Synced {
        last_id: u64,
    },
}

/// A listener: first it gets what it does not know yet, then each transition. A listener that is too slow for the
/// task gets what it has missed from the log.
#[derive(Debug)]
pub struct Listener {
    faults: FaultService,
    pending: VecDeque<News>,
    last_id: u64,
    transitions: broadcast::Receiver<Arc<Transition>>,
}

impl Listener {
    /// The next message; `None` when nobody looks for faults any more.
    pub async fn next(&mut self) -> Option<News> {
        loop {
            if let Some(news) = self.pending.pop_front() {
                return Some(news);
            }
            match self.transitions.recv().await {
                Ok(transition) if transition.id <= self.last_id => {}
                Ok(transition) => {
                    self.last_id = transition.id;
                    return Some(News::Transition(transition));
                }
                Err(RecvError::Lagged(_)) => {
                    let listening = self.faults.ask_to_listen(Some(self.last_id)).await.ok()?;
                    self.pending = listening.news;
                    self.last_id = listening.last_id;
                    self.transitions = listening.transitions;
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// The answer to one who begins to listen.
#[derive(Debug)]
pub(super) struct Listening {
    /// Transitions that the listener has missed; or a snapshot, if it knows nothing or the log does not go back so far.
    pub(super) news: VecDeque<News>,
    /// Id of the last transition that these contain.
    pub(super) last_id: u64,
    pub(super) transitions: broadcast::Receiver<Arc<Transition>>,
}

impl FaultService {
    pub(super) fn new(
        core: CoreHandle,
        objects: Arc<BoxObjects>,
        guard: Arc<Guard>,
        drains: Arc<Drains>,
    ) -> (Self, mpsc::Receiver<Request>) {
        let (requests, request_rx) = mpsc::channel(REQUESTS);
        (Self { requests, core, objects, guard, drains }, request_rx)
    }

    /// Begins to drain a resource for an owner, or goes on with it: static routes that have another way leave it. The drain goes
    /// on until it is ended, also when the answer is dropped; after a restart of the agent it has to be asked for again.
    ///
    /// # Errors
    /// For a resource that is neither an interface nor a next hop.
    pub fn drain(&self, owner: FenceOwner, resource: Resource) -> Result<Drain, DrainError> {
        self.drains.begin(owner, resource)
    }

    /// Ends the drains of all sessions of maintenance but these. At a start, drains of sessions stay until somebody has said so.
    pub fn retain_sessions(&self, living: &BTreeSet<SmolStr>) {
        self.drains.retain_sessions(living);
    }

    /// Open alarms, shelved ones among them.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn alarms(&self) -> Result<Vec<Alarm>, FaultsStopped> {
        self.ask(Request::Alarms).await
    }

    /// Entries of the log after this one.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn log(&self, after: u64) -> Result<Vec<LogEntry>, FaultsStopped> {
        self.ask(|answer| Request::Log { after, answer }).await
    }

    /// Sets what an operator says of an alarm. The answer tells whether that is on disk: it stands in either case.
    ///
    /// # Errors
    /// When nobody looks for faults any more; inside, when no such alarm is open.
    pub async fn operate(
        &self,
        word: OperatorWord,
    ) -> Result<Result<bool, OperatorError>, FaultsStopped> {
        self.ask(|answer| Request::Operate { word, answer }).await
    }

    /// Listens to all transitions after this one, or from now on.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn listen(&self, after: Option<u64>) -> Result<Listener, FaultsStopped> {
        let listening = self.ask_to_listen(after).await?;
        let last_id = listening.last_id;
        let mut pending = listening.news;
        pending.push_back(News::Synced { last_id });
        let transitions = listening.transitions;
        Ok(Listener { faults: self.clone(), pending, last_id, transitions })
    }

    /// Takes a report from outside in.
    ///
    /// # Errors
    /// When nobody looks for faults any more; inside, when the report is refused.
    pub async fn report(
        &self,
        reporter: Reporter,
        report: OutsideReport,
    ) -> Result<Result<(), ReportError>, FaultsStopped> {
        self.ask(|answer| Request::Report { reporter, report, answer }).await
    }

    /// The first of the objects that do not work, or work worse, because of an open alarm, by their paths in the native model.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn affected_paths(
        &self,
        alarm: &Condition,
        limit: usize,
    ) -> Result<Vec<(InstancePath, EffectiveStatus)>, FaultsStopped> {
        let alarm = alarm.clone();
        self.ask(|answer| Request::Affected { alarm, limit, answer }).await
    }

    /// Times of all raises since the agent began, from the report to one moment.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn times(&self) -> Result<Vec<(&'static str, Distribution)>, FaultsStopped> {
        self.ask(Request::Times).await
    }

    /// Moments of the alarms that were raised after an event, as far as they are kept.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn raises(&self, after: u64) -> Result<Vec<Raise>, FaultsStopped> {
        self.ask(|answer| Request::Raises { after, answer }).await
    }

    /// Ends the alarm of a rule that stays until somebody does. The answer tells whether that is on disk.
    ///
    /// # Errors
    /// When nobody looks for faults any more; inside, when there is no such rule, or it would fire again.
    pub async fn reset_rule(
        &self,
        owner: &str,
        name: &str,
    ) -> Result<Result<bool, ResetError>, FaultsStopped> {
        let owner = owner.into();
        let name = name.into();
        self.ask(|answer| Request::ResetRule { owner, name, answer }).await
    }

    /// Sets or lifts a latch. The answer tells whether that is on disk: it stands in either case.
    ///
    /// # Errors
    /// When nobody looks for faults any more; inside, when it is refused.
    pub async fn latch(
        &self,
        request: LatchRequest,
        allows_isolation: bool,
    ) -> Result<Result<bool, LatchRefusal>, FaultsStopped> {
        if request.is_set
            && request.is_fenced
            && let Err(refusal) = self.fence_first(&request, allows_isolation).await
        {
            return Ok(Err(refusal));
        }
        self.ask(|answer| Request::Latch { request, answer }).await
    }

    /// Shuts the interface of a latch before that is set, so that a fence that is refused leaves nothing.
    async fn fence_first(
        &self,
        request: &LatchRequest,
        allows_isolation: bool,
    ) -> Result<(), LatchRefusal> {
        let Resource::Interface(interface) = &request.resource else {
            return Err(LatchRefusal::Fence(FenceError::NoInterface(request.resource.clone())));
        };
        let owner = FenceOwner::Latch(request.by.clone());
        let Self { core, guard, .. } = self;
        let fenced = fencer::fence_one(core, guard, owner, interface, allows_isolation).await;
        fenced.map_err(LatchRefusal::Fence)
    }

    /// Makes a maintenance session. The objects that stand on its resources are found first.
    ///
    /// # Errors
    /// When nobody looks for faults any more; inside, when the session is refused.
    pub async fn create_session(
        &self,
        plan: SessionPlan,
    ) -> Result<Result<SessionAnswer, SessionRefusal>, FaultsStopped> {
        let contents = sessions::contents(&self.core, &self.objects, &plan.resources).await;
        match contents.map_err(SessionRefusal::Contents) {
            Ok(contents) => self.request_session(SessionRequest::Create { plan, contents }).await,
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Changes a maintenance session.
    ///
    /// # Errors
    /// When nobody looks for faults any more; inside, when the request is refused.
    pub async fn request_session(
        &self,
        request: SessionRequest,
    ) -> Result<Result<SessionAnswer, SessionRefusal>, FaultsStopped> {
        self.ask(|answer| Request::Session { request, answer }).await
    }

    /// All maintenance sessions that are kept.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn sessions(&self) -> Result<Vec<Session>, FaultsStopped> {
        self.ask(Request::Sessions).await
    }

    /// Steps of sessions that are in the log, with their sessions as these are now. Steps of sessions that are not kept any more
    /// are left out.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn session_steps(&self) -> Result<Vec<SessionEvent>, FaultsStopped> {
        self.ask(Request::SessionSteps).await
    }

    /// Follows all maintenance sessions, after this entry of the log or from now on.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn follow_sessions(
        &self,
        after: Option<u64>,
    ) -> Result<SessionFollower, FaultsStopped> {
        Ok(SessionFollower::new(self.clone(), self.ask_to_follow_sessions(after).await?))
    }

    pub(super) async fn ask_to_follow_sessions(
        &self,
        after: Option<u64>,
    ) -> Result<FollowedSessions, FaultsStopped> {
        self.ask(|answer| Request::FollowSessions { after, answer }).await
    }

    async fn ask_to_listen(&self, after: Option<u64>) -> Result<Listening, FaultsStopped> {
        self.ask(|answer| Request::Listen { after, answer }).await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, FaultsStopped> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.map_err(|_| FaultsStopped)?;
        answered.await.map_err(|_| FaultsStopped)
    }
}
