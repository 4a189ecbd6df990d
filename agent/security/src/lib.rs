//! The rules behind gNSI: policies, certificates, credentials and accounting records.
//!
//! Everything here is a function of its arguments: no socket, file, clock or lock, and no protobuf. The daemon's
//! northbound translates messages into these types, its store persists them, its listener and services call them.
//!
//! Start at [`rotation`] to follow how an uploaded artefact takes effect.

pub mod acctz;
pub mod authz;
pub mod certz;
pub mod credentialz;
pub mod pathz;
pub mod rotation;
