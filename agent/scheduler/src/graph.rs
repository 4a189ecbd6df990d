//! The graph: planes of every key, and the counters that make readiness a comparison with zero.
//!
//! Every dependency is on a [`Target`]. A [`TargetState`] counts the present values that provide a target and the
//! dependencies on it, and lists the nodes that watch it. A node counts the targets of its goal without a provider:
//!
//! ```text
//!           need_targets                       watchers
//!   Node a -------------> TargetState `b up' ------------> Node a
//!   unmet: 1              providers: 0                     unmet: 1
//!   (not ready)           dependents: 0
//!
//!   a provider of `b up' appears: providers 0 -> 1, so each watcher's unmet goes down by one;
//!   `a' has unmet == 0, is marked dirty, and the next plan creates it
//! ```
//!
//! The list of watchers is walked only when `providers` becomes 1 or 0, so a change costs its own offers plus the
//! watchers of targets that were gained or lost; those of a target that very many need are updated in portions
//! (`watcher_updates`). Only methods of the graph change what a plan may read, and each method writes an entry of the
//! [`ChangeLog`]: planes of nodes, pre-images, counts and watchers of targets. Invariants, which
//! [`Engine::audit`](crate::Engine::audit) recomputes: `unmet` of a node is the number of its `need_targets` with no
//! providers; `providers` counts every present value, `dependents` only values of ours.

mod change_log;
mod drift;
mod in_place;
mod node;
mod node_set;
mod readiness;
mod retry_triggers;
mod target_table;
mod unsupported;
mod watcher_updates;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use node_set::NodeSet;
use smallvec::SmallVec;
use target_table::TargetTable;
use unsupported::Unsupported;
use watcher_updates::WatcherUpdates;

use self::retry_triggers::RetryTriggers;
use crate::arena::{Arena, Slots};
use crate::dependency::{Claim, Facet, Target};
use crate::descriptor::{Registry, catch_panic};
use crate::drift_policy::DriftPolicy;
use crate::key::{FixedMap, Key, KindId, Kinds, hash_of};
use crate::operation::Action;
use crate::planned_operation::PlannedOperation;
use crate::status::Counters;
use crate::targets::{Addresses, PrefixTable};
use crate::value::{SharedValue, same};
use crate::value_spec::ValueSpec;

pub(crate) use change_log::{ChangeLog, GraphChange};
pub(crate) use node::{Goal, Node, Source, Sources};
pub(crate) use target_table::{TargetId, TargetIds, TargetState};

/// Slot in the arena of nodes.
pub(crate) type NodeIdx = u32;

/// Shards of an index of the graph: with a million values, one of them has some thousand entries, and grows within a millisecond.
const SHARDS: usize = 256;

/// Stale entries that a list of watchers may hold, besides half of its length, before it is cleaned.
const STALE_WATCHERS: u32 = 16;

/// Kind of an object, and the number by which the system knows it under whatever key.
pub(crate) type ObjectIdentity = (KindId, u64);

/// Adopted object with a pre-image.
#[derive(Debug)]
pub(crate) struct AdoptedObject {
    /// Key of the pre-image.
    pub(crate) key: Key,
    /// True once the object was seen under this key. A number may be that of another object after a restart of the system.
    pub(crate) is_seen: bool,
}

#[derive(Debug, Default)]
struct ClaimState {
    holders: SmallVec<[NodeIdx; 1]>,
    /// Side of the holders.
    side: Option<&'static str>,
    /// Values whose goal claims this identity; may be stale.
    claimants: Vec<NodeIdx>,
}

impl ClaimState {
    /// Holder that keeps another value from the identity.
    fn rival(&self, claim: &Claim, idx: NodeIdx) -> Option<NodeIdx> {
        let mut others = self.holders.iter().filter(|&&holder| holder != idx);
        others.next().filter(|_| !claim.goes_with(self.side)).copied()
    }

    /// Claimants other than this value; may be stale.
    fn other_claimants(&self, idx: NodeIdx) -> impl Iterator<Item = NodeIdx> {
        self.claimants.iter().copied().filter(move |&claimant| claimant != idx)
    }

    /// Notes a claimant. A value of the side of the holders may come and go any number of times while others hold the identity.
    fn add_claimant(&mut self, idx: NodeIdx) {
        if self.claimants.len() == self.claimants.capacity() {
            self.claimants.sort_unstable();
            self.claimants.dedup();
        }
        self.claimants.push(idx);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) registry: Arc<Registry>,
    nodes: Arena<Node>,
    free: Vec<NodeIdx>,
    index: Slots<SHARDS>,
    targets: TargetTable,
    pub(crate) watcher_updates: WatcherUpdates,
    /// Kinds of all keys that ever were a target. Keys of other kinds need not be looked up.
    pub(crate) target_kinds: Kinds,
    claims: FixedMap<Facet, ClaimState>,
    /// Addresses of the `Covering` targets.
    pub(crate) addresses: Addresses,
    /// Number of providers of each prefix.
    prefixes: PrefixTable<u32>,
    /// Present keys of the kinds with `Under` dependencies.
    present_keys: FixedMap<KindId, BTreeSet<Key>>,
    /// Pre-images of adopted objects.
    pub(crate) restores: BTreeMap<Key, SharedValue>,
    /// Places of pre-images whose objects the system numbers.
    pub(crate) adopted: FixedMap<ObjectIdentity, AdoptedObject>,
    /// Values that are intended and not in place, or reduced, or have an error.
    pub(crate) unsettled: NodeSet,
    pub(crate) unsupported: Unsupported,
    /// Values to be planned for. Values that are being planned for are marked as well, and not listed.
    pub(crate) dirty: Vec<NodeIdx>,
    /// Present values of ours that lost a dependency, to be checked.
    pub(crate) lost_dependency: Vec<NodeIdx>,
    /// Values that lost it by a change of ours: the transaction may bring it back.
    pub(crate) lost_by_us: Vec<NodeIdx>,
    /// True while a change of ours is recorded, rather than one that was observed.
    is_own_change: bool,
    pub(crate) retry_triggers: RetryTriggers,
    /// Drift policies by key prefix.
    pub(crate) policies: FixedMap<Key, DriftPolicy>,
    /// Prefixes of keys whose drift is reported, whatever the policies say.
    pub(crate) reported: BTreeSet<Key>,
    /// Values with other unmet dependencies than before, whose status has to be reported.
    pub(crate) reason_changed: Vec<NodeIdx>,
    /// Changes of anything that a plan relies on.
    pub(crate) log: ChangeLog,
    /// Number of changes of what values there are, what they provide, what they need, and whether they have failed.
    pub(crate) dependency_version: u64,
    pub(crate) counters: Counters,
}

impl Graph {
    pub(crate) fn new(registry: Arc<Registry>) -> Self {
        Self { registry, ..Self::default() }
    }

    pub(crate) fn find(&self, key: &Key) -> Option<NodeIdx> {
        self.find_hashed(key, hash_of(key))
    }

    pub(crate) fn find_hashed(&self, key: &Key, hash: u64) -> Option<NodeIdx> {
        self.index.find(hash, |idx| self.nodes[idx].key == *key)
    }

    pub(crate) fn node(&self, idx: NodeIdx) -> &Node {
        &self.nodes[idx]
    }

    /// Mutable access for changes that no index and no plan depends on; all others have a method here.
    pub(crate) fn node_mut(&mut self, idx: NodeIdx) -> &mut Node {
        &mut self.nodes[idx]
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeIdx, &Node)> {
        (0..).zip(self.nodes.iter()).filter(|(_, node)| node.used)
    }

    /// Number of slots for nodes, used or free.
    pub(crate) fn slots(&self) -> u32 {
        u32::try_from(self.nodes.len()).expect("memory ends before 2^32 slots")
    }

    /// Nodes in a range of slots.
    pub(crate) fn nodes_in(&self, slots: Range<u32>) -> impl Iterator<Item = (NodeIdx, &Node)> {
        slots.map(|idx| (idx, &self.nodes[idx])).filter(|(_, node)| node.used)
    }

    /// Expects this many more nodes and targets: their tables grow to that size, a piece at a time.
    pub(crate) fn expect(&mut self, nodes: usize, targets: usize) {
        self.targets.expect(targets);
        self.index.expect(nodes);
    }

    pub(crate) fn intern(&mut self, key: &Key) -> NodeIdx {
        let hash = hash_of(key);
        if let Some(idx) = self.find_hashed(key, hash) {
            return idx;
        }
        let node = Node::new(key.clone());
        let idx = match self.free.pop() {
            Some(idx) => {
                self.nodes[idx] = node;
                idx
            }
            None => self.nodes.push(node),
        };
        let nodes = &self.nodes;
        self.index.insert(hash, idx, |idx| hash_of(&nodes[idx].key));
        self.log.push(GraphChange::Node(idx));
        idx
    }

    /// Sets the value that our last successful operation set.
    pub(crate) fn set_applied(&mut self, idx: NodeIdx, applied: Option<SharedValue>) {
        self.log.push(GraphChange::Node(idx));
        self.nodes[idx].applied = applied;
    }

    /// Sets the value that the system showed last.
    pub(crate) fn set_observed(&mut self, idx: NodeIdx, observed: Option<SharedValue>) {
        self.log.push(GraphChange::Node(idx));
        self.nodes[idx].observed = observed;
    }

    fn note_adopted(&mut self, key: &Key, identity: ObjectIdentity) {
        let observed = self.find(key).and_then(|idx| self.node(idx).observed.as_ref());
        let is_there = observed.and_then(|it| self.identity(key, it)) == Some(identity);
        let known = self.adopted.get(&identity);
        let is_seen = is_there || known.is_some_and(|known| known.is_seen && known.key == *key);
        self.adopted.insert(identity, AdoptedObject { key: key.clone(), is_seen });
    }

    /// Identity of the object that a value of this key shows.
    pub(crate) fn identity(&self, key: &Key, value: &SharedValue) -> Option<ObjectIdentity> {
        let descriptor = self.registry.descriptor(key.kind())?;
        let number = catch_panic(|| descriptor.identity(&**value)).ok().flatten()?;
        Some((key.kind(), number))
    }

    /// True when a value shows the object whose pre-image is under this key.
    pub(crate) fn is_same_object(&self, key: &Key, observed: &SharedValue) -> bool {
        let descriptor = self.registry.descriptor(key.kind());
        let before = self.restores.get(key).zip(descriptor);
        before.is_some_and(|(before, descriptor)| {
            catch_panic(|| descriptor.is_same_object(&**before, &**observed)).unwrap_or(false)
        })
    }

    /// A value as that of another key.
    pub(crate) fn rekeyed(&self, value: &SharedValue, key: &Key) -> Option<SharedValue> {
        let descriptor = self.registry.descriptor(key.kind())?;
        catch_panic(|| descriptor.rekeyed(&**value, key)).ok().flatten()
    }

    /// Sets the pre-image of an adopted object. True when that is a change.
    pub(crate) fn set_restore(&mut self, key: &Key, restore: Option<SharedValue>) -> bool {
        let identity = restore.as_ref().and_then(|restore| self.identity(key, restore));
        let before = match restore {
            Some(restore) => self.restores.insert(key.clone(), restore),
            None => self.restores.remove(key),
        };
        let changed = identity.is_some() || self.restores.contains_key(key) || before.is_some();
        let of_before = before.and_then(|before| self.identity(key, &before));
        if let Some(gone) = of_before.filter(|_| of_before != identity)
            && self.adopted.get(&gone).is_some_and(|adopted| adopted.key == *key)
        {
            self.adopted.remove(&gone);
        }
        if let Some(identity) = identity {
            self.note_adopted(key, identity);
        }
        match self.find(key) {
            Some(idx) if changed => self.log.push(GraphChange::Node(idx)),
            None if changed => self.log.forget(), // plans find pre-images by key, changes by node
            _ => {}
        }
        changed
    }

    /// Drops a node that has nothing in any plane.
    pub(crate) fn forget_if_empty(&mut self, idx: NodeIdx) {
        let node = &mut self.nodes[idx];
        if !node.sources.is_empty() {
            return;
        }
        let empty = node.applied.is_none() && node.observed.is_none();
        let in_use = node.running_op().is_some() || node.owner().is_some() || node.is_dirty;
        if !empty || node.present.is_some() || in_use || !node.used {
            return;
        }
        self.unregister_retry_triggers(idx);
        let node = &mut self.nodes[idx];
        node.used = false;
        node.retry = None;
        self.log.push(GraphChange::Dropped(idx, node.key.clone()));
        let node = &self.nodes[idx];
        self.index.remove(hash_of(&node.key), idx);
        self.unsettled.remove(idx);
        self.unsupported.remove(idx);
        self.free.push(idx);
    }

    /// Updates the indexes of values after a change of a plane or of an error.
    pub(crate) fn update_unsettled(&mut self, idx: NodeIdx) {
        let node = self.node(idx);
        let drifted = || node.goal.spec().is_some_and(|goal| !node.is_present_as(goal));
        let unsettled = node.goal.value().is_some() && (!node.in_place() || drifted())
            || node.goal.is_partial()
            || node.retry.as_ref().is_some_and(|t| t.error.is_some());
        let has_changed =
            if unsettled { self.unsettled.insert(idx) } else { self.unsettled.remove(idx) };
        self.dependency_version += u64::from(has_changed);
        self.update_unsupported(idx);
    }

    /// True when the present providers allow another reduction of a reducible value than its goal.
    pub(crate) fn is_reduction_stale(&self, idx: NodeIdx) -> bool {
        let node = self.node(idx);
        let Some(full) = node.goal.reducible() else { return false };
        let missing = full.1.needs.iter().map(|need| &need.target);
        let missing: Vec<Target> =
            missing.filter(|it| self.provider_count(it) == 0).cloned().collect();
        let goal = node.goal.value();
        if missing.is_empty() {
            return !same(goal, Some(&full.0));
        }
        let part = ValueSpec::reduced(&self.registry, &node.key, full, &missing);
        let part = part
            .filter(|(_, part)| part.needs.iter().all(|it| self.provider_count(&it.target) > 0));
        part.is_some_and(|(value, _)| !same(goal, Some(&value)))
    }

    /// Marks a value to be planned for, unless an operation on it is in flight.
    pub(crate) fn mark_dirty(&mut self, idx: NodeIdx) {
        let node = &mut self.nodes[idx];
        node.dirty_in_flight = node.running_op().is_some();
        if node.used && !node.is_dirty && node.running_op().is_none() {
            node.is_dirty = true;
            self.dirty.push(idx);
        }
    }

    /// Lets a value be marked again that was taken out of the list of dirty ones.
    pub(crate) fn unmark_dirty(&mut self, idx: NodeIdx) {
        self.nodes[idx].is_dirty = false;
    }

    pub(crate) fn target_state(&self, target: &Target) -> Option<&TargetState> {
        self.targets.get(target)
    }

    pub(crate) fn find_target(&self, target: &Target, hash: u64) -> Option<TargetId> {
        self.targets.find_hashed(target, hash)
    }

    /// Target in a slot, unless it has been closed.
    pub(crate) fn target_in(&self, id: TargetId) -> Option<&Target> {
        self.targets.entry(id).map(|(target, _)| target)
    }

    pub(crate) fn target_at(&self, id: TargetId) -> &TargetState {
        self.targets.of(id)
    }

    /// Targets of the goal, in the order of its dependencies.
    pub(crate) fn need_targets(&self, idx: NodeIdx) -> &[TargetId] {
        &self.node(idx).need_targets
    }

    pub(crate) fn targets(&self) -> impl Iterator<Item = (&Target, &TargetState)> {
        self.targets.iter()
    }

    pub(crate) fn is_watching(&self, target: &Target, idx: NodeIdx) -> bool {
        self.target_state(target).is_some_and(|state| state.watchers.contains(&idx))
    }

    /// True when another value holds an identity that this one claims.
    pub(crate) fn is_contended(&self, idx: NodeIdx) -> bool {
        let claims = self.node(idx).goal.spec().map_or(&[][..], |spec| spec.claims());
        claims.iter().any(|claim| self.rival(claim, idx).is_some())
    }

    /// Number of present providers of a target, whether or not it has a state yet.
    pub(crate) fn provider_count(&self, target: &Target) -> u32 {
        self.target_state(target).map_or_else(|| self.count(target), |state| state.providers)
    }

    /// Number of providers of a target without a state, counted from the indexes.
    pub(crate) fn count(&self, target: &Target) -> u32 {
        match target {
            Target::Exact(key) => {
                self.find(key).map_or(0, |idx| u32::from(self.node(idx).present.is_some()))
            }
            Target::AnyOf(_) | Target::Whole(_) => 0,
            Target::Under(prefix) => self.count_under(prefix),
            Target::Covering { space, address } => self.count_covering(*space, *address),
        }
    }

    /// True when there are `Under` dependencies on keys of this kind.
    pub(crate) fn has_under_targets(&self, kind: KindId) -> bool {
        self.present_keys.contains_key(&kind)
    }

    /// Holders of an identity, with their side.
    pub(crate) fn holders(&self, identity: &Facet) -> (&[NodeIdx], Option<&'static str>) {
        let claimed = self.claims.get(identity);
        claimed.map_or((&[], None), |claimed| (&claimed.holders, claimed.side))
    }

    /// Another value that holds a claimed identity, and with which this one cannot hold it.
    pub(crate) fn rival(&self, claim: &Claim, idx: NodeIdx) -> Option<NodeIdx> {
        self.claims.get(&claim.identity).and_then(|claimed| claimed.rival(claim, idx))
    }

    /// True when this value holds an identity, or may get it when its holders go.
    pub(crate) fn is_claimant(&self, claim: &Claim, idx: NodeIdx) -> bool {
        let claimed = self.claims.get(&claim.identity);
        claimed.is_some_and(|it| it.holders.contains(&idx) || it.claimants.contains(&idx))
    }

    /// Sets the sources of a node and the goal that follows from them. Some of the targets of the goal may be `known`.
    pub(crate) fn set_goal(
        &mut self,
        idx: NodeIdx,
        sources: Sources,
        goal: Goal,
        target_ids: &[Option<TargetId>],
    ) {
        self.log.push(GraphChange::Node(idx));
        self.dependency_version += 1;
        let before = self.watched_specs(idx);
        let node = &mut self.nodes[idx];
        node.sources = sources;
        node.goal = goal;
        self.watch_goal(idx, &before, target_ids);
        self.unwatch(idx, &before);
        self.nodes[idx].unmet = self.recount_unmet(idx);
        let spec = self.node(idx).goal.spec().cloned();
        for claim in spec.iter().flat_map(|spec| spec.claims()) {
            self.claims.entry(claim.identity.clone()).or_default().add_claimant(idx);
        }
        self.update_unsettled(idx);
    }

    /// Sets the value that the system has under a key, as others depend on it.
    pub(crate) fn set_present(
        &mut self,
        idx: NodeIdx,
        present: Option<Arc<ValueSpec>>,
        ours: bool,
    ) {
        let node = self.node(idx);
        let unchanged = match (&node.present, &present) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) && node.ours == ours,
            _ => false,
        };
        if unchanged {
            return;
        }
        let is_alike = match (&node.present, &present) {
            (Some(a), Some(b)) => a.is_alike(b) && node.ours == ours,
            _ => false,
        };
        // A value that becomes as intended watches the same targets as before.
        let listed = {
            let pointers =
                |all: [Option<&Arc<ValueSpec>>; 2]| all.map(|spec| spec.map(Arc::as_ptr));
            let before = pointers(node.watching_specs());
            let after = pointers(watching_specs(
                node.goal.requested_spec(),
                present.as_ref().filter(|_| ours),
            ));
            before == after || before == [after[1], after[0]]
        };
        let before = if listed { None } else { Some(self.watched_specs(idx)) };
        let parked = self.parked_by(idx);
        self.dependency_version += u64::from(!is_alike);
        self.log.push(GraphChange::Node(idx));
        let node = &mut self.nodes[idx];
        let old = std::mem::replace(&mut node.present, present.clone());
        let was_ours = std::mem::replace(&mut node.ours, ours && present.is_some());
        if let Some(before) = before {
            self.watch_present(idx, &before);
        }
        self.count_dependents_of(
            idx,
            old.as_ref().filter(|_| was_ours),
            present.as_ref().filter(|_| ours),
        );
        self.count_offers(idx, old.as_deref(), present.as_deref());
        self.trigger_retries(idx, old.as_deref(), present.as_deref());
        self.update_unsettled(idx);
        self.mark_ready_dirty(&parked);
    }

    /// Like [`Graph::set_present`], for what an operation or a plan has made of the value.
    pub(crate) fn set_present_by_us(
        &mut self,
        idx: NodeIdx,
        present: Option<Arc<ValueSpec>>,
        ours: bool,
    ) {
        self.is_own_change = true;
        self.set_present(idx, present, ours);
        self.is_own_change = false;
    }

    /// Watchers that may wait for a value to go that could not be deleted: once it goes, others may provide its
    /// targets.
    fn parked_by(&mut self, idx: NodeIdx) -> Vec<NodeIdx> {
        let node = self.node(idx);
        let failed = node.has_failed();
        if failed && node.present.is_some() {
            self.watchers_of_new_offers(idx, None)
        } else {
            Vec::new()
        }
    }

    /// True when the system has what was requested. A panic of the descriptor counts as false.
    pub(crate) fn satisfied(
        &self,
        key: &Key,
        expected: &SharedValue,
        observed: &SharedValue,
    ) -> bool {
        let Some(descriptor) = self.registry.descriptor(key.kind()) else { return false };
        Arc::ptr_eq(expected, observed)
            || catch_panic(|| descriptor.satisfied_by(&**expected, &**observed)).unwrap_or(false)
    }

    /// Value that the system is to show after an operation: the requested one, with restored attributes.
    pub(crate) fn outcome<'o>(&self, op: &'o PlannedOperation) -> Option<Cow<'o, SharedValue>> {
        let new = op.new.as_ref()?;
        let back = match op.action {
            Action::Update if op.is_left() => None,
            Action::Update => {
                op.applied().and_then(|applied| self.restoring_update(&op.key, applied, new))
            }
            Action::Release => op.old.as_ref().and_then(|old| {
                let descriptor = self.registry.descriptor(op.key.kind())?;
                catch_panic(|| descriptor.after_release(&**old, &**new)).ok().flatten()
            }),
            _ => None,
        };
        Some(back.map_or(Cow::Borrowed(new), Cow::Owned))
    }

    /// True for an update that gives attributes back.
    pub(crate) fn restores_in(&self, op: &PlannedOperation) -> bool {
        matches!(self.outcome(op), Some(Cow::Owned(_)))
    }

    /// Value that an update from `applied` to `new` has to send to restore attributes, if there are any.
    pub(crate) fn restoring_update(
        &self,
        key: &Key,
        applied: &SharedValue,
        new: &SharedValue,
    ) -> Option<SharedValue> {
        if Arc::ptr_eq(applied, new) {
            return None;
        }
        let descriptor = self.registry.descriptor(key.kind())?;
        let before = self.restores.get(key).map(|before| &**before);
        catch_panic(|| descriptor.restoring_update(&**applied, &**new, before)).ok().flatten()
    }

    /// True when an observed value carries our mark. A panic of the descriptor counts as false.
    pub(crate) fn owned(&self, key: &Key, observed: &SharedValue) -> bool {
        let Some(descriptor) = self.registry.descriptor(key.kind()) else { return false };
        catch_panic(|| descriptor.owned(&**observed)).unwrap_or(false)
    }

    /// True when the system has a value under a key that we created, or may remove because of its mark.
    pub(crate) fn is_ours(&self, idx: NodeIdx) -> bool {
        let node = self.node(idx);
        node.present.is_some() && self.made_or_marked(&node.key, node.ours, node.current())
    }

    /// True for a value that we created, or whose current form carries our mark.
    pub(crate) fn made_or_marked(
        &self,
        key: &Key,
        is_made: bool,
        current: Option<&SharedValue>,
    ) -> bool {
        is_made || current.is_some_and(|current| self.owned(key, current))
    }

    pub(crate) fn label(&self, key: &Key) -> String {
        let node = self.find(key).map(|idx| self.node(idx));
        let value = node.and_then(|node| {
            node.goal.value().or(node.applied.as_ref()).or(node.observed.as_ref())
        });
        self.registry.label(key, value.map(|value| &**value))
    }

    /// Unmet dependencies of the requested value: targets and labels.
    pub(crate) fn unmet(&self, idx: NodeIdx) -> impl Iterator<Item = (&Target, &str)> {
        let needs = self.node(idx).goal.needs();
        let unmet = needs.iter().filter(|need| self.provider_count(&need.target) == 0);
        unmet.map(|need| (&need.target, need.label.as_str()))
    }
}

/// Specs of a goal and of a present value of ours, without duplicates.
fn watching_specs<'t>(
    goal: Option<&'t Arc<ValueSpec>>,
    present: Option<&'t Arc<ValueSpec>>,
) -> [Option<&'t Arc<ValueSpec>>; 2] {
    [goal.filter(|goal| !present.is_some_and(|present| Arc::ptr_eq(goal, present))), present]
}

/// Difference lists, mostly short: without an allocation.
pub(crate) type Few<'t, T> = SmallVec<[&'t T; 4]>;

/// Items only `new` has, and items only `old` has; both ascending.
pub(crate) fn difference<'t, T: Ord>(old: &'t [T], new: &'t [T]) -> (Few<'t, T>, Few<'t, T>) {
    let mut gained = Few::new();
    let mut lost = Few::new();
    if old.is_empty() && new.is_empty() {
        return (gained, lost);
    }
    let mut old = old.iter().peekable();
    let mut new = new.iter().peekable();
    loop {
        match (old.peek(), new.peek()) {
            (None, None) => return (gained, lost),
            (Some(_), None) => lost.extend(old.next()),
            (None, Some(_)) => gained.extend(new.next()),
            (Some(a), Some(b)) => match a.cmp(b) {
                std::cmp::Ordering::Less => lost.extend(old.next()),
                std::cmp::Ordering::Greater => gained.extend(new.next()),
                std::cmp::Ordering::Equal => {
                    old.next();
                    new.next();
                }
            },
        }
    }
}
