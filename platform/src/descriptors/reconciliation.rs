//! Settings of reconciliation. Like users they are values so that plans, history and state include them; the agent
//! itself carries them out.

use holdfast_scheduler::{Descriptor, Effect, Key, KindId};

use super::{NO_REQUEST, kinds};
use crate::values::{DriftRule, Reconciliation};

/// Settings for the box as a whole.
#[derive(Debug)]
pub struct ReconciliationDescriptor;

/// Policies for drift, each for a set of objects.
#[derive(Debug)]
pub struct DriftRuleDescriptor;

/// Key of the settings, of which there is one.
pub fn key() -> Key {
    Key::of(kinds::RECONCILIATION)
}

/// Key of the policy for objects whose names have this prefix.
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
