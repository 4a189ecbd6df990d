//! Descriptors: what the engine must know of a kind of value.
//!
//! [`Descriptor`] is what a platform writes, with its own type of value; [`AnyDescriptor`] is the same behind a pointer,
//! as the engine calls it. All of it is pure: the same value gives the same answer.

use std::fmt::Debug;
use std::sync::Arc;

use crate::dependency::{Cascade, Claim, Dependency, Offer, Target};
use crate::key::{Key, KindId};
use crate::operation::{ErrorClass, OperationError, TransportId};
use crate::value::{SharedValue, Value};

/// How one value becomes another under the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    InPlace,
    /// Deleted and created; what depends on it is parked meanwhile and brought back.
    Recreate,
}

/// What a value is in the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An object of its own, made and removed by operations of this transport.
    Operation(TransportId),
    /// A property of the value it is part of: no operation, exists as long as that value has it.
    Property,
}

/// A part of a value: a value of its own that comes and goes with it.
pub type Part = (Key, SharedValue);

/// In what the parts of two values differ. What is named and does not differ does no harm.
#[derive(Clone, Debug, Default)]
pub struct PartsChanged {
    /// Those that come, and those with another value.
    pub set: Vec<Part>,
    /// Those that go.
    pub gone: Vec<Key>,
}

/// Teaches the engine one kind of value.
pub trait Descriptor: Debug + Send + Sync + 'static {
    type Value: Value;

    fn kind(&self) -> KindId;
    /// Short and unique, as people know the kind: `link`, `route`.
    fn name(&self) -> &'static str;
    fn key(&self, value: &Self::Value) -> Key;

    /// How a person calls this value: `route 10.0.0.0/8`. Also names values in plans and errors.
    fn label(&self, value: &Self::Value) -> String;

    fn effect(&self) -> Effect;

    /// What must exist before this value can; before all of it can, if it is divisible. Ignored for values that are only observed.
    fn dependencies(&self, value: &Self::Value) -> Vec<Dependency> {
        let _ = value;
        Vec::new()
    }

    /// True for a value that can be had in part where not all it depends on is there: see [`Descriptor::reduce`].
    fn is_reducible(&self, value: &Self::Value) -> bool {
        let _ = value;
        false
    }

    /// What a divisible value is without its members that depend on any of these targets (ascending), under the same
    /// key; `None` where nothing is left of it. Depends on nothing that the value in full does not depend on, and has no parts.
    fn reduce(&self, value: &Self::Value, missing: &[Target]) -> Option<Self::Value> {
        let _ = (value, missing);
        None
    }

    /// What dependents can count on beside the key while this value exists: facets, connected prefixes.
    fn provides(&self, value: &Self::Value) -> Vec<Offer> {
        let _ = value;
        Vec::new()
    }

    /// Identities that two values can only have one after the other.
    fn claims(&self, value: &Self::Value) -> Vec<Claim> {
        let _ = value;
        Vec::new()
    }

    /// Values of other kinds that this one consists of. Those with [`Effect::Operation`] get operations, dependencies
    /// and states of their own, and exist only while this value does; two values may share an equal part.
    fn parts(&self, value: &Self::Value) -> Vec<Part> {
        let _ = value;
        Vec::new()
    }

    /// In what the parts of `new` differ from those of `old`, where that can be told without listing all of them: then a
    /// change of one member of many costs one member. Has to agree with [`Descriptor::parts`]. Not asked for values whose
    /// own offers change as well; differences in properties are not taken from here either, all parts are listed then.
    fn parts_changed(&self, old: &Self::Value, new: &Self::Value) -> Option<PartsChanged> {
        let _ = (old, new);
        None
    }

    /// What the system removes by itself when this value (or property) goes.
    fn cascades(&self, value: &Self::Value) -> Vec<Cascade> {
        let _ = value;
        Vec::new()
    }

    /// `old` is what was applied, or what was observed where the two differ.
    fn change(&self, old: &Self::Value, new: &Self::Value) -> Change {
        let _ = (old, new);
        Change::InPlace
    }

    /// True when the system has what was asked. It may have more: attributes that `expected` leaves open.
    fn satisfied_by(&self, expected: &Self::Value, observed: &Self::Value) -> bool {
        expected.same(observed)
    }

    /// True when an observed value carries our mark. Only such values are removed without an intent of this run.
    fn owned(&self, observed: &Self::Value) -> bool {
        let _ = observed;
        false
    }

    /// For objects that may exist before us and must outlive us: what to put back when the intent goes. `Some` makes the
    /// first operation on it [`Action::Adopt`](crate::Action::Adopt) and the last one a release.
    fn restore(&self, observed: &Self::Value) -> Option<Self::Value> {
        let _ = observed;
        None
    }

    /// What to put back instead of `before`, where `observed` is another object than the one that it was taken of: one that
    /// came under the same key after `applied` went with the earlier one; or where somebody else changed since what
    /// `applied` left open. `None` while nothing is new.
    fn refreshed_restore(
        &self,
        before: &Self::Value,
        applied: &Self::Value,
        observed: &Self::Value,
    ) -> Option<Self::Value> {
        let _ = (before, applied, observed);
        None
    }

    /// What the system shows when `released` was given back, where that is not all of `restore`: what the value never
    /// set is somebody else's business.
    fn after_release(&self, released: &Self::Value, restore: &Self::Value) -> Option<Self::Value> {
        let _ = (released, restore);
        None
    }

    /// What the system goes on to show after a delete, for what can be reset but never goes: a setting of something else.
    fn after_delete(&self, deleted: &Self::Value) -> Option<Self::Value> {
        let _ = deleted;
        None
    }

    /// What an update has to put back: `new` with the attributes that it leaves open, and that `applied` had set, as
    /// they were `before` us. `None` when there are no such attributes.
    fn restoring_update(
        &self,
        applied: &Self::Value,
        new: &Self::Value,
        before: Option<&Self::Value>,
    ) -> Option<Self::Value> {
        let _ = (applied, new, before);
        None
    }

    /// False for what cannot be read back: such an operation counts as verified when it is completed.
    fn observable(&self) -> bool {
        true
    }

    /// Whether an operation that failed so is worth another try, and when.
    fn classify(&self, error: &OperationError) -> ErrorClass {
        error.class()
    }
}

/// A [`Descriptor`] without its type. Given a value of another type it panics; the engine catches that.
pub trait AnyDescriptor: Debug + Send + Sync {
    fn kind(&self) -> KindId;
    fn name(&self) -> &'static str;
    fn key(&self, value: &dyn Value) -> Key;
    fn label(&self, value: &dyn Value) -> String;
    fn effect(&self) -> Effect;
    fn dependencies(&self, value: &dyn Value) -> Vec<Dependency>;
    fn is_reducible(&self, value: &dyn Value) -> bool;
    fn reduce(&self, value: &dyn Value, missing: &[Target]) -> Option<SharedValue>;
    fn provides(&self, value: &dyn Value) -> Vec<Offer>;
    fn claims(&self, value: &dyn Value) -> Vec<Claim>;
    fn parts(&self, value: &dyn Value) -> Vec<Part>;
    fn parts_changed(&self, old: &dyn Value, new: &dyn Value) -> Option<PartsChanged>;
    fn cascades(&self, value: &dyn Value) -> Vec<Cascade>;
    fn change(&self, old: &dyn Value, new: &dyn Value) -> Change;
    fn satisfied_by(&self, expected: &dyn Value, observed: &dyn Value) -> bool;
    fn owned(&self, observed: &dyn Value) -> bool;
    fn restore(&self, observed: &dyn Value) -> Option<SharedValue>;
    fn refreshed_restore(
        &self,
        before: &dyn Value,
        applied: &dyn Value,
        observed: &dyn Value,
    ) -> Option<SharedValue>;
    fn after_release(&self, released: &dyn Value, restore: &dyn Value) -> Option<SharedValue>;
    fn after_delete(&self, deleted: &dyn Value) -> Option<SharedValue>;
    fn restoring_update(
        &self,
        applied: &dyn Value,
        new: &dyn Value,
        before: Option<&dyn Value>,
    ) -> Option<SharedValue>;
    fn observable(&self) -> bool;
    fn classify(&self, error: &OperationError) -> ErrorClass;
}

impl<D: Descriptor> AnyDescriptor for D {
    fn kind(&self) -> KindId {
        Descriptor::kind(self)
    }

    fn name(&self) -> &'static str {
        Descriptor::name(self)
    }

    fn key(&self, value: &dyn Value) -> Key {
        Descriptor::key(self, typed(self, value))
    }

    fn label(&self, value: &dyn Value) -> String {
        Descriptor::label(self, typed(self, value))
    }

    fn effect(&self) -> Effect {
        Descriptor::effect(self)
    }

    fn dependencies(&self, value: &dyn Value) -> Vec<Dependency> {
        Descriptor::dependencies(self, typed(self, value))
    }

    fn is_reducible(&self, value: &dyn Value) -> bool {
        Descriptor::is_reducible(self, typed(self, value))
    }

    fn reduce(&self, value: &dyn Value, missing: &[Target]) -> Option<SharedValue> {
        let value = Descriptor::reduce(self, typed(self, value), missing)?;
        Some(Arc::new(value))
    }

    fn provides(&self, value: &dyn Value) -> Vec<Offer> {
        Descriptor::provides(self, typed(self, value))
    }

    fn claims(&self, value: &dyn Value) -> Vec<Claim> {
        Descriptor::claims(self, typed(self, value))
    }

    fn parts(&self, value: &dyn Value) -> Vec<Part> {
        Descriptor::parts(self, typed(self, value))
    }

    fn parts_changed(&self, old: &dyn Value, new: &dyn Value) -> Option<PartsChanged> {
        Descriptor::parts_changed(self, typed(self, old), typed(self, new))
    }

    fn cascades(&self, value: &dyn Value) -> Vec<Cascade> {
        Descriptor::cascades(self, typed(self, value))
    }

    fn change(&self, old: &dyn Value, new: &dyn Value) -> Change {
        Descriptor::change(self, typed(self, old), typed(self, new))
    }

    fn satisfied_by(&self, expected: &dyn Value, observed: &dyn Value) -> bool {
        Descriptor::satisfied_by(self, typed(self, expected), typed(self, observed))
    }

    fn owned(&self, observed: &dyn Value) -> bool {
        Descriptor::owned(self, typed(self, observed))
    }

    fn restore(&self, observed: &dyn Value) -> Option<SharedValue> {
        let value = Descriptor::restore(self, typed(self, observed))?;
        Some(Arc::new(value))
    }

    fn refreshed_restore(
        &self,
        before: &dyn Value,
        applied: &dyn Value,
        observed: &dyn Value,
    ) -> Option<SharedValue> {
        let (before, applied) = (typed(self, before), typed(self, applied));
        let value = Descriptor::refreshed_restore(self, before, applied, typed(self, observed))?;
        Some(Arc::new(value))
    }

    fn after_release(&self, released: &dyn Value, restore: &dyn Value) -> Option<SharedValue> {
        let value = Descriptor::after_release(self, typed(self, released), typed(self, restore))?;
        Some(Arc::new(value))
    }

    fn after_delete(&self, deleted: &dyn Value) -> Option<SharedValue> {
        let value = Descriptor::after_delete(self, typed(self, deleted))?;
        Some(Arc::new(value))
    }

    fn restoring_update(
        &self,
        applied: &dyn Value,
        new: &dyn Value,
        before: Option<&dyn Value>,
    ) -> Option<SharedValue> {
        let before = before.map(|before| typed(self, before));
        let value =
            Descriptor::restoring_update(self, typed(self, applied), typed(self, new), before)?;
        Some(Arc::new(value))
    }

    fn observable(&self) -> bool {
        Descriptor::observable(self)
    }

    fn classify(&self, error: &OperationError) -> ErrorClass {
        Descriptor::classify(self, error)
    }
}

fn typed<'v, D: Descriptor>(descriptor: &D, value: &'v dyn Value) -> &'v D::Value {
    let Some(value) = value.as_any().downcast_ref() else {
        panic!(
            "a {} is described by a value of another type: {value:?}",
            Descriptor::name(descriptor)
        );
    };
    value
}

/// All kinds that an engine knows.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// By the number of the kind: the engine looks a descriptor up several times for each value.
    descriptors: Vec<Option<Arc<dyn AnyDescriptor>>>,
}

/// Two descriptors cannot share a kind or a name.
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
        let (kind, name) = (descriptor.kind(), descriptor.name());
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

    /// How a person calls the value under a key: by its descriptor, or by the bare key where there is none.
    pub fn label(&self, key: &Key, value: Option<&dyn Value>) -> String {
        let Some(descriptor) = self.descriptor(key.kind()) else { return key.to_string() };
        let by_value = value.and_then(|value| catch_panic(|| descriptor.label(value)).ok());
        by_value.unwrap_or_else(|| labelled(descriptor.name(), key))
    }
}

/// A key with the name of its kind: `route 254/10.0.0.0/8`.
fn labelled(name: &str, key: &Key) -> String {
    let text = key.to_string();
    match text.split_once('/') {
        Some((_, rest)) => format!("{name} {rest}"),
        None => name.to_owned(),
    }
}

/// Runs a descriptor's code. A panic in there is an error of that value, never the end of the engine.
pub(crate) fn catch_panic<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    // Descriptors are pure and get shared references only: there is nothing half-changed to be seen afterwards.
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        format!("its descriptor panicked: {}", text.unwrap_or_default())
    })
}
