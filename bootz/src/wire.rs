//! The bootz protocol over a channel that the caller has connected.

use holdfast_proto::bootz::bootstrap_client::BootstrapClient;
use holdfast_proto::bootz::{
    BootstrapStreamRequestV1, BootstrapStreamResponseV1, GetBootstrapDataRequest,
    GetBootstrapDataResponse, ReportStatusRequest,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// Messages queued for sending on a stream. One suffices, as a message is made only after the answer to the last.
const QUEUE_DEPTH: usize = 1;
/// Largest answer that is read, in bytes. Boot configurations include certificates and policies of some
/// megabytes; a server that is not verified yet must not be able to exhaust the memory of the box.
const LARGEST_ANSWER: usize = 64 << 20;

/// A call that ended without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcError {
    /// Canonical gRPC code.
    pub code: Code,
    /// Message of the server.
    pub message: String,
}

impl From<Status> for RpcError {
    fn from(status: Status) -> Self {
        Self { code: status.code(), message: status.message().to_owned() }
    }
}

impl std::fmt::Display for RpcError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.code, self.message)
    }
}

/// A connection to a bootstrap server.
#[derive(Clone, Debug)]
pub struct Connection(BootstrapClient<Channel>);

impl Connection {
    /// Wraps a connected channel.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        Self(BootstrapClient::new(channel).max_decoding_message_size(LARGEST_ANSWER))
    }

    /// Requests the data of this box.
    ///
    /// # Errors
    /// The status of the call.
    pub async fn get_bootstrap_data(
        &mut self,
        request: GetBootstrapDataRequest,
    ) -> Result<GetBootstrapDataResponse, RpcError> {
        Ok(self.0.get_bootstrap_data(request).await?.into_inner())
    }

    /// Sends the status report.
    ///
    /// # Errors
    /// The status of the call.
    pub async fn report_status(&mut self, request: ReportStatusRequest) -> Result<(), RpcError> {
        self.0.report_status(request).await?;
        Ok(())
    }

    /// Opens a stream with its first message.
    ///
    /// # Errors
    /// The status of the call.
    pub async fn open_stream(
        &mut self,
        first: BootstrapStreamRequestV1,
    ) -> Result<BootstrapStreamCall, RpcError> {
        let (requests, waiting) = mpsc::channel(QUEUE_DEPTH);
        requests.try_send(first).expect("an empty queue has room");
        let answers = self.0.bootstrap_stream_v1(ReceiverStream::new(waiting)).await?.into_inner();
        Ok(BootstrapStreamCall { requests, answers })
    }
}

/// A bidirectional stream on which messages alternate.
#[derive(Debug)]
pub struct BootstrapStreamCall {
    requests: mpsc::Sender<BootstrapStreamRequestV1>,
    answers: Streaming<BootstrapStreamResponseV1>,
}

impl BootstrapStreamCall {
    /// Sends the next message. If the stream has ended, the next [`Self::answer`] says so.
    pub async fn send(&self, message: BootstrapStreamRequestV1) {
        let _ended = self.requests.send(message).await;
    }

    /// Waits for the next answer.
    ///
    /// # Errors
    /// The status with which the stream ended; `UNAVAILABLE` when it ended without one.
    pub async fn receive(&mut self) -> Result<BootstrapStreamResponseV1, RpcError> {
        let ended = || Status::unavailable("the server ended the stream without an answer");
        Ok(self.answers.message().await?.ok_or_else(ended)?)
    }
}
