//! The language of alarm rules: conditions as packages of services have them.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_faults::{Alarm, Evaluator, Severity};
use holdfast_services::expression::{Conditions, NamedValue};
use smol_str::format_smolstr;

use super::stamps::RuleStamps;
use super::visibility::RuleOwners;

/// Properties of an alarm that an expression may ask for, besides the names of severities.
const NAMES_OF_ALARM: [&str; 6] =
    ["type", "qualifier", "resource", "severity", "text", "occurrences"];

/// Checks the expression of an event rule.
///
/// # Errors
/// With place and reason.
pub(super) fn check(conditions: &Conditions, expression: &str) -> Result<(), String> {
    let severities = Severity::ALL.map(Severity::name);
    conditions.check(expression, &[&NAMES_OF_ALARM[..], &severities].concat())
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
        let Alarm { condition, severity, text, occurrences, .. } = alarm;
        let resource = format_smolstr!("{}", condition.resource);
        let values = [
            NamedValue::Text(condition.kind.name.clone()),
            NamedValue::Text(condition.qualifier.clone()),
            NamedValue::Text(resource),
            rank(*severity),
            NamedValue::Text(text.clone()),
            NamedValue::Number(*occurrences),
        ];
        let mut names: BTreeMap<&str, NamedValue> =
            NAMES_OF_ALARM.into_iter().zip(values).collect();
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
