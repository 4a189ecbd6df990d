//! Nodes: the planes of one key.
//!
//! ```text
//! sources --> goal         intended: what shall be there, validated
//!             applied      what our last successful operation set
//!             observed     what the system showed last
//!             present      what others may rely on
//! ```
//!
//! `present` is neither `applied` nor `observed`. It is the spec of the value that the system is believed to have: set
//! when an operation completes (before its echo arrives), cleared when it is deleted, and corrected by facts.
//! Dependents count on `present`, so the operations of one plan need not wait for echoes; `observed` changes with facts
//! alone, and is compared with `applied` to verify operations and to detect drift.

use std::num::NonZeroU64;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{TargetIds, watching_specs};
use crate::change::Owner;
use crate::dependency::{Dependency, Target};
use crate::key::Key;
use crate::operation::{OpId, TxnId};
use crate::retry_state::RetryState;
use crate::status::LastOperation;
use crate::value::SharedValue;
use crate::value_spec::{FullValue, ValueError, ValueSpec};

/// Origin of an intended value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Named by a change.
    Direct,
    /// Named by a change, on behalf of one of several owners.
    Of(Owner),
    /// Part of the value with this key.
    Part(Box<Key>),
}

impl Source {
    /// Source of the values that changes on behalf of this owner name.
    pub(crate) fn of(owner: Option<&Owner>) -> Self {
        owner.map_or(Self::Direct, |owner| Self::Of(owner.clone()))
    }

    pub(crate) fn is_part(&self) -> bool {
        matches!(self, Self::Part(_))
    }
}

/// Sources, ascending; the first one counts.
pub(crate) type Sources = SmallVec<[(Source, SharedValue); 1]>;

/// Intended plane of a key, after validation.
#[derive(Clone, Debug, Default)]
pub(crate) enum Goal {
    #[default]
    Nothing,
    Valid(SharedValue, Arc<ValueSpec>),
    Refused(SharedValue, Box<ValueError>),
}

impl Goal {
    pub(crate) fn value(&self) -> Option<&SharedValue> {
        match self {
            Self::Nothing => None,
            Self::Valid(value, _) | Self::Refused(value, _) => Some(value),
        }
    }

    pub(crate) fn spec(&self) -> Option<&Arc<ValueSpec>> {
        match self {
            Self::Valid(_, spec) => Some(spec),
            _ => None,
        }
    }

    /// Requested value: the full one where the goal is a reduced one.
    pub(crate) fn requested(&self) -> Option<&SharedValue> {
        self.spec().and_then(|spec| spec.full()).map(|(full, _)| full).or(self.value())
    }

    /// Dependencies of the requested value.
    pub(crate) fn needs(&self) -> &[Dependency] {
        self.requested_spec().map_or(&[], |spec| &spec.needs)
    }

    /// Spec of the requested value: a reduced value watches all targets of the full one.
    pub(crate) fn requested_spec(&self) -> Option<&Arc<ValueSpec>> {
        let spec = self.spec()?;
        Some(spec.full().map_or(spec, |(_, full)| full))
    }

    /// Full value and spec of a reducible value.
    pub(crate) fn reducible(&self) -> Option<FullValue> {
        match self {
            Self::Valid(value, spec) if spec.is_reducible() => {
                Some(spec.full().cloned().unwrap_or_else(|| (value.clone(), spec.clone())))
            }
            _ => None,
        }
    }

    pub(crate) fn is_reducible(&self) -> bool {
        self.spec().is_some_and(|spec| spec.is_reducible())
    }

    /// True for a reduced value.
    pub(crate) fn is_partial(&self) -> bool {
        self.spec().is_some_and(|spec| spec.full().is_some())
    }

    /// True when the requested value needs a target that the reduced one does without.
    pub(crate) fn is_leaving_out(&self, target: &Target) -> bool {
        let needs = |spec: &ValueSpec| !spec.needs_of(target).is_empty();
        let Some(spec) = self.spec() else { return false };
        spec.full().is_some_and(|(_, full)| needs(full) && !needs(spec))
    }

    /// True when the kind had no descriptor at validation.
    pub(crate) fn is_unimplemented(&self) -> bool {
        matches!(self, Self::Refused(_, refusal) if **refusal == ValueError::Unimplemented)
    }

    /// Reason for which the value cannot be an intent, where its kind is known.
    pub(crate) fn invalid(&self) -> Option<&String> {
        match self {
            Self::Refused(_, refusal) => match &**refusal {
                ValueError::Invalid(reason) => Some(reason),
                ValueError::Unimplemented => None,
            },
            _ => None,
        }
    }
}

/// All planes of one key.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) key: Key,
    pub(crate) sources: Sources,
    pub(crate) goal: Goal,
    pub(crate) applied: Option<SharedValue>,
    pub(crate) observed: Option<SharedValue>,
    /// Value that the system is believed to have, as others depend on it: see the module.
    pub(crate) present: Option<Arc<ValueSpec>>,
    /// True when the present value is ours, so that its dependencies must outlast it.
    pub(crate) ours: bool,
    /// Targets of the goal, in the order of its dependencies.
    pub(super) need_targets: TargetIds,
    /// Number of dependencies of the goal without a provider.
    pub(crate) unmet: u32,
    /// Number of the last operation on this key of a transaction in flight.
    running_op: Option<NonZeroU64>,
    /// Number of the transaction that reserved the node, until that ends.
    owner: Option<NonZeroU64>,
    pub(crate) last: Option<LastOperation>,
    pub(crate) retry: Option<Box<RetryState>>,
    /// Listed in [`super::Graph::dirty`].
    pub(super) is_dirty: bool,
    /// Marked dirty while an operation on it was in flight.
    pub(crate) dirty_in_flight: bool,
    /// False for slots on the free list.
    pub(super) used: bool,
}

impl Node {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            sources: Sources::new(),
            goal: Goal::Nothing,
            applied: None,
            observed: None,
            present: None,
            ours: false,
            need_targets: TargetIds::new(),
            unmet: 0,
            running_op: None,
            owner: None,
            last: None,
            retry: None,
            is_dirty: false,
            dirty_in_flight: false,
            used: true,
        }
    }

    /// Last operation on this key of a transaction in flight.
    pub(crate) fn running_op(&self) -> Option<OpId> {
        self.running_op.map(|number| OpId(number.get()))
    }

    /// Sets the operation in flight. Operations are numbered from one.
    pub(crate) fn begin_op(&mut self, op: OpId) {
        self.running_op = NonZeroU64::new(op.0);
    }

    pub(crate) fn end_op(&mut self) {
        self.running_op = None;
    }

    /// Transaction that reserved the node.
    pub(crate) fn owner(&self) -> Option<TxnId> {
        self.owner.map(|number| TxnId(number.get()))
    }

    /// Reserves the node. True when another transaction, or none, had it before. Transactions are numbered from one.
    pub(crate) fn reserve(&mut self, txn: TxnId) -> bool {
        let owner = NonZeroU64::new(txn.0);
        std::mem::replace(&mut self.owner, owner) != owner
    }

    pub(crate) fn release(&mut self) {
        self.owner = None;
    }

    /// Specs whose dependencies this node watches.
    pub(super) fn watching_specs(&self) -> [Option<&Arc<ValueSpec>>; 2] {
        watching_specs(self.goal.requested_spec(), self.present.as_ref().filter(|_| self.ours))
    }

    /// Value that the system has: as observed, or else as applied.
    pub(crate) fn current(&self) -> Option<&SharedValue> {
        self.present.as_ref().and_then(|_| self.observed.as_ref().or(self.applied.as_ref()))
    }

    /// True for a value that is not present, or may not be any more when the operation in flight ends.
    pub(crate) fn may_be_absent(&self) -> bool {
        self.present.is_none() || self.running_op.is_some()
    }

    /// True when the very value that is intended was applied and is believed to be present.
    /// True when the present value has this spec, and not that of an observed value which differs.
    pub(crate) fn is_present_as(&self, spec: &Arc<ValueSpec>) -> bool {
        self.present.as_ref().is_some_and(|present| Arc::ptr_eq(present, spec))
    }

    /// True while its last operation has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.retry.as_ref().is_some_and(|retry| retry.error.is_some())
    }

    pub(crate) fn in_place(&self) -> bool {
        let (Some(goal), Some(applied)) = (self.goal.value(), &self.applied) else { return false };
        self.present.is_some() && Arc::ptr_eq(goal, applied)
    }
}
