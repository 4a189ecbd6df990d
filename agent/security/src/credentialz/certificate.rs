//! Certificates of OpenSSH: what an authority says about a key.
//!
//! They are read here because `ssh-key` refuses those that never expire, which is what `ssh-keygen` makes unless it is
//! told otherwise. Whether the signature is right is for those to check who trust the authority.
//!
//! Source: PROTOCOL.certkeys of OpenSSH. Every field is a string with its length in front, or a number.

use super::PublicKey;
use super::key::{self, KeyError};

/// What the name of a certificate's type ends with.
const SUFFIX: &str = "-cert-v01@openssh.com";
/// The type of a certificate for a host.
const FOR_HOSTS: u64 = 2;
/// Strings behind the validity: critical options, extensions, reserved, the authority's key, its signature.
const BEHIND: usize = 5;

/// What a certificate authority says about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    octets: Vec<u8>,
    /// As it stands in front of a line.
    algorithm: String,
    comment: String,
    key: PublicKey,
    for_hosts: bool,
    valid_before: u64,
}

impl Certificate {
    /// Takes a line as in a `-cert.pub` file, its base64 alone, or what that stands for.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(octets: &[u8]) -> Result<Self, KeyError> {
        let (octets, name, comment) = key::octets_of(octets, WHAT)?;
        let mut certificate =
            Self::read(&octets).ok_or_else(|| malformed("it ends too early"))??;
        if name.is_some_and(|name| name != certificate.algorithm) {
            return Err(malformed("its name is not that of its content"));
        }
        certificate.comment = comment;
        Ok(certificate)
    }

    /// The same for one that a host shows.
    ///
    /// # Errors
    /// When it is none, or one for users.
    pub fn parse_for_host(octets: &[u8]) -> Result<Self, KeyError> {
        let certificate = Self::parse(octets)?;
        if certificate.for_hosts { Ok(certificate) } else { Err(KeyError::ForUsers) }
    }

    /// `None`: it ends too early.
    fn read(octets: &[u8]) -> Option<Result<Self, KeyError>> {
        let mut rest = Fields(octets);
        let algorithm = String::from_utf8_lossy(rest.string()?).into_owned();
        let Some(plain) = algorithm.strip_suffix(SUFFIX) else {
            return Some(Err(malformed("it is of no type of certificates")));
        };
        let plain = match plain {
            // The suffix belongs to the names of these keys, too.
            "sk-ssh-ed25519" | "sk-ecdsa-sha2-nistp256" => format!("{plain}@openssh.com"),
            plain => plain.to_owned(),
        };
        rest.string()?; // a nonce
        let mut key = field(plain.as_bytes());
        for _ in 0..key_fields(&plain) {
            key.extend(field(rest.string()?));
        }
        rest.number::<8>()?; // the serial number
        let for_hosts = rest.number::<4>()? == FOR_HOSTS;
        rest.string()?; // the name of the key
        rest.string()?; // principals
        rest.number::<8>()?; // valid from then on
        let valid_before = rest.number::<8>()?;
        for _ in 0..BEHIND {
            rest.string()?;
        }
        if !rest.0.is_empty() {
            return Some(Err(malformed("something stands behind its end")));
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

    /// As a line without a line end.
    pub fn line(&self) -> String {
        let line = format!("{} {} {}", self.algorithm, key::base64(&self.octets), self.comment);
        line.trim_end().to_owned()
    }

    /// The key that it is for.
    pub fn is_for(&self, key: &PublicKey) -> bool {
        self.key.is_same_key(key)
    }

    /// Seconds since 1970; `None`: it does not expire.
    pub fn valid_before(&self) -> Option<u64> {
        Some(self.valid_before).filter(|it| *it != u64::MAX)
    }
}

const WHAT: &str = "certificate";

fn malformed(why: &str) -> KeyError {
    KeyError::Malformed { what: WHAT, why: why.to_owned() }
}

/// Strings that make up a key of this algorithm, behind its name.
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

/// What is not read yet.
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
