//! Errors in packages: a file, a place in it, and a reason.

use std::fmt;
use std::ops::Range;

use smol_str::SmolStr;

/// Place in a text, both counted from 1; the column counts characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

/// Reason to refuse a package, or to warn of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}{reason}", place = Prefix(self))]
pub struct PackageError {
    /// File of the package; empty where the archive itself is wrong.
    pub file: SmolStr,
    pub position: Option<Position>,
    pub reason: String,
}

/// All errors of a package. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackageErrors(pub Vec<PackageError>);

impl Position {
    /// Place of a byte of a text.
    pub fn of(text: &str, octet: usize) -> Self {
        let before = &text[..text.floor_char_boundary(octet)];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
        }
    }
}

impl PackageError {
    pub fn of_file(file: &str, reason: impl fmt::Display) -> Self {
        Self { file: file.into(), position: None, reason: reason.to_string() }
    }

    /// Error in the part of a file's text at `span`.
    pub fn at(file: &str, text: &str, span: &Range<usize>, reason: impl fmt::Display) -> Self {
        Self::in_line(file, Position::of(text, span.start), reason)
    }

    pub fn in_line(file: &str, position: Position, reason: impl fmt::Display) -> Self {
        Self { file: file.into(), position: Some(position), reason: reason.to_string() }
    }
}

impl fmt::Display for PackageErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            let line = if number == 0 { "" } else { "\n" };
            write!(f, "{line}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PackageErrors {}

impl From<PackageError> for PackageErrors {
    fn from(error: PackageError) -> Self {
        Self(vec![error])
    }
}

/// Formats the place of an error, followed by a colon and a blank.
struct Prefix<'a>(&'a PackageError);

impl fmt::Display for Prefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PackageError { file, position, .. } = self.0;
        match position {
            Some(Position { line, column }) => write!(f, "{file}:{line}:{column}: "),
            None if file.is_empty() => Ok(()),
            None => write!(f, "{file}: "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters_from_one() {
        for (octet, line, column) in [(0, 1, 1), (2, 1, 2), (3, 1, 3), (4, 2, 1), (6, 2, 3)] {
            assert_eq!(Position::of("äb\ncd", octet), Position { line, column }, "{octet}");
        }
    }
}
