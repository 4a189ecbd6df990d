//! Leases that come, are renewed, are replaced, end, and outlive the process: on the simulated kernel, with DHCP
//! servers that the test plays.

use holdfast_platform::transport::SimulatedKernel;
use ipnet::IpNet;
use tempfile::TempDir;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinHandle;

use super::*;
use crate::agent_tests::Agent;

const PORT: &str = "eth0";
const FIRST: &str = "192.0.2.9/24";
const LINK: [&str; 2] = ["link eth0", "link lo"];
const SERVER: &str = "bootz://192.0.2.1:15006";

/// A box, its lease loop, and the server side of its clients.
struct Rig {
    agent: Agent,
    kernel: SimulatedKernel,
    folder: TempDir,
    dhcp: Dhcp,
    lost: LostLeases,
    /// A sender of leases for each start of the clients.
    begun: UnboundedReceiver<mpsc::Sender<Lease>>,
    task: JoinHandle<()>,
}

fn lease(address: &str, seconds: u32, servers: &[&str]) -> Lease {
    let address: IpNet = address.parse().unwrap();
    let gateway = "192.0.2.254".parse().unwrap();
    Lease {
        routes: match address {
            IpNet::V4(_) => vec![("0.0.0.0/0".parse().unwrap(), Some(gateway))],
            IpNet::V6(_) => Vec::new(),
        },
        address,
        seconds,
        granted: port::now(),
        servers: servers.iter().map(|uri| uri.parse().unwrap()).collect(),
        ignored: Vec::new(),
    }
}

#[allow(clippy::disallowed_methods, reason = "a test counts what it is told")]
fn begin(
    leases: PortLeases,
    folder: &std::path::Path,
    agent: &Agent,
    lost: &LostLeases,
) -> (Dhcp, UnboundedReceiver<mpsc::Sender<Lease>>, JoinHandle<()>) {
    let (begun_tx, begun) = mpsc::unbounded_channel();
    let clients = move |lease_tx: mpsc::Sender<Lease>| {
        begun_tx.send(lease_tx).unwrap();
        JoinSet::new()
    };
    let file = lease::file(folder);
    let (leasing, dhcp) = LeaseTask::new(leases, file, agent.handle.clone(), lost.clone(), clients);
    (dhcp, begun, tokio::spawn(leasing.run()))
}

impl Rig {
    async fn new() -> Self {
        let kernel = SimulatedKernel::new(&[PORT]);
        let folder = TempDir::new().unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        let lost = LostLeases::default();
        let leases = PortLeases::nothing(PORT.into());
        let (dhcp, begun, task) = begin(leases, folder.path(), &agent, &lost);
        Self { agent, kernel, folder, dhcp, lost, begun, task }
    }

    /// Asks for servers, and delivers these leases to the waiting call.
    async fn servers_after(&mut self, leases: &[Lease]) -> ServersResult {
        let dhcp = self.dhcp.clone();
        let request = tokio::spawn(async move { dhcp.servers().await });
        let lease_tx = self.begun.recv().await.unwrap();
        for lease in leases {
            lease_tx.send(lease.clone()).await.unwrap();
        }
        request.await.unwrap()
    }

    async fn until(&mut self, want: &[&str]) {
        let kernel = &self.kernel;
        let mut leases = self.dhcp.port_leases();
        while kernel.describe() != want {
            tokio::select! {
                changed = leases.changed() => changed.unwrap(),
                () = tokio::task::yield_now() => {}
            }
        }
    }

    /// Ends the process and starts another on the same folder.
    async fn restart(self) -> Self {
        let Self { agent, kernel, folder, dhcp, lost, task, .. } = self;
        drop(dhcp);
        task.await.unwrap();
        agent.stop().await;
        let agent = Agent::start(&kernel, folder.path()).await;
        let leases = lease::read(&lease::file(folder.path()), &PORT.into(), port::now());
        let (dhcp, begun, task) = begin(leases, folder.path(), &agent, &lost);
        Self { agent, kernel, folder, dhcp, lost, begun, task }
    }
}

fn with(address: &str) -> Vec<String> {
    let address = format!("address {address} of eth0");
    [&*address, "link eth0", "link lo", "route 0.0.0.0/0 metric 20"].map(ToOwned::to_owned).to_vec()
}

// proves 4.2
#[tokio::test]
async fn a_lease_reaches_the_kernel_before_its_bootstrap_servers_are_used() {
    let mut rig = Rig::new().await;
    let servers = rig.servers_after(&[lease(FIRST, 3600, &[SERVER])]).await.unwrap();
    assert_eq!(servers, [SERVER.parse().unwrap()]);
    assert_eq!(rig.kernel.describe(), with(FIRST));
    assert!(
        rig.agent.handle.configuration().is_factory_new(),
        "a lease is not configuration of an operator"
    );
}

#[tokio::test]
async fn a_new_lease_replaces_the_lease_before_it() {
    let mut rig = Rig::new().await;
    rig.servers_after(&[lease(FIRST, 3600, &[SERVER])]).await.unwrap();
    let servers =
        rig.servers_after(&[lease("192.0.2.10/24", 3600, &["bootz://a:1"])]).await.unwrap();
    assert_eq!(servers, ["bootz://a:1".parse().unwrap()]);
    assert_eq!(rig.kernel.describe(), with("192.0.2.10/24"));
}

#[tokio::test]
async fn a_renewed_lease_lasts_on_and_one_that_is_not_is_taken_back() {
    let mut rig = Rig::new().await;
    rig.servers_after(&[lease(FIRST, 60, &[SERVER])]).await.unwrap();
    let lease_tx = {
        let dhcp = rig.dhcp.clone();
        let request = tokio::spawn(async move { dhcp.servers().await });
        let lease_tx = rig.begun.recv().await.unwrap();
        lease_tx.send(lease(FIRST, 60, &[SERVER])).await.unwrap();
        request.await.unwrap().unwrap();
        lease_tx
    };
    let mut leases = rig.dhcp.port_leases();
    leases.mark_unchanged();
    rig.agent.pass(Duration::from_secs(40)).await;
    lease_tx.send(lease(FIRST, 60, &[SERVER])).await.unwrap();
    leases.changed().await.unwrap();
    rig.agent.pass(Duration::from_secs(40)).await;
    assert_eq!(rig.kernel.describe(), with(FIRST), "80 s after a lease of 60 s");
    let mut lost = rig.lost.follow();
    assert!(lost.borrow_and_update().is_empty());
    rig.agent.pass(Duration::from_secs(21)).await;
    rig.until(&LINK).await;
    assert!(!lease::file(rig.folder.path()).exists());

    // A lost lease is told until a server grants another one.
    let place = (PORT.into(), LeaseFamily::Ipv4);
    assert_eq!(lost.borrow_and_update().get(&place), Some(&FIRST.parse().unwrap()));
    lease_tx.send(lease(FIRST, 60, &[SERVER])).await.unwrap();
    lost.changed().await.unwrap();
    assert!(lost.borrow().is_empty());
}

#[tokio::test]
async fn a_lease_without_servers_waits_for_the_other_family() {
    let mut rig = Rig::new().await;
    let six = lease("2001:db8::9/128", 3600, &[SERVER]);
    let servers = rig.servers_after(&[lease(FIRST, 3600, &[]), six]).await.unwrap();
    assert_eq!(servers, [SERVER.parse().unwrap()]);

    // Both families have a lease, and neither names a server.
    let none = [lease(FIRST, 3600, &[]), lease("2001:db8::9/128", 3600, &[])];
    assert_eq!(rig.servers_after(&none).await.unwrap(), []);
    // One family has a lease, the other gets no answer.
    tokio::time::pause();
    assert_eq!(rig.servers_after(&none[..1]).await.unwrap(), []);
}

#[tokio::test]
async fn a_lease_outlives_the_process_for_as_long_as_it_was_given() {
    let mut rig = Rig::new().await;
    rig.servers_after(&[lease(FIRST, 3600, &[SERVER])]).await.unwrap();
    let mut rig = rig.restart().await;
    rig.begun.recv().await.unwrap(); // the clients ask again
    assert_eq!(rig.kernel.describe(), with(FIRST));

    // The lease ends while the agent is down.
    let file = lease::file(rig.folder.path());
    let over = Lease { granted: port::now() - 61, ..lease(FIRST, 60, &[]) };
    let mut leases = PortLeases::nothing(PORT.into());
    leases.put(over);
    lease::write(&file, &leases).unwrap();
    let mut rig = rig.restart().await;
    rig.until(&LINK).await;
    let lasts = |seconds, age: u64, port: &str| {
        let mut leases = PortLeases::nothing(PORT.into());
        leases.put(Lease { granted: 1_000, ..lease(FIRST, seconds, &[]) });
        lease::write(&file, &leases).unwrap();
        !lease::read(&file, &port.into(), 1_000 + age).is_empty()
    };
    let rows = [(60, 59, PORT, true), (60, 60, PORT, false), (60, 0, "eth1", false)];
    for (seconds, age, port, want) in rows {
        assert_eq!(lasts(seconds, age, port), want, "{seconds} {age} {port}");
    }
    rig.agent.stop().await;
}
