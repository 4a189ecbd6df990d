//! Other programs that manage the network of the box: which run, which ports they manage, and what keeps them off a port.
//!
//! Each is asked by its own command, or known by the files that it writes for others. Nothing is changed: the operator decides
//! who manages a port.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::subject::ToolAnswer;
use super::{Finding, Subject, Verdict};

/// Bytes of a name in `/proc/PID/comm`; the kernel cuts longer ones.
const COMM_LENGTH: usize = 15;

/// A program that manages ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Manager {
    Networkd,
    /// NetworkManager.
    Nm,
    Ifupdown,
    Dhclient,
    Dhcpcd,
    Frr,
    Bird,
}

holdfast_config::enum_names!(Manager {
    Networkd = "systemd-networkd",
    Nm = "NetworkManager",
    Ifupdown = "ifupdown",
    Dhclient = "dhclient",
    Dhcpcd = "dhcpcd",
    Frr = "FRR",
    Bird = "BIRD",
});

impl Manager {
    /// Name of its process; `None` for a program that ends when it has done its work.
    fn process(self) -> Option<&'static str> {
        match self {
            Self::Ifupdown => None,
            Self::Frr => Some("zebra"),
            Self::Bird => Some("bird"),
            other => Some(other.name()),
        }
    }

    /// Advice that keeps it off a port.
    pub(crate) fn keep_off(self, port: &str) -> String {
        match self {
            Self::Networkd => format!(
                "write /etc/systemd/network/00-{port}.network with `[Match] Name={port}` and `[Link] Unmanaged=yes`, then `networkctl reload` (`ManageForeignRoutes=no` is not enough)"
            ),
            Self::Nm => format!(
                "write /etc/NetworkManager/conf.d/{port}.conf with `[keyfile] unmanaged-devices+=interface-name:{port}`, then `nmcli general reload`"
            ),
            Self::Ifupdown => format!(
                "take {port} out of /etc/network/interfaces and interfaces.d; `ifdown` would take its addresses away"
            ),
            Self::Dhclient => format!(
                "end the dhclient of {port} without `-r`, which would take the address away, and keep what starts it from doing so again"
            ),
            Self::Dhcpcd => format!("add `denyinterfaces {port}` to /etc/dhcpcd.conf"),
            Self::Frr => format!(
                "take the lines `ip address` and `ipv6 address` of `interface {port}` out of /etc/frr/frr.conf"
            ),
            Self::Bird => format!("BIRD sets nothing on {port}; its routes stay its own"),
        }
    }
}

/// Ports of one program, as far as they can be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Managed {
    /// The program does not run.
    Absent,
    Ports(BTreeSet<String>),
    /// The program runs, and its ports cannot be found out, for this reason.
    Unknown(String),
}

/// Ports that a program manages in the network namespace of the agent.
pub(crate) fn managed(subject: &Subject, manager: Manager) -> Managed {
    let processes = match manager.process() {
        Some(name) => processes(subject, name),
        None => Vec::new(),
    };
    if manager.process().is_some() && processes.is_empty() {
        return Managed::Absent;
    }
    match manager {
        Manager::Networkd => answered(&subject.networkd, "networkctl", networkd_ports),
        Manager::Nm => {
            answered(&subject.network_manager, "nmcli", |text| Ok(network_manager_ports(text)))
        }
        Manager::Ifupdown => match subject.read("run/network/ifstate") {
            Some(text) => Managed::Ports(ifupdown_ports(&text)),
            None => Managed::Absent,
        },
        Manager::Dhclient | Manager::Dhcpcd => client_ports(&processes),
        Manager::Frr => {
            let text = subject.read("etc/frr/frr.conf").unwrap_or_default();
            Managed::Ports(frr_ports(&text))
        }
        Manager::Bird => Managed::Ports(BTreeSet::new()),
    }
}

fn answered(
    answer: &ToolAnswer,
    tool: &str,
    ports: impl Fn(&str) -> Result<BTreeSet<String>, String>,
) -> Managed {
    match answer {
        ToolAnswer::Text(text) => ports(text).map_or_else(Managed::Unknown, Managed::Ports),
        ToolAnswer::Failed(reason) => Managed::Unknown(reason.clone()),
        ToolAnswer::Missing => Managed::Unknown(format!("{tool} is not installed")),
    }
}

/// Arguments of the processes with this name in the network namespace of the agent, or else of this process.
fn processes(subject: &Subject, name: &str) -> Vec<Vec<String>> {
    let Ok(entries) = fs::read_dir(subject.file("proc")) else { return Vec::new() };
    let short = &name[..name.len().min(COMM_LENGTH)];
    let namespace = |process: &Path| fs::read_link(process.join("ns/net")).ok();
    let own = match subject.report() {
        Some(report) => namespace(&subject.file(&format!("proc/{}", report.pid))),
        None => namespace(&subject.file("proc/self")),
    };
    let found = entries.flatten().filter_map(|entry| {
        let process = entry.path();
        let comm = fs::read_to_string(process.join("comm")).ok()?;
        let is_elsewhere = own.is_some() && namespace(&process).is_some_and(|it| Some(it) != own);
        if comm.trim_end() != short || is_elsewhere {
            return None;
        }
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        let words = line.split(|octet| *octet == 0).filter(|word| !word.is_empty());
        Some(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
    });
    found.collect()
}

/// Ports of `networkctl --json=short list` that are not unmanaged.
fn networkd_ports(text: &str) -> Result<BTreeSet<String>, String> {
    let document: Value = serde_json::from_str(text)
        .map_err(|error| format!("cannot understand networkctl: {error}"))?;
    let interfaces = document["Interfaces"].as_array();
    let interfaces = interfaces.ok_or("networkctl lists no interfaces")?;
    let is_managed = |interface: &&Value| {
        // The member has had either name.
        let state = ["AdministrativeState", "SetupState"].map(|name| interface[name].as_str());
        !matches!(state.into_iter().flatten().next(), None | Some("unmanaged" | "initialized"))
    };
    let managed = interfaces.iter().filter(is_managed);
    Ok(managed.filter_map(|it| Some(it["Name"].as_str()?.to_owned())).collect())
}

/// Ports of `nmcli -t -f DEVICE,STATE device` that NetworkManager has set up, or may set up.
fn network_manager_ports(text: &str) -> BTreeSet<String> {
    let is_managed = |state: &str| {
        !state.contains("externally") && !matches!(state, "unmanaged" | "unavailable" | "")
    };
    let lines = text.lines().filter_map(|line| line.rsplit_once(':'));
    lines.filter(|(_, state)| is_managed(state)).map(|(port, _)| port.to_owned()).collect()
}

/// Ports of `/run/network/ifstate`: a line `PORT=SECTION` for each that is up.
fn ifupdown_ports(text: &str) -> BTreeSet<String> {
    let ports = text.lines().filter_map(|line| line.split_once('=')).map(|(port, _)| port);
    ports.filter(|port| *port != "lo").map(str::to_owned).collect()
}

/// Ports that a client for DHCP has on its command line: the words behind its options. One without any takes all ports.
fn client_ports(processes: &[Vec<String>]) -> Managed {
    let mut ports = BTreeSet::new();
    for words in processes {
        let behind = words.iter().skip(1).rev().take_while(|word| !word.starts_with(['-', '/']));
        let named: Vec<String> = behind.cloned().collect();
        if named.is_empty() {
            return Managed::Unknown(
                "its command line names no port, so it may take all".to_owned(),
            );
        }
        ports.extend(named);
    }
    Managed::Ports(ports)
}

/// Ports to which `frr.conf` gives addresses.
fn frr_ports(text: &str) -> BTreeSet<String> {
    let mut port = None;
    let mut ports = BTreeSet::new();
    for line in text.lines() {
        if !line.starts_with(' ') {
            port = line.strip_prefix("interface ").and_then(|rest| rest.split(' ').next());
        } else if let Some(port) = port
            && [" ip address ", " ipv6 address "].iter().any(|it| line.starts_with(it))
        {
            ports.insert(port.to_owned());
        }
    }
    ports
}

pub(super) fn networkd(subject: &Subject) -> Vec<Finding> {
    judge(subject, &[Manager::Networkd])
}

pub(super) fn network_manager(subject: &Subject) -> Vec<Finding> {
    judge(subject, &[Manager::Nm])
}

pub(super) fn ifupdown(subject: &Subject) -> Vec<Finding> {
    judge(subject, &[Manager::Ifupdown])
}

pub(super) fn dhcp_clients(subject: &Subject) -> Vec<Finding> {
    judge(subject, &[Manager::Dhclient, Manager::Dhcpcd])
}

/// Files that keep cloud-init from running at all.
const CLOUD_INIT_SWITCHES: [&str; 2] = ["etc/cloud/cloud-init.disabled", "run/cloud-init/disabled"];

pub(super) fn cloud_init(subject: &Subject) -> Vec<Finding> {
    if !subject.file("usr/bin/cloud-init").exists() {
        return Finding::skipped("cloud-init is not installed");
    }
    if CLOUD_INIT_SWITCHES.iter().any(|switch| subject.file(switch).exists()) {
        return Finding::good("cloud-init is switched off");
    }
    let folder = fs::read_dir(subject.file("etc/cloud/cloud.cfg.d")).into_iter().flatten();
    let files = folder.flatten().map(|file| file.path());
    let files = files.filter(|path| path.extension().is_some_and(|it| it == "cfg"));
    let mut files = files.chain([subject.file("etc/cloud/cloud.cfg")]);
    let leaves_network_alone = |path: &Path| {
        fs::read_to_string(path).is_ok_and(|text| {
            // The same in one line and in two, with and without quotes.
            let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
            let words = lines.collect::<String>();
            let words = words.replace([' ', '"', '\'', '{', '}'], "");
            words.contains("network:config:disabled")
        })
    };
    match files.any(|path| leaves_network_alone(&path)) {
        true => Finding::good("cloud-init leaves the network alone"),
        false => Finding::warning(
            "cloud-init writes the network configuration of each new instance of this box",
        ),
    }
}

pub(super) fn routing_daemons(subject: &Subject) -> Vec<Finding> {
    judge(subject, &[Manager::Frr, Manager::Bird])
}

fn judge(subject: &Subject, managers: &[Manager]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut good = Vec::new();
    for manager in managers {
        let name = manager.name();
        match managed(subject, *manager) {
            Managed::Absent => {}
            Managed::Unknown(reason) => {
                let text = format!("{name} runs, and its ports are not known: {reason}");
                findings.push(Finding::new(Verdict::Unknown, text));
            }
            Managed::Ports(ports) => {
                let found = ports.iter().filter_map(|port| judge_port(subject, *manager, port));
                let found: Vec<Finding> = found.collect();
                if found.is_empty() {
                    good.push(format!("{name} manages none of our ports"));
                }
                findings.extend(found);
            }
        }
    }
    match (findings.is_empty(), good.is_empty()) {
        (false, _) => findings,
        (true, false) => Finding::good(good.join("; ")),
        (true, true) => {
            let names: Vec<&str> = managers.iter().map(|manager| manager.name()).collect();
            Finding::good(format!("no {}", names.join(", no ")))
        }
    }
}

/// Finding about a port that a program manages; `None` for a port that the configuration does not have.
fn judge_port(subject: &Subject, manager: Manager, port: &str) -> Option<Finding> {
    let name = manager.name();
    let advice = manager.keep_off(port);
    let Some(report) = subject.report() else {
        let text = format!(
            "{name} manages {port}; no agent runs to say whether {port} is in its configuration"
        );
        return Some(Finding::new(Verdict::Warning, text).with_advice(advice));
    };
    report.links.get(port)?;
    let of_port = report.repaired.iter().filter(|it| it.link.as_deref() == Some(port));
    let repairs: usize = of_port.map(|it| it.count).sum();
    Some(match repairs {
        0 => Finding::new(Verdict::Warning, format!("{name} manages {port}, and so does the agent")),
        repairs => {
            let text = format!(
                "{name} manages {port}, and so does the agent, which has repaired its objects {repairs} times in ten minutes"
            );
            Finding::new(Verdict::Failure, text)
        }
    }
    .with_advice(advice))
}
