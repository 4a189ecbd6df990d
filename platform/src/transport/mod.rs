//! What carries operations out and reports facts. Only here is anything written or read.
//!
//! Start at [`Transport`] and [`Event`]. Each transport works on an OS thread of its own, takes
//! commands in order, and answers through one mailbox: [`Events`]. A transport decides nothing:
//! what to do about a failed operation or a fact nobody expected is the engine's business.

use holdfast_scheduler::{
    Completion, Engine, Fact, Key, Now, OpId, Operation, Scope, Step, TransportId,
};

pub(crate) mod cancelled;
pub(crate) mod codecs;
mod credentials;
mod files;
mod mailbox;
pub(crate) mod rtnetlink;
mod shadow;
pub(crate) mod simulated;
mod sshd;
mod sysctl;
pub(crate) mod texts;
mod uts;
mod watch;

pub(crate) use codecs::Query;
pub use mailbox::Events;
pub(crate) use mailbox::mailbox;
pub use rtnetlink::RtnetlinkError;
pub use simulated::{Fault, SimulatedKernel, SimulatedTransport};

/// Links, addresses, neighbours and routes: rtnetlink of the managed namespace.
pub const RTNETLINK: TransportId = TransportId(1);
/// Kernel variables below `/proc/sys` of the managed namespace.
pub const SYSCTL: TransportId = TransportId(2);
/// Text files below the settings' root.
pub const FILES: TransportId = TransportId(3);
/// The host name in the UTS namespace of the managed box.
pub const UTS: TransportId = TransportId(4);

/// Carries operations out, and reads back. Nothing here waits: answers arrive as [`Event`]s.
pub trait Transport: Send {
    /// Carries operations out in their order (per transport; two transports run side by side).
    ///
    /// Each ends in one [`Completion`], also when it is not carried out at all.
    fn submit(&mut self, batch: Vec<Operation>);

    /// These are not wanted any more. What has not begun is answered with
    /// [`OperationError::cancelled`](holdfast_scheduler::OperationError::cancelled); a request that the kernel has is
    /// carried out all the same.
    fn cancel(&mut self, operations: Vec<OpId>);

    /// Reads these objects back, after everything submitted before; each is answered by a
    /// [`Fact`], with no value when there is no such object.
    fn read(&mut self, keys: Vec<Key>);

    /// Reads everything that matters; answered by one [`Event::Retrieved`] of
    /// [`Scope::Everything`].
    fn retrieve(&mut self);
}

/// What a transport reports, in the order in which it came to know.
#[derive(Debug)]
pub enum Event {
    /// These operations are done, or failed.
    Completed(Vec<Completion>),
    /// Something changed or was read.
    Observed(Vec<Fact>),
    /// Everything that is there of a part of the system: what the scope holds and these facts do
    /// not name does not exist.
    Retrieved {
        /// The part.
        scope: Scope,
        /// What is there.
        facts: Vec<Fact>,
    },
}

impl Event {
    /// Tells the engine; what it says to that.
    pub fn tell(self, engine: &mut Engine, now: Now) -> Step {
        match self {
            Self::Completed(completions) => engine.completed(completions, now),
            Self::Observed(facts) => engine.observed(facts, now),
            Self::Retrieved { scope, facts } => engine.retrieved(&scope, facts, now),
        }
    }
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
