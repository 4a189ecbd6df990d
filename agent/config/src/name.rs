//! Names that come from models: members of enumerations, and identities.

use std::collections::HashSet;
use std::fmt;
use std::ops::Deref;
use std::sync::{LazyLock, PoisonError, RwLock};

use smol_str::SmolStr;

/// The name of an enumeration's member or of an identity.
///
/// Leaves by the hundred thousand have one of a few hundred names, and all threads read and copy
/// them. So a text is kept once, for as long as the process runs, and a name is a pointer to it:
/// a copy touches nothing but itself, and a [`Value`](crate::Value) has room for it beside its tag.
/// What makes a name of a text must therefore have looked it up in a model, or read it from our own
/// database: never is one made of what anybody may send.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(&'static str);

/// Every text of [`Name::of`] so far.
static KNOWN: LazyLock<RwLock<HashSet<&'static str>>> = LazyLock::new(RwLock::default);

impl Name {
    /// A name that is written in the source.
    pub const fn constant(text: &'static str) -> Self {
        Self(text)
    }

    /// A name that a model has.
    pub fn of(text: &str) -> Self {
        // A panic elsewhere leaves a set of texts as good as it was.
        let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(text).copied();
        Self(known.unwrap_or_else(|| keep(text)))
    }

    pub fn as_str(self) -> &'static str {
        self.0
    }
}

fn keep(text: &str) -> &'static str {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(kept) = known.get(text) {
        return kept;
    }
    let kept: &'static str = Box::leak(text.into());
    known.insert(kept);
    kept
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
        let (one, other) = (Name::of("kept-once"), Name::of(&String::from("kept-once")));
        assert!(std::ptr::eq(one.as_str(), other.as_str()));
        assert_eq!(one, Name::constant("kept-once"));
        assert!(Name::of("a") < Name::of("b") && Name::of("b") < Name::of("ba"));
    }
}
