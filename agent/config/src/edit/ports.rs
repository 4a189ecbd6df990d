//! Physical ports, which exist without configuration: when a request leaves one out, its factory values return.

use std::sync::Arc;

use crate::instance::{InstancePath, Keys, Step};
use crate::layer::LeafMark;
use crate::models::Models;
use crate::resolve::PathPattern;
use crate::schema::{NodeId, Origin, Schema};
use crate::tree::{Branch, Child, Tree};
use crate::value::Value;

/// Path of the list of ports in the native model, and the leaf that identifies physical ones.
const PORTS: &str = "/interfaces/interface";
const TYPE: &str = "/interfaces/interface/type";
const PHYSICAL: &str = "physical";

/// True for the type of a link that the box has and the agent does not make, which is also that of a link without one.
pub(crate) fn is_port_type(kind: Option<&Value>) -> bool {
    kind.is_none_or(|it| *it == Value::Enum(PHYSICAL.into()))
}

/// Physical ports in the factory configuration.
#[derive(Debug)]
pub(super) struct FactoryPorts<'a> {
    models: &'a Models,
    ports: Vec<Port<'a>>,
}

/// One port, with its paths in both models.
#[derive(Debug)]
pub(super) struct Port<'a> {
    models: &'a Models,
    native: InstancePath,
    openconfig: Option<InstancePath>,
    entry: &'a Arc<Branch<LeafMark>>,
}

impl<'a> FactoryPorts<'a> {
    pub(super) fn of(models: &'a Models, factory: &'a Tree<LeafMark>) -> Self {
        let schema = &models.native;
        let found = schema.find(PORTS).zip(schema.find(TYPE));
        let ports = found.map(|(list, kind)| ports(models, factory, list, kind));
        Self { models, ports: ports.unwrap_or_default() }
    }

    /// Restores the factory leaves of ports at, above or below `named` that an operation has `left_out`. Other
    /// leaves of the layer stay. An operation on a single leaf does not leave out ports.
    pub(super) fn restore(
        &self,
        layer: &mut Tree<LeafMark>,
        origin: Origin,
        named: &PathPattern,
        left_out: impl Fn(&Port<'_>) -> bool,
    ) {
        let node = |id| self.models.schema(origin).node(id);
        if named.last().is_some_and(|last| node(last).leaf.is_some()) {
            return;
        }
        for port in &self.ports {
            let touched = port.path(origin).is_some_and(|path| named.overlaps(path));
            if touched && left_out(port) {
                port.restore(&self.models.native, layer);
            }
        }
    }
}

impl Port<'_> {
    pub(super) fn path(&self, origin: Origin) -> Option<&InstancePath> {
        match origin {
            Origin::Native => Some(&self.native),
            Origin::OpenConfig => self.openconfig.as_ref(),
        }
    }

    /// True when a tree of this origin has the entry, and in OpenConfig more of it than a shell.
    pub(super) fn is_in(&self, origin: Origin, tree: &Tree<LeafMark>) -> bool {
        let found = self.path(origin).and_then(|path| tree.get(path));
        found.is_some_and(|found| origin == Origin::Native || !self.models.map.has_only_keys(found))
    }

    fn restore(&self, schema: &Schema, layer: &mut Tree<LeafMark>) {
        if layer.branch(&self.native).is_none() {
            let entry = Child::Container(self.entry.clone());
            return layer.put(schema, &self.native, entry, &LeafMark::Factory);
        }
        add_missing(layer.branch_mut(schema, &self.native.0, &LeafMark::Factory), self.entry);
    }
}

fn ports<'a>(
    models: &'a Models,
    factory: &'a Tree<LeafMark>,
    list: NodeId,
    kind: NodeId,
) -> Vec<Port<'a>> {
    let way = way(&models.native, list);
    let Some((last, above)) = way.split_last() else { return Vec::new() };
    let above = InstancePath(above.iter().copied().map(Step::node).collect());
    let entries = factory.branch(&above).and_then(|branch| branch.list(*last));
    let port = |(keys, entry): (&Keys, &'a Arc<Branch<LeafMark>>)| {
        let native = above.join(Step::entry(*last, keys.clone()));
        let openconfig = models.map.up_path(&native).into_iter().next();
        Port { models, native, openconfig, entry }
    };
    let entries = entries.into_iter().flat_map(|entries| entries.iter());
    entries.filter(|(_, entry)| is_port_type(entry.value(kind))).map(port).collect()
}

/// Nodes from the root to a node.
fn way(schema: &Schema, node: NodeId) -> Vec<NodeId> {
    let above = |node: &NodeId| schema.node(*node).parent.filter(|it| *it != schema.root());
    let mut way: Vec<NodeId> = std::iter::successors(Some(node), above).collect();
    way.reverse();
    way
}

fn add_missing(into: &mut Branch<LeafMark>, from: &Branch<LeafMark>) {
    for (node, child) in from.children() {
        match (child, into.child(*node)) {
            (_, None) => drop(into.put(*node, child.clone())),
            (Child::Container(from), Some(Child::Container(_))) => {
                add_missing(into.container_mut(*node), from);
            }
            (Child::List(from), Some(Child::List(_))) => {
                let list = into.list_mut(*node);
                for (keys, from) in from.iter() {
                    add_missing(list.entry_mut(keys, Branch::default), from);
                }
            }
            _ => {}
        }
    }
}
