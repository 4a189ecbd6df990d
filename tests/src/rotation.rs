//! A gNSI rotation, message by message, and the moments at which a test may cut the power.

use std::future::Future;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};

/// Requests under way: one that waits for its answer, and one that is sent meanwhile.
const QUEUE_DEPTH: usize = 2;

/// Moments of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutPoint {
    Opened,
    /// The upload is sent, whether or not it has arrived.
    Uploading,
    Tried,
    /// The finalize is sent, whether or not it has arrived.
    Finalizing,
    Finalized,
}

impl CutPoint {
    pub const ALL: [Self; 5] =
        [Self::Opened, Self::Uploading, Self::Tried, Self::Finalizing, Self::Finalized];

    /// True when the old state, or with `new` the new one, may be found after a power cut at this moment.
    pub fn may_leave(self, new: bool) -> bool {
        match self {
            Self::Opened | Self::Uploading | Self::Tried => !new,
            Self::Finalizing => true,
            Self::Finalized => new,
        }
    }
}

/// An open stream; dropping it breaks the stream.
#[derive(Debug)]
pub struct Rotation<Q, A> {
    requests: mpsc::Sender<Q>,
    answers: Streaming<A>,
}

impl<Q, A> Rotation<Q, A> {
    /// Opens the stream with this call.
    ///
    /// # Errors
    /// When it is refused at once.
    pub async fn open<F>(call: impl FnOnce(ReceiverStream<Q>) -> F) -> Result<Self, Status>
    where
        F: Future<Output = Result<Response<Streaming<A>>, Status>>,
    {
        let (requests, stream) = mpsc::channel(QUEUE_DEPTH);
        let answers = call(ReceiverStream::new(stream)).await?.into_inner();
        Ok(Self { requests, answers })
    }

    /// Sends a request, and returns its answer; `None` when the stream ended with OK.
    ///
    /// # Errors
    /// The status with which the stream ended.
    pub async fn send(&mut self, request: Q) -> Result<Option<A>, Status> {
        // If the stream has ended, its status says why.
        let _ = self.requests.send(request).await;
        self.answers.message().await
    }

    /// The next message without a request, usually the end.
    ///
    /// # Errors
    /// The status with which the stream ended.
    pub async fn receive(&mut self) -> Result<Option<A>, Status> {
        self.answers.message().await
    }

    /// Closes the client's side and waits for the end, after which another rotation may begin.
    ///
    /// # Errors
    /// The status with which the stream ended.
    pub async fn close(self) -> Result<(), Status> {
        let Self { requests, mut answers } = self;
        drop(requests);
        while answers.message().await?.is_some() {}
        Ok(())
    }

    /// Runs the rotation from its beginning to this moment.
    ///
    /// # Panics
    /// When an answer is missing or wrong.
    pub async fn run_until(&mut self, cut: CutPoint, upload: Q, finalize: Q) {
        match cut {
            CutPoint::Opened => return,
            CutPoint::Uploading => return self.post(upload).await,
            CutPoint::Tried | CutPoint::Finalizing | CutPoint::Finalized => {
                let answer = self.send(upload).await.expect("the upload is taken");
                assert!(answer.is_some(), "an upload is answered");
            }
        }
        match cut {
            CutPoint::Finalizing => self.post(finalize).await,
            CutPoint::Finalized => {
                // A stream of pathz may go on; the others end.
                let answer = self.send(finalize).await.expect("the end is good");
                assert!(answer.is_some(), "a finalize is answered");
            }
            CutPoint::Opened | CutPoint::Uploading | CutPoint::Tried => {}
        }
    }

    /// Sends a request without waiting for its answer; it is transmitted when the test awaits something.
    pub async fn post(&self, request: Q) {
        let _ = self.requests.send(request).await;
        tokio::task::yield_now().await;
    }
}
