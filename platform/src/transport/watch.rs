//! Notices what others do to the files below the root: inotify(7) on the folders that matter. And to the name of the
//! host, which the kernel tells whoever polls for it (proc_sys_hostname: `POLLPRI`).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast_security::credentialz::{AUTHORIZED_KEYS_FOLDER, FOLDER, PRINCIPALS_FOLDER};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::files::Root;
use super::texts::Command;

/// Folders with files that we write, or whose files say what the box has. Those that are not there yet are tried again
/// with every change above them.
const FOLDERS: [&str; 8] = [
    "etc",
    "etc/ssh",
    "etc/ssh/sshd_config.d",
    FOLDER,
    AUTHORIZED_KEYS_FOLDER,
    PRINCIPALS_FOLDER,
    "etc/glome",
    "usr/sbin",
];

/// Polled, this tells of each change of a host name, in whatever UTS namespace.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// What is waited for.
struct Sources {
    files: Inotify,
    /// Not there where no /proc is to be had.
    host_name: Option<File>,
    stop: Arc<EventFd>,
}

/// A thread that waits for changes. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Tells of changes from now on.
    ///
    /// # Errors
    /// When the system has no more watches, or no more threads.
    pub(super) fn start(root: Root, changes: Sender<Command>) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        watch(&inotify, &root);
        let host_name = File::open(HOST_NAME).ok();
        let sources = Sources { files: inotify, host_name, stop: Arc::clone(&stop) };
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
            while sources.wait() {
                watch(&sources.files, &root);
                if changes.send(Command::Look).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It can only be full of requests to stop.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until something holds that a change in this folder brings about; false when it does not in time.
pub(super) fn until(
    folder: &Path,
    within: Duration,
    mut holds: impl FnMut() -> bool,
) -> io::Result<bool> {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
    inotify.add_watch(folder, AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVE)?;
    let end = Instant::now() + within;
    while !holds() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        let mut ready = [PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
        let _woken = poll(&mut ready, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        while inotify.read_events().is_ok_and(|events| !events.is_empty()) {}
    }
    Ok(true)
}

impl Sources {
    /// Waits for a change, and takes all that have come; false when it is the end.
    fn wait(&self) -> bool {
        let mut ready = vec![
            PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.files.as_fd(), PollFlags::POLLIN),
        ];
        // To poll it is to take the change.
        ready.extend(self.host_name.iter().map(|it| PollFd::new(it.as_fd(), PollFlags::POLLPRI)));
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return false,
        }
        if ready[0].any().unwrap_or(true) {
            return false;
        }
        while self.files.read_events().is_ok_and(|events| !events.is_empty()) {}
        true
    }
}

/// Watching a folder that is watched already changes nothing.
fn watch(inotify: &Inotify, root: &Root) {
    let changes = AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_MOVE
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_ATTRIB
        | AddWatchFlags::IN_ONLYDIR;
    for folder in FOLDERS {
        let Ok(place) = root.place(folder) else { continue };
        let _not_there_yet = inotify.add_watch(&place, changes);
    }
}
