//! Marks of entries: the [`EffectiveStatus`] of those that are not UP.
//!
//! The task that follows faults sets marks, and the core shows them. The core keeps each mark under the path of its
//! entry. So an entry that the core removes and builds again has the same mark as before. A mark is shown with its entry
//! only: while the entry is not there, the mark waits.

use std::sync::Arc;

use holdfast_config::schema::Origin;
use holdfast_config::{EffectiveStatus, InstancePath, Keys, SharedPath, Step, Value};
use holdfast_telemetry::{ConfigOrState, DraftTree, Mutation};
use imbl::OrdMap;

/// Marks that are kept: those of some impacts as large as they can be. Each takes some hundred bytes.
pub(crate) const MARKS_MOST: usize = 200_000;

/// Marks by entry of the native model. Clones share memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    lists: OrdMap<Arc<InstancePath>, OrdMap<Keys, EffectiveStatus>>,
    count: usize,
}

impl Marks {
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn get(&self, entry: &SharedPath) -> Option<EffectiveStatus> {
        self.lists.get(entry.list())?.get(entry.keys()?).copied()
    }

    /// Marks an entry; true where that is a change. A mark that is one too many is refused.
    pub(super) fn set(
        &mut self,
        entry: &SharedPath,
        mark: Option<EffectiveStatus>,
    ) -> Result<bool, TooManyMarks> {
        let Some(keys) = entry.keys() else { return Ok(false) };
        let before = self.get(entry);
        if before == mark {
            return Ok(false);
        }
        if before.is_none() && self.count >= MARKS_MOST {
            return Err(TooManyMarks);
        }
        let marks = self.lists.entry(Arc::clone(entry.list())).or_default();
        match mark {
            Some(mark) => self.count += usize::from(marks.insert(keys.clone(), mark).is_none()),
            None => self.count -= usize::from(marks.remove(keys).is_some()),
        }
        if marks.is_empty() {
            self.lists.remove(entry.list());
        }
        Ok(true)
    }

    /// Marked entries at and below a path.
    fn below(&self, path: &InstancePath) -> Vec<(InstancePath, EffectiveStatus)> {
        let own = self.get(&path.clone().into()).map(|mark| (path.clone(), mark));
        let from = self.lists.range::<_, InstancePath>(path..);
        let lists = from.take_while(|(list, _)| list.starts_with(path));
        let inner = lists.flat_map(|(list, marks)| {
            let entry = |keys: &Keys| SharedPath::entry(Arc::clone(list), keys.clone()).to_path();
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
        if let Some(mark) = self.get(&entry.clone().into()) {
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
