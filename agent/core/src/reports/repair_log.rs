//! Log of what the system and the engine do by themselves: objects that are lost, repairs, failures of operations, and their end.
//!
//! Each object has one line a minute at most for its losses, and one for its repairs and failures, with counts
//! ([`LogThrottle`]). Failures that the answer of a request tells to a client are logged there.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_base::{DueLines, LogThrottle, Merge};
use holdfast_scheduler::{
    Action, Engine, EngineOutput, Key, KindId, Now, OperationError, OperationResult,
    RecordedOperation, Registry, SystemChange, TransactionOutcome, TransactionRecord, Trigger,
    ValueState,
};
use holdfast_security::acctz::secrets;
use tracing::{info, warn};

/// Objects that failed, so that their success is told. Others are shown as failed by `holdfast show pending` all the
/// same.
const FAILED_MOST: usize = 1024;

/// Lines of objects within the last minute, and objects whose last operation failed.
#[derive(Debug, Default)]
pub(crate) struct RepairLog {
    throttle: LogThrottle<Key, Line>,
    losses: LogThrottle<Key, LossLine>,
    failed: BTreeSet<Key>,
}

/// One line: how often an object was repaired and failed, and the last of these events.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    object: String,
    repairs: u64,
    failures: u64,
    last: Event,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Failed(Action, OperationError),
    Repaired(Action),
    /// In place after a failure.
    Recovered(Action),
}

/// One line: how often an object was lost, and what the last news of it are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LossLine {
    object: String,
    losses: u64,
    last: ValueState,
}

impl Merge for LossLine {
    fn merge(&mut self, later: Self) {
        self.object = later.object;
        self.losses += later.losses;
        self.last = later.last;
    }
}

impl LossLine {
    fn log(&self) {
        let Self { object, losses, last } = self;
        match last {
            ValueState::Drifted => {
                warn!(%object, losses, "others have changed it in the system");
            }
            ValueState::Configured => {
                info!(%object, losses, "in the system again as it was configured, without a repair");
            }
            _ => warn!(%object, losses, "gone from the system, without an operation of ours"),
        }
    }
}

impl Merge for Line {
    fn merge(&mut self, later: Self) {
        self.object = later.object;
        self.repairs += later.repairs;
        self.failures += later.failures;
        self.last = later.last;
    }
}

impl Line {
    fn new(object: String, event: Event) -> Self {
        let failures = u64::from(matches!(event, Event::Failed(..)));
        Self { object, repairs: 1 - failures, failures, last: event }
    }

    fn log(&self) {
        let Self { object, repairs, failures, last } = self;
        match last {
            Event::Failed(action, error) => {
                let error = secrets::message(&error.to_string());
                warn!(%object, %action, %error, failures, repairs, "an operation failed; it is tried again");
            }
            Event::Repaired(action) => {
                info!(%object, %action, failures, repairs, "repaired what had changed in the system");
            }
            Event::Recovered(action) => {
                info!(%object, %action, failures, repairs, "done, after it had failed");
            }
        }
    }
}

impl RepairLog {
    /// Logs what the transactions that ended in a step did, or keeps it for later.
    pub(crate) fn note(&mut self, engine: &Engine, step: &EngineOutput, now: Now) {
        let changes = step.system_changes.iter();
        let lines = changes.filter_map(|it| self.take_loss(it, engine.registry(), now));
        lines.for_each(|line| line.log());
        let ended = step.finished.iter().filter_map(|it| engine.history().record(it.txn()));
        for record in ended {
            self.take(record, engine.registry(), now).iter().for_each(Line::log);
        }
    }

    /// Takes in what a transaction did. Returns the lines to be logged now.
    fn take(&mut self, record: &TransactionRecord, registry: &Registry, now: Now) -> Vec<Line> {
        let mut lines = Vec::new();
        if !self.is_of_interest(record) {
            return lines;
        }
        // An object that follows from another one, as the prefix from an address, has no line beside that object's.
        let is_shown = |kind: KindId| registry.descriptor(kind).is_none_or(|it| it.observable());
        let operations = record.operations.iter().filter(|it| is_shown(it.key.kind()));
        for operation in operations {
            let Some(event) = self.event(record, operation) else { continue };
            let value = operation.new.as_ref().or(operation.old.as_ref());
            let line = Line::new(registry.label(&operation.key, value.map(|it| &**it)), event);
            lines.extend(self.throttle.note(&operation.key, line, now.monotonic));
        }
        lines
    }

    /// Takes in what the system did to an object. Returns the line to be logged now. An object that went with another
    /// one, and waits for it now, has no line beside that object's.
    fn take_loss(
        &mut self,
        change: &SystemChange,
        registry: &Registry,
        now: Now,
    ) -> Option<LossLine> {
        let SystemChange { key, state, value, .. } = change;
        let is_shown = registry.descriptor(key.kind()).is_none_or(|it| it.observable());
        if !is_shown || *state == ValueState::Pending {
            return None;
        }
        let line = LossLine {
            object: registry.label(key, value.as_ref().map(|it| &**it)),
            losses: u64::from(*state != ValueState::Configured),
            last: *state,
        };
        self.losses.note(key, line, now.monotonic)
    }

    /// Logs what was kept for later and is due.
    pub(crate) fn log_due(&mut self, now: Now) {
        log_losses(self.losses.due(now.monotonic));
        log_lines(self.throttle.due(now.monotonic));
    }

    /// Logs all that was kept for later, at the end of the process.
    pub(crate) fn finish(&mut self) {
        log_losses(self.losses.finish());
        log_lines(self.throttle.finish());
    }

    /// Time of the next call of [`Self::log_due`].
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.throttle.deadline().into_iter().chain(self.losses.deadline()).min()
    }

    /// False for most transactions of clients, whose operations are not looked at.
    fn is_of_interest(&self, record: &TransactionRecord) -> bool {
        let is_clean = |outcome: &TransactionOutcome| matches!(outcome, TransactionOutcome::Done { failed, .. } if failed.is_empty());
        record.trigger == Trigger::Convergence
            || !self.failed.is_empty()
            || !is_clean(&record.outcome)
    }

    /// Event of an operation, where it is one to be logged.
    fn event(
        &mut self,
        record: &TransactionRecord,
        operation: &RecordedOperation,
    ) -> Option<Event> {
        let RecordedOperation { action, key, result, undo, .. } = operation;
        let is_answered = matches!(
            record.outcome,
            TransactionOutcome::Failed { .. } | TransactionOutcome::Cancelled { .. }
        );
        match result {
            // The answer of the request has the first error, and those of the way back stay.
            OperationResult::Failed(_) if is_answered && !undo => None,
            OperationResult::Failed(error) => {
                if self.failed.len() >= FAILED_MOST {
                    self.failed.pop_first();
                }
                self.failed.insert(key.clone());
                Some(Event::Failed(*action, error.clone()))
            }
            OperationResult::Verified if self.failed.remove(key) => Some(Event::Recovered(*action)),
            OperationResult::Verified if operation.is_repair(record.trigger) => {
                Some(Event::Repaired(*action))
            }
            // The warning about what stays has its own line, when the transaction ends.
            OperationResult::NotGivenBack(_)
            | OperationResult::Verified
            | OperationResult::Completed
            | OperationResult::NotTried => None,
        }
    }
}

fn log_losses(due: DueLines<Key, LossLine>) {
    due.lines.iter().for_each(|(_, line)| line.log());
    if due.beyond > 0 {
        warn!(
            events = due.beyond,
            "more objects were lost or came back; `holdfast show pending` and `show timeline` have them"
        );
    }
}

fn log_lines(due: DueLines<Key, Line>) {
    due.lines.iter().for_each(|(_, line)| line.log());
    if due.beyond > 0 {
        warn!(
            events = due.beyond,
            "more objects failed or were repaired; `holdfast show pending` and `show transactions` have them"
        );
    }
}

#[cfg(test)]
mod tests {
    use holdfast_platform::kinds::{link, registry};
    use holdfast_scheduler::{Cause, TxnId};

    use super::*;

    fn busy() -> OperationError {
        OperationError { errno: Some(16), message: "busy".to_owned(), transient: true }
    }

    fn operation(port: &str, cause: Cause, result: OperationResult) -> RecordedOperation {
        let key = link::key(port);
        let action = Action::Update;
        RecordedOperation { action, key, cause, old: None, new: None, result, undo: false }
    }

    fn record(trigger: Trigger, operations: Vec<RecordedOperation>) -> TransactionRecord {
        let is_failed = |it: &&RecordedOperation| matches!(it.result, OperationResult::Failed(_));
        let failed = operations.iter().filter(is_failed).map(|it| it.key.clone()).collect();
        let txn = TxnId(1);
        TransactionRecord {
            txn,
            trigger,
            description: String::new(),
            author: None,
            started_ns: 0,
            ended_ns: 0,
            requested: Vec::new(),
            operations,
            omitted: 0,
            outcome: TransactionOutcome::Done { txn, pending: Vec::new(), failed },
        }
    }

    fn at(second: u64) -> Now {
        Now { monotonic: Duration::from_secs(second), unix_ns: 0 }
    }

    fn line(object: &str, repairs: u64, failures: u64, last: Event) -> Line {
        Line { object: object.to_owned(), repairs, failures, last }
    }

    #[test]
    fn an_object_has_one_line_a_minute_with_counts() {
        let mut log = RepairLog::default();
        let repaired = |port| operation(port, Cause::Drift, OperationResult::Verified);
        let failed = |port| operation(port, Cause::Drift, OperationResult::Failed(busy()));
        let mut take = |second, operations| {
            log.take(&record(Trigger::Convergence, operations), &registry(), at(second))
        };
        let once =
            |port: &str| line(&format!("link {port}"), 1, 0, Event::Repaired(Action::Update));
        assert_eq!(take(1, vec![repaired("eth0"), repaired("eth1")]), [once("eth0"), once("eth1")]);
        for second in 2..5 {
            assert_eq!(take(second, vec![repaired("eth0")]), []);
        }
        assert_eq!(take(6, vec![failed("eth0")]), []);
        assert_eq!(log.deadline(), Some(Duration::from_secs(61)));
        let due = log.throttle.due(Duration::from_secs(61));
        let failed = Event::Failed(Action::Update, busy());
        assert_eq!(due.lines, [(link::key("eth0"), line("link eth0", 3, 1, failed))]);
    }

    #[test]
    fn a_loss_has_a_line_beside_that_of_its_repair() {
        let mut log = RepairLog::default();
        let change =
            |state| SystemChange { key: link::key("eth0"), time_ns: 7, state, value: None };
        let line = |losses, last| LossLine { object: "link eth0".to_owned(), losses, last };
        let mut take = |second, state| log.take_loss(&change(state), &registry(), at(second));
        assert_eq!(take(1, ValueState::Drifted), Some(line(1, ValueState::Drifted)));
        assert_eq!(take(2, ValueState::Drifted), None);
        assert_eq!(take(3, ValueState::Pending), None, "what it waits for has a line");
        assert_eq!(take(4, ValueState::Missing), None);
        let repaired = operation("eth0", Cause::Drift, OperationResult::Verified);
        let repaired = record(Trigger::Convergence, vec![repaired]);
        assert_eq!(log.take(&repaired, &registry(), at(5)).len(), 1);
        let due = log.losses.due(Duration::from_secs(61));
        assert_eq!(due.lines, [(link::key("eth0"), line(2, ValueState::Missing))]);
    }

    #[test]
    fn what_is_in_place_after_a_failure_is_told() {
        let mut log = RepairLog::default();
        let take = |log: &mut RepairLog, second, trigger, result| {
            let operations = vec![operation("eth0", Cause::Unblocked, result)];
            log.take(&record(trigger, operations), &registry(), at(second))
        };
        let failed = line("link eth0", 0, 1, Event::Failed(Action::Update, busy()));
        let done = line("link eth0", 1, 0, Event::Recovered(Action::Update));
        let failure = || OperationResult::Failed(busy());
        assert_eq!(
            take(&mut log, 1, Trigger::Convergence, OperationResult::Verified),
            [],
            "no news"
        );
        assert_eq!(take(&mut log, 1, Trigger::Change, failure()), [failed], "a best-effort change");
        drop(log.throttle.due(Duration::from_secs(61)));
        assert_eq!(take(&mut log, 99, Trigger::Change, OperationResult::Verified), [done]);
        drop(log.throttle.due(Duration::from_secs(159)));
        assert_eq!(
            take(&mut log, 300, Trigger::Convergence, OperationResult::Verified),
            [],
            "no news"
        );
    }

    #[test]
    fn what_a_client_is_told_is_left_to_its_answer() {
        let mut log = RepairLog::default();
        let failed = operation("eth0", Cause::Requested, OperationResult::Failed(busy()));
        let undone = RecordedOperation { undo: true, ..failed.clone() };
        let mut refused = record(Trigger::Change, vec![failed]);
        refused.outcome = TransactionOutcome::Failed {
            txn: TxnId(1),
            key: link::key("eth0"),
            label: "link eth0".to_owned(),
            error: busy(),
            undone: false,
        };
        assert_eq!(log.take(&refused, &registry(), at(1)), []);
        refused.operations.push(undone);
        assert_eq!(log.take(&refused, &registry(), at(1)).len(), 1, "the way back has failed");
    }
}
