//! The trace and the comment of a request: the name that its client gives it for logs and histories, and its reason.

use holdfast_core::Comment;
use http::HeaderMap;
use smol_str::SmolStr;

/// Header for a trace that the client chooses freely.
pub const TRACE_HEADER: &str = "x-trace-id";
/// Header for the comment of a change in the log of configuration revisions.
pub const COMMENT_HEADER: &str = "holdfast-comment";
/// Most bytes of a trace that a client chooses freely. Traces of W3C Trace Context have 32.
const TRACE_SIZE: usize = 64;
/// Bytes of the trace id in `traceparent`.
const TRACE_ID_SIZE: usize = 32;

/// The trace in the headers of a request: the trace id of `traceparent` (W3C Trace Context, section 3.2), else
/// `x-trace-id`. A form that is not understood names nothing, as that recommendation asks for.
pub fn trace_of(headers: &HeaderMap) -> Option<SmolStr> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let parent = text("traceparent").and_then(|parent| parent.split('-').nth(1));
    let is_id = |id: &&str| {
        let is_hex = id.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it));
        id.len() == TRACE_ID_SIZE && is_hex && id.bytes().any(|it| it != b'0')
    };
    let free = || text(TRACE_HEADER).and_then(|name| parse_trace(name).ok());
    parent.filter(is_id).map(SmolStr::new).or_else(free)
}

/// Reads a trace that the client chooses freely.
///
/// # Errors
/// When it has other characters, or too many.
pub fn parse_trace(text: &str) -> Result<SmolStr, String> {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"-_.:/".contains(&it);
    if (1..=TRACE_SIZE).contains(&text.len()) && text.bytes().all(is_plain) {
        return Ok(text.into());
    }
    Err(format!("a trace has 1 to {TRACE_SIZE} bytes of letters, digits and `-_.:/`"))
}

/// The comment in the headers of a request.
///
/// # Errors
/// When it is too long, has control characters, or is not UTF-8.
pub fn comment_of(headers: &HeaderMap) -> Result<Option<Comment>, String> {
    let Some(value) = headers.get(COMMENT_HEADER) else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes())
        .map_err(|_| format!("`{COMMENT_HEADER}` is not UTF-8"))?;
    text.parse().map(Some).map_err(|error| format!("`{COMMENT_HEADER}`: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves sv.B96
    #[test]
    fn a_client_names_its_request_by_either_header() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let parent = format!("00-{id}-00f067aa0ba902b7-01");
        let zero = parent.replace(id, &"0".repeat(32));
        for (parent, free, trace) in [
            (parent.as_str(), "", Some(id)),
            (&parent, "mine", Some(id)),
            (&zero, "mine", Some("mine")),
            ("00-short-1-01", "", None),
            ("", "change/7", Some("change/7")),
            ("", "with space", None),
            ("", &"x".repeat(65), None),
            ("", "", None),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in [("traceparent", parent), (TRACE_HEADER, free)] {
                if !value.is_empty() {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            assert_eq!(trace_of(&headers).as_deref(), trace, "{parent} {free}");
        }
    }

    #[test]
    fn a_comment_is_read_or_refused() {
        let of = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(COMMENT_HEADER, http::HeaderValue::from_bytes(value).unwrap());
            comment_of(&headers).map(|it| it.map(|comment| comment.to_string()))
        };
        assert_eq!(comment_of(&HeaderMap::new()), Ok(None));
        assert_eq!(of(b"ticket 7"), Ok(Some("ticket 7".to_owned())));
        assert_eq!(of("Störung".as_bytes()), Ok(Some("Störung".to_owned())));
        let long = of("x".repeat(257).as_bytes()).unwrap_err();
        assert!(long.contains("1 to 256 characters"), "{long}");
        assert_eq!(of(b"\xff").unwrap_err(), "`holdfast-comment` is not UTF-8");
        assert!(of(b"").is_err() && of(b"a\tb").is_err());
    }
}
