//! Leases of DHCP servers: pure values, and the file that keeps them over a restart of the process.

use std::{
    fmt, fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use holdfast_bootz::{dhcp, uri::ServerUri};
use holdfast_config::{LeasedPort, LeasedRoute};
use ipnet::{IpNet, Ipv4Net};
use mozim::{DhcpV4Lease, DhcpV6Lease};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tokio::time::Instant;

use holdfast_store::{StoreError, write_private_file};

/// File in the folder of the bootstrap, which a factory reset deletes.
const FILE: &str = "lease.json";
/// Prefix length of an IPv6 address, in bits: DHCPv6 says nothing about the prefix on the link, routers do.
const HOST_PREFIX: u8 = 128;

/// One lease of either family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lease {
    pub address: IpNet,
    /// Prefixes with their gateways; without one, the prefix is on the link.
    pub routes: Vec<(IpNet, Option<IpAddr>)>,
    /// Lifetime, in seconds.
    pub seconds: u32,
    /// Time of the grant, in seconds since 1970.
    pub granted: u64,
    /// Bootstrap servers that came with the lease. Not kept in the file: each attempt asks for them again.
    #[serde(skip)]
    pub servers: Vec<ServerUri>,
    /// Reasons for which servers of the option are missing from `servers`.
    #[serde(skip)]
    pub ignored: Vec<String>,
}

/// The shortest prefix that a lease may put on the link, in bits: with a shorter one, a malicious server would
/// make the box look on the link for addresses of foreign networks.
const SHORTEST_PREFIX: u8 = 8;
/// Most routes taken from one lease: one message has room for three hundred.
const MOST_ROUTES: usize = 64;

/// Checks that a port can have this address.
fn usable(address: IpNet) -> Result<IpNet, String> {
    let ip = address.addr();
    let is_host = match ip {
        IpAddr::V4(ip) => !ip.is_broadcast() && ip.octets()[0] != 0,
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    };
    match is_host && !ip.is_unspecified() && !ip.is_loopback() && !ip.is_multicast() {
        true if address.prefix_len() < SHORTEST_PREFIX => {
            Err(format!("{address} is more than one link can have"))
        }
        true => Ok(address),
        false => Err(format!("{ip} is not an address of a host")),
    }
}

impl Lease {
    pub(super) fn of_v4(reply: &DhcpV4Lease, granted: u64) -> Result<Self, String> {
        let address = Ipv4Net::with_netmask(reply.yiaddr, reply.subnet_mask);
        let address = address.map_err(|_| format!("{} is not a mask", reply.subnet_mask))?;
        let address = usable(address.into())?;
        let mut lease = Self {
            address,
            routes: routes(reply),
            seconds: reply.lease_time_sec,
            granted,
            servers: Vec::new(),
            ignored: Vec::new(),
        };
        if let Some(option) = reply.get_option_raw(dhcp::OPTION_V4) {
            lease.offer(dhcp::read_v4(&option));
        }
        Ok(lease)
    }

    pub(super) fn of_v6(reply: &DhcpV6Lease, granted: u64) -> Result<Self, String> {
        let address = IpNet::new(reply.address.into(), HOST_PREFIX);
        let address = usable(address.expect("128 bits are the whole address"))?;
        let mut lease = Self {
            address,
            routes: Vec::new(),
            seconds: reply.valid_time_sec,
            granted,
            servers: Vec::new(),
            ignored: Vec::new(),
        };
        for option in reply.get_option_raw(dhcp::OPTION_V6).unwrap_or_default() {
            lease.offer(dhcp::read_v6(&option));
        }
        Ok(lease)
    }

    fn offer(&mut self, offer: Result<dhcp::SztpRedirect, dhcp::OptionError>) {
        match offer {
            Ok(offer) => {
                self.servers.extend(offer.servers);
                self.ignored.extend(offer.ignored.iter().map(ToString::to_string));
            }
            Err(error) => self.ignored.push(error.to_string()),
        }
    }

    /// The lifetime that is left; none when it is over. A clock that was set back does not make it longer.
    fn left(&self, now: u64) -> Option<Duration> {
        let age = now.saturating_sub(self.granted);
        let left = u64::from(self.seconds).checked_sub(age)?;
        (left > 0).then(|| Duration::from_secs(left))
    }
}

/// Reads the routes of a lease: the classless static routes if there are any, else one by the first router (RFC
/// 3442).
fn routes(lease: &DhcpV4Lease) -> Vec<(IpNet, Option<IpAddr>)> {
    if let Some(routes) = &lease.classless_routes {
        return routes
            .iter()
            .filter_map(|route| {
                let prefix = Ipv4Net::new(route.destination, route.prefix_length).ok()?;
                let gateway = Some(route.router).filter(|router| !router.is_unspecified());
                Some((prefix.into(), gateway.map(IpAddr::from)))
            })
            .take(MOST_ROUTES)
            .collect();
    }
    let router = lease.gateways.as_ref().and_then(|routers| routers.first());
    router.map(|router| (Ipv4Net::default().into(), Some((*router).into()))).into_iter().collect()
}

/// The leases of one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLeases {
    port: SmolStr,
    v4: Option<(Lease, Instant)>,
    v6: Option<(Lease, Instant)>,
}

impl PortLeases {
    pub(super) fn nothing(port: SmolStr) -> Self {
        Self { port, v4: None, v6: None }
    }

    /// Replaces the lease of the same family.
    pub(super) fn put(&mut self, lease: Lease) {
        let ends = Instant::now() + Duration::from_secs(lease.seconds.into());
        match lease.address {
            IpNet::V4(_) => self.v4 = Some((lease, ends)),
            IpNet::V6(_) => self.v6 = Some((lease, ends)),
        }
    }

    fn each(&self) -> impl Iterator<Item = &(Lease, Instant)> {
        self.v4.iter().chain(&self.v6)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.each().next().is_none()
    }

    /// Drops the servers of both leases, before the clients ask for them again.
    pub(super) fn forget_servers(&mut self) {
        for (lease, _) in self.v4.iter_mut().chain(&mut self.v6) {
            lease.servers.clear();
        }
    }

    /// End of the lease that ends first.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.each().map(|(_, ends)| *ends).min()
    }

    /// Drops the leases that have ended, and returns their addresses.
    pub(super) fn expire(&mut self) -> Vec<IpNet> {
        let now = Instant::now();
        let ended = |it: &mut (Lease, Instant)| it.1 <= now;
        let ended = [&mut self.v4, &mut self.v6].map(|lease| lease.take_if(ended));
        ended.into_iter().flatten().map(|(lease, _)| lease.address).collect()
    }

    pub(super) fn port_name(&self) -> &SmolStr {
        &self.port
    }

    /// The bootstrap servers of both leases, each once.
    pub(super) fn servers(&self) -> Vec<ServerUri> {
        let mut servers: Vec<ServerUri> = Vec::new();
        for server in self.each().flat_map(|(lease, _)| &lease.servers) {
            if !servers.contains(server) {
                servers.push(server.clone());
            }
        }
        servers
    }

    /// Content of the lease layer for these leases.
    pub(super) fn port(&self) -> LeasedPort {
        let routes = self.each().flat_map(|(lease, _)| &lease.routes);
        LeasedPort {
            name: self.port.clone(),
            addresses: self.each().map(|(lease, _)| lease.address).collect(),
            routes: routes.map(|&(prefix, gateway)| LeasedRoute { prefix, gateway }).collect(),
        }
    }
}

impl fmt::Display for PortLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (lease, ends) in self.each() {
            let left = ends.saturating_duration_since(Instant::now()).as_secs();
            writeln!(f, "lease: {} on {}, for {left} s", lease.address, self.port)?;
        }
        Ok(())
    }
}

/// Content of the file.
#[derive(Serialize, Deserialize)]
struct LeaseFile {
    port: SmolStr,
    leases: Vec<Lease>,
}

pub(super) fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Reads the leases that this port had before the process ended and that are still valid. A file that cannot be
/// read counts as empty: the servers are asked again.
pub(super) fn read(file: &Path, port: &SmolStr, now: u64) -> PortLeases {
    let mut leases = PortLeases::nothing(port.clone());
    let stored =
        fs::read(file).ok().and_then(|text| serde_json::from_slice::<LeaseFile>(&text).ok());
    for lease in
        stored.filter(|stored| stored.port == *port).into_iter().flat_map(|stored| stored.leases)
    {
        if let Some(left) = lease.left(now) {
            let seconds = u32::try_from(left.as_secs()).expect("no more than what was given");
            leases.put(Lease { seconds, granted: now, ..lease });
        }
    }
    leases
}

pub(super) fn write(file: &Path, port_leases: &PortLeases) -> Result<(), StoreError> {
    if port_leases.is_empty() {
        return match fs::remove_file(file) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::File { action: "remove", path: file.to_owned(), source })
            }
            _ => Ok(()),
        };
    }
    let leases = port_leases.each().map(|(lease, _)| lease.clone()).collect();
    let file_content = LeaseFile { port: port_leases.port.clone(), leases };
    let text = serde_json::to_vec(&file_content).expect("text and numbers can be written");
    write_private_file(file, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_cannot_give_what_no_port_can_have() {
        for (address, want) in [
            ("192.0.2.9/24", ""),
            ("10.0.0.1/8", ""),
            ("192.0.2.9/32", ""),
            ("2001:db8::9/128", ""),
            ("0.0.0.0/24", "not an address of a host"),
            ("0.1.2.3/24", "not an address of a host"),
            ("127.0.0.1/8", "not an address of a host"),
            ("224.0.0.1/24", "not an address of a host"),
            ("255.255.255.255/32", "not an address of a host"),
            ("192.0.2.9/0", "more than one link"),
            ("192.0.2.9/7", "more than one link"),
            ("::/128", "not an address of a host"),
            ("::1/128", "not an address of a host"),
            ("ff02::1/128", "not an address of a host"),
            ("fe80::1/128", "not an address of a host"),
        ] {
            match usable(address.parse().unwrap()) {
                Ok(_) => assert_eq!(want, "", "{address}"),
                Err(why) => assert!(!want.is_empty() && why.contains(want), "{address}: {why}"),
            }
        }
    }

    #[test]
    fn a_lease_of_any_length_ends_when_it_says() {
        let lease = |seconds, granted| Lease {
            address: "192.0.2.9/24".parse().unwrap(),
            routes: Vec::new(),
            seconds,
            granted,
            servers: Vec::new(),
            ignored: Vec::new(),
        };
        for (seconds, granted, now, want) in [
            (0, 100, 100, None),
            (1, 100, 100, Some(1)),
            (u32::MAX, 100, 101, Some(u64::from(u32::MAX) - 1)),
            (60, u64::MAX, 100, Some(60)),
            (u32::MAX, 0, u64::MAX, None),
        ] {
            let left = lease(seconds, granted).left(now).map(|left| left.as_secs());
            assert_eq!(left, want, "{seconds} s from {granted} at {now}");
        }
    }
}
