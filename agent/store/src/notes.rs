//! Small facts about the agent itself that must survive a restart.

use redb::TableDefinition;

use super::{Change, Table};

/// Notes by name.
pub(super) const NOTES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("note");

/// Mark of a factory reset: the next start erases the data that a running agent needs.
pub(super) const FACTORY_RESET: &[u8] = b"factory-reset";
/// The last reboot.
pub const LAST_REBOOT: &[u8] = b"last-reboot";

const RETAIN_CERTIFICATES: u8 = 1;

impl Change {
    /// Sets a note, or removes it.
    pub fn note(name: &[u8], value: Option<Vec<u8>>) -> Self {
        Self { table: Table::Note, key: name.to_vec(), value }
    }

    /// Marks a factory reset: users, credentials and, unless retained, certificates are erased when the database
    /// is opened next.
    pub fn factory_reset(retain_certificates: bool) -> Self {
        let flag = if retain_certificates { RETAIN_CERTIFICATES } else { 0 };
        Self::note(FACTORY_RESET, Some(vec![flag]))
    }
}

/// True when the mark says that certificates are retained.
pub(super) fn retains_certificates(mark: &[u8]) -> bool {
    mark.first() == Some(&RETAIN_CERTIFICATES)
}
