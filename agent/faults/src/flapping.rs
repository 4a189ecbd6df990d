//! Conditions that come and go too often.

use std::collections::VecDeque;
use std::time::Duration;

/// A condition that began more often than this within [`FLAPPING_WINDOW`] flaps.
pub const FLAPPING_LOSSES: u64 = 5;
/// The time in which losses are counted, and after which a quiet condition does not flap any more.
pub const FLAPPING_WINDOW: Duration = Duration::from_secs(10);
/// Begins that are kept for one condition: as many as a policy may count, and more than make one flap.
const KEPT_BEGINS: usize = 1000;

/// When a condition began lately.
#[derive(Clone, Debug, Default)]
pub(crate) struct Begins {
    /// Moments, each with the number of begins that were seen by then; some may be seen together.
    recent: VecDeque<(Duration, u64)>,
    last_change: Duration,
}

impl Begins {
    /// Notes a change, with the number of times that the condition has begun by it.
    pub(crate) fn note(&mut self, begins: u64, now: Duration) {
        self.last_change = now;
        if begins == 0 {
            return;
        }
        self.recent.push_back((now, begins));
        if self.recent.len() > KEPT_BEGINS {
            self.recent.pop_front();
        }
    }

    /// How often the condition began within a window that ends now.
    pub(crate) fn within(&self, window: Duration, now: Duration) -> u64 {
        let recent = self.recent.iter().rev();
        recent
            .take_while(|(at, _)| now.saturating_sub(*at) <= window)
            .map(|(_, begins)| begins)
            .sum()
    }

    /// The moment at which a flapping condition has been quiet for long enough.
    pub(crate) fn quiet_at(&self) -> Duration {
        self.last_change + FLAPPING_WINDOW
    }

    pub(crate) fn flaps(&self, now: Duration) -> bool {
        self.within(FLAPPING_WINDOW, now) > FLAPPING_LOSSES
    }

    /// The moment at which nothing of a condition that stays quiet counts any more.
    pub(crate) fn forgotten_at(&self, window: Duration) -> Duration {
        self.last_change + window.max(FLAPPING_WINDOW)
    }

    /// Forgets what is older than all windows.
    pub(crate) fn forget(&mut self, window: Duration, now: Duration) {
        let kept = window.max(FLAPPING_WINDOW);
        while self.recent.front().is_some_and(|(at, _)| now.saturating_sub(*at) > kept) {
            self.recent.pop_front();
        }
    }
}
