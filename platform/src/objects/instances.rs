//! Network instances and their STATIC protocols. No kernel object stands for them.

use holdfast_config::{InstancePath, Keys, Step, Value};
use smol_str::SmolStr;

use super::Registry;
use super::entries::NativeEntries;
use crate::kinds::entry::{Entry, ObjectError};
use crate::kinds::native::nodes;
use crate::kinds::state::{Leaves, StateEntry};

/// The only network instance: the namespace itself.
pub const DEFAULT_INSTANCE: &str = "DEFAULT";

nodes!(
    /// `network-instance`.
    InstanceNodes {
        instances: "",
        instance: "/network-instance",
        state: "/network-instance/state",
        state_name: "/network-instance/state/name",
        state_kind: "/network-instance/state/type",
    }
);

nodes!(
    /// `static`, a protocol of an instance.
    ProtocolNodes {
        protocol: "",
        state: "/state",
        state_name: "/state/name",
    }
);

impl NativeEntries {
    pub(super) fn protocol_state(&self, entry: &Entry<'_>) -> Option<StateEntry> {
        let mut leaves = Leaves::of(self.protocol.state);
        leaves.text(self.protocol.state_name, entry.key_text()?);
        Some(leaves.entry(entry.path.clone()))
    }
}

pub(super) fn check_instance(entry: &Entry<'_>) -> Result<(), ObjectError> {
    if entry.key_text().is_none_or(|name| name != DEFAULT_INSTANCE) {
        let reason = format!("the agent knows only the network instance {DEFAULT_INSTANCE}");
        return Err(entry.error(reason));
    }
    Ok(())
}

impl Registry {
    /// State of the network instance DEFAULT, which exists even without any configuration: the tables of the managed
    /// namespace.
    pub fn instance_state(&self) -> StateEntry {
        let nodes = &self.entries.instance;
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, DEFAULT_INSTANCE);
        leaves.text_enum(nodes.state_kind, "default-instance");
        let name = Value::Str(SmolStr::new_static(DEFAULT_INSTANCE));
        let entry = Step::entry(nodes.instance, Keys::single(name));
        leaves.entry(InstancePath(vec![Step::node(nodes.instances), entry]))
    }
}
