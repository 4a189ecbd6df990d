//! pathz: permissions to read and write gNMI paths.
//!
//! Start at [`DraftPolicy::check`] for the rules of a valid policy, at [`trie`] for how it decides. The order of the
//! rules in a policy has no meaning: of all rules for a path or an ancestor of it, the best match decides, and
//! access is denied when none matches. Paths are text here; [`trie`] is generic over names and values, so that
//! data is checked by schema nodes and a Probe by text, under one set of rules.
//!
//! Source: the gNSI documents on pathz, "Best Match".

pub mod nodes;
mod policy;
#[cfg(test)]
mod tests;
pub mod trie;

pub use nodes::{NodeRules, NodeView};
pub use policy::{DraftPolicy, DraftRule, Elem, Group, Path, Policy, PolicyError, Rule};
pub use trie::{CompiledRules, PolicyView, Position, RuleEntry, Step};

use smol_str::SmolStr;

/// Decision of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    Deny,
    Permit,
}

/// Kind of access that a rule covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    Read,
    Write,
}

/// Subject of a rule.
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
