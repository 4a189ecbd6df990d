//! Effects of uploads on a profile, and refusals.

use x509_parser::{certification_request::X509CertificationRequest, prelude::FromDer};

use super::*;
use crate::rotation::RotationRules;

/// Result of an upload to a profile that trusts `root` and has a certificate signed by it.
#[track_caller]
fn check(profiles: &Profiles, upload: Upload, want: Result<&str, (CertzErrorKind, &str)>) {
    let result = profiles.with_upload(&upload, None, &TestBox::new(), now());
    match (result, want) {
        (Ok(result), Ok(want)) => {
            let profile = result.profile(&upload.profile).unwrap();
            let has = EntityKind::ALL.into_iter().filter(|kind| {
                profile.freshness(*kind).is_some_and(|freshness| freshness.version == "v1")
            });
            let has: Vec<_> = has.map(EntityKind::name).collect();
            assert_eq!(has.join(" "), want);
        }
        (Err(error), Err((kind, text))) => {
            assert_eq!(error.kind, kind, "{error}");
            assert!(error.to_string().contains(text), "{error}");
        }
        (result, want) => panic!("{result:?} is not {want:?}"),
    }
}

// proves 5.62, 5.64, 5.65, 5.66, 5.68, 5.69, 5.70, 5.71
#[test]
fn an_upload_is_applied_whole_or_refused() {
    let root = Authority::new("root");
    let other = Authority::new("other");
    let (server, server_key) = root.leaf(&named("server", &[]));
    let (foreign, foreign_key) = other.leaf(&named("server", &[]));
    let mut old = named("server", &[]);
    old.not_after = date_time_ymd(2020, 1, 2);
    let (old, old_key) = root.leaf(&old);
    let mut early = named("server", &[]);
    early.not_before = date_time_ymd(2040, 1, 2);
    let (early, early_key) = root.leaf(&early);
    let old_freshness =
        |content| Entity { freshness: Freshness { version: "v0".into(), created_on: 1 }, content };
    let first = Upload {
        profile: "p".into(),
        entities: vec![old_freshness(chain(&server, &server_key)), old_freshness(trust(&[&root]))],
    };
    let profiles = Profiles::default().with_added("p").unwrap().with_added("empty").unwrap();
    let profiles = profiles.with_upload(&first, None, &TestBox::new(), now()).unwrap();
    let certificates_of = |pem: &str| certificates("", Encoding::Pem, pem.as_bytes()).unwrap();
    let from = |profile: &str, kind| Content::Existing { profile: profile.into(), kind };
    let policy = Content::Policy(
        AuthenticationPolicy::new(
            "",
            vec![Rule {
                name: "all".into(),
                subjects: vec!["*".into()],
                authorities: vec![root.digest().into()],
            }],
        )
        .unwrap(),
    );
    let invalid = CertzErrorKind::Invalid;
    let missing = CertzErrorKind::NotFound;
    let precondition = CertzErrorKind::Precondition;
    for (contents, want) in [
        (vec![chain(&server, &server_key)], Ok("certificate-chain")),
        (vec![trust(&[&root])], Ok("trust-bundle")),
        (vec![trust(&[&other, &root])], Ok("trust-bundle")),
        (vec![revoked(&[root.revokes(&[1], 1)])], Ok("certificate-revocation-list-bundle")),
        (vec![policy.clone()], Ok("authentication-policy")),
        (
            vec![chain(&foreign, &foreign_key), trust(&[&other])],
            Ok("certificate-chain trust-bundle"),
        ),
        (vec![], Err((invalid, "there are none"))),
        (vec![policy.clone(), policy], Err((invalid, "two of the kind authentication-policy"))),
        (
            vec![chain(&foreign, &foreign_key)],
            Err((invalid, "certificate_chain: the chain does not verify against the trust bundle")),
        ),
        (
            vec![trust(&[&other])],
            Err((invalid, "trust_bundle: the certificate chain of the profile does not verify")),
        ),
        (
            vec![chain(&server, &server_key), trust(&[&other])],
            Err((invalid, "does not verify against the trust bundle")),
        ),
        (vec![chain(&server, &foreign_key)], Err((invalid, "the private key is not that of"))),
        (vec![chain(&old, &old_key)], Err((invalid, "the certificate expired on Jan  2"))),
        (
            vec![chain(&early, &early_key)],
            Err((invalid, "the certificate is not valid before Jan  2")),
        ),
        (
            vec![Content::Chain(
                ChainSource::Given(certificates_of(&server)),
                KeySource::Unspecified,
            )],
            Err((invalid, "there is no private key with it")),
        ),
        (
            vec![Content::Chain(
                ChainSource::Given(certificates_of(&server)),
                KeySource::IdevidTpm,
            )],
            Err((precondition, "are in no TPM")),
        ),
        (
            vec![Content::Chain(ChainSource::Oidevid, KeySource::Unspecified)],
            Err((precondition, "no identity from its owner")),
        ),
        (
            // A client that trusts `root` alone refuses the box's own certificate.
            vec![Content::Chain(ChainSource::Idevid, KeySource::Unspecified)],
            Err((invalid, "does not verify against the trust bundle")),
        ),
        (
            vec![Content::Chain(ChainSource::Idevid, KeySource::Generated)],
            Err((invalid, "key_source does not go with cert_source")),
        ),
        (
            vec![from("p", EntityKind::TrustBundle), trust(&[&root])],
            Err((invalid, "two of the kind trust-bundle")),
        ),
        (
            vec![from("", EntityKind::TrustBundle)],
            Err((invalid, "existing_entity: ssl_profile_id must be given")),
        ),
        (vec![from("nobody", EntityKind::TrustBundle)], Err((missing, "no profile `nobody`"))),
        (
            vec![from("empty", EntityKind::TrustBundle)],
            Err((missing, "profile `empty` has no trust-bundle")),
        ),
        (
            vec![from(SYSTEM_DEFAULT_PROFILE, EntityKind::TrustBundle)],
            Err((missing, "profile `system_default_profile` has no trust-bundle")),
        ),
        (
            vec![revoked(&[Authority::new("root").revokes(&[1], 1)])],
            Err((invalid, "the list of `CN=root` is not signed by the authority of that name")),
        ),
        (vec![revoked(&[other.revokes(&[1], 1)])], Ok("certificate-revocation-list-bundle")),
    ] {
        check(&profiles, to_p(contents), want);
    }
    let to = |profile: &str, content| Upload { profile: profile.into(), ..to_p(vec![content]) };
    let copy = |kind| from("p", kind);
    check(&profiles, to("empty", copy(EntityKind::CertificateChain)), Ok("certificate-chain"));
    check(&profiles, to("empty", copy(EntityKind::TrustBundle)), Ok("trust-bundle"));
    for source in [ChainSource::Idevid, ChainSource::SelfSigned] {
        let content = Content::Chain(source, KeySource::Unspecified);
        check(&profiles, to("empty", content), Ok("certificate-chain"));
    }
    let current = from(SYSTEM_DEFAULT_PROFILE, EntityKind::CertificateChain);
    check(&profiles, to("empty", current), Ok("certificate-chain"));
    for (profile, want) in [
        ("", (invalid, "ssl_profile_id: must be given")),
        ("nobody", (missing, "profile `nobody`: there is no such profile")),
        (SYSTEM_DEFAULT_PROFILE, (precondition, "is the identity of the box")),
    ] {
        check(&profiles, to(profile, trust(&[&root])), Err(want));
    }
}

// proves 5.62, 5.63
#[test]
fn profiles_come_and_go() {
    let profiles = Profiles::default();
    assert_eq!(profiles.ids().collect::<Vec<_>>(), [SYSTEM_DEFAULT_PROFILE]);
    let two = profiles.with_added("a").unwrap().with_added("b").unwrap();
    assert_eq!(two.ids().collect::<Vec<_>>(), [SYSTEM_DEFAULT_PROFILE, "a", "b"]);
    for (id, want) in [
        ("", CertzErrorKind::Invalid),
        ("a b", CertzErrorKind::Invalid),
        ("a/b", CertzErrorKind::Invalid),
        ("a", CertzErrorKind::Exists),
        (SYSTEM_DEFAULT_PROFILE, CertzErrorKind::Exists),
    ] {
        assert_eq!(two.with_added(id).unwrap_err().kind, want, "{id}");
    }
    for (id, in_use, want) in [
        ("", false, CertzErrorKind::Invalid),
        ("c", false, CertzErrorKind::NotFound),
        ("a", true, CertzErrorKind::Precondition),
        (SYSTEM_DEFAULT_PROFILE, false, CertzErrorKind::Precondition),
    ] {
        assert_eq!(two.without(id, in_use).unwrap_err().kind, want, "{id}");
    }
    let one = two.without("a", false).unwrap();
    assert_eq!(one.ids().collect::<Vec<_>>(), [SYSTEM_DEFAULT_PROFILE, "b"]);
    let many = (0..64).try_fold(profiles, |all, number| all.with_added(&format!("p{number}")));
    assert_eq!(many.unwrap().with_added("one more").unwrap_err().kind, CertzErrorKind::Invalid);
}

// proves 5.8
#[test]
fn a_version_is_in_use_by_the_entity_of_the_same_kind() {
    let root = Authority::new("root");
    let profiles = Profiles::default().with_added("p").unwrap();
    let upload = to_p(vec![trust(&[&root])]);
    assert_eq!(profiles.version_in_use(&upload), None);
    let profiles = profiles.with_upload(&upload, None, &TestBox::new(), now()).unwrap();
    assert_eq!(profiles.version_in_use(&upload).as_deref(), Some("trust-bundle `v1`"));
    let list = to_p(vec![revoked(&[root.revokes(&[1], 1)])]);
    assert_eq!(profiles.version_in_use(&list), None);
}

// proves 5.64, 5.67
#[test]
fn a_stream_is_bound_to_one_profile_and_key() {
    let root = Authority::new("root");
    let profiles = Profiles::default().with_added("p").unwrap().with_added("q").unwrap();
    let request = |profile: &str| {
        let suite = Some(Suite::Ecdsa(Curve::P256, Hash::Sha256));
        let generated = CsrParams { suite, ..CsrParams::default() }.generate().unwrap();
        StreamMessage::Request { profile: profile.into(), generated }
    };
    let upload = |profile: &str, content: Content| StreamMessage::Upload {
        upload: Upload { profile: profile.into(), ..to_p(vec![content]) },
        identity: Arc::new(TestBox::new()),
        now: now(),
    };
    let begun = CertzRules.apply(&RotationState::from(profiles.clone()), request("p")).unwrap();
    let (stream, Reply::Request(pem)) = begun else { panic!("a request is answered by one") };
    assert_eq!(stream.profiles.profile("p").unwrap().freshness(EntityKind::CertificateChain), None);
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    let key = {
        let parsed = X509CertificationRequest::from_der(&block.contents).unwrap().1;
        rcgen::SubjectPublicKeyInfo::from_der(parsed.certification_request_info.subject_pki.raw)
    };
    let signed = named("p", &[]).signed_by(&key.unwrap(), &root.issuer).unwrap();
    let chain = || {
        let source = ChainSource::Given(vec![signed.der().clone()]);
        Content::Chain(source, KeySource::Generated)
    };
    let (taken, reply) = CertzRules.apply(&stream, upload("p", chain())).unwrap();
    assert_eq!(reply, Reply::Uploaded);
    assert!(taken.profiles.profile("p").unwrap().chain.is_some());
    let (again, _) = CertzRules.apply(&taken, upload("p", trust(&[&root]))).unwrap();
    for (state, change) in [
        (&stream, request("q")),
        (&stream, upload("q", chain())),
        (&again, upload("q", trust(&[&root]))),
        (&stream, request("")),
    ] {
        let refused = CertzRules.apply(state, change).unwrap_err();
        assert_eq!(
            (refused.kind, refused.what.as_str()),
            (CertzErrorKind::Invalid, "ssl_profile_id")
        );
    }
    // The next stream knows nothing of that key.
    let next = RotationState::from(profiles);
    assert_eq!(
        CertzRules.apply(&next, upload("p", chain())).unwrap_err().kind,
        CertzErrorKind::Invalid
    );
}

#[test]
fn malformed_material_is_named() {
    let pem = |text: &str| certificates("here", Encoding::Pem, text.as_bytes());
    let good = Authority::new("root").pem;
    let torn = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    for (result, want) in [
        (pem(""), "here: certificate: none is in the PEM text"),
        (pem("-----BEGIN CERTIFICATE-----\n!\n"), "here: certificate: the PEM text is malformed"),
        (pem(torn), "here: certificate 1: the certificate is malformed"),
        (pem(&format!("{good}{torn}")), "here: certificate 2: the certificate is malformed"),
        (
            certificates("here", Encoding::Der, b""),
            "here: certificate 1: the certificate is malformed",
        ),
        (certificates("here", Encoding::Crt, good.as_bytes()), ""),
        (pem(&good), ""),
    ] {
        let message = result.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(message.starts_with(want) && message.is_empty() == want.is_empty(), "{message}");
    }
    let encrypted =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for (text, want) in [
        ("", "private key: no unencrypted key is in the PEM text"),
        (encrypted, "private key: no unencrypted key is in the PEM text"),
        ("-----BEGIN PRIVATE KEY-----\nsecret!\n", "private key: the PEM text is malformed"),
    ] {
        let message = private_key("here", Encoding::Pem, text.as_bytes()).unwrap_err().to_string();
        assert!(message.contains(want) && !message.contains("secret"), "{message}");
    }
}

// proves 5.65
#[test]
fn a_bundle_of_another_implementation_is_read() {
    const BLOCK: &str = include_str!("two-authorities.p7b");
    const PEM: &[u8] = include_bytes!("two-authorities.pem");
    let same = TrustBundle::new("", certificates("", Encoding::Pem, PEM).unwrap()).unwrap();
    assert_eq!(TrustBundle::from_pkcs7("", BLOCK).unwrap().stored(), same.stored());
    let renamed = BLOCK.replace("PKCS7", "CMS");
    assert_eq!(TrustBundle::from_pkcs7("", &renamed).unwrap().len(), 2);
    let body = BLOCK.lines().nth(1).unwrap();
    for (text, want) in [
        ("", "the PEM text is malformed"),
        (&*BLOCK.replace("PKCS7", "CERTIFICATE"), "the block is labelled `CERTIFICATE`"),
        (&*format!("{BLOCK}{BLOCK}"), "something follows the block"),
        (&*BLOCK.replace(body, &body.replace("MII", "MAA")), "not a SignedData with certificates"),
        (&*BLOCK.replace(body, ""), "not a SignedData with certificates"),
    ] {
        let error = TrustBundle::from_pkcs7("here", text).unwrap_err().to_string();
        assert!(error.starts_with("here: PKCS#7") && error.contains(want), "{error}");
    }
}

// proves 5.7
#[test]
fn stored_entities_round_trip() {
    let root = Authority::new("root");
    let (server, key) = root.leaf(&named("server", &[]));
    let rule = |name: &str, subject: &str| Rule {
        name: name.into(),
        subjects: vec![subject.into(), "b".into()],
        authorities: vec![root.digest().into()],
    };
    let policy =
        AuthenticationPolicy::new("", vec![rule("a b%", "spiffe://x/é \u{a0}*"), rule("c", "*")]);
    let profile = profile_of(vec![
        chain(&format!("{server}{}", root.pem), &key),
        trust(&[&root, &Authority::new("other")]),
        revoked(&[root.revokes(&[1, 2], 1), root.revokes(&[1], 2)]),
        Content::Policy(policy.unwrap()),
    ]);
    let own = profile_of(vec![Content::Chain(ChainSource::Idevid, KeySource::Unspecified)]);
    for profile in [profile, own] {
        let mut again = Profile::default();
        for kind in EntityKind::ALL {
            let Some(octets) = StoredEntity::encode(&profile, kind) else { continue };
            let freshness = profile.freshness(kind).unwrap().clone();
            assert_eq!(freshness, Freshness { version: "v1".into(), created_on: 7 });
            StoredEntity::restore(&mut again, kind, freshness, &octets, &TestBox::new()).unwrap();
            assert_eq!(StoredEntity::encode(&again, kind).unwrap(), octets, "{kind:?}");
            for torn in [&octets[..octets.len() - 1], &[]] {
                if kind == EntityKind::AuthenticationPolicy && !torn.is_empty() {
                    continue; // a text without its last newline is the same text
                }
                let freshness = Freshness::default();
                StoredEntity::restore(&mut again, kind, freshness, torn, &TestBox::new())
                    .unwrap_err();
            }
        }
        assert_eq!(
            again.chain.unwrap().value.followed_identity(),
            profile.chain.unwrap().value.followed_identity()
        );
        assert_eq!(again.policy.map(|it| it.value), profile.policy.map(|it| it.value));
    }
}

#[test]
fn debug_output_contains_no_private_key() {
    /// Where the secret number is in the PKCS#8 form of a P-256 key (RFC 5915 section 3).
    const SECRET: std::ops::Range<usize> = 36..68;
    let (server, key) = Authority::new("root").leaf(&named("server", &[]));
    let content = chain(&server, &key);
    let profile = profile_of(vec![content.clone()]);
    let octets = StoredEntity::encode(&profile, EntityKind::CertificateChain).unwrap();
    let secret = &octets[5..][SECRET];
    let digits: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let der = KeyPair::from_pem(&key).unwrap().serialize_der();
    assert_eq!(&der[SECRET], secret, "the store alone has it");
    for output in [format!("{content:?}"), format!("{profile:?}"), format!("{profile:#?}")] {
        assert!(!output.contains(&digits) && !output.contains(&format!("{secret:?}")), "{output}");
    }
}
