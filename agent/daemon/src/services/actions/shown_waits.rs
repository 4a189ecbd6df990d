//! Actions that wait for a handler, as state of the states that asked for them.

use std::collections::BTreeMap;

use holdfast_config::schema::Schema;
use holdfast_config::{ClaimKey, Elem, Path, Value};
use holdfast_core::ServiceState;

use crate::services::handlers::ActionName;

/// The waits that are shown.
#[derive(Debug, Default)]
pub(super) struct ShownWaits(BTreeMap<ClaimKey, ActionName>);

impl ShownWaits {
    /// Leaves by which the states whose actions wait differ from what is shown; they are shown from now on.
    pub(super) fn update(
        &mut self,
        schema: &Schema,
        waiting: BTreeMap<ClaimKey, ActionName>,
    ) -> ServiceState {
        let gone = self.0.keys().filter(|key| !waiting.contains_key(*key)).map(|key| (key, None));
        let new = waiting.iter().filter(|(key, name)| self.0.get(*key) != Some(name));
        let new = new.map(|(key, name)| (key, Some(Value::Str(text(name).into()))));
        let leaf = |(key, value)| Some((schema.resolve_write(&path(key)).ok()?, value));
        let changes = gone.chain(new).filter_map(leaf).collect();
        self.0 = waiting;
        changes
    }
}

fn text(ActionName { service, action }: &ActionName) -> String {
    format!("a handler of {service} that carries out {action}")
}

/// Path of the leaf that says what the action of a state waits for.
fn path(ClaimKey { tag, component: [component_type, name], state }: &ClaimKey) -> Path {
    let elems = vec![
        Elem::new("service-state"),
        Elem::new("plan").key("service", tag.to_string()),
        Elem::new("component").key("type", &**component_type).key("name", &**name),
        Elem::new("state").key("name", &**state),
        Elem::new("action-waits-for"),
    ];
    Path { elems }
}
