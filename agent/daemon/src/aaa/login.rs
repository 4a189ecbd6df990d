//! The login of a call: the credentials in its metadata, and the result as its record shows it.

use holdfast_base::{AuthMethod, Caller};
use holdfast_security::acctz::{Authn, AuthnKind, AuthnOutcome, BoundedText, User};
use http::HeaderMap;
use smol_str::SmolStr;

use crate::accounting;
use crate::auth::{Credentials, LoginRefusal};
use crate::users::{Password, check_name};

/// Metadata that carries the credentials (gNMI authentication document, "Credentials").
const USERNAME: &str = "username";
const PASSWORD: &str = "password";

/// Removes the password from the metadata: no handler needs it, and so none can log it.
pub(super) fn take_credentials(headers: &mut HeaderMap) -> Result<Credentials, LoginRefusal> {
    let name = only(headers, USERNAME)?.map(|name| std::str::from_utf8(name).map(SmolStr::new));
    let name = name.transpose().map_err(|_| LoginRefusal::Malformed(USERNAME))?;
    let password = only(headers, PASSWORD)?.filter(|text| !text.is_empty());
    // A text that is not a valid password counts as a wrong one: it is checked and charged like any other.
    let password = password.map(|text| Password::new(text).or_else(|_| Password::new("\0")));
    let password = password.transpose().map_err(|_| LoginRefusal::Malformed(PASSWORD))?;
    headers.remove(PASSWORD);
    let name = name.filter(|name| !name.is_empty());
    if name.as_ref().is_some_and(|name| check_name(name).is_err()) {
        return Err(LoginRefusal::Malformed(USERNAME));
    }
    Ok(Credentials { name, password })
}

fn only<'h>(headers: &'h HeaderMap, key: &'static str) -> Result<Option<&'h [u8]>, LoginRefusal> {
    let mut values = headers.get_all(key).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value.map(http::HeaderValue::as_bytes)),
        (_, Some(_)) => Err(LoginRefusal::Malformed(key)),
    }
}

/// Progress of the login of a call.
#[derive(Debug, Default)]
pub(super) enum Login {
    /// Neither credentials nor a result yet.
    #[default]
    Unknown,
    /// A password came with this name. Without a later result, the call was abandoned.
    Tried(SmolStr),
    /// With the name that was tried.
    Refused { name: Option<SmolStr>, refusal: LoginRefusal },
    /// The caller may still lack the permission for the call.
    Identified(Caller),
}

impl Login {
    pub(super) fn is_identified(&self) -> bool {
        matches!(self, Self::Identified(_))
    }

    /// Name of the user of a caller that the kernel has identified: any process of the box.
    pub(super) fn process(&self) -> Option<SmolStr> {
        match self {
            Self::Identified(Caller { name, auth_method: AuthMethod::Local { .. }, .. }) => {
                Some(name.clone())
            }
            _ => None,
        }
    }

    /// The caller, or the name that was tried.
    pub(super) fn user(&self) -> User {
        let name = match self {
            Self::Identified(caller) => return accounting::user(caller),
            Self::Refused { name, .. } => name.as_ref(),
            Self::Tried(name) => Some(name),
            Self::Unknown => None,
        };
        let identity = name.map_or_else(BoundedText::default, |name| name.as_str().into());
        User { identity, ..User::default() }
    }

    /// Result of the authentication; a password whose check was abandoned counts as failed.
    pub(super) fn authn(&self) -> Option<Authn> {
        match self {
            Self::Identified(caller) => Some(accounting::authn(caller)),
            Self::Refused { refusal, .. } => Some(failed(refusal)),
            Self::Tried(_) => Some(Authn {
                kind: AuthnKind::Password,
                outcome: AuthnOutcome::Fail,
                cause: "the call was given up before the login was answered".into(),
            }),
            Self::Unknown => None,
        }
    }

    /// Reason for the lack of an identified caller, in a word; with the name, if a password was compared.
    pub(super) fn missing_caller(&self) -> Option<(&'static str, Option<SmolStr>)> {
        match self {
            Self::Identified(_) => None,
            Self::Refused { name, refusal } => {
                let compared = matches!(refusal, LoginRefusal::WrongPassword);
                Some((refusal.word(), name.clone().filter(|_| compared)))
            }
            Self::Tried(name) => Some(("given up", Some(name.clone()))),
            Self::Unknown => Some(("unknown", None)),
        }
    }
}

fn failed(refusal: &LoginRefusal) -> Authn {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_taken_out_of_the_metadata() {
        let mut headers = HeaderMap::new();
        headers.insert(USERNAME, "ada".parse().unwrap());
        headers.insert(PASSWORD, "secret".parse().unwrap());
        let credentials = take_credentials(&mut headers).unwrap();
        assert_eq!(credentials.name.as_deref(), Some("ada"));
        assert!(credentials.password.is_some() && !headers.contains_key(PASSWORD));
        headers.append(USERNAME, "bob".parse().unwrap());
        assert_eq!(take_credentials(&mut headers).unwrap_err(), LoginRefusal::Malformed(USERNAME));
    }
}
