//! Disk failures, simulated for tests of this crate and of those that store with it.

use std::{any::Any, io, mem, thread, time::Duration};

use tokio::sync::oneshot;

use super::{Command, Reply, StoreError};

/// Long enough for the core to complete its other work.
const LATE: Duration = Duration::from_millis(50);

/// Kind of disk failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The rows of a transaction are not written.
    Unprepared,
    /// The rows of a transaction are written, but reported as an error.
    MisreportedPrepare,
    /// The roll-back of a transaction is not written.
    NotRolledBack,
    /// The roll-back of a transaction is written, but reported as an error.
    MisreportedRollBack,
    /// Rows outside of transactions are not written.
    Unwritten,
    /// Rows outside of transactions are written late.
    Late,
    /// A commit is not written.
    Lost,
    /// A commit is written, but reported as an error.
    Misreported,
    /// The thread of the database panics.
    Panic,
}

impl Fault {
    pub(crate) fn is_of_prepare(self) -> bool {
        matches!(self, Self::Unprepared | Self::MisreportedPrepare)
    }

    pub(crate) fn is_of_commit(self) -> bool {
        matches!(self, Self::Lost | Self::Misreported | Self::Panic)
    }

    pub(crate) fn is_of_roll_back(self) -> bool {
        matches!(self, Self::NotRolledBack | Self::MisreportedRollBack)
    }

    /// True for faults that concern rows outside of transactions.
    pub(crate) fn is_of_rows(self) -> bool {
        matches!(self, Self::Unwritten | Self::Late)
    }

    #[allow(clippy::disallowed_methods, reason = "a slow disk is simulated, nothing is waited for")]
    pub(crate) fn strike(self, write: redb::WriteTransaction) -> Result<(), StoreError> {
        match self {
            Self::Late => {
                thread::sleep(LATE);
                write.commit().map_err(committing)?;
                return Ok(());
            }
            Self::Misreported | Self::MisreportedPrepare | Self::MisreportedRollBack => {
                write.commit().map_err(committing)?;
            }
            Self::Panic => panic!("as a bug would"),
            Self::Unprepared | Self::NotRolledBack | Self::Unwritten | Self::Lost => {}
        }
        let source = Box::new(redb::Error::Io(io::Error::from(io::ErrorKind::StorageFull)));
        Err(StoreError::Access { attempt: "commit a transaction", source })
    }
}

fn committing(error: redb::CommitError) -> StoreError {
    StoreError::Access { attempt: "commit a transaction", source: Box::new(error.into()) }
}

/// Kind of durable write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    Prepare,
    Commit,
    Abort,
    Confirm,
    /// Rows outside of transactions.
    Rows,
}

/// The write at which a disk has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoppedDisk {
    pub kind: WriteKind,
    pub is_made: bool,
    /// Commits that were made, this one among them.
    pub commits: usize,
}

/// A durable write at which the disk stops: nothing is written or answered after it, as when the agent is killed there.
#[derive(Debug)]
pub(crate) struct DiskStop {
    /// Writes before it.
    left: usize,
    /// It is made itself, and not answered.
    is_made: bool,
    /// Commits before it.
    commits: usize,
    /// The write, once it has come.
    stopped: Option<StoppedDisk>,
    /// Told of it.
    stopped_tx: Option<oneshot::Sender<StoppedDisk>>,
    /// Answers for which somebody waits.
    withheld: Vec<Box<dyn Any + Send>>,
}

impl DiskStop {
    /// A stop at the `nth` write from now on, counted from 1, and its receiver.
    pub(crate) fn new(nth: usize, is_made: bool) -> (Self, oneshot::Receiver<StoppedDisk>) {
        let (stopped_tx, stopped_rx) = oneshot::channel();
        let left = nth.saturating_sub(1);
        let stopped_tx = Some(stopped_tx);
        let commits = 0;
        let stopped = None;
        let withheld = Vec::new();
        (Self { left, is_made, commits, stopped, stopped_tx, withheld }, stopped_rx)
    }

    /// True for a command that is carried out. One at the stop, or after it, is not answered; `prepared` is the answer to a
    /// transaction that is prepared by the command.
    pub(crate) fn lets_pass(
        &mut self,
        command: &mut Command,
        prepared: Option<&mut Reply<()>>,
    ) -> bool {
        let Some(kind) = kind_of_write(command) else { return true };
        let is_commit = kind == WriteKind::Commit;
        if self.left > 0 {
            self.left -= 1;
            self.commits += usize::from(is_commit);
            return true;
        }
        match command {
            Command::Commit { answer, .. }
            | Command::Confirm { answer }
            | Command::Abort { answer, .. }
            | Command::Write { answer, .. }
            | Command::WriteOver { answer, .. }
            | Command::ForgetTakenBack { answer }
            | Command::WriteArtefacts { answer, .. }
            | Command::SetUser { answer, .. } => self.withhold(answer),
            Command::DeleteUser { answer, .. } | Command::DeleteCheckpoint { answer, .. } => {
                self.withhold(answer);
            }
            Command::SetCheckpoint { answer, .. } => self.withhold(answer),
            _ => prepared.into_iter().for_each(|answer| self.withhold(answer)),
        }
        if self.stopped.is_some() {
            return false;
        }
        let commits = self.commits + usize::from(is_commit && self.is_made);
        self.stopped = Some(StoppedDisk { kind, is_made: self.is_made, commits });
        self.is_made
    }

    fn withhold<T: Send + 'static>(&mut self, answer: &mut Reply<T>) {
        let (nobody, _) = oneshot::channel();
        self.withheld.push(Box::new(mem::replace(answer, nobody)));
    }

    /// Says that the disk has stopped, if it has.
    pub(crate) fn report(&mut self) {
        if let Some(stopped) = self.stopped
            && let Some(stopped_tx) = self.stopped_tx.take()
        {
            // The test may have ended.
            let _ = stopped_tx.send(stopped);
        }
    }
}

/// Kind of a durable write; `None` for a command that writes nothing.
fn kind_of_write(command: &Command) -> Option<WriteKind> {
    match command {
        Command::Decide { is_wanted: true, .. } => Some(WriteKind::Prepare),
        Command::Commit { .. } => Some(WriteKind::Commit),
        Command::Confirm { .. } => Some(WriteKind::Confirm),
        Command::Abort { .. } => Some(WriteKind::Abort),
        Command::Write { .. }
        | Command::WriteOver { .. }
        | Command::ForgetTakenBack { .. }
        | Command::WriteArtefacts { .. }
        | Command::SetUser { .. }
        | Command::DeleteUser { .. }
        | Command::SetCheckpoint { .. }
        | Command::DeleteCheckpoint { .. } => Some(WriteKind::Rows),
        Command::Prepare { .. }
        | Command::Decide { .. }
        | Command::Revisions { .. }
        | Command::RowsAt { .. }
        | Command::Checkpoints { .. }
        | Command::Refuse { .. }
        | Command::StopAt { .. }
        | Command::Close { .. } => None,
    }
}
