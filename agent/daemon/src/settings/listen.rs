//! Addresses of `--listen`, and the sockets that they ask for.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6},
    str::FromStr,
};

use smol_str::SmolStr;

use super::{DEFAULT_PORT, port_name};

/// An address to listen on. The link of a link-local address has a name here, because a link that does not exist yet has no
/// index, and one that is made again gets another index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    pub ip: IpAddr,
    /// Link of an IPv6 address, by name or index (RFC 4007 section 11).
    zone: Option<SmolStr>,
    pub port: u16,
}

/// One socket to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSocket {
    pub address: ListenAddress,
    /// `IPV6_V6ONLY`: the socket takes no IPv4 connections.
    pub only_v6: bool,
}

impl ListenAddress {
    /// The address for bind(2), with the index that its link has now.
    ///
    /// # Errors
    /// When there is no such link, or a link-local address names none.
    pub fn resolve(&self) -> io::Result<SocketAddr> {
        let IpAddr::V6(ip) = self.ip else { return Ok(SocketAddr::new(self.ip, self.port)) };
        match self.link_index()? {
            None if ip.is_unicast_link_local() => {
                let advice = format!(
                    "the address is link-local: name its link, as in [{ip}%eth0]:{}",
                    self.port
                );
                Err(io::Error::new(io::ErrorKind::InvalidInput, advice))
            }
            index => Ok(SocketAddrV6::new(ip, self.port, 0, index.unwrap_or(0)).into()),
        }
    }

    /// Index of the link; `None` for an address without one.
    ///
    /// # Errors
    /// When there is no such link.
    pub fn link_index(&self) -> io::Result<Option<u32>> {
        let Some(zone) = &self.zone else { return Ok(None) };
        if let Ok(index) = zone.parse() {
            return Ok(Some(index));
        }
        let missing =
            |_| io::Error::new(io::ErrorKind::NotFound, format!("there is no link {zone}"));
        nix::net::if_::if_nametoindex(zone.as_str()).map(Some).map_err(missing)
    }

    /// True when a socket on this address takes the connections to `other`, too.
    fn covers(&self, other: &Self) -> bool {
        let same_family = self.ip.is_ipv4() == other.ip.is_ipv4();
        let is_wildcard = self.ip.is_unspecified() && self.port != 0;
        self.port == other.port && same_family && is_wildcard && !other.ip.is_unspecified()
    }
}

impl ListenSocket {
    /// Sockets for all addresses, which can be open at the same time. An address that is given twice, or that a wildcard
    /// address of its family and port covers, has no socket of its own: the kernel would refuse it (EADDRINUSE).
    ///
    /// `[::]` takes IPv4 connections as well, unless an IPv4 address with the same port is given.
    pub fn of(addresses: &[ListenAddress]) -> Vec<Self> {
        let mut sockets: Vec<Self> = Vec::new();
        for address in addresses {
            let is_covered = addresses.iter().any(|other| other.covers(address));
            let is_twice = address.port != 0 && sockets.iter().any(|it| it.address == *address);
            if is_covered || is_twice {
                continue;
            }
            let beside_v4 =
                addresses.iter().any(|other| other.ip.is_ipv4() && other.port == address.port);
            let only_v6 = address.ip.is_ipv6()
                && (!address.ip.is_unspecified() || (address.port != 0 && beside_v4));
            sockets.push(Self { address: address.clone(), only_v6 });
        }
        sockets
    }

    /// The IPv4 address that serves instead on a kernel without IPv6: `0.0.0.0` for a `[::]` that takes IPv4 as well.
    pub fn without_v6(&self) -> Option<SocketAddr> {
        let takes_both = self.address.ip == Ipv6Addr::UNSPECIFIED && !self.only_v6;
        takes_both.then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.address.port)))
    }
}

impl FromStr for ListenAddress {
    type Err = String;

    /// Parses `ADDR:PORT`, or `ADDR` alone with the default port. An IPv6 address may be in brackets, and may name a link
    /// after `%`.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || "give an IP address and a port, as in 127.0.0.1:9339 or [::]:9339".to_owned();
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, DEFAULT_PORT),
            Some((host, port)) => {
                (host, port.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or_else(wrong)?)
            }
            None => match text.parse::<SocketAddr>() {
                Ok(address) => return Ok(Self::from(address)),
                Err(_) => (text, DEFAULT_PORT),
            },
        };
        let (ip, zone) = match host.split_once('%') {
            Some((ip, zone)) => (ip, Some(SmolStr::from(port_name(zone)?))),
            None => (host, None),
        };
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let in_brackets = text.starts_with('[');
        if ip.is_ipv4() && (zone.is_some() || in_brackets) {
            return Err(wrong());
        }
        Ok(Self { ip: ip.to_canonical(), zone, port })
    }
}

impl From<SocketAddr> for ListenAddress {
    /// Takes an address without a zone.
    fn from(address: SocketAddr) -> Self {
        Self { ip: address.ip().to_canonical(), zone: None, port: address.port() }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ip, &self.zone) {
            (IpAddr::V6(ip), Some(zone)) => write!(f, "[{ip}%{zone}]:{}", self.port),
            (ip, _) => SocketAddr::new(ip, self.port).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves 1.12
    #[test]
    fn addresses_default_to_the_assigned_port() {
        for (text, want) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("127.0.0.1", "127.0.0.1:9339"),
            ("::1", "[::1]:9339"),
            ("[::1]", "[::1]:9339"),
            ("[::1]:57400", "[::1]:57400"),
            ("[fe80::1%eth0]:57400", "[fe80::1%eth0]:57400"),
            ("fe80::1%eth0.7", "[fe80::1%eth0.7]:9339"),
            ("[::ffff:192.0.2.1]:1", "192.0.2.1:1"),
        ] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), want);
        }
        for (text, want) in [
            ("box:9339", "give an IP address and a port"),
            ("[127.0.0.1]:9339", "give an IP address and a port"),
            ("127.0.0.1%lo", "give an IP address and a port"),
            ("[::1]:", "give an IP address and a port"),
            ("[::1]9339", "give an IP address and a port"),
            ("[::1]:99999", "give an IP address and a port"),
            ("[fe80::1%]:9339", "is not a port name"),
        ] {
            let error = text.parse::<ListenAddress>().unwrap_err();
            assert!(error.contains(want), "{text}: {error}");
        }
    }

    #[test]
    fn a_link_local_address_needs_its_link() {
        let resolve = |text: &str| text.parse::<ListenAddress>().unwrap().resolve();
        assert_eq!(resolve("192.0.2.1:1").unwrap(), "192.0.2.1:1".parse().unwrap());
        assert_eq!(resolve("[fe80::1%7]:1").unwrap(), "[fe80::1%7]:1".parse().unwrap());
        for (text, want) in [
            ("[fe80::1]:1", "the address is link-local: name its link, as in [fe80::1%eth0]:1"),
            ("[fe80::1%no-such]:1", "there is no link no-such"),
        ] {
            assert_eq!(resolve(text).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn sockets_can_be_open_at_the_same_time() {
        for (given, want) in [
            ("[::]:1", "[::]:1"),
            ("[::]:1 0.0.0.0:1", "[::]:1/v6 0.0.0.0:1"),
            ("0.0.0.0:1 [::]:1", "0.0.0.0:1 [::]:1/v6"),
            ("0.0.0.0:1 [::]:2", "0.0.0.0:1 [::]:2"),
            ("192.0.2.1:1 [::]:1", "192.0.2.1:1 [::]:1/v6"),
            ("192.0.2.1:1 0.0.0.0:1", "0.0.0.0:1"),
            ("[::1]:1 [fe80::1%lo]:1 [::]:1", "[::]:1"),
            ("[::1]:1 127.0.0.1:1", "[::1]:1/v6 127.0.0.1:1"),
            ("192.0.2.1:1 192.0.2.1:1 192.0.2.2:1", "192.0.2.1:1 192.0.2.2:1"),
            ("0.0.0.0:0 [::]:0 127.0.0.1:0", "0.0.0.0:0 [::]:0 127.0.0.1:0"),
        ] {
            let given: Vec<ListenAddress> =
                given.split(' ').map(|text| text.parse().unwrap()).collect();
            let text = |socket: &ListenSocket| {
                format!("{}{}", socket.address, if socket.only_v6 { "/v6" } else { "" })
            };
            let sockets: Vec<_> = ListenSocket::of(&given).iter().map(text).collect();
            assert_eq!(sockets.join(" "), want, "{given:?}");
        }
    }
}
