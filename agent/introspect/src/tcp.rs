//! Introspection over TCP, for browsers and collectors on the box itself.
//!
//! Every local process can connect. Without the token, which is in a file that only the agent's user can read,
//! requests may only read, or nothing at all if the operator wants that. The number of connections is bounded, so
//! that they leave file descriptors for clients from the network. Pages of other sites get no access: no response
//! has a CORS header, and the `Host` header must have a local name, which defeats DNS rebinding.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{self, Request};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use clap::ValueEnum;
use holdfast_base::http1;
use holdfast_store::{StoreError, write_private_file};
use rand::Rng as _;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use zeroize::Zeroizing;

use super::events::EventStreams;
use super::http_error::HttpError;
use super::web::with_security_headers;

/// Introspection requests over TCP that need the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum IntrospectToken {
    /// Requests that change something
    Changes,
    /// Requests that only read, too
    All,
}

/// File of the token, in the state folder.
const TOKEN_FILE: &str = "introspect.token";
const TOKEN_OCTETS: usize = 32;
/// Host names of this box that a local browser may use.
const LOCAL_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];
/// Connections at one time: a few browsers with six each, and collectors.
const MAX_CONNECTIONS: usize = 64;
/// Readers of events among these, which stay connected; the others are for short requests.
const MAX_EVENT_STREAMS: usize = 16;
/// Time limit for a client that reads nothing of a response. Readers of events get data every 15 s.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Reason why introspection is not served over TCP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcpError {
    #[error("cannot read the token in `{}`", path.display())]
    Token { path: PathBuf, source: io::Error },
    #[error("cannot write the token")]
    NewToken(#[from] StoreError),
    #[error("the token in `{}` is empty", path.display())]
    Empty { path: PathBuf },
}

/// Token for requests over TCP, and the requests that need it.
#[derive(Clone)]
pub struct TokenGuard {
    token: Arc<Zeroizing<String>>,
    required_for: IntrospectToken,
}

/// Serves `routes` on a socket of a loopback address, without end.
pub async fn serve(listener: TcpListener, guard: TokenGuard, routes: Router) {
    let routes = with_token_guard(routes, guard);
    let bounds = http1::Bounds { connections: MAX_CONNECTIONS, write_timeout: Some(WRITE_TIMEOUT) };
    http1::serve(listener, bounds, move |_| routes.clone()).await;
}

fn with_token_guard(routes: Router, guard: TokenGuard) -> Router {
    let streams = EventStreams::at_most(MAX_EVENT_STREAMS);
    let guarded = routes.layer(Extension(streams)).layer(from_fn_with_state(guard, check_request));
    guarded.layer(map_response(with_security_headers)) // of refusals, too
}

/// The token in the state folder, created when missing.
fn load_or_create_token(state: &Path) -> Result<Zeroizing<String>, TcpError> {
    let path = state.join(TOKEN_FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let text = Zeroizing::new(text);
            let token = Zeroizing::new(text.trim().to_owned());
            if token.is_empty() { Err(TcpError::Empty { path }) } else { Ok(token) }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let octets: Zeroizing<[u8; TOKEN_OCTETS]> = Zeroizing::new(rand::rng().random());
            let hex = octets.iter().map(|octet| format!("{octet:02x}")).collect();
            let token: Zeroizing<String> = Zeroizing::new(hex);
            write_private_file(&path, token.as_bytes())?;
            Ok(token)
        }
        Err(source) => Err(TcpError::Token { path, source }),
    }
}

async fn check_request(
    extract::State(guard): extract::State<TokenGuard>,
    request: Request,
    next: Next,
) -> Response {
    if !is_local_name(request.headers()) {
        let why = "this address answers only to its own name: 127.0.0.1 or localhost";
        return error_response(StatusCode::MISDIRECTED_REQUEST, why);
    }
    let reading = [Method::GET, Method::HEAD].contains(request.method());
    if !reading && !guard.has_bearer_token(request.headers()) {
        let why = "a request that changes something needs the token: Authorization: Bearer ...";
        return error_response(StatusCode::UNAUTHORIZED, why);
    }
    if reading
        && guard.required_for == IntrospectToken::All
        && !guard.has_token_or_password(request.headers())
    {
        let why = "reading this agent needs the token: Authorization: Bearer ...";
        // Browsers prompt for it, and send it with the page's requests.
        let challenge = [(header::WWW_AUTHENTICATE, "Basic realm=\"holdfast\"")];
        return (challenge, error_response(StatusCode::UNAUTHORIZED, why)).into_response();
    }
    next.run(request).await
}

fn error_response(status: StatusCode, why: &str) -> Response {
    HttpError::with_status(status, why).into_response()
}

fn is_local_name(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    LOCAL_NAMES.contains(&name)
}

impl fmt::Debug for TokenGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenGuard")
            .field("required_for", &self.required_for)
            .finish_non_exhaustive()
    }
}

impl TokenGuard {
    /// Takes the token in the state folder, which is created when it is missing.
    ///
    /// # Errors
    /// When the token cannot be read or created.
    pub fn load_or_create(state: &Path, required_for: IntrospectToken) -> Result<Self, TcpError> {
        Ok(Self { token: Arc::new(load_or_create_token(state)?), required_for })
    }

    fn has_bearer_token(&self, headers: &HeaderMap) -> bool {
        authorization(headers, "Bearer ").is_some_and(|token| self.is_token(token.as_bytes()))
    }

    /// Reading also accepts the token as a password, with any user name. Changes do not, because browsers add a
    /// known password to requests from other sites.
    fn has_token_or_password(&self, headers: &HeaderMap) -> bool {
        let password = |encoded: &str| {
            let encoded = Zeroizing::new(BASE64.decode(encoded).ok()?);
            let colon = encoded.iter().position(|octet| *octet == b':')?;
            Some(self.is_token(&encoded[colon + 1..]))
        };
        self.has_bearer_token(headers)
            || authorization(headers, "Basic ").and_then(password).unwrap_or_default()
    }

    fn is_token(&self, octets: &[u8]) -> bool {
        octets.ct_eq(self.token.as_bytes()).into()
    }
}

fn authorization<'h>(headers: &'h HeaderMap, scheme: &str) -> Option<&'h str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix(scheme)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use axum::body::Body;
    use axum::routing::{get, post};
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn requests_need_a_local_host_name_and_the_token() {
        let folder = tempfile::tempdir().unwrap();
        let first = load_or_create_token(folder.path()).unwrap();
        assert_eq!(first, load_or_create_token(folder.path()).unwrap());
        let file = folder.path().join(TOKEN_FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        let routes = Router::new().route("/read", get(|| async {})).route("/do", post(|| async {}));
        let basic = |text: String| format!("Basic {}", BASE64.encode(text));
        let right = format!("Bearer {}", *first);
        let wrong = format!("Bearer {}x", *first);
        let password = basic(format!("anybody:{}", *first));
        let wrong_password = basic(format!("anybody:{}x", *first));
        let bare = basic((*first).clone());
        // method and path, host, authorization, status when only changes need the token, status when all requests
        // do
        for (request, host, authorization, changes, all) in [
            ("GET /read", Some("127.0.0.1:9190"), None, 200, 401),
            ("GET /read", Some("localhost"), None, 200, 401),
            ("GET /read", Some("[::1]:80"), None, 200, 401),
            ("GET /read", Some("localhost"), Some(&right), 200, 200),
            ("GET /read", Some("localhost"), Some(&wrong), 200, 401),
            ("GET /read", Some("localhost"), Some(&password), 200, 200),
            ("GET /read", Some("localhost"), Some(&wrong_password), 200, 401),
            ("GET /read", Some("localhost"), Some(&bare), 200, 401),
            ("HEAD /read", Some("localhost"), None, 200, 401),
            ("GET /read", Some("evil.example:9190"), None, 421, 421),
            ("GET /read", Some("127.0.0.1.evil.example"), None, 421, 421),
            ("GET /read", Some("[::1].evil.example"), Some(&right), 421, 421),
            ("GET /read", None, None, 421, 421),
            ("POST /do", Some("localhost"), None, 401, 401),
            ("POST /do", Some("localhost"), Some(&wrong), 401, 401),
            ("POST /do", Some("localhost"), Some(&*first), 401, 401),
            ("POST /do", Some("localhost"), Some(&password), 401, 401),
            ("POST /do", Some("localhost"), Some(&right), 200, 200),
            ("POST /do", Some("evil.example"), Some(&right), 421, 421),
        ] {
            for (asked_for, want) in
                [(IntrospectToken::Changes, changes), (IntrospectToken::All, all)]
            {
                let row = format!("{request} {host:?} {authorization:?} {asked_for:?}");
                let (method, path) = request.split_once(' ').unwrap();
                let mut parts = Request::builder().method(method).uri(path);
                parts = host.into_iter().fold(parts, |it, host| it.header(header::HOST, host));
                parts = authorization
                    .into_iter()
                    .fold(parts, |it, is| it.header(header::AUTHORIZATION, is));
                let parts = parts.body(Body::empty()).unwrap();
                let guard = TokenGuard { token: Arc::new(first.clone()), required_for: asked_for };
                let routes = with_token_guard(routes.clone(), guard);
                let answer = routes.oneshot(parts).await.unwrap();
                assert_eq!(answer.status().as_u16(), want, "{row}");
                let challenged = answer.headers().contains_key(header::WWW_AUTHENTICATE);
                assert_eq!(challenged, want == 401 && path == "/read", "{row}");
                assert_eq!(answer.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff", "{row}");
                let names = answer.headers().keys();
                assert!(!names.into_iter().any(|it| it.as_str().contains("access-control")));
            }
        }
    }
}
