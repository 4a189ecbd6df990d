//! Values: what a key stands for, behind a trait because the engine never looks inside.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// One object of the system, as a descriptor understands it. Every comparable type is one.
///
/// `Debug` is part of the contract: a plan is hashed over what it prints, so two values that print alike must be equal,
/// and nothing in it may depend on addresses or on the order of a hash map.
pub trait Value: Any + Debug + Send + Sync {
    /// True when `other` has the same type and is equal.
    fn same(&self, other: &dyn Value) -> bool;
    fn as_any(&self) -> &dyn Any;
}

/// A value as planes, plans and operations hold it: never copied.
pub type SharedValue = Arc<dyn Value>;

impl<T: Any + Debug + Send + Sync + PartialEq> Value for T {
    fn same(&self, other: &dyn Value) -> bool {
        other.as_any().downcast_ref::<T>().is_some_and(|other| self == other)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A value that is compared as values are.
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
