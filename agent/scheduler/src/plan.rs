//! A plan: every decision about a change, made before anything happens.

use std::fmt::{self, Write as _};
use std::hash::Hasher as _;
use std::ops::Add;
use std::sync::Arc;

use smallvec::SmallVec;
use smol_str::SmolStr;

use crate::change::{Delta, IntentChange};
use crate::descriptor::Registry;
use crate::dispatch_order::DispatchOrder;
use crate::graph::Graph;
use crate::key::{FixedHasher, Key, hasher};
use crate::overlay::{OverlayNode, ReadSet, Readings, TargetRef, to_u32};
use crate::planned_operation::{OverlayIdx, PlannedOperation};
use crate::value::SharedValue;

/// Indexes of the unmet dependencies in the spec of a value.
pub(crate) type Unmet = SmallVec<[u32; 4]>;

/// Ordered operations from the current state to the intent, as a value: to be printed, hashed, refused, or started.
#[derive(Debug)]
pub struct Plan {
    pub(crate) delta: Delta,
    /// Values that were intended before, for each change of the delta.
    pub(crate) before: Vec<Option<SharedValue>>,
    pub(crate) operations: Vec<PlannedOperation>,
    pub(crate) order: DispatchOrder,
    /// All nodes the plan has touched.
    pub(crate) nodes: Vec<OverlayNode>,
    /// Values that are in place already and only have to be recorded as applied.
    pub(crate) found: Vec<OverlayIdx>,
    pub(crate) restores: Vec<(Key, SharedValue)>,
    /// Values that will wait, with their unmet dependencies, ascending by key.
    pub(crate) waiting: Vec<(OverlayIdx, Unmet)>,
    /// Targets of the touched nodes, by the indexes the nodes use.
    pub(crate) target_refs: Vec<TargetRef>,
    /// Revision of the engine state that the plan is known to be valid for.
    pub(crate) revision: u64,
    pub(crate) reads: ReadSet,
    pub(crate) registry: Arc<Registry>,
    pub(crate) cost: PlanCost,
}

/// Cost of making a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanCost {
    /// Values visited.
    pub visited: u64,
    /// Entries of dependency lists walked.
    pub edges: u64,
    /// Parts that descriptors listed, or reported as different.
    pub parts: u64,
}

impl Add for PlanCost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            visited: self.visited + other.visited,
            edges: self.edges + other.edges,
            parts: self.parts + other.parts,
        }
    }
}

impl Plan {
    pub fn operations(&self) -> &[PlannedOperation] {
        &self.operations
    }

    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Keys whose intent or present value the plan changes.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let changed = self.nodes.iter().filter(|node| node.changed || node.op.is_some());
        changed.map(|node| &node.key)
    }

    /// Pre-images of the objects to be adopted: must be durable, together with the change, before it is started.
    pub fn restores(&self) -> &[(Key, SharedValue)] {
        &self.restores
    }

    /// Values of the change that will wait, ascending by key.
    pub fn pending(&self) -> Vec<Key> {
        self.waiting.iter().map(|&(oidx, _)| self.nodes[oidx as usize].key.clone()).collect()
    }

    /// Values of the change that will wait, with the labels of their unmet dependencies. No labels where another value
    /// holds an identity they claim.
    pub fn waiting(&self) -> impl Iterator<Item = (&Key, impl Iterator<Item = &SmolStr>)> {
        self.waiting.iter().map(|(oidx, unmet)| {
            let node = &self.nodes[*oidx as usize];
            let needs = node.goal.spec().map_or(&[][..], |spec| &spec.needs);
            (&node.key, unmet.iter().map(|&need| &needs[need as usize].label))
        })
    }

    pub fn cost(&self) -> PlanCost {
        self.cost
    }

    /// Human-readable name of the value of an operation.
    pub fn label(&self, op: &PlannedOperation) -> String {
        self.registry.label(&op.key, op.new.as_ref().or(op.old.as_ref()).map(|value| &**value))
    }

    /// Hash of operations and intent. Equal plans have equal hashes in every run, and on every little-endian machine of 64 bits: the same
    /// operations in the same order and the same intent, including values that have to wait, and the same beside them.
    pub fn hash(&self) -> u64 {
        let mut hasher = PlanHasher::default();
        self.operations.iter().for_each(|op| hasher.operation(op));
        let places = (0..to_u32(self.delta.changes.len())).collect();
        for at in PlanHasher::order(&self.delta, places) {
            hasher.change(&self.delta.changes[at as usize]);
        }
        hasher.finish(&self.delta)
    }

    /// True when the plan is current, which is noted: what has happened up to now is not looked at again.
    pub(crate) fn renew(&mut self, graph: &Graph) -> bool {
        let is_current = self.is_current(graph);
        if is_current {
            self.revision = graph.log.revision();
        }
        is_current
    }

    /// True when nothing that the plan has read changed since it was made.
    pub(crate) fn is_current(&self, graph: &Graph) -> bool {
        let readings =
            Readings { reads: &self.reads, nodes: &self.nodes, target_refs: &self.target_refs };
        readings.are_current(graph, self.revision)
    }
}

/// Hash of a plan in the making: its operations in order, then the changes, then what is beside them.
pub(crate) struct PlanHasher(FixedHasher);

impl Default for PlanHasher {
    fn default() -> Self {
        Self(hasher())
    }
}

impl fmt::Debug for PlanHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x} so far", self.0.finish())
    }
}

impl PlanHasher {
    /// Sorts the places of the changes as they are hashed: each key and owner once. Quick where they are nearly in order.
    pub(crate) fn order(delta: &Delta, mut order: Vec<u32>) -> Vec<u32> {
        let of = |&at: &u32| {
            let IntentChange { key, owner, .. } = &delta.changes[at as usize];
            (key, owner)
        };
        order.sort_by(|a, b| of(a).cmp(&of(b)));
        order.dedup_by(|a, b| of(a) == of(b));
        order
    }

    pub(crate) fn operation(&mut self, op: &PlannedOperation) {
        // Writing into a hash cannot fail.
        let _ = write!(self, "{}", op.action);
        self.0.write(op.key.as_bytes());
        let _ = write!(self, "{:?}", op.new);
        for cascaded in &op.cascaded {
            self.0.write(cascaded.as_bytes());
        }
    }

    pub(crate) fn change(&mut self, IntentChange { key, owner, value }: &IntentChange) {
        self.0.write(key.as_bytes());
        self.0.write(owner.as_ref().map_or(&[], |owner| owner.0.as_bytes()));
        let _ = write!(self, "{value:?}");
    }

    pub(crate) fn finish(&mut self, delta: &Delta) -> u64 {
        self.0.write(delta.beside.as_bytes());
        self.0.finish()
    }
}

impl fmt::Write for PlanHasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl fmt::Display for Plan {
    /// `create link eth0; create route 10.0.0.0/8`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, op) in self.operations.iter().enumerate() {
            let gap = if at == 0 { "" } else { "; " };
            write!(f, "{gap}{} {}", op.action, self.label(op))?;
        }
        Ok(())
    }
}
