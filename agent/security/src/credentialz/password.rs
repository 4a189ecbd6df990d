//! Password hashes of crypt(3), the form that sshd, the console and the agent all compare with.
//!
//! There is one hash for all of them. A second hash by argon2id would protect nothing while sshd needs this one,
//! so a cleartext password becomes a sha512crypt hash with many rounds.

use sha_crypt::{Params, PasswordHasher, PasswordVerifier, ShaCrypt};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::md5_crypt;

/// Random bytes in a salt: sixteen digits, the most that crypt(3) uses.
pub const SALT_OCTETS: usize = 12;
/// Rounds for new hashes: about 60 ms, where the default of 5000 takes 3 ms.
const ROUNDS: u32 = 100_000;
/// Most rounds of an uploaded hash: more would let one login keep a processor busy for seconds.
const MAX_ROUNDS: u32 = 1_000_000;
/// Longest password, in bytes, as in crypt(3).
const MAX_PASSWORD_OCTETS: usize = 511;
/// Digits of the digests themselves.
const SHA512_DIGITS: usize = 86;
const MD5_DIGITS: usize = 22;
/// Digits of the longest salts.
const SHA512_SALT: usize = 16;
const MD5_SALT: usize = 8;

/// A crypt(3) hash, MD5 or SHA-512. `Debug` shows its kind only.
#[derive(Clone)]
pub struct CryptHash(Zeroizing<String>);

/// Reason for refusing a hash or password. The message never quotes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptError {
    #[error("the text is not a hash of {0}")]
    Malformed(&'static str),
    #[error("the hash asks for more than {MAX_ROUNDS} rounds")]
    Rounds,
    #[error("the password is empty")]
    Empty,
    #[error("the password is longer than {MAX_PASSWORD_OCTETS} bytes")]
    TooLong,
    #[error("the password has a zero byte")]
    Zero,
    #[error("cannot hash the password")]
    Hash,
}

impl CryptHash {
    /// Parses a hash of md5crypt, `$1$salt$hash`.
    ///
    /// # Errors
    /// When the text has another form.
    pub fn md5(text: &str) -> Result<Self, CryptError> {
        let malformed = CryptError::Malformed("MD5-crypt");
        let (salt, hash) =
            text.strip_prefix("$1$").and_then(|rest| rest.split_once('$')).ok_or(malformed)?;
        if is_salt(salt, MD5_SALT) && is_hash(hash, MD5_DIGITS) {
            Ok(Self::unchecked(text))
        } else {
            Err(malformed)
        }
    }

    /// Parses a hash of sha512crypt, `$6$[rounds=N$]salt$hash`.
    ///
    /// # Errors
    /// When the text has another form, or asks for too many rounds.
    pub fn sha512(text: &str) -> Result<Self, CryptError> {
        let malformed = CryptError::Malformed("SHA-512-crypt");
        let mut rest = text.strip_prefix("$6$").ok_or(malformed)?;
        if let Some(count) = rest.strip_prefix("rounds=") {
            let (rounds, behind) = count.split_once('$').ok_or(malformed)?;
            let rounds: u32 = rounds.parse().map_err(|_| malformed)?;
            match rounds {
                0..Params::ROUNDS_MIN => return Err(malformed),
                Params::ROUNDS_MIN..=MAX_ROUNDS => rest = behind,
                _ => return Err(CryptError::Rounds),
            }
        }
        let (salt, hash) = rest.split_once('$').ok_or(malformed)?;
        if is_salt(salt, SHA512_SALT) && is_hash(hash, SHA512_DIGITS) {
            Ok(Self::unchecked(text))
        } else {
            Err(malformed)
        }
    }

    /// Hashes a password with sha512crypt. Takes about 60 ms.
    ///
    /// # Errors
    /// When the password is empty, too long, or has a zero byte.
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
        Ok(Self::unchecked(hash.as_str()))
    }

    /// Parses a hash of either kind.
    ///
    /// # Errors
    /// When the text is neither.
    pub fn parse(text: &str) -> Result<Self, CryptError> {
        if text.starts_with("$1$") { Self::md5(text) } else { Self::sha512(text) }
    }

    /// Compares with a password in constant time. A password over the maximum length costs as much as one at the
    /// maximum, and never matches.
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

    /// A hash of equal cost that no password matches, for logins to unknown accounts: their timing must not
    /// differ.
    #[must_use]
    pub fn unmatchable(&self) -> Self {
        let (head, hash) = self.0.rsplit_once('$').unwrap_or(("", &self.0));
        Self::unchecked(&format!("{head}${}", ".".repeat(hash.len())))
    }

    /// The hash as written in the shadow file.
    pub fn text(&self) -> &str {
        &self.0
    }

    fn unchecked(text: &str) -> Self {
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

/// True for a digit of crypt(3)'s base64.
fn is_digit(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'.' | b'/')
}
