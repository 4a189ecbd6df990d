//! Settings that are taken as they are: no kernel object stands for them. Those of reconciliation are for the engine,
//! those of what is told of links for the core.

use holdfast_config::{Branch, InstancePath, LeafMeta};
use smol_str::SmolStr;

use super::{Entry, LinkStatusSettings, Object, ObjectError, Registry};
use crate::kinds;

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Seconds between two readings of the whole box; `None` disables them.
    ResyncInterval(Option<u32>),
    /// Policy for objects that were changed by other programs.
    DriftPolicy {
        /// Name of an object, or a common prefix of names: `address/eth0`.
        object: SmolStr,
        /// Reaction to drift; `None` when the policy is removed.
        action: Option<DriftAction>,
    },
    /// What is told of the status of a link.
    LinkStatus {
        /// Name of the link.
        link: SmolStr,
        /// Settings; the default ones when none are in force.
        settings: LinkStatusSettings,
    },
}

/// Reaction to drift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriftAction {
    /// Restore the configured state.
    Repair,
    /// Show the drift and leave the object.
    Report,
}

impl Registry {
    /// The setting that an object is, or has; `None` for all other objects. Without `branch`, the object is not in force.
    pub fn setting<M: LeafMeta>(
        &self,
        path: &InstancePath,
        branch: Option<&Branch<M>>,
    ) -> Option<Setting> {
        let entry = branch.map(|branch| Entry::of(path, branch));
        match Object::of(&self.nodes, path)? {
            Object::Reconciliation => {
                let leaf = self.nodes.reconciliation.resync_interval;
                Some(Setting::ResyncInterval(entry.and_then(|entry| entry.number(leaf))))
            }
            Object::DriftRule(object) => {
                let action = entry.and_then(|entry| self.action(&entry));
                Some(Setting::DriftPolicy { object: object.clone(), action })
            }
            Object::Link(name) => {
                let settings = entry.map(|entry| self.link_status_settings(&entry));
                let settings = settings.unwrap_or_default();
                Some(Setting::LinkStatus { link: name.clone(), settings })
            }
            _ => None,
        }
    }

    pub(super) fn drift_action<M: LeafMeta>(
        &self,
        object: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<DriftAction, ObjectError> {
        let action = self.action(entry);
        let action = action.ok_or_else(|| entry.incomplete(self.nodes.reconciliation.action))?;
        let kinds = kinds::registry();
        if kinds.keys_from_text(object).is_empty() {
            let kind_names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            let reason = format!(
                "no object of the box has a name that begins with `{object}`: names begin with a kind ({}), a slash and \
                 the name of a link or the like",
                kind_names.join(", ")
            );
            return Err(entry.error(reason));
        }
        Ok(action)
    }

    fn action<M: LeafMeta>(&self, entry: &Entry<'_, M>) -> Option<DriftAction> {
        match entry.text(self.nodes.reconciliation.action).as_deref() {
            Some("repair") => Some(DriftAction::Repair),
            Some("report") => Some(DriftAction::Report),
            _ => None,
        }
    }
}
