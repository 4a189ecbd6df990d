//! Union of one entry: its own leaves, and its two views.

use std::sync::Arc;

use smallvec::SmallVec;

use super::list::{ListResult, ListView};
use super::resolve::{Defaults, ResolvedLeaf};
use super::{EntryResult, EntryVersions, InputLayer, Problem, Provenance, ProvenanceKind, Union};
use crate::instance::{Keys, Step};
use crate::layer::{LayerKey, LayerSet, LeafMark};
use crate::map::{Anchor, AnchorId, MappedLeaf, OwnLeaf, leaf_at};
use crate::schema::NodeId;
use crate::tree::{Branch, Child, Leaf, LeafMeta, List, NodeRef};
use crate::value::Value;

/// Leaves that a view shows in addition to those of its layer.
#[derive(Debug, Default)]
struct Overlays<'m> {
    openconfig: Vec<(&'m [Step], Value, LeafMark)>,
    native: Vec<(&'m [NodeId], Value, LeafMark)>,
}

impl<'a> Union<'a> {
    /// Computes one entry (or the root) from the corresponding entry of each layer.
    pub(super) fn entry(
        &mut self,
        anchor: AnchorId,
        inputs: &[EntryVersions<'a>],
        old: &EntryResult,
    ) -> EntryResult {
        let is_same = !self.is_rebuilding && inputs.iter().all(EntryVersions::is_same);
        if is_same || self.cancel.is_cancelled() {
            return old.clone();
        }
        self.work.entries += 1;
        if inputs.iter().all(|pair| pair.new.is_none()) {
            return EntryResult::default();
        }
        let models = self.models;
        let it = &models.map.anchors[anchor];
        let without_shell = self.without_shell(it, inputs, old);
        let effective_inputs = without_shell.as_deref().unwrap_or(inputs);
        let absent = self.is_absent(it, effective_inputs);
        let problems = self.problems.len();
        let was_removed = || old.effective.is_none() && inputs.iter().any(|it| it.old.is_some());
        let outer = self.is_rebuilding;
        self.is_rebuilding |= self.boot && !absent && was_removed();
        let lists = self.lists(it, inputs, old);
        self.is_rebuilding = outer;
        let mut effective = Branch::with_capacity(it.leaves.len());
        effective.given = anchor != 0;
        let mut overlays = Overlays::default();
        self.own_presence(it, effective_inputs, &mut effective);
        self.own_leaves(it, effective_inputs, &mut effective, &mut overlays);
        self.check_one_of(it, effective_inputs, &effective);
        self.check_reserved(it, effective_inputs);
        if absent {
            self.drop_missing_leaf_problems(problems);
        }
        for (child, lists) in it.children.iter().zip(&lists) {
            put_list(&mut effective, &models.map.anchors[*child].native, &lists.effective);
        }
        effective.fit();
        EntryResult {
            effective: (!absent).then(|| Arc::new(effective)),
            openconfig: self.openconfig_view(it, inputs, &lists, &overlays),
            native: self.native_view(it, inputs, &lists, &overlays),
        }
    }

    /// True when the entry must not exist: a boot text says `no ENTRY`, or the entry consists only of leaves that
    /// are to be absent. ([`LeafMark::Absent`] on the key, with `given`, distinguishes the two.) So is an entry that only
    /// the fence layer has, unless it was given that of a port: its items wait.
    fn is_absent(&self, anchor: &Anchor, inputs: &[EntryVersions<'a>]) -> bool {
        let Some(key) = anchor.leaves.iter().find(|leaf| leaf.key.is_some()) else { return false };
        let mut exists = false;
        for (slot, pair) in self.slots.iter().zip(inputs) {
            let Some(branch) = pair.new else { continue };
            if slot.layer == LayerKey::FENCE && !branch.given {
                continue;
            }
            let key_leaf = leaf_at(branch, &key.native).filter(|_| !slot.is_openconfig());
            match key_leaf.map(|leaf| leaf.meta) {
                Some(LeafMark::Absent) if branch.given && !slot.off => return true,
                Some(LeafMark::Absent) => {}
                _ => exists = true,
            }
        }
        !exists
    }

    /// Drops problems about missing leaves of an entry that does not exist.
    fn drop_missing_leaf_problems(&mut self, from: usize) {
        let found = self.problems.split_off(from);
        let missing = |problem: &Problem| {
            matches!(problem, Problem::MissingMandatory { .. } | Problem::MissingOneOf { .. })
        };
        self.problems.extend(found.into_iter().filter(|problem| !missing(problem)));
    }

    /// Creates the presence containers that a layer has, be it with nothing in it.
    fn own_presence(
        &self,
        anchor: &Anchor,
        inputs: &[EntryVersions<'a>],
        effective: &mut Branch<Provenance>,
    ) {
        for way in &anchor.presence {
            let has_it = |(slot, pair): (&InputLayer, &EntryVersions<'a>)| {
                let entry = pair.new.filter(|_| !slot.is_openconfig());
                entry.and_then(|entry| branch_at(entry, way)).is_some_and(has_content)
            };
            if self.slots.iter().zip(inputs).any(has_it) {
                branch_at_mut(effective, way).given = true;
            }
        }
    }

    /// Computes the leaves of the entry. Leaves under a condition come last, after the leaves that the condition
    /// reads.
    fn own_leaves(
        &mut self,
        anchor: &'a Anchor,
        inputs: &[EntryVersions<'a>],
        effective: &mut Branch<Provenance>,
        overlays: &mut Overlays<'a>,
    ) {
        let conditional = |leaf: &&OwnLeaf| {
            leaf.when.is_some() || leaf.openconfig.iter().any(|it| it.when.is_some())
        };
        for leaf in anchor.leaves.iter().filter(|leaf| !conditional(leaf)) {
            self.own_leaf(anchor, leaf, inputs, effective, overlays);
        }
        for leaf in anchor.leaves.iter().filter(conditional) {
            self.own_leaf(anchor, leaf, inputs, effective, overlays);
        }
    }

    fn own_leaf(
        &mut self,
        anchor: &'a Anchor,
        leaf: &'a OwnLeaf,
        inputs: &[EntryVersions<'a>],
        effective: &mut Branch<Provenance>,
        overlays: &mut Overlays<'a>,
    ) {
        if let Some(place) = leaf.key {
            let value = self.place.last().and_then(|(_, keys)| keys.get(place)).cloned();
            if let (Some(value), Some(node)) = (value, leaf.native.last()) {
                effective.put_leaf(*node, value, self.entry_provenance(*node, inputs));
            }
            return;
        }
        let mapped = leaf.openconfig.first();
        let holds =
            |when: Option<&crate::map::DefaultCondition>| when.is_none_or(|it| it.holds(effective));
        let rooted = anchor.list().is_some() || leaf.native.len() < 2;
        let is_present = |depth| branch_at(effective, &leaf.native[..depth]).is_some();
        let rooted = rooted && leaf.presence.is_none_or(is_present);
        let defaults = Defaults {
            openconfig: holds(mapped.and_then(|it| it.when.as_ref())),
            native: rooted && holds(leaf.when.as_ref()),
        };
        let below = self.strongest(leaf, inputs, defaults);
        let fence = self.fence_over(leaf, inputs, below.as_ref());
        let below = ResolvedLeaf::of(leaf, below, defaults);
        // Clients read their configuration without fences.
        self.overlay(leaf, inputs, below.as_ref(), overlays);
        let resolved = match fence {
            Some(fence) => ResolvedLeaf::of(leaf, Some(fence), defaults),
            None => below,
        };
        match resolved {
            Some(ResolvedLeaf { value, provenance: prov }) => {
                put_leaf(effective, &leaf.native, value, prov)
            }
            None if leaf.mandatory && defaults.native => self.missing(leaf, inputs),
            None => {}
        }
    }

    /// Provenance of an entry: every layer that has it counts as an owner, the fence layer only where no other one does.
    fn entry_provenance(&self, key: NodeId, inputs: &[EntryVersions<'a>]) -> Provenance {
        let mut prov = Provenance { kind: ProvenanceKind::Factory, owners: LayerSet::NONE };
        for (slot, pair) in self.slots.iter().zip(inputs) {
            let Some(branch) = pair.new.filter(|_| slot.layer != LayerKey::FENCE) else { continue };
            if branch.leaf(key).is_some_and(|leaf| leaf.meta == LeafMark::Absent) {
                continue;
            }
            prov.owners = prov.owners.and(LayerSet::of(slot.layer));
            let factory = branch.leaf(key).is_some_and(|leaf| leaf.meta == LeafMark::Factory);
            if slot.is_openconfig() || !factory {
                prov.kind = ProvenanceKind::Explicit;
            }
        }
        let is_fenced = self.fence.is_some_and(|at| inputs[at].new.is_some());
        if prov.owners == LayerSet::NONE && is_fenced {
            let owners = LayerSet::of(LayerKey::FENCE);
            prov = Provenance { kind: ProvenanceKind::Explicit, owners };
        }
        prov
    }

    /// True when a layer that changed still has the entry. Otherwise the change cannot be blamed for the entry
    /// being incomplete, nor can a fence.
    fn is_own_doing(&self, inputs: &[EntryVersions<'a>]) -> bool {
        let changed = |(at, pair): (usize, &EntryVersions<'a>)| {
            self.fence != Some(at) && pair.new.is_some() && !pair.is_same()
        };
        inputs.iter().enumerate().any(changed)
    }

    fn check_one_of(
        &mut self,
        anchor: &Anchor,
        inputs: &[EntryVersions<'a>],
        entry: &Branch<Provenance>,
    ) {
        let missed = !anchor.one_of.is_empty()
            && anchor.one_of.iter().all(|leaf| entry.leaf(*leaf).is_none());
        if missed && self.is_own_doing(inputs) {
            let native = self.native_path();
            let one_of = anchor.one_of.clone();
            self.problems.push(Problem::MissingOneOf { native, one_of });
        }
    }

    fn missing(&mut self, leaf: &OwnLeaf, inputs: &[EntryVersions<'a>]) {
        if self.is_own_doing(inputs) {
            let mut native = self.native_path();
            native.0.extend(leaf.native.iter().copied().map(Step::node));
            self.problems.push(Problem::MissingMandatory { native });
        }
    }

    /// Collects the values of this leaf that views show and layers do not hold.
    fn overlay(
        &self,
        leaf: &'a OwnLeaf,
        inputs: &[EntryVersions<'a>],
        resolved: Option<&ResolvedLeaf>,
        overlays: &mut Overlays<'a>,
    ) {
        let kind = resolved.map(|it| it.provenance.kind);
        let native = self.client_native.and_then(|at| inputs[at].new);
        let native_leaf = native.and_then(|branch| leaf_at(branch, &leaf.native));
        if let (None, Some(ProvenanceKind::NativeDefault), Some(_)) = (native_leaf, kind, native)
            && let Some(default) = &leaf.default
        {
            overlays.native.push((&leaf.native, default.clone(), LeafMark::Default));
        }
        let Some(mapped) = leaf.openconfig.first() else { return };
        let openconfig = self.client_openconfig.and_then(|at| inputs[at].new).map(NodeRef::Branch);
        let is_set = |mapped: &MappedLeaf| {
            openconfig.is_some_and(|entry| entry.get(&mapped.steps).is_some())
        };
        if leaf.openconfig.iter().any(is_set) {
            return;
        }
        let unit = openconfig.and_then(|entry| entry.get(&mapped.steps[..mapped.unit]));
        if let (Some(ProvenanceKind::OpenConfigDefault), Some(_), Some((default, _))) =
            (kind, unit, &mapped.default)
        {
            overlays.openconfig.push((&mapped.steps, default.clone(), LeafMark::Default));
        } else if let Some(factory) = native_leaf.filter(|leaf| leaf.meta == LeafMark::Factory)
            && let Some((mapped, value)) = leaf.shown_as(&factory.value)
        {
            overlays.openconfig.push((&mapped.steps, value, LeafMark::Factory));
        }
    }

    fn native_view(
        &self,
        anchor: &Anchor,
        inputs: &[EntryVersions<'a>],
        lists: &[ListResult],
        overlays: &Overlays<'_>,
    ) -> Option<Arc<Branch<LeafMark>>> {
        let layer = self.client_native.and_then(|at| inputs[at].new)?;
        if overlays.native.is_empty() && lists.iter().all(|it| it.native.shared) {
            return Some(layer.clone());
        }
        let mut view = Branch::clone(layer);
        for (way, value, mark) in &overlays.native {
            put_leaf(&mut view, way, value.clone(), *mark);
        }
        for (child, lists) in anchor.children.iter().zip(lists) {
            put_list(&mut view, &self.models.map.anchors[*child].native, &lists.native.list);
        }
        Some(Arc::new(view))
    }

    fn openconfig_view(
        &self,
        anchor: &Anchor,
        inputs: &[EntryVersions<'a>],
        lists: &[ListResult],
        overlays: &Overlays<'_>,
    ) -> Option<Arc<Branch<LeafMark>>> {
        let layer = self.client_openconfig.and_then(|at| inputs[at].new);
        let places = anchor.outer_lists_first.iter();
        let views: SmallVec<[ListView<'_>; 4]> = places
            .filter_map(|place| self.openconfig_list_view(anchor, *place, inputs, lists))
            .collect();
        if overlays.openconfig.is_empty() && views.iter().all(|it| it.shared) {
            return match layer {
                None if self.is_factory_entry(anchor, inputs) => Some(Arc::new(self.bare(anchor))),
                layer => layer.cloned(),
            };
        }
        let schema = &self.models.openconfig;
        let mut view = layer.map_or_else(|| self.bare(anchor), |layer| Branch::clone(layer));
        let put = |view: &mut Branch<LeafMark>, it: ListView<'_>| {
            if !it.list.is_empty() {
                let above = view.descend_mut(schema, &it.counterpart.above, &LeafMark::Factory);
                above.put(it.counterpart.list, Child::List(it.list.into_owned()));
            }
        };
        // A list with entries that are parts of this one brings them as they are in the layer. Their other leaves and lists follow.
        let (whole, partial): (Vec<_>, Vec<_>) =
            views.into_iter().partition(|it| it.counterpart.is_total());
        partial.into_iter().for_each(|list| put(&mut view, list));
        for (steps, value, mark) in &overlays.openconfig {
            let Some((leaf, above)) = steps.split_last() else { continue };
            let branch = view.descend_mut(schema, above, mark);
            branch.put(leaf.node, Child::Leaf(Leaf::new(value.clone(), *mark)));
        }
        whole.into_iter().for_each(|list| put(&mut view, list));
        self.fill_implied(anchor, &mut view);
        Some(Arc::new(view))
    }

    /// True for entries that only the factory knows, which are shown at least with their keys.
    fn is_factory_entry(&self, anchor: &Anchor, inputs: &[EntryVersions<'a>]) -> bool {
        let native = self.client_native.and_then(|at| inputs[at].new);
        anchor.openconfig.is_some()
            && anchor.leaves.iter().filter(|leaf| leaf.key.is_some()).any(|key| {
                let key_leaf = native.and_then(|branch| leaf_at(branch, &key.native));
                key_leaf.is_some_and(|leaf| leaf.meta == LeafMark::Factory)
            })
    }

    /// An OpenConfig entry of the current place with nothing but its keys.
    fn bare(&self, anchor: &Anchor) -> Branch<LeafMark> {
        let (Some(counterpart), Some((_, keys))) = (&anchor.openconfig, self.place.last()) else {
            return Branch::default();
        };
        let Some(keys) = counterpart.openconfig_keys(keys) else { return Branch::default() };
        let schema = &self.models.openconfig;
        let mut entry = Branch::of_keys(schema, counterpart.list, &keys, &LeafMark::Factory);
        self.fill_implied(anchor, &mut entry);
        entry
    }

    /// Adds the leaves that are derived from the keys, where their fixed entry exists.
    fn fill_implied(&self, anchor: &Anchor, entry: &mut Branch<LeafMark>) {
        let none = Keys::default();
        let keys = self.place.last().map_or(&none, |(_, keys)| keys);
        for implied in &anchor.implied {
            let unit = implied.steps.iter().rposition(|step| step.keys.is_some());
            let unit = unit.map_or(0, |at| at + 1);
            let exists = unit == 0 || exists(entry, &implied.steps[..unit]);
            if exists && !self::exists(entry, &implied.steps) {
                let Some((leaf, above)) = implied.steps.split_last() else { continue };
                let Some(value) = implied.value.value(keys) else { continue };
                let branch = entry.descend_mut(&self.models.openconfig, above, &LeafMark::Factory);
                branch.put_leaf(leaf.node, value, LeafMark::Factory);
            }
        }
    }
}

/// [`NodeRef::get`] for an entry under construction: true when the node exists.
fn exists(entry: &Branch<LeafMark>, steps: &[Step]) -> bool {
    let Some((step, rest)) = steps.split_first() else { return true };
    match (entry.child(step.node), &step.keys) {
        (Some(Child::Container(branch)), None) => exists(branch, rest),
        (Some(Child::List(list)), Some(keys)) => {
            list.get(keys).is_some_and(|entry| exists(entry, rest))
        }
        (Some(Child::Leaf(_)), None) => rest.is_empty(),
        _ => false,
    }
}

/// True for a presence container that was supplied, or in which there is a leaf. One may have nothing but leaves that are
/// to be absent.
fn has_content(container: &Branch<LeafMark>) -> bool {
    container.given || has_leaf(container)
}

fn has_leaf(branch: &Branch<LeafMark>) -> bool {
    branch.children().iter().any(|(_, child)| match child {
        Child::Leaf(leaf) => leaf.meta != LeafMark::Absent,
        Child::Container(inner) => has_content(inner),
        Child::List(list) => list.iter().any(|(_, entry)| has_leaf(entry)),
    })
}

/// The container at the end of a way of containers.
fn branch_at<'b, M: LeafMeta>(entry: &'b Branch<M>, way: &[NodeId]) -> Option<&'b Branch<M>> {
    way.iter().try_fold(entry, |branch, node| branch.container(*node).map(|it| &**it))
}

fn branch_at_mut<'b, M: LeafMeta>(entry: &'b mut Branch<M>, way: &[NodeId]) -> &'b mut Branch<M> {
    way.iter().fold(entry, |branch, node| branch.container_mut(*node))
}

fn put_leaf<M: LeafMeta>(entry: &mut Branch<M>, way: &[NodeId], value: Value, meta: M) {
    let Some((leaf, containers)) = way.split_last() else { return };
    branch_at_mut(entry, containers).put_leaf(*leaf, value, meta);
}

/// Adds a list, unless it is empty.
fn put_list<M: LeafMeta>(entry: &mut Branch<M>, way: &[NodeId], entries: &List<M>) {
    let Some((list, containers)) = way.split_last().filter(|_| !entries.is_empty()) else { return };
    branch_at_mut(entry, containers).put(*list, Child::List(entries.clone()));
}
