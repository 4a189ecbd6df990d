//! OpenSSH certificates, which bind a key to principals or to a host.
//!
//! The parser is our own because `ssh-key` refuses certificates that never expire, the default of `ssh-keygen`. It
//! does not verify the signature: that is up to the servers and clients that trust the authority.
//!
//! Source: PROTOCOL.certkeys of OpenSSH. Every field is a string with its length in front, or a number.

use super::PublicKey;
use super::key::{self, KeyError};

/// Suffix of a certificate's type name.
const SUFFIX: &str = "-cert-v01@openssh.com";
/// Number of the certificate type for hosts.
const FOR_HOSTS: u64 = 2;
/// Strings after the validity: critical options, extensions, reserved, the authority's key, its signature.
const FIELDS_AFTER_VALIDITY: usize = 5;

/// A parsed certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    octets: Vec<u8>,
    /// Type name, the first word of the line.
    algorithm: String,
    comment: String,
    key: PublicKey,
    for_hosts: bool,
    valid_before: u64,
}

impl Certificate {
    /// Parses a line of a `-cert.pub` file, its base64 alone, or the decoded bytes.
    ///
    /// # Errors
    /// When the input is not a certificate.
    pub fn parse(octets: &[u8]) -> Result<Self, KeyError> {
        let (octets, name, comment) = key::octets_of(octets, WHAT)?;
        let mut certificate =
            Self::read(&octets).ok_or_else(|| malformed("the certificate ends too early"))??;
        if name.is_some_and(|name| name != certificate.algorithm) {
            return Err(malformed("the name of the type does not fit the content"));
        }
        certificate.comment = comment;
        Ok(certificate)
    }

    /// Parses a certificate that a host presents.
    ///
    /// # Errors
    /// When the input is not a certificate, or is one for users.
    pub fn parse_for_host(octets: &[u8]) -> Result<Self, KeyError> {
        let certificate = Self::parse(octets)?;
        if certificate.for_hosts { Ok(certificate) } else { Err(KeyError::ForUsers) }
    }

    /// Reads all fields. `None` when the bytes end too early.
    fn read(octets: &[u8]) -> Option<Result<Self, KeyError>> {
        let mut rest = Fields(octets);
        let algorithm = String::from_utf8_lossy(rest.string()?).into_owned();
        let Some(plain) = algorithm.strip_suffix(SUFFIX) else {
            return Some(Err(malformed("the type is not one of certificates")));
        };
        let plain = match plain {
            // The names of security keys carry the suffix `@openssh.com` too.
            "sk-ssh-ed25519" | "sk-ecdsa-sha2-nistp256" => format!("{plain}@openssh.com"),
            plain => plain.to_owned(),
        };
        rest.string()?; // a nonce
        let mut key = field(plain.as_bytes());
        for _ in 0..key_fields(&plain) {
            key.extend(field(rest.string()?));
        }
        rest.number::<8>()?; // serial number
        let for_hosts = rest.number::<4>()? == FOR_HOSTS;
        rest.string()?; // key id
        rest.string()?; // principals
        rest.number::<8>()?; // valid after
        let valid_before = rest.number::<8>()?;
        for _ in 0..FIELDS_AFTER_VALIDITY {
            rest.string()?;
        }
        if !rest.0.is_empty() {
            return Some(Err(malformed("bytes follow the end of the certificate")));
        }
        let octets = octets.to_vec();
        let key = PublicKey::parse(&key, None);
        Some(key.map(|key| Self {
            octets,
            algorithm,
            comment: String::new(),
            key,
            for_hosts,
            valid_before,
        }))
    }

    /// The certificate as a line, without a line end.
    pub fn line(&self) -> String {
        let line = format!("{} {} {}", self.algorithm, key::base64(&self.octets), self.comment);
        line.trim_end().to_owned()
    }

    /// True when the certificate is for this key.
    pub fn is_for(&self, key: &PublicKey) -> bool {
        self.key.is_same_key(key)
    }

    /// Expiry in seconds since 1970; `None` when the certificate never expires.
    pub fn valid_before(&self) -> Option<u64> {
        Some(self.valid_before).filter(|it| *it != u64::MAX)
    }
}

const WHAT: &str = "certificate";

fn malformed(why: &str) -> KeyError {
    KeyError::Malformed { what: WHAT, why: why.to_owned() }
}

/// Number of strings after the name in a key of this algorithm.
fn key_fields(algorithm: &str) -> usize {
    match algorithm {
        "ssh-ed25519" => 1,
        "sk-ecdsa-sha2-nistp256@openssh.com" => 3,
        _ => 2, // exponent and modulus, curve and point, or point and application
    }
}

fn field(octets: &[u8]) -> Vec<u8> {
    let length = u32::try_from(octets.len()).expect("keys are shorter than 64 KiB");
    [&length.to_be_bytes(), octets].concat()
}

/// Rest of the input.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, octets: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(octets)?;
        self.0 = rest;
        Some(taken)
    }

    fn number<const OCTETS: usize>(&mut self) -> Option<u64> {
        Some(self.take(OCTETS)?.iter().fold(0, |sum, octet| sum << 8 | u64::from(*octet)))
    }

    fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number::<4>()?).ok()?;
        self.take(length)
    }
}
