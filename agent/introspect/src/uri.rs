//! URIs with arguments.

use std::fmt::Write as _;

/// A URI to which arguments are added.
#[derive(Debug)]
pub struct UriBuilder(String);

impl UriBuilder {
    /// The URI of a path, without arguments.
    pub fn new(path: &str) -> Self {
        Self(path.to_owned())
    }

    /// Adds an argument.
    pub fn add(&mut self, name: &str, value: &str) {
        let mark = if self.0.contains('?') { '&' } else { '?' };
        let _never_fails = write!(self.0, "{mark}{name}={}", percent_encoded(value));
    }

    /// The URI with all arguments.
    pub fn into_uri(self) -> String {
        self.0
    }
}

/// Percent-encodes all but the unreserved characters of RFC 3986.
pub fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for octet in text.bytes() {
        match octet {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(octet));
            }
            _ => {
                let _never_fails = write!(out, "%{octet:02X}");
            }
        }
    }
    out
}
