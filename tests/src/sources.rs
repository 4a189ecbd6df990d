//! The files of the workspace, for tests that hold its sources, manifests and documents to rules.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders without files of ours: what cargo builds and what the tests download. Hidden folders are skipped, too.
const SKIPPED_FOLDERS: &[&str] = &["target"];

/// The folder of the root manifest.
///
/// # Panics
///
/// Panics when this crate is not in a folder of the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the workspace").to_owned()
}

/// All files below `folder` with one of these extensions, sorted.
///
/// # Panics
///
/// Panics when a folder cannot be listed.
#[must_use]
pub fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    collect(folder, extensions, &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
    for entry in entries {
        let entry =
            entry.unwrap_or_else(|error| panic!("cannot list {}: {error}", folder.display()));
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if path.is_dir() {
            if !path.is_symlink() && !name.starts_with('.') && !SKIPPED_FOLDERS.contains(&&*name) {
                collect(&path, extensions, found);
            }
        } else if path
            .extension()
            .is_some_and(|it| extensions.iter().any(|extension| it == *extension))
        {
            found.push(path);
        }
    }
}
