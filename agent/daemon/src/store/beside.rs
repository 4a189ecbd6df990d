//! Files beside the database, for what may be lost: histories that nothing else depends on.

use std::path::Path;

use redb::{Builder, Database};
use tracing::warn;

use super::StoreError;
use super::folder::{create_private_folder, open_private_file};
use crate::logging::Chain;

/// Octets of pages kept in memory: they are read at a start, or when somebody asks.
const CACHE_OCTETS: usize = 1 << 20;

/// Opens a file in the state folder and makes its tables. One that cannot be read is put aside.
///
/// # Errors
/// When no file can be made there, or another agent has it.
pub(super) fn open(
    folder: &Path,
    name: &str,
    tables: impl Fn(&redb::WriteTransaction) -> Result<(), redb::Error>,
) -> Result<Database, StoreError> {
    create_private_folder(folder)?;
    let path = folder.join(name);
    open_file(&path, &tables).or_else(|broken| {
        if matches!(broken, StoreError::Locked { .. }) {
            return Err(broken);
        }
        warn!(error = %Chain(&broken), file = name, "a history cannot be read and is put aside");
        let moved = std::fs::rename(&path, path.with_extension("broken"));
        let failed = |source| StoreError::File { action: "put aside", path: path.clone(), source };
        moved.map_err(failed)?;
        open_file(&path, &tables)
    })
}

fn open_file(
    path: &Path,
    tables: impl Fn(&redb::WriteTransaction) -> Result<(), redb::Error>,
) -> Result<Database, StoreError> {
    let file = open_private_file(path)?;
    let opened = Builder::new().set_cache_size(CACHE_OCTETS).create_file(file);
    let redb = opened.map_err(|error| StoreError::opening(path, error))?;
    let made = || -> Result<(), redb::Error> {
        let write = redb.begin_write()?;
        tables(&write)?;
        Ok(write.commit()?)
    };
    made().map_err(StoreError::accessing("make the tables of a history"))?;
    Ok(redb)
}
