//! Passwords as crypt(3) keeps them: what sshd, the console and the agent all compare with.
//!
//! There is one hash for all of them. An argon2id hash beside one that sshd can read would protect nothing, so what is
//! given in clear becomes a sha512crypt hash with many rounds.

use sha_crypt::{Params, PasswordHasher, PasswordVerifier, ShaCrypt};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::md5_crypt;

/// Octets of randomness that a salt is made of: sixteen digits, the most that count.
pub const SALT_OCTETS: usize = 12;
/// Rounds of a hash that is made here: some 60 ms, where the 5000 that are taken for granted last 3 ms.
const ROUNDS: u32 = 100_000;
/// Rounds of a hash that is taken: more would let whoever uploads it keep a processor busy with one login.
const MAX_ROUNDS: u32 = 1_000_000;
/// Longest password, in octets: crypt(3) takes no longer one.
const MAX_PASSWORD_OCTETS: usize = 511;
/// Digits of the hashes themselves.
const SHA512_DIGITS: usize = 86;
const MD5_DIGITS: usize = 22;
/// Digits of the longest salts.
const SHA512_SALT: usize = 16;
const MD5_SALT: usize = 8;

/// A hash of crypt(3), MD5 or SHA-512. It prints as its kind.
#[derive(Clone)]
pub struct CryptHash(Zeroizing<String>);

/// Why something is no hash or no password. Never says what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptError {
    #[error("it is no hash of {0}")]
    Malformed(&'static str),
    #[error("it asks for more than {MAX_ROUNDS} rounds")]
    Rounds,
    #[error("the password is empty")]
    Empty,
    #[error("the password is longer than {MAX_PASSWORD_OCTETS} octets")]
    TooLong,
    #[error("the password has a zero octet")]
    Zero,
    #[error("it cannot be hashed")]
    Hash,
}

impl CryptHash {
    /// Takes a hash of md5crypt, `$1$salt$hash`.
    ///
    /// # Errors
    /// When it is none.
    pub fn md5(text: &str) -> Result<Self, CryptError> {
        let malformed = CryptError::Malformed("MD5-crypt");
        let (salt, hash) =
            text.strip_prefix("$1$").and_then(|rest| rest.split_once('$')).ok_or(malformed)?;
        match is_salt(salt, MD5_SALT) && is_hash(hash, MD5_DIGITS) {
            true => Ok(Self::kept(text)),
            false => Err(malformed),
        }
    }

    /// Takes a hash of sha512crypt, `$6$[rounds=N$]salt$hash`.
    ///
    /// # Errors
    /// When it is none, or has too many rounds.
    pub fn sha512(text: &str) -> Result<Self, CryptError> {
        let malformed = CryptError::Malformed("SHA-512-crypt");
        let mut rest = text.strip_prefix("$6$").ok_or(malformed)?;
        if let Some(given) = rest.strip_prefix("rounds=") {
            let (rounds, behind) = given.split_once('$').ok_or(malformed)?;
            let rounds: u32 = rounds.parse().map_err(|_| malformed)?;
            match rounds {
                0..Params::ROUNDS_MIN => return Err(malformed),
                Params::ROUNDS_MIN..=MAX_ROUNDS => rest = behind,
                _ => return Err(CryptError::Rounds),
            }
        }
        let (salt, hash) = rest.split_once('$').ok_or(malformed)?;
        match is_salt(salt, SHA512_SALT) && is_hash(hash, SHA512_DIGITS) {
            true => Ok(Self::kept(text)),
            false => Err(malformed),
        }
    }

    /// Hashes a password with sha512crypt. Takes some 60 ms.
    ///
    /// # Errors
    /// When the password is empty, too long, or cannot be typed.
    pub fn of(password: &[u8], salt: [u8; SALT_OCTETS]) -> Result<Self, CryptError> {
        match password.len() {
            0 => return Err(CryptError::Empty),
            1..=MAX_PASSWORD_OCTETS => {}
            _ => return Err(CryptError::TooLong),
        }
        if password.contains(&0) {
            return Err(CryptError::Zero);
        }
        let hasher = ShaCrypt::from(Params::new(ROUNDS).map_err(|_| CryptError::Hash)?);
        let hash = hasher.hash_password_with_salt(password, &salt).map_err(|_| CryptError::Hash)?;
        Ok(Self::kept(hash.as_str()))
    }

    /// Any of the two, as it was kept.
    ///
    /// # Errors
    /// When it is none of them.
    pub fn parse(text: &str) -> Result<Self, CryptError> {
        if text.starts_with("$1$") { Self::md5(text) } else { Self::sha512(text) }
    }

    /// True when it was made from this password. Compares in constant time. One that is longer than any that can be set
    /// costs what the longest costs, and never matches.
    pub fn matches(&self, password: &[u8]) -> bool {
        let possible = password.get(..MAX_PASSWORD_OCTETS).unwrap_or(password);
        self.fits(possible) && possible.len() == password.len()
    }

    fn fits(&self, password: &[u8]) -> bool {
        match self.0.strip_prefix("$1$").and_then(|rest| rest.split_once('$')) {
            Some((salt, hash)) => {
                let found = Zeroizing::new(md5_crypt::hash(password, salt.as_bytes()));
                found.as_bytes().ct_eq(hash.as_bytes()).into()
            }
            None => ShaCrypt::default().verify_password(password, self.0.as_str()).is_ok(),
        }
    }

    /// One that costs the same and that no password has: to compare with where there is nothing to compare with.
    #[must_use]
    pub fn of_nobody(&self) -> Self {
        let (head, hash) = self.0.rsplit_once('$').unwrap_or(("", &self.0));
        Self::kept(&format!("{head}${}", ".".repeat(hash.len())))
    }

    /// As it stands in the shadow file.
    pub fn text(&self) -> &str {
        &self.0
    }

    fn kept(text: &str) -> Self {
        Self(Zeroizing::new(text.to_owned()))
    }
}

impl PartialEq for CryptHash {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes().ct_eq(other.0.as_bytes()).into()
    }
}

impl Eq for CryptHash {}

impl std::fmt::Debug for CryptHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.starts_with("$1$") { "CryptHash(md5)" } else { "CryptHash(sha512)" })
    }
}

fn is_salt(salt: &str, most: usize) -> bool {
    (1..=most).contains(&salt.len()) && salt.bytes().all(is_digit)
}

fn is_hash(hash: &str, digits: usize) -> bool {
    hash.len() == digits && hash.bytes().all(is_digit)
}

/// A digit of crypt(3).
fn is_digit(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'.' | b'/')
}
