//! Rows of service transactions: one for each that is kept.

use std::sync::Arc;

use smol_str::SmolStr;

use super::bytes::{self, RowReader};
use super::fields::{FIELDS, list, number, optional, read_optional, text};
use crate::claims::ServiceTag;
use crate::service_plan::{
    CauseKind, ChangeAuthor, FailureOrigin, ServiceTransaction, TransactionFailure, WalkCause,
    WalkedInstance,
};
use crate::value::Value;

/// Form of the rows, the first item of each.
const FORM: u64 = 1;
/// Stands for a text that is not there.
const NONE: Value = Value::Empty;

/// Content of the row of a transaction.
pub fn write_transaction(transaction: &ServiceTransaction) -> Vec<u8> {
    let ServiceTransaction { id, kind, author, started_ns, ended_ns, .. } = transaction;
    let ServiceTransaction { failure, instances, omitted, handler_tids, .. } = transaction;
    let failure = failure.as_ref().map_or(NONE, |TransactionFailure { origin, reason }| {
        Value::List(Arc::new([name(origin.name()), name(reason)]))
    });
    let items = [
        Value::Uint(FORM),
        Value::Uint(*id),
        Value::Str(kind.clone()),
        Value::Str(author.user.clone()),
        Value::Str(author.trace.clone()),
        Value::Uint(*started_ns),
        Value::Uint(*ended_ns),
        failure,
        Value::List(instances.iter().map(instance).collect()),
        Value::Uint(*omitted),
        Value::List(handler_tids.iter().map(|tid| Value::Uint(*tid)).collect()),
    ];
    let mut octets = Vec::new();
    items.iter().for_each(|item| bytes::put_value(&mut octets, item));
    octets
}

fn instance(WalkedInstance { tag, trace, cause }: &WalkedInstance) -> Value {
    let ServiceTag { service, key_name, key } = tag;
    let texts = [service, key_name, key, trace].map(|it| Value::Str(it.clone()));
    Value::List(texts.into_iter().chain([walk_cause(cause.as_ref())]).collect())
}

pub(super) fn walk_cause(cause: Option<&WalkCause>) -> Value {
    let Some(WalkCause { kind, subject, before, after, places }) = cause else { return NONE };
    let fields =
        [name(kind.name()), name(subject), optional(before.as_deref()), optional(after.as_deref())];
    Value::List(fields.into_iter().chain(places.iter().map(|it| name(it))).collect())
}

fn name(text: &str) -> Value {
    Value::Str(text.into())
}

/// Reads the row of a transaction; `None` for one of a form that this version does not know.
///
/// # Errors
/// When it is another row.
pub fn read_transaction(row: &[u8]) -> Result<Option<ServiceTransaction>, &'static str> {
    let mut items = RowReader(row);
    if items.value()? != Value::Uint(FORM) {
        return Ok(None);
    }
    let id = number(&items.value()?)?;
    let [kind, user, trace] = [(); 3].map(|()| items.value().and_then(text));
    let author = ChangeAuthor { user: user?, trace: trace? };
    let [started_ns, ended_ns] = [(); 2].map(|()| items.value().and_then(|it| number(&it)));
    Ok(Some(ServiceTransaction {
        id,
        kind: kind?,
        author,
        started_ns: started_ns?,
        ended_ns: ended_ns?,
        failure: read_failure(&items.value()?)?,
        instances: list(&items.value()?)?.iter().map(read_instance).collect::<Result<_, _>>()?,
        omitted: number(&items.value()?)?,
        handler_tids: list(&items.value()?)?.iter().map(number).collect::<Result<_, _>>()?,
    }))
}

fn read_failure(value: &Value) -> Result<Option<TransactionFailure>, &'static str> {
    match value {
        Value::Empty => Ok(None),
        value => match list(value)? {
            [Value::Str(origin), Value::Str(reason)] => {
                let origin = FailureOrigin::by_name(origin).unwrap_or(FailureOrigin::Agent);
                Ok(Some(TransactionFailure { origin, reason: reason.as_str().into() }))
            }
            _ => Err(FIELDS),
        },
    }
}

fn read_instance(value: &Value) -> Result<WalkedInstance, &'static str> {
    let [Value::Str(service), Value::Str(key_name), Value::Str(key), Value::Str(trace), cause] =
        list(value)?
    else {
        return Err(FIELDS);
    };
    let [service, key_name, key] = [service, key_name, key].map(SmolStr::clone);
    let tag = ServiceTag { service, key_name, key };
    Ok(WalkedInstance { tag, trace: trace.clone(), cause: read_walk_cause(cause)? })
}

/// Reads what [`walk_cause`] has written; `None` also for a kind that this version does not know.
pub(super) fn read_walk_cause(value: &Value) -> Result<Option<WalkCause>, &'static str> {
    if *value == NONE {
        return Ok(None);
    }
    let [Value::Str(kind), Value::Str(subject), before, after, places @ ..] = list(value)? else {
        return Err(FIELDS);
    };
    let Some(kind) = CauseKind::by_name(kind) else { return Ok(None) };
    let place = |place: &Value| Ok(text(place.clone())?.as_str().into());
    Ok(Some(WalkCause {
        kind,
        subject: subject.as_str().into(),
        before: read_optional(before)?,
        after: read_optional(after)?,
        places: places.iter().map(place).collect::<Result<_, &'static str>>()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction() -> ServiceTransaction {
        let cause = WalkCause::condition(
            "state /system/hostname".into(),
            [None, Some("a".into())],
            &[Arc::from("main: gate `x`")],
        );
        let instance = |key: &str, cause| WalkedInstance {
            tag: format!("access[name='{key}']").parse().unwrap(),
            trace: "change/7".into(),
            cause,
        };
        ServiceTransaction {
            id: 7,
            kind: "walk".into(),
            author: ChangeAuthor { user: "service".into(), trace: "t".into() },
            started_ns: 1,
            ended_ns: u64::MAX,
            failure: None,
            instances: vec![instance("acme", Some(cause)), instance("b'olt", None)],
            omitted: 3,
            handler_tids: vec![4, 5],
        }
    }

    #[test]
    fn a_row_reads_as_the_transaction_that_was_written() {
        let failure = |origin| TransactionFailure { origin, reason: "no such device".into() };
        let failures = FailureOrigin::ALL.into_iter().map(|it| Some(failure(it)));
        for failure in failures.chain([None]) {
            let written = ServiceTransaction { failure, ..transaction() };
            assert_eq!(read_transaction(&write_transaction(&written)), Ok(Some(written)));
        }
    }

    #[test]
    fn rows_of_other_forms_are_left_out_and_broken_ones_refused() {
        let row = write_transaction(&transaction());
        let mut other = Vec::new();
        bytes::put_value(&mut other, &Value::Uint(FORM + 1));
        assert_eq!(read_transaction(&other), Ok(None));
        for end in 0..row.len() {
            assert!(read_transaction(&row[..end]).is_err(), "{end} bytes");
        }
    }
}
