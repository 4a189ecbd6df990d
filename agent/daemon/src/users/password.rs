//! Passwords: hashed with argon2id, compared in constant time, erased from memory when dropped.

use std::{fmt, fs, path::Path};

use argon2::{
    Algorithm, Argon2, Block, Params, Version,
    password_hash::phc::{Output, ParamsString, PasswordHash, Salt},
};
use aws_lc_rs::{hmac, rand::SystemRandom};
use holdfast_security::credentialz::CryptHash;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use holdfast_store::StoreError;

use crate::systemd;

/// Longest password, in bytes. Hashing time grows with it, and clients choose it.
const MAX_PASSWORD_BYTES: usize = 1024;

/// Blocks of 1 KiB that are allocated, though hashing touches fewer: glibc returns an allocation of over 32 MiB to the
/// system when it is freed, but keeps one of 19 MiB for each thread that ever hashed.
const RETURNED_BLOCKS: usize = 33 * 1024;

/// A hash that no password has, made with the parameters of real ones: checking a password against it costs as much as
/// checking the password of a user.
const DUMMY_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5J3Mgc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// A hash that no password has, as expensive to check as `hash`, or by default as one made here.
pub(crate) fn dummy_hash(hash: Option<&str>) -> Zeroizing<String> {
    let crypt = hash.and_then(|hash| CryptHash::parse(hash).ok());
    Zeroizing::new(match crypt {
        Some(hash) => hash.unmatchable().text().to_owned(),
        None => DUMMY_HASH.to_owned(),
    })
}

/// A password in clear text. Its debug output is empty.
#[derive(Clone)]
pub struct Password(Zeroizing<Vec<u8>>);

/// Failure to read or hash a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PasswordError {
    #[error("the password is empty")]
    Empty,
    #[error("the password is longer than {MAX_PASSWORD_BYTES} bytes")]
    TooLong,
    #[error(transparent)]
    File(StoreError),
    #[error("cannot hash the password: {0}")]
    Hash(argon2::password_hash::Error),
}

impl Password {
    /// # Errors
    /// When the text is empty or too long.
    pub fn new(text: impl Into<Vec<u8>>) -> Result<Self, PasswordError> {
        let text = Zeroizing::new(text.into());
        match text.len() {
            0 => Err(PasswordError::Empty),
            1..=MAX_PASSWORD_BYTES => Ok(Self(text)),
            _ => Err(PasswordError::TooLong),
        }
    }

    /// Reads a password from the first line of a file.
    ///
    /// # Errors
    /// When the file cannot be read, or its first line is not a valid password.
    pub fn from_file(path: &Path) -> Result<Self, PasswordError> {
        let content = fs::read(path).map(Zeroizing::new).map_err(|source| {
            let source = systemd::explained(path, source);
            PasswordError::File(StoreError::File { action: "read", path: path.into(), source })
        })?;
        Self::first_line(&content)
    }

    /// Reads a password from the text before the first line end.
    ///
    /// # Errors
    /// When the line is not a valid password.
    pub fn first_line(content: &[u8]) -> Result<Self, PasswordError> {
        let line = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
        Self::new(line.strip_suffix(b"\r").unwrap_or(line))
    }

    /// The password as text, to be sent to the agent of this box.
    pub(crate) fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }

    /// The PHC string to store. Takes some 20 ms and 19 MiB.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn hash(&self) -> Result<String, PasswordError> {
        self.salted(&Salt::generate()).map_err(PasswordError::Hash)
    }

    /// True when `hash` was made from this password, by argon2id, which takes some 20 ms and 19 MiB, or by crypt(3),
    /// which takes as long as its rounds.
    pub fn matches(&self, hash: &str) -> bool {
        if let Ok(hash) = CryptHash::parse(hash) {
            return hash.matches(&self.0);
        }
        let hash = if hash.is_empty() { DUMMY_HASH } else { hash }; // a user without a password
        self.compare(hash).unwrap_or(false)
    }

    fn salted(&self, salt: &Salt) -> Result<String, argon2::password_hash::Error> {
        let params = Params::default();
        let hash = PasswordHash {
            algorithm: Algorithm::Argon2id.ident(),
            version: Some(Version::V0x13.into()),
            params: ParamsString::try_from(&params)?,
            salt: Some(*salt),
            hash: Some(Output::new(&self.digest(salt, params, Params::DEFAULT_OUTPUT_LEN)?)?),
        };
        Ok(hash.to_string())
    }

    fn compare(&self, hash: &str) -> Result<bool, argon2::password_hash::Error> {
        let hash = PasswordHash::new(hash)?;
        let ours = hash.algorithm == Algorithm::Argon2id.ident()
            && hash.version == Some(Version::V0x13.into());
        let (Some(salt), Some(output), true) = (&hash.salt, &hash.hash, ours) else {
            return Ok(false);
        };
        let digest = self.digest(salt, Params::try_from(&hash)?, output.len())?;
        Ok(digest.ct_eq(output.as_bytes()).into())
    }

    fn digest(
        &self,
        salt: &Salt,
        params: Params,
        length: usize,
    ) -> argon2::Result<Zeroizing<Vec<u8>>> {
        let mut memory = Vec::with_capacity(RETURNED_BLOCKS.max(params.block_count()));
        memory.resize(params.block_count(), Block::new());
        let mut digest = Zeroizing::new(vec![0; length]);
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon2.hash_password_into_with_memory(&self.0, salt, &mut digest, &mut memory)?;
        Ok(digest)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Record of a verified password: a hash with a random key that never leaves this process.
#[derive(Clone)]
pub(crate) struct Tag(hmac::Tag);

impl Tag {
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.0.as_ref().ct_eq(other.0.as_ref()).into()
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tag(..)")
    }
}

/// Maker of tags, with their key.
pub(crate) struct Tagger(hmac::Key);

impl Tagger {
    pub(crate) fn new() -> Result<Self, PasswordError> {
        hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())
            .map(Self)
            .map_err(|_| PasswordError::Hash(argon2::password_hash::Error::Crypto))
    }

    pub(crate) fn tag(&self, password: &Password) -> Tag {
        Tag(hmac::sign(&self.0, &password.0))
    }

    /// A number below `many` for a name: always the same one, and not predictable from outside.
    pub(crate) fn pick(&self, name: &str, many: usize) -> Option<usize> {
        let tag = hmac::sign(&self.0, name.as_bytes());
        let number = tag.as_ref().first_chunk().copied().map(usize::from_ne_bytes)?;
        number.checked_rem(many)
    }
}

impl fmt::Debug for Tagger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tagger(..)")
    }
}

#[cfg(test)]
mod tests {
    use argon2::PasswordVerifier;

    use super::*;

    #[test]
    fn a_hash_fits_its_password_alone() {
        let password = Password::new("correct horse").unwrap();
        let hash = password.hash().unwrap();
        assert!(hash.starts_with("$argon2id$") && !hash.contains("horse"));
        assert!(password.matches(&hash));
        Argon2::default().verify_password(b"correct horse", hash.as_str()).unwrap(); // as any argon2id tool has it
        assert!(!Password::new("correct mule").unwrap().matches(&hash));
        assert!(!password.matches("") && !password.matches(DUMMY_HASH));
        assert_ne!(hash, password.hash().unwrap(), "salted");
    }

    // proves 5.85
    #[test]
    fn hashes_of_crypt_are_compared_as_well() {
        let md5 = "$1$saltsalt$NuzA7WTAelpl95xgBGWN60";
        assert!(Password::new("correct horse").unwrap().matches(md5));
        assert!(!Password::new("correct mule").unwrap().matches(md5));
        let hash = CryptHash::of(b"correct horse", [1; 12]).unwrap();
        assert!(Password::new("correct horse").unwrap().matches(hash.text()));
    }

    #[test]
    fn dummy_hash_has_the_kind_of_a_given_hash() {
        let md5 = "$1$saltsalt$NuzA7WTAelpl95xgBGWN60";
        let other = CryptHash::of(b"correct horse", [1; 12]).unwrap();
        let password = Password::new("correct horse").unwrap();
        for hash in [md5, other.text()] {
            let nobodys = dummy_hash(Some(hash));
            let head = |text: &str| text.rsplit_once('$').unwrap().0.to_owned();
            assert_eq!((head(&nobodys), nobodys.len()), (head(hash), hash.len()));
            assert!(CryptHash::parse(&nobodys).is_ok() && !password.matches(&nobodys));
        }
        let argon2 = password.hash().unwrap();
        for hash in [None, Some(""), Some(argon2.as_str())] {
            assert_eq!(*dummy_hash(hash), DUMMY_HASH);
        }
    }

    #[test]
    fn dummy_hash_costs_as_much_as_a_real_one() {
        let parameters = |hash: &str| hash.rsplitn(3, '$').last().unwrap().to_owned();
        let users = Password::new("x").unwrap().hash().unwrap();
        assert_eq!(parameters(DUMMY_HASH), parameters(&users));
        assert_eq!(
            DUMMY_HASH.rsplit('$').next().unwrap().len(),
            users.rsplit('$').next().unwrap().len()
        );
    }

    #[test]
    fn the_first_line_is_the_password() {
        let line =
            |content: &[u8]| Password::first_line(content).map(|password| password.0.to_vec());
        assert_eq!(line(b"secret\nrest").unwrap(), b"secret");
        assert_eq!(line(b"with space \r\n").unwrap(), b"with space ");
        assert!(matches!(line(b"\n"), Err(PasswordError::Empty)));
        assert!(matches!(line(&[b'x'; MAX_PASSWORD_BYTES + 1]), Err(PasswordError::TooLong)));
    }

    #[test]
    fn a_password_prints_nothing() {
        assert_eq!(format!("{:?}", Password::new("secret").unwrap()), "Password(..)");
    }
}
