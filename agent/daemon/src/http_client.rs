//! Requests to servers by HTTP and HTTPS, one connection each.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::network::{ConnectOptions, Network, NetworkError};

/// The ports of URLs that name none.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// File with the certificate authorities that the machine trusts, as Debian and its derivatives have it.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Longest silence of a server before an exchange fails.
const STALL: Duration = Duration::from_secs(60);

/// Reasons why a server does not answer as it should.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    #[error("`{0}` does not name a server: give an http:// or https:// address")]
    Url(String),
    #[error("cannot use the certificate that the server of `{url}` is checked against")]
    Trust { url: String, source: rustls::Error },
    #[error("cannot connect to `{url}`")]
    Connect { url: String, source: NetworkError },
    #[error("the exchange with `{url}` failed")]
    Exchange { url: String, source: hyper::Error },
    #[error("`{0}` has sent nothing for {STALL:?}")]
    Stalled(String),
}

/// Network and trust with which servers are asked.
#[derive(Clone, Debug)]
pub struct HttpClient {
    pub network: Network,
    /// Certificates that the server's may lead to, in addition to the authorities that the machine trusts.
    pub trusts: Vec<CertificateDer<'static>>,
}

/// Content of a request: its type and its bytes.
#[derive(Clone, Debug)]
pub struct Content {
    pub content_type: &'static str,
    pub bytes: Bytes,
}

/// The answer of a server. The body arrives only while this lives.
#[derive(Debug)]
pub struct Answer {
    url: String,
    pub status: StatusCode,
    body: Incoming,
    _connection: AbortOnDropHandle<()>,
}

impl Answer {
    /// The next bytes of the body; none at the end.
    ///
    /// # Errors
    /// When the connection fails, or the server is silent for too long.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        let url = self.url.clone();
        let body = &mut self.body;
        let next = async {
            while let Some(frame) = body.frame().await {
                let failed = |source| HttpError::Exchange { url: url.clone(), source };
                if let Ok(octets) = frame.map_err(failed)?.into_data() {
                    return Ok(Some(octets));
                }
            }
            Ok(None)
        };
        within(&url, next).await
    }
}

impl HttpClient {
    /// The network and trust of the machine itself.
    pub fn machine() -> Self {
        Self { network: Network::machine(), trusts: Vec::new() }
    }

    /// Trusts the certificates of a PEM file, too.
    ///
    /// # Errors
    /// When the file cannot be read, or has no certificate.
    pub fn trusting(mut self, file: &Path) -> io::Result<Self> {
        let certificates = CertificateDer::pem_file_iter(file).map_err(io::Error::other)?;
        let certificates: Result<Vec<_>, _> = certificates.collect();
        self.trusts = certificates.map_err(io::Error::other)?;
        if self.trusts.is_empty() {
            return Err(io::Error::other("the file has no certificate in PEM"));
        }
        Ok(self)
    }

    fn tls(&self) -> Result<TlsConnector, rustls::Error> {
        let mut roots = RootCertStore::empty();
        for trusted in &self.trusts {
            roots.add(trusted.clone())?;
        }
        let authorities =
            CertificateDer::pem_file_iter(AUTHORITIES).into_iter().flatten().flatten();
        roots.add_parsable_certificates(authorities);
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(TlsConnector::from(Arc::new(config)))
    }

    /// Asks for a URL, or posts something to it. Redirects are not followed.
    ///
    /// # Errors
    /// When the server cannot be reached, cannot prove who it is, or is silent for too long.
    pub async fn exchange(&self, url: &str, content: Option<Content>) -> Result<Answer, HttpError> {
        within(url, self.begin_exchange(url, content)).await
    }

    async fn begin_exchange(
        &self,
        url: &str,
        content: Option<Content>,
    ) -> Result<Answer, HttpError> {
        let wrong = || HttpError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let host = uri.host().ok_or_else(wrong)?;
        let trust = |source| HttpError::Trust { url: url.to_owned(), source };
        let (tls, port) = match uri.scheme_str() {
            Some("http") => (None, HTTP),
            Some("https") => (Some(self.tls().map_err(trust)?), HTTPS),
            _ => return Err(wrong()),
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(bare.to_owned()).map_err(|_| wrong())?;
        let way = ConnectOptions { name, tls, interface: None };
        let connected = self.network.reach(bare, uri.port_u16().unwrap_or(port), &way).await;
        let (stream, _) =
            connected.map_err(|source| HttpError::Connect { url: url.to_owned(), source })?;
        let failed = |source| HttpError::Exchange { url: url.to_owned(), source };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            let _told_by_the_body = connection.await;
        }));
        let authority = uri.authority().map_or(host, |authority| authority.as_str());
        let mut request = Request::builder()
            .uri(uri.path_and_query().map_or("/", |path| path.as_str()))
            .header(header::HOST, authority);
        let mut body = Bytes::new();
        if let Some(Content { content_type, bytes }) = content {
            request = request.method(Method::POST).header(header::CONTENT_TYPE, content_type);
            body = bytes;
        }
        let request = request.body(Full::new(body)).map_err(|_| wrong())?;
        let answer = sender.send_request(request).await.map_err(failed)?;
        Ok(Answer {
            url: url.to_owned(),
            status: answer.status(),
            body: answer.into_body(),
            _connection: connection,
        })
    }
}

async fn within<T>(
    url: &str,
    work: impl Future<Output = Result<T, HttpError>>,
) -> Result<T, HttpError> {
    timeout(STALL, work).await.unwrap_or_else(|_| Err(HttpError::Stalled(url.to_owned())))
}
