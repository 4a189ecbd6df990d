//! Bootstraps against the public server emulator, and against servers with one fault.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnoi::system::{RebootMethod, RebootRequest};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::bootz::{
    BootstrapFixture, HostileBehavior, IMAGE, IMAGE_SHA256, ServerData, bootz, image, start,
};
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::subscribe_to;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tonic::{Code, Status};

use crate::boot_config::{boot_config_stub, get_boot};
use crate::factory::accepts_connections;

const STATE: &str = "/system/bootz/state";

const OPENCONFIG: &str = r#"{"openconfig-system:system":{"config":{"hostname":"bootstrapped"}}}"#;
const VENDOR: &str = r#"{"holdfast:system":{"login-banner":"of the owner"}}"#;
const DYNAMIC: &str = r#"{"openconfig-system:system":{"config":{"motd-banner":"seeded"}}}"#;
const AUTHZ: &str = r#"version: "of the owner" created_on: 7
    policy: '{"name":"all","allow_rules":[{"name":"all"}]}'"#;

fn server_data(streaming: bool) -> ServerData<'static> {
    let openconfig = OPENCONFIG;
    let vendor = VENDOR;
    let dynamic = DYNAMIC;
    ServerData { streaming, openconfig, vendor, dynamic, ..ServerData::default() }
}

async fn start_agent(net: &Netns, bootstrap: &BootstrapFixture, more: &[&str]) -> AgentProcess {
    let options = bootstrap.options();
    let options: Vec<&str> =
        options.iter().map(String::as_str).chain(more.iter().copied()).collect();
    AgentProcess::start_with(net, &options).await
}

pub(crate) async fn leaf(agent: &AgentProcess, name: &str) -> Value {
    agent.gnmi().await.read(&format!("{STATE}/{name}")).await.unwrap_or_default()
}

pub(crate) async fn until_status(agent: &AgentProcess, status: &str) {
    eventually_async(status, || async { leaf(agent, "status").await == json!(status) }).await;
}

// proves 4.1, 4.6, 4.9, 4.11, 4.12, 4.15, 4.32, 4.33, 4.34, 4.36, 4.40, 4.45, 4.53, 4.54, 4.59, 4.61, 4.63
// proves 4.64, 4.65, 4.66, 3.28, 3.29
#[tokio::test]
async fn a_stream_from_the_public_server_ends_in_a_configured_box() {
    let net = Netns::enter();
    let bootstrap = BootstrapFixture::new(&net, ServerData { authz: AUTHZ, ..server_data(true) });
    let server = bootstrap.emulator().await;
    let agent = start_agent(&net, &bootstrap, &[]).await;
    let path = (&*format!("{STATE}/status"), SubscriptionMode::OnChange);
    let mut statuses =
        agent.gnmi().await.subscribe(subscribe_to(Mode::Stream, &[path])).await.unwrap();
    statuses.until_sync().await;

    start(&agent);
    for status in ["SENT", "RECEIVED", "CONFIGURATION_APPLIED", "OK"] {
        statuses.until(&format!("BOOTZ_{status}")).await;
    }
    let log = server.log();
    assert!(!log.contains("Client provided 1 TLS certificate"), "{log}");
    assert!(log.contains("Bootstrap Status: BOOTSTRAP_STATUS_SUCCESS"), "{log}");
    assert!(log.contains("boot_password_hash is not applied"), "{log}");
    assert!(log.contains("Control card HF-1 changed status to CONTROL_CARD_STATUS_INITIALIZED"));

    let client = agent.gnmi().await;
    assert_eq!(client.read("/system/state/hostname").await.unwrap(), json!("bootstrapped"));
    assert_eq!(client.read("/system/state/motd-banner").await.unwrap(), json!("seeded"));
    assert_eq!(fs::read_to_string(agent.root().join("etc/motd")).unwrap(), "seeded\n");
    let boot = get_boot(&mut boot_config_stub(&agent).await).await.unwrap();
    assert_eq!(
        (&boot.oc_config[..], &boot.vendor_config[..]),
        (OPENCONFIG.as_bytes(), VENDOR.as_bytes())
    );
    assert!(boot.dynamic_oc_config.is_empty());
    // Boot configuration is reserved; dynamic configuration may be changed by clients.
    assert!(client.update("/system/config/hostname", "mine").await.is_err());
    client.replace("/system/config/motd-banner", "mine").await.unwrap();

    let version = "/system/aaa/authorization/state/grpc-authz-policy-version";
    assert_eq!(client.read(version).await.unwrap(), json!("of the owner"));

    assert_eq!(leaf(&agent, "checksum").await.as_str().unwrap().len(), 128);
    assert_eq!(leaf(&agent, "error-count").await, json!("0"));
    assert!(!leaf(&agent, "last-boot-attempt").await.is_null());
    assert!(!agent.state_dir().join("bootz/parameters.json").exists());
    let account = bootz(&agent, &["status"]);
    assert!(account.contains("bootstrapped: the server knows"), "{account}");
    assert!(agent.log().contains("starting to bootstrap by bootz://192.0.2.1:15006 through mgmt0"));
}

// proves 4.14, 4.16, 4.17, 4.20, 4.24, 4.27, 4.47, 4.53, 4.69
#[tokio::test]
async fn a_bootz_server_without_streams_gets_the_unary_rpc() {
    let net = Netns::enter();
    let bootstrap = BootstrapFixture::new(&net, server_data(false));
    let server = bootstrap.emulator().await;
    let mut agent = start_agent(&net, &bootstrap, &[]).await;
    start(&agent);
    until_status(&agent, "BOOTZ_OK").await;
    let log = server.log();
    assert_eq!(log.matches("Client provided 1 TLS certificate").count(), 2, "{log}"); // data, report
    assert!(log.contains("Bootstrap Status: BOOTSTRAP_STATUS_SUCCESS"), "{log}");
    let checksum = leaf(&agent, "checksum").await;
    agent.kill();
    agent.restart().await;
    assert_eq!(leaf(&agent, "status").await, json!("BOOTZ_OK"));
    assert_eq!(leaf(&agent, "checksum").await, checksum);
}

// proves 4.7, 4.12, 4.21, 4.23, 4.24, 4.28, 4.30, 4.48, 4.53, 4.60, 4.66, 4.67
#[tokio::test]
async fn faulty_bootstrap_servers_change_nothing() {
    let net = Netns::enter();
    let bootstrap = BootstrapFixture::new(&net, server_data(false));
    let agent = start_agent(&net, &bootstrap, &["--bootz-rpc", "unary"]).await;
    let hostname = agent.gnmi().await.read("/system/state/hostname").await.unwrap();
    for (fault, status, why) in [
        ("voucher", "BOOTZ_OV_INVALID", "no valid chain leads to a trusted certificate"),
        ("expired", "BOOTZ_OV_INVALID", "expired"),
        ("signature", "BOOTZ_OV_INVALID", "the signature of the bootstrap data is not valid"),
        ("nonce", "BOOTZ_OV_INVALID", "does not carry the nonce"),
        ("serial", "BOOTZ_CONFIGURATION_INVALID", "no response for serial number `HF-1`"),
    ] {
        let _server = bootstrap.faulty(fault).await;
        start(&agent);
        until_status(&agent, status).await;
        let account = bootz(&agent, &["status"]);
        assert!(account.contains(why), "{fault}: {account}");
        bootz(&agent, &["terminate"]);
        until_status(&agent, "BOOTZ_UNSPECIFIED").await;
        assert!(!agent.state_dir().join("bootz/parameters.json").exists());
    }
    assert_eq!(leaf(&agent, "error-count").await, json!("5"));
    assert_eq!(agent.gnmi().await.read("/system/state/hostname").await.unwrap(), hostname);
    assert_eq!(get_boot(&mut boot_config_stub(&agent).await).await, None);

    // Valid data, from a server without the certificate that the data names.
    let _server = bootstrap.faulty("trust").await;
    start(&agent);
    until_status(&agent, "BOOTZ_CONFIGURATION_APPLIED").await;
    eventually("the report is refused", || {
        bootz(&agent, &["status"]).contains("cannot make a TLS connection")
    })
    .await;
    assert_eq!(leaf(&agent, "status").await, json!("BOOTZ_CONFIGURATION_APPLIED"));
    assert!(
        agent.state_dir().join("bootz/parameters.json").exists(),
        "nobody has taken the report"
    );
}

// proves 4.24
#[tokio::test]
async fn a_voucher_in_xml_is_as_good_as_one_in_json() {
    let net = Netns::enter();
    let bootstrap = BootstrapFixture::new(&net, server_data(false));
    let agent = start_agent(&net, &bootstrap, &["--bootz-rpc", "unary"]).await;
    let _server = bootstrap.faulty("xml").await;
    start(&agent);
    until_status(&agent, "BOOTZ_OK").await;
}

// proves 4.6, 4.8, 4.13, 4.22, 4.57, 4.60, 4.62
#[tokio::test]
async fn bootstrap_resumes_after_power_cut_and_unusable_configuration() {
    let net = Netns::enter();
    let broken = ServerData {
        openconfig: r#"{"openconfig-system:system":{"config":{"x":1}}}"#,
        ..server_data(false)
    };
    let bootstrap = BootstrapFixture::new(&net, broken);
    let mut agent = start_agent(&net, &bootstrap, &[]).await;
    bootz(&agent, &["start", "--bootz-uri", "bootz://192.0.2.1:15006", "--src-interface", "none0"]);
    let bound = || bootz(&agent, &["status"]).contains("cannot send through interface `none0`");
    eventually("the interface is missed", bound).await;
    start(&agent);
    eventually("nobody is there", || bootz(&agent, &["status"]).contains("cannot connect")).await;
    assert_eq!(leaf(&agent, "status").await, json!("BOOTZ_UNSPECIFIED"));
    assert!(agent.state_dir().join("bootz/parameters.json").exists());

    agent.kill();
    let server = bootstrap.emulator().await;
    agent.restart().await; // and begins at once
    until_status(&agent, "BOOTZ_CONFIGURATION_INVALID").await;
    eventually("the server is told", || {
        let log = server.log();
        log.contains("BOOTSTRAP_STATUS_FAILURE") && log.contains("NOT_INITIALIZED")
    })
    .await;
    let banner = agent.gnmi().await.read("/system/state/login-banner").await;
    assert!(banner.is_err(), "half of it is applied: {banner:?}");
    assert_eq!(get_boot(&mut boot_config_stub(&agent).await).await, None);
    assert!(bootz(&agent, &["status"]).contains("/system/config/x"));
}

/// Asks for a reboot of the agent, without force.
async fn warm_reboot(agent: &AgentProcess) -> Result<(), Status> {
    let mut system = SystemClient::with_interceptor(agent.channel().await, agent.credentials());
    let request = RebootRequest { method: RebootMethod::Warm as i32, ..Default::default() };
    system.reboot(request).await.map(drop)
}

/// Servers that do not speak TLS: the box keeps its state, its memory and its services, and finds the right server
/// afterwards.
// proves 6.4
#[tokio::test]
async fn hostile_bootstrap_servers_cost_bounded_memory() {
    const MOST_MEMORY: u64 = 64 << 20;
    for malice in [
        HostileBehavior::Silence,
        HostileBehavior::Garbage,
        HostileBehavior::Drip,
        HostileBehavior::HangUp,
    ] {
        let net = Netns::enter();
        let bootstrap = BootstrapFixture::new(&net, server_data(false));
        let agent = start_agent(&net, &bootstrap, &[]).await;
        let before = agent.resident_bytes();
        let hostile = bootstrap.start_hostile(malice);
        start(&agent);
        eventually("the box comes", || hostile.connections() > 0).await;
        let complaint = match malice {
            HostileBehavior::Garbage | HostileBehavior::HangUp => "cannot make a TLS connection",
            HostileBehavior::Silence | HostileBehavior::Drip => "",
        };
        eventually("it is told", || bootz(&agent, &["status"]).contains(complaint)).await;
        assert!(accepts_connections(&agent).await, "{malice:?}: everybody else is served");
        if malice == HostileBehavior::Silence {
            let refused = warm_reboot(&agent).await.unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
            assert!(refused.message().contains("a bootstrap"), "{refused:?}");
        }
        let more = agent.resident_bytes().saturating_sub(before);
        assert!(more < MOST_MEMORY, "{malice:?}: {more} bytes more");
        assert_eq!(get_boot(&mut boot_config_stub(&agent).await).await, None, "{malice:?}");

        bootz(&agent, &["terminate"]);
        drop(hostile);
        let _server = bootstrap.emulator().await;
        start(&agent);
        until_status(&agent, "BOOTZ_OK").await;
    }
}

/// Installation of an image, by its server, its URL and its digest.
// proves 4.49, 4.50, 4.51
#[tokio::test]
async fn an_image_is_installed_when_its_server_and_its_digest_are_right() {
    let wrong = IMAGE_SHA256.replace('0', "1");
    for (fault, url, sum, complaint) in [
        ("none", "http", IMAGE_SHA256, ""),
        ("none", "http", &wrong, "the SHA-256 digest of"),
        ("none", IMAGE, IMAGE_SHA256, ""),
        ("none", IMAGE, &wrong, "the SHA-256 digest of"),
        (
            "trust",
            IMAGE,
            IMAGE_SHA256,
            "cannot connect to `https://192.0.2.1:8443/image`: cannot make a TLS",
        ),
        ("none", "https://192.0.2.1:8443/none", IMAGE_SHA256, "404"),
        ("none", "https://192.0.2.1:1/image", IMAGE_SHA256, "cannot connect to 192.0.2.1:1"),
        ("none", "ftp://192.0.2.1/image", IMAGE_SHA256, "give an http:// or https:// address"),
    ] {
        let net = Netns::enter();
        let http = serve_image().await;
        let url = if url == "http" { &http } else { url };
        let image = image(url, sum);
        let bootstrap =
            BootstrapFixture::new(&net, ServerData { image: &image, ..server_data(false) });
        let installed = TempDir::new().unwrap();
        let command = installed.path().join("install");
        let folder = installed.path().display();
        let copy = format!("cp \"$2\" {folder}/image && echo \"$3\" >{folder}/version");
        let next = format!("echo \"$2\" >{folder}/next");
        install_by(&command, &format!("case $1 in install) {copy} ;; activate) {next} ;; esac"));
        let options = ["--image-command", command.to_str().unwrap(), "--image-version", "1"];
        let agent = start_agent(&net, &bootstrap, &options).await;
        let _server = bootstrap.faulty(fault).await;
        start(&agent);
        if complaint.is_empty() {
            until_status(&agent, "BOOTZ_OK").await;
            let file = |name: &str| fs::read_to_string(installed.path().join(name)).unwrap();
            assert_eq!((&*file("image"), &*file("version")), ("an image", "2\n"), "{url}");
            assert_eq!(file("next"), "2\n", "{url}");
        } else {
            until_status(&agent, "BOOTZ_OS_INVALID_IMAGE").await;
            let status = bootz(&agent, &["status"]);
            assert!(status.contains(complaint), "{url}: {status}");
            assert!(!installed.path().join("image").exists(), "{url}");
            assert_eq!(get_boot(&mut boot_config_stub(&agent).await).await, None, "{url}");
        }
    }
}

// proves 4.49, 4.51
#[tokio::test]
async fn a_box_without_slots_says_by_status_that_it_does_not_take_the_image() {
    let net = Netns::enter();
    let image = image(IMAGE, IMAGE_SHA256);
    let bootstrap = BootstrapFixture::new(&net, ServerData { image: &image, ..server_data(true) });
    let server = bootstrap.emulator().await;
    let mut agent = start_agent(&net, &bootstrap, &["--image-version", "1"]).await;
    start(&agent);
    until_status(&agent, "BOOTZ_OS_INVALID_IMAGE").await;
    eventually("the server is told", || {
        let log = server.log();
        log.contains("BOOTSTRAP_STATUS_FAILURE") && log.contains("this box runs 1 and has no slot")
    })
    .await;
    assert!(!server.log().contains("BOOTSTRAP_STATUS_SUCCESS"), "{}", server.log());
    assert_eq!(get_boot(&mut boot_config_stub(&agent).await).await, None, "half of it is applied");

    // With the intended version there is nothing to install.
    agent.kill();
    let mut options = bootstrap.options();
    options.extend(["--image-version", "2"].map(str::to_owned));
    agent.set_options(&options);
    agent.restart().await;
    until_status(&agent, "BOOTZ_OK").await;
    assert!(server.log().contains("BOOTSTRAP_STATUS_SUCCESS"), "{}", server.log());
}

/// The URL of the image on a server without TLS, in the namespace of this thread.
async fn serve_image() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/image", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _asked = stream.read(&mut request).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nan image";
            let _sent = stream.write_all(answer).await;
        }
    });
    url
}

/// Writes the command that installs images.
pub(crate) fn install_by(command: &Path, does: &str) {
    fs::write(command, format!("#!/bin/sh\n{does}\n")).unwrap();
    fs::set_permissions(command, Permissions::from_mode(0o700)).unwrap();
}

// proves 4.10
#[tokio::test]
async fn terminate_leaves_the_configuration_and_a_reset_goes_back_to_the_factory() {
    const BANNER: &str = "/system/config/login-banner";
    let net = Netns::enter();
    let bootstrap = BootstrapFixture::new(&net, ServerData { vendor: "", ..server_data(false) });
    let agent = start_agent(&net, &bootstrap, &[]).await;
    agent.gnmi().await.update(BANNER, "of the operator").await.unwrap();
    let banner = async || agent.gnmi().await.read(BANNER).await.ok();
    let parameters = agent.state_dir().join("bootz/parameters.json");
    start(&agent);
    eventually("nobody is there", || bootz(&agent, &["status"]).contains("cannot connect")).await;
    assert!(parameters.exists());
    bootz(&agent, &["terminate"]);
    eventually("it ends", || !parameters.exists()).await;
    assert_eq!(banner().await, Some(json!("of the operator")));

    let _server = bootstrap.emulator().await;
    start(&agent);
    until_status(&agent, "BOOTZ_OK").await;
    assert_eq!(banner().await, Some(json!("of the operator")));
    let ca = fs::read_to_string(agent.ca_file()).unwrap();
    bootz(&agent, &["reset"]);
    eventually("the box has an identity of its own again", || {
        fs::read_to_string(agent.ca_file()).is_ok_and(|it| it != ca)
    })
    .await;
    eventually_async("the agent is back", || accepts_connections(&agent)).await;
    assert_eq!((get_boot(&mut boot_config_stub(&agent).await).await, banner().await), (None, None));
    assert_eq!(leaf(&agent, "status").await, json!("BOOTZ_UNSPECIFIED"));
    assert!(!parameters.exists());
}
