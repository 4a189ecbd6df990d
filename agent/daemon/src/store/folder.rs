//! Folders and files that only the agent may read.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use super::{FILE_NAME, StoreError};

/// The TLS identity that the agent made for itself, within the state folder.
pub const IDENTITY_FOLDER: &str = "tls";

/// How far a bootstrap got, within the state folder.
pub const BOOTZ_FOLDER: &str = "bootz";

/// Packages that clients left on the box, within the state folder.
pub const PACKAGES_FOLDER: &str = "packages";

/// Read, write and enter for the owner alone.
const PRIVATE_FOLDER: u32 = 0o700;
/// Read and write for the owner alone.
const PRIVATE_FILE: u32 = 0o600;

/// Makes `folder` (and those above it) with mode 0700, or takes that mode for an existing one.
///
/// An existing folder is closed to others only when it is empty or holds our database: somebody's typing
/// `--state-dir /tmp` must not change `/tmp`.
///
/// # Errors
/// When it cannot be made, or is open to others and holds other people's files.
pub fn create_private_folder(folder: &Path) -> Result<(), StoreError> {
    let failed = |action| move |source| StoreError::File { action, path: folder.into(), source };
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_FOLDER)
        .create(folder)
        .map_err(failed("make the folder"))?;
    let mode =
        fs::metadata(folder).map_err(failed("read the mode of"))?.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    if !is_ours(folder).map_err(failed("list the folder"))? {
        return Err(StoreError::FolderIsShared { path: folder.into(), mode });
    }
    fs::set_permissions(folder, Permissions::from_mode(PRIVATE_FOLDER))
        .map_err(failed("close to others"))
}

fn is_ours(folder: &Path) -> io::Result<bool> {
    Ok(folder.join(FILE_NAME).exists() || fs::read_dir(folder)?.next().is_none())
}

/// Writes a whole file with mode 0600 so that a crash leaves the old one or the new one, never a part.
///
/// # Errors
/// When it cannot be written.
pub fn write_private_file(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let fresh = path.with_extension("new");
    let written = || {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(PRIVATE_FILE)
            .open(&fresh)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        path.parent().map_or(Ok(()), sync_folder)
    };
    written().map_err(|source| StoreError::File { action: "write", path: path.into(), source })
}

/// Removes a folder with all that is in it, if it is there.
pub(super) fn remove_folder(folder: &Path) -> Result<(), StoreError> {
    match fs::remove_dir_all(folder) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::File { action: "remove the folder", path: folder.into(), source })
        }
        _ => Ok(()),
    }
}

/// Removes a file, if it is there.
pub(super) fn remove_file(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(StoreError::File { action: "remove", path: path.into(), source })
        }
        _ => Ok(()),
    }
}

/// Makes the names in a folder last through a power cut.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Opens the database file, made with mode 0600 when it does not exist.
pub(super) fn open_private_file(path: &Path) -> Result<File, StoreError> {
    let opened = || {
        let is_new = !path.exists();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(PRIVATE_FILE)
            .open(path)?;
        file.set_permissions(Permissions::from_mode(PRIVATE_FILE))?; // a restored copy may have another mode
        if is_new {
            path.parent().map_or(Ok(()), sync_folder)?;
        }
        Ok(file)
    };
    opened().map_err(|source| StoreError::File {
        action: "open the database",
        path: path.into(),
        source,
    })
}
