//! Paged responses in JSON or text.

use axum::Json;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use holdfast_scheduler::Key;
use serde::Serialize;

use super::Introspect;
use super::arguments::Arguments;
use super::http_error::HttpError;

/// Response with a page of a list, and a link to the next one.
pub(super) fn list<T: Serialize>(entries: &[T], next: Option<String>) -> Response {
    with_link_header(Json(entries).into_response(), next)
}

pub(super) fn text(text: String, next: Option<String>) -> Response {
    with_link_header(text.into_response(), next)
}

/// Adds a `Link` header (RFC 8288) to the next page.
fn with_link_header(mut response: Response, next: Option<String>) -> Response {
    let link = next.map(|address| HeaderValue::from_str(&format!("<{address}>; rel=\"next\"")));
    if let Some(Ok(link)) = link {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

/// Keys of one page, and the start of the next one.
#[derive(Debug)]
pub(super) struct KeyPage {
    pub(super) keys: Vec<Key>,
    pub(super) next: Option<String>,
}

impl Introspect {
    /// Keys selected by the arguments `descriptor`, `key-prefix`, `after` and `limit`, ascending. With `past`,
    /// keys that only the history knows are included.
    ///
    /// The core returns the keys only; all other work happens outside of it.
    pub(super) async fn key_page(
        &self,
        arguments: &Arguments,
        past: bool,
    ) -> Result<KeyPage, HttpError> {
        let limit = arguments.limit()?;
        let after = arguments.text("after").map(parse_cursor).transpose()?;
        let prefixes = self.selected_prefixes(arguments)?;
        let matches = move |key: &Key| {
            after.as_ref().is_none_or(|after| key > after)
                && prefixes.as_ref().is_none_or(|all| all.iter().any(|it| key.starts_with(it)))
        };
        let values = self.core.inspect(move |view| {
            let mut keys = view.engine.keys(&matches);
            if past {
                let history = view.engine.history();
                keys.extend(history.keys().filter(|key| matches(key)).cloned());
            }
            keys
        });
        let mut keys = values.await?;
        keys.sort_unstable();
        keys.dedup();
        let more = keys.len() > limit;
        keys.truncate(limit);
        let last = keys.last().filter(|_| more).map(hex);
        let next = last.map(|place| arguments.next_page("after", &place));
        Ok(KeyPage { keys, next })
    }

    /// Key prefixes from the arguments; `None` for all keys.
    pub(super) fn selected_prefixes(
        &self,
        arguments: &Arguments,
    ) -> Result<Option<Vec<Key>>, HttpError> {
        let registry = self.render.registry();
        match (arguments.text("descriptor"), arguments.text("key-prefix")) {
            (Some(_), Some(_)) => {
                Err(HttpError::bad_request("give `descriptor` or `key-prefix`, not both"))
            }
            (Some(name), None) => match registry.by_name(name) {
                Some(kind) => Ok(Some(vec![Key::of(kind.kind())])),
                None => Err(HttpError::not_found(format!("there is no descriptor `{name}`"))),
            },
            (None, Some(text)) => super::key_lookup::key_prefixes(registry, text).map(Some),
            (None, None) => Ok(None),
        }
    }
}

fn hex(key: &Key) -> String {
    key.as_bytes().iter().map(|octet| format!("{octet:02x}")).collect()
}

/// Parses a key from the output of [`hex`].
fn parse_cursor(text: &str) -> Result<Key, HttpError> {
    let octet = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let octets: Option<Vec<u8>> = (0..text.len()).step_by(2).map(octet).collect();
    let key = octets.and_then(|octets| Key::from_bytes(&octets).ok());
    key.ok_or_else(|| {
        HttpError::bad_request(format!("`after={text}` is not a place at which a page ended"))
    })
}
