//! The native side of a kind: from entries of the native model to values, and from values to state.
//!
//! Each kind implements [`NativeKind`] in its own module, bound to the nodes of a schema once.

use std::fmt::Debug;
use std::net::IpAddr;

use holdfast_config::{InstancePath, Keys, NodeId, Schema, Step, Value};
use holdfast_scheduler::{Key, ObjectValue, Owner};
use smol_str::SmolStr;

use super::entry::{Entry, ObjectError, ObjectKeys, ObjectValues, ip_text, vlan_index, vlan_of};
use super::reading::first_text;
use super::relation::Relation;
use super::state::{Planes, StateEntry};

/// Finds the nodes of a kind in a schema.
pub(crate) type Bind = fn(&Schema) -> Result<Box<dyn NativeKind>, ModelError>;

/// The configuration that asks for an object as it is in the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Adoption {
    /// The entry of the object, with the leaves that it has beside its keys.
    Entry(StateEntry),
    /// The object stays out of the configuration, for this reason.
    LeftOut(String),
}

/// A kind in the native model.
pub(crate) trait NativeKind: Debug + Send + Sync {
    /// Lists and containers whose entries are such objects.
    fn lists(&self) -> Vec<NodeId> {
        Vec::new()
    }

    /// Values that an entry asks for, with their keys. An entry that asks for none is only checked.
    fn values(&self, _: &Entry<'_>) -> Result<ObjectValues, ObjectError> {
        Ok(ObjectValues::new())
    }

    /// Keys of the values that an entry asks for, also of one that is refused or incomplete.
    fn keys(&self, entry: &Entry<'_>) -> Result<ObjectKeys, ObjectError> {
        Ok(self.own_key(entry)?.into_iter().collect())
    }

    /// Key of an entry that asks for one value, known by its path; `None` for other entries.
    fn own_key(&self, _: &Entry<'_>) -> Result<Option<Key>, ObjectError> {
        Ok(None)
    }

    /// Refuses a value that the kernel contradicts where no operation changes that.
    fn admit<'p>(
        &self,
        _: &InstancePath,
        _: &dyn ObjectValue,
        _: &dyn Fn(&Key) -> Planes<'p>,
    ) -> Result<(), ObjectError> {
        Ok(())
    }

    /// Rules among its objects, for an empty configuration.
    fn relations(&self) -> Vec<Box<dyn Relation>> {
        Vec::new()
    }

    /// State leaves of one key.
    fn state(&self, _: &Key, _: Planes<'_>) -> Option<StateEntry> {
        None
    }

    /// The configuration that would ask for an observed object, or why none can; `None` for objects that need no entry.
    fn adoption(&self, _: &dyn ObjectValue) -> Option<Adoption> {
        None
    }

    /// Every leaf that an object could show once it is applied, by planes that are all its intended value.
    fn most_of(&self, key: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        self.state(key, planes)
    }

    /// True for a list of entries whose state goes with their configuration.
    fn has_configured_state(&self, _: NodeId) -> bool {
        false
    }

    /// State leaves that are configuration in force.
    fn configured_state(&self, _: &Entry<'_>) -> Option<StateEntry> {
        None
    }

    /// Entries whose values depend on a leaf of this object around them ([`Entry::number_above`]).
    fn heirs(&self) -> Option<Heirs> {
        None
    }

    /// Owner of the values of an entry, where another entry may ask for the same ones.
    fn owner(&self, _: &InstancePath) -> Option<Owner> {
        None
    }

    /// The entry that shows a value.
    fn value_entry(&self, _: &Key, _: Planes<'_>) -> Option<ValueEntry> {
        None
    }

    /// Where its entries have their effective status.
    fn status_nodes(&self) -> Vec<StatusNodes> {
        Vec::new()
    }
}

/// Entries whose values depend on a leaf of the object around them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heirs {
    /// Their list, which stands in the object.
    pub(crate) list: NodeId,
    /// The leaf of the object.
    pub(crate) leaf: NodeId,
}

/// Where the entries of one list have their effective status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusNodes {
    /// The list.
    pub list: NodeId,
    /// Its container of state.
    pub container: NodeId,
    /// The leaf in it.
    pub leaf: NodeId,
}

/// The entry that shows a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueEntry {
    /// Path of the entry.
    pub path: InstancePath,
    /// Part of the entry that the value is.
    pub share: EntryShare,
}

/// Part of an entry that one value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryShare {
    /// The entry stands for this value: without it, nothing of the entry works.
    Whole,
    /// An attribute of the entry with operations of its own.
    Attribute,
    /// One of several values that the entry stands for: [`Registry::keys`](crate::objects::Registry::keys) has the others.
    OneOfSeveral,
}

/// The native model lacks a node that this platform needs.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("the native model has no node {0}")]
pub struct ModelError(pub String);

/// Declares a struct of nodes with the path of each below a common one.
macro_rules! nodes {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $path:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $name { $(pub(crate) $field: holdfast_config::NodeId),* }

        impl $name {
            pub(crate) fn find(
                schema: &holdfast_config::Schema,
                below: &str,
            ) -> Result<Self, $crate::kinds::native::ModelError> {
                $(let $field = $crate::kinds::native::find(schema, &format!("{below}{}", $path))?;)*
                Ok(Self { $($field),* })
            }
        }
    };
}
pub(crate) use nodes;

pub(crate) fn find(schema: &Schema, path: &str) -> Result<NodeId, ModelError> {
    schema.find(path).ok_or_else(|| ModelError(path.to_owned()))
}

/// Path of the list of interfaces.
pub(crate) const INTERFACE: &str = "/interfaces/interface";

/// Path of the list of the VLANs of interfaces.
pub(crate) const VLAN: &str = "/interfaces/interface/vlan";

nodes!(
    /// Interfaces and their VLANs, on which links and the objects on them are shown.
    InterfaceNodes {
        interfaces: "/interfaces",
        interface: "/interfaces/interface",
        vlan: "/interfaces/interface/vlan",
    }
);

/// A binding for each list that has links as its entries.
#[derive(Clone, Debug)]
pub(crate) struct ForLinks<N> {
    pub(crate) interface: N,
    pub(crate) vlan: N,
}

impl<N> ForLinks<N> {
    /// Binds below the paths of the lists.
    pub(crate) fn find(bind: impl Fn(&str) -> Result<N, ModelError>) -> Result<Self, ModelError> {
        Ok(Self { interface: bind(INTERFACE)?, vlan: bind(VLAN)? })
    }

    /// That of the list with the link of this name.
    pub(crate) fn of_link(&self, name: &str) -> &N {
        if vlan_of(name).is_some() { &self.vlan } else { &self.interface }
    }

    /// That of the list on the way of a path.
    pub(crate) fn of_path(&self, path: &InstancePath) -> &N {
        if vlan_index(path).is_some() { &self.vlan } else { &self.interface }
    }

    /// All of them.
    pub(crate) fn all(&self) -> [&N; 2] {
        [&self.interface, &self.vlan]
    }
}

impl InterfaceNodes {
    pub(crate) fn bind(schema: &Schema) -> Result<Self, ModelError> {
        Self::find(schema, "")
    }

    /// Path of the entry of a link.
    pub(crate) fn link(&self, name: &SmolStr) -> InstancePath {
        let vlan = vlan_of(name);
        let interface = vlan.map_or_else(|| name.clone(), |(port, _)| port.into());
        let keys = Keys::single(Value::Str(interface));
        let mut path = vec![Step::node(self.interfaces), Step::entry(self.interface, keys)];
        path.extend(
            vlan.map(|(_, index)| Step::entry(self.vlan, Keys::single(Value::Uint(index.into())))),
        );
        InstancePath(path)
    }

    /// Path of an entry on a link, in a list of one family.
    pub(crate) fn on_link(
        &self,
        link: &SmolStr,
        family: NodeId,
        list: NodeId,
        ip: IpAddr,
    ) -> InstancePath {
        let entry = Step::entry(list, Keys::single(ip_text(ip)));
        self.link(link).join(Step::node(family)).join(entry)
    }

    /// The entry of the link that a value is an attribute of.
    pub(crate) fn attribute(&self, key: &Key) -> Option<ValueEntry> {
        let path = self.link(&first_text(key)?);
        Some(ValueEntry { path, share: EntryShare::Attribute })
    }
}

/// An attribute of links without leaves of its own.
#[derive(Debug)]
pub(crate) struct AttributeOfLink(InterfaceNodes);

impl AttributeOfLink {
    pub(crate) fn bind(schema: &Schema) -> Result<Box<dyn NativeKind>, ModelError> {
        Ok(Box::new(Self(InterfaceNodes::bind(schema)?)))
    }
}

impl NativeKind for AttributeOfLink {
    fn value_entry(&self, key: &Key, _: Planes<'_>) -> Option<ValueEntry> {
        self.0.attribute(key)
    }
}
