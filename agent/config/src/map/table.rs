//! Which OpenConfig leaves stand for a native one, for the user guide.

use std::collections::BTreeMap;

use super::{Anchor, Counterpart, KeyRule, Map};
use crate::instance::Step;
use crate::schema::{NodeId, NodeKind, Schema};
use crate::value::Value;

impl Map {
    /// Paths of the OpenConfig leaves that stand for native leaves, by the native leaf. A fixed key is shown with its value,
    /// another key by its name alone. Keys of native lists are left out.
    pub fn openconfig_paths(&self, openconfig: &Schema) -> BTreeMap<NodeId, Vec<String>> {
        let mut entries: Vec<String> = Vec::new();
        let mut paths = BTreeMap::new();
        for anchor in &self.anchors {
            let parent = anchor.parent.map_or("", |parent| entries[parent].as_str());
            let entry = entry_path(openconfig, parent, anchor);
            for leaf in anchor.leaves.iter().filter(|leaf| leaf.key.is_none()) {
                let Some(native) = leaf.native.last() else { continue };
                let path = |steps: &[Step]| with_steps(openconfig, &entry, steps);
                let counterparts = leaf.openconfig.iter().map(|mapped| path(&mapped.steps));
                paths.insert(*native, counterparts.collect());
            }
            entries.push(entry);
        }
        paths
    }
}

/// Path of the entry of an anchor. Anchors without a counterpart have no leaves with one.
fn entry_path(schema: &Schema, parent: &str, anchor: &Anchor) -> String {
    let Some(Counterpart { above, list, keys, .. }) = &anchor.openconfig else {
        return parent.to_owned();
    };
    let mut path = with_steps(schema, parent, above);
    let fixed = |rule: &KeyRule| match rule {
        KeyRule::Fixed(value) => Some(value.clone()),
        KeyRule::Native(_) | KeyRule::Coded(..) => None,
    };
    push(schema, &mut path, *list, keys.iter().map(fixed));
    path
}

fn with_steps(schema: &Schema, parent: &str, steps: &[Step]) -> String {
    let mut path = parent.to_owned();
    for step in steps {
        let keys = step.keys.iter().flat_map(|keys| keys.iter().cloned());
        push(schema, &mut path, step.node, keys.map(Some));
    }
    path
}

/// Adds a node to a path, with the keys of a list.
fn push(
    schema: &Schema,
    path: &mut String,
    node: NodeId,
    values: impl Iterator<Item = Option<Value>>,
) {
    let node = schema.node(node);
    path.extend(["/", node.name.as_str()]);
    let NodeKind::List { keys } = &node.kind else { return };
    for (key, value) in keys.iter().zip(values) {
        let name = &schema.node(*key).name;
        match value {
            Some(value) => path.push_str(&format!("[{name}={value}]")),
            None => path.push_str(&format!("[{name}]")),
        }
    }
}
