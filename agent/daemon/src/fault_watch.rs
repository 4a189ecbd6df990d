//! `holdfast fault watch`: each change of an alarm on standard output, or given to a program.
//!
//! The program is a process of its own, so that nothing in the agent waits for it. A message that it does not take is given
//! to it again, and the stream is resumed by the id of the last change that it has taken: it gets each change at least once.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::local::{Client, ClientError};
use crate::settings::{FaultWatch, FaultWatchRequest};

/// Time for which a program may work on one message.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause before a message is given to the program again, or the agent is asked again; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Failure of a watch that does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    #[error(transparent)]
    Agent(#[from] ClientError),
    #[error("cannot start `{}`", program.display())]
    Program { program: PathBuf, source: io::Error },
    #[error("cannot {action} `{}`", path.display())]
    Resume { action: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` has something else than the id of a change", path.display())]
    ResumeForm { path: PathBuf },
}

/// Gives each message to a program, and goes on when the agent is started anew.
///
/// # Errors
/// When the agent refuses the request, the program cannot be started at all, or the file with the id cannot be used.
pub(crate) async fn execute(
    client: &Client,
    watch: &FaultWatch,
    program: &Path,
) -> Result<(), WatchError> {
    let kept = watch.resume.as_deref().map(read_id).transpose()?.flatten();
    let mut after = kept.or(watch.after);
    let mut pause = FIRST_PAUSE;
    loop {
        let request = FaultWatchRequest { filter: watch.filter.clone(), after };
        match client.watch_faults(&request).await {
            Ok(mut lines) => {
                pause = FIRST_PAUSE;
                // It ends with the agent, and when this watcher was too slow.
                while let Ok(Some(line)) = lines.next().await {
                    let Some(id) = give(program, &line).await? else { continue };
                    after = Some(id);
                    watch.resume.as_deref().map(|path| write_id(path, id)).transpose()?;
                }
            }
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error.into()),
        }
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// Gives one message to the program until it has taken it. Returns the id up to which everything is known then. The program
/// does not get the message that it is in sync, which has no id.
async fn give(program: &Path, line: &str) -> Result<Option<u64>, WatchError> {
    let message: Value = serde_json::from_str(line).map_err(ClientError::from)?;
    let known = message.pointer("/event/id").or(message.pointer("/snapshot/last-event-id"));
    let Some(known) = known.and_then(Value::as_u64) else { return Ok(None) };
    let mut pause = FIRST_PAUSE;
    while !takes(program, line).await? {
        sleep(pause).await;
        pause = LONGEST_PAUSE.min(pause * 2);
    }
    Ok(Some(known))
}

/// Starts the program with a message; true when it exits with 0 in time.
async fn takes(program: &Path, line: &str) -> Result<bool, WatchError> {
    let mut command = Command::new(program);
    // A group of its own, so that what the program has started ends with it.
    command.stdin(Stdio::piped()).kill_on_drop(true).process_group(0);
    let started = command.spawn();
    let mut child =
        started.map_err(|source| WatchError::Program { program: program.to_owned(), source })?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let input = child.stdin.take();
    let work = async {
        if let Some(mut input) = input {
            // A program need not read its input.
            let _ = input.write_all(line.as_bytes()).await;
        }
        child.wait().await.is_ok_and(|status| status.success())
    };
    let worked = timeout(PROGRAM_TIMEOUT, work).await;
    if let (Err(_), Some(group)) = (&worked, group) {
        // It may have ended just now.
        let _gone_already = killpg(group, Signal::SIGKILL);
    }
    Ok(worked.unwrap_or(false))
}

fn read_id(path: &Path) -> Result<Option<u64>, WatchError> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(WatchError::Resume { action: "read", path: path.to_owned(), source });
        }
    };
    match text.trim() {
        // A power cut may leave it so.
        "" => Ok(None),
        id => id.parse().map(Some).map_err(|_| WatchError::ResumeForm { path: path.to_owned() }),
    }
}

/// Replaces the file, so that a crash leaves the old id or the new one.
fn write_id(path: &Path, id: u64) -> Result<(), WatchError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let replace = || -> io::Result<()> {
        let mut file = std::fs::File::create(&new)?;
        file.write_all(format!("{id}\n").as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    };
    replace().map_err(|source| WatchError::Resume {
        action: "write",
        path: path.to_owned(),
        source,
    })
}
