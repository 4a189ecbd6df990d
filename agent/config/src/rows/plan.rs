//! Rows of service plans: one for each instance.

use std::collections::BTreeSet;
use std::sync::Arc;

use smol_str::SmolStr;

use super::PLAN_CODE;
use super::bytes::{self, RowReader};
use super::fields::{FIELDS, list, optional, read_optional, text};
use super::transaction::{read_walk_cause, walk_cause};
use crate::claims::ServiceTag;
use crate::service_plan::{
    ActionCall, ActionCause, ActionPhase, ActionPlan, ActionProgress, ActionTarget, AnswerInput,
    BackTrack, CallPhase, ChangeAuthor, ComponentPlan, InstanceRecord, LogLine, ModificationPlan,
    Plane, ReadInput, ServicePlan, StatePlan,
};
use crate::value::Value;

/// Form of the rows, the first item of each. Later forms have more fields at the end of a state (actions with 2, opaque values
/// with 3, answers with 4, seen paths with 5), of an action (its cause with 7), and of the row.
const FORM: u64 = 7;
/// The first form.
const FIRST_FORM: u64 = 1;
/// The first form with saved values and the record.
const WITH_RECORD: u64 = 3;
/// The first form with what came of modification calls.
const WITH_MODIFICATIONS: u64 = 6;

/// Key of the row of an instance.
pub(super) fn key(tag: &ServiceTag) -> Vec<u8> {
    let mut octets = vec![PLAN_CODE];
    for part in [&tag.service, &tag.key_name, &tag.key] {
        bytes::put_value(&mut octets, &Value::Str(part.clone()));
    }
    octets
}

pub(super) fn write(plan: &ServicePlan) -> Vec<u8> {
    let ServicePlan { version, leaving, failure, saved, modifications, record, components } = plan;
    let mut octets = Vec::new();
    let items = [
        Value::Uint(FORM),
        Value::Str(version.clone()),
        optional(leaving.as_deref()),
        optional(failure.as_deref()),
        Value::List(components.iter().map(component).collect()),
        Value::List(saved.iter().flat_map(saved_value).collect()),
        self::record(record),
        Value::List(modifications.iter().flat_map(modification).collect()),
    ];
    items.iter().for_each(|item| bytes::put_value(&mut octets, item));
    octets
}

fn record(record: &InstanceRecord) -> Value {
    let InstanceRecord { created_ns, last_run_ns, last_user, trace, first_line, log } = record;
    let line =
        |LogLine { time_ns, text }: &LogLine| [Value::Uint(*time_ns), Value::Str((&**text).into())];
    Value::List(Arc::new([
        Value::Uint(*created_ns),
        Value::Uint(*last_run_ns),
        Value::Str(last_user.clone()),
        Value::Str(trace.clone()),
        Value::Uint(*first_line),
        Value::List(log.iter().flat_map(line).collect()),
    ]))
}

/// Phase of a modification call, and what came of it.
fn modification((phase, plan): (&CallPhase, &ModificationPlan)) -> [Value; 2] {
    let ModificationPlan { answer, opaque, failure, waits_for } = plan;
    let fields = [
        answer.as_ref().map_or(Value::Empty, answer_input),
        Value::Str((&**opaque).into()),
        optional(failure.as_deref()),
        optional(waits_for.as_deref()),
    ];
    [Value::Bool(*phase == CallPhase::PostModification), Value::List(Arc::new(fields))]
}

/// Name of a saved value, and its content.
fn saved_value((name, value): (&SmolStr, &Arc<str>)) -> [Value; 2] {
    [Value::Str(name.clone()), Value::Str((&**value).into())]
}

fn component(component: &ComponentPlan) -> Value {
    let ComponentPlan { component_type, name, vars, back_track, states } = component;
    let back_track = match back_track {
        None => Value::Empty,
        Some(BackTrack::Whole) => Value::Bool(true),
        Some(BackTrack::To(state)) => Value::Str(state.clone()),
    };
    Value::List(Arc::new([
        Value::Str(component_type.clone()),
        Value::Str(name.clone()),
        Value::Str((&**vars).into()),
        back_track,
        Value::List(states.iter().map(state).collect()),
    ]))
}

fn state(state: &StatePlan) -> Value {
    let StatePlan { name, is_reached, failure, waits_for, since_ns, action, opaque, answer, seen } =
        state;
    let path = |path: &Arc<str>| Value::Str((&**path).into());
    Value::List(Arc::new([
        Value::Str(name.clone()),
        Value::Bool(*is_reached),
        optional(failure.as_deref()),
        optional(waits_for.as_deref()),
        Value::Uint(*since_ns),
        action.as_ref().map_or(Value::Empty, self::action),
        Value::Str((&**opaque).into()),
        answer.as_ref().map_or(Value::Empty, answer_input),
        Value::List(seen.iter().map(path).collect()),
    ]))
}

fn answer_input(AnswerInput { call, reads }: &AnswerInput) -> Value {
    let read = |ReadInput { plane, path, values }: &ReadInput| {
        [Value::Bool(*plane == Plane::State), Value::Str((&**path).into()), Value::Uint(*values)]
    };
    Value::List([Value::Uint(*call)].into_iter().chain(reads.iter().flat_map(read)).collect())
}

fn action(action: &ActionPlan) -> Value {
    let ActionPlan { id, phase, progress, attempts, since_ns, call, cause } = action;
    let ActionCall { target, params, serial, timeout_s } = call;
    let target = match target {
        ActionTarget::Builtin(name) => Value::Str(name.clone()),
        ActionTarget::Handler(name) => Value::List(Arc::new([Value::Str(name.clone())])),
    };
    let progress = match progress {
        ActionProgress::Queued => Value::Bool(false),
        ActionProgress::Dispatched => Value::Bool(true),
        ActionProgress::Succeeded => Value::Empty,
        ActionProgress::Failed(reason) => Value::Str((&**reason).into()),
        ActionProgress::InDoubt(reason) => flagged(false, reason),
        ActionProgress::Cancelled(reason) => flagged(true, reason),
    };
    Value::List(Arc::new([
        Value::Uint(*id),
        Value::Bool(*phase == ActionPhase::Delete),
        progress,
        target,
        Value::Str((&**params).into()),
        Value::Str((&**serial).into()),
        Value::Uint(*timeout_s),
        Value::Uint(*attempts),
        Value::Uint(*since_ns),
        cause.as_deref().map_or(Value::Empty, action_cause),
    ]))
}

fn action_cause(ActionCause { kind, author, walk }: &ActionCause) -> Value {
    let ChangeAuthor { user, trace } = author;
    let texts = [kind, user, trace].map(|it| Value::Str(it.clone()));
    Value::List(texts.into_iter().chain([walk_cause(walk.as_ref())]).collect())
}

/// Reason of a call that is cancelled or in doubt.
fn flagged(is_cancelled: bool, reason: &str) -> Value {
    Value::List(Arc::new([Value::Bool(is_cancelled), Value::Str(reason.into())]))
}

/// Reads a row; `None` for one of a form that this version does not know.
pub(super) fn read(
    key: &[u8],
    value: &[u8],
) -> Result<Option<(ServiceTag, ServicePlan)>, &'static str> {
    let mut key = RowReader(key.strip_prefix(&[PLAN_CODE]).ok_or("the row is not a service plan")?);
    let mut part = || key.value().and_then(text);
    let tag = ServiceTag { service: part()?, key_name: part()?, key: part()? };
    let mut items = RowReader(value);
    let form = match items.value()? {
        Value::Uint(form @ FIRST_FORM..=FORM) => form,
        _ => return Ok(None),
    };
    let mut plan = ServicePlan {
        version: text(items.value()?)?,
        leaving: read_optional(&items.value()?)?,
        failure: read_optional(&items.value()?)?,
        components: list(&items.value()?)?.iter().map(read_component).collect::<Result<_, _>>()?,
        ..ServicePlan::default()
    };
    if form >= WITH_RECORD {
        plan.saved = list(&items.value()?)?.chunks(2).map(read_saved).collect::<Result<_, _>>()?;
        plan.record = read_record(&items.value()?)?;
    }
    if form >= WITH_MODIFICATIONS {
        let modifications = items.value()?;
        plan.modifications =
            list(&modifications)?.chunks(2).map(read_modification).collect::<Result<_, _>>()?;
    }
    Ok(Some((tag, plan)))
}

fn read_record(value: &Value) -> Result<InstanceRecord, &'static str> {
    let [
        Value::Uint(created_ns),
        Value::Uint(last_run_ns),
        Value::Str(last_user),
        Value::Str(trace),
        Value::Uint(first_line),
        Value::List(log),
    ] = list(value)?
    else {
        return Err(FIELDS);
    };
    let line = |pair: &[Value]| match pair {
        [Value::Uint(time_ns), Value::Str(text)] => {
            Ok(LogLine { time_ns: *time_ns, text: text.as_str().into() })
        }
        _ => Err(FIELDS),
    };
    Ok(InstanceRecord {
        created_ns: *created_ns,
        last_run_ns: *last_run_ns,
        last_user: last_user.clone(),
        trace: trace.clone(),
        first_line: *first_line,
        log: log.chunks(2).map(line).collect::<Result<_, _>>()?,
    })
}

fn read_modification(pair: &[Value]) -> Result<(CallPhase, ModificationPlan), &'static str> {
    let [Value::Bool(is_post), fields] = pair else { return Err(FIELDS) };
    let [answer, opaque, failure, waits_for] = list(fields)? else { return Err(FIELDS) };
    let phase = if *is_post { CallPhase::PostModification } else { CallPhase::PreModification };
    let plan = ModificationPlan {
        answer: Some(answer).filter(|it| **it != Value::Empty).map(read_answer).transpose()?,
        opaque: text(opaque.clone())?.as_str().into(),
        failure: read_optional(failure)?,
        waits_for: read_optional(waits_for)?,
    };
    Ok((phase, plan))
}

fn read_saved(pair: &[Value]) -> Result<(SmolStr, Arc<str>), &'static str> {
    let [name, value] = pair else { return Err(FIELDS) };
    Ok((text(name.clone())?, text(value.clone())?.as_str().into()))
}

fn read_component(value: &Value) -> Result<ComponentPlan, &'static str> {
    let [component_type, name, vars, back_track, states] = list(value)? else { return Err(FIELDS) };
    Ok(ComponentPlan {
        component_type: text(component_type.clone())?,
        name: text(name.clone())?,
        vars: text(vars.clone())?.as_str().into(),
        back_track: match back_track {
            Value::Empty => None,
            Value::Bool(true) => Some(BackTrack::Whole),
            state => Some(BackTrack::To(text(state.clone())?)),
        },
        states: list(states)?.iter().map(read_state).collect::<Result<_, _>>()?,
    })
}

fn read_state(value: &Value) -> Result<StatePlan, &'static str> {
    let (fields, later) = list(value)?.split_at_checked(5).ok_or(FIELDS)?;
    let [name, Value::Bool(is_reached), failure, waits_for, Value::Uint(since_ns)] = fields else {
        return Err(FIELDS);
    };
    let [action, opaque, answer, seen] = std::array::from_fn(|at| later.get(at));
    let action = action.map(read_action).transpose()?.flatten();
    let opaque = opaque.map_or(Ok(SmolStr::default()), |it| text(it.clone()))?;
    let answer = answer.filter(|it| **it != Value::Empty).map(read_answer).transpose()?;
    let seen = match seen {
        Some(paths) => list(paths)?.iter().map(read_path).collect::<Result<_, _>>()?,
        None => BTreeSet::new(),
    };
    let failure = read_optional(failure)?;
    let waits_for = read_optional(waits_for)?;
    let name = text(name.clone())?;
    let is_reached = *is_reached;
    let since_ns = *since_ns;
    let opaque = opaque.as_str().into();
    Ok(StatePlan { name, is_reached, failure, waits_for, since_ns, action, opaque, answer, seen })
}

fn read_path(value: &Value) -> Result<Arc<str>, &'static str> {
    Ok(text(value.clone())?.as_str().into())
}

fn read_answer(value: &Value) -> Result<AnswerInput, &'static str> {
    let [Value::Uint(call), reads @ ..] = list(value)? else { return Err(FIELDS) };
    let read = |fields: &[Value]| match fields {
        [Value::Bool(is_state), Value::Str(path), Value::Uint(values)] => Ok(ReadInput {
            plane: if *is_state { Plane::State } else { Plane::Ground },
            path: path.as_str().into(),
            values: *values,
        }),
        _ => Err(FIELDS),
    };
    let reads = reads.chunks(3).map(read).collect::<Result<_, _>>()?;
    Ok(AnswerInput { call: *call, reads })
}

fn read_action(value: &Value) -> Result<Option<ActionPlan>, &'static str> {
    if *value == Value::Empty {
        return Ok(None);
    }
    let fields = list(value)?;
    let [id, is_delete, progress, target, params, serial, timeout, later @ ..] = fields else {
        return Err(FIELDS);
    };
    let (Value::Uint(id), Value::Bool(is_delete), Value::Uint(timeout_s)) =
        (id, is_delete, timeout)
    else {
        return Err(FIELDS);
    };
    let (attempts, since_ns, cause) = match later {
        [] => (0, *id, None),
        [Value::Uint(attempts), Value::Uint(since_ns), cause @ ..] => {
            (*attempts, *since_ns, cause.first())
        }
        _ => return Err(FIELDS),
    };
    let cause = cause.map(read_action_cause).transpose()?.flatten();
    let progress = match progress {
        Value::Bool(false) => ActionProgress::Queued,
        Value::Bool(true) => ActionProgress::Dispatched,
        Value::Empty => ActionProgress::Succeeded,
        Value::List(flagged) => match &flagged[..] {
            [Value::Bool(false), Value::Str(reason)] => {
                ActionProgress::InDoubt(reason.as_str().into())
            }
            [Value::Bool(true), Value::Str(reason)] => {
                ActionProgress::Cancelled(reason.as_str().into())
            }
            _ => return Err(FIELDS),
        },
        reason => ActionProgress::Failed(text(reason.clone())?.as_str().into()),
    };
    let target = match target {
        Value::Str(name) => ActionTarget::Builtin(name.clone()),
        handler => match list(handler)? {
            [name] => ActionTarget::Handler(text(name.clone())?),
            _ => return Err(FIELDS),
        },
    };
    let call = ActionCall {
        target,
        params: text(params.clone())?.as_str().into(),
        serial: text(serial.clone())?.as_str().into(),
        timeout_s: *timeout_s,
    };
    let phase = if *is_delete { ActionPhase::Delete } else { ActionPhase::Create };
    Ok(Some(ActionPlan { id: *id, phase, progress, attempts, since_ns, call, cause }))
}

fn read_action_cause(value: &Value) -> Result<Option<Arc<ActionCause>>, &'static str> {
    if *value == Value::Empty {
        return Ok(None);
    }
    let [kind, user, trace, walk] = list(value)? else { return Err(FIELDS) };
    let author = ChangeAuthor { user: text(user.clone())?, trace: text(trace.clone())? };
    let kind = text(kind.clone())?;
    let walk = read_walk_cause(walk)?;
    Ok(Some(Arc::new(ActionCause { kind, author, walk })))
}

/// True of the key of a row that holds a service plan.
pub(super) fn is_key(key: &[u8]) -> bool {
    key.first() == Some(&PLAN_CODE)
}
