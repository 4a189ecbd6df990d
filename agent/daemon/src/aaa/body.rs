//! The two bodies of a call: each frame is accounted for, checked against the limits, and cut when the permission is
//! revoked.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use super::messages::{ExceededLimit, Frames};
use super::permission::Revocation;
use super::record::{CallEnd, CallRecord};
use crate::budget::Charge;

/// Result of polling a body for its next frame.
type NextFrame = Poll<Option<Result<Frame<Bytes>, Status>>>;

/// Request body. The handler reads an error once the permission is revoked or a message is too large.
pub(super) struct RequestBody {
    /// `None` after a revocation.
    body: Option<Body>,
    record: Arc<CallRecord>,
    revocation: Revocation,
    frames: Frames,
}

impl RequestBody {
    pub(super) fn new(
        body: Body,
        record: Arc<CallRecord>,
        revocation: Revocation,
        frames: Frames,
    ) -> Self {
        Self { body: Some(body), record, revocation, frames }
    }

    fn cut(&mut self, status: Status) -> NextFrame {
        self.body = None;
        Poll::Ready(Some(Err(status)))
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> NextFrame {
        let this = &mut *self;
        if let Some(status) = this.frames.refusal() {
            return Poll::Ready(Some(Err(status)));
        }
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let Poll::Ready(frame) = Pin::new(body).poll_frame(context) else {
            let status = ready!(this.revocation.poll(context));
            return this.cut(status);
        };
        let Some(Ok(frame)) = frame else {
            this.record.request_complete();
            return Poll::Ready(frame);
        };
        let octets = frame.data_ref();
        if let Some(octets) = octets {
            this.record.request_octets(octets);
        }
        if let Err(status) = this.revocation.check() {
            return this.cut(status);
        }
        match octets.map_or(Ok(()), |octets| this.frames.read(octets)) {
            Ok(()) => Poll::Ready(Some(Ok(frame))),
            Err(status) => Poll::Ready(Some(Err(status))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

/// Response body. A stream ends with the status of the revocation once the permission is revoked, and every status has a
/// bounded text.
pub(super) struct ResponseBody {
    /// `None` after a revocation.
    body: Option<Body>,
    /// `None` for a unary call, which is never cut.
    revocation: Option<Revocation>,
    exceeded: ExceededLimit,
    end: CallEnd,
    _held: Charge,
}

impl ResponseBody {
    pub(super) fn new(
        body: Body,
        revocation: Option<Revocation>,
        exceeded: ExceededLimit,
        end: CallEnd,
        held: Charge,
    ) -> Self {
        Self { body: Some(body), revocation, exceeded, end, _held: held }
    }

    /// Next frame of the handler, or the end of the stream by a revocation.
    fn poll_handler(&mut self, context: &mut Context<'_>) -> NextFrame {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let Poll::Ready(mut frame) = Pin::new(body).poll_frame(context) else {
            let Some(revocation) = &mut self.revocation else { return Poll::Pending };
            let status = ready!(revocation.poll(context));
            return self.cut(&status);
        };
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            self.exceeded.restate(trailers);
        }
        let is_data = matches!(&frame, Some(Ok(frame)) if frame.is_data());
        // A handler that ends the call itself may do so because its request was cut: then the reason of the cut is the
        // better status.
        let revoked = self.revocation.as_ref().and_then(|revocation| {
            if is_data { revocation.check().err() } else { revocation.status() }
        });
        match revoked {
            Some(status) => self.cut(&status),
            None => Poll::Ready(frame),
        }
    }

    /// Drops the rest of the response, which ends the handler's stream, and ends the call with this status.
    fn cut(&mut self, status: &Status) -> NextFrame {
        self.body = None;
        let mut trailers = HeaderMap::new();
        Poll::Ready(Some(status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))))
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> NextFrame {
        let frame = ready!(self.poll_handler(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(trailers) = frame.trailers_ref() {
                    self.end.trailers(trailers);
                }
            }
            Some(Err(status)) => self.end.failed(status),
            None => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}
