//! Who may tell this box what to do: the vendor's voucher names the owner's authority, that authority vouches for the
//! owner's certificate, and the key of that certificate signed the data.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::cms::{CmsError, SignedMessage};
use crate::signature::{self, Digest};
use crate::voucher::{Voucher, VoucherError};

/// What a server shows to prove that it speaks for the owner.
#[derive(Clone, Copy, Debug)]
pub struct Proof<'a> {
    /// CMS in DER.
    pub voucher: &'a [u8],
    /// CMS in DER, signed by the owner's certificate, which it carries.
    pub certificate: &'a [u8],
    /// In base64.
    pub signature: &'a str,
}

/// What the box knows itself.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The serial number of this box.
    pub serial: &'a str,
    /// The certificates of the vendor that vouchers lead to, in DER.
    pub vendor: &'a [CertificateDer<'a>],
    /// The time of day.
    pub now: UnixTime,
}

/// Why the data is not believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnershipError {
    /// Data without a voucher, although a nonce was sent.
    #[error("the server sent no ownership voucher")]
    NoVoucher,
    /// The voucher is not believed.
    #[error(transparent)]
    Voucher(#[from] VoucherError),
    /// The owner's certificate is not believed.
    #[error("the owner certificate is not valid")]
    Certificate(#[source] CmsError),
    /// The data was not signed by that certificate.
    #[error("the signature of the bootstrap data is not valid: {0}")]
    Signature(String),
}

impl Proof<'_> {
    /// Believes data: the octets as they came, encrypted ones when they came encrypted.
    ///
    /// # Errors
    /// When a link of the chain from the vendor to the data does not hold.
    pub fn verify(&self, data: &[u8], expected: &Expected<'_>) -> Result<(), OwnershipError> {
        if self.voucher.is_empty() {
            return Err(OwnershipError::NoVoucher);
        }
        let Expected { serial, vendor, now } = *expected;
        let voucher = Voucher::verified(self.voucher, serial, vendor, now)?;
        let pinned = [CertificateDer::from(voucher.pinned_domain_cert)];
        let message = SignedMessage::read(self.certificate).map_err(OwnershipError::Certificate)?;
        let owner = message.verify(&pinned, voucher.checks_revocation, now);
        let owner = owner.map_err(OwnershipError::Certificate)?;
        let refused = |reason: String| OwnershipError::Signature(reason);
        let octets = STANDARD.decode(self.signature).map_err(|error| refused(error.to_string()))?;
        Digest::of(owner)
            .and_then(|digest| signature::verify(owner, digest, data, &octets))
            .map_err(|error| refused(error.to_string()))
    }
}
