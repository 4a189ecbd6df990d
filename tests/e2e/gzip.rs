//! Messages in gzip: of a client by others, of every service, and of an attacker.

use std::io::{Read, Write};
use std::sync::Arc;

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use flate2::{Compress, Compression, FlushCompress};
use holdfast_proto::gnmi;
use holdfast_tests::agent::{ADMIN, AgentProcess, PASSWORD};
use holdfast_tests::clients::Gnmic;
use holdfast_tests::netns::Netns;
use holdfast_tests::raw_http2::{RawResponse, call, client_config};
use prost::Message;
use rustls::ClientConfig;
use tonic::Code;

const ETH0: &str = "/interfaces/interface[name=eth0]";
/// The header of a gzip member (RFC 1952) without a name and a time.
const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
const MIB: usize = 1 << 20;

fn config(agent: &AgentProcess) -> Arc<ClientConfig> {
    client_config(&std::fs::read_to_string(agent.ca_file()).unwrap())
}

fn gzip(message: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(message).unwrap();
    encoder.finish().unwrap()
}

/// One message in its frame.
fn frame(packed: bool, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[u8::from(packed)], &length[..], message].concat()
}

/// Zeros in gzip: some thousandths of them.
fn bomb(mebibytes: usize) -> Vec<u8> {
    let mut compress = Compress::new(Compression::best(), false);
    let mut one = Vec::with_capacity(MIB);
    compress.compress_vec(&vec![0; MIB], &mut one, FlushCompress::Full).unwrap();
    [&GZIP_HEADER[..], &one.repeat(mebibytes)].concat()
}

async fn call_as_admin(
    agent: &AgentProcess,
    path: &str,
    more: &[(&str, &str)],
    body: Vec<u8>,
) -> RawResponse {
    let login = [("username", ADMIN), ("password", PASSWORD)];
    let headers = [&login[..], more].concat();
    call(agent.address(), &config(agent), path, &headers, body).await.unwrap()
}

#[tokio::test]
async fn gnmic_speaks_gzip() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    let run = async |arguments: &[&str]| {
        gnmic.run(&[&["--gzip", "-e", "json_ietf"], arguments].concat()).await
    };
    assert!(run(&["capabilities"]).await.contains("openconfig-interfaces"));
    let description = format!("{ETH0}/config/description");
    run(&["set", "--update-path", &description, "--update-value", "packed"]).await;
    assert_eq!(net.link("eth0").alias, "packed");
    assert!(run(&["get", "--path", "/"]).await.contains("packed"));
    let once = run(&["subscribe", "--mode", "once", "--path", &description]).await;
    assert!(once.contains("packed"), "{once}");
}

/// A packed request of each service, and a response that is packed where it is long.
#[tokio::test]
async fn every_service_reads_and_writes_gzip() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let gzip_both = [("grpc-encoding", "gzip"), ("grpc-accept-encoding", "identity,gzip")];
    for path in [
        "/gnmi.gNMI/Capabilities",
        "/gnoi.system.System/Time",
        "/gnoi.os.OS/Verify",
        "/gnoi.bootconfig.BootConfig/GetBootConfig",
        "/gnsi.certz.v1.Certz/GetProfileList",
        "/gnsi.credentialz.v1.Credentialz/GetPublicKeys",
        "/grpc.health.v1.Health/Check",
        "/holdfast.services.v1.Packages/List",
    ] {
        let plain = call_as_admin(&agent, path, &[], frame(false, b"")).await;
        let packed = call_as_admin(&agent, path, &gzip_both, frame(true, &gzip(b""))).await;
        assert_eq!(packed.status.code(), plain.status.code(), "{path}: {:?}", packed.status);
        assert_ne!(packed.status.code(), Code::Internal, "{path}: {:?}", packed.status);
        if packed.status.code() == Code::Ok {
            assert_eq!(packed.headers["grpc-encoding"], "gzip", "{path}");
            assert!(!plain.headers.contains_key("grpc-encoding"), "{path}");
        }
    }
    let request = frame(true, &gzip(b""));
    let answer = call_as_admin(&agent, "/gnmi.gNMI/Capabilities", &gzip_both, request).await;
    assert_eq!(answer.body[0], 1, "a long answer is packed");
    let mut message = Vec::new();
    GzDecoder::new(&answer.body[5..]).read_to_end(&mut message).unwrap();
    let capabilities = gnmi::CapabilityResponse::decode(&message[..]).unwrap();
    assert!(!capabilities.supported_models.is_empty());

    let deflate = [("grpc-encoding", "deflate")];
    let refused = call_as_admin(&agent, "/gnmi.gNMI/Get", &deflate, frame(true, b"x")).await;
    assert_eq!(refused.status.code(), Code::Unimplemented, "{:?}", refused.status);
    assert_eq!(refused.headers["grpc-accept-encoding"], "gzip,identity");
}

/// Bombs of a gigabyte in a megabyte end at the limit of their method, and take no more memory than that.
#[tokio::test]
async fn a_bomb_is_refused_at_the_limit_of_its_method() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let packed = [("grpc-encoding", "gzip")];
    let bomb = bomb(1024);
    assert!(bomb.len() < 2 * MIB, "{}", bomb.len());
    for (path, limit, most) in [
        ("/gnmi.gNMI/Get", "read-message-size", 1),
        ("/gnmi.gNMI/Subscribe", "read-message-size", 1),
        ("/gnoi.system.System/Ping", "plain-message-size", 4),
        ("/gnmi.gNMI/Set", "message-size", 64),
    ] {
        let before = agent.peak_resident_bytes();
        let answer = call_as_admin(&agent, path, &packed, frame(true, &bomb)).await;
        assert_eq!(answer.status.code(), Code::ResourceExhausted, "{path}: {:?}", answer.status);
        assert!(answer.status.message().contains(limit), "{path}: {:?}", answer.status);
        let grown = agent.peak_resident_bytes() - before;
        // Besides the message: the bytes that arrive, and what the allocator keeps.
        let allowed = (2 * most + 32) * MIB as u64;
        assert!(grown < allowed, "{path}: {} MiB", grown / MIB as u64);
    }
    // The limit is that of the message, not of what it was packed to.
    let update = gnmi::Update {
        path: Some(gnmi::Path::default()),
        val: Some(gnmi::TypedValue {
            value: Some(gnmi::typed_value::Value::AsciiVal(" ".repeat(60 * MIB))),
        }),
        ..Default::default()
    };
    let request = gnmi::SetRequest { update: vec![update], ..Default::default() }.encode_to_vec();
    let answer =
        call_as_admin(&agent, "/gnmi.gNMI/Set", &packed, frame(true, &gzip(&request))).await;
    assert_eq!(answer.status.code(), Code::Unimplemented, "{:?}", answer.status);
}
