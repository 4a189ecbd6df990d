//! Actions that wait for a handler, as state of the states that asked for them.

use std::collections::BTreeMap;

use holdfast_config::schema::Schema;
use holdfast_config::{ClaimKey, Value};
use holdfast_core::ServiceState;

use crate::services::handlers::ActionName;
use crate::services::shown::{ACTION_WAITS_FOR, Leaves, difference, leaf_of_state};

/// The waits that are shown.
#[derive(Debug, Default)]
pub(super) struct ShownWaits(Leaves);

impl ShownWaits {
    /// Leaves by which the states whose actions wait differ from what is shown; they are shown from now on.
    pub(super) fn update(
        &mut self,
        schema: &Schema,
        waiting: &BTreeMap<ClaimKey, ActionName>,
    ) -> ServiceState {
        let leaf = |(key, name)| {
            let path = leaf_of_state(schema, key, ACTION_WAITS_FOR)?;
            Some((path, Value::Str(text(name).into())))
        };
        let leaves = waiting.iter().filter_map(leaf).collect();
        let changes = difference(&self.0, &leaves);
        self.0 = leaves;
        changes
    }
}

fn text(ActionName { service, action }: &ActionName) -> String {
    format!("a handler of {service} that carries out {action}")
}
