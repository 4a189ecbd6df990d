//! Checks of the process of the agent and of its unit.

use std::fs;
use std::path::Path;

use rustix::thread::CapabilitySet;

use super::subject::AgentAnswer;
use super::{Finding, Subject, Verdict};
use crate::local::AgentReport;
use crate::privileges::HELPER_NAME;
use crate::process::OPEN_FILES;
use crate::settings::RunSettings;
use crate::sync_summary::SyncSummary;

/// Lowest port that needs no capability (`net.ipv4.ip_unprivileged_port_start` by default).
const FIRST_FREE_PORT: u16 = 1024;

/// Target that is reached when the network is set up.
const NETWORK_TARGET: &str = "network.target";
/// Target that is reached when the network works.
const ONLINE_TARGET: &str = "network-online.target";

/// A capability with what needs it.
struct Need {
    capability: CapabilitySet,
    name: &'static str,
    /// Unit or drop-in that gives it.
    source: &'static str,
    /// Option or configuration that needs it; `None` when nothing does.
    reason: fn(&RunSettings, &AgentReport) -> Option<&'static str>,
    /// True for a capability that a helper process of the agent may have instead.
    is_of_helper: bool,
}

/// Kinds of values of credentials, which change files of the accounts.
const CREDENTIAL_KINDS: [&str; 5] =
    ["account", "credential-file", "glome-login", "password", "ssh-server"];

const NEEDS: &[Need] = &[
    Need {
        capability: CapabilitySet::NET_ADMIN,
        name: "CAP_NET_ADMIN",
        source: "holdfast.service",
        reason: |_, _| Some("links, addresses and routes"),
        is_of_helper: false,
    },
    Need {
        capability: CapabilitySet::NET_RAW,
        name: "CAP_NET_RAW",
        source: "holdfast.service",
        reason: |_, _| Some("ping and traceroute"),
        is_of_helper: false,
    },
    Need {
        capability: CapabilitySet::NET_BIND_SERVICE,
        name: "CAP_NET_BIND_SERVICE",
        source: "10-dhcp.conf",
        reason: |settings, _| {
            let is_low = |port: u16| (1..FIRST_FREE_PORT).contains(&port);
            if settings.bootz.bootz_port.is_some() {
                return Some("--bootz-port");
            }
            settings.listen.iter().any(|it| is_low(it.port)).then_some("--listen with a low port")
        },
        is_of_helper: false,
    },
    Need {
        capability: CapabilitySet::SYS_ADMIN,
        name: "CAP_SYS_ADMIN",
        source: "40-netns.conf",
        reason: |settings, _| settings.netns.is_some().then_some("--netns"),
        is_of_helper: false,
    },
    Need {
        capability: CapabilitySet::SYS_ADMIN,
        name: "CAP_SYS_ADMIN",
        source: "20-system.conf",
        reason: |_, report| {
            report.kinds.contains("hostname").then_some("the host name of the configuration")
        },
        is_of_helper: true,
    },
    Need {
        capability: CapabilitySet::CHOWN,
        name: "CAP_CHOWN",
        source: "30-credentials.conf",
        reason: |_, report| {
            let needs_it = CREDENTIAL_KINDS.iter().any(|kind| report.kinds.contains(*kind));
            needs_it.then_some("the credentials of the configuration")
        },
        is_of_helper: false,
    },
];

/// Name of a drop-in for `holdfast unit`, by its file: `20-system.conf` is `system`. `None` for the unit itself.
fn drop_in(source: &str) -> Option<&str> {
    source.strip_suffix(".conf")?.split_once('-').map(|(_, name)| name)
}

pub(super) fn agent(subject: &Subject) -> Vec<Finding> {
    match &subject.agent {
        AgentAnswer::Running(facts) => {
            Finding::good(format!("the agent runs (process {})", facts.report.pid))
        }
        AgentAnswer::NotRunning(reason) => Finding::warning(reason),
        AgentAnswer::NotAllowed(reason) => Finding::unknown(reason),
    }
}

pub(super) fn capabilities(subject: &Subject) -> Vec<Finding> {
    let Some(report) = subject.report() else {
        return Finding::skipped("capabilities are those of a running agent");
    };
    let Some(has) = permitted(subject, report.pid) else {
        return Finding::unknown(format!("cannot read /proc/{}/status", report.pid));
    };
    let missing = NEEDS.iter().filter_map(|need| {
        let reason = (need.reason)(&subject.settings, report)?;
        let is_there =
            has.contains(need.capability) || (need.is_of_helper && has_helper(subject, report.pid));
        let text = format!("the agent lacks {}, which it needs for {reason}", need.name);
        let finding = Finding::new(Verdict::Failure, text);
        (!is_there).then(|| match drop_in(need.source) {
            None => finding.with_advice(format!("{} gives it: run the agent by it", need.source)),
            Some(name) => finding.with_advice(format!(
                "the drop-in {} gives it: `holdfast unit enable {name}`, then restart the agent",
                need.source
            )),
        })
    });
    let missing: Vec<Finding> = missing.collect();
    match missing.is_empty() {
        true => Finding::good("all capabilities that it needs"),
        false => missing,
    }
}

/// The permitted capabilities of a process.
fn permitted(subject: &Subject, pid: u32) -> Option<CapabilitySet> {
    let set = status_line(&subject.read(&format!("proc/{pid}/status"))?, "CapPrm")?;
    Some(CapabilitySet::from_bits_retain(u64::from_str_radix(&set, 16).ok()?))
}

fn status_line(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}

/// True when the helper for the host name runs as a child of the agent.
fn has_helper(subject: &Subject, agent: u32) -> bool {
    let Ok(processes) = fs::read_dir(subject.file("proc")) else { return false };
    let name = HELPER_NAME.to_string_lossy();
    processes.flatten().any(|process| {
        let status = fs::read_to_string(process.path().join("status")).unwrap_or_default();
        status_line(&status, "Name").as_deref() == Some(&name)
            && status_line(&status, "PPid").is_some_and(|it| it == agent.to_string())
    })
}

pub(super) fn open_files(subject: &Subject) -> Vec<Finding> {
    let of_process = |pid: u32| {
        let limits = subject.read(&format!("proc/{pid}/limits"))?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next().map(str::to_owned)
    };
    let limit = match subject.report() {
        Some(report) => of_process(report.pid),
        None => subject.unit_property("LimitNOFILE").map(str::to_owned),
    };
    let Some(limit) = limit else {
        return Finding::skipped("the limit of open files is that of a running agent");
    };
    // `unlimited` and `infinity` are not numbers.
    match limit.parse::<u64>() {
        Ok(limit) if limit < OPEN_FILES => {
            Finding::warning(format!("the agent may open {limit} files, and not {OPEN_FILES}"))
        }
        _ => Finding::good(format!("{limit} open files")),
    }
}

/// Memory of an agent without configuration.
const IDLE_MEMORY: u64 = 64 << 20;
/// Memory that an object takes, such as a route. While one configuration replaces another, the agent holds both.
const OBJECT_MEMORY: u64 = 2 * 7_000;

pub(super) fn memory(subject: &Subject) -> Vec<Finding> {
    let Some(report) = subject.report() else {
        return Finding::skipped("the memory limit is that of a running agent");
    };
    let Some(limit) = memory_limit(subject, report.pid) else {
        return Finding::good("no memory limit");
    };
    let SyncSummary { in_place, pending, failed, .. } = &report.sync;
    let objects = u64::try_from(in_place + pending + failed).unwrap_or(u64::MAX);
    let needed = objects.saturating_mul(OBJECT_MEMORY).saturating_add(IDLE_MEMORY);
    let megabytes = |bytes: u64| bytes.div_ceil(1 << 20);
    let text = format!("a memory limit of {} MB for {objects} objects", megabytes(limit));
    match limit < needed {
        true => Finding::warning(format!(
            "{text}: a change of all of them may take {} MB",
            megabytes(needed)
        )),
        false => Finding::good(text),
    }
}

/// The lowest limit of memory of the control groups of a process, at which it is slowed down or ended.
fn memory_limit(subject: &Subject, pid: u32) -> Option<u64> {
    let groups = subject.read(&format!("proc/{pid}/cgroup"))?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = Path::new(group);
    let folders = path.ancestors().map(|folder| Path::new("sys/fs/cgroup").join(folder));
    let limits = folders.flat_map(|folder| {
        ["memory.max", "memory.high"].map(|file| folder.join(file).to_string_lossy().into_owned())
    });
    // A group without a limit has the word `max`.
    limits.filter_map(|file| subject.read(&file)?.trim().parse().ok()).min()
}

/// The result of a check of the unit on a box that has none.
fn without_unit(subject: &Subject) -> Option<Vec<Finding>> {
    if subject.unit.text().is_none() {
        return Some(Finding::skipped("no service manager answers"));
    }
    let is_loaded = subject.unit_property("LoadState").is_some_and(|state| state == "loaded");
    (!is_loaded).then(|| Finding::skipped("there is no holdfast.service"))
}

pub(super) fn unit(subject: &Subject) -> Vec<Finding> {
    let property = |name| subject.unit_property(name).unwrap_or_default();
    if let Some(skipped) = without_unit(subject) {
        return skipped;
    }
    let mut findings = Vec::new();
    let mut add = |verdict, text: String| findings.push(Finding::new(verdict, text));
    if !property("UnitFileState").starts_with("enabled") {
        let state = property("UnitFileState");
        let text = format!("holdfast.service is {state}: it does not start with the box");
        add(Verdict::Warning, text);
    }
    let state = property("ActiveState");
    let result = property("Result");
    if state == "failed" || (state != "active" && result != "success") {
        let status = property("ExecMainStatus");
        let text = format!("holdfast.service is {state}: {result}, last exit status {status}");
        add(Verdict::Failure, text);
    }
    let restarts = property("NRestarts");
    if restarts.parse::<u64>().is_ok_and(|restarts| restarts > 0) {
        let text = format!(
            "the service manager has restarted the agent {restarts} times since it was started (last result {result}, status {})",
            property("ExecMainStatus")
        );
        add(Verdict::Warning, text);
    }
    match findings.is_empty() {
        true => Finding::good(format!("holdfast.service is enabled and {state}")),
        false => findings,
    }
}

pub(super) fn order(subject: &Subject) -> Vec<Finding> {
    let property = |name| subject.unit_property(name).unwrap_or_default();
    if let Some(skipped) = without_unit(subject) {
        return skipped;
    }
    let has = |name, unit| property(name).split_whitespace().any(|word| word == unit);
    if !has("Before", NETWORK_TARGET) {
        return Finding::warning(format!(
            "holdfast.service is not ordered before {NETWORK_TARGET}: services may start before the network is there"
        ));
    }
    if !has("Wants", NETWORK_TARGET) && !has("Requires", NETWORK_TARGET) {
        return Finding::warning(format!(
            "holdfast.service does not start {NETWORK_TARGET}: services that are ordered after it do not wait"
        ));
    }
    if has("After", ONLINE_TARGET) {
        return Finding::warning(format!(
            "holdfast.service waits for {ONLINE_TARGET}, which another program has to reach first"
        ));
    }
    Finding::good(format!("holdfast.service comes before {NETWORK_TARGET}"))
}
