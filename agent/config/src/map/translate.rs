//! Translation of single leaves and paths between the models.

use smallvec::SmallVec;

use super::{Anchor, AnchorId, Map, MapRow, OpenConfigRule, model};
use crate::instance::{InstancePath, Keys, Step};
use crate::schema::{NodeId, Origin};
use crate::value::Value;

impl Map {
    /// Translates native leaves, of state or configuration, to OpenConfig. A native leaf may have several
    /// OpenConfig counterparts, or none.
    pub fn up(&self, native: &[(InstancePath, Value)]) -> Vec<(InstancePath, Value)> {
        self.up_wanted(native, &|_| true)
    }

    /// Translates native leaves to those OpenConfig leaves whose nodes are wanted.
    pub fn up_wanted(
        &self,
        native: &[(InstancePath, Value)],
        is_wanted: &dyn Fn(NodeId) -> bool,
    ) -> Vec<(InstancePath, Value)> {
        let mut found = Vec::with_capacity(native.len());
        let mut entry = EntryCache::default();
        for (path, value) in native {
            let mut take = |path, value| found.push((path, value));
            self.leaf_to_openconfig_cached(path, value, &mut entry, is_wanted, &mut take);
        }
        found
    }

    /// Passes each OpenConfig counterpart of one native leaf to `take`.
    pub fn leaf_to_openconfig(
        &self,
        path: &InstancePath,
        value: &Value,
        take: &mut dyn FnMut(InstancePath, Value),
    ) {
        self.leaf_to_openconfig_cached(path, value, &mut EntryCache::default(), &|_| true, take);
    }

    /// Translates a leaf that is likely to be in the same `entry` as the previous one, which is cached.
    fn leaf_to_openconfig_cached<'p>(
        &self,
        path: &'p InstancePath,
        value: &Value,
        entry: &mut EntryCache<'p>,
        is_wanted: &dyn Fn(NodeId) -> bool,
        take: &mut dyn FnMut(InstancePath, Value),
    ) {
        let keys = entries(&path.0);
        let rows = path.last().map_or(&[][..], |step| self.rows_of(step.node));
        let is_wanted = |row: &&MapRow| row.openconfig.last().is_some_and(|it| is_wanted(it.node));
        for row in rows.iter().filter(is_wanted) {
            let Some(value) = row.openconfig_value(keys.last().copied(), value) else { continue };
            if entry.anchor != Some(row.anchor) || entry.keys != keys {
                let path = self.openconfig_entry(row.anchor, &keys);
                *entry = EntryCache { anchor: Some(row.anchor), keys: keys.clone(), path };
            }
            if let Some(entry) = &entry.path {
                take(below(entry, &row.openconfig), value);
            }
        }
    }

    /// OpenConfig leaves that show a native leaf.
    pub fn leaves_to_openconfig(&self, native: NodeId) -> impl Iterator<Item = NodeId> {
        let is_shown = |row: &&MapRow| !matches!(row.up, OpenConfigRule::Nothing);
        self.rows_of(native)
            .iter()
            .filter(is_shown)
            .filter_map(|row| Some(row.openconfig.last()?.node))
    }

    /// OpenConfig list whose entries are the counterparts of those of a native list.
    pub fn list_to_openconfig(&self, native: NodeId) -> Option<NodeId> {
        Some(self.anchors[self.anchor_of_list(native)?].openconfig.as_ref()?.list)
    }

    /// Steps to that list from the OpenConfig entry that contains it.
    pub fn steps_to_openconfig_list(&self, native: NodeId) -> Option<&[Step]> {
        Some(&self.anchors[self.anchor_of_list(native)?].openconfig.as_ref()?.above)
    }

    /// Keys of the OpenConfig counterpart of an entry of a native list.
    pub fn openconfig_keys(&self, list: NodeId, native: &Keys) -> Option<Keys> {
        let counterpart = self.anchors[self.anchor_of_list(list)?].openconfig.as_ref()?;
        Some(counterpart.openconfig_keys(native))
    }

    /// OpenConfig entry for the innermost native entry of a path; the root outside of lists.
    pub fn up_entry(&self, native: &[Step]) -> Option<InstancePath> {
        self.openconfig_entry(self.anchor_of(native)?, &entries(native))
    }

    /// Steps from one OpenConfig entry to another within it, for the corresponding native step.
    pub fn up_within(&self, native: &Step) -> Option<Vec<Step>> {
        let counterpart = self.anchors[self.anchor_of_list(native.node)?].openconfig.as_ref()?;
        let keys = counterpart.openconfig_keys(native.keys.as_ref()?);
        let entry = Step::entry(counterpart.list, keys);
        Some(counterpart.above.iter().cloned().chain([entry]).collect())
    }

    /// OpenConfig counterparts of a native leaf, relative to the OpenConfig entry, with their values. `keys` are
    /// those of the native entry.
    pub fn up_inside<'m>(
        &'m self,
        leaf: NodeId,
        keys: Option<&Keys>,
        value: &Value,
    ) -> impl Iterator<Item = (&'m [Step], Value)> {
        let rows = self.rows_of(leaf).iter();
        rows.filter_map(move |row| Some((&row.openconfig[..], row.openconfig_value(keys, value)?)))
    }

    /// OpenConfig counterparts of everything at and below a native path: an entry for an entry, else the
    /// corresponding leaves and lists. Used to announce deletes.
    pub fn up_path(&self, native: &InstancePath) -> Vec<InstancePath> {
        let keys = entries(&native.0);
        let Some(anchor) = self.anchor_of(&native.0) else { return Vec::new() };
        let Some(entry) = self.openconfig_entry(anchor, &keys) else { return Vec::new() };
        let inside = native.0.iter().rposition(|step| step.keys.is_some()).map_or(0, |at| at + 1);
        let inside: Vec<NodeId> = native.0[inside..].iter().map(|step| step.node).collect();
        if inside.is_empty() {
            return vec![entry];
        }
        let leaves = self
            .by_openconfig
            .values()
            .filter(|row| row.anchor == anchor && row.native.starts_with(&inside))
            .map(|row| below(&entry, &row.openconfig));
        let lists = self.anchors[anchor].children.iter().filter_map(|child| {
            let child = &self.anchors[*child];
            let counterpart =
                child.openconfig.as_ref().filter(|_| child.native.starts_with(&inside))?;
            let list = below(&entry, &counterpart.above);
            Some(list.join(Step::node(counterpart.list)))
        });
        let mut found: Vec<InstancePath> = leaves.chain(lists).collect();
        found.sort();
        found
    }

    /// Native counterpart of an OpenConfig configuration leaf. For a leaf that repeats a key this is the native
    /// key leaf; `None` for an entry without a native counterpart.
    pub fn path_to_native(&self, openconfig: &InstancePath) -> Option<InstancePath> {
        let row = self.by_openconfig.get(&openconfig.last()?.node)?;
        let mut path = self.native_entry(row, openconfig)?;
        match &row.up {
            OpenConfigRule::Implied(_) => {
                let key = self.anchors[row.anchor].leaves.iter().find(|leaf| leaf.key.is_some())?;
                path.0.extend(key.native.iter().copied().map(Step::node));
            }
            OpenConfigRule::Nothing => return None,
            OpenConfigRule::Codec(_) => path.0.extend(row.native.iter().copied().map(Step::node)),
        }
        Some(path)
    }

    /// Native counterpart of an OpenConfig entry, if any.
    pub fn entry_to_native(&self, openconfig: &InstancePath) -> Option<InstancePath> {
        let list = openconfig.last()?.node;
        let is_it = |anchor: &Anchor| anchor.openconfig.as_ref().is_some_and(|it| it.list == list);
        let anchor = self.anchors.iter().position(is_it)?;
        let mut steps = openconfig.0.iter();
        let entry = self.native_steps(anchor, &mut steps)?;
        steps.next().is_none().then_some(entry)
    }

    /// Translates one OpenConfig leaf to native.
    ///
    /// # Errors
    /// Text that completes the leaf's path, when this device does not support the value.
    pub fn down(
        &self,
        openconfig: &InstancePath,
        value: &Value,
    ) -> Result<Option<(InstancePath, Value)>, String> {
        let Some(path) = self.path_to_native(openconfig) else { return Ok(None) };
        let row = openconfig.last().and_then(|step| self.by_openconfig.get(&step.node));
        match row.map(|row| &row.up) {
            Some(OpenConfigRule::Codec(codec)) => Ok(Some((path, (codec.down)(value)?))),
            _ => Ok(None),
        }
    }

    /// True when the map has a line for this OpenConfig leaf.
    #[cfg(test)]
    pub(crate) fn has_openconfig(&self, leaf: NodeId) -> bool {
        self.by_openconfig.contains_key(&leaf)
    }

    /// Checks that this device supports an entry with these keys.
    ///
    /// # Errors
    /// With the reason against it.
    pub fn supports(&self, origin: Origin, list: NodeId, keys: &Keys) -> Result<(), &str> {
        let Some(limit) = &self.limits[model(origin)][list.0 as usize] else { return Ok(()) };
        let fits =
            |(allowed, value): (&Vec<Value>, &Value)| allowed.is_empty() || allowed.contains(value);
        if limit.keys.iter().zip(keys).all(fits) { Ok(()) } else { Err(&limit.reason) }
    }

    /// True when this list, or one below this node, has unsupported entries.
    pub(crate) fn is_restricted(&self, origin: Origin, node: NodeId) -> bool {
        self.limited[model(origin)][node.0 as usize]
    }

    /// Leaves in `config` that repeat a key of this OpenConfig list: container, leaf, index of the key. Empty for
    /// native lists.
    pub(crate) fn mirrors(&self, origin: Origin, list: NodeId) -> &[(NodeId, NodeId, usize)] {
        match origin {
            Origin::OpenConfig => &self.key_copies[list.0 as usize],
            Origin::Native => &[],
        }
    }

    /// True when an OpenConfig leaf is a key of its list, or repeats one: see [`is_key`](crate::tree::is_key).
    pub(crate) fn is_openconfig_key(&self, leaf: NodeId) -> bool {
        self.keys[leaf.0 as usize]
    }

    /// Anchors from the root to this one.
    fn chain(&self, anchor: AnchorId) -> Vec<AnchorId> {
        let up = |at: &AnchorId| self.anchors[*at].parent;
        let mut chain: Vec<_> = std::iter::successors(Some(anchor), up).collect();
        chain.reverse();
        chain
    }

    /// Anchor of the innermost entry of a native path.
    fn anchor_of(&self, native: &[Step]) -> Option<AnchorId> {
        match native.iter().rev().find(|step| step.keys.is_some()) {
            None => Some(0),
            Some(entry) => self.anchor_of_list(entry.node),
        }
    }

    fn anchor_of_list(&self, list: NodeId) -> Option<AnchorId> {
        self.anchors.iter().position(|it| it.list() == Some(list))
    }

    /// Rows of one native leaf.
    fn rows_of(&self, native: NodeId) -> &[MapRow] {
        &self.by_native[native.0 as usize]
    }

    pub(crate) fn openconfig_entry(
        &self,
        anchor: AnchorId,
        native: &[&Keys],
    ) -> Option<InstancePath> {
        let mut path = InstancePath::root();
        for (anchor, keys) in self.chain(anchor).into_iter().skip(1).zip(native) {
            let counterpart = self.anchors[anchor].openconfig.as_ref()?;
            path.0.extend_from_slice(&counterpart.above);
            path.0.push(Step::entry(counterpart.list, counterpart.openconfig_keys(keys)));
        }
        Some(path)
    }

    fn native_entry(&self, row: &MapRow, openconfig: &InstancePath) -> Option<InstancePath> {
        let mut steps = openconfig.0.iter();
        let path = self.native_steps(row.anchor, &mut steps)?;
        // The remaining steps must equal those of the row: a fixed entry with other keys has no counterpart.
        steps.eq(row.openconfig.iter()).then_some(path)
    }

    /// Native entry of an anchor, by the first steps of an OpenConfig path.
    fn native_steps<'s>(
        &self,
        anchor: AnchorId,
        steps: &mut impl Iterator<Item = &'s Step>,
    ) -> Option<InstancePath> {
        let mut path = InstancePath::root();
        for anchor in self.chain(anchor).into_iter().skip(1) {
            let anchor = &self.anchors[anchor];
            let counterpart = anchor.openconfig.as_ref()?;
            let (list, above) = anchor.native.split_last()?;
            for fixed in &counterpart.above {
                if steps.next()? != fixed {
                    return None;
                }
            }
            let entry = steps.next().filter(|step| step.node == counterpart.list)?;
            path.0.extend(above.iter().copied().map(Step::node));
            path.0.push(Step::entry(*list, counterpart.native_keys(entry.keys.as_ref()?)?));
        }
        Some(path)
    }
}

impl MapRow {
    /// OpenConfig value of a native leaf with this value, in an entry with these `keys`.
    fn openconfig_value(&self, keys: Option<&Keys>, value: &Value) -> Option<Value> {
        match &self.up {
            OpenConfigRule::Codec(codec) => (codec.up)(value),
            OpenConfigRule::Implied(rule) => Some(rule.value(keys.unwrap_or(&Keys::default()))),
            OpenConfigRule::Nothing => None,
        }
    }
}

/// OpenConfig counterpart of a native entry, cached for the leaves that follow.
#[derive(Default)]
struct EntryCache<'p> {
    anchor: Option<AnchorId>,
    /// Keys of the native entry and its ancestors.
    keys: EntryKeys<'p>,
    path: Option<InstancePath>,
}

/// Keys of the entries along a path; lists are seldom nested deeper.
type EntryKeys<'p> = SmallVec<[&'p Keys; 4]>;

fn entries(path: &[Step]) -> EntryKeys<'_> {
    path.iter().filter_map(|step| step.keys.as_ref()).collect()
}

fn below(entry: &InstancePath, steps: &[Step]) -> InstancePath {
    let mut path = Vec::with_capacity(entry.0.len() + steps.len());
    path.extend_from_slice(&entry.0);
    path.extend_from_slice(steps);
    InstancePath(path)
}
