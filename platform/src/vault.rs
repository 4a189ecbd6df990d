//! Where secrets are until an operation needs them.

use std::fmt::Debug;
use std::io;

use holdfast_security::credentialz::Digest;
use zeroize::Zeroizing;

/// Contents by their digests. Values hold the digests; only transports, when they carry an operation out, ask for what
/// stands behind one.
pub trait Vault: Debug + Send + Sync {
    /// What has this digest; `None`: nobody gave it.
    fn find(&self, digest: &Digest) -> Option<Zeroizing<Vec<u8>>>;

    /// Keeps what an object held before us, over restarts. Blocks until that is durable.
    ///
    /// # Errors
    /// When it cannot be written down.
    fn keep(&self, digest: &Digest, content: &[u8]) -> io::Result<()>;

    /// It was put back, and is not needed any more.
    fn forget(&self, digest: &Digest);
}

/// A vault with nothing in it, for a box that is given no credentials.
#[derive(Debug)]
pub struct NoVault;

impl Vault for NoVault {
    fn find(&self, _: &Digest) -> Option<Zeroizing<Vec<u8>>> {
        None
    }

    fn keep(&self, _: &Digest, _: &[u8]) -> io::Result<()> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    fn forget(&self, _: &Digest) {}
}
