//! Packages of services: where they come from, who has signed them, and how they are exchanged.

pub(super) mod folder;
pub(super) mod installer;
pub(super) mod offered;
pub(super) mod rendering;
pub(super) mod revocation;
pub(super) mod shown_types;
pub(super) mod signers;
pub(super) mod stored;
pub(super) mod trial;
pub(super) mod upgrade;
