//! Errors of certz requests.

/// A certz request failed, with the part of it that is wrong.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct CertzError {
    pub kind: CertzErrorKind,
    /// Part of the request, or name of the profile.
    pub what: String,
    pub reason: String,
}

/// Class of the error, by what the client can do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertzErrorKind {
    /// Ask for something else.
    Invalid,
    /// Name something that is there.
    NotFound,
    /// The object exists already.
    Exists,
    /// Change something else first.
    Precondition,
    /// The box does not do this.
    Unsupported,
    /// The box is at fault.
    Internal,
}

impl CertzError {
    fn new(kind: CertzErrorKind, what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { kind, what: what.into(), reason: reason.into() }
    }

    pub fn invalid(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(CertzErrorKind::Invalid, what, reason)
    }

    pub fn not_found(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(CertzErrorKind::NotFound, what, reason)
    }

    pub fn exists(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(CertzErrorKind::Exists, what, reason)
    }

    pub fn precondition(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(CertzErrorKind::Precondition, what, reason)
    }

    pub fn unsupported(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(CertzErrorKind::Unsupported, what, reason)
    }

    pub fn internal(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(CertzErrorKind::Internal, what, reason)
    }
}
