//! Errors of a value and the time of the next try: back-off after failures, damping of repairs.

use std::time::Duration;

use crate::dependency::Target;
use crate::operation::{ErrorClass, OperationError};

/// Upper bound of the pause before the second try; doubles with each try. A busy kernel is busy for milliseconds, and
/// nobody notices a second.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Upper bound of all pauses between tries: as long as a person waits for the next one.
const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// Lower bound of the pause between two tries: anything shorter is the same try.
const RETRY_SHORTEST: Duration = Duration::from_millis(10);
/// Delay between a change that triggers a retry and the retry: things rarely change alone.
const TRIGGER_SETTLE: Duration = Duration::from_millis(5);
/// Upper bound of the pause between two repairs: as long as a person waits for one.
const PAUSE_LONGEST: Duration = Duration::from_secs(60);
/// Delay between an observed drift and its repair: late notifications of our own changes arrive within it.
const DRIFT_SETTLE: Duration = Duration::from_millis(20);
/// Time in place after which the damping of repairs starts from zero.
const QUIET: Duration = Duration::from_secs(60);
/// Number of doublings after which every pause has reached its upper bound.
const DOUBLINGS_MOST: u32 = 20;

/// Errors and drift of a value since it was last in place.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryState {
    pub(crate) error: Option<OperationError>,
    /// Targets whose change triggers another try.
    pub(crate) triggers: Box<[Target]>,
    /// Tries since the last success.
    pub(crate) attempts: u32,
    /// Repairs since the value was last quiet.
    repairs: u32,
    repaired: Option<Duration>,
    /// True when the value was seen in place again since the next look was scheduled.
    pub(crate) has_returned: bool,
    /// Time of the next look at the value; listed in the timers of the engine as well.
    pub(crate) due: Option<Duration>,
}

impl RetryState {
    /// Records a failure. Returns the pause before the next try, where time alone may help.
    pub(crate) fn failed(
        &mut self,
        error: OperationError,
        class: ErrorClass,
        random: u64,
    ) -> Option<Duration> {
        self.attempts += 1;
        self.error = Some(error);
        let pause = doubled(RETRY_FIRST, self.attempts - 1, RETRY_LONGEST);
        let may_pass = matches!(class, ErrorClass::Transient | ErrorClass::Unmet);
        may_pass.then(|| jittered(pause, random))
    }

    /// Delay after a triggering change; doubles with each failure.
    pub(crate) fn trigger_pause(&self) -> Duration {
        doubled(TRIGGER_SETTLE, self.attempts.saturating_sub(1), PAUSE_LONGEST)
    }

    /// Time at which to repair a drift seen now; the delay doubles with each repair.
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

/// Random pause up to this one, so that values that failed together do not retry together.
fn jittered(pause: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(pause.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random % nanos.saturating_add(1).max(1)).max(RETRY_SHORTEST)
}

/// Pseudo-random numbers, reproducible from a seed in tests: SplitMix64 of Steele, Lea and Flood, 2014.
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
    fn jitter_repeats_for_one_seed_only() {
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
