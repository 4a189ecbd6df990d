//! Servers that speak the protocol, and send more than the box can hold.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_bootz::wire::Connection;
use holdfast_proto::bootz::bootstrap_server::{Bootstrap, BootstrapServer};
use holdfast_proto::bootz::{self, bootstrap_stream_response_v1::Type};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tokio_stream::{Stream, iter};
use tonic::transport::{Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};

/// One byte more than the largest answer that is read.
const TOO_MUCH: usize = (64 << 20) + 1;
/// Bytes of one message of an endless stream.
const A_MESSAGE: usize = 1 << 20;

/// Server that answers every call with an oversized message, and counts the messages of its streams.
#[derive(Debug, Default)]
struct OversizedServer {
    size: usize,
    sent: Arc<AtomicUsize>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

fn data(size: usize) -> bootz::GetBootstrapDataResponse {
    let serialized_bootstrap_data = vec![0x55; size].into();
    bootz::GetBootstrapDataResponse { serialized_bootstrap_data, ..Default::default() }
}

fn streamed(size: usize) -> bootz::StreamBootstrapDataResponse {
    let encrypted_serialized_bootstrap_data = vec![0x55; size].into();
    bootz::StreamBootstrapDataResponse { encrypted_serialized_bootstrap_data, ..Default::default() }
}

#[tonic::async_trait]
impl Bootstrap for OversizedServer {
    type BootstrapStreamStream = Answers<bootz::BootstrapStreamResponse>;
    type BootstrapStreamV1Stream = Answers<bootz::BootstrapStreamResponseV1>;

    async fn bootstrap_stream(
        &self,
        _request: Request<Streaming<bootz::BootstrapStreamRequest>>,
    ) -> Result<Response<Self::BootstrapStreamStream>, Status> {
        Err(Status::unimplemented("deprecated"))
    }

    async fn bootstrap_stream_v1(
        &self,
        _request: Request<Streaming<bootz::BootstrapStreamRequestV1>>,
    ) -> Result<Response<Self::BootstrapStreamV1Stream>, Status> {
        let size = self.size;
        let sent = Arc::clone(&self.sent);
        let answers = (0..).map(move |_: u64| {
            sent.fetch_add(1, Ordering::Relaxed);
            let r#type = Some(Type::BootstrapResponse(streamed(size)));
            Ok(bootz::BootstrapStreamResponseV1 { r#type })
        });
        Ok(Response::new(Box::pin(iter(answers))))
    }

    async fn get_bootstrap_data(
        &self,
        _request: Request<bootz::GetBootstrapDataRequest>,
    ) -> Result<Response<bootz::GetBootstrapDataResponse>, Status> {
        Ok(Response::new(data(self.size)))
    }

    async fn report_status(
        &self,
        _request: Request<bootz::ReportStatusRequest>,
    ) -> Result<Response<bootz::EmptyResponse>, Status> {
        Err(Status::internal("x".repeat(A_MESSAGE)))
    }
}

/// Connects to such a server, and returns the counter of messages that it has sent on streams.
async fn connected(size: usize) -> (Connection, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::<AtomicUsize>::default();
    let hostile = BootstrapServer::new(OversizedServer { size, sent: Arc::clone(&sent) });
    #[expect(clippy::disallowed_methods, reason = "a hostile server, which bounds nothing")]
    let serving = Server::builder().add_service(hostile);
    tokio::spawn(serving.serve_with_incoming(TcpListenerStream::new(listener)));
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await;
    (Connection::new(channel.unwrap()), sent)
}

#[tokio::test]
async fn oversized_responses_are_refused() {
    let (mut connection, _) = connected(TOO_MUCH).await;
    let refused =
        connection.get_bootstrap_data(bootz::GetBootstrapDataRequest::default()).await.unwrap_err();
    assert_eq!(refused.code, Code::OutOfRange, "{refused}");
    let opened = connection.open_stream(bootz::BootstrapStreamRequestV1::default()).await;
    let refused = opened.unwrap().receive().await.unwrap_err();
    assert_eq!(refused.code, Code::OutOfRange, "{refused}");
}

#[tokio::test]
async fn endless_stream_is_flow_controlled() {
    const READ: usize = 3;
    /// Messages that may be in flight: the windows of HTTP/2 and the sockets hold some megabytes.
    const ON_THE_WAY: usize = 32;
    let (mut connection, sent) = connected(A_MESSAGE).await;
    let mut stream =
        connection.open_stream(bootz::BootstrapStreamRequestV1::default()).await.unwrap();
    for _ in 0..READ {
        stream.receive().await.unwrap();
    }
    // Another call on the same connection is answered meanwhile, with an error of bounded size.
    let refused =
        connection.report_status(bootz::ReportStatusRequest::default()).await.unwrap_err();
    assert!(refused.message.len() < A_MESSAGE, "{}", refused.message.len());
    assert!(sent.load(Ordering::Relaxed) <= READ + ON_THE_WAY, "{sent:?}");
}
