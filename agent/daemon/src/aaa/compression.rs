//! Messages in gzip, in front of every service.
//!
//! gRPC compresses each message separately, and says so in the frame before it. [`GzipBody`] unpacks the messages of
//! a request before anything else sees them: so the limit of the method holds for what comes out, and accounting
//! reads it. The limit is checked while a message is unpacked, so a small message that stands for a huge one is
//! refused at the limit. In a response it packs the messages that are worth it, where the client takes them. Either
//! way the work is done in portions, so a large message does not hold up a thread.
//!
//! Absent on purpose: other encodings. The clients of this field speak gzip or nothing.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use flate2::Compression;
use flate2::write::{GzDecoder, GzEncoder};
use holdfast_config::Limit;
use http::{HeaderMap, HeaderValue};
use hyper::body::{Body as HttpBody, Frame};
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataValue;

use super::messages::{ExceededLimit, FRAME};

const GZIP: &str = "gzip";
const ENCODING: &str = "grpc-encoding";
const ACCEPT_ENCODING: &str = "grpc-accept-encoding";
/// Encodings that the agent reads, in the form of a header.
const ACCEPTED: &str = "gzip,identity";
/// Least bytes of a message that is packed: a smaller one is a packet either way.
const LEAST_PACKED: usize = 1024;
/// Bytes that are unpacked or packed before other work has its turn, which takes some milliseconds.
const PORTION: usize = 256 << 10;

/// True when the messages of a request may be packed by gzip.
///
/// # Errors
/// `UNIMPLEMENTED` for another encoding, with those that the agent reads.
pub(super) fn is_packed(headers: &HeaderMap) -> Result<bool, Status> {
    let Some(encoding) = headers.get(ENCODING) else { return Ok(false) };
    match encoding.as_bytes() {
        b"gzip" => Ok(true),
        b"identity" => Ok(false),
        other => {
            let mut status = Status::unimplemented(format!(
                "messages in `{}` cannot be read: the agent reads {GZIP} and identity",
                other.escape_ascii()
            ));
            let accepted = MetadataValue::from_static(ACCEPTED);
            status.metadata_mut().insert(ACCEPT_ENCODING, accepted);
            Err(status)
        }
    }
}

/// True when a client takes messages in gzip.
pub(super) fn takes_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|encoding| encoding.trim() == GZIP)
}

/// Takes the encoding out of the headers of a request whose messages are unpacked.
pub(super) fn unmark(headers: &mut HeaderMap) {
    headers.remove(ENCODING);
}

/// Says in the headers of a response that its messages may be packed.
pub(super) fn mark(headers: &mut HeaderMap) {
    headers.insert(ENCODING, HeaderValue::from_static(GZIP));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED));
}

/// Body whose messages are unpacked or packed as they pass.
pub(super) struct GzipBody {
    body: Body,
    messages: Messages,
    /// Trailers that arrived while a message was still worked on.
    trailers: Option<HeaderMap>,
}

impl GzipBody {
    /// Unpacks the messages of a request, each up to `limit`. An excess is noted in `exceeded`.
    pub(super) fn unpack(body: Body, limit: &'static Limit, exceeded: ExceededLimit) -> Self {
        Self::new(body, Direction::Unpack { limit, exceeded })
    }

    /// Packs the messages of a response.
    pub(super) fn pack(body: Body) -> Self {
        Self::new(body, Direction::Pack)
    }

    fn new(body: Body, direction: Direction) -> Self {
        Self { body, messages: Messages::new(direction), trailers: None }
    }
}

impl HttpBody for GzipBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let mut portion = PORTION;
        loop {
            match this.messages.next(&mut portion) {
                Ok(Next::Octets(octets)) => return Poll::Ready(Some(Ok(Frame::data(octets)))),
                Ok(Next::Later) => {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Next::Needs) => {}
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
            if let Some(trailers) = this.trailers.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            let frame = match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                ended => return Poll::Ready(ended),
            };
            match frame.into_data() {
                Ok(octets) => this.messages.arrived = octets,
                Err(frame) => this.trailers = frame.into_trailers().ok(),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_idle() && self.trailers.is_none() && self.body.is_end_stream()
    }
}

/// Work that is done to messages.
#[derive(Debug)]
enum Direction {
    Unpack { limit: &'static Limit, exceeded: ExceededLimit },
    Pack,
}

/// Outcome of a step.
#[derive(Debug)]
enum Next {
    /// Bytes to hand on.
    Octets(Bytes),
    /// The portion is used up; there is more to do.
    Later,
    /// More bytes have to arrive.
    Needs,
}

/// Messages in their frames, as they pass.
#[derive(Debug)]
struct Messages {
    direction: Direction,
    /// Bytes that were not looked at yet.
    arrived: Bytes,
    /// Bytes to hand on.
    ready: VecDeque<Bytes>,
    header: [u8; FRAME],
    /// Bytes of the next frame that have arrived.
    known: usize,
    /// Bytes of the current message still to come.
    left: usize,
    /// The current message, when it is unpacked or packed.
    coder: Option<Coder>,
}

#[derive(Debug)]
enum Coder {
    Unpack(GzDecoder<Pieces>),
    Pack(GzEncoder<Pieces>),
}

/// Result of a coder, up to a number of bytes.
#[derive(Debug)]
struct Pieces {
    pieces: VecDeque<Bytes>,
    size: usize,
    most: usize,
}

impl Messages {
    fn new(direction: Direction) -> Self {
        Self {
            direction,
            arrived: Bytes::new(),
            ready: VecDeque::new(),
            header: [0; FRAME],
            known: 0,
            left: 0,
            coder: None,
        }
    }

    /// True when nothing is held back.
    fn is_idle(&self) -> bool {
        self.arrived.is_empty() && self.ready.is_empty() && self.coder.is_none()
    }

    /// Works on what has arrived, until there are bytes to hand on or the portion is used up.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` with the name of the limit when a message becomes too large, `INTERNAL` for one that cannot be
    /// unpacked ("Status codes and their use in gRPC").
    fn next(&mut self, portion: &mut usize) -> Result<Next, Status> {
        loop {
            if let Some(octets) = self.ready.pop_front() {
                return Ok(Next::Octets(octets));
            }
            if *portion == 0 {
                return Ok(Next::Later);
            }
            if self.left == 0
                && let Some(coder) = self.coder.take()
            {
                self.finish(coder)?;
            } else if self.arrived.is_empty() {
                return Ok(Next::Needs);
            } else if self.coder.is_some() {
                self.code(portion)?;
            } else if self.left > 0 {
                let here = self.left.min(self.arrived.len());
                self.left -= here;
                return Ok(Next::Octets(self.arrived.split_to(here)));
            } else {
                self.read_header()?;
            }
        }
    }

    fn read_header(&mut self) -> Result<(), Status> {
        let here = self.arrived.len().min(FRAME - self.known);
        self.arrived.copy_to_slice(&mut self.header[self.known..self.known + here]);
        self.known += here;
        if self.known < FRAME {
            return Ok(());
        }
        let [flag, length @ ..] = self.header;
        self.known = 0;
        self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        match &self.direction {
            Direction::Unpack { limit, .. } if flag == 1 => {
                let pieces = Pieces::up_to(limit.figure);
                let too_long = limit.check(self.left).is_err();
                self.coder = Some(Coder::Unpack(GzDecoder::new(pieces)));
                if too_long { Err(self.exceeded()) } else { Ok(()) }
            }
            Direction::Pack if flag == 0 && self.left >= LEAST_PACKED => {
                let pieces = Pieces::up_to(usize::MAX);
                self.coder = Some(Coder::Pack(GzEncoder::new(pieces, Compression::fast())));
                Ok(())
            }
            Direction::Unpack { .. } | Direction::Pack => {
                self.ready.push_back(Bytes::copy_from_slice(&self.header));
                Ok(())
            }
        }
    }

    /// Gives the coder some of what has arrived.
    fn code(&mut self, portion: &mut usize) -> Result<(), Status> {
        let Some(coder) = &mut self.coder else { return Ok(()) };
        let here = self.left.min(self.arrived.len()).min(*portion);
        let before = coder.size();
        let read = match coder.write(&self.arrived[..here]) {
            Ok(0) => Err(io::Error::other("bytes follow the end of the message")),
            read => read,
        };
        let after = coder.size();
        let read = read.map_err(|error| self.failure(&error))?;
        self.arrived.advance(read);
        self.left -= read;
        *portion = portion.saturating_sub(read.max(after - before));
        Ok(())
    }

    fn finish(&mut self, coder: Coder) -> Result<(), Status> {
        let (flag, finished) = match coder {
            Coder::Unpack(decoder) => (0, decoder.finish()),
            Coder::Pack(encoder) => (1, encoder.finish()),
        };
        let Pieces { pieces, size, .. } = finished.map_err(|error| self.failure(&error))?;
        let size = u32::try_from(size).map_err(|_| self.exceeded())?;
        let mut header = vec![flag];
        header.extend_from_slice(&size.to_be_bytes());
        self.ready.push_back(header.into());
        self.ready.extend(pieces);
        Ok(())
    }

    /// Status for a message that could not be unpacked or packed. The result is given up.
    fn failure(&mut self, error: &io::Error) -> Status {
        if error.kind() == io::ErrorKind::StorageFull {
            return self.exceeded();
        }
        self.coder = None;
        Status::internal(format!("a message is not what {GZIP} makes: {error}"))
    }

    fn exceeded(&mut self) -> Status {
        self.coder = None;
        match &self.direction {
            Direction::Unpack { limit, exceeded } => exceeded.note(limit),
            Direction::Pack => Status::internal("a message is too long for its frame"),
        }
    }
}

impl Coder {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unpack(decoder) => decoder.write(octets),
            Self::Pack(encoder) => encoder.write(octets),
        }
    }

    /// Bytes that it has made so far.
    fn size(&self) -> usize {
        match self {
            Self::Unpack(decoder) => decoder.get_ref().size,
            Self::Pack(encoder) => encoder.get_ref().size,
        }
    }
}

impl Pieces {
    fn up_to(most: usize) -> Self {
        Self { pieces: VecDeque::new(), size: 0, most }
    }
}

impl Write for Pieces {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.size += octets.len();
        if self.size > self.most {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.pieces.push_back(Bytes::copy_from_slice(octets));
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_config::limits::READ_MESSAGE_SIZE;
    use tonic::Code;

    use super::*;

    fn frame(flag: u8, message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[flag], &length[..], message].concat()
    }

    fn gzip(message: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(message).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacking() -> Messages {
        let exceeded = ExceededLimit::default();
        Messages::new(Direction::Unpack { limit: &READ_MESSAGE_SIZE, exceeded })
    }

    /// Everything that comes of these bytes, which arrive in pieces.
    fn pass(mut messages: Messages, octets: &[u8], piece: usize) -> Result<Vec<u8>, Status> {
        let mut passed = Vec::new();
        for piece in octets.chunks(piece) {
            messages.arrived = Bytes::copy_from_slice(piece);
            loop {
                match messages.next(&mut PORTION.clone())? {
                    Next::Octets(octets) => passed.extend_from_slice(&octets),
                    Next::Later => {}
                    Next::Needs => break,
                }
            }
        }
        assert!(messages.is_idle() && messages.known == 0 && messages.left == 0);
        Ok(passed)
    }

    #[test]
    fn messages_are_unpacked_and_packed_however_their_octets_come() {
        let text = "to be or not to be, ".repeat(5000).into_bytes();
        let plain = [frame(0, b"ab"), frame(0, &text), frame(0, b""), frame(0, &text)].concat();
        let packed =
            [frame(0, b"ab"), frame(1, &gzip(&text)), frame(1, &gzip(b"")), frame(0, &text)];
        for piece in [1, 3, 7, 4096, usize::MAX] {
            assert_eq!(pass(unpacking(), &packed.concat(), piece).unwrap(), plain, "{piece}");
            let small = pass(Messages::new(Direction::Pack), &plain, piece).unwrap();
            assert!(small.len() < plain.len() / 10, "{piece}: {}", small.len());
            assert!(small.starts_with(&frame(0, b"ab")), "a small message stays as it is");
            assert_eq!(pass(unpacking(), &small, piece).unwrap(), plain, "{piece}");
        }
    }

    #[test]
    fn what_cannot_be_unpacked_is_refused() {
        let good = gzip(b"hello");
        let mut wrong_sum = good.clone();
        let sum = wrong_sum.len() - 5;
        wrong_sum[sum] ^= 1;
        for message in [
            b"".to_vec(),
            b"hello".to_vec(),
            good[..good.len() - 1].to_vec(),
            [&good[..], b"x"].concat(),
            [&good[..], &good[..]].concat(),
            wrong_sum,
        ] {
            for piece in [1, 4096] {
                let status = pass(unpacking(), &frame(1, &message), piece).unwrap_err();
                assert_eq!(status.code(), Code::Internal, "{message:?}: {status:?}");
            }
        }
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit() {
        let most = READ_MESSAGE_SIZE.figure;
        assert!(pass(unpacking(), &frame(1, &gzip(&vec![0; most])), 4096).is_ok());
        let long = vec![0; most + 1];
        for bomb in [frame(1, &gzip(&long)), frame(1, &long), frame(1, &gzip(&vec![0; most * 64]))]
        {
            let mut messages = unpacking();
            messages.arrived = bomb.into();
            let mut made = 0;
            let status = loop {
                match messages.next(&mut PORTION.clone()) {
                    Ok(Next::Later) => {}
                    Ok(other) => panic!("{other:?}"),
                    Err(status) => break status,
                }
                made = made.max(messages.coder.as_ref().map_or(0, Coder::size));
            };
            assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
            assert!(status.message().contains("read-message-size"), "{status:?}");
            assert!(made <= most && messages.coder.is_none(), "{made}");
        }
    }

    #[test]
    fn encodings_are_read_from_headers() {
        let headers = |name: &'static str, value: &'static str| {
            HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))])
        };
        assert!(!is_packed(&HeaderMap::new()).unwrap());
        assert!(!is_packed(&headers(ENCODING, "identity")).unwrap());
        assert!(is_packed(&headers(ENCODING, "gzip")).unwrap());
        let status = is_packed(&headers(ENCODING, "zstd")).unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert_eq!(status.metadata().get(ACCEPT_ENCODING).unwrap(), ACCEPTED);
        for (value, takes) in [("gzip", true), ("identity, deflate, gzip", true), ("x-gzip", false)]
        {
            assert_eq!(takes_gzip(&headers(ACCEPT_ENCODING, value)), takes, "{value}");
        }
    }
}
