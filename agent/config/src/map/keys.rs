//! The OpenConfig list of a native list: where it is, and which of its entries have which native keys.

use std::sync::Arc;

use super::Codec;
use crate::instance::{Keys, Step};
use crate::resolve::KeyPattern;
use crate::schema::{NodeId, Type};
use crate::value::Value;

/// The OpenConfig list of an anchor.
#[derive(Debug)]
pub(crate) struct Counterpart {
    /// Steps from the parent anchor's entry to the container of the list; fixed entries have their keys.
    pub(crate) above: Vec<Step>,
    pub(crate) list: NodeId,
    /// For each OpenConfig key.
    pub(crate) keys: Vec<KeyRule>,
    /// For each OpenConfig key that is a number: its type and that of the native key, where one of them has values that the
    /// other one lacks.
    pub(super) numbers: Vec<Option<NumberTypes>>,
    /// Entries that other blocks have, and those of `parts`.
    pub(super) excluded: Vec<KeyPattern>,
    /// Entries that are parts of the entry above, because rows or lists there pass through them.
    pub(crate) parts: Vec<Keys>,
}

/// Source of the value of an OpenConfig key.
#[derive(Clone, Debug)]
pub(crate) enum KeyRule {
    Fixed(Value),
    /// The native key at this index.
    Native(usize),
    /// The native key at this index, through a codec.
    Coded(usize, &'static Codec),
}

/// Types of a key that has a range of numbers in both models.
#[derive(Clone, Debug)]
pub(super) struct NumberTypes {
    pub(super) openconfig: Arc<Type>,
    pub(super) native: Arc<Type>,
}

/// Reason why an OpenConfig entry has no native one in this list.
enum NoNativeEntry {
    /// A fixed key has another value, or the entry is excluded.
    NotOurs,
    /// The device has no such entry; completes the entry's path.
    Unsupported(String),
}

impl Counterpart {
    /// Keys of the OpenConfig entry of a native one; `None` when OpenConfig has no such entry, or has another meaning for it.
    pub(crate) fn openconfig_keys(&self, native: &Keys) -> Option<Keys> {
        let rules = self.keys.iter().zip(&self.numbers);
        let value = |(rule, number): (&KeyRule, &Option<NumberTypes>)| {
            let value = rule.value(native)?;
            let fits = number.as_ref().is_none_or(|it| it.openconfig.takes(&value));
            fits.then_some(value)
        };
        let keys: Keys = rules.map(value).collect::<Option<_>>()?;
        (!self.is_excluded(&keys)).then_some(keys)
    }

    /// Native keys of an OpenConfig entry; `None` when the entry has no native counterpart in this list.
    pub(crate) fn native_keys(&self, openconfig: &Keys) -> Option<Keys> {
        self.translated(openconfig).ok()
    }

    /// True when an OpenConfig entry has a native counterpart in this list, or is a part of the entry above.
    ///
    /// # Errors
    /// With the reason why the device has no such entry.
    pub(super) fn has_place(&self, openconfig: &Keys) -> Result<bool, String> {
        match self.translated(openconfig) {
            Ok(_) => Ok(true),
            Err(NoNativeEntry::NotOurs) => Ok(self.parts.contains(openconfig)),
            Err(NoNativeEntry::Unsupported(reason)) => Err(reason),
        }
    }

    /// True when no OpenConfig entry belongs to anybody else: the list as a whole stands for the native list.
    pub(crate) fn has_all_entries(&self) -> bool {
        self.excluded.is_empty() && !self.keys.iter().any(|it| matches!(it, KeyRule::Fixed(_)))
    }

    /// True when each entry of either list has a counterpart.
    pub(crate) fn is_total(&self) -> bool {
        self.has_all_entries() && !self.can_refuse()
    }

    /// True when the device lacks some entries that OpenConfig could have.
    pub(super) fn can_refuse(&self) -> bool {
        self.numbers.iter().any(Option::is_some)
            || self.keys.iter().any(|it| !matches!(it, KeyRule::Native(_)))
    }

    /// Entries that the keys of the block leave in the list.
    pub(super) fn pattern(&self) -> KeyPattern {
        let fixed = |rule: &KeyRule| match rule {
            KeyRule::Fixed(value) => Some(value.clone()),
            KeyRule::Native(_) | KeyRule::Coded(..) => None,
        };
        KeyPattern(self.keys.iter().map(fixed).collect())
    }

    fn is_excluded(&self, openconfig: &Keys) -> bool {
        self.excluded.iter().any(|pattern| pattern.matches(openconfig))
    }

    fn translated(&self, openconfig: &Keys) -> Result<Keys, NoNativeEntry> {
        let fits = |(rule, value): (&KeyRule, &Value)| match rule {
            KeyRule::Fixed(fixed) => fixed == value,
            KeyRule::Native(_) | KeyRule::Coded(..) => true,
        };
        if !self.keys.iter().zip(openconfig).all(fits) || self.is_excluded(openconfig) {
            return Err(NoNativeEntry::NotOurs);
        }
        let count = self.keys.iter().filter(|it| it.native().is_some()).count();
        (0..count).map(|place| self.native_key(place, openconfig)).collect()
    }

    /// The native key at an index.
    fn native_key(&self, place: usize, openconfig: &Keys) -> Result<Value, NoNativeEntry> {
        let at = self.keys.iter().position(|it| it.native() == Some(place));
        let at = at.ok_or(NoNativeEntry::NotOurs)?;
        let value = openconfig.get(at).ok_or(NoNativeEntry::NotOurs)?;
        let found = match &self.keys[at] {
            KeyRule::Coded(_, codec) => key_to_native(codec, value)?,
            KeyRule::Native(_) | KeyRule::Fixed(_) => value.clone(),
        };
        match &self.numbers[at] {
            Some(it) if !it.native.takes(&found) => {
                let reason =
                    format!("the device has no entry `{found}`: a key has to be {}", it.native);
                Err(NoNativeEntry::Unsupported(reason))
            }
            _ => Ok(found),
        }
    }
}

impl KeyRule {
    /// Value of the OpenConfig key in a native entry; `None` when OpenConfig has none for it.
    pub(crate) fn value(&self, native: &Keys) -> Option<Value> {
        match self {
            KeyRule::Fixed(value) => Some(value.clone()),
            KeyRule::Native(place) => native.get(*place).cloned(),
            KeyRule::Coded(place, codec) => {
                let key = native.get(*place)?;
                let value = (codec.up)(key)?;
                ((codec.down)(&value).as_ref() == Ok(key)).then_some(value)
            }
        }
    }

    /// Index of the native key.
    pub(super) fn native(&self) -> Option<usize> {
        match self {
            KeyRule::Fixed(_) => None,
            KeyRule::Native(place) | KeyRule::Coded(place, _) => Some(*place),
        }
    }
}

/// Translates a key. Two OpenConfig keys may not become one, so only a key that comes back as itself is taken.
fn key_to_native(codec: &Codec, value: &Value) -> Result<Value, NoNativeEntry> {
    let native = (codec.down)(value).map_err(NoNativeEntry::Unsupported)?;
    match (codec.up)(&native) {
        Some(shown) if shown == *value => Ok(native),
        Some(shown) => {
            let reason = format!("the key `{value}` is another name of `{shown}`, use that");
            Err(NoNativeEntry::Unsupported(reason))
        }
        None => {
            let reason = format!("the device has no entry with the key `{value}`");
            Err(NoNativeEntry::Unsupported(reason))
        }
    }
}
