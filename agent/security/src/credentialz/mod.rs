//! Who may log in over SSH and at the console, with what, and who the box says it is (gNSI credentialz).
//!
//! Start at [`Credentials`] for what is kept, at [`Rules`] for what an [`Upload`] makes of it and which are refused, at
//! [`render`](Credentials::render) for the files of OpenSSH that it comes to. Nothing here knows a clock or has
//! randomness: salts and new keys are made by the caller.
//!
//! Absent on purpose: accounts. Credentials are given to accounts that exist; whoever asks says which do.
//! No secret is part of an error or of `Debug`.

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
    AUTHORIZED_KEYS_FOLDER, Digest, DigestError, FOLDER, FRAGMENT_FILE, FRAGMENT_HEADER, File,
    GLOME_FILE, GLOME_PROGRAM, HIBA_PROGRAM, PRINCIPALS_FOLDER, Rendered, SSHD_PROGRAM, Server,
    is_unix_name,
};
pub use self::rules::{
    Artefact, Given, RawKey, RawOptions, RawPrincipal, Refusal, Reply, Rules, Upload,
};
pub use self::stored::StoredError;

/// Everything that credentialz keeps of one box.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// By account. One that nothing was ever said about is not there.
    pub accounts: BTreeMap<SmolStr, Account>,
    pub host: Host,
}

/// What one account logs in with. `None`: nothing was said about it, so it is as the box has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    pub password: Option<Stamped<CryptHash>>,
    pub keys: Option<Stamped<Vec<AuthorizedKey>>>,
    pub principals: Option<Stamped<Vec<Principal>>>,
}

/// What the client calls a version, and when it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Stamp {
    pub version: SmolStr,
    /// Seconds since 1970, by the client's word.
    pub created_on: u64,
}

/// Something with its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped<T> {
    pub stamp: Stamp,
    pub value: T,
}

/// A key that logs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorizedKey {
    pub key: PublicKey,
    pub options: Vec<KeyOption>,
    pub description: String,
}

/// A name in a certificate that may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub name: String,
    pub options: Vec<KeyOption>,
}

/// The SSH server and the console. `None`: as the box has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Authorities whose certificates let users in.
    pub ca_keys: Option<Stamped<Vec<PublicKey>>>,
    /// Empty: the box's own.
    pub server_keys: Vec<ServerKey>,
    pub keys_stamp: Option<Stamp>,
    pub certificates_stamp: Option<Stamp>,
    pub allowed: Option<BTreeSet<Authentication>>,
    pub principals_tool: Option<PrincipalsTool>,
    pub glome: Option<Glome>,
}

/// A key of the server, and what vouches for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerKey {
    pub key: ServerKeySource,
    pub certificate: Option<Certificate>,
}

/// Where a key of the server comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerKeySource {
    /// Uploaded, or made here for credentialz.
    Given(PrivateKey),
    /// The box had it before; only a certificate was added.
    OfBox(BoxKey),
}

/// A way to prove who one is to the SSH server.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum Authentication {
    Password,
    PublicKey,
    KeyboardInteractive,
}

/// What decides which principals may log in, in place of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PrincipalsTool {
    Hiba,
}

/// Logging in at the console by challenge and response.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Glome {
    /// The service's public key: 64 hexadecimal digits.
    pub key: String,
    pub key_version: i32,
    pub url_prefix: String,
}

impl Host {
    /// True when the server has keys that were given to it; else it shows those of the box.
    pub fn has_keys_of_its_own(&self) -> bool {
        self.server_keys.iter().any(|it| matches!(it.key, ServerKeySource::Given(_)))
    }
}

impl ServerKey {
    /// The public half.
    pub fn public(&self) -> &PublicKey {
        match &self.key {
            ServerKeySource::Given(key) => key.public(),
            ServerKeySource::OfBox(key) => &key.public,
        }
    }
}
