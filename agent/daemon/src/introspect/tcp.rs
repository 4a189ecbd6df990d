//! The same paths on TCP, for browsers and collectors on the box itself.
//!
//! Everybody on the box can connect, so reading is all that goes without the token, which stands in a file that only
//! the agent's user reads. A page from elsewhere gets nothing: no answer carries a CORS header, and a name that somebody
//! points at this address is refused by the `Host` header.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State as Shared};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use rand::Rng as _;
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use zeroize::Zeroizing;

use super::failure::Failure;
use crate::store::{StoreError, write_private_file};

/// The file with the token, in the state folder.
const TOKEN_FILE: &str = "introspect.token";
const TOKEN_OCTETS: usize = 32;
/// Names of this box that a browser on it may use.
const LOCAL_NAMES: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// Why the paths are not on TCP.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TcpError {
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("cannot read the token in `{}`", path.display())]
    Token { path: PathBuf, source: io::Error },
    #[error("cannot write the token")]
    NewToken(#[from] StoreError),
    #[error("the token in `{}` is empty", path.display())]
    Empty { path: PathBuf },
}

/// The serving task; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Tcp {
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone)]
struct Guard {
    token: Arc<Zeroizing<String>>,
}

/// Serves `routes` on an address of the loopback device.
///
/// # Errors
/// When the address cannot be used, or the token cannot be read or made.
pub(crate) async fn start(
    address: SocketAddr,
    state: &Path,
    routes: Router,
) -> Result<Tcp, TcpError> {
    let routes = guarded(routes, token(state)?);
    let failed = |source| TcpError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    tracing::info!(address = %listener.local_addr().map_err(failed)?, "introspection is served");
    let task = tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!(%error, "introspection has stopped");
        }
    });
    Ok(Tcp { _task: AbortOnDropHandle::new(task) })
}

fn guarded(routes: Router, token: Zeroizing<String>) -> Router {
    routes.layer(from_fn_with_state(Guard { token: Arc::new(token) }, admit))
}

/// The token in the state folder, made when there is none.
fn token(state: &Path) -> Result<Zeroizing<String>, TcpError> {
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

async fn admit(Shared(guard): Shared<Guard>, request: Request, next: Next) -> Response {
    if !is_local_name(request.headers()) {
        let why = "this address is asked by its own name only: 127.0.0.1 or localhost";
        return refused(StatusCode::MISDIRECTED_REQUEST, why);
    }
    let reading = [Method::GET, Method::HEAD].contains(request.method());
    if !reading && !guard.knows(request.headers()) {
        let why = "what changes something needs the token: Authorization: Bearer ...";
        return refused(StatusCode::UNAUTHORIZED, why);
    }
    next.run(request).await
}

fn refused(status: StatusCode, why: &str) -> Response {
    Failure::with(status, why).into_response()
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

impl Guard {
    fn knows(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|it| it.to_str().ok());
        let given = given.and_then(|text| text.strip_prefix("Bearer "));
        given.is_some_and(|given| bool::from(given.as_bytes().ct_eq(self.token.as_bytes())))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use axum::body::Body;
    use axum::routing::{get, post};
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn strangers_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = token(folder.path()).unwrap();
        assert_eq!(first, token(folder.path()).unwrap());
        let file = folder.path().join(TOKEN_FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        let routes = Router::new().route("/read", get(|| async {})).route("/do", post(|| async {}));
        let routes = guarded(routes, first.clone());
        let right = format!("Bearer {}", *first);
        let wrong = format!("Bearer {}x", *first);
        for (method, path, host, token, want) in [
            ("GET", "/read", Some("127.0.0.1:9190"), None, 200),
            ("GET", "/read", Some("localhost"), None, 200),
            ("GET", "/read", Some("[::1]:80"), None, 200),
            ("GET", "/read", Some("evil.example:9190"), None, 421),
            ("GET", "/read", Some("127.0.0.1.evil.example"), None, 421),
            ("GET", "/read", Some("[::1].evil.example"), None, 421),
            ("GET", "/read", None, None, 421),
            ("POST", "/do", Some("localhost"), None, 401),
            ("POST", "/do", Some("localhost"), Some(wrong.as_str()), 401),
            ("POST", "/do", Some("localhost"), Some(&*first), 401),
            ("POST", "/do", Some("localhost"), Some(right.as_str()), 200),
            ("POST", "/do", Some("evil.example"), Some(right.as_str()), 421),
        ] {
            let mut request = Request::builder().method(method).uri(path);
            request = host.into_iter().fold(request, |it, host| it.header(header::HOST, host));
            request =
                token.into_iter().fold(request, |it, is| it.header(header::AUTHORIZATION, is));
            let answer =
                routes.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status().as_u16(), want, "{method} {path} {host:?} {token:?}");
            assert!(!answer.headers().keys().any(|name| name.as_str().contains("access-control")));
        }
    }
}
