//! The overlay: the graph as it will be after the operations of a plan.
//!
//! A layer of changes over a [`Graph`] that stays untouched. Only nodes and targets that a plan touches are copied,
//! so planning one change among many costs one change. The keys that it has looked up are its [`ReadSet`], which
//! tells later whether a change of the graph concerns the plan.

mod read_set;
mod support;
mod targets;
mod watchers;

use std::sync::Arc;

use ipnet::IpNet;
use smallvec::SmallVec;

use crate::dependency::{Claim, Dependency, Space, Target};
use crate::graph::{Goal, Graph, NodeIdx, Sources, TargetId};
use crate::key::{FixedMap, Key, hash_of};
use crate::planned_operation::{After, Cause};
use crate::value::SharedValue;
use crate::value_spec::ValueSpec;

pub(crate) use crate::planned_operation::OverlayIdx;
pub(crate) use read_set::{ReadSet, Readings};
pub(crate) use watchers::{Gathering, Notification};

/// Divisor of the extra room reserved for a large change: one entry more than reserved would move all of them.
const SPARE: usize = 32;

/// Index of an overlay target.
pub(crate) type OverlayTargetId = u32;
/// Targets of one value.
pub(crate) type OverlayTargetIds = SmallVec<[OverlayTargetId; 4]>;
/// Nodes that watch a target: few, mostly.
pub(crate) type OverlayIdxs = SmallVec<[OverlayIdx; 4]>;

/// Action that the plan still has to take on a value.
#[derive(Clone, Debug, Default)]
pub(crate) enum PendingAction {
    #[default]
    Nothing,
    Delete,
    /// Changes without a delete: an update, an adoption, a release, or the finding that the value is in place.
    InPlace(InPlaceAction),
    Create,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InPlaceAction {
    Updated,
    Adopted,
    Released,
    /// The system has the value already: recorded as applied, without an operation.
    Found,
}

#[derive(Debug)]
pub(crate) struct OverlayNode {
    pub(crate) idx: Option<NodeIdx>,
    pub(crate) key: Key,
    /// Copied from the graph when a source changes: see [`Overlay::sources_mut`].
    pub(crate) sources: Sources,
    /// True when the change touched a source: the intent may change.
    pub(crate) sources_changed: bool,
    pub(crate) goal: Goal,
    /// True when sources or goal differ from those of the graph.
    pub(crate) changed: bool,
    pub(crate) present: Option<Arc<ValueSpec>>,
    pub(crate) ours: bool,
    /// Value that the system has at this point of the plan.
    pub(crate) current: Option<SharedValue>,
    /// Targets of the goal, in the order of its dependencies.
    pub(crate) need_targets: OverlayTargetIds,
    pub(crate) unmet: u32,
    pub(crate) pending_action: PendingAction,
    pub(crate) cause: Cause,
    /// Last operation on the value.
    pub(crate) op: Option<u32>,
    /// True for an unsupported value on which nothing of the plan bears: see [`Planner::spare_bystanders`].
    ///
    /// [`Planner::spare_bystanders`]: crate::planner::Planner::spare_bystanders
    pub(crate) is_bystander: bool,
    /// Spec of a value that goes by cascade, until its cascade root goes.
    pub(crate) in_cascade: Option<Arc<ValueSpec>>,
    pub(crate) cascade_root: Option<OverlayIdx>,
    /// Absent for most values, which are only created.
    removal: Option<Box<NodeRemoval>>,
}

/// Bookkeeping for a value that goes or changes.
#[derive(Debug, Default)]
pub(crate) struct NodeRemoval {
    /// Values that go together with this one, once it goes.
    pub(crate) cascaded: Vec<OverlayIdx>,
    /// Operations that must complete before those values can go.
    pub(crate) waits_for: After,
    /// True once the dependents of its key are parked.
    pub(crate) dependents_parked: bool,
    /// Targets that will lose this provider.
    pub(crate) going: OverlayTargetIds,
}

impl OverlayNode {
    pub(crate) fn removal_mut(&mut self) -> &mut NodeRemoval {
        self.removal.get_or_insert_default()
    }

    /// Takes the values that go with this one.
    pub(crate) fn take_cascaded(&mut self) -> Vec<OverlayIdx> {
        self.removal.as_mut().map_or_else(Vec::new, |removal| std::mem::take(&mut removal.cascaded))
    }

    pub(crate) fn take_waits_for(&mut self) -> After {
        self.removal
            .as_mut()
            .map_or_else(After::new, |removal| std::mem::take(&mut removal.waits_for))
    }

    /// True for a value that is not present at the end of the plan although it has no unmet dependency.
    pub(crate) fn could_come(&self) -> bool {
        self.goal.spec().is_some() && self.present.is_none() && self.unmet == 0
    }

    /// True for a value that the plan has neither changed nor is about to change.
    pub(crate) fn is_untouched(&self) -> bool {
        matches!(self.pending_action, PendingAction::Nothing)
            && self.op.is_none()
            && self.in_cascade.is_none()
            && !self.changed
            && !self.sources_changed
    }

    /// Targets of this provider that are marked as going.
    pub(crate) fn going(&self) -> &[OverlayTargetId] {
        self.removal.as_ref().map_or(&[], |removal| &removal.going)
    }

    /// True when targets of this provider are marked as going.
    pub(crate) fn is_going(&self) -> bool {
        !self.going().is_empty()
    }
}

/// Target behind an index of the overlay.
#[derive(Debug)]
pub(crate) struct TargetRef {
    pub(crate) target: Target,
    /// Index of the target in the graph.
    pub(crate) graph_id: Option<TargetId>,
}

#[derive(Debug, Default)]
pub(crate) struct OverlayTarget {
    pub(crate) providers: u32,
    pub(crate) dependents: u32,
    /// Providers that will go: nothing new relies on them.
    pub(crate) going: u32,
    /// Nodes with a new goal that needs this target.
    pub(crate) new_watchers: OverlayIdxs,
    /// Absent for most targets, which are only gained.
    removal: Option<Box<TargetRemoval>>,
    /// Operation that created the first provider.
    pub(crate) first_provided_by: Option<u32>,
    /// Operation that created the latest provider: an older provider must not go before it.
    pub(crate) last_provided_by: Option<u32>,
}

/// Bookkeeping for a target that goes.
#[derive(Debug, Default)]
pub(crate) struct TargetRemoval {
    /// Nodes that wait for a provider that stays.
    pub(crate) waiting: OverlayIdxs,
    /// Nodes that cannot change before the dependents are gone.
    pub(crate) blocked: OverlayIdxs,
    /// Operations that removed dependents.
    pub(crate) released_by: SmallVec<[u32; 4]>,
}

impl OverlayTarget {
    /// True when a value of the plan needs the target, or waits for a provider of it.
    pub(crate) fn is_watched(&self) -> bool {
        let waits = |removal: &TargetRemoval| !removal.waiting.is_empty();
        !self.new_watchers.is_empty() || self.removal.as_deref().is_some_and(waits)
    }

    /// True when the target has a provider that stays.
    pub(crate) fn stays(&self) -> bool {
        self.providers > self.going
    }

    pub(crate) fn removal_mut(&mut self) -> &mut TargetRemoval {
        self.removal.get_or_insert_default()
    }

    pub(crate) fn released_by(&self) -> &[u32] {
        self.removal.as_ref().map_or(&[], |removal| &removal.released_by)
    }

    pub(crate) fn take_waiting(&mut self) -> OverlayIdxs {
        self.removal
            .as_mut()
            .map_or_else(OverlayIdxs::new, |removal| std::mem::take(&mut removal.waiting))
    }

    pub(crate) fn take_blocked(&mut self) -> OverlayIdxs {
        let removal = self.removal.as_mut();
        removal.map_or_else(OverlayIdxs::new, |removal| std::mem::take(&mut removal.blocked))
    }
}

#[derive(Debug, Default)]
pub(crate) struct OverlayClaim {
    pub(crate) holders: SmallVec<[OverlayIdx; 1]>,
    /// Side of the holders.
    pub(crate) side: Option<&'static str>,
    pub(crate) waiting: Vec<OverlayIdx>,
    /// Operations by which the last holders released it.
    pub(crate) released_by: SmallVec<[u32; 1]>,
    /// Operations by which holders left while others of their side remain.
    pub(crate) left_by: SmallVec<[u32; 1]>,
}

impl OverlayClaim {
    /// Holder that keeps another value from the identity.
    pub(crate) fn rival(&self, claim: &Claim, oidx: OverlayIdx) -> Option<OverlayIdx> {
        let mut others = self.holders.iter().filter(|&&holder| holder != oidx);
        others.next().filter(|_| !claim.goes_with(self.side)).copied()
    }
}

/// Changes of readiness, collected while counts are updated, for the planner to act on.
#[derive(Debug, Default)]
pub(crate) struct ReadyChanges {
    /// Targets that were gained (true) or lost, and whose watchers have not been notified yet.
    pub(crate) notifications: Vec<(OverlayTargetId, bool)>,
    /// Nodes that may be ready.
    pub(crate) ready: Vec<OverlayIdx>,
    /// Nodes whose dependents may be gone.
    pub(crate) unblocked: Vec<OverlayIdx>,
    /// Present nodes of ours that lost a dependency.
    pub(crate) lost_dependency: Vec<OverlayIdx>,
    /// Reducible nodes that may get more.
    pub(crate) reducible: Vec<OverlayIdx>,
}

impl ReadyChanges {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { notifications, ready, unblocked, lost_dependency, reducible } = self;
        notifications.is_empty()
            && [ready, unblocked, lost_dependency, reducible].iter().all(|list| list.is_empty())
    }
}

/// Overlay of a graph that is at hand.
pub(crate) type Overlay<'g> = OverlayOf<&'g Graph>;

/// Overlay, with the graph or, while the plan is suspended, without.
#[derive(Debug)]
pub(crate) struct OverlayOf<G> {
    pub(crate) graph: G,
    pub(crate) nodes: Vec<OverlayNode>,
    pub(crate) targets: Vec<OverlayTarget>,
    /// Targets by index.
    pub(crate) target_refs: Vec<TargetRef>,
    pub(crate) reads: ReadSet,
    /// Changes in the number of providers of each prefix, relative to the graph.
    prefixes: FixedMap<(Space, IpNet), i64>,
    pub(crate) ready_changes: ReadyChanges,
    /// True once all goals are set: every target that can be needed later is here or in the graph.
    pub(crate) goals_set: bool,
    /// Number of all marks of going providers and of changes.
    going: usize,
    pub(crate) edges: u64,
}

impl<G> OverlayOf<G> {
    pub(crate) fn new(graph: G) -> Self {
        Self {
            graph,
            nodes: Vec::new(),
            targets: Vec::new(),
            target_refs: Vec::new(),
            reads: ReadSet::default(),
            prefixes: FixedMap::default(),
            ready_changes: ReadyChanges::default(),
            goals_set: false,
            going: 0,
            edges: 0,
        }
    }

    /// Same overlay with another reference to the graph, or with none.
    pub(crate) fn with_graph<H>(self, graph: H) -> OverlayOf<H> {
        let Self { graph: _, nodes, targets, target_refs, reads, .. } = self;
        let Self { prefixes, ready_changes, goals_set, going, edges, .. } = self;
        OverlayOf {
            graph,
            nodes,
            targets,
            target_refs,
            reads,
            prefixes,
            ready_changes,
            goals_set,
            going,
            edges,
        }
    }

    pub(crate) fn readings(&self) -> Readings<'_> {
        let reads = &self.reads;
        let nodes = &self.nodes;
        Readings { reads, nodes, target_refs: &self.target_refs }
    }
}

impl Overlay<'_> {
    pub(crate) fn reserve(&mut self, nodes: usize, need_targets: usize) {
        self.nodes.reserve(nodes);
        self.targets.reserve(need_targets);
        self.target_refs.reserve(need_targets);
        self.reads.by_key.expect(nodes);
        self.reads.by_target.expect(need_targets);
    }

    /// Reserves memory for the rest of a change, estimated from the part taken in so far: at least one node and one
    /// target each, and a few more.
    pub(crate) fn reserve_rest(&mut self, taken: usize, left: usize) {
        let rest = |count: usize| {
            let alike = count.max(taken).saturating_mul(left) / taken;
            alike + alike / SPARE + 1
        };
        self.reserve(rest(self.nodes.len()), rest(self.targets.len()));
    }

    /// Reserves memory for this many nodes of the graph.
    pub(crate) fn reserve_known(&mut self, nodes: usize) {
        self.nodes.reserve(nodes);
        self.reads.by_idx.reserve(nodes);
    }

    pub(crate) fn node(&self, oidx: OverlayIdx) -> &OverlayNode {
        &self.nodes[oidx as usize]
    }

    pub(crate) fn node_mut(&mut self, oidx: OverlayIdx) -> &mut OverlayNode {
        &mut self.nodes[oidx as usize]
    }

    pub(crate) fn target(&self, target_id: OverlayTargetId) -> &OverlayTarget {
        &self.targets[target_id as usize]
    }

    pub(crate) fn target_mut(&mut self, target_id: OverlayTargetId) -> &mut OverlayTarget {
        &mut self.targets[target_id as usize]
    }

    /// Node of a key, if the plan has touched it.
    pub(crate) fn touched(&self, key: &Key) -> Option<OverlayIdx> {
        let hash = hash_of(key);
        match self.graph.find_hashed(key, hash) {
            Some(idx) => self.reads.by_idx.get(&idx).copied(),
            None => self.find_added(key, hash),
        }
    }

    /// Node of a key, copied from the graph or empty. True when it is new to the plan.
    pub(crate) fn touch(&mut self, key: &Key) -> (OverlayIdx, bool) {
        let hash = hash_of(key);
        match self.graph.find_hashed(key, hash) {
            Some(idx) => self.touch_idx(idx),
            None => {
                if let Some(oidx) = self.find_added(key, hash) {
                    return (oidx, false);
                }
                let oidx = self.push(OverlayNode::empty(key.clone()));
                let nodes = &self.nodes;
                self.reads.by_key.insert(hash, oidx, |oidx| hash_of(&nodes[oidx as usize].key));
                (oidx, true)
            }
        }
    }

    /// Node of a key that the graph does not have.
    fn find_added(&self, key: &Key, hash: u64) -> Option<OverlayIdx> {
        self.reads.by_key.find(hash, |oidx| self.nodes[oidx as usize].key == *key)
    }

    /// Index of a target that the graph does not have.
    fn find_unknown_target_id(&self, target: &Target, hash: u64) -> Option<OverlayTargetId> {
        self.reads
            .by_target
            .find(hash, |target_id| self.target_refs[target_id as usize].target == *target)
    }

    pub(crate) fn touch_idx(&mut self, idx: NodeIdx) -> (OverlayIdx, bool) {
        match self.reads.by_idx.get(&idx) {
            Some(&oidx) => (oidx, false),
            None => (self.copy(idx), true),
        }
    }

    /// Copies a node of the graph that the plan has not touched yet.
    fn copy(&mut self, idx: NodeIdx) -> OverlayIdx {
        let node = self.graph.node(idx);
        let oidx = self.push(OverlayNode {
            idx: Some(idx),
            goal: node.goal.clone(),
            present: node.present.clone(),
            ours: node.ours,
            current: node.current().cloned(),
            ..OverlayNode::empty(node.key.clone())
        });
        self.reads.by_idx.insert(idx, oidx);
        if let Some(spec) = node.goal.spec() {
            let ids = self.graph.need_targets(idx).iter().map(|&id| Some(id));
            let needs = spec.needs.iter().zip(ids);
            self.open_need_targets(oidx, needs);
        }
        oidx
    }

    fn push(&mut self, node: OverlayNode) -> OverlayIdx {
        self.nodes.push(node);
        to_u32(self.nodes.len() - 1)
    }

    /// Sets another reduction of a value as its goal, which does not change the intent.
    pub(crate) fn set_reduced_goal(&mut self, oidx: OverlayIdx, goal: Goal) {
        let graph = self.graph;
        let node = self.node_mut(oidx);
        if let (false, Some(idx)) = (node.changed, node.idx) {
            node.sources.clone_from(&graph.node(idx).sources);
        }
        self.set_goal(oidx, goal);
    }

    /// Sources of a node, to be changed.
    pub(crate) fn sources_mut(&mut self, oidx: OverlayIdx) -> &mut Sources {
        let graph = self.graph;
        let node = self.node_mut(oidx);
        if !std::mem::replace(&mut node.sources_changed, true)
            && !node.changed
            && let Some(idx) = node.idx
        {
            node.sources.clone_from(&graph.node(idx).sources);
        }
        &mut node.sources
    }

    /// Gives a node another goal.
    pub(crate) fn set_goal(&mut self, oidx: OverlayIdx, goal: Goal) {
        let node = self.node_mut(oidx);
        node.goal = goal;
        node.changed = true;
        let Some(spec) = node.goal.spec().cloned() else {
            let node = self.node_mut(oidx);
            node.unmet = 0;
            node.need_targets.clear();
            return;
        };
        let without_id = spec.needs.iter().map(|need| (need, None));
        self.open_need_targets(oidx, without_id);
        for at in 0..spec.needs.len() {
            let target_id = self.node(oidx).need_targets[at];
            self.list(target_id, oidx);
        }
        for need in spec.full().iter().flat_map(|(_, full)| &full.needs) {
            let target_id = self.target_id(&need.target);
            self.list(target_id, oidx);
        }
    }

    /// Adds a node with a new goal to the watchers of a target.
    fn list(&mut self, target_id: OverlayTargetId, oidx: OverlayIdx) {
        let new_watchers = &mut self.target_mut(target_id).new_watchers;
        if new_watchers.last() != Some(&oidx) {
            new_watchers.push(oidx);
        }
    }

    /// Finds the targets of a goal (some may be known already), and counts those without a provider.
    fn open_need_targets<'t>(
        &mut self,
        oidx: OverlayIdx,
        needs: impl Iterator<Item = (&'t Dependency, Option<TargetId>)>,
    ) {
        let mut need_targets = OverlayTargetIds::new();
        let mut unmet = 0;
        for (need, graph_id) in needs {
            let target_id = match graph_id {
                Some(graph_id) => self.known_target_id(graph_id, &need.target),
                None => self.target_id(&need.target),
            };
            unmet += u32::from(self.target(target_id).providers == 0);
            need_targets.push(target_id);
        }
        let node = self.node_mut(oidx);
        node.unmet = unmet;
        node.need_targets = need_targets;
    }

    /// Targets of these dependencies. The targets of the goal are at hand.
    fn target_ids_of(&mut self, oidx: OverlayIdx, spec: &Arc<ValueSpec>) -> OverlayTargetIds {
        let node = self.node(oidx);
        if node.goal.spec().is_some_and(|goal| Arc::ptr_eq(goal, spec)) {
            return OverlayTargetIds::from_slice(&node.need_targets);
        }
        spec.needs.iter().map(|need| self.target_id(&need.target)).collect()
    }

    /// Sets the present value of a node and updates all counts. Changes of readiness are left in
    /// [`Overlay::ready_changes`].
    pub(crate) fn set_present(
        &mut self,
        oidx: OverlayIdx,
        present: Option<Arc<ValueSpec>>,
        ours: bool,
        by: Option<u32>,
    ) {
        let key = self.node(oidx).key.clone();
        let node = self.node_mut(oidx);
        let old = node.present.take();
        let was_ours = node.ours;
        let (gained, lost) = self.provider_changes(&key, old.as_deref(), present.as_deref());
        self.count_prefixes(old.as_deref(), -1);
        self.count_prefixes(present.as_deref(), 1);
        let node = self.node_mut(oidx);
        node.present = present.clone();
        node.ours = ours;
        self.move_dependents(oidx, old.filter(|_| was_ours), -1, by);
        self.move_dependents(oidx, present.filter(|_| ours), 1, by);
        for target_id in gained {
            self.add_provider(target_id, by);
        }
        for target_id in lost {
            self.remove_provider(target_id);
        }
    }
}

impl OverlayNode {
    fn empty(key: Key) -> Self {
        Self {
            idx: None,
            key,
            sources: Sources::new(),
            sources_changed: false,
            goal: Goal::Nothing,
            changed: false,
            present: None,
            ours: false,
            current: None,
            need_targets: OverlayTargetIds::new(),
            unmet: 0,
            pending_action: PendingAction::Nothing,
            cause: Cause::Requested,
            op: None,
            is_bystander: false,
            in_cascade: None,
            cascade_root: None,
            removal: None,
        }
    }
}

pub(crate) fn to_u32(index: usize) -> OverlayIdx {
    OverlayIdx::try_from(index).expect("memory ends before 2^32 entries")
}
