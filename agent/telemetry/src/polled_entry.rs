//! Entries of polled lists: each holds one value, from which its leaves follow when it is looked at.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use holdfast_config::map::Map;
use holdfast_config::schema::Origin;
use holdfast_config::tree::Branch;
use holdfast_config::{Keys, Models, NodeId, Step, Value};

use super::entry::EntryState;
use super::leaf_version::LeafVersion;

/// Steps from an entry to a leaf of it, containers and inner entries included.
pub type WayToLeaf = Vec<Step>;

/// The value that an entry of a polled list follows from.
pub trait EntryContent: Debug + Send + Sync + 'static {
    /// Keys of the entry in the native model.
    fn keys(&self) -> Keys;

    /// Native leaves of the entry, the keys excepted.
    fn leaves(&self) -> Vec<(WayToLeaf, Value)>;
}

/// The list that entries are in. Entries of one list share it.
#[derive(Debug)]
pub struct ListPlace {
    pub models: Arc<Models>,
    /// The list in the native model.
    pub list: NodeId,
}

/// An entry of a polled list.
#[derive(Debug)]
pub struct PolledEntry<T> {
    place: Arc<ListPlace>,
    content: T,
}

impl<T: EntryContent> PolledEntry<T> {
    /// The entry with its native keys, for a [`super::PolledList`].
    pub fn shared(place: &Arc<ListPlace>, content: T) -> (Keys, Arc<dyn EntryState>) {
        let keys = content.keys();
        (keys, Arc::new(Self { place: Arc::clone(place), content }))
    }

    /// List and keys of the entry in a model; `None` if it has no such list.
    fn place_in(&self, origin: Origin) -> Option<(NodeId, Keys)> {
        let keys = self.content.keys();
        let list = self.place.list;
        match origin {
            Origin::Native => Some((list, keys)),
            Origin::OpenConfig => {
                let map = &self.place.models.map;
                Some((map.list_to_openconfig(list)?, map.openconfig_keys(list, &keys)?))
            }
        }
    }
}

impl<T: EntryContent> EntryState for PolledEntry<T> {
    fn show(&self, origin: Origin, born: LeafVersion, entry: &mut Branch<LeafVersion>) {
        let models = &self.place.models;
        let schema = models.schema(origin);
        if entry.children().is_empty() {
            let Some((list, keys)) = self.place_in(origin) else { return };
            *entry = Branch::of_keys(schema, list, &keys, &born);
        }
        let own = self.content.keys();
        for (way, value) in self.content.leaves() {
            let mut put = |way: &[Step], value: Value| {
                let Some((leaf, above)) = way.split_last() else { return };
                entry.descend_mut(schema, above, &born).put_leaf(leaf.node, value, born);
            };
            match origin {
                Origin::Native => put(&way, value),
                Origin::OpenConfig => put_openconfig(&models.map, &own, &way, &value, &mut put),
            }
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Passes the OpenConfig counterparts of a leaf to `put`. `own` are the native keys of the entry.
fn put_openconfig(
    map: &Map,
    own: &Keys,
    way: &[Step],
    value: &Value,
    put: &mut dyn FnMut(&[Step], Value),
) {
    let inner = way.iter().rfind(|step| step.keys.is_some());
    let above = inner.map_or(Some(Vec::new()), |inner| map.up_within(inner));
    let keys = inner.and_then(|inner| inner.keys.as_ref()).unwrap_or(own);
    let Some((above, leaf)) = above.zip(way.last()) else { return };
    for (below, value) in map.up_inside(leaf.node, Some(keys), value) {
        put(&[&above[..], below].concat(), value);
    }
}
