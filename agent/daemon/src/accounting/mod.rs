//! Accounting at run time: every call and every command becomes a record for all readers.
//!
//! [`holdfast_store::accounts::AccountingLog`] is shared by the writers: [`Layer`], in front of all services and their authentication, and the
//! local socket. Readers are cursors over the one history. No call waits for them, nor for the disk, which a
//! thread of its own follows in the same way.

mod call;
mod layer;

use holdfast_base::{AuthMethod, Caller};
use holdfast_security::acctz::{Authn, AuthnKind, AuthnOutcome, User};

pub use self::layer::{Accounted, Layer};
use crate::auth::LoginRefusal;

/// The identified caller, for a record.
pub(crate) fn user(caller: &Caller) -> User {
    User {
        identity: caller.name.as_str().into(),
        role: caller.role.as_str().into(),
        ..User::default()
    }
}

/// Method by which the caller was identified.
pub(crate) fn authn(caller: &Caller) -> Authn {
    let (kind, cause) = match caller.auth_method {
        AuthMethod::Password => (AuthnKind::Password, "".into()),
        AuthMethod::NameWithCertificate | AuthMethod::Certificate => {
            (AuthnKind::TlsCertificate, "".into())
        }
        AuthMethod::Local { uid } => (AuthnKind::None, format!("uid {uid}").into()),
    };
    Authn { kind, outcome: AuthnOutcome::Success, cause }
}

/// Reason why the caller was not identified.
fn refused(refusal: &LoginRefusal) -> Authn {
    let kind = match refusal {
        LoginRefusal::WrongPassword
        | LoginRefusal::BackOff { .. }
        | LoginRefusal::Busy
        | LoginRefusal::PasswordReplaced => AuthnKind::Password,
        LoginRefusal::NamelessCertificate
        | LoginRefusal::OtherName(_)
        | LoginRefusal::Certificate(_) => AuthnKind::TlsCertificate,
        LoginRefusal::NoCredentials | LoginRefusal::NameAlone | LoginRefusal::Malformed(_) => {
            AuthnKind::None
        }
    };
    let outcome = match refusal {
        LoginRefusal::Busy => AuthnOutcome::Error,
        _ => AuthnOutcome::Fail,
    };
    Authn { kind, outcome, cause: refusal.to_string().into() }
}

/// Result of a password whose check was abandoned: counts as failed.
fn given_up() -> Authn {
    let cause = "the call was given up before the login was answered".into();
    Authn { kind: AuthnKind::Password, outcome: AuthnOutcome::Fail, cause }
}
