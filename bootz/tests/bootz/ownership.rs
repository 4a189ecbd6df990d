//! Vouchers, owner certificates and signatures, each with one thing wrong.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_bootz::cms::SignedMessage;
use holdfast_bootz::ownership::{OwnershipProof, VerificationParameters};
use holdfast_bootz::voucher::Voucher;
use rcgen::{CertificateParams, SigningKey};
use rustls_pki_types::UnixTime;

use crate::pki::{
    Cms, KeyAlgorithm, KeyAndCertificate, VoucherText, der, issue_certificate, issue_with_params,
    issue_with_serial, revocation_list, self_signed_authority, with_hardware_module,
    with_host_name, with_serial_number,
};

const SERIAL: &str = "HF-1";
const DATA: &[u8] = b"bootstrap data";
/// 2026-01-01.
const NOW: u64 = 1_767_225_600;

/// A vendor, an owner, and the documents that the owner's server sends.
struct OwnershipFixture {
    kind: KeyAlgorithm,
    vendor: KeyAndCertificate,
    domain: KeyAndCertificate,
    owner: KeyAndCertificate,
    voucher: VoucherText,
    is_xml: bool,
    voucher_signer: Option<KeyAndCertificate>,
    signed: Vec<u8>,
    now: u64,
}

impl OwnershipFixture {
    fn new(kind: KeyAlgorithm) -> Self {
        let vendor = self_signed_authority("vendor", kind);
        let domain = self_signed_authority("domain", kind);
        let owner = issue_certificate("owner", kind, &domain);
        Self {
            voucher: VoucherText::new(SERIAL, &domain),
            voucher_signer: None,
            is_xml: false,
            signed: DATA.to_vec(),
            now: NOW,
            kind,
            vendor,
            domain,
            owner,
        }
    }

    fn voucher(&self) -> Vec<u8> {
        let text = if self.is_xml { self.voucher.xml() } else { self.voucher.json() };
        let signer = self.voucher_signer.as_ref().unwrap_or(&self.vendor);
        Cms::new(text.as_bytes(), signer, self.kind).encode()
    }

    /// Bootstrap servers leave the content unsigned and include the certificate twice.
    fn certificate(&self) -> Vec<u8> {
        let mut message = Cms::new(b"", &self.owner, self.kind);
        message.certificates.push(&self.owner);
        message.encode()
    }

    fn verify(&self) -> Result<(), String> {
        self.verify_parts(&self.voucher(), &self.certificate(), |signature| signature)
    }

    fn verify_parts(
        &self,
        voucher: &[u8],
        certificate: &[u8],
        spoil: fn(Vec<u8>) -> Vec<u8>,
    ) -> Result<(), String> {
        let signature = STANDARD.encode(spoil(self.owner.key().sign(&self.signed).unwrap()));
        let now = UnixTime::since_unix_epoch(Duration::from_secs(self.now));
        let vendor = [der(&self.vendor)];
        let expected = VerificationParameters { serial: SERIAL, voucher_anchors: &vendor, now };
        let proof = OwnershipProof { voucher, certificate, signature: &signature };
        proof.verify(DATA, &expected).map_err(|error| {
            let mut text = error.to_string();
            let mut cause = std::error::Error::source(&error);
            while let Some(error) = cause {
                text = format!("{text}: {error}");
                cause = error.source();
            }
            text
        })
    }
}

// proves 4.24, 4.27, 4.28, 4.29
#[test]
fn ownership_verifies_with_rsa_and_ecdsa_in_json_and_xml() {
    for kind in [KeyAlgorithm::Rsa, KeyAlgorithm::P384, KeyAlgorithm::P256] {
        let mut scene = OwnershipFixture::new(kind);
        assert_eq!(scene.verify(), Ok(()), "{kind:?}");
        scene.is_xml = true;
        assert_eq!(scene.verify(), Ok(()), "{kind:?} in XML");
    }
}

// proves 4.24, 4.25, 4.26, 4.27, 4.28, 4.30
#[test]
fn each_single_defect_fails_the_ownership_proof() {
    let elsewhere = || self_signed_authority("elsewhere", KeyAlgorithm::P384);
    type Tamper<'a> = &'a dyn Fn(&mut OwnershipFixture);
    let rows: [(&str, Tamper<'_>, &str); 13] = [
        ("another vendor", &|it| it.voucher_signer = Some(elsewhere()), "not trusted"),
        ("another box", &|it| it.voucher.serial = "HF-2".to_owned(), "serial number `HF-2`"),
        ("no serial number", &|it| it.voucher.serial.clear(), "serial-number"),
        ("expired", &|it| it.voucher.expires = Some("2025-12-31T23:59:59Z"), "expired"),
        ("of the future", &|it| it.voucher.created = "2026-01-03T00:00:00Z", "future"),
        ("no time", &|it| it.voucher.created = "yesterday", "created-on"),
        ("an unknown assertion", &|it| it.voucher.assertion = "guessed", "assertion"),
        ("revocation unknown", &|it| it.voucher.checks = true, "no revocation list"),
        (
            "another domain",
            &|it| it.voucher.pinned = elsewhere().der().to_vec(),
            "owner certificate",
        ),
        ("no pinned certificate", &|it| it.voucher.pinned = b"x".to_vec(), "owner certificate"),
        ("other data", &|it| it.signed = b"bootstrap dat4".to_vec(), "signature of the bootstrap"),
        ("a vendor of the past", &|it| it.now = 1_000_000_000, "not valid at this time"),
        (
            "an owner of itself",
            &|it| it.owner = issue_certificate("owner", KeyAlgorithm::P384, &elsewhere()),
            "owner certificate",
        ),
    ];
    for (name, spoil, want) in rows {
        let mut scene = OwnershipFixture::new(KeyAlgorithm::P384);
        spoil(&mut scene);
        for is_xml in [false, true] {
            scene.is_xml = is_xml;
            let got = scene.verify().expect_err(name);
            assert!(got.contains(want), "{name}: {got}");
        }
    }
}

// proves 4.24
#[test]
fn vouchers_signed_by_an_idevid_are_refused() {
    type Change = fn(&mut CertificateParams);
    let rows: [(&str, &[Change], &str); 5] = [
        ("a signing service", &[], ""),
        ("one with a host name", &[with_host_name], ""),
        ("a box by its subject", &[with_serial_number], "a serial number in its subject"),
        ("a box by its hardware", &[with_hardware_module], "the name of a hardware module"),
        ("a box that is a host", &[with_host_name, with_hardware_module], "the IDevID of a box"),
    ];
    for (name, changes, want) in rows {
        let mut scene = OwnershipFixture::new(KeyAlgorithm::P384);
        scene.voucher_signer =
            Some(issue_with_params("signer", KeyAlgorithm::P384, &scene.vendor, |params| {
                changes.iter().for_each(|change| change(params));
            }));
        match scene.verify() {
            Ok(()) => assert_eq!(want, "", "{name}"),
            Err(error) => assert!(!want.is_empty() && error.contains(want), "{name}: {error}"),
        }
    }
    // A vendor certificate with a serial number is accepted when the operator configured it.
    let mut scene = OwnershipFixture::new(KeyAlgorithm::P384);
    let authority = self_signed_authority("above", KeyAlgorithm::P384);
    scene.vendor = issue_with_params("vendor", KeyAlgorithm::P384, &authority, with_serial_number);
    assert_eq!(scene.verify(), Ok(()));
}

// proves 4.24, 4.27, 4.31
#[test]
fn damaged_cms_messages_are_refused() {
    let scene = OwnershipFixture::new(KeyAlgorithm::P384);
    let text = scene.voucher.json();
    let cms = || Cms::new(text.as_bytes(), &scene.vendor, KeyAlgorithm::P384);
    let voucher = scene.voucher();
    let owner = scene.certificate();
    let same: fn(Vec<u8>) -> Vec<u8> = |signature| signature;
    let refused = |voucher: &[u8], owner: &[u8], want: &str| {
        let got = scene.verify_parts(voucher, owner, same).unwrap_err();
        assert!(got.contains(want), "{want}: {got}");
    };
    assert_eq!(
        scene.verify_parts(&Cms { has_attributes: false, ..cms() }.encode(), &owner, same),
        Ok(())
    );
    refused(b"", &owner, "no ownership voucher");
    refused(&voucher, b"", "cannot be read");
    refused(&voucher[..voucher.len() - 1], &owner, "cannot be read");
    refused(&Cms { has_signer: false, ..cms() }.encode(), &owner, "the message is not signed");
    refused(
        &Cms { certificates: vec![&scene.owner], ..cms() }.encode(),
        &owner,
        "the message lacks the certificate of its signer",
    );
    refused(&owner, &owner, "not trusted");
    refused(&voucher, &voucher, "not trusted");
    refused(&vec![0x30; (1 << 20) + 1], &owner, "more than are read");
    let flip: fn(Vec<u8>) -> Vec<u8> = |mut signature| {
        *signature.last_mut().unwrap() ^= 1;
        signature
    };
    assert!(scene.verify_parts(&voucher, &owner, flip).unwrap_err().contains("signature"));
    assert!(
        scene.verify_parts(&voucher, &owner, |_| Vec::new()).unwrap_err().contains("signature")
    );
}

// proves 4.24
#[test]
fn content_that_was_changed_after_signing_is_refused() {
    let scene = OwnershipFixture::new(KeyAlgorithm::P384);
    let text = scene.voucher.json();
    for has_attributes in [true, false] {
        let cms = Cms::new(text.as_bytes(), &scene.vendor, KeyAlgorithm::P384);
        let mut message = Cms { has_attributes, ..cms }.encode();
        let at = message.windows(SERIAL.len()).position(|it| it == SERIAL.as_bytes()).unwrap();
        message[at + 3] = b'2';
        assert_eq!(SignedMessage::read(&message).unwrap().content().len(), text.len());
        let same: fn(Vec<u8>) -> Vec<u8> = |signature| signature;
        let got = scene.verify_parts(&message, &scene.certificate(), same).unwrap_err();
        let want = if has_attributes { "another content" } else { "does not match" };
        assert!(got.contains(want), "{got}");
    }
}

// proves 4.24
#[test]
fn incomplete_voucher_documents_are_refused() {
    let scene = OwnershipFixture::new(KeyAlgorithm::P256);
    let json = scene.voucher.json();
    let xml = scene.voucher.xml();
    let rows = [
        (json.clone(), ""),
        (xml.clone(), ""),
        (String::new(), "cannot be read"),
        ("{}".to_owned(), "ietf-voucher:voucher"),
        (json.replace("ietf-voucher:voucher", "voucher"), "ietf-voucher:voucher"),
        (json.replace("serial-number", "serial"), "serial-number"),
        (json.replace("\"verified\"", "1"), "invalid type"),
        (xml.replace("serial-number", "serial"), "serial-number"),
        (xml.replace("<voucher", "<coupon").replace("</voucher", "</coupon"), "coupon"),
        (
            xml.replace("<assertion>", "<created-on>2020-01-01T00:00:00Z</created-on><assertion>"),
            "twice",
        ),
        (xml.replace(">false<", ">perhaps<"), "perhaps"),
        (xml.replace("<voucher", "<!DOCTYPE a [<!ENTITY b \"c\">]><voucher"), "cannot be read"),
    ];
    for (text, want) in rows {
        match Voucher::read(text.as_bytes()) {
            Ok(voucher) => assert_eq!((voucher.serial.as_str(), want), (SERIAL, ""), "{text}"),
            Err(error) => {
                assert!(!want.is_empty() && error.to_string().contains(want), "{want}: {error}");
            }
        }
    }
    assert_eq!(
        scene.domain.der().to_vec(),
        Voucher::read(xml.as_bytes()).unwrap().pinned_domain_cert
    );
}

// proves 4.26
#[test]
fn voucher_can_require_revocation_checks() {
    const OWNER: u64 = 77;
    let mut scene = OwnershipFixture::new(KeyAlgorithm::P384);
    scene.voucher.checks = true;
    scene.owner = issue_with_serial("owner", KeyAlgorithm::P384, &scene.domain, Some(OWNER));
    let elsewhere = self_signed_authority("elsewhere", KeyAlgorithm::P384);
    let rows = [
        (vec![revocation_list(&scene.domain, &[])], ""),
        (vec![revocation_list(&scene.domain, &[OWNER + 1])], ""),
        (vec![revocation_list(&scene.domain, &[OWNER])], "is revoked"),
        (vec![revocation_list(&elsewhere, &[])], "no valid chain"),
        (Vec::new(), "no revocation list"),
    ];
    for (lists, want) in rows {
        let certificate = Cms { lists, ..Cms::new(b"", &scene.owner, KeyAlgorithm::P384) }.encode();
        let got = scene.verify_parts(&scene.voucher(), &certificate, |signature| signature);
        match got {
            Ok(()) => assert_eq!(want, ""),
            Err(error) => assert!(!want.is_empty() && error.contains(want), "{want}: {error}"),
        }
    }
}
