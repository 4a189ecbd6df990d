//! Read set: what a plan has read of the graph, so that it can be told whether a change of the graph concerns it.
//!
//! A plan finds nodes, targets and identities by lookups, whose results are kept here anyway. A lookup that found nothing
//! is a reading, too: what is added later would have been found. A value that the plan did not touch has been read only
//! by way of a target whose watchers were walked.

use std::net::IpAddr;

use ipnet::IpNet;

use super::{OverlayClaim, OverlayIdx, OverlayNode, OverlayTargetId, TargetRef};
use crate::arena::Slots;
use crate::dependency::{Facet, Space, Target};
use crate::graph::{Graph, GraphChange, NodeIdx, TargetId};
use crate::key::{FixedMap, FixedSet, Key, Kinds, hash_of};
use crate::targets::{Addresses, provided_targets};

#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    /// Nodes that the graph has.
    pub(super) by_idx: FixedMap<NodeIdx, OverlayIdx>,
    /// Nodes that the graph does not have, by the hash of their key.
    pub(super) by_key: Slots,
    /// Targets that the graph has, by their index there.
    pub(super) by_known_target: FixedMap<TargetId, OverlayTargetId>,
    /// Targets that the graph does not have, by hash.
    pub(super) by_target: Slots,
    pub(super) claims: FixedMap<Facet, OverlayClaim>,
    /// Addresses and key prefixes of targets of the overlay.
    pub(super) addresses: Addresses,
    pub(super) unders: bool,
    /// Kinds of keys that are targets here.
    pub(super) target_kinds: Kinds,
    /// Hashes of targets that were looked for, and that nothing can depend on so far.
    pub(super) missed: FixedSet<u64>,
    /// Targets of the graph whose watchers or dependents were counted or walked.
    pub(super) walked: FixedSet<TargetId>,
    /// Prefixes for which watched addresses were looked for.
    pub(super) prefixes: FixedSet<(Space, IpNet)>,
    /// Targets of the graph whose dependents have changed since their count was copied, and before it was read.
    changed_unread: FixedSet<TargetId>,
    /// True once such a count was read: the plan relies on what is no longer the same.
    is_outdated: bool,
}

impl ReadSet {
    /// Number of nodes that the graph does not have.
    pub(crate) fn added_nodes(&self) -> usize {
        self.by_key.len()
    }

    /// Number of targets that the graph does not have.
    pub(crate) fn added_targets(&self) -> usize {
        self.by_target.len()
    }

    /// Notes the changes of counts that were copied and not read yet, among changes on which nothing depends so far.
    pub(crate) fn note_unread<'c>(&mut self, changes: impl Iterator<Item = &'c GraphChange>) {
        for change in changes {
            if let GraphChange::Watchers(id) = change
                && self.by_known_target.contains_key(id)
            {
                self.changed_unread.insert(*id);
            }
        }
    }

    /// Notes that the watchers and dependents of a target are read.
    pub(super) fn note_walked(&mut self, id: TargetId) {
        self.is_outdated |= self.changed_unread.contains(&id);
        self.walked.insert(id);
    }

    /// True when the plan has to be begun again, because something changed between its copy and its reading.
    pub(crate) fn is_outdated(&self) -> bool {
        self.is_outdated
    }
}

/// Nodes and targets of a plan, with what it has read.
#[derive(Clone, Copy)]
pub(crate) struct Readings<'p> {
    pub(crate) reads: &'p ReadSet,
    pub(crate) nodes: &'p [OverlayNode],
    pub(crate) target_refs: &'p [TargetRef],
}

impl Readings<'_> {
    /// True when nothing of this has changed in the graph since a revision.
    pub(crate) fn are_current(self, graph: &Graph, revision: u64) -> bool {
        let changes = graph.log.since(revision);
        changes.is_some_and(|mut changes| !changes.any(|change| self.depend_on(graph, change)))
    }

    /// Node of the plan with this key.
    pub(crate) fn touched(self, graph: &Graph, key: &Key) -> Option<OverlayIdx> {
        let is = |oidx: OverlayIdx| self.nodes[oidx as usize].key == *key;
        let known = graph.find(key).and_then(|idx| self.reads.by_idx.get(&idx)).copied();
        known.filter(|&oidx| is(oidx)).or_else(|| self.reads.by_key.find(hash_of(key), is))
    }

    fn depend_on(self, graph: &Graph, change: &GraphChange) -> bool {
        let reads = self.reads;
        match change {
            GraphChange::Node(idx) => self.depend_on_node(graph, *idx),
            GraphChange::Dropped(idx, key) => self.depend_on_key(*idx, key),
            GraphChange::Unsupported(idx) => self.depend_on_offers(graph, *idx),
            GraphChange::Closed(id) | GraphChange::Providers(id) => {
                reads.by_known_target.contains_key(id)
            }
            GraphChange::Watchers(id) => reads.walked.contains(id),
            GraphChange::Opened(id) => graph.target_in(*id).is_some_and(|target| self.miss(target)),
            GraphChange::Prefix(offered) => {
                let (space, prefix) = **offered;
                reads.addresses.within(space, prefix).next().is_some()
            }
            GraphChange::Claim(identity) => reads.claims.contains_key(identity),
        }
    }

    /// True when a node was touched, or read as a provider or a watcher of a target.
    fn depend_on_node(self, graph: &Graph, idx: NodeIdx) -> bool {
        let reads = self.reads;
        let node = graph.node(idx);
        if self.depend_on_key(idx, &node.key) {
            return true;
        }
        if reads.walked.is_empty() {
            return false;
        }
        let specs = [node.goal.spec(), node.goal.requested_spec(), node.present.as_ref()];
        let mut needs = specs.into_iter().flatten().flat_map(|spec| &spec.needs);
        needs.any(|need| {
            let id = graph.find_target(&need.target, hash_of(&need.target));
            id.is_some_and(|id| reads.walked.contains(&id))
        })
    }

    /// True when the node that has, or had, this key was touched, or read as a provider of a target.
    fn depend_on_key(self, idx: NodeIdx, key: &Key) -> bool {
        let reads = self.reads;
        reads.by_idx.contains_key(&idx)
            || self.has_added(key)
            || reads.target_kinds.contains(key.kind())
                && self.has_added_target(&Target::Exact(key.clone()))
            || reads.unders
                && key.prefixes().any(|prefix| self.has_added_target(&Target::Under(prefix)))
    }

    /// True when some value of the plan may rely on an offer of a value that became unsupported, or is no longer.
    fn depend_on_offers(self, graph: &Graph, idx: NodeIdx) -> bool {
        let node = graph.node(idx);
        if self.reads.by_idx.contains_key(&idx) {
            return true;
        }
        let sets = [&self.reads.addresses];
        let offered = provided_targets(&node.key, node.present.as_deref(), &sets);
        offered.iter().any(|target| {
            let id = graph.find_target(target, hash_of(target));
            id.is_some_and(|id| self.reads.by_known_target.contains_key(&id))
                || self.has_added_target(target)
        })
    }

    /// True when a target would have been found that was opened since.
    fn miss(self, target: &Target) -> bool {
        let within = |&(space, address): &(Space, IpAddr)| {
            let lengths = 0..=if address.is_ipv6() { 128 } else { 32 };
            let mut prefixes = lengths.filter_map(|length| IpNet::new(address, length).ok());
            prefixes.any(|prefix| self.reads.prefixes.contains(&(space, prefix.trunc())))
        };
        self.reads.missed.contains(&hash_of(target))
            || self.has_added_target(target)
            || matches!(target, Target::Covering { space, address } if within(&(*space, *address)))
    }

    /// True when the plan has touched a key that the graph did not have.
    fn has_added(self, key: &Key) -> bool {
        let is = |oidx: OverlayIdx| self.nodes[oidx as usize].key == *key;
        self.reads.by_key.find(hash_of(key), is).is_some()
    }

    /// True when the plan has a target that the graph did not have.
    fn has_added_target(self, target: &Target) -> bool {
        let is = |id: OverlayTargetId| self.target_refs[id as usize].target == *target;
        self.reads.by_target.find(hash_of(target), is).is_some()
    }
}
