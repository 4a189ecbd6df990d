//! Invalid TLS material, over the wire: no upload changes the state in force.

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::certificates::{Authority, CertificateAndKey, Certz, CertzRotation, connect};
use holdfast_tests::gnmi::{Credentials, GnmiClient};
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::subscribe_to;
use serde_json::Value;
use tonic::{Code, Status};

const HOSTNAME: &str = "/system/config/hostname";
const SERVER: &str = "/system/grpc-servers/grpc-server[name=DEFAULT]";
/// The serial number of the client to be revoked.
const SERIAL: u64 = 7;
/// A number of revocation lists above the limit of a bundle.
const MANY_LISTS: usize = 5000;
/// Bytes of an upload within the limit of a message, and of one above it.
const LARGE: usize = 20 << 20;
const TOO_LARGE: usize = 65 << 20;

/// One upload that must have no effect.
struct Attack {
    what: &'static str,
    upload: Upload,
    /// Accepted codes: several, if the transport may refuse the upload first.
    want: &'static [Code],
}

enum Upload {
    /// A server's certificate and key.
    Pair(CertificateAndKey),
    Lists(Vec<Vec<u8>>),
}

impl Upload {
    async fn send(&self, rotation: &mut CertzRotation, root: &Authority) -> Result<(), Status> {
        match self {
            Self::Pair(pair) => rotation.upload("attack", pair, &[root]).await,
            Self::Lists(lists) => rotation.upload_revocations("attack", lists).await,
        }
    }
}

fn attacks(root: &Authority) -> Vec<Attack> {
    let impostor = Authority::new("root");
    let stranger = Authority::new("stranger");
    let server = root.server();
    let good = root.revocation_list(&[SERIAL]).into_bytes();
    let refused: &[Code] = &[Code::InvalidArgument];
    let lists = |lists: &[&[u8]]| Upload::Lists(lists.iter().map(|list| list.to_vec()).collect());
    let other_key = CertificateAndKey { key: root.server().key, ..server.clone() };
    let no_key = CertificateAndKey { key: "no key".to_owned(), ..server.clone() };
    let half = &good[..good.len() / 2];
    let signed_by_another = impostor.revocation_list(&[SERIAL]).into_bytes();
    let in_der = b"-----BEGIN X509 CRL-----\nMAUCAQECAQI=\n-----END X509 CRL-----\n";
    [
        ("the key of another certificate", Upload::Pair(other_key), refused),
        ("a text for a key", Upload::Pair(no_key), refused),
        ("a certificate of somebody else", Upload::Pair(stranger.server()), refused),
        ("a certificate of the same name's key", Upload::Pair(impostor.server()), refused),
        ("no list", lists(&[]), refused),
        ("garbage", lists(&[b"\xff\x00garbage"]), refused),
        ("PEM around garbage", lists(&[in_der]), refused),
        ("half a list", lists(&[half]), refused),
        ("a list that another key signed", lists(&[&signed_by_another]), refused),
        ("a good list before a bad one", lists(&[&good, &signed_by_another]), refused),
        ("too many lists", Upload::Lists(vec![good.clone(); MANY_LISTS]), refused),
        ("a large list of nothing", lists(&[&vec![b'A'; LARGE]]), refused),
        (
            "a message that is too large",
            lists(&[&vec![b'A'; TOO_LARGE]]),
            &[Code::Aborted, Code::ResourceExhausted, Code::OutOfRange],
        ),
    ]
    .into_iter()
    .map(|(what, upload, want)| Attack { what, upload, want })
    .collect()
}

/// State of the server as readers see it, without counters.
async fn server_state(admin: &GnmiClient) -> Value {
    let mut state = admin.read(&format!("{SERVER}/state")).await.unwrap();
    let leaves = state.as_object_mut().unwrap();
    leaves.retain(|name, _| !name.contains("counters"));
    state
}

#[tokio::test]
async fn invalid_certz_uploads_change_nothing() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let root = Authority::new("root");
    let mut certz = Certz::over(agent.channel().await, agent.credentials());
    let admin = agent.gnmi().await;
    certz.add("p").await.unwrap();
    let mut rotation = certz.rotate("p").await.unwrap();
    rotation.upload("v1", &root.server(), &[&root]).await.unwrap();
    rotation.finalize().await.unwrap();
    admin.update(&format!("{SERVER}/config/certificate-id"), "p").await.unwrap();
    let client = root.numbered_client("eve", SERIAL);
    let connected = async || {
        let channel = connect(agent.address(), &[&root.pem], &client).await.unwrap();
        GnmiClient::over(channel, Credentials::new("eve", "").unwrap())
    };
    let eve = connected().await;
    let names = ("/system/state/hostname", SubscriptionMode::OnChange);
    let mut stream = eve.subscribe(subscribe_to(Mode::Stream, &[names])).await.unwrap();
    stream.until_sync().await;
    let before = (certz.list().await.unwrap(), server_state(&admin).await);

    for (number, Attack { what, upload, want }) in attacks(&root).iter().enumerate() {
        let mut rotation = certz.rotate("p").await.unwrap();
        let refused = upload.send(&mut rotation, &root).await.expect_err(what);
        assert!(want.contains(&refused.code()), "{what}: {refused}");
        drop(rotation);
        assert_eq!((certz.list().await.unwrap(), server_state(&admin).await), before, "{what}");
        connected().await.capabilities().await.expect(what);
        eve.capabilities().await.expect(what);
        let name = format!("host{number}");
        admin.update(HOSTNAME, name.clone()).await.unwrap();
        stream.until(&name).await;
    }

    // A revocation list of an untrusted authority revokes no certificate, not even when it is final.
    let mut rotation = certz.rotate("p").await.unwrap();
    let list = Authority::new("stranger").revocation_list(&[SERIAL]);
    rotation.upload_revocations("stranger's", &[list]).await.unwrap();
    rotation.finalize().await.unwrap();
    connected().await.capabilities().await.unwrap();
    admin.update(HOSTNAME, "last").await.unwrap();
    stream.until("last").await;
}
