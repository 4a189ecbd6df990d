//! Rules among the objects of one kind. No descriptor can see them, because a descriptor looks at one object.
//!
//! The native side of a kind gives its relations (`NativeKind::relations`). The core keeps [`Relations`] beside the
//! configuration in force, and names none of them.

use std::fmt::Debug;

use holdfast_config::InstancePath;
use holdfast_scheduler::{Key, KindId, ObjectValue, SharedValue};

use super::entry::ObjectError;

/// A changed object: the entry that asks for it, its key, and its new value; `None` for an object that goes.
pub type LocatedChange<'v> = (&'v InstancePath, &'v Key, Option<&'v SharedValue>);

/// One rule, with an index of the configured objects that it is about. A copy has to be cheap.
pub(crate) trait Relation: Debug + Send + Sync {
    /// Kind of the objects.
    fn kind(&self) -> KindId;

    /// Takes in an object of the configuration in force; `None` for one that is not configured any more.
    fn update(&mut self, key: &Key, value: Option<&SharedValue>);

    /// Reason to refuse changed objects. They alone are judged, against all objects, so the costs are in proportion to
    /// the changes.
    fn refusal(&self, changes: &[LocatedChange<'_>]) -> Option<ObjectError>;

    /// Entries that [`refusal`](Relation::refusal) looks at besides the changed ones, before and after. Two changes are
    /// judged alike in either order if neither touches such an entry of the other.
    fn entries_beside(&self, changes: &[LocatedChange<'_>]) -> Vec<InstancePath>;

    /// Key of the configured object that the kernel makes and removes together with this one, which was read.
    fn made_with(&self, _key: &Key, _observed: &dyn ObjectValue) -> Option<Key> {
        None
    }

    fn boxed_clone(&self) -> Box<dyn Relation>;
}

/// The relations of all kinds ([`Registry::relations`](crate::objects::Registry::relations)).
#[derive(Debug)]
pub struct Relations(pub(crate) Vec<Box<dyn Relation>>);

impl Clone for Relations {
    fn clone(&self) -> Self {
        Self(self.0.iter().map(|relation| relation.boxed_clone()).collect())
    }
}

impl Relations {
    /// Takes in changed values of the configuration in force; `None` is a deletion.
    pub fn update<'v>(
        &mut self,
        changes: impl IntoIterator<Item = (&'v Key, Option<&'v SharedValue>)>,
    ) {
        for (key, value) in changes {
            let of_kind = self.0.iter_mut().filter(|relation| relation.kind() == key.kind());
            of_kind.for_each(|relation| relation.update(key, value));
        }
    }

    /// Refuses changed objects that contradict others.
    ///
    /// # Errors
    /// Names the leaf of the changed object, and the objects that it does not fit.
    pub fn admit<'v>(
        &self,
        changes: impl IntoIterator<Item = LocatedChange<'v>>,
    ) -> Result<(), ObjectError> {
        let changes = self.concerned(changes);
        let refusal = self.0.iter().find_map(|it| it.refusal(&of_kind(&changes, it.kind())));
        refusal.map_or(Ok(()), Err)
    }

    /// Entries that [`Relations::admit`] looks at besides the changed ones.
    pub fn entries_beside<'v>(
        &self,
        changes: impl IntoIterator<Item = LocatedChange<'v>>,
    ) -> Vec<InstancePath> {
        let changes = self.concerned(changes);
        let mut entries = Vec::new();
        for relation in &self.0 {
            entries.extend(relation.entries_beside(&of_kind(&changes, relation.kind())));
        }
        entries
    }

    /// Key of the configured object that the kernel makes and removes together with one that was read.
    pub fn made_with(&self, key: &Key, observed: &dyn ObjectValue) -> Option<Key> {
        let mut of_kind = self.0.iter().filter(|relation| relation.kind() == key.kind());
        of_kind.find_map(|relation| relation.made_with(key, observed))
    }

    /// The changes that some relation is about.
    fn concerned<'v>(
        &self,
        changes: impl IntoIterator<Item = LocatedChange<'v>>,
    ) -> Vec<LocatedChange<'v>> {
        let is_concerned = |(_, key, _): &LocatedChange<'v>| {
            self.0.iter().any(|relation| relation.kind() == key.kind())
        };
        changes.into_iter().filter(is_concerned).collect()
    }
}

fn of_kind<'v>(changes: &[LocatedChange<'v>], kind: KindId) -> Vec<LocatedChange<'v>> {
    changes.iter().copied().filter(|(_, key, _)| key.kind() == kind).collect()
}
