//! Single leaves and paths, from one model to the other.

use smallvec::SmallVec;

use super::{Anchor, AnchorId, Map, Row, Up, model};
use crate::instance::{InstancePath, Keys, Step};
use crate::schema::{NodeId, Origin};
use crate::value::Value;

impl Map {
    /// Native leaves, of state or configuration, as OpenConfig says them. A native leaf may be
    /// several OpenConfig leaves, or none.
    pub fn up(&self, native: &[(InstancePath, Value)]) -> Vec<(InstancePath, Value)> {
        let mut found = Vec::with_capacity(native.len());
        let mut entry = UpEntry::default();
        for (path, value) in native {
            self.up_beside(path, value, &mut entry, &mut |path, value| found.push((path, value)));
        }
        found
    }

    /// Hands each OpenConfig leaf that stands for one native leaf to `take`.
    pub fn up_leaf(
        &self,
        path: &InstancePath,
        value: &Value,
        take: &mut dyn FnMut(InstancePath, Value),
    ) {
        self.up_beside(path, value, &mut UpEntry::default(), take);
    }

    /// The same for a leaf that most often stands in the `entry` of the leaf before.
    fn up_beside<'p>(
        &self,
        path: &'p InstancePath,
        value: &Value,
        entry: &mut UpEntry<'p>,
        take: &mut dyn FnMut(InstancePath, Value),
    ) {
        let keys = entries(&path.0);
        let rows = path.last().map_or(&[][..], |step| self.rows_of(step.node));
        for row in rows {
            let Some(value) = row.value_up(keys.last().copied(), value) else { continue };
            if entry.anchor != Some(row.anchor) || entry.keys != keys {
                let path = self.openconfig_entry(row.anchor, &keys);
                *entry = UpEntry { anchor: Some(row.anchor), keys: keys.clone(), path };
            }
            if let Some(entry) = &entry.path {
                take(below(entry, &row.openconfig), value);
            }
        }
    }

    /// The OpenConfig entry that a native path leads to or into, from the root; the root outside of lists.
    pub fn up_entry(&self, native: &[Step]) -> Option<InstancePath> {
        self.openconfig_entry(self.anchor_of(native)?, &entries(native))
    }

    /// The way from one OpenConfig entry to another that is within it, given the native step there.
    pub fn up_within(&self, native: &Step) -> Option<Vec<Step>> {
        let counterpart = self.anchors[self.anchor_of_list(native.node)?].openconfig.as_ref()?;
        let keys = counterpart.openconfig_keys(native.keys.as_ref()?);
        let entry = Step::entry(counterpart.list, keys);
        Some(counterpart.above.iter().cloned().chain([entry]).collect())
    }

    /// What a native leaf is called in the OpenConfig entry that its own entry is, and its value there. `keys` are
    /// those of the native entry.
    pub fn up_inside<'m>(
        &'m self,
        leaf: NodeId,
        keys: Option<&Keys>,
        value: &Value,
    ) -> impl Iterator<Item = (&'m [Step], Value)> {
        let rows = self.rows_of(leaf).iter();
        rows.filter_map(move |row| Some((&row.openconfig[..], row.value_up(keys, value)?)))
    }

    /// What OpenConfig calls all that lies at and below a native path: the entry for an entry,
    /// else the leaves and lists that stand for what is there. For telling of deletes.
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

    /// The native leaf that an OpenConfig configuration leaf stands for. The native key leaf for a
    /// leaf that only repeats a key; `None` for an entry without a native counterpart.
    pub fn down_path(&self, openconfig: &InstancePath) -> Option<InstancePath> {
        let row = self.by_openconfig.get(&openconfig.last()?.node)?;
        let mut path = self.native_entry(row, openconfig)?;
        match &row.up {
            Up::Implied(_) => {
                let key = self.anchors[row.anchor].leaves.iter().find(|leaf| leaf.key.is_some())?;
                path.0.extend(key.native.iter().copied().map(Step::node));
            }
            Up::Nothing => return None,
            Up::Codec(_) => path.0.extend(row.native.iter().copied().map(Step::node)),
        }
        Some(path)
    }

    /// The native entry that an OpenConfig entry stands for; `None` without a native counterpart.
    pub fn down_entry(&self, openconfig: &InstancePath) -> Option<InstancePath> {
        let list = openconfig.last()?.node;
        let is_it = |anchor: &Anchor| anchor.openconfig.as_ref().is_some_and(|it| it.list == list);
        let anchor = self.anchors.iter().position(is_it)?;
        let mut steps = openconfig.0.iter();
        let entry = self.native_steps(anchor, &mut steps)?;
        steps.next().is_none().then_some(entry)
    }

    /// One OpenConfig leaf as native.
    ///
    /// # Errors
    /// In words that follow the leaf's path, when this device cannot do it.
    pub fn down(
        &self,
        openconfig: &InstancePath,
        value: &Value,
    ) -> Result<Option<(InstancePath, Value)>, String> {
        let Some(path) = self.down_path(openconfig) else { return Ok(None) };
        let row = openconfig.last().and_then(|step| self.by_openconfig.get(&step.node));
        match row.map(|row| &row.up) {
            Some(Up::Codec(codec)) => Ok(Some((path, (codec.down)(value)?))),
            _ => Ok(None),
        }
    }

    /// Whether the table has a line for this OpenConfig leaf.
    pub fn has_openconfig(&self, leaf: NodeId) -> bool {
        self.by_openconfig.contains_key(&leaf)
    }

    /// Whether this agent can have such an entry at all.
    ///
    /// # Errors
    /// The reason why not.
    pub fn supports(&self, origin: Origin, list: NodeId, keys: &Keys) -> Result<(), &str> {
        let Some(limit) = &self.limits[model(origin)][list.0 as usize] else { return Ok(()) };
        let fits =
            |(allowed, value): (&Vec<Value>, &Value)| allowed.is_empty() || allowed.contains(value);
        match limit.keys.iter().zip(keys).all(fits) {
            true => Ok(()),
            false => Err(&limit.reason),
        }
    }

    /// True when some entry of this list, or of one below this node, is not supported.
    pub(crate) fn is_limited(&self, origin: Origin, node: NodeId) -> bool {
        self.limited[model(origin)][node.0 as usize]
    }

    /// The leaves in `config` that repeat a key of this OpenConfig list: container, leaf, place of
    /// the key. None for native lists, which have no such leaves.
    pub(crate) fn mirrors(&self, origin: Origin, list: NodeId) -> &[(NodeId, NodeId, usize)] {
        match origin {
            Origin::OpenConfig => &self.mirrors[list.0 as usize],
            Origin::Native => &[],
        }
    }

    /// True when an OpenConfig leaf is a key of its list, or repeats one: see [`is_key`](crate::tree::is_key).
    pub(crate) fn is_openconfig_key(&self, leaf: NodeId) -> bool {
        self.keys[leaf.0 as usize]
    }

    /// From the root to the anchor.
    fn chain(&self, anchor: AnchorId) -> Vec<AnchorId> {
        let up = |at: &AnchorId| self.anchors[*at].parent;
        let mut chain: Vec<_> = std::iter::successors(Some(anchor), up).collect();
        chain.reverse();
        chain
    }

    /// The anchor whose entry a native path ends in or below.
    fn anchor_of(&self, native: &[Step]) -> Option<AnchorId> {
        match native.iter().rev().find(|step| step.keys.is_some()) {
            None => Some(0),
            Some(entry) => self.anchor_of_list(entry.node),
        }
    }

    fn anchor_of_list(&self, list: NodeId) -> Option<AnchorId> {
        self.anchors.iter().position(|it| it.list() == Some(list))
    }

    /// The rows of one native leaf.
    fn rows_of(&self, native: NodeId) -> &[Row] {
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

    fn native_entry(&self, row: &Row, openconfig: &InstancePath) -> Option<InstancePath> {
        let mut steps = openconfig.0.iter();
        let path = self.native_steps(row.anchor, &mut steps)?;
        // What follows must be the way of the row: a fixed entry with other keys is another thing.
        steps.eq(row.openconfig.iter()).then_some(path)
    }

    /// The native entry of an anchor by the first steps of an OpenConfig path.
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

impl Row {
    /// What OpenConfig says when the native leaf, in an entry with these `keys`, has this value.
    fn value_up(&self, keys: Option<&Keys>, value: &Value) -> Option<Value> {
        match &self.up {
            Up::Codec(codec) => (codec.up)(value),
            Up::Implied(rule) => Some(rule.value(keys.unwrap_or(&Keys::default()))),
            Up::Nothing => None,
        }
    }
}

/// The OpenConfig entry of a native one, kept for the leaves that follow.
#[derive(Default)]
struct UpEntry<'p> {
    anchor: Option<AnchorId>,
    /// Of the native entry and those above it.
    keys: EntryKeys<'p>,
    path: Option<InstancePath>,
}

/// Lists are seldom nested deeper.
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
