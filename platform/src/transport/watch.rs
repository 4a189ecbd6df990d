//! Watch for changes by other programs: inotify(7) on the folders of our files, and polling for a change of the
//! host name (proc_sys_hostname: `POLLPRI`).

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use holdfast_security::credentialz::{
    AUTHORIZED_KEYS_FOLDER, CREDENTIALS_FOLDER, PRINCIPALS_FOLDER,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::files::Root;
use super::texts::Command;

/// Folders of files that we write, or whose files describe the box. Missing ones are tried again with every change
/// above them.
const FOLDERS: [&str; 8] = [
    "etc",
    "etc/ssh",
    "etc/ssh/sshd_config.d",
    CREDENTIALS_FOLDER,
    AUTHORIZED_KEYS_FOLDER,
    PRINCIPALS_FOLDER,
    "etc/glome",
    "usr/sbin",
];

/// File that becomes ready on each change of a host name, in any UTS namespace.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Event sources of the thread.
struct Sources {
    files: Inotify,
    /// `None` where /proc is not mounted.
    host_name: Option<File>,
    stop: Arc<EventFd>,
}

/// Handle of a thread that waits for changes. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts to report changes.
    ///
    /// # Errors
    /// When the system has no more watches or threads.
    pub(super) fn start(root: Root, changes: Sender<Command>) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let stop = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        watch(&inotify, &root);
        let host_name = File::open(HOST_NAME).ok();
        let sources = Sources { files: inotify, host_name, stop: Arc::clone(&stop) };
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
            while sources.wait() {
                watch(&sources.files, &root);
                if changes.send(Command::Reread).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // The write can fail only when stop requests fill the counter.
        let _ = self.stop.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until `holds` is true, checking at each change in this folder; false on timeout.
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
    /// Waits for a change, and consumes all that have occurred; false at the end.
    fn wait(&self) -> bool {
        let mut ready = vec![
            PollFd::new(self.stop.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.files.as_fd(), PollFlags::POLLIN),
        ];
        // Polling consumes the change.
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

/// Adds the watches. Watching a folder again has no effect.
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
