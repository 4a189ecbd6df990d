//! Errors of a value, and when to try again: back-off after failures, damping of repairs.

use std::time::Duration;

use crate::operation::OperationError;

/// First try again after a transient failure. A kernel that was busy is so for milliseconds; a second is not noticed.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two tries or repairs: a person waiting for one is patient that long.
const PAUSE_LONGEST: Duration = Duration::from_secs(60);
/// Between a drift seen and its repair: late notifications of our own changes arrive within this.
const DRIFT_SETTLE: Duration = Duration::from_millis(20);
/// A value that stayed in place this long starts afresh: its next drift is repaired at once.
const QUIET: Duration = Duration::from_secs(60);
/// Doublings after which the pause has long been the longest.
const DOUBLINGS_MOST: u32 = 20;

/// What went wrong with a value since it was last in place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trouble {
    pub(crate) error: Option<OperationError>,
    /// Tries since the last success.
    pub(crate) attempts: u32,
    /// Repairs since the value was last quiet.
    repairs: u32,
    repaired: Option<Duration>,
    /// When to look at the value again; stands in the engine's list of timers as well.
    pub(crate) due: Option<Duration>,
}

impl Trouble {
    /// Notes a failure. Gives the moment of the next try, where time alone may help.
    pub(crate) fn failed(
        &mut self,
        error: OperationError,
        now: Duration,
        salt: u64,
    ) -> Option<Duration> {
        self.attempts += 1;
        let again =
            error.transient.then(|| now + jittered(doubled(RETRY_FIRST, self.attempts - 1), salt));
        self.error = Some(error);
        again
    }

    /// When a drift seen now is to be repaired: the more often, the later.
    pub(crate) fn drifted(&mut self, now: Duration) -> Duration {
        if self.repaired.is_none_or(|last| now.saturating_sub(last) > QUIET) {
            self.repairs = 0;
        }
        now + doubled(DRIFT_SETTLE, self.repairs)
    }

    pub(crate) fn repairing(&mut self, now: Duration) {
        self.repairs = self.repairs.saturating_add(1);
        self.repaired = Some(now);
    }
}

fn doubled(first: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.min(DOUBLINGS_MOST)).min(PAUSE_LONGEST)
}

/// Spreads tries of many values over the last quarter of the pause. Not random, so that a run can be replayed.
fn jittered(pause: Duration, salt: u64) -> Duration {
    let part = u32::try_from(salt % 64).unwrap_or(0);
    pause - pause * part / 256
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut trouble = Trouble::default();
        let busy = OperationError { errno: Some(16), message: "busy".into(), transient: true };
        for want in [1, 2, 4, 8, 16, 32, 60, 60] {
            let at = trouble.failed(busy.clone(), Duration::ZERO, 0).unwrap();
            assert_eq!(at, Duration::from_secs(want));
        }
        assert!(trouble.failed(busy.clone(), Duration::ZERO, 63).unwrap() < PAUSE_LONGEST);
        assert_eq!(trouble.failed(OperationError::message("no"), Duration::ZERO, 0), None);
    }

    #[test]
    fn repairs_slow_down_and_recover_after_a_quiet_time() {
        let mut trouble = Trouble::default();
        let mut now = Duration::from_secs(1);
        for want in [20, 40, 80] {
            assert_eq!(trouble.drifted(now) - now, Duration::from_millis(want));
            trouble.repairing(now);
            now += Duration::from_secs(1);
        }
        now += QUIET;
        assert_eq!(trouble.drifted(now) - now, DRIFT_SETTLE);
    }
}
