//! Difference of two trees, skipping the memory that they share.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{Branch, Child, Leaf, LeafMeta, List, ListEntry as _, NodeRef};
use crate::instance::{InstancePath, Step};
use crate::schema::NodeId;

/// One difference; its path is passed along.
#[derive(Debug)]
pub enum Change<'a, M: LeafMeta> {
    /// A new leaf, container or entry. Its content is not reported separately.
    Added(NodeRef<'a, M>),
    /// A removed leaf, container or entry, with all of its content.
    Removed(NodeRef<'a, M>),
    /// A leaf of both trees with a different value or meta.
    Leaf { old: &'a Leaf<M>, new: &'a Leaf<M> },
    /// An entry or container of both trees that was supplied as such in one of them only; true if in the new one.
    Given(bool),
}

/// Pairs of the children of two branches with the same node, in schema order.
pub(crate) fn beside<'b, M: LeafMeta>(
    old: Option<&'b Branch<M>>,
    new: Option<&'b Branch<M>>,
) -> impl Iterator<Item = (NodeId, Option<&'b Child<M>>, Option<&'b Child<M>>)> {
    let children = |of: Option<&'b Branch<M>>| of.map_or(&[][..], Branch::children).iter();
    let mut olds = children(old).peekable();
    let mut news = children(new).peekable();
    std::iter::from_fn(move || {
        let order = match (olds.peek(), news.peek()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((one, _)), Some((other, _))) => one.cmp(other),
        };
        let old = if order.is_le() { olds.next() } else { None };
        let new = if order.is_ge() { news.next() } else { None };
        let (node, _) = old.or(new)?;
        Some((*node, old.map(|it| &it.1), new.map(|it| &it.1)))
    })
}

/// Number of list entries that a tree has gained and lost, in this order. The cost depends on the memory that the
/// trees do not share.
pub(super) fn entries<M: LeafMeta>(old: &Arc<Branch<M>>, new: &Arc<Branch<M>>) -> (usize, usize) {
    let mut count = EntryCount::default();
    count.branches(Some(old), Some(new));
    (count.gained, count.lost)
}

#[derive(Default)]
struct EntryCount {
    gained: usize,
    lost: usize,
}

impl EntryCount {
    fn branches<M: LeafMeta>(
        &mut self,
        old: Option<&Arc<Branch<M>>>,
        new: Option<&Arc<Branch<M>>>,
    ) {
        if let (Some(old), Some(new)) = (old, new)
            && Arc::ptr_eq(old, new)
        {
            return;
        }
        for (_, old, new) in beside(old.map(|it| &**it), new.map(|it| &**it)) {
            match old.or(new) {
                Some(Child::Container(_)) => {
                    self.branches(old.and_then(Child::container), new.and_then(Child::container))
                }
                Some(Child::List(_)) => {
                    let empty = List::default();
                    let old = old.and_then(Child::list).unwrap_or(&empty);
                    let new = new.and_then(Child::list).unwrap_or(&empty);
                    for it in List::differences(old, new) {
                        self.gained += usize::from(it.old.is_none());
                        self.lost += usize::from(it.new.is_none());
                        let [old, new] = [it.old, it.new].map(|it| it.map(M::Entry::branch));
                        self.branches(old.as_deref(), new.as_deref());
                    }
                }
                Some(Child::Leaf(_)) | None => {}
            }
        }
    }
}

type Visit<'v, M> = &'v mut dyn FnMut(&InstancePath, Change<'_, M>);

pub(super) fn branches<M: LeafMeta>(
    old: &Arc<Branch<M>>,
    new: &Arc<Branch<M>>,
    path: &mut InstancePath,
    visit: Visit<'_, M>,
) {
    if Arc::ptr_eq(old, new) {
        return;
    }
    if old.given != new.given {
        visit(path, Change::Given(new.given));
    }
    for (node, old, new) in beside(Some(old), Some(new)) {
        path.0.push(Step::node(node));
        children(old, new, path, visit);
        path.0.pop();
    }
}

fn children<M: LeafMeta>(
    old: Option<&Child<M>>,
    new: Option<&Child<M>>,
    path: &mut InstancePath,
    visit: Visit<'_, M>,
) {
    match (old, new) {
        (Some(Child::Leaf(old)), Some(Child::Leaf(new))) => {
            if old != new {
                visit(path, Change::Leaf { old, new });
            }
        }
        (Some(Child::Container(old)), Some(Child::Container(new))) => {
            branches(old, new, path, visit);
        }
        (Some(Child::List(old)), Some(Child::List(new))) => lists(old, new, path, visit),
        (Some(Child::List(old)), None) => lists(old, &List::default(), path, visit),
        (None, Some(Child::List(new))) => lists(&List::default(), new, path, visit),
        (old, new) => {
            if let Some(old) = old {
                visit(path, Change::Removed(old.into()));
            }
            if let Some(new) = new {
                visit(path, Change::Added(new.into()));
            }
        }
    }
}

fn lists<M: LeafMeta>(old: &List<M>, new: &List<M>, path: &mut InstancePath, visit: Visit<'_, M>) {
    let Some(list) = path.0.pop() else { return };
    for difference in List::differences(old, new) {
        path.0.push(Step::entry(list.node, difference.keys.clone()));
        match (difference.old, difference.new) {
            (Some(old), Some(new)) => branches(&old.branch(), &new.branch(), path, visit),
            (Some(old), None) => visit(path, Change::Removed(NodeRef::Branch(&old.branch()))),
            (None, Some(new)) => visit(path, Change::Added(NodeRef::Branch(&new.branch()))),
            (None, None) => {}
        }
        path.0.pop();
    }
    path.0.push(list);
}
