//! Reconciles the system with the intent, as ordered operations.
//!
//! Start at [`Engine`]. It holds three planes for each [`Key`] and never mixes them: what is *intended*, what was
//! *applied* by us, what was *observed* in the system. [`Engine::plan`] is pure and gives a [`Plan`]: all decisions,
//! printable and hashed. [`Engine::start`] carries it out as a state machine: every call returns an [`EngineOutput`] that says
//! what to submit, what to read and when to call again. A [`Descriptor`] defines the meaning of one kind of value.
//!
//! ```text
//!              change               plan                operations
//! caller ---------------> plan() -----------> start() ------------> transports
//!                           ^                                           |
//!                           | planes of every key        completed(),   | completions
//!                           | (graph)                    observed()     | and facts
//!                           +-------------------------------------------+
//! ```
//!
//! Planning a large change takes a while. [`Planning`] does it in portions, between which the engine takes events in; a
//! plan stays valid until something that it has read changes. [`Engine::plan`] is the same without a pause.
//!
//! Absent on purpose: I/O, clocks (time is an argument), tasks, YANG, netlink, and any list of kinds. When an operation
//! of an atomic transaction fails, the previous intent is restored and the way back is planned like any other change. A
//! panicking descriptor invalidates its own value only.

mod arena;
mod change;
mod dependency;
mod descriptor;
mod dispatch_order;
mod drift_policy;
mod engine;
mod graph;
mod history;
mod key;
mod key_text;
mod operation;
mod outcome;
mod output;
mod overlay;
mod plan;
mod planned_operation;
mod planner;
mod portion;
mod queue;
mod reading;
mod retry_state;
mod sorted_map;
mod status;
mod targets;
mod transaction;
mod value;
mod value_spec;
mod waits;

pub use change::{Author, Delta, IntentChange, Level, Mode, Owner, Wait};
pub use dependency::{Cascade, Claim, Dependency, Facet, Offer, Space, Target};
pub use descriptor::{
    AnyDescriptor, ChangeMethod, Descriptor, Effect, Part, PartsChanged, Registry, RegistryError,
};
pub use drift_policy::DriftPolicy;
pub use engine::{DependencyStatus, EDGES_MOST, Engine, Failure, Impact, ImpactWalk, LISTED_MOST};
pub use history::{
    History, OperationResult, RecordedOperation, SystemChange, Tally, TransactionRecord, Trigger,
};
pub use key::{Key, KeyError, KindId, Segment, sort_keys};
pub use operation::{
    Action, Completion, ErrorClass, Fact, Now, OpId, Operation, OperationError, TransportId, TxnId,
};
pub use outcome::{PlanError, TransactionOutcome, WaitResult};
pub use output::EngineOutput;
pub use plan::{Plan, PlanCost};
pub use planned_operation::{Cause, PlannedOperation};
pub use planner::Planning;
pub use reading::{Scope, SortedFacts};
pub use status::{Counters, Detail, LastOperation, Repair, ValueState, ValueStatus};
pub use value::{ObjectValue, SharedValue};
