//! Credentials below the settings' root: files of the SSH server, its configuration, the shadow file.
//!
//! This is the only place where a digest is replaced by its secret. Secrets that are read back become digests at
//! once.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use holdfast_scheduler::{Key, OperationError, SharedValue};
use holdfast_security::credentialz::{CREDENTIALS_FOLDER, Digest, FRAGMENT_FILE};
use zeroize::Zeroizing;

use super::files::{self, Attributes, Root};
use super::shadow::ShadowFile;
use super::sshd::Sshd;
use super::texts::failed;
use crate::kinds;
use crate::kinds::codec::Request;
use crate::kinds::credential::{self, PROGRAMS};
use crate::kinds::reading::first_text;
use crate::rights::Work;
use crate::values::{Account, CredentialFile, Password, Program, SshServer};
use crate::vault::Vault;

/// Largest credentials file that is read, in bytes: the keys of a thousand operators take a megabyte.
const MAX_OCTETS: u64 = 16 << 20;
/// Levels of folders below ours that are searched.
const DEPTH: usize = 2;

pub(super) struct CredentialFiles {
    root: Root,
    vault: Arc<dyn Vault>,
}

impl CredentialFiles {
    pub(super) fn new(root: Root, vault: Arc<dyn Vault>) -> Self {
        Self { root, vault }
    }

    pub(super) fn execute(&self, request: Request) -> Result<(), OperationError> {
        match request {
            Request::CredentialFile { path, content } => self
                .file(&path, content)
                .map_err(|error| failed(Work::File, &format!("cannot write {path}"), &error)),
            Request::SshServer(text) => self
                .server(text.as_deref())
                .map_err(|error| failed(Work::File, "cannot configure the SSH server", &error)),
            Request::Password { account, digest, keep, forget } => {
                let result = self.password(&account, &digest, keep).map(|()| {
                    if let Some(digest) = forget {
                        self.vault.forget(&digest);
                    }
                });
                result.map_err(|error| {
                    failed(Work::File, &format!("cannot set the password of {account}"), &error)
                })
            }
            _ => Err(OperationError::message(
                "the operation does not belong to files of credentials",
            )),
        }
    }

    fn file(&self, path: &str, content: Option<(Digest, u32)>) -> io::Result<()> {
        let file = self.root.place(path)?;
        match content {
            Some((digest, mode)) => {
                let content = self.secret(&digest)?;
                files::replace(&file, &content, Attributes { mode, owner: None })
            }
            None => files::remove(&file),
        }
    }

    fn server(&self, text: Option<&str>) -> io::Result<()> {
        let file = self.root.place(FRAGMENT_FILE)?;
        let sshd = Sshd::of(&self.root);
        let before = read(&file)?;
        sshd.test_config(text.unwrap_or_default())?;
        self.put(&file, text.map(str::as_bytes))?;
        let taken = sshd.check(text.unwrap_or_default()).and_then(|()| sshd.reload());
        if taken.is_err() {
            // A running server must never have a configuration that it refuses.
            self.put(&file, before.as_deref().map(Vec::as_slice))?;
        }
        taken
    }

    fn put(&self, file: &Path, content: Option<&[u8]>) -> io::Result<()> {
        match content {
            Some(content) => files::replace(file, content, Attributes::PUBLIC),
            None => files::remove(file),
        }
    }

    fn password(&self, account: &str, digest: &Digest, keep: Option<Digest>) -> io::Result<()> {
        let hash = self.secret(digest)?;
        ShadowFile::of(&self.root)?.set(account, &hash, |before| match keep {
            Some(expected) if Digest::of(before) != expected => {
                Err(io::Error::other("another program has just changed it"))
            }
            Some(expected) => self.vault.keep(&expected, before),
            None => Ok(()),
        })
    }

    fn secret(&self, digest: &Digest) -> io::Result<Zeroizing<Vec<u8>>> {
        let missing =
            || io::Error::other(format!("the vault has no secret with the digest {digest}"));
        self.vault.find(digest).ok_or_else(missing)
    }

    /// Everything present, for a complete report. Unreadable objects are left out.
    pub(super) fn everything(&self) -> Vec<(Key, SharedValue)> {
        let mut all: Vec<(Key, SharedValue)> = Vec::new();
        let mut keys: Vec<Key> = PROGRAMS.into_iter().map(credential::program_key).collect();
        keys.push(credential::server_key());
        keys.extend(self.files().iter().map(|path| credential::file_key(path)));
        for key in keys {
            match self.read(&key) {
                Ok(value) => all.extend(value.map(|value| (key, value))),
                Err(error) => tracing::warn!(%key, %error, "cannot read back"),
            }
        }
        match ShadowFile::accounts(&self.root) {
            Ok(accounts) => all.extend(accounts.into_iter().flat_map(|(name, digest)| {
                let key = credential::account_key(&name);
                let account: SharedValue = Arc::new(Account { name: name.clone() });
                let password = Password { account: name.clone(), digest };
                let hash: SharedValue = Arc::new(password);
                [(key, account), (credential::password_key(&name), hash)]
            })),
            Err(error) => tracing::warn!(%error, "cannot read the accounts of the box"),
        }
        all
    }

    /// Every file in our folder. Partly written files from a power cut are removed.
    fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![(CREDENTIALS_FOLDER.to_owned(), DEPTH)];
        while let Some((folder, depth)) = folders.pop() {
            let Ok(entries) = fs::read_dir(self.root.folder().join(&folder)) else { continue };
            for entry in entries.flatten() {
                let Ok(name) = entry.file_name().into_string() else { continue };
                let path = format!("{folder}/{name}");
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                match (is_folder, name.starts_with('.')) {
                    (true, _) if depth > 1 => folders.push((path, depth - 1)),
                    (false, true) => drop(fs::remove_file(entry.path())),
                    (false, false) => found.push(path),
                    (true, _) => {}
                }
            }
        }
        found
    }

    pub(super) fn read(&self, key: &Key) -> io::Result<Option<SharedValue>> {
        let name = first_text(key).unwrap_or_default();
        Ok(match key.kind() {
            kinds::PROGRAM => {
                let there = self.root.place(&name)?.is_file();
                there.then(|| Arc::new(Program { path: name }) as SharedValue)
            }
            kinds::ACCOUNT => {
                let there = ShadowFile::accounts(&self.root)?.iter().any(|(it, _)| *it == name);
                there.then(|| Arc::new(Account { name }) as SharedValue)
            }
            kinds::PASSWORD => ShadowFile::read(&self.root, &name)?
                .map(|digest| Arc::new(Password { account: name, digest }) as SharedValue),
            kinds::CREDENTIAL_FILE => {
                let file = self.root.place(&name)?;
                let Some(content) = read(&file)? else { return Ok(None) };
                let mode = fs::metadata(&file)?.permissions().mode() & 0o7777;
                let digest = Digest::of(&content);
                Some(Arc::new(CredentialFile { path: name, digest, mode }))
            }
            kinds::SSH_SERVER => read(&self.root.place(FRAGMENT_FILE)?)?.map(|content| {
                let text = String::from_utf8_lossy(&content).into_owned();
                Arc::new(SshServer { text, files: Vec::new(), programs: Vec::new() }) as SharedValue
            }),
            _ => None,
        })
    }
}

/// Reads a file; `None` when it does not exist.
pub(super) fn read(file: &Path) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    files::read_regular(file, MAX_OCTETS)
}
