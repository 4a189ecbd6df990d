//! Path validation for the certificates of vouchers and owners.

use cms::cert::x509::Certificate;
use cms::cert::x509::der::Decode;
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{
    BorrowedCertRevocationList, CertRevocationList, EndEntityCert, ExtendedKeyUsageValidator,
    KeyPurposeIdIter, RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
};

/// Reason for not trusting a certificate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// A certificate or revocation list is malformed, or no valid chain exists.
    #[error("no chain to a trusted certificate holds")]
    Path(#[source] webpki::Error),
    /// The leaf is itself a trusted certificate, but is not valid at this time.
    #[error("the trusted certificate is not valid at this time")]
    Expired,
    /// The voucher asks for a revocation check, and the server sent no revocation list.
    #[error("revocation has to be checked, but there is no revocation list")]
    NoRevocationList,
}

/// Treatment of revocation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Revocation<'a> {
    Ignored,
    /// Requires one of these lists, in DER, for every certificate but the trusted one.
    Checked(&'a [Vec<u8>]),
}

/// Accepts any extended key usage, because none is defined for vouchers and owner certificates.
struct AnyExtendedKeyUsage;

impl ExtendedKeyUsageValidator for AnyExtendedKeyUsage {
    fn validate(&self, _purposes: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        Ok(())
    }
}

/// Finds a chain from `leaf` to a trusted certificate; all certificates are in DER. A leaf that is itself trusted
/// needs no chain: vendors sign vouchers with the very certificate that signs the IDevIDs, and path validation
/// cannot express that.
pub(crate) fn verify(
    leaf: &[u8],
    others: &[CertificateDer<'_>],
    trusted: &[CertificateDer<'_>],
    revocation: Revocation<'_>,
    now: UnixTime,
) -> Result<(), ChainError> {
    if trusted.iter().any(|anchor| anchor.as_ref() == leaf) {
        return valid_at(leaf, now);
    }
    let leaf = CertificateDer::from(leaf);
    let leaf = EndEntityCert::try_from(&leaf).map_err(ChainError::Path)?;
    let anchors = trusted.iter().map(webpki::anchor_from_trusted_cert);
    let anchors = anchors.collect::<Result<Vec<_>, _>>().map_err(ChainError::Path)?;
    let lists = match revocation {
        Revocation::Ignored => Vec::new(),
        Revocation::Checked([]) => return Err(ChainError::NoRevocationList),
        Revocation::Checked(lists) => read_lists(lists)?,
    };
    let lists: Vec<&CertRevocationList<'_>> = lists.iter().collect();
    let options = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
        builder
            .with_depth(RevocationCheckDepth::Chain)
            .with_status_policy(UnknownStatusPolicy::Deny)
            .build()
    });
    leaf.verify_for_usage(
        webpki::ALL_VERIFICATION_ALGS,
        &anchors,
        others,
        now,
        AnyExtendedKeyUsage,
        options,
        None,
    )
    .map(drop)
    .map_err(ChainError::Path)
}

fn read_lists(lists: &[Vec<u8>]) -> Result<Vec<CertRevocationList<'_>>, ChainError> {
    let read = |list: &Vec<u8>| BorrowedCertRevocationList::from_der(list)?.to_owned();
    let owned = lists.iter().map(|list| read(list).map(CertRevocationList::from));
    owned.collect::<Result<_, _>>().map_err(ChainError::Path)
}

fn valid_at(certificate: &[u8], now: UnixTime) -> Result<(), ChainError> {
    let read = Certificate::from_der(certificate).map_err(|_| ChainError::Expired)?;
    let validity = read.tbs_certificate().validity();
    let from = validity.not_before.to_unix_duration().as_secs();
    let until = validity.not_after.to_unix_duration().as_secs();
    if (from..=until).contains(&now.as_secs()) { Ok(()) } else { Err(ChainError::Expired) }
}
