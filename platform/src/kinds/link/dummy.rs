//! A device that drops what is sent to it.

use super::row::LinkRow;

/// Dummies.
pub static DUMMY: LinkRow = LinkRow::new("dummy");
