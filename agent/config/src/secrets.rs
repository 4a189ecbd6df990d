//! Secrets that clients gave users: beside client OpenConfig, and in no tree.
//!
//! The layer holds a reference by user and leaf. A read, a diff, a dry run and the history walk trees, so none of them
//! meets one. The rows of references are stored in a table of their own. A secret lives as long as a version of the
//! layers refers to it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use smol_str::SmolStr;
use zeroize::Zeroizing;

/// The write-only leaves of a user, by the end of their OpenConfig paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SecretLeaf {
    /// A password in clear; its hash is kept.
    Password,
    /// The hash of a password.
    PasswordHashed,
    /// A public key that logs in.
    SshKey,
}

// The name of the leaf in the model.
crate::enum_names!(SecretLeaf {
    Password = "password",
    PasswordHashed = "password-hashed",
    SshKey = "ssh-key",
});

impl SecretLeaf {
    /// The other form of the same secret: a user has one password.
    pub(crate) fn other_form(self) -> Option<Self> {
        match self {
            Self::Password => Some(Self::PasswordHashed),
            Self::PasswordHashed => Some(Self::Password),
            Self::SshKey => None,
        }
    }
}

/// A reference to a secret as it is kept: the hash of a password, or a key. It prints as nothing, and the secret is
/// erased from memory with the last reference.
#[derive(Clone)]
pub struct SecretRef(Arc<Zeroizing<Vec<u8>>>);

impl SecretRef {
    pub fn new(octets: impl Into<Vec<u8>>) -> Self {
        Self(Arc::new(Zeroizing::new(octets.into())))
    }

    /// The secret as it is kept, for the comparison of a login and the files of the box.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// True when both refer to the same memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl PartialEq for SecretRef {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || self.0 == other.0
    }
}

impl Eq for SecretRef {}

impl fmt::Debug for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretRef(..)")
    }
}

/// References by user and leaf. A clone shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets(Arc<BTreeMap<(SmolStr, SecretLeaf), SecretRef>>);

impl Secrets {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True when both are known to be equal, without a look at the references.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub fn get(&self, user: &str, leaf: SecretLeaf) -> Option<&SecretRef> {
        self.0.get(&(SmolStr::new(user), leaf))
    }

    /// The hash of a user's password, in whichever form it was given.
    pub fn password(&self, user: &str) -> Option<&SecretRef> {
        let forms = [SecretLeaf::Password, SecretLeaf::PasswordHashed];
        forms.into_iter().find_map(|leaf| self.get(user, leaf))
    }

    /// Ascending by user, then by leaf.
    pub fn iter(&self) -> impl Iterator<Item = (&SmolStr, SecretLeaf, &SecretRef)> {
        self.0.iter().map(|((user, leaf), secret)| (user, *leaf, secret))
    }

    /// Sets a leaf; the other form of a password goes.
    pub(crate) fn set(&mut self, user: &SmolStr, leaf: SecretLeaf, secret: SecretRef) {
        let by_user = Arc::make_mut(&mut self.0);
        if let Some(other) = leaf.other_form() {
            by_user.remove(&(user.clone(), other));
        }
        by_user.insert((user.clone(), leaf), secret);
    }

    /// Puts a stored reference back.
    pub(crate) fn restore(&mut self, user: &str, leaf: SecretLeaf, secret: SecretRef) {
        Arc::make_mut(&mut self.0).insert((user.into(), leaf), secret);
    }

    /// Keeps those for which `keep` is true; without a change the memory stays the same.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&SmolStr, SecretLeaf) -> bool) {
        let removed: Vec<_> =
            self.0.keys().filter(|(user, leaf)| !keep(user, *leaf)).cloned().collect();
        if !removed.is_empty() {
            let by_user = Arc::make_mut(&mut self.0);
            removed.iter().for_each(|key| drop(by_user.remove(key)));
        }
    }

    /// References that differ between two versions: that of `new`, or nothing where it has none.
    pub(crate) fn differences<'s>(
        old: &'s Self,
        new: &'s Self,
    ) -> Vec<(&'s SmolStr, SecretLeaf, Option<&'s SecretRef>)> {
        if old.is_same(new) {
            return Vec::new();
        }
        let removed = old.0.keys().filter(|key| !new.0.contains_key(*key));
        let removed = removed.map(|(user, leaf)| (user, *leaf, None));
        let differs = new.0.iter().filter(|(key, secret)| old.0.get(*key) != Some(*secret));
        removed.chain(differs.map(|((user, leaf), secret)| (user, *leaf, Some(secret)))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_prints_nothing() {
        let mut secrets = Secrets::default();
        secrets.set(&"ada".into(), SecretLeaf::Password, SecretRef::new("$6$salt$hash"));
        assert!(
            !format!("{secrets:?}").contains("hash\"") && !format!("{secrets:?}").contains("$6$")
        );
        // Nor as bytes.
        assert!(!format!("{secrets:?}").contains("36, 54"), "{secrets:?}");
    }

    #[test]
    fn a_user_has_one_password() {
        let ada = SmolStr::new("ada");
        let mut secrets = Secrets::default();
        secrets.set(&ada, SecretLeaf::Password, SecretRef::new("one"));
        secrets.set(&ada, SecretLeaf::SshKey, SecretRef::new("key"));
        secrets.set(&ada, SecretLeaf::PasswordHashed, SecretRef::new("two"));
        let leaves: Vec<_> = secrets.iter().map(|(_, leaf, _)| leaf).collect();
        assert_eq!(leaves, [SecretLeaf::PasswordHashed, SecretLeaf::SshKey]);
        assert_eq!(secrets.password("ada").unwrap().expose(), b"two");
    }
}
