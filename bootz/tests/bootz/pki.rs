//! Keys, certificates and signed messages, made at test time.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cms::cert::x509;
use cms::cert::x509::attr::Attribute;
use cms::cert::x509::der::asn1::{Any, Null, ObjectIdentifier, OctetString, SetOfVec};
use cms::cert::x509::der::{Decode, Encode};
use cms::cert::x509::spki::AlgorithmIdentifierOwned;
use cms::cert::{CertificateChoices, IssuerAndSerialNumber};
use cms::content_info::{CmsVersion, ContentInfo};
use cms::revocation::{RevocationInfoChoice, RevocationInfoChoices};
use cms::signed_data::{
    EncapsulatedContentInfo, SignedData, SignerIdentifier, SignerInfo, SignerInfos,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PKCS_RSA_SHA256, RevokedCertParams, SanType, SerialNumber, SignatureAlgorithm, SigningKey,
    date_time_ymd,
};
use rustls_pki_types::CertificateDer;

const DATA: &str = "1.2.840.113549.1.7.1";

/// A key and its certificate; authorities sign others with it.
pub(crate) type KeyAndCertificate = CertifiedIssuer<'static, KeyPair>;

/// The kinds of keys that parties have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyAlgorithm {
    Rsa,
    P256,
    P384,
}

impl KeyAlgorithm {
    fn algorithm(self) -> &'static SignatureAlgorithm {
        match self {
            Self::Rsa => &PKCS_RSA_SHA256,
            Self::P256 => &PKCS_ECDSA_P256_SHA256,
            Self::P384 => &PKCS_ECDSA_P384_SHA384,
        }
    }

    fn digest(self) -> &'static str {
        match self {
            Self::Rsa | Self::P256 => "2.16.840.1.101.3.4.2.1",
            Self::P384 => "2.16.840.1.101.3.4.2.2",
        }
    }

    fn signature(self) -> &'static str {
        match self {
            Self::Rsa => "1.2.840.113549.1.1.11",
            Self::P256 => "1.2.840.10045.4.3.2",
            Self::P384 => "1.2.840.10045.4.3.3",
        }
    }
}

/// A self-signed authority.
pub(crate) fn self_signed_authority(name: &str, kind: KeyAlgorithm) -> KeyAndCertificate {
    let key = KeyPair::generate_for(kind.algorithm()).unwrap();
    let mut params = named(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    CertifiedIssuer::self_signed(params, key).unwrap()
}

/// A party with a certificate of this authority.
pub(crate) fn issue_certificate(
    name: &str,
    kind: KeyAlgorithm,
    authority: &KeyAndCertificate,
) -> KeyAndCertificate {
    issue_with_serial(name, kind, authority, None)
}

/// A party whose certificate has this serial number.
pub(crate) fn issue_with_serial(
    name: &str,
    kind: KeyAlgorithm,
    authority: &KeyAndCertificate,
    serial: Option<u64>,
) -> KeyAndCertificate {
    issue_with_params(name, kind, authority, |params| {
        params.serial_number = serial.map(SerialNumber::from)
    })
}

/// Makes a certificate whose parameters are changed before it is signed.
pub(crate) fn issue_with_params(
    name: &str,
    kind: KeyAlgorithm,
    authority: &KeyAndCertificate,
    change: impl FnOnce(&mut CertificateParams),
) -> KeyAndCertificate {
    let key = KeyPair::generate_for(kind.algorithm()).unwrap();
    let mut params = named(name);
    change(&mut params);
    CertifiedIssuer::signed_by(params, key, authority).unwrap()
}

/// Names a box in the subject, as an IDevID does.
pub(crate) fn with_serial_number(params: &mut CertificateParams) {
    params.distinguished_name.push(DnType::CustomDnType(vec![2, 5, 4, 5]), "PID:X SN:HF-1");
}

/// Names a hardware module (RFC 4108), as other IDevIDs do.
pub(crate) fn with_hardware_module(params: &mut CertificateParams) {
    let name = (vec![1, 3, 6, 1, 5, 5, 7, 8, 4], "HF-1".into());
    params.subject_alt_names.push(SanType::OtherName(name));
}

/// Names a host, as the certificate of a signing service may.
pub(crate) fn with_host_name(params: &mut CertificateParams) {
    let name = "vouchers.vendor.example".try_into().unwrap();
    params.subject_alt_names.push(SanType::DnsName(name));
}

/// A revocation list of an authority with these serial numbers.
pub(crate) fn revocation_list(authority: &KeyAndCertificate, revoked: &[u64]) -> Vec<u8> {
    let entry = |serial: &u64| RevokedCertParams {
        serial_number: SerialNumber::from(*serial),
        revocation_time: date_time_ymd(2025, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2025, 1, 1),
        next_update: date_time_ymd(2999, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs: revoked.iter().map(entry).collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    };
    params.signed_by(authority).unwrap().der().to_vec()
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2999, 1, 1);
    params
}

pub(crate) fn der(party: &KeyAndCertificate) -> CertificateDer<'static> {
    party.der().clone()
}

/// Parts of a signed message, for tests that spoil one of them.
pub(crate) struct Cms<'a> {
    pub(crate) content: &'a [u8],
    pub(crate) signer: &'a KeyAndCertificate,
    pub(crate) kind: KeyAlgorithm,
    /// Additional certificates, each as often as it is listed.
    pub(crate) certificates: Vec<&'a KeyAndCertificate>,
    /// Revocation lists, in DER.
    pub(crate) lists: Vec<Vec<u8>>,
    pub(crate) has_attributes: bool,
    pub(crate) has_signer: bool,
    /// The content is not in the message.
    pub(crate) is_detached: bool,
}

impl<'a> Cms<'a> {
    pub(crate) fn new(
        content: &'a [u8],
        signer: &'a KeyAndCertificate,
        kind: KeyAlgorithm,
    ) -> Self {
        Self {
            content,
            signer,
            kind,
            certificates: vec![signer],
            lists: Vec::new(),
            has_attributes: true,
            has_signer: true,
            is_detached: false,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let certificates = self.certificates.iter().map(|party| {
            CertificateChoices::Certificate(x509::Certificate::from_der(party.der()).unwrap())
        });
        let mut set = SetOfVec::new();
        certificates.for_each(|choice| set.insert(choice).unwrap_or(()));
        let signers = if self.has_signer { vec![self.signer_info()] } else { Vec::new() };
        let signed = SignedData {
            version: CmsVersion::V1,
            digest_algorithms: SetOfVec::try_from(vec![algorithm(self.kind.digest())]).unwrap(),
            encap_content_info: EncapsulatedContentInfo {
                econtent_type: ObjectIdentifier::new_unwrap(DATA),
                econtent: (!self.is_detached).then(|| any(&octets(self.content))),
            },
            certificates: Some(cms::signed_data::CertificateSet(set)),
            crls: self.lists(),
            signer_infos: SignerInfos(SetOfVec::try_from(signers).unwrap()),
        };
        let outer = ContentInfo {
            content_type: ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2"),
            content: any(&signed),
        };
        outer.to_der().unwrap()
    }

    fn lists(&self) -> Option<RevocationInfoChoices> {
        let read = |list: &Vec<u8>| RevocationInfoChoice::Crl(Decode::from_der(list).unwrap());
        let set = SetOfVec::try_from(self.lists.iter().map(read).collect::<Vec<_>>()).unwrap();
        (!self.lists.is_empty()).then_some(RevocationInfoChoices(set))
    }

    fn signer_info(&self) -> SignerInfo {
        let certificate = x509::Certificate::from_der(self.signer.der()).unwrap();
        let inner = certificate.tbs_certificate();
        let attributes = self.has_attributes.then(|| self.attributes());
        let signed = match &attributes {
            Some(attributes) => attributes.to_der().unwrap(),
            None => self.content.to_vec(),
        };
        SignerInfo {
            version: CmsVersion::V1,
            sid: SignerIdentifier::IssuerAndSerialNumber(IssuerAndSerialNumber {
                issuer: inner.issuer().clone(),
                serial_number: inner.serial_number().clone(),
            }),
            digest_alg: algorithm(self.kind.digest()),
            signed_attrs: attributes,
            signature_algorithm: algorithm(self.kind.signature()),
            signature: octets(&self.signer.key().sign(&signed).unwrap()),
            unsigned_attrs: None,
        }
    }

    fn attributes(&self) -> SetOfVec<Attribute> {
        let digest = match self.kind {
            KeyAlgorithm::Rsa | KeyAlgorithm::P256 => &aws_lc_rs::digest::SHA256,
            KeyAlgorithm::P384 => &aws_lc_rs::digest::SHA384,
        };
        let digest = aws_lc_rs::digest::digest(digest, self.content);
        let attribute = |oid: &str, value: Any| Attribute {
            oid: ObjectIdentifier::new_unwrap(oid),
            values: SetOfVec::try_from(vec![value]).unwrap(),
        };
        SetOfVec::try_from(vec![
            attribute("1.2.840.113549.1.9.3", any(&ObjectIdentifier::new_unwrap(DATA))),
            attribute("1.2.840.113549.1.9.4", any(&octets(digest.as_ref()))),
        ])
        .unwrap()
    }
}

fn octets(octets: &[u8]) -> OctetString {
    OctetString::new(octets).unwrap()
}

fn any(value: &impl Encode) -> Any {
    Any::from_der(&value.to_der().unwrap()).unwrap()
}

fn algorithm(oid: &str) -> AlgorithmIdentifierOwned {
    let oid = ObjectIdentifier::new_unwrap(oid);
    AlgorithmIdentifierOwned { oid, parameters: Some(any(&Null)) }
}

/// Fields of a voucher, for tests that spoil one of them.
#[derive(Clone, Debug)]
pub(crate) struct VoucherText {
    pub(crate) serial: String,
    pub(crate) pinned: Vec<u8>,
    pub(crate) created: &'static str,
    pub(crate) expires: Option<&'static str>,
    pub(crate) assertion: &'static str,
    pub(crate) checks: bool,
}

impl VoucherText {
    pub(crate) fn new(serial: &str, pinned: &KeyAndCertificate) -> Self {
        Self {
            serial: serial.to_owned(),
            pinned: pinned.der().to_vec(),
            created: "2024-05-01T10:00:00Z",
            expires: Some("2999-01-01T00:00:00+02:00"),
            assertion: "verified",
            checks: false,
        }
    }

    pub(crate) fn json(&self) -> String {
        let mut leaves = serde_json::json!({
            "created-on": self.created,
            "assertion": self.assertion,
            "serial-number": self.serial,
            "pinned-domain-cert": STANDARD.encode(&self.pinned),
            "domain-cert-revocation-checks": self.checks,
        });
        if let Some(expires) = self.expires {
            leaves["expires-on"] = expires.into();
        }
        serde_json::json!({ "ietf-voucher:voucher": leaves }).to_string()
    }

    pub(crate) fn xml(&self) -> String {
        let expires = self.expires.map(|it| format!("<expires-on>{it}</expires-on>"));
        format!(
            "<?xml version=\"1.0\"?>\n<voucher xmlns=\"urn:ietf:params:xml:ns:yang:ietf-voucher\">\
             <created-on>{}</created-on>{}<assertion>{}</assertion>\
             <serial-number>{}</serial-number><pinned-domain-cert>\n  {}\n</pinned-domain-cert>\
             <domain-cert-revocation-checks>{}</domain-cert-revocation-checks></voucher>",
            self.created,
            expires.unwrap_or_default(),
            self.assertion,
            self.serial,
            STANDARD.encode(&self.pinned),
            self.checks,
        )
    }
}
