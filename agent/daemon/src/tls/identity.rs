//! The agent's own identity: a small certificate authority, and a server certificate signed by it.
//!
//! Clients trust the authority's certificate once; when the box gets another name or address, or the server certificate
//! nears its end, only that one is made again, also while the agent runs. Neither certificate expires (RFC 5280 4.1.2.5 has a date for that): a box with a wrong clock, or
//! one that was stored for years, must still be reachable.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

use holdfast_base::ErrorChain;
use holdfast_store::{IDENTITY_FOLDER, create_private_folder, write_private_file};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, date_time_ymd,
};
use rustls::{crypto::CryptoProvider, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tracing::{info, warn};
use x509_parser::{extensions::GeneralName, time::ASN1Time};
use zeroize::{Zeroize, Zeroizing};

use super::{TlsError, parse};

/// Certificate of the authority, which clients trust, within the folder of the identity.
const CA_FILE: &str = "ca.pem";
const CA_KEY_FILE: &str = "ca-key.pem";
const CERTIFICATE_FILE: &str = "cert.pem";
const KEY_FILE: &str = "key.pem";

/// Rest of the validity at which a certificate is made again. The agent's own certificates have no end, but an operator may
/// have put one with an end in their place; a month is what clients and monitoring usually get.
const RENEWAL_DAYS: i64 = 30;
const SECONDS_IN_A_DAY: i64 = 24 * 60 * 60;

/// Random bytes in the authority's name, which makes it unique among boxes.
const NAME_SUFFIX_BYTES: usize = 6;

/// Path of the authority's certificate in a state folder. Exists only when the agent has an identity of its own.
pub fn ca_file(state_dir: &Path) -> PathBuf {
    state_dir.join(IDENTITY_FOLDER).join(CA_FILE)
}

/// Reads the identity in the state folder. Creates it when it is missing, and renews the certificate when it is not
/// [`current`](is_current).
pub(super) fn load_or_create(
    state_dir: &Path,
    addresses: &[IpAddr],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let folder = state_dir.join(IDENTITY_FOLDER);
    let names = Names::of_this_box(addresses);
    let usable = match read(&folder, provider) {
        Ok(certified) if names.are_in(&certified) && !nears_its_end(&certified) => {
            return Ok(certified);
        }
        Ok(certified) => {
            info!(
                "this box has a new name or address, or its certificate nears its end: making it again"
            );
            Some(certified)
        }
        Err(error) if folder.exists() => {
            warn!(error = %ErrorChain(&error), "the identity cannot be used: making it again");
            None
        }
        Err(_) => {
            info!("first start: making an identity");
            None
        }
    };
    match (make(&folder, &names).and_then(|()| read(&folder, provider)), usable) {
        (Err(error), Some(usable)) => {
            warn!(error = %ErrorChain(&error), "the certificate of this box cannot be made again, and stays as it is");
            Ok(usable)
        }
        (made, _) => made,
    }
}

/// True while a certificate has all names and addresses of this box, and does not near its end.
pub(crate) fn is_current(certified: &CertifiedKey, addresses: &[IpAddr]) -> bool {
    Names::of_this_box(addresses).are_in(certified) && !nears_its_end(certified)
}

fn nears_its_end(certified: &CertifiedKey) -> bool {
    let Some(certificate) = certified.cert.first().and_then(|der| parse(der).ok()) else {
        return true;
    };
    let rest = certificate.validity().not_after.timestamp() - ASN1Time::now().timestamp();
    rest < RENEWAL_DAYS * SECONDS_IN_A_DAY
}

fn read(folder: &Path, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let key = folder.join(KEY_FILE);
    let chain = super::read_certificates(&folder.join(CERTIFICATE_FILE))?;
    let private = PrivateKeyDer::from_pem_file(&key).map_err(|source| TlsError::Pem {
        what: "the private key of this box",
        path: key.clone(),
        source,
    })?;
    CertifiedKey::from_der(chain, private, provider)
        .map_err(|source| TlsError::BadKey { path: key, source })
}

/// Signs a certificate for `names`, by the existing authority or by a new one.
fn make(folder: &Path, names: &Names) -> Result<(), TlsError> {
    create_private_folder_for_identity(folder)?;
    let authority = match Authority::read(folder) {
        Some(authority) => authority,
        None => Authority::make(folder)?,
    };
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let certificate = names.certificate_params()?.signed_by(&key, &authority.issuer)?;
    write_private_file(&folder.join(KEY_FILE), key.serialize_pem().as_bytes())?;
    let chain = certificate.pem() + &authority.pem;
    Ok(write_private_file(&folder.join(CERTIFICATE_FILE), chain.as_bytes())?)
}

/// Makes a self-signed certificate for this box, and its key in PEM.
pub(crate) fn self_signed(
    addresses: &[IpAddr],
) -> Result<(CertificateDer<'static>, Zeroizing<String>), TlsError> {
    let mut key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    let mut params = Names::of_this_box(addresses).certificate_params()?;
    params.use_authority_key_identifier_extension = false; // a self-signed certificate has no authority
    let certificate = params.self_signed(&key)?.der().clone();
    let pem = Zeroizing::new(key.serialize_pem());
    key.zeroize();
    Ok((certificate, pem))
}

fn create_private_folder_for_identity(folder: &Path) -> Result<(), TlsError> {
    if folder.exists() {
        return Ok(());
    }
    Ok(create_private_folder(folder)?)
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    /// Reads the authority made earlier, if its files are valid.
    fn read(folder: &Path) -> Option<Self> {
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        let pem = text(CA_FILE)?;
        let key = KeyPair::from_pem(&text(CA_KEY_FILE)?).ok()?;
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
        let issuer = Issuer::from_ca_cert_der(&der, key).ok()?;
        Some(Self { issuer, pem })
    }

    fn make(folder: &Path) -> Result<Self, TlsError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let mut params = lasting_params();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, format!("holdfast authority {}", random_suffix()));
        let pem = params.self_signed(&key)?.pem();
        write_private_file(&folder.join(CA_KEY_FILE), key.serialize_pem().as_bytes())?;
        write_private_file(&folder.join(CA_FILE), pem.as_bytes())?;
        info!(file = %folder.join(CA_FILE).display(), "clients trust this box by this file");
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }
}

fn lasting_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = date_time_ymd(2000, 1, 1);
    params.not_after = date_time_ymd(9999, 12, 31);
    params
}

fn random_suffix() -> String {
    rand::random::<[u8; NAME_SUFFIX_BYTES]>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names by which a client may have reached this box.
struct Names {
    hosts: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl Names {
    fn of_this_box(addresses: &[IpAddr]) -> Self {
        let mut hosts = vec!["localhost".to_owned()];
        hosts.extend(host_name().filter(|name| name != "localhost"));
        let mut all = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        all.extend(addresses.iter().filter(|address| !address.is_unspecified()));
        if addresses.iter().any(IpAddr::is_unspecified) {
            all.extend(local_addresses());
        }
        all.sort_unstable();
        all.dedup();
        Self { hosts, addresses: all }
    }

    fn certificate_params(&self) -> Result<CertificateParams, TlsError> {
        let mut params = lasting_params();
        for host in &self.hosts {
            params.subject_alt_names.push(SanType::DnsName(host.as_str().try_into()?));
        }
        params
            .subject_alt_names
            .extend(self.addresses.iter().map(|address| SanType::IpAddress(*address)));
        let name = self.hosts.last().map_or("localhost", String::as_str);
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        Ok(params)
    }

    /// True when the certificate has all of them; it may have more.
    fn are_in(&self, certified: &CertifiedKey) -> bool {
        let Some(certificate) = certified.cert.first().and_then(|der| parse(der).ok()) else {
            return false;
        };
        let Ok(Some(names)) = certificate.subject_alternative_name() else { return false };
        let has = |is_match: &dyn Fn(&GeneralName<'_>) -> bool| {
            names.value.general_names.iter().any(is_match)
        };
        self.hosts.iter().all(|host| has(&|name| matches!(name, GeneralName::DNSName(dns) if dns == host)))
            && self.addresses.iter().all(|address| {
                let octets = address_bytes(*address);
                has(&|name| matches!(name, GeneralName::IPAddress(bytes) if *bytes == octets.as_slice()))
            })
    }
}

/// An address as certificates have it.
pub(crate) fn address_bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

/// Host name, if it is valid in a certificate.
fn host_name() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    (!name.is_empty() && name.chars().all(plain)).then_some(name)
}

/// Addresses of the agent's own namespace, without link-local ones: their use requires a zone, which a certificate
/// cannot have.
fn local_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = nix::ifaddrs::getifaddrs() else { return Vec::new() };
    interfaces
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        })
        .filter(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()))
        .collect()
}
