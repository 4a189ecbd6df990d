//! The permission of one call to go on.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use holdfast_base::{AccessEpoch, Caller};
use http::HeaderMap;
use rustls_pki_types::UnixTime;
use tokio::time::timeout;
use tonic::{Extensions, Status};
use tracing::info;

use crate::auth::{Authenticator, LoginContext};
use crate::gnsi::Gnsi;
use crate::methods::MethodRules;
use crate::tls::Peer;

/// The longest sleep until a certificate expires: timers do not notice when the clock of the box is set.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// Path prefix of the services that a box answers only while gNSI is switched on.
const GNSI: &str = "/gnsi.";

/// Permission of one call; clones share it. Each request has it in its extensions.
#[derive(Clone, Debug)]
pub(crate) struct CallPermission(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    epoch: AccessEpoch,
    /// Absent where a permission is never revoked: in tests of services without the layer.
    call: Option<Call>,
    state: Mutex<State>,
}

/// A call as it began, with the services that decide about it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) gnsi: Gnsi,
    pub(super) by: CallOrigin,
    pub(super) path: String,
    pub(super) rules: MethodRules,
    /// Headers without the password.
    pub(super) headers: HeaderMap,
}

/// Who began a call, and how that is known.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all calls are begun by a login")]
pub(super) enum CallOrigin {
    Login {
        authenticator: Authenticator,
        login: LoginContext,
        peer: Peer,
    },
    /// A process of the box, whose user the kernel has told. `epoch` is that of before the call was authorized.
    Process {
        caller: Caller,
        epoch: u64,
    },
}

#[derive(Debug)]
struct State {
    /// Epoch of the last answer.
    epoch: u64,
    /// Time at which the answer has to be renewed even without a change: a certificate expires.
    until: Option<UnixTime>,
    /// Status that the call was cut with; never cleared.
    revocation: Option<Status>,
    /// Set when the handler ends the call, see [`CallPermission::allow_completion`].
    is_ending: bool,
}

impl CallPermission {
    pub(super) fn of_call(call: Call) -> Self {
        let epoch = call.gnsi.access().clone();
        let until = call.by.certificate_until();
        let state = State { epoch: call.by.epoch(), until, revocation: None, is_ending: false };
        Self(Arc::new(Shared { epoch, call: Some(call), state: Mutex::new(state) }))
    }

    /// Makes a permission that is never revoked.
    #[cfg(test)]
    pub(crate) fn permanent() -> Self {
        let state = State { epoch: 0, until: None, revocation: None, is_ending: false };
        let epoch = AccessEpoch::default();
        let state = Mutex::new(state);
        Self(Arc::new(Shared { epoch, call: None, state }))
    }

    /// Takes the permission out of a request that came through the AAA layer.
    ///
    /// # Errors
    ///
    /// `UNAUTHENTICATED` for any other request.
    pub(crate) fn of(extensions: &Extensions) -> Result<Self, Status> {
        let permission = extensions.get::<Self>().cloned();
        permission
            .ok_or_else(|| Status::unauthenticated("the request carries no permission of a call"))
    }

    /// Checks whether the caller could begin the call now, regardless of the last check.
    ///
    /// # Errors
    ///
    /// The status that a new call would end with.
    pub(crate) fn recheck(&self) -> Result<(), Status> {
        let mut state = self.state();
        self.evaluate(&mut state)
    }

    /// Lets only the handler end the call from now on: for a step that may revoke the caller's own permission, and
    /// whose outcome the client has to learn.
    pub(crate) fn allow_completion(&self) {
        self.state().is_ending = true;
    }

    /// Checks the permission: one comparison, unless the epoch has moved or a certificate expires.
    ///
    /// # Errors
    ///
    /// As [`Self::recheck`].
    pub(super) fn check(&self) -> Result<(), Status> {
        let mut state = self.state();
        let is_due = || state.until.is_some_and(|until| self.now() >= until);
        if state.is_ending
            || state.revocation.is_none() && state.epoch == self.0.epoch.number() && !is_due()
        {
            return Ok(());
        }
        self.evaluate(&mut state)
    }

    /// Status that the call was cut with, if it was cut.
    pub(super) fn revocation(&self) -> Option<Status> {
        let state = self.state();
        state.revocation.clone().filter(|_| !state.is_ending)
    }

    /// Resolves with the status when the permission is revoked.
    pub(super) async fn wait_revoked(self) -> Status {
        let mut epoch_rx = self.0.epoch.subscribe();
        loop {
            epoch_rx.mark_unchanged();
            if let Err(status) = self.check() {
                return status;
            }
            let until = self.state().until;
            let left = until.map(|until| until.as_secs().saturating_sub(self.now().as_secs()));
            // `self` keeps the sender alive, so this resolves only with a change, or when the clock has to be
            // read.
            match left {
                None => drop(epoch_rx.changed().await),
                Some(left) => {
                    let sleep = Duration::from_secs(left.max(1)).min(CLOCK_CHECK);
                    drop(timeout(sleep, epoch_rx.changed()).await);
                }
            }
        }
    }

    fn evaluate(&self, state: &mut State) -> Result<(), Status> {
        let Some(call) = &self.0.call else { return Ok(()) };
        if let Some(status) = &state.revocation {
            return Err(status.clone());
        }
        let epoch = self.0.epoch.number();
        match call.could_begin() {
            Ok(()) => {
                state.epoch = epoch;
                state.until = call.by.certificate_until();
                Ok(())
            }
            Err(status) => {
                let caller = call.by.name();
                info!(%caller, rpc = call.path, reason = status.message(), "the permission of a call is revoked");
                state.revocation = Some(status.clone());
                Err(status)
            }
        }
    }

    fn now(&self) -> UnixTime {
        let profiles = self.0.call.as_ref().map(|call| call.gnsi.profiles());
        profiles.map_or_else(UnixTime::now, |profiles| profiles.now())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call {
    /// Repeats the checks of the beginning, in their order.
    fn could_begin(&self) -> Result<(), Status> {
        let Self { gnsi, by, path, rules, headers } = self;
        let (caller, peer) = match by {
            CallOrigin::Login { authenticator, login, peer } => {
                (authenticator.reauthenticate(login, peer)?, Some(peer))
            }
            // The user of a process does not change.
            CallOrigin::Process { caller, .. } => (caller.clone(), None),
        };
        rules.require_role(&caller, path)?;
        gnsi.authz.reauthorize(&caller, peer, path, headers)?;
        if path.starts_with(GNSI) && !gnsi.is_on() {
            return Err(Status::failed_precondition("gNSI is switched off on this box"));
        }
        Ok(())
    }
}

impl CallOrigin {
    fn name(&self) -> &str {
        match self {
            Self::Login { login, .. } => &login.caller.name,
            Self::Process { caller, .. } => &caller.name,
        }
    }

    /// Epoch of access at which the call began.
    fn epoch(&self) -> u64 {
        match self {
            Self::Login { login, .. } => login.epoch,
            Self::Process { epoch, .. } => *epoch,
        }
    }

    fn certificate_until(&self) -> Option<UnixTime> {
        match self {
            Self::Login { authenticator, peer, .. } => authenticator.certificate_until(peer),
            Self::Process { .. } => None,
        }
    }
}

/// The permission of a call as seen by one direction, with the task that waits for its revocation.
pub(super) struct Revocation {
    permission: CallPermission,
    /// Made when the direction first has nothing to pass on: most unary calls never need it.
    waiting: Option<Pin<Box<dyn Future<Output = Status> + Send>>>,
}

impl Revocation {
    pub(super) fn of(permission: CallPermission) -> Self {
        Self { permission, waiting: None }
    }

    /// As [`CallPermission::check`].
    pub(super) fn check(&self) -> Result<(), Status> {
        self.permission.check()
    }

    /// Status that the call was cut with, if it was cut.
    pub(super) fn status(&self) -> Option<Status> {
        self.permission.revocation()
    }

    /// Resolves with the status when the permission is revoked.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        let permission = &self.permission;
        let waiting =
            self.waiting.get_or_insert_with(|| Box::pin(permission.clone().wait_revoked()));
        waiting.as_mut().poll(context)
    }
}
