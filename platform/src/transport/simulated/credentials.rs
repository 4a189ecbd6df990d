//! Programs, accounts, the shadow file and the SSH server of the simulated box. The model stores digests instead
//! of files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_scheduler::{Key, SharedValue};
use holdfast_security::credentialz::Digest;
use nix::errno::Errno;
use smol_str::SmolStr;

use super::model::ModelResult;
use crate::kinds::codec::Request;
use crate::kinds::credential;
use crate::values::{Account, CredentialFile, Password, Program, SshServer};

#[derive(Debug, Default)]
pub(super) struct SimulatedCredentials {
    programs: BTreeSet<SmolStr>,
    /// Digests in the shadow file, by account.
    passwords: BTreeMap<SmolStr, Digest>,
    files: BTreeMap<SmolStr, (Digest, u32)>,
    server: Option<String>,
}

impl SimulatedCredentials {
    pub(super) fn install(&mut self, program: &str) {
        self.programs.insert(program.into());
    }

    pub(super) fn add_account(&mut self, name: &str, hash: &str) {
        self.passwords.insert(name.into(), Digest::of(hash.as_bytes()));
    }

    pub(super) fn request(&mut self, request: &Request) -> ModelResult<()> {
        match request {
            Request::CredentialFile { path, content } => {
                match content {
                    Some(content) => self.files.insert(path.clone(), *content),
                    None => self.files.remove(path),
                };
            }
            Request::SshServer(text) => {
                // A server does not start when its files are missing.
                let names = text.iter().flat_map(|it| it.split_whitespace());
                let mut ours = names.filter_map(|word| word.strip_prefix("/etc/ssh/holdfast/"));
                if ours.any(|name| !self.files.keys().any(|path| path.ends_with(name))) {
                    return Err(Errno::EINVAL.into());
                }
                self.server.clone_from(text);
            }
            Request::Password { account, digest, .. } => match self.passwords.get_mut(account) {
                Some(stored) => *stored = *digest,
                None => return Err(Errno::ENOENT.into()),
            },
            _ => return Err(Errno::EOPNOTSUPP.into()),
        }
        Ok(())
    }

    pub(super) fn everything(&self) -> Vec<(Key, SharedValue)> {
        let mut all: Vec<(Key, SharedValue)> = Vec::new();
        for path in &self.programs {
            all.push((credential::program_key(path), Arc::new(Program { path: path.clone() })));
        }
        for (account, digest) in &self.passwords {
            let name = account.clone();
            let digest = *digest;
            all.push((credential::account_key(account), Arc::new(Account { name: name.clone() })));
            let password = Password { account: name, digest };
            all.push((credential::password_key(account), Arc::new(password)));
        }
        for (path, (digest, mode)) in &self.files {
            let file = CredentialFile { path: path.clone(), digest: *digest, mode: *mode };
            all.push((credential::file_key(path), Arc::new(file)));
        }
        if let Some(text) = &self.server {
            let text = text.clone();
            let files = Vec::new();
            let programs = Vec::new();
            all.push((credential::server_key(), Arc::new(SshServer { text, files, programs })));
        }
        all
    }
}
