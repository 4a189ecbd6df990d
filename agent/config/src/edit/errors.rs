//! Why a Set is refused: every operation that cannot be done, with its reason.

use std::fmt;

use crate::layer::{LayerKey, Service};
use crate::limits::{LimitExceeded, excerpt};
use crate::progress::Stop;
use crate::resolve::PathError;
use crate::schema::Origin;

/// All that is wrong with a request, in the order of its operations. Never empty. Nothing of the
/// request was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditErrors(pub Vec<EditError>);

/// One operation that cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation} `{path}`: {cause}")]
pub struct EditError {
    pub operation: Operation,
    /// As precise as the reason is: below the operation's own path when its payload is wrong.
    pub path: String,
    pub cause: Cause,
}

/// An operation by its place in the request's list of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operation {
    Delete(usize),
    Replace(usize),
    Update(usize),
    UnionReplace(usize),
    /// The part of a boot configuration in this origin.
    Boot(Origin),
    /// The part in this origin of what a box is given once, when it is bootstrapped.
    Seed(Origin),
    /// What the box is delivered with.
    Factory,
    /// What DHCP servers gave.
    Lease,
}

/// What is wrong with an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The schema has no such node.
    #[error("the model has no such node")]
    UnknownPath,
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    BadValue(String),
    #[error("it is state, which cannot be written")]
    ReadOnly,
    /// The author of the request may not.
    #[error("the policy of paths does not permit it")]
    Denied,
    #[error("wildcards are for deletes only")]
    Wildcard,
    #[error("key `{0}` is missing")]
    MissingKeys(String),
    #[error("key `{key}` is `{given}` here, but the entry is `{entry}`")]
    KeyMismatch { key: String, entry: String, given: String },
    /// 3.4.4 of the gNMI specification: to remove is what deletes are for.
    #[error("an empty value cannot replace it; use a delete")]
    Empty,
    /// Two origins ask for different values of one leaf.
    #[error("{0}")]
    Conflict(Box<Conflict>),
    /// A leaf in both origins of one union_replace of paths, which may not even agree.
    #[error("{0}: a union_replace of paths takes a leaf in one origin only")]
    Overlap(Box<Conflict>),
    /// Two entries of one union_replace, which have no order, contradict each other.
    #[error("another entry of the request says `{held}`, this one `{given}`")]
    Contradiction { held: String, given: String },
    /// The model allows it, this device does not.
    #[error("{0}")]
    Unsupported(String),
    /// A service keeps it to itself.
    #[error("it is reserved for {owner}: {why}")]
    Reserved { owner: Service, why: &'static str },
    #[error("another boot configuration is tried and not confirmed yet")]
    Unconfirmed,
    /// What the entry cannot do without.
    #[error("it is needed, and missing")]
    Incomplete,
    #[error("it means nothing without `{0}`")]
    NoneOf(String),
    /// More than one request, or one configuration, may have.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// Its author has gone.
    #[error("nobody waits for it any more")]
    Abandoned,
}

/// Both sides of a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub sides: [Side; 2],
}

/// What one layer says of a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    pub layer: LayerKey,
    /// In the model of the layer.
    pub path: String,
    /// In words that follow "is".
    pub value: String,
    /// The same as a line of the command line's text, where that is how it is written.
    pub line: Option<String>,
}

/// Errors that one refusal tells of, beside those of a policy: whoever sent more mistakes than this has one to find.
pub(super) const MAX_ERRORS: usize = 1000;
/// Conflicts that one refusal tells of: each is looked up in all that the request named, to be told in its words.
pub(super) const MAX_CONFLICTS: usize = 100;

impl EditError {
    /// An error with no more text of the request than a message is to repeat.
    pub(super) fn new(operation: Operation, path: impl fmt::Display, cause: Cause) -> Self {
        Self { operation, path: excerpt(&path), cause: cause.in_excerpts() }
    }
}

impl Cause {
    fn in_excerpts(self) -> Self {
        match self {
            Self::Malformed(text) => Self::Malformed(excerpt(&text)),
            Self::BadValue(text) => Self::BadValue(excerpt(&text)),
            Self::MissingKeys(text) => Self::MissingKeys(excerpt(&text)),
            Self::Unsupported(text) => Self::Unsupported(excerpt(&text)),
            Self::KeyMismatch { key, entry, given } => {
                Self::KeyMismatch { key, entry: excerpt(&entry), given: excerpt(&given) }
            }
            Self::Contradiction { held, given } => {
                Self::Contradiction { held: excerpt(&held), given: excerpt(&given) }
            }
            other => other,
        }
    }
}

impl EditErrors {
    /// The error that gives the request its status.
    ///
    /// # Panics
    /// Never: there is one at least.
    pub fn first(&self) -> &EditError {
        self.0.first().expect("made from errors, of which there was one")
    }

    pub fn iter(&self) -> std::slice::Iter<'_, EditError> {
        self.0.iter()
    }
}

impl fmt::Display for EditErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first())?;
        match self.0.len() - 1 {
            0 => Ok(()),
            more => write!(f, " (and {more} more)"),
        }
    }
}

impl std::error::Error for EditErrors {}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = &self.sides;
        write!(f, "{one} and {other}")
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, path, value, line } = self;
        write!(f, "`{path}` is {value} by {layer}")?;
        line.iter().try_for_each(|line| write!(f, " (`{line}`)"))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delete(_) => "delete",
            Self::Replace(_) => "replace",
            Self::Update(_) => "update",
            Self::UnionReplace(_) => "union_replace",
            Self::Factory => "be delivered with",
            Self::Lease => "lease",
            Self::Boot(Origin::Native) => "boot with vendor_config at",
            Self::Boot(Origin::OpenConfig) => "boot with oc_config at",
            Self::Seed(Origin::Native) => "begin with dynamic_vendor_config at",
            Self::Seed(Origin::OpenConfig) => "begin with dynamic_oc_config at",
        })
    }
}

impl From<Stop> for Cause {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Limit(error) => Self::Limit(error),
            Stop::Abandoned => Self::Abandoned,
        }
    }
}

impl From<&PathError> for Cause {
    fn from(error: &PathError) -> Self {
        match error {
            PathError::Unknown { .. } => Self::UnknownPath,
            PathError::Wildcard { .. } => Self::Wildcard,
            PathError::MissingKey { key, .. } => Self::MissingKeys(key.clone()),
            PathError::BadKey { key, reason, .. } => {
                Self::BadValue(format!("key `{key}`: {reason}"))
            }
            PathError::Malformed { at, reason, .. } => {
                Self::Malformed(format!("{reason} at `{at}`"))
            }
            PathError::TooLarge(limit) => Self::Limit(*limit),
        }
    }
}
