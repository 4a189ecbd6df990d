//! Entries of the configuration that wait for a leaf: no value comes of them, so the engine cannot list them.

use holdfast_config::schema::Origin;
use holdfast_config::{Configuration, InstancePath, PendingEntry};
use holdfast_platform::objects::Registry;
use holdfast_scheduler::{Detail, Key, State, Status};

/// The reason of a pending shell that lacks no leaf in particular.
const ANY_LEAF: &str = "a leaf of its own";

/// Entries that wait for a leaf, as values in the state PENDING.
pub(super) fn statuses(registry: &Registry, configuration: &Configuration) -> Vec<Status> {
    let entries = configuration.pending_entries().into_iter();
    entries.filter_map(|entry| status(registry, configuration, entry)).collect()
}

fn status(
    registry: &Registry,
    configuration: &Configuration,
    entry: PendingEntry,
) -> Option<Status> {
    let PendingEntry { native, openconfig, missing } = entry;
    let models = configuration.models();
    let label = match &openconfig {
        Some(path) => path.to_path(models.schema(Origin::OpenConfig)),
        None => native.to_path(models.schema(Origin::Native)),
    };
    let missing = if missing.is_empty() { ANY_LEAF.to_owned() } else { missing.join(" or ") };
    Some(Status {
        key: key(registry, native)?,
        label: label.to_string(),
        state: State::Pending,
        detail: Detail { unmet: vec![missing], ..Detail::default() },
        last: None,
        intended: None,
        applied: None,
        observed: None,
        part_of: Vec::new(),
        parts: Vec::new(),
    })
}

/// The key of the object that an entry is or, as a next hop, is a part of.
fn key(registry: &Registry, mut path: InstancePath) -> Option<Key> {
    loop {
        if let Ok(key) = registry.key(&path) {
            return Some(key);
        }
        path.0.pop()?;
    }
}
