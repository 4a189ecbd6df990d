//! Counts the open calls of each connection.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tower::Service;

use super::connections::HandlerPeer;

/// A service whose calls count for their connection until the answer is complete, or nobody waits for it. A call whose answer does
/// not begin in time ends.
#[derive(Clone, Debug)]
pub(super) struct CountCalls<S> {
    inner: S,
    answer_time: Duration,
}

impl<S> CountCalls<S> {
    pub(super) fn new(inner: S, answer_time: Duration) -> Self {
        Self { inner, answer_time }
    }
}

impl<S> Service<Request<Body>> for CountCalls<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let peer = request.extensions_mut().remove::<HandlerPeer>();
        let call = peer.map(|HandlerPeer { process, calls }| {
            request.extensions_mut().insert(process);
            calls.begin()
        });
        let answer = timeout(self.answer_time, self.inner.call(request));
        Box::pin(async move {
            let answer = answer.await.unwrap_or_else(|_| {
                let status = Status::deadline_exceeded("the call was not answered in time");
                Ok(status.into_http())
            })?;
            Ok(answer.map(|body| {
                let counted = body.map_frame(move |frame| {
                    let _call_is_open = &call;
                    frame
                });
                Body::new(counted)
            }))
        })
    }
}
