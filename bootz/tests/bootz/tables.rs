//! Tables for back-off, images, payloads and identities, which need no server.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use holdfast_bootz::identity::{IdevidChain, SigningKey};
use holdfast_bootz::image::{ImageDecision, InstalledSoftware};
use holdfast_bootz::payload::{BootstrapPayload, checksum};
use holdfast_bootz::retry::Backoff;
use holdfast_bootz::transport_key::TransportKey;
use holdfast_proto::bootz::{
    BootConfig, BootstrapDataResponse, BootstrapDataSigned, CertzProfile, CertzProfiles,
    SoftwareImage, identity,
};
use prost::Message;

use crate::pki::{KeyAlgorithm, issue_certificate, self_signed_authority};

const HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const ALGORITHM: &str = "ietf-sztp-conveyed-info:sha-256";

// proves 4.68
#[test]
fn waits_grow_to_a_limit_and_differ_between_boxes() {
    let backoff = Backoff::default();
    let rows = [(1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (40, 300), (u32::MAX, 300)];
    for (failures, seconds) in rows {
        let shortest = Duration::from_secs(seconds);
        assert_eq!(backoff.delay(failures, 0), shortest, "{failures}");
        assert_eq!(backoff.delay(failures, u32::MAX), shortest.mul_f64(1.5), "{failures}");
        let between = backoff.delay(failures, u32::MAX / 2);
        assert!(shortest < between && between < shortest.mul_f64(1.5), "{failures}: {between:?}");
    }
}

// proves 4.49, 4.50
#[test]
fn an_image_is_kept_installed_or_refused() {
    let coloned: String = HASH.as_bytes().chunks(2).map(|it| str::from_utf8(it).unwrap()).fold(
        String::new(),
        |all, octet| {
            if all.is_empty() { octet.to_owned() } else { format!("{all}:{octet}") }
        },
    );
    // version, url, hash, algorithm, whether the box can install, result
    let rows: [(&str, &str, &str, &str, bool, &str); 13] = [
        ("", "", "", "", true, "keep"),
        ("1", "http://h/i", HASH, ALGORITHM, true, "keep"),
        ("1", "", "", "", true, "keep"),
        ("2", "http://h/i", HASH, ALGORITHM, true, "install"),
        ("2", "http://h/i", &HASH.to_uppercase(), ALGORITHM, true, "install"),
        ("2", "http://h/i", &coloned, ALGORITHM, true, "install"),
        ("1", "http://h/i", HASH, ALGORITHM, false, "keep"),
        ("2", "http://h/i", HASH, ALGORITHM, false, "this box runs 1 and has no slot"),
        ("2", "http://h/i", HASH, "sha-256", true, "hash_algorithm `sha-256`"),
        ("2", "http://h/i", HASH, "", true, "hash_algorithm ``"),
        ("2", "http://h/i", &HASH[2..], ALGORITHM, true, "os_image_hash"),
        ("2", "http://h/i", &HASH.replacen('e', ":", 1), ALGORITHM, true, "os_image_hash"),
        ("2", "", HASH, ALGORITHM, true, "url is missing"),
    ];
    for (version, url, hash, algorithm, installs, want) in rows {
        let image = SoftwareImage {
            name: "os".to_owned(),
            version: version.to_owned(),
            url: url.to_owned(),
            os_image_hash: hash.to_owned(),
            hash_algorithm: algorithm.to_owned(),
        };
        let image = if version.is_empty() { SoftwareImage::default() } else { image };
        let got = match (InstalledSoftware { running: "1".to_owned(), can_install: installs })
            .decide(Some(&image))
        {
            Ok(ImageDecision::Keep) => "keep".to_owned(),
            Ok(ImageDecision::Install(image)) => {
                assert_eq!((image.digest[0], image.digest[31]), (0xe3, 0x55));
                "install".to_owned()
            }
            Err(error) => error.to_string(),
        };
        assert!(got.contains(want), "{version} {hash} {algorithm}: {got}");
    }
    assert_eq!(InstalledSoftware::default().decide(None), Ok(ImageDecision::Keep));
}

fn response(serial: &str) -> BootstrapDataResponse {
    let trust = self_signed_authority("trust", KeyAlgorithm::P256);
    BootstrapDataResponse {
        serial_num: serial.to_owned(),
        server_trust_cert: STANDARD.encode(trust.der()),
        boot_config: Some(BootConfig::default()),
        ..BootstrapDataResponse::default()
    }
}

fn profiles(ids: &[&str]) -> Option<CertzProfiles> {
    let profile =
        |id: &&str| CertzProfile { ssl_profile_id: (*id).to_owned(), ..CertzProfile::default() };
    Some(CertzProfiles { profiles: ids.iter().map(profile).collect() })
}

// proves 4.21, 4.48, 4.56, 4.57
#[test]
fn a_payload_is_for_this_box_and_complete() {
    type Spoil = fn(&mut BootstrapDataSigned);
    let rows: [(Spoil, &str); 12] = [
        (|_| {}, ""),
        (|data| data.responses.insert(0, response("other")), ""),
        (|data| data.responses.retain(|it| it.serial_num != "123"), "no response for serial"),
        (|data| data.responses.push(response("123")), "several responses"),
        (|data| data.nonce = "another".to_owned(), "does not carry the nonce"),
        (|data| data.nonce.clear(), "does not carry the nonce"),
        (|data| data.responses[0].boot_config = None, "boot_config: the field is missing"),
        (
            |data| data.responses[0].server_trust_cert.clear(),
            "server_trust_cert: the field is missing",
        ),
        (|data| data.responses[0].server_trust_cert = "QUJD".to_owned(), "not a certificate"),
        (|data| data.responses[0].certz_profiles = profiles(&["a", "b"]), ""),
        (|data| data.responses[0].certz_profiles = profiles(&["a", "a"]), "`a` occurs twice"),
        (
            |data| data.responses[0].certz_profiles = profiles(&["system_default_profile"]),
            "belongs to the box",
        ),
    ];
    for (spoil, want) in rows {
        let mut data =
            BootstrapDataSigned { responses: vec![response("123")], nonce: "n".to_owned() };
        spoil(&mut data);
        match BootstrapPayload::read(&data.encode_to_vec(), "n", "123") {
            Ok(payload) => {
                assert_eq!((payload.response.serial_num.as_str(), want), ("123", ""));
            }
            Err(error) => {
                assert!(!want.is_empty() && error.to_string().contains(want), "{error}");
            }
        }
    }
    assert!(BootstrapPayload::read(&[0xff], "", "123").is_err());
}

// proves 4.65
#[test]
fn the_checksum_is_sha_512_of_the_octets_as_they_came() {
    // FIPS 180-2, appendix C.1.
    let want = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";
    assert_eq!(checksum(b"abc"), want);
}

// proves 4.35
#[test]
fn an_identity_is_one_certificate_in_base64_or_several_in_pem() {
    let vendor = self_signed_authority("vendor", KeyAlgorithm::P384);
    let idevid = issue_certificate("box", KeyAlgorithm::P384, &vendor);
    let text = |pem: &str| match IdevidChain::from_pem(pem.as_bytes()).unwrap().message().r#type {
        Some(identity::Type::IdevidCert(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(STANDARD.decode(text(&idevid.pem())).unwrap(), idevid.der().to_vec());
    let both = text(&format!("{}{}", idevid.pem(), vendor.pem()));
    let again = IdevidChain::from_pem(both.as_bytes()).unwrap();
    assert_eq!(again.certificates(), [idevid.der().clone(), vendor.der().clone()]);
    assert!(IdevidChain::from_pem(b"nothing").is_err());
}

// proves 4.29
#[test]
fn an_identity_signs_with_the_digest_that_its_certificate_was_signed_with() {
    use aws_lc_rs::signature::{
        ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, RSA_PKCS1_2048_8192_SHA256,
        UnparsedPublicKey, VerificationAlgorithm,
    };
    let rows: [(KeyAlgorithm, KeyAlgorithm, Option<&'static dyn VerificationAlgorithm>); 4] = [
        (KeyAlgorithm::Rsa, KeyAlgorithm::Rsa, Some(&RSA_PKCS1_2048_8192_SHA256)),
        (KeyAlgorithm::P384, KeyAlgorithm::P384, Some(&ECDSA_P384_SHA384_ASN1)),
        (KeyAlgorithm::Rsa, KeyAlgorithm::P256, Some(&ECDSA_P256_SHA256_ASN1)),
        (KeyAlgorithm::Rsa, KeyAlgorithm::P384, None), // SHA-256 on P-384: the library has no such signature
    ];
    for (above, own, want) in rows {
        let vendor = self_signed_authority("vendor", above);
        let idevid = issue_certificate("box", own, &vendor);
        let chain = IdevidChain::from_pem(idevid.pem().as_bytes()).unwrap();
        let key = SigningKey::from_pem(idevid.key().serialize_pem().as_bytes(), &chain);
        let Some(algorithm) = want else {
            assert!(key.unwrap_err().to_string().contains("digest"));
            continue;
        };
        let signature = key.unwrap().sign(b"message").unwrap();
        let public = UnparsedPublicKey::new(algorithm, idevid.key().public_key_raw());
        assert!(public.verify(b"message", &signature).is_ok(), "{above:?} {own:?}");
    }
}

// proves 4.40, 4.41
#[test]
fn transport_key_opens_only_its_own_data() {
    use holdfast_proto::bootz;
    use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256;
    use rustls::crypto::hpke::{Hpke, HpkePublicKey};

    let key = TransportKey::from_secret([7; 32]);
    let announced = bootz::TransportKey::decode(&key.announcement(b"nonce")[..]).unwrap();
    assert_eq!((announced.cipher_suite, &announced.nonce[..]), (2, &b"nonce"[..]));
    let public = HpkePublicKey(announced.public_key.to_vec());
    let (encapsulated, sealed) =
        DH_KEM_X25519_HKDF_SHA256_AES_256.seal(&[], &[], b"data", &public).unwrap();
    assert_eq!(key.open(&encapsulated.0, &sealed).unwrap(), b"data");
    assert!(TransportKey::from_secret([8; 32]).open(&encapsulated.0, &sealed).is_err());
    let (encapsulated, sealed) =
        DH_KEM_X25519_HKDF_SHA256_AES_256.seal(b"info", &[], b"data", &public).unwrap();
    assert!(key.open(&encapsulated.0, &sealed).is_err());
    let (encapsulated, sealed) =
        DH_KEM_X25519_HKDF_SHA256_AES_256.seal(&[], b"aad", b"data", &public).unwrap();
    assert!(key.open(&encapsulated.0, &sealed).is_err());
    assert!(key.open(&[], &[]).is_err());
}
