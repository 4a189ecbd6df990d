//! The engine: the only thing here with a state.

use std::time::Duration;

use crate::descriptor::Registry;
use crate::key::{Key, KindId};
use crate::operation::{Completion, Fact, Now, Operation, OperationError, TxnId};
use crate::plan::{Delta, Plan, PlanError};
use crate::status::{Counters, Status};
use crate::value::SharedValue;

/// What the caller does next. Each list may be empty.
#[derive(Debug, Default)]
pub struct Step {
    /// Pre-images of adopted objects that came (`Some`) or went (`None`): to be made durable before `submit` is
    /// handed out.
    pub restores: Vec<(Key, Option<SharedValue>)>,
    /// For the transports, in order.
    pub submit: Vec<Operation>,
    /// To be read and given back as facts, one for each key, also when there is nothing.
    pub read: Vec<Key>,
    pub finished: Vec<Outcome>,
    /// Keys of which a plane or the status changed.
    pub changed: Vec<Key>,
    /// When to call [`Engine::due`], on the clock of [`Now::monotonic`]. Replaces what an earlier step said.
    pub deadline: Option<Duration>,
}

/// How a transaction ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Everything that could be done is done and verified; what waits for its dependencies is listed.
    Done { txn: TxnId, pending: Vec<Key> },
    /// An operation failed. `undone` tells whether all is as it was before.
    Failed { txn: TxnId, key: Key, label: String, error: OperationError, undone: bool },
}

/// Which part of the system a complete set of facts speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Everything,
    Kinds(Vec<KindId>),
    Under(Key),
}

/// Holds the planes of every key, and the transaction in flight.
#[derive(Debug)]
pub struct Engine {
    registry: Registry,
}

impl Engine {
    pub fn new(registry: Registry) -> Self {
        Self { registry }
    }

    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Takes over intent and pre-images from the store, before the first [`Engine::resync`]. Nothing is done yet.
    pub fn load(&mut self, intent: Vec<(Key, SharedValue)>, restores: Vec<(Key, SharedValue)>) {
        let _ = (intent, restores);
    }

    /// Plans a change. Pure: the engine is as before, and the same state and change give the same plan.
    ///
    /// # Errors
    /// When the change as a whole is refused.
    pub fn plan(&self, delta: Delta) -> Result<Plan, PlanError> {
        let _ = delta;
        Ok(Plan { operations: Vec::new() })
    }

    /// Carries out a plan, or queues it behind the transaction in flight. When the state has moved on since it was made,
    /// it is made anew for the same change; if that is refused then, the transaction fails with nothing done.
    pub fn start(&mut self, plan: Plan, now: Now) -> (TxnId, Step) {
        let _ = (plan, now);
        (TxnId(0), Step::default())
    }

    pub fn completed(&mut self, completions: Vec<Completion>, now: Now) -> Step {
        let _ = (completions, now);
        Step::default()
    }

    /// Takes in facts: notifications and the answers to [`Step::read`].
    pub fn observed(&mut self, facts: Vec<Fact>, now: Now) -> Step {
        let _ = (facts, now);
        Step::default()
    }

    /// To be called when [`Step::deadline`] has passed.
    pub fn due(&mut self, now: Now) -> Step {
        let _ = now;
        Step::default()
    }

    /// Takes in everything the system has; only differences become operations.
    pub fn resync(&mut self, facts: Vec<Fact>, now: Now) -> Step {
        self.retrieved(&Scope::Everything, facts, now)
    }

    /// The same for a part of the system: what the facts do not name is not there.
    pub fn retrieved(&mut self, scope: &Scope, facts: Vec<Fact>, now: Now) -> Step {
        let _ = (scope, facts, now);
        Step::default()
    }

    /// True when no transaction is in flight or queued.
    pub fn is_idle(&self) -> bool {
        true
    }

    pub fn status(&self, key: &Key) -> Option<Status> {
        let _ = key;
        None
    }

    /// All values, ascending by key.
    pub fn statuses(&self) -> Vec<Status> {
        Vec::new()
    }

    /// Values that are intended and not configured, ascending by key.
    pub fn pending(&self) -> Vec<Status> {
        Vec::new()
    }

    /// What the engine holds of a key: (intended, applied, observed). Cheaper than [`Engine::status`].
    pub fn planes(&self, key: &Key) -> [Option<&SharedValue>; 3] {
        let _ = key;
        [None; 3]
    }

    /// Pre-images of adopted objects, ascending by key.
    pub fn restores(&self) -> Vec<(Key, SharedValue)> {
        Vec::new()
    }

    pub fn counters(&self) -> Counters {
        Counters::default()
    }
}
