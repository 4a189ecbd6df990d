//! Answers: JSON or text, a page at a time.

use axum::Json;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use holdfast_scheduler::Key;
use serde::Serialize;

use super::Introspect;
use super::arguments::Arguments;
use super::failure::Failure;

/// A page of a list, with the way to the next one.
pub(super) fn list<T: Serialize>(entries: &[T], next: Option<String>) -> Response {
    linked(Json(entries).into_response(), next)
}

pub(super) fn text(text: String, next: Option<String>) -> Response {
    linked(text.into_response(), next)
}

/// `Link` of RFC 8288 leads on.
fn linked(mut response: Response, next: Option<String>) -> Response {
    let link = next.map(|address| HeaderValue::from_str(&format!("<{address}>; rel=\"next\"")));
    if let Some(Ok(link)) = link {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

/// The keys of one page, and where the next one starts.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) keys: Vec<Key>,
    pub(super) next: Option<String>,
}

impl Introspect {
    /// The keys that the arguments `descriptor`, `key-prefix`, `after` and `limit` select, ascending. With `past`,
    /// those that only the history knows are among them.
    ///
    /// The core gives the bare keys, the rest is done beside it.
    pub(super) async fn keys(&self, arguments: &Arguments, past: bool) -> Result<Keys, Failure> {
        let limit = arguments.limit()?;
        let after = arguments.text("after").map(cursor).transpose()?;
        let prefixes = self.selection(arguments)?;
        let wanted = move |key: &Key| {
            after.as_ref().is_none_or(|after| key > after)
                && prefixes.as_ref().is_none_or(|all| all.iter().any(|it| key.starts_with(it)))
        };
        let asked = self.core.look(move |inside| {
            let mut keys = inside.engine.keys(&wanted);
            if past {
                let history = inside.engine.history();
                keys.extend(history.keys().filter(|key| wanted(key)).cloned());
            }
            keys
        });
        let mut keys = asked.await?;
        keys.sort_unstable();
        keys.dedup();
        let more = keys.len() > limit;
        keys.truncate(limit);
        let last = keys.last().filter(|_| more).map(hex);
        let next = last.map(|place| arguments.next_page("after", &place));
        Ok(Keys { keys, next })
    }

    /// The prefixes that the arguments name; none for everything.
    pub(super) fn selection(&self, arguments: &Arguments) -> Result<Option<Vec<Key>>, Failure> {
        let registry = self.render.registry();
        match (arguments.text("descriptor"), arguments.text("key-prefix")) {
            (Some(_), Some(_)) => Err(Failure::bad("give `descriptor` or `key-prefix`, not both")),
            (Some(name), None) => match registry.by_name(name) {
                Some(kind) => Ok(Some(vec![Key::of(kind.kind())])),
                None => Err(Failure::unknown(format!("there is no descriptor `{name}`"))),
            },
            (None, Some(text)) => super::names::prefixes(registry, text).map(Some),
            (None, None) => Ok(None),
        }
    }
}

fn hex(key: &Key) -> String {
    key.as_bytes().iter().map(|octet| format!("{octet:02x}")).collect()
}

/// The key that [`hex`] wrote.
fn cursor(text: &str) -> Result<Key, Failure> {
    let octet = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    let octets: Option<Vec<u8>> = (0..text.len()).step_by(2).map(octet).collect();
    let key = octets.and_then(|octets| Key::from_bytes(&octets).ok());
    key.ok_or_else(|| Failure::bad(format!("`after={text}` is no place that a page ended at")))
}
