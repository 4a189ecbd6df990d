//! Disk failures, simulated for tests of this crate and of those that store with it.

use std::{io, thread, time::Duration};

use super::StoreError;

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
