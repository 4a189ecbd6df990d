//! Rows for uploads, requests, policies and revocation, and what they share.

mod clients;
mod requests;
mod uploads;

use std::{sync::Arc, time::Duration};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer,
    KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use rustls::{crypto::aws_lc_rs, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use super::*;

/// A day in 2027.
fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000))
}

/// The serial number of authorities that another one signed.
const MIDDLE_SERIAL: u64 = 77;

/// An authority that signs for the tests.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: CertificateDer<'static>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let params = Self::params(name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self::of(params, key, &certificate)
    }

    /// An authority below this one.
    fn below(&self, name: &str) -> Self {
        let mut params = Self::params(name);
        let key = KeyPair::generate().unwrap();
        params.serial_number = Some(SerialNumber::from(MIDDLE_SERIAL));
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Self::of(params, key, &certificate)
    }

    fn of(params: CertificateParams, key: KeyPair, certificate: &rcgen::Certificate) -> Self {
        let pem = certificate.pem();
        let der = certificate.der().clone();
        Self { issuer: Issuer::new(params, key), pem, der }
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
    }

    /// The certificate and the key of a server or client.
    fn leaf(&self, params: &CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A revocation list with these serial numbers, dated on `day` of January 2026.
    fn revokes(&self, serials: &[u64], day: u8) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2026, 1, day),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, day),
            next_update: date_time_ymd(2026, 2, day), // in the past: an outdated list still counts
            crl_number: SerialNumber::from(u64::from(day)),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// SHA-256 of its key, as a policy names it.
    fn digest(&self) -> String {
        let parsed = material::parse(&self.der).unwrap();
        let digest =
            ::aws_lc_rs::digest::digest(&::aws_lc_rs::digest::SHA256, parsed.public_key().raw);
        digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
    }
}

fn named(common_name: &str, uris: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    if !common_name.is_empty() {
        params.distinguished_name.push(DnType::CommonName, common_name);
    }
    params.subject_alt_names =
        uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
    params
}

/// The identity of the box, and what it signs for itself.
struct TestBox(Arc<CertifiedKey>);

impl TestBox {
    fn new() -> Self {
        let authority = Authority::new("maker");
        let (pem, key) = authority.leaf(&named("box", &[]));
        let certificates = certificates("", Encoding::Pem, pem.as_bytes()).unwrap();
        let key: PrivateKeyDer<'static> =
            rustls_pki_types::pem::PemObject::from_pem_slice(key.as_bytes()).unwrap();
        let provider = aws_lc_rs::default_provider();
        Self(Arc::new(CertifiedKey::from_der(certificates, key, &provider).unwrap()))
    }
}

impl BoxIdentity for TestBox {
    fn certified(&self, which: BoxIdentityKind) -> Option<Arc<CertifiedKey>> {
        (which != BoxIdentityKind::Oidevid).then(|| self.0.clone())
    }

    fn self_signed(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKey), CertzError> {
        let key = KeyPair::generate().unwrap();
        let certificate = named("box", &[]).self_signed(&key).unwrap();
        let key = private_key("", Encoding::Pem, key.serialize_pem().as_bytes())?;
        Ok((vec![certificate.der().clone()], key))
    }
}

/// Entities of version `v1`.
fn entity(content: Content) -> Entity {
    Entity { freshness: Freshness { version: "v1".into(), created_on: 7 }, content }
}

fn chain(certificate: &str, key: &str) -> Content {
    let source =
        ChainSource::Given(certificates("", Encoding::Pem, certificate.as_bytes()).unwrap());
    Content::Chain(
        source,
        KeySource::Given(private_key("", Encoding::Pem, key.as_bytes()).unwrap()),
    )
}

fn trust(authorities: &[&Authority]) -> Content {
    let all = authorities.iter().map(|authority| authority.der.clone()).collect();
    Content::Trust(TrustBundle::new("", all).unwrap())
}

fn revoked(lists: &[String]) -> Content {
    let lists =
        lists.iter().map(|pem| ("list".to_owned(), Encoding::Pem, pem.clone().into_bytes()));
    Content::Revoked(RevocationLists::new("", lists).unwrap())
}

/// An upload to the profile `p`.
fn to_p(contents: Vec<Content>) -> Upload {
    Upload { profile: "p".into(), entities: contents.into_iter().map(entity).collect() }
}

/// The profile `p` with these parts.
fn profile_of(contents: Vec<Content>) -> Profile {
    let profiles = Profiles::default().with_added("p").unwrap();
    let uploaded = profiles.with_upload(&to_p(contents), None, &TestBox::new(), now()).unwrap();
    uploaded.profile("p").unwrap().clone()
}
