//! Credentials for SSH and the console, and the host's own identity (gNSI credentialz).
//!
//! Start at [`Credentials`] for the stored state, at [`CredentialzRules`] for the effect of an [`Upload`] and the reasons to
//! refuse one, at [`render`](Credentials::render) for the resulting OpenSSH files. Nothing here knows a clock or
//! has randomness: salts and new keys are made by the caller.
//!
//! Absent on purpose: accounts. Credentials can be given to existing accounts only, and the caller supplies the
//! list. Neither errors nor `Debug` output contain a secret.

mod certificate;
mod key;
mod md5_crypt;
mod option;
mod password;
mod render;
mod rules;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use smol_str::SmolStr;

pub use self::certificate::Certificate;
pub use self::key::{BoxKey, KeyError, KeyKind, PrivateKey, PublicKey};
pub use self::option::{KeyOption, OptionError};
pub use self::password::{CryptError, CryptHash, SALT_OCTETS};
pub use self::render::{
    AUTHORIZED_KEYS_FOLDER, CREDENTIALS_FOLDER, Digest, DigestError, FRAGMENT_FILE,
    FRAGMENT_HEADER, File, GLOME_FILE, GLOME_PROGRAM, HIBA_PROGRAM, PRINCIPALS_FOLDER,
    RenderedCredentials, SSHD_PROGRAM, SshServerConfig, authorized_keys_file, is_unix_name,
};
pub use self::rules::{
    AccountUpload, Artefact, CredentialzError, CredentialzRules, RawKey, RawOptions, RawPrincipal,
    Reply, Upload,
};
pub use self::stored::StoredError;

/// All credentials of one box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// Accounts by name; an account without any credentials has no entry.
    pub accounts: BTreeMap<SmolStr, Account>,
    pub host: Host,
}

/// Credentials of one account. `None` leaves the box's own setting in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub password: Option<Versioned<CryptHash>>,
    pub keys: Option<Versioned<Vec<AuthorizedKey>>>,
    pub principals: Option<Versioned<Vec<Principal>>>,
}

/// Version and creation time that the client gave an artefact.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Freshness {
    pub version: SmolStr,
    /// Seconds since 1970, as the client sent it.
    pub created_on: u64,
}

/// A value with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<T> {
    pub stamp: Freshness,
    pub value: T,
}

/// A public key that may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizedKey {
    pub key: PublicKey,
    pub options: Vec<KeyOption>,
    pub description: String,
}

/// A principal in a user certificate that may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub name: String,
    pub options: Vec<KeyOption>,
}

/// Settings of the SSH server and the console. `None` leaves the box's own setting in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Authorities whose user certificates are accepted.
    pub ca_keys: Option<Versioned<Vec<PublicKey>>>,
    /// Host keys. An empty list keeps the box's own.
    pub server_keys: Vec<ServerKey>,
    pub keys_freshness: Option<Freshness>,
    pub certificates_freshness: Option<Freshness>,
    pub allowed: Option<BTreeSet<Authentication>>,
    pub principals_tool: Option<PrincipalsTool>,
    pub glome: Option<Glome>,
}

/// A host key with its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerKey {
    pub key: ServerKeySource,
    pub certificate: Option<Certificate>,
}

/// Origin of a host key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKeySource {
    /// Uploaded, or generated here for credentialz.
    Given(PrivateKey),
    /// A key that the box had before; credentialz added only a certificate.
    PreExisting(BoxKey),
}

/// Authentication method of the SSH server.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Authentication {
    Password,
    PublicKey,
    KeyboardInteractive,
}

/// Program that authorizes principals in place of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PrincipalsTool {
    Hiba,
}

/// GLOME login at the console, by challenge and response.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Glome {
    /// Public key of the GLOME service: 64 hexadecimal digits.
    pub key: String,
    pub key_version: i32,
    pub url_prefix: String,
}

impl Host {
    /// True when credentialz supplied host keys; otherwise the server presents those of the box.
    pub fn has_managed_keys(&self) -> bool {
        self.server_keys.iter().any(|it| matches!(it.key, ServerKeySource::Given(_)))
    }
}

impl ServerKey {
    /// The public half.
    pub fn public(&self) -> &PublicKey {
        match &self.key {
            ServerKeySource::Given(key) => key.public(),
            ServerKeySource::PreExisting(key) => &key.public,
        }
    }
}
