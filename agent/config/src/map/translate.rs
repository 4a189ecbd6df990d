//! Translation of single leaves and paths between the models.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{AnchorId, Counterpart, KeyRule, Map, MapRow, OpenConfigRule, model};
use crate::instance::{InstancePath, Keys, Step};
use crate::schema::{NodeId, Origin};
use crate::tree::{LeafMark, NodeRef, Tree};
use crate::value::Value;

impl Map {
    /// Translates native leaves, of state or configuration, to OpenConfig. A native leaf may have several
    /// OpenConfig counterparts, or none. Of alternatives, the first one that can express the value is given.
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
        let is_row_wanted =
            |row: &MapRow| row.openconfig.last().is_some_and(|step| is_wanted(step.node));
        for (path, value) in native {
            let keys = entries(&path.0);
            let rows =
                path.last().map(|step| self.shown_rows(step.node, keys.last().copied(), value));
            let rows = rows.into_iter().flatten().filter(|(row, _)| is_row_wanted(row));
            self.translate(&keys, rows, &mut entry, &mut |path, value| found.push((path, value)));
        }
        found
    }

    /// Passes each OpenConfig counterpart of one native leaf to `take`, all alternatives among them.
    pub fn leaf_to_openconfig(
        &self,
        path: &InstancePath,
        value: &Value,
        take: &mut dyn FnMut(InstancePath, Value),
    ) {
        let keys = entries(&path.0);
        let rows = path.last().map_or(&[][..], |step| self.rows_of(step.node));
        let own = keys.last().copied();
        let rows = rows.iter().filter_map(|row| Some((row, row.openconfig_value(own, value)?)));
        self.translate(&keys, rows, &mut EntryCache::default(), take);
    }

    /// Passes the OpenConfig leaves of rows to `take`. They are likely to be in the same `entry` as the previous ones, which
    /// is cached.
    fn translate<'m, 'p>(
        &'m self,
        keys: &EntryKeys<'p>,
        rows: impl Iterator<Item = (&'m MapRow, Value)>,
        entry: &mut EntryCache<'p>,
        take: &mut dyn FnMut(InstancePath, Value),
    ) {
        for (row, value) in rows {
            if entry.anchor != Some(row.anchor) || entry.keys != *keys {
                let path = self.openconfig_entry(row.anchor, keys);
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
        counterpart.openconfig_keys(native)
    }

    /// OpenConfig entry for the innermost native entry of a path; the root outside of lists.
    pub fn up_entry(&self, native: &[Step]) -> Option<InstancePath> {
        self.openconfig_entry(self.anchor_of(native)?, &entries(native))
    }

    /// Steps from one OpenConfig entry to another within it, for the corresponding native step.
    pub fn up_within(&self, native: &Step) -> Option<Vec<Step>> {
        let counterpart = self.anchors[self.anchor_of_list(native.node)?].openconfig.as_ref()?;
        let keys = counterpart.openconfig_keys(native.keys.as_ref()?)?;
        let entry = Step::entry(counterpart.list, keys);
        Some(counterpart.above.iter().cloned().chain([entry]).collect())
    }

    /// OpenConfig counterparts of a native leaf, relative to the OpenConfig entry, with their values. `keys` are
    /// those of the native entry. Of alternatives, the first one that can express the value is given.
    pub fn up_inside<'m>(
        &'m self,
        leaf: NodeId,
        keys: Option<&Keys>,
        value: &Value,
    ) -> impl Iterator<Item = (&'m [Step], Value)> {
        self.shown_rows(leaf, keys, value).map(|(row, value)| (&row.openconfig[..], value))
    }

    /// OpenConfig counterparts of everything at and below a native path: an entry for an entry, else the
    /// corresponding leaves, alternatives among them, and lists. A list that has entries of others, too, is left out: see
    /// [`Map::up_path_in`].
    pub fn up_path(&self, native: &InstancePath) -> Vec<InstancePath> {
        self.counterparts(native, &|list, counterpart| match counterpart.has_all_entries() {
            true => vec![list.join(Step::node(counterpart.list))],
            false => Vec::new(),
        })
    }

    /// The OpenConfig counterpart by which messages name a native leaf or entry: of alternatives the first one.
    pub(crate) fn first_up(&self, native: &InstancePath) -> Option<InstancePath> {
        let row = native.last().and_then(|step| self.rows_of(step.node).first());
        let Some(row) = row else { return self.up_path(native).into_iter().next() };
        let entry = self.openconfig_entry(row.anchor, &entries(&native.0))?;
        Some(below(&entry, &row.openconfig))
    }

    /// OpenConfig counterparts of everything at and below a native path, as [`Map::up_path`] gives them. Of a list that has
    /// entries of others, too, it gives the entries in `openconfig`.
    pub(crate) fn up_path_in(
        &self,
        native: &InstancePath,
        openconfig: &Tree<LeafMark>,
    ) -> Vec<InstancePath> {
        self.counterparts(native, &|above, counterpart| {
            let list = above.join(Step::node(counterpart.list));
            if counterpart.has_all_entries() {
                return vec![list];
            }
            let Some(NodeRef::List(entries)) = openconfig.get(&list) else { return Vec::new() };
            let own = entries.iter().filter(|(keys, _)| counterpart.native_keys(keys).is_some());
            let path = |keys: &Keys| above.join(Step::entry(counterpart.list, keys.clone()));
            own.map(|(keys, _)| path(keys)).collect()
        })
    }

    /// Counterparts of everything at and below a native path, in order. `entries` gives those of a list below the path, by
    /// the path to the container of the list.
    fn counterparts(
        &self,
        native: &InstancePath,
        entries_of: &dyn Fn(&InstancePath, &Counterpart) -> Vec<InstancePath>,
    ) -> Vec<InstancePath> {
        let keys = entries(&native.0);
        let Some(anchor) = self.anchor_of(&native.0) else { return Vec::new() };
        let Some(entry) = self.openconfig_entry(anchor, &keys) else { return Vec::new() };
        let inside = native.0.iter().rposition(|step| step.keys.is_some()).map_or(0, |at| at + 1);
        let inside: Vec<NodeId> = native.0[inside..].iter().map(|step| step.node).collect();
        if inside.is_empty() {
            return vec![entry];
        }
        let rows = self.by_openconfig.values().flatten();
        let mut found: Vec<InstancePath> = rows
            .filter(|row| row.anchor == anchor && row.native.starts_with(&inside))
            .map(|row| below(&entry, &row.openconfig))
            .collect();
        for child in self.anchors[anchor].children.iter().map(|child| &self.anchors[*child]) {
            let named = child.openconfig.as_ref().filter(|_| child.native.starts_with(&inside));
            if let Some(counterpart) = named {
                found.extend(entries_of(&below(&entry, &counterpart.above), counterpart));
            }
        }
        found.sort();
        found
    }

    /// Alternatives, elsewhere, of the OpenConfig leaves at and below an OpenConfig path: leaves that are not below the path
    /// and have the same native leaf as one that is.
    pub(crate) fn alternatives(&self, openconfig: &InstancePath) -> Vec<InstancePath> {
        let mut found = Vec::new();
        for at in self.with_alternatives.iter().copied() {
            let mut steps = openconfig.0.iter();
            // A path that ends above the entry covers all leaves of the entry.
            if self.native_steps(at, &mut steps).is_none() {
                continue;
            }
            let entry = InstancePath(openconfig.0[..openconfig.0.len() - steps.len()].to_vec());
            let rest = steps.as_slice();
            let leaves = self.anchors[at].leaves.iter();
            for leaf in leaves.filter(|leaf| leaf.openconfig.len() > 1) {
                let (named, others): (Vec<_>, Vec<_>) =
                    leaf.openconfig.iter().partition(|it| it.steps.starts_with(rest));
                if !named.is_empty() {
                    found.extend(others.iter().map(|it| below(&entry, &it.steps)));
                }
            }
        }
        found
    }

    /// Native counterpart of an OpenConfig configuration leaf. For a leaf that repeats a key this is the native
    /// key leaf; `None` for an entry without a native counterpart.
    pub fn path_to_native(&self, openconfig: &InstancePath) -> Option<InstancePath> {
        let (row, entry) = self.row_of(openconfig)?;
        self.native_leaf(row, entry)
    }

    /// Row of an OpenConfig leaf, with the native entry that the leaf is about.
    fn row_of(&self, openconfig: &InstancePath) -> Option<(&MapRow, InstancePath)> {
        let mut rows = self.by_openconfig.get(&openconfig.last()?.node)?.iter();
        rows.find_map(|row| Some((row, self.native_entry(row, openconfig)?)))
    }

    fn native_leaf(&self, row: &MapRow, entry: InstancePath) -> Option<InstancePath> {
        let mut path = entry;
        match &row.up {
            OpenConfigRule::Implied(rule) => {
                let mut keys = self.anchors[row.anchor].leaves.iter().filter(|it| it.key.is_some());
                let key = match rule {
                    KeyRule::Fixed(_) => keys.next(),
                    KeyRule::Native(at) | KeyRule::Coded(at, _) => {
                        keys.find(|leaf| leaf.key == Some(*at))
                    }
                };
                path.0.extend(key?.native.iter().copied().map(Step::node));
            }
            OpenConfigRule::Nothing => return None,
            OpenConfigRule::Codec(_) => path.0.extend(row.native.iter().copied().map(Step::node)),
        }
        Some(path)
    }

    /// Native counterpart of an OpenConfig entry, if any.
    pub fn entry_to_native(&self, openconfig: &InstancePath) -> Option<InstancePath> {
        self.anchors_of(openconfig.last()?.node).find_map(|(anchor, _)| {
            let mut steps = openconfig.0.iter();
            let entry = self.native_steps(anchor, &mut steps)?;
            steps.next().is_none().then_some(entry)
        })
    }

    /// Native lists, by their anchors, that have entries of an OpenConfig list.
    fn anchors_of(&self, openconfig: NodeId) -> impl Iterator<Item = (AnchorId, &Counterpart)> {
        let anchors = self.by_list.get(&openconfig).into_iter().flatten().copied();
        anchors.filter_map(|at| Some((at, self.anchors[at].openconfig.as_ref()?)))
    }

    /// The native list below the entry of an anchor that has an entry of an OpenConfig list, with the native keys. `above` are
    /// the steps from the OpenConfig entry of the anchor to the list.
    pub(crate) fn list_of_entry(
        &self,
        anchor: AnchorId,
        above: &[Step],
        list: NodeId,
        keys: &Keys,
    ) -> Option<(AnchorId, Keys)> {
        let is_below = |at: AnchorId| self.anchors[at].parent == Some(anchor);
        let mut lists = self.anchors_of(list).filter(|(at, it)| is_below(*at) && it.above == above);
        lists.find_map(|(at, it)| Some((at, it.native_keys(keys)?)))
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
        let Some((row, entry)) = self.row_of(openconfig) else { return Ok(None) };
        let OpenConfigRule::Codec(codec) = &row.up else { return Ok(None) };
        let Some(path) = self.native_leaf(row, entry) else { return Ok(None) };
        Ok(Some((path, (codec.down)(value)?)))
    }

    /// True when the map has a line for this OpenConfig leaf.
    #[cfg(test)]
    pub(crate) fn has_openconfig(&self, leaf: NodeId) -> bool {
        self.by_openconfig.contains_key(&leaf)
    }

    /// Anchors and steps of all rows by their OpenConfig leaf.
    #[cfg(test)]
    pub(crate) fn openconfig_places(&self) -> Vec<(AnchorId, Vec<Step>)> {
        let rows = self.by_openconfig.values().flatten();
        rows.map(|row| (row.anchor, row.openconfig.clone())).collect()
    }

    /// Checks that this device supports an entry with these keys.
    ///
    /// # Errors
    /// With the reason against it.
    pub fn supports(&self, origin: Origin, list: NodeId, keys: &Keys) -> Result<(), Cow<'_, str>> {
        if !self.is_restricted(origin, list) {
            return Ok(());
        }
        if let Some(limit) = &self.limits[model(origin)][list.0 as usize] {
            let fits = |(allowed, value): (&Vec<Value>, &Value)| {
                allowed.is_empty() || allowed.contains(value)
            };
            if !limit.keys.iter().zip(keys).all(fits) {
                return Err(Cow::Borrowed(&limit.reason));
            }
        }
        match origin {
            Origin::OpenConfig => self.has_place(list, keys).map_err(Cow::Owned),
            Origin::Native => Ok(()),
        }
    }

    /// Checks that an entry of an OpenConfig list has a native counterpart, or is a part of an entry that has one. A list
    /// without any block has no entries of its own.
    fn has_place(&self, list: NodeId, keys: &Keys) -> Result<(), String> {
        let mut refusal = None;
        for (_, counterpart) in self.anchors_of(list) {
            match counterpart.has_place(keys) {
                Ok(true) => return Ok(()),
                Ok(false) => {
                    refusal.get_or_insert_with(|| "this device has no such entry".to_owned());
                }
                // The list whose entry it would be knows the reason best.
                Err(reason) => refusal = Some(reason),
            }
        }
        refusal.map_or(Ok(()), Err)
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

    /// Rows by which OpenConfig shows a native leaf, with their values: all of state, and of alternatives the first one that
    /// can express the value.
    fn shown_rows<'m>(
        &'m self,
        leaf: NodeId,
        keys: Option<&Keys>,
        value: &Value,
    ) -> impl Iterator<Item = (&'m MapRow, Value)> {
        let mut is_shown = false;
        self.rows_of(leaf).iter().filter_map(move |row| {
            if row.is_config && is_shown {
                return None;
            }
            let value = row.openconfig_value(keys, value)?;
            is_shown |= row.is_config;
            Some((row, value))
        })
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
            path.0.push(Step::entry(counterpart.list, counterpart.openconfig_keys(keys)?));
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
            OpenConfigRule::Implied(rule) => rule.value(keys.unwrap_or(&Keys::default())),
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
