//! A box that systemd runs, with the Debian package of this build: its limits of memory, a reboot by gNOI, and power cuts.
//!
//! The host plays the test. Clients are parts of it that run in the guest, with the files of the host.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use holdfast_proto::gnmi::SetRequest;
use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnoi::system::{
    RebootMethod, RebootRequest, RebootStatusRequest, reboot_status,
};
use holdfast_tests::agent::{ADMIN, PASSWORD};
use holdfast_tests::eventually::eventually_within;
use holdfast_tests::gnmi::{Credentials, GnmiClient, connect, update};
use holdfast_tests::lab::{Disk, Guest, part, script_in_host_files};
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::power::{ANSWERED, STATIC, answered, in_share, record_answer};

/// The agent of the guest, for clients there.
const AGENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9339);
const ADDRESS: &str = "10.9.0.1";
const GATEWAY: &str = "10.9.0.254";
/// Routes of the box. They take so long that a unit which is started behind the agent would find some of them missing if
/// the agent said too early that it is ready.
const ROUTES: u32 = 300;

/// `MemoryHigh=` and `MemoryMax=` of the packaged unit, in bytes.
const MEMORY_HIGH: u64 = 1536 << 20;
const MEMORY_MAX: u64 = 2048 << 20;
/// Part of [`MEMORY_HIGH`] that a small box stays below. Most of its memory are pages of the program, which the kernel can
/// drop.
const SMALL: u64 = 8;
/// `MemoryMax=` of a drop-in, in bytes: twice what the agent itself has with the routes of the box.
const LOW_LIMIT: u64 = 40 << 20;
/// Routes of a Set that takes several times as much as [`LOW_LIMIT`].
const TOO_MANY_ROUTES: u32 = 20_000;

const POWER_CUTS: u32 = 3;
/// Sets that are answered in each round before the power is cut.
const ANSWERS: u32 = 5;
/// Moment of a power cut after the last of these answers. Each round has a later one.
const BETWEEN_MOMENTS: Duration = Duration::from_millis(70);
/// Time limit for these answers. They take some seconds, and many times that on a busy machine.
const ANSWERS_LIMIT: Duration = Duration::from_secs(240);

/// Number of looks at something that is waited for, five in a second: the agent is started anew after 5 s.
const LOOKS: u32 = 600;

/// Description of the port before the power cuts.
const FIRST: &str = "first";

/// The test below, whose parts run in guests.
const TEST: &str = "systemd::a_box_of_the_package_outlives_lack_of_memory_reboots_and_power_cuts";
const CONFIGURE: &str = "configure";
const LARGE_SET: &str = "large-set";
const REBOOT: &str = "reboot";
const REBOOTED: &str = "rebooted";
const SETS: &str = "sets";

// proves 6.4, 6.5, 1.85, 3.34
#[tokio::test]
async fn a_box_of_the_package_outlives_lack_of_memory_reboots_and_power_cuts() {
    match part().as_deref() {
        None => play().await,
        Some(CONFIGURE) => configure().await,
        Some(LARGE_SET) => a_large_set_has_no_answer().await,
        Some(REBOOT) => reboot().await,
        Some(REBOOTED) => the_reboot_is_remembered().await,
        Some(SETS) => sets_without_end().await,
        Some(other) => panic!("the test has no part `{other}`"),
    }
}

async fn play() {
    let disk = Disk::with_systemd().unwrap();
    let guest = Guest::boot_systemd(&disk).unwrap();
    check_boot(&guest);
    run_part(&guest, CONFIGURE);
    assert_eq!(kernel_now(&guest), Kernel::described(FIRST));

    memory_limits_are_in_force(&guest);
    an_agent_at_its_limit_is_started_anew(&guest);
    a_cold_reboot_is_one_of_the_box(&guest);
    power_cuts_lose_nothing_that_was_answered(guest, &disk).await;
}

fn memory_limits_are_in_force(guest: &Guest) {
    assert_eq!([memory(guest, "high"), memory(guest, "max")], [MEMORY_HIGH, MEMORY_MAX]);
    let peak = memory(guest, "peak");
    assert!(peak < MEMORY_HIGH / SMALL, "a small box takes {peak} bytes");
}

fn an_agent_at_its_limit_is_started_anew(guest: &Guest) {
    // The pages of the program stay with the first group that has read them. In the group of another start they do not
    // count, so memory ends there with what the agent has asked for, and not with a program that is read again and again.
    output(guest, "systemctl stop holdfast");
    // A drop-in in /run, which ends with the boot.
    output(guest, &format!("systemctl set-property --runtime holdfast MemoryMax={LOW_LIMIT}"));
    output(guest, "systemctl start holdfast");
    assert_eq!(memory(guest, "max"), LOW_LIMIT);
    let pid = output(guest, "systemctl show holdfast --value --property MainPID");
    assert_eq!(restarts(guest), "0");

    run_part(guest, LARGE_SET);
    let killed = format!("Memory cgroup out of memory: Killed process {} (holdfast)", pid.trim());
    wait_until(guest, &format!("dmesg | grep --quiet '{killed}'"));
    // A unit that is between two processes is not active.
    let has_ended = "systemctl show holdfast --value --property NRestarts | grep --quiet 1";
    wait_until(guest, &format!("{has_ended} && systemctl --quiet is-active holdfast"));
    assert_eq!(kernel_now(guest), Kernel::described(FIRST));
    assert_eq!(description_of_agent(guest), FIRST);
    // It needs no more memory than before, so it stays.
    assert_eq!(restarts(guest), "1");
}

fn a_cold_reboot_is_one_of_the_box(guest: &Guest) {
    let boot_id = || output(guest, "cat /proc/sys/kernel/random/boot_id");
    let before = boot_id();
    // The box may end before the client has ended.
    let _ends_with_the_box = guest.start(&script_in_host_files(TEST, REBOOT)).unwrap();
    guest.wait_for_boot(2).unwrap();
    check_boot(guest);
    assert_ne!(boot_id(), before);
    assert_eq!(memory(guest, "max"), MEMORY_MAX);
    assert_eq!(kernel_at_ready(guest), Kernel::described(FIRST));
    run_part(guest, REBOOTED);
}

async fn power_cuts_lose_nothing_that_was_answered(mut guest: Guest, disk: &Disk) {
    let mut found = 0;
    for cut in 0..POWER_CUTS {
        fs::write(guest.shared_file("before"), format!("{found}\n")).unwrap();
        let sets = guest.start(&script_in_host_files(TEST, SETS)).unwrap();
        let file = guest.shared_file(ANSWERED);
        eventually_within(ANSWERS_LIMIT, "Sets are answered", || {
            assert!(!guest.is_done(sets), "{}", guest.wait(sets).output);
            std::future::ready(answered(&file) >= Some(found + ANSWERS))
        })
        .await;
        tokio::time::sleep(BETWEEN_MOMENTS * cut).await;
        guest.cut_power();
        let last = answered(&file).unwrap();

        guest = Guest::boot_systemd(disk).unwrap();
        check_boot(&guest);
        let kernel = kernel_at_ready(&guest);
        assert_eq!(description_of_agent(&guest), kernel.description);
        found = kernel.description.parse().unwrap();
        assert!(found == last || found == last + 1, "answered {last}, found {found}");
        assert_eq!(kernel, Kernel::described(&found.to_string()));
    }
}

// Parts that run in a guest.

async fn configure() {
    GnmiClient::over(channel().await, admin()).set(whole(FIRST, ROUTES)).await.unwrap();
}

async fn a_large_set_has_no_answer() {
    let client = GnmiClient::over(channel().await, admin());
    client.set(whole("too large", TOO_MANY_ROUTES)).await.unwrap_err();
}

async fn reboot() {
    let request = RebootRequest { method: RebootMethod::Cold as i32, ..Default::default() };
    system().await.reboot(request).await.unwrap();
}

async fn the_reboot_is_remembered() {
    let answer = system().await.reboot_status(RebootStatusRequest::default()).await;
    let status = answer.unwrap().into_inner();
    assert_eq!((status.active, status.method()), (false, RebootMethod::Cold));
    assert_eq!(status.status.unwrap().status(), reboot_status::Status::Success);
}

/// Sends Sets one after the other until the power is cut.
async fn sets_without_end() {
    let client = GnmiClient::over(channel().await, admin());
    for number in answered(&in_share("before")).unwrap() + 1.. {
        client.update(DESCRIPTION, number.to_string()).await.unwrap();
        record_answer(number);
    }
}

const DESCRIPTION: &str = "holdfast_native:/interfaces/interface[name=eth0]/description";

/// A Set of the port, its address and the routes behind it.
fn whole(description: &str, routes: u32) -> SetRequest {
    let address = json!({"address": [{"ip": ADDRESS, "prefix-length": 24}]});
    let port = json!({"name": "eth0", "description": description, "ipv4": address});
    let route = |index: u32| {
        let prefix = format!("10.{}.{}.0/24", 100 + (index >> 8), index & 255);
        json!({"prefix": prefix, "next-hop": [{"index": "0", "next-hop": GATEWAY}]})
    };
    let routes = json!({"route": (0..routes).map(route).collect::<Vec<_>>()});
    let update = vec![
        update("holdfast_native:/interfaces", json!({"interface": [port]})),
        update(STATIC, routes),
    ];
    SetRequest { update, ..Default::default() }
}

async fn channel() -> Channel {
    connect(AGENT, &fs::read_to_string(in_share("ca.pem")).unwrap()).await.unwrap()
}

fn admin() -> Credentials {
    Credentials::new(ADMIN, PASSWORD).unwrap()
}

async fn system()
-> SystemClient<tonic::service::interceptor::InterceptedService<Channel, Credentials>> {
    SystemClient::with_interceptor(channel().await, admin())
}

// Looks of the host at a guest.

/// The parts of the configuration that the kernel has.
#[derive(Debug, PartialEq, Eq)]
struct Kernel {
    description: String,
    addresses: Vec<String>,
    routes: usize,
}

impl Kernel {
    /// All that is configured, with this description.
    fn described(description: &str) -> Self {
        let addresses = vec![format!("{ADDRESS}/24")];
        Self { description: description.to_owned(), addresses, routes: ROUTES as usize }
    }

    /// The file that `at-ready.service` writes.
    fn parse(text: &str) -> Self {
        let mut lists = text.lines().map(|line| serde_json::from_str::<Vec<Value>>(line).unwrap());
        let [links, addresses, routes] = std::array::from_fn(|_| lists.next().unwrap());
        let addresses = addresses[0]["addr_info"].as_array().unwrap().iter();
        let address = |it: &Value| format!("{}/{}", it["local"].as_str().unwrap(), it["prefixlen"]);
        Self {
            description: links[0]["ifalias"].as_str().unwrap_or_default().to_owned(),
            addresses: addresses.map(address).collect(),
            routes: routes.len(),
        }
    }
}

fn kernel_at_ready(guest: &Guest) -> Kernel {
    Kernel::parse(&output(guest, "cat /run/at-ready"))
}

fn kernel_now(guest: &Guest) -> Kernel {
    output(guest, "systemctl restart at-ready");
    kernel_at_ready(guest)
}

fn description_of_agent(guest: &Guest) -> String {
    let shown = output(guest, "holdfast config show");
    let line = shown.lines().find_map(|line| line.trim().strip_prefix("description "));
    line.unwrap_or_default().trim_matches('"').to_owned()
}

/// Waits for the end of a boot, after which no unit has failed and the agent runs.
fn check_boot(guest: &Guest) {
    output(guest, "systemctl is-system-running --wait || { systemctl --failed; exit 1; }");
    output(guest, "systemctl is-active holdfast");
    output(guest, "cp /var/lib/holdfast/tls/ca.pem /mnt/share/ca.pem");
}

/// A file of the controller of memory, for the unit of the agent.
fn memory(guest: &Guest, name: &str) -> u64 {
    let file = format!("/sys/fs/cgroup/system.slice/holdfast.service/memory.{name}");
    output(guest, &format!("cat {file}")).trim().parse().unwrap()
}

fn restarts(guest: &Guest) -> String {
    output(guest, "systemctl show holdfast --value --property NRestarts").trim().to_owned()
}

fn run_part(guest: &Guest, part: &str) {
    let told = output(guest, &script_in_host_files(TEST, part));
    assert!(told.contains("test result: ok. 1 passed"), "{part}: {told}");
}

/// Waits in the guest until a command succeeds.
fn wait_until(guest: &Guest, command: &str) {
    let log = "journalctl --no-pager --lines 40";
    let look = format!("if {command}; then exit 0; fi; sleep 0.2");
    output(guest, &format!("for _ in $(seq {LOOKS}); do {look}; done; {log}; exit 1"));
}

/// Output of a script that has to succeed.
fn output(guest: &Guest, script: &str) -> String {
    let run = guest.run(script);
    assert_eq!(run.status, Some(0), "{script}: {}", run.output);
    run.output
}
