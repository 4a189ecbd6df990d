//! Names from models: members of enumerations, and identities.

use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{LazyLock, PoisonError, RwLock};

use smol_str::SmolStr;

/// Name of an enumeration's member or of an identity.
///
/// Hundreds of thousands of leaves share a few hundred names, and all threads read and copy them. Each text is
/// therefore interned for the life of the process, and a name is a pointer to it: copying it needs no counter, and
/// a [`Value`](crate::Value) has room for it next to its tag. Interned memory is never freed, so a name may be
/// made only of text that was looked up in a model or read from our own database, never of client input.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(&'static str);

/// Interned texts of [`Name::of`].
static INTERNED: LazyLock<RwLock<HashSet<&'static str>>> = LazyLock::new(RwLock::default);

impl Name {
    /// Makes a name from a literal.
    pub const fn constant(text: &'static str) -> Self {
        Self(text)
    }

    /// Interns a name from a model.
    pub fn of(text: &str) -> Self {
        // A poisoned lock is harmless: the set is valid after every operation.
        let interned = INTERNED.read().unwrap_or_else(PoisonError::into_inner).get(text).copied();
        Self(interned.unwrap_or_else(|| keep(text)))
    }

    pub fn as_str(self) -> &'static str {
        self.0
    }
}

fn keep(text: &str) -> &'static str {
    let mut interned = INTERNED.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(text_of_set) = interned.get(text) {
        return text_of_set;
    }
    let text_of_set: &'static str = Box::leak(text.into());
    interned.insert(text_of_set);
    text_of_set
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        self.0
    }
}

impl From<&'static str> for Name {
    fn from(text: &'static str) -> Self {
        Self::constant(text)
    }
}

impl From<Name> for SmolStr {
    fn from(name: Name) -> Self {
        SmolStr::new_static(name.0)
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Name;

    #[test]
    fn a_text_is_kept_once() {
        let one = Name::of("kept-once");
        let other = Name::of(&String::from("kept-once"));
        assert!(std::ptr::eq(one.as_str(), other.as_str()));
        assert_eq!(one, Name::constant("kept-once"));
        assert!(Name::of("a") < Name::of("b") && Name::of("b") < Name::of("ba"));
    }
}
