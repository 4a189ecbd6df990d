//! Fields of the rows of services, which are lists of values.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::value::Value;

/// Reason for which a row cannot be read.
pub(super) const FIELDS: &str = "a row of services has other fields";

/// A text that may be missing.
pub(super) fn optional(text: Option<&str>) -> Value {
    text.map_or(Value::Empty, |text| Value::Str(text.into()))
}

pub(super) fn number(value: &Value) -> Result<u64, &'static str> {
    match value {
        Value::Uint(number) => Ok(*number),
        _ => Err(FIELDS),
    }
}

pub(super) fn text(value: Value) -> Result<SmolStr, &'static str> {
    match value {
        Value::Str(text) => Ok(text),
        _ => Err(FIELDS),
    }
}

pub(super) fn read_optional(value: &Value) -> Result<Option<Arc<str>>, &'static str> {
    match value {
        Value::Empty => Ok(None),
        value => Ok(Some(text(value.clone())?.as_str().into())),
    }
}

pub(super) fn list(value: &Value) -> Result<&[Value], &'static str> {
    match value {
        Value::List(values) => Ok(values),
        _ => Err(FIELDS),
    }
}
