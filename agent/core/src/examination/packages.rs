//! Rows of packages of services in the database: those that were installed, and those that instances use.
//!
//! The commit write of the change that makes the difference writes and removes them.

use holdfast_config::PackageChange;
use holdfast_store::{Artefact, ArtefactChange, ArtefactTable};

/// The row of a package that is written, or removed.
pub fn package_row((name, archive): PackageChange) -> ArtefactChange {
    let artefact = archive.map(|archive| Artefact {
        version: archive.label.to_string(),
        created_on: archive.loaded_on,
        content: archive.octets.to_vec().into(),
    });
    ArtefactChange { table: ArtefactTable::ServicePackages, name: name.into(), artefact }
}
