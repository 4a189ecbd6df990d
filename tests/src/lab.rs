//! The lab: a Linux kernel of its own, whose power can be cut (`tests/lab/README.md`).
//!
//! A guest is a process: User-Mode Linux with the file system of the host as its root, read only. So the binaries of this
//! build are there, and a test can run in it: [`in_lab!`](crate::in_lab) starts the same test once more in the guest, by its
//! name. The guest has every kind of link that the agent knows, and its devices are namespaces joined by veth.
//!
//! Another guest is a box that systemd runs: its root is a disk on which the package is installed
//! ([`Disk::with_systemd`], [`Guest::boot_systemd`]).

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::agent::{PASSWORD, binary};

/// Environment variable of tests that run in a guest: the part of the test that is to run there.
const IN_GUEST: &str = "HOLDFAST_LAB";
/// The part of a test that has one alone.
const WHOLE: &str = "whole";

/// The folder in the guest that it shares with the host.
pub const SHARE: &str = "/mnt/share";
/// The folder of a guest that systemd runs in which the file system of the host is, read only.
const HOST: &str = "/host";
/// The folder in the guest whose disk outlives a power cut.
pub const DISK: &str = "/mnt/disk";

/// Memory of a guest: some agents of a debug build, and the pages of their binaries.
const MEMORY: &str = "mem=1G";
/// Bytes of a disk: a hundred times what the database of a test has. The file is sparse.
const DISK_BYTES: u64 = 1 << 28;
/// Time limit for a boot; on an idle machine it takes 2 s, and 10 s with systemd.
const BOOT_LIMIT: Duration = Duration::from_secs(180);
/// Time limit for one script. The slowest test of the lab takes a tenth of it.
const SCRIPT_LIMIT: Duration = Duration::from_secs(300);
/// Lines of the console that a failure shows.
const CONSOLE_TAIL: usize = 40;

/// Reason for which a guest does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    #[error("the lab cannot start: {what}")]
    Setup { what: &'static str, source: io::Error },
    #[error(
        "the lab cannot start: the guest has ended before it was ready; its console: {console}"
    )]
    Ended { console: String },
    #[error(
        "the lab cannot start: the guest was not ready after {BOOT_LIMIT:?}; its console: {console}"
    )]
    Late { console: String },
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> LabError {
    move |source| LabError::Setup { what, source }
}

/// A disk of a guest. Its content outlives the guest.
#[derive(Debug)]
pub struct Disk {
    folder: TempDir,
}

impl Disk {
    /// # Errors
    /// When the file system cannot be made.
    pub fn new() -> Result<Self, LabError> {
        let folder = TempDir::with_prefix("holdfast-lab-").map_err(failed("a disk"))?;
        let disk = Self { folder };
        let file = fs::File::create(disk.path()).map_err(failed("a disk"))?;
        file.set_len(DISK_BYTES).map_err(failed("a disk"))?;
        let mut made = Command::new("mke2fs");
        made.args(["-q", "-t", "ext4"]).arg(disk.path());
        succeed(&mut made).map_err(failed("mke2fs, of the package e2fsprogs"))?;
        Ok(disk)
    }

    /// Makes the disk of a box that systemd runs. The package of this build is installed there, its unit is enabled, and
    /// the user `admin` has the password of tests.
    ///
    /// # Errors
    /// When the disk cannot be made.
    pub fn with_systemd() -> Result<Self, LabError> {
        let folder = TempDir::with_prefix("holdfast-lab-").map_err(failed("a disk"))?;
        let disk = Self { folder };
        let password = disk.folder.path().join("password");
        fs::write(&password, format!("{PASSWORD}\n")).map_err(failed("a file"))?;
        let mut made = Command::new("python3");
        made.arg(folder_of_tests().join("scripts/systemd_disk.py"));
        made.args([binary(), password, disk.path()]);
        succeed(&mut made).map_err(failed("the disk of a box with systemd"))?;
        Ok(disk)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }
}

fn succeed(command: &mut Command) -> io::Result<()> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

/// End of a script that ran in a guest.
#[derive(Clone, Debug)]
pub struct Run {
    /// The exit status; `None` when the guest ended before the script, or the time was over.
    pub status: Option<i32>,
    /// Everything that it printed.
    pub output: String,
}

/// Words that the console of a guest told.
#[derive(Debug, Default)]
struct Console {
    /// Number of boots after which the guest was ready for scripts.
    boots: usize,
    has_ended: bool,
    done: HashMap<u64, i32>,
    tail: VecDeque<String>,
}

impl Console {
    fn take(&mut self, line: &str) {
        match line.trim_end().strip_prefix("lab: ") {
            Some("ready") => self.boots += 1,
            Some(word) => {
                let done = word.strip_prefix("done ").and_then(|it| it.split_once(' '));
                if let Some((id, status)) = done
                    && let (Ok(id), Ok(status)) = (id.parse(), status.parse())
                {
                    self.done.insert(id, status);
                }
            }
            None => {
                self.tail.push_back(line.trim_end().to_owned());
                if self.tail.len() > CONSOLE_TAIL {
                    self.tail.pop_front();
                }
            }
        }
    }

    fn text(&self) -> String {
        Vec::from(self.tail.clone()).join("\n")
    }
}

#[derive(Debug, Default)]
struct Shared {
    console: Mutex<Console>,
    told: Condvar,
}

impl Shared {
    fn console(&self) -> MutexGuard<'_, Console> {
        self.console.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the condition holds, the guest has ended, or the time is over.
    fn wait(&self, limit: Duration, holds: impl Fn(&Console) -> bool) -> MutexGuard<'_, Console> {
        let deadline = Instant::now() + limit;
        let mut console = self.console();
        while !holds(&console) && !console.has_ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.told.wait_timeout(console, left);
            console = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        console
    }
}

/// A guest that runs. Dropping it cuts its power.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    has_power: bool,
    scripts: Mutex<Scripts>,
    shared: Arc<Shared>,
    share: TempDir,
    /// The library that is preloaded.
    _library: TempDir,
}

#[derive(Debug)]
struct Scripts {
    names: ChildStdin,
    last: u64,
}

impl Guest {
    /// Starts a guest, with a disk or without, and waits until it takes scripts.
    ///
    /// # Errors
    /// When something that a guest needs is missing, or it does not get ready.
    pub fn boot(disk: Option<&Disk>) -> Result<Self, LabError> {
        Self::start_linux(|share| {
            let mut linux = linux_on_host_files(share);
            if let Some(disk) = disk {
                linux.arg(joined("ubda=", &disk.path()));
            }
            linux
        })
    }

    /// Starts a guest that systemd runs from a disk, and waits until it takes scripts.
    ///
    /// # Errors
    /// When something that a guest needs is missing, or it does not get ready.
    pub fn boot_systemd(disk: &Disk) -> Result<Self, LabError> {
        Self::start_linux(|share| {
            let mut linux = linux(share);
            linux.args(["root=/dev/ubda", "rw"]).arg(joined("ubda=", &disk.path()));
            linux
        })
    }

    /// Starts the command of a guest, which has the folder that it shares.
    fn start_linux(command: impl FnOnce(&Path) -> Command) -> Result<Self, LabError> {
        let library = build_library()?;
        let share = TempDir::with_prefix("holdfast-lab-").map_err(failed("a folder"))?;
        let mut linux = command(share.path());
        preload(&mut linux, library.path());
        // A guest has processes of its own, which end with it.
        linux.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = linux.spawn().map_err(failed(LINUX))?;
        let shared = Arc::new(Shared::default());
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (names, output) = pipes.ok_or_else(|| failed("pipes")(io::Error::other("none")))?;
        let told = Arc::clone(&shared);
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                told.console().take(&String::from_utf8_lossy(&line));
                told.told.notify_all();
            }
            told.console().has_ended = true;
            told.told.notify_all();
        });
        let scripts = Mutex::new(Scripts { names, last: 0 });
        let guest = Self { child, has_power: true, scripts, shared, share, _library: library };
        guest.wait_for_boot(1)?;
        Ok(guest)
    }

    /// Waits until the guest has booted as often as this and takes scripts. A guest that reboots stays the same process.
    ///
    /// # Errors
    /// When it ends instead, or does not get ready.
    pub fn wait_for_boot(&self, count: usize) -> Result<(), LabError> {
        let console = self.shared.wait(BOOT_LIMIT, |console| console.boots >= count);
        let tail = console.text();
        match (console.boots >= count, console.has_ended) {
            (true, _) => Ok(()),
            (_, true) => Err(LabError::Ended { console: tail }),
            (_, false) => Err(LabError::Late { console: tail }),
        }
    }

    /// Starts a shell script, and returns its number.
    ///
    /// # Errors
    /// When the guest has ended.
    pub fn start(&self, script: &str) -> io::Result<u64> {
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        scripts.last += 1;
        let id = scripts.last;
        fs::write(self.shared_file(&format!("{id}.sh")), script)?;
        writeln!(scripts.names, "{id}")?;
        scripts.names.flush()?;
        Ok(id)
    }

    /// Waits for the end of a script.
    pub fn wait(&self, id: u64) -> Run {
        let console = self.shared.wait(SCRIPT_LIMIT, |console| console.done.contains_key(&id));
        let status = console.done.get(&id).copied();
        let tail = console.text();
        drop(console);
        let output = fs::read(self.shared_file(&format!("{id}.out"))).unwrap_or_default();
        let output = String::from_utf8_lossy(&output).into_owned();
        match status {
            Some(_) => Run { status, output },
            None => Run { status, output: format!("{output}\nconsole of the guest: {tail}") },
        }
    }

    /// True once a script has ended.
    pub fn is_done(&self, id: u64) -> bool {
        self.shared.console().done.contains_key(&id)
    }

    /// Runs a shell script to its end.
    pub fn run(&self, script: &str) -> Run {
        match self.start(script) {
            Ok(id) => self.wait(id),
            Err(error) => {
                Run { status: None, output: format!("the guest takes no script: {error}") }
            }
        }
    }

    /// The path on the host of a file in the folder that both share.
    pub fn shared_file(&self, name: &str) -> PathBuf {
        self.share.path().join(name)
    }

    /// Ends the guest between two instructions. Data that it had not written to its disk is gone.
    pub fn cut_power(&mut self) {
        // Once: another group of processes may have the number later.
        if !std::mem::take(&mut self.has_power) {
            return;
        }
        if let Ok(id) = i32::try_from(self.child.id()) {
            let _ended_already = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
        let _ended_already = self.child.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.cut_power();
    }
}

/// The program of a guest, with the package that has it.
const LINUX: &str = "linux.uml, of the package user-mode-linux";

/// The command of a guest with a folder that it shares, without a root.
fn linux(share: &Path) -> Command {
    let mut linux = Command::new("linux.uml");
    linux
        .args([MEMORY, "quiet", "con=null", "con0=fd:0,fd:1"])
        .arg(joined("lab_share=", share))
        .stderr(Stdio::null());
    linux
}

/// The command of a guest whose root is the file system of the host.
fn linux_on_host_files(share: &Path) -> Command {
    let mut linux = linux(share);
    linux
        .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"])
        .arg(joined("init=", &folder_of_tests().join("lab/init")));
    linux
}

fn preload(linux: &mut Command, library: &Path) {
    linux.env("LD_PRELOAD", library.join(LIBRARY));
}

/// Runs a guest with a shell for a person at this terminal, on a box whose programs are in this folder.
///
/// # Errors
/// When something that a guest needs is missing.
pub fn run_shell(programs: &Path) -> Result<(), LabError> {
    let library = build_library()?;
    let share = TempDir::with_prefix("holdfast-lab-").map_err(failed("a folder"))?;
    let terminal = std::env::var("TERM").unwrap_or_else(|_| "linux".to_owned());
    let mut linux = linux_on_host_files(share.path());
    preload(&mut linux, library.path());
    linux
        .arg(joined("lab_shell=", &folder_of_tests().join("lab/box")))
        .arg(joined("lab_programs=", programs));
    linux.arg(format!("TERM={terminal}"));
    linux.status().map_err(failed(LINUX))?;
    Ok(())
}

fn joined(name: &str, path: &Path) -> OsString {
    let mut argument = OsString::from(name);
    argument.push(path);
    argument
}

fn folder_of_tests() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

const LIBRARY: &str = "fp_state.so";

/// Builds the library that guests need on processors with more floating point state than they know.
fn build_library() -> Result<TempDir, LabError> {
    let built = TempDir::with_prefix("holdfast-lab-").map_err(failed("a folder"))?;
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(built.path().join(LIBRARY));
    cc.arg(folder_of_tests().join("lab/fp_state.c"));
    succeed(&mut cc).map_err(failed("cc, for tests/lab/fp_state.c"))?;
    Ok(built)
}

/// The part of a test that runs in a guest; `None` on the host.
#[must_use]
pub fn part() -> Option<String> {
    std::env::var(IN_GUEST).ok()
}

/// The guest that the tests of this process share. It ends with the last test that has it: a guest that only reads the end
/// of its pipe outlived its process now and then.
fn common_guest() -> Arc<Guest> {
    static GUEST: Mutex<Weak<Guest>> = Mutex::new(Weak::new());
    let mut guest = GUEST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = guest.upgrade() {
        return running;
    }
    let booted = Arc::new(Guest::boot(None).unwrap_or_else(|error| panic!("{error}")));
    *guest = Arc::downgrade(&booted);
    booted
}

/// The script that runs a part of a test of this binary in a guest.
///
/// # Panics
/// When the path of this program is not known.
#[must_use]
pub fn script_of(test: &str, part: &str) -> String {
    let program = std::env::current_exe().expect("the path of this test binary");
    let folder = env!("CARGO_MANIFEST_DIR");
    let program = program.display();
    format!("cd {folder} && {IN_GUEST}={part} exec {program} --exact {test} --nocapture")
}

/// The script for a guest that systemd runs. It runs with the programs and libraries of the host.
///
/// # Panics
/// When the path of this program is not known.
#[must_use]
pub fn script_in_host_files(test: &str, part: &str) -> String {
    format!("exec chroot {HOST} sh -c '{}'", script_of(test, part))
}

/// Runs a test of this binary in the guest that tests share.
///
/// # Panics
/// When the test fails there, or the guest cannot start.
pub fn run_in_guest(test: &str) {
    let run = common_guest().run(&script_of(test, WHOLE));
    let has_run = run.output.contains("test result: ok. 1 passed");
    assert!(
        run.status == Some(0) && has_run,
        "{test} in the lab: {:?}\n{}",
        run.status,
        run.output
    );
}

/// The name of a test, from the path of a function within it.
#[must_use]
pub fn test_name(path_within: &str) -> &str {
    let test = path_within.trim_end_matches("::here").trim_end_matches("::{{closure}}");
    test.split_once("::").map_or(test, |(_, name)| name)
}

/// Runs the body of a test in the guest that all tests of the binary share.
#[macro_export]
macro_rules! in_lab {
    ($body:block) => {{
        fn here() {}
        if $crate::lab::part().is_some() {
            $body
        } else {
            $crate::lab::run_in_guest($crate::lab::test_name(std::any::type_name_of_val(&here)));
        }
    }};
}
