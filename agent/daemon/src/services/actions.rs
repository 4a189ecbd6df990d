//! The queue of actions: each that a service plan asks for is carried out once, and its result goes back to the plan.
//!
//! ```text
//! queued in a committed plan, objects of its state settled, its turn, no pause
//!    | recorded as dispatched
//!    v
//! carried out --> the result, or a failure, in a walk of the instance
//! ```
//!
//! The plans are the queue, so it is as durable as they are. A call that a start finds dispatched may have been done: it is
//! carried out again if that does no harm, and is in doubt otherwise. The queue begins after the first complete reading of
//! the box, and pauses during a bootstrap and while a commit waits to be confirmed.

mod probe;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{ErrorChain, RebootInhibitors};
use holdfast_config::services::{
    ActionCall, ActionEvent, ActionPhase, ActionPlan, ActionProgress, ActionUpdate, Applied, Book,
    BoxState,
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

use super::lenient_walk;
use crate::process::own_caller;

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
    /// Work that is under way, some of which actions wait for.
    pub undertakings: RebootInhibitors,
}

/// Carries out actions for as long as the handle is kept.
pub(super) fn carry_out(resources: ActionResources) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(ActionQueue::new(resources).run()))
}

/// One call: the state that asked for it, and its identifier.
type Call = (ClaimKey, u64);

struct ActionQueue {
    resources: ActionResources,
    /// The plans as they were looked at last.
    book: Book,
    /// Calls that are not done, the oldest first in each instance.
    open: BTreeMap<Call, ActionPlan>,
    running: BTreeMap<Call, Arc<str>>,
    tasks: JoinSet<(Call, Outcome)>,
    retry_at: Option<Instant>,
    /// Reason for a pause that is shown.
    pause: Option<SmolStr>,
}

/// End of one attempt.
enum Outcome {
    Done,
    /// The core had no time for it.
    Later,
    Stopped,
}

impl ActionQueue {
    fn new(resources: ActionResources) -> Self {
        Self {
            resources,
            book: Book::default(),
            open: BTreeMap::new(),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            retry_at: None,
            pause: None,
        }
    }

    async fn run(mut self) {
        let core = self.resources.core.clone();
        let (mut events, mut revisions) = (core.listen(), core.watch());
        loop {
            self.look();
            if !self.pauses().await {
                self.dispatch();
            }
            let is_open = !self.open.is_empty();
            let retry_at = self.retry_at;
            tokio::select! {
                changed = revisions.changed() => if changed.is_err() { return },
                // An object of a state may have come.
                event = events.recv(), if is_open => if let Err(RecvError::Closed) = event { return },
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
        let is_waiting = self.open.len() > self.running.len();
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

    /// Begins what can begin.
    fn dispatch(&mut self) {
        if self.retry_at.is_some() || self.open.is_empty() {
            return;
        }
        let state = self.resources.core.observed_box();
        for ((key, id), action) in &self.open {
            if self.running.len() >= AT_ONCE {
                return;
            }
            let call = (key.clone(), *id);
            let serial = &action.call.serial;
            let is_taken = !serial.is_empty() && self.running.values().any(|it| it == serial);
            // What is left has no objects any more.
            let is_settled =
                action.phase == ActionPhase::Delete || state.applied(key) == Applied::Done;
            if self.running.contains_key(&call) || is_taken || !is_settled {
                continue;
            }
            self.running.insert(call.clone(), Arc::clone(serial));
            self.tasks.spawn(carry_out_one(self.resources.clone(), call, action.clone()));
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
    /// It may have been done.
    GiveUp,
}

impl Next {
    /// A call that was dispatched before this start is repeated if that does no harm.
    fn of(action: &ActionPlan) -> Self {
        match action.progress == ActionProgress::Dispatched && !is_idempotent(&action.call) {
            true => Self::GiveUp,
            false => Self::Begin,
        }
    }
}

/// True when a call that is done twice comes to the same as one that is done once. A probe changes nothing. Of actions of
/// other versions of the agent nothing is known.
fn is_idempotent(call: &ActionCall) -> bool {
    call.builtin == probe::PING
}

/// Carries out one call, and reports.
async fn carry_out_one(
    ActionResources { core, probes, .. }: ActionResources,
    call: Call,
    action: ActionPlan,
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
    let (key, id) = &call;
    info!(service = %key.tag, state = %key.state, action = %action.call.builtin, id, "an action begins");
    let event = match action.call.builtin == probe::PING {
        true => ping(&probes, &action.call).await,
        false => {
            let reason =
                format!("this version of the agent has no action `{}`", action.call.builtin);
            ActionEvent::Failed(reason.into())
        }
    };
    report_to_the_end(&core, call, event).await
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
    lenient_walk::walk(core, &own_caller(format!("service {tag}")), (tag, walks)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(builtin: &str, progress: ActionProgress) -> ActionPlan {
        let (params, serial, timeout_s) = ("{}".into(), "".into(), 1);
        let call = ActionCall { builtin: builtin.into(), params, serial, timeout_s };
        let (id, phase, attempts, since_ns) = (1, ActionPhase::Create, 0, 1);
        ActionPlan { id, phase, progress, attempts, since_ns, call }
    }

    // proves sv.B70
    #[test]
    fn a_call_that_was_dispatched_before_a_start_is_repeated_if_that_does_no_harm() {
        use ActionProgress::{Dispatched, Queued};
        for (builtin, progress, next) in [
            ("ping", Queued, Next::Begin),
            ("ping", Dispatched, Next::Begin),
            ("other", Queued, Next::Begin),
            ("other", Dispatched, Next::GiveUp),
        ] {
            assert_eq!(Next::of(&plan(builtin, progress.clone())), next, "{builtin} {progress:?}");
        }
    }
}
