//! The queue of actions: each that a service plan asks for is carried out once, and its result goes back to the plan.
//!
//! ```text
//! queued in a committed plan, objects of its state settled, its turn
//!    | recorded as dispatched
//!    v
//! carried out --> the result, or a failure, in a walk of the instance
//! ```
//!
//! The plans are the queue, so it is as durable as they are. A probe does no harm when it is repeated: one that a start
//! finds dispatched is carried out again. While a commit waits to be confirmed, no walk runs and nothing is dispatched.

mod probe;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::ErrorChain;
use holdfast_config::services::{
    ActionEvent, ActionPhase, ActionPlan, ActionProgress, ActionUpdate, Applied, Book, BoxState,
};
use holdfast_config::{ClaimKey, ServiceTag};
use holdfast_core::{CommitError, CoreHandle, Datastore, Intent, Walks};
use holdfast_platform::probe::Probes;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use crate::process::own_caller;

/// Actions that are carried out at one time.
const AT_ONCE: usize = 8;
/// Time after which the core is asked again that was busy, or had a commit that waits to be confirmed.
const RETRY: Duration = Duration::from_secs(1);

/// Carries out actions for as long as the handle is kept.
pub(super) fn carry_out(core: CoreHandle, probes: Probes) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(ActionQueue::new(core, probes).run()))
}

/// One call: the state that asked for it, and the time at which it did.
type Call = (ClaimKey, u64);

struct ActionQueue {
    core: CoreHandle,
    probes: Probes,
    /// The plans as they were looked at last.
    book: Book,
    /// Calls that are not done, the oldest first in each instance.
    open: BTreeMap<Call, ActionPlan>,
    running: BTreeMap<Call, Arc<str>>,
    tasks: JoinSet<(Call, Outcome)>,
    retry_at: Option<Instant>,
}

/// End of one attempt.
enum Outcome {
    Done,
    /// The core had no time for it.
    Later,
    Stopped,
}

impl ActionQueue {
    fn new(core: CoreHandle, probes: Probes) -> Self {
        Self {
            core,
            probes,
            book: Book::default(),
            open: BTreeMap::new(),
            running: BTreeMap::new(),
            tasks: JoinSet::new(),
            retry_at: None,
        }
    }

    async fn run(mut self) {
        let (mut events, mut revisions) = (self.core.listen(), self.core.watch());
        loop {
            self.look();
            self.dispatch();
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
        let new = self.core.configuration().layers().book.clone();
        let changed: BTreeSet<ServiceTag> =
            Book::differences(&self.book, &new).map(|(tag, ..)| tag.clone()).collect();
        self.book = new;
        if changed.is_empty() {
            return;
        }
        self.open.retain(|(key, _), _| !changed.contains(&key.tag));
        for tag in changed {
            let components = self.book.get(&tag).into_iter().flat_map(|plan| &plan.components);
            for component in components {
                for state in &component.states {
                    let Some(action) = state.action.as_ref().filter(|it| it.is_under_way()) else {
                        continue;
                    };
                    let names = [component.component_type.clone(), component.name.clone()];
                    let (tag, state) = (tag.clone(), state.name.clone());
                    let key = ClaimKey { tag, component: names, state };
                    self.open.insert((key, action.id), action.clone());
                }
            }
        }
    }

    /// Begins what can begin.
    fn dispatch(&mut self) {
        if self.retry_at.is_some() || self.open.is_empty() {
            return;
        }
        let state = self.core.observed_box();
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
            let (core, probes) = (self.core.clone(), self.probes.clone());
            self.tasks.spawn(carry_out_one(core, probes, call, action.clone()));
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

/// Carries out one call, and reports.
async fn carry_out_one(
    core: CoreHandle,
    probes: Probes,
    call: Call,
    action: ActionPlan,
) -> (Call, Outcome) {
    if action.progress == ActionProgress::Queued
        && let Err(error) = report(&core, &call, ActionEvent::Dispatched).await
    {
        let outcome = match error {
            CommitError::Stopped => Outcome::Stopped,
            _ => Outcome::Later,
        };
        return (call, outcome);
    }
    let (key, _) = &call;
    info!(service = %key.tag, state = %key.state, action = %action.call.builtin, "an action begins");
    let limit = Duration::from_secs(action.call.timeout_s);
    let event = match timeout(limit, probe::ping(&probes, &action.call.params)).await {
        Ok(Ok(result)) => ActionEvent::Ended(result.into()),
        Ok(Err(reason)) => ActionEvent::Failed(reason.into()),
        Err(_) => {
            ActionEvent::Failed(format!("not done within {} s", action.call.timeout_s).into())
        }
    };
    loop {
        match report(&core, &call, event.clone()).await {
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
async fn report(core: &CoreHandle, call: &Call, event: ActionEvent) -> Result<(), CommitError> {
    let error = match walk(core, call, event.clone(), None).await {
        Err(error) => error,
        Ok(()) => return Ok(()),
    };
    let is_refused = matches!(
        error,
        CommitError::Edit(_) | CommitError::Object { .. } | CommitError::Failed { .. }
    );
    if !is_refused {
        return Err(error);
    }
    let reason: Arc<str> = ErrorChain(&error).to_string().into();
    walk(core, call, event, Some(reason)).await
}

/// Walks the instance of a call. `refused` is the reason for which the last walk was refused.
async fn walk(
    core: &CoreHandle,
    (key, id): &Call,
    event: ActionEvent,
    refused: Option<Arc<str>>,
) -> Result<(), CommitError> {
    let tag = &key.tag;
    let walks = Walks {
        due: BTreeSet::from([tag.clone()]),
        refused: refused.map(|reason| (tag.clone(), reason)).into_iter().collect(),
        actions: vec![ActionUpdate { state: key.clone(), id: *id, event }],
        ..Walks::default()
    };
    core.change(&own_caller(format!("service {tag}")), Intent::Walk(walks)).await.map(drop)
}
