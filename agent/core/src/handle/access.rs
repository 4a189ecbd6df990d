//! The part of the configuration that decides who may do what.

use holdfast_config::schema::NodeId;
use holdfast_config::{Configuration, List, Models, Namespace, Provenance, Secrets, Step};
use smol_str::SmolStr;
use tokio::sync::watch;

use super::binding::CertificateId;

/// Notices changes of configured users, of the TLS profile of the server and of the switch of gNSI, and no others.
#[derive(Debug)]
pub struct AccessChanges {
    configuration_rx: watch::Receiver<Configuration>,
    binding: CertificateId,
    system: NodeId,
    user: NodeId,
    last: AccessSettings,
}

/// The part of a configuration that decides on access.
#[derive(Clone, Debug)]
struct AccessSettings {
    users: Option<List<Provenance>>,
    profile: Option<SmolStr>,
    gnsi: bool,
    /// Passwords that clients gave.
    secrets: Secrets,
}

impl AccessChanges {
    /// `None` when the native model has no users or no gRPC server.
    pub(crate) fn new(
        models: &Models,
        mut configuration_rx: watch::Receiver<Configuration>,
    ) -> Option<Self> {
        let find = |path| models.native.find(path);
        let (system, user) = (find("/system")?, find("/system/user")?);
        let binding = CertificateId::new(models, configuration_rx.clone())?;
        let configuration = configuration_rx.borrow_and_update().clone();
        let last = AccessSettings::of(&configuration, &binding, system, user);
        Some(Self { configuration_rx, binding, system, user, last })
    }

    /// Resolves with the next change; false when there will be none.
    pub async fn changed(&mut self) -> bool {
        while self.configuration_rx.changed().await.is_ok() {
            let configuration = self.configuration_rx.borrow_and_update().clone();
            let now = AccessSettings::of(&configuration, &self.binding, self.system, self.user);
            if !now.is_same(&self.last) {
                self.last = now;
                return true;
            }
        }
        false
    }
}

impl AccessSettings {
    fn of(
        configuration: &Configuration,
        binding: &CertificateId,
        system: NodeId,
        user: NodeId,
    ) -> Self {
        let system = configuration.effective().find_branch(&[Step::node(system)]);
        Self {
            users: system.and_then(|system| system.list(user).cloned()),
            profile: binding.current(),
            gnsi: configuration.layers().is_on(Namespace::Gnsi),
            secrets: configuration.layers().secrets.clone(),
        }
    }

    /// Compares lists of users by identity. A list that was rebuilt with the same users counts as changed, which only
    /// costs a check.
    fn is_same(&self, other: &Self) -> bool {
        let users = match (&self.users, &other.users) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() == other.is_none(),
        };
        let secrets = self.secrets.is_same(&other.secrets);
        users && secrets && self.profile == other.profile && self.gnsi == other.gnsi
    }
}
