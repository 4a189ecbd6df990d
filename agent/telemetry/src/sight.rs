//! How much of what a walk comes by its reader may see.

use holdfast_config::Step;
use holdfast_security::pathz::nodes::{NodeView, step};
use holdfast_security::pathz::{Action, Position};

/// What of a node and of everything below it may be seen. Where nothing may, there is no sight of it.
#[derive(Clone, Debug)]
pub(super) enum Sight {
    All,
    /// Rules differ about it.
    Some(Position),
}

impl Sight {
    /// Of the root, and all that is below.
    pub(super) fn whole(rights: Option<&NodeView>) -> Self {
        rights.map_or(Self::All, |view| Self::Some(view.root()))
    }

    /// Of what stands one step below.
    pub(super) fn below(&self, rights: Option<&NodeView>, to: &Step) -> Option<Self> {
        let (Self::Some(position), Some(view)) = (self, rights) else { return Some(Self::All) };
        let position = step(view, position, to);
        match (position.is_settled(), position.action()) {
            (true, Action::Permit) => Some(Self::All),
            (true, Action::Deny) => None,
            (false, _) => Some(Self::Some(position)),
        }
    }

    /// Whether the node may be seen, and not only something below it.
    pub(super) fn shows_itself(&self) -> bool {
        match self {
            Self::All => true,
            Self::Some(position) => position.action() == Action::Permit,
        }
    }
}
