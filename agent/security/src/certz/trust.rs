//! Trust bundles, and verification of client certificates.

use std::{cell::Cell, sync::Arc};

use rustls_pki_types::{CertificateDer, TrustAnchor, UnixTime};
use webpki::{
    ALL_VERIFICATION_ALGS, EndEntityCert, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder,
    UnknownStatusPolicy, VerifiedPath, anchor_from_trusted_cert,
};

use super::{AuthenticationPolicy, CertzError, RevocationLists, pkcs7};

/// Authorities of one bundle. The requirement is 20 000; a message of 64 MiB holds about this many.
const MAX_AUTHORITIES: usize = 65_536;

/// Trusted certificate authorities. Cheap to clone.
#[derive(Clone)]
pub struct TrustBundle(Arc<Authorities>);

struct Authorities {
    anchors: Vec<TrustAnchor<'static>>,
    /// Certificates of the anchors, in the same order.
    certificates: Vec<CertificateDer<'static>>,
}

impl TrustBundle {
    /// Makes a bundle from the certificates of one or more messages.
    ///
    /// # Errors
    /// When there is none or too many, or one cannot be an authority; the message gives its number.
    pub fn new(what: &str, certificates: Vec<CertificateDer<'static>>) -> Result<Self, CertzError> {
        let count = certificates.len();
        if count == 0 || count > MAX_AUTHORITIES {
            let reason = format!("a bundle has 1 to {MAX_AUTHORITIES} certificates, not {count}");
            return Err(CertzError::invalid(what, reason));
        }
        let anchors = certificates.iter().enumerate().map(|(index, certificate)| {
            let anchor = anchor_from_trusted_cert(certificate).map_err(|error| {
                let reason = format!("certificate {} cannot be trusted: {error}", index + 1);
                CertzError::invalid(what, reason)
            })?;
            Ok(anchor.to_owned())
        });
        let anchors = anchors.collect::<Result<_, CertzError>>()?;
        Ok(Self(Arc::new(Authorities { anchors, certificates })))
    }

    /// Makes a bundle from one PKCS#7 block in PEM.
    ///
    /// # Errors
    /// The errors of [`Self::new`], and a malformed block.
    pub fn from_pkcs7(what: &str, text: &str) -> Result<Self, CertzError> {
        Self::new(what, pkcs7::certificates(what, text)?)
    }

    /// Restores a bundle from the output of [`Self::stored`].
    ///
    /// # Errors
    /// When the bytes have another form.
    pub fn from_stored(what: &str, mut rest: &[u8]) -> Result<Self, CertzError> {
        let mut certificates = Vec::new();
        while !rest.is_empty() {
            let (after, _) = x509_parser::parse_x509_certificate(rest)
                .map_err(|error| CertzError::internal(what, error.to_string()))?;
            certificates.push(CertificateDer::from(rest[..rest.len() - after.len()].to_vec()));
            rest = after;
        }
        Self::new(what, certificates)
    }

    /// Stored form: the certificates back to back.
    pub fn stored(&self) -> Vec<u8> {
        self.0.certificates.iter().flat_map(|der| der.as_ref()).copied().collect()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Number of authorities.
    pub fn len(&self) -> usize {
        self.0.anchors.len()
    }

    /// Never true, because [`Self::new`] refuses an empty bundle.
    pub fn is_empty(&self) -> bool {
        self.0.anchors.is_empty()
    }

    pub(super) fn anchors(&self) -> &[TrustAnchor<'static>] {
        &self.0.anchors
    }

    /// Authorities of this name, which is the content of a `Name` in DER.
    pub(super) fn named(&self, subject: &[u8]) -> impl Iterator<Item = &CertificateDer<'static>> {
        let all = self.0.anchors.iter().zip(&self.0.certificates);
        all.filter(move |(anchor, _)| anchor.subject.as_ref() == subject).map(|(_, der)| der)
    }
}

impl std::fmt::Debug for TrustBundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrustBundle").field("authorities", &self.len()).finish_non_exhaustive()
    }
}

/// Requirements for client certificates: signer, revocation and authentication policy.
#[derive(Clone, Debug)]
pub struct ClientRequirements {
    pub(super) trust: TrustBundle,
    pub(super) revoked: Option<RevocationLists>,
    pub(super) policy: Option<AuthenticationPolicy>,
}

/// Reason for refusing a client's certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    #[error("the certificate is not valid here: {0}")]
    Certificate(webpki::Error),
    #[error("the authentication policy does not let this authority sign for this subject")]
    Policy,
}

impl ClientRequirements {
    /// Requires a signature by `bundle` and nothing else.
    pub fn of(trust: TrustBundle) -> Self {
        Self { trust, revoked: None, policy: None }
    }

    /// Verifies the certificates of a client at the time `now`.
    ///
    /// A certificate whose authority has no revocation list passes; a list that is out of date still counts, because a
    /// box that cannot be sent a newer one must stay reachable.
    ///
    /// # Errors
    /// [`Rejection`]: the path, a revocation list, or the policy.
    pub fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Rejection> {
        let leaf = EndEntityCert::try_from(leaf).map_err(Rejection::Certificate)?;
        let lists: Vec<_> = self.revoked.iter().flat_map(RevocationLists::iter).collect();
        let revocation = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
            builder
                .with_depth(RevocationCheckDepth::Chain)
                .with_status_policy(UnknownStatusPolicy::Allow)
                .build()
        });
        let denied = Cell::new(false);
        let permitted = |path: &VerifiedPath<'_>| match &self.policy {
            Some(policy) if !policy.permits(path) => {
                denied.set(true);
                Err(webpki::Error::UnknownIssuer) // webpki has no error for this, and tries other paths after it
            }
            _ => Ok(()),
        };
        let verified = leaf.verify_for_usage(
            ALL_VERIFICATION_ALGS,
            self.trust.anchors(),
            intermediates,
            now,
            KeyUsage::client_auth(),
            revocation,
            Some(&permitted),
        );
        match verified {
            Ok(_) => Ok(()),
            Err(_) if denied.get() => Err(Rejection::Policy),
            Err(error) => Err(Rejection::Certificate(error)),
        }
    }
}
