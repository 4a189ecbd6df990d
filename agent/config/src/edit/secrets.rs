//! The write-only leaves of users, taken out of what a request supplies before it reaches a tree.
//!
//! The leaves are the clients' while gNSI is switched off. While it is on they stay in the payload, and the union refuses
//! them as reserved. This module does not hash: the caller passes a [`SecretKeeper`] that does.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use smol_str::SmolStr;
use zeroize::Zeroizing;

use super::payload::{InvalidPayload, ParsedPayload};
use super::session::EditSession;
use super::{EditCause, EditOperation};
use crate::footprint::Part;
use crate::instance::{InstancePath, Keys};
use crate::layer::{LayerKey, Layers, LeafMark, Namespace};
use crate::limits::NEW_SECRETS;
use crate::models::Models;
use crate::reserved;
use crate::resolve::PathPattern;
use crate::schema::{NodeId, Origin};
use crate::secret_nodes::{SecretNodes, is_system_same, native_user};
use crate::secrets::{SecretLeaf, SecretRef};
use crate::tree::{Branch, Leaf, NodeRef, Tree};
use crate::user_keys::{UserKey, user_keys};
use crate::value::Value;

/// Turns a secret as sent into the form that is stored.
pub trait SecretKeeper: fmt::Debug + Send + Sync {
    /// Returns the reference to store for `cleartext`: `current`, when that is the same secret. May take a tenth of a second.
    ///
    /// # Errors
    /// The reason for which the secret is refused, without the secret.
    fn keep(
        &self,
        leaf: SecretLeaf,
        cleartext: &str,
        current: Option<&SecretRef>,
    ) -> Result<SecretRef, String>;
}

/// Handle of the secret keeper for one Set, or for the output of services; without one, no secret and no key is accepted.
#[derive(Clone, Debug, Default)]
pub struct SecretKeeperHandle(Option<Arc<dyn SecretKeeper>>);

impl SecretKeeperHandle {
    pub fn new(keeper: Arc<dyn SecretKeeper>) -> Self {
        Self(Some(keeper))
    }

    /// Brings the public keys of users in a tree of OpenConfig into the form in which those of clients are kept.
    ///
    /// # Errors
    /// With the first key that is refused, and where there is no keeper.
    pub fn keep_keys(
        &self,
        models: &Models,
        tree: &mut Tree<LeafMark>,
    ) -> Result<(), InvalidPayload> {
        let schema = &models.openconfig;
        for UserKey { key, path, .. } in user_keys(schema, tree) {
            let refused = |reason| InvalidPayload {
                path: path.to_path(schema).to_string(),
                cause: EditCause::BadValue(reason),
            };
            let keeper =
                self.0.as_ref().ok_or_else(|| refused("keys are not read here".to_owned()))?;
            let kept = keeper.keep(SecretLeaf::SshKey, &key, None).map_err(refused)?;
            if kept.expose() != key.as_bytes() {
                let text = String::from_utf8_lossy(kept.expose());
                let leaf = Leaf::new(Value::Str(text.into()), LeafMark::Explicit);
                tree.set_leaf(schema, &path, leaf);
            }
        }
        Ok(())
    }
}

/// Equal with the same keeper, or none in both.
impl PartialEq for SecretKeeperHandle {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

/// Secrets that one request has sent so far.
#[derive(Debug, Default)]
pub(super) struct SecretEdits {
    keeper: SecretKeeperHandle,
    /// Looked up when a request first comes near a user.
    place: Option<SecretNodes>,
    /// As they were sent.
    sent: BTreeMap<(SmolStr, SecretLeaf), Zeroizing<String>>,
}

/// A secret as it was sent, with its user.
type CleartextSecret = (Keys, SecretLeaf, Zeroizing<String>);

impl SecretNodes {
    /// Removes the secrets from `branch`, whose root is at `path`, and returns them.
    fn take(
        &self,
        path: &InstancePath,
        branch: &mut Arc<Branch<LeafMark>>,
    ) -> Vec<CleartextSecret> {
        let way: Vec<NodeId> = self.way().skip(path.0.len()).collect();
        let keys = path.0.get(SecretNodes::DEPTH - 1).and_then(|step| step.keys.clone());
        let mut sent = Vec::new();
        if self.has_secret(branch, &way) {
            self.take_below(Arc::make_mut(branch), &way, keys.as_ref(), &mut sent);
        }
        sent
    }

    fn has_secret(&self, branch: &Branch<LeafMark>, way: &[NodeId]) -> bool {
        let Some((node, rest)) = way.split_first() else {
            return self.leaves.iter().any(|(leaf, _)| branch.leaf(*leaf).is_some());
        };
        let list = branch.list(*node);
        branch.container(*node).is_some_and(|it| self.has_secret(it, rest))
            || list.is_some_and(|it| it.iter().any(|(_, entry)| self.has_secret(entry, rest)))
    }

    fn take_below(
        &self,
        branch: &mut Branch<LeafMark>,
        way: &[NodeId],
        keys: Option<&Keys>,
        sent: &mut Vec<CleartextSecret>,
    ) {
        let Some((node, rest)) = way.split_first() else {
            return self.take_leaves(branch, keys, sent);
        };
        if branch.container(*node).is_some() {
            let inner = branch.container_mut(*node);
            self.take_below(inner, rest, keys, sent);
            if inner.is_empty() {
                branch.take(*node);
            }
        } else if branch.list(*node).is_some() {
            let list = branch.list_mut(*node);
            let has_secret = |entry: &Branch<LeafMark>| self.has_secret(entry, rest);
            let users = list.iter().filter(|(_, entry)| has_secret(entry));
            let users: Vec<Keys> = users.map(|(keys, _)| keys.clone()).collect();
            for keys in users {
                let entry = list.entry_mut(&keys, Branch::default);
                self.take_below(entry, rest, Some(&keys), sent);
            }
        }
    }

    fn take_leaves(
        &self,
        config: &mut Branch<LeafMark>,
        keys: Option<&Keys>,
        sent: &mut Vec<CleartextSecret>,
    ) {
        for (node, leaf) in self.leaves {
            let text = config.value(node).and_then(text_of);
            if let (Some(keys), Some(text)) = (keys, text) {
                config.take(node);
                sent.push((keys.clone(), leaf, text));
            }
        }
    }
}

fn text_of(value: &Value) -> Option<Zeroizing<String>> {
    match value {
        Value::Str(text) => Some(Zeroizing::new(text.to_string())),
        _ => None,
    }
}

fn name_of(keys: &Keys) -> Option<SmolStr> {
    match keys.first()? {
        Value::Str(name) => Some(name.clone()),
        _ => None,
    }
}

impl SecretEdits {
    pub(super) fn by(keeper: SecretKeeperHandle) -> Self {
        Self { keeper, ..Self::default() }
    }
}

impl EditSession<'_> {
    /// Removes the secrets from the payload of an operation, stores them, and returns the rest of the payload; `None` when
    /// nothing is left to apply, or the operation is refused. The users with stored secrets exist afterwards.
    pub(super) fn extract_secrets(
        &mut self,
        operation: EditOperation,
        origin: Origin,
        path: &InstancePath,
        supplied: ParsedPayload,
    ) -> Option<ParsedPayload> {
        let is_on = self.layers.is_on(Namespace::Gnsi);
        if origin != Origin::OpenConfig || is_on || self.secrets.keeper.0.is_none() {
            return Some(supplied);
        }
        let Some(place) = self.secret_nodes().filter(|it| it.is_near(path)) else {
            return Some(supplied);
        };
        let (sent, rest) = match supplied {
            ParsedPayload::Leaf(value) => {
                let keys = path.0.get(SecretNodes::DEPTH - 1).and_then(|step| step.keys.clone());
                let leaf = path.last().and_then(|step| {
                    place.leaves.iter().find(|(node, _)| *node == step.node).map(|(_, leaf)| *leaf)
                });
                let (Some(keys), Some(leaf), Some(text)) = (keys, leaf, text_of(&value)) else {
                    return Some(ParsedPayload::Leaf(value));
                };
                (vec![(keys, leaf, text)], None)
            }
            ParsedPayload::Branch { mut branch, annotation, empty } => {
                let sent = place.take(path, &mut branch);
                (sent, Some(ParsedPayload::Branch { branch, annotation, empty }))
            }
        };
        for (keys, leaf, text) in sent {
            let Some(name) = name_of(&keys) else { continue };
            if let Err(cause) = self.keep_secret(operation, &name, leaf, text) {
                let schema = &self.models().openconfig;
                let path = place.leaf(&name, leaf).unwrap_or_else(|| path.clone());
                self.refuse(operation, path.to_path(schema), cause);
                return None;
            }
            // The secret may be the one that the user has, and then nothing differs.
            self.scope.add_part(Part::Secrets);
            self.scope.add_payload(origin, &place.entry(keys.clone()), &Arc::default());
            self.secret_users.insert(keys);
        }
        if rest.is_none() {
            self.create_secret_users();
        }
        rest
    }

    fn keep_secret(
        &mut self,
        operation: EditOperation,
        name: &SmolStr,
        leaf: SecretLeaf,
        text: Zeroizing<String>,
    ) -> Result<(), EditCause> {
        let key = |leaf| (name.clone(), leaf);
        if leaf.other_form().is_some_and(|other| self.secrets.sent.contains_key(&key(other))) {
            return Err(EditCause::BadValue(
                "a request may give a user either `password` or `password-hashed`".to_owned(),
            ));
        }
        match self.secrets.sent.get(&key(leaf)) {
            Some(known) if *known == text => return Ok(()),
            Some(_) if matches!(operation, EditOperation::UnionReplace(_)) => {
                return Err(EditCause::BadValue(
                    "another entry of the request gives a different value".to_owned(),
                ));
            }
            _ => {}
        }
        let Some(keeper) = self.secrets.keeper.0.clone() else { return Ok(()) };
        NEW_SECRETS.check(self.secrets.sent.len() + 1).map_err(EditCause::Limit)?;
        self.progress.check().map_err(EditCause::from)?;
        let before = &self.before.layers().secrets;
        let current = match leaf.other_form() {
            Some(_) => before.password(name),
            None => before.get(name, leaf),
        };
        let secret = keeper.keep(leaf, &text, current).map_err(EditCause::BadValue)?;
        self.secrets.sent.insert(key(leaf), text);
        if self.layers.secrets.get(name, leaf) != Some(&secret) {
            self.layers.secrets.set(name, leaf, secret);
        }
        Ok(())
    }

    /// Creates the entries of users that have secrets and nothing else.
    pub(super) fn create_secret_users(&mut self) {
        let users = std::mem::take(&mut self.secret_users);
        let Some(place) = self.secret_nodes().filter(|_| !users.is_empty()) else { return };
        let schema = &self.models().openconfig;
        for keys in users {
            let entry = place.entry(keys);
            let tree = self.layers.tree_mut(LayerKey::CLIENT_OPENCONFIG);
            tree.branch_mut(schema, &entry.0, &LeafMark::Explicit);
            self.fill_key_copies(Origin::OpenConfig, &entry);
        }
    }

    /// Notes the users with secrets whose entries an operation is about to change. A secret is a leaf, so such a user stays
    /// when nothing else is left of its entry.
    pub(super) fn collect_secret_users(&mut self, origin: Origin, pattern: &PathPattern) {
        let is_inside = origin == Origin::OpenConfig && pattern.0.len() > SecretNodes::DEPTH;
        if !is_inside || self.layers.secrets.is_empty() {
            return;
        }
        let Some(place) = self.secret_nodes() else { return };
        let tree = self.layers.tree(LayerKey::CLIENT_OPENCONFIG);
        let users = self.layers.secrets.iter().filter_map(|(user, ..)| {
            let keys = Keys::single(Value::Str(user.clone()));
            let entry = place.entry(keys.clone());
            (pattern.overlaps(&entry) && tree.get(&entry).is_some()).then_some(keys)
        });
        self.secret_users.extend(users);
    }

    /// Forgets the secrets that a delete names or covers.
    pub(super) fn clear_secrets(&mut self, origin: Origin, pattern: &PathPattern) {
        if origin != Origin::OpenConfig {
            return;
        }
        // While gNSI is on, the leaf is its own.
        if pattern.last().is_some_and(|it| reserved::row(&self.models().openconfig, it).is_some()) {
            self.scope.add_part(Part::Secrets);
        }
        let Some(place) = self.secret_nodes().filter(|_| !self.layers.secrets.is_empty()) else {
            return;
        };
        let covers = |user: &SmolStr, leaf: SecretLeaf| {
            place.leaf(user, leaf).is_some_and(|path| pattern.covers(&path))
        };
        self.layers.secrets.retain(|user, leaf| !covers(user, leaf));
    }

    /// Forgets the secrets of users that no client asks for any more.
    pub(super) fn drop_unused_secrets(&mut self) {
        let models = self.models();
        let before = self.before.layers();
        let clients = [LayerKey::CLIENT_OPENCONFIG, LayerKey::CLIENT_NATIVE];
        let untouched = self.layers.secrets.is_same(&before.secrets)
            && clients.into_iter().all(|it| is_system_same(models, it, before, &self.layers));
        if self.layers.secrets.is_empty() || untouched {
            return;
        }
        let mut secrets = std::mem::take(&mut self.layers.secrets);
        secrets.retain(|user, _| has_client_user(models, &self.layers, user));
        self.layers.secrets = secrets;
    }

    fn secret_nodes(&mut self) -> Option<SecretNodes> {
        if self.secrets.place.is_none() {
            self.secrets.place = SecretNodes::find(&self.models().openconfig);
        }
        self.secrets.place.clone()
    }
}

/// True while a client asks for a user: by an entry of client OpenConfig, or by one of client native that did not come
/// with the box.
fn has_client_user(models: &Models, layers: &Layers, user: &SmolStr) -> bool {
    let keys = Keys::single(Value::Str(user.clone()));
    let openconfig = SecretNodes::find(&models.openconfig).map(|place| place.entry(keys));
    let openconfig = openconfig
        .is_some_and(|path| layers.tree(LayerKey::CLIENT_OPENCONFIG).get(&path).is_some());
    openconfig
        || native_user(models, user).is_some_and(|path| {
            let entry = layers.tree(LayerKey::CLIENT_NATIVE).branch(&path);
            let mut explicit = false;
            if let Some(entry) = entry {
                NodeRef::Branch(entry).walk(&mut path.clone(), &mut |_, leaf| {
                    explicit |= leaf.meta == LeafMark::Explicit;
                });
            }
            explicit
        })
}
