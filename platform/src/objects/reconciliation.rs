//! Settings that are taken as they are: no kernel object stands for them. Settings of reconciliation are for the
//! engine, settings of the reported status of links for the core.

use holdfast_config::{Branch, InstancePath, LeafMeta};
use smol_str::SmolStr;

use super::{LinkStatusSettings, Registry};
use crate::kinds;
use crate::kinds::entry::{Entry, LINK_STEP, ObjectError};
use crate::kinds::native::nodes;

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
    /// Settings of the reported status of links.
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

nodes!(
    /// `reconciliation` and the policies below it.
    ReconciliationNodes {
        container: "",
        resync_interval: "/resync-interval",
        rule: "/drift-policy",
        action: "/drift-policy/action",
    }
);

impl ReconciliationNodes {
    fn action_of(&self, entry: &Entry<'_>) -> Option<DriftAction> {
        match entry.text(self.action).as_deref() {
            Some("repair") => Some(DriftAction::Repair),
            Some("report") => Some(DriftAction::Report),
            _ => None,
        }
    }

    pub(super) fn check_rule(&self, entry: &Entry<'_>) -> Result<(), ObjectError> {
        let object = entry.name_of_step(RULE_STEP)?;
        let action = self.action_of(entry);
        action.ok_or_else(|| entry.incomplete(self.action))?;
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
        Ok(())
    }
}

/// Step of a path that names the objects of a rule: `reconciliation/drift-policy[object]`.
const RULE_STEP: usize = 1;

impl Registry {
    /// The setting that an object is, or has; `None` for all other objects. Without `branch`, the object is not in force.
    pub fn setting<M: LeafMeta>(
        &self,
        path: &InstancePath,
        branch: Option<&Branch<M>>,
    ) -> Option<Setting> {
        let nodes = &self.entries.reconciliation;
        let empty = Branch::<()>::default();
        let entry = branch.map(|branch| Entry::of(path, branch));
        let named = Entry::of(path, &empty);
        match path.last()?.node {
            node if node == nodes.container => {
                let interval = entry.and_then(|entry| entry.number(nodes.resync_interval));
                Some(Setting::ResyncInterval(interval))
            }
            node if node == nodes.rule => {
                let object = named.name_of_step(RULE_STEP).ok()?.clone();
                let action = entry.and_then(|entry| nodes.action_of(&entry));
                Some(Setting::DriftPolicy { object, action })
            }
            node if node == self.link.nodes.entry => {
                let link = named.name_of_step(LINK_STEP).ok()?.clone();
                let settings = entry.map(|entry| self.link.link_status_settings(&entry));
                Some(Setting::LinkStatus { link, settings: settings.unwrap_or_default() })
            }
            _ => None,
        }
    }
}
