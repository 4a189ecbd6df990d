//! TLS profiles: server identity, trusted authorities, and rotation of both (gNSI certz).
//!
//! A [`Profile`] has up to four entities, each with the version and creation time that its author gave it. Start
//! at [`Profiles::with_upload`], which computes the profiles after an upload or the reason to refuse it. An upload
//! applies as a whole or not at all, because a profile is a value and the old one is never modified.
//! [`Profile::clients`] verifies the certificates of clients.
//!
//! Absent on purpose: sockets, files and the clock. Times come in as arguments, randomness comes from the library.

mod chain;
mod csr;
mod error;
mod material;
mod pkcs7;
mod policy;
mod profile;
mod revocation;
mod rules;
#[cfg(test)]
mod tests;
mod trust;

pub use self::chain::{BoxIdentityKind, Chain, ChainKey, PrivateKey};
pub use self::csr::{AlternativeNames, CsrParams, Curve, GeneratedRequest, Hash, RsaBits, Suite};
pub use self::error::{CertzError, CertzErrorKind};
pub use self::material::{Encoding, certificates, private_key};
pub use self::policy::{AuthenticationPolicy, Rule};
pub use self::profile::{
    BoxIdentity, ChainSource, Content, Entity, EntityKind, Freshness, KeySource, Profile, Profiles,
    SYSTEM_DEFAULT_PROFILE, StoredEntity, Upload, Versioned,
};
pub use self::revocation::RevocationLists;
pub use self::rules::{CertzRules, Reply, RotationState, StreamMessage};
pub use self::trust::{ClientRequirements, Rejection, TrustBundle};
