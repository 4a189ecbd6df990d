//! Conditions of values that the engine cannot bring about.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_core::{CommitError, CoreEvent, CoreHandle, ShortStatus};
use holdfast_faults::{Condition, Input, Report, Resource, Source};
use holdfast_scheduler::{Key, ValueState, ValueStatus};
use smol_str::{SmolStr, format_smolstr};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Notify, mpsc};

/// Values of which there are alarms at a time. Further ones are not named: when hundreds of objects fail, they have one
/// reason, and `show` lists all of them.
const MAX_FAILED: usize = 256;

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
            Ok(CoreEvent::Transaction(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        let Ok(reports) = reports else { return };
        if !reports.is_empty()
            && inputs.send(Input::Reports(Source::Engine, reports)).await.is_err()
        {
            return;
        }
    }
}

/// Values with an alarm, by their names.
#[derive(Debug, Default)]
struct FailedValues(BTreeMap<Key, SmolStr>);

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
            if has_failed(status.state) {
                fresh.push(status.key.clone());
            } else if let Some(label) = self.0.remove(&status.key) {
                reports.push(Report::ended(condition(&label), now_ns));
            }
        }
        if fresh.is_empty() {
            return Ok(reports);
        }
        let statuses = core.inspect(move |view| {
            let statuses = fresh.iter().filter_map(|key| view.engine.status(key));
            statuses.collect::<Vec<_>>()
        });
        for status in statuses.await? {
            reports.extend(self.note(&status, now_ns));
        }
        Ok(reports)
    }

    /// All values that have failed, found in portions.
    async fn level(&mut self, core: &CoreHandle) -> Result<Input, CommitError> {
        self.0.clear();
        let now_ns = now_ns();
        let mut reports = Vec::new();
        let mut from = 0;
        loop {
            let until = from + PLACES_PER_QUESTION;
            let question = core.inspect(move |view| {
                let engine = view.engine;
                let pending = engine.pending_keys(from..until.min(engine.places()));
                let failed = pending.filter(|key| has_failed(engine.state(key)));
                let statuses = failed.take(MAX_FAILED).filter_map(|key| engine.status(key));
                (statuses.collect::<Vec<_>>(), engine.places())
            });
            let (statuses, places) = question.await?;
            reports.extend(statuses.iter().filter_map(|status| self.note(status, now_ns)));
            if until >= places || self.0.len() >= MAX_FAILED {
                return Ok(Input::Level(Source::Engine, reports));
            }
            from = until;
        }
    }

    fn note(&mut self, status: &ValueStatus, now_ns: u64) -> Option<Report> {
        if !has_failed(status.state) {
            return None; // it has changed since
        }
        if self.0.len() >= MAX_FAILED && !self.0.contains_key(&status.key) {
            return None;
        }
        let label = SmolStr::from(status.label.as_str());
        self.0.insert(status.key.clone(), label.clone());
        let reason = status.detail.error.as_ref().map(ToString::to_string).unwrap_or_default();
        let text = format_smolstr!("{label} is not in the system as configured: {reason}");
        Some(Report::holding(condition(&label), text, now_ns))
    }
}

fn condition(label: &SmolStr) -> Condition {
    Condition::new("value-failed", Resource::Value(label.clone()))
}
