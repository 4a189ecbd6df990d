//! Forms in which the entries of a list are stored.

use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;

use super::Branch;

/// Metadata of the leaves of a tree. Its type also says in which form the tree's list entries are stored.
pub trait LeafMeta: Clone + Debug + Eq + Send + Sync + 'static {
    type Entry: ListEntry<Self>;
}

/// One list entry in the form in which its list stores it: as its branch, or as what the branch is derived from.
pub trait ListEntry<M: LeafMeta>:
    Clone + Debug + From<Arc<Branch<M>>> + Send + Sync + 'static
{
    /// True when both are known to be equal, without a look at their leaves.
    fn is_same(&self, other: &Self) -> bool;

    /// The content of the entry. Where it is derived, this takes as long as the entry is large.
    fn branch(&self) -> EntryBranch<'_, M>;

    /// The content for editing, stored as a branch from now on, and copied when shared.
    fn make_mut(&mut self) -> &mut Branch<M>;
}

/// Metadata of trees whose entries are stored as branches.
pub trait StoredMeta: LeafMeta<Entry = Arc<Branch<Self>>> {}

impl<M: LeafMeta<Entry = Arc<Branch<M>>>> StoredMeta for M {}

/// Leaves without metadata.
impl LeafMeta for () {
    type Entry = Arc<Branch<Self>>;
}

/// The branch of an entry: the one that is stored, or one that was derived for the caller.
#[derive(Debug)]
pub enum EntryBranch<'a, M: LeafMeta> {
    Stored(&'a Arc<Branch<M>>),
    Derived(Arc<Branch<M>>),
}

impl<M: LeafMeta> EntryBranch<'_, M> {
    pub fn into_shared(self) -> Arc<Branch<M>> {
        match self {
            Self::Stored(branch) => Arc::clone(branch),
            Self::Derived(branch) => branch,
        }
    }
}

impl<M: LeafMeta> Deref for EntryBranch<'_, M> {
    type Target = Arc<Branch<M>>;

    fn deref(&self) -> &Arc<Branch<M>> {
        match self {
            Self::Stored(branch) => branch,
            Self::Derived(branch) => branch,
        }
    }
}

impl<M: LeafMeta<Entry = Self>> ListEntry<M> for Arc<Branch<M>> {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }

    fn branch(&self) -> EntryBranch<'_, M> {
        EntryBranch::Stored(self)
    }

    fn make_mut(&mut self) -> &mut Branch<M> {
        Arc::make_mut(self)
    }
}
