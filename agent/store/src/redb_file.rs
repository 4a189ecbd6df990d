//! Files of redb: opening them, and reading them on a disk that refuses what opening writes.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use redb::backends::InMemoryBackend;
use redb::{Builder, Database, StorageBackend as _};

use super::StoreError;
use super::folder::open_private_file;

/// Opens a file, or creates it. A disk that refuses the creation leaves an empty file, which the next attempt can open.
pub(super) fn open_file(path: &Path, cache_bytes: usize) -> Result<Database, StoreError> {
    let file = open_private_file(path)?;
    let failed = |source| StoreError::File { action: "open", path: path.into(), source };
    let was_empty = file.metadata().map_err(failed)?.len() == 0;
    let same_file = file.try_clone().map_err(failed)?;
    let opened = Builder::new().set_cache_size(cache_bytes).create_file(file);
    if opened.is_err() && was_empty {
        same_file.set_len(0).map_err(failed)?;
    }
    opened.map_err(|error| StoreError::opening(path, error))
}

/// Copies a file into memory, and opens the copy. Writes to the copy are lost with it.
pub(super) fn copy_in_memory(
    path: &Path,
    mut file: &File,
    cache_bytes: usize,
) -> Result<Database, StoreError> {
    let mut copied = || -> io::Result<InMemoryBackend> {
        let mut octets = Vec::new();
        file.read_to_end(&mut octets)?;
        let backend = InMemoryBackend::new();
        backend.set_len(octets.len() as u64)?;
        backend.write(0, &octets)?;
        Ok(backend)
    };
    let backend = copied().map_err(|source| StoreError::File {
        action: "read the database",
        path: path.into(),
        source,
    })?;
    let opened = Builder::new().set_cache_size(cache_bytes).create_with_backend(backend);
    opened.map_err(|error| StoreError::opening(path, error))
}
