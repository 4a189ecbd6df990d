//! Secrets of credentialz by digest, on their way from the store to files.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_platform::Vault;
use holdfast_security::credentialz::{Digest, RenderedCredentials};
use tokio::runtime::Handle;
use zeroize::Zeroizing;

use holdfast_store::{Artefact, ArtefactChange, ArtefactTable, Store};

/// Prefix in the table of credentialz for the original secrets of the box, by digest.
const ORIGINALS_PREFIX: &str = "kept/";

type Contents = HashMap<Digest, Zeroizing<Vec<u8>>>;

/// Source of secrets for transports.
pub(super) struct CredentialVault {
    /// Secrets of credentials that may come into force.
    candidates: Mutex<Contents>,
    /// Contents of what is in force, secrets of clients included, and of what may take its place.
    in_force: Mutex<Contents>,
    /// Original secrets of the box.
    originals: Mutex<Contents>,
    store: Store,
    /// Transports write on their own threads, and wait for the store there.
    runtime: Handle,
}

impl fmt::Debug for CredentialVault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialVault(..)")
    }
}

impl CredentialVault {
    /// Starts with the original secrets from earlier runs.
    pub(super) fn new(stored: &BTreeMap<String, Artefact>, store: Store, runtime: Handle) -> Self {
        let originals = stored.iter().filter_map(|(name, artefact)| {
            let digest = name.strip_prefix(ORIGINALS_PREFIX)?.parse().ok()?;
            Some((digest, artefact.content.clone()))
        });
        let candidates = Mutex::default();
        let in_force = Mutex::default();
        Self { candidates, in_force, originals: Mutex::new(originals.collect()), store, runtime }
    }

    /// Replaces the available secrets by those of these credentials.
    pub(super) fn retain_secrets<'r>(
        &self,
        all: impl IntoIterator<Item = &'r RenderedCredentials>,
    ) {
        *lock(&self.candidates) = contents(all);
    }

    /// Holds what these need, which are in force, or may come into force.
    pub(super) fn set_in_force<'r>(&self, all: impl IntoIterator<Item = &'r RenderedCredentials>) {
        *lock(&self.in_force) = contents(all);
    }

    fn write(&self, digest: &Digest, content: Option<&[u8]>) -> io::Result<()> {
        let artefact = content.map(|content| Artefact {
            version: String::new(),
            created_on: 0,
            content: Zeroizing::new(content.to_vec()),
        });
        let name = format!("{ORIGINALS_PREFIX}{digest}");
        let change = ArtefactChange { table: ArtefactTable::Credentialz, name, artefact };
        self.runtime.block_on(self.store.write_artefacts(vec![change])).map_err(io::Error::other)
    }
}

impl Vault for CredentialVault {
    fn find(&self, digest: &Digest) -> Option<Zeroizing<Vec<u8>>> {
        let all = [&self.candidates, &self.in_force, &self.originals];
        all.into_iter().find_map(|contents| lock(contents).get(digest).cloned())
    }

    fn keep(&self, digest: &Digest, content: &[u8]) -> io::Result<()> {
        self.write(digest, Some(content))?;
        lock(&self.originals).insert(*digest, Zeroizing::new(content.to_vec()));
        Ok(())
    }

    /// Forgets an original secret. If it cannot be removed from the disk, the next factory reset does so.
    fn forget(&self, digest: &Digest) {
        if let Err(error) = self.write(digest, None) {
            tracing::warn!(%error, "what an account had before is still kept");
        }
        lock(&self.originals).remove(digest);
    }
}

fn contents<'r>(all: impl IntoIterator<Item = &'r RenderedCredentials>) -> Contents {
    let mut contents = Contents::new();
    for rendered in all {
        let files = rendered.files.iter().map(|file| (file.digest(), file.content.clone()));
        let hashes = rendered.passwords.iter().map(|(_, hash)| {
            let hash = hash.text().as_bytes().to_vec();
            (Digest::of(&hash), Zeroizing::new(hash))
        });
        contents.extend(files.chain(hashes));
    }
    contents
}

/// Recovers from a poisoned lock: every change of the contents is a single call.
fn lock(contents: &Mutex<Contents>) -> MutexGuard<'_, Contents> {
    contents.lock().unwrap_or_else(PoisonError::into_inner)
}
