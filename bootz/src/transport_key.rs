//! The key to which a server encrypts bootstrap data, generated for one stream and dropped with it.

use aws_lc_rs::agreement::{PrivateKey, X25519};
use holdfast_proto::bootz;
use prost::Message;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke, HpkePrivateKey};

/// Bytes of the private key.
pub const SECRET: usize = 32;

/// An X25519 key pair for HPKE (RFC 9180) in base mode with HKDF-SHA256 and AES-256-GCM. Neither `info` nor additional
/// data are used.
pub struct TransportKey {
    secret: HpkePrivateKey,
    public: Vec<u8>,
}

/// The data was encrypted to another key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bootstrap data was not encrypted for this stream")]
pub struct DecryptionError;

impl TransportKey {
    /// Makes a key from 32 random bytes, which the caller draws from a secure source.
    #[must_use]
    pub fn from_secret(secret: [u8; SECRET]) -> Self {
        let private = PrivateKey::from_private_key(&X25519, &secret).ok();
        let public = private.and_then(|private| private.compute_public_key().ok());
        let public = public.expect("any 32 bytes are an X25519 key");
        Self { secret: secret.to_vec().into(), public: public.as_ref().to_vec() }
    }

    /// Serialized message that announces the public key, with the server's nonce. The IDevID signs it.
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

    /// Decrypts data that was encrypted to this key.
    ///
    /// # Errors
    /// When the data was encrypted to another key, or was modified.
    pub fn open(&self, encapsulated: &[u8], ciphertext: &[u8]) -> Result<Vec<u8>, DecryptionError> {
        let encapsulated = EncapsulatedSecret(encapsulated.to_vec());
        DH_KEM_X25519_HKDF_SHA256_AES_256
            .open(&encapsulated, &[], &[], ciphertext, &self.secret)
            .map_err(|_| DecryptionError)
    }
}

impl std::fmt::Debug for TransportKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TransportKey").finish_non_exhaustive()
    }
}
