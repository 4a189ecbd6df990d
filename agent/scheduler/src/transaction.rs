//! A transaction in flight, and how it is carried out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::descriptor::Effect;
use crate::engine::{Engine, Outcome, Step};
use crate::graph::{Goal, Graph, Idx, Source};
use crate::history::{Executed, Origin, Record, RecordedOperation};
use crate::key::Key;
use crate::operation::{
    Action, Completion, Now, OpId, Operation, OperationError, TransportId, TxnId,
};
use crate::overlay::spot_of;
use crate::plan::{Cause, Delta, Mode, Plan, PlannedOperation};
use crate::planner;
use crate::traits::Traits;
use crate::value::SharedValue;

/// Without any completion for this long, what was handed out counts as failed. The slowest single operations known
/// (deleting a bridge, a veth pair) take tens of milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// After a large batch, objects without an echo are read once no echo has come for this long.
const ECHO_WITHIN: Duration = Duration::from_millis(30);
/// Operations of one transaction up to which each is read back at once: a read is cheaper than waiting for an echo.
const READ_AT_ONCE: usize = 256;
/// Reads asked for at a time when many echoes did not come: what the answers of a moment can be.
const READS_MOST: usize = 4096;
/// Between two reads of an object that is not yet as it should be.
const READ_AGAIN: Duration = Duration::from_millis(100);
/// How long an object may take to become as it should be after its operation was completed, and after any other
/// operation of its transaction moved.
const VERIFIED_WITHIN: Duration = Duration::from_secs(1);
/// How long reads may take after a failure, before the way back is planned without them.
const SETTLED_WITHIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Transaction {
    txn: TxnId,
    origin: Origin,
    mode: Mode,
    description: String,
    phase: Phase,
    flights: Vec<Flight>,
    /// The number of the first operation in `flights`.
    first_op: u64,
    /// Operations of each transport in the order of the plan, and how many are handed out.
    queues: Vec<(TransportId, Vec<u32>, usize)>,
    /// Handed out and not completed.
    outstanding: usize,
    /// Neither verified nor failed.
    open: usize,
    progress: Duration,
    read_due: Option<Duration>,
    failure: Option<(Key, String, OperationError)>,
    undo_failed: bool,
    failed: Vec<Key>,
    pending: Vec<Key>,
    /// What was intended before, for the way back.
    before: Vec<(Key, Option<SharedValue>)>,
    /// Read after a failure, and not heard of yet.
    awaited: BTreeSet<Idx>,
    /// Operations of the way there, once the way back has begun.
    past: Vec<RecordedOperation>,
    started: Now,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Executing,
    /// Something failed: hearing what the system has by now.
    Settling {
        until: Duration,
    },
    Undoing,
}

#[derive(Debug)]
struct Flight {
    op: PlannedOperation,
    idx: Idx,
    state: FlightState,
}

#[derive(Debug)]
enum FlightState {
    Waiting,
    Submitted,
    /// Completed at that time, not seen yet. With an error it is success only if what exists is as intended.
    Completed(Duration, Option<OperationError>),
    Verified,
    Failed(OperationError),
    NotTried,
}

impl Transaction {
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if let Phase::Settling { until } = self.phase {
            return Some(until);
        }
        let answer = (self.outstanding > 0).then(|| self.progress + ANSWER_WITHIN);
        answer.into_iter().chain(self.read_due).min()
    }

    /// Whether this transaction fails when an operation does that is there for this reason.
    fn is_vital(&self, cause: Cause) -> bool {
        let asked = matches!(cause, Cause::Asked | Cause::Parked | Cause::Returned);
        self.mode == Mode::Atomic && self.phase == Phase::Executing && asked
    }

    fn flight(&mut self, op: OpId) -> Option<u32> {
        let at = u32::try_from(op.0.checked_sub(self.first_op)?).ok()?;
        self.flights.get(at as usize).map(|_| at)
    }

    fn record(&mut self, undo: bool) {
        let flights = std::mem::take(&mut self.flights);
        self.past.extend(flights.into_iter().map(|flight| RecordedOperation {
            action: flight.op.action,
            key: flight.op.key,
            cause: flight.op.cause,
            old: flight.op.old,
            new: flight.op.new,
            undo,
            result: match flight.state {
                FlightState::Verified => Executed::Verified,
                FlightState::Completed(..) => Executed::Completed,
                FlightState::Failed(error) => Executed::Failed(error),
                FlightState::Waiting | FlightState::Submitted | FlightState::NotTried => {
                    Executed::NotTried
                }
            },
        }));
    }
}

impl Engine {
    pub(crate) fn begin(
        &mut self,
        txn: TxnId,
        origin: Origin,
        plan: Plan,
        now: Now,
        step: &mut Step,
    ) {
        let before =
            plan.delta.changes.iter().map(|(key, _)| (key.clone(), self.direct(key))).collect();
        let pending = plan.pending();
        let mut transaction = Transaction {
            txn,
            origin,
            mode: plan.delta.mode,
            description: plan.delta.description.clone(),
            phase: Phase::Executing,
            flights: Vec::new(),
            first_op: 0,
            queues: Vec::new(),
            outstanding: 0,
            open: 0,
            progress: now.monotonic,
            read_due: None,
            failure: None,
            undo_failed: false,
            failed: Vec::new(),
            pending,
            before,
            awaited: BTreeSet::new(),
            past: Vec::new(),
            started: now,
        };
        self.graph.counters.transactions += 1;
        self.board(&mut transaction, plan, now, step);
        self.current = Some(transaction);
        self.dispatch(now, step);
    }

    /// What a change, not a whole, intends for a key.
    fn direct(&self, key: &Key) -> Option<SharedValue> {
        let node = self.graph.node(self.graph.find(key)?);
        let (source, value) = node.sources.first()?;
        (*source == Source::Direct).then(|| value.clone())
    }

    pub(crate) fn count(&mut self, plan: &Plan) {
        let counters = &mut self.graph.counters;
        counters.plans += 1;
        counters.visited += plan.work.visited;
        counters.edges += plan.work.edges;
        counters.operations_planned += plan.operations.len() as u64;
    }

    /// Makes a plan the operations of a transaction.
    fn board(&mut self, transaction: &mut Transaction, mut plan: Plan, now: Now, step: &mut Step) {
        self.count(&plan);
        let operations = std::mem::take(&mut plan.operations);
        let indexes = self.locate(&plan);
        let seat = |op: PlannedOperation| {
            let idx = indexes[op.spot as usize];
            Flight { op, idx, state: FlightState::Waiting }
        };
        let flights: Vec<Flight> = operations.into_iter().map(seat).collect();
        transaction.first_op = self.next_op;
        transaction.open = flights.len();
        transaction.outstanding = 0;
        transaction.queues = queues(&flights);
        self.next_op += flights.len() as u64;
        for (at, flight) in (0..).zip(&flights) {
            self.graph.node_mut(flight.idx).flight = Some(at);
            for key in &flight.op.taken {
                let idx = self.graph.intern(key);
                self.graph.node_mut(idx).flight = Some(at);
            }
            if flight.op.cause == Cause::Drift {
                self.graph
                    .node_mut(flight.idx)
                    .trouble
                    .get_or_insert_default()
                    .repairing(now.monotonic);
            }
        }
        transaction.flights = flights;
        self.commit(plan, indexes, step);
    }

    /// The nodes of a plan in the graph.
    pub(crate) fn locate(&mut self, plan: &Plan) -> Vec<Idx> {
        self.graph.reserve(plan.nodes.iter().filter(|node| node.idx.is_none()).count());
        let nodes = plan.nodes.iter();
        nodes.map(|node| node.idx.unwrap_or_else(|| self.graph.intern(&node.key))).collect()
    }

    /// Takes over the goals of a plan, and what it found to be in place.
    pub(crate) fn commit(&mut self, plan: Plan, indexes: Vec<Idx>, step: &mut Step) {
        for (node, &idx) in plan.nodes.into_iter().zip(&indexes) {
            if !node.changed {
                continue;
            }
            self.forgive(idx);
            self.graph.set_goal(idx, node.sources, node.goal);
            step.changed.push(node.key);
            let held = self.graph.node_mut(idx);
            if held.live.is_none() && matches!(held.goal, Goal::Nothing) {
                held.applied = None;
            }
        }
        for &spot in &plan.found {
            let idx = indexes[spot as usize];
            let Goal::Valid(value, traits) = self.graph.node(idx).goal.clone() else { continue };
            self.graph.node_mut(idx).applied = Some(value);
            self.forgive(idx);
            self.graph.set_live(idx, Some(traits), true);
            self.graph.settle(idx);
            step.changed.push(self.graph.node(idx).key.clone());
        }
        for (key, value) in plan.restores {
            self.graph.restores.insert(key.clone(), value.clone());
            step.restores.push((key, Some(value)));
        }
        for idx in indexes {
            self.graph.reap(idx);
        }
    }

    /// Hands out what may go. Transports keep order, so what was handed to the same one before need not be waited for.
    fn dispatch(&mut self, now: Now, step: &mut Step) {
        let Some(mut transaction) = self.current.take() else { return };
        if transaction.failure.is_some() && transaction.phase == Phase::Executing {
            self.current = Some(transaction);
            return;
        }
        let mut skipped = Vec::new();
        let txn = transaction.txn;
        for (_, queue, head) in &mut transaction.queues {
            while let Some(&at) = queue.get(*head) {
                let flights = &mut transaction.flights;
                let before =
                    flights[at as usize].op.after.iter().map(|&op| &flights[op as usize].state);
                let mut blocked = false;
                let mut broken = false;
                for state in before {
                    blocked |= matches!(state, FlightState::Waiting | FlightState::Submitted);
                    broken |= matches!(state, FlightState::Failed(_) | FlightState::NotTried);
                }
                if blocked && !broken {
                    break;
                }
                *head += 1;
                let flight = &mut flights[at as usize];
                if broken {
                    flight.state = FlightState::NotTried;
                    transaction.open -= 1;
                    skipped.push(at);
                    continue;
                }
                flight.state = FlightState::Submitted;
                transaction.outstanding += 1;
                transaction.progress = now.monotonic;
                step.submit.push(Operation {
                    id: OpId(transaction.first_op + u64::from(at)),
                    txn,
                    action: flight.op.action,
                    key: flight.op.key.clone(),
                    old: flight.op.old.clone(),
                    new: match (flight.op.action, &flight.op.old, &flight.op.new) {
                        (Action::Update, Some(old), Some(new)) => {
                            let filled = self.graph.put_back(&flight.op.key, old, new);
                            Some(filled.unwrap_or_else(|| new.clone()))
                        }
                        (_, _, new) => new.clone(),
                    },
                    transport: flight.op.transport,
                });
            }
        }
        self.current = Some(transaction);
        for at in skipped {
            let error = OperationError {
                transient: true,
                ..OperationError::message("what it needs was not done")
            };
            self.give_up(at, error, now, step);
        }
    }

    pub(crate) fn complete(&mut self, completions: Vec<Completion>, now: Now, step: &mut Step) {
        for completion in completions {
            let Some(transaction) = &mut self.current else { return };
            // An answer that came after its deadline belongs to no transaction any more; facts will tell.
            let Some(at) = transaction.flight(completion.op) else { continue };
            let flight = &transaction.flights[at as usize];
            if !matches!(flight.state, FlightState::Submitted) {
                continue;
            }
            let (idx, action) = (flight.idx, flight.op.action);
            transaction.outstanding -= 1;
            transaction.progress = now.monotonic;
            if let Some(fact) = completion.observed.filter(|fact| fact.key == flight.op.key) {
                self.graph.node_mut(idx).observed = fact.value;
            }
            match completion.result {
                Ok(()) => self.carried_out(at, now, step),
                Err(error) if error.is_gone() && action == Action::Delete => {
                    self.carried_out(at, now, step)
                }
                Err(error) if error.exists() && action == Action::Create => {
                    self.landed(at, FlightState::Completed(now.monotonic, Some(error)), step);
                    self.try_verify(at, now, step);
                }
                Err(error) => self.fail(at, error, now, step),
            }
        }
        self.dispatch(now, step);
    }

    /// An operation is done: the applied plane follows, and so does what others may count on.
    fn carried_out(&mut self, at: u32, now: Now, step: &mut Step) {
        self.landed(at, FlightState::Completed(now.monotonic, None), step);
        self.apply(at, step);
        self.try_verify(at, now, step);
    }

    fn landed(&mut self, at: u32, state: FlightState, step: &mut Step) {
        let Some(transaction) = &mut self.current else { return };
        let count = transaction.flights.len();
        let flight = &mut transaction.flights[at as usize];
        flight.state = state;
        if self.graph.node(flight.idx).flight != Some(at) {
            return;
        }
        let FlightState::Completed(now, _) = flight.state else { return };
        let seen = is_seen(&self.graph, flight);
        if !seen && count <= READ_AT_ONCE {
            step.read.push(flight.op.key.clone());
            transaction.read_due.get_or_insert(now + READ_AGAIN);
        } else if !seen {
            transaction.read_due.get_or_insert(now + ECHO_WITHIN);
        }
    }

    fn apply(&mut self, at: u32, step: &mut Step) {
        let Some(transaction) = &mut self.current else { return };
        let flight = &transaction.flights[at as usize];
        let (idx, action, new) = (flight.idx, flight.op.action, flight.op.new.clone());
        let taken = flight.op.taken.clone();
        let node = self.graph.node_mut(idx);
        node.last = Some(crate::status::LastOperation { txn: transaction.txn, action });
        match (action, new) {
            (Action::Delete, _) | (_, None) => {
                node.applied = None;
                self.graph.set_live(idx, None, false);
            }
            (Action::Release, Some(new)) => {
                node.applied = None;
                let traits =
                    Traits::obtained(&self.graph.registry, &self.graph.node(idx).key, &new);
                self.graph.set_live(idx, Some(traits), false);
            }
            (_, Some(new)) => {
                node.applied = Some(new.clone());
                let traits = self.traits_of(idx, &new);
                self.graph.set_live(idx, Some(traits), true);
            }
        }
        self.graph.settle(idx);
        for key in taken {
            self.take_along(&key, at);
            step.changed.push(key);
        }
    }

    /// The system removed this one together with another.
    fn take_along(&mut self, key: &Key, at: u32) {
        let Some(idx) = self.graph.find(key) else { return };
        let node = self.graph.node_mut(idx);
        node.applied = None;
        node.observed = None;
        if node.flight == Some(at) {
            node.flight = None;
        }
        self.graph.set_live(idx, None, false);
        self.graph.settle(idx);
        self.graph.reap(idx);
    }

    /// The traits of a value of ours: those of the goal, where that is what was applied.
    pub(crate) fn traits_of(&self, idx: Idx, value: &SharedValue) -> Arc<Traits> {
        let node = self.graph.node(idx);
        match &node.goal {
            Goal::Valid(goal, traits) if Arc::ptr_eq(goal, value) => Arc::clone(traits),
            _ => Traits::intended(&self.graph.registry, &node.key, value, false)
                .unwrap_or_else(|_| Traits::obtained(&self.graph.registry, &node.key, value)),
        }
    }

    /// Checks an operation that is completed against what is seen by now.
    pub(crate) fn try_verify(&mut self, at: u32, now: Now, step: &mut Step) {
        let Some(transaction) = &mut self.current else { return };
        let flight = &mut transaction.flights[at as usize];
        let FlightState::Completed(_, doubt) = &flight.state else { return };
        let last = self.graph.node(flight.idx).flight == Some(at);
        if last && !is_seen(&self.graph, flight) {
            return;
        }
        let doubtful = doubt.is_some();
        if !last && doubtful {
            let error = doubt.clone().unwrap_or_else(|| OperationError::message("exists"));
            return self.fail(at, error, now, step);
        }
        flight.state = FlightState::Verified;
        transaction.open -= 1;
        transaction.progress = now.monotonic;
        if !last {
            return; // a later operation on the same key will be looked at
        }
        let (idx, action) = (flight.idx, flight.op.action);
        if doubtful {
            self.apply(at, step);
        }
        self.verified(idx, action, step);
    }

    fn verified(&mut self, idx: Idx, action: Action, step: &mut Step) {
        let node = self.graph.node_mut(idx);
        node.flight = None;
        let key = node.key.clone();
        let observable = self
            .graph
            .registry
            .descriptor(key.kind())
            .is_none_or(|descriptor| descriptor.observable());
        let node = self.graph.node_mut(idx);
        if action == Action::Delete {
            node.observed = None;
        } else if !observable {
            node.observed = node.applied.clone();
        }
        if action == Action::Release {
            self.released(idx, &key, step);
        }
        self.forgive(idx);
        self.graph.settle(idx);
        self.graph.reap(idx);
        step.changed.push(key);
    }

    /// The object is as it was before us, and nobody's business any more.
    fn released(&mut self, idx: Idx, key: &Key, step: &mut Step) {
        self.graph.restores.remove(key);
        step.restores.push((key.clone(), None));
        let observed = self.graph.node(idx).observed.clone();
        let live = observed.map(|observed| Traits::obtained(&self.graph.registry, key, &observed));
        self.graph.set_live(idx, live, false);
    }

    /// Forgets errors, and a try that was to come.
    pub(crate) fn forgive(&mut self, idx: Idx) {
        let Some(trouble) = &mut self.graph.node_mut(idx).trouble else { return };
        trouble.error = None;
        trouble.attempts = 0;
        if let Some(at) = trouble.due.take() {
            self.timers.remove(&(at, idx));
        }
    }

    fn fail(&mut self, at: u32, error: OperationError, now: Now, step: &mut Step) {
        let Some(transaction) = &mut self.current else { return };
        let flight = &mut transaction.flights[at as usize];
        flight.state = FlightState::Failed(error.clone());
        transaction.open -= 1;
        let (idx, cause, key) = (flight.idx, flight.op.cause, flight.op.key.clone());
        let value = flight.op.new.clone().or_else(|| flight.op.old.clone());
        self.graph.counters.operations_failed += 1;
        step.read.push(key.clone());
        if transaction.is_vital(cause) {
            let label = self.graph.registry.label(&key, value.as_deref());
            transaction.awaited.insert(idx);
            transaction.failure.get_or_insert((key, label, error));
        } else {
            self.give_up(at, error, now, step);
        }
    }

    /// Leaves a value as it is, to be tried again when time or what it needs may help.
    fn give_up(&mut self, at: u32, error: OperationError, now: Now, step: &mut Step) {
        let Some(transaction) = &mut self.current else { return };
        let flight = &transaction.flights[at as usize];
        let (idx, key) = (flight.idx, flight.op.key.clone());
        transaction.undo_failed |= transaction.phase == Phase::Undoing;
        transaction.failed.push(key.clone());
        if self.graph.node(idx).flight == Some(at) {
            self.graph.node_mut(idx).flight = None;
        }
        for taken in flight.op.taken.clone() {
            if let Some(idx) =
                self.graph.find(&taken).filter(|&idx| self.graph.node(idx).flight == Some(at))
            {
                self.graph.node_mut(idx).flight = None;
            }
        }
        self.remember(idx, error, now);
        step.changed.push(key);
    }

    fn remember(&mut self, idx: Idx, error: OperationError, now: Now) {
        let trouble = self.graph.node_mut(idx).trouble.get_or_insert_default();
        let again = trouble.failed(error, now.monotonic, u64::from(idx));
        let old = std::mem::replace(&mut trouble.due, again);
        if let Some(at) = old {
            self.timers.remove(&(at, idx));
        }
        if let Some(at) = again {
            self.timers.insert((at, idx));
        }
        self.graph.settle(idx);
    }

    /// What did not come, or did not become as it should, within its time.
    pub(crate) fn expire(&mut self, now: Now, step: &mut Step) {
        let Some(transaction) = &mut self.current else { return };
        let quiet = now.monotonic.saturating_sub(transaction.progress);
        let silent = transaction.outstanding > 0 && quiet >= ANSWER_WITHIN;
        let mut reading = transaction.read_due.is_some_and(|at| at <= now.monotonic);
        if reading && quiet < ECHO_WITHIN {
            // Echoes are coming in: whoever waits is not forgotten yet.
            transaction.read_due = Some(transaction.progress + ECHO_WITHIN);
            reading = false;
        }
        if !silent && !reading {
            return;
        }
        let (mut reads, mut failed) = (0, Vec::new());
        for (at, flight) in (0..).zip(&transaction.flights) {
            match &flight.state {
                FlightState::Submitted if silent => failed.push((at, unanswered())),
                FlightState::Completed(since, doubt) if reading => {
                    let waited = quiet.min(now.monotonic.saturating_sub(*since));
                    if waited >= VERIFIED_WITHIN {
                        failed.push((
                            at,
                            doubt.clone().unwrap_or_else(|| mismatch(&self.graph, flight)),
                        ));
                    } else if reads < READS_MOST {
                        reads += 1;
                        step.read.push(flight.op.key.clone());
                    }
                }
                _ => {}
            }
        }
        if silent {
            transaction.outstanding = 0;
        }
        if reading {
            transaction.read_due = (reads > 0).then(|| now.monotonic + READ_AGAIN);
        }
        for (at, error) in failed {
            self.fail(at, error, now, step);
        }
        self.dispatch(now, step);
    }

    /// Hears of a key that a failed transaction waits for.
    pub(crate) fn heard(&mut self, idx: Idx) {
        if let Some(transaction) = &mut self.current {
            transaction.awaited.remove(&idx);
        }
    }

    /// Moves the transaction in flight on. False when it has to wait.
    pub(crate) fn proceed(&mut self, now: Now, step: &mut Step) -> bool {
        let Some(transaction) = &mut self.current else { return false };
        match transaction.phase {
            Phase::Executing if transaction.failure.is_some() => {
                if transaction.outstanding > 0 {
                    return false;
                }
                self.settle_down(now, step);
                true
            }
            Phase::Settling { until } => {
                if !transaction.awaited.is_empty() && now.monotonic < until {
                    return false;
                }
                self.undo(now, step);
                true
            }
            Phase::Executing | Phase::Undoing => {
                if transaction.open > 0 {
                    return false;
                }
                self.end(now, step);
                true
            }
        }
    }

    /// After a failure: nothing more is handed out, and what was completed counts as done.
    fn settle_down(&mut self, now: Now, step: &mut Step) {
        let Some(transaction) = &mut self.current else { return };
        transaction.phase = Phase::Settling { until: now.monotonic + SETTLED_WITHIN };
        transaction.read_due = None;
        for (at, flight) in (0..).zip(&mut transaction.flights) {
            let node = self.graph.node_mut(flight.idx);
            if node.flight != Some(at) {
                continue;
            }
            match &flight.state {
                FlightState::Completed(_, None) => {
                    let gone = flight.op.action == Action::Delete;
                    node.observed = flight.op.new.clone().filter(|_| !gone);
                    step.changed.push(flight.op.key.clone());
                    if step.read.len() < READ_AT_ONCE {
                        step.read.push(flight.op.key.clone());
                    }
                }
                FlightState::Waiting => flight.state = FlightState::NotTried,
                _ => {}
            }
        }
        for flight in &transaction.flights {
            self.graph.node_mut(flight.idx).flight = None;
            for key in &flight.op.taken {
                if let Some(idx) = self.graph.find(key) {
                    self.graph.node_mut(idx).flight = None;
                }
            }
        }
    }

    /// Puts the intent back, and plans from what is to there.
    fn undo(&mut self, now: Now, step: &mut Step) {
        let Some(mut transaction) = self.current.take() else { return };
        transaction.phase = Phase::Undoing;
        transaction.progress = now.monotonic;
        let mut touched: BTreeSet<Idx> = BTreeSet::new();
        for flight in &transaction.flights {
            touched.extend(self.graph.find(&flight.op.key));
            touched.extend(flight.op.taken.iter().filter_map(|key| self.graph.find(key)));
        }
        transaction.record(false);
        let delta = Delta::new(std::mem::take(&mut transaction.before)).best_effort();
        match planner::plan(&self.graph, delta, touched.into_iter().collect()) {
            Ok(plan) => self.board(&mut transaction, plan, now, step),
            // A key named twice with different values was refused on the way there.
            Err(_) => transaction.undo_failed = true,
        }
        self.current = Some(transaction);
        self.dispatch(now, step);
    }

    fn end(&mut self, now: Now, step: &mut Step) {
        let Some(mut transaction) = self.current.take() else { return };
        let undo = transaction.phase == Phase::Undoing;
        transaction.record(undo);
        let txn = transaction.txn;
        let outcome = match transaction.failure.take() {
            Some((key, label, error)) => {
                Outcome::Failed { txn, key, label, error, undone: !transaction.undo_failed }
            }
            None => Outcome::Done { txn, pending: transaction.pending, failed: transaction.failed },
        };
        self.history.push(Record {
            txn,
            origin: transaction.origin,
            description: transaction.description,
            started_ns: transaction.started.unix_ns,
            ended_ns: now.unix_ns,
            operations: transaction.past,
            omitted: 0,
            outcome: outcome.clone(),
        });
        step.finished.push(outcome);
    }
}

fn queues(flights: &[Flight]) -> Vec<(TransportId, Vec<u32>, usize)> {
    let mut queues: Vec<(TransportId, Vec<u32>, usize)> = Vec::new();
    for (at, flight) in flights.iter().enumerate() {
        let transport = flight.op.transport;
        match queues.iter_mut().find(|(other, ..)| *other == transport) {
            Some((_, queue, _)) => queue.push(spot_of(at)),
            None => queues.push((transport, vec![spot_of(at)], 0)),
        }
    }
    queues
}

/// Whether the system shows what the operation should have done.
fn is_seen(graph: &Graph, flight: &Flight) -> bool {
    let node = graph.node(flight.idx);
    let Some(descriptor) = graph.registry.descriptor(flight.op.key.kind()) else { return true };
    if !descriptor.observable() || descriptor.effect() == Effect::Property {
        return true;
    }
    match (flight.op.action, &flight.op.new, &node.observed) {
        (Action::Delete, _, observed) => observed.is_none(),
        // The object itself may have gone together with what we gave back.
        (Action::Release, _, None) => true,
        (_, Some(new), Some(observed)) => graph.satisfied(&flight.op.key, new, observed),
        _ => false,
    }
}

fn unanswered() -> OperationError {
    let message = format!("no answer within {} s", ANSWER_WITHIN.as_secs());
    OperationError { transient: true, ..OperationError::message(message) }
}

fn mismatch(graph: &Graph, flight: &Flight) -> OperationError {
    let observed = graph.node(flight.idx).observed.as_ref();
    let seen = observed
        .map_or_else(|| "nothing is there".to_owned(), |value| format!("the system has {value:?}"));
    OperationError {
        transient: true,
        ..OperationError::message(format!("done without an error, but {seen}"))
    }
}
