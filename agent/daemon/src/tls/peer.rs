//! The peer of a connection: addresses and verified certificate.

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustls_pki_types::CertificateDer;
use smol_str::SmolStr;
use x509_parser::{
    extensions::GeneralName,
    objects::{oid_registry, oid2abbrev},
    prelude::X509Certificate,
    x509::AttributeTypeAndValue,
};

use super::dscp::Dscp;
use super::{CertificateStatusCache, login_grace::IdentifiedFlag, parse};
use crate::connections::AdminFlag;
use crate::users::VerifiedLogin;

/// Scheme of a SPIFFE id.
const SPIFFE: &str = "spiffe://";
/// Longest SPIFFE id, in bytes (SPIFFE-ID 2.3).
const MAX_SPIFFE_BYTES: usize = 2048;
/// Longest common name that is accepted as an identity, in bytes; X.520 itself allows 64 characters.
const MAX_COMMON_NAME_BYTES: usize = 256;

/// A connection. Every request on it has this in its extensions.
#[derive(Clone, Debug)]
pub struct Peer {
    pub address: SocketAddr,
    /// Local address of the connection.
    pub local: SocketAddr,
    /// Number of calls so far.
    pub(super) calls: Arc<AtomicU64>,
    /// Verified client certificate, if one was requested.
    pub certificate: Option<Arc<PeerCertificate>>,
    /// Authentication results remembered for this connection.
    pub verified_login: Arc<VerifiedLogin>,
    /// Set once a caller was identified on the connection.
    pub(crate) identified: IdentifiedFlag,
    /// Set once an administrator was identified on the connection.
    pub(crate) admin: AdminFlag,
    /// Requested DSCP.
    pub dscp: Dscp,
}

impl Peer {
    /// A connection for tests, with or without a verified certificate.
    #[cfg(test)]
    pub(crate) fn of(address: SocketAddr, certificate: Option<PeerCertificate>) -> Self {
        Self {
            address,
            local: address,
            calls: Arc::default(),
            certificate: certificate.map(Arc::new),
            verified_login: Arc::default(),
            identified: IdentifiedFlag::unbound(),
            admin: AdminFlag::default(),
            dscp: Dscp::default(),
        }
    }

    /// A copy of this connection without the certificate.
    pub(crate) fn without_certificate(&self) -> Self {
        Self { certificate: None, ..self.clone() }
    }

    /// Number of the next call on this connection, from 0.
    pub(crate) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}

/// A verified client certificate.
pub struct PeerCertificate {
    /// SPIFFE id, else common name; `None` when there is neither, or several.
    pub identity: Option<SmolStr>,
    /// All names for policies: URIs, then DNS names, then the subject.
    pub principals: Vec<SmolStr>,
    pub der: CertificateDer<'static>,
    /// Other certificates of the handshake, which may lead to an authority.
    pub(crate) intermediates: Vec<CertificateDer<'static>>,
    /// Cached result of the last check, while the connection is open.
    pub(crate) status_cache: CertificateStatusCache,
}

impl PeerCertificate {
    /// Makes the certificate from those of a handshake, the client's own first; `None` without any.
    pub(crate) fn of_chain(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let mut chain = chain.iter().map(|der| der.clone().into_owned());
        let der = chain.next()?;
        let (identity, principals) = match parse(&der) {
            Ok(certificate) => (identity(&certificate), principals(&certificate)),
            Err(_) => (None, Vec::new()),
        };
        let intermediates = chain.collect();
        let standing = CertificateStatusCache::default();
        Some(Self { identity, principals, der, intermediates, status_cache: standing })
    }
}

impl fmt::Debug for PeerCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerCertificate").field("identity", &self.identity).finish_non_exhaustive()
    }
}

fn identity(certificate: &X509Certificate<'_>) -> Option<SmolStr> {
    let names = certificate.subject_alternative_name().ok()?;
    let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    let mut ids = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) if uri.starts_with(SPIFFE) => Some(*uri),
        _ => None,
    });
    match (ids.next(), ids.next()) {
        (Some(id), None) => plain(id, MAX_SPIFFE_BYTES),
        (Some(_), Some(_)) => None, // not an SVID, which has one URI only
        _ => common_name(certificate),
    }
}

/// Names in the order of gRFC A43: URI names, then DNS names, then the subject by RFC 2253.
fn principals(certificate: &X509Certificate<'_>) -> Vec<SmolStr> {
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.map(|extension| extension.value.general_names.as_slice()).unwrap_or_default();
    let uris = names.iter().filter_map(|name| match name {
        GeneralName::URI(uri) => Some(SmolStr::new(uri)),
        _ => None,
    });
    let hosts = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(host) => Some(SmolStr::new(host)),
        _ => None,
    });
    let subject = subject(certificate);
    uris.chain(hosts).chain(subject).filter(|name| !name.is_empty()).collect()
}

/// The subject in one line, its last part first; `None` for an empty subject or one that is not text.
fn subject(certificate: &X509Certificate<'_>) -> Option<SmolStr> {
    let part = |attribute: &AttributeTypeAndValue<'_>| {
        let name = match oid2abbrev(attribute.attr_type(), oid_registry()) {
            Ok(short) => short.to_owned(),
            Err(_) => attribute.attr_type().to_id_string(),
        };
        Some(format!("{name}={}", escaped(attribute.as_str().ok()?)))
    };
    let relative = certificate.subject().iter_rdn().map(|rdn| {
        let parts = rdn.iter().map(part).collect::<Option<Vec<_>>>();
        parts.map(|parts| parts.join("+"))
    });
    let mut parts = relative.collect::<Option<Vec<_>>>()?;
    parts.reverse();
    Some(parts.join(",").into())
}

/// Escapes by RFC 2253, section 2.4.
fn escaped(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let escape = |(at, letter): (usize, char)| {
        let special = matches!(letter, ',' | '+' | '"' | '\\' | '<' | '>' | ';');
        let edge = at == 0 && matches!(letter, '#' | ' ') || at == last && letter == ' ';
        let escape = (special || edge).then_some('\\');
        escape.into_iter().chain([letter])
    };
    text.chars().enumerate().flat_map(escape).collect()
}

fn common_name(certificate: &X509Certificate<'_>) -> Option<SmolStr> {
    let mut names = certificate.subject().iter_common_name();
    match (names.next(), names.next()) {
        (Some(name), None) => plain(name.as_str().ok()?, MAX_COMMON_NAME_BYTES),
        _ => None,
    }
}

/// The name if it is valid in a log line and in a policy.
fn plain(name: &str, max_bytes: usize) -> Option<SmolStr> {
    let fits = !name.is_empty() && name.len() <= max_bytes && !name.chars().any(char::is_control);
    fits.then(|| SmolStr::new(name))
}
