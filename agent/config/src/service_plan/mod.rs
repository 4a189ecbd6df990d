//! Progress of service instances: service plans with their actions, and the record of each instance and of each transaction.
//!
//! Start at [`Book`]. Walks ([`services`](crate::services)) make the plans; the layers hold them.

mod action;
mod call;
mod origin;
mod plan;
mod record;
mod transaction;

pub use self::action::{
    ActionCall, ActionEvent, ActionPhase, ActionPlan, ActionProgress, ActionTarget, ActionUpdate,
    CallRef,
};
pub use self::call::{AnswerInput, CallPhase, Plane, ReadInput};
pub use self::origin::{ActionCause, ChangeOrigin};
pub use self::plan::{
    BackTrack, Book, ComponentPlan, InstanceStatus, ModificationPlan, PlanChange, PlanTotals,
    READY, SELF, ServicePlan, StatePlan, StateStatus,
};
pub use self::record::{ChangeAuthor, InstanceRecord, LOG_LINES, LogLine};
pub use self::transaction::{
    CauseKind, FailureOrigin, KEPT_TRANSACTIONS, NAMED_INSTANCES, ServiceTransaction,
    TransactionFailure, WalkCause, WalkedInstance,
};
