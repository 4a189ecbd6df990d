//! Ownership proof of bootstrap data. The vendor's voucher names the owner's authority, that authority signed the
//! owner's certificate, and the key of that certificate signed the data.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::chain::Revocation;
use crate::cms::{CmsError, SignedMessage};
use crate::signature::{self, DigestAlgorithm};
use crate::voucher::{Voucher, VoucherError};

/// Documents by which a server proves that it acts for the owner.
#[derive(Clone, Copy, Debug)]
pub struct OwnershipProof<'a> {
    /// Voucher: CMS in DER.
    pub voucher: &'a [u8],
    /// Owner certificate: CMS in DER, signed by the certificate that it carries.
    pub certificate: &'a [u8],
    /// Signature of the data, in base64.
    pub signature: &'a str,
}

/// Facts about the box that a proof must match.
#[derive(Clone, Copy, Debug)]
pub struct VerificationParameters<'a> {
    /// Serial number of this box.
    pub serial: &'a str,
    /// Trust anchors for vouchers, in DER.
    pub voucher_anchors: &'a [CertificateDer<'a>],
    /// Time of day.
    pub now: UnixTime,
}

/// Reason for rejecting bootstrap data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnershipError {
    /// No voucher was sent, although the request had a nonce.
    #[error("the server sent no ownership voucher")]
    NoVoucher,
    /// The voucher is not valid.
    #[error(transparent)]
    Voucher(#[from] VoucherError),
    /// The owner's certificate is not valid.
    #[error("the owner certificate is not valid")]
    Certificate(#[source] CmsError),
    /// The signature of the data is not by that certificate.
    #[error("the signature of the bootstrap data is not valid: {0}")]
    Signature(String),
}

impl OwnershipProof<'_> {
    /// Verifies data in its received form, which is the encrypted one if it came encrypted.
    ///
    /// # Errors
    /// When a link of the chain from the vendor to the data does not verify.
    pub fn verify(
        &self,
        data: &[u8],
        expected: &VerificationParameters<'_>,
    ) -> Result<(), OwnershipError> {
        if self.voucher.is_empty() {
            return Err(OwnershipError::NoVoucher);
        }
        let VerificationParameters { serial, voucher_anchors: vendor, now } = *expected;
        let voucher = Voucher::verify(self.voucher, serial, vendor, now)?;
        let pinned = [CertificateDer::from(voucher.pinned_domain_cert)];
        let message = SignedMessage::read(self.certificate).map_err(OwnershipError::Certificate)?;
        let revocation =
            if voucher.checks_revocation { message.own_revocation() } else { Revocation::Ignored };
        let owner = message.verify(&pinned, revocation, now);
        let owner = owner.map_err(OwnershipError::Certificate)?;
        let refused = |reason: String| OwnershipError::Signature(reason);
        let octets = STANDARD.decode(self.signature).map_err(|error| refused(error.to_string()))?;
        DigestAlgorithm::of_certificate(owner)
            .and_then(|digest| signature::verify(owner, digest, data, &octets))
            .map_err(|error| refused(error.to_string()))
    }
}
