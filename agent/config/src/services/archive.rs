//! Packages as they are stored.

use std::sync::Arc;

use smol_str::SmolStr;

/// The archive of a package, as the database keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageArchive {
    /// Version, and where the package is from.
    pub label: SmolStr,
    /// Time at which it was loaded first, in seconds since 1970.
    pub loaded_on: u64,
    pub octets: Arc<[u8]>,
}
