//! Mounts that only a thread and its children see.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use nix::sched::{CloneFlags, unshare};

/// Bytes that are written at once, to fill a disk.
const FILL: usize = 4096;

/// Gives this thread and its children a view of the mounts of their own.
///
/// # Errors
/// When that is not permitted.
pub fn enter_own() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(&["--make-rprivate"], Path::new("/"))
}

/// Runs `mount ARGUMENTS PLACE`.
///
/// # Errors
/// When it fails.
pub fn mount(arguments: &[&str], place: &Path) -> Result<()> {
    let status = Command::new("mount").args(arguments).arg(place).status()?;
    ensure!(status.success(), "mount {arguments:?} {}: {status}", place.display());
    Ok(())
}

/// Takes all space that is left on a disk, by a file there.
///
/// # Errors
/// When the file cannot be made.
pub fn fill(path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    while file.write_all(&[0; FILL]).is_ok() {}
    Ok(())
}
