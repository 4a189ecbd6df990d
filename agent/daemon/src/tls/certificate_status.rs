//! Validity of a client's certificate after the handshake, while the connection is open.

use std::sync::{Mutex, MutexGuard, PoisonError};

use holdfast_security::certz::{ClientRequirements, Rejection};
use rustls_pki_types::UnixTime;

use super::{PeerCertificate, parse};

/// Result of verifying a certificate now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CertificateStatus {
    Accepted,
    /// Client certificates are not requested, so they identify no caller.
    NotRequested,
    Refused(Rejection),
}

/// Cached result of the last verification.
#[derive(Debug, Default)]
pub(crate) struct CertificateStatusCache(Mutex<Option<CachedStatus>>);

#[derive(Clone, Debug)]
struct CachedStatus {
    epoch: u64,
    standing: CertificateStatus,
    /// Time of the next expiry among the client's certificates.
    until: Option<UnixTime>,
}

impl CertificateStatusCache {
    /// The result for this access epoch, verified again unless cached.
    pub(crate) fn at(
        &self,
        epoch: u64,
        now: UnixTime,
        look: impl FnOnce() -> (CertificateStatus, Option<UnixTime>),
    ) -> CertificateStatus {
        let mut last = self.last();
        let is_known = |look: &&CachedStatus| {
            look.epoch == epoch && look.until.is_none_or(|until| now < until)
        };
        if let Some(last_status) = last.as_ref().filter(is_known) {
            return last_status.standing.clone();
        }
        let (standing, until) = look();
        *last = Some(CachedStatus { epoch, standing: standing.clone(), until });
        standing
    }

    pub(crate) fn until(&self) -> Option<UnixTime> {
        self.last().as_ref().and_then(|look| look.until)
    }

    fn last(&self) -> MutexGuard<'_, Option<CachedStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Verifies the certificate by the requirements in `asked` (any of them may accept it), and returns the time of its
/// next expiry.
pub(crate) fn current_status(
    certificate: &PeerCertificate,
    requirements: [Option<ClientRequirements>; 2],
    now: UnixTime,
) -> (CertificateStatus, Option<UnixTime>) {
    let verify = |clients: &Option<ClientRequirements>| match clients {
        None => CertificateStatus::NotRequested,
        Some(clients) => match clients.verify(&certificate.der, &certificate.intermediates, now) {
            Ok(()) => CertificateStatus::Accepted,
            Err(rejection) => CertificateStatus::Refused(rejection),
        },
    };
    let [in_force, last] = requirements;
    let standing = match verify(&in_force) {
        CertificateStatus::Accepted => CertificateStatus::Accepted,
        refused => match verify(&last) {
            CertificateStatus::Refused(_) => refused,
            better => better,
        },
    };
    (standing, next_expiry(certificate, now))
}

/// Next expiry among the certificates. A certificate is valid to the end of the second that it names.
fn next_expiry(certificate: &PeerCertificate, now: UnixTime) -> Option<UnixTime> {
    let all = std::iter::once(&certificate.der).chain(&certificate.intermediates);
    let ends = all.filter_map(|der| {
        let not_after = parse(der).ok()?.validity().not_after.timestamp();
        Some(u64::try_from(not_after).ok()?.saturating_add(1))
    });
    let next = ends.filter(|end| *end > now.as_secs()).min();
    next.map(|end| UnixTime::since_unix_epoch(std::time::Duration::from_secs(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_status_is_verified_once_for_each_epoch_and_expiry() {
        let at = |secs| UnixTime::since_unix_epoch(std::time::Duration::from_secs(secs));
        let last = CertificateStatusCache::default();
        let mut looks = 0;
        // epoch, time, looks so far
        for (epoch, now, want) in
            [(0, 10, 1), (0, 11, 1), (0, 19, 1), (0, 20, 2), (0, 21, 2), (1, 22, 3), (1, 23, 3)]
        {
            let standing = last.at(epoch, at(now), || {
                looks += 1;
                (CertificateStatus::Accepted, (now < 20).then(|| at(20)))
            });
            assert_eq!(standing, CertificateStatus::Accepted);
            assert_eq!(looks, want, "{epoch} {now}");
        }
    }
}
