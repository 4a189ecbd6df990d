//! State folders of tests.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// A state folder in memory, for tests of many starts and commits: a durable write takes milliseconds on a disk.
pub(crate) fn memory_folder() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

/// A copy of the state folder, as a kill leaves it.
pub(crate) fn copied(folder: &Path) -> TempDir {
    let copy = memory_folder();
    for file in fs::read_dir(folder).unwrap().flatten() {
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
        }
    }
    copy
}
