//! Storage of secrets until an operation needs them.

use std::fmt::Debug;
use std::io;

use holdfast_security::credentialz::Digest;
use zeroize::Zeroizing;

/// Secrets by their digests. Values contain digests only; a transport looks the secret up when it carries out an
/// operation.
pub trait Vault: Debug + Send + Sync {
    /// The secret with this digest; `None` when it was never given.
    fn find(&self, digest: &Digest) -> Option<Zeroizing<Vec<u8>>>;

    /// Stores the original secret of an object permanently. Blocks until it is durable.
    ///
    /// # Errors
    /// When it cannot be stored.
    fn keep(&self, digest: &Digest, content: &[u8]) -> io::Result<()>;

    /// Deletes a stored secret after it was restored.
    fn forget(&self, digest: &Digest);
}

/// An empty vault, for a box without credentials.
#[derive(Debug)]
pub struct EmptyVault;

impl Vault for EmptyVault {
    fn find(&self, _: &Digest) -> Option<Zeroizing<Vec<u8>>> {
        None
    }

    fn keep(&self, _: &Digest, _: &[u8]) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    fn forget(&self, _: &Digest) {}
}
