//! Everything that arrives over the network arrives here, encrypted: there is no cleartext listener.
//!
//! What is shown and who is asked is decided by [`TlsProfiles`]: by the profile that the server is bound to, else by the
//! operator's certificate, or the identity the agent made for itself on its first start. [`Listener`] accepts
//! connections so and hands on those whose handshake is done. Where a profile trusts somebody, a connection without a
//! valid certificate ends here.

mod identity;
mod limits;
mod listener;
mod peer;
mod probation;
mod standing;
mod verifier;

use std::{
    fs::Permissions,
    io,
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use holdfast_security::certz::{CertzError, Clients, TrustBundle};
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

pub use self::identity::ca_file;
pub(crate) use self::identity::self_signed;
pub use self::listener::{Connection, Incoming, Listener};
pub use self::peer::{Peer, PeerCertificate};
pub(crate) use self::standing::{LastStanding, Standing, judge};
use self::verifier::ClientVerifier;
#[cfg(doc)]
use crate::gnsi::TlsProfiles;
use crate::{logging::Chain, settings::TlsSettings, store::StoreError};

/// HTTP/2 is all we speak; RFC 7540 section 3.3 asks for its name in the handshake.
const ALPN: &[u8] = b"h2";

/// Why there is no TLS identity to serve with, or no socket to serve on.
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
    #[error("the certificate in `{}` expired on {when}", path.display())]
    Expired { path: PathBuf, when: String },
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
    Listen { address: std::net::SocketAddr, source: io::Error },
}

/// What the box shows, and whom it asks for a certificate, as long as nobody says otherwise.
#[derive(Clone, Debug)]
pub(crate) struct Own {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) clients: Option<Clients>,
    /// From the maker of the box.
    pub(crate) idevid: Filed,
    /// From its owner.
    pub(crate) oidevid: Filed,
}

/// An identity that files may hold.
#[derive(Clone, Debug)]
pub(crate) enum Filed {
    NotGiven,
    /// The log says why. The box comes up without it.
    Unusable,
    There(Arc<CertifiedKey>),
}

impl Filed {
    fn read(files: Option<(&PathBuf, &PathBuf)>, provider: &CryptoProvider) -> Self {
        let Some((certificate, key)) = files else { return Self::NotGiven };
        match operators_identity(certificate, key, provider) {
            Ok(certified) => Self::There(Arc::new(certified)),
            Err(error) => {
                error!(error = %Chain(&error), "an identity of the box cannot be used");
                Self::Unusable
            }
        }
    }
}

/// Reads the operator's files, or else reads or makes the agent's own identity in the state folder.
///
/// `addresses` are those under which clients may reach the box; an identity of our own names them.
///
/// # Errors
/// When a file is missing, expired, or does not fit another; the message names the file.
pub(crate) fn own(
    settings: &TlsSettings,
    state_dir: &Path,
    addresses: &[IpAddr],
) -> Result<Own, TlsError> {
    let provider = aws_lc_rs::default_provider();
    let certified = match (&settings.tls_cert, &settings.tls_key) {
        (Some(certificate), Some(key)) => operators_identity(certificate, key, &provider)?,
        _ => identity::own(state_dir, addresses, &provider)?,
    };
    let clients = settings.tls_client_ca.as_deref().map(client_authorities).transpose()?;
    let idevid = settings.idevid.as_ref().map(|(certificate, key)| (certificate, key));
    let oidevid = settings.oidevid_cert.as_ref().zip(settings.oidevid_key.as_ref());
    Ok(Own {
        certified: Arc::new(certified),
        clients: clients.map(Clients::of),
        idevid: Filed::read(idevid, &provider),
        oidevid: Filed::read(oidevid, &provider),
    })
}

/// The settings of a handshake that shows `certified`. With `clients`, one without a certificate of theirs fails, and
/// none is shortened: rustls takes a resumed client's certificate out of the session and verifies nothing again, so that
/// it would outlive its validity and its revocation. Without `clients` a session says nothing about who is there.
///
/// # Errors
/// When the library refuses its own defaults: a mistake of ours.
pub(crate) fn server_config(
    certified: &CertifiedKey,
    clients: Option<Clients>,
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
    let shown = SingleCertAndKey::from(certified.clone());
    let mut config = builder.with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = vec![ALPN.to_vec()];
    if !resumable {
        // Tickets that hold a whole session are off by default, in both versions.
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
    let private = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::Pem {
        what: "a private key",
        path: key.into(),
        source,
    })?;
    warn_of_readable_key(key);
    CertifiedKey::from_der(chain, private, provider).map_err(|source| match source {
        rustls::Error::InconsistentKeys(_) => {
            TlsError::Mismatch { certificate: certificate.into(), key: key.into() }
        }
        source => TlsError::BadKey { path: key.into(), source },
    })
}

fn client_authorities(path: &Path) -> Result<TrustBundle, TlsError> {
    TrustBundle::new("the file", read_certificates(path)?)
        .map_err(|source| TlsError::ClientAuthorities { path: path.into(), source })
}

/// All certificates of a PEM file; at least one.
fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unreadable = |source| TlsError::Pem { what: "certificates", path: path.into(), source };
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(unreadable)?
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path.into() });
    }
    Ok(chain)
}

/// Refuses an expired certificate. One that is not valid yet is only warned of: a box whose clock has not been set
/// since it was switched on must come up.
fn check_validity(path: &Path, chain: &[CertificateDer<'_>]) -> Result<(), TlsError> {
    let now = x509_parser::time::ASN1Time::now();
    for (index, der) in chain.iter().enumerate() {
        let certificate = parse(der).map_err(|source| bad_certificate(path, index, source))?;
        let validity = certificate.validity();
        if now > validity.not_after {
            return Err(TlsError::Expired {
                path: path.into(),
                when: validity.not_after.to_string(),
            });
        }
        if now < validity.not_before {
            warn!(file = %path.display(), from = %validity.not_before, "the certificate is not valid yet, or the clock is wrong");
        }
    }
    Ok(())
}

fn parse<'d>(
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
