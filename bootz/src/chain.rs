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
    #[error("no valid chain leads to a trusted certificate")]
    Path(#[source] webpki::Error),
    /// The leaf is itself a trusted certificate, but is not valid at this time.
    #[error("the trusted certificate is not valid at this time")]
    Expired,
    /// A revocation list names the certificate, or one that it was issued by.
    #[error("the certificate, or that of an issuer, is revoked")]
    Revoked,
    /// The voucher asks for a revocation check, and the server sent no revocation list.
    #[error("revocation has to be checked, but there is no revocation list")]
    NoRevocationList,
}

/// Treatment of revocation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Revocation<'a> {
    Ignored,
    /// Requires one of these lists, in DER, for every certificate but the trusted one.
    Required(&'a [Vec<u8>]),
    /// Refuses what one of these lists, in DER, names. A certificate whose authority has no list passes, and a list that is
    /// out of date still counts.
    Known(&'a [Vec<u8>]),
}

impl<'a> Revocation<'a> {
    /// The lists, and what is to be done about a certificate whose authority has none.
    fn lists(self) -> Result<(&'a [Vec<u8>], UnknownStatusPolicy), ChainError> {
        match self {
            Self::Ignored => Ok((&[], UnknownStatusPolicy::Allow)),
            Self::Required([]) => Err(ChainError::NoRevocationList),
            Self::Required(lists) => Ok((lists, UnknownStatusPolicy::Deny)),
            Self::Known(lists) => Ok((lists, UnknownStatusPolicy::Allow)),
        }
    }
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
    let is_trusted = trusted.iter().any(|anchor| anchor.as_ref() == leaf);
    let leaf = CertificateDer::from(leaf);
    if is_trusted {
        if let Revocation::Known(lists) = revocation {
            check_named(&leaf, &read_lists(lists)?)?;
        }
        return valid_at(&leaf, now);
    }
    let leaf = EndEntityCert::try_from(&leaf).map_err(ChainError::Path)?;
    let anchors = trusted.iter().map(webpki::anchor_from_trusted_cert);
    let anchors = anchors.collect::<Result<Vec<_>, _>>().map_err(ChainError::Path)?;
    let (lists, unknown) = revocation.lists()?;
    let lists = read_lists(lists)?;
    let lists: Vec<&CertRevocationList<'_>> = lists.iter().collect();
    let options = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
        builder.with_depth(RevocationCheckDepth::Chain).with_status_policy(unknown).build()
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
    .map_err(|error| match error {
        webpki::Error::CertRevoked => ChainError::Revoked,
        error => ChainError::Path(error),
    })
}

/// Refuses a certificate that a list of its authority names. The authority may be unknown here, so nobody asks whether the
/// list is its own: whoever gives the lists to the box is believed.
fn check_named(
    certificate: &CertificateDer<'_>,
    lists: &[CertRevocationList<'_>],
) -> Result<(), ChainError> {
    let certificate = EndEntityCert::try_from(certificate).map_err(ChainError::Path)?;
    for list in lists.iter().filter(|list| list.issuer() == certificate.issuer()) {
        let named = list.find_serial(certificate.serial()).map_err(ChainError::Path)?;
        if named.is_some() {
            return Err(ChainError::Revoked);
        }
    }
    Ok(())
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
