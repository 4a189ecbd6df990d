//! The caller of a request: the one identity that roles, authorization policies and accounting all use.

use std::{fmt, net::SocketAddr, str::FromStr};

use holdfast_common::{MAX_ROLE_NAME, is_role_name};
use smol_str::SmolStr;
use tonic::{Extensions, Request, Status};

/// An authenticated peer. The authentication layer puts it into the extensions of each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User name, or the identity in the client certificate: its SPIFFE id, else its common name.
    pub name: SmolStr,
    pub role: Role,
    pub auth_method: AuthMethod,
    /// Remote address of the connection; `None` for the local socket.
    pub peer: Option<SocketAddr>,
}

/// Permissions of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Logs in and calls nothing: the role of a user without one.
    None,
    /// A name without rights of its own. A call needs an authz policy that allows it; the policy may name the role in
    /// place of its users.
    Named(SmolStr),
    /// Reads everything, changes nothing.
    ReadOnly,
    Admin,
}

/// Method by which the caller was authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthMethod {
    /// Name and password of a local user.
    Password,
    /// A name without a password, on a connection with a verified client certificate.
    NameWithCertificate,
    /// The verified client certificate alone.
    Certificate,
    /// The local socket; the kernel vouches for the user id.
    Local { uid: u32 },
}

impl Caller {
    /// A part of the agent as the caller of a change, which the user of the process vouches for.
    pub fn own(name: impl Into<SmolStr>) -> Self {
        let auth_method = AuthMethod::Local { uid: nix::unistd::geteuid().as_raw() };
        Self { name: name.into(), role: Role::Admin, auth_method, peer: None }
    }

    /// The caller of a request that came through the authentication layer.
    ///
    /// Owned, so that the request can be taken apart afterwards.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` when the request did not come through that layer: an unprotected service answers nothing.
    pub fn authenticated<T>(request: &Request<T>) -> Result<Self, Status> {
        Self::from_extensions(request.extensions())
    }

    /// The caller of a request, for a handler that has only the extensions of the request.
    ///
    /// # Errors
    /// As [`Caller::authenticated`].
    pub fn from_extensions(extensions: &Extensions) -> Result<Self, Status> {
        extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| Status::unauthenticated("the request carries no authenticated caller"))
    }

    /// True for a caller whose role lets it change things. The AAA layer lets a call of a named role through only when an
    /// authz policy allows it, so a handler has nothing to add.
    pub fn may_write(&self) -> bool {
        matches!(self.role, Role::Admin | Role::Named(_))
    }

    /// Refuses a caller that may only read.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, naming the caller and `attempt` (as in "gNMI Set").
    pub fn require_admin(&self, attempt: &str) -> Result<(), Status> {
        if self.may_write() {
            return Ok(());
        }
        Err(Status::permission_denied(format!(
            "`{}` has the role {}, {attempt} needs {}",
            self.name,
            self.role,
            Role::Admin
        )))
    }
}

impl Role {
    /// The word used on the command line, in the database and in messages.
    pub fn as_str(&self) -> &str {
        match self {
            Self::None => "none",
            Self::Named(name) => name,
            Self::ReadOnly => "read-only",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A word that names no role.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` is not a role: admin, read-only, none, or a name of at most {MAX_ROLE_NAME} letters, digits, `.`, `_` and `-`"
)]
pub struct UnknownRole(String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "admin" => Ok(Self::Admin),
            "read-only" => Ok(Self::ReadOnly),
            "none" => Ok(Self::None),
            name if is_role_name(name) => Ok(Self::Named(name.into())),
            other => Err(UnknownRole(other.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_parse_from_their_names() {
        for role in [Role::Admin, Role::ReadOnly, Role::None, Role::Named("net-ops.2".into())] {
            assert_eq!(role.as_str().parse::<Role>().unwrap(), role);
        }
        let long = "x".repeat(MAX_ROLE_NAME + 1);
        for text in ["", "net ops", "net*", "a/b", "a:b", "-a", "\u{e4}", &long] {
            assert!(text.parse::<Role>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_request_without_a_caller_is_refused() {
        let status = Caller::authenticated(&Request::new(())).unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unauthenticated);
    }
}
