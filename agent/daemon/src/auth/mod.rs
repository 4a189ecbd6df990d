//! Authentication: finds the caller of a request, before any service sees it.
//!
//! The [AAA layer](crate::aaa) asks for each call. In this order:
//! 1. a name and a password that check out: that user;
//! 2. a name without a password, on a connection with a verified client certificate that speaks for that name
//!    ([`ImpersonationPolicy`]): that user;
//! 3. a verified client certificate alone: its SPIFFE id, else its common name;
//! 4. anything else is refused, health and reflection included.
//!
//! One identity results, [`Caller::name`], for role, policies and accounting alike: a name in the metadata wins over
//! the certificate. The role is checked by the table of [methods](crate::methods).
//!
//! Absent on purpose: a default user or password.

mod attempts;
mod backoff;
mod reauthentication;
#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use holdfast_base::{AuthMethod, Caller, Role};
use holdfast_security::certz::Rejection;
use smol_str::SmolStr;
use tonic::Status;
use tracing::{info, warn};
use zeroize::Zeroizing;

use self::attempts::{Attempt, Attempts};
pub use self::reauthentication::LoginContext;
use crate::gnsi::Gnsi;
use crate::settings::ImpersonationPolicy;
use crate::tls::Peer;
use crate::users::{Password, Tag, UserEntry, Users};

/// Passwords hashed at one time: each takes 19 MiB and a core for some 20 ms.
const MAX_HASHES: usize = 2;

/// The separator after the scheme of a URI, as in `spiffe://`.
const URI_MARK: &str = "://";

/// Reason for which a request is refused. The texts go to the client, and do not reveal which users exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoginRefusal {
    #[error("no credentials: send `username` and `password` metadata")]
    NoCredentials,
    #[error("a username without a password is accepted only with a client certificate")]
    NameAlone,
    #[error("metadata `{0}` is given twice or is not plain text")]
    Malformed(&'static str),
    #[error(
        "the client certificate does not authenticate user `{0}`: send a password as well, or leave out `username`"
    )]
    OtherName(SmolStr),
    #[error("wrong username or password")]
    WrongPassword,
    #[error("the client certificate has no identity: it needs one SPIFFE id or one common name")]
    NamelessCertificate,
    #[error("too many failed logins from {source_address}: try again in {} s", .retry.as_secs().max(1))]
    BackOff { source_address: std::net::IpAddr, retry: Duration },
    #[error("too many logins are being checked: try again later")]
    Busy,
    #[error("the password that this call began with is no longer valid")]
    PasswordReplaced,
    #[error("the client certificate of this connection is no longer accepted: {0}")]
    Certificate(Rejection),
}

impl From<LoginRefusal> for Status {
    fn from(refusal: LoginRefusal) -> Self {
        match refusal {
            LoginRefusal::Busy => Self::unavailable(refusal.to_string()),
            refusal => Self::unauthenticated(refusal.to_string()),
        }
    }
}

impl LoginRefusal {
    /// The kind of refusal in a word or two, for accounting records, without details of the call.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::NoCredentials => "no credentials",
            Self::NameAlone => "name alone",
            Self::Malformed(_) => "malformed",
            Self::OtherName(_) => "other name",
            Self::WrongPassword => "wrong password",
            Self::NamelessCertificate => "nameless certificate",
            Self::BackOff { .. } => "back-off",
            Self::Busy => "busy",
            Self::PasswordReplaced => "password replaced",
            Self::Certificate(_) => "certificate",
        }
    }
}

/// Name and password that a client has sent.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    pub(crate) name: Option<SmolStr>,
    pub(crate) password: Option<Password>,
}

/// Permissions of client certificates.
#[derive(Clone, Debug)]
pub struct CertificateTrust {
    /// The role of a certificate whose identity is not a local user, as long as there is no authorization policy.
    pub role: Role,
    pub impersonation: ImpersonationPolicy,
}

/// Checks credentials against the users and the connection; clones share all state.
#[derive(Clone, Debug)]
pub struct Authenticator {
    users: Users,
    certificates: CertificateTrust,
    attempts: Attempts,
    gnsi: Gnsi,
    /// Number of comparisons of a password.
    #[cfg(test)]
    compared: Arc<std::sync::atomic::AtomicUsize>,
}

impl Authenticator {
    pub fn new(users: Users, certificates: CertificateTrust, gnsi: Gnsi) -> Self {
        Self {
            users,
            certificates,
            attempts: Attempts::new(MAX_HASHES),
            gnsi,
            #[cfg(test)]
            compared: Arc::default(),
        }
    }

    pub(crate) async fn identify(
        &self,
        credentials: Credentials,
        peer: &Peer,
    ) -> Result<Caller, LoginRefusal> {
        match credentials {
            Credentials { name: Some(name), password: Some(password) } => {
                self.by_password(name, password, peer).await
            }
            Credentials { name: Some(name), password: None } => self.by_name(name, peer),
            Credentials { name: None, password: Some(_) } => Err(LoginRefusal::NoCredentials),
            Credentials { name: None, password: None } => self.by_certificate(peer),
        }
    }

    /// The caller of a name without a password: of the certificate itself, or of a user that its holder may act as.
    fn by_name(&self, name: SmolStr, peer: &Peer) -> Result<Caller, LoginRefusal> {
        let certificate = peer.certificate.as_ref().ok_or(LoginRefusal::NameAlone)?;
        if certificate.identity.as_ref() == Some(&name) {
            return self.by_certificate(peer);
        }
        let is_own = certificate.principals.contains(&name);
        let role = self.users.role(&name);
        // A URI is the name of a certificate's holder, to which a policy may grant more than to any user.
        let is_holders = role.is_none() && name.contains(URI_MARK);
        let may_speak =
            self.certificates.impersonation == ImpersonationPolicy::Anyone && !is_holders;
        if !is_own && !may_speak {
            return Err(LoginRefusal::OtherName(name));
        }
        // A user that does not exist here may only read.
        let role = role.unwrap_or(Role::ReadOnly);
        let source = AuthMethod::NameWithCertificate;
        Ok(Caller { name, role, auth_method: source, peer: Some(peer.address) })
    }

    fn by_certificate(&self, peer: &Peer) -> Result<Caller, LoginRefusal> {
        let certificate = peer.certificate.as_ref().ok_or(LoginRefusal::NoCredentials)?;
        let name = certificate.identity.clone().ok_or(LoginRefusal::NamelessCertificate)?;
        let role = self.users.role(&name).unwrap_or_else(|| match self.gnsi.authz.is_enforced() {
            true => Role::Admin, // the policy decides what the caller may do
            false => self.certificates.role.clone(),
        });
        Ok(Caller { name, role, auth_method: AuthMethod::Certificate, peer: Some(peer.address) })
    }

    /// The caller with this password. The attempt is charged before anything is compared, except for a login that has
    /// already succeeded on the connection, which is not a guess.
    async fn by_password(
        &self,
        name: SmolStr,
        password: Password,
        peer: &Peer,
    ) -> Result<Caller, LoginRefusal> {
        let tag = self.users.tag(&password);
        if peer.verified_login.is(&name, &tag)
            && let Some(user) = self.users.entry(&name).filter(|user| user.verified_as(&tag))
        {
            return Ok(self.password_caller(name, &user, peer));
        }
        let attempt = self.attempts.begin(peer.address, &name, self.loggable_name(&name)).await?;
        attempt.pause().await;
        match self.compare(&attempt, &name, &tag, password).await {
            Ok(Some(user)) => {
                attempt.succeeded();
                peer.verified_login.keep(&name, tag);
                Ok(self.password_caller(name, &user, peer))
            }
            Ok(None) => {
                attempt.failed();
                self.report(&name, peer);
                Err(LoginRefusal::WrongPassword)
            }
            Err(refusal) => {
                attempt.not_compared();
                Err(refusal)
            }
        }
    }

    /// The user with this name and password. The work is the same if there is no such user, so that its time reveals
    /// nothing.
    async fn compare(
        &self,
        attempt: &Attempt,
        name: &str,
        tag: &Tag,
        password: Password,
    ) -> Result<Option<Arc<UserEntry>>, LoginRefusal> {
        #[cfg(test)]
        self.compared.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        let remembered = || self.users.entry(name).filter(|user| user.verified_as(tag));
        if let Some(user) = remembered() {
            return Ok(Some(user));
        }
        let place = attempt.place().await?;
        if let Some(user) = remembered() {
            return Ok(Some(user)); // a simultaneous login has done the work
        }
        let user = self.users.entry(name);
        let hash = match &user {
            Some(user) => Zeroizing::new(user.password_hash().to_owned()),
            None => self.users.dummy_hash(name),
        };
        let compared = tokio::task::spawn_blocking(move || {
            let _place = place; // held until the comparison ends, even if its request is gone
            password.matches(&hash)
        });
        let right = compared.await.map_err(|_| LoginRefusal::Busy)?;
        let user = user.filter(|_| right);
        if let Some(user) = &user {
            user.remember(tag.clone());
        }
        Ok(user)
    }

    fn password_caller(&self, name: SmolStr, user: &UserEntry, peer: &Peer) -> Caller {
        let role = self.users.role(&name).unwrap_or_else(|| user.role().clone());
        Caller { name, role, auth_method: AuthMethod::Password, peer: Some(peer.address) }
    }

    /// The name in the form that the log may show: an unknown one may be a password typed in the wrong place.
    fn loggable_name(&self, name: &SmolStr) -> SmolStr {
        let is_user = self.users.role(name).is_some();
        if is_user { name.clone() } else { SmolStr::new_static("(unknown)") }
    }

    fn report(&self, name: &SmolStr, peer: &Peer) {
        if self.users.is_empty() {
            warn!(peer = %peer.address, "login refused: there are no users yet, create one with `holdfast user set NAME --role admin`");
        } else {
            info!(peer = %peer.address, user = %self.loggable_name(name), "login refused");
        }
    }
}
