//! Packages in the database.
//!
//! The row of a type has the package with which its instances are made, when it was installed or has instances; rows
//! `TYPE/VERSION` have others, with which instances were walked that were left behind or back out. What the database has
//! comes before the folder of `--services`, so that another archive there changes nothing at a start.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use holdfast_base::{ErrorChain, now_ns};
use holdfast_config::Configuration;
use holdfast_config::services::PackageArchive;
use holdfast_core::package_row;
use holdfast_services::outline::Version;
use holdfast_services::{PackageFiles, PackageSource, ServiceTypes};
use holdfast_store::{Artefact, Store, StoreError};
use smol_str::{SmolStr, format_smolstr};
use tracing::error;

use super::offered::{OfferedPackage, read_archive};

/// Words of the label of a row behind the version.
const INSTALLED: &str = "installed";
const OFFERED: &str = "offered";
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Where a package is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PackageOrigin<'a> {
    /// The folder of `--services`.
    Folder,
    /// An operator, with the signer of a package that came over the network.
    Installed(Option<&'a str>),
}

/// The source of a package that is loaded now.
pub(super) fn source(origin: PackageOrigin<'_>, version: Version, octets: &[u8]) -> PackageSource {
    let label = match origin {
        PackageOrigin::Folder => format_smolstr!("{version} {OFFERED}"),
        PackageOrigin::Installed(None) => format_smolstr!("{version} {INSTALLED}"),
        PackageOrigin::Installed(Some(signer)) => {
            format_smolstr!("{version} {INSTALLED} {signer}")
        }
    };
    let (loaded_on, octets) = (now_ns() / NANOS_PER_SECOND, octets.into());
    let archive = Arc::new(PackageArchive { label, loaded_on, octets });
    PackageSource { archive, is_installed: origin != PackageOrigin::Folder }
}

/// The signer of a package that came over the network.
pub(super) fn signer(source: &PackageSource) -> Option<&str> {
    source.archive.label.splitn(3, ' ').nth(2)
}

/// Reads the packages of the database, those first with which no instances are made any more. One that cannot be read is
/// logged, and left out.
pub(super) fn read(stored: &BTreeMap<String, Artefact>) -> Vec<OfferedPackage> {
    let (others, newest): (Vec<_>, Vec<_>) = stored.iter().partition(|(row, _)| row.contains('/'));
    let read = |(row, artefact): (&String, &Artefact)| match read_archive(
        Path::new(row),
        &artefact.content,
    ) {
        Ok((outline, files)) => {
            Some(package(artefact, (outline.name.text, outline.version), files))
        }
        Err(error) => {
            error!(package = row, error = %ErrorChain(&error), "a package of services in the database is not loaded");
            None
        }
    };
    others.into_iter().chain(newest).filter_map(read).collect()
}

fn package(
    artefact: &Artefact,
    (name, version): (SmolStr, Version),
    files: PackageFiles,
) -> OfferedPackage {
    // Earlier versions of the agent kept installed packages alone, with nothing behind the version.
    let is_installed = artefact.version.split(' ').nth(1) != Some(OFFERED);
    let archive = Arc::new(PackageArchive {
        label: artefact.version.as_str().into(),
        loaded_on: artefact.created_on,
        octets: artefact.content.as_slice().into(),
    });
    let source = PackageSource { archive, is_installed };
    OfferedPackage { name, version, path: None, files, source }
}

/// Has the database keep what the configuration asks for. A change that was taken back when the agent ended, or an earlier
/// version of the agent, may have left something else. Packages that could not be loaded stay.
///
/// # Errors
/// When they cannot be written.
pub async fn reconcile(
    store: &Store,
    stored: &BTreeMap<String, Artefact>,
    (types, configuration): (&ServiceTypes, &Configuration),
) -> Result<(), StoreError> {
    let wanted = configuration.packages();
    let is_stored = |name: &SmolStr, archive: &PackageArchive| {
        let row = stored.get(name.as_str());
        row.is_some_and(|row| row.content[..] == archive.octets[..] && row.version == archive.label)
    };
    let missing = wanted.iter().filter(|(name, archive)| !is_stored(name, archive));
    let missing = missing.map(|(name, archive)| (name.clone(), Some(Arc::clone(archive))));
    let is_loaded = |row: &str| {
        let service = row.split('/').next().unwrap_or_default();
        let octets = stored.get(row).map(|row| &row.content[..]);
        let mut sources = types.versions(service).filter_map(|it| it.source.as_ref());
        sources.any(|source| Some(&source.archive.octets[..]) == octets)
    };
    let unused = stored.keys().filter(|row| !wanted.contains_key(row.as_str()) && is_loaded(row));
    let unused = unused.map(|row| (SmolStr::from(row.as_str()), None));
    let changes: Vec<_> = missing.chain(unused).map(package_row).collect();
    if changes.is_empty() { Ok(()) } else { store.write_artefacts(changes).await }
}
