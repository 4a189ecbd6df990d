//! The queue of actions: each that a service plan asks for is carried out once, and its result goes back to the plan.
//!
//! ```text
//! queued in a committed plan, objects of its state settled, its turn, no pause
//!    | recorded as dispatched
//!    v
//! carried out --> the result, or a failure, in a walk of the instance
//! ```
//!
//! The plans are the queue, so it is as durable as they are. A call that a start finds dispatched may have been done: its
//! handler is asked; a builtin action is carried out again if that does no harm, and is in doubt otherwise. The queue begins
//! after the first complete reading of the box, and pauses during a bootstrap and while a commit waits to be confirmed. A
//! call of a handler that is not attached stays queued.

mod probe;
mod shown_waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{ErrorChain, RebootInhibitors};
use holdfast_config::services::{
    ActionCall, ActionEvent, ActionPhase, ActionPlan, ActionProgress, ActionTarget, ActionUpdate,
    Applied, Book, BoxState,
};
use holdfast_config::{ClaimKey, Elem, Path, ServiceTag, Value};
use holdfast_core::{CommitError, CoreHandle, Datastore, Walks};
use holdfast_platform::probe::Probes;
use smol_str::SmolStr;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use self::shown_waits::ShownWaits;
use super::handlers::{ActionName, ActionRequest, Handlers};
use super::requester::Requester;
use super::walks::lenient_walk;

/// Actions that are carried out at one time.
const AT_ONCE: usize = 8;
/// Time after which the core is asked again that was busy, or had a commit that waits to be confirmed.
const RETRY: Duration = Duration::from_secs(1);
/// Native path of the reason for a pause.
const PAUSE: [&str; 2] = ["service-state", "queue-pause"];

/// Parts of the agent that actions need. Clones share them.
#[derive(Clone, Debug)]
pub struct ActionResources {
    pub core: CoreHandle,
    pub probes: Probes,
    /// Work that is under way; actions wait for some of it.
    pub undertakings: RebootInhibitors,
}

/// Carries out actions for as long as the handle is kept.
pub(super) fn carry_out(resources: ActionResources, handlers: Handlers) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(ActionQueue::new(resources, handlers).run()))
}

/// One call: the state that asked for it, and its identifier.
type Call = (ClaimKey, u64);

struct ActionQueue {
    resources: ActionResources,
    handlers: Handlers,
    /// The plans as they were looked at last.
    book: Book,
    /// Calls that are not done, the oldest first in each instance.
    open: BTreeMap<Call, ActionPlan>,
    running: BTreeMap<Call, Arc<str>>,
    tasks: JoinSet<(Call, Outcome)>,
    retry_at: Option<Instant>,
    /// Reason for a pause that is shown.
    pause: Option<SmolStr>,
    waits: ShownWaits,
    /// Calls or handlers have changed since the waits were shown.
    has_moved: bool,
}

/// End of one attempt.
enum Outcome {
    Done,
    /// The core had no time for it.
    Later,
    Stopped,
}

impl ActionQueue {
    fn new(resources: ActionResources, handlers: Handlers) -> Self {
        Self {
            resources,
            handlers,
            book: Book::default(),
            open: BTreeMap::new(),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            retry_at: None,
            pause: None,
            waits: ShownWaits::default(),
            has_moved: false,
        }
    }

    async fn run(mut self) {
        let core = self.resources.core.clone();
        let mut events = core.listen();
        let mut revisions = core.watch();
        let mut moved = self.handlers.watch();
        loop {
            self.look();
            self.resume();
            if !self.pauses().await {
                self.handlers.send_unsent();
                self.dispatch();
            }
            if std::mem::take(&mut self.has_moved) {
                self.show_waits().await;
            }
            let is_open = !self.open.is_empty();
            let retry_at = self.retry_at;
            tokio::select! {
                changed = revisions.changed() => if changed.is_err() { return },
                // An object of a state may have come.
                event = events.recv(), if is_open => if let Err(RecvError::Closed) = event { return },
                changed = moved.changed() => match changed {
                    Ok(()) => self.has_moved = true,
                    Err(_) => return,
                },
                Some(ended) = self.tasks.join_next() => if !self.note_end(ended) { return },
                () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {
                    self.retry_at = None;
                }
            }
        }
    }

    /// Notes the calls of all plans that have changed.
    fn look(&mut self) {
        let new = self.resources.core.configuration().layers().book.clone();
        let changed: BTreeSet<ServiceTag> =
            Book::differences(&self.book, &new).map(|(tag, ..)| tag.clone()).collect();
        self.book = new;
        if changed.is_empty() {
            return;
        }
        self.has_moved = true;
        self.open.retain(|(key, _), _| !changed.contains(&key.tag));
        for tag in changed {
            let calls = self.book.get(&tag).into_iter().flat_map(|plan| plan.calls());
            for call in calls.filter(|call| call.action.is_under_way()) {
                self.open.insert((call.key(&tag), call.action.id), call.action.clone());
            }
        }
    }

    /// True while nothing may be dispatched. The reason is shown while something waits for it.
    async fn pauses(&mut self) -> bool {
        let is_waiting = self.open.len() > self.running.len() || self.handlers.has_unsent();
        let inhibitor = self.resources.undertakings.inhibitor_of_actions();
        let pause = inhibitor.filter(|_| is_waiting);
        if pause.is_some() {
            // Nobody tells of the end of it.
            self.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
        }
        if pause != self.pause {
            self.pause = pause;
            self.show_pause().await;
        }
        self.pause.is_some()
    }

    async fn show_pause(&self) {
        let path = Path { elems: PAUSE.map(Elem::new).into() };
        let core = &self.resources.core;
        if let Ok(path) = core.models().native.resolve_write(&path) {
            core.show_state(vec![(path, self.pause.clone().map(Value::Str))]).await;
        }
    }

    /// Has handlers asked for the calls that were dispatched before this start.
    fn resume(&mut self) {
        let dispatched = self.open.iter().filter(|(call, action)| {
            Next::of(action) == Next::Resume && !self.running.contains_key(call)
        });
        for (call, action) in
            dispatched.map(|(call, it)| (call.clone(), it.clone())).collect::<Vec<_>>()
        {
            let wait = self.handlers.resume_action(self.request(&call, &action));
            self.running.insert(call.clone(), Arc::clone(&action.call.serial));
            let core = self.resources.core.clone();
            let handlers = self.handlers.clone();
            self.tasks.spawn(async move {
                let event = handlers.end_of(wait).await;
                record_end(&core, &handlers, call, event).await
            });
        }
        self.handlers.note_resumed();
    }

    /// The call as its handler gets it.
    fn request(&self, (key, id): &Call, action: &ActionPlan) -> ActionRequest {
        let plan = self.book.get(&key.tag);
        let [component_type, name] = &key.component;
        let component = plan.and_then(|plan| plan.component(component_type, name));
        ActionRequest {
            id: *id,
            state: key.clone(),
            phase: action.phase,
            action: action.call.target.name().clone(),
            params: Arc::clone(&action.call.params),
            vars: component.map(|it| Arc::clone(&it.vars)).unwrap_or_default(),
            trace: plan.map(|plan| plan.record.trace.clone()).unwrap_or_default(),
            cause: action.cause.clone(),
            timeout_s: action.call.timeout_s,
        }
    }

    /// True for a call whose handler is not attached.
    fn lacks_handler(&self, (key, _): &Call, action: &ActionPlan) -> bool {
        match handled(key, action) {
            Some(name) => !self.handlers.carries_out(&name),
            None => false,
        }
    }

    /// Shows which calls wait for a handler.
    async fn show_waits(&mut self) {
        let is_queued = |(call, _): &(&Call, _)| !self.running.contains_key(*call);
        let of_handlers = self.open.iter().filter(|(_, it)| it.call.target.is_of_handler());
        let unattended = self.handlers.unattended();
        let waiting = of_handlers.filter(|entry| match is_queued(entry) {
            true => self.lacks_handler(entry.0, entry.1),
            false => unattended.contains(&entry.0.1),
        });
        let waiting =
            waiting.filter_map(|((key, _), action)| Some((key.clone(), handled(key, action)?)));
        let core = &self.resources.core;
        let changes = self.waits.update(&core.models().native, &waiting.collect());
        if !changes.is_empty() {
            core.show_state(changes).await;
        }
    }

    /// Types with open calls that are switched off: no action of theirs begins.
    fn switched_off(&self) -> BTreeSet<SmolStr> {
        let configuration = self.resources.core.configuration();
        let types: BTreeSet<_> = self.open.keys().map(|(key, _)| &key.tag.service).collect();
        let off = types.into_iter().filter(|it| !configuration.is_switched_on(it));
        off.cloned().collect()
    }

    /// Begins what can begin.
    fn dispatch(&mut self) {
        if self.retry_at.is_some() || self.open.is_empty() {
            return;
        }
        let state = self.resources.core.observed_box();
        // Calls that wait for a lost handler are not counted as load.
        let idle = self.handlers.unattended();
        let switched_off = self.switched_off();
        let mut busy = self.running.keys().filter(|(_, id)| !idle.contains(id)).count();
        for ((key, id), action) in &self.open {
            if busy >= AT_ONCE {
                return;
            }
            let call = (key.clone(), *id);
            let serial = &action.call.serial;
            let is_taken = !serial.is_empty() && self.running.values().any(|it| it == serial);
            // The remaining calls have no objects any more.
            let is_settled =
                action.phase == ActionPhase::Delete || state.applied(key) == Applied::Done;
            let is_running = self.running.contains_key(&call);
            if switched_off.contains(&key.tag.service)
                || is_running
                || is_taken
                || !is_settled
                || self.lacks_handler(&call, action)
            {
                continue;
            }
            let request = self.request(&call, action);
            self.running.insert(call.clone(), Arc::clone(serial));
            busy += 1;
            let means = (self.resources.clone(), self.handlers.clone());
            self.tasks.spawn(carry_out_one(means, call, action.clone(), request));
        }
    }

    /// Notes the end of an attempt. False when the core has stopped.
    fn note_end(&mut self, ended: Result<(Call, Outcome), JoinError>) -> bool {
        match ended {
            Ok((call, outcome)) => {
                self.running.remove(&call);
                match outcome {
                    Outcome::Done => {}
                    Outcome::Later => self.retry_at = Some(Instant::now() + RETRY),
                    Outcome::Stopped => return false,
                }
            }
            // Its call stays among those that run: it is not repeated before the next start.
            Err(error) => error!(%error, "an action of a service panicked"),
        }
        true
    }
}

/// Next step of a call that nobody carries out.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Begin,
    /// Its handler is asked how far it is.
    Resume,
    /// It may have been done.
    GiveUp,
}

impl Next {
    /// The result of a call that was dispatched before this start is asked for, or the call is repeated if that does
    /// no harm.
    fn of(action: &ActionPlan) -> Self {
        let is_dispatched = action.progress == ActionProgress::Dispatched;
        match &action.call.target {
            ActionTarget::Handler(_) if is_dispatched => Self::Resume,
            ActionTarget::Builtin(name) if is_dispatched && !is_idempotent(name) => Self::GiveUp,
            ActionTarget::Builtin(_) | ActionTarget::Handler(_) => Self::Begin,
        }
    }
}

/// True when a builtin action that is done twice comes to the same as one that is done once. A probe changes nothing. Of
/// actions of other versions of the agent nothing is known.
fn is_idempotent(builtin: &str) -> bool {
    builtin == probe::PING
}

/// Name of the action of a call for a handler.
fn handled(key: &ClaimKey, action: &ActionPlan) -> Option<ActionName> {
    match &action.call.target {
        ActionTarget::Handler(name) => {
            Some(ActionName { service: key.tag.service.clone(), action: name.clone() })
        }
        ActionTarget::Builtin(_) => None,
    }
}

/// Carries out one call, and reports.
async fn carry_out_one(
    (ActionResources { core, probes, .. }, handlers): (ActionResources, Handlers),
    call: Call,
    action: ActionPlan,
    request: ActionRequest,
) -> (Call, Outcome) {
    if Next::of(&action) == Next::GiveUp {
        let reason = "it was under way when the agent ended";
        return report_to_the_end(&core, call, ActionEvent::Lost(reason.into())).await;
    }
    if let Err(error) = report(&core, &call, ActionEvent::Dispatched).await {
        let outcome = match error {
            CommitError::Stopped => Outcome::Stopped,
            _ => Outcome::Later,
        };
        return (call, outcome);
    }
    if !is_dispatched(&core, &call) {
        // It was cancelled, or its state left, before it began.
        return (call, Outcome::Done);
    }
    let ((key, id), name) = (&call, action.call.target.name());
    let cause = action.cause.as_deref().map(tracing::field::display);
    info!(service = %key.tag, state = %key.state, action = %name, id, cause, "an action begins");
    let event = match &action.call.target {
        ActionTarget::Handler(_) => match handlers.begin_action(request) {
            Ok(wait) => handlers.end_of(wait).await,
            Err(event) => event,
        },
        ActionTarget::Builtin(name) if name == probe::PING => ping(&probes, &action.call).await,
        ActionTarget::Builtin(name) => {
            let reason = format!("this version of the agent has no action `{name}`");
            ActionEvent::Failed(reason.into())
        }
    };
    record_end(&core, &handlers, call, event).await
}

/// Records the end of a call, and has its handler told.
async fn record_end(
    core: &CoreHandle,
    handlers: &Handlers,
    call: Call,
    event: ActionEvent,
) -> (Call, Outcome) {
    let (call, outcome) = report_to_the_end(core, call, event).await;
    // The call stays as it was where its type is not there.
    if matches!(outcome, Outcome::Done) && !is_dispatched(core, &call) {
        handlers.note_recorded(call.1);
    }
    (call, outcome)
}

/// True while the plan of an instance has a call as dispatched.
fn is_dispatched(core: &CoreHandle, (key, id): &Call) -> bool {
    let [component_type, name] = &key.component;
    let configuration = core.configuration();
    let plan = configuration.layers().book.get(&key.tag);
    let component = plan.and_then(|plan| plan.component(component_type, name));
    let action = component.and_then(|it| it.state(&key.state)).and_then(|it| it.action.as_ref());
    action.is_some_and(|it| it.id == *id && it.progress == ActionProgress::Dispatched)
}

async fn ping(probes: &Probes, call: &ActionCall) -> ActionEvent {
    let limit = Duration::from_secs(call.timeout_s);
    match timeout(limit, probe::ping(probes, &call.params)).await {
        Ok(Ok(result)) => ActionEvent::Ended(result.into()),
        Ok(Err(reason)) => ActionEvent::Failed(reason.into()),
        Err(_) => ActionEvent::Failed(format!("not done within {} s", call.timeout_s).into()),
    }
}

/// Reports the end of a call, as often as the core has no time for it.
async fn report_to_the_end(core: &CoreHandle, call: Call, event: ActionEvent) -> (Call, Outcome) {
    loop {
        match report(core, &call, event.clone()).await {
            Ok(()) => return (call, Outcome::Done),
            Err(CommitError::Stopped) => return (call, Outcome::Stopped),
            Err(CommitError::Overloaded | CommitError::Confirm(_)) => {}
            Err(error) => {
                let error = ErrorChain(&error).to_string();
                warn!(service = %call.0.tag, error, "the result of an action cannot be recorded");
            }
        }
        sleep(RETRY).await;
    }
}

/// Has the instance walk with news of its action. Where what follows is refused, those states fail, and the news stands.
async fn report(
    core: &CoreHandle,
    (key, id): &Call,
    event: ActionEvent,
) -> Result<(), CommitError> {
    let tag = &key.tag;
    let walks = Walks {
        due: BTreeSet::from([tag.clone()]),
        actions: vec![ActionUpdate { state: key.clone(), id: *id, event }],
        ..Walks::default()
    };
    let by = Requester::of_instances(&walks.due, &core.configuration().layers().book);
    lenient_walk::walk(core, &by, tag, walks).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(target: ActionTarget, progress: ActionProgress) -> ActionPlan {
        let params = "{}".into();
        let serial = "".into();
        let timeout_s = 1;
        let call = ActionCall { target, params, serial, timeout_s };
        let id = 1;
        let phase = ActionPhase::Create;
        let attempts = 0;
        let since_ns = 1;
        ActionPlan { id, phase, progress, attempts, since_ns, call, cause: None }
    }

    // proves sv.B70
    #[test]
    fn a_call_that_was_dispatched_before_a_start_is_repeated_if_that_does_no_harm() {
        use ActionProgress::{Dispatched, Queued};
        let builtin = |name: &str| ActionTarget::Builtin(name.into());
        let handler = || ActionTarget::Handler("ping".into());
        for (target, progress, next) in [
            (builtin("ping"), Queued, Next::Begin),
            (builtin("ping"), Dispatched, Next::Begin),
            (builtin("other"), Queued, Next::Begin),
            (builtin("other"), Dispatched, Next::GiveUp),
            (handler(), Queued, Next::Begin),
            (handler(), Dispatched, Next::Resume),
        ] {
            let plan = plan(target.clone(), progress.clone());
            assert_eq!(Next::of(&plan), next, "{target:?} {progress:?}");
        }
    }
}
