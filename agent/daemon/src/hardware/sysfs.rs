//! Files of the kernel with one value each.

use std::fs;
use std::path::{Path, PathBuf};

/// Texts that makers of firmware leave where they had nothing to say.
const PLACEHOLDERS: [&str; 6] = [
    "To Be Filled By O.E.M.",
    "Default string",
    "Not Specified",
    "None",
    "System Serial Number",
    "0",
];

/// The text of a file; `None` when it is not there, cannot be read, or says nothing.
pub(super) fn text(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let text = text.trim();
    // Devices of virtual machines have the number of a vendor in the place of a name.
    let says_something =
        !text.is_empty() && !PLACEHOLDERS.contains(&text) && !text.starts_with("0x");
    says_something.then(|| text.to_owned())
}

/// The number in a file.
pub(super) fn number(file: &Path) -> Option<i64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The entries of a folder, ascending by name. None where it is not there.
pub(super) fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let read = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut entries: Vec<(String, PathBuf)> = read
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect();
    entries.sort();
    entries
}
