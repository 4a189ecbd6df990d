//! The folder of a package.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_services::limits::{PACKAGE_FILES, PACKAGE_SIZE};
use holdfast_services::{PackageError, PackageErrors, PackageFiles};
use smol_str::SmolStr;

use crate::services::ServiceError;

/// Folders within folders. Templates lie one below the package.
const DEPTH: usize = 8;

/// Reads the files of a folder. Names that begin with a dot are left out: they belong to editors and to version control.
pub(in crate::services) fn read(folder: &Path) -> Result<PackageFiles, ServiceError> {
    let mut files = Vec::new();
    let refused = |errors| ServiceError::Package { path: folder.to_path_buf(), errors };
    collect(folder, "", 0, &mut files, &refused)?;
    PackageFiles::new(files).map_err(refused)
}

/// Reads a file that is not larger than a package may be.
pub(in crate::services) fn bounded(path: &Path) -> Result<Vec<u8>, ServiceError> {
    let failed = |source| file_error("read", path, source);
    let mut octets = Vec::new();
    let limit = PACKAGE_SIZE.figure as u64 + 1;
    File::open(path).and_then(|file| file.take(limit).read_to_end(&mut octets)).map_err(failed)?;
    PACKAGE_SIZE.check(octets.len()).map_err(|error| failed(io::Error::other(error)))?;
    Ok(octets)
}

/// Writes the files of a package into a new folder.
pub(in crate::services) fn write(folder: &Path, files: &PackageFiles) -> Result<(), ServiceError> {
    fs::create_dir(folder).map_err(|source| file_error("create", folder, source))?;
    for (path, content) in files.iter() {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(|source| file_error("create", parent, source))?;
        fs::write(&path, content).map_err(|source| file_error("write", &path, source))?;
    }
    Ok(())
}

fn collect(
    folder: &Path,
    prefix: &str,
    depth: usize,
    files: &mut Vec<(SmolStr, Arc<[u8]>)>,
    of_package: &dyn Fn(PackageErrors) -> ServiceError,
) -> Result<(), ServiceError> {
    let refused = |path: &str, reason: &str| of_package(PackageError::of_file(path, reason).into());
    if depth == DEPTH {
        return Err(refused(prefix, "too many folders within folders"));
    }
    let failed = |source| file_error("read", folder, source);
    let entries = fs::read_dir(folder).map_err(failed)?;
    let mut entries = entries.collect::<io::Result<Vec<_>>>().map_err(failed)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() {
            collect(&entry.path(), &format!("{path}/"), depth + 1, files, of_package)?;
        } else if kind.is_file() {
            PACKAGE_FILES
                .check(files.len() + 1)
                .map_err(|error| refused("", &error.to_string()))?;
            files.push((path.into(), bounded(&entry.path())?.into()));
        } else {
            return Err(refused(
                &path,
                "the entry is not a regular file; a package has nothing else",
            ));
        }
    }
    Ok(())
}

fn file_error(action: &'static str, path: &Path, source: io::Error) -> ServiceError {
    ServiceError::File { action, path: PathBuf::from(path), source }
}
