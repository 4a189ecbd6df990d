//! Bonds whose members have changed are read, at once and when LACP has settled.
//!
//! The kernel announces a member whose carrier is lost before LACP has drawn its conclusions, and a member that is used again
//! before the bond shows its partner. It announces neither afterwards.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nix::poll::PollTimeout;
use smol_str::SmolStr;
use tracing::debug;

use super::{Event, Task};
use crate::kinds::reading::Query;

/// Time until what was announced of a member has come to its end. The kernel's state machine of LACP runs every 100 ms
/// (`AD_TIMER_INTERVAL`), and attaches a member to a group after two seconds (`AD_AGGREGATE_WAIT_TIME`).
const SETTLING: Duration = Duration::from_millis(2_500);

/// Bonds that are read once more when they have settled.
#[derive(Debug, Default)]
pub(super) struct UnsettledBonds {
    names: BTreeSet<SmolStr>,
    due: Option<Instant>,
}

impl UnsettledBonds {
    /// Time until the next reading.
    pub(super) fn timeout(&self) -> PollTimeout {
        let Some(due) = self.due else { return PollTimeout::NONE };
        let left = due.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    }

    fn add(&mut self, names: &BTreeSet<SmolStr>) {
        if !names.is_empty() {
            self.names.extend(names.iter().cloned());
            self.due = Some(Instant::now() + SETTLING);
        }
    }

    /// Bonds that have settled.
    fn take_settled(&mut self) -> BTreeSet<SmolStr> {
        if self.due.is_none_or(|due| due > Instant::now()) {
            return BTreeSet::new();
        }
        self.due = None;
        std::mem::take(&mut self.names)
    }
}

impl Task {
    /// Reads the bonds whose members have changed, and those that have settled since with their members.
    pub(super) fn reread_bonds(&mut self) {
        for bond in self.unsettled_bonds.take_settled() {
            for member in self.links.bonds().members(&bond) {
                self.reread_for_bond(member);
            }
            self.reread_for_bond(bond);
        }
        let changed = self.links.bonds().take_in_doubt();
        self.unsettled_bonds.add(&changed);
        changed.into_iter().for_each(|bond| self.reread_for_bond(bond));
    }

    /// Reads a link. The answer may also be about the members of a bond.
    fn reread_for_bond(&mut self, link: SmolStr) {
        match self.query(&Query::Link(link.clone())) {
            Ok(facts) => self.mailbox.post(Event::Observed(facts)),
            Err(error) => debug!(%link, %error, "a link of a bond cannot be read"),
        }
    }
}
