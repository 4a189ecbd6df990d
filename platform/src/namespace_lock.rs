//! One agent in a network namespace.
//!
//! The mark of our kernel objects says that they are a holdfast's, not which one's. A second agent in the same namespace would
//! therefore remove all that the first one has made. So each agent holds an abstract socket of one name, which only one
//! process of a namespace can have, and which ends with its process. Whoever asks on the socket is told which agent that is.
//!
//! Any process of the namespace can take the name. The kernel tells whose it is, and only root and the user of the agent are
//! obeyed. Where somebody else has the name, the agent works without the lock, and warns of it.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener as StdUnixListener};
use std::path::Path;
use std::time::Duration;

use holdfast_base::is_root_or_own;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::time::sleep;
use tracing::warn;

use crate::netns::{Netns, NetnsError};

/// Name of the socket, in the abstract names of the namespace.
const NAME: &[u8] = b"holdfast/network-namespace";
/// Time for a connection to the holder, and for its answer. A holder that runs answers within milliseconds.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Attempts to learn whose the name is: a holder may end at that moment, or may not listen yet.
const ATTEMPTS: u32 = 5;
/// Pause between two of them. A holder listens within microseconds after it has the name.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);
/// Bytes of an answer that are read: a version, and the longest path of Linux (4096).
const ANSWER_OCTETS: u64 = 4224;
/// Pause after a connection that could not be taken, mostly for want of a file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Reason for not having the namespace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NamespaceLockError {
    /// Another agent has it.
    #[error(
        "the network namespace is managed by another holdfast already ({holder}): stop that one, \
         or name another namespace with --netns"
    )]
    Held {
        /// The other agent.
        holder: LockHolder,
    },
    /// The namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The socket cannot be made.
    #[error("cannot make the socket that keeps other agents out of the network namespace")]
    Socket {
        /// Error of the system call.
        source: io::Error,
    },
}

/// The agent that manages a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process; `None` where that is in another PID namespace.
    pub pid: Option<i32>,
    /// Its version and state folder; `None` when it does not answer.
    pub answer: Option<(String, String)>,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}")?,
            None => f.write_str("a process of another container")?,
        }
        match &self.answer {
            Some((version, folder)) => write!(f, ", version {version}, state folder `{folder}`"),
            None => f.write_str(", which does not say its state folder"),
        }
    }
}

/// The right to manage a network namespace, until it is dropped.
#[derive(Debug)]
pub struct NamespaceLock {
    /// `None` where the name is taken by somebody who is not obeyed.
    listener: Option<UnixListener>,
    answer: String,
}

impl NamespaceLock {
    /// Takes the lock for an agent with this version and state folder.
    ///
    /// # Errors
    /// When another agent has it, or the namespace cannot be entered.
    pub async fn take(
        netns: &Netns,
        version: &str,
        state_dir: &Path,
    ) -> Result<Self, NamespaceLockError> {
        Self::take_from(netns, version, state_dir, is_root_or_own).await
    }

    /// Takes the lock, unless a user who is obeyed has it.
    async fn take_from(
        netns: &Netns,
        version: &str,
        state_dir: &Path,
        is_obeyed: fn(u32) -> bool,
    ) -> Result<Self, NamespaceLockError> {
        let answer = format!("{version}\n{}", state_dir.display());
        let mut attempts = 1;
        let holder = loop {
            match attempt(netns, is_obeyed).await? {
                Attempt::Taken(listener) => {
                    let listener = listen(listener)?;
                    return Ok(Self { listener: Some(listener), answer });
                }
                Attempt::Held(holder) => return Err(NamespaceLockError::Held { holder }),
                Attempt::Stranger { pid, uid } => break Some((pid, uid)),
                Attempt::Unknown if attempts == ATTEMPTS => break None,
                Attempt::Unknown => {
                    attempts += 1;
                    sleep(ATTEMPT_PAUSE).await;
                }
            }
        };
        let name = String::from_utf8_lossy(NAME);
        let (pid, uid) = holder.unzip();
        warn!(
            name = format!("@{name}"),
            pid,
            uid,
            "the socket that keeps other agents out of the network namespace belongs to somebody else; this agent works without it"
        );
        Ok(Self { listener: None, answer })
    }

    /// The agent that manages the namespace; `None` when there is none that answers to its name.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or there is no file descriptor left.
    pub async fn holder(netns: &Netns) -> Result<Option<LockHolder>, NamespaceLockError> {
        match inside(netns, || ask(is_root_or_own)).await? {
            Attempt::Held(holder) => Ok(Some(holder)),
            Attempt::Taken(_) | Attempt::Stranger { .. } | Attempt::Unknown => Ok(None),
        }
    }

    /// Tells those who ask which agent this is, for as long as the result is polled.
    pub async fn answer(self) {
        let Some(listener) = self.listener else { return };
        loop {
            match listener.accept().await {
                // A new connection has room for the text, or is of somebody who does not want it.
                Ok((stream, _)) => drop(stream.try_write(self.answer.as_bytes())),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}

fn listen(listener: StdUnixListener) -> Result<UnixListener, NamespaceLockError> {
    let listened = listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
    listened.map_err(|source| NamespaceLockError::Socket { source })
}

/// Result of one attempt.
#[derive(Debug)]
enum Attempt {
    Taken(StdUnixListener),
    /// An agent that is obeyed has the name.
    Held(LockHolder),
    /// A process of another user has it.
    Stranger {
        pid: i32,
        uid: u32,
    },
    /// Somebody has it who is not listening, or takes no connection.
    Unknown,
}

/// Tries for the name in the namespace.
async fn attempt(netns: &Netns, is_obeyed: fn(u32) -> bool) -> Result<Attempt, NamespaceLockError> {
    inside(netns, move || bind_or_ask(is_obeyed)).await
}

/// Runs a function on a thread of its own that enters the namespace.
async fn inside(
    netns: &Netns,
    work: impl FnOnce() -> io::Result<Attempt> + Send + 'static,
) -> Result<Attempt, NamespaceLockError> {
    let netns = netns.try_clone()?;
    let (done_tx, done_rx) = oneshot::channel();
    let tried = move || -> Result<Attempt, NamespaceLockError> {
        netns.enter()?;
        work().map_err(|source| NamespaceLockError::Socket { source })
    };
    let thread = std::thread::Builder::new().name("namespace-lock".to_owned());
    let started = thread.spawn(move || drop(done_tx.send(tried())));
    started.map_err(|source| NetnsError::Thread { source })?;
    let ended = done_rx.await.map_err(|error| io::Error::other(error.to_string()));
    ended.map_err(|source| NamespaceLockError::Socket { source })?
}

fn bind_or_ask(is_obeyed: fn(u32) -> bool) -> io::Result<Attempt> {
    match StdUnixListener::bind_addr(&SocketAddr::from_abstract_name(NAME)?) {
        Ok(listener) => Ok(Attempt::Taken(listener)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => ask(is_obeyed),
        Err(error) => Err(error),
    }
}

/// Asks the holder of the name who it is.
fn ask(is_obeyed: fn(u32) -> bool) -> io::Result<Attempt> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(ANSWER_TIMEOUT))?; // also that of connect
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let name = [b"\0", NAME].concat();
    if socket.connect(&SockAddr::unix(OsStr::from_bytes(&name))?).is_err() {
        return Ok(Attempt::Unknown);
    }
    let peer = getsockopt(&socket, PeerCredentials)?;
    if !is_obeyed(peer.uid()) {
        return Ok(Attempt::Stranger { pid: peer.pid(), uid: peer.uid() });
    }
    let mut octets = Vec::new();
    let _silent = (&socket).take(ANSWER_OCTETS).read_to_end(&mut octets);
    let text = String::from_utf8_lossy(&octets);
    let answer = text.split_once('\n').map(|(version, folder)| (version.into(), folder.into()));
    let pid = (peer.pid() != 0).then_some(peer.pid());
    Ok(Attempt::Held(LockHolder { pid, answer }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_tests::fixture::enter_fresh_namespaces;

    async fn take(folder: &str) -> Result<NamespaceLock, NamespaceLockError> {
        NamespaceLock::take(&Netns::default(), "1.2.3", Path::new(folder)).await
    }

    fn own_pid() -> i32 {
        std::process::id().try_into().unwrap()
    }

    #[tokio::test]
    async fn a_second_agent_is_told_of_the_first() {
        enter_fresh_namespaces();
        let first = tokio::spawn(take("/var/lib/first").await.unwrap().answer());
        let refused = take("/var/lib/second").await.unwrap_err().to_string();
        let holder = format!("process {}, version 1.2.3, state folder `/var/lib/first`", own_pid());
        assert!(refused.contains(&format!("({holder})")), "{refused}");
        let found = NamespaceLock::holder(&Netns::default()).await.unwrap();
        assert_eq!(found.unwrap().to_string(), holder);

        first.abort();
        assert!(first.await.unwrap_err().is_cancelled());
        assert_eq!(NamespaceLock::holder(&Netns::default()).await.unwrap(), None, "it has ended");
        assert!(take("/var/lib/second").await.unwrap().listener.is_some());
        enter_fresh_namespaces();
        assert!(take("/var/lib/third").await.unwrap().listener.is_some(), "of another namespace");
    }

    #[tokio::test]
    async fn an_agent_that_does_not_answer_has_the_namespace_all_the_same() {
        enter_fresh_namespaces();
        let _stopped = take("/var/lib/first").await.unwrap();
        let NamespaceLockError::Held { holder } = take("/second").await.unwrap_err() else {
            panic!("it is held");
        };
        assert_eq!(holder, LockHolder { pid: Some(own_pid()), answer: None });
    }

    #[tokio::test]
    async fn nobody_but_root_and_the_own_user_keeps_an_agent_out() {
        enter_fresh_namespaces();
        let held = take("/var/lib/first").await.unwrap();
        let folder = Path::new("/var/lib/second");
        let second = NamespaceLock::take_from(&Netns::default(), "1.2.3", folder, |_| false).await;
        assert!(second.unwrap().listener.is_none(), "it works without the lock");
        drop(held);

        // One who has the name and takes no connections cannot be known.
        let silent = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        let name = [b"\0", NAME].concat();
        silent.bind(&SockAddr::unix(OsStr::from_bytes(&name)).unwrap()).unwrap();
        assert!(take("/var/lib/second").await.unwrap().listener.is_none());
    }
}
