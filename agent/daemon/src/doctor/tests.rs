//! Each check is made to fail once, by a box that is wrong in one thing.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use holdfast_faults::Severity;
use holdfast_platform::kernel_trial::{KernelFeature, KernelTrial};
use holdfast_platform::namespace_lock::LockHolder;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use tempfile::TempDir;

use super::managers::{Managed, Manager, managed};
use super::subject::{AgentAnswer, AgentFacts, ToolAnswer, ask_tool, settings_of};
use super::*;
use crate::local::{AgentReport, ClosedListener, OpenAlarm, RepairCount, UserSummary, ValueLine};
use crate::settings::{ListenAddress, StateDir};

/// Process of the agent in the folder that stands for the root.
const AGENT: u32 = 4242;
/// Capabilities of the packaged unit: CAP_NET_ADMIN and CAP_NET_RAW.
const OF_UNIT: &str = "0000000000003000";
const UNIT: &str = "LoadState=loaded\nUnitFileState=enabled\nActiveState=active\nResult=success\nNRestarts=0\nExecMainStatus=0\nBefore=network.target shutdown.target\nAfter=network-pre.target\nWants=network-pre.target network.target\n";

/// A box where all is good, in a folder of its own.
struct GoodBox {
    folder: TempDir,
    subject: Subject,
}

impl GoodBox {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state_dir = folder.path().join("state");
        fs::create_dir(&state_dir).unwrap();
        fs::set_permissions(&state_dir, Permissions::from_mode(0o700)).unwrap();
        let state = StateDir { state_dir, socket: None, config: None };
        let users = vec![UserSummary { name: "ann".to_owned(), role: "admin".to_owned() }];
        let report = AgentReport {
            pid: AGENT,
            arguments: ["holdfast", "run", "--listen", "127.0.0.1:0"].map(str::to_owned).into(),
            links: [("eth0".to_owned(), "physical".to_owned())].into(),
            alarms: Some(Vec::new()),
            certificate_expires_on: Some(253_402_214_400), // the year 9999
            ..AgentReport::default()
        };
        let bootstrap = Some("status: BOOTZ_OK\nfailed attempts: 0\n".to_owned());
        let agent = AgentAnswer::Running(Box::new(AgentFacts { report, users, bootstrap }));
        let settings = settings_of(&agent, &ToolAnswer::Missing, &state);
        let works = |feature| KernelTrial { feature, refusal: None };
        let trials = [
            KernelFeature::Kind("veth"),
            KernelFeature::Parameter("bridge", "vlan-filtering"),
            KernelFeature::Ipv6,
            KernelFeature::AddressProtocol,
            KernelFeature::Variables,
            KernelFeature::ReceiveBuffer,
        ];
        let subject = Subject {
            root: folder.path().join("root"),
            settings,
            file: Some(Ok(())),
            agent,
            holder: Ok(Some(LockHolder { pid: i32::try_from(AGENT).ok(), answer: None })),
            trials: Some(Ok(trials.map(works).into())),
            is_quick: false,
            unit: ToolAnswer::Text(UNIT.to_owned()),
            networkd: ToolAnswer::Missing,
            network_manager: ToolAnswer::Missing,
            clock: ToolAnswer::Text("yes\n".to_owned()),
            host_name: "box.example.net".to_owned(),
            now: SystemTime::now(),
            program_date: Some(SystemTime::UNIX_EPOCH),
        };
        let good = Self { folder, subject };
        good.process(AGENT, "holdfast", &["holdfast", "run"]);
        good.write(
            &format!("proc/{AGENT}/status"),
            &format!("Name:\tholdfast\nCapPrm:\t{OF_UNIT}\n"),
        );
        let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            8192                 8192                 files\n";
        good.write(&format!("proc/{AGENT}/limits"), limits);
        good
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.subject.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn process(&self, pid: u32, name: &str, arguments: &[&str]) {
        self.write(&format!("proc/{pid}/comm"), &format!("{name}\n"));
        self.write(&format!("proc/{pid}/cmdline"), &(arguments.join("\0") + "\0"));
    }

    fn facts(&mut self) -> &mut AgentFacts {
        match &mut self.subject.agent {
            AgentAnswer::Running(facts) => facts,
            other => panic!("no agent runs: {other:?}"),
        }
    }

    fn report(&mut self) -> &mut AgentReport {
        &mut self.facts().report
    }

    fn refuse(&mut self, refused: KernelFeature) {
        let Some(Ok(trials)) = &mut self.subject.trials else { panic!("the kernel was tried") };
        let trial = trials.iter_mut().find(|trial| trial.feature == refused).unwrap();
        trial.refusal = Some("EOPNOTSUPP".to_owned());
    }

    /// Mounts a file system of this size for the state folder, for this thread alone.
    fn small_disk(&self, flags: MsFlags) {
        let none: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS).expect("root, or a user namespace, to mount");
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let folder = self.subject.state_folder();
        mount(Some("tmpfs"), folder, Some("tmpfs"), flags, Some("size=64k,mode=0700")).unwrap();
    }

    /// A certificate that ends on this day, with its key and that of its issuer, in the files of `--tls-cert` and `--tls-key`.
    fn certificate(&mut self, last_year: i32, key_fits: bool, chain_fits: bool) {
        let authority = |name: &str| {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::default();
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let pem = params.self_signed(&key).unwrap().pem();
            (Issuer::new(params, key), pem)
        };
        let (signer, signer_pem) = authority("signer");
        let (_, other_pem) = authority("other");
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["box".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 2);
        let leaf = params.signed_by(&key, &signer).unwrap().pem();
        let chain = leaf + if chain_fits { &signer_pem } else { &other_pem };
        let shown = if key_fits { key } else { KeyPair::generate().unwrap() };
        let [cert, key] = ["cert.pem", "key.pem"].map(|name| self.folder.path().join(name));
        fs::write(&cert, chain).unwrap();
        fs::write(&key, shown.serialize_pem()).unwrap();
        self.subject.settings.tls.tls_cert = Some(cert);
        self.subject.settings.tls.tls_key = Some(key);
    }

    fn found(&self, id: &str) -> Vec<Finding> {
        let check = CHECKS.iter().find(|check| check.id == id);
        (check.unwrap_or_else(|| panic!("there is no check {id}")).look)(&self.subject)
    }
}

/// A fault that makes a check fail: id of the check, its result, a word of its text, and how the box is spoilt.
type Fault = (&'static str, Verdict, &'static str, fn(&mut GoodBox));

const FAULTS: &[Fault] = &[
    ("files-configuration", Verdict::Failure, "lisen", |it| {
        it.subject.file = Some(Err("holdfast.toml:3:1: unknown key \"lisen\"".to_owned()));
    }),
    ("kernel-links", Verdict::Warning, "veth", |it| it.refuse(KernelFeature::Kind("veth"))),
    ("kernel-links", Verdict::Failure, "veth", |it| {
        it.report().links.insert("v0".to_owned(), "veth".to_owned());
        it.refuse(KernelFeature::Kind("veth"));
    }),
    ("kernel-links", Verdict::Unknown, "CAP_SYS_ADMIN", |it| {
        it.subject.trials = Some(Err("needs CAP_SYS_ADMIN".to_owned()));
    }),
    ("kernel-links", Verdict::Skipped, "--quick", |it| it.subject.trials = None),
    ("kernel-parameters", Verdict::Warning, "vlan-filtering", |it| {
        it.refuse(KernelFeature::Parameter("bridge", "vlan-filtering"));
    }),
    ("kernel-ipv6", Verdict::Warning, "IPv6", |it| it.refuse(KernelFeature::Ipv6)),
    ("kernel-address-protocol", Verdict::Failure, "IFA_PROTO", |it| {
        it.refuse(KernelFeature::AddressProtocol);
    }),
    ("kernel-variables", Verdict::Warning, "/proc/sys", |it| it.refuse(KernelFeature::Variables)),
    ("kernel-receive-buffer", Verdict::Warning, "receive buffers", |it| {
        it.refuse(KernelFeature::ReceiveBuffer);
    }),
    ("process-agent", Verdict::Warning, "no agent", |it| {
        it.subject.agent = AgentAnswer::NotRunning("no agent answers".to_owned());
    }),
    ("process-agent", Verdict::Unknown, "not permitted", |it| {
        it.subject.agent = AgentAnswer::NotAllowed("not permitted".to_owned());
    }),
    ("process-capabilities", Verdict::Failure, "CAP_NET_ADMIN", |it| {
        it.write(&format!("proc/{AGENT}/status"), "CapPrm:\t0000000000002000\n");
    }),
    ("process-capabilities", Verdict::Failure, "--bootz-port", |it| {
        it.subject.settings.bootz.bootz_port = Some("eth0".to_owned());
    }),
    ("process-capabilities", Verdict::Failure, "CAP_SYS_ADMIN", |it| {
        it.subject.settings.netns = Some("blue".to_owned());
    }),
    ("process-capabilities", Verdict::Failure, "host name", |it| {
        it.report().kinds.insert("hostname".to_owned());
    }),
    ("process-capabilities", Verdict::Failure, "CAP_CHOWN", |it| {
        it.report().kinds.insert("password".to_owned());
    }),
    ("process-open-files", Verdict::Warning, "1024", |it| {
        it.write(&format!("proc/{AGENT}/limits"), "Max open files  1024  4096  files\n");
    }),
    ("process-memory", Verdict::Warning, "may take 1400 MB", |it| {
        it.write(&format!("proc/{AGENT}/cgroup"), "0::/system.slice/holdfast.service\n");
        it.write("sys/fs/cgroup/system.slice/holdfast.service/memory.max", "max\n");
        it.write("sys/fs/cgroup/system.slice/memory.high", "536870912\n");
        it.report().sync.in_place = 100_000;
    }),
    ("process-unit", Verdict::Warning, "disabled", |it| it.unit("UnitFileState=disabled")),
    ("process-unit", Verdict::Failure, "exit-code", |it| {
        it.unit("ActiveState=failed");
        it.unit("Result=exit-code");
    }),
    ("process-unit", Verdict::Warning, "7 times", |it| it.unit("NRestarts=7")),
    ("process-order", Verdict::Warning, "not ordered before", |it| {
        it.unit("Before=shutdown.target")
    }),
    ("process-order", Verdict::Warning, "does not start", |it| it.unit("Wants=network-pre.target")),
    ("process-order", Verdict::Warning, "waits for network-online", |it| {
        it.unit("After=network-online.target");
    }),
    ("files-folder", Verdict::Failure, "mode 755", |it| {
        fs::set_permissions(it.subject.state_folder(), Permissions::from_mode(0o755)).unwrap();
    }),
    ("files-folder", Verdict::Failure, "belongs to user 12", |it| {
        chown(it.subject.state_folder(), Some(12), None).unwrap();
    }),
    ("files-folder", Verdict::Failure, "No such file", |it| {
        fs::remove_dir(it.subject.state_folder()).unwrap();
    }),
    ("files-room", Verdict::Warning, "0 MB", |it| it.small_disk(MsFlags::empty())),
    ("files-room", Verdict::Failure, "read-only", |it| it.small_disk(MsFlags::MS_RDONLY)),
    ("files-sync", Verdict::Failure, "No space left", |it| it.small_disk(MsFlags::empty())),
    ("files-sync", Verdict::Failure, "Read-only", |it| it.small_disk(MsFlags::MS_RDONLY)),
    ("files-other-agent", Verdict::Failure, "/var/lib/other", |it| {
        let answer = Some(("1".to_owned(), "/var/lib/other".to_owned()));
        it.subject.holder = Ok(Some(LockHolder { pid: Some(1), answer }));
    }),
    ("server-sockets", Verdict::Failure, "in use", |it| {
        let [kind, name, reason] = ["gRPC", "[::]:9339", "in use"].map(str::to_owned);
        it.report().closed_listeners.push(ClosedListener { kind, name, reason });
    }),
    ("server-address", Verdict::Warning, "192.0.2.77", |it| {
        it.subject.settings.listen = vec!["192.0.2.77:9339".parse().unwrap()];
    }),
    ("server-certificate", Verdict::Failure, "does not belong", |it| {
        it.certificate(2999, false, true);
    }),
    ("server-certificate", Verdict::Failure, "not signed", |it| it.certificate(2999, true, false)),
    ("server-certificate", Verdict::Failure, "cannot read", |it| {
        it.certificate(2999, true, true);
        fs::remove_file(it.folder.path().join("cert.pem")).unwrap();
    }),
    ("server-certificate-names", Verdict::Warning, "is for box, and neither", |it| {
        it.certificate(2999, true, true);
        it.subject.host_name = "router7".to_owned();
    }),
    ("server-certificate-dates", Verdict::Failure, "2020-01-02", |it| {
        it.certificate(2020, true, true);
    }),
    ("server-certificate-dates", Verdict::Warning, "12 days", |it| {
        let days = Duration::from_secs(12 * 24 * 60 * 60 + 60);
        let end = (it.subject.now + days).duration_since(SystemTime::UNIX_EPOCH).unwrap();
        it.report().certificate_expires_on = Some(end.as_secs());
    }),
    ("server-certificate-dates", Verdict::Failure, "not valid before", |it| {
        it.certificate(2999, true, true);
        it.subject.now = SystemTime::UNIX_EPOCH;
    }),
    ("server-users", Verdict::Failure, "no users", |it| it.facts().users.clear()),
    ("server-users", Verdict::Warning, "admin", |it| {
        it.facts().users[0].role = "read-only".to_owned();
    }),
    ("server-clock", Verdict::Warning, "not synchronised", |it| {
        it.subject.clock = ToolAnswer::Text("no\n".to_owned());
    }),
    ("server-clock", Verdict::Failure, "1970-01-01", |it| {
        it.subject.program_date = Some(it.subject.now);
        it.subject.now = SystemTime::UNIX_EPOCH;
    }),
    ("others-networkd", Verdict::Warning, "eth0", |it| {
        it.process(7, "systemd-network", &["systemd-networkd"]);
        it.subject.networkd = ToolAnswer::Text(NETWORKCTL.to_owned());
    }),
    ("others-networkd", Verdict::Failure, "repaired its objects 4 times", |it| {
        it.process(7, "systemd-network", &["systemd-networkd"]);
        it.subject.networkd = ToolAnswer::Text(NETWORKCTL.to_owned());
        it.repair(4);
    }),
    ("others-networkd", Verdict::Unknown, "not installed", |it| {
        it.process(7, "systemd-network", &["systemd-networkd"]);
    }),
    ("others-network-manager", Verdict::Warning, "eth0", |it| {
        it.process(7, "NetworkManager", &["NetworkManager"]);
        it.subject.network_manager = ToolAnswer::Text("eth0:connected\nlo:unmanaged\n".to_owned());
    }),
    ("others-ifupdown", Verdict::Warning, "eth0", |it| {
        it.write("run/network/ifstate", "lo=lo\neth0=eth0\neth7=eth7\n");
    }),
    ("others-dhcp", Verdict::Warning, "dhclient manages eth0", |it| {
        it.process(7, "dhclient", &["dhclient", "-pf", "/run/dhclient.eth0.pid", "eth0"]);
    }),
    ("others-dhcp", Verdict::Unknown, "names no port", |it| {
        it.process(7, "dhcpcd", &["dhcpcd", "-b"]);
    }),
    ("others-routing", Verdict::Warning, "FRR manages eth0", |it| {
        it.process(7, "zebra", &["zebra"]);
        it.write("etc/frr/frr.conf", "interface eth0\n ip address 192.0.2.1/24\nexit\n");
    }),
    ("others-cloud-init", Verdict::Warning, "each new instance", |it| {
        it.write("usr/bin/cloud-init", "");
        it.write("etc/cloud/cloud.cfg.d/50-off.cfg", "# network: {config: disabled}\n");
    }),
    ("state-objects", Verdict::Failure, "link vec0 is failed: EINVAL", |it| {
        it.unsettled("FAILED", "link vec0", "EINVAL");
    }),
    ("state-objects", Verdict::Warning, "link eth9 is pending", |it| {
        it.unsettled("PENDING", "link eth9", "");
    }),
    ("state-alarms", Verdict::Warning, "the carrier is lost", |it| {
        it.report().alarms = Some(vec![OpenAlarm {
            id: "link-down.eth0@interface".to_owned(),
            severity: Severity::Major,
            text: "the carrier is lost".to_owned(),
        }]);
    }),
    ("state-repairs", Verdict::Warning, "4 times in 10 minutes", |it| it.repair(4)),
    ("state-window", Verdict::Warning, "waits to be confirmed", |it| {
        it.report().unconfirmed = Some("the commit `a` waits to be confirmed".to_owned());
    }),
    ("state-bootstrap", Verdict::Warning, "3 attempts", |it| {
        let text = "  cannot reach the server\nstatus: BOOTZ_FAILED\nfailed attempts: 3\n";
        it.facts().bootstrap = Some(text.to_owned());
    }),
];

/// Answer of `networkctl --json=short list` of version 252, shortened.
const NETWORKCTL: &str = r#"{"Interfaces":[
    {"Index":1,"Name":"lo","AdministrativeState":"unmanaged"},
    {"Index":2,"Name":"eth0","AdministrativeState":"configured"},
    {"Index":3,"Name":"eth1","AdministrativeState":"configured"}]}"#;

impl GoodBox {
    fn unit(&mut self, line: &str) {
        let (name, _) = line.split_once('=').unwrap();
        let text = self.subject.unit.text().unwrap();
        let others = text.lines().filter(|it| !it.starts_with(name)).map(|it| format!("{it}\n"));
        self.subject.unit = ToolAnswer::Text(format!("{line}\n") + &others.collect::<String>());
    }

    fn unsettled(&mut self, state: &str, label: &str, reason: &str) {
        let [state, key, label, reason] = [state, "", label, reason].map(str::to_owned);
        self.report().unsettled.push(ValueLine { state, key, label, reason });
    }

    fn repair(&mut self, count: usize) {
        let label = "address 192.0.2.1/24 of eth0".to_owned();
        let link = Some("eth0".to_owned());
        self.report().repaired.push(RepairCount { label, count, link });
    }
}

#[test]
fn a_good_box_is_good() {
    let good = GoodBox::new();
    let rows = examine(&good.subject);
    for row in &rows {
        let is_good = [Verdict::Good, Verdict::Skipped].contains(&row.finding.verdict);
        // The disk below the tests may be small, or slow beside other tests.
        let is_of_the_disk = ["files-room", "files-sync"].contains(&row.check.id);
        assert!(is_good || is_of_the_disk, "{row:?}");
    }
}

#[test]
fn each_check_fails_once() {
    for (id, verdict, word, fault) in FAULTS {
        // A thread of its own for each: some mount a file system.
        let findings = std::thread::spawn(move || {
            let mut wrong = GoodBox::new();
            fault(&mut wrong);
            wrong.found(id)
        });
        let findings = findings.join().unwrap();
        let found = findings.iter().find(|it| it.verdict == *verdict && it.text.contains(word));
        assert!(found.is_some(), "{id}: no {verdict:?} with `{word}` in {findings:?}");
    }
    let ids: BTreeSet<&str> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(ids.len(), CHECKS.len(), "two checks have one id");
    let is_bad = |fault: &&Fault| [Verdict::Warning, Verdict::Failure].contains(&fault.1);
    let failed: BTreeSet<&str> = FAULTS.iter().filter(is_bad).map(|fault| fault.0).collect();
    assert_eq!(ids, failed, "each check has a fault that it finds");
    for check in CHECKS {
        assert!(check.id.starts_with(check.group.name()), "{}", check.id);
    }
}

#[test]
fn capabilities_of_the_drop_ins_are_enough() {
    let mut good = GoodBox::new();
    good.subject.settings.netns = Some("blue".to_owned());
    good.subject.settings.bootz.bootz_port = Some("eth0".to_owned());
    good.report().kinds.extend(["hostname", "password"].map(str::to_owned));
    let all = "0000000000203401"; // SYS_ADMIN, NET_RAW, NET_ADMIN, NET_BIND_SERVICE, CHOWN
    good.write(&format!("proc/{AGENT}/status"), &format!("CapPrm:\t{all}\n"));
    assert_eq!(good.found("process-capabilities")[0].verdict, Verdict::Good);

    // A helper of the agent sets the host name, and nobody else's.
    good.subject.settings.netns = None;
    good.write(&format!("proc/{AGENT}/status"), "CapPrm:\t0000000000003401\n");
    let advice = good.found("process-capabilities")[0].advice.clone().unwrap();
    assert!(advice.contains("20-system.conf"), "{advice}");
    good.write("proc/17/status", "Name:\tholdfast-host\nPPid:\t1\n");
    assert_eq!(good.found("process-capabilities")[0].verdict, Verdict::Failure);
    good.write("proc/17/status", &format!("Name:\tholdfast-host\nPPid:\t{AGENT}\n"));
    assert_eq!(good.found("process-capabilities")[0].verdict, Verdict::Good);
}

#[test]
fn a_certificate_has_the_name_of_the_box() {
    let mut good = GoodBox::new();
    good.certificate(2999, true, true);
    for (host, verdict) in [
        ("box", Verdict::Good),
        ("BOX.example.net", Verdict::Good),
        ("other.box", Verdict::Warning),
        ("", Verdict::Warning),
    ] {
        good.subject.host_name = host.to_owned();
        let found = good.found("server-certificate-names");
        assert_eq!(found[0].verdict, verdict, "{host}: {found:?}");
    }
}

#[test]
fn cloud_init_is_switched_off_by_what_its_manual_says() {
    for (path, text) in [
        ("etc/cloud/cloud-init.disabled", ""),
        ("etc/cloud/cloud.cfg.d/99-holdfast.cfg", "network: {config: disabled}\n"),
        ("etc/cloud/cloud.cfg", "users: []\nnetwork:\n  config: \"disabled\"\n"),
    ] {
        let good = GoodBox::new();
        good.write("usr/bin/cloud-init", "");
        good.write(path, text);
        assert_eq!(good.found("others-cloud-init")[0].verdict, Verdict::Good, "{path}");
    }
}

#[test]
fn without_an_agent_its_ports_have_to_be_free() {
    let mut stopped = GoodBox::new();
    stopped.subject.agent = AgentAnswer::NotRunning("no agent answers".to_owned());
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    stopped.subject.settings.listen = vec![address.parse::<ListenAddress>().unwrap()];
    let found = stopped.found("server-sockets");
    assert!(found[0].verdict == Verdict::Failure && found[0].text.contains(&address), "{found:?}");
    drop(holder);
    assert_eq!(stopped.found("server-sockets")[0].verdict, Verdict::Good);

    // Nobody says which ports are ours.
    stopped.write("run/network/ifstate", "eth7=eth7\n");
    let found = stopped.found("others-ifupdown");
    assert!(found[0].verdict == Verdict::Warning && found[0].text.contains("eth7"), "{found:?}");

    // An agent of this folder that does not answer is stuck.
    let folder = stopped.subject.state_folder().display().to_string();
    let answer = Some(("1".to_owned(), folder));
    stopped.subject.holder = Ok(Some(LockHolder { pid: Some(1), answer }));
    let found = stopped.found("files-other-agent");
    assert!(found[0].text.contains("does not answer"), "{found:?}");
}

#[test]
fn the_disk_is_judged_by_the_slowest_of_a_hundred_writes() {
    let times = |slow: usize| {
        let time = |n| Duration::from_millis(if n < slow { 80 } else { 1 });
        files::judge_sync((0..100).map(time).collect())
    };
    assert_eq!(times(0)[0].verdict, Verdict::Good);
    assert_eq!(times(1)[0].verdict, Verdict::Warning);
    assert_eq!(times(1)[0].text, "the disk is slow: fsync p50 1.0 ms p99 80.0 ms");
}

#[test]
fn managers_are_those_of_the_namespace_of_the_agent() {
    let good = GoodBox::new();
    for (pid, namespace) in [(AGENT, "net:[1]"), (7, "net:[2]")] {
        let folder = good.subject.file(&format!("proc/{pid}/ns"));
        fs::create_dir_all(&folder).unwrap();
        symlink(namespace, folder.join("net")).unwrap();
    }
    good.process(7, "dhclient", &["dhclient", "eth0"]);
    assert_eq!(managed(&good.subject, Manager::Dhclient), Managed::Absent);
    let link = good.subject.file("proc/7/ns/net");
    fs::remove_file(&link).unwrap();
    symlink("net:[1]", &link).unwrap();
    let ports = BTreeSet::from(["eth0".to_owned()]);
    assert_eq!(managed(&good.subject, Manager::Dhclient), Managed::Ports(ports));
}

#[test]
fn options_are_those_of_the_agent_or_of_its_unit() {
    let state = StateDir { state_dir: "/srv/state".into(), socket: None, config: None };
    let stopped = || AgentAnswer::NotRunning(String::new());
    let unit = "ExecStart={ path=/usr/bin/holdfast ; argv[]=/usr/bin/holdfast run --state-dir ${STATE_DIRECTORY} --listen 192.0.2.1 ; ignore_errors=no ; pid=0 }\n";
    let unit = ToolAnswer::Text(unit.to_owned());
    let settings = settings_of(&stopped(), &unit, &state);
    assert_eq!(settings.listen, ["192.0.2.1:9339".parse().unwrap()]);
    assert_eq!(settings.state.path(), Path::new("/srv/state"));
    let settings = settings_of(&stopped(), &ToolAnswer::Missing, &state);
    assert_eq!(settings.listen, ["[::]:9339".parse().unwrap()]);
    let report = AgentReport {
        arguments: ["holdfast", "run", "--netns", "blue"].map(str::to_owned).into(),
        ..AgentReport::default()
    };
    let running = AgentAnswer::Running(Box::new(AgentFacts { report, ..AgentFacts::default() }));
    assert_eq!(settings_of(&running, &unit, &state).netns.as_deref(), Some("blue"));
}

#[tokio::test]
async fn other_programs_are_asked() {
    let folder = tempfile::tempdir().unwrap();
    let program = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    };
    program("good", "echo \"$1 $LC_ALL\"");
    program("bad", "echo no bus >&2; exit 3");
    let ask = async |name: &str| ask_tool(name, &["list"], Some(folder.path())).await;
    assert_eq!(ask("good").await, ToolAnswer::Text("list C\n".to_owned()));
    assert_eq!(ask("missing").await, ToolAnswer::Missing);
    let ToolAnswer::Failed(reason) = ask("bad").await else { panic!("it fails") };
    assert!(reason.contains("bad failed") && reason.contains("no bus"), "{reason}");
}

#[test]
fn answers_are_for_people_and_for_programs() {
    let mut wrong = GoodBox::new();
    wrong.subject.is_quick = true;
    wrong.subject.trials = None;
    wrong.write("run/network/ifstate", "eth0=eth0\n");
    wrong.facts().users.clear();
    let rows = examine(&wrong.subject);
    let text = text(&rows);
    let lines: Vec<&str> = text.lines().collect();
    let has = |line: &str| lines.iter().any(|it| it.starts_with(line));
    assert!(has("ok    kernel  nothing to look at"), "{text}");
    assert!(has("FAIL  server  there are no users"), "{text}");
    assert!(has("              advice: `holdfast user set admin --role admin`"), "{text}");
    assert!(has("warn  others  ifupdown manages eth0, and so does the agent"), "{text}");
    assert!(has("              advice: take eth0 out of /etc/network/interfaces"), "{text}");
    assert!(!has("ok    server") && !has("ok    others"), "{text}");
    assert!(lines.last().unwrap().starts_with("1 failure, 1 warning, "), "{text}");
    assert_eq!(worst(&rows).exit_code(), 2);

    let document: serde_json::Value = serde_json::from_str(&json(&rows).unwrap()).unwrap();
    let all = document.as_array().unwrap();
    assert!(all.len() >= CHECKS.len());
    let users = all.iter().find(|it| it["id"] == "server-users").unwrap();
    assert_eq!(users["group"], "server");
    assert_eq!(users["result"], "failure");
    assert_eq!(users["advice"], "`holdfast user set admin --role admin`");
    let kernel = all.iter().find(|it| it["id"] == "kernel-ipv6").unwrap();
    assert_eq!((&kernel["result"], &kernel["advice"]), (&"skipped".into(), &().into()));

    let of = |verdicts: &[Verdict]| {
        let row =
            |verdict: &Verdict| Row { check: &CHECKS[0], finding: Finding::new(*verdict, "") };
        worst(&verdicts.iter().map(row).collect::<Vec<_>>()).exit_code()
    };
    assert_eq!(of(&[Verdict::Good, Verdict::Skipped]), 0);
    assert_eq!(of(&[Verdict::Good, Verdict::Warning]), 1);
    assert_eq!(of(&[Verdict::Unknown, Verdict::Warning]), 3);
    assert_eq!(of(&[Verdict::Failure, Verdict::Unknown, Verdict::Warning]), 2);
}

/// The page of the guide with the table of checks.
const PAGE: &str = "../../packaging/guide/operating/doctor.md";
const BEGIN: &str = "<!-- written by the test `the_page_lists_all_checks` of holdfast: begin -->\n";
const END: &str = "<!-- end -->\n";

/// `HOLDFAST_WRITE=1` writes the tables of the page anew.
#[test]
fn the_page_lists_all_checks() {
    let mut tables = String::new();
    for group in Group::ALL {
        tables +=
            &format!("\n### {group}\n\n| check | what it looks at | advice |\n|---|---|---|\n");
        for check in CHECKS.iter().filter(|check| check.group == group) {
            tables += &format!("| `{}` | {} | {} |\n", check.id, check.about, check.advice);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the tables");
    let (_, after) = rest.split_once(END).expect("the tables have an end");
    let wanted = format!("{before}{BEGIN}{tables}\n{END}{after}");
    if std::env::var_os("HOLDFAST_WRITE").is_some() {
        fs::write(&path, &wanted).unwrap();
    }
    let page = fs::read_to_string(&path).unwrap();
    assert!(page == wanted, "write the tables of {PAGE} anew with HOLDFAST_WRITE=1");
}
