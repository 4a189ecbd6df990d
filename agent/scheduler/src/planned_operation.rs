//! Operations of a plan, and their reasons.

use smallvec::SmallVec;

use crate::key::Key;
use crate::operation::{Action, OperationError, TransportId};
use crate::value::SharedValue;

/// Index of an overlay node.
pub(crate) type OverlayIdx = u32;

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
    /// Few operations have any of this, and each has room for it.
    pub(crate) giving_back: Option<Box<GivingBack>>,
    pub(crate) oidx: OverlayIdx,
}

/// Particulars of an operation that gives attributes back.
#[derive(Clone, Debug, Default)]
pub(crate) struct GivingBack {
    /// The value that was applied before, where the system does not show it. Attributes that it set, and that the new value
    /// leaves open, are given back all the same.
    pub(crate) applied: Option<SharedValue>,
    /// Reason for which the system did not take back what the operation was to give back.
    pub(crate) left: Option<OperationError>,
}

impl PlannedOperation {
    /// The value whose attributes the operation gives back where the new one leaves them open.
    pub(crate) fn applied(&self) -> Option<&SharedValue> {
        let hidden = self.giving_back.as_ref().and_then(|it| it.applied.as_ref());
        hidden.or(self.old.as_ref())
    }

    /// True where the system did not take back what the operation was to give back.
    pub(crate) fn is_left(&self) -> bool {
        self.giving_back.as_ref().is_some_and(|it| it.left.is_some())
    }
}
