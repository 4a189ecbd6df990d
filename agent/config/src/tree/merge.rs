//! Three-way merge of trees that stem from one.

use std::sync::Arc;

use super::{Branch, Child, LeafMeta, List, ListEntry as _, OptionalBranch, Tree, beside};

impl<M: LeafMeta> Tree<M> {
    /// The tree `theirs` with all that differs between `base` and `ours` laid on it, and the number of leaves and
    /// entries that both changed, each in its own way; there `ours` wins. All memory that the trees share stays
    /// shared, and the cost is in proportion to the smaller of the two differences.
    ///
    /// Containers that end up empty go, as with [`Tree::remove`]. Entries stay while one side has them, even with
    /// nothing but keys: two changes that empty an entry together are the caller's to keep apart.
    #[must_use]
    pub fn merged(base: &Self, ours: &Self, theirs: &Self) -> (Self, usize) {
        let mut merge = Merge { collisions: 0 };
        let root = merge.branch(Some(&base.root), &ours.root, &theirs.root);
        (Self { root }, merge.collisions)
    }

    /// Number of containers and entries that are not the same memory, counted up to `limit`.
    pub fn difference_size(old: &Self, new: &Self, limit: usize) -> usize {
        let mut count = 0;
        difference_size(Some(&old.root), Some(&new.root), limit, &mut count);
        count
    }
}

struct Merge {
    collisions: usize,
}

impl Merge {
    fn branch<M: LeafMeta>(
        &mut self,
        base: OptionalBranch<'_, M>,
        ours: &Arc<Branch<M>>,
        theirs: &Arc<Branch<M>>,
    ) -> Arc<Branch<M>> {
        let is_base = |it: &Arc<Branch<M>>| base.is_some_and(|base| Arc::ptr_eq(base, it));
        if Arc::ptr_eq(ours, theirs) || is_base(theirs) {
            return ours.clone();
        }
        if is_base(ours) {
            return theirs.clone();
        }
        let room = ours.children().len().max(theirs.children().len());
        let mut merged = Branch::with_capacity(room);
        merged.given = match base {
            Some(base) if base.given == ours.given => theirs.given,
            Some(_) => ours.given,
            None => ours.given || theirs.given,
        };
        for (node, ours, theirs) in beside(Some(&**ours), Some(&**theirs)) {
            let base = base.and_then(|base| base.child(node));
            if let Some(child) = self.child(base, ours, theirs) {
                merged.put(node, child);
            }
        }
        Arc::new(merged)
    }

    fn child<M: LeafMeta>(
        &mut self,
        base: Option<&Child<M>>,
        ours: Option<&Child<M>>,
        theirs: Option<&Child<M>>,
    ) -> Option<Child<M>> {
        match ours.or(theirs)? {
            Child::Leaf(_) => self.choice(base, ours, theirs, Option::eq).cloned(),
            Child::Container(_) => {
                let of = |child: Option<&Child<M>>| child.and_then(Child::container).cloned();
                let ours = of(ours);
                let theirs = of(theirs);
                let kept_empty =
                    [&ours, &theirs].into_iter().flatten().any(|branch| branch.is_empty());
                let ours = ours.unwrap_or_default();
                let theirs = theirs.unwrap_or_default();
                let merged = self.branch(base.and_then(Child::container), &ours, &theirs);
                (kept_empty || !merged.is_empty()).then_some(Child::Container(merged))
            }
            Child::List(_) => {
                let empty = List::default();
                let of = |child: Option<&Child<M>>| child.and_then(Child::list).cloned();
                let [base, ours, theirs] =
                    [base, ours, theirs].map(|child| of(child).unwrap_or_else(|| empty.clone()));
                let merged = self.list(&base, &ours, &theirs);
                (!merged.is_empty()).then_some(Child::List(merged))
            }
        }
    }

    fn list<M: LeafMeta>(&mut self, base: &List<M>, ours: &List<M>, theirs: &List<M>) -> List<M> {
        let ours_onto_theirs = differs_less(base, ours, theirs);
        let (from, onto) = if ours_onto_theirs { (ours, theirs) } else { (theirs, ours) };
        // Lists that share no key need no search.
        let are_apart = List::are_apart(from, onto);
        let mut merged = onto.clone();
        for it in List::differences(base, from) {
            let present = if are_apart { None } else { onto.get(it.keys) };
            let (ours, theirs) =
                if ours_onto_theirs { (it.new, present) } else { (present, it.new) };
            match (self.entry::<M>(it.old, ours, theirs), present) {
                (Some(entry), Some(present)) if entry.is_same(present) => {}
                (Some(entry), _) => drop(merged.put(it.keys.clone(), entry)),
                (None, _) => drop(merged.remove(it.keys)),
            }
        }
        merged
    }

    fn entry<M: LeafMeta>(
        &mut self,
        base: Option<&M::Entry>,
        ours: Option<&M::Entry>,
        theirs: Option<&M::Entry>,
    ) -> Option<M::Entry> {
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            let is_base = |it: &M::Entry| base.is_some_and(|base| base.is_same(it));
            if ours.is_same(theirs) || is_base(theirs) {
                return Some(ours.clone());
            }
            if is_base(ours) {
                return Some(theirs.clone());
            }
            let base = base.map(M::Entry::branch);
            return Some(self.branch(base.as_deref(), &ours.branch(), &theirs.branch()).into());
        }
        let same = |one: &Option<&M::Entry>, other: &Option<&M::Entry>| match (one, other) {
            (Some(one), Some(other)) => one.is_same(other) || *one.branch() == *other.branch(),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.choice(base, ours, theirs, same).cloned()
    }

    /// The side that differs from `base`; `ours` when both do.
    fn choice<T>(
        &mut self,
        base: Option<T>,
        ours: Option<T>,
        theirs: Option<T>,
        same: impl Fn(&Option<T>, &Option<T>) -> bool,
    ) -> Option<T> {
        if same(&base, &ours) {
            return theirs;
        }
        self.collisions += usize::from(!same(&base, &theirs) && !same(&ours, &theirs));
        ours
    }
}

/// True when `ours` differs from `base` in no more entries than `theirs`; the cost is that of the smaller difference.
fn differs_less<M: LeafMeta>(base: &List<M>, ours: &List<M>, theirs: &List<M>) -> bool {
    let mut ours = List::differences(base, ours);
    let mut theirs = List::differences(base, theirs);
    loop {
        match (ours.next(), theirs.next()) {
            (None, _) => return true,
            (Some(_), None) => return false,
            (Some(_), Some(_)) => {}
        }
    }
}

fn difference_size<M: LeafMeta>(
    old: OptionalBranch<'_, M>,
    new: OptionalBranch<'_, M>,
    limit: usize,
    count: &mut usize,
) {
    let same = matches!((old, new), (Some(old), Some(new)) if Arc::ptr_eq(old, new));
    if same || *count >= limit {
        return;
    }
    *count += 1;
    for (_, old, new) in beside(old.map(|it| &**it), new.map(|it| &**it)) {
        match old.or(new) {
            Some(Child::Container(_)) => {
                let old = old.and_then(Child::container);
                let new = new.and_then(Child::container);
                difference_size(old, new, limit, count);
            }
            Some(Child::List(_)) => {
                let empty = List::default();
                let old = old.and_then(Child::list).unwrap_or(&empty);
                let new = new.and_then(Child::list).unwrap_or(&empty);
                for it in List::differences(old, new) {
                    let [old, new] = [it.old, it.new].map(|it| it.map(M::Entry::branch));
                    difference_size(old.as_deref(), new.as_deref(), limit, count);
                    if *count >= limit {
                        return;
                    }
                }
            }
            Some(Child::Leaf(_)) | None => {}
        }
    }
}
