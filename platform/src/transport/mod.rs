//! Transports, which carry out operations and report facts. All I/O of this crate is here.
//!
//! Start at [`Transport`] and [`Event`]. Each transport has an OS thread of its own, takes commands in order, and
//! answers through a shared mailbox: [`Events`]. A transport makes no decisions: the engine handles failed
//! operations and unexpected facts.

use holdfast_scheduler::{
    Completion, Engine, EngineOutput, Fact, Key, Now, OpId, Operation, Scope, SortedFacts,
};

pub(crate) mod cancellation;
mod carrier;
pub(crate) mod codecs;
mod credentials;
mod files;
mod mailbox;
mod route_lookup;
pub(crate) mod rtnetlink;
mod shadow;
pub(crate) mod simulated;
mod sshd;
mod sysctl;
pub(crate) mod texts;
mod uts;
mod watch;

pub use crate::transport_id::{FILES, RTNETLINK, SYSCTL, UTS};
pub use mailbox::Events;
pub(crate) use mailbox::mailbox;
pub use route_lookup::{BestRoutes, RouteLookup};
pub use rtnetlink::RtnetlinkError;
pub use simulated::{Fault, SimulatedKernel, SimulatedTransport};

/// Carries out operations, and reads objects back. No method blocks; answers arrive as [`Event`]s.
pub trait Transport: Send {
    /// Carries out operations in order. Two transports work in parallel.
    ///
    /// Each operation is answered by one [`Completion`], also when it is not carried out.
    fn submit(&mut self, batch: Vec<Operation>);

    /// Cancels operations. Operations that have not started are answered with
    /// [`OperationError::cancellation`](holdfast_scheduler::OperationError::cancelled); a request that the kernel
    /// already has is still carried out.
    fn cancel(&mut self, operations: Vec<OpId>);

    /// Reads these objects back, after everything submitted before. Each is answered by a [`Fact`], without a
    /// value when the object does not exist.
    fn read(&mut self, keys: Vec<Key>);

    /// Reads all objects, answered by one [`Event::Retrieved`] of [`Scope::Everything`].
    fn retrieve(&mut self);

    /// A way to ask the kernel which routes it uses.
    fn route_lookup(&self) -> RouteLookup {
        RouteLookup::default()
    }
}

/// A report of a transport. Reports come in the order in which the transport learned of their content.
#[derive(Debug)]
pub enum Event {
    /// These operations have succeeded or failed.
    Completed(Vec<Completion>),
    /// Objects have changed, or were read back.
    Observed(Vec<Fact>),
    /// Complete content of a part of the system: objects within the scope that no fact names do not exist.
    Retrieved {
        /// Scope of the report.
        scope: Scope,
        /// Objects that exist.
        facts: SortedFacts,
    },
}

impl Event {
    /// Passes the event to the engine, and returns its reaction.
    pub fn report_to(self, engine: &mut Engine, now: Now) -> EngineOutput {
        match self {
            Self::Completed(completions) => engine.completed(completions, now),
            Self::Observed(facts) => engine.observed(facts, now),
            Self::Retrieved { scope, facts } => engine.retrieved(scope, facts, now),
        }
    }
}
