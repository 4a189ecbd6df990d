//! Origin of a change: who asked for it, and what woke the instances that are walked by themselves.

use std::collections::BTreeMap;
use std::fmt;

use smol_str::SmolStr;

use super::record::ChangeAuthor;
use super::transaction::WalkCause;
use crate::claims::ServiceTag;

/// Origin of a change for which instances are walked.
#[derive(Clone, Debug, Default)]
pub struct ChangeOrigin {
    /// Kind of the change, such as `set`, `walk` or `redeploy`.
    pub kind: SmolStr,
    pub author: ChangeAuthor,
    /// True when somebody asked for the walks; else each goes back to the last change of its instance.
    pub is_requested: bool,
    /// Causes of walks that nobody asked for.
    pub causes: BTreeMap<ServiceTag, WalkCause>,
}

/// Change in which a state has asked for its action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionCause {
    /// Kind of the change.
    pub kind: SmolStr,
    pub author: ChangeAuthor,
    /// Reason of a walk that nobody asked for.
    pub walk: Option<WalkCause>,
}

impl ChangeOrigin {
    /// The author, as the one who asked for the walks; `None` for walks that nobody asked for.
    pub fn requester(&self) -> Option<&ChangeAuthor> {
        Some(&self.author).filter(|_| self.is_requested)
    }

    /// Cause of the actions that an instance asks for in the change.
    pub fn action_cause(&self, tag: &ServiceTag) -> ActionCause {
        let Self { kind, author, is_requested: _, causes } = self;
        let walk = causes.get(tag).cloned();
        ActionCause { kind: kind.clone(), author: author.clone(), walk }
    }
}

impl fmt::Display for ActionCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, author: ChangeAuthor { user, trace }, walk } = self;
        write!(f, "{kind} by {user} ({trace})")?;
        match walk {
            Some(walk) => write!(f, ": {walk}"),
            None => Ok(()),
        }
    }
}
