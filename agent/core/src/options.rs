//! Options of the commit of a Set, from the extensions of the request.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::time::Duration;

use smol_str::SmolStr;
use tokio::time::Instant;

use super::follow_up::FollowUp;

/// Options of one commit. The default is a plain Set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitOptions {
    /// The change is made only if its plan has this hash.
    pub expected_plan: Option<PlanHash>,
    /// Beginning of a commit that must be confirmed, or an action on the one that waits.
    pub confirmation: Option<Confirmation>,
    /// Role and election id of the writer, for master arbitration.
    pub election: Option<Election>,
    /// Name that the client gives the change in logs and histories.
    pub trace: Option<SmolStr>,
    /// Time until which the client waits for the answer.
    pub deadline: Option<Instant>,
    /// Report of what follows the commit, if a client waits for it.
    pub follow_up: Option<FollowUp>,
}

/// One step in the life of a commit that must be confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Confirmation {
    /// Identifier of the commit, chosen by the client.
    pub id: SmolStr,
    pub action: ConfirmAction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmAction {
    /// Takes the change back unless it is confirmed within this time.
    Begin { rollback_after: Duration },
    /// Keeps the change.
    Confirm,
    /// Takes the change back now.
    Cancel,
    /// Moves the rollback to this time after the request.
    Extend { rollback_after: Duration },
}

/// Among several writers of a role, the one with the highest id is the master.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// Empty for the default role.
    pub role: SmolStr,
    pub id: u128,
}

/// Hash of a plan: equal plans have equal hashes, in every run and on every machine. Written as 16 hexadecimal digits.
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
