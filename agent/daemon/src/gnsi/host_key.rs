//! Generation of SSH host keys by aws-lc, converted to the format of OpenSSH.

use aws_lc_rs::encoding::{AsBigEndian, AsDer, Curve25519SeedBin, EcPrivateKeyBin, Pkcs8V1Der};
use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rsa::{self, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
    EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair,
};
use holdfast_security::credentialz::{KeyError, KeyKind, PrivateKey};
use x509_parser::der_parser::asn1_rs::{Any, FromDer};
use zeroize::Zeroizing;

/// Reason why no key was generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostKeyError {
    #[error("the library cannot make a key of this type")]
    Make(#[from] Unspecified),
    #[error("the new key does not have the expected form")]
    Form,
    #[error("the new key was not accepted")]
    Key(#[from] KeyError),
}

/// Generates a key. An RSA key of 4096 bits takes a second or more.
///
/// # Errors
/// When the library fails.
pub fn make_host_key(kind: KeyKind) -> Result<PrivateKey, HostKeyError> {
    let parts = match kind {
        KeyKind::Ed25519 => ed25519()?,
        KeyKind::EcdsaP256 => ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING, "nistp256")?,
        KeyKind::EcdsaP384 => ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING, "nistp384")?,
        KeyKind::EcdsaP521 => ecdsa(&ECDSA_P521_SHA512_ASN1_SIGNING, "nistp521")?,
        KeyKind::Rsa2048 => rsa(KeySize::Rsa2048)?,
        KeyKind::Rsa3072 => rsa(KeySize::Rsa3072)?,
        KeyKind::Rsa4096 => rsa(KeySize::Rsa4096)?,
    };
    Ok(PrivateKey::from_parts(kind, &parts.0)?)
}

/// Fields after the algorithm name in OpenSSH's private key format: strings preceded by their lengths.
struct Parts(Zeroizing<Vec<u8>>);

impl Parts {
    /// Capacity for the largest key: growing would leave copies in freed memory.
    const CAPACITY: usize = 4096;

    fn new() -> Self {
        Self(Zeroizing::new(Vec::with_capacity(Self::CAPACITY)))
    }

    fn string(&mut self, pieces: &[&[u8]]) {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let length = u32::try_from(length).expect("keys are short");
        self.0.extend_from_slice(&length.to_be_bytes());
        pieces.iter().for_each(|piece| self.0.extend_from_slice(piece));
    }

    /// Appends a positive number without leading zeros, except for one that keeps the sign bit clear.
    fn number(&mut self, digits: &[u8]) {
        let zeros = digits.iter().take_while(|octet| **octet == 0).count();
        self.fixed(&digits[zeros..]);
    }

    /// Appends a positive number with its leading zeros, which `ssh-key` requires in the private half of an
    /// elliptic curve key.
    fn fixed(&mut self, digits: &[u8]) {
        let sign: &[u8] = if digits.first().is_some_and(|it| it & 0x80 != 0) { &[0] } else { &[] };
        self.string(&[sign, digits]);
    }
}

fn ed25519() -> Result<Parts, HostKeyError> {
    let pair = Ed25519KeyPair::generate()?;
    let seed = pair.seed()?;
    let seed: Curve25519SeedBin<'_> = seed.as_be_bytes()?;
    let public = pair.public_key().as_ref();
    let mut parts = Parts::new();
    parts.string(&[public]);
    parts.string(&[seed.as_ref(), public]);
    Ok(parts)
}

fn ecdsa(algorithm: &'static EcdsaSigningAlgorithm, curve: &str) -> Result<Parts, HostKeyError> {
    let pair = EcdsaKeyPair::generate(algorithm)?;
    let private: EcPrivateKeyBin<'_> = pair.private_key().as_be_bytes()?;
    let mut parts = Parts::new();
    parts.string(&[curve.as_bytes()]);
    parts.string(&[pair.public_key().as_ref()]);
    parts.fixed(private.as_ref());
    Ok(parts)
}

fn rsa(size: KeySize) -> Result<Parts, HostKeyError> {
    let pair = rsa::KeyPair::generate(size)?;
    let der: Pkcs8V1Der<'_> = pair.as_der()?;
    let numbers = rsa_numbers(der.as_ref()).ok_or(HostKeyError::Form)?;
    // Version, n, e, d, p, q, two exponents, and the inverse of q (RFC 8017, A.1.2).
    let [_, n, e, d, p, q, _, _, iqmp] = numbers.as_slice() else { return Err(HostKeyError::Form) };
    let mut parts = Parts::new();
    [n, e, d, iqmp, p, q].into_iter().for_each(|number| parts.number(number));
    Ok(parts)
}

/// Numbers of an RSA key in a PKCS #8 document.
fn rsa_numbers(der: &[u8]) -> Option<Vec<&[u8]>> {
    let (_, document) = Any::from_der(der).ok()?;
    let (rest, _version) = Any::from_der(document.data).ok()?;
    let (rest, _algorithm) = Any::from_der(rest).ok()?;
    let (_, key) = Any::from_der(rest).ok()?;
    let (_, key) = Any::from_der(key.data).ok()?;
    let mut rest = key.data;
    let mut numbers = Vec::new();
    while !rest.is_empty() {
        let (behind, number) = Any::from_der(rest).ok()?;
        numbers.push(number.data);
        rest = behind;
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves 5.86
    #[test]
    fn keys_of_every_kind_are_made_and_are_what_they_are_said_to_be() {
        use KeyKind::{EcdsaP256, EcdsaP384, EcdsaP521, Ed25519, Rsa2048};
        for kind in [Ed25519, EcdsaP256, EcdsaP384, EcdsaP521, Rsa2048] {
            let one = make_host_key(kind).unwrap();
            let other = make_host_key(kind).unwrap();
            assert_eq!(one.public().kind(), Some(kind));
            assert_ne!(one.public().line(), other.public().line());
            assert_eq!(PrivateKey::parse(one.text().as_bytes()).unwrap(), one);
        }
    }

    #[test]
    fn rsa_numbers_of_other_der_are_none() {
        for der in [b"".as_slice(), b"\x30\x03\x02\x01\x00", b"\x02\x01\x00"] {
            assert!(rsa_numbers(der).is_none());
        }
    }
}
