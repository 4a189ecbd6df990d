//! pathz: who may read and write which gNMI path.
//!
//! Start at [`Draft::check`] for what a policy must look like, at [`trie`] for how it decides. A policy is a set without
//! order: of the rules that are about a path or something above it, the best match decides, and without one the answer is
//! no. Paths are text here; [`trie`] takes whatever names and values its caller walks over, so that data is judged by
//! nodes of a schema and a Probe by text, with one set of rules.
//!
//! Source: the gNSI documents on pathz, "Best Match".

pub mod nodes;
mod policy;
#[cfg(test)]
mod tests;
pub mod trie;

pub use nodes::{NodeRules, NodeView};
pub use policy::{Draft, DraftRule, Elem, Group, Path, Policy, PolicyError, Rule};
pub use trie::{Entry, Position, Rules, Step, View};

use smol_str::SmolStr;

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    Deny,
    Permit,
}

/// What a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    Read,
    Write,
}

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Principal {
    User(SmolStr),
    Group(SmolStr),
}

impl Principal {
    fn name(&self) -> &str {
        match self {
            Self::User(name) | Self::Group(name) => name,
        }
    }
}
