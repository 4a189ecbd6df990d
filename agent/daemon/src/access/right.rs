//! The right of one call to go on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_base::AccessEpoch;
use http::HeaderMap;

use rustls_pki_types::UnixTime;
use tokio::time::timeout;
use tonic::{Extensions, Status};
use tracing::info;

use crate::auth::{Authenticator, LoginContext};
use crate::gnsi::Gnsi;
use crate::tls::Peer;

/// The longest sleep until a certificate expires: timers do not notice when the clock of the box is set.
const CLOCK_CHECK: Duration = Duration::from_secs(60);

/// Path prefix of the services that a box answers only while gNSI is switched on.
const SWITCHED: &str = "/gnsi.";

/// The right of one call; clones share it. Each request has it in its extensions.
#[derive(Clone, Debug)]
pub(crate) struct CallPermission(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    epoch: AccessEpoch,
    /// Absent in tests without an authenticator, where a right is never lost.
    call: Option<Call>,
    state: Mutex<State>,
}

/// A call as it began, with the services that decide about it.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) authenticator: Authenticator,
    pub(super) gnsi: Gnsi,
    pub(super) admission: LoginContext,
    pub(super) peer: Peer,
    pub(super) path: String,
    /// Headers without the password.
    pub(super) headers: HeaderMap,
}

#[derive(Debug)]
struct State {
    /// Epoch of the last answer.
    epoch: u64,
    /// Time at which the answer has to be renewed even without a change: a certificate expires.
    until: Option<UnixTime>,
    /// Status that the call was cut with; never cleared.
    lost: Option<Status>,
    /// Set when the handler ends the call by itself, see [`CallPermission::let_end`].
    is_ending: bool,
}

impl CallPermission {
    pub(super) fn of_call(call: Call) -> Self {
        let epoch = call.gnsi.access().clone();
        let until = call.authenticator.certificate_until(&call.peer);
        let began = call.admission.epoch;
        let state = State { epoch: began, until, lost: None, is_ending: false };
        Self(Arc::new(Shared { epoch, call: Some(call), state: Mutex::new(state) }))
    }

    /// Makes a right that is never lost.
    #[cfg(test)]
    pub(crate) fn for_good() -> Self {
        let state = State { epoch: 0, until: None, lost: None, is_ending: false };
        let (epoch, state) = (AccessEpoch::default(), Mutex::new(state));
        Self(Arc::new(Shared { epoch, call: None, state }))
    }

    /// Takes the right out of a request that came through the layer.
    ///
    /// # Errors
    ///
    /// `UNAUTHENTICATED` for any other request.
    pub(crate) fn of(extensions: &Extensions) -> Result<Self, Status> {
        let right = extensions.get::<Self>().cloned();
        right.ok_or_else(|| Status::unauthenticated("the request carries no right of a call"))
    }

    /// Asks whether the caller could begin the call now, regardless of the last answer.
    ///
    /// # Errors
    ///
    /// The status that a new call would end with.
    pub(crate) fn ask(&self) -> Result<(), Status> {
        let mut state = self.state();
        self.evaluate(&mut state)
    }

    /// Lets the handler end the call by itself from now on: for a step that may take the caller's own right away,
    /// and whose outcome the client has to learn.
    pub(crate) fn let_end(&self) {
        self.state().is_ending = true;
    }

    /// Checks the right: one comparison, unless the epoch has moved or a certificate expires.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub(super) fn check(&self) -> Result<(), Status> {
        let mut state = self.state();
        let is_due = || state.until.is_some_and(|until| self.now() >= until);
        if state.is_ending
            || state.lost.is_none() && state.epoch == self.0.epoch.number() && !is_due()
        {
            return Ok(());
        }
        self.evaluate(&mut state)
    }

    /// Status that the call was cut with, if it was cut.
    pub(super) fn lost(&self) -> Option<Status> {
        let state = self.state();
        state.lost.clone().filter(|_| !state.is_ending)
    }

    /// Resolves with the status when the right is gone.
    pub(super) async fn until_lost(self) -> Status {
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
        if let Some(lost) = &state.lost {
            return Err(lost.clone());
        }
        let epoch = self.0.epoch.number();
        match call.could_begin() {
            Ok(()) => {
                state.epoch = epoch;
                state.until = call.authenticator.certificate_until(&call.peer);
                Ok(())
            }
            Err(status) => {
                let caller = &call.admission.caller.name;
                info!(%caller, rpc = call.path, reason = status.message(), "a call loses its right");
                state.lost = Some(status.clone());
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
    /// Repeats the questions of the beginning, in the same order.
    fn could_begin(&self) -> Result<(), Status> {
        let Self { authenticator, gnsi, admission, peer, path, headers } = self;
        let caller = authenticator.admit_again(admission, peer, path)?;
        gnsi.authz.still_allows(&caller, peer, path, headers)?;
        if path.starts_with(SWITCHED) && !gnsi.is_on() {
            return Err(Status::failed_precondition("gNSI is switched off on this box"));
        }
        Ok(())
    }
}
