//! The messages of a streaming RPC, from the task that makes them to the transport. A client that does not read is cut
//! off.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::Stream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use super::status::Refusal;
use crate::budget::Charge;

/// Messages that wait for the transport. Anything beyond stays in the task, where it is a snapshot that costs a
/// pointer. One is enough: the transport asks for the next while it sends the last.
const MESSAGE_QUEUE_DEPTH: usize = 1;
/// Time that a message may wait for the client to read. The stream holds its last snapshot all that time, and with it
/// the memory of everything that changed since.
pub(super) const STUCK_CLIENT: Duration = Duration::from_secs(60);

/// Reason for which a stream ended early.
#[derive(Debug)]
pub(super) enum StreamError {
    /// The client has gone, so there is no status to send.
    Gone,
    Refused(Refusal),
}

impl From<Refusal> for StreamError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The sending half. The last one to close it says how the stream ends.
#[derive(Debug)]
pub(super) struct ResponseSender<M> {
    message_tx: mpsc::Sender<M>,
    end_tx: Arc<Mutex<Option<oneshot::Sender<Status>>>>,
}

impl<M> Clone for ResponseSender<M> {
    fn clone(&self) -> Self {
        Self { message_tx: self.message_tx.clone(), end_tx: self.end_tx.clone() }
    }
}

/// The messages of one RPC, then its status. Dropping it stops the task that feeds it.
#[derive(Debug)]
pub(super) struct ResponseStream<M> {
    message_rx: mpsc::Receiver<M>,
    end_rx: Option<oneshot::Receiver<Status>>,
    _task: AbortOnDropHandle<()>,
    /// The share of the budget that the stream uses, until its client has taken all of it.
    _charge: Option<Charge>,
}

impl<M> ResponseSender<M> {
    /// Waits until the client has read enough of what came before.
    pub(super) async fn send(&self, message: M) -> Result<(), StreamError> {
        match timeout(STUCK_CLIENT, self.message_tx.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(StreamError::Gone),
            Err(_) => {
                Err(Refusal::exhausted(format!("the client has read nothing for {STUCK_CLIENT:?}"))
                    .into())
            }
        }
    }

    /// Ends the stream; after its messages the client gets the status.
    fn close(self, end: Result<(), StreamError>) {
        let status = match end {
            Ok(()) | Err(StreamError::Gone) => return,
            Err(StreamError::Refused(refusal)) => Status::from(refusal),
        };
        let mut end_tx = self.end_tx.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end_tx) = end_tx.take() {
            // A client that has gone gets no status.
            let _ = end_tx.send(status);
        }
    }
}

impl<M: Send + 'static> ResponseStream<M> {
    /// Starts the task that makes the messages. Its result is the end of the stream.
    pub(super) fn spawn<F>(make: impl FnOnce(ResponseSender<M>) -> F) -> Self
    where
        F: Future<Output = Result<(), StreamError>> + Send + 'static,
    {
        let (message_tx, message_rx) = mpsc::channel(MESSAGE_QUEUE_DEPTH);
        let (end_tx, end_rx) = oneshot::channel();
        let sender = ResponseSender { message_tx, end_tx: Arc::new(Mutex::new(Some(end_tx))) };
        let made = make(sender.clone());
        let task = tokio::spawn(async move { sender.close(made.await) });
        let _task = AbortOnDropHandle::new(task);
        Self { message_rx, end_rx: Some(end_rx), _task, _charge: None }
    }

    /// Holds a share of the budget for as long as the stream is there.
    pub(super) fn charged(self, charge: Charge) -> Self {
        Self { _charge: Some(charge), ..self }
    }
}

impl<M> Stream for ResponseStream<M> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match self.message_rx.poll_recv(cx) {
            Poll::Ready(Some(message)) => Poll::Ready(Some(Ok(message))),
            Poll::Pending => Poll::Pending,
            Poll::Ready(None) => {
                let Some(mut end_rx) = self.end_rx.take() else { return Poll::Ready(None) };
                // All senders are gone, so the status is there or will never come.
                Poll::Ready(end_rx.try_recv().ok().map(Err))
            }
        }
    }
}
