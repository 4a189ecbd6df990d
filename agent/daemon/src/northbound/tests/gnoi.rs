//! gNOI through a real channel: the answers, and the state afterwards.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use holdfast_base::{Role, now_ns};
use holdfast_core::Datastore;
use holdfast_proto::bootz;
use holdfast_proto::gnmi::{self, get_request::DataType};
use holdfast_proto::gnoi::bootconfig::boot_config_client::BootConfigClient;
use holdfast_proto::gnoi::bootconfig::{
    FinalizeRequest, GetBootConfigRequest, RollbackRequest, SetBootConfigRequest,
    SetBootConfigVerifiedRequest, SetBootConfigVerifiedResponse, set_boot_config_verified_request,
};
use holdfast_proto::gnoi::factory_reset::factory_reset_client::FactoryResetClient;
use holdfast_proto::gnoi::factory_reset::{ResetError, StartRequest};
use holdfast_proto::gnoi::file::file_client::FileClient;
use holdfast_proto::gnoi::file::{self, get_response, put_request};
use holdfast_proto::gnoi::healthz;
use holdfast_proto::gnoi::healthz::healthz_client::HealthzClient;
use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnoi::system::{
    CancelRebootRequest, KillProcessRequest, Package, PingRequest, RebootMethod, RebootRequest,
    RebootStatusRequest, SetPackageRequest, SwitchControlProcessorRequest, TimeRequest,
    TracerouteRequest, kill_process_request, set_package_request,
};
use holdfast_proto::gnoi::types::hash_type::HashMethod;
use holdfast_proto::gnoi::types::{HashType, Path, PathElem};
use holdfast_proto::google::rpc;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::fake_datastore::FakeDatastore;
use super::harness::{channel, client, get_request, set_request, value};
use crate::reboot::RebootScope;

type Boots = BootConfigClient<Channel>;

const MGMT: &str = r#"{"holdfast:interfaces":{"interface":[{"name":"mgmt0","enabled":true}]}}"#;

async fn boots(core: &FakeDatastore) -> Boots {
    BootConfigClient::new(channel(core, Some(Role::Admin)).await)
}

pub(super) fn config(vendor: &str, hostname: &str) -> bootz::BootConfig {
    let oc_config = match hostname {
        "" => String::new(),
        name => format!(r#"{{"openconfig-system:system":{{"config":{{"hostname":"{name}"}}}}}}"#),
    };
    bootz::BootConfig {
        vendor_config: vendor.to_owned().into(),
        oc_config: oc_config.into(),
        ..Default::default()
    }
}

pub(super) fn request(config: bootz::BootConfig) -> SetBootConfigRequest {
    SetBootConfigRequest { boot_config: Some(config), ..Default::default() }
}

async fn set(client: &mut Boots, config: bootz::BootConfig) -> Result<(), Status> {
    client.set_boot_config(request(config)).await.map(drop)
}

async fn get(client: &mut Boots) -> Option<bootz::BootConfig> {
    client.get_boot_config(GetBootConfigRequest {}).await.unwrap().into_inner().boot_config
}

fn hostname(core: &FakeDatastore) -> Option<String> {
    let configuration = core.configuration();
    let path = configuration.models().native.resolve_write(&"/system/hostname".parse().unwrap());
    configuration.effective().find_leaf(&path.unwrap()).map(|leaf| leaf.value.to_string())
}

// proves 3.7, 3.25, 3.26, 3.27, 3.30, 4.75, 4.77, 4.78, 4.82, 6.10
#[tokio::test]
async fn a_boot_configuration_is_set_as_a_whole_and_read_as_it_was_set() {
    let core = FakeDatastore::new();
    let mut client = boots(&core).await;
    assert_eq!(get(&mut client).await, None);
    set(&mut client, config(MGMT, "one")).await.unwrap();
    assert_eq!(get(&mut client).await, Some(config(MGMT, "one")));
    assert_eq!(hostname(&core).as_deref(), Some("one"));
    client.set_boot_config(SetBootConfigRequest::default()).await.unwrap();
    assert_eq!(get(&mut client).await, Some(config(MGMT, "one")), "nothing was said of it");

    let clash = r#"{"holdfast:system":{"hostname":"two"}}"#;
    let dynamic = |vendor: &str, openconfig: &str| bootz::BootConfig {
        dynamic_vendor_config: vendor.to_owned().into(),
        dynamic_oc_config: openconfig.to_owned().into(),
        ..config(MGMT, "three")
    };
    for (refused, word) in [
        (config("{", ""), "vendor_config"),
        (config(clash, "one"), "hostname"),
        (config(r#"{"holdfast:nosuch":1}"#, ""), "nosuch"),
        (dynamic("{}", ""), "dynamic_vendor_config"),
        (dynamic("", "{}"), "dynamic_oc_config"),
    ] {
        let status = set(&mut client, refused).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(word), "{status:?}");
        assert_eq!(get(&mut client).await, Some(config(MGMT, "one")));
        assert_eq!(hostname(&core).as_deref(), Some("one"));
    }
    set(&mut client, bootz::BootConfig::default()).await.unwrap();
    assert_eq!(get(&mut client).await, Some(bootz::BootConfig::default()));
    assert_eq!(hostname(&core), None);
}

// proves 3.11, 3.12, 3.14, 3.17, 3.24
#[tokio::test]
async fn a_refusal_names_the_reserved_item_and_its_service() {
    let core = FakeDatastore::new();
    set(&mut boots(&core).await, config(MGMT, "boot")).await.unwrap();
    let mut gnmi = client(&core).await;
    let users = "/system/aaa/authentication/users/user[username=ada]/config";
    for (operation, item, owner) in [
        (r#"update /system/config/hostname "mine""#.to_owned(), "hostname", "bootz"),
        ("delete /interfaces/interface[name=mgmt0]".to_owned(), "mgmt0", "bootz"),
        (
            r#"update /interfaces/interface[name=mgmt0]/config/enabled false"#.to_owned(),
            "mgmt0",
            "bootz",
        ),
        (format!(r#"update {users} {{"role":"admin","password":"x"}}"#), "password", "gnsi"),
    ] {
        let status = gnmi.set(set_request(&operation)).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{operation}: {status:?}");
        for word in [item, owner] {
            assert!(status.message().contains(word), "{operation}: {status:?}");
        }
    }
    gnmi.set(set_request("delete /")).await.unwrap();
    assert_eq!(hostname(&core).as_deref(), Some("boot"));
    // Get CONFIG shows configuration of clients and none of boot, so it can be sent back.
    let own = "/interfaces/interface[name=eth0]/config/description";
    gnmi.set(set_request(&format!(r#"update {own} "a client's""#))).await.unwrap();
    let request = gnmi::GetRequest { r#type: DataType::Config as i32, ..get_request(&["/"]) };
    let response = gnmi.get(request).await.unwrap().into_inner();
    let response = value(response.notification[0].update[0].val.as_ref());
    assert!(response.contains("a client's"), "{response}");
    for item in ["mgmt0", "hostname"] {
        assert!(!response.contains(item), "{response}");
    }
}

/// One trial of a boot configuration.
struct Trial {
    request_tx: mpsc::Sender<SetBootConfigVerifiedRequest>,
    responses: Streaming<SetBootConfigVerifiedResponse>,
}

impl Trial {
    async fn open(client: &mut Boots, config: bootz::BootConfig) -> Self {
        let (request_tx, request_rx) = mpsc::channel(4);
        let trial = Self::say_to(
            &request_tx,
            set_boot_config_verified_request::SetRequest::Set(request(config)),
        );
        trial.await;
        let responses = client.set_boot_config_verified(ReceiverStream::new(request_rx)).await;
        let mut responses = responses.unwrap().into_inner();
        assert!(responses.message().await.unwrap().is_some());
        Self { request_tx, responses }
    }

    async fn say_to(
        request_tx: &mpsc::Sender<SetBootConfigVerifiedRequest>,
        step: set_boot_config_verified_request::SetRequest,
    ) {
        let request = SetBootConfigVerifiedRequest { set_request: Some(step) };
        request_tx.send(request).await.unwrap();
    }

    async fn say(&self, step: set_boot_config_verified_request::SetRequest) {
        Self::say_to(&self.request_tx, step).await;
    }

    /// The answer to the last step, and the end.
    async fn end(mut self) -> Result<bool, Status> {
        let answered = self.responses.message().await?.is_some();
        drop(self.request_tx);
        assert!(self.responses.message().await?.is_none());
        Ok(answered)
    }
}

/// Waits for a host name: the trial of a cut stream is rolled back without a request.
async fn until(core: &FakeDatastore, name: &str) {
    while hostname(core).as_deref() != Some(name) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

// proves 4.80, 4.81, 6.10
#[tokio::test]
async fn a_boot_configuration_that_is_not_finalized_is_taken_back() {
    let core = FakeDatastore::new();
    let mut client = boots(&core).await;
    set(&mut client, config(MGMT, "one")).await.unwrap();

    let trial = Trial::open(&mut client, config("", "two")).await;
    assert_eq!(hostname(&core).as_deref(), Some("two"));
    let status = set(&mut client, config("", "three")).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "one trial at a time");
    let rollback = RollbackRequest { reason: "no link".to_owned() };
    trial.say(set_boot_config_verified_request::SetRequest::Rollback(rollback)).await;
    assert!(trial.end().await.unwrap());
    assert_eq!(get(&mut client).await, Some(config(MGMT, "one")));
    assert_eq!(hostname(&core).as_deref(), Some("one"));

    drop(Trial::open(&mut client, config("", "two")).await);
    until(&core, "one").await;
    assert_eq!(get(&mut client).await, Some(config(MGMT, "one")));

    let trial = Trial::open(&mut client, config("", "two")).await;
    trial
        .say(set_boot_config_verified_request::SetRequest::Set(request(config("", "three"))))
        .await;
    assert_eq!(trial.end().await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(hostname(&core).as_deref(), Some("one"));

    let trial = Trial::open(&mut client, config("", "two")).await;
    trial.say(set_boot_config_verified_request::SetRequest::Finalize(FinalizeRequest {})).await;
    assert!(trial.end().await.unwrap());
    assert_eq!(hostname(&core).as_deref(), Some("two"));
    set(&mut client, config("", "three")).await.unwrap();
}

#[tokio::test]
async fn a_trial_begins_with_what_is_to_be_tried() {
    let core = FakeDatastore::new();
    let mut client = boots(&core).await;
    for first in [
        set_boot_config_verified_request::SetRequest::Finalize(FinalizeRequest {}),
        set_boot_config_verified_request::SetRequest::Set(SetBootConfigRequest::default()),
    ] {
        let request = SetBootConfigVerifiedRequest { set_request: Some(first) };
        let stream = client.set_boot_config_verified(tokio_stream::once(request)).await.unwrap();
        let status = stream.into_inner().message().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

pub(super) fn reboot(method: RebootMethod, delay: Duration, message: &str) -> RebootRequest {
    RebootRequest {
        method: method as i32,
        delay: ns(delay),
        message: message.to_owned(),
        ..Default::default()
    }
}

// proves 6.1, 6.4, 6.5, 6.6, 6.30
#[tokio::test]
async fn reboots_are_requested_listed_and_cancelled() {
    let core = FakeDatastore::new();
    let mut client = SystemClient::new(channel(&core, Some(Role::Admin)).await);
    let time = client.time(TimeRequest {}).await.unwrap().into_inner().time;
    assert!(now_ns().abs_diff(time) < ns(Duration::from_secs(1)));

    client.cancel_reboot(CancelRebootRequest::default()).await.unwrap();
    let hour = Duration::from_secs(3600);
    for method in [RebootMethod::Unknown, RebootMethod::Nsf, RebootMethod::Powerdown] {
        let status = client.reboot(reboot(method, hour, "")).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{method:?}");
        assert!(status.message().contains(method.as_str_name()), "{status:?}");
    }
    client.reboot(reboot(RebootMethod::Cold, hour, "upgrade")).await.unwrap();
    let second = client.reboot(reboot(RebootMethod::Cold, hour, "again")).await.unwrap_err();
    assert_eq!(second.code(), Code::FailedPrecondition);
    let status = client.reboot_status(RebootStatusRequest::default()).await.unwrap().into_inner();
    assert!(status.active && status.reason == "upgrade" && status.status.is_none(), "{status:?}");
    assert_eq!(status.method(), RebootMethod::Cold);
    let hour = ns(hour);
    assert!(status.wait <= hour && status.wait > hour / 2 && status.when > now_ns(), "{status:?}");
    client.cancel_reboot(CancelRebootRequest::default()).await.unwrap();
    let status = client.reboot_status(RebootStatusRequest::default()).await.unwrap().into_inner();
    assert!(!status.active && status.wait == 0 && status.status.is_some(), "{status:?}");
}

/// The message of a refusal with this code.
#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code) -> String {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), code, "{status:?}");
    status.message().to_owned()
}

#[tokio::test]
async fn invalid_ping_and_traceroute_requests_name_the_field() {
    let mut client = SystemClient::new(channel(&FakeDatastore::new(), Some(Role::Admin)).await);
    let here = || PingRequest { destination: "127.0.0.1".into(), ..Default::default() };
    for (request, code, word) in [
        (PingRequest::default(), Code::InvalidArgument, "destination"),
        (PingRequest { count: -2, ..here() }, Code::InvalidArgument, "count -2"),
        (PingRequest { interval: -2, ..here() }, Code::InvalidArgument, "interval -2"),
        (PingRequest { wait: -1, ..here() }, Code::InvalidArgument, "wait -1"),
        (PingRequest { size: -1, ..here() }, Code::InvalidArgument, "size -1"),
        (PingRequest { size: 65_508, ..here() }, Code::InvalidArgument, "65507"),
        (PingRequest { l3protocol: 2, ..here() }, Code::InvalidArgument, "IPV6"),
        (PingRequest { l3protocol: 9, ..here() }, Code::InvalidArgument, "l3protocol 9"),
        (PingRequest { source: "eth0".into(), ..here() }, Code::InvalidArgument, "`eth0`"),
        (PingRequest { source: "::1".into(), ..here() }, Code::InvalidArgument, "`::1`"),
        (PingRequest { network_instance: "red".into(), ..here() }, Code::NotFound, "`red`"),
        (
            PingRequest { destination: "224.0.0.1".into(), ..Default::default() },
            Code::InvalidArgument,
            "one host",
        ),
    ] {
        let message = refused(client.ping(request).await, code);
        assert!(message.contains(word), "{message}");
    }
    let here = || TracerouteRequest { destination: "::1".into(), ..Default::default() };
    for (request, code, word) in [
        (TracerouteRequest::default(), Code::InvalidArgument, "destination"),
        (TracerouteRequest { max_ttl: 256, ..here() }, Code::InvalidArgument, "max_ttl 256"),
        (TracerouteRequest { max_ttl: -2, ..here() }, Code::InvalidArgument, "max_ttl -2"),
        (TracerouteRequest { initial_ttl: 31, ..here() }, Code::InvalidArgument, "initial_ttl 31"),
        (TracerouteRequest { initial_ttl: 256, ..here() }, Code::InvalidArgument, "initial_ttl"),
        (TracerouteRequest { l4protocol: 3, ..here() }, Code::InvalidArgument, "l4protocol 3"),
        (TracerouteRequest { wait: i64::MAX, ..here() }, Code::InvalidArgument, "wait"),
        (TracerouteRequest { l3protocol: 1, ..here() }, Code::InvalidArgument, "IPV4"),
        (TracerouteRequest { network_instance: "red".into(), ..here() }, Code::NotFound, "`red`"),
    ] {
        let message = refused(client.traceroute(request).await, code);
        assert!(message.contains(word), "{message}");
    }
}

fn component(name: &str) -> Path {
    let elem = |name: &str| PathElem { name: name.to_owned(), ..Default::default() };
    let key = [("name".to_owned(), name.to_owned())].into();
    Path {
        elem: vec![elem("components"), PathElem { key, ..elem("component") }],
        ..Default::default()
    }
}

// proves 6.8, 6.31
#[tokio::test]
async fn the_one_processor_is_switched_to_by_doing_nothing() {
    let core = FakeDatastore::new();
    let mut client = SystemClient::new(channel(&core, Some(Role::Admin)).await);
    let switch = |path| SwitchControlProcessorRequest { control_processor: path };
    let answer = client.switch_control_processor(switch(Some(component("cpu0")))).await.unwrap();
    let answer = answer.into_inner();
    assert_eq!(answer.control_processor, Some(component("cpu0")));
    assert!(!answer.version.is_empty() && answer.uptime > 0, "{answer:?}");
    let other = client.switch_control_processor(switch(Some(component("cpu1")))).await;
    assert!(refused(other, Code::NotFound).contains("cpu1"));
    for path in [None, Some(Path::default())] {
        refused(client.switch_control_processor(switch(path)).await, Code::InvalidArgument);
    }
    // Components of a reboot have the same names.
    let of = |name| RebootStatusRequest { subcomponents: vec![component(name)] };
    client.reboot_status(of("cpu0")).await.unwrap();
    refused(client.reboot_status(of("fan0")).await, Code::NotFound);
}

/// Sends a file in two parts.
async fn put(
    client: &mut FileClient<Channel>,
    name: &str,
    content: &[u8],
    hash: HashType,
) -> Result<(), Status> {
    let (first, second) = content.split_at(content.len() / 2);
    let open = file::put_request::Details { remote_file: name.to_owned(), permissions: 644 };
    let contents = |part: &[u8]| put_request::Request::Contents(part.to_vec().into());
    let parts = [
        put_request::Request::Open(open),
        contents(first),
        contents(second),
        put_request::Request::Hash(hash),
    ];
    let parts = parts.map(|part| file::PutRequest { request: Some(part) });
    client.put(tokio_stream::iter(parts)).await.map(drop)
}

#[tokio::test]
async fn files_are_put_read_and_removed_in_one_folder() {
    let core = FakeDatastore::new();
    let mut client = FileClient::new(channel(&core, Some(Role::Admin)).await);
    // The MD5 of "abc", from RFC 1321.
    let md5 = 0x9001_5098_3cd2_4fb0_d696_3f7d_28e1_7f72_u128.to_be_bytes();
    let hash = HashType { method: HashMethod::Md5.into(), hash: md5.to_vec().into() };
    put(&mut client, "notes", b"abc", hash.clone()).await.unwrap();
    let wrong = put(&mut client, "notes", b"abd", hash.clone()).await;
    assert!(refused(wrong, Code::InvalidArgument).contains("digest"));
    for name in ["../notes", "/etc/shadow", ".hidden", "", "sub/notes"] {
        let answer = put(&mut client, name, b"abc", hash.clone()).await;
        assert!(refused(answer, Code::InvalidArgument).contains("not a file name"), "{name}");
    }

    let all = client.stat(file::StatRequest::default()).await.unwrap().into_inner().stats;
    let [stat] = &all[..] else { panic!("{all:?}") };
    assert_eq!((stat.size, stat.permissions), (3, 600));
    assert!(stat.path.ends_with("/files/notes") && stat.last_modified > 0, "{stat:?}");

    let request = file::GetRequest { remote_file: stat.path.clone() };
    let mut answers = client.get(request).await.unwrap().into_inner();
    let mut content = Vec::new();
    let hash = loop {
        match answers.message().await.unwrap().unwrap().response.unwrap() {
            get_response::Response::Contents(part) => content.extend_from_slice(&part),
            get_response::Response::Hash(hash) => break hash,
        }
    };
    assert_eq!(content, b"abc");
    // A value of FIPS 180-2.
    assert_eq!(
        (hash.method(), &hash.hash[..4]),
        (HashMethod::Sha256, &[0xba, 0x78, 0x16, 0xbf][..])
    );

    let remove = |name: &str| file::RemoveRequest { remote_file: name.to_owned() };
    client.remove(remove("notes")).await.unwrap();
    refused(client.remove(remove("notes")).await, Code::NotFound);
    let elsewhere = client.transfer_to_remote(file::TransferToRemoteRequest::default()).await;
    refused(elsewhere, Code::Unimplemented);

    let mut reader = FileClient::new(channel(&core, Some(Role::ReadOnly)).await);
    refused(reader.stat(file::StatRequest::default()).await, Code::PermissionDenied);
}

#[tokio::test]
async fn health_is_told_of_the_components_that_telemetry_shows() {
    let core = FakeDatastore::new();
    let leaf = |part: &str, leaf: &str, value: &str| {
        let path = format!("/components/component[name={part}]/state/{leaf}");
        let path = core.models().native.resolve_write(&path.parse().unwrap()).unwrap();
        (path, Some(holdfast_config::Value::Str(value.into())))
    };
    core.show_state(vec![
        leaf("chassis", "name", "chassis"),
        leaf("cpu0", "parent", "chassis"),
        leaf("os", "parent", "chassis"),
    ])
    .await;
    let mut client = HealthzClient::new(channel(&core, Some(Role::Admin)).await);
    let get = |name| healthz::GetRequest { path: Some(component(name)) };
    let chassis = client.get(get("chassis")).await.unwrap().into_inner().component.unwrap();
    assert_eq!(chassis.status(), healthz::Status::Healthy);
    let below: Vec<_> = chassis.subcomponents.iter().map(|it| it.path.clone().unwrap()).collect();
    assert_eq!(below, [component("cpu0"), component("os")]);
    refused(client.get(get("fan9")).await, Code::NotFound);
    refused(client.get(healthz::GetRequest::default()).await, Code::InvalidArgument);
    let list = healthz::ListRequest { path: Some(component("os")), include_acknowledged: true };
    let events = client.list(list).await.unwrap().into_inner().statuses;
    assert_eq!(events, [], "nothing has an alarm");
    let artifact = healthz::ArtifactRequest { id: "1".into() };
    refused(client.artifact(artifact).await, Code::NotFound);
    let mut reader = HealthzClient::new(channel(&core, Some(Role::ReadOnly)).await);
    refused(reader.get(get("os")).await, Code::PermissionDenied);
}

fn kill(
    pid: u32,
    name: &str,
    signal: kill_process_request::Signal,
    restart: bool,
) -> KillProcessRequest {
    KillProcessRequest { pid, name: name.to_owned(), signal: signal.into(), restart }
}

// proves 6.9
#[tokio::test]
async fn only_processes_of_the_agent_are_signalled() {
    let core = FakeDatastore::new();
    let mut client = SystemClient::new(channel(&core, Some(Role::Admin)).await);
    let me = std::process::id();
    for (request, code) in [
        (kill(me, "", kill_process_request::Signal::Unspecified, false), Code::InvalidArgument),
        (kill(0, "", kill_process_request::Signal::Term, false), Code::InvalidArgument),
        (kill(1, "", kill_process_request::Signal::Kill, true), Code::InvalidArgument),
        (kill(me, "no-such-name", kill_process_request::Signal::Term, true), Code::InvalidArgument),
        (kill(0, "no-such-name", kill_process_request::Signal::Term, false), Code::NotFound),
        (kill(u32::MAX, "", kill_process_request::Signal::Term, false), Code::NotFound),
        (kill(me, "", kill_process_request::Signal::Term, false), Code::FailedPrecondition),
        (kill(me, "", kill_process_request::Signal::Kill, true), Code::FailedPrecondition),
    ] {
        refused(client.kill_process(request).await, code);
    }
    assert!(core.reboots().pending().is_none());
    let started = || {
        // The parent of the tests may ignore signals, which a child inherits.
        let sleep = ["--default-signal", "sleep", "600"];
        let child = std::process::Command::new("env").args(sleep).spawn().unwrap();
        let name = format!("/proc/{}/comm", child.id());
        while std::fs::read_to_string(&name).unwrap() != "sleep\n" {
            std::thread::yield_now();
        }
        child
    };
    let mut child = started();
    let restart = client
        .kill_process(kill(child.id(), "sleep", kill_process_request::Signal::Term, true))
        .await;
    assert!(refused(restart, Code::FailedPrecondition).contains("sleep"));
    client
        .kill_process(kill(child.id(), "sleep", kill_process_request::Signal::Term, false))
        .await
        .unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    let mut child = started();
    client
        .kill_process(kill(child.id(), "", kill_process_request::Signal::Hup, true))
        .await
        .unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(1), "there is nothing to restart after HUP");

    client.kill_process(kill(me, "", kill_process_request::Signal::Term, true)).await.unwrap();
    let pending = core.reboots().pending().unwrap();
    assert_eq!(pending.extent, RebootScope::Agent); // whatever a reboot of the box is
}

fn part(request: set_package_request::Request) -> SetPackageRequest {
    SetPackageRequest { request: Some(request) }
}

pub(super) fn package(filename: &str) -> SetPackageRequest {
    part(set_package_request::Request::Package(Package {
        filename: filename.to_owned(),
        ..Default::default()
    }))
}

fn contents(octets: &[u8]) -> SetPackageRequest {
    part(set_package_request::Request::Contents(octets.to_vec().into()))
}

fn sha256(of: &[u8]) -> SetPackageRequest {
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, of).as_ref().to_vec();
    part(set_package_request::Request::Hash(HashType {
        method: HashMethod::Sha256.into(),
        hash: hash.into(),
    }))
}

// proves 6.7, 6.32
#[tokio::test]
async fn a_package_is_kept_whole_or_not_at_all() {
    let core = FakeDatastore::new();
    let mut client = SystemClient::new(channel(&core, Some(Role::Admin)).await);
    let mut send =
        async |parts: Vec<SetPackageRequest>| client.set_package(tokio_stream::iter(parts)).await;
    let folder = core.state_folder().join("packages");
    let content = || std::fs::read(folder.join("os.img")).ok();
    let files = || std::fs::read_dir(&folder).map_or(0, Iterator::count);

    let chunk = vec![7; 64 << 10];
    let end = b"end";
    let whole = [&chunk[..], end].concat();
    let parts = vec![package("os.img"), contents(&chunk), contents(end), sha256(&whole)];
    send(parts).await.unwrap();
    assert_eq!((content(), files()), (Some(whole.clone()), 1));

    let unspecified = HashType { hash: vec![0; 32].into(), ..Default::default() };
    let activated = |version: &str| {
        part(set_package_request::Request::Package(Package {
            filename: "os.img".into(),
            activate: true,
            version: version.to_owned(),
            ..Default::default()
        }))
    };
    for (parts, code, word) in [
        (vec![package("os.img"), contents(b"new")], Code::InvalidArgument, "before `hash`"),
        (
            vec![package("os.img"), contents(b"new"), sha256(b"other")],
            Code::InvalidArgument,
            "digest",
        ),
        (
            vec![
                package("os.img"),
                contents(b"new"),
                part(set_package_request::Request::Hash(unspecified)),
            ],
            Code::InvalidArgument,
            "method 0",
        ),
        (vec![package("os.img"), contents(&[7; (64 << 10) + 1])], Code::InvalidArgument, "65537"),
        (vec![package("os.img"), package("os.img")], Code::InvalidArgument, "once"),
        (vec![contents(b"new")], Code::InvalidArgument, "first"),
        (vec![], Code::InvalidArgument, "first"),
        (vec![package("os.img"), SetPackageRequest::default()], Code::InvalidArgument, "none of"),
        (vec![package("/etc/passwd"), sha256(b"")], Code::InvalidArgument, "/etc/passwd"),
        (vec![activated("2.0")], Code::FailedPrecondition, "--image-command"),
        (vec![activated("")], Code::InvalidArgument, "version"),
    ] {
        let message = refused(send(parts).await, code);
        assert!(message.contains(word), "{message}");
        assert_eq!((content(), files()), (Some(whole.clone()), 1), "{message}");
    }
    send(vec![package("os.img"), contents(b"new"), sha256(b"new")]).await.unwrap();
    assert_eq!(content().as_deref(), Some(&b"new"[..]));
}

// proves 6.11
#[tokio::test]
async fn a_refused_factory_reset_names_the_missing_setting() {
    let core = FakeDatastore::new();
    set(&mut boots(&core).await, config(MGMT, "one")).await.unwrap();
    let mut client = FactoryResetClient::new(channel(&core, Some(Role::Admin)).await);
    for (request, want) in [
        (StartRequest { factory_os: true, ..Default::default() }, (true, false)),
        (StartRequest { zero_fill: true, ..Default::default() }, (false, true)),
    ] {
        let status = client.start(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let details = rpc::Status::decode(status.details()).unwrap().details;
        let error = ResetError::decode(&details[0].value[..]).unwrap();
        assert_eq!((error.factory_os_unsupported, error.zero_fill_unsupported), want);
        assert_eq!(hostname(&core).as_deref(), Some("one"));
    }
    client.start(StartRequest::default()).await.unwrap();
    assert_eq!((hostname(&core), get(&mut boots(&core).await).await), (None, None));
    assert!(core.reboots().pending().is_some());
}

// proves 1.7
#[tokio::test]
async fn a_reader_changes_nothing() {
    let core = FakeDatastore::new();
    let channel = || channel(&core, Some(Role::ReadOnly));
    let mut client = BootConfigClient::new(channel().await);
    let status = set(&mut client, config(MGMT, "one")).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let none = tokio_stream::empty::<SetBootConfigVerifiedRequest>();
    let status = client.set_boot_config_verified(none).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let mut client = SystemClient::new(channel().await);
    client.time(TimeRequest {}).await.unwrap();
    let cold = reboot(RebootMethod::Cold, Duration::ZERO, "");
    assert_eq!(client.reboot(cold).await.unwrap_err().code(), Code::PermissionDenied);
    refused(client.ping(PingRequest::default()).await, Code::PermissionDenied);
    refused(client.traceroute(TracerouteRequest::default()).await, Code::PermissionDenied);
    refused(client.kill_process(KillProcessRequest::default()).await, Code::PermissionDenied);
    refused(client.set_package(tokio_stream::empty()).await, Code::PermissionDenied);
    let switch = SwitchControlProcessorRequest::default();
    refused(client.switch_control_processor(switch).await, Code::PermissionDenied);
    let mut client = FactoryResetClient::new(channel().await);
    let status = client.start(StartRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(hostname(&core), None);
}
