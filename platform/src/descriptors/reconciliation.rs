//! How the agent holds the box to its configuration. Like users, these are values so that plans, history and state tell
//! of them as of all others; the agent itself does what they say.

use holdfast_scheduler::{Descriptor, Effect, Key, KindId};

use super::{NO_REQUEST, kinds};
use crate::values::{DriftRule, Reconciliation};

/// What counts for the box as a whole.
#[derive(Debug)]
pub struct ReconciliationDescriptor;

/// What happens to drift of some objects.
#[derive(Debug)]
pub struct DriftRuleDescriptor;

/// The one key of its kind.
pub fn key() -> Key {
    Key::of(kinds::RECONCILIATION)
}

/// The key of the rule for objects whose names begin so.
pub fn rule_key(object: &str) -> Key {
    Key::of(kinds::DRIFT_POLICY).str(object)
}

impl Descriptor for ReconciliationDescriptor {
    type Value = Reconciliation;

    fn kind(&self) -> KindId {
        kinds::RECONCILIATION
    }

    fn name(&self) -> &'static str {
        "reconciliation"
    }

    fn key(&self, _: &Reconciliation) -> Key {
        key()
    }

    fn label(&self, _: &Reconciliation) -> String {
        "reconciliation".to_owned()
    }

    fn effect(&self) -> Effect {
        NO_REQUEST
    }

    fn observable(&self) -> bool {
        false
    }
}

impl Descriptor for DriftRuleDescriptor {
    type Value = DriftRule;

    fn kind(&self) -> KindId {
        kinds::DRIFT_POLICY
    }

    fn name(&self) -> &'static str {
        "drift-policy"
    }

    fn key(&self, rule: &DriftRule) -> Key {
        rule_key(&rule.object)
    }

    fn label(&self, rule: &DriftRule) -> String {
        format!("drift policy of {}", rule.object)
    }

    fn effect(&self) -> Effect {
        NO_REQUEST
    }

    fn observable(&self) -> bool {
        false
    }
}
