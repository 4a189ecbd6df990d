//! Packages in the database.
//!
//! The row of a type has the package with which its instances are made, when it was installed or has instances; rows
//! `TYPE/VERSION` have others, with which instances were walked that were left behind or back out. A row
//! `ROW#signature` has the signature of the package in ROW, which a start verifies again: who signed it may be
//! revoked. The packages of the database come before the folder of `--services`, so that another archive there
//! changes nothing at a start.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{ErrorChain, now_ns};
use holdfast_config::Configuration;
use holdfast_config::services::PackageArchive;
use holdfast_core::package_row;
use holdfast_services::outline::Version;
use holdfast_services::{
    PackageFiles, PackageSource, ServiceTypes, is_signature_row, signature_row,
};
use holdfast_store::{Artefact, Store, StoreError};
use rustls_pki_types::UnixTime;
use smol_str::{SmolStr, format_smolstr};
use tracing::warn;

use super::offered::{OfferedPackage, RefusedPackage, read_archive};
use super::signers::SignatureVerifier;

/// Words of the label of a row behind the version.
const INSTALLED: &str = "installed";
const OFFERED: &str = "offered";
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Where a package is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::services) enum PackageOrigin<'a> {
    /// The folder of `--services`.
    Folder,
    /// An operator, with the signer of a package that came over the network, and the signature.
    Installed(Option<(&'a str, &'a [u8])>),
}

/// The source of a package that is loaded now.
pub(in crate::services) fn source(
    origin: PackageOrigin<'_>,
    version: Version,
    octets: &[u8],
) -> PackageSource {
    let label = match origin {
        PackageOrigin::Folder => format_smolstr!("{version} {OFFERED}"),
        PackageOrigin::Installed(None) => format_smolstr!("{version} {INSTALLED}"),
        PackageOrigin::Installed(Some((signer, _))) => {
            format_smolstr!("{version} {INSTALLED} {signer}")
        }
    };
    let loaded_on = now_ns() / NANOS_PER_SECOND;
    let signature = match origin {
        PackageOrigin::Installed(Some((_, signature))) => Some(Arc::new(PackageArchive {
            label: label.clone(),
            loaded_on,
            octets: signature.into(),
        })),
        _ => None,
    };
    let archive = Arc::new(PackageArchive { label, loaded_on, octets: octets.into() });
    let is_installed = origin != PackageOrigin::Folder;
    PackageSource { archive, is_installed, signature, refusal: None }
}

/// The signer of a package that came over the network.
pub(in crate::services) fn signer(source: &PackageSource) -> Option<&str> {
    source.archive.label.splitn(3, ' ').nth(2)
}

/// Reads the packages of the database, those first with which no instances are made any more. A package that cannot be read is noted, and left out; a package whose signer is refused now is logged, and stays.
pub(in crate::services) fn read(
    stored: &BTreeMap<String, Artefact>,
    verifier: &SignatureVerifier<'_>,
    refused: &mut Vec<RefusedPackage>,
) -> Vec<OfferedPackage> {
    let packages = stored.iter().filter(|(row, _)| !is_signature_row(row));
    let (others, newest): (Vec<_>, Vec<_>) = packages.partition(|(row, _)| row.contains('/'));
    let read = |(row, artefact): (&String, &Artefact)| match read_archive(
        Path::new(row),
        &artefact.content,
    ) {
        Ok((outline, files)) => {
            let signature = stored.get(signature_row(row).as_str());
            let mut package =
                package(artefact, outline.name.text, outline.version, files, signature);
            package.source.refusal = refusal(&package.source, verifier);
            if let Some(reason) = &package.source.refusal {
                warn!(package = row, %reason, "the signer of a package of services is refused now; the package stays");
            }
            Some(package)
        }
        Err(error) => {
            let name = row.split('/').next().unwrap_or_default();
            let reason = ErrorChain(&error).to_string();
            refused.push(RefusedPackage::note(name, "the database", &reason));
            None
        }
    };
    others.into_iter().chain(newest).filter_map(read).collect()
}

fn package(
    artefact: &Artefact,
    name: SmolStr,
    version: Version,
    files: PackageFiles,
    signature: Option<&Artefact>,
) -> OfferedPackage {
    // Earlier versions of the agent kept installed packages alone, with nothing behind the version.
    let is_installed = artefact.version.split(' ').nth(1) != Some(OFFERED);
    let archive = |artefact: &Artefact| {
        Arc::new(PackageArchive {
            label: artefact.version.as_str().into(),
            loaded_on: artefact.created_on,
            octets: artefact.content.as_slice().into(),
        })
    };
    let (archive, signature) = (archive(artefact), signature.map(archive));
    let source = PackageSource { archive, is_installed, signature, refusal: None };
    OfferedPackage { name, version, path: None, files, source }
}

/// Reason for which the signer of a package is refused by these lists. That its certificate has expired since the installation is none.
pub(in crate::services) fn refusal(
    source: &PackageSource,
    verifier: &SignatureVerifier<'_>,
) -> Option<SmolStr> {
    signer(source)?;
    let PackageArchive { loaded_on, octets, .. } = &*source.archive;
    let Some(signature) = &source.signature else {
        return Some("an earlier version of the agent did not keep its signature".into());
    };
    let at = UnixTime::since_unix_epoch(Duration::from_secs(*loaded_on));
    let verified = verifier.verify(&signature.octets, octets, at);
    verified.err().map(|error| format_smolstr!("{}", ErrorChain(&error)))
}

/// Has the database keep what the configuration asks for. A change that was taken back when the agent ended, or an earlier
/// version of the agent, may have left something else. Packages that could not be loaded stay.
///
/// # Errors
/// When they cannot be written.
pub async fn reconcile(
    store: &Store,
    stored: &BTreeMap<String, Artefact>,
    types: &ServiceTypes,
    configuration: &Configuration,
) -> Result<(), StoreError> {
    let wanted = configuration.packages();
    let is_stored = |name: &SmolStr, archive: &PackageArchive| {
        let row = stored.get(name.as_str());
        row.is_some_and(|row| row.content[..] == archive.octets[..] && row.version == archive.label)
    };
    let missing = wanted.iter().filter(|(name, archive)| !is_stored(name, archive));
    let missing = missing.map(|(name, archive)| (name.clone(), Some(Arc::clone(archive))));
    let is_loaded = |row: &str| {
        let service = row.split(['/', '#']).next().unwrap_or_default();
        let octets = stored.get(row).map(|row| &row.content[..]);
        let sources = types.versions(service).filter_map(|it| it.source.as_ref());
        let mut kept = sources.flat_map(|it| it.signature.iter().chain([&it.archive]));
        kept.any(|archive| Some(&archive.octets[..]) == octets)
    };
    let unused = stored.keys().filter(|row| !wanted.contains_key(row.as_str()) && is_loaded(row));
    let unused = unused.map(|row| (SmolStr::from(row.as_str()), None));
    let changes: Vec<_> = missing.chain(unused).map(package_row).collect();
    if changes.is_empty() { Ok(()) } else { store.write_artefacts(changes).await }
}
