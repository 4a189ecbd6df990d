//! The roles and passwords of users, as the configuration in force has them.

use holdfast_base::Role;
use holdfast_config::schema::NodeId;
use holdfast_config::{
    Configuration, InstancePath, Keys, Models, Namespace, SecretLeaf, SecretRef, Step, Value,
};
use smol_str::SmolStr;
use tokio::sync::watch;

/// Looks users up in the newest configuration: a change of role counts for the next request.
#[derive(Debug)]
pub struct ConfiguredUsers {
    configuration_rx: watch::Receiver<Configuration>,
    system: NodeId,
    user: NodeId,
    role: NodeId,
}

impl ConfiguredUsers {
    /// `None` when the native model has no users.
    pub(crate) fn new(
        models: &Models,
        configuration_rx: watch::Receiver<Configuration>,
    ) -> Option<Self> {
        let find = |path| models.native.find(path);
        let (system, user) = (find("/system")?, find("/system/user")?);
        Some(Self { configuration_rx, system, user, role: find("/system/user/role")? })
    }

    /// The role of a configured user: [`Role::None`] of one whose entry has none.
    pub fn role(&self, name: &str) -> Option<Role> {
        let entry = Step::entry(self.user, Keys::single(Value::Str(name.into())));
        let path = InstancePath(vec![Step::node(self.system), entry]);
        let configuration = self.configuration_rx.borrow();
        let entry = configuration.effective().branch(&path)?;
        match entry.leaf(self.role).map(|leaf| &leaf.value) {
            None => Some(Role::None),
            Some(Value::Enum(word)) => word.parse().ok(),
            Some(Value::Str(word)) => word.parse().ok(),
            Some(_) => None,
        }
    }

    /// The hash of the password that a client gave a user, while such passwords count: gNSI is switched off.
    pub fn password(&self, name: &str) -> Option<SecretRef> {
        let configuration = self.configuration_rx.borrow();
        let layers = configuration.layers();
        let counts = !layers.is_on(Namespace::Gnsi);
        layers.secrets.password(name).filter(|_| counts).cloned()
    }

    /// Users that have such a password, while such passwords count.
    pub fn with_passwords(&self) -> Vec<SmolStr> {
        let configuration = self.configuration_rx.borrow();
        let layers = configuration.layers();
        let counts = !layers.is_on(Namespace::Gnsi);
        let users = layers.secrets.iter().filter(|(_, leaf, _)| *leaf != SecretLeaf::SshKey);
        users.filter(|_| counts).map(|(user, ..)| user.clone()).collect()
    }
}
