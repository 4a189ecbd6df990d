//! Checks of certificates: the files of the operator and of the box, and the one that clients are shown.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_base::ErrorChain;
use holdfast_store::IDENTITY_FOLDER;
use rustls_pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

use super::{Finding, Subject, Verdict};
use crate::tls::{self, TlsError};
use crate::upkeep::day_of;

/// Rest of the validity at which there is a warning: an operator needs some weeks for a new certificate.
const RENEWAL: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Files of one identity, or of authorities without a key.
struct Identity {
    certificate: PathBuf,
    key: Option<PathBuf>,
}

fn identities(subject: &Subject) -> Vec<Identity> {
    let settings = &subject.settings;
    let pair = |certificate: &Option<PathBuf>, key: &Option<PathBuf>| {
        let certificate = certificate.clone()?;
        Some(Identity { certificate, key: key.clone() })
    };
    let own = subject.state_folder().join(IDENTITY_FOLDER);
    let own = Identity { certificate: own.join("cert.pem"), key: Some(own.join("key.pem")) };
    let own = own.certificate.exists().then_some(own);
    let tls = &settings.tls;
    let bootz = &settings.bootz;
    [
        pair(&tls.tls_cert, &tls.tls_key).or(own),
        pair(&tls.tls_client_ca, &None),
        pair(&tls.oidevid_cert, &tls.oidevid_key),
        pair(&bootz.bootz_idevid_cert, &bootz.bootz_idevid_key),
        pair(&bootz.bootz_vendor_ca, &None),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn read(identity: &Identity) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    match &identity.key {
        Some(key) => tls::read_identity(&identity.certificate, key),
        None => tls::read_certificates(&identity.certificate),
    }
}

pub(super) fn files(subject: &Subject) -> Vec<Finding> {
    let all = identities(subject);
    if all.is_empty() {
        return Finding::skipped("there are no files of certificates");
    }
    let mut findings = Vec::new();
    for identity in &all {
        match read(identity) {
            Err(error) => {
                let text = ErrorChain(&error).to_string();
                findings.push(Finding::new(Verdict::Failure, text));
            }
            // Authorities stand side by side in a file, and do not sign one another.
            Ok(chain) if identity.key.is_some() => {
                findings.extend(broken_chain(&identity.certificate, &chain));
            }
            Ok(_) => {}
        }
    }
    match findings.is_empty() {
        true => Finding::good(format!("{} certificates with their keys", all.len())),
        false => findings,
    }
}

/// The first certificate that the one behind it did not sign.
fn broken_chain(path: &Path, chain: &[CertificateDer<'_>]) -> Option<Finding> {
    let parsed: Vec<_> = chain.iter().filter_map(|der| tls::parse(der).ok()).collect();
    let broken = parsed
        .windows(2)
        .position(|pair| pair[0].verify_signature(Some(pair[1].public_key())).is_err())?;
    let text = format!(
        "certificate {} in `{}` is not signed by the one behind it: clients cannot follow the chain",
        broken + 1,
        path.display()
    );
    Some(Finding::new(Verdict::Failure, text))
}

/// Looks at the names of the certificate that clients are shown. That of a profile of certz is in no file.
pub(super) fn names(subject: &Subject) -> Vec<Finding> {
    let tls = &subject.settings.tls;
    let own = subject.state_folder().join(IDENTITY_FOLDER).join("cert.pem");
    let path = tls.tls_cert.as_ref().unwrap_or(&own);
    let Ok(chain) = tls::read_certificates(path) else {
        return Finding::skipped("the certificate for clients is not in a file");
    };
    let Some(leaf) = chain.first().and_then(|der| tls::parse(der).ok()) else {
        return Finding::skipped("the certificate for clients cannot be read");
    };
    let extension = leaf.subject_alternative_name().ok().flatten();
    let names = extension.map(|it| it.value.general_names.as_slice()).unwrap_or_default();
    let is_meant = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => is_name_of(name, &subject.host_name),
        GeneralName::IPAddress(bytes) => {
            let mut listened = subject.settings.listen.iter().map(|it| it.ip);
            listened.any(|address| *bytes == tls::address_bytes(address).as_slice())
        }
        _ => false,
    };
    if names.iter().any(is_meant) {
        return Finding::good(format!("a certificate for {}", subject.host_name));
    }
    let all: Vec<String> = names.iter().filter_map(name_text).collect();
    let all = match all.is_empty() {
        true => "nothing".to_owned(),
        false => all.join(", "),
    };
    let text = format!(
        "the certificate `{}` is for {all}, and neither for the host name {} nor for an address of --listen",
        path.display(),
        subject.host_name
    );
    Finding::warning(text)
}

/// True when a name of a certificate is that of the box: its host name, with or without a domain, or a wildcard for it.
fn is_name_of(name: &str, host: &str) -> bool {
    let [name, host] = [name, host].map(str::to_ascii_lowercase);
    let short = host.split('.').next().unwrap_or_default();
    match name.strip_prefix("*.") {
        Some(domain) => host.split_once('.').is_some_and(|(_, rest)| rest == domain),
        None => name == host || name.split('.').next() == Some(short),
    }
}

fn name_text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let v6 = <[u8; 16]>::try_from(*bytes).map(IpAddr::from);
            v4.or(v6).ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

pub(super) fn dates(subject: &Subject) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut first_end: Option<u64> = None;
    let mut note = |what: &str, begins: Option<u64>, ends: u64| {
        first_end = Some(first_end.map_or(ends, |first| first.min(ends)));
        findings.extend(date(what, begins, ends, subject.now));
    };
    for identity in identities(subject) {
        let Ok(chain) = tls::read_certificates(&identity.certificate) else { continue };
        for (number, der) in (1..).zip(&chain) {
            let Ok(certificate) = tls::parse(der) else { continue };
            let validity = certificate.validity();
            let what = format!("certificate {number} in `{}`", identity.certificate.display());
            note(&what, second(validity.not_before), second(validity.not_after).unwrap_or(0));
        }
    }
    if let Some(report) = subject.report()
        && let Some(ends) = report.certificate_expires_on
    {
        note(&format!("the certificate of the profile {}", report.tls_profile), None, ends);
    }
    match (findings.is_empty(), first_end.and_then(day_of)) {
        (false, _) => findings,
        (true, Some(day)) => Finding::good(format!("certificates valid until {day}")),
        (true, None) => Finding::skipped("there are no certificates"),
    }
}

fn second(time: x509_parser::time::ASN1Time) -> Option<u64> {
    u64::try_from(time.timestamp()).ok()
}

/// Finding about a certificate that is not valid, or not for long.
fn date(what: &str, begins: Option<u64>, ends: u64, now: SystemTime) -> Option<Finding> {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let day = |second| day_of(second).unwrap_or_default();
    if let Some(begins) = begins.filter(|begins| *begins > now) {
        let text = format!("{what} is not valid before {}, or the clock is wrong", day(begins));
        return Some(Finding::new(Verdict::Failure, text));
    }
    if ends < now {
        let text = format!("{what} has expired on {}, or the clock is wrong", day(ends));
        return Some(Finding::new(Verdict::Failure, text));
    }
    let left = ends - now;
    let days = left / (24 * 60 * 60);
    let text = format!("{what} ends in {days} days ({})", day(ends));
    (left < RENEWAL.as_secs()).then(|| Finding::new(Verdict::Warning, text))
}
