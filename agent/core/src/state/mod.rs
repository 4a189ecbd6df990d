//! Parts of what the loop owns. Each keeps its fields to itself.

mod clock;
mod first_showing;
mod foreign_routes;
mod in_force;
mod jobs;
mod outbox;
mod transports;
mod waiters;

pub(crate) use clock::Clock;
pub(crate) use first_showing::{Start, keys_to_show};
pub(crate) use foreign_routes::{RoutesOfOthers, as_route, preferred_of, warn_of_shadow};
pub(crate) use in_force::InForce;
pub(crate) use jobs::{JobResult, JobSet};
pub(crate) use transports::{TransportWork, Transports};
pub(crate) use waiters::Waiters;
