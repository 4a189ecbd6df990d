//! Nodes that a delete, or `no`, may not name, because a service keeps them to itself.

use crate::configuration::Configuration;
use crate::instance::{InstancePath, Step};
use crate::layer::{LayerKey, Layers, LeafMark, Namespace};
use crate::reserved::row;
use crate::schema::{NodeKind, Origin, Schema};
use crate::tree::{NodeRef, Tree};

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
        let native = match origin {
            Origin::Native => Some(path.clone()),
            Origin::OpenConfig if is_entry => map.entry_to_native(path),
            Origin::OpenConfig => map.path_to_native(path),
        };
        // With all alternatives of a leaf: boot may hold another one than the request names.
        let mut openconfig = native.as_ref().map(|path| map.up_path(path)).unwrap_or_default();
        if origin == Origin::OpenConfig && !openconfig.contains(path) {
            openconfig.push(path.clone());
        }
        let holds = |layer: LayerKey, path: &InstancePath| {
            let schema = self.models().schema(layer.origin);
            let tree = layers.tree(layer);
            match (is_leaf, is_entry) {
                (true, _) => tree.leaf(path).is_some() || holds_entry_of(schema, tree, path),
                (false, true) => holds_entry(schema, tree, &path.0),
                (false, false) => false,
            }
        };
        let is_held = native.iter().any(|path| holds(LayerKey::BOOT_NATIVE, path))
            || openconfig.iter().any(|path| holds(LayerKey::BOOT_OPENCONFIG, path));
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
