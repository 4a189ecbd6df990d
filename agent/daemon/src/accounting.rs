//! Accounting at run time: every call and every command becomes a record for all readers.
//!
//! [`holdfast_store::acctz::AccountingLog`] is shared by the writers: the [AAA layer](crate::aaa) in front of all services,
//! and the local socket. Readers are cursors over the one history. No call waits for them, nor for the disk, which a thread
//! of its own follows in the same way.

use holdfast_base::{AuthMethod, Caller};
use holdfast_security::acctz::{Authn, AuthnKind, AuthnOutcome, User};

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
