//! Packages that clients leave on the box: whole and compared with their digest, or not at all. Images take the same
//! way, except for the end: they go into a slot of the box.
//!
//! They lie in one folder below the state folder, so that no client writes anywhere else; a factory reset takes them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use holdfast_store::{PACKAGES_FOLDER, StoreError, create_private_folder};
use nix::{errno::Errno, sys::statvfs::fstatvfs};
use tempfile::{Builder, NamedTempFile};
use tokio::{
    fs::File,
    io::AsyncWriteExt,
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{
    http_client::HttpClient,
    image::{self, Digest, ImageError, MAX_IMAGE},
    slots::{SlotError, Slots},
    software::ActivateError,
};

/// How files begin that are not whole yet; no package is named so.
const INCOMING: &str = ".incoming";
/// Bytes of a file name, after NAME_MAX of Linux.
const MAX_NAME: usize = 255;

/// Why a package is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackageError {
    #[error(
        "`{name}` is not a package name: give a file name that does not begin with a dot, alone or in `{}`",
        folder.display()
    )]
    Name { name: String, folder: PathBuf },
    #[error("another package is being transferred: try again later")]
    Busy,
    #[error("cannot make `{}`", path.display())]
    Make { path: PathBuf, source: io::Error },
    #[error("cannot remove incomplete packages from `{}`", path.display())]
    Sweep { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{0}` has more than {MAX_IMAGE} bytes")]
    TooLong(String),
    #[error("version `{0}` was installed, but is not listed afterwards")]
    NotThere(String),
    #[error(transparent)]
    Folder(#[from] StoreError),
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error(transparent)]
    Activate(#[from] ActivateError),
}

/// Where packages lie; clones share it.
#[derive(Clone, Debug)]
pub struct Packages {
    folder: PathBuf,
    slots: Slots,
    turn: Arc<Semaphore>,
}

/// A package that is not whole yet; it is gone when this is dropped.
#[derive(Debug)]
pub struct PackageUpload {
    name: String,
    folder: PathBuf,
    slots: Slots,
    file: NamedTempFile,
    writer: File,
    length: u64,
    _turn: OwnedSemaphorePermit,
}

impl Packages {
    pub fn new(state: &Path, slots: Slots) -> Self {
        let turn = Arc::new(Semaphore::new(1));
        Self { folder: state.join(PACKAGES_FOLDER), slots, turn }
    }

    /// Begins a package.
    ///
    /// # Errors
    /// When the name leads elsewhere, or another package is being transferred: try again later.
    pub fn begin(&self, name: &str) -> Result<PackageUpload, PackageError> {
        self.incoming(self.file_name(name)?)
    }

    /// Begins an image of this version.
    ///
    /// # Errors
    /// When the agent was started without a program that installs images, or while another package is being transferred;
    /// in that case the caller may try again later.
    pub fn begin_image(&self, version: &str) -> Result<PackageUpload, PackageError> {
        self.slots.program()?;
        self.incoming(version.to_owned())
    }

    fn incoming(&self, name: String) -> Result<PackageUpload, PackageError> {
        let turn = Arc::clone(&self.turn).try_acquire_owned().map_err(|_| PackageError::Busy)?;
        create_private_folder(&self.folder)?;
        let failed = |source| PackageError::Make { path: self.folder.clone(), source };
        let file = Builder::new().prefix(INCOMING).tempfile_in(&self.folder).map_err(failed)?;
        let writer = File::from_std(file.reopen().map_err(failed)?);
        let folder = self.folder.clone();
        let slots = self.slots.clone();
        Ok(PackageUpload { name, folder, slots, file, writer, length: 0, _turn: turn })
    }

    /// The name of the file, which alone may be given, or with its folder.
    fn file_name(&self, sent: &str) -> Result<String, PackageError> {
        let wrong = || PackageError::Name { name: sent.to_owned(), folder: self.folder.clone() };
        let path = Path::new(sent);
        let name = match path.parent() {
            Some(folder) if folder == self.folder || sent.find('/').is_none() => path.file_name(),
            _ => None,
        };
        let name = name.and_then(|name| name.to_str()).ok_or_else(wrong)?;
        let plain = !name.starts_with('.') && !name.contains(char::is_control);
        if plain && name.len() <= MAX_NAME && sent.ends_with(name) {
            return Ok(name.to_owned());
        }
        Err(wrong())
    }

    /// Removes what an agent that was killed had begun; once, at a start.
    ///
    /// # Errors
    /// When the folder cannot be read, or written.
    pub fn sweep(&self) -> Result<(), PackageError> {
        let swept = || -> io::Result<()> {
            for entry in fs::read_dir(&self.folder)? {
                let entry = entry?;
                if entry.file_name().as_encoded_bytes().starts_with(INCOMING.as_bytes()) {
                    fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        };
        match swept() {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(PackageError::Sweep { path: self.folder.clone(), source })
            }
            _ => Ok(()),
        }
    }
}

impl PackageUpload {
    /// Adds bytes.
    ///
    /// # Errors
    /// When the package gets too long, or the disk is full.
    pub async fn write(&mut self, octets: &[u8]) -> Result<(), PackageError> {
        self.length += octets.len() as u64;
        if self.length > MAX_IMAGE {
            return Err(PackageError::TooLong(self.name.clone()));
        }
        let written = self.writer.write_all(octets).await;
        written.map_err(|source| self.write_error(source))
    }

    /// Takes what lies at a URL.
    ///
    /// # Errors
    /// When it cannot be fetched.
    pub async fn fetch(&mut self, url: &str) -> Result<(), PackageError> {
        Ok(image::fetch(&HttpClient::machine(), url, self.file.path()).await?)
    }

    /// Bytes that have come.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Bytes for which the disk has room, beside those that have come.
    ///
    /// # Errors
    /// When the file system does not say.
    pub fn room(&self) -> Result<u64, PackageError> {
        let failed = |error: Errno| PackageError::Make {
            path: self.folder.clone(),
            source: io::Error::from(error),
        };
        let disk = fstatvfs(&self.file).map_err(failed)?;
        Ok(disk.blocks_available() * disk.fragment_size())
    }

    /// Compares it with its digest and puts it in its place, in one step; tells where that is.
    ///
    /// # Errors
    /// When it has other bytes, or the disk does not take it: then what was there before is untouched.
    pub async fn finish(mut self, digest: &Digest) -> Result<PathBuf, PackageError> {
        self.sync().await?;
        digest.require(self.file.path(), &self.name).await?;
        let path = self.folder.join(&self.name);
        let persisted = self.file.persist(&path).map_err(|error| error.error);
        let persisted = persisted.and_then(|_| fs::File::open(&self.folder)?.sync_all());
        match persisted {
            Ok(()) => Ok(path),
            Err(source) => Err(PackageError::Write { path, source }),
        }
    }

    /// Has it installed as the version that it was begun as. The file is gone afterwards, whatever happens.
    ///
    /// # Errors
    /// When the program fails, finds a flaw in it, or does not list the version afterwards.
    pub async fn install(mut self) -> Result<(), PackageError> {
        self.sync().await?;
        self.slots.install(self.file.path(), &self.name).await?;
        if self.slots.list().await?.contains(&self.name) {
            Ok(())
        } else {
            Err(PackageError::NotThere(self.name))
        }
    }

    async fn sync(&mut self) -> Result<(), PackageError> {
        let synced = match self.writer.flush().await {
            Ok(()) => self.writer.sync_all().await,
            Err(error) => Err(error),
        };
        synced.map_err(|source| self.write_error(source))
    }

    fn write_error(&self, source: io::Error) -> PackageError {
        PackageError::Write { path: self.file.path().to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_named_by_its_file_alone() {
        let state = tempfile::tempdir().unwrap();
        let packages = Packages::new(state.path(), Slots::default());
        let inside = packages.folder.join("os.img");
        for (path, want) in [
            ("os.img", Some("os.img")),
            (inside.to_str().unwrap(), Some("os.img")),
            ("", None),
            ("/", None),
            (".", None),
            ("..", None),
            (".incoming1", None),
            ("../os.img", None),
            ("sub/os.img", None),
            ("os.img/", None),
            ("/etc/shadow", None),
            ("a\nb", None),
            (&"x".repeat(256), None),
        ] {
            let name = packages.file_name(path);
            assert_eq!(name.as_deref().ok(), want, "{path}");
            assert!(name.is_ok() || packages.begin(path).is_err());
        }
    }

    #[tokio::test]
    async fn incomplete_packages_are_removed() {
        let state = tempfile::tempdir().unwrap();
        let packages = Packages::new(state.path(), Slots::default());
        packages.sweep().unwrap(); // nothing was ever there
        let mut first = packages.begin("a").unwrap();
        first.write(b"bytes").await.unwrap();
        assert!(matches!(packages.begin("b"), Err(PackageError::Busy)));
        first.file.disable_cleanup(true); // as if the agent was killed
        drop(first);
        let left = || fs::read_dir(&packages.folder).unwrap().count();
        assert_eq!(left(), 1);
        packages.sweep().unwrap();
        assert_eq!(left(), 0);
        let second = packages.begin("b").unwrap();
        assert_eq!(left(), 1);
        drop(second);
        assert_eq!(left(), 0);
    }
}
