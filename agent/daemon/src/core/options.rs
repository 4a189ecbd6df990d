//! What a Set says about its own commit, beside what it changes.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use smol_str::SmolStr;

/// Options of one commit. The default is a plain Set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitOptions {
    /// The change is made only if its plan has this hash.
    pub expected_plan: Option<PlanHash>,
    /// It begins a commit that must be confirmed, or is about the one that waits for it.
    pub confirmation: Option<Confirmation>,
    /// The writer's place among the writers of its role.
    pub election: Option<Election>,
}

/// One step in the life of a commit that must be confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// By which the client knows the commit.
    pub id: SmolStr,
    pub action: ConfirmAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmAction {
    /// The change is taken back when nobody confirms it within this time.
    Begin { rollback_after: Duration },
    /// The change stays.
    Confirm,
    /// The change is taken back now.
    Cancel,
    /// It is taken back this long from now.
    Extend { rollback_after: Duration },
}

/// Among several writers of a role, the one with the highest id is the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Empty for the default role.
    pub role: SmolStr,
    pub id: u128,
}

/// Names a plan: equal plans have equal hashes, in every run and on every machine. Written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanHash(pub u64);

impl fmt::Display for PlanHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for PlanHash {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}
