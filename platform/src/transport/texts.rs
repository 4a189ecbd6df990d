//! The thread that writes files and the host name: what may wait for a disk keeps no netlink
//! request waiting.

use std::collections::BTreeSet;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use holdfast_scheduler::{Completion, Fact, Key, OpId, Operation, OperationError, SharedValue};
use tracing::warn;

use super::cancelled::Cancelled;
use super::codecs::{self, Codecs, Query};
use super::credentials::Credentials;
use super::files::Root;
use super::mailbox::Mailbox;
use super::watch::Watch;
use super::{Event, now_ns, uts};
use crate::codec::Request;
use crate::hostname::HostnameWriter;
use crate::links::LinkIndex;
use crate::netns::{Netns, NetnsError};
use crate::values::Content;
use crate::vault::Vault;

/// The transport's thread, from the outside. It ends when this is dropped, after what it was asked.
#[derive(Debug)]
pub(crate) struct Texts {
    /// Not bounded: what waits is bounded by the operations that the one engine has in flight.
    commands: Option<Sender<Command>>,
    cancelled: Cancelled,
    thread: Option<JoinHandle<()>>,
    /// Ends when this is dropped.
    watch: Option<Watch>,
}

/// Where the thread writes, and where it finds the secrets for that.
pub(crate) struct Place {
    pub(crate) root: PathBuf,
    pub(crate) hostname: HostnameWriter,
    pub(crate) vault: Arc<dyn Vault>,
}

/// What the thread is asked to do, in order.
pub(crate) enum Command {
    Submit(Vec<Operation>),
    Read(Vec<Key>),
    /// Somebody changed something: whoever it was, it is read again.
    Look,
    /// Reads everything and hands it on; the next command waits until that is done.
    Retrieve(Box<dyn FnOnce(Vec<Fact>) + Send>),
}

struct Task {
    root: Root,
    hostname: HostnameWriter,
    credentials: Credentials,
    codecs: Codecs,
    mailbox: Mailbox,
    cancelled: Cancelled,
    /// What was there when everything was read last.
    known: BTreeSet<Key>,
}

impl Texts {
    /// Starts the thread, in a UTS namespace of its own when a namespace is managed.
    ///
    /// # Errors
    /// When there is no permission for that, or no thread to be had.
    pub(crate) fn start(
        netns: Arc<Netns>,
        place: Place,
        codecs: Codecs,
        mailbox: Mailbox,
    ) -> Result<Self, NetnsError> {
        let (commands, commands_rx) = channel();
        let (ready_tx, ready) = channel();
        let Place { root, hostname, vault } = place;
        let root = Root::new(root);
        let credentials = Credentials::new(root.clone(), vault);
        let watched = root.clone();
        let known = BTreeSet::new();
        let cancelled = Cancelled::default();
        let mut task = Task {
            root,
            hostname,
            credentials,
            codecs,
            mailbox,
            cancelled: cancelled.clone(),
            known,
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
        let ended = || NetnsError::Thread { source: io::Error::other("it ended at once") };
        ready.recv().map_err(|_| ended())??;
        // Without it, what others change is noticed when everything is read the next time.
        let watch = Watch::start(watched, commands.clone())
            .inspect_err(|error| warn!(%error, "files are not watched"))
            .ok();
        Ok(Self { commands: Some(commands), cancelled, thread: Some(thread), watch })
    }

    pub(crate) fn cancelled(&self) -> &Cancelled {
        &self.cancelled
    }

    /// Hands a command over. After the thread has ended it has no effect.
    pub(crate) fn command(&self, command: Command) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(command);
        }
    }
}

impl Drop for Texts {
    fn drop(&mut self) {
        self.commands = None;
        self.watch = None; // which holds the other end of the line
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
                Command::Look => {
                    let facts = self.everything();
                    self.mailbox.post(Event::Observed(facts));
                }
            }
        }
    }

    /// Each operation is answered by itself: whoever waits for one that hangs knows which one it is.
    fn submit(&self, batch: &[Operation]) {
        for operation in batch {
            let cancelled = self.cancelled.answer(operation.id);
            let completion = cancelled.unwrap_or_else(|| self.complete(operation));
            self.mailbox.post(Event::Completed(vec![completion]));
        }
        self.cancelled.answered(batch.iter().map(|operation| operation.id).max());
    }

    /// All texts, and all that were there before and are gone.
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
        let before = std::mem::replace(&mut self.known, now);
        let gone = before.difference(&self.known).cloned();
        facts.extend(gone.map(|key| Fact { key, value: None, time_ns }));
        facts
    }

    /// A panic is a failed operation.
    fn complete(&self, operation: &Operation) -> Completion {
        let carried_out = catch_unwind(AssertUnwindSafe(|| self.carry_out(operation)));
        let result =
            carried_out.unwrap_or_else(|_| Err(OperationError::message("its codec panicked")));
        let observed = result.is_ok().then(|| self.fact(operation.key.clone()));
        let op: OpId = operation.id;
        Completion { op, result, observed }
    }

    fn carry_out(&self, operation: &Operation) -> Result<(), OperationError> {
        let requests = (self.codecs.encode)(operation, &mut LinkIndex::new())
            .map_err(|error| OperationError::message(error.to_string()))?;
        for request in requests {
            match request {
                Request::Hostname(name) => uts::write(&self.hostname, &name)
                    .map_err(|error| failed(&format!("cannot name the host `{name}`"), &error))?,
                Request::File { path, content } => {
                    // A file that others write, too, is never removed: only what is ours in it.
                    let content = match content {
                        Content::Absent if codecs::is_shared_file(&path) => {
                            Content::Block(String::new())
                        }
                        other => other,
                    };
                    let written = self.root.write(&path, &content);
                    written.map_err(|error| failed(&format!("cannot write {path}"), &error))?;
                }
                Request::CredentialFile { .. }
                | Request::SshServer(_)
                | Request::Password { .. } => self.credentials.carry_out(request)?,
                other => return Err(OperationError::message(format!("no text: {other:?}"))),
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
        Ok(match Query::of(key) {
            Query::Hostname => Some(codecs::hostname(&uts::read()?)),
            Query::File(path) => {
                let (text, link) = (self.root.read(&path)?, self.root.link(&path)?);
                Some(codecs::text_file(&path, text.as_deref(), link))
            }
            query => self.credentials.read(&query)?,
        })
    }
}

/// The reason in full: these errors end in front of a client.
pub(super) fn failed(what: &str, error: &io::Error) -> OperationError {
    let errno = error.raw_os_error();
    OperationError { errno, message: format!("{what}: {error}"), transient: false }
}
