//! Settings that are not objects. Settings of reconciliation (resync interval, drift policies) go from the configuration
//! to the engine, those of the reported status of links go to the publisher.

use std::time::Duration;

use holdfast_platform::objects::{DriftAction, Registry, Setting};
use holdfast_scheduler::{DriftPolicy, Key};

use super::CoreTask;
use crate::examination::EntryChange;

/// Settings among changed objects.
pub(crate) fn settings(registry: &Registry, changes: &[EntryChange]) -> Vec<Setting> {
    changes.iter().filter_map(|it| registry.setting(&it.path, it.entry.as_deref())).collect()
}

impl CoreTask {
    /// Hands changed settings to where they count.
    pub(crate) fn reconcile_as(&mut self, settings: Vec<Setting>) {
        let now = self.now();
        let mut policies = Vec::new();
        for setting in settings {
            match setting {
                Setting::ResyncInterval(seconds) => {
                    let period = seconds.map(|seconds| Duration::from_secs(seconds.into()));
                    let step = self.engine.write().resync_every(period, now);
                    self.follow(step);
                }
                Setting::DriftPolicy { object, action } => {
                    policies.extend(self.policies(&object, action));
                }
                Setting::LinkStatus { link, settings } => {
                    self.publisher.configure_link_status(&link, settings, now);
                }
            }
        }
        if !policies.is_empty() {
            let step = self.engine.write().set_drift_policies(policies, now);
            self.follow(step);
        }
    }

    /// Drift policies of one setting: one for each key prefix that its object name can mean.
    fn policies(
        &self,
        object: &str,
        action: Option<DriftAction>,
    ) -> impl Iterator<Item = (Key, Option<DriftPolicy>)> + use<> {
        let policy = action.map(|action| match action {
            DriftAction::Repair => DriftPolicy::Repair,
            DriftAction::Report => DriftPolicy::Report,
        });
        let prefixes = self.engine.read().registry().keys_from_text(object);
        prefixes.into_iter().map(move |prefix| (prefix, policy))
    }
}
