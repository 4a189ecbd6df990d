//! Keeps the passwords and keys that clients give users while gNSI is switched off, and the keys that services give them.

use std::sync::Arc;

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use holdfast_base::ErrorChain;
use holdfast_config::edit::{SecretKeeper, SecretKeeperHandle};
use holdfast_config::{SecretLeaf, SecretRef};
use holdfast_security::credentialz::{CryptHash, PublicKey, SALT_OCTETS};

/// Takes what credentialz takes, and keeps it in the same form: one hash of crypt(3) for gRPC, SSH and the console.
#[derive(Clone, Copy, Debug)]
pub struct UserSecrets;

impl UserSecrets {
    pub fn keeper() -> SecretKeeperHandle {
        SecretKeeperHandle::new(Arc::new(Self))
    }
}

impl SecretKeeper for UserSecrets {
    fn keep(
        &self,
        leaf: SecretLeaf,
        cleartext: &str,
        current: Option<&SecretRef>,
    ) -> Result<SecretRef, String> {
        let stored = match leaf {
            SecretLeaf::Password if current.is_some_and(|current| fits(cleartext, current)) => None,
            SecretLeaf::Password => {
                let hash = CryptHash::of(cleartext.as_bytes(), salt()?);
                Some(hash.map_err(|error| ErrorChain(&error).to_string())?.text().to_owned())
            }
            SecretLeaf::PasswordHashed => {
                let hash = CryptHash::parse(cleartext);
                Some(hash.map_err(|error| ErrorChain(&error).to_string())?.text().to_owned())
            }
            SecretLeaf::SshKey => {
                let key = PublicKey::parse(cleartext.as_bytes(), None);
                Some(key.map_err(|error| ErrorChain(&error).to_string())?.line())
            }
        };
        let same = |current: &&SecretRef| {
            stored.as_ref().is_none_or(|it| it.as_bytes() == current.expose())
        };
        Ok(match current.filter(same) {
            Some(current) => current.clone(),
            None => SecretRef::new(stored.unwrap_or_default()),
        })
    }
}

/// True when the stored hash was made from this password.
fn fits(password: &str, stored: &SecretRef) -> bool {
    let hash =
        std::str::from_utf8(stored.expose()).ok().and_then(|text| CryptHash::parse(text).ok());
    hash.is_some_and(|hash| hash.matches(password.as_bytes()))
}

fn salt() -> Result<[u8; SALT_OCTETS], String> {
    let mut salt = [0; SALT_OCTETS];
    let filled = SystemRandom::new().fill(&mut salt);
    filled.map_err(|_| "the system has no randomness".to_owned())?;
    Ok(salt)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MD5: &str = "$1$saltsalt$NuzA7WTAelpl95xgBGWN60";
    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICNStoYBNp4MC97H3OBeFhjafRjd9i9hRK/6WttN4Lh1";

    fn keep(leaf: SecretLeaf, cleartext: &str, current: Option<&SecretRef>) -> SecretRef {
        UserSecrets.keep(leaf, cleartext, current).unwrap()
    }

    #[test]
    fn a_password_is_kept_as_a_hash_and_stays_while_it_fits() {
        let one = keep(SecretLeaf::Password, "correct horse", None);
        let text = std::str::from_utf8(one.expose()).unwrap();
        assert!(text.starts_with("$6$") && !text.contains("horse"), "{text}");
        assert!(keep(SecretLeaf::Password, "correct horse", Some(&one)).is_same(&one));
        let other = keep(SecretLeaf::Password, "correct mule", Some(&one));
        assert!(!other.is_same(&one) && other != one);
        assert_ne!(keep(SecretLeaf::Password, "correct horse", None), one, "salted");
        // Of whatever form the hash that is held is.
        let hashed = keep(SecretLeaf::PasswordHashed, MD5, None);
        assert_eq!(hashed.expose(), MD5.as_bytes());
        assert!(keep(SecretLeaf::PasswordHashed, MD5, Some(&hashed)).is_same(&hashed));
        assert!(keep(SecretLeaf::Password, "correct horse", Some(&hashed)).is_same(&hashed));
    }

    #[test]
    fn a_key_is_kept_without_its_comment() {
        let one = keep(SecretLeaf::SshKey, &format!("{KEY} ada@laptop"), None);
        assert_eq!(one.expose(), KEY.as_bytes());
        assert!(keep(SecretLeaf::SshKey, KEY, Some(&one)).is_same(&one));
    }

    #[test]
    fn a_refusal_does_not_repeat_what_was_sent() {
        let long = "hunter2".repeat(100);
        for (leaf, cleartext) in [
            (SecretLeaf::Password, ""),
            (SecretLeaf::Password, long.as_str()),
            (SecretLeaf::Password, "hunter2\0"),
            (SecretLeaf::PasswordHashed, "hunter2"),
            (SecretLeaf::PasswordHashed, "$6$rounds=9999999$hunter2$x"),
            (SecretLeaf::SshKey, "hunter2"),
            (SecretLeaf::SshKey, "ssh-ed25519 hunter2"),
        ] {
            let reason = UserSecrets.keep(leaf, cleartext, None).unwrap_err();
            assert!(!reason.contains("hunter2") && !reason.is_empty(), "{leaf:?}: {reason}");
        }
    }
}
