//! rtnetlink in the managed namespace: requests in windows, facts from kernel notifications.
//!
//! A single thread does both. The kernel carries requests out while they are being sent, so a second thread for
//! receiving would gain nothing. With one thread, the notifications of a window are read before its completions
//! are posted, and our own changes never overrun the receive buffer.

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use holdfast_scheduler::{Fact, Key, Operation};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::oneshot;
use tracing::{error, warn};

pub(crate) mod bond_readings;
mod bonds;
mod ethtool;
mod frame;
mod listener;
mod netconf;
mod notifications;
pub(crate) mod query;
mod read;
pub(crate) mod socket;
mod submit;
pub(crate) mod teardown;
pub(crate) mod window;

use bond_readings::{LacpPort, LagSpeed};
use bonds::UnsettledBonds;
use ethtool::Ethtool;
use listener::Listener;
use notifications::StaleClasses;
use query::QuerySocket;
use socket::{DATAGRAM_SIZE, RouteSocket};
use submit::UnansweredOperations;
use window::Window;

use super::Event;
use super::cancellation::CancelledOperations;
use super::carrier::{CarrierSampler, UrgentReads};
use super::codecs::Codecs;
use super::mailbox::Mailbox;
use super::sysctl;
use crate::kinds::links::LinkIndex;
use crate::netns::{Netns, NetnsError};
use crate::transport::BestRoutes;
use crate::values::Destination;

/// Sysctl that makes another address of a prefix primary when the first one is removed; without it, all of them
/// go.
const PROMOTE_SECONDARIES: &str = "net/ipv4/conf/all/promote_secondaries";

/// Reason why the transport cannot work in the managed namespace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RtnetlinkError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The sockets cannot be opened.
    #[error("cannot open the rtnetlink sockets of the managed namespace")]
    Open(#[source] io::Error),
    /// The kernel does not permit changes.
    #[error(
        "cannot change the network of the managed namespace: that needs CAP_NET_ADMIN in it; \
         run the agent as root, or in a user and network namespace of its own (`unshare -rn`)"
    )]
    NotPermitted,
    /// The thread cannot be started.
    #[error("cannot start the thread of the rtnetlink transport")]
    Thread(#[source] io::Error),
}

/// Handle of the transport's thread, which ends when the handle is dropped.
#[derive(Debug)]
pub(crate) struct Rtnetlink {
    line: CommandSender,
    cancelled: CancelledOperations,
    thread: Option<JoinHandle<()>>,
}

/// Command channel to the thread.
#[derive(Clone, Debug)]
pub(crate) struct CommandSender {
    /// Unbounded: the waiting operations are bounded by those that the engine has in flight.
    commands: Sender<Command>,
    wake: Arc<EventFd>,
}

impl CommandSender {
    /// Sends a command. After the end of the thread this has no effect.
    pub(crate) fn command(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            let _ = self.wake.write(1);
        }
    }
}

/// Commands to the thread, processed in order.
#[derive(Debug)]
pub(crate) enum Command {
    Submit(Vec<Operation>),
    Read(Vec<Key>),
    /// Reports `others` together with everything that rtnetlink shows, then drops `answer`.
    Retrieve {
        others: Vec<Fact>,
        answer: Sender<()>,
    },
    Counters(oneshot::Sender<Vec<LinkCounters>>),
    LacpPorts(oneshot::Sender<Vec<LacpPort>>),
    LagSpeeds(oneshot::Sender<Vec<LagSpeed>>),
    BestRoutes {
        of: Vec<Destination>,
        answer: oneshot::Sender<BestRoutes>,
    },
    Stop,
}

/// Statistics of one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkCounters {
    /// Name of the link.
    pub link: smol_str::SmolStr,
    /// 64-bit counters (`IFLA_STATS64`).
    pub counters: netlink_packet_route::link::Stats64,
}

impl Rtnetlink {
    /// Starts a thread that enters the namespace, opens the sockets there, and subscribes to notifications.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or changes of its network are not permitted.
    pub(crate) fn start(
        netns: Arc<Netns>,
        codecs: Codecs,
        mailbox: Mailbox,
        receive_buffer: Option<usize>,
    ) -> Result<Self, RtnetlinkError> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
            .map_err(|errno| RtnetlinkError::Open(errno.into()))?;
        let wake = Arc::new(wake);
        let (commands, commands_rx) = channel();
        let (ready_tx, ready) = channel();
        let woken = Arc::clone(&wake);
        let cancelled = CancelledOperations::default();
        let shared = cancelled.clone();
        let thread = std::thread::Builder::new()
            .name("rtnetlink".into())
            .spawn(move || {
                let opened = netns.enter().map_err(RtnetlinkError::from).and_then(|()| {
                    keep_secondaries();
                    Task::open(codecs, mailbox, commands_rx, woken, receive_buffer)
                });
                match opened {
                    Ok(task) => {
                        let sampler = CarrierSampler::start(netns, task.urgent.clone())
                            .inspect_err(|error| warn!(%error, "carriers are not looked at"))
                            .ok();
                        let task = Task { cancelled: shared, sampler, ..task };
                        let _ = ready_tx.send(Ok(()));
                        task.run();
                    }
                    Err(error) => drop(ready_tx.send(Err(error))),
                }
            })
            .map_err(RtnetlinkError::Thread)?;
        let vanished = || RtnetlinkError::Thread(io::Error::other("the thread ended at once"));
        ready.recv().map_err(|_| vanished())??;
        Ok(Self { line: CommandSender { commands, wake }, cancelled, thread: Some(thread) })
    }

    pub(crate) fn line(&self) -> &CommandSender {
        &self.line
    }

    pub(crate) fn cancelled(&self) -> &CancelledOperations {
        &self.cancelled
    }
}

/// Makes the kernel keep the other IPv4 addresses of a prefix when the first of them is removed, because each is
/// an object of its own here. The sysctl is global to the namespace; systemd sets it as well.
fn keep_secondaries() {
    let setting = match sysctl::read(PROMOTE_SECONDARIES) {
        Ok(Some(value)) if value == "1" => Ok(()),
        Ok(_) => sysctl::write(PROMOTE_SECONDARIES, "1"),
        Err(error) => Err(error),
    };
    if let Err(error) = setting {
        warn!(%error, "the kernel will remove all addresses of a prefix with the first one; they return after a moment");
    }
}

impl Drop for Rtnetlink {
    /// Waits until the commands given so far are processed.
    fn drop(&mut self) {
        self.line.command(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the thread.
pub(super) struct Task {
    codecs: Codecs,
    links: LinkIndex,
    requests: RouteSocket,
    queries: QuerySocket,
    /// `None` where the kernel lacks the family.
    ethtool: Option<Ethtool>,
    listener: Listener,
    window: Window,
    buffer: Vec<u8>,
    mailbox: Mailbox,
    commands: Receiver<Command>,
    wake: Arc<EventFd>,
    stale: StaleClasses,
    unsettled_bonds: UnsettledBonds,
    /// Links that are read before anything else.
    urgent: UrgentReads,
    /// `None` where no thread could be started.
    sampler: Option<CarrierSampler>,
    unanswered: UnansweredOperations,
    cancelled: CancelledOperations,
}

impl Task {
    fn open(
        codecs: Codecs,
        mailbox: Mailbox,
        commands: Receiver<Command>,
        wake: Arc<EventFd>,
        receive_buffer: Option<usize>,
    ) -> Result<Self, RtnetlinkError> {
        let listener = Listener::open(receive_buffer).map_err(RtnetlinkError::Open)?;
        let requests = RouteSocket::for_requests().map_err(RtnetlinkError::Open)?;
        let asker = QuerySocket::new().map_err(RtnetlinkError::Open)?;
        let mut buffer = vec![0; DATAGRAM_SIZE];
        let ethtool = Ethtool::open(&mut buffer)
            .inspect_err(|error| warn!(%error, "speeds of links are not available"))
            .ok();
        let window = Window::new(requests.receive_buffer().min(listener.receive_buffer()));
        let mut task = Self {
            codecs,
            links: LinkIndex::new(),
            requests,
            queries: asker,
            ethtool,
            listener,
            window,
            buffer,
            mailbox,
            commands,
            urgent: UrgentReads::new(Arc::clone(&wake)),
            sampler: None,
            wake,
            stale: StaleClasses::default(),
            unsettled_bonds: UnsettledBonds::default(),
            unanswered: UnansweredOperations::default(),
            cancelled: CancelledOperations::default(),
        };
        task.require_permission()?;
        Ok(task)
    }

    fn run(mut self) {
        loop {
            if let Err(error) = self.wait() {
                error!(%error, "the rtnetlink transport cannot wait for events and ends");
                return;
            }
            let round = catch_unwind(AssertUnwindSafe(|| self.round()));
            match round {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => self.recover(),
            }
        }
    }

    /// Processes notifications, then commands, then whatever is in doubt. False when no more commands will come.
    fn round(&mut self) -> bool {
        let _ = self.wake.read();
        self.drain_notifications();
        loop {
            match self.commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
                Ok(command) => self.handle_command(command),
                Err(TryRecvError::Empty) => break,
            }
            self.drain_notifications();
        }
        self.reread_bonds();
        self.reread_stale();
        true
    }

    fn handle_command(&mut self, command: Command) {
        match command {
            Command::Submit(batch) => self.submit(batch),
            Command::Read(keys) => self.read(keys),
            Command::Retrieve { others, answer } => {
                self.retrieve(others);
                drop(answer);
            }
            Command::Counters(answer) => drop(answer.send(self.counters())),
            Command::LacpPorts(answer) => drop(answer.send(self.lacp_ports())),
            Command::LagSpeeds(answer) => drop(answer.send(self.lag_speeds())),
            Command::BestRoutes { of, answer } => drop(answer.send(self.routes_of_daemons(of))),
            Command::Stop => {}
        }
    }

    /// Waits for a command or a notification; returns at once while anything is in doubt.
    fn wait(&self) -> io::Result<()> {
        let is_in_doubt = self.stale.any();
        let timeout = if is_in_doubt { PollTimeout::ZERO } else { self.unsettled_bonds.timeout() };
        let mut waits = [
            PollFd::new(self.wake.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut waits, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Recovers from a panic: fails the current operations, and marks all known state as in doubt.
    fn recover(&mut self) {
        warn!("the rtnetlink transport panicked; the operations at hand have failed");
        let completions = self.unanswered.fail_all("the transport panicked");
        self.window.clear();
        self.stale.all();
        self.mailbox.post(Event::Completed(completions));
    }
}
