//! TLS for all network connections. Every network listener uses it.
//!
//! [`crate::gnsi::TlsProfiles`] selects the server's certificate and the client authorities: from the profile that the server
//! is bound to, else from the operator's files, or the agent's own identity, which it creates at its first start.
//! [`Incoming`] accepts connections accordingly and passes them on after their handshake. Where client authorities
//! are configured, a connection without a valid certificate ends here. Without a usable certificate nothing is served, and
//! the agent goes on without clients from the network.

mod certificate_status;
mod dscp;
mod identity;
mod limits;
mod listener;
mod login_grace;
mod peer;
mod source;
mod verifier;

use std::{
    fs::Permissions,
    io,
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use holdfast_base::ErrorChain;
use holdfast_security::certz::{CertzError, ClientRequirements, TrustBundle};
use holdfast_store::StoreError;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::NoServerSessionStorage,
    sign::{CertifiedKey, SingleCertAndKey},
};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject},
};
use tracing::{error, warn};
use x509_parser::{parse_x509_certificate, prelude::X509Certificate};

pub(crate) use self::certificate_status::{
    CertificateStatus, CertificateStatusCache, current_status,
};
pub use self::dscp::Dscp;
pub use self::identity::ca_file;
pub(crate) use self::identity::{address_bytes, is_current, self_signed};
pub use self::listener::{Connection, Incoming, ServerConfigs};
pub use self::peer::{Peer, PeerCertificate};
pub use self::source::source_of;
use self::verifier::ClientVerifier;
use crate::settings::TlsSettings;
use crate::systemd;

/// ALPN name of HTTP/2, the only protocol offered (RFC 7540 section 3.3).
const ALPN: &[u8] = b"h2";

/// Reason for the lack of a TLS identity or of a listening socket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    #[error("cannot read {what} from `{}`", path.display())]
    Pem { what: &'static str, path: PathBuf, source: pem::Error },
    #[error("`{}` holds no certificate", path.display())]
    NoCertificate { path: PathBuf },
    #[error("certificate {number} in `{}` is not usable", path.display())]
    BadCertificate {
        path: PathBuf,
        number: usize,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("the key in `{}` does not belong to the certificate in `{}`", key.display(), certificate.display())]
    Mismatch { certificate: PathBuf, key: PathBuf },
    #[error("cannot use the key in `{}`", path.display())]
    BadKey { path: PathBuf, source: rustls::Error },
    #[error("cannot trust the client certificate authorities in `{}`", path.display())]
    ClientAuthorities { path: PathBuf, source: CertzError },
    #[error("cannot use the identity of this box for a profile")]
    Profile { source: CertzError },
    #[error("cannot make an identity for this box")]
    Generate(#[from] rcgen::Error),
    #[error("cannot keep the identity of this box")]
    Keep(#[from] StoreError),
    #[error("cannot serve TLS with this identity")]
    Unusable(#[from] rustls::Error),
    #[error("cannot listen on {address}")]
    Listen { address: String, source: io::Error },
    /// The reason that [`load_default`] gave.
    #[error("there is no certificate to show: {0}")]
    NoIdentity(String),
}

/// Certificates of the box itself, and client authorities of the operator; in use when no profile is bound.
#[derive(Clone, Debug)]
pub(crate) struct DefaultTls {
    /// The identity of the server, or the reason for which nothing is served without a profile.
    pub(crate) server: Result<ServerIdentity, String>,
    /// IDevID, from the manufacturer.
    pub(crate) idevid: FileIdentity,
    /// oIDevID, from the owner.
    pub(crate) oidevid: FileIdentity,
}

/// Certificate chain with its key, and the clients that are let in.
#[derive(Clone, Debug)]
pub(crate) struct ServerIdentity {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) clients: Option<ClientRequirements>,
}

impl DefaultTls {
    pub(crate) fn certified(&self) -> Option<&Arc<CertifiedKey>> {
        self.server.as_ref().ok().map(|server| &server.certified)
    }

    pub(crate) fn clients(&self) -> Option<&ClientRequirements> {
        self.server.as_ref().ok().and_then(|server| server.clients.as_ref())
    }
}

/// Identity from files.
#[derive(Clone, Debug)]
pub(crate) enum FileIdentity {
    NotGiven,
    /// The files cannot be used; the reason was logged. The agent runs without the identity.
    Unusable,
    Loaded(Arc<CertifiedKey>),
}

impl FileIdentity {
    fn read(files: Option<(&PathBuf, &PathBuf)>, provider: &CryptoProvider) -> Self {
        let Some((certificate, key)) = files else { return Self::NotGiven };
        match operators_identity(certificate, key, provider) {
            Ok(certified) => Self::Loaded(Arc::new(certified)),
            Err(error) => {
                error!(error = %ErrorChain(&error), "an identity of the box cannot be used");
                Self::Unusable
            }
        }
    }
}

/// Reads the operator's files, or else reads or creates the agent's own identity in the state folder.
///
/// `addresses` are the listening addresses, which an own identity has to include. The server has no identity when a
/// file is missing, or does not match another one; the reason names the file. An expired certificate is not such a
/// case: clients decide what they think of it.
pub(crate) fn load_default(
    settings: &TlsSettings,
    state_dir: &Path,
    addresses: &[IpAddr],
) -> DefaultTls {
    let provider = aws_lc_rs::default_provider();
    let server = server_identity(settings, state_dir, addresses, &provider);
    let idevid = settings.idevid.as_ref().map(|(certificate, key)| (certificate, key));
    let oidevid = settings.oidevid_cert.as_ref().zip(settings.oidevid_key.as_ref());
    DefaultTls {
        server: server.map_err(|error| ErrorChain(&error).to_string()),
        idevid: FileIdentity::read(idevid, &provider),
        oidevid: FileIdentity::read(oidevid, &provider),
    }
}

fn server_identity(
    settings: &TlsSettings,
    state_dir: &Path,
    addresses: &[IpAddr],
    provider: &CryptoProvider,
) -> Result<ServerIdentity, TlsError> {
    let certified = match (&settings.tls_cert, &settings.tls_key) {
        (Some(certificate), Some(key)) => operators_identity(certificate, key, provider)?,
        _ => identity::load_or_create(state_dir, addresses, provider)?,
    };
    // Without its authorities the server would let in everybody, so it has no identity then either.
    let clients = settings.tls_client_ca.as_deref().map(client_authorities).transpose()?;
    Ok(ServerIdentity {
        certified: Arc::new(certified),
        clients: clients.map(ClientRequirements::of),
    })
}

/// TLS settings of a server with the certificate `certified`. With `clients`, a handshake requires a client
/// certificate, and session resumption is disabled: rustls takes a resumed client's certificate from the session
/// without verification, so that it would outlive its validity or revocation. Without `clients`, a session carries
/// no identity.
///
/// # Errors
/// When rustls rejects its own defaults, which would be a bug.
pub(crate) fn server_config(
    certified: &CertifiedKey,
    clients: Option<ClientRequirements>,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let resumable = clients.is_none();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            builder.with_client_cert_verifier(Arc::new(ClientVerifier::new(clients, provider)))
        }
    };
    let resolver = SingleCertAndKey::from(certified.clone());
    let mut config = builder.with_cert_resolver(Arc::new(resolver));
    config.alpn_protocols = vec![ALPN.to_vec()];
    if !resumable {
        // Stateless tickets, which hold a whole session, are off by default in both versions.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

fn operators_identity(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = read_certificates(certificate)?;
    check_validity(certificate, &chain)?;
    let private = PrivateKeyDer::from_pem_file(key)
        .map_err(|source| unreadable("a private key", key, source))?;
    warn_of_readable_key(key);
    CertifiedKey::from_der(chain, private, provider).map_err(|source| match source {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::Mismatch { certificate: certificate.into(), key: key.into() }
        }
        source => TlsError::BadKey { path: key.into(), source },
    })
}

/// Reads the certificates of an identity, whose key has to fit.
pub(crate) fn read_identity(
    certificate: &Path,
    key: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    Ok(operators_identity(certificate, key, &aws_lc_rs::default_provider())?.cert)
}

fn client_authorities(path: &Path) -> Result<TrustBundle, TlsError> {
    TrustBundle::new("the file", read_certificates(path)?)
        .map_err(|source| TlsError::ClientAuthorities { path: path.into(), source })
}

/// Reads all certificates of a PEM file, which must have at least one.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| unreadable("certificates", path, source);
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(unreadable)?
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path.into() });
    }
    Ok(chain)
}

fn unreadable(what: &'static str, path: &Path, error: pem::Error) -> TlsError {
    let source = match error {
        pem::Error::Io(error) => pem::Error::Io(systemd::explained(path, error)),
        error => error,
    };
    TlsError::Pem { what, path: path.into(), source }
}

/// Checks that the certificates can be parsed, and warns of those that are not valid now. They are shown all the same: the
/// clock of the box may be wrong, and clients decide.
fn check_validity(path: &Path, chain: &[CertificateDer<'_>]) -> Result<(), TlsError> {
    let now = x509_parser::time::ASN1Time::now();
    for (index, der) in chain.iter().enumerate() {
        let certificate = parse(der).map_err(|source| bad_certificate(path, index, source))?;
        let validity = certificate.validity();
        if now > validity.not_after {
            warn!(file = %path.display(), when = %validity.not_after, "the certificate has expired, or the clock is wrong; it is shown all the same");
        }
        if now < validity.not_before {
            warn!(file = %path.display(), from = %validity.not_before, "the certificate is not valid yet, or the clock is wrong");
        }
    }
    Ok(())
}

pub(crate) fn parse<'d>(
    der: &'d CertificateDer<'_>,
) -> Result<X509Certificate<'d>, x509_parser::error::X509Error> {
    match parse_x509_certificate(der.as_ref()) {
        Ok((_, certificate)) => Ok(certificate),
        Err(error) => Err(error.into()),
    }
}

fn bad_certificate(
    path: &Path,
    index: usize,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> TlsError {
    TlsError::BadCertificate { path: path.into(), number: index + 1, source: source.into() }
}

fn warn_of_readable_key(path: &Path) {
    let mode = path.metadata().map_or(0, |metadata| Permissions::mode(&metadata.permissions()));
    if mode & 0o077 != 0 {
        warn!(file = %path.display(), mode = format!("{:o}", mode & 0o777), "other users of this box can read the TLS key");
    }
}

#[cfg(test)]
mod tests;
