//! State of services that the daemon shows: leaves by their paths, and what differs of them.

use std::collections::BTreeMap;

use holdfast_config::schema::Schema;
use holdfast_config::{ClaimKey, Elem, InstancePath, Path, Value};
use holdfast_core::ServiceState;

/// State leaves by their paths.
pub(super) type Leaves = BTreeMap<InstancePath, Value>;

/// Leaves by which what is to be shown differs from what is shown.
pub(super) fn difference(shown: &Leaves, wanted: &Leaves) -> ServiceState {
    let gone = shown.keys().filter(|path| !wanted.contains_key(*path));
    let differing = wanted.iter().filter(|(path, value)| shown.get(*path) != Some(value));
    let differing = differing.map(|(path, value)| (path.clone(), Some(value.clone())));
    gone.map(|path| (path.clone(), None)).chain(differing).collect()
}

/// Path of a leaf of a state in the service plan of its instance.
pub(super) fn leaf_of_state(schema: &Schema, state: &ClaimKey, leaf: &str) -> Option<InstancePath> {
    let ClaimKey { tag, component: [component_type, name], state } = state;
    let elems = vec![
        Elem::new("service-state"),
        Elem::new("plan").key("service", tag.to_string()),
        Elem::new("component").key("type", &**component_type).key("name", &**name),
        Elem::new("state").key("name", &**state),
        Elem::new(leaf),
    ];
    schema.resolve_write(&Path { elems }).ok()
}
