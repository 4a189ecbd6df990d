//! What gNSI keeps on the box, and what it decides: policies, certificates, credentials, records.
//!
//! Everything here is a function of its arguments: no socket, file, clock or lock, and no protobuf. The daemon's
//! northbound translates messages into these types, its store keeps them, its listener and its services ask them.
//!
//! Start at [`rotation`] to follow how something new comes into force.

pub mod acctz;
pub mod authz;
pub mod certz;
pub mod credentialz;
pub mod pathz;
pub mod rotation;
