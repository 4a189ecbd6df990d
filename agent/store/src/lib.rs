//! Persistent state: configuration layers, original values of adopted objects, users, and final gNSI artefacts.
//!
//! [`Store`] is the asynchronous handle. The [`Database`] behind it has a thread of its own, because a durable
//! write waits for the disk. Commands are carried out in order; a transaction that is prepared ahead of the decision to
//! run it takes its turn when the decision comes.
//!
//! A transaction is two durable writes. [`Store::prepare`] applies its rows and records their previous content;
//! [`Store::commit`] drops that record, and may give its rows a later content ([`FinalContent`]); [`Store::abort`]
//! restores from the record. Several transactions can be prepared at the same time, as long as none writes a row of
//! another one; they end in any order. A [`Ticket`] names each until it is final, and its number is the order of
//! committing. Transactions that are found prepared when the database is opened were never answered, so they are
//! rolled back first. After them, a commit that waits to be confirmed is rolled back: [`Unconfirmed`] says how one
//! begins and ends.
//!
//! Transactions that change configuration are revisions of a log, and the rows of clients as of an earlier one can be read:
//! see `revisions`.

pub mod accounts;
mod artefacts;
mod block;
mod database;
#[cfg(any(test, feature = "faults"))]
pub mod faults;
mod folder;
mod format;
mod history_file;
mod journal;
mod layer_rows;
mod layer_table;
mod notes;
mod prepared;
mod redb_file;
mod refusal_log;
mod revisions;
mod tables;
mod taken_back;
mod thread;
mod unconfirmed;
mod undo;

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
};

use holdfast_base::Role;
use holdfast_config::{RowChange, is_secret_row};
use smol_str::SmolStr;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

pub use self::accounts::{ACCOUNTS_NAME, Ledger};
pub use self::artefacts::{Artefact, ArtefactChange, ArtefactTable, Artefacts};
pub use self::database::Database;
pub use self::folder::{
    BOOTZ_FOLDER, FILE_NAME, FILES_FOLDER, FORMAT_FILE, IDENTITY_FOLDER, PACKAGES_FOLDER,
    create_private_folder, write_private_file,
};
pub use self::format::FORMAT;
pub use self::journal::{Journal, JournalKind};
pub use self::layer_rows::LayerRows;
pub use self::layer_table::BlockWork;
pub use self::notes::LAST_REBOOT;
pub use self::prepared::Ticket;
pub use self::revisions::{
    ChangeSource, Checkpoint, CheckpointName, ClientRows, ConfigRevision, InvalidCheckpointName,
    ListedRevision, LogWork, MAX_CHECKPOINT_OCTETS, MAX_CHECKPOINTS, MAX_REVISION_OCTETS,
    MAX_REVISIONS, NewCheckpoint, RevisionList, RevisionRange, RevisionTarget,
};
use self::thread::DatabaseThread;

/// Commands that wait for the disk. The core has at most a few in progress; more than this is a flood.
const QUEUE_DEPTH: usize = 256;

/// A table whose rows change together in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// Rows of the configuration layers.
    Layer,
    /// Original value of each adopted object, in an encoding that only the core knows.
    Restore,
    /// Small facts about the agent itself.
    Note,
    /// Secrets to which the layers refer.
    Secret,
}

/// A row to write, or to remove when it has no value.
#[derive(Clone, PartialEq, Eq)]
pub struct Change {
    pub table: Table,
    pub key: Vec<u8>,
    pub value: Option<Vec<u8>>,
}

impl Change {
    pub fn layer(key: Vec<u8>, value: Option<Vec<u8>>) -> Self {
        Self { table: Table::Layer, key, value }
    }

    pub fn restore(key: Vec<u8>, value: Option<Vec<u8>>) -> Self {
        Self { table: Table::Restore, key, value }
    }
}

impl From<RowChange> for Change {
    fn from(row: RowChange) -> Self {
        let table = if is_secret_row(&row.key) { Table::Secret } else { Table::Layer };
        Self { table, key: row.key, value: row.value }
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value.as_deref().filter(|_| self.table != Table::Secret);
        f.debug_struct("Change")
            .field("table", &self.table)
            .field("key", &self.key)
            .field("value", &value)
            .finish()
    }
}

/// Effect of a commit on the one that waits to be confirmed. A commit that begins or ends a wait is alone: no other
/// transaction is prepared when it is made final.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unconfirmed {
    /// None.
    #[default]
    Stays,
    /// This commit waits from now on: the previous content of its rows is kept until it is confirmed or rolled
    /// back, and a restart rolls it back.
    Begins,
    /// Rows of services in this commit belong to the one that waits: their previous content is kept with its record,
    /// of each row the oldest. All other rows stay, whatever becomes of that commit.
    Joins,
    /// This commit has rolled back the one that waited.
    Ends,
}

/// Content of the write that makes a transaction final, beside the end of its record.
#[derive(Clone, Debug, Default)]
pub struct FinalContent {
    /// gNSI artefacts.
    pub artefacts: Vec<ArtefactChange>,
    /// Later content of rows that the transaction has prepared. Its record keeps what was there before it.
    pub rows: Vec<Change>,
    /// The configuration revision that the transaction is, if it is one. The store gives the number.
    pub revision: Option<Box<ConfigRevision>>,
}

/// Key and value of one row.
pub type Row = (Vec<u8>, Vec<u8>);

/// A local user. The hash is a PHC string, which `Debug` omits.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    pub name: SmolStr,
    pub role: Role,
    pub password_hash: String,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// Content of the database at its opening, after unfinished transactions were rolled back.
#[derive(Default)]
pub struct StoredState {
    pub layers: LayerRows,
    /// Rows of [`Table::Restore`], ascending by key. After a crash they may name objects that no layer has any
    /// more, which the core then gives up.
    pub restore: Vec<Row>,
    pub users: Vec<User>,
    /// Final artefacts of the gNSI services.
    pub artefacts: Artefacts,
    /// Rows of [`Table::Note`].
    pub notes: Vec<Row>,
    /// Number of transactions that were prepared when the agent ended, and are rolled back.
    pub rolled_back: usize,
    /// Rows of [`Table::Layer`] that this start or earlier ones took back, with their content before that, which the system
    /// may still have: see [`Store::forget_taken_back`].
    pub taken_back: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Number of the transaction that was made final last; the next one must be higher.
    pub last_transaction: u64,
    /// The highest transaction number in the history of earlier runs; those of this run continue from it.
    pub last_recorded: u64,
}

/// Its rows are counted, as some of them are secrets.
impl fmt::Debug for StoredState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredState")
            .field("layers", &self.layers.len())
            .field("restore", &self.restore.len())
            .field("users", &self.users)
            .field("artefacts", &self.artefacts)
            .field("rolled_back", &self.rolled_back)
            .field("last_transaction", &self.last_transaction)
            .field("last_recorded", &self.last_recorded)
            .finish_non_exhaustive()
    }
}

/// Reason why the store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    #[error("cannot {action} `{}`", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the state folder `{}` is open to other users (mode {mode:o}) and holds files that are not ours: give the agent a folder of its own",
        path.display()
    )]
    FolderIsShared { path: PathBuf, mode: u32 },
    #[error(
        "the folder `{}` belongs to user {owner}, who could read the keys in it or exchange it: give it to root or to the user of the agent",
        path.display()
    )]
    FolderOfOthers { path: PathBuf, owner: u32 },
    #[error("the database `{}` is in use by another holdfast", path.display())]
    Locked { path: PathBuf },
    #[error("cannot open the database `{}`", path.display())]
    Open { path: PathBuf, source: Box<redb::Error> },
    #[error(
        "the database `{}` is damaged, so the configuration is not known: put back a copy of the state folder, or move the folder away to begin with an empty one",
        path.display()
    )]
    Damaged { path: PathBuf, source: Box<redb::Error> },
    #[error("the database `{}` has format {found}, this version reads format {known}", path.display())]
    Format { path: PathBuf, found: u64, known: u64 },
    #[error("cannot {attempt} in the database")]
    Access { attempt: &'static str, source: Box<redb::Error> },
    #[error("the database holds a {what} that cannot be read")]
    Corrupt { what: &'static str },
    #[error("cannot {attempt} the transaction of {ticket}: {state}")]
    OutOfOrder { attempt: &'static str, ticket: Ticket, state: String },
    #[error(
        "cannot {attempt}: the row `{row}` was written by the transaction of {ticket}, which is not final"
    )]
    RowInUse { attempt: &'static str, row: String, ticket: Ticket },
    #[error("the transaction of {ticket} was given up before it was written")]
    Withdrawn { ticket: Ticket },
    #[error("the configuration cannot go back to revision {number}: {reason}")]
    NoRevision { number: u64, reason: &'static str },
    #[error("there is no checkpoint `{name}`")]
    NoCheckpoint { name: CheckpointName },
    #[error("there are {limit} checkpoints already, which is the limit: delete one first")]
    TooManyCheckpoints { limit: usize },
    #[error(
        "all checkpoints together would take {found} bytes; the limit is {limit} bytes: delete one first"
    )]
    CheckpointsTooLarge { found: u64, limit: u64 },
    #[error("too many writes wait for the disk: try again later")]
    Overloaded,
    #[error("the store has stopped")]
    Stopped,
}

impl StoreError {
    /// True when the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Overloaded | Self::Locked { .. } | Self::RowInUse { .. })
    }

    /// True when the disk or the file system has refused, as when it is full. The store logs it.
    pub fn is_of_disk(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Open { .. } | Self::Access { .. })
    }

    fn unsent<T>(refused: &TrySendError<T>) -> Self {
        match refused {
            TrySendError::Full(_) => Self::Overloaded,
            TrySendError::Closed(_) => Self::Stopped,
        }
    }
}

/// Handle of the database thread; clones share it.
#[derive(Clone, Debug)]
pub struct Store {
    command_tx: mpsc::Sender<Command>,
    last_ticket: Arc<AtomicU64>,
    health: watch::Receiver<Option<Arc<str>>>,
}

/// An accepted command. Its effect does not depend on anyone waiting for the answer.
#[derive(Debug)]
#[must_use = "a command may fail; its answer says so"]
pub struct Answer<T>(Result<oneshot::Receiver<Result<T, StoreError>>, Option<StoreError>>);

/// Decision on a transaction that is being prepared. Dropping it declines.
#[derive(Debug)]
#[must_use = "without consent nothing is prepared"]
pub struct Consent {
    ticket: Ticket,
    /// The place of the decision in the queue; `None` when the transaction was not accepted, or is decided.
    place: Option<mpsc::OwnedPermit<Command>>,
}

impl Consent {
    pub fn give(mut self) {
        self.decide(true);
    }

    fn decide(&mut self, is_wanted: bool) {
        if let Some(place) = self.place.take() {
            // If the store has stopped, the answer of the command says so.
            place.send(Command::Decide { ticket: self.ticket, is_wanted });
        }
    }
}

impl Drop for Consent {
    fn drop(&mut self) {
        self.decide(false);
    }
}

#[derive(Debug)]
enum Command {
    Prepare {
        ticket: Ticket,
        changes: Vec<Change>,
        answer: Reply<()>,
    },
    /// Writes the rows of a transaction, or gives them up.
    Decide {
        ticket: Ticket,
        is_wanted: bool,
    },
    Commit {
        ticket: Ticket,
        number: u64,
        unconfirmed: Unconfirmed,
        content: FinalContent,
        answer: Reply<()>,
    },
    Confirm {
        answer: Reply<()>,
    },
    Abort {
        ticket: Ticket,
        answer: Reply<()>,
    },
    Write {
        changes: Vec<Change>,
        answer: Reply<()>,
    },
    /// Writes rows, and notes their content before.
    WriteOver {
        changes: Vec<Change>,
        answer: Reply<()>,
    },
    ForgetTakenBack {
        answer: Reply<()>,
    },
    Revisions {
        range: RevisionRange,
        answer: Reply<RevisionList>,
    },
    RowsAt {
        target: RevisionTarget,
        answer: Reply<ClientRows>,
    },
    SetCheckpoint {
        checkpoint: NewCheckpoint,
        answer: Reply<Checkpoint>,
    },
    DeleteCheckpoint {
        name: CheckpointName,
        answer: Reply<bool>,
    },
    Checkpoints {
        answer: Reply<Vec<Checkpoint>>,
    },
    WriteArtefacts {
        changes: Vec<ArtefactChange>,
        answer: Reply<()>,
    },
    SetUser {
        user: User,
        answer: Reply<()>,
    },
    DeleteUser {
        name: SmolStr,
        answer: Reply<bool>,
    },
    #[cfg(any(test, feature = "faults"))]
    Refuse {
        fault: faults::Fault,
        answer: Reply<()>,
    },
    #[cfg(any(test, feature = "faults"))]
    StopAt {
        stop: faults::DiskStop,
        answer: Reply<()>,
    },
    Close {
        answer: Reply<()>,
    },
}

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

impl Store {
    /// Opens the database in `folder`, creating both when they do not exist, and starts its thread.
    ///
    /// Blocks, so call it before the runtime is busy.
    ///
    /// # Errors
    /// When the folder or the file cannot be used or read, or another agent has the file open.
    pub fn open(folder: &Path) -> Result<(Self, StoredState), StoreError> {
        let mut database = Database::open(folder)?;
        let loaded = database.load()?;
        let (command_tx, command_rx) = mpsc::channel(QUEUE_DEPTH);
        let health = database.health();
        let thread = DatabaseThread::new(database, command_rx);
        std::thread::Builder::new().name("store".to_owned()).spawn(move || thread.run()).map_err(
            |source| StoreError::File {
                action: "start the thread of",
                path: folder.into(),
                source,
            },
        )?;
        Ok((Self { command_tx, last_ticket: Arc::default(), health }, loaded))
    }

    /// A receiver of why the disk refused the last write: `None` while it takes what is written.
    pub fn health(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.health.clone()
    }

    /// A ticket for a new transaction.
    pub fn new_ticket(&self) -> Ticket {
        Ticket(self.last_ticket.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Applies the rows of a transaction, and records their previous content in the same durable write.
    ///
    /// Other transactions may be prepared meanwhile; one that writes a row of another one is refused.
    pub fn prepare(&self, ticket: Ticket, changes: Vec<Change>) -> Answer<()> {
        let (answer, consent) = self.prepare_ahead(ticket, changes);
        consent.give();
        answer
    }

    /// Prepares a transaction ahead of the decision to run it: rows are computed, and written once there is
    /// consent. Without consent nothing is written, and the answer is [`StoreError::Withdrawn`].
    pub fn prepare_ahead(&self, ticket: Ticket, changes: Vec<Change>) -> (Answer<()>, Consent) {
        // The decision has its place in the queue before it is made, so that a full queue cannot lose it.
        let place = self.command_tx.clone().try_reserve_owned();
        let place = place.map_err(|refused| StoreError::unsent(&refused));
        let (answer, place) = match place {
            Ok(place) => {
                (self.send(|answer| Command::Prepare { ticket, changes, answer }), Some(place))
            }
            Err(refused) => (Answer(Err(Some(refused))), None),
        };
        (answer, Consent { ticket, place })
    }

    /// Makes a prepared transaction final. Durable once answered.
    pub fn commit(&self, ticket: Ticket, number: u64, unconfirmed: Unconfirmed) -> Answer<()> {
        self.commit_with(ticket, number, unconfirmed, FinalContent::default())
    }

    /// Makes a prepared transaction final, with this content in the same durable write. The `number` of the transaction
    /// must be above that of the one before.
    ///
    /// After an error the transaction is rolled back.
    pub fn commit_with(
        &self,
        ticket: Ticket,
        number: u64,
        unconfirmed: Unconfirmed,
        content: FinalContent,
    ) -> Answer<()> {
        self.send(|answer| Command::Commit { ticket, number, unconfirmed, content, answer })
    }

    /// Makes the commit final that waits to be confirmed. Durable once answered.
    pub fn confirm(&self) -> Answer<()> {
        self.send(|answer| Command::Confirm { answer })
    }

    /// Restores every row that a prepared transaction replaced.
    pub fn abort(&self, ticket: Ticket) -> Answer<()> {
        self.send(|answer| Command::Abort { ticket, answer })
    }

    /// Writes rows outside of a transaction, as for the adoption of a port that appears. Durable once answered.
    pub fn write(&self, changes: Vec<Change>) -> Answer<()> {
        self.send(|answer| Command::Write { changes, answer })
    }

    /// Writes rows outside of a transaction, and notes their content before in [`StoredState::taken_back`]: at a
    /// start that changes the configuration without a request. Durable once answered.
    pub fn write_over(&self, changes: Vec<Change>) -> Answer<()> {
        self.send(|answer| Command::WriteOver { changes, answer })
    }

    /// Forgets what was taken back, because the system is as configured.
    pub fn forget_taken_back(&self) -> Answer<()> {
        self.send(|answer| Command::ForgetTakenBack { answer })
    }

    /// The state of the log, and configuration revisions of it.
    pub fn revisions(&self, range: RevisionRange) -> Answer<RevisionList> {
        self.send(|answer| Command::Revisions { range, answer })
    }

    /// The rows of clients as of an earlier revision or a checkpoint.
    pub fn rows_at(&self, target: RevisionTarget) -> Answer<ClientRows> {
        self.send(|answer| Command::RowsAt { target, answer })
    }

    /// Keeps the configuration of clients under a name, in place of what has the name already. Durable once answered.
    pub fn set_checkpoint(&self, checkpoint: NewCheckpoint) -> Answer<Checkpoint> {
        self.send(|answer| Command::SetCheckpoint { checkpoint, answer })
    }

    /// Removes a checkpoint; the answer tells whether it existed.
    pub fn delete_checkpoint(&self, name: CheckpointName) -> Answer<bool> {
        self.send(|answer| Command::DeleteCheckpoint { name, answer })
    }

    /// All checkpoints, ascending by name.
    pub fn checkpoints(&self) -> Answer<Vec<Checkpoint>> {
        self.send(|answer| Command::Checkpoints { answer })
    }

    /// Writes gNSI artefacts, all of them or none. Durable once answered.
    pub fn write_artefacts(&self, changes: Vec<ArtefactChange>) -> Answer<()> {
        self.send(|answer| Command::WriteArtefacts { changes, answer })
    }

    /// Creates or changes a user.
    pub fn set_user(&self, user: User) -> Answer<()> {
        self.send(|answer| Command::SetUser { user, answer })
    }

    /// Removes a user; the answer tells whether it existed.
    pub fn delete_user(&self, name: SmolStr) -> Answer<bool> {
        self.send(|answer| Command::DeleteUser { name, answer })
    }

    /// Completes earlier commands, closes the file and ends the thread. Later commands are answered with
    /// `Stopped`.
    pub fn close(&self) -> Answer<()> {
        self.send(|answer| Command::Close { answer })
    }

    /// Waits until the thread of the database has ended, regularly or by a panic.
    pub async fn ended(&self) {
        self.command_tx.closed().await;
    }

    /// Makes the next commit fail.
    #[cfg(any(test, feature = "faults"))]
    pub fn refuse(&self, fault: faults::Fault) -> Answer<()> {
        self.send(|answer| Command::Refuse { fault, answer })
    }

    /// Stops the disk at the `nth` durable write from now on, as a kill of the agent there would: nothing is answered
    /// after that. That write itself is made, or not.
    ///
    /// # Errors
    /// When the store has ended.
    #[cfg(any(test, feature = "faults"))]
    pub async fn stop_at(
        &self,
        nth: usize,
        is_made: bool,
    ) -> Result<oneshot::Receiver<faults::StoppedDisk>, StoreError> {
        let (stop, stopped_rx) = faults::DiskStop::new(nth, is_made);
        self.send(|answer| Command::StopAt { stop, answer }).await?;
        Ok(stopped_rx)
    }

    fn send<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Answer<T> {
        let (answer_tx, answer_rx) = oneshot::channel();
        Answer(match self.command_tx.try_send(command(answer_tx)) {
            Ok(()) => Ok(answer_rx),
            Err(refused) => Err(Some(StoreError::unsent(&refused))),
        })
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(answer) => Pin::new(answer)
                .poll(context)
                .map(|answered| answered.unwrap_or(Err(StoreError::Stopped))),
            Err(refused) => Poll::Ready(Err(refused.take().unwrap_or(StoreError::Stopped))),
        }
    }
}

#[cfg(test)]
mod tests;
