use std::{
    fs,
    os::unix::fs::PermissionsExt,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, HandshakeKind, RootCertStore,
    ServerConnection, SupportedProtocolVersion, time_provider::TimeProvider, version,
};
use rustls_pki_types::{PrivatePkcs8KeyDer, UnixTime, pem::PemObject};
use tempfile::TempDir;
use x509_parser::extensions::GeneralName;

use super::*;

/// Error for these files as text; `None` when they are valid.
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
    let reason = load_default(&settings, files.path(), &[]).server.err()?;
    Some(reason.replace(&format!("{}/", files.path().display()), ""))
}

#[test]
fn unusable_files_are_named() {
    let files = TempDir::new().unwrap();
    let write = |name: &str, text: &str| fs::write(files.path().join(name), text).unwrap();
    let key = KeyPair::generate().unwrap();
    let other = KeyPair::generate().unwrap();
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
        ("old.pem", "key.pem", None, ""), // clients decide
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
        let message = complaint(&files, certificate, key, client_ca).unwrap_or_default();
        assert!(
            message.starts_with(want) && message.is_empty() == want.is_empty(),
            "{message:?} does not start with {want:?}"
        );
    }
}

#[test]
fn the_own_identity_lasts_and_follows_the_addresses() {
    let state = TempDir::new().unwrap();
    let file = |name: &str| state.path().join("tls").join(name);
    let start = |addresses: &[&str]| {
        let addresses: Vec<_> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        load_default(&TlsSettings::default(), state.path(), &addresses).server.unwrap();
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

/// Clock of the server, in seconds since 1970.
#[derive(Debug)]
struct ServerClock(AtomicU64);

impl TimeProvider for ServerClock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.0.load(Ordering::Relaxed);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

const NOON_OF_2030_01_01: u64 = 1_893_499_200;
const NOON_OF_2030_01_03: u64 = NOON_OF_2030_01_01 + 2 * 86_400;

/// A server with its clock, and a factory for clients, each with its own session store.
struct HandshakeFixture {
    server: Arc<ServerConfig>,
    clock: Arc<ServerClock>,
    roots: RootCertStore,
    client: CertifiedKey,
}

impl HandshakeFixture {
    /// A server that requests client certificates or not. The client's is valid from 2030-01-01 to 2030-01-02.
    fn new(asks: bool) -> Self {
        let state = TempDir::new().unwrap();
        let box_identity =
            load_default(&TlsSettings::default(), state.path(), &[]).server.unwrap().certified;
        let mut roots = RootCertStore::empty();
        roots.add(box_identity.cert.last().unwrap().clone()).unwrap();

        let ca_key = KeyPair::generate().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = params.self_signed(&ca_key).unwrap().der().clone();
        let mut leaf = CertificateParams::new(["client".to_owned()]).unwrap();
        leaf.not_before = date_time_ymd(2030, 1, 1);
        leaf.not_after = date_time_ymd(2030, 1, 2);
        let leaf = leaf.signed_by(&key, &Issuer::new(params, ca_key)).unwrap().der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let client =
            CertifiedKey::from_der(vec![leaf], key, &aws_lc_rs::default_provider()).unwrap();

        let clients =
            asks.then(|| ClientRequirements::of(TrustBundle::new("the test", vec![ca]).unwrap()));
        let clock = Arc::new(ServerClock(AtomicU64::new(NOON_OF_2030_01_01)));
        let mut server = server_config(&box_identity, clients).unwrap();
        server.time_provider = clock.clone();
        Self { server: Arc::new(server), clock, roots, client }
    }

    fn client(&self, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(self.roots.clone());
        let resolver = SingleCertAndKey::from(self.client.clone());
        Arc::new(builder.with_client_cert_resolver(Arc::new(resolver)))
    }

    /// Connects, exchanges all pending data, and returns the kind of the server's handshake.
    fn connect(&self, client: &Arc<ClientConfig>) -> Result<HandshakeKind, rustls::Error> {
        let name = "localhost".try_into().unwrap();
        let mut client = ClientConnection::new(client.clone(), name).unwrap();
        let mut server = ServerConnection::new(self.server.clone()).unwrap();
        let mut wire = Vec::new();
        while client.wants_write() || server.wants_write() {
            wire.clear();
            while client.wants_write() {
                client.write_tls(&mut wire).unwrap();
            }
            let mut sent = wire.as_slice();
            while !sent.is_empty() {
                server.read_tls(&mut sent).unwrap();
                server.process_new_packets()?;
            }
            wire.clear();
            while server.wants_write() {
                server.write_tls(&mut wire).unwrap();
            }
            let mut sent = wire.as_slice();
            while !sent.is_empty() {
                client.read_tls(&mut sent).unwrap();
                client.process_new_packets().unwrap();
            }
        }
        Ok(server.handshake_kind().expect("both sides have nothing left to say"))
    }
}

#[test]
fn a_client_certificate_is_verified_in_every_handshake() {
    for (version, asks, again) in [
        (&version::TLS13, true, HandshakeKind::Full),
        (&version::TLS12, true, HandshakeKind::Full),
        // Without client certificates, which could expire, sessions are resumed.
        (&version::TLS13, false, HandshakeKind::Resumed),
        (&version::TLS12, false, HandshakeKind::Resumed),
    ] {
        let row = format!("{:?}, asks: {asks}", version.version);
        let handshakes = HandshakeFixture::new(asks);
        let client = handshakes.client(version);
        assert_eq!(handshakes.connect(&client), Ok(HandshakeKind::Full), "{row}");
        assert_eq!(handshakes.connect(&client), Ok(again), "{row}");

        handshakes.clock.0.store(NOON_OF_2030_01_03, Ordering::Relaxed);
        let expired = |client| match handshakes.connect(client) {
            Err(rustls::Error::InvalidCertificate(error)) => error == CertificateError::Expired,
            _ => false,
        };
        assert_eq!(expired(&client), asks, "{row}: the session from before the expiry");
        assert_eq!(expired(&handshakes.client(version)), asks, "{row}: a new client");
    }
}
