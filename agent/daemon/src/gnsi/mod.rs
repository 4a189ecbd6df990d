//! What gNSI has in force while the agent runs, for the services that change it and for everyone who asks.
//!
//! [`Gnsi`] is made from what the store holds, before anything is served. Services change it through rotations
//! (`northbound::gnsi`), one at a time for each [`Turn`]; the listener and the layers in front of the services only read.

pub mod pathz;
mod rotations;

pub use rotations::{Held, Rotations, Turn};
