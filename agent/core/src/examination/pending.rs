//! Entries of the configuration that wait for a leaf: no value comes of them, so the engine cannot list them.

use std::collections::BTreeSet;

use holdfast_config::schema::Origin;
use holdfast_config::{Configuration, PendingEntry, Step, all_objects};
use holdfast_platform::objects::{ObjectError, Registry};
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

/// Entries that wait for a leaf: those that lack a mandatory one, outer ones before inner ones, and then those that lack one
/// because of what their other leaves say.
pub(crate) fn incomplete_entries(
    registry: &Registry,
    configuration: &Configuration,
) -> Vec<IncompleteEntry> {
    let mut entries = configuration.pending_entries();
    let mut others = entries_without_values(registry, configuration);
    let listed: BTreeSet<&[Step]> = entries.iter().map(|entry| &entry.native.0[..]).collect();
    others.retain(|other| {
        let steps = &other.native.0;
        !(1..=steps.len()).any(|length| listed.contains(&steps[..length]))
    });
    entries.append(&mut others);
    entries.into_iter().map(|entry| incomplete(registry, configuration, entry)).collect()
}

/// Objects that the platform cannot convert because a leaf is missing.
fn entries_without_values(registry: &Registry, configuration: &Configuration) -> Vec<PendingEntry> {
    let models = configuration.models();
    let objects = all_objects(configuration);
    let objects = objects.iter().filter_map(|object| Some((&object.path, object.new.as_ref()?)));
    let errors = objects.filter_map(|(path, branch)| {
        registry.values_in(configuration.effective(), path, branch).err()
    });
    let entry_of = |error: ObjectError| {
        let mut native = error.path;
        let node = native.last().map(|step| models.native.node(step.node));
        let leaf = node.filter(|node| node.leaf.is_some()).map(|leaf| leaf.name.clone());
        if leaf.is_some() {
            native.0.pop();
        }
        PendingEntry { native, openconfig: None, missing: leaf.into_iter().collect() }
    };
    errors.filter(|error| error.incomplete).map(entry_of).collect()
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
