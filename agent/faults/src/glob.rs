//! Patterns of types and resources.

use std::fmt;

use smol_str::SmolStr;

use crate::resource::{KINDS, Resource};
use crate::types::{REPORTED_TYPES, TYPES};

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

    /// True when there is a type of alarm that the pattern fits, or programs may report one.
    pub fn fits_a_type(&self) -> bool {
        TYPES.iter().any(|row| self.matches(row.name)) || self.may_begin_with(REPORTED_TYPES)
    }

    /// True when there may be a resource that the pattern fits.
    pub fn fits_a_resource(&self) -> bool {
        match self.literal() {
            Some(text) => text.parse::<Resource>().is_ok(),
            None => KINDS.iter().any(|kind| self.may_begin_with(kind)),
        }
    }

    /// True when the pattern fits some text with this beginning.
    fn may_begin_with(&self, beginning: &str) -> bool {
        match self.0.split_once('*') {
            Some((first, _)) => first.starts_with(beginning) || beginning.starts_with(first),
            None => self.0.len() > beginning.len() && self.0.starts_with(beginning),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_fit_nothing_are_told() {
        for (pattern, fits_type, fits_resource) in [
            ("*", true, true),
            ("link-down", true, false),
            ("link-*", true, false),
            ("*down", true, true),
            ("link-dwn", false, false),
            ("x-optics", true, false),
            ("x-*", true, false),
            ("x*", true, true),
            ("x-", false, false),
            ("interface:eth1", false, true),
            ("interface:*", false, true),
            ("inter*", false, true),
            ("eth1", false, false),
            ("eth*", false, false),
            ("box", false, true),
            ("", false, false),
        ] {
            let glob = Glob::new(pattern);
            assert_eq!(glob.fits_a_type(), fits_type, "type {pattern}");
            assert_eq!(glob.fits_a_resource(), fits_resource, "resource {pattern}");
        }
    }
}
