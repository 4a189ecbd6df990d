//! The folder from which the agent loads its types of services (`--services`).

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_base::ErrorChain;
use holdfast_config::Models;
use holdfast_services::outline::{ARCHIVE_EXTENSION, OUTLINE, Version};
use holdfast_services::{Outline, PackageError, PackageFiles, ServiceTypes};
use smol_str::SmolStr;
use tracing::{error, info, warn};

use super::{ServiceError, folder};

/// Bits of a file's mode by which others than its owner can write it.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// A package that is offered.
struct Offered {
    version: Version,
    path: PathBuf,
    files: PackageFiles,
}

/// Loads the highest version of each type in a folder. A package that is refused is logged, and the others are loaded:
/// the box has to come up without it.
///
/// # Errors
/// When the folder cannot be read, or others could put packages into it.
pub fn load(folder: Option<&Path>, models: Arc<Models>) -> Result<ServiceTypes, ServiceError> {
    let mut types = ServiceTypes::new(models);
    let Some(folder) = folder else { return Ok(types) };
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
            Ok((name, package)) => keep_highest(&mut offered, name, package),
            Err(error) => {
                error!(package = %path.display(), error = %ErrorChain(&error), "a package of services is not loaded");
            }
        }
    }
    for (name, Offered { version, path, files }) in offered {
        match types.add(&files) {
            Ok(warnings) => {
                info!(service = %name, %version, "loaded a type of services");
                for warning in warnings {
                    warn!(package = %path.display(), %warning, "a package of services");
                }
            }
            Err(errors) => {
                error!(package = %path.display(), %errors, "a package of services is not loaded");
            }
        }
    }
    Ok(types)
}

fn keep_highest(offered: &mut BTreeMap<SmolStr, Offered>, name: SmolStr, package: Offered) {
    match offered.get(&name) {
        Some(other) if other.version >= package.version => {}
        _ => drop(offered.insert(name, package)),
    }
}

/// Reads an archive whose name says what is in it.
fn read(path: &Path) -> Result<(SmolStr, Offered), ServiceError> {
    let failed = |source| ServiceError::File { action: "read", path: path.to_owned(), source };
    let refused = |errors| ServiceError::Package { path: path.to_owned(), errors };
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    check_owner(path, &metadata)?;
    let files = PackageFiles::read(&folder::bounded(path)?).map_err(refused)?;
    let text = files.text(OUTLINE).transpose().map_err(|error| refused(error.into()))?;
    let (outline, _) = Outline::read(text.unwrap_or_default()).map_err(refused)?;
    let wanted = outline.archive_name();
    if path.file_name().is_none_or(|name| *name != *wanted) {
        let reason = format!("it holds `{wanted}`, and is called otherwise");
        return Err(refused(PackageError::of_file("", reason).into()));
    }
    let offered = Offered { version: outline.version, path: path.to_owned(), files };
    Ok((outline.name.text, offered))
}

/// Refuses what others could change: a package decides what its service writes.
fn check_owner(path: &Path, metadata: &Metadata) -> Result<(), ServiceError> {
    let own = nix::unistd::geteuid().as_raw();
    let reason = match (metadata.uid(), metadata.mode()) {
        (owner, _) if owner != 0 && owner != own => format!("it belongs to user {owner}"),
        (_, mode) if mode & WRITABLE_BY_OTHERS != 0 => format!("its mode is {:o}", mode & 0o7777),
        _ => return Ok(()),
    };
    Err(ServiceError::Unsafe { path: path.to_owned(), reason })
}
