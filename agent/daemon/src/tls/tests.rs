use std::{fs, os::unix::fs::PermissionsExt};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls_pki_types::pem::PemObject;
use tempfile::TempDir;
use x509_parser::extensions::GeneralName;

use super::*;
use crate::logging::Chain;

/// What is wrong with these files, in words; nothing when they can be served with.
fn complaint(
    files: &TempDir,
    certificate: &str,
    key: &str,
    client_ca: Option<&str>,
) -> Option<String> {
    let settings = TlsSettings {
        tls_cert: Some(files.path().join(certificate)),
        tls_key: Some(files.path().join(key)),
        tls_client_ca: client_ca.map(|name| files.path().join(name)),
        ..TlsSettings::default()
    };
    let error = own(&settings, files.path(), &[]).err()?;
    Some(Chain(&error).to_string().replace(&format!("{}/", files.path().display()), ""))
}

#[test]
fn unusable_files_are_named() {
    let files = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(files.path().join(name), text).unwrap();
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(["box".to_owned()]).unwrap();
    write("good.pem", &params.self_signed(&key).unwrap().pem());
    params.not_after = date_time_ymd(2020, 1, 2);
    write("old.pem", &params.self_signed(&key).unwrap().pem());
    write("key.pem", &key.serialize_pem());
    write("other-key.pem", &other.serialize_pem());
    write("empty.pem", "");
    write("broken.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");

    for (certificate, key, client_ca, want) in [
        ("good.pem", "key.pem", None, ""),
        ("good.pem", "key.pem", Some("good.pem"), ""),
        ("missing.pem", "key.pem", None, "cannot read certificates from `missing.pem`"),
        ("good.pem", "missing.pem", None, "cannot read a private key from `missing.pem`"),
        ("empty.pem", "key.pem", None, "`empty.pem` holds no certificate"),
        ("key.pem", "key.pem", None, "`key.pem` holds no certificate"),
        ("good.pem", "good.pem", None, "cannot read a private key from `good.pem`"),
        ("broken.pem", "key.pem", None, "certificate 1 in `broken.pem` is not usable"),
        ("old.pem", "key.pem", None, "the certificate in `old.pem` expired on Jan  2"),
        (
            "good.pem",
            "other-key.pem",
            None,
            "the key in `other-key.pem` does not belong to the certificate in `good.pem`",
        ),
        ("good.pem", "key.pem", Some("empty.pem"), "`empty.pem` holds no certificate"),
        (
            "good.pem",
            "key.pem",
            Some("broken.pem"),
            "cannot trust the client certificate authorities in `broken.pem`: the file: certificate 1",
        ),
    ] {
        let said = complaint(&files, certificate, key, client_ca).unwrap_or_default();
        assert!(
            said.starts_with(want) && said.is_empty() == want.is_empty(),
            "{said:?} does not start with {want:?}"
        );
    }
}

#[test]
fn the_own_identity_lasts_and_follows_the_addresses() {
    let state = TempDir::new().unwrap();
    let file = |name: &str| state.path().join("tls").join(name);
    let start = |addresses: &[&str]| {
        let addresses: Vec<_> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        own(&TlsSettings::default(), state.path(), &addresses).unwrap();
        [fs::read(file("ca.pem")).unwrap(), fs::read(file("cert.pem")).unwrap()]
    };
    let first = start(&["127.0.0.1"]);
    assert_eq!(start(&["127.0.0.1"]), first, "the same address, the same certificate");
    let [authority, certificate] = start(&["192.0.2.7"]);
    assert_eq!(authority, first[0], "clients go on trusting it");
    assert_ne!(certificate, first[1]);

    let der = CertificateDer::from_pem_slice(&certificate).unwrap();
    let parsed = parse(&der).unwrap();
    let names = parsed.subject_alternative_name().unwrap().unwrap().value.general_names.clone();
    for want in [
        GeneralName::DNSName("localhost"),
        GeneralName::IPAddress(&[127, 0, 0, 1]),
        GeneralName::IPAddress(&[192, 0, 2, 7]),
    ] {
        assert!(names.contains(&want), "{want:?} in {names:?}");
    }
    assert!(!parsed.is_ca());
    for key in ["key.pem", "ca-key.pem"] {
        assert_eq!(fs::metadata(file(key)).unwrap().permissions().mode() & 0o777, 0o600);
    }

    fs::write(file("key.pem"), "torn").unwrap();
    let [authority, remade] = start(&["192.0.2.7"]);
    assert_eq!(authority, first[0]);
    assert_ne!(remade, certificate, "a key that cannot be read is made again");
}
