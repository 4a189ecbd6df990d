//! Actions that handlers carry out: each is sent once, and whatever becomes of the handler, its end is found out if it can be.
//!
//! ```text
//! recorded as dispatched --> unsent --> sent -- ActionResult, or its time is over ----------> ended
//!                              ^          |                                                      ^
//!          NEVER_SEEN, or      |          | the handler is lost                                  |
//!          idempotent and      |          v                                                      |
//!          cannot tell         |        lost -- nobody came in its time ------------> in doubt --+
//!                              |          | a handler attaches                           ^       |
//!                              |          v                                              |       |
//!                              +------- asked -- cannot tell, or no answer --------------+       |
//!                                         ` RUNNING: sent;  ENDED -------------------------------+
//!
//! ended -- recorded in the service plan: the handler is told, and may forget it
//! ```
//!
//! The queue of actions opens each call here that it dispatches, and at a start each that it finds dispatched, and waits
//! for its end. A call that may have reached a handler is sent again only after the handler has said that it never saw it,
//! or has registered the action as one that may be done twice.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use holdfast_config::services::ActionEvent;
use serde::de::IgnoredAny;
use smol_str::SmolStr;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::Handlers;
use super::messages::{
    ActionName, ActionNews, ActionRequest, AgentMessage, HandlerError, HandlerErrorKind,
    Registration, ReportedProgress, reason_of_handler,
};
use super::registry::SessionId;

/// Bytes of the result of an action. A result is evaluated in one piece, and opaque values of it are saved.
const MAX_RESULT: usize = 64 << 10;
/// Time for an answer to the question how far an action is: the handler looks it up, and does nothing for it.
const QUERY_TIME: Duration = Duration::from_secs(30);

/// A message for a session.
pub(super) type Addressed = (SessionId, AgentMessage);

/// Actions that handlers carry out, and those under way. Nothing here waits.
#[derive(Debug, Default)]
pub(super) struct OpenActions {
    holders: BTreeMap<ActionName, Holder>,
    open: BTreeMap<u64, OpenAction>,
    /// The queue has opened the calls that it found dispatched at its start.
    is_complete: bool,
}

/// The handler that carries out an action.
#[derive(Clone, Copy, Debug)]
struct Holder {
    session: SessionId,
    /// Doing the action twice comes to the same as doing it once.
    is_idempotent: bool,
}

#[derive(Debug)]
struct OpenAction {
    request: ActionRequest,
    step: Step,
    deadline_tx: watch::Sender<Instant>,
    /// `None` once it has ended.
    end_tx: Option<oneshot::Sender<ActionEvent>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// No handler has it.
    Unsent,
    /// A handler may have done some of it, and is not attached any more.
    Lost,
    /// The handler was asked how far it is.
    Asked(SessionId),
    Sent {
        session: SessionId,
        is_accepted: bool,
    },
    /// Its end is known, and not recorded yet: should the agent be lost now, the handler is asked again.
    Ended,
}

impl Step {
    fn session(self) -> Option<SessionId> {
        match self {
            Self::Unsent | Self::Lost | Self::Ended => None,
            Self::Asked(session) | Self::Sent { session, .. } => Some(session),
        }
    }
}

/// Gives the end of one action.
#[derive(Debug)]
pub(in crate::services) struct ActionWait {
    id: u64,
    end_rx: oneshot::Receiver<ActionEvent>,
    deadline_rx: watch::Receiver<Instant>,
}

impl OpenAction {
    fn time(&self) -> Duration {
        Duration::from_secs(self.request.timeout_s)
    }

    fn enter(&mut self, step: Step, time: Duration) {
        self.step = step;
        self.deadline_tx.send_replace(Instant::now() + time);
    }

    fn query(&self) -> AgentMessage {
        let ActionRequest { id, state, action, .. } = &self.request;
        AgentMessage::QueryAction { id: *id, tag: state.tag.clone(), action: action.clone() }
    }
}

impl OpenActions {
    /// Another session that carries out one of the actions of a registration.
    pub(super) fn holder(&self, registration: &Registration) -> Option<(SessionId, &ActionName)> {
        let taken = registration.actions.iter().find_map(|name| self.holders.get_key_value(name));
        taken.map(|(name, holder)| (holder.session, name))
    }

    /// Notes a handler. The queries are for the actions whose end it may know.
    pub(super) fn attach(&mut self, session: SessionId, of: &Registration) -> Vec<Addressed> {
        for name in &of.actions {
            let is_idempotent = of.idempotent_actions.contains(name);
            self.holders.insert(name.clone(), Holder { session, is_idempotent });
        }
        let mut queries = self.ask_lost();
        // It must not take one for recorded that it is not asked about.
        let unrecorded = self.open.values().filter(|it| it.step == Step::Ended);
        let own = unrecorded.filter(|it| of.actions.contains(&it.request.name()));
        queries.extend(own.map(|it| (session, it.query())));
        queries
    }

    /// Forgets a handler. Its actions may be done, or not.
    pub(super) fn detach(&mut self, session: SessionId) {
        self.holders.retain(|_, holder| holder.session != session);
        let of_session = self.open.values_mut().filter(|it| it.step.session() == Some(session));
        of_session.for_each(|action| action.enter(Step::Lost, action.time()));
    }

    /// Service types whose actions a session carries out.
    pub(super) fn services(&self, session: SessionId) -> BTreeSet<SmolStr> {
        let own = self.holders.iter().filter(|(_, holder)| holder.session == session);
        own.map(|(name, _)| name.service.clone()).collect()
    }

    /// True once all actions are known that a handler is asked about when it attaches.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    fn open(&mut self, request: ActionRequest, step: Step) -> ActionWait {
        let (end_tx, end_rx) = oneshot::channel();
        let (deadline_tx, deadline_rx) = watch::channel(Instant::now());
        let id = request.id;
        let mut action = OpenAction { request, step, deadline_tx, end_tx: Some(end_tx) };
        action.enter(step, action.time());
        self.open.insert(id, action);
        ActionWait { id, end_rx, deadline_rx }
    }

    /// Asks how far lost actions are whose handlers are attached again.
    fn ask_lost(&mut self) -> Vec<Addressed> {
        let mut messages = Vec::new();
        for action in self.open.values_mut() {
            let holder = self.holders.get(&action.request.name());
            let Some(Holder { session, .. }) = holder.filter(|_| action.step == Step::Lost) else {
                continue;
            };
            action.enter(Step::Asked(*session), QUERY_TIME);
            messages.push((*session, action.query()));
        }
        messages
    }

    /// Sends the actions that no handler has, to those that carry them out.
    fn send_unsent(&mut self) -> Vec<Addressed> {
        let ids: Vec<u64> = self.open.keys().copied().collect();
        ids.into_iter().filter_map(|id| self.send(id)).collect()
    }

    /// Sends an action that no handler has, if one carries it out.
    fn send(&mut self, id: u64) -> Option<Addressed> {
        let action = self.open.get_mut(&id).filter(|it| it.step == Step::Unsent)?;
        let Holder { session, .. } = *self.holders.get(&action.request.name())?;
        action.enter(Step::Sent { session, is_accepted: false }, action.time());
        Some((session, AgentMessage::Action(action.request.clone())))
    }

    /// An action that this handler was sent, or asked about.
    fn of_session(&mut self, session: SessionId, id: u64) -> Result<&mut OpenAction, HandlerError> {
        let action = self.open.get_mut(&id).filter(|it| it.step.session() == Some(session));
        action.ok_or_else(|| {
            let text = format!("no action {id} of this handler is waited for");
            HandlerError::new(HandlerErrorKind::Unknown, text)
        })
    }

    fn end(&mut self, id: u64, event: ActionEvent) {
        let Some(action) = self.open.get_mut(&id) else { return };
        action.step = Step::Ended;
        if let Some(end_tx) = action.end_tx.take() {
            // The queue ends with the agent.
            let _ = end_tx.send(event);
        }
    }

    /// Forgets an action whose end is recorded. Its handler may do so, too.
    fn recorded(&mut self, id: u64) -> Option<Addressed> {
        let action = self.open.remove(&id)?;
        let Holder { session, .. } = *self.holders.get(&action.request.name())?;
        Some((session, AgentMessage::ActionRecorded { id }))
    }

    /// True when the handler of a session carries out an action that has ended.
    fn has_ended(&self, session: SessionId, id: u64) -> bool {
        let ended = self.open.get(&id).filter(|it| it.step == Step::Ended);
        let holder = ended.and_then(|it| self.holders.get(&it.request.name()));
        holder.is_some_and(|it| it.session == session)
    }

    fn note(&mut self, session: SessionId, id: u64, news: ActionNews) -> Result<(), HandlerError> {
        match news {
            ActionNews::Accepted => self.accepted(session, id),
            ActionNews::Ended(result) => self.result(session, id, result),
            ActionNews::Status(progress) => self.status(session, id, progress),
        }
    }

    fn accepted(&mut self, session: SessionId, id: u64) -> Result<(), HandlerError> {
        let action = self.of_session(session, id)?;
        if let Step::Sent { is_accepted, .. } = &mut action.step {
            *is_accepted = true;
        }
        Ok(())
    }

    fn result(
        &mut self,
        session: SessionId,
        id: u64,
        result: Result<String, String>,
    ) -> Result<(), HandlerError> {
        self.of_session(session, id)?;
        let result = match result {
            Ok(json) => checked(json),
            Err(reason) => {
                self.end(id, ActionEvent::Failed(reason_of_handler(&reason).into()));
                return Ok(());
            }
        };
        let event = match &result {
            Ok(json) => ActionEvent::Ended(json.as_str().into()),
            Err(error) => ActionEvent::Failed(error.text.as_str().into()),
        };
        self.end(id, event);
        result.map(drop)
    }

    fn status(
        &mut self,
        session: SessionId,
        id: u64,
        progress: ReportedProgress,
    ) -> Result<(), HandlerError> {
        if self.has_ended(session, id) {
            // The end that is being recorded is the first that was known.
            return Ok(());
        }
        let action = self.of_session(session, id)?;
        if !matches!(action.step, Step::Asked(_)) {
            let text = format!("nobody has asked for the status of the action {id}");
            return Err(HandlerError::new(HandlerErrorKind::Precondition, text));
        }
        match progress {
            ReportedProgress::NeverSeen => action.enter(Step::Unsent, action.time()),
            ReportedProgress::Running => {
                action.enter(Step::Sent { session, is_accepted: true }, action.time());
            }
            ReportedProgress::Ended(result) => return self.result(session, id, result),
            ReportedProgress::Unknown => {
                self.doubt(id, "its handler cannot tell what came of it".to_owned());
            }
        }
        Ok(())
    }

    /// Repeats an action that may have been done already, if that does no harm.
    fn doubt(&mut self, id: u64, reason: String) {
        let Some(action) = self.open.get_mut(&id) else { return };
        let holder = self.holders.get(&action.request.name());
        match holder.is_some_and(|it| it.is_idempotent) {
            true => action.enter(Step::Unsent, action.time()),
            false => self.end(id, ActionEvent::Lost(reason.into())),
        }
    }

    /// Ends what an action waits for, once its time is over.
    fn late(&mut self, id: u64) {
        let Some(action) = self.open.get_mut(&id) else { return };
        if *action.deadline_tx.borrow() > Instant::now() {
            return;
        }
        let seconds = action.request.timeout_s;
        let failed = |reason: String| ActionEvent::Failed(reason.into());
        let event = match action.step {
            // The queue pauses.
            Step::Unsent if self.holders.contains_key(&action.request.name()) => {
                return action.enter(Step::Unsent, action.time());
            }
            Step::Unsent => {
                failed(format!("the action was not begun: no handler came within {seconds} s"))
            }
            Step::Sent { is_accepted: false, .. } => {
                failed(format!("its handler has not accepted it within {seconds} s"))
            }
            Step::Sent { .. } => failed(format!("not done within {seconds} s")),
            Step::Asked(_) => {
                let limit = QUERY_TIME.as_secs();
                let reason = format!("its handler has not said within {limit} s what came of it");
                return self.doubt(id, reason);
            }
            Step::Ended => return,
            Step::Lost => {
                let reason = format!("its handler was lost, and none came within {seconds} s");
                ActionEvent::Lost(reason.into())
            }
        };
        self.end(id, event);
    }
}

/// The result of an action, if it is one: JSON, `null` for an empty text.
fn checked(json: String) -> Result<String, HandlerError> {
    if json.len() > MAX_RESULT {
        let text = format!("the result has more than {MAX_RESULT} bytes");
        return Err(HandlerError::new(HandlerErrorKind::Exhausted, text));
    }
    if json.is_empty() {
        return Ok("null".to_owned());
    }
    match serde_json::from_str::<IgnoredAny>(&json) {
        Ok(IgnoredAny) => Ok(json),
        Err(error) => {
            let text = format!("the result is not JSON: {error}");
            Err(HandlerError::new(HandlerErrorKind::Invalid, text))
        }
    }
}

impl Handlers {
    /// True while a handler is attached that carries out this action.
    pub(in crate::services) fn carries_out(&self, name: &ActionName) -> bool {
        self.registry().actions.holders.contains_key(name)
    }

    /// Has a handler carry out an action that is recorded as dispatched.
    ///
    /// # Errors
    /// When the action is larger than a message.
    pub(in crate::services) fn begin_action(
        &self,
        request: ActionRequest,
    ) -> Result<ActionWait, ActionEvent> {
        let message = AgentMessage::Action(request.clone());
        message.check_size().map_err(|error| ActionEvent::Failed(error.to_string().into()))?;
        let mut registry = self.registry();
        let wait = registry.actions.open(request, Step::Unsent);
        let message = registry.actions.send(wait.id);
        registry.send_all(message);
        Ok(wait)
    }

    /// Finds out what becomes of an action that was dispatched before the agent started.
    pub(in crate::services) fn resume_action(&self, request: ActionRequest) -> ActionWait {
        let mut registry = self.registry();
        let wait = registry.actions.open(request, Step::Lost);
        let messages = registry.actions.ask_lost();
        registry.send_all(messages);
        wait
    }

    /// Notes that all actions were resumed, so that handlers are told once they were asked.
    pub(in crate::services) fn note_resumed(&self) {
        let mut registry = self.registry();
        if !registry.actions.is_complete {
            registry.actions.is_complete = true;
            registry.note_walked([]);
        }
    }

    /// Sends the actions again that their handlers have never seen.
    pub(in crate::services) fn send_unsent(&self) {
        let mut registry = self.registry();
        let messages = registry.actions.send_unsent();
        registry.send_all(messages);
    }

    /// True when there are actions to be sent again.
    pub(in crate::services) fn has_unsent(&self) -> bool {
        let registry = self.registry();
        registry.actions.open.values().any(|it| it.step == Step::Unsent)
    }

    /// Identifiers of the actions that wait for a handler, whether or not it may have done some of them.
    pub(in crate::services) fn unattended(&self) -> BTreeSet<u64> {
        let registry = self.registry();
        let is_waiting = |it: &OpenAction| matches!(it.step, Step::Unsent | Step::Lost);
        let unattended = registry.actions.open.iter().filter(|(_, it)| is_waiting(it));
        unattended.map(|(id, _)| *id).collect()
    }

    /// Notes that the end of an action is recorded, and tells its handler.
    pub(in crate::services) fn note_recorded(&self, id: u64) {
        let mut registry = self.registry();
        let message = registry.actions.recorded(id);
        registry.send_all(message);
    }

    /// Waits for the end of an action.
    pub(in crate::services) async fn end_of(&self, wait: ActionWait) -> ActionEvent {
        let ActionWait { id, mut end_rx, mut deadline_rx } = wait;
        loop {
            let deadline = *deadline_rx.borrow_and_update();
            tokio::select! {
                biased;
                ended = &mut end_rx => {
                    return ended.unwrap_or_else(|_| ActionEvent::Lost("the agent forgot it".into()));
                }
                () = sleep_until(deadline) => {
                    self.registry().actions.late(id);
                    self.note_moved();
                }
                changed = deadline_rx.changed() => if changed.is_err() {
                    // The end has been sent before.
                    continue;
                },
            }
        }
    }

    /// Takes what a handler says of one of its actions.
    pub(super) fn note_news(
        &self,
        session: SessionId,
        id: u64,
        news: ActionNews,
    ) -> Result<(), HandlerError> {
        let mut registry = self.registry();
        let handler = registry.name(session);
        info!(%handler, id, news = news.name(), "a handler says how far an action is");
        let result = registry.actions.note(session, id, news);
        drop(registry);
        // It may have to be sent again.
        self.note_moved();
        result
    }
}
