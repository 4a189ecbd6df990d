//! Counterparts of paths in the other model, and leaves that both origins set.

use crate::instance::{InstancePath, Keys, Step};
use crate::layer::LeafMark;
use crate::map::{Anchor, AnchorId, Counterpart, leaf_at};
use crate::models::Models;
use crate::schema::NodeId;
use crate::tree::{Branch, Child, List, NodeRef, Tree};
use crate::union::native_list;
use crate::value::Value;

/// Removes the native leaves that correspond to nodes at or below an OpenConfig path. Native-only leaves stay,
/// with their entries.
pub(super) fn clear_native(models: &Models, tree: &mut Tree<LeafMark>, openconfig: &InstancePath) {
    NativeRemoval { models }.entry(0, tree.root_mut(), &openconfig.0);
}

struct NativeRemoval<'a> {
    models: &'a Models,
}

impl NativeRemoval<'_> {
    /// `rest` is the part of the path below this entry; empty when the whole entry is named.
    fn entry(&self, at: AnchorId, entry: &mut Branch<LeafMark>, rest: &[Step]) {
        let anchor = &self.models.map.anchors[at];
        let mapped = anchor.leaves.iter().filter(|leaf| leaf.key.is_none());
        for leaf in mapped {
            let is_named = leaf.openconfig.iter().any(|it| it.steps.starts_with(rest));
            if is_named && leaf_at(entry, &leaf.native).is_some() {
                let way: Vec<Step> = leaf.native.iter().copied().map(Step::node).collect();
                entry.remove_at(&self.models.native, &way);
            }
        }
        for child in &anchor.children {
            let below = &self.models.map.anchors[*child];
            if let Some(counterpart) = &below.openconfig {
                self.list(*child, below, counterpart, entry, rest);
            }
        }
    }

    fn list(
        &self,
        at: AnchorId,
        anchor: &Anchor,
        counterpart: &Counterpart,
        entry: &mut Branch<LeafMark>,
        rest: &[Step],
    ) {
        if native_list(entry, &anchor.native).is_none_or(List::is_empty) {
            return;
        }
        if counterpart.above.starts_with(rest) {
            let entries = native_list(entry, &anchor.native);
            let entries = entries.into_iter().flat_map(|it| it.iter().map(key));
            // An entry without a counterpart is in no OpenConfig path.
            let entries = entries.filter(|keys| counterpart.openconfig_keys(keys).is_some());
            let keys: Vec<Keys> = entries.collect();
            keys.iter().for_each(|keys| self.named(at, anchor, entry, keys, &[]));
            return;
        }
        let Some([step, rest @ ..]) = rest.strip_prefix(&counterpart.above[..]) else { return };
        let keys = step.keys.as_ref().filter(|_| step.node == counterpart.list);
        if let Some(keys) = keys.and_then(|keys| counterpart.native_keys(keys)) {
            self.named(at, anchor, entry, &keys, rest);
        }
    }

    /// Clears one entry of a list, which is removed once it has nothing but its keys.
    fn named(
        &self,
        at: AnchorId,
        anchor: &Anchor,
        above: &mut Branch<LeafMark>,
        keys: &Keys,
        rest: &[Step],
    ) {
        if native_list(above, &anchor.native).is_none_or(|list| list.get(keys).is_none()) {
            return;
        }
        let schema = &self.models.native;
        let Some((list, containers)) = anchor.native.split_last() else { return };
        let branch = containers.iter().fold(&mut *above, |it, node| it.container_mut(*node));
        let entry = branch.list_mut(*list).entry_mut(keys, Branch::default);
        self.entry(at, entry, rest);
        entry.given &= !rest.is_empty();
        if !entry.given && entry.has_only_keys(schema) {
            let mut way: Vec<Step> = containers.iter().copied().map(Step::node).collect();
            way.push(Step::entry(*list, keys.clone()));
            above.remove_at(schema, &way);
        }
    }
}

fn key<T>((keys, _): (&Keys, T)) -> Keys {
    keys.clone()
}

/// A leaf that is set in the trees of both origins.
#[derive(Debug)]
pub(super) struct Overlap {
    pub(super) native: (InstancePath, Value),
    pub(super) openconfig: (InstancePath, Value),
}

/// Leaves other than keys that both trees set. The cost depends on the lists of the smaller tree.
pub(super) fn overlaps(
    models: &Models,
    native: &Tree<LeafMark>,
    openconfig: &Tree<LeafMark>,
) -> Vec<Overlap> {
    let mut both = OverlapSearch { models, place: Vec::new(), found: Vec::new() };
    both.entry(0, native.root(), NodeRef::Branch(openconfig.root()));
    both.found
}

struct OverlapSearch<'a> {
    models: &'a Models,
    /// Native entries on the way to the current node.
    place: Vec<(AnchorId, Keys)>,
    found: Vec<Overlap>,
}

impl OverlapSearch<'_> {
    fn entry(
        &mut self,
        at: AnchorId,
        native: &Branch<LeafMark>,
        openconfig: NodeRef<'_, LeafMark>,
    ) {
        let anchor = &self.models.map.anchors[at];
        for leaf in anchor.leaves.iter().filter(|leaf| leaf.key.is_none()) {
            let Some(one) = leaf_at(native, &leaf.native) else { continue };
            for mapped in &leaf.openconfig {
                if let Some(NodeRef::Leaf(other)) = openconfig.get(&mapped.steps) {
                    let other = other.value.clone();
                    self.note(&leaf.native, one.value.clone(), &mapped.steps, other);
                }
            }
        }
        for child in &anchor.children {
            let below = &self.models.map.anchors[*child];
            let Some(counterpart) = &below.openconfig else { continue };
            let list = native_list(native, &below.native);
            let other = openconfig.get(&counterpart.above);
            if let (Some(list), Some(NodeRef::Branch(branch))) = (list, other)
                && let Some(other) = branch.list(counterpart.list)
            {
                self.lists(*child, counterpart, list, other);
            }
        }
    }

    fn lists(
        &mut self,
        at: AnchorId,
        counterpart: &Counterpart,
        native: &List<LeafMark>,
        openconfig: &List<LeafMark>,
    ) {
        let mut pair = |keys: Keys, one: &Branch<LeafMark>, other| {
            self.place.push((at, keys));
            self.entry(at, one, NodeRef::Branch(other));
            self.place.pop();
        };
        if native.len() <= openconfig.len() {
            for (keys, one) in native.iter() {
                let other = counterpart.openconfig_keys(keys);
                if let Some(other) = other.and_then(|keys| openconfig.get(&keys)) {
                    pair(keys.clone(), one, other);
                }
            }
            return;
        }
        for (keys, other) in openconfig.iter() {
            let keys = counterpart.native_keys(keys);
            if let Some((keys, one)) = keys.and_then(|it| native.get(&it).map(|one| (it, one))) {
                pair(keys, one, other);
            }
        }
    }

    fn note(&mut self, native: &[NodeId], one: Value, openconfig: &[Step], other: Value) {
        let map = &self.models.map;
        let mut path = InstancePath::root();
        for (at, keys) in &self.place {
            let Some((list, above)) = map.anchors[*at].native.split_last() else { continue };
            path.0.extend(above.iter().copied().map(Step::node));
            path.0.push(Step::entry(*list, keys.clone()));
        }
        path.0.extend(native.iter().copied().map(Step::node));
        let keys: Vec<&Keys> = self.place.iter().map(|(_, keys)| keys).collect();
        let at = self.place.last().map_or(0, |(at, _)| *at);
        let Some(mut above) = map.openconfig_entry(at, &keys) else { return };
        above.0.extend_from_slice(openconfig);
        self.found.push(Overlap { native: (path, one), openconfig: (above, other) });
    }
}

/// Visits the leaves that have different values in two trees of one schema.
pub(super) fn visit_differences(
    path: &InstancePath,
    one: &Branch<LeafMark>,
    other: &Branch<LeafMark>,
    visit: &mut dyn FnMut(&InstancePath, &Value, &Value),
) {
    for (node, child) in one.children() {
        let step = Step::node(*node);
        match (child, other.child(*node)) {
            (Child::Leaf(one), Some(Child::Leaf(other))) if one.value != other.value => {
                visit(&path.join(step), &one.value, &other.value);
            }
            (Child::Container(one), Some(Child::Container(other))) => {
                visit_differences(&path.join(step), one, other, visit);
            }
            (Child::List(one), Some(Child::List(other))) => {
                let (few, many) =
                    if one.len() <= other.len() { (one, other) } else { (other, one) };
                for (keys, _) in few.iter().filter(|(keys, _)| many.get(keys).is_some()) {
                    let step = Step::entry(*node, keys.clone());
                    if let (Some(one), Some(other)) = (one.get(keys), other.get(keys)) {
                        visit_differences(&path.join(step), one, other, visit);
                    }
                }
            }
            _ => {}
        }
    }
}
