//! Values: the content under a key, behind a trait because the engine never looks inside.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// One object of the system, as its descriptor understands it. Every comparable type implements it.
///
/// `Debug` is part of the contract: the hash of a plan covers the printed values, so two values that print alike must
/// be equal, and the text must not depend on addresses or on the order of a hash map.
pub trait ObjectValue: Any + Debug + Send + Sync {
    /// True when `other` has the same type and is equal.
    fn same(&self, other: &dyn ObjectValue) -> bool;
    fn as_any(&self) -> &dyn Any;
}

/// Value as planes, plans and operations hold it: shared, never copied.
pub type SharedValue = Arc<dyn ObjectValue>;

impl<T: Any + Debug + Send + Sync + PartialEq> ObjectValue for T {
    fn same(&self, other: &dyn ObjectValue) -> bool {
        other.as_any().downcast_ref::<T>().is_some_and(|other| self == other)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Shared value with equality by content.
#[derive(Clone, Debug)]
pub(crate) struct ValueEq(pub(crate) SharedValue);

impl PartialEq for ValueEq {
    fn eq(&self, other: &Self) -> bool {
        same(Some(&self.0), Some(&other.0))
    }
}

/// True when both are absent, or present and equal.
pub(crate) fn same(a: Option<&SharedValue>, b: Option<&SharedValue>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a.same(&**b),
        _ => false,
    }
}
