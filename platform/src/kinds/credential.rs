//! Credentials of the box: dependencies among files, server configuration and shadow entries.
//!
//! Files that the SSH server's configuration names are written before it and removed after it, so that new host
//! keys lie next to the old ones until the server uses them. Values that need a program or an account wait until
//! the box has it.

use std::sync::Arc;

use holdfast_scheduler::{Dependency, Descriptor, Effect, Key, KindId, Part};
use holdfast_security::credentialz::{
    Digest, FRAGMENT_HEADER, GLOME_FILE, GLOME_PROGRAM, SSHD_PROGRAM, authorized_keys_file,
};
use serde::{Deserialize, Serialize};
use smallvec::smallvec;
use smol_str::SmolStr;

use super::codec::{EncodeError, Op, Request, Requests};
use super::links::LinkIndex;
use super::reading::Read;
use super::row::{Encode, Kind, PreImageForm, PreImageRow};
use super::system::{Content, TextFile};
use super::{NO_REQUEST, system};
use crate::transport_id;

/// A program that is installed.
pub const PROGRAM: KindId = KindId(6);

/// An account of the box.
pub const ACCOUNT: KindId = KindId(7);

/// A file in the folder of credentials.
pub const CREDENTIAL_FILE: KindId = KindId(40);

/// Configuration of the SSH server.
pub const SSH_SERVER: KindId = KindId(41);

/// Console login by challenge and response.
pub const GLOME_LOGIN: KindId = KindId(42);

/// The password of an account.
pub const PASSWORD: KindId = KindId(43);

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

/// Programs of the box that credentials may need.
pub const PROGRAMS: [&str; 3] =
    [SSHD_PROGRAM, holdfast_security::credentialz::HIBA_PROGRAM, GLOME_PROGRAM];

/// Installed programs.
#[derive(Debug, Default)]
pub struct ProgramDescriptor;

/// Accounts of the box.
#[derive(Debug, Default)]
pub struct AccountDescriptor;

/// Files that the SSH server reads.
#[derive(Debug, Default)]
pub struct CredentialFileDescriptor;

/// Configuration of the SSH server.
#[derive(Debug, Default)]
pub struct SshServerDescriptor;

/// Console login by challenge and response.
#[derive(Debug, Default)]
pub struct GlomeLoginDescriptor;

/// Hashes in the shadow file.
#[derive(Debug, Default)]
pub struct PasswordDescriptor;

/// The key of a program.
pub fn program_key(path: &str) -> Key {
    Key::of(PROGRAM).str(path)
}

/// The key of an account of the box.
pub fn account_key(name: &str) -> Key {
    Key::of(ACCOUNT).str(name)
}

/// The key of a file in our folder.
pub fn file_key(path: &str) -> Key {
    Key::of(CREDENTIAL_FILE).str(path)
}

/// The key of the file with the keys of an account.
pub fn authorized_keys_key(account: &str) -> Key {
    file_key(&authorized_keys_file(account))
}

/// The key of the SSH server's configuration.
pub fn server_key() -> Key {
    Key::of(SSH_SERVER)
}

/// The key of the console login.
pub fn glome_key() -> Key {
    Key::of(GLOME_LOGIN)
}

/// The key of an account's password.
pub fn password_key(account: &str) -> Key {
    Key::of(PASSWORD).str(account)
}

/// Dependency on an installed program.
fn installed(path: &str) -> Dependency {
    Dependency::exact(format!("program /{path}"), program_key(path))
}

impl Kind for ProgramDescriptor {
    const READ: Read = Read::Files;
}

impl Descriptor for ProgramDescriptor {
    type Value = Program;

    fn kind(&self) -> KindId {
        PROGRAM
    }

    fn name(&self) -> &'static str {
        "program"
    }

    fn key(&self, program: &Program) -> Key {
        program_key(&program.path)
    }

    fn label(&self, program: &Program) -> String {
        format!("program /{}", program.path)
    }

    fn effect(&self) -> Effect {
        Effect::Property
    }
}

impl Kind for AccountDescriptor {
    const READ: Read = Read::Files;
}

impl Descriptor for AccountDescriptor {
    type Value = Account;

    fn kind(&self) -> KindId {
        ACCOUNT
    }

    fn name(&self) -> &'static str {
        "account"
    }

    fn key(&self, account: &Account) -> Key {
        account_key(&account.name)
    }

    fn label(&self, account: &Account) -> String {
        format!("account {}", account.name)
    }

    fn effect(&self) -> Effect {
        Effect::Property
    }
}

impl Kind for CredentialFileDescriptor {
    const READ: Read = Read::Files;
    const ENCODE: Option<Encode<CredentialFile>> = Some(encode_file);
}

impl Descriptor for CredentialFileDescriptor {
    type Value = CredentialFile;

    fn kind(&self) -> KindId {
        CREDENTIAL_FILE
    }

    fn name(&self) -> &'static str {
        "credential-file"
    }

    fn key(&self, file: &CredentialFile) -> Key {
        file_key(&file.path)
    }

    fn label(&self, file: &CredentialFile) -> String {
        format!("file {}", file.path)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::FILES)
    }

    fn dependencies(&self, _: &CredentialFile) -> Vec<Dependency> {
        vec![installed(SSHD_PROGRAM)]
    }

    /// The folder belongs to the agent as a whole.
    fn owned(&self, _: &CredentialFile) -> bool {
        true
    }
}

fn encode_file(op: Op<'_, CredentialFile>, _: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let write = |file: &CredentialFile| Request::CredentialFile {
        path: file.path.clone(),
        content: Some((file.digest, file.mode)),
    };
    Ok(smallvec![match op {
        Op::Create(new) | Op::Adopt { new, .. } | Op::Update { new, .. } => write(new),
        Op::Release { restore, .. } => write(restore),
        Op::Delete(old) => Request::CredentialFile { path: old.path.clone(), content: None },
    }])
}

impl Kind for SshServerDescriptor {
    const READ: Read = Read::Files;
    const ENCODE: Option<Encode<SshServer>> = Some(encode_server);
}

impl Descriptor for SshServerDescriptor {
    type Value = SshServer;

    fn kind(&self) -> KindId {
        SSH_SERVER
    }

    fn name(&self) -> &'static str {
        "ssh-server"
    }

    fn key(&self, _: &SshServer) -> Key {
        server_key()
    }

    fn label(&self, _: &SshServer) -> String {
        "SSH server".to_owned()
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::FILES)
    }

    fn dependencies(&self, server: &SshServer) -> Vec<Dependency> {
        let programs = server.programs.iter().map(|path| installed(path));
        let files = server.files.iter();
        let files = files.map(|path| Dependency::exact(format!("file {path}"), file_key(path)));
        std::iter::once(installed(SSHD_PROGRAM)).chain(programs).chain(files).collect()
    }

    /// Compares the text alone: files and programs that it names are not observed.
    fn satisfied_by(&self, expected: &SshServer, observed: &SshServer) -> bool {
        expected.text == observed.text
    }

    fn owned(&self, observed: &SshServer) -> bool {
        observed.text.starts_with(FRAGMENT_HEADER)
    }
}

fn encode_server(op: Op<'_, SshServer>, _: &mut LinkIndex) -> Result<Requests, EncodeError> {
    Ok(smallvec![Request::SshServer(match op {
        Op::Create(new) | Op::Adopt { new, .. } | Op::Update { new, .. } => {
            Some(new.text.clone())
        }
        Op::Release { restore, .. } => Some(restore.text.clone()),
        Op::Delete(_) => None,
    })])
}

impl Kind for GlomeLoginDescriptor {}

impl Descriptor for GlomeLoginDescriptor {
    type Value = GlomeLogin;

    fn kind(&self) -> KindId {
        GLOME_LOGIN
    }

    fn name(&self) -> &'static str {
        "glome-login"
    }

    fn key(&self, _: &GlomeLogin) -> Key {
        glome_key()
    }

    fn label(&self, _: &GlomeLogin) -> String {
        "console login by GLOME".to_owned()
    }

    fn effect(&self) -> Effect {
        NO_REQUEST
    }

    fn observable(&self) -> bool {
        false
    }

    fn dependencies(&self, _: &GlomeLogin) -> Vec<Dependency> {
        vec![installed(GLOME_PROGRAM)]
    }

    fn parts(&self, glome: &GlomeLogin) -> Vec<Part> {
        let content = Content::Whole(glome.text.clone());
        let file = TextFile { path: GLOME_FILE.into(), content };
        vec![(system::file_key(GLOME_FILE), Arc::new(file))]
    }
}

impl Kind for PasswordDescriptor {
    const READ: Read = Read::Files;
    const ENCODE: Option<Encode<Password>> = Some(encode_password);
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, Password>());
}

impl Descriptor for PasswordDescriptor {
    type Value = Password;

    fn kind(&self) -> KindId {
        PASSWORD
    }

    fn name(&self) -> &'static str {
        "password"
    }

    fn key(&self, password: &Password) -> Key {
        password_key(&password.account)
    }

    fn label(&self, password: &Password) -> String {
        format!("password of {}", password.account)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::FILES)
    }

    fn dependencies(&self, password: &Password) -> Vec<Dependency> {
        let name = &password.account;
        vec![Dependency::exact(format!("account {name} of the box"), account_key(name))]
    }

    /// The earlier password of the account is restored.
    fn restore(&self, observed: &Password) -> Option<Password> {
        Some(observed.clone())
    }
}

impl PreImageRow<PasswordDescriptor> for Password {
    const TAG: &'static str = "password";

    fn of(password: &Self) -> Option<Self> {
        Some(password.clone())
    }

    fn value(self) -> Self {
        self
    }
}

fn encode_password(op: Op<'_, Password>, _: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let (new, keep, forget) = match op {
        Op::Create(new) | Op::Update { new, .. } => (new, None, None),
        Op::Adopt { old, new } => (new, Some(old.digest), None),
        Op::Release { restore, .. } => (restore, None, Some(restore.digest)),
        Op::Delete(_) => return Ok(Requests::new()), // the hash went with its account
    };
    let account = new.account.clone();
    let digest = new.digest;
    Ok(smallvec![Request::Password { account, digest, keep, forget }])
}
