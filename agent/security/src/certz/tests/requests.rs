//! Keys and requests that are made on the box.

use ::aws_lc_rs::signature::{ECDSA_P521_SHA512_ASN1, UnparsedPublicKey};
use rcgen::SubjectPublicKeyInfo;
use x509_parser::{certification_request::X509CertificationRequest, prelude::FromDer};

use super::*;

fn params(suite: Option<Suite>) -> CsrParams {
    let text = str::to_owned;
    CsrParams {
        suite,
        common_name: text("box"),
        country: text("DE"),
        state: text("Saxony"),
        city: text("Dresden"),
        organization: text("Holdfast"),
        organizational_unit: text("tests"),
        ip_address: text("192.0.2.1"),
        email_id: text("box@example.net"),
        san: AlternativeNames {
            dns: vec![text("box.example.net")],
            emails: vec![text("ops@example.net")],
            ips: vec![text("2001:db8::1")],
            uris: vec![text("spiffe://net/box")],
        },
    }
}

// proves 5.78
#[test]
fn can_generate_reports_the_supported_suites() {
    use Curve::{P256, P384, P521};
    use Hash::{Sha256, Sha384, Sha512};
    for bits in [RsaBits::B2048, RsaBits::B3072, RsaBits::B4096] {
        for hash in [Sha256, Sha384, Sha512] {
            assert!(params(Some(Suite::Rsa(bits, hash))).can_generate(), "{bits:?} {hash:?}");
        }
    }
    for (curve, hash, want) in [
        (P256, Sha256, true),
        (P256, Sha384, false),
        (P256, Sha512, false),
        (P384, Sha256, false),
        (P384, Sha384, true),
        (P384, Sha512, false),
        (P521, Sha256, true),
        (P521, Sha384, true),
        (P521, Sha512, true),
    ] {
        let params = params(Some(Suite::Ecdsa(curve, hash)));
        assert_eq!(params.can_generate(), want, "{curve:?} {hash:?}");
        assert_eq!(params.generate().is_ok(), want, "{curve:?} {hash:?}");
    }
    assert!(!params(None).can_generate());
    assert_eq!(params(None).generate().unwrap_err().kind, CertzErrorKind::Unsupported);
}

#[test]
fn an_invalid_csr_field_is_named() {
    let good = params(Some(Suite::Ecdsa(Curve::P256, Hash::Sha256)));
    let bad = |change: fn(&mut CsrParams), want: &str| {
        let mut params = good.clone();
        change(&mut params);
        let error = params.generate().unwrap_err();
        assert_eq!(error.kind, CertzErrorKind::Invalid);
        assert!(error.to_string().starts_with(&format!("generate_csr.params.{want}: ")), "{error}");
        assert!(!params.can_generate());
    };
    bad(|it| it.country = "de".into(), "country");
    bad(|it| it.country = "DEU".into(), "country");
    bad(|it| it.common_name = "a\nb".into(), "common_name");
    bad(|it| it.state = "x".repeat(65), "state");
    bad(|it| it.ip_address = "box".into(), "ip");
    bad(|it| it.san.ips = vec!["192.0.2".into()], "ip");
    bad(|it| it.san.dns = vec!["a b".into()], "san.dns");
    bad(|it| it.san.uris = vec![String::new()], "san.uris");
    bad(|it| it.email_id = "jörg@example.net".into(), "email");
    bad(|it| it.san.dns = vec!["x".into(); 257], "san");
}

// proves 5.67
#[test]
fn a_signed_csr_is_installed_with_its_generated_key() {
    let root = Authority::new("root");
    let profiles = Profiles::default().with_added("p").unwrap();
    let mut other: Option<PrivateKey> = None;
    for suite in [
        Suite::Rsa(RsaBits::B2048, Hash::Sha256),
        Suite::Ecdsa(Curve::P256, Hash::Sha256),
        Suite::Ecdsa(Curve::P384, Hash::Sha384),
        Suite::Ecdsa(Curve::P521, Hash::Sha512),
    ] {
        let generated = params(Some(suite)).generate().unwrap();
        let block = x509_parser::pem::parse_x509_pem(generated.pem.as_bytes()).unwrap().1;
        let request = X509CertificationRequest::from_der(&block.contents).unwrap().1;
        assert!(is_signed(&request, suite), "{suite:?}");
        let key = &request.certification_request_info.subject_pki;
        let key = SubjectPublicKeyInfo::from_der(key.raw).unwrap();
        let signed = named("box", &[]).signed_by(&key, &root.issuer).unwrap();
        let certificates = vec![signed.der().clone()];
        for source in [KeySource::Unspecified, KeySource::Generated] {
            let content = Content::Chain(ChainSource::Given(certificates.clone()), source);
            let upload = to_p(vec![content, trust(&[&root])]);
            let with = |key| profiles.with_upload(&upload, key, &TestBox::new(), now());
            let taken = with(Some(&generated.key)).unwrap();
            let chain = taken.profile("p").unwrap().chain.clone().unwrap().value;
            assert_eq!(chain.certified().cert, certificates);
            assert_eq!(with(None).unwrap_err().kind, CertzErrorKind::Invalid);
            if let Some(other) = &other {
                let error = with(Some(other)).unwrap_err().to_string();
                assert!(error.contains("the private key is not that of the first"), "{error}");
            }
        }
        other = Some(generated.key);
    }
}

/// True when its own key signed the request. The parser knows no P-521.
fn is_signed(request: &X509CertificationRequest<'_>, suite: Suite) -> bool {
    if suite != Suite::Ecdsa(Curve::P521, Hash::Sha512) {
        return request.verify_signature().is_ok();
    }
    let info = &request.certification_request_info;
    let key =
        UnparsedPublicKey::new(&ECDSA_P521_SHA512_ASN1, &info.subject_pki.subject_public_key.data);
    key.verify(info.raw, &request.signature_value.data).is_ok()
}

#[test]
fn a_csr_contains_the_requested_fields() {
    let generated = params(Some(Suite::Ecdsa(Curve::P256, Hash::Sha256))).generate().unwrap();
    let (_, block) = x509_parser::pem::parse_x509_pem(generated.pem.as_bytes()).unwrap();
    let (_, request) = X509CertificationRequest::from_der(&block.contents).unwrap();
    let subject = request.certification_request_info.subject.to_string();
    assert_eq!(subject, "C=DE, ST=Saxony, L=Dresden, O=Holdfast, OU=tests, CN=box");
    let names = request.requested_extensions().unwrap().find_map(|extension| match extension {
        x509_parser::extensions::ParsedExtension::SubjectAlternativeName(names) => {
            Some(names.general_names.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
        _ => None,
    });
    let names = names.unwrap().join(" ");
    for want in [
        "box.example.net",
        "ops@example.net",
        "box@example.net",
        "spiffe://net/box",
        "20:01:0d:b8",
        "c0:00:02:01",
    ] {
        assert!(names.contains(want), "{want} in {names}");
    }
}
