//! The planes of one key: what is intended and by whom, what was applied, what is seen.

use std::num::NonZeroU64;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{TargetIds, watching_specs};
use crate::dependency::{Dependency, Target};
use crate::key::Key;
use crate::operation::{OpId, TxnId};
use crate::retry_state::RetryState;
use crate::status::LastOperation;
use crate::value::SharedValue;
use crate::value_spec::{FullValue, ValueError, ValueSpec};

/// Who intends a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// A change named it.
    Direct,
    /// It is a part of this value.
    Part(Box<Key>),
}

impl Source {
    pub(crate) fn is_part(&self) -> bool {
        matches!(self, Self::Part(_))
    }
}

/// Ascending by source; the first one counts.
pub(crate) type Sources = SmallVec<[(Source, SharedValue); 1]>;

/// The intended plane of a key, judged.
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

    /// The value that was asked for: in full, where the goal is what can be had of it.
    pub(crate) fn requested(&self) -> Option<&SharedValue> {
        self.spec().and_then(|spec| spec.full()).map(|(full, _)| full).or(self.value())
    }

    /// All that is needed for what was asked for.
    pub(crate) fn needs(&self) -> &[Dependency] {
        self.requested_spec().map_or(&[], |spec| &spec.needs)
    }

    /// The traits of what was asked for: a value is listed with all it needs, also where it could do without.
    pub(crate) fn requested_spec(&self) -> Option<&Arc<ValueSpec>> {
        let spec = self.spec()?;
        Some(spec.full().map_or(spec, |(_, full)| full))
    }

    /// A value that can be had in part, in full.
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

    /// True for what can be had of what was asked for, without the rest.
    pub(crate) fn is_partial(&self) -> bool {
        self.spec().is_some_and(|spec| spec.full().is_some())
    }

    /// True when what was asked for needs a target that this does without.
    pub(crate) fn is_leaving_out(&self, target: &Target) -> bool {
        let needs = |spec: &ValueSpec| !spec.needs_of(target).is_empty();
        let Some(spec) = self.spec() else { return false };
        spec.full().is_some_and(|(_, full)| needs(full) && !needs(spec))
    }

    /// Nobody knew its kind when it was judged.
    pub(crate) fn is_unimplemented(&self) -> bool {
        matches!(self, Self::Refused(_, refusal) if **refusal == ValueError::Unimplemented)
    }

    /// Why the value cannot be an intent, where its kind is known.
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
    /// What the system is believed to have, as others depend on it.
    pub(crate) present: Option<Arc<ValueSpec>>,
    /// What is live was put there by us, so what it needs must outlast it.
    pub(crate) ours: bool,
    /// The groups of what the goal needs, in the order of its dependencies.
    pub(super) need_targets: TargetIds,
    /// Dependencies of the goal that nobody offers.
    pub(crate) unmet: u32,
    /// The number of the last operation of a running transaction on this key.
    running_op: Option<NonZeroU64>,
    /// The number of the transaction that touches it: until that ends, it is nobody else's.
    owner: Option<NonZeroU64>,
    pub(crate) last: Option<LastOperation>,
    pub(crate) retry: Option<Box<RetryState>>,
    /// Stands in [`super::Graph::woken`].
    pub(super) is_dirty: bool,
    /// Was to be woken while an operation on it was in flight.
    pub(crate) dirty_in_flight: bool,
    /// Used slots only.
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

    /// The last operation of a running transaction on this key.
    pub(crate) fn running_op(&self) -> Option<OpId> {
        self.running_op.map(|number| OpId(number.get()))
    }

    /// Operations are numbered from one.
    pub(crate) fn begin_op(&mut self, op: OpId) {
        self.running_op = NonZeroU64::new(op.0);
    }

    pub(crate) fn end_op(&mut self) {
        self.running_op = None;
    }

    /// The transaction that touches it.
    pub(crate) fn owner(&self) -> Option<TxnId> {
        self.owner.map(|number| TxnId(number.get()))
    }

    /// True when it was not this transaction's before. Transactions are numbered from one.
    pub(crate) fn reserve(&mut self, txn: TxnId) -> bool {
        let owner = NonZeroU64::new(txn.0);
        std::mem::replace(&mut self.owner, owner) != owner
    }

    pub(crate) fn release(&mut self) {
        self.owner = None;
    }

    /// The traits whose dependencies list this node as a member of groups.
    pub(super) fn watching_specs(&self) -> [Option<&Arc<ValueSpec>>; 2] {
        watching_specs(self.goal.requested_spec(), self.present.as_ref().filter(|_| self.ours))
    }

    /// What the system has: as seen, or else as we left it.
    pub(crate) fn current(&self) -> Option<&SharedValue> {
        self.present.as_ref().and_then(|_| self.observed.as_ref().or(self.applied.as_ref()))
    }

    /// True when the very value that is intended was applied, and is believed to be there.
    pub(crate) fn in_place(&self) -> bool {
        let (Some(goal), Some(applied)) = (self.goal.value(), &self.applied) else { return false };
        self.present.is_some() && Arc::ptr_eq(goal, applied)
    }
}
