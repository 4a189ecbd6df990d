//! A test box: engine, descriptors, codecs and the simulated kernel, stepped by hand.

use std::time::Duration;

use holdfast_scheduler::{
    Delta, Engine, EngineOutput, Key, Now, PlanError, SharedValue, TransactionOutcome, TxnId,
    ValueState,
};

use super::{SimulatedKernel, SimulatedTransport};
use crate::kinds::registry;
use crate::transport::{Event, Events, Transport};

/// Time in which a box comes to rest. An operation that the state of another object prevents is tried again for ever.
const RESTS_WITHIN: Duration = Duration::from_secs(600);
/// Steps after which a busy box counts as endless.
const MAX_STEPS: usize = 10_000;

pub(super) struct SimulatedBox {
    pub(super) kernel: SimulatedKernel,
    pub(super) engine: Engine,
    transport: SimulatedTransport,
    events: Events,
    now: Duration,
    deadline: Option<Duration>,
    pub(super) outcomes: Vec<TransactionOutcome>,
}

impl SimulatedBox {
    pub(super) fn new(ports: &[&str]) -> Self {
        Self::on(SimulatedKernel::new(ports))
    }

    /// Starts an agent on a box in its present state.
    pub(super) fn on(kernel: SimulatedKernel) -> Self {
        Self::restarted(kernel, Vec::new(), Vec::new())
    }

    /// Starts an agent with the contents of its store.
    pub(super) fn restarted(
        kernel: SimulatedKernel,
        intent: Vec<(Key, SharedValue)>,
        restores: Vec<(Key, SharedValue)>,
    ) -> Self {
        let (transport, events) = kernel.connect();
        let mut engine = Engine::new(registry());
        engine.load(intent, restores);
        let now = Duration::ZERO;
        let deadline = None;
        let outcomes = Vec::new();
        let mut this = Self { kernel, engine, transport, events, now, deadline, outcomes };
        this.transport.retrieve();
        this.run_until_idle();
        this
    }

    fn now(&self) -> Now {
        Now { monotonic: self.now, unix_ns: 0 }
    }

    pub(super) fn plan(
        &self,
        changes: Vec<(Key, Option<SharedValue>)>,
    ) -> Result<String, PlanError> {
        self.engine.plan(Delta::new(changes)).map(|plan| plan.to_string())
    }

    /// Runs one transaction to its end.
    pub(super) fn commit(
        &mut self,
        changes: Vec<(Key, Option<SharedValue>)>,
    ) -> TransactionOutcome {
        let txn = self.begin(changes);
        self.run_until_idle();
        let found = self.outcomes.iter().find(|outcome| outcome.txn() == txn).cloned();
        found.expect("every transaction ends")
    }

    pub(super) fn begin(&mut self, changes: Vec<(Key, Option<SharedValue>)>) -> TxnId {
        let plan = self.engine.plan(Delta::new(changes)).unwrap();
        let (txn, step) = self.engine.start(plan, self.now());
        self.follow(step);
        txn
    }

    fn follow(&mut self, step: EngineOutput) {
        if !step.submit.is_empty() {
            self.transport.submit(step.submit);
        }
        if !step.cancel.is_empty() {
            self.transport.cancel(step.cancel);
        }
        if !step.read.is_empty() {
            self.transport.read(step.read);
        }
        self.outcomes.extend(step.finished);
        self.deadline = step.deadline;
    }

    /// Steps until the box is idle, or only tries again what it has tried for a while; time advances only when nothing else
    /// happens.
    pub(super) fn run_until_idle(&mut self) {
        let until = self.now + RESTS_WITHIN;
        for _ in 0..MAX_STEPS {
            if let Some(event) = self.events.try_recv() {
                let step = self.process_event(event);
                self.follow(step);
            } else if let Some(deadline) = self.deadline.take_if(|deadline| *deadline <= until) {
                self.now = self.now.max(deadline);
                let step = self.engine.due(self.now());
                self.follow(step);
            } else {
                return; // idle, or an operation hangs
            }
        }
        panic!("the box never rests: {:?}", self.outcomes.last());
    }

    pub(super) fn state(&self, key: &Key) -> ValueState {
        self.engine.status(key).map_or(ValueState::Nonexistent, |status| status.state)
    }

    /// Configuration of the kernel, in full.
    pub(super) fn contents(&self) -> Vec<String> {
        self.kernel.contents()
    }

    /// Processes a single event.
    pub(super) fn take_in_one(&mut self) {
        let event = self.events.try_recv().expect("something happened");
        let step = self.process_event(event);
        self.follow(step);
    }

    fn process_event(&mut self, event: Event) -> EngineOutput {
        let now = self.now();
        event.report_to(&mut self.engine, now)
    }
}
