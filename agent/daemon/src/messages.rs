//! The tower layer that bounds messages, for every service.
//!
//! Requests: the frame before each message announces its length, and one that announces too much ends its call
//! before memory is allocated for it. Answers: no status has a longer text than an error may have, including those
//! of other layers.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use holdfast_config::limits::{CUT_MARK, ERROR_TEXT, error_text, message_limit};
use holdfast_config::{Limit, LimitExceeded};
use http::{HeaderMap, Request, Response};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tonic::{Status, body::Body};
use tower::Service;

/// Octets of the frame before a message: a flag for compression and the length.
const FRAME: usize = 5;
/// Names of the headers and trailers of a status.
const CODE: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";

/// Most octets of a status text in its header form: some clients accept only 8 KiB of headers in all.
const MAX_HEADER: usize = ERROR_TEXT.figure * 3 / 2;

/// Wraps a service in [`Limited`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Layer;

impl<S> tower::Layer<S> for Layer {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Limited { inner }
    }
}

/// Ends calls whose messages are too large.
#[derive(Clone, Debug)]
pub struct Limited<S> {
    inner: S,
}

/// The limit that ended a call. Kept apart, because the handler of a stream may drop the error of its request.
type Exceeded = Arc<OnceLock<LimitExceeded>>;

impl<S> Service<Request<Body>> for Limited<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let exceeded = Exceeded::default();
        let frames = Frames::new(message_limit(request.uri().path()));
        let asked = exceeded.clone();
        let request = request.map(|body| Body::new(Asked { body, frames, exceeded: asked }));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let mut response = answer.await?;
            restate(response.headers_mut(), &exceeded);
            Ok(response.map(|body| Body::new(Answered { body, exceeded })))
        })
    }
}

/// Replaces a status by the limit that was exceeded, or cuts its text. Headers without a status stay as they are.
fn restate(headers: &mut HeaderMap, exceeded: &Exceeded) {
    if !headers.contains_key(CODE) {
        return;
    }
    if let Some(error) = exceeded.get() {
        state(headers, &refusal(*error));
    } else if headers.get(MESSAGE).is_some_and(|text| text.len() > MAX_HEADER)
        && let Some(status) = Status::from_header_map(headers)
    {
        state(headers, &cut(status));
    }
}

/// Cuts the text of a status to the length that an error text may have: for layers in front of this one.
pub fn cut(status: Status) -> Status {
    let text = status.message();
    // Headers are ASCII: most characters other than letters and digits take three octets per octet of UTF-8 there.
    let cost = |c: char| if c.is_ascii_alphanumeric() { 1 } else { 3 * c.len_utf8() };
    let mut room = MAX_HEADER - 3 * CUT_MARK.len();
    let kept = |c: char| {
        room = room.checked_sub(cost(c))?;
        Some(c.len_utf8())
    };
    let kept: usize = text.chars().map_while(kept).sum();
    let shorter = match kept == text.len() {
        true => error_text(text),
        false => error_text(&format_args!("{}{CUT_MARK}", &text[..kept])),
    };
    let details = status.details().to_vec().into();
    Status::with_details_and_metadata(status.code(), shorter, details, status.metadata().clone())
}

fn state(headers: &mut HeaderMap, status: &Status) {
    // A status that cannot be written as headers leaves the present one.
    let _unwritable = status.add_header(headers);
}

fn refusal(error: LimitExceeded) -> Status {
    Status::resource_exhausted(error.to_string())
}

/// Position in the frames of a request.
#[derive(Debug)]
struct Frames {
    limit: &'static Limit,
    header: [u8; FRAME],
    /// Octets of the next frame that have arrived.
    known: usize,
    /// Octets of the current message still to come.
    left: usize,
}

impl Frames {
    fn new(limit: &'static Limit) -> Self {
        Self { limit, header: [0; FRAME], known: 0, left: 0 }
    }

    fn read(&mut self, mut octets: &[u8]) -> Result<(), LimitExceeded> {
        while !octets.is_empty() {
            let message = octets.len().min(self.left);
            self.left -= message;
            octets = &octets[message..];
            let header = octets.len().min(FRAME - self.known);
            self.header[self.known..self.known + header].copy_from_slice(&octets[..header]);
            self.known += header;
            octets = &octets[header..];
            if let (FRAME, [_, length @ ..]) = (self.known, self.header) {
                self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
                self.known = 0;
                self.limit.check(self.left)?;
            }
        }
        Ok(())
    }
}

/// Request body that checks each frame against the limit as it arrives.
struct Asked {
    body: Body,
    frames: Frames,
    exceeded: Exceeded,
}

impl HttpBody for Asked {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if let Some(error) = this.exceeded.get() {
            return Poll::Ready(Some(Err(refusal(*error))));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let Some(Ok(data)) = &frame
            && let Some(octets) = data.data_ref()
            && let Err(error) = this.frames.read(octets)
        {
            let error = *this.exceeded.get_or_init(|| error);
            return Poll::Ready(Some(Err(refusal(error))));
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

/// Response body that cuts the status in its trailers.
struct Answered {
    body: Body,
    exceeded: Exceeded,
}

impl HttpBody for Answered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let mut frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &mut frame
            && let Some(trailers) = frame.trailers_mut()
        {
            restate(trailers, &self.exceeded);
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

#[cfg(test)]
mod tests {
    use holdfast_config::limits::{PLAIN_MESSAGE_SIZE, READ_MESSAGE_SIZE};
    use http_body_util::{BodyExt, Full, StreamBody};
    use tonic::Code;
    use tower::ServiceExt;

    use super::*;

    const GET: &str = "/gnmi.gNMI/Get";

    fn frame(length: usize) -> Vec<u8> {
        [&[0], &u32::try_from(length).unwrap().to_be_bytes()[..]].concat()
    }

    #[test]
    fn each_message_of_a_stream_is_measured_however_its_octets_come() {
        let message = |length: usize| [frame(length), vec![7; length]].concat();
        let most = READ_MESSAGE_SIZE.figure;
        for (octets, fits) in [
            (Vec::new(), true),
            (frame(most), true),
            (frame(most + 1), false),
            (frame(u32::MAX as usize), false),
            ([message(3), message(0), message(300), frame(most)].concat(), true),
            ([message(3), message(0), message(300), frame(most + 1)].concat(), false),
        ] {
            for piece in [1, 2, 5, 7, 4096] {
                let mut frames = Frames::new(&READ_MESSAGE_SIZE);
                let got = octets.chunks(piece).try_for_each(|octets| frames.read(octets));
                assert_eq!(got.is_ok(), fits, "{} octets in pieces of {piece}", octets.len());
            }
        }
    }

    /// Calls a service that reads the whole request and ends with `trailers`; returns the status and the octets
    /// read, 0 after an error.
    async fn call(method: &str, octets: Vec<u8>, trailers: Status) -> (Status, usize) {
        let heard = Arc::new(OnceLock::new());
        let hears = heard.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (hears, trailers) = (hears.clone(), trailers.clone());
            async move {
                let got = request.into_body().collect().await.map(|all| all.to_bytes().len());
                hears.set(got.unwrap_or(0)).unwrap();
                let mut headers = HeaderMap::new();
                trailers.add_header(&mut headers).unwrap();
                let end = Ok::<_, Status>(Frame::<Bytes>::trailers(headers));
                let body = StreamBody::new(tokio_stream::once(end));
                Ok::<_, Infallible>(Response::new(Body::new(body)))
            }
        });
        let limited = tower::Layer::layer(&Layer, service);
        let body = Body::new(Full::new(Bytes::from(octets)).map_err(|never| match never {}));
        let request = Request::builder().uri(method).body(body).unwrap();
        let response = limited.oneshot(request).await.unwrap();
        let trailers = response.into_body().collect().await.unwrap().trailers().unwrap().clone();
        (Status::from_header_map(&trailers).unwrap(), *heard.get().unwrap())
    }

    #[tokio::test]
    async fn a_stream_that_announces_too_much_ends_with_the_name_of_the_limit() {
        let fine = Status::ok("");
        let octets = [frame(3), vec![1, 2, 3]].concat();
        let (status, heard) = call(GET, octets, fine.clone()).await;
        assert_eq!((status.code(), heard), (Code::Ok, 8));
        for (method, length, limit) in [
            (GET, 64 << 20, &READ_MESSAGE_SIZE),
            ("/gnmi.gNMI/Subscribe", 2 << 20, &READ_MESSAGE_SIZE),
            ("/gnoi.os.OS/Install", (4 << 20) + 1, &PLAIN_MESSAGE_SIZE),
        ] {
            let (status, heard) = call(method, frame(length), fine.clone()).await;
            assert_eq!((status.code(), heard), (Code::ResourceExhausted, 0), "{method}");
            assert!(status.message().contains(limit.name), "{method}: {status:?}");
        }
        let (status, _) = call("/gnmi.gNMI/Set", frame(64 << 20), fine).await;
        assert_eq!(status.code(), Code::Ok);
    }

    #[tokio::test]
    async fn no_status_says_more_than_an_error_text_may() {
        for (text, whole) in [("x".repeat(4096), true), ("\u{20ac}".repeat(20_000), false)] {
            let long = Status::not_found(text.clone());
            let (status, _) = call(GET, Vec::new(), long).await;
            let mut headers = HeaderMap::new();
            status.add_header(&mut headers).unwrap();
            assert!(headers[MESSAGE].len() <= MAX_HEADER, "{}", headers[MESSAGE].len());
            assert_eq!(status.code(), Code::NotFound);
            assert_eq!(status.message() == text, whole);
            assert_eq!(status.message().ends_with(CUT_MARK), !whole);
            assert!(status.message().len() <= ERROR_TEXT.figure);
        }
    }
}
