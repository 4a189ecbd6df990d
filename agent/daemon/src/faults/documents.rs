//! Alarms and transitions as JSON, with the names of the leaves of the native model.

use holdfast_faults::{
    Alarm, Answer, ImpactCount, OperatorState, Session, SessionChange, SessionConsumer,
    SessionEvent, Source, Transition,
};
use serde_json::{Value, json};
use smol_str::SmolStr;

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
    if let Some(session) = &alarm.suppressed_by {
        document["suppressed-by"] = json!(session);
    }
    document
}

/// A maintenance session as a JSON object.
pub fn session_document(session: &Session) -> Value {
    let consumer = |(id, it): (&SmolStr, &SessionConsumer)| {
        let objects = it.objects.iter().map(|(path, progress)| {
            let action = progress.action_or(it.default_action);
            json!({"path": path, "action": action.name(), "done": progress.is_done})
        });
        json!({
            "id": id,
            "status": it.told.name(),
            "answer": it.answer.map(Answer::name),
            "deadline": session.reply_by_ns,
            "objects": objects.collect::<Vec<_>>(),
        })
    };
    json!({
        "id": session.id,
        "resources": session.resources.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "kind": session.kind.name(),
        "starts-at": session.starts_at_ns,
        "ends-at": session.ends_at_ns,
        "created-by": session.created_by,
        "status": session.state.name(),
        "told-as": session.state.alias(),
        "since": session.since_ns,
        "reason": session.reason,
        "overdue": session.is_overdue,
        "consumers": session.consumers.iter().map(consumer).collect::<Vec<_>>(),
    })
}

/// A step of a session as a JSON object.
pub fn step_document(event: &SessionEvent) -> Value {
    let SessionEvent { step, session } = event;
    let object = match &step.change {
        SessionChange::ActionDone(object, _) => Some(object),
        _ => None,
    };
    json!({
        "id": step.id,
        "time": step.time_ns,
        "change": step.change.name(),
        "status": step.state.name(),
        "told-as": step.state.alias(),
        "consumer": step.consumer,
        "object": object,
        "session": session_document(session),
    })
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
