//! `holdfast fault watch`: each change of an alarm given to a program, or posted to a server.
//!
//! This is a process of its own, so that nothing in the agent waits for a program or a server. A message that is not taken is given
//! again, and the stream is resumed by the id of the last change that was taken: each change is given at least once.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use holdfast_base::ErrorChain;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, gethostname};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::http_client::{Content, HttpClient, HttpError};
use crate::local::{Client, ClientError};
use crate::settings::{FaultWatch, FaultWatchRequest};

/// Time for which a program may work on one message.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause before a message is given to the program again, or the agent is asked again; each is twice the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Type of a CloudEvent in JSON, by its HTTP binding.
const CLOUD_EVENT: &str = "application/cloudevents+json; charset=utf-8";

/// Who is given each message.
#[derive(Debug)]
pub(crate) enum Taker {
    Program(PathBuf),
    Server { client: HttpClient, url: String, source: String },
}

impl Taker {
    /// The taker that the arguments name; without one, messages are printed.
    ///
    /// # Errors
    /// When the server is not an HTTPS server, or the certificates cannot be read.
    pub(crate) fn of(watch: &FaultWatch) -> Result<Option<Self>, WatchError> {
        if let Some(program) = &watch.exec {
            return Ok(Some(Self::Program(program.clone())));
        }
        let Some(url) = watch.post.clone() else {
            let is_kept = watch.resume.is_some();
            return if is_kept { Err(WatchError::ResumeWithoutTaker) } else { Ok(None) };
        };
        if !url.starts_with("https://") {
            return Err(WatchError::NotHttps(url));
        }
        let mut client = HttpClient::machine();
        if let Some(path) = &watch.ca {
            let failed = |source| WatchError::Trust { path: path.clone(), source };
            client = client.trusting(path).map_err(failed)?;
        }
        let name = gethostname().unwrap_or_default();
        let source = format!("/holdfast/{}", name.to_string_lossy());
        Ok(Some(Self::Server { client, url, source }))
    }

    /// Gives a message; true when it was taken.
    async fn takes(&self, message: &Value, id: u64) -> Result<bool, WatchError> {
        match self {
            Self::Program(program) => takes(program, &format!("{message}\n")).await,
            Self::Server { client, url, source } => {
                let event = cloud_event(message, id, source);
                let bytes = event.to_string().into();
                let content = Content { content_type: CLOUD_EVENT, bytes };
                let answer = client.exchange(url, Some(content)).await;
                let refusal = match answer {
                    Ok(answer) if answer.status.is_success() => return Ok(true),
                    Ok(answer) => format!("the server of `{url}` answered {}", answer.status),
                    Err(error @ HttpError::Url(_)) => return Err(error.into()),
                    Err(error) => ErrorChain(&error).to_string(),
                };
                // On standard error, which the service manager keeps.
                eprintln!("holdfast: change {id} is posted again: {refusal}");
                Ok(false)
            }
        }
    }
}

/// A message as a CloudEvent. Its id is that of the change, so that a server that gets one again knows it.
fn cloud_event(message: &Value, id: u64, source: &str) -> Value {
    let kind = if message.get("event").is_some() { "event" } else { "snapshot" };
    let mut event = json!({
        "specversion": "1.0",
        "id": if kind == "event" { id.to_string() } else { format!("snapshot-{id}") },
        "source": source,
        "type": format!("holdfast.faults.v1.{kind}"),
        "datacontenttype": "application/json",
        "data": message[kind],
    });
    if let Some(alarm) = message.pointer("/event/alarm/id") {
        event["subject"] = alarm.clone();
    }
    let time_ns = message.pointer("/event/time").and_then(Value::as_u64);
    let time = time_ns.and_then(|ns| OffsetDateTime::from_unix_timestamp_nanos(ns.into()).ok());
    if let Some(time) = time.and_then(|time| time.format(&Rfc3339).ok()) {
        event["time"] = json!(time);
    }
    event
}

/// Failure of a watch that does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    #[error(transparent)]
    Agent(#[from] ClientError),
    #[error("cannot start `{}`", program.display())]
    Program { program: PathBuf, source: io::Error },
    #[error("cannot post to `{0}`: alarms are posted to https:// addresses only")]
    NotHttps(String),
    #[error("--resume needs --exec or --post: it keeps the id of the last change that they took")]
    ResumeWithoutTaker,
    #[error("cannot read certificates from `{}`", path.display())]
    Trust { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("cannot {action} `{}`", path.display())]
    Resume { action: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` does not hold the id of a change", path.display())]
    ResumeForm { path: PathBuf },
}

/// Gives each message to the taker, and goes on when the agent is started anew.
///
/// # Errors
/// When the agent refuses the request, the program cannot be started at all, or the file with the id cannot be used.
pub(crate) async fn follow(
    client: &Client,
    watch: &FaultWatch,
    taker: &Taker,
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
                    let Some(id) = give(taker, &line).await? else { continue };
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

/// Gives one message until it is taken. Returns the id up to which everything is known then. Nobody is given the message that
/// all is in sync, which has no id.
async fn give(taker: &Taker, line: &str) -> Result<Option<u64>, WatchError> {
    let message: Value = serde_json::from_str(line).map_err(ClientError::from)?;
    let known = message.pointer("/event/id").or(message.pointer("/snapshot/last-event-id"));
    let Some(known) = known.and_then(Value::as_u64) else { return Ok(None) };
    let mut pause = FIRST_PAUSE;
    while !taker.takes(&message, known).await? {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_the_attributes_of_a_cloud_event() {
        let message = json!({"event": {
            "id": 7,
            "time": 1_800_000_000_000_000_000_u64,
            "change": "raised",
            "alarm": {"id": "link-down@interface:eth1"},
        }});
        let event = cloud_event(&message, 7, "/holdfast/r1");
        let wanted = json!({
            "specversion": "1.0",
            "id": "7",
            "source": "/holdfast/r1",
            "type": "holdfast.faults.v1.event",
            "subject": "link-down@interface:eth1",
            "time": "2027-01-15T08:00:00Z",
            "datacontenttype": "application/json",
            "data": message["event"],
        });
        assert_eq!(event, wanted);
        let snapshot = json!({"snapshot": {"alarms": [], "last-event-id": 9}});
        assert_eq!(cloud_event(&snapshot, 9, "/holdfast/r1")["id"], "snapshot-9");
    }
}
