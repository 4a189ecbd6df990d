//! The two directions of a call, cut when its right is gone.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Status, body::Body};

use super::CallPermission;

/// Waits for the loss of a right. The future is made when a direction first has nothing to pass on: most unary
/// calls never need it.
struct Loss {
    right: CallPermission,
    waiting: Option<Pin<Box<dyn Future<Output = Status> + Send>>>,
}

impl Loss {
    fn of(right: CallPermission) -> Self {
        Self { right, waiting: None }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Status> {
        let right = &self.right;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(right.clone().until_lost()));
        waiting.as_mut().poll(context)
    }
}

/// Request body that returns an error to the handler once the right is gone.
pub(super) struct RequestBody {
    /// None after the cut.
    body: Option<Body>,
    loss: Loss,
}

impl RequestBody {
    pub(super) fn new(body: Body, right: CallPermission) -> Self {
        Self { body: Some(body), loss: Loss::of(right) }
    }

    fn cut(&mut self, status: Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.body = None;
        Poll::Ready(Some(Err(status)))
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => match self.loss.right.check() {
                Ok(()) => Poll::Ready(Some(Ok(frame))),
                Err(status) => self.cut(status),
            },
            Poll::Ready(end) => Poll::Ready(end),
            Poll::Pending => {
                let status = ready!(self.loss.poll(context));
                self.cut(status)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

/// Response body of a stream that ends with the status of the loss once the right is gone.
pub(super) struct ResponseBody {
    /// None after the cut.
    body: Option<Body>,
    loss: Loss,
}

impl ResponseBody {
    pub(super) fn new(body: Body, right: CallPermission) -> Self {
        Self { body: Some(body), loss: Loss::of(right) }
    }

    /// Drops the rest of the answer, which ends the handler's stream, and ends the call with this status.
    fn cut(&mut self, status: &Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.body = None;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) if frame.is_data() => match self.loss.right.check() {
                Ok(()) => Poll::Ready(Some(Ok(frame))),
                Err(status) => self.cut(&status),
            },
            // The handler has ended the call itself, perhaps because its request was cut: then the reason of the
            // cut is the better status.
            Poll::Ready(end) => match self.loss.right.lost() {
                None => Poll::Ready(end),
                Some(status) => self.cut(&status),
            },
            Poll::Pending => {
                let status = ready!(self.loss.poll(context));
                self.cut(&status)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}
