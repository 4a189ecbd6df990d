//! Public keys that services give users: leaves of their claims, as any other.
//!
//! A key is not a secret, so claims share it, hold it together and disagree about it by the rules for every leaf. It is not
//! mapped to the native model. It counts while gNSI is off, beside the keys that clients gave ([`Secrets`](crate::Secrets)), which are in no
//! tree: so the union does not see that a client and a service ask for different keys, and this module does.

use smol_str::SmolStr;

use crate::instance::InstancePath;
use crate::layer::{LayerKey, Layers, LeafMark, Namespace};
use crate::limits::excerpt;
use crate::models::Models;
use crate::schema::Schema;
use crate::secret_nodes::{SecretNodes, is_branch_same, native_user};
use crate::secrets::SecretLeaf;
use crate::tree::Tree;
use crate::union::Problem;
use crate::value::Value;

pub(crate) const LAYER: LayerKey = LayerKey::SERVICE_OPENCONFIG;

/// A key in a tree of OpenConfig.
pub(crate) struct UserKey {
    pub(crate) user: SmolStr,
    pub(crate) key: SmolStr,
    /// Path of the leaf.
    pub(crate) path: InstancePath,
}

/// All keys in a tree, ascending by user.
pub(crate) fn user_keys(openconfig: &Schema, tree: &Tree<LeafMark>) -> Vec<UserKey> {
    if tree.is_empty() {
        return Vec::new();
    }
    let Some(nodes) = SecretNodes::find(openconfig) else { return Vec::new() };
    let (above, list) = nodes.list();
    let users = tree.branch(&above).and_then(|branch| branch.list(list));
    let names = users.into_iter().flat_map(|users| users.iter()).filter_map(|(keys, _)| match keys
        .first(
    )? {
        Value::Str(name) => Some(name.clone()),
        _ => None,
    });
    let key_of = |user: SmolStr| {
        let path = nodes.leaf(&user, SecretLeaf::SshKey)?;
        let key = key_at(tree, &path)?.clone();
        Some(UserKey { user, key, path })
    };
    names.filter_map(key_of).collect()
}

pub(crate) fn key_at<'t>(tree: &'t Tree<LeafMark>, path: &InstancePath) -> Option<&'t SmolStr> {
    match &tree.leaf(path)?.value {
        Value::Str(key) => Some(key),
        _ => None,
    }
}

/// Bytes at the end of a key that an error text quotes: enough to tell keys apart.
const KEY_END: usize = 8;

/// Kind and end of a key, for error texts. All keys of a kind begin alike, and two long ones would push the names of those
/// who ask for them out of a text.
pub(crate) fn key_excerpt(key: &str) -> String {
    let (kind, octets) = key.split_once(' ').unwrap_or(("", key));
    match octets.char_indices().rev().nth(KEY_END) {
        Some((at, first)) => {
            excerpt(&format_args!("{kind} ...{}", &octets[at + first.len_utf8()..]))
        }
        None => excerpt(key),
    }
}

/// True when two versions of the layer of services share the list of users.
pub(crate) fn are_service_users_same(models: &Models, old: &Layers, new: &Layers) -> bool {
    if old.tree(LAYER).is_same(new.tree(LAYER)) {
        return true;
    }
    let users = SecretNodes::find(&models.openconfig).map(|nodes| nodes.list().0);
    users.is_some_and(|path| is_branch_same(&path, LAYER, old, new))
}

/// Keys that differ between a client and services, where either has changed.
pub(crate) fn conflicts(models: &Models, old: &Layers, new: &Layers) -> Vec<Problem> {
    let is_untouched = || {
        old.secrets.is_same(&new.secrets)
            && old.is_on(Namespace::Gnsi) == new.is_on(Namespace::Gnsi)
            && are_service_users_same(models, old, new)
    };
    if new.is_on(Namespace::Gnsi) || new.secrets.is_empty() || is_untouched() {
        return Vec::new();
    }
    let conflict = |UserKey { user, key, path }: UserKey| {
        let given = new.secrets.get(&user, SecretLeaf::SshKey)?;
        let is_new = old.secrets.get(&user, SecretLeaf::SshKey) != Some(given)
            || key_at(old.tree(LAYER), &path) != Some(&key);
        let differs = given.expose() != key.as_bytes();
        let native = native_user(models, &user)?;
        (differs && is_new).then_some(Problem::KeyConflict { native, openconfig: path, key })
    };
    let keys = user_keys(&models.openconfig, new.tree(LAYER));
    keys.into_iter().filter_map(conflict).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_quoted_by_its_kind_and_its_end() {
        let long = format!("ssh-rsa {}0123456789abcdef", "A".repeat(500));
        for (key, quoted) in [
            (long.as_str(), "ssh-rsa ...89abcdef"),
            ("ssh-x 89abcdef", "ssh-x 89abcdef"),
            ("ssh-x z89abcdef", "ssh-x ...89abcdef"),
            ("no-key", "no-key"),
            ("", ""),
        ] {
            assert_eq!(key_excerpt(key), quoted);
        }
    }
}
