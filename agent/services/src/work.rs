//! Failures of work, conditions and the component tree.

use std::fmt;

use smol_str::SmolStr;

use crate::error::Position;

/// Class of a failure, by which a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkErrorKind {
    /// An undefined name, a wrong type, output that cannot be read.
    Failed,
    /// More than a limit allows.
    Limit,
    /// Output outside of the grants, or a reserved item.
    Denied,
    /// No handler does the work, or it was lost while it did.
    Unavailable,
    /// A handler did not answer in time.
    Late,
    /// A handler cannot be asked now.
    Precondition,
}

/// Failure of the evaluation of a template or an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}: {reason}", Line(position))]
pub struct WorkError {
    pub kind: WorkErrorKind,
    pub file: SmolStr,
    pub position: Option<Position>,
    pub reason: String,
}

/// Formats the line of a place.
struct Line<'a>(&'a Option<Position>);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(position) => write!(f, " line {}", position.line),
            None => Ok(()),
        }
    }
}
