//! Authentication over real TLS connections: callers that reach a service, and callers that do not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod accounts;
mod fixture;

use std::time::Duration;

use holdfast::settings::ImpersonationPolicy;
use holdfast_base::Role;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tonic::{
    Code::{PermissionDenied, Unauthenticated},
    transport::{Certificate, ClientTlsConfig, Endpoint},
};

use crate::fixture::{Agent, Authority};

/// A ClientHello of TLS 1.`minor - 1` after RFC 5246 7.4.1.2, which is acceptable in all other respects.
fn client_hello(minor: u8) -> Vec<u8> {
    let mut hello = vec![3, minor];
    hello.extend([0x5a; 32]); // random
    hello.extend([0]); // no session
    hello.extend([0, 2, 0xc0, 0x2b]); // ECDHE-ECDSA with AES128-GCM
    hello.extend([1, 0]); // no compression
    hello.extend([0, 22]); // extensions
    hello.extend([0, 13, 0, 4, 0, 2, 4, 3]); // signature_algorithms: ECDSA P-256 with SHA-256
    hello.extend([0, 10, 0, 4, 0, 2, 0, 23]); // supported_groups: P-256
    hello.extend([0, 11, 0, 2, 1, 0]); // ec_point_formats: uncompressed
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    record
}

/// Sends bytes, and returns all that the agent sends before it closes the connection.
async fn answer_to(agent: &Agent, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(agent.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let closed = timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await;
    let _reset_or_end = closed.expect("the agent closes the connection");
    answer
}

// proves 1.1
#[tokio::test]
async fn cleartext_and_old_tls_are_refused() {
    const ALERT: u8 = 21;
    const HANDSHAKE: u8 = 22;
    const PROTOCOL_VERSION: u8 = 70;
    let agent = Agent::with_users().await;

    for old in [1, 2] {
        let answer = answer_to(&agent, &client_hello(old)).await;
        assert_eq!((answer[0], answer.last()), (ALERT, Some(&PROTOCOL_VERSION)), "{answer:?}");
    }
    let mut stream = TcpStream::connect(agent.address).await.unwrap();
    stream.write_all(&client_hello(3)).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), HANDSHAKE, "it was the version that was refused");

    let answer = answer_to(&agent, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    assert!(answer.is_empty() || answer[0] == ALERT, "no HTTP/2 settings come back: {answer:?}");

    let cleartext =
        Endpoint::from_shared(format!("http://{}", agent.address)).unwrap().connect().await;
    if let Ok(channel) = cleartext {
        fixture::Client(channel).get("username ada\npassword secret").await.unwrap_err();
    }
    let client = agent.connect(None).await.unwrap();
    assert_eq!(client.get("username ada\npassword secret").await.unwrap(), "ada admin");
}

#[tokio::test]
async fn tls_1_2_and_1_3_are_spoken_with_alpn_h2() {
    let agent = Agent::with_users().await;
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let mut roots = rustls::RootCertStore::empty();
        for der in rustls_pki_types::pem::PemObject::pem_file_iter(agent.ca_file()).unwrap() {
            roots.add(der.unwrap()).unwrap();
        }
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let mut config = rustls::ClientConfig::builder_with_provider(provider.into())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        let stream = TcpStream::connect(agent.address).await.unwrap();
        let name = agent.address.ip().into(); // the certificate names the address it listens on
        let stream = connector.connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
        assert_eq!(stream.get_ref().1.protocol_version(), Some(version.version));
    }
}

#[tokio::test]
async fn a_client_that_trusts_another_authority_does_not_connect() {
    let agent = Agent::with_users().await;
    let other = Authority::new("someone else");
    let config = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(other.pem))
        .domain_name("localhost");
    let endpoint = Endpoint::from_shared(format!("https://{}", agent.address)).unwrap();
    endpoint.tls_config(config).unwrap().connect().await.unwrap_err();
}

// proves 1.3, 1.7
#[tokio::test]
async fn a_password_names_the_caller() {
    let agent = Agent::with_users().await;
    let client = agent.connect(None).await.unwrap();
    for (metadata, get, set) in [
        ("username ada\npassword secret", Ok("ada admin"), Ok("ada admin")),
        ("username rob\npassword secret", Ok("rob read-only"), Err(PermissionDenied)),
        ("username ada\npassword wrong", Err(Unauthenticated), Err(Unauthenticated)),
        ("username nobody\npassword secret", Err(Unauthenticated), Err(Unauthenticated)),
        // none of these is a guess, so none is charged
        ("username ada", Err(Unauthenticated), Err(Unauthenticated)),
        ("username ada\npassword ", Err(Unauthenticated), Err(Unauthenticated)),
        ("password secret", Err(Unauthenticated), Err(Unauthenticated)),
        ("", Err(Unauthenticated), Err(Unauthenticated)),
        ("username ada\nusername rob\npassword secret", Err(Unauthenticated), Err(Unauthenticated)),
    ] {
        assert_eq!(client.get(metadata).await, get.map(str::to_owned), "Get with {metadata:?}");
        assert_eq!(client.set(metadata).await, set.map(str::to_owned), "Set with {metadata:?}");
    }
}

#[tokio::test]
async fn health_is_for_those_who_log_in() {
    let agent = Agent::with_users().await;
    let client = agent.connect(None).await.unwrap();
    assert_eq!(client.health("").await, Err(Unauthenticated));
    assert_eq!(client.health("username rob\npassword secret").await, Ok(()));
}

#[tokio::test]
async fn logins_are_refused_without_users() {
    let agent = Agent::without_users().await;
    let client = agent.connect(None).await.unwrap();
    for metadata in
        ["username admin\npassword admin", "username admin\npassword ", "username admin"]
    {
        assert_eq!(client.get(metadata).await, Err(Unauthenticated));
    }
}

#[tokio::test]
async fn a_changed_user_is_authenticated_again() {
    let agent = Agent::with_users().await;
    let client = agent.connect(None).await.unwrap();
    let ada = "username ada\npassword secret";
    assert_eq!(client.get(ada).await.unwrap(), "ada admin");
    agent.set_user("ada", Role::ReadOnly, "secret").await;
    assert_eq!(client.set(ada).await, Err(PermissionDenied));
    agent.set_user("ada", Role::Admin, "other").await;
    assert_eq!(client.get(ada).await, Err(Unauthenticated));
    agent.users.delete(&"ada".into()).await.unwrap();
    assert_eq!(client.get("username ada\npassword other").await, Err(Unauthenticated));
}

#[tokio::test]
async fn guessing_is_rate_limited_without_lockout() {
    let agent = Agent::with_users().await;
    let guesser = agent.connect(None).await.unwrap();
    let working = agent.connect(None).await.unwrap();
    let ada = "username ada\npassword secret";
    working.get(ada).await.unwrap();
    for _ in 0..6 {
        assert_eq!(guesser.get("username ada\npassword guess").await, Err(Unauthenticated));
    }
    assert_eq!(guesser.get(ada).await, Err(Unauthenticated), "even the right password has to wait");
    assert_eq!(
        working.get(ada).await.unwrap(),
        "ada admin",
        "a connection that is logged in goes on"
    );
    tokio::time::sleep(Duration::from_millis(1100)).await; // the first wait is one second
    assert_eq!(guesser.get(ada).await.unwrap(), "ada admin");
}

#[tokio::test]
async fn guesses_sent_all_at_once_are_slowed_down_too() {
    const GUESSES: usize = 40;
    let agent = Agent::with_users().await;
    let guesser = agent.connect(None).await.unwrap();
    let guess = |number| {
        let guesser = fixture::Client(guesser.0.clone());
        tokio::spawn(async move {
            guesser.refusal(&format!("username ada\npassword guess{number}")).await
        })
    };
    let mut checked = 0;
    for guess in (0..GUESSES).map(guess).collect::<Vec<_>>() {
        let refusal = guess.await.unwrap();
        checked += usize::from(refusal.starts_with("wrong"));
        assert!(
            refusal.starts_with("wrong") || refusal.starts_with("too many failed logins"),
            "{refusal}"
        );
    }
    assert!(checked < 10, "{checked} guesses were checked");
}

// proves 1.2
#[tokio::test]
async fn with_a_client_authority_only_its_clients_connect() {
    let ours = Authority::new("ours");
    let theirs = Authority::new("theirs");
    let agent = Agent::with_client_authority(&ours, Role::Admin).await;
    let ada = "username ada\npassword secret";
    for identity in [None, Some(theirs.client("ada", &[]))] {
        // With TLS 1.3, the client learns of a refusal only after its own handshake: the first RPC fails.
        if let Ok(client) = agent.connect(identity).await {
            let code = client.get(ada).await.unwrap_err();
            assert_ne!(code, Unauthenticated, "refused by TLS, not by a service");
        }
    }
    let client = agent.connect(Some(ours.client("anyone", &[]))).await.unwrap();
    assert_eq!(client.get(ada).await.unwrap(), "ada admin");
}

// proves 1.4, 1.5
#[tokio::test]
async fn a_certificate_names_the_caller_unless_the_metadata_does() {
    let authority = Authority::new("ours");
    let agent = Agent::with_clients(&authority, Role::Admin, ImpersonationPolicy::Anyone).await;
    let spiffe = "spiffe://example.org/collector";
    let username = format!("username {spiffe}");
    for (common_name, uris, metadata, get, set) in [
        // the certificate alone
        ("collector", &[spiffe][..], "", Ok("spiffe://example.org/collector admin"), true),
        ("collector", &[], "", Ok("collector admin"), true),
        ("collector", &["https://example.org"], "", Ok("collector admin"), true),
        ("rob", &[], "", Ok("rob read-only"), false), // a local user has its own role
        ("", &[], "", Err(Unauthenticated), false),
        ("two", &[spiffe, "spiffe://example.org/b"], "", Err(Unauthenticated), false),
        // a name takes precedence over the certificate, and needs no password
        ("collector", &[spiffe], "username ada", Ok("ada admin"), true),
        ("collector", &[spiffe], "username rob", Ok("rob read-only"), false),
        ("collector", &[spiffe], "username stranger", Ok("stranger read-only"), false),
        ("collector", &[spiffe], "username rob\npassword secret", Ok("rob read-only"), false),
        // but the URI of another certificate is refused
        ("collector", &[spiffe], "username spiffe://example.org/b", Err(Unauthenticated), false),
        ("collector", &[spiffe], &username, Ok("spiffe://example.org/collector admin"), true),
        // and a password that is sent must be right
        ("collector", &[spiffe], "username ada\npassword wrong", Err(Unauthenticated), false),
    ] {
        let client = agent.connect(Some(authority.client(common_name, uris))).await.unwrap();
        let row = format!("{common_name} {uris:?} {metadata:?}");
        assert_eq!(client.get(metadata).await, get.map(str::to_owned), "Get by {row}");
        let refused = if get.is_ok() { PermissionDenied } else { Unauthenticated };
        assert_eq!(
            client.set(metadata).await.map(drop),
            if set { Ok(()) } else { Err(refused) },
            "Set by {row}"
        );
    }
}

// proves 1.6
#[tokio::test]
async fn a_certificate_gives_its_own_names_alone_unless_it_may_speak_for_others() {
    let authority = Authority::new("ours");
    let agent = Agent::with_client_authority(&authority, Role::Admin).await;
    let spiffe = "spiffe://example.org/collector";
    for (common_name, names, metadata, get, set) in [
        ("collector", &[spiffe][..], "username ada", Err(Unauthenticated), Unauthenticated),
        // A common name is ignored if there is a SPIFFE id.
        ("ada", &[spiffe], "username ada", Err(Unauthenticated), Unauthenticated),
        ("", &[], "username ada", Err(Unauthenticated), Unauthenticated),
        ("rob", &[], "username rob", Ok("rob read-only"), PermissionDenied),
        (
            "x",
            &["host.example.org"],
            "username host.example.org",
            Ok("host.example.org read-only"),
            PermissionDenied,
        ),
        // A password proves another identity than the certificate.
        (
            "collector",
            &[spiffe],
            "username rob\npassword secret",
            Ok("rob read-only"),
            PermissionDenied,
        ),
    ] {
        let client = agent.connect(Some(authority.client(common_name, names))).await.unwrap();
        let row = format!("{common_name} {names:?} {metadata:?}");
        assert_eq!(client.get(metadata).await, get.map(str::to_owned), "Get by {row}");
        assert_eq!(client.set(metadata).await.map(drop), Err(set), "Set by {row}");
    }
    for (names, own) in [(&[spiffe][..], spiffe), (&[], "collector")] {
        let client = agent.connect(Some(authority.client("collector", names))).await.unwrap();
        let metadata = format!("username {own}");
        assert_eq!(client.get(&metadata).await, client.get("").await, "{own}");
        assert_eq!(client.set(&metadata).await.map(drop), Ok(()), "{own}");
    }
}

#[tokio::test]
async fn certificates_have_the_role_of_the_setting() {
    let authority = Authority::new("ours");
    let agent = Agent::with_client_authority(&authority, Role::ReadOnly).await;
    let client = agent.connect(Some(authority.client("collector", &[]))).await.unwrap();
    assert_eq!(client.get("").await.unwrap(), "collector read-only");
    assert_eq!(client.set("").await, Err(PermissionDenied));
}

// proves 1.5, 5.21
#[tokio::test]
async fn a_policy_knows_every_name_of_a_certificate_and_one_name_of_the_metadata() {
    let authority = Authority::new("ours");
    let spiffe = "spiffe://example.org/collector";
    let names = [spiffe, "host.example.org"];
    // names that the policy lists, common name and alternative names of the client, metadata, whether it may
    for (principals, common_name, names, metadata, may) in [
        (r#""spiffe://example.org/*""#, "collector", &names[..], "", true),
        (r#""host.example.org""#, "collector", &names, "", true),
        (r#""CN=collector""#, "collector", &names, "", true),
        (r#""collector""#, "collector", &[], "", true),
        (r#""collector""#, "collector", &names, "", false), // the SPIFFE id is who it is
        (r#""CN=a\\,b \\+c""#, "a,b +c", &[], "", true),
        (r#""*""#, "collector", &names, "", true),
        (r#""""#, "collector", &names, "", false),
        (r#""ada""#, "collector", &names, "username ada\npassword secret", true),
        (r#""ada""#, "collector", &names, "username ada", true),
        (r#""rob""#, "collector", &names, "username ada\npassword secret", false),
        // A caller with a name is not known by its certificate.
        (r#""spiffe://example.org/*""#, "collector", &names, "username ada", false),
    ] {
        let policy = format!(
            r#"{{"name":"p","allow_rules":[{{"name":"r","source":{{"principals":[{principals}]}}}}]}}"#
        );
        let agent = Agent::with_policy(&authority, &policy).await;
        let client = agent.connect(Some(authority.client(common_name, names))).await.unwrap();
        let row = format!("{principals} {common_name} {names:?} {metadata:?}");
        let want = if may { Ok(()) } else { Err(PermissionDenied) };
        assert_eq!(client.get(metadata).await.map(drop), want, "{row}");
        assert_eq!(client.health(metadata).await, want, "{row}");
        // The policy takes precedence over the setting for the role of certificates.
        assert_eq!(client.set(metadata).await.map(drop), want, "{row}");
    }
    // Clients may use any name here, except for names in the policy that only a certificate can have.
    let controller = "spiffe://example.org/controller/1";
    let policy = format!(
        r#"{{"name":"p","allow_rules":[{{"name":"r","source":{{"principals":["{controller}","stranger"]}}}}]}}"#
    );
    let agent = Agent::with_policy(&authority, &policy).await;
    let client = agent.connect(Some(authority.client("collector", &[spiffe]))).await.unwrap();
    assert_eq!(client.get(&format!("username {controller}")).await, Err(Unauthenticated));
    assert_eq!(client.get("username stranger").await.unwrap(), "stranger read-only");
    assert_eq!(client.set("username stranger").await, Err(PermissionDenied));
    let client = agent.connect(Some(authority.client("x", &[controller]))).await.unwrap();
    assert_eq!(client.set(&format!("username {controller}")).await.map(drop), Ok(()));
    // The role still counts in addition to the policy.
    let all = r#"{"name":"p","allow_rules":[{"name":"all"}]}"#;
    let agent = Agent::with_policy(&authority, all).await;
    let client = agent.connect(Some(authority.client("rob", &[]))).await.unwrap();
    assert_eq!(client.get("").await.unwrap(), "rob read-only");
    assert_eq!(client.set("").await, Err(PermissionDenied));
    // A policy that cannot be read allows nothing.
    let agent = Agent::with_policy(&authority, "{").await;
    let client = agent.connect(Some(authority.client("collector", &[]))).await.unwrap();
    assert_eq!(client.get("").await, Err(PermissionDenied));
}
