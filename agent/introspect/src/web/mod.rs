//! The web page: files in the binary, served with a strict content security policy. A view has a module of its own.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use axum::routing::get;

/// Content security policy: everything from this origin, nothing inline, no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
];

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const PICTURE: &str = "image/svg+xml";

/// Files of the page: address, type and content. `app.js` is where the page begins.
const FILES: [(&str, &str, &str); 16] = [
    ("/", HTML, include_str!("index.html")),
    ("/style.css", STYLE, include_str!("style.css")),
    ("/favicon.svg", PICTURE, include_str!("favicon.svg")),
    ("/alarms.js", SCRIPT, include_str!("alarms.js")),
    ("/api.js", SCRIPT, include_str!("api.js")),
    ("/app.js", SCRIPT, include_str!("app.js")),
    ("/detail.js", SCRIPT, include_str!("detail.js")),
    ("/dom.js", SCRIPT, include_str!("dom.js")),
    ("/graph.js", SCRIPT, include_str!("graph.js")),
    ("/interfaces.js", SCRIPT, include_str!("interfaces.js")),
    ("/overview.js", SCRIPT, include_str!("overview.js")),
    ("/route.js", SCRIPT, include_str!("route.js")),
    ("/services.js", SCRIPT, include_str!("services.js")),
    ("/transactions.js", SCRIPT, include_str!("transactions.js")),
    ("/values.js", SCRIPT, include_str!("values.js")),
    ("/words.js", SCRIPT, include_str!("words.js")),
];

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let mut router = Router::new();
    for (address, kind, text) in FILES {
        let file = get(move || async move { ([(header::CONTENT_TYPE, kind)], text) });
        router = router.route(address, file);
    }
    router
}

/// Adds the security headers to a response. All answers have them: a browser may be led to any address, and what it shows there
/// holds text that clients have written.
pub(super) async fn with_security_headers(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, value);
    }
    response
}
