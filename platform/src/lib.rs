//! Management of a Linux network box: the objects, and access to the kernel and to files.
//!
//! Start at [`objects`] for the conversion between entries of the native model and the typed [`values`], at [`kinds`]
//! for the engine's view of each kind and the encoding of its operations ([`kinds::codec`]), at
//! [`transport`] for the threads that carry requests out. [`probe`] implements ping and traceroute, independently
//! of all that. Everything but the transports and the sockets of probes is pure: no socket, file, clock or lock.
//!
//! Absent on purpose: decisions about order or retries (the engine's), and the deletion of anything that does not
//! carry our mark. When a request fails, its operation fails with the kernel's message; a creation of several
//! requests is rolled back.
#![warn(missing_docs)]

mod collector;
pub mod failure;
mod foreign_routes;
pub mod forwarding;
pub mod hostname;
pub mod kernel_trial;
pub mod kinds;
mod lag_state;
mod link_rates;
mod listed_route;
pub mod namespace_lock;
pub mod netns;
pub mod objects;
mod platform;
pub mod pre_image;
pub mod probe;
mod rights;
pub mod route_table;
mod survey;
pub mod transport;
mod transport_id;
pub mod value_json;
pub mod values;
mod vault;

pub use collector::{BoxClock, Collector, PolledLeaves};
pub use foreign_routes::ForeignRoutes;
pub use kinds::codec::is_in_the_way;
pub use lag_state::{LacpPorts, LagSpeeds};
pub use link_rates::LinkRates;
pub use platform::{Platform, PlatformError, PlatformSettings};
pub use rights::is_missing_right;
pub use survey::{LeftOut, Survey, SurveyError, SurveyedEntry};
pub use transport::{BestRoutes, RouteLookup};
pub use values::Destination;
pub use vault::{EmptyVault, Vault};

#[cfg(test)]
mod kernel_tests;
