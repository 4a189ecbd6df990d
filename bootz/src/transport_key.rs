//! The key that a server encrypts bootstrap data to: made for one stream, and gone with it.

use aws_lc_rs::agreement::{PrivateKey, X25519};
use holdfast_proto::bootz;
use prost::Message;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as SUITE;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke, HpkePrivateKey};

/// Octets of a private key.
pub const SECRET: usize = 32;

/// An X25519 key pair for HPKE (RFC 9180) in base mode with HKDF-SHA256 and AES-256-GCM. Neither `info` nor additional
/// data are used.
pub struct TransportKey {
    secret: HpkePrivateKey,
    public: Vec<u8>,
}

/// Data that this key does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bootstrap data was not encrypted for this stream")]
pub struct NotForUs;

impl TransportKey {
    /// A key made of octets that nobody can guess.
    #[must_use]
    pub fn from_secret(secret: [u8; SECRET]) -> Self {
        let private = PrivateKey::from_private_key(&X25519, &secret).ok();
        let public = private.and_then(|private| private.compute_public_key().ok());
        let public = public.expect("any 32 octets are an X25519 key");
        Self { secret: secret.to_vec().into(), public: public.as_ref().to_vec() }
    }

    /// What the server is told: the serialized message that the identity of the box signs, with the server's nonce.
    #[must_use]
    pub fn announcement(&self, nonce: &[u8]) -> Vec<u8> {
        let suite = bootz::HpkeCipherSuite::X25519HkdfSha256HkdfSha256Aes256Gcm;
        bootz::TransportKey {
            cipher_suite: suite.into(),
            public_key: self.public.clone().into(),
            nonce: nonce.to_vec().into(),
        }
        .encode_to_vec()
    }

    /// Decrypts what was encrypted to this key.
    ///
    /// # Errors
    /// When it was encrypted to another key, or changed on the way.
    pub fn open(&self, encapsulated: &[u8], ciphertext: &[u8]) -> Result<Vec<u8>, NotForUs> {
        let encapsulated = EncapsulatedSecret(encapsulated.to_vec());
        SUITE.open(&encapsulated, &[], &[], ciphertext, &self.secret).map_err(|_| NotForUs)
    }
}

impl std::fmt::Debug for TransportKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransportKey").finish_non_exhaustive()
    }
}
