//! Kernel variables below `/proc/sys`, of the namespace the calling thread is in.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

const PROC_SYS: &str = "/proc/sys";

/// Writes a variable and reads it back.
///
/// # Errors
/// When there is no such variable (`ENOENT`, its link is gone), it cannot be written, or the
/// kernel keeps another value.
pub(crate) fn write(path: &str, value: &str) -> io::Result<()> {
    fs::write(place(path)?, value)?;
    match read(path)? {
        Some(kept) if kept == value => Ok(()),
        kept => {
            let kept = kept.unwrap_or_default();
            Err(io::Error::other(format!("{path} keeps `{kept}` when `{value}` is written")))
        }
    }
}

/// Reads a variable, without the newline at its end; `None`: it does not exist.
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

/// Interface names may hold dots, so paths are separated by slashes alone; nothing leads out.
fn place(path: &str) -> io::Result<PathBuf> {
    let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if path.is_empty() || !plain {
        let message = format!("`{path}` is no path below {PROC_SYS}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(Path::new(PROC_SYS).join(path))
}
