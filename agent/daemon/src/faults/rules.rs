//! The language of alarm rules: conditions as packages of services have them.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_faults::{Alarm, Evaluator, Severity};
use holdfast_services::expression::{Conditions, NamedValue};
use smol_str::format_smolstr;

use super::stamps::RuleStamps;
use super::visibility::RuleOwners;

/// Reads a property of an alarm.
type PropertyOf = fn(&Alarm) -> NamedValue;

/// Properties of an alarm that an expression may ask for, besides the names of severities.
const PROPERTIES: [(&str, PropertyOf); 6] = [
    ("type", |alarm| NamedValue::Text(alarm.condition.kind.name.clone())),
    ("qualifier", |alarm| NamedValue::Text(alarm.condition.qualifier.clone())),
    ("resource", |alarm| NamedValue::Text(format_smolstr!("{}", alarm.condition.resource))),
    ("severity", |alarm| rank(alarm.severity)),
    ("text", |alarm| NamedValue::Text(alarm.text.clone())),
    ("occurrences", |alarm| NamedValue::Number(alarm.occurrences)),
];

/// Checks the expression of an event rule.
///
/// # Errors
/// With place and reason.
pub(super) fn check(conditions: &Conditions, expression: &str) -> Result<(), String> {
    let properties = PROPERTIES.map(|(name, _)| name);
    let severities = Severity::ALL.map(Severity::name);
    conditions.check(expression, &[&properties[..], &severities].concat())?;
    Severity::ALL.into_iter().try_for_each(|severity| {
        let mut example =
            BTreeMap::from(properties.map(|name| (name, NamedValue::Text("".into()))));
        example.insert("severity", rank(severity));
        example.insert("occurrences", NamedValue::Number(1));
        example.extend(Severity::ALL.map(|severity| (severity.name(), rank(severity))));
        conditions.check_result(expression, &example)
    })
}

/// Evaluates the expressions of event rules, for those who own them.
#[derive(Debug)]
pub(super) struct RuleConditions {
    conditions: Conditions,
    owners: RuleOwners,
    stamps: Arc<RuleStamps>,
}

impl RuleConditions {
    pub(super) fn new(owners: RuleOwners, stamps: Arc<RuleStamps>) -> Self {
        Self { conditions: Conditions::new(), owners, stamps }
    }
}

impl Evaluator for RuleConditions {
    fn is_true(&self, expression: &str, alarm: &Alarm) -> Result<bool, String> {
        let mut names = BTreeMap::from(PROPERTIES.map(|(name, value)| (name, value(alarm))));
        names.extend(Severity::ALL.map(|severity| (severity.name(), rank(severity))));
        let result = self.conditions.is_true(expression, &names);
        self.stamps.note_evaluated();
        result
    }

    fn permits(&self, owner: &str, alarm: &Alarm) -> bool {
        self.stamps.note_found();
        self.owners.permit_alarm(owner, alarm)
    }
}

/// A number by which severities compare.
fn rank(severity: Severity) -> NamedValue {
    NamedValue::Number(match severity {
        Severity::Warning => 1,
        Severity::Minor => 2,
        Severity::Major => 3,
        Severity::Critical => 4,
    })
}
