//! The database file. Every method blocks until its changes are on disk.

mod checkpoints;
mod log;
mod roll_back;
mod rows_at;

use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_base::ErrorChain;
use redb::{ReadableDatabase, ReadableTable, WriteTransaction};
use smol_str::SmolStr;
use tokio::sync::watch;
use tracing::{debug, info, warn};

use super::redb_file::{copy_in_memory, open_file};
use super::{
    ArtefactChange, Change, FinalContent, StoreError, StoredState, Unconfirmed, User,
    accounts::ACCOUNTS_NAME,
    artefacts,
    folder::{
        BOOTZ_FOLDER, FILE_NAME, FILES_FOLDER, IDENTITY_FOLDER, PACKAGES_FOLDER,
        create_private_folder, note_format, open_private_file, remove_file, remove_folder,
    },
    format,
    journal::JournalKind,
    layer_rows::LayerRows,
    layer_table::BlockWork,
    notes::{self, NOTES},
    prepared::{self, PreparedSet, RowDigests, Ticket},
    refusal_log::RefusalLog,
    revisions::{self, LogLimits, LogWork, UndoRows},
    tables::{
        LAYER, META, META_LAST_TRANSACTION, RESTORE, SECRETS, USERS, apply, apply_recording, rows,
    },
    taken_back::{self, NotedRows, TakenBackRows},
    unconfirmed::{self, JoinedRows},
};

/// Octets of pages kept in memory. Rows are read once at start, and then kept in the layers. Half of the cache is
/// for the pages of a write; those that do not fit are written early, and read again at the end. The pages of 100
/// 000 routes are 5 MB.
const CACHE_BYTES: usize = 16 * 1024 * 1024;

/// The open database, which only one process can have open.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    layout: Option<Layout>,
    /// `None` while reopening fails after the disk had refused a write.
    redb: Option<redb::Database>,
    /// The file, locked, while `redb` is a copy of it in memory.
    pub(super) held: Option<File>,
    /// A write was refused, so `redb` does not answer until it is reopened.
    failed: bool,
    pub(super) prepared: PreparedSet,
    /// Rows that commits have added to the record of the one that waits to be confirmed.
    joined: JoinedRows,
    pub(super) rolled_back: usize,
    /// Rows of the layers that were taken back since the file was opened.
    pub(super) taken_back: NotedRows,
    pub(super) block_work: BlockWork,
    pub(super) log_limits: LogLimits,
    pub(super) log_work: LogWork,
    refusals: RefusalLog,
    /// Why the disk refused the last write; `None` once a write has succeeded.
    health: watch::Sender<Option<Arc<str>>>,
    /// Fault for the next commit.
    #[cfg(any(test, feature = "faults"))]
    pub(super) fault: Option<super::faults::Fault>,
}

/// Rows of a transaction that are laid out, and not written yet. redb has one write at a time, so any other one gives
/// up the layout: see [`Database::begin`].
struct Layout {
    ticket: Ticket,
    write: WriteTransaction,
    rows: RowDigests,
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl Database {
    /// Opens the database in `folder`, creating both when they do not exist, and rolls back unfinished work.
    ///
    /// A full disk does not keep a box from its configuration: where the rows of a start cannot be written, they go
    /// into a copy in memory, which is read after that. The next write opens the file again, and does the same there.
    ///
    /// # Errors
    /// When the folder or the file cannot be used or read, or another process has the file open.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        Self::open_as_it_is(folder)?.after_last_run(folder)
    }

    /// Opens the database with what the last run has left.
    pub(super) fn open_as_it_is(folder: &Path) -> Result<Self, StoreError> {
        create_private_folder(folder)?;
        let path = folder.join(FILE_NAME);
        let redb = Some(open_file(&path, CACHE_BYTES)?);
        Ok(Self {
            path,
            layout: None,
            redb,
            held: None,
            failed: false,
            prepared: PreparedSet::default(),
            joined: JoinedRows::default(),
            rolled_back: 0,
            taken_back: NotedRows::default(),
            block_work: BlockWork::default(),
            log_limits: LogLimits::default(),
            log_work: LogWork::default(),
            refusals: RefusalLog::default(),
            health: watch::Sender::default(),
            #[cfg(any(test, feature = "faults"))]
            fault: None,
        })
    }

    /// Ends what the last run has left unfinished.
    pub(super) fn after_last_run(mut self, folder: &Path) -> Result<Self, StoreError> {
        if let Err(error) = self.settle_last_run() {
            let StoreError::Access { .. } = error else { return Err(error) };
            warn!(error = %ErrorChain(&error), "the disk refuses what a start has to write; changes are refused until it takes that");
            self.health.send_replace(Some(ErrorChain(&error).to_string().into()));
            self.go_on_in_memory()?;
        }
        if self.held.is_none() {
            self.finish_factory_reset(folder)?;
            note_format(folder, format::FORMAT);
        }
        Ok(self)
    }

    /// Makes tables that are missing, and rolls back what the last run left unfinished or unconfirmed.
    fn settle_last_run(&mut self) -> Result<(), StoreError> {
        format::establish(self.redb()?, &self.path)?;
        self.ensure_log_is_covered()?;
        self.taken_back = NotedRows::default();
        self.roll_back_unfinished()?;
        self.roll_back_unconfirmed()
    }

    /// Replaces the file by a copy in memory, in which the last run is rolled back. The file stays locked.
    fn go_on_in_memory(&mut self) -> Result<(), StoreError> {
        self.redb = None; // releases the lock
        let held = open_private_file(&self.path)?;
        held.try_lock().map_err(|_| StoreError::Locked { path: self.path.clone() })?;
        self.redb = Some(copy_in_memory(&self.path, &held, CACHE_BYTES)?);
        self.held = Some(held);
        self.failed = true;
        self.settle_last_run()
    }

    /// Records whether the disk refused, as when it is full; the next [`Self::mend`] then reopens the file.
    pub(super) fn note<T>(&mut self, result: &Result<T, StoreError>) {
        self.failed |= matches!(result, Err(StoreError::Access { .. }));
        self.refusals.note(&self.path, result);
    }

    pub(super) fn health(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.health.subscribe()
    }

    /// Tells followers whether the disk has taken a write.
    pub(super) fn tell_health<T>(&self, result: &Result<T, StoreError>) {
        let refusal = match result {
            Ok(_) => None,
            Err(error) if error.is_of_disk() => Some(ErrorChain(error).to_string().into()),
            Err(_) => return,
        };
        self.health.send_if_modified(|health| {
            let differs = *health != refusal;
            *health = refusal;
            differs
        });
    }

    /// Logs what has no line yet, at the end of the process.
    pub(super) fn finish_log(&mut self) {
        self.refusals.finish(&self.path);
    }

    /// Reopens the file after a failure. Prepared transactions are still prepared, except those that are given up.
    pub(super) fn mend(&mut self) -> Result<(), StoreError> {
        if !self.failed {
            return Ok(());
        }
        debug!(file = %self.path.display(), "opening the database again after a failed write");
        let is_in_memory = self.held.take().is_some();
        self.reopen()?;
        if is_in_memory && let Err(error) = self.settle_last_run() {
            self.go_on_in_memory()?;
            return Err(error);
        }
        let unwanted = self.prepared.keep_recorded(&prepared::recorded(self.redb()?)?);
        if !unwanted.is_empty() {
            self.undo(&unwanted)?;
            info!(transactions = unwanted.len(), "rolled back what could not be made final");
        }
        self.failed = false;
        Ok(())
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.layout = None;
        self.redb = None; // releases the lock
        self.redb = Some(open_file(&self.path, CACHE_BYTES)?);
        Ok(())
    }

    /// Reads everything, together with the result of roll-backs at opening.
    ///
    /// # Errors
    /// When a table cannot be read.
    pub fn load(&mut self) -> Result<StoredState, StoreError> {
        let failed = StoreError::accessing("read the stored configuration");
        let redb = self.redb()?;
        let taken_back = taken_back::read(redb)?;
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
                taken_back: TakenBackRows::new(),
                last_transaction: last.map_or(0, |number| number.value()),
                last_recorded: 0,
            })
        };
        Ok(StoredState { users: self.users()?, taken_back, ..read().map_err(failed)? })
    }

    /// Blocks of rows that were read, written and removed since the file was opened.
    pub fn block_work(&self) -> BlockWork {
        self.block_work
    }

    /// Applies the rows of a transaction and records their previous content, without writing either.
    ///
    /// The next [`Self::prepare`] of this transaction writes them. Whatever is written before that gives them up.
    ///
    /// # Errors
    /// When the transaction is prepared, another one that is has written one of the rows, or the disk refuses.
    pub fn lay_out(&mut self, ticket: Ticket, changes: &[Change]) -> Result<(), StoreError> {
        const ATTEMPT: &str = "prepare a transaction";
        if self.prepared.contains(ticket) {
            return Err(StoreError::out_of_order("prepare", ticket, "it is prepared already"));
        }
        let rows = self.prepared.claim(ATTEMPT, changes)?;
        let write = self.begin(ATTEMPT)?;
        apply_recording(&write, ticket, changes, &mut self.block_work)?;
        self.layout = Some(Layout { ticket, write, rows });
        Ok(())
    }

    /// True while rows of a transaction are laid out.
    pub(super) fn has_layout(&self) -> bool {
        self.layout.is_some()
    }

    /// Gives up what was laid out for a transaction.
    pub(super) fn discard_layout(&mut self, ticket: Ticket) {
        self.layout.take_if(|layout| layout.ticket == ticket); // a write transaction that is dropped writes nothing
    }

    /// Prepares a transaction: applies its rows, and records their previous content in the same durable write.
    ///
    /// Several transactions can be prepared at the same time.
    ///
    /// # Errors
    /// The errors of [`Self::lay_out`].
    pub fn prepare(&mut self, ticket: Ticket, changes: &[Change]) -> Result<(), StoreError> {
        if self.layout.as_ref().is_none_or(|layout| layout.ticket != ticket) {
            self.lay_out(ticket, changes)?;
        }
        let Some(Layout { write, rows, .. }) = self.layout.take() else { return Ok(()) };
        #[cfg(any(test, feature = "faults"))]
        if let Some(fault) = self.fault.take_if(|it| it.is_of_prepare()) {
            return fault.strike(write);
        }
        finish(write, "prepare a transaction")?;
        self.prepared.insert(ticket, rows);
        Ok(())
    }

    /// Makes a prepared transaction final under `number`, or rolls it back.
    ///
    /// # Errors
    /// When the transaction is not prepared; when `number` is not above that of the last one; when the beginning or the
    /// end of an unconfirmed commit is not alone; or when the disk refuses. A transaction that was prepared is rolled
    /// back then, at the latest when the disk answers again.
    pub fn commit(
        &mut self,
        ticket: Ticket,
        number: u64,
        unconfirmed: Unconfirmed,
    ) -> Result<(), StoreError> {
        self.commit_with(ticket, number, unconfirmed, &FinalContent::default())
    }

    /// Makes a prepared transaction final, with this content in the same durable write.
    ///
    /// # Errors
    /// The errors of [`Self::commit`]; or when the transaction has not prepared one of the rows. Nothing of the content is
    /// written then.
    pub fn commit_with(
        &mut self,
        ticket: Ticket,
        number: u64,
        unconfirmed: Unconfirmed,
        content: &FinalContent,
    ) -> Result<(), StoreError> {
        self.expect_prepared("commit", ticket)?;
        match self.make_final(ticket, number, unconfirmed, content) {
            Ok(joined) => self.joined.extend(joined),
            // The disk may have completed the write before it failed.
            Err(error) if !self.was_made_final(ticket) => {
                self.prepared.mark_aborted(ticket);
                return Err(error);
            }
            Err(_) => {}
        }
        self.prepared.remove(ticket);
        Ok(())
    }

    /// Looks up, after reopening the file, whether the end of a transaction had reached the disk.
    fn was_made_final(&mut self, ticket: Ticket) -> bool {
        self.failed = true;
        let recorded = self.reopen().and_then(|()| prepared::recorded(self.redb()?));
        recorded.is_ok_and(|recorded| !recorded.contains(&ticket))
    }

    /// Returns the keys of rows that joined the record of the commit that waits to be confirmed.
    fn make_final(
        &mut self,
        ticket: Ticket,
        number: u64,
        unconfirmed: Unconfirmed,
        content: &FinalContent,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        const ATTEMPT: &str = "commit a transaction";
        if let Some(row) = self.prepared.row_not_of(ticket, &content.rows) {
            let state = format!("it has not prepared the row `{row}` of its last write");
            return Err(StoreError::out_of_order("commit", ticket, state));
        }
        if matches!(unconfirmed, Unconfirmed::Begins | Unconfirmed::Ends)
            && let Some(other) = self.prepared.other_than(ticket)
        {
            let state = format!(
                "{other} is prepared, and what begins or ends a wait for confirmation is alone"
            );
            return Err(StoreError::out_of_order("commit", ticket, state));
        }
        let write = self.begin(ATTEMPT)?;
        give_number(&write, ticket, number)?;
        revisions::cover(&write, number)?;
        artefacts::write(&write, &content.artefacts).map_err(StoreError::accessing(ATTEMPT))?;
        apply(&write, &content.rows, &mut self.block_work)?;
        let mut revision = None;
        if let Some(logged) = &content.revision {
            let rows = UndoRows::Of(ticket);
            let work = &mut self.log_work;
            revision = Some(revisions::append(&write, logged, rows, self.log_limits, work)?);
        }
        let mut joined = Vec::new();
        match unconfirmed {
            Unconfirmed::Stays => {}
            Unconfirmed::Begins => {
                unconfirmed::keep(&write, ticket, number)?;
                revisions::note_wait(&write, revision)?;
                self.joined.clear();
            }
            Unconfirmed::Joins => joined = unconfirmed::join(&write, ticket, &self.joined)?,
            Unconfirmed::Ends => {
                unconfirmed::forget(&write)?;
                revisions::note_end_of_wait(&write)?;
            }
        }
        prepared::forget(&write, ticket)?;
        #[cfg(any(test, feature = "faults"))]
        if let Some(fault) = self.fault.take_if(|it| it.is_of_commit()) {
            return fault.strike(write).map(|()| joined);
        }
        finish(write, ATTEMPT).map(|()| joined)
    }

    /// Makes the commit final that waits to be confirmed.
    ///
    /// # Errors
    /// When the disk refuses; the commit still waits then.
    pub fn confirm(&mut self) -> Result<(), StoreError> {
        let write = self.begin("confirm a commit")?;
        unconfirmed::forget(&write)?;
        revisions::note_end_of_wait(&write)?;
        finish(write, "confirm a commit")
    }

    /// Restores every row that a prepared transaction replaced.
    ///
    /// # Errors
    /// When the transaction is not prepared, or the disk refuses. In the latter case it is rolled back when the disk
    /// answers again.
    pub fn abort(&mut self, ticket: Ticket) -> Result<(), StoreError> {
        self.expect_prepared("abort", ticket)?;
        self.prepared.mark_aborted(ticket);
        self.undo(&[ticket])?;
        self.prepared.remove(ticket);
        Ok(())
    }

    /// Writes rows outside of a transaction.
    ///
    /// # Errors
    /// When a prepared transaction has written one of the rows, or the disk refuses; nothing is written then.
    pub fn write(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.prepared.claim("write rows", changes)?;
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
    fn finish_factory_reset(&mut self, folder: &Path) -> Result<(), StoreError> {
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
        remove_folder(&folder.join(FILES_FOLDER))?;
        // These files are opened after the database, so they are not in use.
        for journal in JournalKind::ALL {
            remove_file(&folder.join(journal.file_name()))?;
        }
        remove_file(&folder.join(ACCOUNTS_NAME))?;
        let write = self.begin(ATTEMPT)?;
        let erased = || -> Result<u64, redb::Error> {
            let artefacts = artefacts::clear(&write, retain_certificates)?;
            write.delete_table(USERS)?;
            write.open_table(USERS)?;
            write.delete_table(NOTES)?;
            write.open_table(NOTES)?;
            revisions::clear(&write)?;
            Ok(artefacts)
        };
        let artefacts = erased().map_err(&failed)?;
        finish(write, ATTEMPT)?;
        info!(
            artefacts,
            "factory reset: users, credentials, histories, revisions and notes are erased"
        );
        Ok(())
    }

    fn expect_prepared(&self, attempt: &'static str, ticket: Ticket) -> Result<(), StoreError> {
        if self.prepared.contains(ticket) {
            Ok(())
        } else {
            Err(StoreError::out_of_order(attempt, ticket, "it is not prepared"))
        }
    }

    pub(super) fn redb(&self) -> Result<&redb::Database, StoreError> {
        self.redb.as_ref().ok_or(StoreError::Stopped)
    }

    /// Begins a write. Any layout is given up first, or redb would wait for its end.
    pub(super) fn begin(&mut self, attempt: &'static str) -> Result<WriteTransaction, StoreError> {
        self.layout = None;
        self.redb()?.begin_write().map_err(|error| StoreError::accessing(attempt)(error.into()))
    }
}

impl StoreError {
    pub(super) fn opening(path: &Path, error: redb::DatabaseError) -> Self {
        let path = PathBuf::from(path);
        match error {
            redb::DatabaseError::DatabaseAlreadyOpen => Self::Locked { path },
            other => {
                let source: Box<redb::Error> = Box::new(other.into());
                match is_damaged(&source) {
                    true => Self::Damaged { path, source },
                    false => Self::Open { path, source },
                }
            }
        }
    }

    pub(super) fn accessing(attempt: &'static str) -> impl Fn(redb::Error) -> Self {
        move |source| Self::Access { attempt, source: Box::new(source) }
    }

    pub(super) fn out_of_order(
        attempt: &'static str,
        ticket: Ticket,
        state: impl Into<String>,
    ) -> Self {
        Self::OutOfOrder { attempt, ticket, state: state.into() }
    }
}

/// True for a file that is not a database, or not all of one.
fn is_damaged(error: &redb::Error) -> bool {
    match error {
        redb::Error::Corrupted(_) => true,
        redb::Error::Io(error) => error.kind() == ErrorKind::InvalidData,
        _ => false,
    }
}

fn finish(write: WriteTransaction, attempt: &'static str) -> Result<(), StoreError> {
    write.commit().map_err(|error| StoreError::accessing(attempt)(error.into()))
}

/// Records the number of a transaction, which becomes final with it.
fn give_number(write: &WriteTransaction, ticket: Ticket, number: u64) -> Result<(), StoreError> {
    let exchange = || -> Result<u64, redb::Error> {
        let mut meta = write.open_table(META)?;
        let earlier = meta.insert(META_LAST_TRANSACTION, number)?;
        Ok(earlier.map_or(0, |number| number.value()))
    };
    let last = exchange().map_err(StoreError::accessing("number a transaction"))?;
    if number > last {
        return Ok(());
    }
    let state = format!("its number {number} is not above {last}, the last one");
    Err(StoreError::out_of_order("commit", ticket, state))
}
