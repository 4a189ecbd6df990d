//! Translation of refusals into gRPC statuses, after section 3.4.7 of the gNMI specification.
//!
//! A status has the code and the text of the first mistake. Its details (a `google.rpc.Status` with a
//! `google.rpc.BadRequest`) list all of them, one for each operation.

use std::fmt;

use holdfast_base::ErrorChain;
use holdfast_config::edit::{EditCause, EditError, EditErrors, EditOperation};
use holdfast_config::limits::{ERROR_TEXT, error_text, excerpt};
use holdfast_config::schema::Origin;
use holdfast_config::services::WorkFailureKind;
use holdfast_config::{LimitExceeded, Path, PathError};
use holdfast_core::{CommitError, ConfirmError, ElectionError};
use holdfast_platform::{is_in_the_way, is_missing_right};
use holdfast_proto::google::rpc;
use holdfast_security::certz::{CertzError, CertzErrorKind};
use holdfast_store::StoreError;
use prost::Message;
use tonic::{Code, Status};

use super::path::Access;

/// Offenders that the details of one status list: a status travels in HTTP/2 trailers, and clients refuse long ones (8
/// KiB is the default of grpc-go and others).
const MAX_VIOLATIONS: usize = 16;
/// Bytes of text kept of one offender, for the same reason.
const MAX_VIOLATION_TEXT: usize = 400;

/// Bytes of a status, text and offenders together.
const MAX_STATUS: usize = 6 * 1024;

/// Reason for which a request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    code: Code,
    text: String,
    violations: Vec<Violation>,
    /// Additional message of a service, for the details.
    more: Option<prost_types::Any>,
}

/// One operation or path of a request, and its mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) place: String,
    pub(super) reason: String,
}

impl Refusal {
    pub(super) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: cut(text.into()), violations: Vec::new(), more: None }
    }

    /// The request contradicts the protocol or itself.
    pub(super) fn invalid(text: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, text)
    }

    /// A path that cannot be read, or that is in a wrong place.
    pub(super) fn malformed(path: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::invalid(format!("path `{}`: {}", excerpt(&path.into()), reason.into()))
    }

    /// A feature of the protocol that this agent lacks.
    pub(super) fn unimplemented(text: impl Into<String>) -> Self {
        Self::new(Code::Unimplemented, text)
    }

    /// A node of the models that the box does not have now.
    pub(super) fn absent(path: impl fmt::Display, what: &str) -> Self {
        Self::new(Code::NotFound, format!("path `{}`: there is no {what}", excerpt(&path)))
    }

    /// A path without a permit for the reader in the pathz policy, on it or above it.
    pub(super) fn unreadable(path: &Path) -> Self {
        let why = "the pathz policy does not permit reading this path";
        Self::denied(format!("path `{}`: {why}", excerpt(path)))
    }

    /// An action that the caller has no permission for.
    pub(super) fn denied(text: impl Into<String>) -> Self {
        Self::new(Code::PermissionDenied, text)
    }

    /// A running call that the caller could not begin any more.
    pub(super) fn permission_revoked(status: Status) -> Self {
        Self::new(status.code(), status.message())
    }

    /// A stream whose permissions were replaced: the client may open it again.
    pub(super) fn superseded(text: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, text)
    }

    /// A mistake in a TLS profile, or in a request about one.
    pub(super) fn certz(error: &CertzError) -> Self {
        let code = match error.kind {
            CertzErrorKind::Invalid => Code::InvalidArgument,
            CertzErrorKind::NotFound => Code::NotFound,
            CertzErrorKind::Exists => Code::AlreadyExists,
            CertzErrorKind::Precondition => Code::FailedPrecondition,
            CertzErrorKind::Unsupported => Code::Unimplemented,
            CertzErrorKind::Internal => Code::Internal,
        };
        Self::new(code, error.to_string())
    }

    /// A fault of the agent.
    pub(super) fn internal(text: impl Into<String>) -> Self {
        Self::new(Code::Internal, text)
    }

    /// A client that does not read its stream, or a limit that is reached.
    pub(super) fn exhausted(text: impl Into<String>) -> Self {
        Self::new(Code::ResourceExhausted, text)
    }

    /// A request that may be right at another time.
    pub(super) fn precondition(text: impl Into<String>) -> Self {
        Self::new(Code::FailedPrecondition, text)
    }

    /// A client that was silent for too long.
    pub(super) fn late(text: impl Into<String>) -> Self {
        Self::new(Code::DeadlineExceeded, text)
    }

    /// A procedure that was given up; the client may begin again.
    pub(super) fn aborted(text: impl Into<String>) -> Self {
        Self::new(Code::Aborted, text)
    }

    /// A request to create something that exists.
    pub(super) fn exists(text: impl Into<String>) -> Self {
        Self::new(Code::AlreadyExists, text)
    }

    /// A request that names something that does not exist.
    pub(super) fn missing(text: impl Into<String>) -> Self {
        Self::new(Code::NotFound, text)
    }

    /// A request that must wait for the end of another one.
    pub(super) fn busy(text: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, text)
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Adds a service's own message to the details.
    pub(super) fn with(self, name: &str, message: &impl Message) -> Self {
        let type_url = format!("type.googleapis.com/{name}");
        Self { more: Some(prost_types::Any { type_url, value: message.encode_to_vec() }), ..self }
    }

    /// A request that comes while the agent is stopping.
    pub(super) fn stopping() -> Self {
        Self::new(Code::Unavailable, "the agent is stopping")
    }

    /// An invalid path. A path that the models do not have is not implemented for a reader (3.3.4) and not found for
    /// a writer (3.4.7); other mistakes are invalid arguments.
    pub(super) fn path(error: &PathError, access: Access) -> Self {
        let code = match (error, access) {
            (error, Access::Read) if error.is_unknown() => Code::Unimplemented,
            (error, Access::Write) if error.is_unknown() => Code::NotFound,
            (PathError::TooLarge { .. }, _) => Code::ResourceExhausted,
            _ => Code::InvalidArgument,
        };
        Self::new(code, error.to_string())
    }

    /// Prefixes the message with the id of the policy rule.
    pub(super) fn in_rule(self, id: &str) -> Self {
        Self { text: cut(format!("rule `{}`: {}", excerpt(id), self.text)), ..self }
    }

    /// Prefixes the message with the path.
    pub(super) fn at(self, path: &Path) -> Self {
        Self { text: cut(format!("path `{}`: {}", excerpt(path), self.text)), ..self }
    }

    fn details(&self) -> Vec<u8> {
        let violation = |offender: &Violation| rpc::bad_request::FieldViolation {
            field: shortened(&offender.place),
            description: shortened(&offender.reason),
        };
        let mut room = MAX_STATUS.saturating_sub(self.text.len());
        let fits = |violation: &rpc::bad_request::FieldViolation| {
            let left = room.checked_sub(violation.encoded_len());
            room = left.unwrap_or_default();
            left.is_some()
        };
        let listed = self.violations.iter().take(MAX_VIOLATIONS).map(violation);
        let field_violations: Vec<_> = listed.take_while(fits).collect();
        let all = prost_types::Any {
            type_url: "type.googleapis.com/google.rpc.BadRequest".to_owned(),
            value: rpc::BadRequest { field_violations }.encode_to_vec(),
        };
        let code = self.code as i32;
        let message = shortened(&self.text);
        let violations = (!self.violations.is_empty()).then_some(all);
        let details = violations.into_iter().chain(self.more.clone()).collect();
        rpc::Status { code, message, details }.encode_to_vec()
    }
}

/// Limits of requests become RESOURCE_EXHAUSTED.
impl From<LimitExceeded> for Refusal {
    fn from(error: LimitExceeded) -> Self {
        Self::new(Code::ResourceExhausted, error.to_string())
    }
}

/// Errors of a Set become the code of the first failed operation; the details have all of them.
impl From<&EditErrors> for Refusal {
    fn from(errors: &EditErrors) -> Self {
        let first = errors.first();
        let code = match (&first.cause, first.operation) {
            // The path is inside of the message, so the message is invalid.
            (
                EditCause::UnknownPath,
                EditOperation::Boot(_) | EditOperation::InitialConfiguration(_),
            ) => Code::InvalidArgument,
            (EditCause::UnknownPath, _) => Code::NotFound,
            (EditCause::Unconfirmed | EditCause::Overruled { .. }, _) => Code::FailedPrecondition,
            (EditCause::Limit(_), _) => Code::ResourceExhausted,
            (EditCause::Cancelled, _) => Code::Cancelled,
            (EditCause::Reserved { .. } | EditCause::Denied, _) => Code::PermissionDenied,
            (EditCause::Work { kind, .. }, _) => match kind {
                WorkFailureKind::Parameters => Code::InvalidArgument,
                WorkFailureKind::Work => Code::Aborted,
                WorkFailureKind::Limit => Code::ResourceExhausted,
                WorkFailureKind::Denied => Code::PermissionDenied,
                WorkFailureKind::Leaving | WorkFailureKind::Precondition => {
                    Code::FailedPrecondition
                }
                WorkFailureKind::Unavailable => Code::Unavailable,
                WorkFailureKind::Late => Code::DeadlineExceeded,
            },
            _ => Code::InvalidArgument,
        };
        let offender = |error: &EditError| {
            let place = match error.operation {
                EditOperation::Delete(index) => format!("delete[{index}]"),
                EditOperation::Replace(index) => format!("replace[{index}]"),
                EditOperation::Update(index) => format!("update[{index}]"),
                EditOperation::UnionReplace(index) => format!("union_replace[{index}]"),
                EditOperation::Factory => "factory".to_owned(),
                EditOperation::Lease => "lease".to_owned(),
                EditOperation::Walk => "walk".to_owned(),
                EditOperation::Fence => "fence".to_owned(),
                EditOperation::Restore => "restore".to_owned(),
                EditOperation::Boot(Origin::Native) => "boot_config.vendor_config".to_owned(),
                EditOperation::Boot(Origin::OpenConfig) => "boot_config.oc_config".to_owned(),
                EditOperation::InitialConfiguration(Origin::Native) => {
                    "boot_config.dynamic_vendor_config".to_owned()
                }
                EditOperation::InitialConfiguration(Origin::OpenConfig) => {
                    "boot_config.dynamic_oc_config".to_owned()
                }
            };
            Violation { place, reason: error_text(error) }
        };
        let offenders = errors.iter().take(MAX_VIOLATIONS).map(offender).collect();
        Self { code, text: error_text(errors), violations: offenders, more: None }
    }
}

/// Errors of commits become statuses; nothing of the request is in effect.
impl From<CommitError> for Refusal {
    fn from(error: CommitError) -> Self {
        let text = ErrorChain(&error).to_string();
        match &error {
            CommitError::Edit(errors) => errors.into(),
            CommitError::Object { .. } => Self::invalid(text),
            CommitError::Failed { path, object, errno, .. } => {
                let place = path.as_ref().unwrap_or(object).clone();
                let offender = Violation { place, reason: text.clone() };
                // The operator has to give the agent a right, or to take another program's object away. Then the same
                // request succeeds.
                let code = match errno {
                    Some(errno) if is_missing_right(*errno) || is_in_the_way(*errno) => {
                        Code::FailedPrecondition
                    }
                    _ => Code::Internal,
                };
                Self { code, text, violations: vec![offender], more: None }
            }
            CommitError::Closed { .. } => Self::new(Code::FailedPrecondition, text),
            CommitError::Confirm(error) => Self::new(confirm_code(error), text),
            CommitError::Election(ElectionError::Outvoted { .. }) => {
                Self::new(Code::PermissionDenied, text)
            }
            CommitError::Election(_) => Self::new(Code::ResourceExhausted, text),
            // A test-and-set has failed: the client starts again with a new dry run.
            CommitError::PlanDiffers { .. } | CommitError::Unsettled { .. } => {
                Self::new(Code::Aborted, text)
            }
            CommitError::Abandoned => Self::new(Code::Cancelled, text),
            CommitError::Overloaded => Self::new(Code::ResourceExhausted, text),
            CommitError::Stopped => Self::stopping(),
            CommitError::Log { source, .. } => {
                let code = match source {
                    StoreError::NoRevision { .. } | StoreError::NoCheckpoint { .. } => {
                        Code::NotFound
                    }
                    StoreError::TooManyCheckpoints { .. }
                    | StoreError::CheckpointsTooLarge { .. } => Code::ResourceExhausted,
                    _ => return Self::internal(text),
                };
                Self::new(code, text)
            }
            CommitError::Store(_) | CommitError::Internal { .. } => Self::internal(text),
        }
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Stopped => Self::stopping(),
            error => Self::internal(ErrorChain(&error).to_string()),
        }
    }
}

/// Codes after sections 3.2.1 to 3.2.4 of gNMI's commit-confirmed extension.
fn confirm_code(error: &ConfirmError) -> Code {
    match error {
        ConfirmError::Waiting { .. } | ConfirmError::NoneWaits => Code::FailedPrecondition,
        _ => Code::InvalidArgument,
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        if refusal.violations.is_empty() && refusal.more.is_none() {
            return Self::new(refusal.code, refusal.text);
        }
        Self::with_details(refusal.code, refusal.text.clone(), refusal.details().into())
    }
}

fn cut(text: String) -> String {
    if ERROR_TEXT.check(text.len()).is_ok() { text } else { error_text(&text) }
}

fn shortened(text: &str) -> String {
    if text.len() <= MAX_VIOLATION_TEXT {
        return text.to_owned();
    }
    let end = (0..=MAX_VIOLATION_TEXT).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    format!("{}...", &text[..end])
}
