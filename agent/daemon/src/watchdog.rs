//! Tells the service manager's watchdog that the core is at work.
//!
//! The notification is sent only after the loop of the core has answered: when the loop hangs, notifications stop,
//! and the service manager restarts the agent.
//!
//! Absent on purpose: a limit of its own on the core's answers. The limit is `WatchdogSec=` of the unit, with its
//! reason.

use std::{future::Future, time::Duration};

use tokio::time::{self, MissedTickBehavior};

/// Heartbeats in the time after which the service manager restarts the agent. An answer may take three quarters of
/// that time before it is too late.
const BEATS: u32 = 4;

/// Asks for a heartbeat periodically, and notifies after each answer. Ends with the core.
///
/// `beat` returns false when the core has ended.
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
    /// Ten times the patience: enough for several notifications.
    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test(start_paused = true)]
    async fn watchdog_is_notified_after_answered_heartbeats_alone() {
        // Time the core takes to answer; bounds on the notifications within ten times the patience.
        for (answer, fewest, most) in [
            (Duration::ZERO, 40, 41),
            (Duration::from_secs(1), 35, 41),
            (Duration::from_secs(3600), 0, 0),
        ] {
            let notifications = Cell::new(0);
            let beat = || async move {
                sleep(answer).await;
                true
            };
            let fed =
                timeout(LONG, feed(PATIENCE, beat, || notifications.set(notifications.get() + 1)))
                    .await;
            assert!(fed.is_err(), "it goes on as long as there is a core");
            assert!(
                (fewest..=most).contains(&notifications.get()),
                "{answer:?}: {}",
                notifications.get()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watchdog_is_not_notified_without_a_core() {
        feed(PATIENCE, || async { false }, || panic!("there is no core")).await;
    }
}
