//! Processors, memory and file systems, and how much of them is in use.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use holdfast_config::schema::Schema;
use holdfast_config::{InstancePath, MissingNode, NodeId, Value};
use holdfast_core::{PolledState, ServiceState};
use holdfast_telemetry::PolledReading;
use nix::sys::statvfs::statvfs;
use smol_str::format_smolstr;

use super::{KernelFolders, Shared};

/// Bytes of a megabyte as OpenConfig counts file systems.
const MEGABYTE: u64 = 1_000_000;
/// Most file systems that are shown: a box with containers mounts hundreds of copies of a few.
const MAX_MOUNTS: usize = 64;

/// Times of a processor since the start of the kernel, in the order of proc_stat(5): user, nice, system, idle, iowait, irq,
/// softirq, steal. In hundredths of a second.
type Times = [u64; 8];

/// Leaves of a processor, and the times that count for each.
const SHARES: [(&str, &[usize]); 8] = [
    ("total", &[0, 1, 2, 5, 6, 7]),
    ("user", &[0]),
    ("kernel", &[2]),
    ("nice", &[1]),
    ("idle", &[3]),
    ("wait", &[4]),
    ("hardware-interrupt", &[5]),
    ("software-interrupt", &[6]),
];

/// A figure of the memory, in bytes.
type MemoryFigure = fn(&Memory) -> u64;

/// Leaves of the memory.
const MEMORY: [(&str, MemoryFigure); 4] = [
    ("physical", |memory| memory.total),
    ("used", |memory| memory.total.saturating_sub(memory.free).saturating_sub(memory.cached)),
    ("free", |memory| memory.free),
    ("available", |memory| memory.available),
];

/// Memory in bytes.
#[derive(Debug, Default)]
struct Memory {
    total: u64,
    free: u64,
    available: u64,
    /// Copies of what is on disk.
    cached: u64,
}

/// Resources, read when somebody asks.
#[derive(Debug)]
pub(crate) struct Resources {
    folders: KernelFolders,
    /// Leaves of an entry with any key.
    memory: Vec<InstancePath>,
    processor: Vec<InstancePath>,
    processor_index: InstancePath,
    mount: MountLeaves,
    last: Shared<Reading>,
}

#[derive(Debug)]
struct MountLeaves {
    name: InstancePath,
    size: InstancePath,
    available: InstancePath,
    utilized: InstancePath,
}

/// The leaves of a reading, and the times that the next one is compared with.
#[derive(Clone, Debug, Default)]
struct Reading {
    times: BTreeMap<u32, Times>,
    leaves: Vec<(InstancePath, Value)>,
}

impl Resources {
    /// # Errors
    /// When the native model lacks a leaf, which the first test finds.
    pub(crate) fn new(native: &Schema, folders: KernelFolders) -> Result<Self, MissingNode> {
        let resources = ("resources", &[][..]);
        let memory = |leaf| native.instance_path(&[resources, ("memory", &[]), (leaf, &[])]);
        let cpu = ("cpu", &[("index", "0")][..]);
        let processor = |leaf| native.instance_path(&[resources, cpu, ("state", &[]), (leaf, &[])]);
        let mount = ("mount-point", &[("name", "/")][..]);
        let mount = |leaf| native.instance_path(&[resources, mount, ("state", &[]), (leaf, &[])]);
        let resources = Self {
            folders,
            memory: MEMORY.iter().map(|(leaf, _)| memory(*leaf)).collect::<Result<_, _>>()?,
            processor: SHARES.iter().map(|(leaf, _)| processor(*leaf)).collect::<Result<_, _>>()?,
            processor_index: processor("index")?,
            mount: MountLeaves {
                name: mount("name")?,
                size: mount("size")?,
                available: mount("available")?,
                utilized: mount("utilized")?,
            },
            last: Shared::default(),
        };
        // The first question gets the shares since then.
        resources.last.get(|before| resources.read(&before.times));
        Ok(resources)
    }

    /// Reads everything. Shares are those of the time since the given times, or since the start of the kernel.
    fn read(&self, before: &BTreeMap<u32, Times>) -> Reading {
        let mut leaves = Vec::new();
        if let Some(memory) = self.read_memory() {
            for (path, (_, of)) in self.memory.iter().zip(MEMORY) {
                leaves.push((path.clone(), Value::Uint(of(&memory))));
            }
        }
        let times = self.read_times();
        for (index, now) in &times {
            let key = Value::Uint(u64::from(*index));
            let at = |path: &InstancePath| path.clone().with_last_key(key.clone());
            let spent = spent_since(before.get(index), now);
            let all: u64 = spent.iter().sum();
            for (path, (_, parts)) in self.processor.iter().zip(SHARES) {
                let part: u64 = parts.iter().map(|at| spent[*at]).sum();
                let share = (part * 100 + all / 2).checked_div(all);
                leaves.extend(share.map(|share| (at(path), Value::Uint(share))));
            }
        }
        leaves.extend(self.read_mounts());
        Reading { times, leaves }
    }

    /// The entries of processors and mount points, which stay as they are while the agent runs.
    pub(crate) fn entries(&self) -> ServiceState {
        let index = |index: u32| {
            let key = Value::Uint(u64::from(index));
            (self.processor_index.clone().with_last_key(key.clone()), Some(key))
        };
        let name = |folder: &PathBuf| {
            let key = Value::Str(format_smolstr!("{}", folder.display()));
            (self.mount.name.clone().with_last_key(key.clone()), Some(key))
        };
        let times = self.last.get(|before| self.read(&before.times)).times;
        times.into_keys().map(index).chain(self.mounts().iter().map(name)).collect()
    }

    fn read_memory(&self) -> Option<Memory> {
        let text = fs::read_to_string(self.folders.proc.join("meminfo")).ok()?;
        let field = |name: &str| -> Option<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            let kilobytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            kilobytes.checked_mul(1024)
        };
        let sum = |names: [&str; 3]| names.into_iter().filter_map(field).sum();
        Some(Memory {
            total: field("MemTotal")?,
            free: field("MemFree")?,
            available: field("MemAvailable")?,
            cached: sum(["Buffers", "Cached", "SReclaimable"]),
        })
    }

    fn read_times(&self) -> BTreeMap<u32, Times> {
        let text = fs::read_to_string(self.folders.proc.join("stat")).unwrap_or_default();
        let processor = |line: &str| {
            let mut words = line.strip_prefix("cpu")?.split_whitespace();
            let index = words.next()?.parse().ok()?;
            let mut times = Times::default();
            for time in &mut times {
                *time = words.next()?.parse().ok()?;
            }
            Some((index, times))
        };
        // The first line, which has the sum, has no number behind `cpu`.
        let lines = text.lines().filter(|line| !line.starts_with("cpu "));
        lines.filter_map(processor).collect()
    }

    fn read_mounts(&self) -> Vec<(InstancePath, Value)> {
        let mut leaves = Vec::new();
        for folder in self.mounts() {
            let Some([size, available, used]) = usage(&folder) else { continue };
            let key = Value::Str(format_smolstr!("{}", folder.display()));
            let at = |path: &InstancePath| path.clone().with_last_key(key.clone());
            leaves.push((at(&self.mount.size), Value::Uint(size)));
            leaves.push((at(&self.mount.available), Value::Uint(available)));
            leaves.push((at(&self.mount.utilized), Value::Uint(used)));
        }
        leaves
    }

    /// File systems on disks, each once: where it is mounted first.
    fn mounts(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string(self.folders.proc.join("self/mounts")).unwrap_or_default();
        let mut devices: Vec<&str> = Vec::new();
        let mut folders = Vec::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some(device), Some(folder)) = (words.next(), words.next()) else { continue };
            if device.starts_with("/dev/") && !devices.contains(&device) {
                devices.push(device);
                folders.push(unescaped(folder));
            }
            if devices.len() == MAX_MOUNTS {
                break;
            }
        }
        folders
    }
}

/// Times that were spent since an earlier reading, or since the start of the kernel.
fn spent_since(before: Option<&Times>, now: &Times) -> Times {
    let mut spent = *now;
    for (spent, before) in spent.iter_mut().zip(before.into_iter().flatten()) {
        *spent = spent.saturating_sub(*before);
    }
    spent
}

/// Size, what is available to programs, and what is used of a file system, in megabytes.
fn usage(folder: &Path) -> Option<[u64; 3]> {
    let figures = statvfs(folder).ok()?;
    let unit = figures.fragment_size();
    let megabytes = |blocks: u64| blocks.saturating_mul(unit) / MEGABYTE;
    let used = figures.blocks().saturating_sub(figures.blocks_free());
    Some([megabytes(figures.blocks()), megabytes(figures.blocks_available()), megabytes(used)])
}

/// A folder as proc_mounts(5) writes it: blanks and the like are octal numbers behind a backslash.
fn unescaped(folder: &str) -> PathBuf {
    let mut text = String::new();
    let mut rest = folder;
    while let Some((before, after)) = rest.split_once('\\') {
        text += before;
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                text.push(char::from(code));
                rest = &after[3..];
            }
            None => {
                text.push('\\');
                rest = after;
            }
        }
    }
    (text + rest).into()
}

impl Resources {
    fn leaves(&self) -> Vec<(InstancePath, Value)> {
        self.last.get(|before| self.read(&before.times)).leaves
    }
}

#[tonic::async_trait]
impl PolledState for Resources {
    fn nodes(&self) -> Vec<NodeId> {
        let mounts = [&self.mount.size, &self.mount.available, &self.mount.utilized];
        let all = self.memory.iter().chain(&self.processor).chain(mounts);
        all.filter_map(InstancePath::leaf).collect()
    }

    async fn read(&self) -> PolledReading {
        self.leaves().into()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn shown(native: &Schema, leaves: &[(InstancePath, Value)]) -> BTreeMap<String, String> {
        let line = |(path, value): &(InstancePath, Value)| {
            (path.to_path(native).to_string(), value.to_string())
        };
        leaves.iter().map(line).collect()
    }

    #[test]
    fn shares_are_those_of_the_time_between_two_readings() {
        let proc = TempDir::new().unwrap();
        let write = |file: &str, text: &str| fs::write(proc.path().join(file), text).unwrap();
        write(
            "meminfo",
            "MemTotal: 1000 kB\nMemFree: 300 kB\nMemAvailable: 600 kB\nCached: 200 kB\n",
        );
        write("stat", "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 0 100 800 0 0 0 0 0 0\nintr 5\n");
        let native = Schema::native().unwrap();
        let folders = KernelFolders { proc: proc.path().into(), ..KernelFolders::default() };
        let resources = Resources::new(&native, folders).unwrap();
        let first = shown(&native, &resources.leaves());
        assert_eq!(first["/resources/memory/physical"], "1024000");
        assert_eq!(first["/resources/memory/used"], "512000");
        assert_eq!(
            first["/resources/cpu[index=0]/state/total"], "20",
            "since the start of the kernel"
        );

        write("stat", "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 150 0 125 825 0 0 0 0 0 0\n");
        let reading = resources.read(&BTreeMap::from([(0, [100, 0, 100, 800, 0, 0, 0, 0])]));
        let second = shown(&native, &reading.leaves);
        let of = |leaf: &str| second[&format!("/resources/cpu[index=0]/state/{leaf}")].as_str();
        assert_eq!([of("total"), of("user"), of("kernel"), of("idle")], ["75", "50", "25", "25"]);
        assert_eq!(second.len(), first.len(), "nothing is left out while there is time to share");
    }

    #[test]
    fn folders_are_read_as_they_are_named() {
        for (text, want) in [("/", "/"), ("/srv/a\\040b", "/srv/a b"), ("/x\\y", "/x\\y")] {
            assert_eq!(unescaped(text), PathBuf::from(want));
        }
    }
}
