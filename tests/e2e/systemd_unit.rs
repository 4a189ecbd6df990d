//! The packaged unit: the agent's functions with its capabilities alone, and the capabilities that the agent gives up.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

use holdfast_proto::gnoi::system::kill_process_request::Signal;
use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnoi::system::{KillProcessRequest, PingRequest, RebootMethod, RebootRequest};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::bootz::{BootstrapFixture, LEASED, PORT, ServerData};
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::netns::Netns;
use holdfast_tests::sshd::{SshBox, SshCredential};
use holdfast_tests::systemd_unit::{DROP_INS, capabilities, packaging_folder};
use serde_json::json;
use tonic::Code;

use crate::bootz::until_status;
use crate::credentialz::{CredentialRotation, client, open_account_rotation, plain};
use crate::documents::port;
use crate::factory::accepts_connections;
use crate::ping_traceroute::{System, collect_ping, ping};

/// The largest exposure of the plain unit by `systemd-analyze security`, in tenths: 2.1 with version 252, and the
/// user guide explains each point; later versions differ slightly.
const MAX_EXPOSURE: u32 = 25;
/// The largest exposure of the unit of handlers, in tenths: 0.4 with version 252.
const MAX_HANDLER_EXPOSURE: u32 = 10;
/// The largest exposure of the unit that waits for the configuration, in tenths.
const MAX_WAITING_EXPOSURE: u32 = 15;
/// The largest exposure of the unit that tells of alarms, in tenths: its program may speak to the network.
const MAX_TELLING_EXPOSURE: u32 = 25;
/// Lines that only later service managers know; earlier ones start the agent anew after equal pauses.
const KNOWN_LATER: [&str; 2] = ["RestartSteps", "RestartMaxDelaySec"];
/// The capability that the agent gives up, as a bit of `CapEff`.
const SYS_ADMIN: u64 = 1 << 21;

/// A line of a `status` file in /proc.
fn status(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

fn set(path: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(&status(path, name)?, 16).ok()
}

/// The union of the capabilities of all threads of the agent.
fn effective(agent: &AgentProcess) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", agent.pid())).unwrap();
    let sets = tasks.flatten().filter_map(|task| {
        let file = task.path().join("status");
        Some(set(file.to_str()?, "CapEff")? | set(file.to_str()?, "CapPrm")?)
    });
    sets.reduce(|all, each| all | each).unwrap()
}

/// Process ids of the agent's helpers.
fn helpers(agent: &AgentProcess) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let numbers = all.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let parent = agent.pid().to_string();
    numbers
        .filter(|pid| status(&format!("/proc/{pid}/status"), "PPid").as_deref() == Some(&parent))
        .collect()
}

async fn system(agent: &AgentProcess) -> System {
    SystemClient::with_interceptor(agent.channel().await, agent.credentials())
}

fn hostname() -> String {
    nix::unistd::gethostname().unwrap().into_string().unwrap()
}

#[tokio::test]
async fn the_plain_unit_manages_the_network_and_nothing_else() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start_with_unit(&net, &[], &[], None).await;
    let client = agent.gnmi().await;
    let ports = json!({"interface": [port("eth0", &["192.0.2.1/24"])]});
    client.update("/interfaces", ports).await.unwrap();
    assert_eq!(net.addresses("eth0"), ["192.0.2.1/24"]);
    let (_, summary) =
        collect_ping(&mut system(&agent).await, PingRequest { count: 1, ..ping("127.0.0.1") })
            .await
            .unwrap();
    assert_eq!(summary.received, 1);
    assert!(client.read("/interfaces/interface[name=eth0]/state").await.is_ok());

    let before = hostname();
    let refused = client.update("/system/config/hostname", "edge").await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    for part in ["name the host", "EPERM", "CAP_SYS_ADMIN", "20-system.conf"] {
        assert!(refused.message().contains(part), "`{part}` is not in: {refused}");
    }
    assert_eq!((hostname(), helpers(&agent)), (before, Vec::new()));
    // CAP_NET_ADMIN and CAP_NET_RAW.
    assert_eq!(effective(&agent), 1 << 12 | 1 << 13);
    // A process of the same user with all capabilities of the agent, and more, cannot read its memory; only
    // CAP_SYS_PTRACE would allow it.
    let read = format!(": </proc/{}/mem", agent.pid());
    let output = Command::new("setpriv")
        .args(["--bounding-set=-sys_ptrace", "sh", "-c", &read])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("Permission denied"), "{output:?}");
}

#[tokio::test]
async fn hostname_is_set_by_a_confined_helper() {
    let net = Netns::enter();
    // The option that the unit has; WARM starts the agent anew all the same.
    let options = ["--reboot", "system"];
    let agent = AgentProcess::start_with_unit(&net, &["20-system"], &options, None).await;
    let name = async |name: &str| {
        agent.gnmi().await.update("/system/config/hostname", name).await.unwrap();
        assert_eq!(hostname(), name);
    };
    name("edge-1").await;
    assert_eq!(effective(&agent) & SYS_ADMIN, 0, "no thread of the agent may do it itself");
    let [helper] = helpers(&agent)[..] else { panic!("one helper: {:?}", helpers(&agent)) };
    let file = format!("/proc/{helper}/status");
    assert_eq!(set(&file, "CapPrm"), Some(SYS_ADMIN));
    assert_eq!(status(&file, "NoNewPrivs").as_deref(), Some("1"));

    // The helper is a part of the agent, and must not be ended by KillProcess.
    let kill =
        KillProcessRequest { pid: helper, signal: Signal::Term.into(), ..Default::default() };
    let refused = system(&agent).await.kill_process(kill).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");

    // An agent that restarts in place finds the helper again, and keeps its process name.
    let starts = || agent.log().matches("listening").count();
    let before = starts();
    let request = RebootRequest { method: RebootMethod::Warm as i32, ..Default::default() };
    system(&agent).await.reboot(request).await.unwrap();
    eventually("the agent listens anew", || starts() > before).await;
    eventually_async("the agent is back", || accepts_connections(&agent)).await;
    name("edge-2").await;
    assert_eq!(helpers(&agent), [helper]);
    let comm = fs::read_to_string(format!("/proc/{}/comm", agent.pid())).unwrap();
    assert_eq!(comm, "holdfast\n");
}

#[tokio::test]
async fn agent_drops_unneeded_capabilities() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let file = format!("/proc/{}/status", agent.pid());
    // CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_PTRACE, CAP_SYS_ADMIN, CAP_SYS_BOOT, CAP_SETUID, CAP_BPF.
    let dangerous = [16, 17, 19, 21, 22, 7, 39].map(|bit| 1_u64 << bit).into_iter().sum::<u64>();
    assert_eq!(effective(&agent) & dangerous, 0);
    assert_eq!(set(&file, "CapBnd").unwrap() & dangerous, 0);
    assert_eq!(status(&file, "NoNewPrivs").as_deref(), Some("1"));
    let limits = fs::read_to_string(format!("/proc/{}/limits", agent.pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"]);
}

#[tokio::test]
async fn passwords_are_rotated_where_the_shadow_file_belongs_to_a_group() {
    let net = Netns::enter();
    let mut ssh = SshBox::new();
    let behind = ssh.command();
    let behind = Some((&behind[..], "/".as_ref()));
    let agent = AgentProcess::start_with_unit(&net, &["30-credentials"], &[], behind).await;
    ssh.serve().await;
    let owner = || {
        let meta = fs::metadata(ssh.path("etc/shadow")).unwrap();
        (meta.uid(), meta.gid(), meta.mode() & 0o7777)
    };
    let before = owner();
    let mut rotation = open_account_rotation(&mut client(&agent).await).await;
    rotation.request(plain("1", "in an emergency")).await;
    rotation.finalize().await;
    assert!(ssh.accepts(SshCredential::Password("in an emergency")));
    assert_eq!(owner(), before);
    assert_eq!(before.2, 0o640);
}

#[tokio::test]
async fn an_address_is_leased_and_the_box_bootstrapped_under_the_unit() {
    let net = Netns::enter();
    let data = ServerData {
        openconfig: r#"{"openconfig-system:system":{"config":{"hostname":"bootstrapped"}}}"#,
        ..ServerData::default()
    };
    let bootstrap = BootstrapFixture::factory_new(&net, data);
    let _server = bootstrap.emulator().await;
    let _dhcp = bootstrap.dnsmasq().await;
    let options = bootstrap.options_of_factory_new();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let drop_ins = ["10-dhcp", "20-system"];
    let agent = AgentProcess::start_with_unit(&net, &drop_ins, &options, None).await;
    until_status(&agent, "BOOTZ_OK").await;
    assert_eq!((net.addresses(PORT), hostname().as_str()), (vec![LEASED.into()], "bootstrapped"));
}

#[test]
fn the_unit_gives_what_its_drop_ins_say() {
    assert_eq!(capabilities(&[]), ["net_admin", "net_raw"]);
    let all: BTreeSet<_> = capabilities(&DROP_INS).into_iter().collect();
    let want = ["chown", "net_admin", "net_bind_service", "net_raw", "sys_admin"];
    assert_eq!(all, want.map(str::to_owned).into());
    let files = fs::read_dir(packaging_folder().join("holdfast.service.d")).unwrap().flatten();
    let names: BTreeSet<PathBuf> = files.map(|file| file.file_name().into()).collect();
    assert_eq!(names, DROP_INS.map(|name| format!("{name}.conf").into()).into());
}

#[test]
fn the_plain_unit_is_hardly_exposed() {
    check_exposure("holdfast.service", "holdfast.service", MAX_EXPOSURE);
}

#[test]
fn the_unit_of_handlers_is_exposed_least() {
    let instance = "holdfast-service@example.service";
    check_exposure("holdfast-service@.service", instance, MAX_HANDLER_EXPOSURE);
}

#[test]
fn the_unit_that_waits_is_hardly_exposed() {
    let name = "holdfast-wait-online.service";
    check_exposure(name, name, MAX_WAITING_EXPOSURE);
}

#[test]
fn the_unit_that_tells_of_alarms_is_hardly_exposed() {
    let name = "holdfast-fault-watch@.service";
    check_exposure(name, "holdfast-fault-watch@mail.service", MAX_TELLING_EXPOSURE);
}

#[test]
fn the_units_never_give_up_and_hold_others_back() {
    let lines = |file: &str| {
        let text = fs::read_to_string(packaging_folder().join(file)).unwrap();
        text.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let unit = lines("holdfast.service");
    for line in [
        "Wants=network-pre.target network.target",
        "Before=network.target",
        "StartLimitIntervalSec=0",
        "RestartSec=5s",
        "Type=notify",
    ] {
        assert!(unit.contains(line), "{line}");
    }
    assert!(!unit.iter().any(|line| line.starts_with("RestartPreventExitStatus")));
    let waiting = lines("holdfast-wait-online.service");
    for line in ["After=holdfast.service", "Before=network-online.target", "Type=oneshot"] {
        assert!(waiting.contains(line), "{line}");
    }
}

/// Checks a packaged unit under the name that it has on a box. The threshold is in tenths.
fn check_exposure(file: &str, name: &str, threshold: u32) {
    // Drop-ins beside the file would count as well.
    let folder = tempfile::tempdir().unwrap();
    let unit = folder.path().join(name);
    fs::copy(packaging_folder().join(file), &unit).unwrap();
    let analyzed = Command::new("systemd-analyze")
        .args(["security", "--offline=yes", "--no-pager"])
        .arg(format!("--threshold={threshold}"))
        .arg(unit)
        .output()
        .expect("systemd-analyze is there: tests/scripts/setup.sh test installs it");
    let report = String::from_utf8_lossy(&analyzed.stdout);
    assert!(report.contains(&format!("Overall exposure level for {name}")), "{analyzed:?}");
    assert!(analyzed.status.success(), "{report}");
    // A line that the service manager does not know would protect nothing.
    let warnings = String::from_utf8_lossy(&analyzed.stderr);
    let mut unknown = warnings.lines().filter(|line| line.contains("Unknown"));
    let is_known_later = |line: &str| KNOWN_LATER.iter().any(|name| line.contains(name));
    assert!(unknown.all(is_known_later), "{analyzed:?}");
}
