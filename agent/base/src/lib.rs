//! Shared by the crates of the process: callers and roles, trusted users of the box, error chains, the time of day, work that blocks,
//! the list of work that a reboot would cut off, the limit on repeated lines of the log, and the HTTP/1 server for clients on the box.
//!
//! Start at [`Caller`]. Nothing here knows configuration, the kernel, the database or the wire, except that a missing caller or role
//! has a gRPC status.

mod blocking;
mod box_user;
mod caller;
mod clock;
mod epoch;
mod error_chain;
pub mod http1;
mod log_throttle;
mod reboot_inhibitors;
mod switch;

pub use self::blocking::beside_others;
pub use self::box_user::is_root_or_own;
pub use self::caller::{AuthMethod, Caller, Role, UnknownRole};
pub use self::clock::now_ns;
pub use self::epoch::{AccessEpoch, Clock};
pub use self::error_chain::ErrorChain;
pub use self::log_throttle::{DueLines, LogThrottle, Merge};
pub use self::reboot_inhibitors::{RebootInhibitor, RebootInhibitors};
pub use self::switch::Switch;
