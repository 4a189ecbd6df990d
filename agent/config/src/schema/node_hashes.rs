//! Identifiers of nodes that are stored: another version of the agent may number nodes differently.

use std::collections::HashMap;

use super::{NodeId, Schema};

/// Two nodes of one schema have the same hash, so that one of them has to be renamed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{one}` and `{other}` cannot be told apart in stored rows")]
pub struct HashCollision {
    pub one: String,
    pub other: String,
}

/// Identifiers of the nodes of one schema in stored rows.
#[derive(Debug)]
pub(crate) struct NodeHashes {
    by_node: Vec<u32>,
    by_name: HashMap<u32, NodeId>,
}

impl NodeHashes {
    pub(crate) fn new(schema: &Schema) -> Result<Self, HashCollision> {
        let mut names = Self { by_node: Vec::new(), by_name: HashMap::new() };
        for node in schema.nodes() {
            let path = full_name(schema, node.id);
            let name = fnv1a(path.as_bytes());
            names.by_node.push(name);
            if node.is_unlinked {
                continue;
            }
            if let Some(other) = names.by_name.insert(name, node.id) {
                return Err(HashCollision { one: path, other: full_name(schema, other) });
            }
        }
        Ok(names)
    }

    pub(crate) fn of(&self, node: NodeId) -> u32 {
        self.by_node[node.0 as usize]
    }

    pub(crate) fn node(&self, name: u32) -> Option<NodeId> {
        self.by_name.get(&name).copied()
    }
}

fn full_name(schema: &Schema, node: NodeId) -> String {
    let up = |node: &NodeId| schema.node(*node).parent;
    let way: Vec<NodeId> = std::iter::successors(Some(node), up).collect();
    let steps = way.iter().rev().skip(1).map(|node| {
        let node = schema.node(*node);
        format!("/{}:{}", schema.module(node.module).name, node.name)
    });
    steps.collect()
}

/// FNV-1a hash with 32 bits: stable, and good enough for a few hundred names.
fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
