//! Verification of signatures by the keys of certificates, for the supported algorithms.

use aws_lc_rs::digest;
use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use cms::cert::x509::Certificate;
use cms::cert::x509::der::asn1::{Any, ObjectIdentifier};
use cms::cert::x509::spki::SubjectPublicKeyInfoOwned;

const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");

/// Reason for rejecting a signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SignatureError {
    #[error("signatures of kind {0} are not supported")]
    Algorithm(ObjectIdentifier),
    #[error("public keys of kind {0} are not supported")]
    Key(ObjectIdentifier),
    #[error("the signature does not match what it signs")]
    Mismatch,
}

/// Supported digests: SHA-2 with 256 bits and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DigestAlgorithm {
    Sha256,
    Sha384,
    Sha512,
}

impl DigestAlgorithm {
    /// Looks up a digest by its own object identifier, or by that of a signature algorithm that uses it.
    pub(crate) fn from_oid(oid: ObjectIdentifier) -> Result<Self, SignatureError> {
        match oid.to_string().as_str() {
            // In each row: the digest itself, RSA with it, ECDSA with it.
            "2.16.840.1.101.3.4.2.1" | "1.2.840.113549.1.1.11" | "1.2.840.10045.4.3.2" => {
                Ok(Self::Sha256)
            }
            "2.16.840.1.101.3.4.2.2" | "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => {
                Ok(Self::Sha384)
            }
            "2.16.840.1.101.3.4.2.3" | "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => {
                Ok(Self::Sha512)
            }
            _ => Err(SignatureError::Algorithm(oid)),
        }
    }

    /// The digest of the certificate's own signature, by which bootstrap servers and boxes choose theirs.
    pub(crate) fn of_certificate(certificate: &Certificate) -> Result<Self, SignatureError> {
        Self::from_oid(certificate.signature_algorithm().oid)
    }

    pub(crate) fn digest(self, octets: &[u8]) -> digest::Digest {
        let algorithm = match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha384 => &digest::SHA384,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, octets)
    }
}

/// Verifies a signature with the key of a certificate: RSA with PKCS #1 v1.5, or ECDSA in ASN.1.
pub(crate) fn verify(
    certificate: &Certificate,
    digest: DigestAlgorithm,
    message: &[u8],
    signature: &[u8],
) -> Result<(), SignatureError> {
    let key = certificate.tbs_certificate().subject_public_key_info();
    UnparsedPublicKey::new(algorithm(key, digest)?, key.subject_public_key.raw_bytes())
        .verify(message, signature)
        .map_err(|_| SignatureError::Mismatch)
}

fn algorithm(
    key: &SubjectPublicKeyInfoOwned,
    digest: DigestAlgorithm,
) -> Result<&'static dyn VerificationAlgorithm, SignatureError> {
    let kind = key.algorithm.oid;
    if kind == RSA {
        return Ok(match digest {
            DigestAlgorithm::Sha256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            DigestAlgorithm::Sha384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            DigestAlgorithm::Sha512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        });
    }
    if kind != EC {
        return Err(SignatureError::Key(kind));
    }
    let named = key.algorithm.parameters.as_ref().map(Any::decode_as::<ObjectIdentifier>);
    let Some(Ok(curve)) = named else { return Err(SignatureError::Key(kind)) };
    Ok(match (curve, digest) {
        (P256, DigestAlgorithm::Sha256) => &signature::ECDSA_P256_SHA256_ASN1,
        (P256, DigestAlgorithm::Sha384) => &signature::ECDSA_P256_SHA384_ASN1,
        (P256, DigestAlgorithm::Sha512) => &signature::ECDSA_P256_SHA512_ASN1,
        (P384, DigestAlgorithm::Sha256) => &signature::ECDSA_P384_SHA256_ASN1,
        (P384, DigestAlgorithm::Sha384) => &signature::ECDSA_P384_SHA384_ASN1,
        (P384, DigestAlgorithm::Sha512) => &signature::ECDSA_P384_SHA512_ASN1,
        (P521, DigestAlgorithm::Sha256) => &signature::ECDSA_P521_SHA256_ASN1,
        (P521, DigestAlgorithm::Sha384) => &signature::ECDSA_P521_SHA384_ASN1,
        (P521, DigestAlgorithm::Sha512) => &signature::ECDSA_P521_SHA512_ASN1,
        _ => return Err(SignatureError::Key(curve)),
    })
}
