//! The IDevID: the certificate from the manufacturer, and its key.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, RsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cms::cert::x509::Certificate;
use cms::cert::x509::der::Decode;
use holdfast_proto::bootz;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::signature::DigestAlgorithm;

/// Bytes of a line of PEM.
const PEM_LINE: usize = 64;

/// Reason for not using an identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The certificates cannot be read.
    #[error("the IDevID certificate cannot be read: {0}")]
    Certificate(String),
    /// The key cannot be read, or cannot sign as the certificate requires.
    #[error("the IDevID key cannot be used: {0}")]
    Key(String),
}

/// The certificates of an identity in DER, that of the box first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdevidChain(Vec<CertificateDer<'static>>);

impl IdevidChain {
    /// Parses certificates in PEM.
    ///
    /// # Errors
    /// When there is none, or one cannot be read.
    pub fn from_pem(pem: &[u8]) -> Result<Self, IdentityError> {
        let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let chain = read.map_err(|error| IdentityError::Certificate(error.to_string()))?;
        if chain.is_empty() {
            return Err(IdentityError::Certificate("the chain is empty".to_owned()));
        }
        Ok(Self(chain))
    }

    /// The certificates in DER, that of the box first.
    #[must_use]
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.0
    }

    /// The identity as a protocol message: one certificate in base64, or several in PEM.
    #[must_use]
    pub fn message(&self) -> bootz::Identity {
        let text = match &self.0[..] {
            [leaf] => STANDARD.encode(leaf),
            chain => chain.iter().map(pem).collect(),
        };
        bootz::Identity { r#type: Some(bootz::identity::Type::IdevidCert(text)) }
    }

    fn digest(&self) -> Result<DigestAlgorithm, IdentityError> {
        let refused = |reason: String| IdentityError::Certificate(reason);
        let leaf = Certificate::from_der(&self.0[0]).map_err(|error| refused(error.to_string()))?;
        DigestAlgorithm::of_certificate(&leaf).map_err(|error| refused(error.to_string()))
    }
}

fn pem(certificate: &CertificateDer<'static>) -> String {
    let text = STANDARD.encode(certificate);
    let mut lines = vec!["-----BEGIN CERTIFICATE-----"];
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(PEM_LINE));
        lines.push(line);
        rest = after;
    }
    lines.extend(["-----END CERTIFICATE-----", ""]);
    lines.join("\n")
}

/// The private key of an identity, from a file. Its digest is that of the signature in the certificate, because
/// the protocol gives servers no other way to know which digest a box uses.
#[derive(Debug)]
pub struct SigningKey {
    key: IdevidKeyPair,
    random: SystemRandom,
}

#[derive(Debug)]
enum IdevidKeyPair {
    Rsa(Box<RsaKeyPair>, &'static dyn signature::RsaEncoding),
    Ecdsa(Box<EcdsaKeyPair>),
}

impl SigningKey {
    /// Parses the key that belongs to a chain, in PEM: PKCS #8, PKCS #1 or SEC 1.
    ///
    /// # Errors
    /// When it cannot be read, or cannot sign with the digest that the certificate asks for.
    pub fn from_pem(pem: &[u8], chain: &IdevidChain) -> Result<Self, IdentityError> {
        let digest = chain.digest()?;
        let der = PrivateKeyDer::from_pem_slice(pem)
            .map_err(|error| IdentityError::Key(error.to_string()))?;
        let rsa = match &der {
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der()).ok(),
            key => RsaKeyPair::from_pkcs8(key.secret_der()).ok(),
        };
        let key = match rsa {
            Some(key) => IdevidKeyPair::Rsa(Box::new(key), rsa_encoding(digest)),
            None => IdevidKeyPair::Ecdsa(Box::new(ecdsa(der.secret_der(), digest)?)),
        };
        Ok(Self { key, random: SystemRandom::new() })
    }

    /// Signs a message.
    ///
    /// # Errors
    /// When the cryptographic library fails.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, IdentityError> {
        let refused = |_| IdentityError::Key("the key does not sign".to_owned());
        match &self.key {
            IdevidKeyPair::Rsa(key, encoding) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(*encoding, &self.random, message, &mut signature).map_err(refused)?;
                Ok(signature)
            }
            IdevidKeyPair::Ecdsa(key) => {
                Ok(key.sign(&self.random, message).map_err(refused)?.as_ref().to_vec())
            }
        }
    }
}

fn rsa_encoding(digest: DigestAlgorithm) -> &'static dyn signature::RsaEncoding {
    match digest {
        DigestAlgorithm::Sha256 => &signature::RSA_PKCS1_SHA256,
        DigestAlgorithm::Sha384 => &signature::RSA_PKCS1_SHA384,
        DigestAlgorithm::Sha512 => &signature::RSA_PKCS1_SHA512,
    }
}

fn ecdsa(der: &[u8], digest: DigestAlgorithm) -> Result<EcdsaKeyPair, IdentityError> {
    let algorithms: &[&'static signature::EcdsaSigningAlgorithm] = match digest {
        DigestAlgorithm::Sha256 => &[
            &signature::ECDSA_P256_SHA256_ASN1_SIGNING,
            &signature::ECDSA_P521_SHA256_ASN1_SIGNING,
        ],
        DigestAlgorithm::Sha384 => &[
            &signature::ECDSA_P384_SHA384_ASN1_SIGNING,
            &signature::ECDSA_P521_SHA384_ASN1_SIGNING,
        ],
        DigestAlgorithm::Sha512 => &[&signature::ECDSA_P521_SHA512_ASN1_SIGNING],
    };
    let fitting = algorithms.iter().find_map(|algorithm| {
        EcdsaKeyPair::from_pkcs8(algorithm, der)
            .or_else(|_| EcdsaKeyPair::from_private_key_der(algorithm, der))
            .ok()
    });
    fitting.ok_or_else(|| {
        IdentityError::Key(
            "the key is neither RSA nor ECDSA on a curve that fits its digest".to_owned(),
        )
    })
}
