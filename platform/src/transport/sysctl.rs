//! Sysctls below `/proc/sys`, in the namespace of the calling thread.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

const PROC_SYS: &str = "/proc/sys";

/// Writes a variable and reads it back.
///
/// # Errors
/// When there is no such sysctl (`ENOENT`, its link is gone), it cannot be written, or the kernel keeps another
/// value.
pub(crate) fn write(path: &str, value: &str) -> io::Result<()> {
    fs::write(place(path)?, value)?;
    match read(path)? {
        Some(current) if current == value => Ok(()),
        current => {
            let current = current.unwrap_or_default();
            Err(io::Error::other(format!("{path} keeps `{current}` when `{value}` is written")))
        }
    }
}

/// Reads a variable without its trailing newline; `None` when it does not exist.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn read(path: &str) -> io::Result<Option<String>> {
    match fs::read_to_string(place(path)?) {
        Ok(text) => Ok(Some(text.trim_end().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// File of a variable. Interface names may contain dots, so only slashes separate; `..` is refused.
fn place(path: &str) -> io::Result<PathBuf> {
    let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if path.is_empty() || !plain {
        let message = format!("`{path}` is not a path below {PROC_SYS}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(Path::new(PROC_SYS).join(path))
}
