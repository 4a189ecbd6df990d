//! Software that is fetched and checked against its digest, for a bootstrap and for gNOI.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ::aws_lc_rs::digest;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use md5::{Digest as _, Md5};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio::{
    fs::File,
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::network::{ConnectOptions, Network, NetworkError};

/// The ports of URLs that name none.
const HTTP: u16 = 80;
const HTTPS: u16 = 443;
/// File with the certificate authorities that the machine trusts, as Debian and its derivatives have it.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Longest silence of a server before the transfer fails.
const STALL: Duration = Duration::from_secs(60);
/// The longest image, in octets: a whole system takes some hundred megabytes; more is a mistake that fills the
/// disk.
pub const MAX_IMAGE: u64 = 8 << 30;
/// Octets read from a file at a time.
const READ: usize = 64 << 10;

/// Expected digest of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    pub method: DigestMethod,
    pub octets: Vec<u8>,
}

/// Hash function of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestMethod {
    Sha256,
    Sha512,
    /// Detects accidents, but no attacker.
    Md5,
}

/// Reasons why an image cannot be fetched, or is not the expected one.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("`{0}` is not fetched: only http:// and https:// are")]
    Url(String),
    #[error("the certificate to trust the server of `{url}` by cannot be used")]
    Trust { url: String, source: rustls::Error },
    #[error("cannot connect to `{url}`")]
    Connect { url: String, source: NetworkError },
    #[error("cannot fetch `{url}`")]
    Fetch { url: String, source: hyper::Error },
    #[error("`{url}` is answered with {status}")]
    Status { url: String, status: StatusCode },
    #[error("`{0}` is silent for {STALL:?}")]
    Stalled(String),
    #[error("`{0}` has more than {MAX_IMAGE} octets")]
    TooLong(String),
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read `{}` back", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the {method} digest of `{what}` is not the expected one")]
    Digest { what: String, method: DigestMethod },
}

/// Network and trust with which files are fetched.
#[derive(Clone, Debug)]
pub struct ImageSource {
    pub network: Network,
    /// Certificate that the server's may lead to, in addition to the authorities that the machine trusts.
    pub trusts: Option<CertificateDer<'static>>,
}

impl ImageSource {
    /// The network and trust of the machine itself.
    pub fn machine() -> Self {
        Self { network: Network::machine(), trusts: None }
    }

    fn tls(&self) -> Result<TlsConnector, rustls::Error> {
        let mut roots = RootCertStore::empty();
        if let Some(trusted) = &self.trusts {
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
}

/// Fetches the URL into a new file.
///
/// # Errors
///
/// When the server cannot be reached, answers with another status than 200, is silent for a minute or sends too
/// much, or when the disk is full. A part of the file may be left.
pub async fn fetch(source: &ImageSource, url: &str, path: &Path) -> Result<(), ImageError> {
    let (mut body, _connection) = within(url, request(source, url)).await?;
    let written = |source| ImageError::Write { path: path.to_owned(), source };
    let mut file = File::create(path).await.map_err(written)?;
    let mut length = 0_u64;
    while let Some(octets) = within(url, next(url, &mut body)).await? {
        length += octets.len() as u64;
        if length > MAX_IMAGE {
            return Err(ImageError::TooLong(url.to_owned()));
        }
        file.write_all(&octets).await.map_err(written)?;
    }
    file.sync_all().await.map_err(written)
}

impl Digest {
    /// Compares the digest of a file, called `what` in the error, with this one.
    ///
    /// # Errors
    ///
    /// When they differ, or the file cannot be read.
    pub async fn require(&self, file: &Path, what: &str) -> Result<(), ImageError> {
        let digest = self.method.of(file).await;
        let digest = digest.map_err(|source| ImageError::Read { path: file.to_owned(), source })?;
        if digest == self.octets {
            Ok(())
        } else {
            Err(ImageError::Digest { what: what.to_owned(), method: self.method })
        }
    }
}

impl fmt::Display for DigestMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sha256 => "SHA-256",
            Self::Sha512 => "SHA-512",
            Self::Md5 => "MD5",
        })
    }
}

impl DigestMethod {
    /// Octets of a digest of this kind.
    pub fn length(self) -> usize {
        match self {
            Self::Sha256 => digest::SHA256_OUTPUT_LEN,
            Self::Sha512 => digest::SHA512_OUTPUT_LEN,
            Self::Md5 => Md5::output_size(),
        }
    }

    async fn of(self, file: &Path) -> io::Result<Vec<u8>> {
        let mut file = File::open(file).await?;
        match self {
            Self::Sha256 => sha(&mut file, &digest::SHA256).await,
            Self::Sha512 => sha(&mut file, &digest::SHA512).await,
            Self::Md5 => {
                let mut md5 = Md5::new();
                each(&mut file, |octets| md5.update(octets)).await?;
                Ok(md5.finalize().to_vec())
            }
        }
    }
}

async fn sha(file: &mut File, algorithm: &'static digest::Algorithm) -> io::Result<Vec<u8>> {
    let mut context = digest::Context::new(algorithm);
    each(file, |octets| context.update(octets)).await?;
    Ok(context.finish().as_ref().to_vec())
}

async fn each(file: &mut File, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    loop {
        match file.read(&mut buffer).await? {
            0 => return Ok(()),
            length => take(&buffer[..length]),
        }
    }
}

/// Sends the request; the body arrives only while the returned handle lives.
async fn request(
    source: &ImageSource,
    url: &str,
) -> Result<(Incoming, AbortOnDropHandle<()>), ImageError> {
    let wrong = || ImageError::Url(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let (host, scheme) = (uri.host().ok_or_else(wrong)?, uri.scheme_str());
    let (tls, port) = match scheme {
        Some("http") => (None, HTTP),
        Some("https") => {
            let tls = source.tls();
            let url = url.to_owned();
            (Some(tls.map_err(|source| ImageError::Trust { url, source })?), HTTPS)
        }
        _ => return Err(wrong()),
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare.to_owned()).map_err(|_| wrong())?;
    let way = ConnectOptions { name, tls, interface: None };
    let connected = source.network.reach(bare, uri.port_u16().unwrap_or(port), &way).await;
    let (stream, _) =
        connected.map_err(|source| ImageError::Connect { url: url.to_owned(), source })?;
    let failed = |source| ImageError::Fetch { url: url.to_owned(), source };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let connection = AbortOnDropHandle::new(tokio::spawn(async move {
        let _told_by_the_body = connection.await;
    }));
    let authority = uri.authority().map_or(host, |authority| authority.as_str());
    let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, authority)
        .body(Empty::<Bytes>::new())
        .map_err(|_| wrong())?;
    let answer = sender.send_request(request).await.map_err(failed)?;
    match answer.status() {
        StatusCode::OK => Ok((answer.into_body(), connection)),
        status => Err(ImageError::Status { url: url.to_owned(), status }),
    }
}

/// The next octets of the body; none at the end.
async fn next(url: &str, body: &mut Incoming) -> Result<Option<Bytes>, ImageError> {
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|source| ImageError::Fetch { url: url.to_owned(), source })?;
        if let Ok(octets) = frame.into_data() {
            return Ok(Some(octets));
        }
    }
    Ok(None)
}

async fn within<T>(
    url: &str,
    work: impl Future<Output = Result<T, ImageError>>,
) -> Result<T, ImageError> {
    timeout(STALL, work).await.unwrap_or_else(|_| Err(ImageError::Stalled(url.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves 6.32
    #[tokio::test]
    async fn a_file_is_compared_with_digests_of_each_method() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "abc").unwrap();
        for (method, begins) in [
            // Values of FIPS 180-2 and RFC 1321.
            (DigestMethod::Sha256, [0xba, 0x78, 0x16, 0xbf]),
            (DigestMethod::Sha512, [0xdd, 0xaf, 0x35, 0xa1]),
            (DigestMethod::Md5, [0x90, 0x01, 0x50, 0x98]),
        ] {
            let mut octets = method.of(file.path()).await.unwrap();
            assert_eq!((octets.len(), &octets[..4]), (method.length(), &begins[..]));
            Digest { method, octets: octets.clone() }.require(file.path(), "abc").await.unwrap();
            octets[0] ^= 1;
            let refused = Digest { method, octets }.require(file.path(), "abc").await;
            assert!(refused.unwrap_err().to_string().contains("abc"));
        }
    }
}
