//! Mistakes in the configuration file, each with its place.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use holdfast_services::Position;

/// Something wrong at a place of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{}:{}: {reason}", file.display(), position.line, position.column)]
pub struct Mistake {
    pub file: PathBuf,
    pub position: Position,
    pub reason: String,
}

impl Mistake {
    pub(super) fn at(file: &Path, text: &str, span: &Range<usize>, reason: String) -> Self {
        Self { file: file.to_owned(), position: Position::of(text, span.start), reason }
    }
}

/// All mistakes of a file, a line each, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub(super) Vec<Mistake>);

impl Mistakes {
    /// An error for all mistakes, if there are any.
    pub(super) fn of(mut mistakes: Vec<Mistake>) -> Result<(), Self> {
        mistakes.sort_by_key(|mistake| mistake.position);
        if mistakes.is_empty() { Ok(()) } else { Err(Self(mistakes)) }
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Mistakes {}
