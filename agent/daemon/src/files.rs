//! Files that clients leave on the box: whole and compared with their digest, or not at all.
//!
//! The files are kept in one folder below the state folder, so that no client reads or writes anywhere else. A factory reset
//! removes them. The agent reads none of them itself.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use holdfast_store::{FILES_FOLDER, StoreError, create_private_folder};
use nix::libc::{ELOOP, O_NOFOLLOW, O_NONBLOCK};
use tempfile::{Builder, NamedTempFile};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::image::{Digest, ImageError};

/// Bytes of one file. Certificates, logs and small programs are less; images have an RPC of their own.
const MAX_FILE: u64 = 64 << 20;
/// Files in the folder. Their list is one answer.
const MAX_FILES: usize = 256;
/// Bytes of all files together: what a small disk can spare.
const MAX_TOTAL: u64 = 256 << 20;
/// Bytes of a file name, after NAME_MAX of Linux.
const MAX_NAME: usize = 255;
/// How files begin that are not whole yet; no file of a client is named so.
const INCOMING: &str = ".incoming";

/// Why a file is not read, taken or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    #[error(
        "`{name}` is not a file name: give one that does not begin with a dot, alone or in `{}`",
        folder.display()
    )]
    Name { name: String, folder: PathBuf },
    #[error("no file in the folder is called `{0}`")]
    Missing(String),
    #[error("`{0}` is not a regular file")]
    NotRegular(String),
    #[error("another file is being transferred: try again later")]
    Busy,
    #[error("`{0}` has more than {MAX_FILE} bytes")]
    TooLong(String),
    #[error(
        "with `{0}` there would be more than {MAX_FILES} files, or more than {MAX_TOTAL} bytes: remove some"
    )]
    Full(String),
    #[error("cannot {action} `{}`", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Folder(#[from] StoreError),
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// Where files lie; clones share it.
#[derive(Clone, Debug)]
pub struct Files {
    folder: PathBuf,
    turn: Arc<Semaphore>,
}

/// A file of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStat {
    pub path: PathBuf,
    pub size: u64,
    /// Nanoseconds since 1970.
    pub modified_ns: u64,
}

/// A file that is not whole yet; it is gone when this is dropped.
#[derive(Debug)]
pub struct FileUpload {
    name: String,
    folder: PathBuf,
    file: NamedTempFile,
    length: u64,
    /// Bytes that it may have.
    room: u64,
    _turn: OwnedSemaphorePermit,
}

impl Files {
    /// The files below a state folder.
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join(FILES_FOLDER), turn: Arc::new(Semaphore::new(1)) }
    }

    /// Opens a file for reading. Links are not followed.
    ///
    /// # Errors
    /// When the name points outside of the folder, or no file has this name.
    pub fn open(&self, name: &str) -> Result<fs::File, FileError> {
        let name = self.file_name(name)?;
        let path = self.folder.join(&name);
        let opened =
            OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(&path);
        let file = opened.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => FileError::Missing(name.clone()),
            _ if source.raw_os_error() == Some(ELOOP) => FileError::NotRegular(name.clone()),
            _ => FileError::Io { action: "open", path: path.clone(), source },
        })?;
        let metadata = file.metadata();
        let metadata =
            metadata.map_err(|source| FileError::Io { action: "look at", path, source })?;
        if metadata.is_file() { Ok(file) } else { Err(FileError::NotRegular(name)) }
    }

    /// The file of a name, or all files for the folder itself and for an empty name.
    ///
    /// # Errors
    /// When the name points outside of the folder, or no file has this name.
    pub fn stat(&self, name: &str) -> Result<Vec<FileStat>, FileError> {
        if name.is_empty() || Path::new(name) == self.folder {
            return self.list();
        }
        let path = self.folder.join(self.file_name(name)?);
        match self.list()?.into_iter().find(|stat| stat.path == path) {
            Some(stat) => Ok(vec![stat]),
            None => Err(FileError::Missing(name.to_owned())),
        }
    }

    /// Removes a file. A link goes itself, and not what it leads to.
    ///
    /// # Errors
    /// When the name points outside of the folder, or no file has this name.
    pub fn remove(&self, name: &str) -> Result<(), FileError> {
        let name = self.file_name(name)?;
        let path = self.folder.join(&name);
        fs::remove_file(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => FileError::Missing(name),
            _ => FileError::Io { action: "remove", path, source },
        })
    }

    /// Begins a file, which replaces one of this name when it is whole.
    ///
    /// # Errors
    /// When the name points outside of the folder, the folder is full, or another file is being transferred.
    pub fn begin(&self, name: &str) -> Result<FileUpload, FileError> {
        let name = self.file_name(name)?;
        let turn = Arc::clone(&self.turn).try_acquire_owned().map_err(|_| FileError::Busy)?;
        create_private_folder(&self.folder)?;
        self.sweep()?;
        let path = self.folder.join(&name);
        let others: Vec<FileStat> =
            self.list()?.into_iter().filter(|stat| stat.path != path).collect();
        let taken: u64 = others.iter().map(|stat| stat.size).sum();
        if others.len() >= MAX_FILES || taken >= MAX_TOTAL {
            return Err(FileError::Full(name));
        }
        let folder = self.folder.clone();
        let made = Builder::new().prefix(INCOMING).tempfile_in(&folder);
        let file = made.map_err(|source| FileError::Io { action: "write in", path, source })?;
        Ok(FileUpload { name, folder, file, length: 0, room: MAX_TOTAL - taken, _turn: turn })
    }

    /// The regular files, by name.
    fn list(&self) -> Result<Vec<FileStat>, FileError> {
        let failed = |source| FileError::Io { action: "list", path: self.folder.clone(), source };
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let is_whole = !entry.file_name().as_encoded_bytes().starts_with(b".");
            // A file that went meanwhile is left out; `metadata` of an entry follows no link.
            let Ok(metadata) = entry.metadata() else { continue };
            if is_whole && metadata.is_file() {
                let modified = metadata.modified().ok();
                let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
                let modified_ns = modified.map(|since| since.as_nanos()).unwrap_or_default();
                let modified_ns = u64::try_from(modified_ns).unwrap_or(u64::MAX);
                files.push(FileStat { path: entry.path(), size: metadata.len(), modified_ns });
            }
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    /// Removes what an agent that was killed had begun. The caller has the turn, so nothing else is incoming.
    fn sweep(&self) -> Result<(), FileError> {
        let failed = |source| FileError::Io { action: "sweep", path: self.folder.clone(), source };
        for entry in fs::read_dir(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().as_encoded_bytes().starts_with(INCOMING.as_bytes()) {
                fs::remove_file(entry.path()).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// The name of the file, which alone may be given, or with its folder.
    fn file_name(&self, sent: &str) -> Result<String, FileError> {
        let wrong = || FileError::Name { name: sent.to_owned(), folder: self.folder.clone() };
        let path = Path::new(sent);
        let name = match path.parent() {
            Some(folder) if folder == self.folder || !sent.contains('/') => path.file_name(),
            _ => None,
        };
        let name = name.and_then(|name| name.to_str()).ok_or_else(wrong)?;
        let plain = !name.starts_with('.') && !name.contains(char::is_control);
        let is_whole = name.len() <= MAX_NAME && sent.ends_with(name);
        if plain && is_whole { Ok(name.to_owned()) } else { Err(wrong()) }
    }
}

impl FileUpload {
    /// Adds bytes.
    ///
    /// # Errors
    /// When the file gets too long, or the disk is full.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.length += bytes.len() as u64;
        if self.length > MAX_FILE {
            return Err(FileError::TooLong(self.name.clone()));
        }
        if self.length > self.room {
            return Err(FileError::Full(self.name.clone()));
        }
        self.file.write_all(bytes).map_err(|source| self.failed("write", source))
    }

    /// Compares it with its digest and puts it in its place, in one step. Its mode is 0600.
    ///
    /// # Errors
    /// When it has other bytes, or the disk does not take it: then what was there before is untouched.
    pub async fn finish(self, digest: &Digest) -> Result<(), FileError> {
        let synced = self.file.as_file().sync_all();
        synced.map_err(|source| self.failed("write", source))?;
        digest.require(self.file.path(), &self.name).await?;
        let path = self.folder.join(&self.name);
        let persisted = self.file.persist(&path).map_err(|error| error.error);
        let persisted = persisted.and_then(|_| fs::File::open(&self.folder)?.sync_all());
        persisted.map_err(|source| FileError::Io { action: "write", path, source })
    }

    fn failed(&self, action: &'static str, source: io::Error) -> FileError {
        FileError::Io { action, path: self.file.path().to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::image::DigestMethod;

    #[test]
    fn a_file_is_named_by_itself_alone() {
        let state = tempfile::tempdir().unwrap();
        let files = Files::new(state.path());
        let inside = files.folder.join("a.log");
        for (name, want) in [
            ("a.log", Some("a.log")),
            (inside.to_str().unwrap(), Some("a.log")),
            ("", None),
            ("/", None),
            (".", None),
            ("..", None),
            (".incoming1", None),
            ("../a.log", None),
            ("sub/a.log", None),
            ("a.log/", None),
            ("/etc/shadow", None),
            ("a\nb", None),
        ] {
            assert_eq!(files.file_name(name).ok().as_deref(), want, "{name}");
        }
    }

    #[tokio::test]
    async fn files_are_kept_private_and_links_are_not_followed() {
        let state = tempfile::tempdir().unwrap();
        let files = Files::new(state.path());
        assert_eq!(files.stat("").unwrap(), []);
        assert!(matches!(files.open("a"), Err(FileError::Missing(_))));
        let mut upload = files.begin("a").unwrap();
        assert!(matches!(files.begin("b"), Err(FileError::Busy)));
        upload.write(b"abc").unwrap();
        assert_eq!(files.stat("").unwrap(), [], "it is not whole");
        // The MD5 of "abc", from RFC 1321.
        let md5 = 0x9001_5098_3cd2_4fb0_d696_3f7d_28e1_7f72_u128.to_be_bytes();
        let digest = Digest { method: DigestMethod::Md5, octets: md5.to_vec() };
        upload.finish(&digest).await.unwrap();
        let [stat] = &files.stat("a").unwrap()[..] else { panic!("one file") };
        assert_eq!((stat.size, stat.path.clone()), (3, files.folder.join("a")));
        let mode = fs::metadata(&stat.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);

        let mut other = files.begin("a").unwrap();
        other.write(b"abd").unwrap();
        assert!(matches!(other.finish(&digest).await, Err(FileError::Image(_))));
        assert_eq!(fs::read(&stat.path).unwrap(), b"abc", "what was there is untouched");

        let secret = state.path().join("secret");
        fs::write(&secret, "key").unwrap();
        symlink(&secret, files.folder.join("link")).unwrap();
        assert!(matches!(files.open("link"), Err(FileError::NotRegular(_))));
        assert!(matches!(files.stat("link"), Err(FileError::Missing(_))));
        files.remove("link").unwrap();
        assert!(secret.exists());
        files.remove("a").unwrap();
        assert!(matches!(files.remove("a"), Err(FileError::Missing(_))));
    }

    #[test]
    fn sizes_are_bounded() {
        let state = tempfile::tempdir().unwrap();
        let files = Files::new(state.path());
        let mut upload = files.begin("long").unwrap();
        upload.length = MAX_FILE - 1;
        upload.write(b"a").unwrap();
        assert!(matches!(upload.write(b"b"), Err(FileError::TooLong(_))));
        drop(upload);
        for number in 0..MAX_FILES {
            fs::write(files.folder.join(number.to_string()), "").unwrap();
        }
        assert!(matches!(files.begin("one more"), Err(FileError::Full(_))));
        assert!(files.begin("7").is_ok(), "it replaces another");
    }
}
