//! Checks of the state folder and of its disk.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_base::is_root_or_own;
use nix::sys::statvfs::{FsFlags, statvfs};

use super::{Finding, Subject, Verdict};

/// Room below which the agent may soon be unable to store changes, in bytes: a copy of a large database, and the files of
/// histories.
const LEAST_ROOM: u64 = 200 * 1_000_000;
/// Writes by which the disk is measured: enough for a share of one in a hundred.
const WRITES: usize = 100;
/// Size of one write in bytes: a page of the database.
const WRITE_SIZE: usize = 4096;
/// Time that 99 of 100 durable writes may take. A change waits for two of them.
const SLOW_SYNC: Duration = Duration::from_millis(50);

pub(super) fn configuration(subject: &Subject) -> Vec<Finding> {
    match &subject.file {
        None => Finding::good("no configuration file"),
        Some(Ok(())) => Finding::good("the configuration file has no mistakes"),
        Some(Err(mistakes)) => Finding::failure(mistakes),
    }
}

pub(super) fn folder(subject: &Subject) -> Vec<Finding> {
    let folder = subject.state_folder();
    let shown = folder.display();
    let found = match fs::symlink_metadata(folder)
        .and_then(|link| Ok((link, fs::metadata(folder)?)))
    {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound && subject.facts().is_none() => {
            return Finding::skipped(format!("{shown} is not there yet: no agent has run with it"));
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Finding::unknown(format!("cannot look at {shown}: {error}"));
        }
        Err(error) => return Finding::failure(format!("cannot look at {shown}: {error}")),
    };
    let (link, folder) = found;
    if !folder.is_dir() {
        return Finding::failure(format!("{shown} is not a folder"));
    }
    let mut findings = Vec::new();
    if let Some(owner) = [link.uid(), folder.uid()].into_iter().find(|uid| !is_root_or_own(*uid)) {
        let text = format!("{shown} belongs to user {owner}, who can read the keys in it");
        findings.push(Finding::new(Verdict::Failure, text));
    }
    let mode = folder.mode() & 0o7777;
    if mode & 0o077 != 0 {
        let text = format!("{shown} is open to other users (mode {mode:o})");
        findings.push(Finding::new(Verdict::Failure, text));
    }
    match findings.is_empty() {
        true => Finding::good(format!("{shown} (mode {mode:o})")),
        false => findings,
    }
}

pub(super) fn room(subject: &Subject) -> Vec<Finding> {
    let folder = subject.state_folder();
    let shown = folder.display();
    let disk = match statvfs(folder) {
        Ok(disk) => disk,
        Err(nix::errno::Errno::ENOENT) => return Finding::skipped(format!("{shown} is not there")),
        Err(errno) => {
            return Finding::unknown(format!("cannot ask for the room of {shown}: {errno}"));
        }
    };
    if disk.flags().contains(FsFlags::ST_RDONLY) {
        return Finding::failure(format!("the file system of {shown} is read-only"));
    }
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    match free < LEAST_ROOM {
        true => Finding::warning(format!("{} are free for {shown}", megabytes(free))),
        false => Finding::good(format!("{} free", megabytes(free))),
    }
}

fn megabytes(bytes: u64) -> String {
    match bytes / 1_000_000 {
        megabytes if megabytes >= 10_000 => format!("{} GB", megabytes / 1000),
        megabytes => format!("{megabytes} MB"),
    }
}

pub(super) fn sync(subject: &Subject) -> Vec<Finding> {
    let folder = subject.state_folder();
    let shown = folder.display();
    if subject.is_quick {
        return Finding::skipped("the disk is not measured, because of --quick");
    }
    match measure(folder) {
        Ok(times) => judge_sync(times),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Finding::skipped(format!("{shown} is not there"))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Finding::unknown(format!("cannot write a file to {shown}: {error}"))
        }
        Err(error) => Finding::failure(format!("cannot write a file to {shown}: {error}")),
    }
}

/// Times of durable writes to a file that goes afterwards.
fn measure(folder: &Path) -> io::Result<Vec<Duration>> {
    let mut file = tempfile::Builder::new().prefix(".doctor-").tempfile_in(folder)?;
    let page = vec![0x5a; WRITE_SIZE];
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let begun = Instant::now();
        file.write_all(&page)?;
        file.as_file().sync_data()?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

pub(super) fn judge_sync(mut times: Vec<Duration>) -> Vec<Finding> {
    times.sort_unstable();
    let percentile = |percent: usize| {
        let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(at).copied().unwrap_or_default()
    };
    let half = percentile(50);
    let most = percentile(99);
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let text = format!("fsync p50 {:.1} ms p99 {:.1} ms", ms(half), ms(most));
    match most > SLOW_SYNC {
        true => Finding::warning(format!("the disk is slow: {text}")),
        false => Finding::good(text),
    }
}

pub(super) fn other_agent(subject: &Subject) -> Vec<Finding> {
    let holder = match &subject.holder {
        Ok(Some(holder)) => holder,
        Ok(None) => return Finding::good("no other agent in the network namespace"),
        Err(reason) => return Finding::unknown(reason),
    };
    let own_pid = subject.report().and_then(|report| i32::try_from(report.pid).ok());
    let is_own = own_pid.is_some() && holder.pid == own_pid;
    let own = fs::canonicalize(subject.state_folder()).ok();
    let folder = holder.answer.as_ref().map(|(_, folder)| Path::new(folder));
    let is_own_folder = folder.is_some_and(|it| fs::canonicalize(it).ok() == own && own.is_some());
    match (is_own || is_own_folder, subject.facts()) {
        (true, Some(_)) => Finding::good("no other agent in the network namespace"),
        (true, None) => Finding::failure(format!(
            "the agent of this state folder runs ({holder}), and does not answer on its local socket"
        )),
        (false, _) => {
            Finding::failure(format!("another agent manages the network namespace: {holder}"))
        }
    }
}
