//! The value of one leaf, in canonical form.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use smol_str::SmolStr;

use crate::name::Name;

/// The value of a leaf or of a whole leaf-list.
///
/// Values are canonical: two values of one leaf are equal exactly when YANG says that they are
/// (RFC 7950 section 9), so comparing and hashing need no schema.
///
/// The size of a value determines that of trees. A value is not larger than a [`SmolStr`]: the niche in its tag holds
/// the tags of the other variants, as long as none of them contains a `SmolStr` too, or more than 16 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Value {
    Bool(bool),
    /// int8 to int64.
    Int(i64),
    /// uint8 to uint64.
    Uint(u64),
    /// `digits * 10^-scale`, scale as in the schema's `fraction-digits`.
    Decimal {
        digits: i64,
        scale: u8,
    },
    Str(SmolStr),
    Binary(Arc<[u8]>),
    /// Name of an enumeration's member.
    Enum(Name),
    /// Name as `module:name`.
    Identity(Name),
    /// Names of the bits that are set, in schema order.
    Bits(Arc<[SmolStr]>),
    Empty,
    /// The entries of a leaf-list: sorted and unique, or in the user's order where the schema says so.
    List(Arc<[Value]>),
}

/// A value in gNMI's PROTO encoding, before the schema has given it a type.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    Str(String),
    Int(i64),
    Uint(u64),
    Bool(bool),
    Bytes(Vec<u8>),
    Double(f64),
    /// `digits * 10^-precision`, from clients that still send the deprecated `decimal_val`.
    Decimal {
        digits: i64,
        precision: u32,
    },
    List(Vec<Scalar>),
}

/// Formats the canonical text, as in list keys and CLI text. An identity is written without its module; entries of
/// a leaf-list are separated by spaces.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Uint(value) => write!(f, "{value}"),
            Self::Decimal { digits, scale } => write_decimal(f, *digits, *scale),
            Self::Str(text) => f.write_str(text),
            Self::Enum(name) => f.write_str(name),
            Self::Binary(bytes) => f.write_str(&BASE64.encode(bytes)),
            Self::Identity(name) => f.write_str(bare_identity(name)),
            Self::Bits(names) => write_separated(f, names),
            Self::Empty => Ok(()),
            Self::List(values) => write_separated(f, values),
        }
    }
}

/// Name of an identity without its module.
pub fn bare_identity(name: &str) -> &str {
    name.split_once(':').map_or(name, |(_, bare)| bare)
}

fn write_separated(f: &mut fmt::Formatter<'_>, items: &[impl fmt::Display]) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        let space = if i == 0 { "" } else { " " };
        write!(f, "{space}{item}")?;
    }
    Ok(())
}

/// Formats by RFC 7950 9.3.2: at least one digit on each side of the point, no other trailing zeros.
fn write_decimal(f: &mut fmt::Formatter<'_>, digits: i64, scale: u8) -> fmt::Result {
    let sign = if digits < 0 { "-" } else { "" };
    let scale = usize::from(scale);
    let digits = format!("{:0>width$}", digits.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let fraction = fraction.trim_end_matches('0');
    write!(f, "{sign}{whole}.{}", if fraction.is_empty() { "0" } else { fraction })
}
