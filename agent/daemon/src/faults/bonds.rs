//! Bonds of the configuration, with their members: groups like those that operators make.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_config::schema::Schema;
use holdfast_config::tree::{List, ListEntry as _, Tree};
use holdfast_config::{MissingNode, NodeId, Provenance, Value};
use holdfast_faults::UplinkGroup;
use smol_str::SmolStr;

use super::links::name_of;
use super::settings::number;

/// Follows the bonds of the configuration.
#[derive(Debug)]
pub(super) struct Bonds {
    nodes: BondNodes,
    /// The interfaces as they were looked at last.
    seen: List<Provenance>,
    /// Members that each bond has to have.
    least: BTreeMap<SmolStr, usize>,
    /// Bonds by the links that are members of one.
    bond_of: BTreeMap<SmolStr, SmolStr>,
}

#[derive(Debug)]
struct BondNodes {
    interfaces: NodeId,
    interface: NodeId,
    aggregate: NodeId,
    bond: NodeId,
    min_links: NodeId,
    kind: NodeId,
}

impl Bonds {
    /// # Errors
    /// When the native model lacks a node, which the first test finds.
    pub(super) fn new(native: &Schema) -> Result<Self, MissingNode> {
        let node = |path: &str| native.require(&format!("/interfaces{path}"));
        let nodes = BondNodes {
            interfaces: node("")?,
            interface: node("/interface")?,
            aggregate: node("/interface/aggregate")?,
            bond: node("/interface/bond")?,
            min_links: node("/interface/bond/min-links")?,
            kind: node("/interface/type")?,
        };
        Ok(Self { nodes, seen: List::default(), least: BTreeMap::new(), bond_of: BTreeMap::new() })
    }

    /// Looks at the interfaces that differ. True when a bond has come, gone, or has other members.
    pub(super) fn look(&mut self, configuration: &Tree<Provenance>) -> bool {
        let interfaces = configuration.root().container(self.nodes.interfaces);
        let now = interfaces.and_then(|it| it.list(self.nodes.interface));
        let now = now.cloned().unwrap_or_default();
        let before = std::mem::replace(&mut self.seen, now.clone());
        let mut differs = false;
        for difference in List::differences(&before, &now) {
            let Some(name) = name_of(difference.keys) else { continue };
            let entry = difference.new.map(|entry| entry.branch().into_shared());
            let bond = entry.as_deref().and_then(|it| it.value(self.nodes.aggregate));
            let bond = bond.map(|bond| SmolStr::from(bond.to_string()));
            let is_bond = |it: &Value| it.to_string() == "bond";
            let entry = entry.filter(|it| it.value(self.nodes.kind).is_some_and(is_bond));
            let least = entry.map(|entry| {
                let settings = entry.container(self.nodes.bond);
                let links = settings.and_then(|it| number(it, self.nodes.min_links)).unwrap_or(0);
                // A bond without any member never works.
                usize::try_from(links).unwrap_or(usize::MAX).max(1)
            });
            differs |= exchange(&mut self.bond_of, name, bond);
            differs |= exchange(&mut self.least, name, least);
        }
        differs
    }

    /// The bonds that have members.
    pub(super) fn groups(&self) -> Vec<UplinkGroup> {
        let mut members = BTreeMap::<&SmolStr, BTreeSet<SmolStr>>::new();
        for (member, bond) in &self.bond_of {
            members.entry(bond).or_default().insert(member.clone());
        }
        let group = |(bond, members): (&SmolStr, BTreeSet<SmolStr>)| {
            let least = *self.least.get(bond)?;
            Some(UplinkGroup::of_bond(bond.clone(), members, least))
        };
        members.into_iter().filter_map(group).collect()
    }
}

/// Notes what a link has, or that it has nothing. True when that differs.
fn exchange<T: PartialEq>(map: &mut BTreeMap<SmolStr, T>, link: &SmolStr, now: Option<T>) -> bool {
    if map.get(link) == now.as_ref() {
        return false;
    }
    match now {
        Some(now) => drop(map.insert(link.clone(), now)),
        None => drop(map.remove(link)),
    }
    true
}
