//! Single JSON values: parsing by type, and printing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::Flavour;
use crate::schema::types::{BuiltinType, Type, decimal_digits};
use crate::schema::{Node, NodeKind, ValueError};
use crate::value::{Value, bare_identity};

/// Parses a JSON string. RFC 7951 encodes 64-bit numbers as strings; many clients do so in plain JSON too.
pub(super) fn from_str(ty: &Type, text: &str) -> Result<Value, ValueError> {
    match &ty.base {
        BuiltinType::Int { bits: 64, .. }
        | BuiltinType::Uint { bits: 64, .. }
        | BuiltinType::Decimal { .. } => ty.parse_text(text),
        BuiltinType::Int { .. } | BuiltinType::Uint { .. } => {
            Err(ValueError(format!("the string \"{text}\" is not {ty}")))
        }
        BuiltinType::Union(members) => match members.iter().find_map(|m| from_str(m, text).ok()) {
            Some(Value::Str(text)) => Ok(Value::Str(ty.canonical(text))),
            Some(value) => Ok(value),
            // A number of at most 32 bits is not a string (RFC 7951, section 6.1), also as a member of a union.
            None => match ty.str(text) {
                Ok(_) => Err(ValueError(format!("the string \"{text}\" is not {ty}"))),
                refused => refused,
            },
        },
        _ => ty.str(text),
    }
}

pub(super) fn from_uint(ty: &Type, value: u64, flavour: Flavour) -> Result<Value, ValueError> {
    match (&ty.base, i64::try_from(value)) {
        (BuiltinType::Uint { bits: 64, .. }, _) if flavour == Flavour::Plain => ty.uint(value),
        (BuiltinType::Uint { bits: 64, .. }, _) => Err(wide(ty, value)),
        (_, Ok(value)) => from_int(ty, value, flavour),
        (_, Err(_)) => ty.uint(value),
    }
}

pub(super) fn from_int(ty: &Type, value: i64, flavour: Flavour) -> Result<Value, ValueError> {
    match &ty.base {
        BuiltinType::Int { bits: 64, .. }
        | BuiltinType::Uint { bits: 64, .. }
        | BuiltinType::Decimal { .. }
            if flavour == Flavour::Ietf =>
        {
            Err(wide(ty, value))
        }
        BuiltinType::Decimal { scale, .. } => match decimal_digits(&value.to_string(), *scale) {
            Some(digits) => ty.decimal(digits),
            None => Err(ValueError(format!("`{value}` is not {ty}"))),
        },
        BuiltinType::Union(members) => {
            match members.iter().find_map(|m| from_int(m, value, flavour).ok()) {
                Some(value) => Ok(value),
                None => ty.int(value),
            }
        }
        _ => ty.int(value),
    }
}

/// Parses a number with a fraction or an exponent, or a very large one.
pub(super) fn from_float(ty: &Type, value: f64, flavour: Flavour) -> Result<Value, ValueError> {
    /// Bound below which every integer is exactly representable.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match &ty.base {
        BuiltinType::Decimal { .. } if flavour == Flavour::Ietf => Err(wide(ty, value)),
        BuiltinType::Decimal { scale, .. } => match decimal_digits(&value.to_string(), *scale) {
            Some(digits) => ty.decimal(digits),
            None => Err(ValueError(format!("`{value}` is not {ty}"))),
        },
        #[allow(clippy::cast_possible_truncation, reason = "whole and within the exact integers")]
        BuiltinType::Int { .. } | BuiltinType::Uint { .. }
            if value.fract() == 0.0 && value.abs() <= EXACT =>
        {
            from_int(ty, value as i64, flavour)
        }
        BuiltinType::Union(members) => {
            match members.iter().find_map(|m| from_float(m, value, flavour).ok()) {
                Some(value) => Ok(value),
                None => Err(ValueError(format!("`{value}` is not {ty}"))),
            }
        }
        _ => Err(ValueError(format!("`{value}` is not {ty}"))),
    }
}

fn wide(ty: &Type, value: impl std::fmt::Display) -> ValueError {
    ValueError(format!("`{value}` is not {ty} as RFC 7951 writes it: as a string"))
}

/// Appends the value of `node`.
pub(super) fn write(out: &mut Vec<u8>, node: &Node, value: &Value, flavour: Flavour) {
    let Some(leaf) = &node.leaf else { return };
    match value {
        Value::List(values) if node.kind == NodeKind::LeafList => {
            out.push(b'[');
            for (i, value) in values.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_one(out, &leaf.ty, value, flavour);
            }
            out.push(b']');
        }
        value => write_one(out, &leaf.ty, value, flavour),
    }
}

fn write_one(out: &mut Vec<u8>, ty: &Type, value: &Value, flavour: Flavour) {
    match value {
        Value::Bool(true) => out.extend_from_slice(b"true"),
        Value::Bool(false) => out.extend_from_slice(b"false"),
        Value::Empty => out.extend_from_slice(b"[null]"),
        Value::Int(_) | Value::Uint(_) | Value::Decimal { .. } => {
            let quoted = flavour == Flavour::Ietf && ty.is_wide(value);
            let text = if quoted { format!("\"{value}\"") } else { value.to_string() };
            out.extend_from_slice(text.as_bytes());
        }
        Value::Str(text) => write_text(out, text),
        Value::Enum(name) => write_text(out, name),
        Value::Identity(name) if flavour == Flavour::Ietf => write_text(out, name),
        Value::Identity(name) => write_text(out, bare_identity(name)),
        Value::Binary(bytes) => write_text(out, &BASE64.encode(bytes)),
        Value::Bits(_) | Value::List(_) => write_text(out, &value.to_string()),
    }
}

pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\r' => out.extend_from_slice(b"\\r"),
            '\t' => out.extend_from_slice(b"\\t"),
            c if c < ' ' => out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes()),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}
