//! Reserved items: clients may not write the items of the services while those are on.
//!
//! Reserved are the rows of [`RESERVED_ITEMS`] and whatever the boot layers hold. The unit is the leaf. An
//! entry that boot holds reserves all of its own leaves, set or not, and its existence, but not the
//! lists in it. A request that names such an item and would change it is refused; a container or a
//! wildcard that merely covers one takes the client's own copy away and leaves the owner's alone.
//!
//! Start at [`Configuration::reserved_for`](crate::Configuration::reserved_for) for what a delete names. The union compares what a request would set,
//! because it has all layers side by side anyway.

use crate::layer_key::Namespace;
use crate::schema::{NodeId, Schema};

/// One item that a service keeps to itself while it is on, whether or not it holds it.
#[derive(Clone, Copy, Debug)]
pub struct ReservedItem {
    pub service: Namespace,
    /// OpenConfig path without keys.
    pub openconfig: &'static str,
    /// Why, in words that follow the path.
    pub why: &'static str,
    /// True when services may ask for it while it is not reserved. Values of claims are not secrets.
    pub is_for_services: bool,
}

/// Everything that is reserved without being held. Boot has no rows: it reserves what it holds.
pub const RESERVED_ITEMS: [ReservedItem; 3] = [
    ReservedItem {
        service: Namespace::Gnsi,
        openconfig: "/system/aaa/authentication/users/user/config/password",
        why: "passwords are set by gNSI credentialz",
        is_for_services: false,
    },
    ReservedItem {
        service: Namespace::Gnsi,
        openconfig: "/system/aaa/authentication/users/user/config/password-hashed",
        why: "passwords are set by gNSI credentialz",
        is_for_services: false,
    },
    ReservedItem {
        service: Namespace::Gnsi,
        openconfig: "/system/aaa/authentication/users/user/config/ssh-key",
        why: "keys are set by gNSI credentialz",
        is_for_services: true,
    },
];

/// The row of an OpenConfig leaf, if it has one. The native model has none of these leaves.
pub fn row(openconfig: &Schema, leaf: NodeId) -> Option<&'static ReservedItem> {
    RESERVED_ITEMS.iter().find(|row| openconfig.find(row.openconfig) == Some(leaf))
}
