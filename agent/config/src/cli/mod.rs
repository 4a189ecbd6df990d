//! The native model as text for people: blocks of lines, generated from the schema alone.
//!
//! ```text
//! # one line is one statement
//! interface eth0
//!   mtu 1400
//!   ipv4
//!     address 10.0.0.1
//!       prefix-length 24
//! no interface eth9
//! system hostname box ! a path on one line
//! ```
//! A word is the name of a node; the keys of a list follow its name, the value of a leaf follows the leaf's name.
//! A container of a single list has no word of its own. Lines that are indented deeper than a line are relative to
//! its node. [`parse`] turns a text into statements, [`print()`] a tree into text; the effect of statements on a
//! layer is defined elsewhere.

mod grammar;
mod lines;
mod next;
mod parse;
mod print;
mod running;

pub use grammar::Grammar;
pub use lines::write_word;
pub use next::{NextWord, next_word};
pub use parse::{SkeletonLine, UNKNOWN, parse, parse_with_progress, read_skeleton};
pub use print::{LinePrinter, line, print, print_with_notes};
pub use running::running;

use std::fmt;

use crate::instance::InstancePath;
use crate::progress::StopReason;
use crate::value::Value;

/// Origins that select CLI text in gNMI. Answers use the first one; the second is common among clients of other
/// vendors.
pub const ORIGINS: [&str; 2] = ["holdfast_cli", "cli"];

/// Meaning of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Line number, counted from 1.
    pub line: usize,
    pub path: InstancePath,
    pub act: StatementAction,
}

/// Effect of a line on the node that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementAction {
    /// Sets a leaf or a whole leaf-list.
    Set(Value),
    /// Creates a list entry or presence container.
    Create,
    /// Removes the node and everything below it.
    No,
}

/// A line that is not valid in the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    /// Line number, counted from 1.
    pub line: usize,
    /// The line as it was given, without surrounding blanks.
    pub text: String,
    pub reason: String,
    /// Set when the rest of the text was not read either.
    pub stop: Option<StopReason>,
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Characters of a bad line that a message repeats.
        const SHOWN: usize = 80;
        let quoted =
            self.text.char_indices().nth(SHOWN).map_or(&*self.text, |(cut, _)| &self.text[..cut]);
        let more = if quoted.len() < self.text.len() { "..." } else { "" };
        write!(f, "line {}: `{quoted}{more}`: {}", self.line, self.reason)
    }
}

impl std::error::Error for CliError {}

#[cfg(test)]
mod tests;
