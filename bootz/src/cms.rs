//! Signed CMS messages (RFC 5652), to the extent that vouchers, owner certificates and packages of services need.

use cms::cert::CertificateChoices;
use cms::cert::x509::Certificate;
use cms::cert::x509::der::asn1::{Any, ObjectIdentifier, OctetString};
use cms::cert::x509::der::{self, Decode, Encode};
use cms::cert::x509::ext::pkix::SubjectKeyIdentifier;
use cms::content_info::ContentInfo;
use cms::revocation::RevocationInfoChoice;
use cms::signed_data::{SignedData, SignerIdentifier, SignerInfo};
use rustls_pki_types::{CertificateDer, UnixTime};

pub use crate::chain::ChainError;
use crate::chain::{self, Revocation};
use crate::signature::{self, DigestAlgorithm, SignatureError};

/// Largest message that is read, in bytes. A voucher with a long chain has some ten thousand.
pub const LARGEST: usize = 1 << 20;

const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
const CONTENT_TYPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.3");
const MESSAGE_DIGEST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.9.4");

/// Reason for rejecting a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CmsError {
    /// Longer than [`LARGEST`] bytes.
    #[error("the message has {0} bytes, more than are read")]
    TooLong(usize),
    /// Not in the form of RFC 5652.
    #[error("the message cannot be read as a signed CMS message")]
    Malformed(#[source] der::Error),
    /// Another kind of CMS message.
    #[error("the message is not a signed CMS message: its kind is {0}")]
    OtherKind(ObjectIdentifier),
    /// Without any signature.
    #[error("the message is not signed")]
    Unsigned,
    /// The certificate of a signer is missing from the message.
    #[error("the message lacks the certificate of its signer")]
    NoSigner,
    /// The signed attributes do not match the content.
    #[error("the signed attributes of the message belong to another content")]
    OtherContent,
    /// It has the content in it, where a signature alone is expected.
    #[error("the message has content, but a detached signature must have none")]
    NotDetached,
    /// The signature is wrong, or uses an unsupported algorithm.
    #[error("the signature of the message is not valid: {0}")]
    Signature(String),
    /// The signer is not trusted.
    #[error("the signer of the message is not trusted")]
    Untrusted(#[source] ChainError),
}

impl From<SignatureError> for CmsError {
    fn from(error: SignatureError) -> Self {
        Self::Signature(error.to_string())
    }
}

/// Verifies a detached signature in DER over `content`: each of its signers has to lead to a trusted certificate, and none on
/// the way may be named by one of the revocation lists, in DER. A certificate whose authority has no list passes, and a list
/// that is out of date still counts. Returns the subject of the first signer.
///
/// # Errors
/// When the message is malformed, not detached or not signed, a signature is wrong, or a signer is not trusted or revoked.
pub fn verify_detached(
    signature: &[u8],
    content: &[u8],
    trusted: &[CertificateDer<'_>],
    revocation_lists: &[Vec<u8>],
    now: UnixTime,
) -> Result<String, CmsError> {
    let message = SignedMessage::read(signature)?;
    if !message.content.is_empty() {
        return Err(CmsError::NotDetached);
    }
    let message = SignedMessage { content: content.to_vec(), ..message };
    let signer = message.verify(trusted, Revocation::Known(revocation_lists), now)?;
    Ok(signer.tbs_certificate().subject().to_string())
}

/// A parsed message that is not verified yet.
#[derive(Clone, Debug)]
pub struct SignedMessage {
    kind: ObjectIdentifier,
    content: Vec<u8>,
    certificates: Vec<Certificate>,
    revocation_lists: Vec<Vec<u8>>,
    signers: Vec<SignerInfo>,
}

impl SignedMessage {
    /// Parses a message in DER.
    ///
    /// # Errors
    /// When it is too long, malformed, or of another kind.
    pub fn read(message: &[u8]) -> Result<Self, CmsError> {
        if message.len() > LARGEST {
            return Err(CmsError::TooLong(message.len()));
        }
        let outer = ContentInfo::from_der(message).map_err(CmsError::Malformed)?;
        if outer.content_type != SIGNED_DATA {
            return Err(CmsError::OtherKind(outer.content_type));
        }
        let signed: SignedData = outer.content.decode_as().map_err(CmsError::Malformed)?;
        Self::from_signed_data(signed).map_err(CmsError::Malformed)
    }

    fn from_signed_data(signed: SignedData) -> der::Result<Self> {
        let content = match signed.encap_content_info.econtent {
            Some(content) => content.decode_as::<OctetString>()?.as_bytes().to_vec(),
            None => Vec::new(),
        };
        let certificates = signed.certificates.into_iter().flat_map(|set| set.0.into_vec());
        let lists = signed.crls.into_iter().flat_map(|set| set.0.into_vec());
        Ok(Self {
            kind: signed.encap_content_info.econtent_type,
            content,
            certificates: certificates
                .filter_map(|choice| match choice {
                    CertificateChoices::Certificate(certificate) => Some(certificate),
                    CertificateChoices::Other(_) => None,
                })
                .collect(),
            revocation_lists: lists
                .filter_map(|choice| match choice {
                    RevocationInfoChoice::Crl(list) => Some(list.to_der()),
                    RevocationInfoChoice::Other(_) => None,
                })
                .collect::<Result<_, _>>()?,
            signers: signed.signer_infos.0.into_vec(),
        })
    }

    /// The signed content.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// Verifies that every signer's signature is valid and leads to a trusted certificate, and returns the
    /// certificate of the first signer. `trusted` are certificates in DER.
    ///
    /// # Errors
    /// When there is no signature, a signature is wrong, or a signer is not trusted.
    pub(crate) fn verify(
        &self,
        trusted: &[CertificateDer<'_>],
        revocation: Revocation<'_>,
        now: UnixTime,
    ) -> Result<&Certificate, CmsError> {
        let others = self.certificates.iter().map(to_der);
        let others = others.collect::<Result<Vec<_>, _>>()?;
        let mut first = None;
        for signer in &self.signers {
            let certificate = self.certificate_of(signer)?;
            self.verify_signature(signer, certificate)?;
            let leaf = to_der(certificate)?;
            chain::verify(&leaf, &others, trusted, revocation, now).map_err(CmsError::Untrusted)?;
            first.get_or_insert(certificate);
        }
        first.ok_or(CmsError::Unsigned)
    }

    /// Revocation by the lists in the message.
    pub(crate) fn own_revocation(&self) -> Revocation<'_> {
        Revocation::Required(&self.revocation_lists)
    }

    /// Certificates of all signers, in their order.
    pub(crate) fn signers(&self) -> impl Iterator<Item = Result<&Certificate, CmsError>> {
        self.signers.iter().map(|signer| self.certificate_of(signer))
    }

    fn certificate_of(&self, signer: &SignerInfo) -> Result<&Certificate, CmsError> {
        let is_named = |certificate: &&Certificate| {
            let inner = certificate.tbs_certificate();
            match &signer.sid {
                SignerIdentifier::IssuerAndSerialNumber(name) => {
                    *inner.issuer() == name.issuer && *inner.serial_number() == name.serial_number
                }
                SignerIdentifier::SubjectKeyIdentifier(id) => {
                    let own = inner.get_extension::<SubjectKeyIdentifier>();
                    own.is_ok_and(|own| own.is_some_and(|(_, own)| own == *id))
                }
            }
        };
        self.certificates.iter().find(is_named).ok_or(CmsError::NoSigner)
    }

    /// Checks one signature. With signed attributes the signature covers those, and one of them is the digest of
    /// the content (RFC 5652 section 5.4).
    fn verify_signature(
        &self,
        signer: &SignerInfo,
        certificate: &Certificate,
    ) -> Result<(), CmsError> {
        let digest = DigestAlgorithm::from_oid(signer.digest_alg.oid)?;
        let octets = signer.signature.as_bytes();
        let Some(attributes) = &signer.signed_attrs else {
            return Ok(signature::verify(certificate, digest, &self.content, octets)?);
        };
        let computed = digest.digest(&self.content);
        let signed_digest = attribute(signer, MESSAGE_DIGEST).map(Any::decode_as::<OctetString>);
        let kind = attribute(signer, CONTENT_TYPE).map(Any::decode_as::<ObjectIdentifier>);
        if !signed_digest.is_some_and(|signed_digest| {
            signed_digest.is_ok_and(|it| it.as_bytes() == computed.as_ref())
        }) || kind != Some(Ok(self.kind))
        {
            return Err(CmsError::OtherContent);
        }
        let signed = attributes.to_der().map_err(CmsError::Malformed)?;
        Ok(signature::verify(certificate, digest, &signed, octets)?)
    }
}

pub(crate) fn to_der(certificate: &Certificate) -> Result<CertificateDer<'static>, CmsError> {
    certificate.to_der().map(CertificateDer::from).map_err(CmsError::Malformed)
}

/// The value of a signed attribute that occurs once and has one value (RFC 5652 sections 11.1 and 11.2).
fn attribute(signer: &SignerInfo, oid: ObjectIdentifier) -> Option<&Any> {
    let attributes = signer.signed_attrs.as_ref()?;
    let mut named = attributes.iter().filter(|attribute| attribute.oid == oid);
    let (only, None) = (named.next()?, named.next()) else { return None };
    match only.values.as_slice() {
        [value] => Some(value),
        _ => None,
    }
}
