//! DHCP clients of the bootstrap port, whose leases are the lease layer of the configuration.
//!
//! Start at [`start`]: one thread, in the namespace of the port, asks in both families without end once a
//! bootstrap has asked for servers. Each lease goes into the lease layer, from there through the union like every
//! other layer, and leaves it when it ends. [`lease`] has the leases as values and as a file, [`port`] has the
//! sockets.
//!
//! Absent on purpose: options such as name servers, for which the models have no node; a second port.

mod lease;
mod lost;
mod port;
#[cfg(test)]
mod tests;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use holdfast_base::{Caller, ErrorChain};
use holdfast_bootz::uri::ServerUri;
use holdfast_config::{LayerKey, LeasedPort};
use holdfast_core::{Datastore, Intent};
use holdfast_platform::netns::Netns;
use smol_str::SmolStr;
use tokio::{
    runtime,
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::Instant,
};
use tracing::{error, warn};

use self::lease::Lease;
pub use self::lease::PortLeases;
pub use self::lost::{LeaseFamily, LostAddresses, LostLeases};
use crate::deadline::wait_until;

/// Requests for servers that wait: there is one bootstrap, so requests come one after the other.
const ASK_QUEUE_DEPTH: usize = 1;
/// Leases that wait for the loop: one of each family.
const LEASE_QUEUE_DEPTH: usize = 2;
/// Time for the other family when a lease of one names no bootstrap server: an IPv6 port is usable some seconds
/// after an IPv4 one, because the kernel first checks that its address is not in use.
const OTHER_FAMILY: Duration = Duration::from_secs(10);

/// The servers that the leases name, or why there is no lease.
type ServersResult = Result<Vec<ServerUri>, String>;

/// The running clients; clones share them. They end when the last is dropped.
#[derive(Clone, Debug)]
pub struct Dhcp {
    ask_tx: mpsc::Sender<oneshot::Sender<ServersResult>>,
    leases_rx: watch::Receiver<PortLeases>,
}

impl Dhcp {
    /// Asks the DHCP servers again; the port keeps its leases until new ones replace them. Waits without a limit
    /// while no server answers.
    ///
    /// # Errors
    ///
    /// When the leases cannot be brought into force.
    pub async fn servers(&self) -> ServersResult {
        let (answer, answered) = oneshot::channel();
        let stopped = || "the DHCP client has stopped".to_owned();
        self.ask_tx.send(answer).await.map_err(|_| stopped())?;
        answered.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// The leases of the port, with a notice of each change.
    pub fn port_leases(&self) -> watch::Receiver<PortLeases> {
        self.leases_rx.clone()
    }
}

/// Starts the clients of this port. They begin at the first call of [`Dhcp::servers`], or at once when a lease of
/// the port is still valid from before a restart.
///
/// # Errors
///
/// When the operating system gives no thread or runtime.
pub fn start(
    port: &str,
    netns: Arc<Netns>,
    folder: &Path,
    core: impl Datastore,
    lost: LostLeases,
) -> io::Result<Dhcp> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let name = SmolStr::new(port);
    let changes = core.watch();
    let begin = move |lease_tx: mpsc::Sender<Lease>| {
        let mut clients = JoinSet::new();
        clients.spawn(port::run_v4(name.clone(), changes.clone(), lease_tx.clone()));
        clients.spawn(port::run_v6(name.clone(), changes.clone(), lease_tx));
        clients
    };
    let leases = lease::read(&lease::file(folder), &port.into(), port::now());
    let (leasing, dhcp) = LeaseTask::new(leases, lease::file(folder), core, lost, begin);
    thread::Builder::new().name("dhcp".to_owned()).spawn(move || match netns.enter() {
        Ok(()) => runtime.block_on(leasing.run()),
        Err(error) => error!(error = %ErrorChain(&error), "cannot ask DHCP servers"),
    })?;
    Ok(dhcp)
}

/// Empties the lease layer: no client renews those leases any longer.
pub async fn withdraw(core: &impl Datastore) {
    if let Err(error) = apply_leases(core, Vec::new()).await {
        error!(error, "cannot take back what was leased");
    }
}

/// The loop that owns the leases.
struct LeaseTask<D, B> {
    leases: PortLeases,
    file: PathBuf,
    core: D,
    lost: LostLeases,
    /// Starts the clients of the port.
    begin: B,
    clients: JoinSet<()>,
    ask_rx: mpsc::Receiver<oneshot::Sender<ServersResult>>,
    lease_tx: mpsc::Sender<Lease>,
    lease_rx: mpsc::Receiver<Lease>,
    leases_tx: watch::Sender<PortLeases>,
    request: Option<ServersRequest>,
}

/// The call of [`Dhcp::servers`] that is waiting.
struct ServersRequest {
    answer: oneshot::Sender<ServersResult>,
    /// Families that have got a lease since the call: IPv4, IPv6.
    answered: [bool; 2],
    /// End of the wait for the other family.
    until: Option<Instant>,
}

impl<D: Datastore, B: FnMut(mpsc::Sender<Lease>) -> JoinSet<()>> LeaseTask<D, B> {
    fn new(leases: PortLeases, file: PathBuf, core: D, lost: LostLeases, begin: B) -> (Self, Dhcp) {
        let (ask_tx, ask_rx) = mpsc::channel(ASK_QUEUE_DEPTH);
        let (lease_tx, lease_rx) = mpsc::channel(LEASE_QUEUE_DEPTH);
        let (leases_tx, leases_rx) = watch::channel(leases.clone());
        let clients = JoinSet::new();
        let request = None;
        let leasing = Self {
            leases,
            file,
            core,
            lost,
            begin,
            clients,
            ask_rx,
            lease_tx,
            lease_rx,
            leases_tx,
            request,
        };
        (leasing, Dhcp { ask_tx, leases_rx })
    }

    async fn run(mut self) {
        match self.leases.is_empty() {
            true => withdraw(&self.core).await, // a lease may have ended while the agent was down
            false => {
                if let Err(error) = self.publish_leases().await {
                    error!(error, "cannot bring what was leased into force");
                }
                self.clients = (self.begin)(self.lease_tx.clone());
            }
        }
        loop {
            let patience = self.request.as_ref().and_then(|request| request.until);
            tokio::select! {
                request = self.ask_rx.recv() => match request {
                    Some(answer) => self.request_leases(answer).await,
                    None => return,
                },
                Some(lease) = self.lease_rx.recv() => self.take(lease).await,
                () = wait_until(self.leases.ends()) => self.expire().await,
                () = wait_until(patience) => self.answer(Ok(self.leases.servers())),
            }
        }
    }

    /// Starts the clients again, after the port is up: a box fresh from the factory may have it shut down.
    async fn request_leases(&mut self, answer: oneshot::Sender<ServersResult>) {
        self.request = Some(ServersRequest { answer, answered: [false; 2], until: None });
        self.leases.forget_servers();
        self.clients.abort_all();
        if let Err(why) = apply_leases(&self.core, vec![self.leases.port()]).await {
            return self.answer(Err(why));
        }
        while self.lease_rx.try_recv().is_ok() {} // drops leases of the clients that were aborted
        self.clients = (self.begin)(self.lease_tx.clone());
    }

    async fn take(&mut self, lease: Lease) {
        for ignored in &lease.ignored {
            warn!(ignored, "DHCP names a bootstrap server that is not usable");
        }
        let family = usize::from(lease.address.addr().is_ipv6());
        self.lost.note_grant(self.leases.port_name(), &lease.address);
        self.leases.put(lease);
        if let Err(why) = self.publish_leases().await {
            return self.answer(Err(why));
        }
        let Some(request) = &mut self.request else { return };
        request.answered[family] = true;
        let servers = self.leases.servers();
        if servers.is_empty() && request.answered.contains(&false) {
            request.until = Some(Instant::now() + OTHER_FAMILY)
        } else {
            self.answer(Ok(servers))
        }
    }

    async fn expire(&mut self) {
        for address in self.leases.expire() {
            let port = self.leases.port_name();
            warn!(%port, %address, "a lease has ended");
            self.lost.note_end(port, address);
        }
        if let Err(error) = self.publish_leases().await {
            error!(error, "cannot take back what was leased");
        }
    }

    /// Publishes the leases: to the file, to the watchers, to the lease layer. The file is first, so that a
    /// restart still knows when the leases in the layer end.
    async fn publish_leases(&mut self) -> Result<(), String> {
        if let Err(error) = lease::write(&self.file, &self.leases) {
            error!(error = %ErrorChain(&error), "cannot keep what was leased");
        }
        self.leases_tx.send_replace(self.leases.clone());
        apply_leases(&self.core, vec![self.leases.port()]).await
    }

    fn answer(&mut self, answer: ServersResult) {
        if let Some(request) = self.request.take() {
            let _asker_is_gone = request.answer.send(answer);
        }
    }
}

/// Brings the lease layer into force, unless it is in force already.
async fn apply_leases(core: &impl Datastore, ports: Vec<LeasedPort>) -> Result<(), String> {
    let now = core.configuration();
    let next = now.leased(&ports).map_err(|error| ErrorChain(&error).to_string())?;
    let layer = LayerKey::LEASE;
    if next.layers().tree(layer) == now.layers().tree(layer) {
        return Ok(());
    }
    let brought = core.change(&Caller::own("dhcp"), Intent::Lease(ports)).await;
    brought.map(drop).map_err(|error| ErrorChain(&error).to_string())
}
