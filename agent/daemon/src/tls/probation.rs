//! How long a connection may stay on which nobody has said who they are.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::time::{Sleep, sleep};

/// From the handshake to the first call whose credentials check out. Clients connect when they have something to ask;
/// whoever does not may not keep places from those who do.
const PROBATION: Duration = Duration::from_secs(60);

/// Whether somebody was identified on a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Arc<AtomicBool>);

impl Known {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The time in which somebody has to be identified.
#[derive(Debug)]
pub(super) struct Probation {
    known: Known,
    /// Nothing as soon as somebody was.
    end: Option<Pin<Box<Sleep>>>,
}

impl Probation {
    pub(super) fn begin(known: Known) -> Self {
        Self { known, end: Some(Box::pin(sleep(PROBATION))) }
    }

    /// Whether the connection may go on. Wakes the task when the time is over.
    ///
    /// # Errors
    /// When it is over.
    pub(super) fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(end) = &mut self.end else { return Ok(()) };
        if self.known.is_set() {
            self.end = None;
            return Ok(());
        }
        match end.as_mut().poll(context) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::{Instant, advance, timeout};

    use super::*;

    /// Waits until the time is over, as a connection does that is never read from.
    async fn is_over(probation: &mut Probation) -> io::Error {
        poll_fn(|context| match probation.check(context) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(error),
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn who_stays_unknown_is_ended_and_who_is_identified_stays() {
        let begun = Instant::now();
        let mut stranger = Probation::begin(Known::default());
        assert_eq!(is_over(&mut stranger).await.kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs(), PROBATION.as_secs());

        let known = Known::default();
        let mut client = Probation::begin(known.clone());
        advance(PROBATION / 2).await;
        assert!(timeout(Duration::ZERO, is_over(&mut client)).await.is_err());
        known.set();
        assert!(timeout(10 * PROBATION, is_over(&mut client)).await.is_err());
    }
}
