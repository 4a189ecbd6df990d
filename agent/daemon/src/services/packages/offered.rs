//! The packages that the agent loads at its start: those of the database, and those of a folder (`--services`).

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_base::{ErrorChain, is_root_or_own};
use holdfast_config::Models;
use holdfast_core::UserSecrets;
use holdfast_services::outline::{ARCHIVE_EXTENSION, OUTLINE, Version, archive_name};
use holdfast_services::{Outline, PackageError, PackageFiles, PackageSource, ServiceTypes};
use holdfast_store::Artefact;
use smol_str::SmolStr;
use tracing::{error, info, warn};

use super::folder;
use super::signers::PackageSigners;
use super::stored::{self, PackageOrigin};
use super::trial::{self, Candidate};
use crate::services::ServiceError;

/// Bits of a file's mode by which others than its owner can write it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A package that may be loaded.
#[derive(Debug)]
pub(in crate::services) struct OfferedPackage {
    pub(in crate::services) name: SmolStr,
    pub(in crate::services) version: Version,
    /// File of the archive; `None` for a package of the database.
    pub(in crate::services) path: Option<PathBuf>,
    pub(in crate::services) files: PackageFiles,
    pub(in crate::services) source: PackageSource,
}

impl OfferedPackage {
    /// Its file, for the log.
    fn shown_path(&self) -> String {
        let path = self.path.as_deref();
        path.map_or("the database".into(), |path| path.to_string_lossy().into_owned())
    }
}

/// A package that was not loaded at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedPackage {
    /// The type of services, or the name of the file where that cannot be read.
    pub name: SmolStr,
    pub reason: SmolStr,
}

impl RefusedPackage {
    /// Notes and logs why a package is not loaded.
    pub(in crate::services) fn note(name: &str, path: &str, reason: &str) -> Self {
        error!(package = %path, %reason, "a package of services is not loaded");
        Self { name: name.into(), reason: reason.into() }
    }
}

/// The packages of a start: those of the database, and of the folder the highest version of each type.
#[derive(Debug)]
pub struct OfferedPackages {
    stored: Vec<OfferedPackage>,
    of_folder: Vec<OfferedPackage>,
    refused: Vec<RefusedPackage>,
}

impl OfferedPackages {
    /// Reads the packages. A refused package is noted and left out: the box has to come up without it.
    ///
    /// # Errors
    /// When the folder cannot be read, or others could put packages into it.
    pub fn read(
        folder: Option<&Path>,
        stored: &BTreeMap<String, Artefact>,
        signers: &PackageSigners,
    ) -> Result<Self, ServiceError> {
        let mut refused = Vec::new();
        let of_folder = match folder {
            Some(folder) => of_folder(folder, &mut refused)?.into_values().collect(),
            None => Vec::new(),
        };
        let stored = stored::read(stored, &signers.verifier(), &mut refused);
        Ok(Self { stored, of_folder, refused })
    }

    /// Packages that another process, which has a folder in `scratch`, could load; others are noted.
    pub async fn tried(mut self, scratch: &Path) -> Self {
        self.stored = without_refused(self.stored, scratch, &mut self.refused).await;
        self.of_folder = without_refused(self.of_folder, scratch, &mut self.refused).await;
        self
    }

    /// Loads the packages, those of the folder whose types the database does not have. A refused package is noted,
    /// and the others are loaded.
    pub fn load(mut self, models: Arc<Models>) -> (ServiceTypes, Vec<RefusedPackage>) {
        let mut types = ServiceTypes::new(models).with_keeper(UserSecrets::keeper());
        let refused = &mut self.refused;
        for package in self.stored {
            refused.extend(load_one(&mut types, package));
        }
        for package in self.of_folder {
            let name = &package.name;
            let version = types.versions(name).next().map(|it| it.package.version());
            match version {
                None => refused.extend(load_one(&mut types, package)),
                Some(loaded) if loaded < package.version => {
                    let offered = package.version;
                    info!(service = %name, %loaded, %offered, "a newer version of a type of services is offered, and can be installed");
                }
                Some(_) => {}
            }
        }
        (types, self.refused)
    }
}

/// The packages that another process could load.
async fn without_refused(
    packages: Vec<OfferedPackage>,
    scratch: &Path,
    noted: &mut Vec<RefusedPackage>,
) -> Vec<OfferedPackage> {
    let candidates = packages.iter().map(|package| Candidate {
        name: archive_name(&package.name, package.version),
        archive: &package.source.archive.octets,
    });
    let candidates: Vec<_> = candidates.collect();
    let mut refused: BTreeMap<usize, String> =
        trial::refused(scratch, &candidates).await.into_iter().collect();
    let mut good = Vec::new();
    for (number, package) in packages.into_iter().enumerate() {
        match refused.remove(&number) {
            None => good.push(package),
            Some(reason) => {
                noted.push(RefusedPackage::note(&package.name, &package.shown_path(), &reason));
            }
        }
    }
    good
}

/// Loads a package. When it is refused, the reason is noted.
fn load_one(types: &mut ServiceTypes, package: OfferedPackage) -> Option<RefusedPackage> {
    let path = package.shown_path();
    let OfferedPackage { name, version, files, source, .. } = package;
    match types.load(&files, Some(source)) {
        Ok(warnings) => {
            info!(service = %name, %version, "loaded a type of services");
            for warning in warnings {
                warn!(package = %path, %warning, "a package of services");
            }
            None
        }
        Err(errors) => Some(RefusedPackage::note(&name, &path, &errors.to_string())),
    }
}

/// The highest version of each type in a folder.
fn of_folder(
    folder: &Path,
    refused: &mut Vec<RefusedPackage>,
) -> Result<BTreeMap<SmolStr, OfferedPackage>, ServiceError> {
    let failed = |source| ServiceError::File { action: "read", path: folder.to_owned(), source };
    let metadata = fs::metadata(folder).map_err(failed)?;
    check_owner(folder, &metadata)?;
    let mut offered = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|end| end != ARCHIVE_EXTENSION) {
            continue;
        }
        match read(&path) {
            Ok(package) => keep_highest(&mut offered, package),
            Err(error) => {
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                let path = path.to_string_lossy();
                let reason = ErrorChain(&error).to_string();
                refused.push(RefusedPackage::note(&file, &path, &reason));
            }
        }
    }
    Ok(offered)
}

fn keep_highest(offered: &mut BTreeMap<SmolStr, OfferedPackage>, package: OfferedPackage) {
    match offered.get(&package.name) {
        Some(other) if other.version >= package.version => {}
        _ => drop(offered.insert(package.name.clone(), package)),
    }
}

/// Reads an archive whose name says what is in it.
fn read(path: &Path) -> Result<OfferedPackage, ServiceError> {
    let failed = |source| ServiceError::File { action: "read", path: path.to_owned(), source };
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    check_owner(path, &metadata)?;
    let octets = folder::bounded(path)?;
    let (outline, files) = read_archive(path, &octets)?;
    let wanted = outline.archive_name();
    if path.file_name().is_none_or(|name| *name != *wanted) {
        let reason = format!("the archive holds `{wanted}`, and is called otherwise");
        let errors = PackageError::of_file("", reason).into();
        return Err(ServiceError::Package { path: path.to_owned(), errors });
    }
    let source = stored::source(PackageOrigin::Folder, outline.version, &octets);
    let name = outline.name.text;
    let version = outline.version;
    Ok(OfferedPackage { name, version, path: Some(path.to_owned()), files, source })
}

/// Reads the outline and the files of an archive; `path` names it in errors.
pub(in crate::services) fn read_archive(
    path: &Path,
    archive: &[u8],
) -> Result<(Outline, PackageFiles), ServiceError> {
    let refused = |errors| ServiceError::Package { path: path.to_owned(), errors };
    let files = PackageFiles::read(archive).map_err(refused)?;
    let text = files.text(OUTLINE).transpose().map_err(|error| refused(error.into()))?;
    let (outline, _) = Outline::read(text.unwrap_or_default()).map_err(refused)?;
    Ok((outline, files))
}

/// Refuses what others could change: a package decides what its service writes.
fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), ServiceError> {
    let reason = match (metadata.uid(), metadata.mode()) {
        (owner, _) if !is_root_or_own(owner) => format!("the file belongs to user {owner}"),
        (_, mode) if mode & WRITABLE_BY_OTHERS != 0 => format!("its mode is {:o}", mode & 0o7777),
        _ => return Ok(()),
    };
    Err(ServiceError::Unsafe { path: path.to_owned(), reason })
}
