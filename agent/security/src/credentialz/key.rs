//! SSH keys and the text forms in which clients send them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ssh_key::public::KeyData;
use ssh_key::{Algorithm, EcdsaCurve, LineEnding};
use zeroize::Zeroizing;

use super::Certificate;

/// Largest key or certificate, in bytes: an RSA key of 16384 bits with its private half takes 13 KiB as text.
const MAX_OCTETS: usize = 64 * 1024;
/// Fewest bits of an RSA key.
const MIN_RSA_BITS: usize = 2048;

/// Key types that gNSI credentialz has names for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyKind {
    EcdsaP256,
    EcdsaP384,
    EcdsaP521,
    Ed25519,
    Rsa2048,
    Rsa3072,
    Rsa4096,
}

/// Reason for refusing a key or certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("the text is empty")]
    Empty,
    #[error("the text is longer than {MAX_OCTETS} bytes")]
    TooLong,
    #[error("the text is not an SSH {what}: {why}")]
    Malformed { what: &'static str, why: String },
    #[error("the key is a {found} key, but is declared as {declared:?}")]
    Kind { declared: KeyKind, found: String },
    #[error("the RSA key has {0} bits, and needs {MIN_RSA_BITS} at least")]
    Weak(usize),
    #[error("DSA keys are not accepted")]
    Dsa,
    #[error("the text is a certificate, not a key")]
    IsCertificate,
    #[error("the key is protected by a passphrase")]
    Encrypted,
    #[error("the certificate is for users, not for hosts")]
    ForUsers,
}

/// A public key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(ssh_key::PublicKey);

/// A private key. Its `Debug` output shows the public half only.
#[derive(Clone)]
pub struct PrivateKey {
    /// The key in OpenSSH's file format.
    text: Zeroizing<String>,
    public: PublicKey,
}

/// A host key that the box had before credentialz.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxKey {
    /// Absolute path of its private half on the box.
    pub path: String,
    pub public: PublicKey,
}

impl PublicKey {
    /// Parses a key as clients send it: a line of a `.pub` file, the base64 of such a line, or the decoded bytes.
    /// `declared` is the type that the client states, if any.
    ///
    /// # Errors
    /// When the input is not a key, is too weak, or is of another type than declared.
    pub fn parse(octets: &[u8], declared: Option<KeyKind>) -> Result<Self, KeyError> {
        const WHAT: &str = "public key";
        let malformed = |why: String| KeyError::Malformed { what: WHAT, why };
        let (octets, name, comment) = octets_of(octets, WHAT)?;
        let key =
            ssh_key::PublicKey::from_bytes(&octets).map_err(|error| {
                match Certificate::parse(&octets) {
                    Ok(_) => KeyError::IsCertificate,
                    Err(_) => malformed(error.to_string()),
                }
            });
        let mut key = key?;
        if name.is_some_and(|name| name != key.algorithm().as_str()) {
            return Err(malformed("the name of the type does not fit the content".to_owned()));
        }
        key.set_comment(comment);
        let key = Self(key);
        key.check()?;
        match declared {
            Some(declared) if key.kind() != Some(declared) => {
                Err(KeyError::Kind { declared, found: key.describe() })
            }
            _ => Ok(key),
        }
    }

    fn check(&self) -> Result<(), KeyError> {
        match self.0.key_data() {
            KeyData::Dsa(_) => Err(KeyError::Dsa),
            KeyData::Rsa(_) if self.rsa_bits() < MIN_RSA_BITS => {
                Err(KeyError::Weak(self.rsa_bits()))
            }
            _ => Ok(()),
        }
    }

    /// Key type, if gNSI has a name for it.
    pub fn kind(&self) -> Option<KeyKind> {
        match self.0.key_data().algorithm() {
            Algorithm::Ed25519 => Some(KeyKind::Ed25519),
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 } => Some(KeyKind::EcdsaP256),
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 } => Some(KeyKind::EcdsaP384),
            Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 } => Some(KeyKind::EcdsaP521),
            Algorithm::Rsa { .. } => match self.rsa_bits() {
                2048 => Some(KeyKind::Rsa2048),
                3072 => Some(KeyKind::Rsa3072),
                4096 => Some(KeyKind::Rsa4096),
                _ => None,
            },
            _ => None,
        }
    }

    fn rsa_bits(&self) -> usize {
        let modulus = self.0.key_data().rsa().and_then(|key| key.n.as_positive_bytes());
        modulus.map_or(0, |n| n.len() * 8 - n.first().map_or(0, |it| it.leading_zeros() as usize))
    }

    fn describe(&self) -> String {
        match self.rsa_bits() {
            0 => self.0.algorithm().to_string(),
            bits => format!("{} of {bits} bits", self.0.algorithm()),
        }
    }

    /// The key as a line without comment and line end.
    pub fn line(&self) -> String {
        let bare = ssh_key::PublicKey::new(self.0.key_data().clone(), "");
        bare.to_openssh().expect("a key that was read can be written").trim_end().to_owned()
    }

    /// Comment at the end of the key's line.
    pub fn comment(&self) -> &str {
        self.0.comment()
    }

    /// True when both hold one and the same key; comments are ignored.
    pub fn is_same_key(&self, other: &Self) -> bool {
        self.0.key_data() == other.0.key_data()
    }
}

impl PrivateKey {
    /// Parses a file in OpenSSH's format without a passphrase.
    ///
    /// # Errors
    /// When the input is not such a file, or the key is too weak.
    pub fn parse(octets: &[u8]) -> Result<Self, KeyError> {
        bounded(octets)?;
        let malformed = |error: ssh_key::Error| KeyError::Malformed {
            what: "private key of OpenSSH's format",
            why: error.to_string(),
        };
        let key = ssh_key::PrivateKey::from_openssh(octets).map_err(malformed)?;
        if key.is_encrypted() {
            return Err(KeyError::Encrypted);
        }
        let public = PublicKey(key.public_key().clone());
        public.check()?;
        let text = key.to_openssh(LineEnding::LF).map_err(malformed)?;
        Ok(Self { text, public })
    }

    /// Parses the fields that follow the algorithm name in OpenSSH's private key format.
    ///
    /// # Errors
    /// When the fields do not belong to that algorithm.
    pub fn from_parts(kind: KeyKind, mut parts: &[u8]) -> Result<Self, KeyError> {
        let malformed = |error: ssh_key::Error| KeyError::Malformed {
            what: "private key",
            why: error.to_string(),
        };
        let data = ssh_key::private::KeypairData::decode_as(&mut parts, kind.algorithm());
        let key = ssh_key::PrivateKey::new(data.map_err(malformed)?, "").map_err(malformed)?;
        Self::parse(key.to_openssh(LineEnding::LF).map_err(malformed)?.as_bytes())
    }

    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The key as a file for OpenSSH.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl KeyKind {
    fn algorithm(self) -> Algorithm {
        match self {
            Self::EcdsaP256 => Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
            Self::EcdsaP384 => Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
            Self::EcdsaP521 => Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
            Self::Ed25519 => Algorithm::Ed25519,
            Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096 => Algorithm::Rsa { hash: None },
        }
    }
}

impl PartialEq for PrivateKey {
    fn eq(&self, other: &Self) -> bool {
        self.public.is_same_key(&other.public)
    }
}

impl Eq for PrivateKey {}

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PrivateKey({})", self.public.line())
    }
}

fn bounded(octets: &[u8]) -> Result<(), KeyError> {
    match octets.len() {
        0 => Err(KeyError::Empty),
        1..=MAX_OCTETS => Ok(()),
        _ => Err(KeyError::TooLong),
    }
}

/// Decodes a key or certificate from a line, its base64, or raw bytes. Returns the bytes, the type name in front
/// of them if there was a line, and its comment.
pub(super) fn octets_of(
    input: &[u8],
    what: &'static str,
) -> Result<(Vec<u8>, Option<String>, String), KeyError> {
    bounded(input)?;
    let malformed = |why: &str| KeyError::Malformed { what, why: why.to_owned() };
    let text = std::str::from_utf8(input).map(str::trim).unwrap_or_default();
    if text.contains(['\n', '\r']) && !text.contains('\0') {
        return Err(malformed("the text has several lines"));
    }
    let mut words = text.splitn(3, [' ', '\t']);
    let first = words.next().unwrap_or_default();
    let second = words.next();
    match (second, BASE64.decode(second.unwrap_or(first))) {
        (Some(_), Ok(octets)) => {
            let comment = words.next().unwrap_or_default().trim().to_owned();
            Ok((octets, Some(first.to_owned()), comment))
        }
        (None, Ok(octets)) if !octets.is_empty() => Ok((octets, None, String::new())),
        (Some(_), Err(_)) if !text.contains('\0') => {
            Err(malformed("the middle of the text is not base64"))
        }
        _ => Ok((input.to_vec(), None, String::new())),
    }
}

pub(super) fn base64(octets: &[u8]) -> String {
    BASE64.encode(octets)
}
