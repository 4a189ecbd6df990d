//! Signers of packages, and the revocation lists of their authorities.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use holdfast_base::ErrorChain;
use holdfast_bootz::cms::{self, CmsError};
use holdfast_security::certz::{Encoding, RevocationLists};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::services::ServiceError;
use crate::systemd;

/// Certificates of the signers of packages, or of their authorities, and the file with revocation lists.
#[derive(Clone, Debug, Default)]
pub struct PackageSigners {
    trusted: Vec<CertificateDer<'static>>,
    /// The file is read whenever signatures are verified: a new list counts without a restart.
    revocations: Option<PathBuf>,
}

/// Number, length and time of the last change of the file with revocation lists; `None` while it cannot be looked at.
pub(in crate::services) type ListsStamp = Option<[u64; 4]>;

/// The signers, with the revocation lists of one moment.
#[derive(Debug)]
pub(in crate::services) struct SignatureVerifier<'a> {
    trusted: &'a [CertificateDer<'static>],
    lists: Result<Option<RevocationLists>, ServiceError>,
}

/// Reason for which a signature does not count.
#[derive(Debug, thiserror::Error)]
pub(in crate::services) enum SignatureRefusal {
    /// The file with the lists of revoked certificates cannot be read, so nobody knows whether the signer is revoked.
    #[error("the revocation lists of signers cannot be read: {0}")]
    Lists(String),
    #[error(transparent)]
    Signature(#[from] CmsError),
}

impl PackageSigners {
    /// Reads the certificates of a file. The other one, with the lists, is renewed while the agent runs: the box comes up
    /// without it.
    ///
    /// # Errors
    /// When the file cannot be read, or has no certificate.
    pub fn read(trust: Option<&Path>, revocations: Option<&Path>) -> Result<Self, ServiceError> {
        let trusted = trust.map(certificates).transpose()?.unwrap_or_default();
        Ok(Self { trusted, revocations: revocations.map(Path::to_path_buf) })
    }

    /// True when nobody may sign packages.
    pub(in crate::services) fn is_empty(&self) -> bool {
        self.trusted.is_empty()
    }

    /// State of the file with the lists, which differs after a change of it.
    pub(in crate::services) fn stamp(&self) -> ListsStamp {
        let metadata = self.revocations.as_deref().map(fs::metadata)?.ok()?;
        Some([
            metadata.ino(),
            metadata.len(),
            metadata.mtime().cast_unsigned(),
            metadata.mtime_nsec().cast_unsigned(),
        ])
    }

    /// True when there are to be revocation lists.
    pub(in crate::services) fn may_be_revoked(&self) -> bool {
        self.revocations.is_some()
    }

    /// The signers, with the revocation lists as the file has them now.
    pub(in crate::services) fn verifier(&self) -> SignatureVerifier<'_> {
        let lists = self.revocations.as_deref().map(revocation_lists).transpose();
        SignatureVerifier { trusted: &self.trusted, lists }
    }
}

impl SignatureVerifier<'_> {
    /// Verifies the signature over an archive, and returns the subject of its signer. Certificates have to be valid at a
    /// time; revocation lists count whatever their times are. Without the lists that there are to be, no signature counts.
    pub(in crate::services) fn verify(
        &self,
        signature: &[u8],
        archive: &[u8],
        at: UnixTime,
    ) -> Result<String, SignatureRefusal> {
        let unread = |error: &ServiceError| SignatureRefusal::Lists(ErrorChain(error).to_string());
        let lists = self.lists.as_ref().map_err(unread)?.as_ref();
        let lists = lists.map(RevocationLists::encodings).unwrap_or_default();
        Ok(cms::verify_detached(signature, archive, self.trusted, lists, at)?)
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServiceError> {
    let failed = |source| ServiceError::File { action: "read", path: path.to_owned(), source };
    let text = fs::read(path).map_err(|error| failed(systemd::explained(path, error)))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let read = read.map_err(|error| failed(io::Error::other(error)))?;
    if read.is_empty() {
        return Err(failed(io::Error::other("the file has no certificate")));
    }
    Ok(read)
}

fn revocation_lists(path: &Path) -> Result<RevocationLists, ServiceError> {
    let failed = |source| ServiceError::File { action: "read", path: path.to_owned(), source };
    let text = fs::read(path).map_err(|error| failed(systemd::explained(path, error)))?;
    let message = (path.display().to_string(), Encoding::Pem, text);
    RevocationLists::new("the signers of packages", [message])
        .map_err(|error| failed(io::Error::other(error)))
}
