//! JSON in both of gNMI's flavours, plain and RFC 7951 (`JSON_IETF`), to and from typed leaves.
//!
//! [`parse`] reads a document in one pass, straight into branches of a tree; [`print`] writes one. A document must
//! keep to its flavour where the two contradict each other.

mod parse;
mod print;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod type_tests;
mod value;

use std::fmt;

pub use parse::{Document, DocumentContent, parse, parse_with_progress};
pub use print::{NodeFilter, annotate, print, print_value, print_while};

use crate::progress::StopReason;
use crate::schema::ValueError;

/// Encoding of names and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flavour {
    /// Bare names, all numbers as numbers.
    Plain,
    /// RFC 7951: names with their module where it changes, 64-bit numbers as strings.
    Ietf,
}

/// Reason for refusing a document, with the full path of the invalid node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    pub path: String,
    pub fault: JsonErrorKind,
    /// Line of the text, counted from 1, on which reading ended; `None` for a limit, which concerns no single place.
    pub line: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonErrorKind {
    #[error("the model has no such node")]
    Unknown,
    #[error("the name lacks its module (RFC 7951): write `{0}`")]
    Unqualified(String),
    #[error("{0}")]
    Value(ValueError),
    #[error("state cannot be written")]
    ReadOnly,
    #[error("null is not a value; use a delete to remove a node")]
    Null,
    #[error("{0} is expected here")]
    Shape(&'static str),
    #[error("the node is given twice")]
    Duplicate,
    #[error("key `{0}` is missing")]
    MissingKey(String),
    #[error("key `{key}` is `{payload}` in the payload, but `{path}` in the path")]
    KeyMismatch { key: String, path: String, payload: String },
    #[error("annotations are kept at the root only")]
    Annotation,
    #[error("the value is not a JSON document: {0}")]
    Syntax(String),
    #[error(transparent)]
    Stop(#[from] StopReason),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}", self.path, self.fault)
    }
}

impl std::error::Error for JsonError {}

impl JsonError {
    /// True when the model lacks the node, false when its value is invalid.
    pub fn is_unknown(&self) -> bool {
        self.fault == JsonErrorKind::Unknown
    }
}
