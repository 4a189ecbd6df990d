//! The local users: in memory for every request, in the database for the next start.

mod password;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, OnceLock, PoisonError, RwLock},
};

use holdfast_base::{AccessEpoch, Role, Switch};
use holdfast_config::SecretRef;
use holdfast_core::ConfiguredUsers;
use holdfast_security::credentialz::CryptHash;
use holdfast_store::{Store, StoreError, User};
use smol_str::SmolStr;
use tracing::info;
use zeroize::Zeroizing;

pub(crate) use self::password::Tag;
use self::password::Tagger;
pub use self::password::{Password, PasswordError};

/// Longest user name, in bytes: enough for a SPIFFE id, since a certificate may get its role from a user of that name.
const MAX_NAME_BYTES: usize = 2048;
/// The user of `--admin-password-file`.
const ADMIN: &str = "admin";

/// The login that succeeded on a connection, so that a guessing client behind the same address cannot lock it out.
#[derive(Debug, Default)]
pub struct VerifiedLogin(Mutex<Option<(SmolStr, Tag)>>);

impl VerifiedLogin {
    pub(crate) fn is(&self, name: &str, tag: &Tag) -> bool {
        let login = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        login.as_ref().is_some_and(|(user, known_tag)| user == name && known_tag.same(tag))
    }

    pub(crate) fn keep(&self, name: &str, tag: Tag) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((name.into(), tag));
    }
}

/// Failure to change a user.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UserError {
    #[error("`{0}` is not a user name: 1 to {MAX_NAME_BYTES} visible characters without spaces")]
    Name(String),
    #[error("there is no user `{0}`")]
    Unknown(SmolStr),
    #[error("cannot set the password of `{name}`")]
    Password { name: SmolStr, source: PasswordError },
    #[error("cannot store the user `{name}`")]
    Store { name: SmolStr, source: StoreError },
    #[error("the agent is ending")]
    Stopped,
}

/// The users of this agent; clones share them.
#[derive(Clone, Debug)]
pub struct Users {
    shared: Arc<Shared>,
    store: Store,
}

#[derive(Debug)]
struct Shared {
    entries: RwLock<BTreeMap<SmolStr, Arc<UserEntry>>>,
    /// Passwords from gNSI, which take precedence over those of the entries.
    gnsi_passwords: RwLock<GnsiPasswords>,
    /// Counter of the changes of users.
    access: AccessEpoch,
    /// Passwords that clients gave, as far as they were asked for, each with what the configuration refers to.
    configured_entries: RwLock<BTreeMap<SmolStr, (SecretRef, Arc<UserEntry>)>>,
    /// Switch of gNSI, which decides on that precedence; absent until gNSI has started.
    gnsi: OnceLock<Switch>,
    /// Not there until the configuration is in force.
    configured: OnceLock<ConfiguredUsers>,
    tagger: Tagger,
}

/// Passwords from gNSI.
#[derive(Debug, Default)]
struct GnsiPasswords {
    /// Passwords for new logins: final, or on trial.
    in_force: BTreeMap<SmolStr, Arc<UserEntry>>,
    /// Final passwords.
    last: BTreeMap<SmolStr, Arc<UserEntry>>,
}

/// A user, with the tag of the password that was last verified. A change of the user makes a new entry without a tag.
#[derive(Debug)]
pub(crate) struct UserEntry {
    user: User,
    verified: OnceLock<Tag>,
}

impl UserEntry {
    pub(crate) fn role(&self) -> &Role {
        &self.user.role
    }

    pub(crate) fn password_hash(&self) -> &str {
        &self.user.password_hash
    }

    pub(crate) fn verified_as(&self, tag: &Tag) -> bool {
        self.verified.get().is_some_and(|verified_tag| verified_tag.same(tag))
    }

    pub(crate) fn remember(&self, tag: Tag) {
        self.verified.get_or_init(|| tag);
    }
}

impl Users {
    /// # Errors
    /// When the system gives no random numbers.
    pub fn new(stored: Vec<User>, store: Store) -> Result<Self, PasswordError> {
        let entries = stored.into_iter().map(|user| (user.name.clone(), entry_of(user))).collect();
        Ok(Self {
            shared: Arc::new(Shared {
                entries: RwLock::new(entries),
                gnsi_passwords: RwLock::default(),
                configured_entries: RwLock::default(),
                access: AccessEpoch::default(),
                gnsi: OnceLock::new(),
                configured: OnceLock::new(),
                tagger: Tagger::new()?,
            }),
            store,
        })
    }

    /// Counter of all changes of the permissions of callers: of users, policies and TLS profiles.
    pub fn access(&self) -> &AccessEpoch {
        &self.shared.access
    }

    pub fn is_empty(&self) -> bool {
        self.shared.entries.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// From now on the configuration says which role and password a user has. The first one to say so stays.
    pub fn follow(&self, configured: ConfiguredUsers) {
        let _there_already = self.shared.configured.set(configured);
    }

    /// Sets the switch of gNSI, which decides if passwords from gNSI take precedence over those set at the box. While
    /// it is off, they count for users who have no other. Only the first call has an effect.
    pub(crate) fn set_gnsi_switch(&self, gnsi: Switch) {
        let _there_already = self.shared.gnsi.set(gnsi);
    }

    /// The role of a user, if there is such a user: from the configuration, or else as it was set with its password.
    pub fn role(&self, name: &str) -> Option<Role> {
        let configured = self.shared.configured.get().and_then(|it| it.role(name));
        match configured {
            // A controller that writes back what it has read names users without a role. Users of the box keep
            // theirs.
            Some(Role::None) | None => self.own_role(name).or(configured),
            Some(_) => configured,
        }
    }

    /// The role that a user was given at the box, without regard to the configuration.
    pub fn own_role(&self, name: &str) -> Option<Role> {
        self.own(name).map(|entry| entry.role().clone())
    }

    /// Replaces the passwords of these users for new logins. Logins with an unchanged password are remembered; calls
    /// that began with another one go on until [`Self::mark_final`].
    pub fn set_gnsi_passwords(&self, passwords: BTreeMap<SmolStr, CryptHash>) {
        let mut all = self.shared.gnsi_passwords.write().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::take(&mut all.in_force);
        let entry = |(name, hash): (SmolStr, CryptHash)| {
            let same = former.get(&name).filter(|it| it.password_hash() == hash.text()).cloned();
            let user = || User {
                name: name.clone(),
                role: Role::None, // not used: the role of such a user is that of its entry
                password_hash: hash.text().to_owned(),
            };
            (name.clone(), same.unwrap_or_else(|| entry_of(user())))
        };
        all.in_force = passwords.into_iter().map(entry).collect();
        drop(all);
        self.shared.access.advance();
    }

    /// Makes the passwords of [`Self::set_gnsi_passwords`] final.
    pub fn mark_final(&self) {
        let mut passwords =
            self.shared.gnsi_passwords.write().unwrap_or_else(PoisonError::into_inner);
        passwords.last = passwords.in_force.clone();
        drop(passwords);
        self.shared.access.advance();
    }

    /// Names and roles, ascending by name.
    pub fn list(&self) -> Vec<(SmolStr, Role)> {
        let entries = self.shared.entries.read().unwrap_or_else(PoisonError::into_inner);
        let role = |name: &str, entry: &UserEntry| self.role(name).unwrap_or(entry.role().clone());
        entries.iter().map(|(name, entry)| (name.clone(), role(name, entry))).collect()
    }

    /// Creates or changes a user, and forgets its remembered login. A password that the user already has keeps its
    /// hash, so that calls that began with it go on. Durable on return.
    ///
    /// # Errors
    /// When the name is invalid, or hashing or storing fails; then nothing has changed.
    pub async fn set(
        &self,
        name: SmolStr,
        role: Role,
        password: Option<Password>,
    ) -> Result<(), UserError> {
        check_name(&name)?;
        let existing = self.own(&name);
        let hashed = tokio::task::spawn_blocking(move || {
            let Some(cleartext) = password else { return Ok(String::new()) };
            match existing.filter(|existing| cleartext.matches(existing.password_hash())) {
                Some(existing) => Ok(existing.password_hash().to_owned()),
                None => cleartext.hash(),
            }
        });
        let password_hash = hashed
            .await
            .map_err(|_| UserError::Stopped)?
            .map_err(|source| UserError::Password { name: name.clone(), source })?;
        let user = User { name: name.clone(), role: role.clone(), password_hash };
        let stored = self.store.set_user(user.clone()).await;
        stored.map_err(|source| UserError::Store { name: name.clone(), source })?;
        info!(user = %name, %role, "user set");
        self.shared
            .entries
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name, entry_of(user));
        self.shared.access.advance();
        Ok(())
    }

    /// Removes a user; its next request is refused, and its streams end.
    ///
    /// # Errors
    /// When there is no such user, or the database refuses.
    pub async fn delete(&self, name: &SmolStr) -> Result<(), UserError> {
        let existed = self.store.delete_user(name.clone()).await;
        if !existed.map_err(|source| UserError::Store { name: name.clone(), source })? {
            return Err(UserError::Unknown(name.clone()));
        }
        info!(user = %name, "user deleted");
        self.shared.entries.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        self.shared.access.advance();
        Ok(())
    }

    /// Gives the user `admin` this password, unless it has it already.
    ///
    /// # Errors
    /// When the database refuses.
    pub async fn set_admin(&self, password: Password) -> Result<(), UserError> {
        let name = SmolStr::new_static(ADMIN);
        if self.role(ADMIN) == Some(Role::Admin) && self.has_password(ADMIN, password.clone()).await
        {
            return Ok(());
        }
        self.set(name, Role::Admin, Some(password)).await
    }

    pub(crate) async fn has_password(&self, name: &str, password: Password) -> bool {
        let Some(entry) = self.entry(name) else { return false };
        let tag = self.tag(&password);
        let checked = tokio::task::spawn_blocking(move || {
            let right = password.matches(entry.password_hash());
            if right {
                entry.remember(tag);
            }
            right
        });
        checked.await.unwrap_or(false)
    }

    /// The entry with whose password a login is compared.
    pub(crate) fn entry(&self, name: &str) -> Option<Arc<UserEntry>> {
        let passwords = self.shared.gnsi_passwords.read().unwrap_or_else(PoisonError::into_inner);
        self.entry_among(&passwords.in_force, name)
    }

    /// The user, if it still has the password of this entry: among the passwords in force, or among the final ones.
    pub(crate) fn same_password(&self, name: &str, begun: &UserEntry) -> Option<Arc<UserEntry>> {
        let passwords = self.shared.gnsi_passwords.read().unwrap_or_else(PoisonError::into_inner);
        let both = [&passwords.in_force, &passwords.last]
            .map(|passwords| self.entry_among(passwords, name));
        let same = |entry: &Arc<UserEntry>| entry.password_hash() == begun.password_hash();
        both.into_iter().flatten().find(same)
    }

    fn entry_among(
        &self,
        passwords: &BTreeMap<SmolStr, Arc<UserEntry>>,
        name: &str,
    ) -> Option<Arc<UserEntry>> {
        let is_user = self.role(name).is_some();
        if let Some(configured) = self.configured_entry(name).filter(|_| is_user) {
            return Some(configured);
        }
        let passwords = passwords.get(name).cloned().filter(|_| is_user);
        let own = self.own(name);
        let is_on = self.shared.gnsi.get().is_none_or(Switch::is_on);
        match own {
            Some(own) if !is_on && !own.password_hash().is_empty() => Some(own),
            own => passwords.or(own),
        }
    }

    /// The entry of a password that a client gave: the one that remembers its logins, while it stays the same.
    fn configured_entry(&self, name: &str) -> Option<Arc<UserEntry>> {
        let entries = &self.shared.configured_entries;
        let password = self.shared.configured.get().and_then(|it| it.password(name));
        let Some(password) = password else {
            if entries.read().unwrap_or_else(PoisonError::into_inner).contains_key(name) {
                entries.write().unwrap_or_else(PoisonError::into_inner).remove(name);
            }
            return None;
        };
        let current = entries.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        if let Some((_, entry)) = current.filter(|(of, _)| of.is_same(&password)) {
            return Some(entry);
        }
        let entry = entry_of(User {
            name: name.into(),
            role: Role::None, // not used: the role of such a user is that of its entry
            password_hash: String::from_utf8_lossy(password.expose()).into_owned(),
        });
        let mut entries = entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.insert(name.into(), (password, Arc::clone(&entry)));
        Some(entry)
    }

    /// The hash to compare with for an unknown name. It is as expensive as that of some user, so that the time of a
    /// refusal does not reveal which names exist. The choice of that user depends on the name alone.
    pub(crate) fn dummy_hash(&self, name: &str) -> Zeroizing<String> {
        let hashed = |name: &SmolStr| self.entry(name);
        let names: BTreeSet<SmolStr> = {
            let own = self.shared.entries.read().unwrap_or_else(PoisonError::into_inner);
            let passwords =
                self.shared.gnsi_passwords.read().unwrap_or_else(PoisonError::into_inner);
            let configured = self.shared.configured.get().map(|it| it.with_passwords());
            let configured = configured.unwrap_or_default();
            own.keys().chain(passwords.in_force.keys()).cloned().chain(configured).collect()
        };
        let users: Vec<Arc<UserEntry>> = names.iter().filter_map(hashed).collect();
        let picked = self.shared.tagger.pick(name, users.len());
        password::dummy_hash(picked.map(|number| users[number].password_hash()))
    }

    fn own(&self, name: &str) -> Option<Arc<UserEntry>> {
        self.shared.entries.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn tag(&self, password: &Password) -> Tag {
        self.shared.tagger.tag(password)
    }
}

fn entry_of(user: User) -> Arc<UserEntry> {
    Arc::new(UserEntry { user, verified: OnceLock::new() })
}

/// Refuses names that cannot be sent as metadata or read in a log.
///
/// # Errors
/// [`UserError::Name`].
pub fn check_name(name: &str) -> Result<(), UserError> {
    let plain = !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.chars().all(|c| c.is_ascii_graphic());
    if plain { Ok(()) } else { Err(UserError::Name(name.escape_default().to_string())) }
}
