//! Delay of link events while the agent works on a large Set: the time at which one client has its notice, minus the time at
//! which a raw listener gets the message of the kernel.

use std::fs::{self, File};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use holdfast_proto::gnmi::{SubscriptionMode, subscription_list};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::{GnmiClient, connect};
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::{Subscription, subscribe_to};
use holdfast_tests::tap;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::net::if_::if_nametoindex;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

const RTM_NEWLINK: u16 = 16;
/// Multicast group of links, as a bit of the socket's address.
pub(crate) const RTMGRP_LINK: u32 = 1;
/// `IFF_RUNNING`: the link has carrier and is up.
const IFF_RUNNING: u32 = 0x40;
/// Pause between two events, so that each is notified by itself.
const PAUSE: Duration = Duration::from_millis(10);

/// A link whose carrier comes and goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CarrierLink {
    /// One end of a virtual cable: its carrier goes with its peer.
    Veth,
    /// A tap: its carrier goes with the process that holds it.
    Tap,
}

impl CarrierLink {
    pub(crate) const ALL: [Self; 2] = [Self::Veth, Self::Tap];

    /// Name of the kind, in the table.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Tap => "tap",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Veth => "eth1",
            Self::Tap => "tap1",
        }
    }

    /// Operational status without carrier. A tap has no lower layer.
    fn status_without_carrier(self) -> &'static str {
        match self {
            Self::Veth => "LOWER_LAYER_DOWN",
            Self::Tap => "DOWN",
        }
    }

    /// Makes the link.
    pub(crate) fn add(self, net: &Netns) {
        match self {
            Self::Veth => net.ip("link add eth1 type veth peer name peer1"),
            Self::Tap => net.ip("tuntap add dev tap1 mode tap"),
        };
        net.ip(&format!("link set {} up", self.name()));
    }

    /// Takes the carrier, or gives it. `holder` is what holds a tap meanwhile.
    fn set_carrier(self, has_carrier: bool, holder: &mut Option<File>) -> Result<()> {
        match (self, has_carrier) {
            (Self::Veth, true) => ip("link set peer1 up"),
            (Self::Veth, false) => ip("link set peer1 down"),
            (Self::Tap, true) => {
                *holder = Some(tap::hold(self.name())?);
                Ok(())
            }
            (Self::Tap, false) => {
                *holder = None;
                Ok(())
            }
        }
    }
}

/// A thread that takes the carrier of a link and gives it back, over and over.
#[derive(Debug)]
pub(crate) struct NoticeProbe {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<Duration>>>,
}

impl NoticeProbe {
    /// Starts the events, and returns once the client is subscribed.
    pub(crate) async fn start(agent: &AgentProcess, link: CarrierLink) -> Result<Self> {
        let (address, credentials) = (agent.address(), agent.credentials());
        let ca = fs::read_to_string(agent.ca_file())?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (ready_tx, ready_rx) = oneshot::channel();
        let stop = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async move {
                let client = GnmiClient::over(connect(address, &ca).await?, credentials);
                let path = format!("/interfaces/interface[name={}]/state/oper-status", link.name());
                let list = subscribe_to(
                    subscription_list::Mode::Stream,
                    &[(&path, SubscriptionMode::OnChange)],
                );
                let mut subscription = client.subscribe(list).await?;
                subscription.until_sync().await;
                // The bench may have given up.
                let _ = ready_tx.send(());
                toggle(link, &mut subscription, &stop).await
            })
        });
        ready_rx.await.context("the thread of the events has ended")?;
        Ok(Self { is_over, thread })
    }

    /// Ends the events. Returns the delay of each, ascending.
    pub(crate) fn finish(self) -> Result<Vec<Duration>> {
        self.is_over.store(true, Ordering::Relaxed);
        let joined = self.thread.join();
        let mut delays = joined.map_err(|_| anyhow!("the thread of the events panicked"))??;
        delays.sort();
        Ok(delays)
    }
}

/// Gives and takes the carrier until it is stopped, each time after the notice of the change before.
async fn toggle(
    link: CarrierLink,
    subscription: &mut Subscription,
    is_over: &AtomicBool,
) -> Result<Vec<Duration>> {
    let listener = CarrierListener::open(link.name())?;
    let (mut holder, mut delays) = (None, Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        for (has_carrier, status) in [(true, "UP"), (false, link.status_without_carrier())] {
            let notice = listener.next(has_carrier);
            link.set_carrier(has_carrier, &mut holder)?;
            subscription.until(&format!("= \"{status}\"")).await;
            let seen = Instant::now();
            let notice = notice.join().map_err(|_| anyhow!("the listener panicked"))??;
            delays.push(seen.saturating_duration_since(notice));
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(delays)
}

/// Runs `ip` in the namespace of this thread.
pub(crate) fn ip(arguments: &str) -> Result<()> {
    let status = Command::new("ip").args(arguments.split(' ')).status()?;
    ensure!(status.success(), "ip {arguments}: {status}");
    Ok(())
}

/// A netlink socket of the group of links.
#[derive(Debug)]
struct CarrierListener {
    socket: Arc<Socket>,
    index: u32,
}

impl CarrierListener {
    fn open(link: &str) -> Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE).context("a netlink socket")?;
        socket.bind(&SocketAddr::new(0, RTMGRP_LINK)).context("the group of links")?;
        Ok(Self { socket: Arc::new(socket), index: if_nametoindex(link)? })
    }

    /// A thread that returns the time of the next message by which the link has, or has no, carrier.
    fn next(&self, has_carrier: bool) -> JoinHandle<Result<Instant>> {
        let (socket, index) = (Arc::clone(&self.socket), self.index);
        thread::spawn(move || {
            loop {
                let (message, _) = socket.recv_from_full().context("a message of the kernel")?;
                if carrier(&message, index) == Some(has_carrier) {
                    return Ok(Instant::now());
                }
            }
        })
    }
}

/// True, or false, when the message says that the link has carrier, or has none; `None` for other messages.
pub(crate) fn carrier(message: &[u8], index: u32) -> Option<bool> {
    let kind = u16::from_ne_bytes(message.get(4..6)?.try_into().ok()?);
    let link = u32::from_ne_bytes(message.get(20..24)?.try_into().ok()?);
    let flags = u32::from_ne_bytes(message.get(24..28)?.try_into().ok()?);
    (kind == RTM_NEWLINK && link == index).then_some(flags & IFF_RUNNING != 0)
}
