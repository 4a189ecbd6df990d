//! Rights of a caller on the local socket: those of the calls over the network that do the same.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use holdfast_base::{AuthMethod, Caller, ErrorChain, Role, is_root_or_own, now_ns};
use holdfast_config::Models;

use super::failure;
use crate::gnsi::Gnsi;
use crate::gnsi::pathz::{PathPermissions, Pathz};
use crate::methods::MethodRules;

/// Path of an RPC: the call over the network that does the same as a request.
pub(super) type Rpc = &'static str;

/// True for root and the user of the agent. They can read and write the database itself, so no policy says anything of them.
pub(super) fn is_unrestricted(caller: &Caller) -> bool {
    matches!(caller.auth_method, AuthMethod::Local { uid } if is_root_or_own(uid))
}

/// Judge of requests by the call over the network that does the same.
#[derive(Clone, Debug)]
pub struct CallRights(Gnsi);

impl CallRights {
    pub fn new(gnsi: &Gnsi) -> Self {
        Self(gnsi.clone())
    }

    /// # Errors
    /// When the role of the caller or the authz policy does not permit the call.
    pub(super) fn permit(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        rpc: Rpc,
    ) -> Result<(), LookError> {
        if is_unrestricted(caller) {
            return Ok(());
        }
        let by_role = MethodRules::of(rpc).require_role(caller, rpc);
        by_role.map_err(|status| LookError::Denied(status.message().to_owned()))?;
        let by_policy = self.0.authz.authorize(caller, None, rpc, headers, now_ns());
        by_policy.map(drop).map_err(|denial| LookError::Denied(denial.to_string()))
    }
}

/// Permissions of a caller for paths; `None` when nothing is restricted.
pub(super) fn path_rights(
    pathz: &Pathz,
    caller: &Caller,
    models: &Arc<Models>,
) -> Option<Arc<PathPermissions>> {
    if is_unrestricted(caller) { None } else { pathz.rights(&caller.name, models) }
}

/// Refuses a caller that may not even read.
pub(super) fn require_reader(caller: &Caller) -> Result<(), LookError> {
    match caller.role {
        Role::None => Err(LookError::Denied(format!(
            "`{}` has the role none, and may not read the state of the box",
            caller.name
        ))),
        Role::Named(_) | Role::ReadOnly | Role::Admin => Ok(()),
    }
}

/// Refuses a caller that may only read.
pub(super) fn require_admin(caller: &Caller, attempt: &str) -> Result<(), LookError> {
    let refused = caller.require_admin(attempt);
    refused.map_err(|status| LookError::Denied(status.message().to_owned()))
}

/// Reason for which somebody at the box gets no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum LookError {
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Missing(String),
    #[error("{0}")]
    Invalid(String),
    #[error("cannot look at the box")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl LookError {
    pub(super) fn failed(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Failed(Box::new(error))
    }
}

impl IntoResponse for LookError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Denied(_) => StatusCode::FORBIDDEN,
            Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        failure(status, ErrorChain(&self).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_lets_a_caller_read_or_probe() {
        let named = Role::Named("net-ops".into());
        for (role, reads, probes) in [
            (Role::None, false, false),
            (Role::ReadOnly, true, false),
            (named, true, true),
            (Role::Admin, true, true),
        ] {
            let caller = Caller { role, ..Caller::own("ada") };
            assert_eq!(require_reader(&caller).is_ok(), reads, "{}", caller.role);
            assert_eq!(require_admin(&caller, "ping").is_ok(), probes, "{}", caller.role);
        }
    }
}
