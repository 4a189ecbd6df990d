//! Files other than the database, for histories that may be lost because nothing depends on them.
//!
//! After a refused write, as on a full disk, redb does not answer any more; the next write opens the file again.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use holdfast_base::ErrorChain;
use redb::{Database, WriteTransaction};
use tracing::warn;

use super::StoreError;
use super::folder::{create_private_folder, open_private_file};
use super::redb_file::{copy_in_memory, open_file};

/// Bytes of pages kept in memory. The file is read at start, and on demand.
const CACHE_OCTETS: usize = 1 << 20;
/// Pause after the disk refused a write; records wait in memory meanwhile.
pub(super) const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Creates the tables of a file.
pub(super) type Tables = fn(&WriteTransaction) -> Result<(), redb::Error>;

/// Rows to read.
#[derive(Debug)]
enum Opened {
    File(Database),
    /// The disk refused what opening the file writes, so this is a copy in memory. Nothing is written to it.
    Copy(Database),
    /// The disk refused a write, and none has succeeded since.
    Nothing,
}

impl Opened {
    fn database(&self) -> Option<&Database> {
        match self {
            Self::File(redb) | Self::Copy(redb) => Some(redb),
            Self::Nothing => None,
        }
    }
}

/// A file in the state folder, written by one thread.
#[derive(Debug)]
pub(super) struct HistoryFile {
    path: PathBuf,
    tables: Tables,
    opened: RwLock<Opened>,
    /// Refuses the next write, like a full disk.
    #[cfg(test)]
    full: std::sync::atomic::AtomicBool,
}

impl HistoryFile {
    /// Opens a file in the state folder and creates its tables. A foreign or broken file is set aside.
    ///
    /// A disk that refuses what this writes does not keep a box from starting: the file counts as refused, a copy in memory is
    /// read, and the next write opens the file again.
    ///
    /// # Errors
    /// When the file cannot be created for another reason than a full disk, or another agent has it open.
    pub(super) fn open(folder: &Path, name: &str, tables: Tables) -> Result<Self, StoreError> {
        create_private_folder(folder)?;
        let path = folder.join(name);
        let opened = open_or_copy(&path, tables).or_else(|error| {
            if !is_broken(&error) {
                return Err(error);
            }
            warn!(error = %ErrorChain(&error), file = name, "a history cannot be read and is put aside");
            let moved = std::fs::rename(&path, path.with_extension("broken"));
            let failed =
                |source| StoreError::File { action: "put aside", path: path.clone(), source };
            moved.map_err(failed)?;
            open_or_copy(&path, tables)
        })?;
        Ok(Self {
            path,
            tables,
            opened: RwLock::new(opened),
            #[cfg(test)]
            full: Default::default(),
        })
    }

    /// # Errors
    /// When the file cannot be read, or no write has succeeded since one was refused while the agent ran.
    pub(super) fn read<T>(
        &self,
        read: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        read(self.opened().database().ok_or(redb::Error::PreviousIo)?)
    }

    fn opened(&self) -> RwLockReadGuard<'_, Opened> {
        self.opened.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// True after the disk refused a write, until a write succeeds.
    pub(super) fn is_refused(&self) -> bool {
        !matches!(*self.opened(), Opened::File(_))
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
            if self.is_refused() { Some(open_with_tables(&self.path, self.tables)?) } else { None };
        let written = match &opened {
            Some(redb) => write(redb),
            None => self.read(write),
        };
        if opened.is_some() || written.is_err() {
            let usable = opened.filter(|_| written.is_ok()).map_or(Opened::Nothing, Opened::File);
            *self.opened.write().unwrap_or_else(PoisonError::into_inner) = usable;
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
        StoreError::Damaged { .. } => true,
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

/// Opens a file, or a copy where the disk refuses what opening the file writes.
fn open_or_copy(path: &Path, tables: Tables) -> Result<Opened, StoreError> {
    match open_with_tables(path, tables) {
        Err(error) if is_refusal(&error) => {
            warn!(error = %ErrorChain(&error), file = %path.display(), "a history is in memory only, until the disk takes it");
            let file = open_private_file(path)?;
            let copy = copy_in_memory(path, &file, CACHE_OCTETS)?;
            make_tables(copy, tables).map(Opened::Copy)
        }
        opened => opened.map(Opened::File),
    }
}

fn open_with_tables(path: &Path, tables: Tables) -> Result<Database, StoreError> {
    make_tables(open_file(path, CACHE_OCTETS)?, tables)
}

fn make_tables(redb: Database, tables: Tables) -> Result<Database, StoreError> {
    let create = || -> Result<(), redb::Error> {
        let write = redb.begin_write()?;
        tables(&write)?;
        Ok(write.commit()?)
    };
    create().map_err(StoreError::accessing("make the tables of a history"))?;
    Ok(redb)
}
