//! The result of a login, for the layers outside of authentication.

use std::sync::{Arc, OnceLock};

use holdfast_base::Caller;
use smol_str::SmolStr;

use super::LoginRefusal;

/// Result of authentication, which the authentication layer reports to the layers in front of it. Stored in the
/// extensions of each request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login(Arc<Progress>);

#[derive(Debug, Default)]
struct Progress {
    /// Name that came with a password.
    tried: OnceLock<SmolStr>,
    result: OnceLock<LoginResult>,
}

#[derive(Debug)]
enum LoginResult {
    Identified(Caller),
    Refused { name: Option<SmolStr>, refusal: LoginRefusal },
}

/// State of a login.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LoginOutcome<'l> {
    Identified(&'l Caller),
    /// With the name that was tried.
    Refused {
        name: Option<&'l SmolStr>,
        refusal: &'l LoginRefusal,
    },
    /// A password came, and the call ended before it was checked.
    Abandoned {
        name: &'l SmolStr,
    },
    Unknown,
}

impl Login {
    /// Records a name that came with a password. Without a later result, the call was abandoned.
    pub(super) fn tried(&self, name: &SmolStr) {
        let _ = self.0.tried.set(name.clone()); // a request has one name
    }

    /// Records an identified caller, who may still lack the permission for the call.
    pub(super) fn identified(&self, caller: &Caller) {
        // Authentication happens once per request.
        let _ = self.0.result.set(LoginResult::Identified(caller.clone()));
    }

    /// Records a failed login; `name` is the one that was tried.
    pub(super) fn refused(&self, name: Option<SmolStr>, refusal: &LoginRefusal) {
        let _ = self.0.result.set(LoginResult::Refused { name, refusal: refusal.clone() });
    }

    /// The state of the login so far.
    pub(crate) fn outcome(&self) -> LoginOutcome<'_> {
        match (self.0.result.get(), self.0.tried.get()) {
            (Some(LoginResult::Identified(caller)), _) => LoginOutcome::Identified(caller),
            (Some(LoginResult::Refused { name, refusal }), _) => {
                LoginOutcome::Refused { name: name.as_ref(), refusal }
            }
            (None, Some(name)) => LoginOutcome::Abandoned { name },
            (None, None) => LoginOutcome::Unknown,
        }
    }
}
