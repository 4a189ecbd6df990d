//! Patterns of types and resources.

use std::fmt;

use smol_str::SmolStr;

/// A pattern in which `*` stands for any characters, also for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(SmolStr);

impl Glob {
    pub fn new(pattern: &str) -> Self {
        Self(pattern.into())
    }

    /// The only text that the pattern fits, if it has no `*`.
    pub(crate) fn literal(&self) -> Option<&str> {
        (!self.0.contains('*')).then_some(&self.0)
    }

    /// True when the pattern fits all of a text. Takes the first place for each literal part, which is enough, because a later
    /// `*` takes what an earlier one leaves.
    pub fn matches(&self, text: &str) -> bool {
        let mut parts = self.0.split('*');
        let first = parts.next().unwrap_or_default();
        let Some(mut rest) = text.strip_prefix(first) else { return false };
        let mut parts: Vec<&str> = parts.collect();
        let Some(last) = parts.pop() else { return rest.is_empty() };
        for part in parts {
            let Some(at) = rest.find(part) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.len() >= last.len() && rest.ends_with(last)
    }
}

impl Default for Glob {
    /// The pattern that fits everything.
    fn default() -> Self {
        Self::new("*")
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
