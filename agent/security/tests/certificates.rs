//! Certificates, bundles, lists, keys and parameters of requests, of any kind: nothing panics, a refusal names what it
//! is about, and what is accepted is stored and read back as what it was.
//!
//! Each target runs for `BOLERO_RANDOM_TEST_TIME_MS` (a second when it is not set), on bytes as they come and on good
//! material with some bytes changed.

#![allow(clippy::unwrap_used, reason = "a test may panic, its helpers too")]

use base64::prelude::{BASE64_STANDARD, Engine};
use holdfast_security::certz::{
    AlternativeNames, CertzError, CsrParams, Curve, Encoding, Hash, RevocationLists, Suite,
    TrustBundle, certificates, private_key,
};

const PKCS7: &str = include_str!("../src/certz/tests/two-authorities.p7b");
const PEM: &str = include_str!("../src/certz/tests/two-authorities.pem");
const WHAT: &str = "the entity";
const ENCODINGS: [Encoding; 3] = [Encoding::Pem, Encoding::Der, Encoding::Crt];
/// Bytes that one input may replace.
const MAX_EDITS: usize = 8;

/// `seed` with some bytes replaced: three bytes of `edits` are a place and what comes there.
fn edited(seed: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut octets = seed.to_vec();
    for edit in edits.chunks_exact(3).take(MAX_EDITS) {
        let place = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % octets.len();
        octets[place] = edit[2];
    }
    octets
}

/// The bytes of the first block.
fn body(pem: &str) -> Vec<u8> {
    let lines = pem.lines().skip(1).take_while(|line| !line.starts_with('-'));
    BASE64_STANDARD.decode(lines.collect::<String>()).unwrap()
}

/// Objects made from an upload; a refusal must name their part of it.
#[track_caller]
fn accepted<T>(result: Result<T, CertzError>) -> Option<T> {
    result
        .inspect_err(|error| {
            assert!(error.what == WHAT && !error.reason.is_empty(), "{error}");
        })
        .ok()
}

fn check_bundle(bundle: &TrustBundle) {
    let again = TrustBundle::from_stored(WHAT, &bundle.stored()).unwrap();
    assert_eq!((again.len(), again.stored()), (bundle.len(), bundle.stored()));
}

fn check_certificates(bytes: &[u8]) {
    for encoding in ENCODINGS {
        let all = accepted(certificates(WHAT, encoding, bytes));
        if let Some(bundle) = all.and_then(|all| accepted(TrustBundle::new(WHAT, all))) {
            check_bundle(&bundle);
        }
    }
}

fn check_block(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(bundle) = accepted(TrustBundle::from_pkcs7(WHAT, &text)) {
        check_bundle(&bundle);
    }
}

#[test]
fn bundles() {
    let certificate = body(PEM);
    let block = body(PKCS7);
    assert_eq!(certificates(WHAT, Encoding::Der, &certificate).unwrap().len(), 1);
    bolero::check!().for_each(|input: &[u8]| {
        check_certificates(input);
        check_block(input);
        check_certificates(&edited(PEM.as_bytes(), input));
        check_certificates(&edited(&certificate, input));
        check_block(&edited(PKCS7.as_bytes(), input));
        let text = BASE64_STANDARD.encode(edited(&block, input));
        check_block(format!("-----BEGIN PKCS7-----\n{text}\n-----END PKCS7-----\n").as_bytes());
    });
}

#[test]
fn revocation_lists_and_keys() {
    let issuer = rcgen::Issuer::new(
        rcgen::CertificateParams::default(),
        rcgen::KeyPair::generate().unwrap(),
    );
    let params = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2026, 1, 1),
        next_update: rcgen::date_time_ymd(2027, 1, 1),
        crl_number: 1_u64.into(),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = params.signed_by(&issuer).unwrap().der().to_vec();
    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let check = |bytes: &[u8]| {
        for encoding in ENCODINGS {
            let lists = [("list".to_owned(), encoding, bytes.to_vec())];
            if let Some(lists) = accepted(RevocationLists::new(WHAT, lists)) {
                let again = RevocationLists::from_stored(WHAT, &lists.stored()).unwrap();
                assert_eq!(again.stored(), lists.stored());
            }
            accepted(private_key(WHAT, encoding, bytes));
        }
    };
    bolero::check!().for_each(|input: &[u8]| {
        check(input);
        check(&edited(&list, input));
        check(&edited(key.as_bytes(), input));
    });
}

#[test]
fn requests() {
    bolero::check!().for_each(|input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        let mut fields = text.split('\0').map(str::to_owned);
        let mut next = || fields.next().unwrap_or_default();
        let params = CsrParams {
            suite: Some(Suite::Ecdsa(Curve::P256, Hash::Sha256)),
            common_name: next(),
            country: next(),
            state: next(),
            city: next(),
            organization: next(),
            organizational_unit: next(),
            ip_address: next(),
            email_id: next(),
            san: AlternativeNames {
                dns: some(next()),
                emails: some(next()),
                ips: some(next()),
                uris: some(next()),
            },
        };
        let generated = params.generate();
        assert_eq!(params.can_generate(), generated.is_ok());
        match generated {
            Ok(generated) => {
                assert!(generated.pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----"))
            }
            Err(error) => assert!(error.what.starts_with("generate_csr.params."), "{error}"),
        }
    });
}

/// A field that is there.
fn some(field: String) -> Vec<String> {
    Vec::from_iter((!field.is_empty()).then_some(field))
}
