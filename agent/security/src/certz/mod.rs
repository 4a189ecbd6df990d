//! TLS profiles: what a server shows, whom it trusts, and how new material comes into force (gNSI certz).
//!
//! A [`Profile`] has up to four entities, each with the version and age its author gave it. Start at
//! [`Profiles::with_upload`]: it says what a profile would be with an upload, or what is wrong with it. Nothing is half
//! taken: a profile is a value, and the old one stays what it was. [`Profile::clients`] verifies those who connect.
//!
//! Absent on purpose: sockets, files and the clock. Times come in as arguments, randomness comes from the library.

mod chain;
mod csr;
mod failure;
mod material;
mod pkcs7;
mod policy;
mod profile;
mod revocation;
mod rules;
#[cfg(test)]
mod tests;
mod trust;

pub use self::chain::{Chain, Key, OfBox, PrivateKey};
pub use self::csr::{AlternativeNames, CsrParams, Curve, Generated, Hash, RsaBits, Suite};
pub use self::failure::{CertzError, Kind};
pub use self::material::{Encoding, certificates, private_key};
pub use self::policy::{AuthenticationPolicy, Rule};
pub use self::profile::{
    BoxIdentity, ChainSource, Content, Entity, EntityKind, Freshness, KeySource, Profile, Profiles,
    SYSTEM_DEFAULT_PROFILE, StoredEntity, Upload, Versioned,
};
pub use self::revocation::RevocationLists;
pub use self::rules::{Change, Reply, Rules, State};
pub use self::trust::{Clients, Rejection, TrustBundle};
