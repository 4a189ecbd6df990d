//! gnsi.certz over real TLS: the certificates that new connections meet, and the fate of existing ones.

pub(crate) mod rig;

use std::collections::BTreeMap;
use std::net::IpAddr;

use holdfast_proto::gnsi::certz;
use holdfast_proto::gnsi::certz::certificate::{self, KeySource};
use holdfast_proto::gnsi::certz::existing_entity::EntityType;
use holdfast_proto::gnsi::certz::rotate_certificate_request;
use holdfast_security::certz::{BoxIdentityKind, ChainSource, Content, Entity, Freshness, Upload};
use holdfast_store::Artefact;
use rcgen::{CertificateParams, SubjectPublicKeyInfo};
use rustls_pki_types::UnixTime;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer;

use self::rig::*;
use super::harness::{AfterFinalize, FinalizingClient};
use crate::gnsi::TlsProfiles;
use crate::gnsi::certz::differences;
use crate::settings::TlsSettings;

// proves 5.6, 5.60, 5.61, 5.62, 5.63, 5.78, 5.79
#[tokio::test]
async fn profiles_come_and_go() {
    let folder = TempDir::new().unwrap();
    let running = ListeningAgent::start(&folder).await;
    let ada = running.ada().await;
    let default = "system_default_profile";
    assert_eq!(ada.list().await.unwrap(), [default]);
    assert_eq!(ada.add("p").await, Ok(()));
    assert_eq!(ada.add("q").await, Ok(()));
    assert_eq!(ada.list().await.unwrap(), [default, "p", "q"]);
    for (id, want) in [
        ("", Code::InvalidArgument),
        ("a/b", Code::InvalidArgument),
        ("p", Code::AlreadyExists),
        (default, Code::AlreadyExists),
    ] {
        assert_eq!(ada.add(id).await, Err(want), "{id}");
    }
    let root = Authority::new("root");
    ada.install("p", vec![chain("v1", &root.server())]).await.unwrap();
    for (id, reason) in [
        ("nobody", "there is no TLS profile `nobody`"),
        ("q", "the TLS profile `q` has no certificate to show"),
    ] {
        let refused = running.bind(id).await.unwrap_err().to_string();
        assert!(refused.contains(reason), "{refused}");
    }
    running.bind("p").await.unwrap();
    for (id, want) in [
        ("", Err(Code::InvalidArgument)),
        ("nobody", Err(Code::NotFound)),
        ("p", Err(Code::FailedPrecondition)),
        (default, Err(Code::FailedPrecondition)),
        ("q", Ok(())),
    ] {
        assert_eq!(ada.delete(id).await, want, "{id}");
    }
    running.bind(default).await.unwrap();
    assert_eq!(ada.delete("p").await, Ok(()));
    assert_eq!(ada.list().await.unwrap(), [default]);

    use certz::CsrSuite;
    assert!(ada.can_generate(CsrSuite::CsrsuiteX509KeyTypeRsa4096SignatureAlgorithmSha2512).await);
    assert!(
        ada.can_generate(CsrSuite::CsrsuiteX509KeyTypeEcdsaSecp521r1SignatureAlgorithmSha2512)
            .await
    );
    assert!(
        !ada.can_generate(CsrSuite::CsrsuiteX509KeyTypeEcdsaSecp384r1SignatureAlgorithmSha2256)
            .await
    );
    assert!(!ada.can_generate(CsrSuite::CsrsuiteX509KeyTypeEddsaEd25519).await);
    assert!(!ada.can_generate(CsrSuite::CsrsuiteCipherUnspecified).await);
    let manifest = ada.certz().get_integrity_manifest(certz::GetIntegrityManifestRequest {}).await;
    assert_eq!(coded(manifest.map(drop)), Err(Code::Unimplemented));

    // One RPC of the service at a time; the first goes on.
    ada.add("p").await.unwrap();
    let mut first = ada.rotate().await;
    first.upload("p", vec![trust("v1", &[&root])]).await.unwrap();
    let (_requests, sent) = mpsc::channel(1);
    let second = ada.certz().rotate(ReceiverStream::new(sent)).await;
    assert_eq!(coded(second.map(drop)), Err(Code::Unavailable));
    assert_eq!(ada.add("q").await, Err(Code::Unavailable));
    assert_eq!(ada.delete("p").await, Err(Code::Unavailable));
    assert_eq!(ada.list().await, Err(Code::Unavailable));
    assert_eq!(first.finalize("p").await, Ok(()));
    assert_eq!(ada.delete("p").await, Ok(()));
}

#[tokio::test]
async fn a_finalize_is_answered_and_ends_the_stream() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let (_running, ada) = bound(&folder, &root).await;
    ada.add("new").await.unwrap();
    for kind in FinalizingClient::ALL {
        let mut rotation = ada.rotate().await;
        rotation.upload("new", vec![trust(&format!("{kind:?}"), &[&root])]).await.unwrap();
        let finalize = certz::RotateCertificateRequest {
            ssl_profile_id: "new".to_owned(),
            rotate_request: Some(rotate_certificate_request::RotateRequest::FinalizeRotation(
                certz::FinalizeRequest {},
            )),
            ..certz::RotateCertificateRequest::default()
        };
        let Rotation { requests, answers, .. } = rotation;
        kind.finalizes(requests, answers, finalize, AfterFinalize::Ends).await;
    }
    assert_eq!(ada.delete("new").await, Ok(()), "no rotation is left");
}

// proves 5.1, 5.2, 5.71, 5.72, 5.76
#[tokio::test]
async fn trial_profiles_apply_to_new_connections_alone() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let other = Authority::new("other");
    let (running, ada) = bound(&folder, &root).await;
    let of_root = root.client("eve", 1);
    let of_other = other.client("eve", 1);
    let first = running.connect(&root.pem, Some(&of_root)).await.unwrap();
    assert!(first.works().await && ada.works().await, "what is connected is left alone");
    running.connect(&running.own, None).await.map(drop).unwrap_err();
    running.connect(&root.pem, Some(&of_other)).await.map(drop).unwrap_err();

    let entities = || vec![chain("v2", &other.server()), trust("v2", &[&other])];
    let mut rotation = first.rotate().await;
    rotation.upload("p", entities()).await.unwrap();
    let second = running.connect(&other.pem, Some(&of_other)).await.unwrap();
    running.connect(&root.pem, Some(&of_root)).await.map(drop).unwrap_err();
    assert!(first.works().await && second.works().await && ada.works().await);
    rotation.abandon().await;
    assert!(first.works().await && !second.works().await, "its authority was never final");
    running.connect(&root.pem, Some(&of_root)).await.unwrap();
    running.connect(&other.pem, Some(&of_other)).await.map(drop).unwrap_err();

    // Entities that do not fit together change nothing, and end the stream.
    for entities in [
        vec![chain("v2", &other.server())],
        vec![trust("v2", &[&other])],
        vec![chain("v2", &Pair { key: of_other.key.clone(), ..root.server() })],
    ] {
        let mut rotation = first.rotate().await;
        assert_eq!(rotation.upload("p", entities).await, Err(Code::InvalidArgument));
        running.connect(&root.pem, Some(&of_root)).await.unwrap();
    }
    first.install("p", entities()).await.expect("whoever finalizes is told how that went");
    running.connect(&other.pem, Some(&of_other)).await.unwrap();
    running.connect(&root.pem, Some(&of_root)).await.map(drop).unwrap_err();
    assert!(!first.works().await && second.works().await && ada.works().await);
}

// proves 5.7
#[tokio::test]
async fn final_profiles_survive_a_restart_and_trials_do_not() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let other = Authority::new("other");
    let (running, ada) = bound(&folder, &root).await;
    let client = root.client("eve", 1);
    let mut rotation = ada.rotate().await;
    rotation.upload("p", vec![chain("v2", &other.server()), trust("v2", &[&other])]).await.unwrap();
    let ListeningAgent { agent, _server, .. } = running;
    drop((_server, rotation, ada));
    agent.stop().await; // nothing was said to be kept
    let running = ListeningAgent::start(&folder).await;
    running.wait_for_profile("p").await;
    let eve = running.connect(&root.pem, Some(&client)).await.unwrap();
    assert_eq!(eve.list().await.unwrap(), ["system_default_profile", "p"]);
    let state = eve.state().await;
    assert_eq!(state["certificate-version"], "v1");
    assert_eq!(state["ca-trust-bundle-created-on"], "1700000000000000000");
}

// proves 5.64, 5.66, 5.69
#[tokio::test]
async fn invalid_certz_messages_have_their_codes() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let (_running, ada) = bound(&folder, &root).await;
    ada.add("empty").await.unwrap();
    let existing = |profile: &str, kind: EntityType| {
        let existing =
            certz::ExistingEntity { ssl_profile_id: profile.to_owned(), entity_type: kind.into() };
        entity("v2", certz::entity::Entity::ExistingEntity(existing))
    };
    let bundle = EntityType::TrustBundle;
    let idevid = certz::Certificate {
        certificate_type: Some(certificate::CertificateType::CertSource(
            certz::certificate::CertSource::Idevid.into(),
        )),
        ..certificate("", None)
    };
    let chain_entity = |certificates: &[certz::Certificate]| {
        entity("v2", certz::entity::Entity::CertificateChain(chain_of(certificates)))
    };
    let server = root.server();
    let keyless = certificate(&server.certificate, None);
    let unnamed =
        certz::Certificate { encoding: 0, ..certificate(&server.certificate, Some(&server.key)) };
    let foreign = prost_types::Any { type_url: "x/y".to_owned(), value: Vec::new() };
    let foreign = certz::authentication_policy::Policy::Serialized(foreign);
    let foreign = certz::AuthenticationPolicy { policy: Some(foreign) };
    let invalid = Code::InvalidArgument;
    for (profile, entities, want) in [
        ("", vec![trust("v2", &[&root])], Err(invalid)),
        ("nobody", vec![trust("v2", &[&root])], Err(Code::NotFound)),
        ("system_default_profile", vec![trust("v2", &[&root])], Err(Code::FailedPrecondition)),
        ("p", vec![], Err(invalid)),
        ("p", vec![certz::Entity::default()], Err(invalid)),
        ("empty", vec![existing("nobody", bundle)], Err(Code::NotFound)),
        ("empty", vec![existing("", bundle)], Err(invalid)),
        ("empty", vec![existing("p", EntityType::Unspecified)], Err(invalid)),
        ("empty", vec![existing("p", bundle), trust("v2", &[&root])], Err(invalid)),
        ("empty", vec![existing("p", bundle)], Ok(())),
        ("empty", vec![chain_entity(&[idevid.clone(), keyless.clone()])], Err(invalid)),
        ("empty", vec![chain_entity(std::slice::from_ref(&keyless))], Err(invalid)),
        ("empty", vec![chain_entity(&[unnamed])], Err(invalid)),
        (
            "empty",
            vec![entity("v2", certz::entity::Entity::AuthenticationPolicy(foreign))],
            Err(invalid),
        ),
        ("empty", vec![chain_entity(&[idevid])], Ok(())),
    ] {
        let mut rotation = ada.rotate().await;
        assert_eq!(
            rotation.upload(profile, entities.clone()).await,
            want,
            "{profile} {entities:?}"
        );
        if want.is_ok() {
            rotation.abandon().await;
        }
    }
    let mut rotation = ada.rotate().await;
    assert_eq!(rotation.exchange("p", None).await, Err(invalid));
    let mut rotation = ada.rotate().await;
    rotation.upload("p", vec![trust("v2", &[&root])]).await.unwrap();
    assert_eq!(rotation.upload("empty", vec![trust("v2", &[&root])]).await, Err(invalid));
}

// proves 5.8
#[tokio::test]
async fn a_version_in_use_is_taken_only_with_force() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let (_running, ada) = bound(&folder, &root).await;
    let again = || vec![trust("v1", &[&root])];
    assert_eq!(ada.install("p", again()).await, Err(Code::AlreadyExists));
    let mut rotation = Rotation { overwrite: true, ..ada.rotate().await };
    rotation.upload("p", again()).await.unwrap();
    rotation.finalize("p").await.unwrap();
    assert_eq!(ada.install("p", vec![trust("v2", &[&root])]).await, Ok(()));
}

// proves 5.67, 5.68
#[tokio::test]
async fn a_key_can_be_made_on_the_box() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let (running, ada) = bound(&folder, &root).await;
    let client = root.client("eve", 1);
    let suite = certz::CsrSuite::CsrsuiteX509KeyTypeRsa2048SignatureAlgorithmSha2256;
    let mut rotation = ada.rotate().await;
    let csr = rotation.csr("p", suite).await.unwrap();
    let block = x509_parser::pem::parse_x509_pem(csr.as_bytes()).unwrap().1;
    let request = X509CertificationRequest::from_der(&block.contents).unwrap().1;
    request.verify_signature().unwrap();
    let key = request.certification_request_info.subject_pki.raw;
    let key = SubjectPublicKeyInfo::from_der(key).unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let signed = params.signed_by(&key, &root.issuer).unwrap().pem();
    let generated = certz::Certificate {
        private_key_type: Some(certificate::PrivateKeyType::KeySource(KeySource::Generated.into())),
        ..certificate(&signed, None)
    };
    let entity = entity("v2", certz::entity::Entity::CertificateChain(chain_of(&[generated])));
    rotation.upload("p", vec![entity.clone()]).await.unwrap();
    running.connect(&root.pem, Some(&client)).await.unwrap();
    rotation.finalize("p").await.unwrap();
    running.connect(&root.pem, Some(&client)).await.unwrap();
    assert_eq!(ada.state().await["certificate-version"], "v2");
    // Another stream does not have that key.
    let mut rotation = Rotation { overwrite: true, ..ada.rotate().await };
    assert_eq!(rotation.upload("p", vec![entity]).await, Err(Code::InvalidArgument));
    let mut rotation = ada.rotate().await;
    let suite = certz::CsrSuite::CsrsuiteX509KeyTypeEddsaEd25519;
    assert_eq!(rotation.csr("p", suite).await, Err(Code::Unimplemented));
}

// proves 5.70, 5.73, 5.74
#[tokio::test]
async fn revocation_and_policy_hold_at_the_next_handshake() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let other = Authority::new("other");
    let (running, ada) = bound(&folder, &root).await;
    ada.install("p", vec![trust("v2", &[&root, &other])]).await.unwrap();
    let (eve, bob, guest) = (root.client("eve", 5), root.client("bob", 6), other.client("eve", 5));
    let connect = async |pair: &Pair| running.connect(&root.pem, Some(pair)).await;
    let connected = connect(&eve).await.unwrap();
    connect(&guest).await.unwrap();

    let mut rotation = ada.rotate().await;
    rotation.upload("p", vec![revoked("v1", root.revokes(5))]).await.unwrap();
    connect(&eve).await.map(drop).unwrap_err();
    connect(&bob).await.unwrap();
    connect(&guest).await.unwrap();
    assert!(connected.works().await, "running connections live on");
    rotation.abandon().await;
    connect(&eve).await.unwrap();
    ada.install("p", vec![revoked("v1", root.revokes(6))]).await.unwrap();
    connect(&bob).await.map(drop).unwrap_err();

    ada.install("p", vec![policy("v1", "spiffe://net/*", &root)]).await.unwrap();
    connect(&eve).await.unwrap();
    connect(&guest).await.map(drop).unwrap_err();
    ada.install("p", vec![policy("v2", "spiffe://net/eve", &other)]).await.unwrap();
    connect(&guest).await.unwrap();
    connect(&eve).await.map(drop).unwrap_err();
}

// proves 5.9, 5.76, 5.77
#[tokio::test]
async fn readers_see_what_new_connections_meet() {
    let folder = TempDir::new().unwrap();
    let root = Authority::new("root");
    let running = ListeningAgent::start(&folder).await;
    running.wait_for_profile("system_default_profile").await;
    let ada = running.ada().await;
    let state = ada.state().await;
    assert_eq!(state["ssl-profile-id"], "system_default_profile");
    assert_eq!(state["certificate-id"], "system_default_profile");
    assert!(!state.contains_key("certificate-version"));
    // The identity of the box expires later than 64 bits can count in nanoseconds.
    assert!(!state.contains_key("certificate-expires-on"));
    let accepts: u64 = state["connection-accepts"].parse().unwrap();

    ada.add("p").await.unwrap();
    let entities = vec![chain("v1", &root.server()), trust("t1", &[&root])];
    ada.install("p", entities).await.unwrap();
    assert_eq!(ada.state().await["ssl-profile-id"], "system_default_profile");
    running.bind("p").await.unwrap();
    running.wait_for_profile("p").await;
    let state = ada.state().await;
    for (leaf, want) in [
        ("certificate-id", "p"),
        ("certificate-version", "v1"),
        ("certificate-created-on", "1700000000000000000"),
        ("certificate-expires-on", "2208988800000000000"),
        ("ca-trust-bundle-version", "t1"),
        ("ca-trust-bundle-created-on", "1700000000000000000"),
    ] {
        assert_eq!(state[leaf], want, "{leaf}");
    }
    assert!(!state.contains_key("authentication-policy-version"));

    let mut rotation = ada.rotate().await;
    let entities = vec![revoked("c1", root.revokes(9)), policy("a1", "*", &root)];
    rotation.upload("p", entities).await.unwrap();
    let state = ada.state().await;
    assert_eq!(state["certificate-revocation-list-bundle-version"], "c1");
    assert_eq!(state["certificate-revocation-list-bundle-created-on"], "1700000000000000000");
    assert_eq!(state["authentication-policy-version"], "a1");
    assert_eq!(state["authentication-policy-created-on"], "1700000000000000000");
    rotation.abandon().await;
    assert!(!ada.state().await.contains_key("authentication-policy-version"));

    running.connect(&root.pem, Some(&root.client("eve", 1))).await.unwrap();
    running.connect(&root.pem, None).await.map(drop).unwrap_err();
    let state = ada.state().await;
    let count = |leaf: &str| state[leaf].parse::<u64>().unwrap();
    assert_eq!(count("connection-accepts"), accepts + 1);
    assert!(count("connection-rejects") > 0);
    assert!(count("last-connection-accept") > 0 && count("last-connection-reject") > 0);
}

// proves 5.69
#[tokio::test]
async fn identities_of_the_box_are_read_from_their_files() {
    let folder = TempDir::new().unwrap();
    let maker = Authority::new("maker");
    let owner = Authority::new("owner");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let files = |name: &str, pair: &Pair| {
        let key = file(&format!("{name}-key.pem"), &pair.key);
        (file(&format!("{name}.pem"), &pair.certificate), key)
    };
    let (oidevid_cert, oidevid_key) = files("oidevid", &owner.server());
    let settings = TlsSettings {
        idevid: Some(files("idevid", &maker.server())),
        oidevid_cert: Some(oidevid_cert),
        oidevid_key: Some(oidevid_key),
        ..TlsSettings::default()
    };
    let address: IpAddr = "127.0.0.1".parse().unwrap();
    let state = folder.path().join("state");
    holdfast_store::create_private_folder(&state).unwrap();
    let open = |stored: &BTreeMap<String, Artefact>| {
        TlsProfiles::new(settings.clone(), state.clone(), &[address], stored).unwrap()
    };
    let profiles = open(&BTreeMap::new());
    let identity = profiles.identity();
    let issuer = |certified: &rustls::sign::CertifiedKey| {
        let (_, leaf) = x509_parser::parse_x509_certificate(&certified.cert[0]).unwrap();
        leaf.issuer().to_string()
    };
    let issuer_of = |which| identity.certified(which).map(|it| issuer(&it)).unwrap_or_default();
    assert_eq!(issuer_of(BoxIdentityKind::Idevid), "CN=maker");
    assert_eq!(issuer_of(BoxIdentityKind::Oidevid), "CN=owner");
    assert!(
        !issuer_of(BoxIdentityKind::Server).contains("maker"),
        "the server's own certificate stays"
    );

    let mut all = holdfast_security::certz::Profiles::default();
    for (id, source) in [("m", ChainSource::Idevid), ("o", ChainSource::Oidevid)] {
        let content = Content::Chain(source, holdfast_security::certz::KeySource::Unspecified);
        let entity = Entity { freshness: Freshness::default(), content };
        let upload = Upload { profile: id.into(), entities: vec![entity] };
        all = all.with_added(id).unwrap();
        all = all.with_upload(&upload, None, &*identity, UnixTime::now()).unwrap();
    }
    // An identity that cannot be used is left out, and the box starts nevertheless.
    let broken = TlsSettings {
        idevid: Some((file("broken.pem", "none"), file("broken-key.pem", "none"))),
        ..TlsSettings::default()
    };
    let broken = TlsProfiles::new(broken, state.clone(), &[address], &BTreeMap::new()).unwrap();
    assert!(broken.identity().certified(BoxIdentityKind::Idevid).is_none());

    // Stored rows follow the files.
    let rows = differences(&holdfast_security::certz::Profiles::default(), &all);
    let rows = rows.into_iter().filter_map(|row| Some((row.name, row.artefact?))).collect();
    let again = open(&rows).last();
    for (id, want) in [("m", "CN=maker"), ("o", "CN=owner")] {
        let chain = &again.profile(id).unwrap().chain.as_ref().unwrap().value;
        assert_eq!(issuer(chain.certified()), want);
    }
}
