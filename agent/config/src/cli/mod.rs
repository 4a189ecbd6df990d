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
//! A word is the name of a node; a list's keys follow its name, a leaf's value the leaf's. A
//! container around nothing but one list has no word of its own. What is indented deeper than a
//! line stands below what the line names. [`parse`] makes statements of a text, [`print()`] the text of
//! a tree; what statements do to a layer is not decided here.

mod grammar;
mod lines;
mod parse;
mod print;
mod running;
mod show;

pub use grammar::Grammar;
pub use parse::{parse, parse_counted};
pub use print::{line, print, print_every};
pub use running::running;
pub use show::{SHOWS, Show, UnknownCommand, show};

use std::fmt;

use crate::instance::InstancePath;
use crate::progress::Stop;
use crate::value::Value;

/// What gNMI calls the origin of these texts. Answers carry the first name, the second is what
/// clients of several makes of boxes send.
pub const ORIGINS: [&str; 2] = ["holdfast_cli", "cli"];

/// What one line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// Counted from 1.
    pub line: usize,
    pub path: InstancePath,
    pub act: Act,
}

/// What becomes of the node that a line names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// A leaf or a whole leaf-list gets this value.
    Set(Value),
    /// A list entry or a presence container comes to be.
    Enter,
    /// Whatever stands there goes.
    No,
}

/// A line that says nothing that the schema knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    /// Counted from 1.
    pub line: usize,
    /// The line as it was given, without what surrounds it.
    pub text: String,
    pub reason: String,
    /// Why the text is read no further, if it is for that.
    pub stop: Option<Stop>,
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// Characters of a bad line that a message repeats.
        const SHOWN: usize = 80;
        let shown =
            self.text.char_indices().nth(SHOWN).map_or(&*self.text, |(cut, _)| &self.text[..cut]);
        let more = if shown.len() < self.text.len() { "..." } else { "" };
        write!(f, "line {}: `{shown}{more}`: {}", self.line, self.reason)
    }
}

impl std::error::Error for CliError {}

#[cfg(test)]
mod tests;
