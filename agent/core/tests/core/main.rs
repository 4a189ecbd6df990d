//! The core on the simulated kernel: a change with every kind of accident.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_core::{CommitError, CommitOptions, CommitStamp, Datastore, Intent, Statuses};
use holdfast_platform::transport::SimulatedKernel;

mod abandon;
mod admission;
mod changes;
mod fences;
mod impact;
mod lacp;
mod polled;
mod ports;
mod reconcile;
mod routes;
mod told;

pub(crate) use holdfast_core::fixtures::{
    BOX, CoreFixture as Agent, caller, in_force, memory_folder, routes,
};
