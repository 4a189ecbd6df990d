//! Checkpoints of the database: made, deleted and listed.

use redb::{ReadableDatabase, ReadableTable, WriteTransaction};

use super::{Database, finish};
use crate::block::{Block, BlockWriter};
use crate::revisions::checkpoint::{CHECKPOINT_ROWS, CHECKPOINTS, READ};
use crate::revisions::log::LogState;
use crate::tables::META;
use crate::{
    Checkpoint, CheckpointName, ClientRows, MAX_CHECKPOINT_OCTETS, MAX_CHECKPOINTS, NewCheckpoint,
    StoreError,
};

const SET: &str = "write a checkpoint";

impl Database {
    /// Keeps the configuration of clients under a name, as of the newest revision. One with the same name is replaced.
    ///
    /// # Errors
    /// When there are too many, or all take too many bytes together, or the disk refuses; nothing is written then.
    pub fn set_checkpoint(&mut self, new: NewCheckpoint) -> Result<Checkpoint, StoreError> {
        let failed = StoreError::accessing(SET);
        let ClientRows(rows) = self.final_client_rows()?;
        let mut writer = BlockWriter::default();
        rows.iter().for_each(|(key, value)| writer.push(key, value));
        let blocks = writer.finish()?;
        let octets = blocks.iter().map(|it| (it.key.len() + it.octets.len()) as u64).sum();
        let others = self.checkpoints()?.into_iter().filter(|it| it.name != new.name);
        let (count, taken) =
            others.fold((0, 0), |(count, taken), it| (count + 1, taken + it.octets));
        if count >= MAX_CHECKPOINTS {
            return Err(StoreError::TooManyCheckpoints { limit: MAX_CHECKPOINTS });
        }
        if taken + octets > MAX_CHECKPOINT_OCTETS {
            let found = taken + octets;
            return Err(StoreError::CheckpointsTooLarge { found, limit: MAX_CHECKPOINT_OCTETS });
        }
        let write = self.begin(SET)?;
        let revision = || Ok(LogState::read(&write.open_table(META)?)?.last);
        let revision = revision().map_err(&failed)?;
        let NewCheckpoint { name, time_ns, author, comment } = new;
        let rows = rows.len() as u64;
        let checkpoint = Checkpoint { name, revision, time_ns, author, comment, rows, octets };
        let document = serde_json::to_vec(&checkpoint)
            .map_err(|_| StoreError::Corrupt { what: "checkpoint without a JSON form" })?;
        let stored = || -> Result<(), redb::Error> {
            remove(&write, &checkpoint.name)?;
            let name = checkpoint.name.as_str();
            write.open_table(CHECKPOINTS)?.insert(name, document.as_slice())?;
            let mut table = write.open_table(CHECKPOINT_ROWS)?;
            for Block { key, octets } in &blocks {
                table.insert((name, key.as_slice()), octets.as_slice())?;
            }
            Ok(())
        };
        stored().map_err(failed)?;
        #[cfg(any(test, feature = "faults"))]
        if let Some(fault) = self.fault.take_if(|it| it.is_of_rows()) {
            return fault.strike(write).map(|()| checkpoint);
        }
        finish(write, SET)?;
        Ok(checkpoint)
    }

    /// Removes a checkpoint; true when it existed.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn delete_checkpoint(&mut self, name: &CheckpointName) -> Result<bool, StoreError> {
        const ATTEMPT: &str = "remove a checkpoint";
        let write = self.begin(ATTEMPT)?;
        let existed = remove(&write, name).map_err(StoreError::accessing(ATTEMPT))?;
        finish(write, ATTEMPT)?;
        Ok(existed)
    }

    /// All checkpoints, ascending by name.
    ///
    /// # Errors
    /// When the table cannot be read.
    pub fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError> {
        let redb = self.redb()?;
        let read = || -> Result<Vec<Vec<u8>>, redb::Error> {
            let table = redb.begin_read()?.open_table(CHECKPOINTS)?;
            table.iter()?.map(|row| Ok(row?.1.value().to_vec())).collect()
        };
        let documents = read().map_err(StoreError::accessing(READ))?;
        let parsed = documents.iter().map(|document| {
            serde_json::from_slice(document).map_err(|_| StoreError::Corrupt { what: "checkpoint" })
        });
        parsed.collect()
    }
}

fn remove(write: &WriteTransaction, name: &CheckpointName) -> Result<bool, redb::Error> {
    let name = name.as_str();
    let existed = write.open_table(CHECKPOINTS)?.remove(name)?.is_some();
    if existed {
        // A name has no control characters, so this one is beyond all of its keys.
        let beyond = format!("{name}\0");
        let mut rows = write.open_table(CHECKPOINT_ROWS)?;
        rows.retain_in((name, &[][..])..(beyond.as_str(), &[][..]), |_, _| false)?;
    }
    Ok(existed)
}
