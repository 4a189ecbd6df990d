//! Handing operations out, and taking their answers in.

use smallvec::SmallVec;

use super::{FlightState, Phase};
use crate::engine::{Engine, Step};
use crate::history::Origin;
use crate::operation::{
    Action, Completion, Fact, Now, OpId, Operation, OperationError, TransportId, TxnId,
};

impl Engine {
    /// Hands out what may go, until nothing more may.
    pub(super) fn dispatch(&mut self, txn: TxnId, now: Now, step: &mut Step) {
        while self.hand_out(txn, now, step) {}
    }

    /// Transports keep order, so what was handed to the same one before need not be waited for. True when something
    /// has come to its end here, for which others may have waited.
    fn hand_out(&mut self, txn: TxnId, now: Now, step: &mut Step) -> bool {
        let Some(transaction) = self.running.get(txn) else { return false };
        if transaction.failure.is_some() && transaction.phase == Phase::Executing {
            return false;
        }
        let (mut skipped, mut done) = (Vec::new(), Vec::new());
        for (transport, queue, head) in &mut transaction.queues {
            let line = self.lines.entry(*transport).or_default();
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
                    skipped.push(OpId(transaction.first_op + u64::from(at)));
                    continue;
                }
                if *transport == TransportId::NONE {
                    done.push(OpId(transaction.first_op + u64::from(at)));
                    continue;
                }
                flight.state = FlightState::Submitted;
                line.push(OpId(transaction.first_op + u64::from(at)), now.monotonic);
                transaction.outstanding += 1;
                transaction.progress = now.monotonic;
                step.submit.push(Operation {
                    id: OpId(transaction.first_op + u64::from(at)),
                    txn,
                    action: flight.op.action,
                    key: flight.op.key.clone(),
                    old: flight.op.old.clone(),
                    new: match flight.op.action {
                        Action::Update => self.graph.outcome(&flight.op),
                        _ => flight.op.new.clone(),
                    },
                    transport: flight.op.transport,
                });
            }
        }
        for op in skipped {
            let error = OperationError {
                transient: true,
                ..OperationError::message("what it needs was not done")
            };
            self.give_up(op, error, now, step);
        }
        for &op in &done {
            self.carried_out(op, now, step);
        }
        !done.is_empty()
    }

    pub(crate) fn complete(&mut self, completions: Vec<Completion>, now: Now, step: &mut Step) {
        let mut moved: SmallVec<[TxnId; 4]> = SmallVec::new();
        for Completion { op, result, observed } in completions {
            let transaction = self.running.of(op).filter(|transaction| {
                matches!(transaction.flight(op).state, FlightState::Submitted)
            });
            let Some(transaction) = transaction else {
                self.take_late_answer(op, result.is_ok(), step);
                continue;
            };
            if !moved.contains(&transaction.txn) {
                moved.push(transaction.txn);
            }
            self.take_answer(op, result, observed, now, step);
        }
        for txn in moved {
            self.dispatch(txn, now, step);
        }
    }

    fn take_answer(
        &mut self,
        op: OpId,
        result: Result<(), OperationError>,
        observed: Option<Fact>,
        now: Now,
        step: &mut Step,
    ) {
        let Some(transaction) = self.running.of(op) else { return };
        transaction.outstanding -= 1;
        transaction.progress = now.monotonic;
        let failed = transaction.failure.is_some();
        let flight = transaction.flight_mut(op);
        let (idx, action) = (flight.idx, flight.op.action);
        if let Some(line) = self.lines.get_mut(&flight.op.transport) {
            line.answered(now.monotonic);
        }
        if let Some(fact) = observed.filter(|fact| fact.key == flight.op.key) {
            self.graph.node_mut(idx).observed = fact.value;
        }
        match result {
            Ok(()) => self.carried_out(op, now, step),
            Err(error) if error.is_gone() && action == Action::Delete => {
                self.carried_out(op, now, step)
            }
            Err(error) if error.exists() && action == Action::Create => {
                self.landed(op, FlightState::Completed(now.monotonic, Some(error)), step);
                self.try_verify(op, now, step);
            }
            Err(error) if error.is_cancelled() && failed => {
                flight.state = FlightState::NotTried;
                transaction.open -= 1;
            }
            Err(error) => self.fail(op, error, now, step),
        }
    }

    /// Ends a transaction of a client before its time: what has begun is cancelled, what was done is taken back.
    pub(crate) fn call_off(&mut self, txn: TxnId, now: Now, step: &mut Step) {
        let Some(transaction) = self.running.get(txn) else { return };
        if transaction.phase != Phase::Executing || transaction.origin != Origin::Change {
            return;
        }
        let named = transaction.flights.first().map(|flight| flight.op.key.clone());
        let Some(key) = named.or_else(|| transaction.before.first().map(|(key, _)| key.clone()))
        else {
            return;
        };
        transaction.cancelled = true;
        step.cancel.extend(transaction.unanswered());
        let label = self.graph.label(&key);
        if let Some(transaction) = self.running.get(txn) {
            transaction.failure.get_or_insert((key, label, OperationError::cancelled()));
            transaction.progress = now.monotonic;
        }
    }
}
