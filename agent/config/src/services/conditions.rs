//! Conditions of instances: what their gates and trees came to in a walk that changed nothing, and what may be otherwise now.
//!
//! ```text
//! walk that changes nothing --> conditions
//!                                  |  + places whose reads have other answers, objects whose status differs
//!                                  v
//!                    these conditions alone are judged --> as they were: nothing to do
//!                                                      `-> otherwise: a walk
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smol_str::SmolStr;

/// Results of the conditions of one instance in a walk that changed nothing and failed nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Gates by the texts of their places, as reads name them.
    pub gates: BTreeMap<Arc<str>, GateJudgement>,
    /// Digest of the components that the tree makes, and of the values that it observes; `None` where no tree was evaluated.
    pub tree: Option<u64>,
    /// Digest of the extents to which the objects of the claims are in the kernel.
    pub applied: u64,
}

/// Result of one gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateJudgement {
    /// Type and name of the component.
    pub component: [SmolStr; 2],
    pub state: SmolStr,
    /// True for a delete gate, which keeps the state from being left.
    pub is_of_delete: bool,
    pub is_open: bool,
}

/// An instance for which something may differ since its conditions were judged.
#[derive(Clone, Debug)]
pub struct Touched {
    pub conditions: Arc<Conditions>,
    /// Places of its package with a read that has another answer.
    pub places: BTreeSet<Arc<str>>,
    /// The status of an object of its claims differs.
    pub has_moved: bool,
}

/// Work of walks: what tests check instead of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkWork {
    /// Templates that were rendered.
    pub rendered: usize,
    /// Gates and trees that were evaluated.
    pub conditions: usize,
    /// Inputs of calls and answers whose digests were computed.
    pub digests: usize,
}

impl WalkWork {
    pub fn add(&mut self, other: Self) {
        self.rendered += other.rendered;
        self.conditions += other.conditions;
        self.digests += other.digests;
    }
}
