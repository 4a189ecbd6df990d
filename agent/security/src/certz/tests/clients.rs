//! Verification of clients by a profile.

use base64::prelude::{BASE64_STANDARD, Engine};

use super::*;

/// A client of `authority`, with its serial number.
fn client(
    authority: &Authority,
    name: &str,
    uris: &[&str],
    serial: u64,
) -> CertificateDer<'static> {
    let mut params = named(name, uris);
    params.serial_number = Some(SerialNumber::from(serial));
    let (pem, _) = authority.leaf(&params);
    certificates("", Encoding::Pem, pem.as_bytes()).unwrap().remove(0)
}

fn verdict(profile: &Profile, path: &[CertificateDer<'_>]) -> String {
    let clients = profile.clients().expect("the profile trusts somebody");
    let verdict = clients.verify(&path[0], &path[1..], now());
    verdict.map_or_else(|rejection| rejection.to_string(), |()| "welcome".to_owned())
}

// proves 5.73
#[test]
fn a_revoked_client_is_refused() {
    let root = Authority::new("root");
    let other = Authority::new("other");
    let middle = root.below("middle");
    let profile = |lists: &[String]| profile_of(vec![trust(&[&root, &other]), revoked(lists)]);
    let path = [client(&middle, "c", &[], 5), middle.der.clone()];
    let of_root = [client(&root, "c", &[], 5)];
    for (lists, path, want) in [
        (vec![root.revokes(&[6], 1)], &of_root[..], "welcome"),
        (vec![root.revokes(&[5], 1)], &of_root, "CertRevoked"),
        // The newer list counts, whatever their order.
        (vec![root.revokes(&[], 1), root.revokes(&[5], 2)], &of_root, "CertRevoked"),
        (vec![root.revokes(&[5], 2), root.revokes(&[], 1)], &of_root, "CertRevoked"),
        (vec![root.revokes(&[5], 1), root.revokes(&[], 2)], &of_root, "welcome"),
        // Of an authority without a list, nothing is known.
        (vec![other.revokes(&[5], 1)], &of_root, "welcome"),
        (vec![middle.revokes(&[5], 1)], &path, "CertRevoked"),
        (vec![root.revokes(&[5], 1)], &path, "welcome"),
        (vec![root.revokes(&[MIDDLE_SERIAL], 1)], &path, "CertRevoked"),
    ] {
        let outcome = verdict(&profile(&lists), path);
        assert!(outcome.contains(want), "{outcome} is not {want}");
    }
}

// proves 5.74
#[test]
fn an_authentication_policy_binds_subjects_to_authorities() {
    let root = Authority::new("root");
    let other = Authority::new("other");
    let middle = root.below("middle");
    let rule = |name: &str, subject: &str, authority: &Authority| Rule {
        name: name.into(),
        subjects: vec![subject.into()],
        authorities: vec![authority.digest().into()],
    };
    let rules = vec![
        rule("operators", "spiffe://net/operator/*", &root),
        rule("collectors", "collector", &middle),
        rule("guests", "guest", &other),
    ];
    let policy = Content::Policy(AuthenticationPolicy::new("", rules).unwrap());
    let profile = profile_of(vec![trust(&[&root, &other]), policy]);
    let ada = &["spiffe://net/operator/ada"];
    let denied = "the authentication policy does not let this authority sign for this subject";
    for (path, want) in [
        (vec![client(&root, "", ada, 1)], "welcome"),
        (vec![client(&middle, "", ada, 1), middle.der.clone()], "welcome"), // below root
        (vec![client(&other, "", ada, 1)], denied),
        (vec![client(&middle, "collector", &[], 1), middle.der.clone()], "welcome"),
        (vec![client(&root, "collector", &[], 1)], denied),
        (vec![client(&other, "guest", &[], 1)], "welcome"),
        (vec![client(&root, "guest", &[], 1)], denied),
        (vec![client(&root, "nobody", &[], 1)], denied),
        (vec![client(&root, "collectors", &[], 1)], denied),
        // The path comes first.
        (vec![client(&Authority::new("root"), "", ada, 1)], "the certificate is not valid here"),
    ] {
        let outcome = verdict(&profile, &path);
        assert!(outcome.starts_with(want), "{outcome} is not {want}");
    }
}

#[test]
fn a_malformed_authentication_policy_is_refused() {
    let digest = "0".repeat(64);
    let rule = |name: &str, subjects: &[&str], authorities: &[&str]| Rule {
        name: name.into(),
        subjects: subjects.iter().copied().map(Into::into).collect(),
        authorities: authorities.iter().copied().map(Into::into).collect(),
    };
    for (rules, want) in [
        (vec![], "a policy has 1 to 4096 rules, not 0"),
        (vec![rule("", &["a"], &[&digest])], "each rule needs a name of its own"),
        (vec![rule("r", &["a"], &[&digest]); 2], "rule `r`: each rule needs a name of its own"),
        (vec![rule("r", &[], &[&digest])], "the rule needs 1 to 4096 subjects"),
        (vec![rule("r", &["a"], &[])], "the rule needs 1 to 4096 subjects"),
        (vec![rule("r", &["a*b"], &[&digest])], "with `*` nowhere but at its end"),
        (vec![rule("r", &[""], &[&digest])], "with `*` nowhere but at its end"),
        (vec![rule("r", &["a"], &["0"])], "64 hexadecimal digits"),
        (vec![rule("r", &["a"], &[&"x".repeat(64)])], "64 hexadecimal digits"),
    ] {
        let error = AuthenticationPolicy::new("here", rules).unwrap_err().to_string();
        assert!(error.starts_with("here: ") && error.contains(want), "{error}");
    }
}

// proves 5.75
#[test]
fn twenty_thousand_authorities_are_trusted_in_one_block() {
    const COUNT: usize = 20_000;
    let key = KeyPair::generate().unwrap(); // one for all: their names tell them apart
    let der = |number: usize| {
        let params = Authority::params(&format!("authority {number}"));
        params.self_signed(&key).unwrap().der().to_vec()
    };
    let all: Vec<u8> = (0..COUNT).flat_map(der).collect();
    let bundle = TrustBundle::from_pkcs7("", &block(&all)).unwrap();
    assert_eq!(bundle.len(), COUNT);
    assert_eq!(TrustBundle::from_stored("", &bundle.stored()).unwrap().len(), COUNT);
    let profile = profile_of(vec![Content::Trust(bundle)]);

    let last = Authority::params(&format!("authority {}", COUNT - 1));
    let issuer = Issuer::new(last, key);
    let certificate = named("c", &[]).signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    assert_eq!(verdict(&profile, &[certificate.der().clone()]), "welcome");
    let stranger = client(&Authority::new("stranger"), "c", &[], 1);
    assert!(verdict(&profile, &[stranger]).contains("UnknownIssuer"));
}

/// A SignedData with certificates alone, as RFC 5652 5.1 has it.
fn block(certificates: &[u8]) -> String {
    const SIGNED_DATA: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 2];
    const DATA: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1];
    let element = |tag: u8, content: &[u8]| {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        [&[tag, 0x84][..], &length, content].concat()
    };
    let parts =
        [&[2, 1, 1, 0x31, 0][..], &element(0x30, DATA), &element(0xa0, certificates), &[0x31, 0]];
    let signed = element(0xa0, &element(0x30, &parts.concat()));
    let info = element(0x30, &[SIGNED_DATA, &signed].concat());
    let text = BASE64_STANDARD.encode(&info);
    format!("-----BEGIN PKCS7-----\n{text}\n-----END PKCS7-----\n")
}
