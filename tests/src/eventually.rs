//! Waits for the effects of other processes.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Time limit of a wait. Far above the usual times, since the machine may be busy with other tests; a server that
/// generates an RSA key of 4096 bits may take a quarter of it.
pub const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Interval between two checks.
const PERIOD: Duration = Duration::from_millis(20);

/// Waits until `holds` does.
///
/// # Panics
/// When it does not within [`WAIT_LIMIT`].
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    eventually_async(what, || std::future::ready(holds())).await;
}

/// Like [`eventually`], for an asynchronous condition.
///
/// # Panics
/// When it does not hold within [`WAIT_LIMIT`].
pub async fn eventually_async<F: Future<Output = bool>>(what: &str, holds: impl FnMut() -> F) {
    eventually_within(WAIT_LIMIT, what, holds).await;
}

/// Like [`eventually_async`], for what takes a known time anyway.
///
/// # Panics
/// When it does not hold within `limit`.
pub async fn eventually_within<F: Future<Output = bool>>(
    limit: Duration,
    what: &str,
    mut holds: impl FnMut() -> F,
) {
    let deadline = Instant::now() + limit;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        sleep(PERIOD).await;
    }
}
