//! Entries of the configuration that wait for a leaf: no value comes of them, so the engine cannot list them.

use holdfast_config::schema::Origin;
use holdfast_config::{Configuration, PendingEntry};
use holdfast_platform::objects::Registry;
use holdfast_scheduler::Key;

/// The reason of a pending shell that lacks no leaf in particular.
const ANY_LEAF: &str = "a leaf of its own";

/// An entry of the configuration that wants for a leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncompleteEntry {
    /// Key of the value that it would be, or would be a part of; `None` where that depends on the leaf.
    pub key: Option<Key>,
    /// Path in the native model.
    pub native: String,
    /// Path in the model that clients use: OpenConfig, where it has the entry.
    pub label: String,
    /// Leaf that it waits for, or several if any one of them suffices.
    pub missing: String,
}

/// Entries that wait for a leaf, outer ones before inner ones.
pub(crate) fn incomplete_entries(
    registry: &Registry,
    configuration: &Configuration,
) -> Vec<IncompleteEntry> {
    let entries = configuration.pending_entries().into_iter();
    entries.map(|entry| incomplete(registry, configuration, entry)).collect()
}

fn incomplete(
    registry: &Registry,
    configuration: &Configuration,
    entry: PendingEntry,
) -> IncompleteEntry {
    let PendingEntry { native: path, openconfig, missing } = entry;
    let models = configuration.models();
    let native = path.to_path(models.schema(Origin::Native)).to_string();
    let label = openconfig.map(|path| path.to_path(models.schema(Origin::OpenConfig)).to_string());
    let missing = if missing.is_empty() { ANY_LEAF.to_owned() } else { missing.join(" or ") };
    let label = label.unwrap_or_else(|| native.clone());
    IncompleteEntry { key: registry.key_above(path), native, label, missing }
}
