//! Tells the service manager's watchdog that the core is at work.
//!
//! The word is sent only after the loop of the core has answered: one that hangs, or waits for ever, falls silent, and
//! the service manager starts the agent anew.
//!
//! Absent on purpose: a judgement how long the core may take. That is `WatchdogSec=` of the unit, with its reason.

use std::{future::Future, time::Duration};

use tokio::time::{self, MissedTickBehavior};

/// Heartbeats in the time after which the service manager gives the agent up. One of them may take three quarters of
/// that time until it is too late.
const BEATS: u32 = 4;

/// Asks for a heartbeat again and again, and sends the word after each answer. Ends with the core.
///
/// `beat` returns false when there is no core any more.
pub(crate) async fn feed<B: Future<Output = bool>>(
    patience: Duration,
    mut beat: impl FnMut() -> B,
    mut send: impl FnMut(),
) {
    let mut ticks = time::interval(patience / BEATS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if !beat().await {
            return;
        }
        send();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::{sleep, timeout};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    /// Ten times the patience: what is fed at all is fed often in it.
    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test(start_paused = true)]
    async fn the_watchdog_hears_only_of_heartbeats_that_were_answered() {
        // How long the core takes for an answer; how often the watchdog is told within ten times its patience.
        for (answer, fewest, most) in [
            (Duration::ZERO, 40, 41),
            (Duration::from_secs(1), 35, 41),
            (Duration::from_secs(3600), 0, 0),
        ] {
            let told = Cell::new(0);
            let beat = || async move {
                sleep(answer).await;
                true
            };
            let fed = timeout(LONG, feed(PATIENCE, beat, || told.set(told.get() + 1))).await;
            assert!(fed.is_err(), "it goes on as long as there is a core");
            assert!((fewest..=most).contains(&told.get()), "{answer:?}: {}", told.get());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_core_nobody_is_told() {
        feed(PATIENCE, || async { false }, || panic!("there is no core")).await;
    }
}
