//! Small facts about the agent itself that a restart must not forget.

use redb::TableDefinition;

use super::{Change, Table};

/// By name.
pub(super) const NOTES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("note");

/// The box is to be as it left the factory: what a running agent cannot erase goes at the next start.
pub(super) const FACTORY_RESET: &[u8] = b"factory-reset";
/// The last reboot that was carried out.
pub const LAST_REBOOT: &[u8] = b"last-reboot";

const RETAIN_CERTIFICATES: u8 = 1;

impl Change {
    /// A note, or none any more.
    pub fn note(name: &[u8], value: Option<Vec<u8>>) -> Self {
        Self { table: Table::Note, key: name.to_vec(), value }
    }

    /// The mark of a factory reset: users, credentials and, unless they are retained, certificates go
    /// when the database is opened next.
    pub fn factory_reset(retain_certificates: bool) -> Self {
        let flag = if retain_certificates { RETAIN_CERTIFICATES } else { 0 };
        Self::note(FACTORY_RESET, Some(vec![flag]))
    }
}

/// Whether the mark says that certificates stay.
pub(super) fn retains_certificates(mark: &[u8]) -> bool {
    mark.first() == Some(&RETAIN_CERTIFICATES)
}
