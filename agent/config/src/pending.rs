//! Configured entries that result in no object because a leaf is missing.

use smol_str::SmolStr;

use crate::configuration::Configuration;
use crate::images::Provenance;
use crate::instance::{InstancePath, Keys, Step};
use crate::layer::{LayerKey, LeafMark};
use crate::map::{Anchor, AnchorId, Counterpart, Map, leaf_at};
use crate::models::Models;
use crate::schema::NodeId;
use crate::tree::{Branch, ListEntry as _, OptionalBranch};
use crate::union::{native_list, openconfig_list};

/// An incomplete entry: a shell, or one that lacks a leaf since another origin removed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingEntry {
    /// The entry in the native model.
    pub native: InstancePath,
    /// OpenConfig counterpart of the entry, if it has one.
    pub openconfig: Option<InstancePath>,
    /// Native leaves; any one of them suffices; empty for a shell that lacks no particular leaf.
    pub missing: Vec<SmolStr>,
}

impl Configuration {
    /// Finds the incomplete entries, outer ones before inner ones. Visits every entry.
    pub fn pending_entries(&self) -> Vec<PendingEntry> {
        let mut finder =
            PendingSearch { models: self.models(), place: Vec::new(), found: Vec::new() };
        let openconfig = self.layers().tree(LayerKey::CLIENT_OPENCONFIG).root();
        finder.below(0, Some(openconfig), Some(self.effective().root()));
        finder.found
    }
}

struct PendingSearch<'a> {
    models: &'a Models,
    /// Native entries on the way to the current node.
    place: Vec<(AnchorId, Keys)>,
    found: Vec<PendingEntry>,
}

impl PendingSearch<'_> {
    fn below(
        &mut self,
        at: AnchorId,
        openconfig: OptionalBranch<'_, LeafMark>,
        effective: OptionalBranch<'_, Provenance>,
    ) {
        let map = &self.models.map;
        for child in &map.anchors[at].children {
            let anchor = &map.anchors[*child];
            let counterpart = anchor.openconfig.as_ref();
            let openconfig_entries = openconfig.and_then(|entry| openconfig_list(entry, anchor));
            let native_entries = effective.and_then(|entry| native_list(entry, &anchor.native));
            for (keys, entry) in native_entries.into_iter().flat_map(|list| list.iter()) {
                let keys_above = counterpart.and_then(|it| it.openconfig_keys(keys));
                let openconfig_entries = keys_above.and_then(|keys| openconfig_entries?.get(&keys));
                self.entry(*child, keys.clone(), openconfig_entries, Some(&entry.branch()));
            }
            for (keys, entry) in openconfig_entries.into_iter().flat_map(|list| list.iter()) {
                let native = counterpart.and_then(|it: &Counterpart| it.native_keys(keys));
                let is_new =
                    |keys: &Keys| native_entries.is_none_or(|list| list.get(keys).is_none());
                if let Some(keys) = native.filter(is_new) {
                    self.entry(*child, keys, Some(entry), None);
                }
            }
        }
    }

    fn entry(
        &mut self,
        at: AnchorId,
        keys: Keys,
        openconfig: OptionalBranch<'_, LeafMark>,
        effective: OptionalBranch<'_, Provenance>,
    ) {
        let map = &self.models.map;
        let anchor = &map.anchors[at];
        self.place.push((at, keys));
        match effective {
            Some(entry) => {
                let missing = self.missing(anchor, entry);
                if !missing.is_empty() {
                    self.note(missing);
                }
            }
            None if openconfig.is_some_and(|openconfig| map.is_shell(openconfig))
                && has_own_leaves(anchor)
                && !anchor.keys_suffice =>
            {
                let missing = self.missing(anchor, &Branch::default());
                self.note(missing);
            }
            None => {}
        }
        self.below(at, openconfig, effective);
        self.place.pop();
    }

    /// Missing leaves of an entry.
    fn missing(&self, anchor: &Anchor, entry: &Branch<Provenance>) -> Vec<SmolStr> {
        let name = |node: NodeId| self.models.native.node(node).name.clone();
        let needed = anchor.leaves.iter().find(|leaf| {
            leaf.mandatory
                && leaf.when.as_ref().is_none_or(|when| when.holds(entry))
                && leaf_at(entry, &leaf.native).is_none()
        });
        if let Some(leaf) = needed.and_then(|leaf| leaf.native.last()) {
            return vec![name(*leaf)];
        }
        if anchor.one_of.iter().any(|leaf| entry.leaf(*leaf).is_some()) {
            Vec::new()
        } else {
            anchor.one_of.iter().map(|leaf| name(*leaf)).collect()
        }
    }

    fn note(&mut self, missing: Vec<SmolStr>) {
        let map: &Map = &self.models.map;
        let mut native = InstancePath::root();
        for (anchor, keys) in &self.place {
            let Some((list, above)) = map.anchors[*anchor].native.split_last() else { continue };
            native.0.extend(above.iter().copied().map(Step::node));
            native.0.push(Step::entry(*list, keys.clone()));
        }
        let openconfig = map.up_entry(&native.0);
        self.found.push(PendingEntry { native, openconfig, missing });
    }
}

/// True when an entry has leaves other than keys. One without any exists for its descendants.
fn has_own_leaves(anchor: &Anchor) -> bool {
    anchor.leaves.iter().any(|leaf| leaf.key.is_none())
}
