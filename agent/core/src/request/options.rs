//! Options of the commit of a Set, from the extensions of the request.

use std::fmt;
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
    /// Text of the client for the log of configuration revisions.
    pub comment: Option<Comment>,
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

/// Most characters of a comment: two lines of a terminal.
pub const MAX_COMMENT: usize = 256;

/// Reason of a change in the words of its author: one line of at most [`MAX_COMMENT`] characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comment(SmolStr);

/// A text that is not a comment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a comment must have 1 to {MAX_COMMENT} characters, and no control characters")]
pub struct InvalidComment;

impl Comment {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Comment {
    type Err = InvalidComment;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = (1..=MAX_COMMENT).contains(&text.chars().count());
        if fits && !text.chars().any(char::is_control) {
            Ok(Self(text.into()))
        } else {
            Err(InvalidComment)
        }
    }
}

impl fmt::Display for Comment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
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

/// A text that is not the hash of a plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the hash of a plan: it has 16 hexadecimal digits, and a dry run tells it")]
pub struct InvalidPlanHash(String);

impl FromStr for PlanHash {
    type Err = InvalidPlanHash;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = u64::from_str_radix(text, 16);
        number.map(Self).map_err(|_| InvalidPlanHash(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_one_bounded_line() {
        let longest = "ü".repeat(MAX_COMMENT);
        let too_long = "x".repeat(MAX_COMMENT + 1);
        for (text, is_valid) in [
            ("ticket 4711: \"new uplink\"", true),
            (&longest, true),
            ("", false),
            (&too_long, false),
            ("two\nlines", false),
            ("a bell \u{7}", false),
            ("\u{9b}31m", false),
        ] {
            assert_eq!(text.parse::<Comment>().is_ok(), is_valid, "{text:?}");
        }
    }
}
