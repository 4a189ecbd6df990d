//! Links that have gained or lost their carrier, before the kernel says so.
//!
//! The kernel announces the carrier of a plain port or a bridge up to a second late: its work on carriers is delayed once it has
//! done some. It counts each change at once, in `carrier_changes` below `/sys/class/net/LINK`, and reading that takes no lock of
//! the network stack. So a thread looks at these counts, and has each link whose count has moved read at once. Asked for a link,
//! kernels from 6.8 on also do their work on it there and then, and leave out the next hops of that link.
//!
//! Links that stand on another one, such as both ends of a veth pair, are announced at once and need none of this.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::net::if_::if_nametoindex;
use nix::sys::eventfd::EventFd;
use nix::time::{ClockId, clock_gettime};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use smol_str::SmolStr;
use tracing::{debug, info};

use crate::netns::Netns;

/// Pause between two looks at all links. The kernel delays its own announcement by up to a second.
const PERIOD: Duration = Duration::from_millis(20);
/// Pause for each unit of time that a look takes, where that is more: looks at any number of links cost 2 % of a processor.
const PERIOD_PER_COST: u32 = 50;
/// Time from a link that came or went to the next list of them: links often come by the hundred, and a list reads three files of
/// each.
const SETTLE: Duration = Duration::from_millis(100);
/// The file of a link's count, in its folder.
const COUNT: &str = "carrier_changes";
/// Bytes of a count in decimal digits, with the newline.
const COUNT_OCTETS: usize = 16;
/// Where sysfs is mounted.
const SYS: &str = "/sys";

/// Links to be read before anything else. The thread of rtnetlink takes them where it takes announcements, so never behind the
/// commands that wait.
#[derive(Clone, Debug)]
pub(crate) struct UrgentReads {
    links: Arc<Mutex<BTreeSet<SmolStr>>>,
    wake: Arc<EventFd>,
}

impl UrgentReads {
    pub(crate) fn new(wake: Arc<EventFd>) -> Self {
        Self { links: Arc::default(), wake }
    }

    /// Takes the links that are to be read.
    pub(crate) fn take(&self) -> BTreeSet<SmolStr> {
        std::mem::take(&mut self.links.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, links: Vec<SmolStr>) {
        self.links.lock().unwrap_or_else(PoisonError::into_inner).extend(links);
        // The write fails only where the counter is full, and then the thread is awake.
        let _ = self.wake.write(1);
    }
}

/// Handle of the thread that looks at the links of a namespace. Dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct CarrierSampler {
    links_changed: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CarrierSampler {
    /// Starts to look at the links of the namespace.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(netns: Arc<Netns>, urgent: UrgentReads) -> io::Result<Self> {
        let (links_changed, changes) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new().name("carrier".into()).spawn(move || {
            if let Err(error) = netns.enter() {
                debug!(%error, "no carriers are looked at");
                return;
            }
            look_at_links(&changes, &urgent);
        })?;
        Ok(Self { links_changed: Some(links_changed), thread: Some(thread) })
    }

    /// Has the thread look for links that came or went.
    pub(crate) fn look_for_links(&self) {
        // A full channel says the same already.
        let _ = self.links_changed.as_ref().map(|changed| changed.try_send(()));
    }
}

impl Drop for CarrierSampler {
    fn drop(&mut self) {
        self.links_changed = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Looks at the links of this thread's namespace until nobody asks for it any more.
fn look_at_links(changes: &Receiver<()>, urgent: &UrgentReads) {
    let mut links = CountedLinks::default();
    links.find();
    let mut next_look = Instant::now();
    let mut find_at: Option<Instant> = None;
    let mut worked = processor_time();
    let mut last_cost = Duration::ZERO;
    loop {
        let has_work = !links.counts.is_empty() || find_at.is_some();
        let woken = match has_work {
            // Nothing to look at until there are other links.
            false => changes.recv().map_err(|_| RecvTimeoutError::Disconnected),
            true => changes.recv_timeout(next_look.saturating_duration_since(Instant::now())),
        };
        match woken {
            Err(RecvTimeoutError::Disconnected) => return,
            Ok(()) => {
                find_at.get_or_insert_with(|| Instant::now() + SETTLE);
                worked = processor_time();
            }
            Err(RecvTimeoutError::Timeout) => {
                let now = Instant::now();
                let moved = links.moved();
                if !moved.is_empty() {
                    urgent.add(moved);
                }
                let cost = processor_time().saturating_sub(worked);
                // One look that takes long does not delay the next one.
                next_look = now + PERIOD.max(cost.min(last_cost) * PERIOD_PER_COST);
                last_cost = cost;
                if find_at.take_if(|at| *at <= now).is_some() {
                    links.find();
                }
                worked = processor_time();
            }
        }
    }
}

/// Time that a processor has spent on this thread. The time to wake it up is part of it.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// The count of one link.
#[derive(Debug)]
struct Count {
    file: File,
    /// Digits of the count, as they were read last.
    digits: [u8; COUNT_OCTETS],
}

impl Count {
    fn open(path: &Path) -> io::Result<Self> {
        let mut count = Self { file: File::open(path)?, digits: [0; COUNT_OCTETS] };
        count.has_moved()?;
        Ok(count)
    }

    fn has_moved(&mut self) -> io::Result<bool> {
        let mut digits = [0; COUNT_OCTETS];
        let _octets = self.file.read_at(&mut digits, 0)?;
        let has_moved = digits != self.digits;
        self.digits = digits;
        Ok(has_moved)
    }
}

/// The links of a namespace that are looked at.
#[derive(Debug, Default)]
struct CountedLinks {
    counts: BTreeMap<SmolStr, Count>,
    /// sysfs of this namespace, without a place in the file system, where `/sys` shows another one.
    mounted: Option<OwnedFd>,
    has_told: bool,
}

impl CountedLinks {
    /// Looks for links that came or went.
    fn find(&mut self) {
        let Some(folder) = self.folder() else {
            if !std::mem::replace(&mut self.has_told, true) {
                info!(
                    "/sys shows another network namespace: a lost carrier is told when the kernel announces it, up to a second late"
                );
            }
            return;
        };
        let mut found = BTreeMap::new();
        for link in names(&folder) {
            let place = folder.join(link.as_str());
            let known = self.counts.remove(&link);
            // The count of a link that was made anew is that of another file.
            let count = match known.filter(|count| is_same_file(&count.file, &place)) {
                None if is_plain(&place) => Count::open(&place.join(COUNT)).ok(),
                known => known,
            };
            found.extend(count.map(|count| (link, count)));
        }
        self.counts = found;
    }

    /// Links whose carrier has changed since the last look.
    fn moved(&mut self) -> Vec<SmolStr> {
        let mut moved = Vec::new();
        self.counts.retain(|link, count| match count.has_moved() {
            Ok(has_moved) => {
                moved.extend(has_moved.then(|| link.clone()));
                true
            }
            Err(_) => false, // the link is gone
        });
        moved
    }

    /// The folder of the links of this namespace.
    fn folder(&mut self) -> Option<PathBuf> {
        let usual = Path::new(SYS).join("class/net");
        if self.mounted.is_none() && is_of_this_namespace(&usual) {
            return Some(usual);
        }
        if self.mounted.is_none() {
            self.mounted = mount_sysfs().inspect_err(|error| debug!(%error, "no sysfs")).ok();
        }
        let folder =
            Path::new("/proc/self/fd").join(self.mounted.as_ref()?.as_raw_fd().to_string());
        Some(folder.join("class/net"))
    }
}

/// Mounts a sysfs of the namespace of this thread, at no place in the file system.
fn mount_sysfs() -> rustix::io::Result<OwnedFd> {
    let file_system = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&file_system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY
        | MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&file_system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Names of the links in a folder of sysfs.
fn names(folder: &Path) -> Vec<SmolStr> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| entry.file_name().to_str().map(SmolStr::new);
    entries.filter_map(name).filter(|name| name.as_str() != LOOPBACK).collect()
}

/// The loopback link, which always has a carrier.
const LOOPBACK: &str = "lo";

/// True where the folder shows the links of this thread's namespace: the same names with the same indices.
fn is_of_this_namespace(folder: &Path) -> bool {
    let shown = names(folder);
    let links = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let there = links.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    let there: BTreeSet<&str> = there.filter(|name| *name != LOOPBACK).collect();
    let is_here = |name: &SmolStr| {
        let index = number(&folder.join(name.as_str()).join("ifindex"));
        there.contains(name.as_str())
            && index.is_some()
            && index == if_nametoindex(name.as_str()).ok()
    };
    shown.len() == there.len() && shown.iter().all(is_here)
}

/// True for a link that stands on no other one.
fn is_plain(link: &Path) -> bool {
    let index = number(&link.join("ifindex"));
    index.is_some() && index == number(&link.join("iflink"))
}

fn number(file: &Path) -> Option<u32> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// True where the open file is the count below this link.
fn is_same_file(file: &File, link: &Path) -> bool {
    let now = fs::metadata(link.join(COUNT));
    matches!((file.metadata(), now), (Ok(open), Ok(now)) if open.ino() == now.ino())
}
