//! Union of one list, visiting only entries that changed in some layer.

use std::borrow::Cow;
use std::sync::Arc;

use holdfast_common::parallel;
use smallvec::SmallVec;

use super::{EntryResult, EntryVersions, Provenance, Union, WorkCount};
use crate::instance::Keys;
use crate::layer::LeafMark;
use crate::map::{Anchor, AnchorId, Counterpart};
use crate::schema::NodeId;
use crate::tree::{Branch, Child, LeafMeta, List, NodeRef};

/// A list that was computed from nothing, for the next entry: neighbours often have the same inner lists, such as routes
/// with the same next hops.
pub(super) struct NewList<'a> {
    list: AnchorId,
    lists: SmallVec<[&'a List<LeafMark>; 4]>,
    result: ListResult,
}

/// Entries up to which a list is kept for the next entry.
const SHORT: usize = 4;

/// Result for a list.
#[derive(Clone, Debug)]
pub(super) struct ListResult {
    pub(super) effective: List<Provenance>,
    /// View of the OpenConfig list. `None` when a later list continues it, which shares that list.
    pub(super) openconfig: Option<ViewDraft>,
    pub(super) native: ViewDraft,
}

/// An entry that differs between the old and the new version of one layer.
#[derive(Debug)]
struct ChangedEntry<'a> {
    keys: Keys,
    slot: usize,
    pair: EntryVersions<'a>,
}

/// The list of one layer, before and after.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListVersions<'a> {
    pub(super) old: &'a List<LeafMark>,
    pub(super) new: &'a List<LeafMark>,
}

/// Previous result for a list.
#[derive(Clone, Copy)]
struct PreviousList<'o> {
    effective: Option<&'o List<Provenance>>,
    native: Option<&'o List<LeafMark>>,
    openconfig: Option<&'o List<LeafMark>>,
}

/// A result under construction.
struct Draft {
    effective: List<Provenance>,
    native: ViewDraft,
    openconfig: ViewDraft,
}

/// A computed entry.
struct ComputedEntry<'a> {
    keys: Keys,
    openconfig_keys: Option<Keys>,
    after: EntryResult,
    /// The entry in the client's layers.
    held_native: Option<&'a Arc<Branch<LeafMark>>>,
    held_openconfig: Option<&'a Arc<Branch<LeafMark>>>,
}

/// A view of a list that is complete except for leaves and lists of the entry above.
pub(super) struct ListView<'m> {
    pub(super) counterpart: &'m Counterpart,
    pub(super) list: Cow<'m, List<LeafMark>>,
    /// True when the view equals the client's layer.
    pub(super) shared: bool,
}

/// A view of a list that shares its layer's memory as long as every entry does.
#[derive(Clone, Debug)]
pub(super) struct ViewDraft {
    pub(super) list: List<LeafMark>,
    /// True when the view starts as the present layer instead of the previous view.
    of_layer: bool,
    /// True when the entries of native lists are those of the layer, and share its memory.
    pub(super) shared: bool,
}

impl<'a> Union<'a> {
    /// Computes the lists below the entry of `inputs`. The view of an OpenConfig list passes through all native lists that
    /// share it.
    pub(super) fn lists(
        &mut self,
        anchor: &Anchor,
        inputs: &[EntryVersions<'a>],
        old: &EntryResult,
    ) -> Vec<ListResult> {
        let mut lists: Vec<ListResult> = Vec::with_capacity(anchor.children.len());
        for (child, shares_list_with) in anchor.children.iter().zip(&anchor.shares_list_with) {
            let view = shares_list_with.and_then(|before| lists[before].openconfig.take());
            lists.push(self.list(*child, inputs, old, view));
        }
        lists
    }

    /// Computes the list of anchor `child` below the entry of `inputs`. `view` is that of the OpenConfig list, in which
    /// another native list has put its entries already.
    fn list(
        &mut self,
        child: AnchorId,
        inputs: &[EntryVersions<'a>],
        old: &EntryResult,
        view: Option<ViewDraft>,
    ) -> ListResult {
        let anchor = &self.models.map.anchors[child];
        let pairs = self.list_pairs(anchor, inputs);
        let has_own_list = self.models.map.has_list_of_its_own(child);
        if has_own_list && let Some(same) = self.same_as_last(child, &pairs) {
            return same;
        }
        let problems = self.problems.len();
        let before = PreviousList {
            effective: old.effective.as_ref().and_then(|it| native_list(it, &anchor.native)),
            native: old.native.as_ref().and_then(|it| native_list(it, &anchor.native)),
            openconfig: old.openconfig.as_ref().and_then(|it| openconfig_list(it, anchor)),
        };
        let client = |at: Option<usize>| at.map(|at| pairs[at]);
        let mut draft = Draft {
            effective: before.effective.cloned().unwrap_or_default(),
            native: ViewDraft::new(client(self.client_native), before.native),
            openconfig: view.unwrap_or_else(|| {
                ViewDraft::new(client(self.client_openconfig), before.openconfig)
            }),
        };
        let changes = self.changes(anchor, &pairs);
        let groups: Vec<_> = changes.chunk_by(|one, other| one.keys == other.keys).collect();
        if groups.len() <= parallel::FEW {
            for group in groups {
                let entry = self.list_entry(child, &pairs, group, before);
                draft.note(entry);
            }
        } else {
            let mut found = Vec::new();
            let mut entries = 0;
            let act = |union: &mut Self, group| {
                let entry = union.list_entry(child, &pairs, group, before);
                (entry, std::mem::take(&mut union.problems), std::mem::take(&mut union.work))
            };
            let take = |(entry, problems, work): (_, Vec<_>, WorkCount)| {
                draft.note(entry);
                found.extend(problems);
                entries += work.entries;
            };
            parallel::in_order(groups, || self.fork(), act, take);
            self.problems.extend(found);
            self.work.entries += entries;
        }
        let result = ListResult {
            effective: draft.effective,
            openconfig: Some(draft.openconfig),
            native: draft.native,
        };
        // Whether a fence is in force depends on the entry above.
        let is_fenced = self.fence.is_some_and(|at| !pairs[at].new.is_empty());
        let is_short = |pair: &ListVersions<'_>| pair.old.is_empty() && pair.new.len() < SHORT;
        let is_new = has_own_list && !is_fenced && pairs.iter().all(is_short);
        if is_new && !result.effective.is_empty() && problems == self.problems.len() {
            let lists = pairs.iter().map(|pair| pair.new).collect();
            self.last_list = Some(NewList { list: child, lists, result: result.clone() });
        }
        result
    }

    /// The result for the list computed last, if this one has the same entries. They depend on nothing above them
    /// except the paths of problems, and there were none.
    fn same_as_last(&self, list: AnchorId, pairs: &[ListVersions<'a>]) -> Option<ListResult> {
        let last = self.last_list.as_ref().filter(|last| last.list == list)?;
        let is_same = |(pair, last): (&ListVersions<'a>, &&'a List<LeafMark>)| {
            pair.old.is_empty() && pair.new.is_same(last)
        };
        pairs.iter().zip(&last.lists).all(is_same).then(|| last.result.clone())
    }

    /// Computes one entry; `group` are its changes.
    fn list_entry(
        &mut self,
        child: AnchorId,
        pairs: &[ListVersions<'a>],
        group: &[ChangedEntry<'a>],
        before: PreviousList<'_>,
    ) -> ComputedEntry<'a> {
        let keys = group.first().map_or_else(Keys::default, |change| change.keys.clone());
        let counterpart = self.models.map.anchors[child].openconfig.as_ref();
        let openconfig_keys = counterpart.and_then(|it| it.openconfig_keys(&keys));
        let before = before.entry(&keys, openconfig_keys.as_ref());
        let inputs = self.entry_inputs(pairs, group, openconfig_keys.as_ref());
        self.place.push((child, keys.clone()));
        let after = self.entry(child, &inputs, &before);
        self.place.pop();
        let client_entry = |at: Option<usize>| at.and_then(|at| inputs[at].new);
        let held_native = client_entry(self.client_native);
        let held_openconfig = client_entry(self.client_openconfig);
        ComputedEntry { keys, openconfig_keys, after, held_native, held_openconfig }
    }

    fn list_pairs(&self, anchor: &Anchor, inputs: &[EntryVersions<'a>]) -> Vec<ListVersions<'a>> {
        let pair = |(at, _)| self.list_versions(anchor, at, inputs);
        inputs.iter().enumerate().map(pair).collect()
    }

    /// The list in one of the layers.
    fn list_versions(
        &self,
        anchor: &Anchor,
        slot: usize,
        inputs: &[EntryVersions<'a>],
    ) -> ListVersions<'a> {
        let of = |branch: Option<&'a Arc<Branch<LeafMark>>>| {
            let found = branch.and_then(|branch| {
                if self.slots[slot].is_openconfig() {
                    openconfig_list(branch, anchor)
                } else {
                    native_list(branch, &anchor.native)
                }
            });
            found.unwrap_or(self.empty)
        };
        ListVersions { old: of(inputs[slot].old), new: of(inputs[slot].new) }
    }

    /// The view of the OpenConfig list of one of the `lists`, with what the layer has of entries that are in none of the native
    /// lists that share it: leaves and lists of the entry above are put into them later. `None` when another one of the lists
    /// has the view.
    pub(super) fn openconfig_list_view<'m>(
        &self,
        anchor: &'m Anchor,
        place: usize,
        inputs: &[EntryVersions<'a>],
        lists: &'m [ListResult],
    ) -> Option<ListView<'m>>
    where
        'a: 'm,
    {
        let map = &self.models.map;
        let child = &map.anchors[anchor.children[place]];
        let counterpart = child.openconfig.as_ref()?;
        let view = lists[place].openconfig.as_ref()?;
        let mut list = Cow::Borrowed(&view.list);
        let nothing = ListVersions { old: self.empty, new: self.empty };
        let layer = self.client_openconfig;
        let layer = layer.map_or(nothing, |slot| self.list_versions(child, slot, inputs));
        if !view.of_layer && !counterpart.is_total() {
            let sharing = anchor.children_of_same_list(place);
            let sharing: SmallVec<[&Counterpart; 1]> =
                sharing.iter().filter_map(|at| map.anchors[*at].openconfig.as_ref()).collect();
            let is_foreign = |keys: &Keys| sharing.iter().all(|it| it.native_keys(keys).is_none());
            let parts = sharing.iter().flat_map(|it| &it.parts);
            let parts = parts.map(|keys| (keys, layer.new.get(keys)));
            let others = List::differences(layer.old, layer.new);
            let others = others.filter(|it| is_foreign(it.keys)).map(|it| (it.keys, it.new));
            for (keys, entry) in parts.chain(others) {
                let list = list.to_mut();
                match entry {
                    Some(entry) => drop(list.put(keys.clone(), entry.clone())),
                    None => drop(list.remove(keys)),
                }
            }
        }
        let shared = view.shared || list.is_empty() && layer.new.is_empty();
        Some(ListView { counterpart, list, shared })
    }

    /// Changes of all layers, grouped by entry.
    fn changes(&self, anchor: &Anchor, pairs: &[ListVersions<'a>]) -> Vec<ChangedEntry<'a>> {
        let mut changes: Vec<ChangedEntry<'a>> = Vec::new();
        let mut contributors = 0;
        for (slot, lists) in pairs.iter().enumerate() {
            let before = changes.len();
            let counterpart =
                anchor.openconfig.as_ref().filter(|_| self.slots[slot].is_openconfig());
            changes.reserve(List::differ_by(lists.old, lists.new));
            let mut note = |keys: &Keys, pair| {
                let keys = match counterpart {
                    Some(counterpart) => counterpart.native_keys(keys),
                    None => Some(keys.clone()),
                };
                changes.extend(keys.map(|keys| ChangedEntry { keys, slot, pair }));
            };
            for it in List::differences(lists.old, lists.new) {
                if it.new.is_none() || !self.is_rebuilding {
                    note(it.keys, EntryVersions { old: it.old, new: it.new });
                }
            }
            if self.is_rebuilding {
                for (keys, entry) in lists.new.iter() {
                    note(keys, EntryVersions { old: lists.old.get(keys), new: Some(entry) });
                }
            }
            contributors += usize::from(changes.len() > before);
        }
        // The changes of a single layer are sorted already.
        if contributors > 1 || self.is_rebuilding {
            changes.sort_by(|one, other| one.keys.cmp(&other.keys));
        }
        changes
    }

    /// The entry in each layer: from its changes, or looked up where it did not change.
    fn entry_inputs(
        &self,
        pairs: &[ListVersions<'a>],
        group: &[ChangedEntry<'a>],
        openconfig_keys: Option<&Keys>,
    ) -> SmallVec<[EntryVersions<'a>; 4]> {
        let unchanged = |slot: usize, lists: &ListVersions<'a>| {
            let keys = if self.slots[slot].is_openconfig() {
                openconfig_keys?
            } else {
                &group.first()?.keys
            };
            lists.new.get(keys).filter(|_| !lists.new.is_empty())
        };
        let input = |(slot, lists): (usize, &ListVersions<'a>)| {
            let changed = group.iter().find(|it| it.slot == slot).map(|it| it.pair);
            changed.unwrap_or_else(|| {
                let same = unchanged(slot, lists);
                EntryVersions { old: same, new: same }
            })
        };
        pairs.iter().enumerate().map(input).collect()
    }
}

impl PreviousList<'_> {
    fn entry(self, keys: &Keys, openconfig_keys: Option<&Keys>) -> EntryResult {
        let of = |list: Option<&List<LeafMark>>, keys| list?.get(keys).cloned();
        EntryResult {
            effective: self.effective.and_then(|list| list.get(keys)).cloned(),
            native: of(self.native, keys),
            openconfig: openconfig_keys.and_then(|keys| of(self.openconfig, keys)),
        }
    }
}

impl Draft {
    fn note(&mut self, entry: ComputedEntry<'_>) {
        let ComputedEntry { keys, openconfig_keys, after, held_native, held_openconfig } = entry;
        self.native.note(&keys, after.native, held_native);
        if let Some(keys) = &openconfig_keys {
            self.openconfig.note(keys, after.openconfig, held_openconfig);
        }
        match after.effective {
            Some(entry) => drop(self.effective.put(keys, entry)),
            None => drop(self.effective.remove(&keys)),
        }
    }
}

/// True when the entry has more than factory values and leaves that are to be absent.
pub(super) fn has_explicit_leaf(entry: &Branch<LeafMark>) -> bool {
    let explicit =
        |child: &Child<LeafMark>| matches!(child, Child::Leaf(it) if it.meta == LeafMark::Explicit);
    entry.children().iter().any(|(_, child)| explicit(child))
}

impl ViewDraft {
    fn new(layer: Option<ListVersions<'_>>, old: Option<&List<LeafMark>>) -> Self {
        let shared = match (layer, old) {
            (Some(layer), Some(old)) => layer.old.is_same(old),
            (Some(layer), None) => layer.old.is_empty(),
            (None, old) => old.is_none_or(List::is_empty),
        };
        let list = if shared { layer.map(|layer| layer.new) } else { old };
        Self { list: list.cloned().unwrap_or_default(), of_layer: shared, shared }
    }

    fn note(
        &mut self,
        keys: &Keys,
        entry: Option<Arc<Branch<LeafMark>>>,
        layer_entry: Option<&Arc<Branch<LeafMark>>>,
    ) {
        let same = match (&entry, layer_entry) {
            (Some(entry), Some(layer_entry)) => Arc::ptr_eq(entry, layer_entry),
            (entry, layer_entry) => entry.is_none() && layer_entry.is_none(),
        };
        self.shared &= same;
        match entry {
            _ if same && self.of_layer => {}
            Some(entry) => drop(self.list.put(keys.clone(), entry)),
            None => drop(self.list.remove(keys)),
        }
    }
}

/// The native list at the end of `way` below an entry.
pub(crate) fn native_list<'b, M: LeafMeta>(
    entry: &'b Branch<M>,
    way: &[NodeId],
) -> Option<&'b List<M>> {
    let (list, containers) = way.split_last()?;
    let mut branch = entry;
    for container in containers {
        branch = branch.container(*container)?;
    }
    branch.list(*list)
}

pub(crate) fn openconfig_list<'b>(
    entry: &'b Arc<Branch<LeafMark>>,
    anchor: &Anchor,
) -> Option<&'b List<LeafMark>> {
    let counterpart = anchor.openconfig.as_ref()?;
    match NodeRef::Branch(entry).get(&counterpart.above)? {
        NodeRef::Branch(branch) => branch.list(counterpart.list),
        NodeRef::Leaf(_) | NodeRef::List(_) => None,
    }
}
