//! Alarms and transitions as JSON, with the names of the leaves of the native model.

use holdfast_faults::{Alarm, ImpactCount, OperatorState, Source, Transition};
use serde_json::{Value, json};

/// An alarm as a JSON object.
pub fn alarm_document(alarm: &Alarm) -> Value {
    let mut document = json!({
        "id": alarm.condition.to_string(),
        "type": alarm.condition.kind.name,
        "resource": alarm.condition.resource.to_string(),
        "severity": alarm.severity.name(),
        "text": alarm.text,
        "time-created": alarm.created_ns,
        "last-raised": alarm.raised_ns,
        "last-changed": alarm.changed_ns,
        "event-id": alarm.transition,
        "occurrences": alarm.occurrences,
        "operator-state": alarm.operator_state.name(),
        "source": alarm.sources.iter().map(Source::name).collect::<Vec<_>>(),
    });
    if let Some(cause) = &alarm.cause {
        document["cause"] = json!(cause.to_string());
    }
    if let Some(impact) = alarm.impact {
        let ImpactCount { state, down, degraded } = impact;
        document["impact"] = json!({"state": state.name(), "down": down, "degraded": degraded});
    }
    if alarm.operator_state != OperatorState::None {
        document["operator"] = json!(alarm.operator);
        document["operator-text"] = json!(alarm.operator_text);
    }
    if let Some(shelf) = &alarm.shelf {
        document["shelf"] = json!(shelf);
    }
    document
}

/// A transition as a JSON object.
pub fn transition_document(transition: &Transition) -> Value {
    json!({
        "id": transition.id,
        "time": transition.time_ns,
        "change": transition.change.name(),
        "alarm": alarm_document(&transition.alarm),
    })
}
