//! DHCP clients of one port. They run on a thread that is in the namespace of the port.

use std::{
    net::Ipv6Addr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use holdfast_bootz::dhcp::{OPTION_V4, OPTION_V6};
use mozim::{
    DhcpError, DhcpV4Client, DhcpV4Config, DhcpV4State, DhcpV6Client, DhcpV6Config, DhcpV6Mode,
    DhcpV6State,
};
use nix::{ifaddrs::getifaddrs, net::if_::if_nametoindex, sys::socket::SockaddrLike};
use smol_str::SmolStr;
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use tracing::{info, warn};

use super::lease::Lease;

/// Wait before a client that has failed begins again: the cause, such as a UDP port in use, does not go away at
/// once.
const PAUSE: Duration = Duration::from_secs(5);
/// Wait after a lease: without it, a server that grants a lifetime of zero would make the client ask, and write to
/// disk, in a tight loop.
const REST: Duration = Duration::from_secs(1);
/// Bytes of an Ethernet address; the clients support no other kind of link.
const ETHERNET: usize = 6;

/// A port as the kernel shows it.
struct Nic {
    index: u32,
    mac: [u8; ETHERNET],
    link_local: Option<Ipv6Addr>,
}

impl Nic {
    /// Finds the Ethernet port of this name; none when there is no such port.
    fn find(name: &str) -> Option<Self> {
        let index = if_nametoindex(name).ok()?;
        let mut mac = None;
        let mut link_local = None;
        for it in getifaddrs().ok()?.filter(|it| it.interface_name == name) {
            let Some(address) = it.address else { continue };
            if let Some(link) = address.as_link_addr().filter(|_| address.len() > 0) {
                mac = link.addr();
            }
            if let Some(v6) = address.as_sockaddr_in6() {
                link_local = Some(v6.ip()).filter(Ipv6Addr::is_unicast_link_local).or(link_local);
            }
        }
        Some(Self { index, mac: mac?, link_local })
    }
}

/// Waits until `find` finds something: tries at once, then after each change of the box. Gives up when no more
/// changes can come.
async fn found<T, R>(changes: &mut watch::Receiver<R>, find: impl Fn() -> Option<T>) -> Option<T> {
    loop {
        changes.mark_unchanged();
        if let Some(found) = find() {
            return Some(found);
        }
        changes.changed().await.ok()?;
    }
}

/// Asks for an IPv4 address without end. The link-layer address is the client identifier, so that a server gives
/// the same address again.
pub(super) async fn run_v4<R>(
    port: SmolStr,
    mut changes: watch::Receiver<R>,
    lease_tx: mpsc::Sender<Lease>,
) {
    let Some(nic) = found(&mut changes, || Nic::find(&port)).await else { return };
    let mut config = DhcpV4Config::new(&port);
    config.set_iface_index(nic.index);
    config.request_extra_dhcp_opts(&[OPTION_V4]);
    let client = match config.set_iface_mac_raw(&nic.mac) {
        Ok(config) => {
            config.use_mac_as_client_id();
            DhcpV4Client::init(config.clone(), None).await
        }
        Err(error) => Err(error),
    };
    let mut client = match client {
        Ok(client) => client,
        Err(error) => return failed(&port, &error),
    };
    loop {
        match client.run().await {
            Ok(DhcpV4State::Done(lease)) => {
                send_lease(&port, Lease::of_v4(&lease, now()), &lease_tx).await;
                sleep(REST).await;
            }
            Ok(_) => {}
            Err(error) => {
                failed(&port, &error);
                client.clean_up();
                sleep(PAUSE).await;
            }
        }
    }
}

/// Asks for an IPv6 address without end, once the port has a link-local address to ask from.
pub(super) async fn run_v6<R>(
    port: SmolStr,
    mut changes: watch::Receiver<R>,
    lease_tx: mpsc::Sender<Lease>,
) {
    let with_address = || Nic::find(&port).and_then(|nic| Some((nic.link_local?, nic)));
    let Some((link_local, nic)) = found(&mut changes, with_address).await else { return };
    let mut config = DhcpV6Config::new(&port, DhcpV6Mode::NonTemporaryAddresses);
    config.set_iface_index(nic.index);
    config.set_link_local_ip(link_local);
    config.set_duid_by_iface_mac(&nic.mac);
    config.request_extra_dhcp_opts(&[OPTION_V6]);
    let mut client = match DhcpV6Client::init(config, None).await {
        Ok(client) => client,
        Err(error) => return failed(&port, &error),
    };
    loop {
        match client.run().await {
            Ok(DhcpV6State::Done(lease)) => {
                send_lease(&port, Lease::of_v6(&lease, now()), &lease_tx).await;
                sleep(REST).await;
            }
            Ok(_) => {}
            Err(error) => {
                failed(&port, &error);
                client.clean_up();
                sleep(PAUSE).await;
            }
        }
    }
}

async fn send_lease(port: &str, lease: Result<Lease, String>, lease_tx: &mpsc::Sender<Lease>) {
    match lease {
        Ok(lease) => {
            info!(port, address = %lease.address, seconds = lease.seconds, "leased");
            let _nobody_asks_any_more = lease_tx.send(lease).await;
        }
        Err(why) => warn!(port, why, "a lease is not usable"),
    }
}

fn failed(port: &str, error: &DhcpError) {
    warn!(port, %error, "cannot ask DHCP servers");
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
