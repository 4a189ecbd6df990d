//! Descriptors: the behaviour of each kind of value, as pure functions.
//!
//! A platform implements [`Descriptor`] with its own type of value; the engine calls it through [`AnyDescriptor`],
//! which erases that type. The same value always gives the same answer.

use std::fmt::Debug;
use std::sync::Arc;

use crate::dependency::{Cascade, Claim, Dependency, Offer, Target};
use crate::key::{Key, KindId};
use crate::operation::{ErrorClass, OperationError, TransportId};
use crate::value::{ObjectValue, SharedValue};

/// Way in which one value becomes another under the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeMethod {
    InPlace,
    /// In place, while the operation has a link down for a moment: what stands on the link is interrupted. Planned as
    /// [`InPlace`](Self::InPlace), and told to whoever asks what a change would do.
    LinkDown,
    /// Deleted and created again. Dependents are parked before and return afterwards.
    Recreate,
}

/// Form in which a value exists in the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Object of its own, created and deleted by operations of this transport.
    Operation(TransportId),
    /// Property of the value it is part of: no operation, exists as long as that value has it.
    Property,
}

/// Part of a value: a value of its own that comes and goes with its whole.
pub type Part = (Key, SharedValue);

/// Difference between the parts of two values. Entries that do not differ are allowed.
#[derive(Clone, Debug, Default)]
pub struct PartsChanged {
    /// Parts that are new or have another value.
    pub set: Vec<Part>,
    /// Keys of parts that the new value does not have.
    pub removed: Vec<Key>,
}

/// Defines one kind of value for the engine.
pub trait Descriptor: Debug + Send + Sync + 'static {
    type Value: ObjectValue;

    fn kind(&self) -> KindId;
    /// Short and unique name of the kind, as shown to users: `link`, `route`.
    fn name(&self) -> &'static str;
    fn key(&self, value: &Self::Value) -> Key;

    /// Human-readable name of this value, for plans and errors: `route 10.0.0.0/8`.
    fn label(&self, value: &Self::Value) -> String;

    fn effect(&self) -> Effect;

    /// Targets that must have a provider before this value can exist; for a reducible value, before all of it can
    /// exist. Not called for values that are only observed.
    fn dependencies(&self, value: &Self::Value) -> Vec<Dependency> {
        let _ = value;
        Vec::new()
    }

    /// True for a value that can exist in part while some of its dependencies are unmet: see [`Descriptor::reduce`].
    fn is_reducible(&self, value: &Self::Value) -> bool {
        let _ = value;
        false
    }

    /// Returns a reducible value without the members that depend on any of the targets in `missing` (ascending), under
    /// the same key; `None` when no member is left. The result must depend on nothing that the full value does not
    /// depend on, and must have no parts.
    fn reduce(&self, value: &Self::Value, missing: &[Target]) -> Option<Self::Value> {
        let _ = (value, missing);
        None
    }

    /// Facets and connected prefixes that dependents can rely on, besides the key itself, while this value exists.
    fn provides(&self, value: &Self::Value) -> Vec<Offer> {
        let _ = value;
        Vec::new()
    }

    /// Identities in the system that two values can only hold one after the other.
    fn claims(&self, value: &Self::Value) -> Vec<Claim> {
        let _ = value;
        Vec::new()
    }

    /// Values of other kinds that this one consists of. Parts with [`Effect::Operation`] get operations, dependencies
    /// and states of their own, and exist only while this value does; two values may share an equal part.
    fn parts(&self, value: &Self::Value) -> Vec<Part> {
        let _ = value;
        Vec::new()
    }

    /// Returns the parts in which `new` differs from `old` without listing all of them, so that a change of one member
    /// of many costs one member. Must agree with [`Descriptor::parts`]. Not called for values whose own offers change
    /// as well, and unused for properties: all parts are listed then.
    fn parts_changed(&self, old: &Self::Value, new: &Self::Value) -> Option<PartsChanged> {
        let _ = (old, new);
        None
    }

    /// Values that the system removes when this value (or property) goes.
    fn cascades(&self, value: &Self::Value) -> Vec<Cascade> {
        let _ = value;
        Vec::new()
    }

    /// Chooses how `old` becomes `new`. `old` is the applied value, or the observed one where the two differ.
    fn change(&self, old: &Self::Value, new: &Self::Value) -> ChangeMethod {
        let _ = (old, new);
        ChangeMethod::InPlace
    }

    /// True when the system has what was requested. It may have more: attributes that `expected` leaves open.
    fn satisfied_by(&self, expected: &Self::Value, observed: &Self::Value) -> bool {
        expected.same(observed)
    }

    /// Reason for which an observed value is not what was applied, where there is more to say than that they differ.
    fn drift(&self, applied: &Self::Value, observed: &Self::Value) -> Option<String> {
        let _ = (applied, observed);
        None
    }

    /// True when an observed value carries our mark. Only such values are removed without an intent of this run.
    fn owned(&self, observed: &Self::Value) -> bool {
        let _ = observed;
        false
    }

    /// Pre-image of an object that may exist before us and must outlive us: the value to put back when the intent goes.
    /// `Some` makes the first operation on it [`Action::Adopt`](crate::Action::Adopt) and the last one a release.
    fn restore(&self, observed: &Self::Value) -> Option<Self::Value> {
        let _ = observed;
        None
    }

    /// Replaces the pre-image `before` when it is no longer right: another object came under the same key after the
    /// adopted one went together with `applied`, or someone else changed an attribute that `applied` leaves open.
    /// `None` when `before` still holds.
    fn refreshed_restore(
        &self,
        before: &Self::Value,
        applied: &Self::Value,
        observed: &Self::Value,
    ) -> Option<Self::Value> {
        let _ = (before, applied, observed);
        None
    }

    /// Value that the system shows after `released` was given back, where that is not all of `restore`: attributes that
    /// `released` never set belong to someone else.
    fn after_release(&self, released: &Self::Value, restore: &Self::Value) -> Option<Self::Value> {
        let _ = (released, restore);
        None
    }

    /// Value that the system still shows after a delete, for settings that can be reset but never removed.
    fn after_delete(&self, deleted: &Self::Value) -> Option<Self::Value> {
        let _ = deleted;
        None
    }

    /// Value that an update has to send: `new`, with the attributes that it leaves open and `applied` had set reset to
    /// what they were in `before`. `None` when there are no such attributes.
    fn restoring_update(
        &self,
        applied: &Self::Value,
        new: &Self::Value,
        before: Option<&Self::Value>,
    ) -> Option<Self::Value> {
        let _ = (applied, new, before);
        None
    }

    /// Number by which the system knows the object that an observed value or a pre-image shows, under whatever key,
    /// as long as the system runs. The applied value of such an object, and its pre-image, follow it to another key.
    fn identity(&self, observed: &Self::Value) -> Option<u64> {
        let _ = observed;
        None
    }

    /// True when the object of a pre-image and an observed one, of the same [`identity`](Self::identity), are one even if the system
    /// may have run anew in between.
    fn is_same_object(&self, before: &Self::Value, observed: &Self::Value) -> bool {
        let _ = (before, observed);
        false
    }

    /// The same value under another key. Needed of values with an identity, and of those that go along with them.
    fn rekeyed(&self, value: &Self::Value, key: &Key) -> Option<Self::Value> {
        let _ = (value, key);
        None
    }

    /// Keys of other values that belong to the object under the key `from`, each with the key that it has once the object is
    /// under the key `to`.
    fn keys_along(&self, from: &Key, to: &Key) -> Vec<(Key, Key)> {
        let _ = (from, to);
        Vec::new()
    }

    /// True when an observed value is on an object, so that a reading of what is on that object ([`Scope::On`]) has it.
    ///
    /// [`Scope::On`]: crate::Scope::On
    fn is_on(&self, observed: &Self::Value, object: &Key) -> bool {
        let _ = (observed, object);
        false
    }

    /// True for drift that no operation of ours may undo, because another program has added to what was applied. It is
    /// shown, as under [`DriftPolicy::Report`](crate::DriftPolicy::Report).
    fn tolerates(&self, applied: &Self::Value, observed: &Self::Value) -> bool {
        let _ = (applied, observed);
        false
    }

    /// True where the value is as it was, and what it has to follow has changed: the MTU of a link on another one that got
    /// a larger one. Nobody has changed the value then, so this does not count as drift, and it follows at
    /// once.
    fn has_to_follow(&self, before: &Self::Value, observed: &Self::Value) -> bool {
        let _ = (before, observed);
        false
    }

    /// True for kinds whose values are removed after others are created, where nothing asks for another order: a route
    /// to the same place is there before the old one goes, and no packet is lost in between.
    fn removed_last(&self) -> bool {
        false
    }

    /// False for kinds that cannot be read back: their operations count as verified when they are completed.
    fn observable(&self) -> bool {
        true
    }

    /// Attributes in which the system differs from what was requested, in words for people; empty when there are none.
    fn difference(&self, expected: &Self::Value, observed: &Self::Value) -> String {
        let _ = (expected, observed);
        String::new()
    }

    /// Decides when an operation that failed with this error is worth another try.
    fn classify(&self, error: &OperationError) -> ErrorClass {
        error.class()
    }
}

/// Writes a method a line: its values, which are of any type in [`AnyDescriptor`] and of one in [`Descriptor`], then its other
/// arguments. Where `Descriptor` makes values, `shared` erases their type.
macro_rules! any_descriptor {
    ($(
        $method:ident($($value:ident),* $(; $($other:ident: $other_type:ty),+)?)
            -> $result:ty $(, $erase:ident)?;
    )*) => {
        /// A [`Descriptor`] with its value type erased. A value of another type panics, and the engine catches that.
        pub trait AnyDescriptor: Debug + Send + Sync {
            $(fn $method(&self, $($value: &dyn ObjectValue,)* $($($other: $other_type),+)?) -> $result;)*

            fn restoring_update(
                &self,
                applied: &dyn ObjectValue,
                new: &dyn ObjectValue,
                before: Option<&dyn ObjectValue>,
            ) -> Option<SharedValue>;
        }

        impl<D: Descriptor> AnyDescriptor for D {
            $(fn $method(&self, $($value: &dyn ObjectValue,)* $($($other: $other_type),+)?) -> $result {
                Descriptor::$method(self, $(typed(self, $value),)* $($($other),+)?)$(.map($erase))?
            })*

            fn restoring_update(
                &self,
                applied: &dyn ObjectValue,
                new: &dyn ObjectValue,
                before: Option<&dyn ObjectValue>,
            ) -> Option<SharedValue> {
                let applied = typed(self, applied);
                let new = typed(self, new);
                let before = before.map(|before| typed(self, before));
                Descriptor::restoring_update(self, applied, new, before).map(shared)
            }
        }
    };
}

any_descriptor! {
    kind() -> KindId;
    name() -> &'static str;
    key(value) -> Key;
    label(value) -> String;
    effect() -> Effect;
    dependencies(value) -> Vec<Dependency>;
    is_reducible(value) -> bool;
    reduce(value; missing: &[Target]) -> Option<SharedValue>, shared;
    provides(value) -> Vec<Offer>;
    claims(value) -> Vec<Claim>;
    parts(value) -> Vec<Part>;
    parts_changed(old, new) -> Option<PartsChanged>;
    cascades(value) -> Vec<Cascade>;
    change(old, new) -> ChangeMethod;
    satisfied_by(expected, observed) -> bool;
    drift(applied, observed) -> Option<String>;
    owned(observed) -> bool;
    restore(observed) -> Option<SharedValue>, shared;
    refreshed_restore(before, applied, observed) -> Option<SharedValue>, shared;
    after_release(released, restore) -> Option<SharedValue>, shared;
    after_delete(deleted) -> Option<SharedValue>, shared;
    identity(observed) -> Option<u64>;
    is_same_object(before, observed) -> bool;
    rekeyed(value; key: &Key) -> Option<SharedValue>, shared;
    keys_along(; from: &Key, to: &Key) -> Vec<(Key, Key)>;
    is_on(observed; object: &Key) -> bool;
    tolerates(applied, observed) -> bool;
    has_to_follow(before, observed) -> bool;
    removed_last() -> bool;
    observable() -> bool;
    difference(expected, observed) -> String;
    classify(; error: &OperationError) -> ErrorClass;
}

fn shared<V: ObjectValue>(value: V) -> SharedValue {
    Arc::new(value)
}

fn typed<'v, D: Descriptor>(descriptor: &D, value: &'v dyn ObjectValue) -> &'v D::Value {
    let Some(value) = value.as_any().downcast_ref() else {
        panic!(
            "a {} is described by a value of another type: {value:?}",
            Descriptor::name(descriptor)
        );
    };
    value
}

/// The descriptors of all kinds an engine knows.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// Indexed by the number of the kind: the engine looks a descriptor up several times for each value.
    descriptors: Vec<Option<Arc<dyn AnyDescriptor>>>,
}

/// A descriptor that has the kind or the name of an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("descriptor `{name}` (kind {kind}) is refused: `{taken_by}` has the same kind or name", kind = kind.0)]
pub struct RegistryError {
    pub name: &'static str,
    pub kind: KindId,
    pub taken_by: &'static str,
}

impl Registry {
    pub fn new() -> Self {
        Self::default()
    }

    /// # Errors
    /// When a descriptor with the same kind or name is there already.
    pub fn register(
        &mut self,
        descriptor: impl AnyDescriptor + 'static,
    ) -> Result<(), RegistryError> {
        let kind = descriptor.kind();
        let name = descriptor.name();
        let taken = self.iter().find(|other| other.kind() == kind || other.name() == name);
        if let Some(other) = taken {
            return Err(RegistryError { name, kind, taken_by: other.name() });
        }
        let place = usize::from(kind.0);
        if self.descriptors.len() <= place {
            self.descriptors.resize(place + 1, None);
        }
        self.descriptors[place] = Some(Arc::new(descriptor));
        Ok(())
    }

    pub fn descriptor(&self, kind: KindId) -> Option<&dyn AnyDescriptor> {
        self.descriptors.get(usize::from(kind.0))?.as_deref()
    }

    pub fn by_name(&self, name: &str) -> Option<&dyn AnyDescriptor> {
        self.iter().find(|descriptor| descriptor.name() == name)
    }

    /// All descriptors, ascending by kind.
    pub fn iter(&self) -> impl Iterator<Item = &dyn AnyDescriptor> {
        self.descriptors.iter().flatten().map(|descriptor| &**descriptor)
    }

    /// Human-readable name of the value under a key; the bare key where its kind is unknown.
    pub fn label(&self, key: &Key, value: Option<&dyn ObjectValue>) -> String {
        let Some(descriptor) = self.descriptor(key.kind()) else { return key.to_string() };
        let by_value = value.and_then(|value| catch_panic(|| descriptor.label(value)).ok());
        by_value.unwrap_or_else(|| labelled(descriptor.name(), key))
    }

    /// Attributes in which an observed value differs from the requested one, in words; empty when there are none.
    pub(crate) fn difference(
        &self,
        key: &Key,
        expected: &dyn ObjectValue,
        observed: &dyn ObjectValue,
    ) -> String {
        let descriptor = self.descriptor(key.kind());
        let words = descriptor.map(|it| catch_panic(|| it.difference(expected, observed)));
        words.and_then(Result::ok).unwrap_or_default()
    }
}

/// Key with the name of its kind: `route 254/10.0.0.0/8`.
fn labelled(name: &str, key: &Key) -> String {
    let text = key.to_string();
    match text.split_once('/') {
        Some((_, rest)) => format!("{name} {rest}"),
        None => name.to_owned(),
    }
}

/// Runs code of a descriptor. A panic becomes an error of that value and never ends the engine.
pub(crate) fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    // Unwind safe: descriptors are pure and get shared references only, so no state is left half-changed.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        format!("its descriptor panicked: {}", text.unwrap_or_default())
    })
}
