//! Reserved items: clients may not write the items of the services while those are on.
//!
//! Reserved are the rows of [`RESERVED_ITEMS`] and whatever the boot layers hold. The unit is the leaf. An
//! entry that boot holds reserves all of its own leaves, set or not, and its existence, but not the
//! lists in it. A request that names such an item and would change it is refused; a container or a
//! wildcard that merely covers one takes the client's own copy away and leaves the owner's alone.
//!
//! Start at [`Configuration::reserved_for`] for what a delete names. The union compares what a request would set,
//! because it has all layers side by side anyway.

use crate::configuration::Configuration;
use crate::instance::{InstancePath, Step};
use crate::layer::{LayerKey, Layers, LeafMark, Namespace};
use crate::schema::{NodeId, NodeKind, Origin, Schema};
use crate::tree::{NodeRef, Tree};

/// One item that a service keeps to itself while it is on, whether or not it holds it.
#[derive(Clone, Copy, Debug)]
pub struct ReservedItem {
    pub service: Namespace,
    /// OpenConfig path without keys.
    pub openconfig: &'static str,
    /// Why, in words that follow the path.
    pub why: &'static str,
    /// True when services may ask for it while it is not reserved. Values of claims are not secrets.
    pub is_for_services: bool,
}

/// Everything that is reserved without being held. Boot has no rows: it reserves what it holds.
pub const RESERVED_ITEMS: [ReservedItem; 3] = [
    ReservedItem {
        service: Namespace::Gnsi,
        openconfig: "/system/aaa/authentication/users/user/config/password",
        why: "passwords are set by gNSI credentialz",
        is_for_services: false,
    },
    ReservedItem {
        service: Namespace::Gnsi,
        openconfig: "/system/aaa/authentication/users/user/config/password-hashed",
        why: "passwords are set by gNSI credentialz",
        is_for_services: false,
    },
    ReservedItem {
        service: Namespace::Gnsi,
        openconfig: "/system/aaa/authentication/users/user/config/ssh-key",
        why: "keys are set by gNSI credentialz",
        is_for_services: true,
    },
];

/// The row of an OpenConfig leaf, if it has one. The native model has none of these leaves.
pub fn row(openconfig: &Schema, leaf: NodeId) -> Option<&'static ReservedItem> {
    RESERVED_ITEMS.iter().find(|row| openconfig.find(row.openconfig) == Some(leaf))
}

impl Configuration {
    /// The service that a leaf or an entry is reserved for: what a delete, or `no`, may not name.
    pub fn reserved_for(&self, origin: Origin, path: &InstancePath) -> Option<Namespace> {
        self.by_table(origin, path).or_else(|| self.by_boot(origin, path))
    }

    fn by_table(&self, origin: Origin, path: &InstancePath) -> Option<Namespace> {
        if origin != Origin::OpenConfig {
            return None;
        }
        let row = row(&self.models().openconfig, path.last()?.node)?;
        self.layers().is_on(row.service).then_some(row.service)
    }

    fn by_boot(&self, origin: Origin, path: &InstancePath) -> Option<Namespace> {
        let layers = self.layers();
        if !layers.is_on(Namespace::Bootz) || !has_boot_layers(layers) {
            return None;
        }
        let map = &self.models().map;
        let is_leaf = self.models().schema(origin).node(path.last()?.node).leaf.is_some();
        let is_entry = path.last()?.keys.is_some();
        let (native, openconfig) = match origin {
            Origin::Native => (Some(path.clone()), map.up_path(path).into_iter().next()),
            Origin::OpenConfig if is_entry => (map.entry_to_native(path), Some(path.clone())),
            Origin::OpenConfig => (map.path_to_native(path), Some(path.clone())),
        };
        let holds = |layer: LayerKey, path: &Option<InstancePath>| {
            let schema = self.models().schema(layer.origin);
            let tree = layers.tree(layer);
            path.as_ref().is_some_and(|path| match (is_leaf, is_entry) {
                (true, _) => tree.leaf(path).is_some() || holds_entry_of(schema, tree, path),
                (false, true) => holds_entry(schema, tree, &path.0),
                (false, false) => false,
            })
        };
        let is_held =
            holds(LayerKey::BOOT_NATIVE, &native) || holds(LayerKey::BOOT_OPENCONFIG, &openconfig);
        is_held.then_some(Namespace::Bootz)
    }
}

fn has_boot_layers(layers: &Layers) -> bool {
    let boot = [LayerKey::BOOT_NATIVE, LayerKey::BOOT_OPENCONFIG];
    boot.iter().any(|layer| !layers.tree(*layer).is_empty())
}

/// The entry that a leaf is in, as such: not one that is on the way to something below only.
fn holds_entry_of(schema: &Schema, tree: &Tree<LeafMark>, leaf: &InstancePath) -> bool {
    let Some(at) = leaf.0.iter().rposition(|step| step.keys.is_some()) else { return false };
    holds_entry(schema, tree, &leaf.0[..=at])
}

fn holds_entry(schema: &Schema, tree: &Tree<LeafMark>, entry: &[Step]) -> bool {
    let (Some(step), Some(NodeRef::Branch(branch))) =
        (entry.last(), NodeRef::Branch(tree.root()).get(entry))
    else {
        return false;
    };
    let NodeKind::List { keys } = &schema.node(step.node).kind else { return false };
    let key = keys.first().and_then(|key| branch.leaf(*key));
    // Keys that are marked absent lead to what is below, unless the entry itself is to be absent.
    branch.given || key.is_some_and(|key| key.meta != LeafMark::Absent)
}
