//! A plan: every decision about a change, taken before anything happens.

use std::fmt::{self, Write as _};
use std::hash::Hasher as _;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use smol_str::SmolStr;

use crate::descriptor::Registry;
use crate::history::Author;
use crate::key::{FixedHasher, Key};
use crate::operation::{Action, TransportId};
use crate::overlay::{OverlayIdx, OverlayNode, TargetRef};
use crate::value::SharedValue;
use crate::waits::{Level, Wait};

/// A change of intent: for each key its new value, or that nothing is intended any more.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    pub changes: Vec<(Key, Option<SharedValue>)>,
    pub mode: Mode,
    /// For the history: what it is about.
    pub description: String,
    /// For the history: who asked.
    pub author: Option<Arc<Author>>,
    /// Refused unless the plan has this hash: see [`Plan::hash`].
    pub expected_plan: Option<u64>,
    /// Tell when the change has come so far: see [`Step::reached`](crate::Step::reached).
    pub wait: Option<Wait>,
}

/// What happens when a part of a change cannot be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Everything or nothing: an invalid value refuses the plan, a failed operation runs it back.
    #[default]
    Atomic,
    /// Everything that can be done: an invalid value keeps what was applied before, a failed one is tried again.
    BestEffort,
}

impl Delta {
    /// The intent to have these values and not to have those, all or nothing.
    pub fn new(changes: Vec<(Key, Option<SharedValue>)>) -> Self {
        Self { changes, ..Self::default() }
    }

    #[must_use]
    pub fn best_effort(self) -> Self {
        Self { mode: Mode::BestEffort, ..self }
    }

    /// Refused unless the plan is the one with this hash.
    #[must_use]
    pub fn expecting_plan(mut self, hash: u64) -> Self {
        self.expected_plan = Some(hash);
        self
    }

    /// Tells when it has come so far, or when the time is over.
    #[must_use]
    pub fn waiting_for(mut self, level: Level, within: Duration) -> Self {
        self.wait = Some(Wait { level, within });
        self
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

/// Why an operation is in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The change names it, or it is a part of what the change names.
    Requested,
    /// What it depends on goes, or is made anew.
    Parked,
    /// It was parked by this plan, and comes back.
    Unparked,
    /// What it waited for is there.
    Unblocked,
    /// The system differs from what was applied.
    Drift,
    /// It carries our mark and nobody intends it.
    Orphan,
}

/// Steps of the same plan, by their places in it; ascending.
pub(crate) type After = SmallVec<[u32; 4]>;

/// One step of a plan, with its pre-image.
#[derive(Clone, Debug)]
pub struct PlannedOperation {
    pub action: Action,
    pub key: Key,
    pub old: Option<SharedValue>,
    pub new: Option<SharedValue>,
    pub transport: TransportId,
    pub cause: Cause,
    /// What the system removes together with this, without operations of its own.
    pub cascaded: Vec<Key>,
    /// Steps that this one waits for: until they are completed, or, where its own transport carries them, handed out.
    pub after: After,
    pub(crate) oidx: OverlayIdx,
}

/// Which of the dependencies of a value nobody meets, in the order of its traits.
pub(crate) type Unmet = SmallVec<[u32; 4]>;

/// Ordered operations from what is to what is intended. A value: to be printed, hashed, refused, or started.
#[derive(Debug)]
pub struct Plan {
    pub(crate) delta: Delta,
    pub(crate) operations: Vec<PlannedOperation>,
    /// The nodes it touches.
    pub(crate) nodes: Vec<OverlayNode>,
    /// Values found to be in place.
    pub(crate) found: Vec<OverlayIdx>,
    pub(crate) restores: Vec<(Key, SharedValue)>,
    /// What will wait, ascending by key.
    pub(crate) waiting: Vec<(OverlayIdx, Unmet)>,
    /// The accounts of what the nodes need.
    pub(crate) target_refs: Vec<TargetRef>,
    /// The state of the engine it was made for.
    pub(crate) revision: u64,
    pub(crate) registry: Arc<Registry>,
    pub(crate) cost: PlanCost,
}

/// What planning cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanCost {
    /// Values looked at.
    pub visited: u64,
    /// Entries of dependency lists walked.
    pub edges: u64,
    /// Parts that descriptors listed, or said to differ.
    pub parts: u64,
}

impl Plan {
    pub fn operations(&self) -> &[PlannedOperation] {
        &self.operations
    }

    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// What its operations touch beside the keys whose intent it changes.
    pub fn side_effects(&self) -> impl Iterator<Item = &Key> {
        self.operations.iter().flat_map(|op| {
            let changed = self.nodes[op.oidx as usize].changed;
            (!changed).then_some(&op.key).into_iter().chain(&op.cascaded)
        })
    }

    /// Pre-images of the objects it adopts: to be made durable together with the change, before it is started.
    pub fn restores(&self) -> &[(Key, SharedValue)] {
        &self.restores
    }

    /// Values of the change that will wait, ascending by key.
    pub fn pending(&self) -> Vec<Key> {
        self.waiting.iter().map(|&(oidx, _)| self.nodes[oidx as usize].key.clone()).collect()
    }

    /// The same with the labels of what they wait for; none where another value holds an identity they need.
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

    /// How a person calls the value of an operation.
    pub fn label(&self, op: &PlannedOperation) -> String {
        self.registry.label(&op.key, op.new.as_ref().or(op.old.as_ref()).map(|value| &**value))
    }

    /// Equal plans have equal hashes, in every run and on every machine: the same operations in the same order, and the
    /// same intent, also where that has to wait.
    pub fn hash(&self) -> u64 {
        let mut text = HashText(FixedHasher::default());
        for op in &self.operations {
            // Writing into a hash cannot fail.
            let _ = write!(text, "{}", op.action);
            text.0.write(op.key.as_bytes());
            let _ = write!(text, "{:?}", op.new);
            for cascaded in &op.cascaded {
                text.0.write(cascaded.as_bytes());
            }
        }
        let mut changes: Vec<_> = self.delta.changes.iter().collect();
        changes.sort_by(|a, b| a.0.cmp(&b.0));
        changes.dedup_by(|a, b| a.0 == b.0);
        for (key, value) in changes {
            text.0.write(key.as_bytes());
            let _ = write!(text, "{value:?}");
        }
        text.0.finish()
    }

    /// Whether the change may go on with this plan.
    pub(crate) fn admitted(self) -> Result<Self, PlanError> {
        let Some(expected) = self.delta.expected_plan else { return Ok(self) };
        match self.hash() {
            found if found == expected => Ok(self),
            found => Err(PlanError::Differs { expected, found }),
        }
    }
}

struct HashText(FixedHasher);

impl fmt::Write for HashText {
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

/// Why there is no plan for a change. The change is refused as a whole, nothing has happened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error("{label} cannot exist: {reason}")]
    Invalid { key: Key, label: String, reason: String },
    #[error("{label} is of a kind that nobody implements")]
    Unimplemented { key: Key, label: String },
    #[error("{label} is named twice in one change, with different values")]
    Twice { key: Key, label: String },
    #[error("{label} cannot exist beside {other}: there can be only one of them")]
    Conflict { key: Key, label: String, other: String },
    #[error(
        "the plan is another one by now: its hash is {found:016x}, {expected:016x} was expected"
    )]
    Differs { expected: u64, found: u64 },
}
