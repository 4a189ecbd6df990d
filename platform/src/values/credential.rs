//! Credentials of the box: files of the SSH server, hashes in the shadow file, and the objects that they depend
//! on. No value contains a secret: values hold digests, and the secret is looked up when an operation is carried
//! out.

use holdfast_security::credentialz::Digest;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Observed only: an installed program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Path below the root, without a leading slash.
    pub path: SmolStr,
}

/// Observed only: an account of the box with an entry in the shadow file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Account name.
    pub name: SmolStr,
}

/// A file in our folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialFile {
    /// Path below the root, without a leading slash.
    pub path: SmolStr,
    /// Digest of the content.
    pub digest: Digest,
    /// Permissions.
    pub mode: u32,
}

/// Our part of the SSH server's configuration. It contains names of files, no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshServer {
    /// Text of the fragment.
    pub text: String,
    /// Our files that the text names. Not observed.
    pub files: Vec<SmolStr>,
    /// Programs that the text names. Not observed.
    pub programs: Vec<SmolStr>,
}

/// GLOME login at the console, by challenge and response. Its file carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlomeLogin {
    /// Text of the configuration file.
    pub text: String,
}

/// The hash of an account's password in the shadow file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Password {
    /// Name of the account.
    pub account: SmolStr,
    /// Digest of the hash.
    pub digest: Digest,
}
