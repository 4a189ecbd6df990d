//! The sockets that the agent listens on.
//!
//! None of them may keep the box from its configuration. So a socket that cannot be opened does not fail the start:
//! [`ListenerEntry::open`] tries again beside the work until the socket is there, and [`Listeners`] tells readers
//! which are open and why others are not.

use std::{
    error::Error,
    fmt::{self, Write as _},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use holdfast_base::ErrorChain;
use smol_str::SmolStr;
use tokio::{
    net::{TcpListener, UnixListener},
    sync::{Notify, watch},
    time::timeout,
};
use tracing::{debug, info, warn};

use crate::connections::OpenConnections;

/// Pause after the first failure. The missing part mostly comes within seconds: a link, or the end of the process
/// that has the port.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause; each is twice the one before. An operator who has freed a port waits no longer than this.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Clients for whom a socket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    Grpc,
    Introspection,
    Local,
    /// People of the box who are not root.
    Users,
    Handlers,
}

/// State of one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerState {
    /// The first attempt is under way.
    Opening,
    /// The socket is open; TCP sockets have the address that the kernel gave them.
    Listening(Option<SocketAddr>),
    /// The last attempt failed, and another one follows.
    Waiting { reason: String, attempts: u32 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerStatus {
    pub kind: ListenerKind,
    /// Address or path, as it was configured.
    pub name: SmolStr,
    pub state: ListenerState,
}

/// All sockets of the agent with their state; clones share them.
#[derive(Clone, Debug)]
pub struct Listeners(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    statuses: watch::Sender<Vec<ListenerStatus>>,
    /// Ends the pauses of all that wait.
    retry: Notify,
    connections: OpenConnections,
}

/// One socket among the [`Listeners`].
#[derive(Debug)]
pub struct ListenerEntry {
    listeners: Listeners,
    index: usize,
}

/// A socket that is open.
pub trait ListeningSocket {
    /// The TCP address that it is bound to.
    fn tcp_address(&self) -> Option<SocketAddr>;
}

impl ListeningSocket for TcpListener {
    fn tcp_address(&self) -> Option<SocketAddr> {
        self.local_addr().ok()
    }
}

impl ListeningSocket for UnixListener {
    fn tcp_address(&self) -> Option<SocketAddr> {
        None
    }
}

impl Default for Listeners {
    fn default() -> Self {
        let (statuses, _) = watch::channel(Vec::new());
        Self(Arc::new(Shared {
            statuses,
            retry: Notify::new(),
            connections: OpenConnections::default(),
        }))
    }
}

impl Listeners {
    /// Adds a socket that is to be opened.
    pub fn add(&self, kind: ListenerKind, name: impl Into<SmolStr>) -> ListenerEntry {
        let status = ListenerStatus { kind, name: name.into(), state: ListenerState::Opening };
        let mut index = 0;
        self.0.statuses.send_modify(|all| {
            index = all.len();
            all.push(status);
        });
        ListenerEntry { listeners: self.clone(), index }
    }

    pub fn watch(&self) -> watch::Receiver<Vec<ListenerStatus>> {
        self.0.statuses.subscribe()
    }

    /// Open connections of the gRPC services.
    pub fn connections(&self) -> &OpenConnections {
        &self.0.connections
    }

    /// Waits until each socket is open, or has failed for the first time.
    pub async fn tried(&self) {
        let is_tried = |status: &ListenerStatus| status.state != ListenerState::Opening;
        let mut statuses = self.watch();
        // The sender lives as long as this.
        let _all = statuses.wait_for(|all| all.iter().all(is_tried)).await;
    }

    /// Tries now to open those that wait.
    pub fn retry_now(&self) {
        self.0.retry.notify_waiters();
    }

    /// Addresses of the gRPC services that are open.
    pub fn grpc_addresses(&self) -> Vec<SocketAddr> {
        let all = self.0.statuses.borrow();
        let grpc = all.iter().filter(|status| status.kind == ListenerKind::Grpc);
        grpc.filter_map(|status| match status.state {
            ListenerState::Listening(address) => address,
            _ => None,
        })
        .collect()
    }

    /// A table with a line for each socket.
    pub fn table(&self) -> String {
        let all = self.0.statuses.borrow();
        let names = all.iter().map(|status| status.name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for ListenerStatus { kind, name, state } in &*all {
            let _never_fails = match state {
                ListenerState::Opening => writeln!(text, "OPENING    {kind:13}  {name}"),
                ListenerState::Listening(_) => writeln!(text, "LISTENING  {kind:13}  {name}"),
                ListenerState::Waiting { reason, attempts } => {
                    writeln!(
                        text,
                        "WAITING    {kind:13}  {name:names$}  ({reason}, {attempts} tries)"
                    )
                }
            };
        }
        text
    }

    /// The sockets, each with its state, and the reason where it is not open.
    pub fn document(&self) -> Vec<serde_json::Value> {
        let all = self.0.statuses.borrow();
        let entry = |ListenerStatus { kind, name, state }: &ListenerStatus| {
            let (state, reason) = match state {
                ListenerState::Opening => ("OPENING", None),
                ListenerState::Listening(_) => ("LISTENING", None),
                ListenerState::Waiting { reason, .. } => ("WAITING", Some(reason)),
            };
            serde_json::json!({
                "kind": kind.to_string(), "name": name, "state": state, "reason": reason,
            })
        };
        all.iter().map(entry).collect()
    }

    /// One line for the service manager: where the gRPC services are reached, and which sockets are not open.
    pub fn summary(&self) -> String {
        let open: Vec<String> = self.grpc_addresses().iter().map(SocketAddr::to_string).collect();
        let open = if open.is_empty() { "nothing".to_owned() } else { open.join(", ") };
        let mut text = format!("listening on {open}");
        for status in &*self.0.statuses.borrow() {
            if let ListenerState::Waiting { reason, .. } = &status.state {
                let _never_fails = write!(text, "; not on {}: {reason}", status.name);
            }
        }
        text
    }
}

impl ListenerEntry {
    /// Tries to open the socket until that succeeds. Logs the first failure, each other reason, and the success.
    pub async fn open<S: ListeningSocket, E: Error>(
        &self,
        mut attempt: impl FnMut() -> Result<S, E>,
    ) -> S {
        let mut pause = FIRST_PAUSE;
        let mut attempts = 0;
        loop {
            let retry = self.listeners.0.retry.notified(); // before the attempt, so that no call is missed
            match attempt() {
                Ok(socket) => {
                    self.set(ListenerState::Listening(socket.tcp_address()));
                    return socket;
                }
                Err(error) => {
                    attempts += 1;
                    self.set(ListenerState::Waiting {
                        reason: ErrorChain(&error).to_string(),
                        attempts,
                    });
                }
            }
            let _pause_or_call = timeout(pause, retry).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Publishes a state, and logs it where it is news.
    fn set(&self, state: ListenerState) {
        let mut before = None;
        self.listeners.0.statuses.send_modify(|all| {
            let status = &mut all[self.index];
            before = Some(std::mem::replace(&mut status.state, state));
        });
        let status = self.listeners.0.statuses.borrow()[self.index].clone();
        match (&status.state, before) {
            (ListenerState::Opening, _) => {}
            (
                ListenerState::Waiting { reason, .. },
                Some(ListenerState::Waiting { reason: last, .. }),
            ) if *reason == last => {}
            (ListenerState::Waiting { reason, .. }, _) => {
                warn!(kind = %status.kind, name = %status.name, error = %reason, "this socket cannot be opened; it is tried again");
            }
            (ListenerState::Listening(Some(address)), _) => {
                info!(kind = %status.kind, %address, "listening");
            }
            (ListenerState::Listening(None), Some(ListenerState::Waiting { .. })) => {
                info!(kind = %status.kind, name = %status.name, "the socket is open now");
            }
            (ListenerState::Listening(None), _) => {
                debug!(kind = %status.kind, name = %status.name, "the socket is open");
            }
        }
    }
}

impl fmt::Display for ListenerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Grpc => "gRPC",
            Self::Introspection => "introspection",
            Self::Local => "local",
            Self::Users => "users",
            Self::Handlers => "handlers",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn bind() -> io::Result<TcpListener> {
        let socket = std::net::TcpListener::bind("127.0.0.1:0")?;
        socket.set_nonblocking(true)?;
        TcpListener::from_std(socket)
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_is_tried_until_it_is_open() {
        let listeners = Listeners::default();
        let entry = listeners.add(ListenerKind::Grpc, "192.0.2.1:9339");
        assert_eq!(listeners.table(), "OPENING    gRPC           192.0.2.1:9339\n");
        let begun = tokio::time::Instant::now();
        let mut attempts = Vec::new();
        let socket = entry
            .open(|| {
                attempts.push(begun.elapsed().as_secs());
                match attempts.len() {
                    8 => bind(),
                    _ => Err(io::Error::other("in use")),
                }
            })
            .await;
        // Pauses of 1 s, doubled up to 30 s.
        assert_eq!(attempts, [0, 1, 3, 7, 15, 31, 61, 91]);
        assert_eq!(listeners.grpc_addresses(), [socket.local_addr().unwrap()]);
        assert_eq!(listeners.table(), "LISTENING  gRPC           192.0.2.1:9339\n");
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_shown_and_tried_at_once_on_request() {
        let listeners = Listeners::default();
        let entry = listeners.add(ListenerKind::Introspection, "127.0.0.1:9190");
        let grpc = listeners.add(ListenerKind::Grpc, "127.0.0.1:0");
        let waiting = tokio::spawn(async move {
            let mut attempts = 0;
            entry
                .open(|| {
                    attempts += 1;
                    if attempts == 2 { bind() } else { Err(io::Error::other("in use")) }
                })
                .await
        });
        let open = grpc.open(bind).await;
        listeners.tried().await;
        assert_eq!(
            listeners.table(),
            "WAITING    introspection  127.0.0.1:9190  (in use, 1 tries)\n\
             LISTENING  gRPC           127.0.0.1:0\n"
        );
        let address = open.local_addr().unwrap();
        assert_eq!(
            listeners.summary(),
            format!("listening on {address}; not on 127.0.0.1:9190: in use")
        );
        let asked = tokio::time::Instant::now();
        listeners.retry_now();
        waiting.await.unwrap();
        assert_eq!(asked.elapsed(), Duration::ZERO);
        assert_eq!(listeners.summary(), format!("listening on {address}"));
    }
}
