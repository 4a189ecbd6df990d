//! Credentials of the box: files of the SSH server, hashes in the shadow file, and what they need. No value holds a
//! secret: what is written is found by its digest when an operation is carried out.

use holdfast_security::credentialz::Digest;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Observed only: a program that is installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Below the root, without a leading slash.
    pub path: SmolStr,
}

/// Observed only: an account that the box has, with an entry in the shadow file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its name.
    pub name: SmolStr,
}

/// A file in the folder that is ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialFile {
    /// Below the root, without a leading slash.
    pub path: SmolStr,
    /// Of its content.
    pub digest: Digest,
    /// Permissions.
    pub mode: u32,
}

/// Our part of the configuration of the SSH server. It holds names of files, no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshServer {
    /// The text.
    pub text: String,
    /// Files of ours that it names. Not observed.
    pub files: Vec<SmolStr>,
    /// Programs that it names. Not observed.
    pub programs: Vec<SmolStr>,
}

/// Logging in at the console by challenge and response. Carried out by its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlomeLogin {
    /// The text of its configuration.
    pub text: String,
}

/// The hash of an account's password in the shadow file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Password {
    /// Whose it is.
    pub account: SmolStr,
    /// Of the hash.
    pub digest: Digest,
}
