//! Conversion of the reconciliation settings.

use smol_str::SmolStr;

use super::{Entry, ObjectError, Registry};
use crate::descriptors;
use crate::values::{DriftAction, DriftRule, Reconciliation};

impl Registry {
    pub(super) fn reconciliation<M>(&self, entry: &Entry<'_, M>) -> Reconciliation {
        Reconciliation { resync_interval: entry.number(self.nodes.reconciliation.resync_interval) }
    }

    pub(super) fn drift_rule<M>(
        &self,
        object: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<DriftRule, ObjectError> {
        let leaf = self.nodes.reconciliation.action;
        let action = match entry.text(leaf).as_deref() {
            Some("repair") => DriftAction::Repair,
            Some("report") => DriftAction::Report,
            _ => return Err(entry.incomplete(leaf)),
        };
        let kinds = descriptors::registry();
        if kinds.keys_from_text(object).is_empty() {
            let known: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
            let reason = format!(
                "no object of the box has a name that begins with `{object}`: names begin with a kind ({}), a slash and \
                 the name of a link or the like",
                known.join(", ")
            );
            return Err(entry.error(reason));
        }
        Ok(DriftRule { object: object.clone(), action })
    }
}
