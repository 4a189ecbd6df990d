//! The value of one leaf, in canonical form.

use std::sync::Arc;

use smol_str::SmolStr;

/// The value of a leaf or of a whole leaf-list.
///
/// Values are canonical: two values of one leaf are equal exactly when YANG says that they are
/// (RFC 7950 section 9), so comparing and hashing need no schema.
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
    /// The name of an enumeration's member.
    Enum(SmolStr),
    /// `module:name`.
    Identity(SmolStr),
    /// Names of the bits that are set, in schema order.
    Bits(Arc<[SmolStr]>),
    Empty,
    /// The entries of a leaf-list: sorted and unique, or in the user's order where the schema says so.
    List(Arc<[Value]>),
}

/// A value as gNMI's PROTO encoding carries it, before the schema has given it a type.
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
