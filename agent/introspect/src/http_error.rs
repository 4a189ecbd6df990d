//! Error responses: `{"Error": text}` with an HTTP status.

use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use holdfast_base::ErrorChain;
use serde_json::json;

use holdfast_core::CommitError;

/// An error response.
#[derive(Debug)]
pub(super) struct HttpError {
    status: StatusCode,
    error: String,
}

impl HttpError {
    pub(super) fn with_status(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into() }
    }

    /// Error for an invalid request.
    pub(super) fn bad_request(error: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, error: error.into() }
    }

    /// Error for an unknown object.
    pub(super) fn not_found(error: impl Into<String>) -> Self {
        Self { status: StatusCode::NOT_FOUND, error: error.into() }
    }

    /// Error for an action that failed.
    pub(super) fn internal(error: impl Into<String>) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, error: error.into() }
    }
}

/// Converts an error of the core, with a status for its cause.
impl From<CommitError> for HttpError {
    fn from(error: CommitError) -> Self {
        let status = match &error {
            CommitError::Stopped | CommitError::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            CommitError::Edit(_) | CommitError::Object { .. } => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, error: ErrorChain(&error).to_string() }
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        (self.status, Json(json!({"Error": self.error}))).into_response()
    }
}

/// Response to a method that a path does not support; `Allow` lists those that it does.
pub(super) async fn unknown_method(method: Method, uri: Uri) -> HttpError {
    let error = format!("`{}` does not answer {method}", uri.path());
    HttpError::with_status(StatusCode::METHOD_NOT_ALLOWED, error)
}

/// Response for unknown paths.
pub(super) async fn unknown_path(uri: Uri) -> HttpError {
    HttpError::not_found(format!("there is no `{}` here", uri.path()))
}
