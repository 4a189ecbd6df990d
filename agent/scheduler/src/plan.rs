//! A plan: every decision about a change, made before anything happens.

use std::fmt::{self, Write as _};
use std::hash::Hasher as _;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use smol_str::SmolStr;

use crate::descriptor::Registry;
use crate::graph::Graph;
use crate::history::Author;
use crate::key::{FixedHasher, Key};
use crate::operation::{Action, OperationError, TransportId};
use crate::overlay::{OverlayIdx, OverlayNode, ReadSet, Readings, TargetRef, to_u32};
use crate::transaction::DispatchOrder;
use crate::value::SharedValue;
use crate::waits::{Level, Wait};

/// One of several that may ask for a value under the same key, with its name for messages. Where two ask for different
/// values, a change is refused; where they do so already, as after a start, the first by name counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(Arc<SmolStr>);

impl Owner {
    pub fn new(name: SmolStr) -> Self {
        Self(Arc::new(name))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Change of the intent for one key: its new value, or `None` to intend it no more.
#[derive(Clone, Debug)]
pub struct IntentChange {
    pub key: Key,
    /// `None` for a key that a single owner can have.
    pub owner: Option<Owner>,
    pub value: Option<SharedValue>,
}

impl From<(Key, Option<SharedValue>)> for IntentChange {
    fn from((key, value): (Key, Option<SharedValue>)) -> Self {
        Self { key, owner: None, value }
    }
}

impl From<(Key, SharedValue)> for IntentChange {
    fn from((key, value): (Key, SharedValue)) -> Self {
        Self { key, owner: None, value: Some(value) }
    }
}

/// Change of intent.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    pub changes: Vec<IntentChange>,
    pub mode: Mode,
    /// Subject, for the history.
    pub description: String,
    /// Author, for the history.
    pub author: Option<Arc<Author>>,
    /// Text of what the change does besides its values: part of [`Plan::hash`].
    pub beside: String,
    /// Hash without which the plan is refused: see [`Plan::hash`].
    pub expected_plan: Option<u64>,
    /// Level at which to report the change: see [`EngineOutput::reached`](crate::Step::reached).
    pub wait: Option<Wait>,
}

/// Behaviour when a part of a change cannot be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// All or nothing: an invalid value refuses the plan, a failed operation undoes it.
    #[default]
    Atomic,
    /// As much as possible: an invalid value keeps what was applied before, a failed one is tried again.
    BestEffort,
}

impl Delta {
    /// Atomic change to these values.
    pub fn new(changes: Vec<impl Into<IntentChange>>) -> Self {
        Self { changes: changes.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    #[must_use]
    pub fn best_effort(self) -> Self {
        Self { mode: Mode::BestEffort, ..self }
    }

    /// Refuses the change unless its plan has this hash.
    #[must_use]
    pub fn expecting_plan(mut self, hash: u64) -> Self {
        self.expected_plan = Some(hash);
        self
    }

    /// Reports when the change has reached this level, or when the time is over.
    #[must_use]
    pub fn waiting_for(mut self, level: Level, within: Duration) -> Self {
        self.wait = Some(Wait { level, within });
        self
    }

    /// Tells what the change does besides its values, so that the hash of the plan covers that too.
    #[must_use]
    pub fn with_beside(self, beside: String) -> Self {
        Self { beside, ..self }
    }

    #[must_use]
    pub fn described(self, description: impl Into<String>) -> Self {
        Self { description: description.into(), ..self }
    }

    #[must_use]
    pub fn by(self, author: Author) -> Self {
        Self { author: Some(Arc::new(author)), ..self }
    }
}

/// Reason for an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The change names the value, or the value is a part of one that the change names.
    Requested,
    /// A dependency of the value goes or is created again.
    Parked,
    /// The value was parked by this plan and returns.
    Unparked,
    /// The last unmet dependency of the value is met.
    Unblocked,
    /// The system differs from what was applied.
    Drift,
    /// The value carries our mark and has no intent.
    Orphan,
}

/// Indexes of operations in the same plan, ascending.
pub(crate) type After = SmallVec<[u32; 4]>;

/// One operation of a plan, with its pre-image.
#[derive(Clone, Debug)]
pub struct PlannedOperation {
    pub action: Action,
    pub key: Key,
    pub old: Option<SharedValue>,
    pub new: Option<SharedValue>,
    pub transport: TransportId,
    pub cause: Cause,
    /// Values that the system removes together with this one, without operations of their own.
    pub cascaded: Vec<Key>,
    /// Operations that this one waits for: until they are submitted where its own transport carries them, else until
    /// they are completed.
    pub after: After,
    /// Reason for which the system did not take back what the operation was to give back.
    pub(crate) left: Option<Box<OperationError>>,
    pub(crate) oidx: OverlayIdx,
}

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

    /// Keys that the operations touch although the change does not name them.
    pub fn side_effects(&self) -> impl Iterator<Item = &Key> {
        self.operations.iter().flat_map(|op| {
            let changed = self.nodes[op.oidx as usize].changed;
            (!changed).then_some(&op.key).into_iter().chain(&op.cascaded)
        })
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

    /// Hash of operations and intent. Equal plans have equal hashes in every run and on every machine: the same
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
#[derive(Debug, Default)]
pub(crate) struct PlanHasher(FixedHasher);

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

/// Reason why there is no plan for a change. The change is refused as a whole, nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error("{label} cannot exist: {reason}")]
    Invalid { key: Key, label: String, reason: String },
    #[error("{label} is of an unknown kind")]
    Unimplemented { key: Key, label: String },
    #[error("{label} is named twice in one change, with different values")]
    Twice { key: Key, label: String },
    #[error("{label} conflicts with {other}: only one of them can exist")]
    Conflict { key: Key, label: String, other: String },
    #[error("the plan has changed: its hash is {found:016x}, {expected:016x} was expected")]
    Differs { expected: u64, found: u64 },
}
