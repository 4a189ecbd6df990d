//! Errors of a value, and when to try again: back-off after failures, damping of repairs.

use std::time::Duration;

use crate::dependency::Target;
use crate::operation::{ErrorClass, OperationError};

/// The pause before the second try is anything up to this: a kernel that was busy is so for milliseconds, and a second
/// is not noticed. It doubles with each try.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Longest pause between two tries: a person waiting for the next one is patient that long.
const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// Shortest pause between two tries: with less, it is the same try.
const RETRY_SHORTEST: Duration = Duration::from_millis(10);
/// Between a change of what an operation failed for, and its next try: things rarely change alone.
const TRIGGER_SETTLE: Duration = Duration::from_millis(5);
/// Longest pause between two repairs: a person waiting for one is patient that long.
const PAUSE_LONGEST: Duration = Duration::from_secs(60);
/// Between a drift seen and its repair: late notifications of our own changes arrive within this.
const DRIFT_SETTLE: Duration = Duration::from_millis(20);
/// A value that stayed in place this long starts afresh: its next drift is repaired at once.
const QUIET: Duration = Duration::from_secs(60);
/// Doublings after which the pause has long been the longest.
const DOUBLINGS_MOST: u32 = 20;

/// What went wrong with a value since it was last in place.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryState {
    pub(crate) error: Option<OperationError>,
    /// What may change so that another try is worth it.
    pub(crate) triggers: Box<[Target]>,
    /// Tries since the last success.
    pub(crate) attempts: u32,
    /// Repairs since the value was last quiet.
    repairs: u32,
    repaired: Option<Duration>,
    /// When to look at the value again; stands in the engine's list of timers as well.
    pub(crate) due: Option<Duration>,
}

impl RetryState {
    /// Notes a failure. Gives the pause before the next try, where time alone may help.
    pub(crate) fn failed(
        &mut self,
        error: OperationError,
        class: ErrorClass,
        random: u64,
    ) -> Option<Duration> {
        self.attempts += 1;
        self.error = Some(error);
        let pause = doubled(RETRY_FIRST, self.attempts - 1, RETRY_LONGEST);
        (class == ErrorClass::Transient).then(|| jittered(pause, random))
    }

    /// How long after a change of what it failed for it is tried again: the more often in vain, the later.
    pub(crate) fn trigger_pause(&self) -> Duration {
        doubled(TRIGGER_SETTLE, self.attempts.saturating_sub(1), PAUSE_LONGEST)
    }

    /// When a drift seen now is to be repaired: the more often, the later.
    pub(crate) fn drifted(&mut self, now: Duration) -> Duration {
        if self.repaired.is_none_or(|last| now.saturating_sub(last) > QUIET) {
            self.repairs = 0;
        }
        now + doubled(DRIFT_SETTLE, self.repairs, PAUSE_LONGEST)
    }

    pub(crate) fn repairing(&mut self, now: Duration) {
        self.repairs = self.repairs.saturating_add(1);
        self.repaired = Some(now);
    }
}

fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    first.saturating_mul(1 << times.min(DOUBLINGS_MOST)).min(longest)
}

/// Any pause up to this one, so that values that failed together do not try together.
fn jittered(pause: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random % nanos.saturating_add(1).max(1)).max(RETRY_SHORTEST)
}

/// Numbers that nobody foresees, or that a test repeats: SplitMix64 of Steele, Lea and Flood, 2014.
#[derive(Clone, Debug, Default)]
pub(crate) struct JitterRng(pub(crate) u64);

impl JitterRng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let busy = OperationError { errno: Some(16), message: "busy".into(), transient: true };
        let mut retry = RetryState::default();
        let mut pause = |random| retry.failed(busy.clone(), ErrorClass::Transient, random);
        for longest in [1, 2, 4, 8, 16, 32, 60] {
            assert_eq!(pause(longest * 1_000_000_000), Some(Duration::from_secs(longest)));
        }
        assert_eq!(pause(60_000_000_001), Some(RETRY_SHORTEST), "any pause up to the longest");
        let none = RetryState::default().failed(busy, ErrorClass::Environment, 0);
        assert_eq!(none, None, "time alone does not help");
    }

    #[test]
    fn chance_repeats_itself_for_one_seed_only() {
        let draws = |seed| {
            (0..4)
                .scan(JitterRng(seed), |jitter_rng, _| Some(jitter_rng.next()))
                .collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }

    #[test]
    fn repairs_slow_down_and_recover_after_a_quiet_time() {
        let mut retry = RetryState::default();
        let mut now = Duration::from_secs(1);
        for want in [20, 40, 80] {
            assert_eq!(retry.drifted(now) - now, Duration::from_millis(want));
            retry.repairing(now);
            now += Duration::from_secs(1);
        }
        now += QUIET;
        assert_eq!(retry.drifted(now) - now, DRIFT_SETTLE);
    }
}
