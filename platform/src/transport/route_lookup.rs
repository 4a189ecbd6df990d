//! Routes of routing daemons that the kernel uses.
//!
//! The kernel's announcements of them are filtered, because a daemon may have a million. So the kernel is asked for single
//! destinations.

use std::collections::BTreeMap;

use tokio::sync::oneshot;

use super::rtnetlink::{Command, CommandSender};
use crate::values::{Destination, KernelRoute};

/// Destinations that the kernel is asked for at a time: some milliseconds, for which the transport's other commands wait.
const PORTION: usize = 500;

/// Routes of daemons that the kernel uses, by destination.
pub type BestRoutes = BTreeMap<Destination, KernelRoute>;

/// Asks the kernel which routes it uses.
#[derive(Clone, Debug, Default)]
pub struct RouteLookup {
    /// `None` for a kernel that has no routes of daemons: the simulated one.
    line: Option<CommandSender>,
}

impl RouteLookup {
    pub(crate) fn new(line: CommandSender) -> Self {
        Self { line: Some(line) }
    }

    /// Of these destinations, those for which the kernel uses a daemon's route to the same destination, with that route. It costs
    /// the kernel one or two look-ups for each, and never a list of its routes. A destination that more specific routes hide at
    /// its first and at its last address is left out.
    pub async fn of_daemons(&self, destinations: &[Destination]) -> BestRoutes {
        let mut found = BestRoutes::new();
        let Some(line) = &self.line else { return found };
        for portion in destinations.chunks(PORTION) {
            let (answer, answered) = oneshot::channel();
            line.command(Command::BestRoutes { of: portion.to_vec(), answer });
            found.extend(answered.await.unwrap_or_default()); // empty when the transport has ended
        }
        found
    }
}
