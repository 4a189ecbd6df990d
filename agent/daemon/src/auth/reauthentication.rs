//! The login of a call, and its repetition while the call lasts.

use std::borrow::Cow;
use std::sync::Arc;

use holdfast_base::{AuthMethod, Caller, Role};
use rustls_pki_types::UnixTime;

use super::{Authenticator, Credentials, LoginRefusal};
use crate::tls::{CertificateStatus, Peer};
use crate::users::UserEntry;

/// The login of a call, with all that is needed to repeat it.
#[derive(Clone, Debug)]
pub struct LoginContext {
    pub(crate) caller: Caller,
    /// The access epoch before the login was checked.
    pub(crate) epoch: u64,
    /// The user, with the password that was valid then.
    user: Option<Arc<UserEntry>>,
}

/// State that is noted before credentials are checked.
#[derive(Debug)]
pub(super) struct LoginStart {
    epoch: u64,
    user: Option<Arc<UserEntry>>,
}

impl LoginStart {
    /// Makes the admission of a caller. A password that changes while it is compared counts as the earlier one, so the
    /// next check ends the call.
    pub(super) fn admit(self, caller: Caller) -> LoginContext {
        let user = self.user.filter(|_| caller.auth_method == AuthMethod::Password);
        LoginContext { caller, epoch: self.epoch, user }
    }
}

impl Authenticator {
    /// Identifies the caller of a new call.
    ///
    /// # Errors
    /// When the login is refused, or the certificate of the connection is no longer accepted.
    pub(crate) async fn login(
        &self,
        credentials: Credentials,
        peer: &Peer,
    ) -> Result<LoginContext, LoginRefusal> {
        let entrance = self.start_login(&credentials);
        let peer = self.recheck_certificate(peer)?;
        let caller = self.identify(credentials, &peer).await?;
        if caller.role == Role::Admin {
            peer.admin.set();
        }
        Ok(entrance.admit(caller))
    }

    pub(super) fn start_login(&self, credentials: &Credentials) -> LoginStart {
        let epoch = self.users.access().number();
        let name = credentials.name.as_ref().filter(|_| credentials.password.is_some());
        LoginStart { epoch, user: name.and_then(|name| self.users.entry(name)) }
    }

    /// The caller as a new call would have it.
    ///
    /// # Errors
    /// The refusal that a new call would end with.
    pub(crate) fn reauthenticate(
        &self,
        admission: &LoginContext,
        peer: &Peer,
    ) -> Result<Caller, LoginRefusal> {
        let peer = self.recheck_certificate(peer)?;
        let caller = &admission.caller;
        Ok(match caller.auth_method {
            AuthMethod::Password => {
                let current = admission.user.as_ref();
                let current = current.and_then(|user| self.users.same_password(&caller.name, user));
                let user = current.ok_or(LoginRefusal::PasswordReplaced)?;
                self.password_caller(caller.name.clone(), &user, &peer)
            }
            AuthMethod::NameWithCertificate => self.by_name(caller.name.clone(), &peer)?,
            AuthMethod::Certificate => self.by_certificate(&peer)?,
            AuthMethod::Local { .. } => caller.clone(), // not over the network
        })
    }

    /// The connection as a new one would be; without its certificate, if clients are no longer asked for one.
    ///
    /// # Errors
    /// When its certificate would be refused in a handshake now.
    pub(super) fn recheck_certificate<'p>(
        &self,
        peer: &'p Peer,
    ) -> Result<Cow<'p, Peer>, LoginRefusal> {
        let Some(certificate) = &peer.certificate else { return Ok(Cow::Borrowed(peer)) };
        match self.gnsi.profiles().certificate_status(certificate) {
            CertificateStatus::Accepted => Ok(Cow::Borrowed(peer)),
            CertificateStatus::NotRequested => Ok(Cow::Owned(peer.without_certificate())),
            CertificateStatus::Refused(rejection) => Err(LoginRefusal::Certificate(rejection)),
        }
    }

    /// The time at which the certificate of this connection must be checked again even if nothing has changed.
    pub(crate) fn certificate_until(&self, peer: &Peer) -> Option<UnixTime> {
        self.gnsi.profiles().certificate_status_until(peer.certificate.as_ref()?)
    }
}
