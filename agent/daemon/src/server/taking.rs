//! Answers that wait for their client: how much of one is handed to HTTP/2, and for how long it may stay there.
//!
//! hyper asks for the next piece of an answer as soon as it has handed the last one on, and keeps that one until the
//! client's windows have room. So an answer that nobody takes is one whose last piece was not followed by another question.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tracing::debug;

/// Time for a client to take any part of an answer that is ready: that of `--introspect`, and far more than a slow line needs
/// for a piece.
pub(super) const TAKE_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of an answer that are handed to HTTP/2 at a time: one frame. Bytes that are not handed over go when the call
/// is given up.
const PIECE: usize = super::MAX_FRAME_BYTES as usize;
/// Calls of one connection whose answers may be given up; one more ends the connection. The bytes of each that HTTP/2
/// has stay in memory until the client takes them, so an attacker must not collect them. A client with a few
/// subscriptions that hang keeps its other calls.
const MAX_GIVEN_UP: usize = 4;

tokio::task_local! {
    /// Progress of the call that runs in this task.
    static CALL: Arc<Progress>;
}

/// Progress of a client in taking one answer.
#[derive(Debug)]
struct Progress {
    /// Time since which a piece waits for the client; none while there is nothing to take.
    since_tx: watch::Sender<Option<Instant>>,
    /// `None` before there is an answer, and once it is given up.
    answer: Mutex<Option<Answer>>,
}

#[derive(Debug)]
struct Answer {
    body: Body,
    /// Part of the last frame of `body` that is not handed over.
    rest: Bytes,
}

impl Progress {
    fn new() -> Self {
        Self { since_tx: watch::Sender::new(None), answer: Mutex::default() }
    }

    /// Resolves when a piece was not taken in time.
    async fn stalled(&self) {
        let mut since_rx = self.since_tx.subscribe();
        loop {
            let since = *since_rx.borrow_and_update();
            let Some(since) = since else {
                // The sender is our own, so a change comes or nothing does.
                drop(since_rx.changed().await);
                continue;
            };
            sleep_until(since + TAKE_TIMEOUT).await;
            if *since_rx.borrow() == Some(since) {
                return;
            }
        }
    }

    /// Notes that a piece waits from now on. Wakes [`Self::stalled`] for the first of several alone.
    fn piece_waits(&self) {
        self.since_tx.send_if_modified(|since| since.replace(Instant::now()).is_none());
    }

    fn nothing_waits(&self) {
        self.since_tx.send_if_modified(|since| {
            *since = None;
            false
        });
    }

    /// Drops the answer. A client that comes back reads the reason.
    fn give_up(&self) {
        debug!("an answer is given up: its client does not take it");
        let answer = self.answer().take();
        drop(answer); // not under the lock
    }

    fn answer(&self) -> MutexGuard<'_, Option<Answer>> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs the calls of one connection, each as a task, and gives answers up that are not taken.
#[derive(Clone, Debug)]
pub(super) struct CallExecutor {
    given_up: Arc<AtomicUsize>,
    /// Ends the connection.
    end: CancellationToken,
}

impl CallExecutor {
    pub(super) fn new(end: CancellationToken) -> Self {
        Self { given_up: Arc::default(), end }
    }
}

impl<F> Executor<F> for CallExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, call: F) {
        let progress = Arc::new(Progress::new());
        let Self { given_up, end } = self.clone();
        tokio::spawn(async move {
            let mut call = pin!(CALL.scope(progress.clone(), call));
            tokio::select! {
                _ = &mut call => return,
                () = progress.stalled() => progress.give_up(),
            }
            if given_up.fetch_add(1, Ordering::Relaxed) >= MAX_GIVEN_UP {
                end.cancel();
            }
            call.await;
        });
    }
}

/// An answer that is handed over in pieces. To be made in the task of its call.
#[derive(Debug)]
pub(super) struct PiecewiseBody {
    progress: Arc<Progress>,
    is_ended: bool,
}

impl PiecewiseBody {
    pub(super) fn of(body: Body) -> Self {
        // Tests call services without an executor.
        let progress = CALL.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Progress::new()));
        *progress.answer() = Some(Answer { body, rest: Bytes::new() });
        Self { progress, is_ended: false }
    }
}

impl HttpBody for PiecewiseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.is_ended {
            return Poll::Ready(None);
        }
        let mut answer = this.progress.answer();
        let Some(Answer { body, rest }) = &mut *answer else {
            this.is_ended = true;
            return Poll::Ready(Some(given_up()));
        };
        if rest.is_empty() {
            this.progress.nothing_waits();
            match ready!(Pin::new(body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(octets) => *rest = octets,
                    Err(other) => return Poll::Ready(Some(Ok(other))),
                },
                end => return Poll::Ready(end),
            }
        }
        let piece = rest.split_to(rest.len().min(PIECE));
        this.progress.piece_waits();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        let answer = self.progress.answer();
        let is_taken = |it: &Answer| it.rest.is_empty() && it.body.is_end_stream();
        self.is_ended || answer.as_ref().is_some_and(is_taken)
    }

    fn size_hint(&self) -> SizeHint {
        let answer = self.progress.answer();
        let Some(Answer { body, rest }) = &*answer else { return SizeHint::default() };
        let rest = rest.len() as u64;
        let mut hint = body.size_hint();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

/// The end of an answer that was given up.
fn given_up() -> Result<Frame<Bytes>, Status> {
    let reason = format!("the client has taken nothing of this answer for {TAKE_TIMEOUT:?}");
    let mut trailers = HeaderMap::new();
    Status::resource_exhausted(reason).add_header(&mut trailers)?;
    Ok(Frame::trailers(trailers))
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};
    use tokio::sync::oneshot;
    use tonic::Code;

    use super::*;

    fn answer(octets: usize) -> PiecewiseBody {
        let body = Full::new(Bytes::from(vec![7; octets])).map_err(|never| match never {});
        PiecewiseBody::of(Body::new(body))
    }

    #[tokio::test]
    async fn an_answer_is_handed_over_in_pieces() {
        for (octets, pieces) in [(1, 1), (PIECE, 1), (PIECE + 1, 2), (10 * PIECE, 10)] {
            let mut body = answer(octets);
            let mut handed = 0;
            let mut count = 0;
            while let Some(frame) = body.frame().await {
                handed += frame.unwrap().into_data().unwrap().len();
                count += 1;
            }
            assert_eq!((handed, count), (octets, pieces));
            assert!(body.is_end_stream());
        }
    }

    /// Runs a call that takes a piece before each pause. Returns the status in place of the rest, if it was given up.
    async fn taken(executor: &CallExecutor, pauses: &[Duration]) -> Option<Status> {
        let (pauses, (end_tx, end_rx)) = (pauses.to_vec(), oneshot::channel());
        executor.execute(async move {
            let mut body = answer((pauses.len() + 1) * PIECE);
            for pause in pauses {
                assert!(body.frame().await.unwrap().unwrap().is_data());
                tokio::time::sleep(pause).await;
            }
            let last = body.frame().await.unwrap().unwrap().into_trailers().ok();
            end_tx.send(last.and_then(|trailers| Status::from_header_map(&trailers))).unwrap();
        });
        end_rx.await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_is_given_up() {
        let end = CancellationToken::new();
        let executor = CallExecutor::new(end.clone());
        let slow = TAKE_TIMEOUT - Duration::from_secs(1);
        let stuck = 2 * TAKE_TIMEOUT;
        let whole = taken(&executor, &[slow, slow, slow]).await;
        assert!(whole.is_none(), "each piece was taken in time");
        for _ in 0..MAX_GIVEN_UP {
            let status = taken(&executor, &[slow, stuck]).await.unwrap();
            assert_eq!(status.code(), Code::ResourceExhausted);
            assert!(!end.is_cancelled(), "other calls of the connection go on");
        }
        assert!(taken(&executor, &[stuck]).await.is_some());
        assert!(end.is_cancelled());
    }
}
