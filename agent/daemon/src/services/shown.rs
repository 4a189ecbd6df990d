//! State of services that the daemon shows: leaves by their paths, and what differs of them.

use std::collections::BTreeMap;

use holdfast_config::schema::Schema;
use holdfast_config::tree::Child;
use holdfast_config::{ClaimKey, Elem, InstancePath, Path, Value};
use holdfast_core::ServiceState;
use holdfast_telemetry::Revision;

/// Leaf of a state that says what its action waits for.
pub(super) const ACTION_WAITS_FOR: &str = "action-waits-for";

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

/// Text for what the action of a state waits for, where a revision shows such a wait.
pub fn action_wait(revision: &Revision, state: &ClaimKey) -> Option<String> {
    let path = leaf_of_state(&revision.models.native, state, ACTION_WAITS_FOR)?;
    match revision.native.find(&path.0)? {
        Child::Leaf(leaf) => Some(leaf.value.to_string()),
        Child::Container(_) | Child::List(_) => None,
    }
}
