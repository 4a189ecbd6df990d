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
    /// What was applied before, where the system does not show that. Attributes that it set, and that `new` leaves open,
    /// are given back all the same.
    pub(crate) applied: Option<SharedValue>,
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
