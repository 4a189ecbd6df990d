//! Folders and files that are private to the agent.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

use holdfast_base::{ErrorChain, is_root_or_own};
use tracing::warn;

use super::StoreError;

/// File name of the database within the state folder.
pub const FILE_NAME: &str = "holdfast.redb";

/// Folder of the agent's own TLS identity, within the state folder.
pub const IDENTITY_FOLDER: &str = "tls";

/// Folder for the progress of bootstrapping, within the state folder.
pub const BOOTZ_FOLDER: &str = "bootz";

/// Folder for packages that clients have uploaded, within the state folder.
pub const PACKAGES_FOLDER: &str = "packages";

/// Folder for other files that clients have put, within the state folder.
pub const FILES_FOLDER: &str = "files";

/// File with the format of the state folder and the version of the agent that wrote it, in one line.
pub const FORMAT_FILE: &str = "format";

/// Permissions: read, write and enter for the owner only.
const PRIVATE_FOLDER: u32 = 0o700;
/// Permissions: read and write for the owner only.
const PRIVATE_FILE: u32 = 0o600;

/// Creates `folder` and its parents with mode 0700, or sets that mode of an existing one.
///
/// The mode of an existing folder is changed only when it is empty or has our database: a mistyped `--state-dir
/// /tmp` must not change `/tmp`. It, and a symbolic link in its place, must belong to root or to the agent's user: others could
/// read the keys in it, or exchange it.
///
/// # Errors
/// When the folder cannot be created, belongs to others, or is accessible to others and has foreign files.
pub fn create_private_folder(folder: &Path) -> Result<(), StoreError> {
    create_folder_trusting(folder, is_root_or_own)
}

fn create_folder_trusting(
    folder: &Path,
    is_trusted: impl Fn(u32) -> bool,
) -> Result<(), StoreError> {
    let failed = |action| move |source| StoreError::File { action, path: folder.into(), source };
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_FOLDER)
        .create(folder)
        .map_err(failed("make the folder"))?;
    let metadata = fs::metadata(folder).map_err(failed("read the owner of"))?;
    let link = fs::symlink_metadata(folder).map_err(failed("read the owner of"))?;
    if let Some(owner) = [link.uid(), metadata.uid()].into_iter().find(|uid| !is_trusted(*uid)) {
        return Err(StoreError::FolderOfOthers { path: folder.into(), owner });
    }
    let mode = metadata.permissions().mode() & 0o7777;
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

/// Writes a whole file with mode 0600. After a crash the file has either its old or its new content.
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

/// Notes the format of the state folder, so that the package of an earlier version can refuse its installation without the
/// database. A disk that does not take the line costs a warning: nothing in the agent reads it.
pub(super) fn note_format(folder: &Path, format: u64) {
    let path = folder.join(FORMAT_FILE);
    let line = format!("{format} {}\n", env!("CARGO_PKG_VERSION"));
    if fs::read_to_string(&path).is_ok_and(|kept| kept == line) {
        return;
    }
    if let Err(error) = write_private_file(&path, line.as_bytes()) {
        warn!(error = %ErrorChain(&error), "the format of the state folder is not noted");
    }
}

/// Removes a folder with its content, if it exists.
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

/// Makes changes of names in a folder durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Opens the database file, created with mode 0600 when it does not exist.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn the_format_is_one_line_that_follows_the_version() {
        let outer = TempDir::new().unwrap();
        let folder = outer.path().join("state");
        let kept = || fs::read_to_string(folder.join(FORMAT_FILE)).unwrap();
        let line = format!("{} {}\n", crate::FORMAT, env!("CARGO_PKG_VERSION"));
        crate::Database::open(&folder).unwrap();
        assert_eq!(kept(), line);
        fs::write(folder.join(FORMAT_FILE), "1 0.0.9\n").unwrap();
        crate::Database::open(&folder).unwrap();
        assert_eq!(kept(), line, "of the version that has opened it last");
        note_format(&folder, crate::FORMAT + 1);
        assert!(kept().starts_with(&format!("{} ", crate::FORMAT + 1)));
        let missing = outer.path().join("missing");
        note_format(&missing, 1);
        assert!(!missing.exists(), "a disk that refuses costs a warning alone");
    }

    #[test]
    fn a_folder_of_another_user_is_refused() {
        let outer = TempDir::new().unwrap();
        let own = fs::metadata(outer.path()).unwrap().uid();
        let folder = outer.path().join("state");
        let link = outer.path().join("link");
        create_private_folder(&folder).unwrap();
        symlink(&folder, &link).unwrap();
        for path in [&folder, &link] {
            create_private_folder(path).unwrap();
            let refused = create_folder_trusting(path, |uid| uid != own).unwrap_err();
            assert!(matches!(refused, StoreError::FolderOfOthers { .. }), "{refused}");
            let text = format!("`{}` belongs to user {own}", path.display());
            assert!(refused.to_string().contains(&text), "{refused}");
        }
    }
}
