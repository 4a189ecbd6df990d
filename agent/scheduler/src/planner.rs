//! The planner: from a change of intent, and from dirty values, to ordered operations.
//!
//! The planner simulates the change on an [`Overlay`]. Each touched value gets a [`PendingAction`]; values whose action
//! is allowed are in the `ready` list of its rank. A round takes the lowest rank that is not empty, ascending by key,
//! carries its actions out on the overlay, and updates the counts of providers and dependents there, which makes other
//! values ready:
//!
//! ```text
//! rank 0  FOUND      value in place already: counted as a dependent before anything is deleted
//! rank 1  DELETES    allowed when no dependent would be without a provider
//! rank 2  CHANGES    in place; allowed when new dependencies are met and lost offers are unused
//! rank 3  CREATES    allowed when all dependencies are met by providers that stay
//! rank 4  LAST       deletes of kinds that are removed after others are created
//!            |
//!            | nothing is ready
//!            v
//!         resolve    park dependents, reduce, give up a change, break a cycle, drop reservations;
//!                    nothing to decide: the plan is complete
//! ```
//!
//! All of this is work in small units, on a stack of [`tasks`], so that [`Planning`] can pause after any of them. A change
//! goes through the stages of [`tasks::Stage`]: its goals are set before the first action is chosen, and the rounds are
//! simulated before the plan is refused or complete.
//!
//! Invariant: no operation of the plan leaves a value without a provider for one of its dependencies. Deletes come
//! before creates, so that identities and keys are free when they are needed, except for kinds whose values replace each
//! other without a gap ([`Descriptor::removed_last`](crate::Descriptor::removed_last)); a value that could not be created is
//! pending. A value goes and returns a few times at most, for each decision parks, reduces or gives up values for good;
//! `ROUNDS_PER_VALUE` bounds the rounds should a case be overlooked.

mod cascade;
mod claims;
mod hashing;
mod intent;
mod operations;
mod planning;
mod reduction;
mod resolve;
mod rounds;
mod tasks;
mod unsupported;
mod validation;

use std::collections::BTreeMap;
use std::sync::Arc;

use tasks::{Stage, Task};

use crate::dependency::Facet;
use crate::descriptor::{ChangeMethod, catch_panic};
use crate::graph::{Goal, Graph, NodeIdx};
use crate::key::{FixedMap, Key};
use crate::operation::Action;
use crate::overlay::{InPlaceAction, Overlay, OverlayTargetIds, PendingAction};
use crate::plan::Unmet;
use crate::planned_operation::{Cause, OverlayIdx, PlannedOperation};
use crate::value::SharedValue;
use crate::value_spec::ValueSpec;

pub use planning::Planning;
pub(crate) use planning::{goals, plan_for};

/// Ranks of ready values. Values found in place come first, so that they count as dependents of the rest.
const FOUND: usize = 0;
const DELETES: usize = 1;
const CHANGES: usize = 2;
const CREATES: usize = 3;
const LAST: usize = 4;
/// Number of ranks.
const RANKS: usize = 5;

/// Planner of a graph that is at hand.
#[derive(Debug)]
pub(crate) struct Planner<'g> {
    pub(crate) overlay: Overlay<'g>,
    pub(crate) state: PlannerState,
}

/// State of a planner, apart from its overlay: it names nothing of the graph, and is kept while the plan is suspended.
#[derive(Debug)]
pub(crate) struct PlannerState {
    ready: [Vec<OverlayIdx>; RANKS],
    /// Empty list that is swapped with the ready changes, so that neither is allocated again.
    spare: Vec<OverlayIdx>,
    /// Deletes and changes that wait for dependents to go, by key.
    pub(crate) blocked_by_dependents: BTreeMap<Key, OverlayIdx>,
    /// Deletes and changes whose dependents are all scheduled to go already.
    pub(crate) blocked_after_parking: BTreeMap<Key, OverlayIdx>,
    /// Changes with an unmet dependency.
    pub(crate) change_missing_dependency: BTreeMap<Key, OverlayIdx>,
    /// Reducible values that may get another reduction than their goal.
    reducible_candidates: BTreeMap<Key, OverlayIdx>,
    /// Cascades of the values that go, with their roots.
    cascade_under: FixedMap<Key, OverlayIdx>,
    cascade_of: FixedMap<Facet, OverlayIdx>,
    pub(crate) operations: Vec<PlannedOperation>,
    /// Values in place that only have to be recorded as applied.
    pub(crate) found: Vec<OverlayIdx>,
    pub(crate) restores: Vec<(Key, SharedValue)>,
    /// Identities reserved for the values that held them before a change that is being undone.
    reserved_claims: FixedMap<Facet, Vec<Key>>,
    /// Values that wait because an identity is reserved for another one.
    yielding: BTreeMap<Key, OverlayIdx>,
    /// Number of parts that descriptors listed.
    pub(crate) listed: u64,
    /// Values that will wait, with their unmet dependencies, ascending by key at the end.
    waiting: Vec<(OverlayIdx, Unmet)>,
    /// Values whose surroundings changed.
    revisits: Vec<NodeIdx>,
    /// Places of the changes: sorted by key, then in the order in which they are applied.
    order: Vec<u32>,
    /// Values that were intended before, for each change.
    before: Vec<Option<SharedValue>>,
    /// Changes that are a unit of work.
    portion: usize,
    /// Number of rounds so far.
    rounds: usize,
    /// True when all values of the change are validated.
    pub(crate) validated: bool,
    /// Work to be done, the last one first: see [`tasks`].
    tasks: Vec<Task>,
    /// Work that follows from the present unit, in order.
    follow_ups: Vec<Task>,
    /// True with several transports. With one, the order of the plan is enough, and operations need no predecessors.
    transports: bool,
}

impl PlannerState {
    fn new(graph: &Graph) -> Self {
        Self {
            ready: Default::default(),
            spare: Vec::new(),
            blocked_by_dependents: BTreeMap::new(),
            blocked_after_parking: BTreeMap::new(),
            change_missing_dependency: BTreeMap::new(),
            reducible_candidates: BTreeMap::new(),
            cascade_under: FixedMap::default(),
            cascade_of: FixedMap::default(),
            operations: Vec::new(),
            found: Vec::new(),
            restores: Vec::new(),
            reserved_claims: FixedMap::default(),
            yielding: BTreeMap::new(),
            listed: 0,
            waiting: Vec::new(),
            revisits: Vec::new(),
            order: Vec::new(),
            before: Vec::new(),
            portion: validation::PORTION,
            rounds: 0,
            validated: false,
            tasks: Stage::ALL.map(Task::Stage).into_iter().rev().collect(),
            follow_ups: Vec::new(),
            transports: operations::transports(graph) > 1,
        }
    }
}

impl<'g> Planner<'g> {
    pub(crate) fn new(graph: &'g Graph) -> Self {
        Self { overlay: Overlay::new(graph), state: PlannerState::new(graph) }
    }

    /// Chooses the action of a value. A present value that may be reduced waits until it is known which targets are
    /// available.
    fn choose_action(&mut self, oidx: OverlayIdx) {
        self.note_reducible(oidx);
        if !self.may_be_reduced(oidx) {
            self.choose_action_now(oidx);
        }
    }

    fn choose_action_now(&mut self, oidx: OverlayIdx) {
        let graph = self.overlay.graph;
        let node = self.overlay.node(oidx);
        let applied = node.idx.and_then(|idx| graph.node(idx).applied.clone());
        let Some(current) = node.current.clone() else {
            if node.present.is_none() && node.in_cascade.is_none() {
                self.schedule_create(oidx);
            }
            return;
        };
        match node.goal.clone() {
            Goal::Refused(..) => {}
            Goal::Nothing if applied.is_some() || graph.restores.contains_key(&node.key) => {
                self.schedule_removal(oidx, None)
            }
            Goal::Nothing if graph.owned(&node.key, &current) => {
                self.schedule_removal(oidx, Some(Cause::Orphan))
            }
            Goal::Nothing => {}
            Goal::Valid(value, spec)
                if graph.satisfied(&node.key, &value, &current)
                    // Attributes that the new value leaves open may have been set by us before.
                    && !applied.as_ref().is_some_and(|applied| {
                        graph.restoring_update(&node.key, applied, &value).is_some()
                    }) =>
            {
                let in_place = node.ours
                    && node.present.as_ref().is_some_and(|present| Arc::ptr_eq(present, &spec));
                let unmet = node.unmet;
                if !in_place || applied.is_some_and(|applied| !Arc::ptr_eq(&applied, &value)) {
                    self.schedule_in_place(oidx, InPlaceAction::Found);
                } else if unmet > 0 || self.has_lost_claim(oidx, &spec) {
                    self.schedule_removal(oidx, Some(Cause::Parked));
                }
            }
            Goal::Valid(value, _) => self.choose_change(oidx, &current, &value),
        }
    }

    fn choose_change(&mut self, oidx: OverlayIdx, current: &SharedValue, value: &SharedValue) {
        if !self.is_ours(oidx) {
            return self.schedule_in_place(oidx, InPlaceAction::Adopted);
        }
        let graph = self.overlay.graph;
        let key = &self.overlay.node(oidx).key;
        let descriptor = graph.registry.descriptor(key.kind());
        let old = self.old_value(oidx);
        let change = descriptor.map(|descriptor| {
            let old = old.as_ref().unwrap_or(current);
            catch_panic(|| descriptor.change(&**old, &**value)).unwrap_or(ChangeMethod::Recreate)
        });
        match change {
            Some(ChangeMethod::InPlace | ChangeMethod::LinkDown) => {
                self.schedule_in_place(oidx, InPlaceAction::Updated)
            }
            _ => self.schedule_removal(oidx, None),
        }
    }

    pub(crate) fn schedule_create(&mut self, oidx: OverlayIdx) {
        let node = self.overlay.node_mut(oidx);
        if !matches!(node.goal, Goal::Valid(..)) {
            node.pending_action = PendingAction::Nothing;
            return;
        }
        node.pending_action = PendingAction::Create;
        if node.unmet == 0 {
            self.state.ready[CREATES].push(oidx);
        }
        self.note_reducible(oidx);
    }

    fn schedule_in_place(&mut self, oidx: OverlayIdx, in_place_action: InPlaceAction) {
        let node = self.overlay.node_mut(oidx);
        node.pending_action = PendingAction::InPlace(in_place_action);
        self.state.ready[rank(in_place_action)].push(oidx);
        let next = self.next(oidx);
        self.overlay.mark_going(oidx, next.as_ref().map(|(_, spec)| &**spec));
        if in_place_action != InPlaceAction::Updated {
            return;
        }
        let node = self.overlay.node(oidx);
        if let (Some(present), Some(new)) = (node.present.clone(), node.goal.spec().cloned()) {
            let lost =
                present.property_cascades().iter().filter(|(property, _)| !new.offers(property));
            for (_, cascade) in lost {
                self.mark_cascade(cascade, oidx);
            }
        }
    }

    /// Schedules the removal of a value: a delete, or a release where it was there before us.
    pub(crate) fn schedule_removal(&mut self, oidx: OverlayIdx, cause: Option<Cause>) {
        let restore = self.overlay.graph.restores.contains_key(&self.overlay.node(oidx).key);
        let node = self.overlay.node_mut(oidx);
        node.cause = cause.unwrap_or(node.cause);
        if restore {
            return self.schedule_in_place(oidx, InPlaceAction::Released);
        }
        node.pending_action = PendingAction::Delete;
        let present = node.present.clone();
        self.push_delete(oidx);
        self.overlay.mark_going(oidx, None);
        if let Some(spec) = present {
            let properties = spec.property_cascades().iter().map(|(_, taken)| taken);
            for cascade in spec.cascades().iter().chain(properties) {
                self.mark_cascade(cascade, oidx);
            }
        }
    }

    /// Lists a delete that may be ready.
    fn push_delete(&mut self, oidx: OverlayIdx) {
        let kind = self.overlay.node(oidx).key.kind();
        let descriptor = self.overlay.graph.registry.descriptor(kind);
        let last = descriptor.is_some_and(|descriptor| descriptor.removed_last());
        self.state.ready[if last { LAST } else { DELETES }].push(oidx);
    }

    pub(crate) fn delete(&mut self, oidx: OverlayIdx, force: bool) {
        let node = self.overlay.node(oidx);
        let (PendingAction::Delete, Some(present)) = (&node.pending_action, node.present.clone())
        else {
            return;
        };
        let key = node.key.clone();
        let (_, lost) = self.overlay.provider_changes(&key, Some(&present), None);
        if !force && self.is_blocked(oidx, &present, &lost) {
            return self.park_idle(oidx, &key);
        }
        self.unblock(&key);
        match self.find_cascade_root(oidx, &present) {
            Some(cascade_root) => self.remove_by_cascade(oidx, cascade_root, present, &lost),
            None => {
                let old = self.old_value(oidx);
                let op = self.add_operation(oidx, Action::Delete, old, None, &lost);
                self.overlay.set_present(oidx, None, false, Some(op));
                self.overlay.clear_going(oidx);
                self.on_removed(oidx, op);
                self.drain_ready();
            }
        }
    }

    pub(crate) fn change(&mut self, oidx: OverlayIdx, force: bool) {
        let node = self.overlay.node(oidx);
        let (&PendingAction::InPlace(in_place_action), Some(present)) =
            (&node.pending_action, node.present.clone())
        else {
            return;
        };
        let key = node.key.clone();
        let unmet = node.unmet;
        let Some((value, new)) = self.next(oidx) else { return };
        let needy = in_place_action != InPlaceAction::Released;
        let waits = needy && (unmet > 0 || self.is_self_supporting(oidx, &present, &new));
        let waiting = needy
            && in_place_action != InPlaceAction::Found
            && self.overlay.waits_for_going(oidx, &new);
        if waits || waiting || needy && self.is_claimed(oidx, &new) {
            self.state.change_missing_dependency.insert(key, oidx);
            return self.note_waiting_reducible(oidx);
        }
        let (_, lost) = self.overlay.provider_changes(&key, Some(&present), Some(&new));
        if !force && self.is_blocked(oidx, &present, &lost) {
            return;
        }
        self.state.change_missing_dependency.remove(&key);
        self.unblock(&key);
        if !needy && let Some(cascade_root) = self.find_cascade_root(oidx, &present) {
            return self.remove_by_cascade(oidx, cascade_root, present, &lost); // no object will be left to give back
        }
        self.apply_change(oidx, in_place_action, value, new, &lost);
    }

    /// Value and spec that an in-place action leads to.
    pub(crate) fn next(&self, oidx: OverlayIdx) -> Option<(SharedValue, Arc<ValueSpec>)> {
        let graph = self.overlay.graph;
        let node = self.overlay.node(oidx);
        match (&node.pending_action, &node.goal) {
            (PendingAction::InPlace(InPlaceAction::Released), _) => {
                let value = graph.restores.get(&node.key)?.clone();
                let spec = ValueSpec::of_observed(&graph.registry, &node.key, &value);
                Some((value, spec))
            }
            (PendingAction::InPlace(_), Goal::Valid(value, spec)) => {
                Some((value.clone(), spec.clone()))
            }
            _ => None,
        }
    }

    /// True for a value that we created, or may remove because of its mark.
    pub(crate) fn is_ours(&self, oidx: OverlayIdx) -> bool {
        let graph = self.overlay.graph;
        let node = self.overlay.node(oidx);
        if node.ours || node.op.is_some() {
            return node.ours; // an operation of this plan decides
        }
        let applied = node.idx.is_some_and(|idx| graph.node(idx).applied.is_some());
        let is_made = applied || graph.restores.contains_key(&node.key);
        graph.made_or_marked(&node.key, is_made, node.current.as_ref())
    }

    fn apply_change(
        &mut self,
        oidx: OverlayIdx,
        in_place_action: InPlaceAction,
        value: SharedValue,
        new: Arc<ValueSpec>,
        lost: &OverlayTargetIds,
    ) {
        let old = self.old_value(oidx);
        let action = match in_place_action {
            InPlaceAction::Updated => Action::Update,
            InPlaceAction::Adopted => Action::Adopt,
            InPlaceAction::Released => Action::Release,
            InPlaceAction::Found => {
                // As requested already and still someone else's: it must outlive our intent.
                if self.is_ours(oidx) {
                    self.refresh_restore(oidx);
                } else {
                    self.note_restore(oidx);
                }
                self.overlay.set_present(oidx, Some(new), true, None);
                self.overlay.clear_going(oidx);
                self.overlay.node_mut(oidx).pending_action = PendingAction::Nothing;
                self.state.found.push(oidx);
                return self.drain_ready();
            }
        };
        match in_place_action {
            InPlaceAction::Adopted => self.note_restore(oidx),
            InPlaceAction::Updated => self.refresh_restore(oidx),
            InPlaceAction::Released | InPlaceAction::Found => {}
        }
        let op = self.add_operation(oidx, action, old, Some(value.clone()), lost);
        self.overlay.set_present(
            oidx,
            Some(new),
            in_place_action != InPlaceAction::Released,
            Some(op),
        );
        self.overlay.clear_going(oidx);
        self.take_cascaded(oidx, op);
        let node = self.overlay.node_mut(oidx);
        node.current = Some(value);
        node.pending_action = PendingAction::Nothing;
        if in_place_action == InPlaceAction::Released && matches!(node.goal, Goal::Valid(..)) {
            self.schedule_in_place(oidx, InPlaceAction::Adopted);
        }
        self.drain_ready();
    }

    pub(crate) fn create(&mut self, oidx: OverlayIdx) {
        let node = self.overlay.node(oidx);
        let (PendingAction::Create, Goal::Valid(value, spec)) = (&node.pending_action, &node.goal)
        else {
            return;
        };
        if node.present.is_some() || node.in_cascade.is_some() {
            return;
        }
        if node.unmet > 0 {
            return self.schedule_create(oidx); // lost a provider since it was found ready
        }
        let value = value.clone();
        let spec = spec.clone();
        if self.overlay.waits_for_going(oidx, &spec) || self.is_claimed(oidx, &spec) {
            return self.note_waiting_reducible(oidx);
        }
        let op = self.add_operation(
            oidx,
            Action::Create,
            None,
            Some(value.clone()),
            &OverlayTargetIds::new(),
        );
        self.overlay.set_present(oidx, Some(spec), true, Some(op));
        let node = self.overlay.node_mut(oidx);
        node.current = Some(value);
        node.pending_action = PendingAction::Nothing;
        self.drain_ready();
    }

    /// True when dependents have to go first; the action is tried again when they are gone.
    fn is_blocked(
        &mut self,
        oidx: OverlayIdx,
        present: &Arc<ValueSpec>,
        lost: &OverlayTargetIds,
    ) -> bool {
        let blocking = self.blocking(present, lost);
        for &target_id in &blocking {
            self.overlay.targets[target_id as usize].removal_mut().blocked.push(oidx);
        }
        if !blocking.is_empty() {
            let key = self.overlay.node(oidx).key.clone();
            self.state.blocked_after_parking.remove(&key);
            self.state.blocked_by_dependents.insert(key, oidx);
        }
        !blocking.is_empty()
    }

    /// Targets in `lost` that would lose their last provider while they have dependents.
    pub(crate) fn blocking(
        &mut self,
        present: &Arc<ValueSpec>,
        lost: &OverlayTargetIds,
    ) -> OverlayTargetIds {
        let mut blocking = OverlayTargetIds::new();
        for &target_id in lost {
            let state = self.overlay.walked_target(target_id);
            if state.providers <= 1
                && state.dependents > 0
                && state.dependents > self.overlay.own_dependencies(present, target_id)
            {
                blocking.push(target_id);
            }
        }
        blocking
    }

    fn unblock(&mut self, key: &Key) {
        self.state.blocked_by_dependents.remove(key);
        self.state.blocked_after_parking.remove(key);
    }
}

fn rank(in_place_action: InPlaceAction) -> usize {
    if in_place_action == InPlaceAction::Found { FOUND } else { CHANGES }
}
