//! Processes that clients may signal: the agent, and its descendants.
//!
//! All other processes belong to the system. The agent itself is only ended together with a restart.

use std::{fs, io, path::Path};

pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::privileges;

/// Folder of the process information.
const PROC: &str = "/proc";

/// Client's description of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessSelector {
    pub pid: Option<u32>,
    pub name: Option<String>,
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalOutcome {
    /// The signal was sent.
    Signalled,
    /// The agent has to restart itself.
    RestartAgent,
}

/// Reason why no process was signalled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KillError {
    #[error("the request names no process: give its pid or its name")]
    Unnamed,
    #[error("there is no process {0}")]
    NoPid(u32),
    #[error("neither the agent nor anything that it has started is named `{0}`")]
    NoName(String),
    #[error("process {pid} is named `{is}`, not `{requested}`")]
    OtherName { pid: u32, is: String, requested: String },
    #[error("processes {} are named `{name}`: choose one by its pid", pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))]
    Several { name: String, pids: Vec<u32> },
    #[error("process {pid} (`{name}`) is neither the agent nor started by it")]
    NotOurs { pid: u32, name: String },
    #[error(
        "the agent accepts HUP, to reload, and TERM with `restart`, to end in order, and no other signal"
    )]
    Agent,
    #[error("`{0}` cannot be restarted: the agent starts it again when it is needed")]
    NoRestart(String),
    #[error("cannot signal process {pid}")]
    Signal { pid: u32, source: io::Error },
    #[error("cannot list the processes")]
    List(#[source] io::Error),
}

/// A process, from `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    /// First 15 bytes of the name.
    name: String,
}

/// Signals the one matching process. A restart requires a signal that ends the process, and is possible for the
/// agent only.
///
/// # Errors
/// When the process is not one of ours, or the signal is not permitted.
pub fn signal(
    selector: &ProcessSelector,
    signal: Signal,
    restart: bool,
) -> Result<SignalOutcome, KillError> {
    let me = std::process::id();
    let table = || list(Path::new(PROC)).map_err(KillError::List);
    let found = find(selector, &table()?, me)?;
    let ends = signal != Signal::HUP;
    if found.pid == me && ends {
        return match (signal, restart) {
            (Signal::TERM, true) => Ok(SignalOutcome::RestartAgent),
            _ => Err(KillError::Agent),
        };
    }
    if restart && ends {
        return Err(KillError::NoRestart(found.name));
    }
    // A process number may be reused at any time, but a pidfd refers to one process. So the checks after opening
    // it apply to the process that gets the signal.
    let pid = found.pid;
    if found.parent == me && privileges::HELPER_NAME.to_str() == Ok(&found.name) {
        return Err(KillError::Agent);
    }
    let failed = |error: rustix::io::Errno| KillError::Signal { pid, source: error.into() };
    let number = Pid::from_raw(pid.cast_signed()).ok_or(KillError::NoPid(pid))?;
    let handle = pidfd_open(number, PidfdFlags::empty()).map_err(failed)?;
    if find(selector, &table()?, me)? != found {
        return Err(KillError::NoPid(pid));
    }
    pidfd_send_signal(&handle, signal).map_err(failed)?;
    Ok(SignalOutcome::Signalled)
}

/// Finds the matching process, if it is `me` or a descendant.
fn find(selector: &ProcessSelector, table: &[Process], me: u32) -> Result<Process, KillError> {
    match (selector.pid, &selector.name) {
        (None, None) => Err(KillError::Unnamed),
        (Some(pid), name) => {
            let found = table.iter().find(|process| process.pid == pid);
            let found = found.ok_or(KillError::NoPid(pid))?;
            if let Some(requested) = name
                && *requested != found.name
            {
                let is = found.name.clone();
                let requested = requested.clone();
                return Err(KillError::OtherName { pid, is, requested });
            }
            if descends(found, table, me) {
                Ok(found.clone())
            } else {
                Err(KillError::NotOurs { pid, name: found.name.clone() })
            }
        }
        (None, Some(name)) => {
            let named = table.iter().filter(|process| process.name == *name);
            let ours: Vec<_> = named.filter(|process| descends(process, table, me)).collect();
            match ours[..] {
                [one] => Ok(one.clone()),
                [] => Err(KillError::NoName(name.clone())),
                _ => {
                    let pids = ours.iter().map(|process| process.pid).collect();
                    Err(KillError::Several { name: name.clone(), pids })
                }
            }
        }
    }
}

/// Follows parents upwards. The table is not a snapshot, so parents may form a cycle.
fn descends(process: &Process, table: &[Process], ancestor: u32) -> bool {
    let mut at = process;
    for _ in 0..=table.len() {
        if at.pid == ancestor {
            return true;
        }
        let Some(parent) = table.iter().find(|other| other.pid == at.parent) else { return false };
        at = parent;
    }
    false
}

fn list(proc: &Path) -> io::Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in fs::read_dir(proc)? {
        let entry = entry?;
        let is_process = entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok());
        if is_process && let Ok(stat) = fs::read_to_string(entry.path().join("stat")) {
            processes.extend(read(&stat));
        }
    }
    Ok(processes)
}

/// Parses `PID (NAME) STATE PARENT ...`, where the name may have any characters. `None` for a process that has
/// ended.
fn read(stat: &str) -> Option<Process> {
    let (pid, rest) = stat.split_once(" (")?;
    let (name, rest) = rest.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let parent = fields.next()?;
    let pid = pid.parse().ok()?;
    let parent = parent.parse().ok()?;
    let name = name.to_owned();
    (state != "Z").then_some(Process { pid, parent, name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_kernel_is_read_whatever_the_name() {
        let process = |name: &str| Some(Process { pid: 7, parent: 1, name: name.to_owned() });
        for (stat, want) in [
            ("7 (sh) S 1 7 7", process("sh")),
            ("7 (a) R (b) c) R 1 7", process("a) R (b) c")),
            ("7 (sh) Z 1 7", None),
            ("7 (sh", None),
            ("", None),
        ] {
            assert_eq!(read(stat), want, "{stat}");
        }
    }

    // proves 6.9
    #[test]
    fn only_what_the_agent_has_started_is_found() {
        // Number, parent and name; 10 is the agent, 30 and 31 are each other's parents.
        let table: Vec<_> =
            ["1 (init) S 0", "10 (holdfast) S 1", "11 (install) S 10", "12 (dd) S 11"]
                .into_iter()
                .chain([
                    "13 (dd) S 11",
                    "20 (sshd) S 1",
                    "21 (dd) S 20",
                    "30 (x) S 31",
                    "31 (x) S 30",
                ])
                .map(|stat| read(&format!("{stat} 0")).unwrap())
                .collect();
        for (pid, name, want) in [
            (11, "", "11"),
            (12, "dd", "12"),
            (0, "install", "11"),
            (0, "holdfast", "10"),
            (10, "", "10"),
            (0, "", "names no process"),
            (99, "", "no process 99"),
            (12, "cp", "named `dd`, not `cp`"),
            (0, "dd", "processes 12, 13 are named `dd`"),
            (0, "sshd", "`sshd`"),
            (1, "", "process 1 (`init`) is neither"),
            (21, "", "process 21 (`dd`) is neither"),
            (30, "", "process 30 (`x`) is neither"),
        ] {
            let selector = ProcessSelector {
                pid: (pid != 0).then_some(pid),
                name: (!name.is_empty()).then(|| name.to_owned()),
            };
            let found = find(&selector, &table, 10);
            let outcome =
                found.map_or_else(|error| error.to_string(), |found| found.pid.to_string());
            assert!(
                outcome == want || outcome.contains(want) && want.len() > 2,
                "{selector:?}: {outcome}"
            );
        }
    }

    // proves 6.9
    #[test]
    fn the_agent_is_signalled_only_to_restart() {
        let agent = ProcessSelector { pid: Some(std::process::id()), name: None };
        assert_eq!(signal(&agent, Signal::TERM, true).unwrap(), SignalOutcome::RestartAgent);
        for (signal_name, restart) in [
            (Signal::TERM, false),
            (Signal::KILL, true),
            (Signal::KILL, false),
            (Signal::ABORT, true),
        ] {
            assert!(
                matches!(signal(&agent, signal_name, restart), Err(KillError::Agent)),
                "{signal_name:?}"
            );
        }
    }
}
