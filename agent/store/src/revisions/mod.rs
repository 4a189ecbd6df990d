//! The log of configuration revisions, and checkpoints.
//!
//! A configuration revision is one committed transaction that changed the layers of boot, clients or services. It has a
//! document for people ([`ConfigRevision`]) and an undo record: the content before it of the rows that it wrote in the two
//! client layers, the annotation of the root and the secrets of users. Both are written with the write that makes the
//! transaction final, so a crash never leaves one without the other. The rows as of an earlier revision are the present
//! ones without what later revisions did, newest first: see `database/rows_at.rs`.
//!
//! The log is bounded ([`MAX_REVISIONS`], [`MAX_REVISION_OCTETS`]), and the oldest revisions go first. A checkpoint is a
//! copy of the rows under a name, and outlives the log.
//!
//! Absent on purpose: configuration. The store knows rows; what they mean is known to `holdfast_config`.

pub(crate) mod checkpoint;
pub(crate) mod log;

use std::fmt;
use std::net::IpAddr;

use holdfast_config::{LayerDifference, is_client_row};
use serde::{Deserialize, Serialize};

pub use self::checkpoint::{
    Checkpoint, CheckpointName, InvalidCheckpointName, MAX_CHECKPOINT_OCTETS, MAX_CHECKPOINTS,
    NewCheckpoint,
};
pub use self::log::LogWork;
pub(super) use self::log::{UndoRows, append, cover, note_end_of_wait, note_wait};

use super::Row;

/// Revisions that are kept. A box that is changed ten times a day has those of three weeks.
pub const MAX_REVISIONS: u64 = 200;
/// Bytes of the documents and undo records of all revisions together: some deletions of 100 000 routes fit.
pub const MAX_REVISION_OCTETS: u64 = 32 << 20;

/// Creates the tables.
pub(super) fn make(write: &redb::WriteTransaction) -> Result<(), redb::Error> {
    log::make(write)?;
    checkpoint::make(write)
}

/// Empties the log and the checkpoints, and counts from 1 again.
pub(super) fn clear(write: &redb::WriteTransaction) -> Result<(), redb::Error> {
    log::clear(write)?;
    checkpoint::clear(write)
}

/// Bounds of the log.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLimits {
    pub(super) revisions: u64,
    pub(super) octets: u64,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { revisions: MAX_REVISIONS, octets: MAX_REVISION_OCTETS }
    }
}

/// Way by which a change came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeSource {
    /// A Set of gNMI.
    Gnmi,
    /// A command at the box itself.
    Local,
    /// A bootstrap.
    Bootz,
    /// A boot configuration that a client of gNOI set.
    BootConfig,
    /// A walk of services, or an operation on them.
    Service,
    /// The return to an earlier revision or a checkpoint.
    Restore,
    /// The end of a commit that was cancelled, or not confirmed in time.
    Rollback,
    FactoryReset,
    /// A way that this version does not know.
    #[default]
    #[serde(other)]
    Other,
}

// Name in texts and documents.
holdfast_config::enum_names!(ChangeSource {
    Gnmi = "gnmi",
    Local = "local",
    Bootz = "bootz",
    BootConfig = "boot-config",
    Service = "service",
    Restore = "restore",
    Rollback = "rollback",
    FactoryReset = "factory-reset",
    Other = "other",
});

/// A configuration revision, as it is kept and as people read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigRevision {
    /// Counts from 1, over restarts. The store gives it.
    #[serde(default)]
    pub number: u64,
    /// Time of the commit, nanoseconds since 1970.
    pub time_ns: u64,
    /// Name of the user, or of the part of the agent.
    pub author: String,
    /// Address of the author; `None` at the box itself.
    #[serde(default)]
    pub from: Option<IpAddr>,
    pub by: ChangeSource,
    #[serde(default)]
    pub comment: Option<String>,
    /// Name of the request in logs and histories.
    #[serde(default)]
    pub trace: String,
    /// The revision or checkpoint that it went back to.
    #[serde(default)]
    pub restored: Option<String>,
    #[serde(flatten)]
    pub difference: LayerDifference,
}

/// A configuration revision in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedRevision {
    #[serde(flatten)]
    pub revision: ConfigRevision,
    /// True while the configuration can go back to what it was after this revision.
    pub restorable: bool,
}

/// The configuration revisions that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionList {
    /// Number of the newest one; 0 before the first.
    pub last: u64,
    /// The lowest number that the configuration can go back to. 0 is the configuration before the first revision.
    pub oldest_restorable: u64,
    /// Bytes of all documents, and of all undo records.
    pub octets: u64,
    /// Requested revisions, ascending by number.
    pub revisions: Vec<ListedRevision>,
}

/// Revisions to read: of those with numbers in a range, the newest ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevisionRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) most: usize,
}

impl RevisionRange {
    /// All that are kept.
    pub const ALL: Self = Self { first: 0, last: u64::MAX, most: usize::MAX };

    /// The newest ones, up to a number of them.
    pub fn newest(most: usize) -> Self {
        Self { most, ..Self::ALL }
    }

    /// The one with this number.
    pub fn one(number: u64) -> Self {
        Self { first: number, last: number, most: 1 }
    }
}

/// An earlier configuration of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RevisionTarget {
    /// As it was after the revision with this number; 0 is before the first one.
    Number(u64),
    Checkpoint(CheckpointName),
}

impl fmt::Display for RevisionTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "revision {number}"),
            Self::Checkpoint(name) => write!(f, "checkpoint {name}"),
        }
    }
}

/// Rows of the two client layers, the annotation of the root and the secrets of users, ascending by key.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ClientRows(pub(super) Vec<Row>);

/// Its rows are counted, as some of them are secrets.
impl fmt::Debug for ClientRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientRows").field("rows", &self.0.len()).finish_non_exhaustive()
    }
}

impl IntoIterator for ClientRows {
    type Item = Row;
    type IntoIter = std::vec::IntoIter<Row>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl crate::Table {
    /// True of the table and key of a row that a return to an earlier revision restores.
    pub(crate) fn is_of_clients(self, key: &[u8]) -> bool {
        match self {
            Self::Layer => is_client_row(key),
            Self::Secret => true,
            Self::Restore | Self::Note => false,
        }
    }
}
