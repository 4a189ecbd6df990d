//! gNOI System: the clock, reboots of the agent, its processes, and packages.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use holdfast_proto::gnoi::common::RemoteDownload;
use holdfast_proto::gnoi::common::remote_download::Protocol;
use holdfast_proto::gnoi::system::kill_process_request::Signal;
use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnoi::system::{
    KillProcessRequest, Package, RebootMethod, RebootRequest, RebootStatusRequest,
    SetPackageRequest, TimeRequest, reboot_status, set_package_request,
};
use holdfast_proto::gnoi::types::HashType;
use holdfast_proto::gnoi::types::hash_type::HashMethod;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::netns::Netns;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::Code;

use crate::bootz::install_by;
use crate::factory::accepts_connections;

// proves 3.34, 6.1, 6.5
#[tokio::test]
async fn a_reboot_of_the_agent_leaves_the_kernel_alone_and_is_remembered() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    agent
        .gnmi()
        .await
        .update("/interfaces/interface[name=eth0]/config", json!({"name": "eth0", "mtu": 1414}))
        .await
        .unwrap();
    let mut system = SystemClient::with_interceptor(agent.channel().await, agent.credentials());
    assert!(system.time(TimeRequest {}).await.unwrap().into_inner().time > 0);
    let request = RebootRequest {
        method: RebootMethod::Warm as i32,
        message: "new binary".to_owned(),
        ..Default::default()
    };
    let pid = agent.pid();
    let starts = || agent.log().matches("listening").count();
    let before = starts();
    system.reboot(request).await.unwrap();
    eventually("the agent listens anew", || starts() > before).await;
    eventually_async("the agent is back", || accepts_connections(&agent)).await;
    assert_eq!((agent.pid(), net.link("eth0").mtu), (pid, 1400));
    let mut system = SystemClient::with_interceptor(agent.channel().await, agent.credentials());
    let status = system.reboot_status(RebootStatusRequest::default()).await.unwrap().into_inner();
    assert_eq!((status.active, status.count, status.reason.as_str()), (false, 1, "new binary"));
    assert_eq!(
        (status.method(), status.status.unwrap().status()),
        (RebootMethod::Warm, reboot_status::Status::Success)
    );
    let config = agent.gnmi().await.read("/interfaces/interface[name=eth0]/config").await.unwrap();
    assert!(config.to_string().contains("1414"), "{config}");
}

// proves 6.4, 6.5
#[tokio::test]
async fn a_cold_reboot_is_one_of_the_box_by_its_own_command() {
    let net = Netns::enter();
    let programs = TempDir::new().unwrap();
    let root = TempDir::new().unwrap();
    let marker = programs.path().join("asked");
    install_by(&programs.path().join("reboot"), &format!(": >{}", marker.display()));
    let path = std::env::var_os("PATH").unwrap();
    let setpriv = std::env::split_paths(&path).map(|it| it.join("setpriv")).find(|it| it.exists());
    symlink(setpriv.unwrap(), programs.path().join("setpriv")).unwrap();
    let only = format!("PATH={}", programs.path().display());
    let behind = ["env".to_owned(), only.clone()];
    let mut agent = AgentProcess::start_wrapped(&net, &behind, root.path()).await;
    agent.set_options(&["--reboot".to_owned(), "system".to_owned()]);
    agent.restart().await;
    let environ = fs::read(format!("/proc/{}/environ", agent.pid())).unwrap();
    let paths: Vec<&[u8]> =
        environ.split(|it| *it == 0).filter(|it| it.starts_with(b"PATH=")).collect();
    assert_eq!(paths, [only.as_bytes()], "the agent could find the machine's own `reboot`");

    let client =
        async || SystemClient::with_interceptor(agent.channel().await, agent.credentials());
    let request = RebootRequest { method: RebootMethod::Cold as i32, ..Default::default() };
    client().await.reboot(request).await.unwrap();
    eventually("the box is told to reboot", || marker.exists()).await;
    agent.restart().await; // in the same boot of the kernel
    let mut client = SystemClient::with_interceptor(agent.channel().await, agent.credentials());
    let status = client.reboot_status(RebootStatusRequest::default()).await.unwrap().into_inner();
    assert_eq!((status.active, status.method()), (false, RebootMethod::Cold));
    let outcome = status.status.unwrap();
    assert_eq!(outcome.status(), reboot_status::Status::RetriableFailure, "{outcome:?}");
    assert!(outcome.message.contains("has not booted"), "{outcome:?}");
}

/// Image on the image server, and its SHA-256.
const IMAGE: &[u8] = b"an image";
const IMAGE_SHA256: [u8; 32] = [
    0xa5, 0xdf, 0x3f, 0xde, 0x7b, 0x20, 0x0c, 0x3f, 0xa2, 0x79, 0x11, 0x44, 0xc7, 0xe0, 0x5c, 0x5c,
    0x2b, 0xce, 0xd4, 0xc6, 0xad, 0x86, 0x3d, 0x3a, 0x4c, 0xf7, 0x6c, 0x97, 0x2c, 0x17, 0x12, 0xf9,
];

/// The parts of a package of that image, fetched from `url` or sent.
fn image(name: &str, version: &str, url: &str) -> Vec<SetPackageRequest> {
    let remote_download = (!url.is_empty()).then(|| RemoteDownload {
        path: url.to_owned(),
        protocol: Protocol::Http.into(),
        ..Default::default()
    });
    let contents =
        remote_download.is_none().then(|| set_package_request::Request::Contents(IMAGE.into()));
    let package = set_package_request::Request::Package(Package {
        filename: name.to_owned(),
        version: version.to_owned(),
        activate: !version.is_empty(),
        remote_download,
    });
    let hash = HashType { method: HashMethod::Sha256.into(), hash: IMAGE_SHA256.to_vec().into() };
    let parts =
        [package].into_iter().chain(contents).chain([set_package_request::Request::Hash(hash)]);
    parts.map(|part| SetPackageRequest { request: Some(part) }).collect()
}

/// Serves the image for ever; returns its URL.
async fn serve_image() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("{}/image", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _asked = stream.read(&mut request).await;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", IMAGE.len());
            let _sent = stream.write_all(&[head.as_bytes(), IMAGE].concat()).await;
        }
    });
    url
}

// proves 6.7, 6.9
#[tokio::test]
async fn a_package_is_stored_fetched_and_handed_to_the_installer() {
    let net = Netns::enter();
    let folder = TempDir::new().unwrap();
    let command = folder.path().join("install");
    let installed = folder.path().join("installed");
    // The image program hangs for one version.
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = install ] || exit 0\n[ \"$3\" != slow ] || exec sleep 600\ncp \"$2\" {}\n",
        installed.display()
    );
    fs::write(&command, script).unwrap();
    fs::set_permissions(&command, Permissions::from_mode(0o700)).unwrap();
    let options = ["--image-command", command.to_str().unwrap(), "--image-version", "1.0"];
    let agent = AgentProcess::start_with(&net, &options).await;
    let packages = agent.state_dir().join("packages");
    let content = |name: &str| fs::read(packages.join(name)).ok();
    let channel = agent.channel().await;
    let client = || SystemClient::with_interceptor(channel.clone(), agent.credentials());
    let set = async |parts| client().set_package(tokio_stream::iter(parts)).await;

    set(image("sent.img", "", "")).await.unwrap();
    assert_eq!((content("sent.img").as_deref(), installed.exists()), (Some(IMAGE), false));
    let mode = fs::metadata(packages.join("sent.img")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let url = serve_image().await;
    set(image("fetched.img", "2.0", &url)).await.unwrap();
    assert_eq!(content("fetched.img").as_deref(), Some(IMAGE));
    assert_eq!(fs::read(&installed).unwrap(), IMAGE);
    let refused = set(image("lost.img", "", "127.0.0.1:1/none")).await.unwrap_err();
    assert_eq!((refused.code(), content("lost.img")), (Code::Unavailable, None), "{refused:?}");

    let sleep = |restart| KillProcessRequest {
        name: "sleep".to_owned(),
        signal: Signal::Term.into(),
        restart,
        ..Default::default()
    };
    let nobody = client().kill_process(sleep(false)).await.unwrap_err();
    assert_eq!(nobody.code(), Code::NotFound, "{nobody:?}");
    let ask = || {
        let mut client = client();
        let request = sleep(false);
        async move { client.kill_process(request).await.is_ok() }
    };
    let kill = eventually_async("the installer is there, and is ended", ask);
    let (slow, ()) = tokio::join!(set(image("slow.img", "slow", "")), kill);
    let refused = slow.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    assert!(refused.message().contains("signal: 15"), "{refused:?}");
    assert_eq!(content("slow.img").as_deref(), Some(IMAGE), "it was whole");
}

// proves 6.9
#[tokio::test]
async fn kill_process_reloads_or_restarts_the_agent() {
    let net = Netns::enter();
    // An agent whose reboots are those of the system.
    let agent = AgentProcess::start_with(&net, &["--reboot", "system"]).await;
    let count = |what: &str| agent.log().matches(what).count();
    let client =
        async || SystemClient::with_interceptor(agent.channel().await, agent.credentials());
    let tell = |signal: Signal, restart| KillProcessRequest {
        pid: agent.pid(),
        name: "holdfast".to_owned(),
        signal: signal.into(),
        restart,
    };
    let refused = client().await.kill_process(tell(Signal::Kill, true)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    client().await.kill_process(tell(Signal::Hup, true)).await.unwrap();
    eventually("it reloads", || count("reloading") == 1).await;
    let before = count("listening");
    client().await.kill_process(tell(Signal::Term, true)).await.unwrap();
    eventually("it listens anew", || count("listening") > before).await;
    eventually_async("it is back", || accepts_connections(&agent)).await;
}
