//! The processes of the box, and what they use.
//!
//! Their arguments are left out on purpose: whoever starts a program with a secret as an argument shows it to the other
//! programs of the box, and not to collectors.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use holdfast_config::{InstancePath, Keys, MissingNode, Models, NodeId, Step, Value};
use holdfast_core::PolledState;
use holdfast_telemetry::polled_entry::{EntryContent, ListPlace, PolledEntry, WayToLeaf};
use holdfast_telemetry::{EntryState, PolledList, PolledReading};
use smol_str::SmolStr;

use super::{KernelFolders, Shared};

/// Processes of one reading: those with the lowest numbers. A box with containers has some thousand, and each takes the kernel
/// twenty microseconds.
const MAX_PROCESSES: usize = 4096;
/// Nanoseconds of a tick in which the kernel counts the times of processes (`USER_HZ` is 100).
const TICK_NS: u64 = 10_000_000;
/// Places of fields in `/proc/PID/stat` behind the name, see proc_pid_stat(5).
const USER_TIME: usize = 11;
const SYSTEM_TIME: usize = 12;
const START_TIME: usize = 19;

/// Processes, read when somebody asks.
#[derive(Debug)]
pub(crate) struct Processes {
    folders: KernelFolders,
    /// When the kernel was started, in nanoseconds since 1970, if that is known.
    started_ns: Option<u64>,
    place: Arc<ListPlace>,
    nodes: Arc<ProcessNodes>,
    last: Arc<Shared<Entries>>,
}

/// Entries of a reading, with their keys.
type Entries = Vec<(Keys, Arc<dyn EntryState>)>;

#[derive(Debug)]
struct ProcessNodes {
    resources: NodeId,
    state: NodeId,
    pid: NodeId,
    name: NodeId,
    start_time: NodeId,
    user: NodeId,
    system: NodeId,
    memory: NodeId,
    share: NodeId,
}

/// A process, as the kernel shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: u64,
    name: SmolStr,
    start_ns: Option<u64>,
    user_ns: u64,
    system_ns: u64,
    /// Bytes that it holds; `None` for a thread of the kernel.
    memory: Option<u64>,
    /// Share of the memory of the box, in hundredths.
    share: Option<u64>,
}

impl Processes {
    /// # Errors
    /// When the native model lacks a node, which the first test finds.
    pub(crate) fn new(
        models: &Arc<Models>,
        folders: KernelFolders,
        started_ns: Option<u64>,
    ) -> Result<Self, MissingNode> {
        let find = |path: &str| models.native.require(path);
        let leaf = |leaf: &str| find(&format!("/resources/process/state/{leaf}"));
        let nodes = ProcessNodes {
            resources: find("/resources")?,
            state: find("/resources/process/state")?,
            pid: leaf("pid")?,
            name: leaf("name")?,
            start_time: leaf("start-time")?,
            user: leaf("cpu-usage-user")?,
            system: leaf("cpu-usage-system")?,
            memory: leaf("memory-usage")?,
            share: leaf("memory-utilization")?,
        };
        let list = find("/resources/process")?;
        let place = Arc::new(ListPlace { models: Arc::clone(models), list });
        Ok(Self { folders, started_ns, place, nodes: Arc::new(nodes), last: Arc::default() })
    }

    /// A reader for a thread on which it may block.
    fn reader(&self) -> impl FnOnce() -> Entries + Send + use<> {
        let proc = self.folders.proc.clone();
        let started_ns = self.started_ns;
        let place = Arc::clone(&self.place);
        let nodes = Arc::clone(&self.nodes);
        let last = Arc::clone(&self.last);
        let entry = move |process: Process| {
            let nodes = Arc::clone(&nodes);
            PolledEntry::shared(&place, ProcessContent { nodes, process })
        };
        move || last.get(|_| processes(&proc, started_ns).into_iter().map(entry).collect())
    }
}

#[tonic::async_trait]
impl PolledState for Processes {
    fn nodes(&self) -> Vec<NodeId> {
        let schema = &self.place.models.native;
        let polled = schema.nodes().iter().filter(|node| node.polled).map(|node| node.id);
        let is_below = |node: &NodeId| schema.with_ancestors(*node).any(|it| it == self.place.list);
        polled.filter(is_below).collect()
    }

    async fn read(&self) -> PolledReading {
        // A reading that panicked has no processes.
        let entries = tokio::task::spawn_blocking(self.reader()).await.unwrap_or_default();
        let above = InstancePath(vec![Step::node(self.nodes.resources)]);
        let list = PolledList { above, list: self.place.list, entries: entries.into() };
        PolledReading { leaves: Vec::new(), lists: vec![list] }
    }
}

/// The processes that the agent may see, ascending by number.
fn processes(proc: &Path, started_ns: Option<u64>) -> Vec<Process> {
    let total = fs::read_to_string(proc.join("meminfo")).ok();
    let total = total.and_then(|text| kilobytes(&text, "MemTotal:"));
    let folders = fs::read_dir(proc).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut pids: Vec<u64> = folders.filter_map(number).collect();
    pids.sort_unstable();
    pids.truncate(MAX_PROCESSES);
    pids.into_iter().filter_map(|pid| process(proc, pid, started_ns, total)).collect()
}

/// A process; `None` when it has ended.
fn process(proc: &Path, pid: u64, started_ns: Option<u64>, total: Option<u64>) -> Option<Process> {
    let folder = proc.join(pid.to_string());
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    // The name is in parentheses, and may contain blanks and parentheses itself.
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let fields: Vec<&str> = after.split_whitespace().collect();
    let ns = |at: usize| fields.get(at)?.parse::<u64>().ok()?.checked_mul(TICK_NS);
    let memory = fs::read_to_string(folder.join("status")).ok();
    let memory = memory.and_then(|text| kilobytes(&text, "VmRSS:"));
    let share = memory.zip(total).and_then(|(memory, total)| (memory * 100).checked_div(total));
    Some(Process {
        pid,
        name: name.into(),
        start_ns: started_ns.zip(ns(START_TIME)).map(|(kernel, after)| kernel + after),
        user_ns: ns(USER_TIME)?,
        system_ns: ns(SYSTEM_TIME)?,
        memory,
        share,
    })
}

/// The bytes that a line of a file of the kernel gives in kilobytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[derive(Debug)]
struct ProcessContent {
    nodes: Arc<ProcessNodes>,
    process: Process,
}

impl EntryContent for ProcessContent {
    fn keys(&self) -> Keys {
        Keys::single(Value::Uint(self.process.pid))
    }

    fn leaves(&self) -> Vec<(WayToLeaf, Value)> {
        let nodes = &self.nodes;
        let Process { pid, name, start_ns, user_ns, system_ns, memory, share } = &self.process;
        let number = |leaf: NodeId, number: u64| (leaf, Value::Uint(number));
        let always = [
            number(nodes.pid, *pid),
            (nodes.name, Value::Str(name.clone())),
            number(nodes.user, *user_ns),
            number(nodes.system, *system_ns),
        ];
        let start = start_ns.map(|time| number(nodes.start_time, time));
        let memory = memory.map(|bytes| number(nodes.memory, bytes));
        let share = share.map(|share| number(nodes.share, share));
        let all = always.into_iter().chain(start).chain(memory).chain(share);
        all.map(|(leaf, value)| (vec![Step::node(nodes.state), Step::node(leaf)], value)).collect()
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::fixtures::memory_folder;
    use tempfile::TempDir;

    use super::*;

    const AFTER_NAME: &str = "S 1 7 7 0 -1 4194304 9 0 0 0 250 30 0 0 20 0 1 0 500 9000 25";

    #[test]
    fn processes_are_read_with_whatever_name_they_have() {
        let proc = TempDir::new().unwrap();
        let write = |file: &str, text: &str| {
            let path = proc.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("meminfo", "MemTotal: 1000 kB\nMemFree: 300 kB\n");
        write("7/stat", &format!("7 (tmux: (1) x) {AFTER_NAME}"));
        write("7/status", "Name:\ttmux\nVmRSS:\t     250 kB\n");
        write("7/cmdline", "tmux\0--password\0secret\0");
        write("2/stat", &format!("2 (kthreadd) {AFTER_NAME}"));
        write("2/status", "Name:\tkthreadd\n");
        write("9/comm", "gone");
        write("uptime", "3.0 4.0\n");
        let thread = Process {
            pid: 2,
            name: "kthreadd".into(),
            start_ns: Some(1000 + 5_000_000_000),
            user_ns: 2_500_000_000,
            system_ns: 300_000_000,
            memory: None,
            share: None,
        };
        let program = Process {
            pid: 7,
            name: "tmux: (1) x".into(),
            memory: Some(256_000),
            share: Some(25),
            ..thread.clone()
        };
        assert_eq!(processes(proc.path(), Some(1000)), [thread, program]);
    }

    #[tokio::test]
    async fn a_reading_has_no_more_than_some_and_no_arguments() {
        let proc = memory_folder();
        for pid in 1..=MAX_PROCESSES + 1 {
            let folder = proc.path().join(pid.to_string());
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("stat"), format!("{pid} (p) {AFTER_NAME}")).unwrap();
            fs::write(folder.join("cmdline"), "p\0secret\0").unwrap();
        }
        let models = Arc::new(Models::load().unwrap());
        let folders = KernelFolders { proc: proc.path().into(), ..KernelFolders::default() };
        let processes = Processes::new(&models, folders, None).unwrap();
        let reading = processes.read().await;
        assert_eq!(reading.size(), MAX_PROCESSES);
        assert!(!format!("{reading:?}").contains("secret"));
        assert_eq!(processes.nodes().len(), 8, "the key, and seven leaves");
    }
}
