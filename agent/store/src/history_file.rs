//! Files other than the database, for histories that may be lost because nothing depends on them.
//!
//! After a refused write, as on a full disk, redb does not answer any more; the next write opens the file again.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use holdfast_base::ErrorChain;
use redb::{Builder, Database, WriteTransaction};
use tracing::warn;

use super::StoreError;
use super::folder::{create_private_folder, open_private_file};

/// Octets of pages kept in memory. The file is read at start, and on demand.
const CACHE_OCTETS: usize = 1 << 20;
/// Pause after the disk refused a write; records wait in memory meanwhile.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Creates the tables of a file.
pub(super) type Tables = fn(&WriteTransaction) -> Result<(), redb::Error>;

/// A file in the state folder, written by one thread.
#[derive(Debug)]
pub(super) struct HistoryFile {
    path: PathBuf,
    tables: Tables,
    /// `None` after the disk refused a write, until a write succeeds.
    redb: RwLock<Option<Database>>,
    /// Refuses the next write, like a full disk.
    #[cfg(test)]
    full: std::sync::atomic::AtomicBool,
}

impl HistoryFile {
    /// Opens a file in the state folder and creates its tables. A foreign or broken file is set aside.
    ///
    /// A disk that refuses what this writes does not keep a box from starting: the file counts as refused, and is opened again
    /// by the next write.
    ///
    /// # Errors
    /// When the file cannot be created for another reason than a full disk, or another agent has it open.
    pub(super) fn open(folder: &Path, name: &str, tables: Tables) -> Result<Self, StoreError> {
        create_private_folder(folder)?;
        let path = folder.join(name);
        let redb = open_file(&path, tables).map(Some).or_else(|error| {
            if is_refusal(&error) {
                warn!(error = %ErrorChain(&error), file = name, "a history is in memory only, until the disk takes it");
                return Ok(None);
            }
            if !is_broken(&error) {
                return Err(error);
            }
            warn!(error = %ErrorChain(&error), file = name, "a history cannot be read and is put aside");
            let moved = std::fs::rename(&path, path.with_extension("broken"));
            let failed =
                |source| StoreError::File { action: "put aside", path: path.clone(), source };
            moved.map_err(failed)?;
            open_file(&path, tables).map(Some)
        })?;
        Ok(Self {
            path,
            tables,
            redb: RwLock::new(redb),
            #[cfg(test)]
            full: Default::default(),
        })
    }

    /// # Errors
    /// When the file cannot be read, or no write has succeeded since one was refused.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        let redb = self.redb.read().unwrap_or_else(PoisonError::into_inner);
        read(redb.as_ref().ok_or(redb::Error::PreviousIo)?)
    }

    /// True after the disk refused a write, until a write succeeds.
    pub(super) fn is_refused(&self) -> bool {
        self.read(|_| Ok(())).is_err()
    }

    /// Writes in one durable transaction, after reopening the file if necessary.
    ///
    /// # Errors
    /// When the file cannot be opened, or the disk refuses. Nothing is written then.
    pub(super) fn write<T>(
        &self,
        write: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let write = |redb: &Database| -> Result<T, redb::Error> {
            let transaction = redb.begin_write()?;
            let result = write(&transaction)?;
            #[cfg(test)]
            if self.full.swap(false, std::sync::atomic::Ordering::SeqCst) {
                return Err(redb::Error::Io(ErrorKind::StorageFull.into()));
            }
            transaction.commit()?;
            Ok(result)
        };
        let opened =
            if self.is_refused() { Some(open_file(&self.path, self.tables)?) } else { None };
        let written = match &opened {
            Some(redb) => write(redb),
            None => self.read(write),
        };
        if opened.is_some() || written.is_err() {
            let usable = opened.filter(|_| written.is_ok());
            *self.redb.write().unwrap_or_else(PoisonError::into_inner) = usable;
        }
        written.map_err(StoreError::accessing("write a history"))
    }

    #[cfg(test)]
    pub(super) fn refuse(&self) {
        self.full.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

/// True for an error of a disk that has no space, or that refuses writes.
fn is_refusal(error: &StoreError) -> bool {
    let is_full = |error: &std::io::Error| {
        matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
    };
    match error {
        StoreError::Open { source, .. } | StoreError::Access { source, .. } => match &**source {
            redb::Error::Io(error) => is_full(error),
            redb::Error::PreviousIo => true,
            _ => false,
        },
        StoreError::File { source, .. } => is_full(source),
        _ => false,
    }
}

/// True for an error about the content of a file, as opposed to the disk.
fn is_broken(error: &StoreError) -> bool {
    match error {
        StoreError::Open { source, .. } | StoreError::Access { source, .. } => match &**source {
            redb::Error::Io(error) => {
                matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
            }
            redb::Error::PreviousIo => false,
            _ => true,
        },
        _ => false,
    }
}

fn open_file(path: &Path, tables: Tables) -> Result<Database, StoreError> {
    let file = open_private_file(path)?;
    let opened = Builder::new().set_cache_size(CACHE_OCTETS).create_file(file);
    let redb = opened.map_err(|error| StoreError::opening(path, error))?;
    let create = || -> Result<(), redb::Error> {
        let write = redb.begin_write()?;
        tables(&write)?;
        Ok(write.commit()?)
    };
    create().map_err(StoreError::accessing("make the tables of a history"))?;
    Ok(redb)
}
