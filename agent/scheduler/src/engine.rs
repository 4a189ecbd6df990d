//! The engine: the state machine over plans, completions, facts and time.
//!
//! Events come in as method calls, an [`EngineOutput`] goes out. Transactions without a conflict run side by side,
//! and facts are taken in at any time. Work that the engine finds without a request, because something appeared or
//! drifted, becomes a transaction of its own between those of the clients:
//!
//! ```text
//! start() ----------------> queue --------> start_next_change --+
//!                                                               +--> Transaction ----> Step::finished
//! observed(), due() -----> dirty nodes ---> start_convergence --+
//!                                              (both wait for conflicting transactions)
//! ```
//!
//! No call takes longer than some ten milliseconds because a change or a reading is large. Plans of the engine are
//! made in portions. So are plans taken over, nodes of a transaction released, and readings taken in. [`Engine::due`]
//! says when the next portion is due.

mod audit;
mod comparison;
mod convergence;
mod dispatch;
mod drift_policies;
mod facts;
mod failure;
mod impact;
mod inspect;
mod losses;
mod moves;
mod own_plan;
mod planning;
mod queue;
mod reading;
mod release;
mod resync;
mod rollback;
mod take_over;
mod transactions;
mod transport_queue;
mod value_status;
mod verify;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::change::{Delta, IntentChange};
use crate::descriptor::Registry;
use crate::graph::{Goal, Graph, NodeIdx};
use crate::history::History;
use crate::key::{Key, sort_keys};
use crate::operation::{Completion, Fact, Now, OpId, TransportId, TxnId};
use crate::outcome::{PlanError, TransactionOutcome};
use crate::output::EngineOutput;
use crate::plan::Plan;
use crate::planner::{self, Planning};
use crate::portion::PORTION;
use crate::queue::ChangeQueue;
use crate::reading::{Reading, Scope, SortedFacts};
use crate::retry_state::JitterRng;
use crate::status::Counters;
use crate::transaction::{Convergence, InFlight, Releases, Transaction, TransportQueue};
use crate::value::SharedValue;
use crate::waits::Waits;

pub use impact::{EDGES_MOST, Failure, Impact, ImpactWalk, LISTED_MOST};
pub use inspect::DependencyStatus;

/// Transactions in flight at a time. Further ones wait: this many are a sign that a transport hangs.
pub(crate) const IN_FLIGHT_MOST: usize = 16;

/// Planes of every key, and the transactions in flight.
#[derive(Debug)]
pub struct Engine {
    graph: Graph,
    running: InFlight,
    /// Nodes of transactions that have ended.
    releases: Releases,
    /// Unanswered operations of each transport.
    transport_queues: BTreeMap<TransportId, TransportQueue>,
    /// Operations given up without an answer, with the values they would create.
    abandoned: BTreeMap<OpId, (Key, Option<SharedValue>)>,
    queue: ChangeQueue,
    /// Times at which values are to be checked again.
    timers: BTreeSet<(Duration, NodeIdx)>,
    next_txn: u64,
    next_op: u64,
    /// Dirty values that are being planned for.
    convergence: Option<Box<Convergence>>,
    /// True after a transaction of a client: dirty values are planned for before the next change.
    convergence_first: bool,
    history: History,
    jitter_rng: JitterRng,
    /// Operations submitted, items taken over or in, and nodes released, at a time.
    portion: usize,
    waits: Waits,
    /// Complete set of facts that is being taken in.
    reading: Option<Box<Reading>>,
    /// Time between two retrievals of everything, and the time of the next one.
    resync_period: Option<Duration>,
    resync_due: Option<Duration>,
}

impl Engine {
    pub fn new(registry: Registry) -> Self {
        Self {
            graph: Graph::new(Arc::new(registry)),
            running: InFlight::default(),
            releases: Releases::default(),
            transport_queues: BTreeMap::new(),
            abandoned: BTreeMap::new(),
            queue: ChangeQueue::default(),
            timers: BTreeSet::new(),
            next_txn: 1,
            next_op: 1,
            convergence: None,
            convergence_first: false,
            history: History::default(),
            jitter_rng: JitterRng::default(),
            portion: PORTION,
            waits: Waits::default(),
            reading: None,
            resync_period: None,
            resync_due: None,
        }
    }

    /// Seeds the jitter of retries. Without a seed, every engine draws the same pauses.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        self.jitter_rng = JitterRng(seed);
        self
    }

    /// Submits, takes over and takes in less, and releases fewer nodes, at a time than is good for speed: for tests.
    #[must_use]
    pub fn in_portions(mut self, operations: NonZeroUsize) -> Self {
        self.portion = operations.get();
        self.graph.watcher_updates.portion = self.portion;
        self
    }

    pub fn registry(&self) -> &Registry {
        &self.graph.registry
    }

    /// Loads intent and pre-images from the store, before the first [`Engine::resync`]. Plans nothing yet. Values that
    /// are no longer valid show as such.
    pub fn load(
        &mut self,
        intent: Vec<impl Into<IntentChange>>,
        restores: Vec<(Key, SharedValue)>,
    ) {
        for (key, restore) in restores {
            self.graph.set_restore(&key, Some(restore));
        }
        // A best-effort change is refused only for a key named twice, and a store has each key of an owner once.
        let nodes =
            planner::goals(&self.graph, &Delta::new(intent).best_effort()).unwrap_or_default();
        for node in nodes.into_iter().filter(|node| node.changed) {
            let idx = self.graph.intern(&node.key);
            self.graph.set_goal(idx, node.sources, node.goal, &[]);
        }
    }

    /// Loads values that were applied when the process ended, and whose intent has changed since: attributes they have
    /// set and that are open now are put back, as without the restart. Call after [`Engine::load`] and before the first
    /// [`Engine::resync`].
    pub fn load_applied(&mut self, values: Vec<(Key, SharedValue)>) {
        for (key, value) in values {
            let Some(idx) = self.graph.find(&key) else { continue };
            if matches!(self.graph.node(idx).goal, Goal::Valid(..)) {
                self.graph.set_applied(idx, Some(value));
                self.graph.update_unsettled(idx);
            }
        }
    }

    /// Plans a change in one go: see [`Planning`] for pauses. Pure: leaves the engine as it is, and equal state and change give equal plans.
    ///
    /// # Errors
    /// When the change as a whole is refused.
    pub fn plan(&self, delta: Delta) -> Result<Plan, PlanError> {
        self.plan_with(delta, || {})
    }

    /// Plans a change and calls `validated` when all of its values are validated, which takes all processors for a
    /// large change. Finding the order takes one processor, so the caller can begin other work of the change then.
    ///
    /// # Errors
    /// When the change as a whole is refused, before or after that call.
    pub fn plan_with(&self, delta: Delta, validated: impl FnOnce()) -> Result<Plan, PlanError> {
        let mut planning = Planning::new(delta);
        let mut validated = Some(validated);
        loop {
            if let Some(plan) = planning.advance(self, &mut || false) {
                return plan;
            }
            if let Some(validated) = validated.take_if(|_| planning.is_validated()) {
                validated();
            }
        }
    }

    /// True while nothing that a plan has read has changed since it was made, so that it is started as it is. Another one is
    /// made again when its turn comes; where that may take too long, make [`Planning`] of it first.
    pub fn is_current(&self, plan: &Plan) -> bool {
        plan.is_current(&self.graph)
    }

    /// Starts a plan, or queues it behind conflicting transactions. When something that it has read has changed by its
    /// turn, it is made again for the same change; if that is refused then, the transaction ends without having done
    /// anything.
    pub fn start(&mut self, plan: Plan, now: Now) -> (TxnId, EngineOutput) {
        self.queue_change(plan, false, now)
    }

    /// Starts a change that the engine plans, in portions, by calls of [`Engine::due`]. Where it is refused as a
    /// whole, that is its outcome.
    pub fn start_unplanned(&mut self, delta: Delta, now: Now) -> (TxnId, EngineOutput) {
        let txn = self.next_number();
        self.queue.push_unplanned(txn, delta);
        (txn, self.advance(EngineOutput::default(), now))
    }

    /// Starts a plan without submitting anything until [`Engine::start_prepared`], for a caller that has to make the
    /// change durable first. The intent changes at once, that of a large plan in portions: the first now, the others by
    /// [`Engine::due`]. Cancelled instead, the change leaves everything as it was.
    pub fn prepare(&mut self, plan: Plan, now: Now) -> (TxnId, EngineOutput) {
        self.queue_change(plan, true, now)
    }

    fn queue_change(&mut self, plan: Plan, prepared: bool, now: Now) -> (TxnId, EngineOutput) {
        let txn = self.next_number();
        self.queue.push(txn, plan, prepared);
        (txn, self.advance(EngineOutput::default(), now))
    }

    /// Submits the operations of a prepared change.
    pub fn start_prepared(&mut self, txn: TxnId, now: Now) -> EngineOutput {
        let mut step = EngineOutput::default();
        if !self.queue.release(txn) {
            self.release_prepared(txn, now, &mut step);
        }
        self.advance(step, now)
    }

    /// Cancels a change. One in the queue is dropped; of one in flight, submitted operations are cancelled and
    /// completed ones undone. A transaction that has ended, or is being undone already, is not affected.
    pub fn cancel(&mut self, txn: TxnId, now: Now) -> EngineOutput {
        let mut step = EngineOutput::default();
        if self.queue.drop_change(txn) {
            self.report_outcome(TransactionOutcome::Cancelled { txn, undone: true }, &mut step);
        } else {
            self.abort(txn, now, &mut step);
        }
        self.advance(step, now)
    }

    /// Takes in completions of operations.
    pub fn completed(&mut self, completions: Vec<Completion>, now: Now) -> EngineOutput {
        let mut step = EngineOutput::default();
        self.complete(completions, now, &mut step);
        self.advance(step, now)
    }

    /// Takes in facts: notifications and the answers to [`EngineOutput::read`].
    pub fn observed(&mut self, facts: Vec<Fact>, now: Now) -> EngineOutput {
        let mut step = EngineOutput::default();
        for fact in facts {
            self.observe(fact, now, false, &mut step);
        }
        self.advance(step, now)
    }

    /// Handles expired timers. Call it when [`EngineOutput::deadline`] has passed.
    pub fn due(&mut self, now: Now) -> EngineOutput {
        let mut step = EngineOutput::default();
        self.continue_take_over(now, &mut step);
        if self.graph.update_watchers(self.portion) == 0 {
            self.continue_reading(now, &mut step);
        }
        self.continue_plans(now, &mut step);
        self.queue.go_on_comparing();
        for txn in self.running.numbers() {
            self.dispatch(txn, now, &mut step);
        }
        self.expire(now, &mut step);
        self.expire_transports(now, &mut step);
        self.expire_waits(now, &mut step);
        self.expire_resync(now, &mut step);
        while let Some(&(at, idx)) = self.timers.first() {
            if at > now.monotonic {
                break;
            }
            self.timers.pop_first();
            self.check_value(idx, at, now, &mut step);
        }
        self.advance(step, now)
    }

    /// Takes in a complete set of facts; only differences become operations.
    pub fn resync(&mut self, facts: impl Into<SortedFacts>, now: Now) -> EngineOutput {
        self.retrieved(Scope::Everything, facts, now)
    }

    /// Takes in a complete set of facts for a part of the system: keys in `scope` without a fact are absent. Of a large one,
    /// the first portion is taken in now, the others by [`Engine::due`].
    pub fn retrieved(
        &mut self,
        scope: Scope,
        facts: impl Into<SortedFacts>,
        now: Now,
    ) -> EngineOutput {
        let mut step = EngineOutput::default();
        self.begin_reading(scope, facts.into(), now, &mut step);
        self.advance(step, now)
    }

    /// True when no transaction is in flight, queued or being planned, all that have ended are released, no reading is being taken
    /// in, and all values know which of their targets are there.
    pub fn is_idle(&self) -> bool {
        let has_transactions = !self.running.is_empty() || !self.queue.is_empty();
        let has_work = has_transactions || self.is_converging();
        !has_work && self.releases.is_empty() && !self.is_taking_in()
    }

    /// True while values that are not as intended are being planned for.
    pub fn is_converging(&self) -> bool {
        self.convergence.is_some()
    }

    /// True while half of a plan is taken over, half of a reading is taken in, or half of the values that need a target know of
    /// it: nothing is planned from that.
    pub fn is_between_portions(&self) -> bool {
        self.running.in_take_over().is_some() || self.is_taking_in()
    }

    /// True while half of a reading is taken in, or half of the watchers of a target are updated.
    fn is_taking_in(&self) -> bool {
        self.reading.is_some() || !self.graph.watcher_updates.is_empty()
    }

    /// Planes of a key: intended (in full), applied, observed. Cheaper than [`Engine::status`].
    pub fn planes(&self, key: &Key) -> [Option<&SharedValue>; 3] {
        let Some(node) = self.graph.find(key).map(|idx| self.graph.node(idx)) else {
            return [None; 3];
        };
        [node.goal.requested(), node.applied.as_ref(), node.observed.as_ref()]
    }

    /// Pre-images of adopted objects, ascending by key.
    pub fn restores(&self) -> impl Iterator<Item = (&Key, &SharedValue)> {
        self.graph.restores.iter()
    }

    pub fn counters(&self) -> Counters {
        self.graph.counters
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn next_number(&mut self) -> TxnId {
        self.next_txn += 1;
        TxnId(self.next_txn - 1)
    }

    /// Advances all transactions as far as possible without another event, and completes the step.
    pub(crate) fn advance(&mut self, mut step: EngineOutput, now: Now) -> EngineOutput {
        self.release_portion(now);
        loop {
            if self.reading.is_none() {
                self.check_lost_dependencies(now, &mut step);
            }
            self.schedule_triggered_retries(now, &mut step);
            let mut moved = false;
            for txn in self.running.numbers() {
                moved |= self.advance_transaction(txn, now, &mut step);
            }
            moved |= self.start_next(now, &mut step);
            if !moved {
                break;
            }
        }
        for idx in std::mem::take(&mut self.graph.reason_changed) {
            step.changed.push(self.graph.node(idx).key.clone());
        }
        step.submit.sort_by_key(|op| op.id);
        self.enqueue_submitted(&step.submit, now);
        for list in [&mut step.read, &mut step.changed] {
            sort_keys(list);
        }
        self.graph.counters.reads += step.read.len() as u64;
        self.check_changed_waits(&mut step);
        self.drop_answered(now);
        step.deadline = self.deadline();
        step
    }

    /// Goes on with one of the plans in the making, unless the graph is about to change by a plan that is being taken over, or by
    /// a reading that is being taken in.
    fn continue_plans(&mut self, now: Now, step: &mut EngineOutput) {
        if !self.is_between_portions() && !self.continue_rollback(now, step) {
            let _ = self.continue_convergence(now, step) || self.plan_queued(step);
        }
    }

    /// Makes a portion of a plan.
    pub(crate) fn plan_portion(
        &mut self,
        planning: &mut Planning,
    ) -> Option<Result<Plan, PlanError>> {
        self.graph.counters.plan_portions += 1;
        planning.advance_portion(&self.graph, self.portion)
    }

    /// True when another transaction may begin.
    fn may_begin(&self) -> bool {
        self.running.len() < IN_FLIGHT_MOST && !self.is_between_portions()
    }

    /// Starts the next transaction that may start. Changes and convergence take turns.
    fn start_next(&mut self, now: Now, step: &mut EngineOutput) -> bool {
        if !self.may_begin() {
            return false;
        }
        let convergence_first = self.convergence_first || self.queue.is_empty();
        if convergence_first && self.start_convergence(now, step) {
            self.convergence_first = false;
            return true;
        }
        let begun = self.start_next_change(now, step);
        self.convergence_first |= begun;
        begun || !convergence_first && self.start_convergence(now, step)
    }

    /// Reports the end of a transaction.
    pub(crate) fn report_outcome(&mut self, outcome: TransactionOutcome, step: &mut EngineOutput) {
        self.on_wait_ended(&outcome, step);
        step.finished.push(outcome);
    }

    fn deadline(&self) -> Option<Duration> {
        let queue = self.transport_deadline();
        let timer = self.timers.first().map(|&(at, _)| at);
        let transactions = self.running.iter().filter_map(Transaction::deadline).min();
        let engine = timer.into_iter().chain(transactions).chain(queue).chain(self.resync_due);
        let engine =
            engine.chain(self.releases.deadline()).chain(self.queue.deadline(self.may_begin()));
        let engine = engine.chain(self.convergence_deadline());
        let portion = self.is_taking_in().then_some(Duration::ZERO);
        engine.chain(self.waits.deadline()).chain(portion).min()
    }
}
