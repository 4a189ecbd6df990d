//! Bounds of messages, for every service.
//!
//! Requests: the frame before each message announces its length, and one that announces too much ends its call
//! before memory is allocated for it. Responses: no status has a longer text than an error may have.

use std::sync::{Arc, OnceLock};

use holdfast_config::limits::{CUT_MARK, ERROR_TEXT, error_text};
use holdfast_config::{Limit, LimitExceeded};
use http::HeaderMap;
use tonic::Status;

/// Bytes of the frame before a message: a flag for compression and the length.
pub(super) const FRAME: usize = 5;
/// Names of the headers and trailers of a status.
pub(super) const CODE: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";

/// Most bytes of a status text in its header form: some clients accept only 8 KiB of headers in all.
const MAX_HEADER: usize = ERROR_TEXT.figure * 3 / 2;

/// The limit that ended a call. Kept apart, because the handler of a stream may drop the error of its request.
#[derive(Clone, Debug, Default)]
pub(super) struct ExceededLimit(Arc<OnceLock<LimitExceeded>>);

impl ExceededLimit {
    /// Replaces a status by the limit that was exceeded, or cuts its text. Headers without a status stay as they are.
    pub(super) fn restate(&self, headers: &mut HeaderMap) {
        if !headers.contains_key(CODE) {
            return;
        }
        if let Some(status) = self.status() {
            put_status(headers, &status);
        } else if headers.get(MESSAGE).is_some_and(|text| text.len() > MAX_HEADER)
            && let Some(status) = Status::from_header_map(headers)
        {
            put_status(headers, &cut(status));
        }
    }

    /// Notes that a message was larger than its limit; returns the status that the call ends with.
    pub(super) fn note(&self, limit: &'static Limit) -> Status {
        Status::resource_exhausted(self.0.get_or_init(|| LimitExceeded { limit }).to_string())
    }

    fn status(&self) -> Option<Status> {
        self.0.get().map(|error| Status::resource_exhausted(error.to_string()))
    }
}

fn put_status(headers: &mut HeaderMap, status: &Status) {
    // A status that cannot be written as headers leaves the present one.
    let _unwritable = status.add_header(headers);
}

/// Cuts the text of a status to the length that an error text may have.
pub(super) fn cut(status: Status) -> Status {
    let text = status.message();
    // Headers are ASCII: most characters other than letters and digits take three bytes per byte of UTF-8 there.
    let cost = |c: char| if c.is_ascii_alphanumeric() { 1 } else { 3 * c.len_utf8() };
    let mut room = MAX_HEADER - 3 * CUT_MARK.len();
    let octets_of = |c: char| {
        room = room.checked_sub(cost(c))?;
        Some(c.len_utf8())
    };
    let octets_of: usize = text.chars().map_while(octets_of).sum();
    let shorter = if octets_of == text.len() {
        error_text(text)
    } else {
        error_text(&format_args!("{}{CUT_MARK}", &text[..octets_of]))
    };
    let details = status.details().to_vec().into();
    Status::with_details_and_metadata(status.code(), shorter, details, status.metadata().clone())
}

/// Position in the frames of a request.
#[derive(Debug)]
pub(super) struct Frames {
    limit: &'static Limit,
    exceeded: ExceededLimit,
    header: [u8; FRAME],
    /// Bytes of the next frame that have arrived.
    known: usize,
    /// Bytes of the current message still to come.
    left: usize,
}

impl Frames {
    pub(super) fn new(limit: &'static Limit, exceeded: ExceededLimit) -> Self {
        Self { limit, exceeded, header: [0; FRAME], known: 0, left: 0 }
    }

    /// Status of a request in which a message was too large.
    pub(super) fn refusal(&self) -> Option<Status> {
        self.exceeded.status()
    }

    /// Follows the frames through the next bytes.
    ///
    /// # Errors
    ///
    /// `RESOURCE_EXHAUSTED` with the name of the limit, when a frame announces a message that is too large.
    pub(super) fn read(&mut self, octets: &[u8]) -> Result<(), Status> {
        match self.advance(octets) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.exceeded.0.get_or_init(|| error);
                Err(Status::resource_exhausted(error.to_string()))
            }
        }
    }

    fn advance(&mut self, mut octets: &[u8]) -> Result<(), LimitExceeded> {
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

#[cfg(test)]
mod tests {
    use holdfast_config::limits::READ_MESSAGE_SIZE;
    use tonic::Code;

    use super::*;

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
                let mut frames = Frames::new(&READ_MESSAGE_SIZE, ExceededLimit::default());
                let got = octets.chunks(piece).try_for_each(|octets| frames.read(octets));
                assert_eq!(got.is_ok(), fits, "{} bytes in pieces of {piece}", octets.len());
            }
        }
    }

    #[test]
    fn status_texts_are_cut_to_the_length_of_an_error_text() {
        for (text, whole) in [("x".repeat(4096), true), ("\u{20ac}".repeat(20_000), false)] {
            let mut headers = HeaderMap::new();
            put_status(&mut headers, &Status::not_found(text.clone()));
            ExceededLimit::default().restate(&mut headers);
            assert!(headers[MESSAGE].len() <= MAX_HEADER, "{}", headers[MESSAGE].len());
            let status = Status::from_header_map(&headers).unwrap();
            assert_eq!(status.code(), Code::NotFound);
            assert_eq!(status.message() == text, whole);
            assert_eq!(status.message().ends_with(CUT_MARK), !whole);
            assert!(status.message().len() <= ERROR_TEXT.figure);
        }
    }
}
