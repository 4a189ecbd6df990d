//! When an operation fails, or nobody answers: what is given up, and the way back.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{
    ANSWER_WITHIN, ECHO_WITHIN, Flight, FlightState, Phase, READ_AGAIN, READ_AT_ONCE, READS_MOST,
    SETTLED_WITHIN, VERIFIED_WITHIN,
};
use crate::descriptor::guarded;
use crate::engine::{Engine, Step};
use crate::graph::{Graph, Idx};
use crate::operation::{Action, Class, Now, OperationError};
use crate::plan::Delta;
use crate::planner;
use crate::value::SharedValue;

impl Engine {
    pub(super) fn fail(&mut self, at: u32, error: OperationError, now: Now, step: &mut Step) {
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
    pub(super) fn give_up(&mut self, at: u32, error: OperationError, now: Now, step: &mut Step) {
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

    pub(super) fn remember(&mut self, idx: Idx, error: OperationError, now: Now) {
        let class = self.classify(idx, &error);
        let random = self.chance.draw();
        let node = self.graph.node_mut(idx);
        let retry = node.retry.as_deref().copied().unwrap_or_default();
        let trouble = node.trouble.get_or_insert_default();
        let pause = trouble.failed(error, class, &retry, random);
        self.look_again(idx, pause.map(|pause| now.monotonic + pause));
        match class {
            Class::Environment => self.graph.expose(idx),
            Class::Transient | Class::Permanent => self.graph.cover_up(idx),
        }
        self.graph.settle(idx);
    }

    fn classify(&self, idx: Idx, error: &OperationError) -> Class {
        let kind = self.graph.node(idx).key.kind();
        let descriptor = self.graph.registry.descriptor(kind);
        let judged = descriptor.map(|descriptor| guarded(|| descriptor.classify(error)));
        judged.and_then(Result::ok).unwrap_or_else(|| error.class())
    }

    /// When a value is looked at next, instead of what was said before.
    fn look_again(&mut self, idx: Idx, at: Option<Duration>) {
        let trouble = self.graph.node_mut(idx).trouble.get_or_insert_default();
        if let Some(old) = std::mem::replace(&mut trouble.due, at) {
            self.timers.remove(&(old, idx));
        }
        if let Some(at) = at {
            self.timers.insert((at, idx));
        }
    }

    /// Has values tried again whose surroundings have changed since they failed.
    pub(crate) fn try_exposed(&mut self, now: Now, step: &mut Step) {
        for idx in std::mem::take(&mut self.graph.exposures.changed) {
            let node = self.graph.node(idx);
            let Some(trouble) = node.trouble.as_ref().filter(|_| node.flight.is_none()) else {
                continue;
            };
            if trouble.error.is_some() && trouble.due.is_none() {
                step.changed.push(node.key.clone());
                let at = now.monotonic + trouble.exposure_pause();
                self.look_again(idx, Some(at));
            }
        }
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

    /// After a failure: nothing more is handed out, and what was completed counts as done.
    pub(super) fn settle_down(&mut self, now: Now, step: &mut Step) {
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
    pub(super) fn undo(&mut self, now: Now, step: &mut Step) {
        let Some(mut transaction) = self.current.take() else { return };
        transaction.phase = Phase::Undoing;
        transaction.progress = now.monotonic;
        let mut touched: BTreeSet<Idx> = BTreeSet::new();
        for flight in &transaction.flights {
            touched.extend(self.graph.find(&flight.op.key));
            touched.extend(flight.op.taken.iter().filter_map(|key| self.graph.find(key)));
        }
        transaction.record(false);
        let mut delta = Delta::new(std::mem::take(&mut transaction.before)).best_effort();
        delta.options.source = transaction.source;
        let held = std::mem::take(&mut transaction.held);
        match planner::plan_keeping(&self.graph, delta, touched.into_iter().collect(), held) {
            Ok(plan) => self.board(&mut transaction, plan, now, step),
            // A key named twice with different values was refused on the way there.
            Err(_) => transaction.undo_failed = true,
        }
        self.current = Some(transaction);
        self.dispatch(now, step);
    }
}

pub(super) fn unanswered() -> OperationError {
    let message = format!("no answer within {} s", ANSWER_WITHIN.as_secs());
    OperationError { transient: true, ..OperationError::message(message) }
}

pub(super) fn mismatch(graph: &Graph, flight: &Flight) -> OperationError {
    let label = |value: &SharedValue| graph.registry.label(&flight.op.key, Some(&**value));
    let meant = flight.op.new.as_ref().or(flight.op.old.as_ref()).map(label);
    let seen = match graph.node(flight.idx).observed.as_ref() {
        None => "nothing is there".to_owned(),
        Some(value) if meant.is_none_or(|meant| meant != label(value)) => {
            format!("the system has {}", label(value))
        }
        Some(value) => format!("the system has {value:?}"),
    };
    OperationError {
        transient: true,
        ..OperationError::message(format!("done without an error, but {seen}"))
    }
}
