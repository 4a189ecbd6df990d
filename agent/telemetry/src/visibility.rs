//! Visibility of nodes for a reader during a walk.

use holdfast_config::Step;
use holdfast_security::pathz::nodes::{NodeView, step};
use holdfast_security::pathz::{Action, Position};

/// Visibility of a subtree for one reader. A completely hidden subtree has none.
#[derive(Clone, Debug)]
pub(super) enum Visibility {
    All,
    /// Decided by rules for parts of it.
    ByRules(Position),
}

impl Visibility {
    /// Visibility of the root.
    pub(super) fn of_root(rights: Option<&NodeView>) -> Self {
        rights.map_or(Self::All, |view| Self::ByRules(view.root()))
    }

    /// Visibility of a node one step below.
    pub(super) fn below(&self, rights: Option<&NodeView>, to: &Step) -> Option<Self> {
        let (Self::ByRules(position), Some(view)) = (self, rights) else { return Some(Self::All) };
        let position = step(view, position, to);
        match (position.has_no_rule_below(), position.action()) {
            (true, Action::Permit) => Some(Self::All),
            (true, Action::Deny) => None,
            (false, _) => Some(Self::ByRules(position)),
        }
    }

    /// True when the node itself is visible, and not only some of its descendants.
    pub(super) fn is_node_visible(&self) -> bool {
        match self {
            Self::All => true,
            Self::ByRules(position) => position.action() == Action::Permit,
        }
    }
}
