//! Conditions of values that the engine cannot bring about.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_core::{CommitError, CoreEvent, CoreHandle, ShortStatus};
use holdfast_faults::{Condition, DRIFT_WINDOW, Input, Report, Resource, Silence, Source};
use holdfast_scheduler::{
    Cause, Engine, Key, OperationResult, RecordedOperation, TransactionRecord, Trigger, ValueState,
    ValueStatus,
};
use smol_str::{SmolStr, format_smolstr};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, mpsc};

/// Values that have alarms at a time. Further ones are not named: when hundreds of objects fail, they have one
/// reason, and `show` lists all of them.
const MAX_FAILED: usize = 256;

/// Repaired values of one transaction that are counted. Thousands that change together have one reason.
const MAX_REPAIRED: usize = 256;

/// Values with an alarm at which those that were left out are looked for again.
const ROOM_FOR_OMITTED: usize = MAX_FAILED / 2;
/// Places of values that one question to the core looks at. The core waits for some milliseconds at most.
const PLACES_PER_QUESTION: u32 = 16_384;

/// Follows the statuses of values until the core stops. `relevel` asks for all that hold.
pub(super) async fn follow(core: CoreHandle, inputs: mpsc::Sender<Input>, relevel: Arc<Notify>) {
    let mut events = core.listen();
    let mut failed = FailedValues::default();
    let mut is_level_due = true;
    loop {
        if std::mem::take(&mut is_level_due) {
            let Ok(input) = failed.level(&core).await else { return };
            if inputs.send(input).await.is_err() {
                return;
            }
        }
        let event = tokio::select! {
            event = events.recv() => event,
            () = relevel.notified() => {
                is_level_due = true;
                continue;
            }
        };
        let reports = match event {
            Ok(CoreEvent::Statuses { omitted: 0, changed }) => failed.take(&core, &changed).await,
            Ok(CoreEvent::Statuses { .. }) | Err(RecvError::Lagged(_)) => {
                is_level_due = true;
                continue;
            }
            Ok(CoreEvent::Transaction(record)) => repairs(&core, &record).await,
            Err(RecvError::Closed) => return,
        };
        let Ok(reports) = reports else { return };
        is_level_due |= failed.has_room_for_omitted();
        if !reports.is_empty()
            && inputs.send(Input::Reports(Source::Engine, reports)).await.is_err()
        {
            return;
        }
    }
}

/// Reports about values that the engine has repaired in a transaction of its own. Each counts until it has been quiet.
async fn repairs(
    core: &CoreHandle,
    record: &TransactionRecord,
) -> Result<Vec<Report>, CommitError> {
    if record.trigger != Trigger::Convergence {
        return Ok(Vec::new());
    }
    let is_repair = |operation: &&RecordedOperation| {
        operation.cause == Cause::Drift && operation.result == OperationResult::Verified
    };
    let repaired = record.operations.iter().filter(is_repair).take(MAX_REPAIRED);
    let repaired: BTreeSet<Key> = repaired.map(|operation| operation.key.clone()).collect();
    if repaired.is_empty() {
        return Ok(Vec::new());
    }
    let named = core.inspect(move |view| {
        let name = |key: &Key| {
            let registry = view.engine.registry();
            (SmolStr::from(registry.key_text(key)), registry.label(key, None))
        };
        repaired.iter().map(name).collect::<Vec<_>>()
    });
    let now_ns = now_ns();
    let report = |(name, label): (SmolStr, String)| {
        let text = format_smolstr!("{label} is changed by something else again and again");
        let drift = Condition::new("config-drift", Resource::Value(name));
        Report {
            begins: Some(1),
            silence: Some(Silence::Ends(DRIFT_WINDOW)),
            ..Report::holding(drift, text, now_ns)
        }
    };
    Ok(named.await?.into_iter().map(report).collect())
}

/// Values with an alarm.
#[derive(Debug, Default)]
struct FailedValues {
    /// Names of the values, as `show` takes them, by key.
    names: BTreeMap<Key, SmolStr>,
    /// Some value has failed for which there was no place.
    has_omitted: bool,
}

fn has_failed(state: ValueState) -> bool {
    matches!(state, ValueState::Failed | ValueState::Retrying)
}

impl FailedValues {
    /// Reports about values whose status changed.
    async fn take(
        &mut self,
        core: &CoreHandle,
        changed: &[ShortStatus],
    ) -> Result<Vec<Report>, CommitError> {
        let now_ns = now_ns();
        let mut reports = Vec::new();
        let mut fresh = Vec::new();
        for status in changed {
            if status.state == ValueState::InProgress {
                continue; // another try is under way, which says nothing yet
            }
            if has_failed(status.state) {
                fresh.push(status.key.clone());
            } else if let Some(name) = self.names.remove(&status.key) {
                reports.push(Report::ended(condition(&name), now_ns));
            }
        }
        if fresh.is_empty() {
            return Ok(reports);
        }
        let statuses = core.inspect(move |view| {
            fresh.iter().filter_map(|key| NamedStatus::of(view.engine, key)).collect::<Vec<_>>()
        });
        for status in statuses.await? {
            reports.extend(self.note(status, now_ns));
        }
        Ok(reports)
    }

    /// True once when there is room for values that were left out.
    fn has_room_for_omitted(&mut self) -> bool {
        let has_room = self.has_omitted && self.names.len() <= ROOM_FOR_OMITTED;
        self.has_omitted &= !has_room;
        has_room
    }

    /// All values that have failed, found in portions.
    async fn level(&mut self, core: &CoreHandle) -> Result<Input, CommitError> {
        let known: Arc<BTreeSet<Key>> =
            Arc::new(std::mem::take(&mut self.names).into_keys().collect());
        self.has_omitted = false;
        let now_ns = now_ns();
        let mut reports = Vec::new();
        let mut from = 0;
        loop {
            let until = from + PLACES_PER_QUESTION;
            let known = Arc::clone(&known);
            let question = core.inspect(move |view| {
                let engine = view.engine;
                let pending = engine.pending_keys(from..until.min(engine.places()));
                let failed = pending.filter(|key| match engine.state(key) {
                    ValueState::InProgress => known.contains(key),
                    state => has_failed(state),
                });
                let failed = failed.take(MAX_FAILED + 1);
                let statuses = failed.filter_map(|key| NamedStatus::of(engine, key));
                (statuses.collect::<Vec<_>>(), engine.places())
            });
            let (statuses, places) = question.await?;
            reports.extend(statuses.into_iter().filter_map(|status| self.note(status, now_ns)));
            if until >= places || self.has_omitted {
                return Ok(Input::Level(Source::Engine, reports));
            }
            from = until;
        }
    }

    fn note(&mut self, named: NamedStatus, now_ns: u64) -> Option<Report> {
        let NamedStatus { name, status } = named;
        if !has_failed(status.state) && status.state != ValueState::InProgress {
            return None; // it has changed since
        }
        if self.names.len() >= MAX_FAILED && !self.names.contains_key(&status.key) {
            self.has_omitted = true;
            return None;
        }
        let label = &status.label;
        let reason = status.detail.error.as_ref().map(ToString::to_string).unwrap_or_default();
        let text = format_smolstr!("{label} is not in the system as configured: {reason}");
        let report = Report::holding(condition(&name), text, now_ns);
        self.names.insert(status.key, name);
        Some(report)
    }
}

/// Status of a value with its name.
#[derive(Debug)]
struct NamedStatus {
    name: SmolStr,
    status: ValueStatus,
}

impl NamedStatus {
    fn of(engine: &Engine, key: &Key) -> Option<Self> {
        let name = engine.registry().key_text(key).into();
        engine.status(key).map(|status| Self { name, status })
    }
}

fn condition(name: &SmolStr) -> Condition {
    Condition::new("value-failed", Resource::Value(name.clone()))
}
