//! Marks of entries: the [`EffectiveStatus`] of those that are not UP.
//!
//! The task that follows faults sets marks, and the core shows them. The core keeps each mark under the path of its
//! entry. So an entry that the core removes and builds again has the same mark as before. A mark is shown with its entry
//! only: while the entry is not there, the mark waits.

use std::sync::Arc;

use holdfast_config::schema::Origin;
use holdfast_config::{EffectiveStatus, InstancePath, Keys, Step, Value};
use holdfast_telemetry::{ConfigOrState, DraftTree, Mutation};
use imbl::OrdMap;

/// Marks that are kept: those of some impacts as large as they can be. Each takes some hundred bytes.
pub(crate) const MARKS_MOST: usize = 200_000;

/// An entry, as its list and its keys; entries beside each other share the list.
#[derive(Clone, Debug)]
pub(super) struct MarkedEntry {
    /// Path of the list, without keys at its end.
    list: Arc<InstancePath>,
    keys: Keys,
}

/// Marks by entry of the native model. Clones share memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    lists: OrdMap<Arc<InstancePath>, OrdMap<Keys, EffectiveStatus>>,
    count: usize,
}

impl MarkedEntry {
    pub(super) fn path(&self) -> InstancePath {
        let mut path = (*self.list).clone();
        if let Some(last) = path.0.last_mut() {
            last.keys = Some(self.keys.clone());
        }
        path
    }
}

impl Marks {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn get(&self, entry: &InstancePath) -> Option<EffectiveStatus> {
        let (list, keys) = split(entry)?;
        self.lists.get(&list)?.get(&keys).copied()
    }

    /// Marks an entry. The entry, where that is a change. A mark that is one too many is refused.
    pub(super) fn set(
        &mut self,
        entry: &InstancePath,
        mark: Option<EffectiveStatus>,
    ) -> Result<Option<MarkedEntry>, TooManyMarks> {
        let Some((list, keys)) = split(entry) else { return Ok(None) };
        let known = self.lists.get_key_value(&list);
        let before = known.and_then(|(_, marks)| marks.get(&keys)).copied();
        if before == mark {
            return Ok(None);
        }
        if before.is_none() && self.count >= MARKS_MOST {
            return Err(TooManyMarks);
        }
        let list = known.map_or_else(|| Arc::new(list), |(list, _)| Arc::clone(list));
        match mark {
            Some(mark) => {
                let marks = self.lists.entry(Arc::clone(&list)).or_default();
                self.count += usize::from(marks.insert(keys.clone(), mark).is_none());
            }
            None => {
                let marks = self.lists.entry(Arc::clone(&list)).or_default();
                self.count -= usize::from(marks.remove(&keys).is_some());
                if marks.is_empty() {
                    self.lists.remove(&*list);
                }
            }
        }
        Ok(Some(MarkedEntry { list, keys }))
    }

    /// Marked entries at and below a path.
    fn below(&self, path: &InstancePath) -> Vec<(InstancePath, EffectiveStatus)> {
        let own = self.get(path).map(|mark| (path.clone(), mark));
        let from = self.lists.range::<_, InstancePath>(path..);
        let lists = from.take_while(|(list, _)| list.starts_with(path));
        let inner = lists.flat_map(|(list, marks)| {
            let entry =
                |keys: &Keys| MarkedEntry { list: Arc::clone(list), keys: keys.clone() }.path();
            marks.iter().map(move |(keys, mark)| (entry(keys), *mark))
        });
        own.into_iter().chain(inner).collect()
    }

    /// Shows the marks of entries at and below a path again, after state was taken away there.
    pub(super) fn show_below(&self, tree: &mut DraftTree<'_>, path: &InstancePath) {
        if self.is_empty() || tree.origin() != Origin::Native {
            return;
        }
        self.below(path).iter().for_each(|(entry, mark)| show(tree, entry, Some(*mark)));
    }

    /// Shows the mark of an entry that has come.
    pub(super) fn show_again(&self, tree: &mut DraftTree<'_>, entry: &InstancePath) {
        if self.is_empty() || tree.origin() != Origin::Native {
            return;
        }
        if let Some(mark) = self.get(entry) {
            show(tree, entry, Some(mark));
        }
    }
}

/// Refusal of a mark: there are [`MARKS_MOST`].
#[derive(Clone, Copy, Debug)]
pub(super) struct TooManyMarks;

/// Shows a mark in the native tree, or takes it away. Nothing happens where the entry is not there.
pub(super) fn show(tree: &mut DraftTree<'_>, entry: &InstancePath, mark: Option<EffectiveStatus>) {
    let Some(list) = entry.last().map(|last| last.node) else { return };
    let Some(place) = tree.mark_of(list) else { return };
    let leaf = entry.join(Step::node(place.container)).join(Step::node(place.leaf));
    let gone = Mutation::Gone(ConfigOrState::State);
    tree.apply(&leaf, mark.map_or(gone, |mark| Mutation::Set(Value::Enum(mark.name().into()))));
}

/// Path of the list of an entry, and the keys of the entry.
fn split(entry: &InstancePath) -> Option<(InstancePath, Keys)> {
    let mut list = entry.clone();
    let keys = list.0.last_mut()?.keys.take()?;
    Some((list, keys))
}
