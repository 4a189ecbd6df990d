//! How long to wait before the next attempt.

use std::time::Duration;

/// Waits that double from attempt to attempt up to a limit, each lengthened by up to half of itself at random, so that
/// boxes that were switched on together do not come back together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// Never longer than this, without the random part.
    pub longest: Duration,
}

impl Default for Backoff {
    /// Ten seconds, as the protocol's own diagrams have it; five minutes, because somebody who has mended the server
    /// waits for the box.
    fn default() -> Self {
        Self { first: Duration::from_secs(10), longest: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// The wait after so many failures in a row, with a number drawn from the whole range of its type.
    #[must_use]
    pub fn wait(&self, failures: u32, drawn: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(u32::BITS - 1);
        let base = self.first.saturating_mul(1 << doublings).min(self.longest);
        base + base.mul_f64(f64::from(drawn) / f64::from(u32::MAX) / 2.0)
    }
}
