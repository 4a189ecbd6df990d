//! Tower layer in front of every service and of authentication, so that refused calls are recorded too.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use holdfast_store::accounts::AccountingLog;
use http::{HeaderMap, Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Status, body::Body};
use tower::Service;

use super::call::Call;
use crate::methods::Methods;
use crate::tls::Peer;

/// Adds [`Accounted`] to a service.
#[derive(Clone, Debug)]
pub struct Layer {
    accounts: AccountingLog,
    methods: Arc<Methods>,
}

impl Layer {
    pub fn new(accounts: AccountingLog) -> Self {
        Self { accounts, methods: Arc::new(Methods::new()) }
    }
}

impl<S> tower::Layer<S> for Layer {
    type Service = Accounted<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Accounted { inner, layer: self.clone() }
    }
}

/// Records each call, observing both directions.
#[derive(Clone, Debug)]
pub struct Accounted<S> {
    inner: S,
    layer: Layer,
}

impl<S> Service<Request<Body>> for Accounted<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let Layer { accounts, methods } = self.layer.clone();
        let peer = request.extensions().get::<Peer>().cloned();
        let call = Arc::new(Call::new(accounts, methods, request.uri().path(), peer));
        request.extensions_mut().insert(call.login.clone());
        let ending = Ending(call.clone());
        let request = request.map(|body| Body::new(Heard { body, call }));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = answer.await?;
            ending.0.answered(Status::from_header_map(response.headers()));
            Ok(response.map(|body| Body::new(Said { body, ending })))
        })
    }
}

/// End of a call. Dropping it means that the client or a failed handler has abandoned the call.
struct Ending(Arc<Call>);

impl Ending {
    fn trailers(&self, trailers: &HeaderMap) {
        self.0.ended(Status::from_header_map(trailers).unwrap_or_else(|| Status::unknown("")));
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.ended(Status::cancelled(""));
    }
}

/// Request body, observed.
struct Heard {
    body: Body,
    call: Arc<Call>,
}

impl HttpBody for Heard {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(octets) = frame.data_ref() {
                    self.call.heard(octets);
                }
            }
            Some(Err(_)) | None => self.call.all_heard(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Response body, observed.
struct Said {
    body: Body,
    ending: Ending,
}

impl HttpBody for Said {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.ending.trailers(trailers);
                }
            }
            Some(Err(status)) => self.ending.0.ended(status.clone()),
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
