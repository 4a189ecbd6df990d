//! Back-off between attempts.

use std::time::Duration;

/// Exponential back-off up to a limit. Each delay is lengthened at random by up to a half, so that boxes that were
/// switched on together do not retry together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub first: Duration,
    /// Longest delay, without its random part.
    pub longest: Duration,
}

impl Default for Backoff {
    /// Ten seconds as in the diagrams of the protocol, and at most five minutes, because an operator who has
    /// repaired the server is waiting for the box.
    fn default() -> Self {
        Self { first: Duration::from_secs(10), longest: Duration::from_secs(300) }
    }
}

impl Backoff {
    /// Delay after this number of consecutive failures. `drawn` is a random number from the whole range of its
    /// type.
    #[must_use]
    pub fn delay(&self, failures: u32, drawn: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(u32::BITS - 1);
        let base = self.first.saturating_mul(1 << doublings).min(self.longest);
        base + base.mul_f64(f64::from(drawn) / f64::from(u32::MAX) / 2.0)
    }
}
