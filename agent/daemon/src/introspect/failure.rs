//! Refusals: `{"Error": text}` with a status that says whose fault it is.

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::core::CommitError;
use crate::logging::Chain;

/// Why there is no answer.
#[derive(Debug)]
pub(super) struct Failure {
    status: StatusCode,
    error: String,
}

impl Failure {
    pub(super) fn with(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }

    /// The question is wrong.
    pub(super) fn bad(error: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error: error.into() }
    }

    /// What is asked for is not known.
    pub(super) fn unknown(error: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, error: error.into() }
    }

    /// It was tried, and did not work.
    pub(super) fn failed(error: impl Into<String>) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, error: error.into() }
    }
}

/// The core has stopped, or cannot.
impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        let status = match &error {
            CommitError::Stopped | CommitError::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            CommitError::Edit(_) | CommitError::Object { .. } => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, error: Chain(&error).to_string() }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.status, Json(json!({"Error": self.error}))).into_response()
    }
}

/// The answer where a path is asked in a way that it has no answer to; what it has stands in `Allow`.
pub(super) async fn unknown_method(method: Method, uri: Uri) -> Failure {
    let error = format!("`{}` does not answer {method}", uri.path());
    Failure::with(StatusCode::METHOD_NOT_ALLOWED, error)
}

/// The answer for paths that are none.
pub(super) async fn unknown_path(uri: Uri) -> Failure {
    Failure::unknown(format!("there is no `{}` here", uri.path()))
}
