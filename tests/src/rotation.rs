//! A rotation of gNSI, one message after the other, and the moments at which the power may be cut.

use std::future::Future;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status, Streaming};

/// Requests on their way at a time: one waits for its answer, one is sent beside it.
const QUEUE_DEPTH: usize = 2;

/// Moments of a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Opened,
    /// The upload is sent, whether or not it has arrived.
    Uploading,
    Tried,
    /// The finalize is sent, whether or not it has arrived.
    Finalizing,
    Finalized,
}

impl Cut {
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

/// Dropping it breaks the stream.
#[derive(Debug)]
pub struct Rotation<Q, A> {
    requests: mpsc::Sender<Q>,
    answers: Streaming<A>,
}

impl<Q, A> Rotation<Q, A> {
    /// Opens the stream by this call.
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

    /// One request and its answer; none when the stream ended well.
    ///
    /// # Errors
    /// With which the stream ended.
    pub async fn send(&mut self, request: Q) -> Result<Option<A>, Status> {
        // When the stream has ended, its answer says why.
        let _ = self.requests.send(request).await;
        self.answers.message().await
    }

    /// The next answer, to nothing that was asked: the end, as a rule.
    ///
    /// # Errors
    /// With which the stream ended.
    pub async fn answer(&mut self) -> Result<Option<A>, Status> {
        self.answers.message().await
    }

    /// Says nothing more and waits for the end: after it, another rotation may begin.
    ///
    /// # Errors
    /// With which the stream ended.
    pub async fn close(self) -> Result<(), Status> {
        let Self { requests, mut answers } = self;
        drop(requests);
        while answers.message().await?.is_some() {}
        Ok(())
    }

    /// Goes on from its beginning to this moment.
    ///
    /// # Panics
    /// When an answer is not what it should be.
    pub async fn go_on_until(&mut self, cut: Cut, upload: Q, finalize: Q) {
        match cut {
            Cut::Opened => return,
            Cut::Uploading => return self.ask(upload).await,
            Cut::Tried | Cut::Finalizing | Cut::Finalized => {
                let answer = self.send(upload).await.expect("the upload is taken");
                assert!(answer.is_some(), "an upload is answered");
            }
        }
        match cut {
            Cut::Finalizing => self.ask(finalize).await,
            Cut::Finalized => {
                // That of pathz may go on; the others end.
                let answer = self.send(finalize).await.expect("the end is good");
                assert!(answer.is_some(), "a finalize is answered");
            }
            Cut::Opened | Cut::Uploading | Cut::Tried => {}
        }
    }

    /// One request, whose answer nobody waits for. It goes out while the test gives way.
    pub async fn ask(&self, request: Q) {
        let _ = self.requests.send(request).await;
        tokio::task::yield_now().await;
    }
}
