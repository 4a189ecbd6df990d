//! Errors of a value and the time of the next try: back-off after failures, damping of repairs.

use std::time::Duration;

use crate::dependency::Target;
use crate::operation::{ErrorClass, OperationError};
use crate::status::ValueState;

/// Upper bound of the pause before the second try; doubles with each try. A busy kernel is busy for milliseconds, and
/// nobody notices a second.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Upper bound of all pauses between tries: as long as a person waits for the next one.
const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// Lower bound of the pause between two tries: anything shorter is the same try.
const RETRY_SHORTEST: Duration = Duration::from_millis(10);
/// Pause before the first try that nothing but time begins, of a value whose error time is not expected to mend. A kernel
/// gives one errno for many reasons, and some of them pass without any event: half a minute is soon enough for what nobody
/// announces, and seldom enough to be no load.
const SLOW_RETRY_FIRST: Duration = Duration::from_secs(30);
/// Upper bound of the pause between two such tries; the pause doubles up to it. Somebody who has mended the reason by hand
/// waits no longer than this.
const SLOW_RETRY_LONGEST: Duration = Duration::from_secs(600);
/// Delay between a change that triggers a retry and the retry: things rarely change alone.
const TRIGGER_SETTLE: Duration = Duration::from_millis(5);
/// Upper bound of the pause before a triggered retry or a repair: as long as a person waits for one.
const PAUSE_LONGEST: Duration = Duration::from_secs(60);
/// Delay between an observed drift and its repair: late notifications of our own changes arrive within it.
const DRIFT_SETTLE: Duration = Duration::from_millis(20);
/// Time without a triggered retry, or without a repair, after which its damping starts from zero.
const QUIET: Duration = Duration::from_secs(60);
/// Number of doublings after which every pause has reached its upper bound.
const DOUBLINGS_MOST: u32 = 20;

/// Next look at a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextLook {
    pub(crate) at: Duration,
    /// True for a try that nothing but time begins.
    pub(crate) is_slow: bool,
}

/// Loss of a value that is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    /// Wall clock of the fact that told of it, nanoseconds since 1970.
    pub(crate) since_ns: u64,
    /// State that was told last; `None` as long as it may be a late notification.
    pub(crate) told: Option<ValueState>,
}

/// Errors and drift of a value since it was last in place.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryState {
    pub(crate) error: Option<OperationError>,
    /// Targets whose change triggers another try.
    pub(crate) triggers: Box<[Target]>,
    /// Tries since the last success.
    pub(crate) attempts: u32,
    /// Tries since the last success that nothing but time began.
    slow_retries: u32,
    /// Tries that a changed target began, since none did for a while, and the time of the last one.
    triggered: u32,
    last_triggered: Option<Duration>,
    /// The value is not in the system as it was applied.
    pub(crate) loss: Option<Loss>,
    /// The value differs because of what it follows, and not because anybody has changed it.
    pub(crate) has_to_follow: bool,
    /// Repairs since the value was last quiet.
    pub(crate) repairs: u32,
    repaired: Option<Duration>,
    /// True when the value was seen in place again since the next look was scheduled.
    pub(crate) has_returned: bool,
    /// Time of the next look at the value; listed in the timers of the engine as well. A value with an error always has one,
    /// while no operation on it is under way.
    pub(crate) due: Option<Duration>,
    /// True when the next look is a slow retry: anything that asks for an earlier one takes its place.
    is_slow: bool,
}

impl RetryState {
    /// Records a failure. Returns the next try.
    pub(crate) fn failed(
        &mut self,
        error: OperationError,
        class: ErrorClass,
        now: Duration,
        random: u64,
    ) -> NextLook {
        self.attempts = self.attempts.saturating_add(1);
        self.error = Some(error);
        if !matches!(class, ErrorClass::Transient | ErrorClass::Unmet) {
            return self.slow_retry(now);
        }
        let pause = doubled(RETRY_FIRST, self.attempts - 1, RETRY_LONGEST);
        NextLook { at: now + jittered(pause, random), is_slow: false }
    }

    /// Slow retry of a value that failed. Values that failed together are tried together, in one transaction.
    pub(crate) fn slow_retry(&self, now: Duration) -> NextLook {
        let pause = doubled(SLOW_RETRY_FIRST, self.slow_retries, SLOW_RETRY_LONGEST);
        NextLook { at: now + pause, is_slow: true }
    }

    /// Retry after a change that triggers one; the delay doubles with each.
    pub(crate) fn triggered_retry(&mut self, now: Duration) -> NextLook {
        if self.last_triggered.is_none_or(|last| now.saturating_sub(last) > QUIET) {
            self.triggered = 0;
        }
        let at = now + doubled(TRIGGER_SETTLE, self.triggered, PAUSE_LONGEST);
        self.triggered = self.triggered.saturating_add(1);
        self.last_triggered = Some(at);
        NextLook { at, is_slow: false }
    }

    /// Replaces the time of the next look. Returns that of before.
    pub(crate) fn schedule(&mut self, look: NextLook) -> Option<Duration> {
        self.is_slow = look.is_slow;
        self.due.replace(look.at)
    }

    /// Takes the look that is due. True when it is a slow retry, which is counted.
    pub(crate) fn take_due(&mut self) -> bool {
        self.due = None;
        let is_slow_retry = std::mem::take(&mut self.is_slow) && self.error.is_some();
        self.slow_retries = self.slow_retries.saturating_add(is_slow_retry.into());
        is_slow_retry
    }

    /// True when the next look is one that the error, a target, or drift asked for, and no slow retry.
    pub(crate) fn is_due_soon(&self) -> bool {
        self.due.is_some() && !self.is_slow
    }

    /// Clears the error and the loss. Returns the error, and the time of the look that is not needed any more.
    pub(crate) fn clear(&mut self) -> (Option<OperationError>, Option<Duration>) {
        self.attempts = 0;
        self.slow_retries = 0;
        self.is_slow = false;
        self.loss = None;
        (self.error.take(), self.due.take())
    }

    /// Look at a drift seen now, to repair it; the delay doubles with each repair.
    pub(crate) fn drifted(&mut self, now: Duration) -> NextLook {
        if self.repaired.is_none_or(|last| now.saturating_sub(last) > QUIET) {
            self.repairs = 0;
        }
        let at = now + doubled(DRIFT_SETTLE, self.repairs, PAUSE_LONGEST);
        NextLook { at, is_slow: false }
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

    const BUSY: OperationError =
        OperationError { errno: Some(16), message: String::new(), transient: true };

    #[test]
    fn pauses_double_up_to_the_longest() {
        let now = Duration::from_secs(7);
        let mut retry = RetryState::default();
        let mut pause = |random| {
            let look = retry.failed(BUSY, ErrorClass::Transient, now, random);
            assert!(!look.is_slow);
            look.at - now
        };
        for longest in [1, 2, 4, 8, 16, 32, 60] {
            assert_eq!(pause(longest * 1_000_000_000), Duration::from_secs(longest));
        }
        assert_eq!(pause(60_000_000_001), RETRY_SHORTEST, "any pause up to the longest");
    }

    #[test]
    fn pauses_of_slow_retries_double_up_to_ten_minutes() {
        for class in [ErrorClass::Environment, ErrorClass::Permanent] {
            let mut now = Duration::from_secs(7);
            let mut retry = RetryState::default();
            for pause in [30, 60, 120, 240, 480, 600, 600] {
                let look = retry.failed(BUSY, class, now, 0);
                assert_eq!((look.at - now, look.is_slow), (Duration::from_secs(pause), true));
                assert_eq!((retry.schedule(look), retry.is_due_soon()), (None, false));
                now = look.at;
                assert!(retry.take_due());
            }
            retry.clear();
            assert_eq!(retry.failed(BUSY, class, now, 0).at - now, SLOW_RETRY_FIRST);
        }
    }

    #[test]
    fn triggered_retries_slow_down_and_recover_after_a_quiet_time() {
        let mut now = Duration::from_secs(7);
        let mut retry = RetryState::default();
        for pause in [5, 10, 20] {
            assert_eq!(retry.triggered_retry(now).at - now, Duration::from_millis(pause));
            now += Duration::from_secs(1);
        }
        now += QUIET;
        assert_eq!(retry.triggered_retry(now).at - now, TRIGGER_SETTLE);
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
            assert_eq!(retry.drifted(now).at - now, Duration::from_millis(want));
            retry.repairing(now);
            now += Duration::from_secs(1);
        }
        now += QUIET;
        assert_eq!(retry.drifted(now).at - now, DRIFT_SETTLE);
    }
}
