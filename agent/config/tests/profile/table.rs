//! Tab-separated tables with one header line, as the facts about the public models come.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

pub(crate) type Row = BTreeMap<String, String>;

/// The rows of one table of the profile, in the order of the file.
pub(crate) fn read(name: &str) -> Vec<Row> {
    let path = folder("profile").join(name);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut lines =
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect::<Vec<_>>());
    let header = lines.next().unwrap();
    lines.map(|cells| header.iter().cloned().zip(cells).collect()).collect()
}

pub(crate) fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The parent's path of a node, empty at the top.
pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').unwrap().0
}

/// The node's name, without the keys of a list.
pub(crate) fn name(path: &str) -> &str {
    let last = path.rsplit_once('/').unwrap().1;
    last.split('[').next().unwrap()
}

/// A path without keys.
pub(crate) fn plain(path: &str) -> String {
    path.split('/').map(|elem| elem.split('[').next().unwrap()).collect::<Vec<_>>().join("/")
}
