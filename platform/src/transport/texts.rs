//! The thread that writes files and the host name. It is separate from rtnetlink so that waiting for a disk does
//! not delay network changes.

use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use holdfast_base::now_ns;
use holdfast_scheduler::{Completion, Fact, Key, OpId, Operation, OperationError, SharedValue};
use tracing::warn;

use super::cancellation::CancelledOperations;
use super::codecs::{self, Codecs};
use super::credentials::CredentialFiles;
use super::files::Root;
use super::mailbox::Mailbox;
use super::watch::Watch;
use super::{Event, uts};
use crate::hostname::HostnameWriter;
use crate::kinds;
use crate::kinds::codec::Request;
use crate::kinds::links::LinkIndex;
use crate::kinds::reading::first_text;
use crate::kinds::system::{HOSTS_FILE, hosts_block};
use crate::netns::{Netns, NetnsError};
use crate::rights::{self, Work};
use crate::values::Content;
use crate::vault::Vault;

/// Handle of the transport's thread. Dropping it completes the commands given so far, then ends the thread.
#[derive(Debug)]
pub(crate) struct FileTransport {
    /// Unbounded: the waiting operations are bounded by those that the engine has in flight.
    commands: Option<Sender<Command>>,
    cancelled: CancelledOperations,
    thread: Option<JoinHandle<()>>,
    /// Watches for changes by other programs until this is dropped.
    watch: Option<Watch>,
}

/// Destinations of the thread, and the source of secrets.
pub(crate) struct FileTransportSettings {
    pub(crate) root: PathBuf,
    pub(crate) hostname: HostnameWriter,
    pub(crate) vault: Arc<dyn Vault>,
}

/// Commands to the thread, processed in order.
pub(crate) enum Command {
    Submit(Vec<Operation>),
    Read(Vec<Key>),
    /// A watched file or the host name changed, possibly by ourselves: read everything again.
    Reread,
    /// Reads everything and passes it on. The next command waits until that returns.
    Retrieve(Box<dyn FnOnce(Vec<Fact>) + Send>),
}

struct Task {
    root: Root,
    hostname: HostnameWriter,
    credentials: CredentialFiles,
    codecs: Codecs,
    mailbox: Mailbox,
    cancelled: CancelledOperations,
    /// Keys that existed at the last complete reading.
    written: BTreeSet<Key>,
}

impl FileTransport {
    /// Starts the thread, in a UTS namespace of its own when a namespace is managed.
    ///
    /// # Errors
    /// When that is not permitted, or the thread cannot be started.
    pub(crate) fn start(
        netns: Arc<Netns>,
        place: FileTransportSettings,
        codecs: Codecs,
        mailbox: Mailbox,
    ) -> Result<Self, NetnsError> {
        let (commands, commands_rx) = channel();
        let (ready_tx, ready) = channel();
        let FileTransportSettings { root, hostname, vault } = place;
        let root = Root::new(root);
        let credentials = CredentialFiles::new(root.clone(), vault);
        let watched = root.clone();
        let written = BTreeSet::new();
        let cancelled = CancelledOperations::default();
        let mut task = Task {
            root,
            hostname,
            credentials,
            codecs,
            mailbox,
            cancelled: cancelled.clone(),
            written,
        };
        let thread = std::thread::Builder::new()
            .name("texts".into())
            .spawn(move || {
                let entered = netns.enter_uts();
                let go = entered.is_ok();
                drop(ready_tx.send(entered));
                if go {
                    task.run(&commands_rx);
                }
            })
            .map_err(|source| NetnsError::Thread { source })?;
        let ended = || NetnsError::Thread { source: io::Error::other("the thread ended at once") };
        ready.recv().map_err(|_| ended())??;
        // Without the watch, foreign changes are noticed at the next complete reading.
        let watch = Watch::start(watched, commands.clone())
            .inspect_err(|error| warn!(%error, "files are not watched"))
            .ok();
        Ok(Self { commands: Some(commands), cancelled, thread: Some(thread), watch })
    }

    pub(crate) fn cancelled(&self) -> &CancelledOperations {
        &self.cancelled
    }

    /// Sends a command. After the end of the thread this has no effect.
    pub(crate) fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(command);
        }
    }
}

impl Drop for FileTransport {
    fn drop(&mut self) {
        self.commands = None;
        self.watch = None; // the watch holds another sender of the channel
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Task {
    fn run(&mut self, commands: &Receiver<Command>) {
        while let Ok(command) = commands.recv() {
            match command {
                Command::Submit(batch) => self.submit(&batch),
                Command::Read(keys) => {
                    let facts = keys.into_iter().map(|key| self.fact(key));
                    self.mailbox.post(Event::Observed(facts.collect()));
                }
                Command::Retrieve(hand_on) => {
                    hand_on(self.everything());
                }
                Command::Reread => {
                    let facts = self.everything();
                    self.mailbox.post(Event::Observed(facts));
                }
            }
        }
    }

    /// Answers each operation separately, so that a hanging one can be identified.
    fn submit(&self, batch: &[Operation]) {
        for operation in batch {
            let cancelled = self.cancelled.answer(operation.id);
            let completion = cancelled.unwrap_or_else(|| self.complete(operation));
            self.mailbox.post(Event::Completed(vec![completion]));
        }
        self.cancelled.answered(batch.iter().map(|operation| operation.id).max());
    }

    /// All texts, and keys that existed at the last reading and are gone.
    fn everything(&mut self) -> Vec<Fact> {
        let time_ns = now_ns();
        let mut facts: Vec<Fact> = codecs::texts().into_iter().map(|key| self.fact(key)).collect();
        let found = self.credentials.everything();
        facts.extend(found.into_iter().map(|(key, value)| Fact {
            key,
            value: Some(value),
            time_ns,
        }));
        let now: BTreeSet<Key> = facts.iter().map(|fact| fact.key.clone()).collect();
        let before = std::mem::replace(&mut self.written, now);
        let deleted = before.difference(&self.written).cloned();
        facts.extend(deleted.map(|key| Fact { key, value: None, time_ns }));
        facts
    }

    /// Completes an operation; a panic is a failure of the operation.
    fn complete(&self, operation: &Operation) -> Completion {
        let carried_out = catch_unwind(AssertUnwindSafe(|| self.execute(operation)));
        let result =
            carried_out.unwrap_or_else(|_| Err(OperationError::message("its codec panicked")));
        let observed = result.is_ok().then(|| self.fact(operation.key.clone()));
        let op: OpId = operation.id;
        Completion { op, result, observed }
    }

    fn execute(&self, operation: &Operation) -> Result<(), OperationError> {
        let requests =
            (self.codecs.encode)(operation, &mut LinkIndex::new()).map_err(OperationError::from)?;
        for request in requests {
            match request {
                Request::Hostname(name) => uts::write(&self.hostname, &name).map_err(|error| {
                    failed(Work::Hostname, &format!("cannot name the host `{name}`"), &error)
                })?,
                Request::File { path, content } => {
                    // A shared file is never removed, only our block in it.
                    let content = match content {
                        Content::OwnHost { domain, .. } => Content::Block(own_host_block(&domain)?),
                        Content::Absent if codecs::is_shared_file(&path) => {
                            Content::Block(String::new())
                        }
                        other => other,
                    };
                    let written = self.root.write(&path, &content);
                    written.map_err(|error| {
                        failed(Work::File, &format!("cannot write {path}"), &error)
                    })?;
                }
                Request::CredentialFile { .. }
                | Request::SshServer(_)
                | Request::Password { .. } => self.credentials.execute(request)?,
                _ => {
                    return Err(OperationError::message(
                        "the operation does not belong to files and the host name",
                    ));
                }
            }
        }
        Ok(())
    }

    fn fact(&self, key: Key) -> Fact {
        let value = self.read(&key).unwrap_or_else(|error| {
            warn!(%key, %error, "cannot read back");
            None
        });
        Fact { key, value, time_ns: now_ns() }
    }

    fn read(&self, key: &Key) -> io::Result<Option<SharedValue>> {
        Ok(match (key.kind(), first_text(key)) {
            (kinds::HOSTNAME, _) => Some(codecs::hostname(&uts::read()?)),
            (kinds::TEXT_FILE, Some(path)) => {
                let text = self.root.read(&path)?;
                let link = self.root.link(&path)?;
                let hostname = if path == HOSTS_FILE { Some(uts::read()?) } else { None };
                Some(codecs::text_file(&path, text.as_deref(), link, hostname.as_deref()))
            }
            _ => self.credentials.read(key)?,
        })
    }
}

/// Our block of the hosts file, with the name that the box has now.
fn own_host_block(domain: &str) -> Result<String, OperationError> {
    let hostname =
        uts::read().map_err(|error| failed(Work::Hostname, "cannot read the host name", &error))?;
    Ok(hosts_block(&hostname, domain))
}

/// Error with the whole reason, because it is shown to clients.
pub(super) fn failed(work: Work, what: &str, error: &io::Error) -> OperationError {
    let errno = error.raw_os_error();
    let transient =
        matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    let error = OperationError { errno, message: format!("{what}: {error}"), transient };
    rights::named(error, work)
}
