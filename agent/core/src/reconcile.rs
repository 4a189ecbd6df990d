//! Settings of reconciliation (resync interval, drift policies), from the configuration to the engine.

use std::time::Duration;

use holdfast_platform::descriptors::kinds;
use holdfast_platform::values::{DriftAction, DriftRule, Reconciliation};
use holdfast_scheduler::{DriftPolicy, Key, SharedValue};

use super::task::CoreTask;

/// True for keys of reconciliation settings.
pub(super) fn is_concerned(key: &Key) -> bool {
    matches!(key.kind(), kinds::RECONCILIATION | kinds::DRIFT_POLICY)
}

impl CoreTask {
    /// Hands changed reconciliation settings to the engine; values of other kinds are ignored.
    pub(super) fn reconcile_as<'v>(
        &mut self,
        changes: impl IntoIterator<Item = (&'v Key, Option<&'v SharedValue>)>,
    ) {
        let now = self.now();
        let changes: Vec<_> = changes.into_iter().filter(|(key, _)| is_concerned(key)).collect();
        for (_, value) in changes.iter().filter(|(key, _)| key.kind() == kinds::RECONCILIATION) {
            let wanted = value.and_then(|value| value.as_any().downcast_ref());
            let seconds = wanted.and_then(|wanted: &Reconciliation| wanted.resync_interval);
            let period = seconds.map(|seconds| Duration::from_secs(seconds.into()));
            let step = self.engine.resync_every(period, now);
            self.follow(step);
        }
        let policies: Vec<_> = changes
            .iter()
            .filter(|(key, _)| key.kind() == kinds::DRIFT_POLICY)
            .flat_map(|(key, value)| self.policies(key, *value))
            .collect();
        if !policies.is_empty() {
            let step = self.engine.set_drift_policies(policies, now);
            self.follow(step);
        }
    }

    /// Drift policies of one rule: one for each key prefix that its object name can mean.
    fn policies(&self, rule: &Key, value: Option<&SharedValue>) -> Vec<(Key, Option<DriftPolicy>)> {
        let Some(holdfast_scheduler::Segment::Str(object)) = rule.segments().next() else {
            return Vec::new();
        };
        let action = value.and_then(|value| value.as_any().downcast_ref::<DriftRule>()).map(
            |rule| match rule.action {
                DriftAction::Repair => DriftPolicy::Repair,
                DriftAction::Report => DriftPolicy::Report,
            },
        );
        let prefixes = self.engine.registry().keys_from_text(&object);
        prefixes.into_iter().map(|prefix| (prefix, action)).collect()
    }
}
