//! Packages that are tried by a process of their own before the agent compiles them.
//!
//! libyang is C, and a module that others have written may kill it, or have it take all memory. The process that tries
//! them is this program, with a bound on its memory and its time; the agent goes on whatever becomes of it.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::Builder;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tracing::warn;

use crate::executable;

/// Time for a trial. The largest package takes a second.
const TRIAL_TIME: Duration = Duration::from_secs(60);
/// Address space of the process, in bytes: 150 MB for itself and the agent's models, and as much as a hundred packages of
/// usual size.
const TRIAL_MEMORY: u64 = 512 << 20;
/// The process is the first that the kernel ends when memory runs out, before the agent (oom_score_adj of proc(5)).
const FIRST_TO_GO: &str = "1000";
/// Beginning of the names of folders with archives that are tried.
const TRIAL_FOLDER: &str = ".service-check-";

/// An archive, and the name that is in it.
#[derive(Clone, Debug)]
pub(in crate::services) struct Candidate<'a> {
    pub(in crate::services) name: String,
    pub(in crate::services) archive: &'a [u8],
}

/// Reason why packages were not found good.
#[derive(Debug)]
pub(in crate::services) enum TrialError {
    /// They are wrong, or have killed the process.
    Refused(String),
    /// There was no trial.
    Process(io::Error),
}

impl From<io::Error> for TrialError {
    fn from(error: io::Error) -> Self {
        Self::Process(error)
    }
}

/// Has another process load the packages in this order, as `holdfast service check` does.
pub(in crate::services) async fn check(
    folder: &Path,
    packages: &[Candidate<'_>],
) -> Result<(), TrialError> {
    let folder = Builder::new().prefix(TRIAL_FOLDER).tempdir_in(folder)?;
    let mut command = Command::new(executable::SELF);
    command.args(["service", "check"]).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    for (number, Candidate { name, archive }) in packages.iter().enumerate() {
        // Two of them may have one name.
        let path = folder.path().join(number.to_string());
        fs::create_dir(&path)?;
        let path = path.join(name);
        fs::write(&path, archive)?;
        command.arg(path);
    }
    let child = command.spawn()?;
    confine(&child);
    let output = timeout(TRIAL_TIME, child.wait_with_output()).await.map_err(|_| {
        TrialError::Refused(format!("the check did not end within {} s", TRIAL_TIME.as_secs()))
    })??;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(TrialError::Refused(if text.is_empty() { output.status.to_string() } else { text }))
}

/// Numbers of the packages that are not to be loaded, with the reasons. All are tried at once; where that fails, each beside
/// those before it that are good.
pub(in crate::services) async fn refused(
    folder: &Path,
    packages: &[Candidate<'_>],
) -> Vec<(usize, String)> {
    let mut refused = Vec::new();
    if packages.is_empty() || is_good(folder, packages).await.is_ok() {
        return refused;
    }
    let mut good = Vec::new();
    for (number, package) in packages.iter().enumerate() {
        good.push(package.clone());
        if let Err(reason) = is_good(folder, &good).await {
            good.pop();
            refused.push((number, reason));
        }
    }
    refused
}

/// Packages that cannot be tried count as good: the box has to come up with its services.
async fn is_good(folder: &Path, packages: &[Candidate<'_>]) -> Result<(), String> {
    match check(folder, packages).await {
        Ok(()) => Ok(()),
        Err(TrialError::Refused(reason)) => Err(reason),
        Err(TrialError::Process(error)) => {
            warn!(%error, "packages of services are loaded without being tried before");
            Ok(())
        }
    }
}

/// Bounds the memory of a process. Where that is not permitted, the bound on its time is left.
fn confine(child: &Child) {
    let Some(id) = child.id() else { return };
    let memory = Rlimit { current: Some(TRIAL_MEMORY), maximum: Some(TRIAL_MEMORY) };
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
    if let Err(error) = prlimit(pid, Resource::As, memory) {
        warn!(%error, "the memory of the process that tries packages of services is not bounded");
    }
    if let Err(error) = fs::write(format!("/proc/{id}/oom_score_adj"), FIRST_TO_GO) {
        warn!(%error, "the process that tries packages of services is not the first to go without memory");
    }
}

/// Removes archives whose trial ended with an earlier agent.
pub(in crate::services) fn sweep(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let left = entries.filter(|it| it.file_name().to_string_lossy().starts_with(TRIAL_FOLDER));
    for entry in left {
        if let Err(error) = fs::remove_dir_all(entry.path()) {
            let path = entry.path();
            warn!(path = %path.display(), %error, "cannot remove what a check of a package left");
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn the_process_has_a_bound_of_its_memory_and_goes_first() {
        let mut command = Command::new("sh");
        command.args(["-c", "read go; ulimit -v; cat /proc/self/oom_score_adj"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        confine(&child);
        child.stdin.take().unwrap().write_all(b"go\n").await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(told, format!("{}\n{FIRST_TO_GO}\n", TRIAL_MEMORY >> 10));
    }
}
