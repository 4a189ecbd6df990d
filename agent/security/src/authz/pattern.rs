//! Patterns of a policy: an exact text, or a `*` at one end.

/// Condition on a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Exact(String),
    /// `abc*`
    Prefix(String),
    /// `*abc`
    Suffix(String),
    /// `*`: any text but the empty one.
    Presence,
}

/// A pattern that can never match as its author intended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a `*` may occur once: alone, at the beginning or at the end")]
pub struct PatternError;

impl Pattern {
    pub(super) fn parse(text: &str) -> Result<Self, PatternError> {
        let part =
            |part: &str| if part.contains('*') { Err(PatternError) } else { Ok(part.to_owned()) };
        match (text, text.strip_suffix('*'), text.strip_prefix('*')) {
            ("*", ..) => Ok(Self::Presence),
            (_, Some(prefix), _) => Ok(Self::Prefix(part(prefix)?)),
            (_, None, Some(suffix)) => Ok(Self::Suffix(part(suffix)?)),
            (_, None, None) => Ok(Self::Exact(part(text)?)),
        }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => text == exact,
            Self::Prefix(prefix) => text.starts_with(prefix),
            Self::Suffix(suffix) => text.ends_with(suffix),
            Self::Presence => !text.is_empty(),
        }
    }
}
