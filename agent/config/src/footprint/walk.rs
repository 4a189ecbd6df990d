//! Walks over trees of either model, along with the native entries that their entries stand for.

use super::paths::Access;
use super::{Footprint, Part};
use crate::instance::{InstancePath, Keys, Step};
use crate::layer::{LayerKey, Owner};
use crate::map::{Anchor, AnchorId};
use crate::models::Models;
use crate::resolve::PathPattern;
use crate::schema::{NodeId, Origin};
use crate::tree::{Branch, Child, LeafMeta, List, ListEntry as _, OptionalBranch, beside};

/// A place in a tree of one model.
pub(super) struct Walk<'a> {
    models: &'a Models,
    origin: Origin,
    /// The layer whose tree it is: its entries can rest on what is below them, and it has rows in the database.
    layer: Option<LayerKey>,
    footprint: &'a mut Footprint,
    anchor: AnchorId,
    /// The innermost native entry that this place is in, or that its OpenConfig entry stands for. Empty outside of
    /// entries.
    entry: Vec<Step>,
    /// Steps of the tree's model from that entry to this place.
    inside: Vec<Step>,
}

/// A place to go back to.
struct Outer {
    anchor: AnchorId,
    entry: usize,
    /// `None` when the step that was taken led to no other native entry.
    inside: Option<Vec<Step>>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(models: &'a Models, origin: Origin, footprint: &'a mut Footprint) -> Self {
        let entry = Vec::new();
        let inside = Vec::new();
        Self { models, origin, layer: None, footprint, anchor: 0, entry, inside }
    }

    /// Walk over the tree of a layer.
    pub(super) fn of_layer(
        models: &'a Models,
        layer: LayerKey,
        footprint: &'a mut Footprint,
    ) -> Self {
        Self { layer: Some(layer), ..Self::new(models, layer.origin, footprint) }
    }

    /// Adds what differs between two branches at this place; true when something is gone that was in `old`.
    pub(super) fn differences<M: LeafMeta>(
        &mut self,
        old: OptionalBranch<'_, M>,
        new: OptionalBranch<'_, M>,
    ) -> bool {
        let is_explicit = |branch: OptionalBranch<'_, M>| branch.is_some_and(|it| it.given);
        if is_explicit(old) != is_explicit(new) {
            self.add(None, Access::Write);
        }
        let mut lost = is_explicit(old) && !is_explicit(new);
        for (node, old, new) in beside(old.map(|it| &**it), new.map(|it| &**it)) {
            match old.or(new) {
                Some(Child::Container(_)) => {
                    let old = old.and_then(Child::container);
                    let new = new.and_then(Child::container);
                    if !is_same(old, new) {
                        self.inside.push(Step::node(node));
                        lost |= self.differences(old, new);
                        self.inside.pop();
                    }
                }
                Some(Child::List(_)) => {
                    let empty = List::default();
                    let old = old.and_then(Child::list).unwrap_or(&empty);
                    let new = new.and_then(Child::list).unwrap_or(&empty);
                    lost |= self.list_differences(node, old, new);
                }
                Some(Child::Leaf(_)) | None => {
                    if old != new {
                        self.add(Some(node), Access::Write);
                        lost |= new.is_none();
                    }
                }
            }
        }
        lost
    }

    fn list_differences<M: LeafMeta>(
        &mut self,
        node: NodeId,
        old: &List<M>,
        new: &List<M>,
    ) -> bool {
        let mut lost = false;
        for it in List::differences(old, new) {
            let outer = self.enter(node, it.keys);
            let whole = it.old.is_none() || it.new.is_none();
            if whole {
                self.add(None, Access::Write);
            }
            // An entry covers what is in it, but leaves outside of native entries are on their own.
            if !whole || self.entry.is_empty() {
                let [old, new] = [it.old, it.new].map(|entry| entry.map(M::Entry::branch));
                let lost_inside = self.differences(old.as_deref(), new.as_deref());
                if let Some(entry) = new.filter(|_| lost_inside && self.layer.is_some()) {
                    self.read_support(&entry);
                }
                lost |= lost_inside;
            }
            lost |= it.new.is_none();
            self.leave(outer);
        }
        lost
    }

    /// Reads one thing that keeps the entry at this place in its layer, and keeps it from being a shell, now that
    /// something in it is gone. A change that takes this thing away as well reads or writes it too.
    fn read_support<M: LeafMeta>(&mut self, entry: &Branch<M>) {
        if self.has_own_content(entry) || self.origin == Origin::Native && entry.given {
            return;
        }
        match self.content_below(entry) {
            Some(path) => self.footprint.native.add(&path, Access::Read),
            None => self.add(None, Access::Read),
        }
    }

    /// True when a branch has a leaf that is not a key, outside of native entries below this one.
    fn has_own_content<M: LeafMeta>(&mut self, branch: &Branch<M>) -> bool {
        branch.children().iter().any(|(node, child)| match child {
            Child::Leaf(_) => !self.is_key(*node),
            Child::Container(branch) => {
                self.inside.push(Step::node(*node));
                let has = branch.given || self.has_own_content(branch);
                self.inside.pop();
                has
            }
            Child::List(list) => match self.parts_of_entry(*node) {
                Some(parts) => parts.iter().any(|keys| {
                    let entry = list.get(keys);
                    entry.is_some_and(|entry| {
                        self.is_own_entry_with_content(*node, keys, &entry.branch())
                    })
                }),
                None => list.iter().any(|(keys, entry)| {
                    self.is_own_entry_with_content(*node, keys, &entry.branch())
                }),
            },
        })
    }

    /// Entries, of an OpenConfig list at this place, that are parts of the native entry of this place. `None` for a list whose
    /// entries have no native counterparts at all: then all of them are.
    fn parts_of_entry(&self, list: NodeId) -> Option<Vec<&'a Keys>> {
        let map = &self.models.map;
        let anchors = map.anchors[self.anchor].children.iter().map(|child| &map.anchors[*child]);
        match self.origin {
            Origin::Native => {
                let mut lists = anchors.filter_map(Anchor::list);
                lists.any(|it| it == list).then(Vec::new)
            }
            Origin::OpenConfig => {
                let lists = anchors.filter_map(|anchor| anchor.openconfig.as_ref());
                let here = lists.filter(|it| it.list == list && it.above == self.inside);
                let parts: Vec<_> = here.map(|it| &it.parts).collect();
                (!parts.is_empty()).then(|| parts.into_iter().flatten().collect())
            }
        }
    }

    /// True for an entry that has no native counterpart, and has content.
    fn is_own_entry_with_content<M: LeafMeta>(
        &mut self,
        list: NodeId,
        keys: &Keys,
        entry: &Branch<M>,
    ) -> bool {
        let outer = self.enter(list, keys);
        let has = outer.inside.is_none() && self.has_own_content(entry);
        self.leave(outer);
        has
    }

    /// The first native entry below this place that has content of its own.
    fn content_below<M: LeafMeta>(&mut self, branch: &Branch<M>) -> Option<Vec<Step>> {
        branch.children().iter().find_map(|(node, child)| match child {
            Child::Leaf(_) => None,
            Child::Container(branch) => {
                self.inside.push(Step::node(*node));
                let found = self.content_below(branch);
                self.inside.pop();
                found
            }
            Child::List(list) => list.iter().find_map(|(keys, entry)| {
                let outer = self.enter(*node, keys);
                let entry = entry.branch();
                let stays = self.origin == Origin::Native && entry.given;
                let found = if stays || self.has_own_content(&entry) {
                    Some(self.entry.clone())
                } else {
                    self.content_below(&entry)
                };
                self.leave(outer);
                found
            }),
        })
    }

    /// Adds the entries and leaves that the payload of an update for `path` names.
    pub(super) fn payload<M: LeafMeta>(mut self, path: &InstancePath, branch: &Branch<M>) {
        self.descend(&path.0);
        if !self.named(branch) {
            self.add(None, Access::Read);
        }
    }

    fn named<M: LeafMeta>(&mut self, branch: &Branch<M>) -> bool {
        if !self.entry.is_empty() && self.has_own_content(branch) {
            self.add(None, Access::Read);
            return true;
        }
        let mut found = false;
        for (node, child) in branch.children() {
            match child {
                Child::Leaf(_) if self.entry.is_empty() && !self.is_key(*node) => {
                    self.add(Some(*node), Access::Read);
                    found = true;
                }
                Child::Leaf(_) => {}
                Child::Container(branch) => {
                    self.inside.push(Step::node(*node));
                    found |= self.named(branch);
                    self.inside.pop();
                }
                Child::List(list) => {
                    for (keys, entry) in list.iter() {
                        let outer = self.enter(*node, keys);
                        if !self.named(&entry.branch()) {
                            self.add(None, Access::Read);
                        }
                        self.leave(outer);
                        found = true;
                    }
                }
            }
        }
        found
    }

    /// Adds one leaf that an update names.
    pub(super) fn leaf(mut self, path: &InstancePath) {
        let Some((leaf, above)) = path.0.split_last() else { return };
        self.descend(above);
        self.add(Some(leaf.node), Access::Read);
    }

    /// Adds all that a pattern covers. Wildcards count as their list. Returns the outermost native entry on the way.
    pub(super) fn subtree(mut self, pattern: &PathPattern) -> Option<InstancePath> {
        for step in &pattern.0 {
            match step.keys.as_ref().map(|keys| keys.concrete()) {
                None => self.inside.push(Step::node(step.node)),
                Some(Some(keys)) => self.descend(&[Step::entry(step.node, keys)]),
                Some(None) => {
                    self.inside.push(Step::node(step.node));
                    break;
                }
            }
        }
        let native = &mut self.footprint.native;
        match self.origin {
            Origin::Native => {
                let path: Vec<Step> = self.entry.iter().chain(&self.inside).cloned().collect();
                native.add(&path, Access::Read);
            }
            Origin::OpenConfig if self.entry.is_empty() => self.openconfig_subtree(),
            Origin::OpenConfig => native.add(&self.entry, Access::Read),
        }
        let outermost = self.entry.iter().position(|step| step.keys.is_some())?;
        Some(InstancePath(self.entry[..=outermost].to_vec()))
    }

    /// Adds the native lists and leaves for an OpenConfig path outside of entries.
    fn openconfig_subtree(&mut self) {
        self.footprint.unmapped.add(&self.inside, Access::Read);
        if self.inside.is_empty() {
            return self.footprint.native.add(&[], Access::Read);
        }
        let steps = |nodes: &[NodeId]| nodes.iter().copied().map(Step::node).collect::<Vec<_>>();
        let anchors = &self.models.map.anchors;
        for child in &anchors[0].children {
            let child = &anchors[*child];
            let Some(counterpart) = &child.openconfig else { continue };
            let list = Step::node(counterpart.list);
            let path: Vec<Step> = counterpart.above.iter().cloned().chain([list]).collect();
            if covers(&self.inside, &path) {
                self.footprint.native.add(&steps(&child.native), Access::Read);
            }
        }
        for leaf in &anchors[0].leaves {
            if leaf.openconfig.iter().any(|mapped| covers(&self.inside, &mapped.steps)) {
                self.footprint.native.add(&steps(&leaf.native), Access::Read);
            }
        }
    }

    /// Adds the native entry of this place; outside of entries the leaf or the place itself, or if it is written the
    /// object that it is in, with the row of its layer.
    fn add(&mut self, leaf: Option<NodeId>, access: Access) {
        let Footprint { native, unmapped, parts, .. } = &mut *self.footprint;
        if !self.entry.is_empty() {
            return native.add(&self.entry, access);
        }
        let is_written = access == Access::Write;
        // The rows of services' layers are those of their claims, which footprints tell apart by instance.
        let layer = self.layer.filter(|layer| is_written && layer.owner != Owner::Service);
        layer.iter().for_each(|layer| parts.add(Part::OwnLeaves(*layer), access));
        let leaf = leaf.map(Step::node);
        let path = InstancePath(self.inside.iter().cloned().chain(leaf).collect());
        let path = match self.origin {
            Origin::Native => path,
            Origin::OpenConfig => match self.models.map.path_to_native(&path) {
                Some(path) => path,
                None => return unmapped.add(&path.0, access),
            },
        };
        let schema = &self.models.native;
        match schema.innermost_object(&path.0).filter(|object| is_written && *object != path.0) {
            // A plan compares objects as wholes. Entries in it are objects of their own.
            Some(object) => schema.own_nodes(object).for_each(|node| native.add(&node, access)),
            None => native.add(&path.0, access),
        }
    }

    fn descend(&mut self, steps: &[Step]) {
        for step in steps {
            match &step.keys {
                None => self.inside.push(step.clone()),
                Some(keys) => {
                    self.enter(step.node, keys);
                }
            }
        }
    }

    /// Steps into an entry of a list at this place.
    fn enter(&mut self, list: NodeId, keys: &Keys) -> Outer {
        let outer = Outer { anchor: self.anchor, entry: self.entry.len(), inside: None };
        let anchors = &self.models.map.anchors;
        let native = match self.origin {
            Origin::Native => {
                let mut children = anchors[self.anchor].children.iter().copied();
                let anchor = children.find(|child| anchors[*child].list() == Some(list));
                anchor.map(|at| (at, keys.clone()))
            }
            Origin::OpenConfig => {
                self.models.map.list_of_entry(self.anchor, &self.inside, list, keys)
            }
        };
        let native =
            native.and_then(|(at, keys)| Some((at, anchors[at].native.split_last()?, keys)));
        let Some((at, (list, above), keys)) = native else {
            self.inside.push(Step::entry(list, keys.clone()));
            return outer;
        };
        self.anchor = at;
        self.entry.extend(above.iter().copied().map(Step::node));
        self.entry.push(Step::entry(*list, keys));
        Outer { inside: Some(std::mem::take(&mut self.inside)), ..outer }
    }

    fn leave(&mut self, outer: Outer) {
        self.anchor = outer.anchor;
        self.entry.truncate(outer.entry);
        match outer.inside {
            Some(inside) => self.inside = inside,
            None => drop(self.inside.pop()),
        }
    }

    fn is_key(&self, leaf: NodeId) -> bool {
        match self.origin {
            Origin::Native => self.models.native.is_list_key(leaf),
            Origin::OpenConfig => self.models.map.is_openconfig_key(leaf),
        }
    }
}

/// True for a way at or below a path, in which a list without keys stands for all of its entries.
fn covers(path: &[Step], way: &[Step]) -> bool {
    let is_covered = |(step, other): (&Step, &Step)| {
        step.node == other.node && (step.keys.is_none() || step.keys == other.keys)
    };
    path.len() <= way.len() && path.iter().zip(way).all(is_covered)
}

fn is_same<M: LeafMeta>(old: OptionalBranch<'_, M>, new: OptionalBranch<'_, M>) -> bool {
    matches!((old, new), (Some(old), Some(new)) if std::sync::Arc::ptr_eq(old, new))
}
