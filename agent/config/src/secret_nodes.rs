//! The nodes of users and of their write-only leaves.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::instance::{InstancePath, Keys, Step};
use crate::layer::{LayerKey, Layers};
use crate::models::Models;
use crate::schema::{NodeId, Schema};
use crate::secrets::SecretLeaf;
use crate::value::Value;

/// The list of users, from the root of OpenConfig.
const USERS: [&str; 5] = ["system", "aaa", "authentication", "users", "user"];
/// In the entry of a user, the container of the leaves.
const CONFIG: &str = "config";

/// Nodes of the write-only leaves of users, and of the way to them.
#[derive(Clone, Debug)]
pub(crate) struct SecretNodes {
    users: [NodeId; USERS.len()],
    pub(crate) config: NodeId,
    pub(crate) leaves: [(NodeId, SecretLeaf); SecretLeaf::ALL.len()],
}

impl SecretNodes {
    /// Number of steps from the root to the entry of a user.
    pub(crate) const DEPTH: usize = USERS.len();

    pub(crate) fn find(schema: &Schema) -> Option<Self> {
        let mut at = schema.root();
        let mut users = [at; USERS.len()];
        for (node, name) in users.iter_mut().zip(USERS) {
            at = schema.child(at, None, name)?;
            *node = at;
        }
        let config = schema.child(at, None, CONFIG)?;
        let mut leaves = SecretLeaf::ALL.map(|leaf| (config, leaf));
        for (node, leaf) in &mut leaves {
            *node = schema.child(config, None, leaf.name())?;
        }
        Some(Self { users, config, leaves })
    }

    /// The nodes from the root to the container of the leaves.
    pub(crate) fn way(&self) -> impl Iterator<Item = NodeId> {
        self.users.into_iter().chain([self.config])
    }

    pub(crate) fn entry(&self, keys: Keys) -> InstancePath {
        let (above, user) = self.list();
        above.join(Step::entry(user, keys))
    }

    /// Path of the container of the list of users, and the list.
    pub(crate) fn list(&self) -> (InstancePath, NodeId) {
        let [above @ .., user] = self.users;
        (InstancePath(above.into_iter().map(Step::node).collect()), user)
    }

    pub(crate) fn leaf(&self, user: &SmolStr, leaf: SecretLeaf) -> Option<InstancePath> {
        let (node, _) = self.leaves.iter().find(|(_, it)| *it == leaf)?;
        let entry = self.entry(Keys::single(Value::Str(user.clone())));
        Some(entry.join(Step::node(self.config)).join(Step::node(*node)))
    }

    /// True for a path above the leaves, and for one in the entry of a user.
    pub(crate) fn is_near(&self, path: &InstancePath) -> bool {
        path.0.iter().zip(self.way()).all(|(step, node)| step.node == node)
    }
}

/// The native entry of a user.
pub(crate) fn native_user(models: &Models, name: &SmolStr) -> Option<InstancePath> {
    let system = models.native.find("/system")?;
    let user = models.native.find("/system/user")?;
    let keys = Keys::single(Value::Str(name.clone()));
    Some(InstancePath(vec![Step::node(system), Step::entry(user, keys)]))
}

/// True when two versions of a layer share all of `/system`.
pub(crate) fn is_system_same(models: &Models, layer: LayerKey, old: &Layers, new: &Layers) -> bool {
    let system = models.schema(layer.origin).find("/system").map(Step::node);
    is_branch_same(&InstancePath(system.into_iter().collect()), layer, old, new)
}

/// True when two versions of a layer share the branch at a path.
pub(crate) fn is_branch_same(
    path: &InstancePath,
    layer: LayerKey,
    old: &Layers,
    new: &Layers,
) -> bool {
    match (old.tree(layer).branch(path), new.tree(layer).branch(path)) {
        (Some(old), Some(new)) => Arc::ptr_eq(old, new),
        (old, new) => old.is_none() && new.is_none(),
    }
}
