//! The gNSI state in force while the agent runs, for the services that change it and for all readers.
//!
//! [`Gnsi`] is made from the content of the store, before serving starts. Services change it by rotations
//! (`northbound::gnsi`), one at a time for each [`Rotator`]; the listener and the AAA layer only read
//! it. State leaves in the native model show it to clients: those with events by
//! [`holdfast_core::Datastore::show_state`], counters by [`PolledState`].

mod accounting_leaves;
mod authz;
pub(crate) mod certz;
mod credential_leaves;
mod credential_state;
mod host_key;
pub mod pathz;
mod rotations;
mod server_state;
mod vault;

use std::sync::Arc;

use holdfast_base::{AccessEpoch, RebootInhibitors, Switch, now_ns};
use holdfast_config::{MissingNode, Models};
use holdfast_core::{AccessChanges, CertificateId, Datastore, PolledState};
use holdfast_security::acctz::History;
use holdfast_security::credentialz::Credentials;
use holdfast_store::accounts::{AccountingLog, DEFAULT_HISTORY};
use holdfast_store::{Artefacts, Store};
use tokio_util::task::AbortOnDropHandle;

use self::accounting_leaves::AccountingLeaves;
pub(crate) use self::authz::Authz;
pub use self::certz::TlsProfiles;
pub(crate) use self::certz::{Certz, TrialProfilesGuard};
pub(crate) use self::credential_leaves::CredentialLeaves;
pub use self::credential_state::CredentialState;
pub use self::host_key::{HostKeyError, make_host_key};
pub(crate) use self::pathz::Pathz;
pub use self::pathz::PolicyParser;
pub(crate) use self::rotations::Rotator;
pub use self::rotations::{RotationGuard, Rotations};
pub(crate) use self::server_state::ServerState;
use crate::refusals::RefusalCounters;
use crate::users::Users;

/// Long-lived state of gNSI; clones share it.
#[derive(Clone, Debug)]
pub struct Gnsi {
    pub(crate) accounts: AccountingLog,
    counted: Arc<AccountingLeaves>,
    pub(crate) refusals: Arc<RefusalCounters>,
    pub(crate) authz: Arc<Authz>,
    pub(crate) certz: Certz,
    pub(crate) pathz: Arc<Pathz>,
    pub logins: CredentialState,
    pub(crate) credential_leaves: Arc<CredentialLeaves>,
    switch: Switch,
    access: AccessEpoch,
    pub rotations: Rotations,
}

impl Gnsi {
    /// Applies the content of the store; accounting records are in memory only. `root` is the folder of the box's
    /// files. Must run within the runtime.
    ///
    /// # Errors
    /// When the models in the binary lack a leaf, which would be a bug that the first test finds.
    pub fn new(
        models: &Arc<Models>,
        users: &Users,
        store: &Store,
        artefacts: &Artefacts,
        root: &std::path::Path,
        profiles: TlsProfiles,
        read_policy: PolicyParser,
    ) -> Result<Self, MissingNode> {
        let logins = CredentialState::new(artefacts, users.clone(), store.clone(), root.to_owned());
        let switch = Switch::default();
        let native = &models.native;
        users.set_gnsi_switch(switch.clone());
        let access = users.access().clone();
        profiles.set_access_epoch(access.clone());
        let authz = Authz::new(native, store.clone(), artefacts, switch.clone(), access.clone())?;
        let pathz = Pathz::new(models, store.clone(), artefacts, switch.clone(), read_policy)?;
        let accounts = AccountingLog::new(History::new(DEFAULT_HISTORY, now_ns()));
        Ok(Self {
            counted: Arc::new(AccountingLeaves::new(native, accounts.clone())?),
            accounts,
            refusals: Arc::default(),
            authz: Arc::new(authz),
            certz: Certz::new(native, store.clone(), profiles)?,
            pathz: Arc::new(pathz),
            logins,
            credential_leaves: Arc::new(CredentialLeaves::find(native)?),
            switch,
            access,
            rotations: Rotations::default(),
        })
    }

    /// Replaces the accounts by those that outlive a run.
    pub fn accounting(self, accounts: AccountingLog) -> Self {
        Self { counted: Arc::new(self.counted.of(accounts.clone())), accounts, ..self }
    }

    /// Lists rotations in progress in `undertakings`.
    pub fn with_undertakings(self, undertakings: RebootInhibitors) -> Self {
        Self { rotations: self.rotations.listed(undertakings), ..self }
    }

    /// Counter of changes to callers' permissions.
    pub(crate) fn access(&self) -> &AccessEpoch {
        &self.access
    }

    pub(crate) fn is_on(&self) -> bool {
        self.switch.is_on()
    }

    pub fn accounts(&self) -> AccountingLog {
        self.accounts.clone()
    }

    /// Store for the artefacts.
    pub(crate) fn store(&self) -> &Store {
        self.logins.rotator().store()
    }

    /// Polled leaves.
    pub fn polled(&self) -> Vec<Arc<dyn PolledState>> {
        let server = Arc::new(self.certz.state.clone());
        vec![self.authz.clone(), server, self.pathz.clone(), self.counted.clone()]
    }

    /// Publishes the state in force, and follows the operator's switch after that.
    pub async fn begin(
        &self,
        core: &impl Datastore,
        switch: impl Fn() -> bool + Send + Sync + 'static,
    ) {
        self.switch.set_source(switch);
        let mut state = self.authz.first_state();
        state.extend(self.pathz.first_state());
        state.extend(self.counted.first_state());
        state.extend(
            self.credential_leaves.state_leaves(&Credentials::default(), &self.logins.current()),
        );
        core.show_state(state).await;
    }

    /// TLS profiles that the gRPC server may be bound to.
    pub fn profiles(&self) -> &TlsProfiles {
        &self.certz.profiles
    }

    /// Counts configuration changes that affect permissions, until the handle is dropped.
    pub fn follow_access(&self, mut changes: AccessChanges) -> AbortOnDropHandle<()> {
        let access = self.access.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            while changes.changed().await {
                access.advance();
            }
        }))
    }

    /// Lets the configuration select the TLS profile of new connections. The selection is published when this
    /// resolves, and then at each change until the handle is dropped.
    pub async fn follow_binding(
        &self,
        bound: CertificateId,
        core: impl Datastore,
    ) -> AbortOnDropHandle<()> {
        self.certz.profiles.follow(bound.clone());
        let state = self.certz.state.clone();
        let version = state.show_serving(&core).await;
        AbortOnDropHandle::new(tokio::spawn(state.follow(version, bound, core)))
    }
}
