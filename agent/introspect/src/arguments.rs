//! Arguments of a request. An unknown, repeated or malformed argument is refused by name.

use axum::extract::{self, FromRequestParts};
use axum::http::Uri;
use axum::http::request::Parts;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::http_error::HttpError;
use super::uri::UriBuilder;
use super::{MAX_PAGE, PAGE};

/// Arguments as received.
#[derive(Debug)]
pub(super) struct Arguments {
    pairs: Vec<(String, String)>,
    uri: Uri,
}

impl<S: Sync> FromRequestParts<S> for Arguments {
    type Rejection = HttpError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, HttpError> {
        Self::from_uri(&parts.uri)
    }
}

impl Arguments {
    fn from_uri(uri: &Uri) -> Result<Self, HttpError> {
        let pairs =
            extract::Query::<Vec<(String, String)>>::try_from_uri(uri).map_err(|error| {
                HttpError::bad_request(format!("cannot read the arguments: {error}"))
            })?;
        Ok(Self { pairs: pairs.0, uri: uri.clone() })
    }

    /// Refuses unknown arguments, and repeated ones that are not in `repeatable`.
    pub(super) fn allow_only(self, names: &[&str], repeatable: &[&str]) -> Result<Self, HttpError> {
        for (at, (name, _)) in self.pairs.iter().enumerate() {
            if repeatable.contains(&name.as_str()) {
                continue;
            }
            if !names.contains(&name.as_str()) {
                let all = [names, repeatable].concat().join(", ");
                return Err(HttpError::bad_request(if all.is_empty() {
                    format!("there is no argument `{name}` here, nor any other")
                } else {
                    format!("there is no argument `{name}` here, but: {all}")
                }));
            }
            if self.pairs[..at].iter().any(|(other, _)| other == name) {
                return Err(HttpError::bad_request(format!("argument `{name}` is given twice")));
            }
        }
        Ok(self)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.pairs.iter().filter(move |(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn required(&self, name: &str) -> Result<&str, HttpError> {
        self.text(name)
            .ok_or_else(|| HttpError::bad_request(format!("argument `{name}` is missing")))
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, HttpError> {
        let read = |text: &str| {
            text.parse().map_err(|_| {
                HttpError::bad_request(format!("`{name}={text}` is not a whole number"))
            })
        };
        self.text(name).map(read).transpose()
    }

    /// A time as nanoseconds since 1970, or in RFC 3339.
    pub(super) fn time(&self, name: &str) -> Result<Option<u64>, HttpError> {
        let read = |text: &str| {
            parse_time(text).ok_or_else(|| {
                HttpError::bad_request(format!(
                    "`{name}={text}` is not a time: give nanoseconds since 1970, 2026-01-31T12:00:00Z, or 2026-01-31"
                ))
            })
        };
        self.text(name).map(read).transpose()
    }

    /// `1` or `true`, `0` or `false`; false when absent.
    pub(super) fn flag(&self, name: &str) -> Result<bool, HttpError> {
        match self.text(name) {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true") => Ok(true),
            Some(text) => {
                Err(HttpError::bad_request(format!("`{name}={text}` is neither true nor false")))
            }
        }
    }

    /// One of the given words; the first one when absent.
    pub(super) fn one_of<'w>(&self, name: &str, words: &[&'w str]) -> Result<&'w str, HttpError> {
        let Some(text) = self.text(name) else { return Ok(words[0]) };
        words.iter().find(|word| **word == text).copied().ok_or_else(|| {
            HttpError::bad_request(format!("`{name}={text}` is not one of {}", words.join(", ")))
        })
    }

    /// Number of entries on a page.
    pub(super) fn limit(&self) -> Result<usize, HttpError> {
        self.count("limit", PAGE, MAX_PAGE)
    }

    /// A number from 1 to `most`.
    pub(super) fn count(&self, name: &str, usual: usize, most: usize) -> Result<usize, HttpError> {
        let Some(number) = self.number(name)? else { return Ok(usual) };
        match usize::try_from(number) {
            Ok(number) if (1..=most).contains(&number) => Ok(number),
            _ => Err(HttpError::bad_request(format!("`{name}={number}` is not from 1 to {most}"))),
        }
    }

    /// The request for another place, with the same arguments.
    pub(super) fn next_page(&self, cursor: &str, place: &str) -> String {
        let mut query = UriBuilder::new(self.uri.path());
        for (name, value) in self.pairs.iter().filter(|(name, _)| name != cursor) {
            query.add(name, value);
        }
        query.add(cursor, place);
        query.into_uri()
    }
}

/// Parses nanoseconds since 1970, RFC 3339, or a date: its beginning in UTC.
pub(super) fn parse_time(text: &str) -> Option<u64> {
    if let Ok(ns) = text.parse() {
        return Some(ns);
    }
    let midnight = format!("{text}T00:00:00Z");
    let read = |text: &str| OffsetDateTime::parse(text, &Rfc3339).ok();
    let moment = read(text).or_else(|| read(&midnight))?;
    u64::try_from(moment.unix_timestamp_nanos()).ok()
}

/// Formats a time by RFC 3339. All nine digits of the fraction are there, so times in columns stand below one another.
pub(super) fn format_time(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let moment =
        OffsetDateTime::from_unix_timestamp(i64::try_from(ns / SECOND).unwrap_or(i64::MAX));
    let text = moment.ok().and_then(|moment| moment.format(&Rfc3339).ok());
    let Some(text) = text else { return ns.to_string() };
    format!("{}.{:09}Z", text.trim_end_matches('Z'), ns % SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(query: &str) -> Arguments {
        Arguments::from_uri(&format!("/x?{query}").parse().unwrap()).unwrap()
    }

    #[test]
    fn times_parse_from_nanoseconds_and_rfc_3339() {
        let second = 1_000_000_000;
        for (text, want) in [
            ("1700000000123456789", Some(1_700_000_000_123_456_789)),
            ("1970-01-01T00:00:02Z", Some(2 * second)),
            ("1970-01-01T01:00:02.5%2B01:00", Some(2 * second + second / 2)),
            ("1970-01-02", Some(86_400 * second)),
            ("yesterday", None),
            ("-1", None),
        ] {
            assert_eq!(arguments(&format!("t={text}")).time("t").ok().flatten(), want, "{text}");
        }
        assert_eq!(format_time(2 * second + second / 2), "1970-01-01T00:00:02.500000000Z");
        assert_eq!(format_time(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(
            parse_time(&format_time(1_700_000_000_123_456_789)),
            Some(1_700_000_000_123_456_789)
        );
    }

    #[test]
    fn unknown_and_repeated_arguments_are_refused() {
        for (query, complaint) in [
            ("kez=a", "there is no argument `kez` here, but: key, limit, prefix"),
            ("key=a&key=b", "argument `key` is given twice"),
            ("prefix=a&prefix=b", ""),
        ] {
            let read = arguments(query).allow_only(&["key", "limit"], &["prefix"]);
            let error = read.err().map(|it| format!("{it:?}")).unwrap_or_default();
            assert!(error.contains(complaint), "{query}: {error}");
        }
        for wrong in ["limit=0", "limit=x", "limit=10001"] {
            assert!(arguments(wrong).limit().is_err(), "{wrong}");
        }
        assert!(arguments("flag=maybe").flag("flag").is_err());
    }

    #[test]
    fn next_page_keeps_the_other_arguments() {
        let next = arguments("key-prefix=a%2Fb&after=x&limit=1").next_page("after", "a/c d");
        assert_eq!(next, "/x?key-prefix=a%2Fb&limit=1&after=a%2Fc%20d");
    }
}
