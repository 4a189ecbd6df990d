//! The clients of one port. Everything here runs on a thread that is in the namespace of the port.

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

/// Before a client that has failed begins again: what it lacks, as a free UDP port, is not there at once.
const PAUSE: Duration = Duration::from_secs(5);
/// How long the client rests after a lease: one that lasts no time is asked for anew at once, and is written to disk.
const REST: Duration = Duration::from_secs(1);
/// Octets of an Ethernet address; leases of other links are not asked for.
const ETHERNET: usize = 6;

/// A port as the kernel has it.
struct Nic {
    index: u32,
    mac: [u8; ETHERNET],
    link_local: Option<Ipv6Addr>,
}

impl Nic {
    /// Nothing while there is no Ethernet port of this name.
    fn find(name: &str) -> Option<Self> {
        let index = if_nametoindex(name).ok()?;
        let (mut mac, mut link_local) = (None, None);
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

/// Finds something about the port: now, or when something has changed in the box.
async fn found<T, R>(changes: &mut watch::Receiver<R>, find: impl Fn() -> Option<T>) -> Option<T> {
    loop {
        changes.mark_unchanged();
        if let Some(found) = find() {
            return Some(found);
        }
        changes.changed().await.ok()?;
    }
}

/// Asks for an IPv4 address for ever. Servers know the box by its link-layer address, and give the same again.
pub(super) async fn ask_v4<R>(
    port: SmolStr,
    mut changes: watch::Receiver<R>,
    told: mpsc::Sender<Lease>,
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
                tell(&port, Lease::of_v4(&lease, now()), &told).await;
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

/// The same for an IPv6 address.
pub(super) async fn ask_v6<R>(
    port: SmolStr,
    mut changes: watch::Receiver<R>,
    told: mpsc::Sender<Lease>,
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
                tell(&port, Lease::of_v6(&lease, now()), &told).await;
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

async fn tell(port: &str, lease: Result<Lease, String>, told: &mpsc::Sender<Lease>) {
    match lease {
        Ok(lease) => {
            info!(port, address = %lease.address, seconds = lease.seconds, "leased");
            let _nobody_asks_any_more = told.send(lease).await;
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
