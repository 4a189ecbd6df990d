//! The database file. Every method blocks until its changes are on disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use redb::{Builder, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use smol_str::SmolStr;
use tracing::{info, warn};

use super::{
    ArtefactChange, Change, StoreError, StoredState, Table, Unconfirmed, User,
    accounts::ACCOUNTS_NAME,
    artefacts,
    folder::{
        BOOTZ_FOLDER, IDENTITY_FOLDER, PACKAGES_FOLDER, create_private_folder, open_private_file,
        remove_file, remove_folder,
    },
    format,
    journal::JOURNAL_NAME,
    layer_rows::LayerRows,
    layer_table::BlockWork,
    notes::{self, NOTES},
    tables::{LAYER, PREPARED, RESTORE, SECRETS, apply, apply_recording, put_back, rows},
    unconfirmed,
};

/// File name within the state folder.
pub const FILE_NAME: &str = "holdfast.redb";

/// Octets of pages kept in memory. Rows are read once at start, and then kept in the layers. Half of the cache is
/// for the pages of a write; those that do not fit are written early, and read again at the end. The pages of 100
/// 000 routes are 5 MB.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Role and password hash, by name.
pub(super) const USERS: TableDefinition<'_, &str, (&str, &str)> = TableDefinition::new("users");

const META_LAST_TRANSACTION: &str = "last-transaction";

/// The open database, which only one process can have open.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    /// `None` while reopening fails after the disk had refused a write.
    redb: Option<redb::Database>,
    /// A write was refused, so `redb` does not answer until it is reopened.
    failed: bool,
    prepared: Option<u64>,
    /// The end of the prepared transaction could not be recorded, so it is rolled back when the disk answers
    /// again.
    given_up: bool,
    rolled_back: Option<u64>,
    /// Rows of the layers that opening the file rolled back, with their content before that.
    taken_back: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    block_work: BlockWork,
    /// Fault for the next commit.
    #[cfg(any(test, feature = "faults"))]
    pub(super) fault: Option<super::faults::Fault>,
}

impl Database {
    /// Opens the database in `folder`, creating both when they do not exist, and rolls back unfinished work.
    ///
    /// # Errors
    /// When the folder or the file cannot be used or read, or another process has the file open.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        create_private_folder(folder)?;
        let path = folder.join(FILE_NAME);
        let redb = Some(open_file(&path)?);
        let mut database = Self {
            path,
            redb,
            failed: false,
            prepared: None,
            given_up: false,
            rolled_back: None,
            taken_back: BTreeMap::new(),
            block_work: BlockWork::default(),
            #[cfg(any(test, feature = "faults"))]
            fault: None,
        };
        format::establish(database.redb()?, &database.path)?;
        database.roll_back_unfinished()?;
        database.roll_back_unconfirmed()?;
        database.finish_factory_reset(folder)?;
        Ok(database)
    }

    /// Records whether the disk refused, as when it is full; the next [`Self::mend`] then reopens the file.
    pub(super) fn note<T>(&mut self, result: &Result<T, StoreError>) {
        self.failed |= matches!(result, Err(StoreError::Access { .. }));
    }

    /// Reopens the file after a failure. A prepared transaction is still prepared, if it had reached the disk.
    pub(super) fn mend(&mut self) -> Result<(), StoreError> {
        if !self.failed {
            return Ok(());
        }
        warn!(file = %self.path.display(), "opening the database again after a failed write");
        self.redb = None; // releases the lock
        self.redb = Some(open_file(&self.path)?);
        self.prepared = self.unfinished()?;
        if let Some(transaction) = self.prepared.filter(|_| self.given_up) {
            self.undo(transaction, |_| true)?;
            self.prepared = None;
            info!(transaction, "rolled back what could not be made final");
        }
        (self.failed, self.given_up) = (false, false);
        Ok(())
    }

    /// Reads everything, together with the result of roll-backs at opening.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub fn load(&mut self) -> Result<StoredState, StoreError> {
        let failed = StoreError::accessing("read the stored configuration");
        let redb = self.redb()?;
        let read = || -> Result<StoredState, redb::Error> {
            let transaction = redb.begin_read()?;
            let last = transaction.open_table(META)?.get(META_LAST_TRANSACTION)?;
            let secrets = rows(&transaction.open_table(SECRETS)?)?;
            Ok(StoredState {
                layers: LayerRows::read(&transaction.open_table(LAYER)?, secrets)?,
                restore: rows(&transaction.open_table(RESTORE)?)?,
                users: Vec::new(),
                artefacts: artefacts::read(&transaction)?,
                notes: rows(&transaction.open_table(NOTES)?)?,
                rolled_back: self.rolled_back,
                taken_back: self.taken_back.clone(),
                last_transaction: last.map_or(0, |number| number.value()),
                last_recorded: 0,
            })
        };
        Ok(StoredState { users: self.users()?, ..read().map_err(failed)? })
    }

    /// Blocks of rows that were read, written and removed since the file was opened.
    pub fn block_work(&self) -> BlockWork {
        self.block_work
    }

    /// # Errors
    /// When another transaction is prepared, the number is not a new one, or the disk refuses.
    pub fn prepare(&mut self, transaction: u64, changes: &[Change]) -> Result<(), StoreError> {
        self.prepare_if(transaction, changes, || true)
    }

    /// Prepares the rows of a transaction, and writes them if it is still `wanted` afterwards.
    ///
    /// # Errors
    /// The errors of [`Self::prepare`]; and when the transaction is not wanted.
    pub fn prepare_if(
        &mut self,
        transaction: u64,
        changes: &[Change],
        wanted: impl FnOnce() -> bool,
    ) -> Result<(), StoreError> {
        if let Some(other) = self.prepared {
            return Err(StoreError::out_of_order(
                "prepare",
                transaction,
                format!("{other} is still prepared"),
            ));
        }
        let write = self.begin("prepare a transaction")?;
        record_number(&write, transaction)?;
        apply_recording(&write, transaction, changes, &mut self.block_work)?;
        if !wanted() {
            // Dropping a write transaction discards it.
            return Err(StoreError::Withdrawn { transaction });
        }
        #[cfg(any(test, feature = "faults"))]
        if let Some(fault) = self.fault.take_if(|it| *it == super::faults::Fault::Unprepared) {
            return fault.strike(write);
        }
        finish(write, "prepare a transaction")?;
        self.prepared = Some(transaction);
        Ok(())
    }

    /// Makes the prepared transaction final, or rolls it back.
    ///
    /// # Errors
    /// When this transaction is not the prepared one, or the disk refuses. In the latter case it is rolled back,
    /// at the latest when the disk answers again.
    pub fn commit(&mut self, transaction: u64, unconfirmed: Unconfirmed) -> Result<(), StoreError> {
        self.commit_with(transaction, unconfirmed, &[])
    }

    /// Makes the prepared transaction final, and writes gNSI artefacts in the same durable write.
    ///
    /// # Errors
    /// The errors of [`Self::commit`]; no artefact is written then.
    pub fn commit_with(
        &mut self,
        transaction: u64,
        unconfirmed: Unconfirmed,
        artefacts: &[ArtefactChange],
    ) -> Result<(), StoreError> {
        self.expect_prepared("commit", transaction)?;
        let made = self.make_final(transaction, unconfirmed, artefacts);
        let Err(error) = made else { return Ok(()) };
        (self.failed, self.given_up) = (true, true);
        // The disk may have completed the write before it failed.
        match self.made_final(transaction) {
            Ok(true) => {
                (self.prepared, self.given_up) = (None, false);
                Ok(())
            }
            Ok(false) | Err(_) => Err(error),
        }
    }

    /// Looks up, after reopening the file, whether the end of a transaction had reached the disk.
    fn made_final(&mut self, transaction: u64) -> Result<bool, StoreError> {
        self.redb = None; // releases the lock
        self.redb = Some(open_file(&self.path)?);
        Ok(self.unfinished()? != Some(transaction))
    }

    fn make_final(
        &mut self,
        transaction: u64,
        unconfirmed: Unconfirmed,
        artefacts: &[ArtefactChange],
    ) -> Result<(), StoreError> {
        const ATTEMPT: &str = "commit a transaction";
        let write = self.begin(ATTEMPT)?;
        artefacts::write(&write, artefacts).map_err(StoreError::accessing(ATTEMPT))?;
        match unconfirmed {
            Unconfirmed::Stays => {}
            Unconfirmed::Begins => unconfirmed::keep(&write, transaction)?,
            Unconfirmed::Ends => unconfirmed::forget(&write)?,
        }
        forget_record(&write, transaction)?;
        #[cfg(any(test, feature = "faults"))]
        if let Some(fault) = self.fault.take() {
            return fault.strike(write);
        }
        finish(write, ATTEMPT)?;
        self.prepared = None;
        Ok(())
    }

    /// Makes the commit final that waits to be confirmed.
    ///
    /// # Errors
    /// When the disk refuses; the commit still waits then.
    pub fn confirm(&mut self) -> Result<(), StoreError> {
        let write = self.begin("confirm a commit")?;
        unconfirmed::forget(&write)?;
        finish(write, "confirm a commit")
    }

    /// # Errors
    /// When this transaction is not the prepared one, or the disk refuses. In the latter case it is rolled back
    /// when the disk answers again.
    pub fn abort(&mut self, transaction: u64) -> Result<(), StoreError> {
        self.expect_prepared("abort", transaction)?;
        self.given_up = true;
        self.undo(transaction, |_| true)?;
        self.given_up = false;
        self.prepared = None;
        Ok(())
    }

    /// Writes rows outside of a transaction.
    ///
    /// # Errors
    /// When the disk refuses; nothing is written then.
    pub fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let write = self.begin("write rows")?;
        apply(&write, changes, &mut self.block_work)?;
        #[cfg(any(test, feature = "faults"))]
        if let Some(fault) = self.fault.take_if(|it| it.is_of_rows()) {
            return fault.strike(write);
        }
        finish(write, "write rows")
    }

    /// Writes gNSI artefacts, all of them or none.
    ///
    /// # Errors
    /// When the disk refuses; nothing is written then.
    pub fn write_artefacts(&mut self, changes: &[ArtefactChange]) -> Result<(), StoreError> {
        const ATTEMPT: &str = "write the artefacts of gNSI";
        let write = self.begin(ATTEMPT)?;
        artefacts::write(&write, changes).map_err(StoreError::accessing(ATTEMPT))?;
        finish(write, ATTEMPT)
    }

    /// # Errors
    /// When the disk refuses.
    pub fn set_user(&mut self, user: &User) -> Result<(), StoreError> {
        let write = self.begin("write a user")?;
        let stored = || -> Result<(), redb::Error> {
            write
                .open_table(USERS)?
                .insert(user.name.as_str(), (user.role.as_str(), user.password_hash.as_str()))?;
            Ok(())
        };
        stored().map_err(StoreError::accessing("write a user"))?;
        finish(write, "write a user")
    }

    /// Removes a user; true when it existed.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn delete_user(&mut self, name: &str) -> Result<bool, StoreError> {
        let write = self.begin("remove a user")?;
        let removed = || -> Result<bool, redb::Error> {
            Ok(write.open_table(USERS)?.remove(name)?.is_some())
        };
        let existed = removed().map_err(StoreError::accessing("remove a user"))?;
        finish(write, "remove a user")?;
        Ok(existed)
    }

    /// All users, ascending by name.
    ///
    /// # Errors
    /// When the table cannot be read, or has a role that this version does not know.
    pub fn users(&self) -> Result<Vec<User>, StoreError> {
        let failed = StoreError::accessing("read the users");
        let redb = self.redb()?;
        let read = || -> Result<Vec<(SmolStr, String, String)>, redb::Error> {
            let table = redb.begin_read()?.open_table(USERS)?;
            table
                .iter()?
                .map(|row| {
                    let (name, value) = row?;
                    let (role, hash) = value.value();
                    Ok((SmolStr::new(name.value()), role.to_owned(), hash.to_owned()))
                })
                .collect()
        };
        let users = read().map_err(failed)?.into_iter().map(|(name, role, password_hash)| {
            let role = role
                .parse()
                .map_err(|_| StoreError::Corrupt { what: "user with an unknown role" })?;
            Ok(User { name, role, password_hash })
        });
        users.collect()
    }

    /// Completes a factory reset by erasing the data that the running agent still needed, and then its mark.
    fn finish_factory_reset(&self, folder: &Path) -> Result<(), StoreError> {
        const ATTEMPT: &str = "finish a factory reset";
        let failed = StoreError::accessing(ATTEMPT);
        let redb = self.redb()?;
        let mark = || -> Result<Option<Vec<u8>>, redb::Error> {
            let notes = redb.begin_read()?.open_table(NOTES)?;
            Ok(notes.get(notes::FACTORY_RESET)?.map(|mark| mark.value().to_vec()))
        };
        let Some(mark) = mark().map_err(&failed)? else { return Ok(()) };
        let retain_certificates = notes::retains_certificates(&mark);
        if !retain_certificates {
            remove_folder(&folder.join(IDENTITY_FOLDER))?;
        }
        remove_folder(&folder.join(BOOTZ_FOLDER))?;
        remove_folder(&folder.join(PACKAGES_FOLDER))?;
        // This file is opened after the database, so it is not in use.
        remove_file(&folder.join(JOURNAL_NAME))?;
        remove_file(&folder.join(ACCOUNTS_NAME))?;
        let write = self.begin(ATTEMPT)?;
        let erased = || -> Result<u64, redb::Error> {
            let artefacts = artefacts::clear(&write, retain_certificates)?;
            write.delete_table(USERS)?;
            write.open_table(USERS)?;
            write.delete_table(NOTES)?;
            write.open_table(NOTES)?;
            Ok(artefacts)
        };
        let artefacts = erased().map_err(&failed)?;
        finish(write, ATTEMPT)?;
        info!(artefacts, "factory reset: users, credentials, histories and notes are erased");
        Ok(())
    }

    /// Rolls back the transaction whose end was never recorded.
    ///
    /// Restore rows of adopted objects stay: the kernel may have been changed already, and the original values
    /// exist nowhere else. The core gives up objects that no layer configures.
    fn roll_back_unfinished(&mut self) -> Result<(), StoreError> {
        let Some(transaction) = self.unfinished()? else { return Ok(()) };
        warn!(
            transaction,
            "rolling back a transaction that was interrupted before it was answered"
        );
        let taken_back = self.undo(transaction, keeps_restores)?;
        self.note_taken_back(taken_back);
        self.rolled_back = Some(transaction);
        info!(transaction, "rolled back");
        Ok(())
    }

    /// Rolls back the commit that was not confirmed before the agent ended.
    fn roll_back_unconfirmed(&mut self) -> Result<(), StoreError> {
        const ATTEMPT: &str = "roll back an unconfirmed commit";
        let Some((transaction, chunks)) = unconfirmed::find(self.redb()?)? else { return Ok(()) };
        let write = self.begin(ATTEMPT)?;
        let taken_back = put_back(&write, &chunks, &mut self.block_work, keeps_restores)?;
        unconfirmed::forget(&write)?;
        finish(write, ATTEMPT)?;
        self.note_taken_back(taken_back);
        warn!(transaction, "a commit that was not confirmed before the restart is rolled back");
        Ok(())
    }

    /// Records the content of layer rows before the roll-backs. The first roll-back undoes the last change, so its
    /// rows were in force.
    fn note_taken_back(&mut self, changes: Vec<Change>) {
        for change in changes.into_iter().filter(|change| change.table == Table::Layer) {
            self.taken_back.entry(change.key).or_insert(change.value);
        }
    }

    fn unfinished(&self) -> Result<Option<u64>, StoreError> {
        let redb = self.redb()?;
        let read = || -> Result<Option<u64>, redb::Error> {
            let prepared = redb.begin_read()?.open_table(PREPARED)?;
            Ok(prepared.first()?.map(|(key, _)| key.value().0))
        };
        read().map_err(StoreError::accessing("look for a prepared transaction"))
    }

    /// Restores rows from the record of a transaction. Returns their content before that.
    fn undo(
        &mut self,
        transaction: u64,
        wanted: impl Fn(&Change) -> bool,
    ) -> Result<Vec<Change>, StoreError> {
        const ATTEMPT: &str = "roll back a transaction";
        let write = self.begin(ATTEMPT)?;
        let chunks = || -> Result<Vec<Vec<u8>>, redb::Error> {
            let table = write.open_table(PREPARED)?;
            table.range(record(transaction))?.map(|row| Ok(row?.1.value().to_vec())).collect()
        };
        let chunks = chunks().map_err(StoreError::accessing(ATTEMPT))?;
        let taken_back = put_back(&write, &chunks, &mut self.block_work, wanted)?;
        forget_record(&write, transaction)?;
        finish(write, ATTEMPT)?;
        Ok(taken_back)
    }

    fn expect_prepared(&self, attempt: &'static str, transaction: u64) -> Result<(), StoreError> {
        match self.prepared {
            Some(prepared) if prepared == transaction => Ok(()),
            Some(other) => {
                Err(StoreError::out_of_order(attempt, transaction, format!("{other} is prepared")))
            }
            None => {
                Err(StoreError::out_of_order(attempt, transaction, "none is prepared".to_owned()))
            }
        }
    }

    fn redb(&self) -> Result<&redb::Database, StoreError> {
        self.redb.as_ref().ok_or(StoreError::Stopped)
    }

    fn begin(&self, attempt: &'static str) -> Result<WriteTransaction, StoreError> {
        self.redb()?.begin_write().map_err(|error| StoreError::accessing(attempt)(error.into()))
    }
}

impl StoreError {
    pub(super) fn opening(path: &Path, error: redb::DatabaseError) -> Self {
        let path = PathBuf::from(path);
        match error {
            redb::DatabaseError::DatabaseAlreadyOpen => Self::Locked { path },
            other => Self::Open { path, source: Box::new(other.into()) },
        }
    }

    pub(super) fn accessing(attempt: &'static str) -> impl Fn(redb::Error) -> Self {
        move |source| Self::Access { attempt, source: Box::new(source) }
    }

    fn out_of_order(attempt: &'static str, transaction: u64, state: String) -> Self {
        Self::OutOfOrder { attempt, transaction, state }
    }
}

fn open_file(path: &Path) -> Result<redb::Database, StoreError> {
    let file = open_private_file(path)?;
    let opened = Builder::new().set_cache_size(CACHE_BYTES).create_file(file);
    opened.map_err(|error| StoreError::opening(path, error))
}

fn finish(write: WriteTransaction, attempt: &'static str) -> Result<(), StoreError> {
    write.commit().map_err(|error| StoreError::accessing(attempt)(error.into()))
}

/// Keys of all pieces of one record.
fn record(transaction: u64) -> std::ops::RangeInclusive<(u64, u32)> {
    (transaction, 0)..=(transaction, u32::MAX)
}

fn record_number(write: &WriteTransaction, transaction: u64) -> Result<(), StoreError> {
    let exchange = || -> Result<u64, redb::Error> {
        let mut meta = write.open_table(META)?;
        let earlier =
            meta.insert(META_LAST_TRANSACTION, transaction)?.map_or(0, |number| number.value());
        Ok(earlier)
    };
    let last = exchange().map_err(StoreError::accessing("number a transaction"))?;
    if transaction > last {
        return Ok(());
    }
    Err(StoreError::out_of_order("prepare", transaction, format!("{last} was prepared before")))
}

fn forget_record(write: &WriteTransaction, transaction: u64) -> Result<(), StoreError> {
    let removed = || -> Result<(), redb::Error> {
        Ok(write.open_table(PREPARED)?.retain_in(record(transaction), |_, _| false)?)
    };
    removed().map_err(StoreError::accessing("end a transaction"))
}

/// Selects the rows that a roll-back at start restores: see [`Database::roll_back_unfinished`].
fn keeps_restores(change: &Change) -> bool {
    change.table != Table::Restore || change.value.is_some()
}
