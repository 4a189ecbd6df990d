//! Reasons for refusing a Set: each invalid operation with its error.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::claims::ServiceTag;
use crate::layer::{LayerKey, Namespace};
use crate::limits::{LimitExceeded, excerpt};
use crate::progress::StopReason;
use crate::resolve::PathError;
use crate::schema::Origin;
use crate::services::{NeededCalls, Unanswered, WorkFailureKind};

/// All errors of a request, in the order of its operations. Never empty. A request with an error has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditErrors {
    errors: Vec<EditError>,
    /// Instances of services that were walked before the request was refused.
    pub walked: BTreeSet<ServiceTag>,
}

/// An invalid operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation} `{path}`: {cause}")]
pub struct EditError {
    pub operation: EditOperation,
    /// Path of the problem, which may be below the operation's path when the payload is wrong.
    pub path: String,
    pub cause: EditCause,
}

/// An operation, by its index among those of its kind in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EditOperation {
    Delete(usize),
    Replace(usize),
    Update(usize),
    UnionReplace(usize),
    /// Part of a boot configuration, by origin.
    Boot(Origin),
    /// Part of an initial client configuration, by origin.
    InitialConfiguration(Origin),
    /// Factory configuration.
    Factory,
    /// Values from DHCP.
    Lease,
    /// A walk of service instances.
    Walk,
    /// Items of the fence layer.
    Fence,
    /// A return of the clients' layers to an earlier revision or a checkpoint.
    Restore,
}

/// Problem with an operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EditCause {
    /// The schema has no such node.
    #[error("the model has no such node")]
    UnknownPath,
    #[error("{0}")]
    Malformed(String),
    #[error("{0}")]
    BadValue(String),
    #[error("state cannot be written")]
    ReadOnly,
    /// The author lacks the permission.
    #[error("the pathz policy does not permit this operation")]
    Denied,
    #[error("wildcards are for deletes only")]
    Wildcard,
    #[error("key `{0}` is missing")]
    MissingKeys(String),
    #[error("key `{key}` is `{value}` here, but the entry is `{entry}`")]
    KeyMismatch { key: String, entry: String, value: String },
    /// Section 3.4.4 of the gNMI specification: only deletes remove.
    #[error("an empty value cannot replace a list entry; use a delete")]
    Empty,
    /// Two origins ask for different values of one leaf.
    #[error("{0}")]
    Conflict(Box<Conflict>),
    /// A leaf that one union_replace of paths sets in both origins; not even equal values are accepted.
    #[error("{0}: a union_replace of paths takes a leaf in one origin only")]
    Overlap(Box<Conflict>),
    /// Two entries of one union_replace, which have no order, have different values.
    #[error("the request sets this leaf to `{value}` and to `{other}`")]
    Contradiction { other: String, value: String },
    /// Valid in the model, but not supported by this device.
    #[error("{0}")]
    Unsupported(String),
    /// The leaf is reserved for a namespace. `claims` are the names of those that ask for it, where a service does.
    #[error("this path is reserved for {owner}: {why}{}", by_claims(claims))]
    Reserved { owner: Namespace, why: &'static str, claims: Vec<String> },
    #[error("another boot configuration is tried and not confirmed yet")]
    Unconfirmed,
    /// A layer that is stronger than fences holds another value.
    #[error("the layer `{owner}` holds another value, which wins over a fence")]
    Overruled { owner: String },
    /// The work of a service instance failed.
    #[error("{text}")]
    Work { kind: WorkFailureKind, text: String },
    /// No failure: handlers of services have to be asked before the request can be examined to its end.
    #[error("handlers of services have to be asked first")]
    Unanswered(Unanswered),
    /// A mandatory leaf is missing.
    #[error("a mandatory leaf is not set")]
    MissingMandatory,
    #[error("this entry requires `{0}`")]
    MissingOneOf(String),
    /// A limit on requests or configurations is exceeded.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The client has cancelled the request.
    #[error("the client no longer waits for the answer")]
    Cancelled,
}

/// The two sides of a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub sides: [ConflictSide; 2],
}

/// Value of a leaf in one layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictSide {
    pub layer: LayerKey,
    /// Path in the model of the layer.
    pub path: String,
    /// Text that completes "is ...".
    pub value: String,
    /// The CLI line for the value, if it was set by CLI text.
    pub line: Option<String>,
    /// Names of the claims that ask for the value, in a layer of services.
    pub claims: Vec<String>,
}

/// Most errors in one refusal, apart from those of a policy: a client that makes more mistakes has a single cause
/// to find.
pub(super) const MAX_ERRORS: usize = 1000;
/// Most conflicts in one refusal: for each, the whole request is searched for the operation behind it.
pub(super) const MAX_CONFLICTS: usize = 100;

impl EditError {
    /// Makes an error that quotes a bounded part of the request.
    pub(super) fn new(operation: EditOperation, path: impl fmt::Display, cause: EditCause) -> Self {
        Self { operation, path: excerpt(&path), cause: cause.in_excerpts() }
    }
}

impl EditCause {
    fn in_excerpts(self) -> Self {
        match self {
            Self::Malformed(text) => Self::Malformed(excerpt(&text)),
            Self::BadValue(text) => Self::BadValue(excerpt(&text)),
            Self::MissingKeys(text) => Self::MissingKeys(excerpt(&text)),
            Self::Unsupported(text) => Self::Unsupported(excerpt(&text)),
            Self::Work { kind, text } => Self::Work { kind, text: excerpt(&text) },
            Self::KeyMismatch { key, entry, value } => {
                Self::KeyMismatch { key, entry: excerpt(&entry), value: excerpt(&value) }
            }
            Self::Contradiction { other, value } => {
                Self::Contradiction { other: excerpt(&other), value: excerpt(&value) }
            }
            other => other,
        }
    }
}

impl From<Vec<EditError>> for EditErrors {
    fn from(errors: Vec<EditError>) -> Self {
        Self { errors, walked: BTreeSet::new() }
    }
}

impl From<EditError> for EditErrors {
    fn from(error: EditError) -> Self {
        vec![error].into()
    }
}

impl EditErrors {
    /// Changes each error, and keeps the instances that were walked.
    pub(crate) fn map(self, change: impl FnMut(EditError) -> EditError) -> Self {
        Self { errors: self.errors.into_iter().map(change).collect(), ..self }
    }

    /// The error that determines the status of the request.
    ///
    /// # Panics
    /// Never, because there is at least one.
    pub fn first(&self) -> &EditError {
        self.errors.first().expect("made from at least one error")
    }

    /// The calls of handlers that the request waits for, if that is all there is.
    pub fn needed_calls(&self) -> Option<&Arc<NeededCalls>> {
        match &self.first().cause {
            EditCause::Unanswered(Unanswered(needed)) => Some(needed),
            _ => None,
        }
    }

    pub fn iter(&self) -> std::slice::Iter<'_, EditError> {
        self.errors.iter()
    }
}

/// Errors that one message has. Many clients show nothing but the message; a text of another format would have thousands.
const LISTED: usize = 16;

impl fmt::Display for EditErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.errors.iter().take(LISTED).enumerate() {
            write!(f, "{}{error}", if number == 0 { "" } else { "; " })?;
        }
        match self.errors.len().saturating_sub(LISTED) {
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

impl fmt::Display for ConflictSide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, path, value, line, claims } = self;
        match &claims[..] {
            [] => write!(f, "`{path}` is {value} by {layer}")?,
            claims => write!(f, "`{path}` is {value} by {}", claims.join(", "))?,
        }
        line.iter().try_for_each(|line| write!(f, " (`{line}`)"))
    }
}

/// End of a sentence about a leaf that claims ask for.
fn by_claims(claims: &[String]) -> String {
    if claims.is_empty() {
        String::new()
    } else {
        format!(", and {} asks for it", claims.join(", "))
    }
}

impl fmt::Display for EditOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delete(_) => "delete",
            Self::Replace(_) => "replace",
            Self::Update(_) => "update",
            Self::UnionReplace(_) => "union_replace",
            Self::Factory => "be delivered with",
            Self::Lease => "lease",
            Self::Walk => "walk services at",
            Self::Fence => "fence",
            Self::Restore => "go back at",
            Self::Boot(Origin::Native) => "boot with vendor_config at",
            Self::Boot(Origin::OpenConfig) => "boot with oc_config at",
            Self::InitialConfiguration(Origin::Native) => "begin with dynamic_vendor_config at",
            Self::InitialConfiguration(Origin::OpenConfig) => "begin with dynamic_oc_config at",
        })
    }
}

impl From<StopReason> for EditCause {
    fn from(stop: StopReason) -> Self {
        match stop {
            StopReason::Limit(error) => Self::Limit(error),
            StopReason::Cancelled => Self::Cancelled,
        }
    }
}

impl From<&PathError> for EditCause {
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
            PathError::TooLarge { limit, .. } => Self::Limit(*limit),
        }
    }
}
