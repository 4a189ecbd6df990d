//! Settings that LACP of all bonds shares: the priority of the box, for bonds without one of their own.
//!
//! The kernel has the priority at each bond. So the value asks for nothing itself: LACP of each bond takes the priority from the
//! leaf, and is made anew when the leaf changes ([`NativeKind::heirs`]).

use std::sync::Arc;

use holdfast_config::{InstancePath, NodeId, Schema, Step, Value};
use holdfast_scheduler::{Descriptor, Effect, Key, KindId, SharedValue};
use serde::{Deserialize, Serialize};

use super::entry::{Entry, ObjectError, ObjectKeys, ObjectValues};
use super::native::{Bind, EntryShare, Heirs, ModelError, NativeKind, ValueEntry, nodes};
use super::row::Kind;
use super::state::{Leaves, Planes, StateEntry};
use super::{NO_REQUEST, lacp};

/// Settings that LACP of all bonds shares.
pub const LACP_DEFAULTS: KindId = KindId(25);

/// Settings that LACP of all bonds shares.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LacpDefaults {
    /// Priority of the box for bonds without one of their own. The end with the lower one decides which links are used.
    pub priority: u16,
}

/// Settings that LACP of all bonds shares.
#[derive(Debug, Default)]
pub struct LacpDefaultsDescriptor;

/// The key of the only value of this kind.
pub fn key() -> Key {
    Key::of(LACP_DEFAULTS)
}

impl Kind for LacpDefaultsDescriptor {
    const NATIVE: Option<Bind> = Some(NativeLacpDefaults::bind);
}

impl Descriptor for LacpDefaultsDescriptor {
    type Value = LacpDefaults;

    fn kind(&self) -> KindId {
        LACP_DEFAULTS
    }

    fn name(&self) -> &'static str {
        "lacp-defaults"
    }

    fn key(&self, _: &LacpDefaults) -> Key {
        key()
    }

    fn label(&self, _: &LacpDefaults) -> String {
        "LACP of all bonds".into()
    }

    fn effect(&self) -> Effect {
        NO_REQUEST
    }

    fn observable(&self) -> bool {
        false
    }
}

nodes!(
    /// Settings that LACP of all bonds shares.
    LacpDefaultsNodes {
        lacp: "",
        bond: "/interface",
        system_priority: "/system-priority",
        state: "/state",
        state_system_priority: "/state/system-priority",
    }
);

/// The container of LACP in the native model.
#[derive(Debug)]
struct NativeLacpDefaults {
    nodes: LacpDefaultsNodes,
}

impl NativeLacpDefaults {
    fn bind(schema: &Schema) -> Result<Box<dyn NativeKind>, ModelError> {
        Ok(Box::new(Self { nodes: LacpDefaultsNodes::find(schema, "/lacp")? }))
    }

    fn path(&self) -> InstancePath {
        InstancePath(vec![Step::node(self.nodes.lacp)])
    }
}

impl NativeKind for NativeLacpDefaults {
    fn lists(&self) -> Vec<NodeId> {
        vec![self.nodes.lacp]
    }

    fn values(&self, entry: &Entry<'_>) -> Result<ObjectValues, ObjectError> {
        let priority = lacp::priority(entry, self.nodes.system_priority)?;
        let value = |priority| (key(), Arc::new(LacpDefaults { priority }) as SharedValue);
        Ok(priority.map(value).into_iter().collect())
    }

    fn keys(&self, entry: &Entry<'_>) -> Result<ObjectKeys, ObjectError> {
        let is_set = entry.value(self.nodes.system_priority).is_some();
        Ok(is_set.then(key).into_iter().collect())
    }

    fn own_key(&self, _: &Entry<'_>) -> Result<Option<Key>, ObjectError> {
        Ok(Some(key()))
    }

    fn heirs(&self) -> Option<Heirs> {
        Some(Heirs { list: self.nodes.bond, leaf: self.nodes.system_priority })
    }

    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        let defaults: &LacpDefaults = planes.intended()?;
        let mut leaves = Leaves::of(self.nodes.state);
        leaves.put(self.nodes.state_system_priority, Value::Uint(defaults.priority.into()));
        Some(leaves.entry(self.path()))
    }

    fn value_entry(&self, _: &Key, _: Planes<'_>) -> Option<ValueEntry> {
        Some(ValueEntry { path: self.path(), share: EntryShare::Whole })
    }
}
