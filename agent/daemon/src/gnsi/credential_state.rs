//! The credentials in force, as values of the engine and as passwords for gRPC.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use holdfast_config::{Configuration, SecretLeaf};
use holdfast_core::{CredentialSource, Values};
use holdfast_platform::Vault;
use holdfast_platform::kinds::credential;
use holdfast_platform::values::{CredentialFile, GlomeLogin, Password, SshServer};
use holdfast_scheduler::{Key, SharedValue};
use holdfast_security::credentialz::{
    AuthorizedKey, BoxKey, Credentials, CryptHash, Digest, Freshness, GLOME_FILE, PublicKey,
    RenderedCredentials, Versioned,
};
use holdfast_store::{Artefact, ArtefactChange, ArtefactTable, Artefacts, Store};
use smol_str::SmolStr;
use tokio::runtime::Handle;
use zeroize::Zeroizing;

use super::{Rotator, vault::CredentialVault};
use crate::users::Users;

/// Permissions of files for root only.
const SECRET: u32 = 0o600;
/// Permissions of files that sshd reads as the user who logs in.
const PUBLIC: u32 = 0o644;
/// Folder of the box's own host keys, below the root.
const SSH_FOLDER: &str = "etc/ssh";

/// Credentials in force and on disk; clones share them.
#[derive(Clone, Debug)]
pub struct CredentialState(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Credentials on disk.
    last: ArcSwap<Credentials>,
    /// Credentials in force, which a rotation may be trying.
    current: ArcSwap<Credentials>,
    vault: Arc<CredentialVault>,
    users: Users,
    root: PathBuf,
    /// Both rotations, for accounts and for the host.
    rotator: Rotator,
}

impl CredentialState {
    /// Starts with the stored credentials. Must run within the runtime.
    pub fn new(stored: &Artefacts, users: Users, store: Store, root: PathBuf) -> Self {
        let empty = BTreeMap::new();
        let stored = stored.get(&ArtefactTable::Credentialz).unwrap_or(&empty);
        let credentials = Arc::new(read(stored));
        let vault = Arc::new(CredentialVault::new(stored, store.clone(), Handle::current()));
        let logins = Self(Arc::new(Shared {
            last: ArcSwap::new(Arc::clone(&credentials)),
            current: ArcSwap::new(Arc::clone(&credentials)),
            vault,
            users,
            root,
            rotator: Rotator::new(store),
        }));
        logins.retain_secrets(&[&credentials]);
        logins.enter(&credentials);
        logins.0.users.mark_final();
        logins
    }

    /// Source of secrets for transports.
    pub fn vault(&self) -> Arc<dyn Vault> {
        Arc::clone(&self.0.vault) as Arc<dyn Vault>
    }

    /// Rotations of accounts and of the host, which exclude each other.
    pub(crate) fn rotator(&self) -> &Rotator {
        &self.0.rotator
    }

    /// Credentials on disk.
    pub fn last(&self) -> Arc<Credentials> {
        self.0.last.load_full()
    }

    /// Credentials in force, tried or final.
    pub fn current(&self) -> Arc<Credentials> {
        self.0.current.load_full()
    }

    /// Users that can log in over gRPC.
    pub fn users(&self) -> &Users {
        &self.0.users
    }

    /// Makes the secrets of all these credentials available to transports.
    pub fn retain_secrets(&self, all: &[&Credentials]) {
        let rendered: Vec<RenderedCredentials> = all.iter().map(|it| it.render()).collect();
        self.0.vault.retain_secrets(&rendered);
    }

    /// Applies these passwords to gRPC logins.
    pub fn enter(&self, credentials: &Arc<Credentials>) {
        let password = |(name, account): (&SmolStr, &holdfast_security::credentialz::Account)| {
            Some((name.clone(), account.password.as_ref()?.value.clone()))
        };
        let passwords: BTreeMap<SmolStr, CryptHash> =
            credentials.accounts.iter().filter_map(password).collect();
        self.0.users.set_gnsi_passwords(passwords);
        self.0.current.store(Arc::clone(credentials));
    }

    /// Changes on disk from one state to the other.
    pub fn changes(&self, from: &Credentials, to: &Credentials) -> Vec<ArtefactChange> {
        let rows = |credentials: &Credentials| credentials.rows().into_iter().collect();
        let (old, new): (BTreeMap<_, _>, BTreeMap<_, _>) = (rows(from), rows(to));
        let change = |name: &SmolStr, content: Option<&Zeroizing<Vec<u8>>>| ArtefactChange {
            table: ArtefactTable::Credentialz,
            name: name.to_string(),
            artefact: content.map(|content| Artefact {
                version: String::new(), // each row has several
                created_on: 0,
                content: content.clone(),
            }),
        };
        let removed =
            old.keys().filter(|name| !new.contains_key(*name)).map(|name| change(name, None));
        let differs = new.iter().filter(|(name, content)| old.get(*name) != Some(*content));
        removed.chain(differs.map(|(name, content)| change(name, Some(content)))).collect()
    }

    /// Records that these credentials are on disk.
    pub fn mark_final(&self, credentials: &Arc<Credentials>) {
        self.retain_secrets(&[credentials]);
        self.0.last.store(Arc::clone(credentials));
        self.0.users.mark_final();
    }

    /// Host keys of the box itself, as far as their public halves are in files.
    pub fn box_keys(&self) -> Vec<BoxKey> {
        let Ok(entries) = std::fs::read_dir(self.0.root.join(SSH_FOLDER)) else {
            return Vec::new();
        };
        let mut keys: Vec<BoxKey> =
            entries.flatten().filter_map(|it| box_key(&it.path())).collect();
        keys.sort_by(|one, other| one.path.cmp(&other.path));
        keys
    }
}

impl CredentialSource for CredentialState {
    fn last(&self) -> Arc<Credentials> {
        self.last()
    }

    fn values(&self, configuration: &Configuration) -> Vec<(Key, SharedValue)> {
        let rendered = in_force(&self.last(), configuration).render();
        self.0.vault.set_in_force([&rendered]);
        values(&rendered).into_iter().collect()
    }

    fn hold(
        &self,
        (from, old): (&Arc<Credentials>, &Configuration),
        (to, new): (&Arc<Credentials>, &Configuration),
    ) {
        let from = in_force(from, old).render();
        let to = in_force(to, new).render();
        self.0.vault.set_in_force([&from, &to]);
    }

    fn difference(
        &self,
        (from, old): (&Arc<Credentials>, &Configuration),
        (to, new): (&Arc<Credentials>, &Configuration),
    ) -> Values {
        if Arc::ptr_eq(from, to) && old.has_same_user_secrets(new) {
            return Values::new();
        }
        difference(&in_force(from, old).render(), &in_force(to, new).render())
    }
}

fn box_key(file: &Path) -> Option<BoxKey> {
    let name = file.file_name()?.to_str()?.strip_suffix("_key.pub")?;
    name.starts_with("ssh_host_").then_some(())?;
    let public = PublicKey::parse(&std::fs::read(file).ok()?, None).ok()?;
    Some(BoxKey { path: format!("/{SSH_FOLDER}/{name}_key"), public })
}

fn read(stored: &BTreeMap<String, Artefact>) -> Credentials {
    let mut credentials = Credentials::default();
    for (name, artefact) in stored {
        // Probably written by another version. The rest of the box must still start.
        if let Err(error) = credentials.restore_row(name, &artefact.content) {
            tracing::error!(%name, %error, "stored credentials are not carried out");
        }
    }
    credentials
}

/// Values of the engine for credentials: names, digests and permissions.
fn values(rendered: &RenderedCredentials) -> BTreeMap<Key, SharedValue> {
    let mut values: BTreeMap<Key, SharedValue> = BTreeMap::new();
    for file in &rendered.files {
        if file.path == GLOME_FILE {
            let text = String::from_utf8_lossy(&file.content).into_owned();
            values.insert(credential::glome_key(), Arc::new(GlomeLogin { text }));
            continue;
        }
        let mode = if file.secret { SECRET } else { PUBLIC };
        let value = CredentialFile { path: file.path.as_str().into(), digest: file.digest(), mode };
        values.insert(credential::file_key(&file.path), Arc::new(value));
    }
    for (account, hash) in &rendered.passwords {
        let digest = Digest::of(hash.text().as_bytes());
        let value = Password { account: account.clone(), digest };
        values.insert(credential::password_key(account), Arc::new(value));
    }
    if let Some(server) = &rendered.server {
        let value = SshServer {
            text: server.text.clone(),
            files: server.files.iter().map(SmolStr::from).collect(),
            programs: server.programs.iter().copied().map(SmolStr::new_static).collect(),
        };
        values.insert(credential::server_key(), Arc::new(value));
    }
    values
}

/// The credentials that count: of credentialz, and while gNSI is switched off before them those that clients and services
/// gave.
fn in_force<'c>(
    credentials: &'c Credentials,
    configuration: &Configuration,
) -> Cow<'c, Credentials> {
    let secrets = configuration.user_secrets();
    if secrets.is_empty() {
        return Cow::Borrowed(credentials);
    }
    let mut all = credentials.clone();
    for (user, leaf, secret) in secrets.iter() {
        let account = all.accounts.entry(user.clone()).or_default();
        // Kept credentials were read when they were given.
        match leaf {
            SecretLeaf::Password | SecretLeaf::PasswordHashed => {
                let text = std::str::from_utf8(secret.expose()).unwrap_or_default();
                if let Ok(hash) = CryptHash::parse(text) {
                    account.password = Some(unversioned(hash));
                }
            }
            SecretLeaf::SshKey => {
                if let Ok(key) = PublicKey::parse(secret.expose(), None) {
                    let options = Vec::new();
                    let description = String::new();
                    account.keys =
                        Some(unversioned(vec![AuthorizedKey { key, options, description }]));
                }
            }
        }
    }
    Cow::Owned(all)
}

fn unversioned<T>(value: T) -> Versioned<T> {
    Versioned { stamp: Freshness::default(), value }
}

fn difference(from: &RenderedCredentials, to: &RenderedCredentials) -> Values {
    let old = values(from);
    let mut new = values(to);
    let keys: BTreeSet<Key> = old.keys().chain(new.keys()).cloned().collect();
    let differs = |key: &Key| match (old.get(key), new.get(key)) {
        (Some(old), Some(new)) => !old.same(&**new),
        (None, None) => false,
        _ => true,
    };
    let keys: Vec<Key> = keys.into_iter().filter(differs).collect();
    keys.into_iter().map(|key| (key.clone(), new.remove(&key))).collect()
}
