//! The tables of the database file, their version, and the migration of files of an earlier one.
//!
//! | version | layers |
//! |---|---|
//! | 1 | table `layer` with a row for each entry |
//! | 2 | table `layer-blocks`, see [`block`](super::block) |
//!
//! A file of version 1 is migrated when it is opened, before anything is rolled back: records of prepared and
//! unconfirmed transactions name single entries, so they are valid for either version. The migration is one
//! transaction of the database; a kill or a full disk leaves the file as it was. A file of a version above ours is
//! refused, also by the versions before this one, so a migrated file has no way back.

use std::path::Path;

use redb::{
    ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition, TableError,
    WriteTransaction,
};
use tracing::info;

use super::block::{Block, BlockWriter};
use super::notes::NOTES;
use super::prepared::PREPARED;
use super::tables::{LAYER, META, RESTORE, SECRETS, USERS};
use super::{StoreError, artefacts, revisions};

/// Version of the tables. A file with a higher version belongs to a newer agent, and is refused.
pub const FORMAT: u64 = 2;
/// Version with a row for each entry of the layers.
const ROW_FOR_EACH_ENTRY: u64 = 1;

const META_FORMAT: &str = "format";

/// Layers of version 1.
const LAYER_OF_1: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("layer");

/// Creates the tables of a new file or those that an earlier version lacks, and migrates the layers of version 1.
///
/// # Errors
/// [`StoreError::Format`] for a file of a newer agent; else when the disk refuses.
pub(super) fn establish(redb: &redb::Database, path: &Path) -> Result<(), StoreError> {
    let found = version(redb).map_err(StoreError::accessing("read the format"))?;
    if let Some(found) = found.filter(|found| !(ROW_FOR_EACH_ENTRY..=FORMAT).contains(found)) {
        return Err(StoreError::Format { path: path.into(), found, known: FORMAT });
    }
    let failed = StoreError::accessing("make the tables");
    let write = redb.begin_write().map_err(|error| failed(error.into()))?;
    make_tables(&write).map_err(&failed)?;
    let migrated = match found {
        Some(ROW_FOR_EACH_ENTRY) => Some(migrate(&write)?),
        _ => None,
    };
    write.commit().map_err(|error| failed(error.into()))?;
    if let Some(rows) = migrated {
        info!(rows, from = ROW_FOR_EACH_ENTRY, to = FORMAT, "migrated the database");
    }
    Ok(())
}

/// Version of the file; `None` when it is new.
fn version(redb: &redb::Database) -> Result<Option<u64>, redb::Error> {
    match redb.begin_read()?.open_table(META) {
        Ok(meta) => Ok(meta.get(META_FORMAT)?.map(|version| version.value())),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn make_tables(write: &WriteTransaction) -> Result<(), redb::Error> {
    write.open_table(LAYER)?;
    write.open_table(RESTORE)?;
    write.open_table(PREPARED)?;
    write.open_table(USERS)?;
    write.open_table(NOTES)?;
    write.open_table(SECRETS)?;
    artefacts::make(write)?;
    revisions::make(write)?;
    write.open_table(META)?.insert(META_FORMAT, FORMAT)?;
    Ok(())
}

/// Moves the layers of version 1 into blocks. Returns the number of rows.
fn migrate(write: &WriteTransaction) -> Result<u64, StoreError> {
    const ATTEMPT: &str = "migrate the rows of layers";
    let (count, blocks) = read_version_1(write).map_err(StoreError::accessing(ATTEMPT))?;
    let blocks = blocks.finish()?;
    let stored = || -> Result<(), redb::Error> {
        let mut table = write.open_table(LAYER)?;
        for Block { key, octets } in &blocks {
            table.insert(key.as_slice(), octets.as_slice())?;
        }
        write.delete_table(LAYER_OF_1)?;
        Ok(())
    };
    stored().map_err(StoreError::accessing(ATTEMPT))?;
    Ok(count)
}

fn read_version_1(write: &WriteTransaction) -> Result<(u64, BlockWriter), redb::Error> {
    let mut blocks = BlockWriter::default();
    let rows = write.open_table(LAYER_OF_1)?;
    for row in rows.iter()? {
        let (key, value) = row?;
        blocks.push(key.value(), value.value());
    }
    Ok((rows.len()?, blocks))
}

/// Migrates a file, and stops before the end as a kill would.
#[cfg(test)]
pub(super) fn interrupt(redb: &redb::Database) {
    let write = redb.begin_write().unwrap();
    make_tables(&write).unwrap();
    assert_eq!(migrate(&write).unwrap(), 101);
    write.abort().unwrap();
}

#[cfg(test)]
pub(super) fn set_version(path: &Path, version: u64) {
    let write = redb::Database::open(path).unwrap().begin_write().unwrap();
    write.open_table(META).unwrap().insert(META_FORMAT, version).unwrap();
    write.commit().unwrap();
}
