//! Leaves of OpenConfig entries that repeat keys: a request may leave them out.

use super::session::EditSession;
use crate::instance::{InstancePath, Keys, Step};
use crate::layer::{LayerKey, LeafMark};
use crate::models::Models;
use crate::schema::{NodeId, Origin};
use crate::tree::Branch;
use crate::value::Value;

impl EditSession<'_> {
    /// Restores the leaves that repeat keys, in the entries on the way to `path`.
    pub(super) fn fill_key_copies(&mut self, origin: Origin, path: &InstancePath) {
        if origin != Origin::OpenConfig {
            return;
        }
        let models = self.models();
        let tree = self.layers.tree_mut(LayerKey::CLIENT_OPENCONFIG);
        for at in (0..path.0.len()).filter(|at| path.0[*at].keys.is_some()) {
            let steps = &path.0[..=at];
            let Some(Step { node, keys: Some(keys) }) = steps.last() else { continue };
            let Some(entry_branch) = tree.branch(&InstancePath(steps.to_vec())) else { return };
            let lacking = missing_key_copies(models, *node, keys, entry_branch);
            if !lacking.is_empty() {
                let branch = tree.branch_mut(&models.openconfig, steps, &LeafMark::Explicit);
                put_key_copies(branch, lacking);
            }
        }
    }
}

/// A leaf that repeats a key: container, leaf, value.
type KeyCopy = (NodeId, NodeId, Value);

/// Leaves that should repeat keys and that this OpenConfig entry lacks.
fn missing_key_copies(
    models: &Models,
    list: NodeId,
    keys: &Keys,
    entry: &Branch<LeafMark>,
) -> Vec<KeyCopy> {
    let lacks = |(config, leaf, place): &(NodeId, NodeId, usize)| {
        let has = entry.container(*config).is_some_and(|config| config.leaf(*leaf).is_some());
        (!has).then(|| (*config, *leaf, keys[*place].clone()))
    };
    models.map.mirrors(Origin::OpenConfig, list).iter().filter_map(lacks).collect()
}

fn put_key_copies(entry: &mut Branch<LeafMark>, mirrors: Vec<KeyCopy>) {
    for (config, leaf, value) in mirrors {
        entry.container_mut(config).put_leaf(leaf, value, LeafMark::Explicit);
    }
}
