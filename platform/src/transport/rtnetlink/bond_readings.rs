//! State of bonds that is read when somebody asks: LACPDUs and numbers of the members, and speeds.
//!
//! The kernel announces none of them. The counters come from `RTM_GETSTATS`, the speed of a bond from ethtool, and the
//! numbers of ports from `/proc/net/bonding`, which alone has them, for readers with `CAP_NET_ADMIN`.

use std::fs;
use std::io;
use std::path::PathBuf;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use smol_str::SmolStr;
use tracing::debug;

use super::Task;
use super::frame::{Frame, HEADER_LEN, attributes};
use super::query::{Listing, QueryError, QuerySocket};
use super::window::put_header;

/// Folder with a file for each bond, in the network namespace of the calling thread.
const PROC_BONDING: &str = "/proc/thread-self/net/bonding";

const RTM_GETSTATS: u16 = 94;
/// `struct if_stats_msg`: family u8, padding, index of the link u32, mask of the wanted statistics u32.
const STATS_HEADER_LEN: usize = 12;
/// Statistics that the master of a link has of the link.
const IFLA_STATS_LINK_XSTATS_SLAVE: u16 = 3;
const LINK_XSTATS_TYPE_BOND: u16 = 2;
const BOND_XSTATS_3AD: u16 = 1;
const BOND_3AD_STAT_LACPDU_RX: u16 = 0;
const BOND_3AD_STAT_LACPDU_TX: u16 = 1;
const BOND_3AD_STAT_LACPDU_UNKNOWN_RX: u16 = 2;
const BOND_3AD_STAT_LACPDU_ILLEGAL_RX: u16 = 3;

/// A member of a bond with LACP: what the kernel counts, and how both ends number their ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LacpPort {
    /// The bond.
    pub bond: SmolStr,
    /// The member.
    pub link: SmolStr,
    /// Counters since the link became a member.
    pub counters: LacpduCounters,
    /// Numbers of this end; `None` where the kernel does not show them.
    pub own: Option<PortNumber>,
    /// Numbers of the other end; `None` also while nobody answers.
    pub partner: Option<PortNumber>,
}

/// LACPDUs of a member. The kernel has no counters of LACPDUs that it could not send, or that came in broken frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LacpduCounters {
    /// Received.
    pub received: Option<u64>,
    /// Sent.
    pub sent: Option<u64>,
    /// Received, of a subtype that is unknown.
    pub unknown: Option<u64>,
    /// Received, and too short.
    pub illegal: Option<u64>,
}

/// How one end of a member names its port in LACPDUs (IEEE 802.1AX-2020, 6.3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PortNumber {
    /// Number of the port in its box.
    pub number: u16,
    /// The port with the lower one is used first.
    pub priority: u16,
}

/// How fast a bond sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LagSpeed {
    /// The bond.
    pub bond: SmolStr,
    /// Sum of the speeds of the members that the bond sends through, Mbit/s.
    pub mbps: u32,
}

/// The ports of one member, as the file of its bond has them.
#[derive(Debug, Default, PartialEq, Eq)]
struct PortPair {
    own: Option<PortNumber>,
    partner: Option<PortNumber>,
}

impl Task {
    /// Counters and numbers of all members of bonds with LACP.
    pub(super) fn lacp_ports(&mut self) -> Vec<LacpPort> {
        let Self { queries, buffer, links, .. } = self;
        let mut ports = Vec::new();
        for (bond, members) in links.bonds().with_lacp() {
            let text = file_of(&bond).unwrap_or_else(|error| {
                debug!(%bond, %error, "the numbers of ports cannot be read");
                String::new()
            });
            for link in members {
                let Some(index) = links.index(&link) else { continue };
                match counters(queries, buffer, index) {
                    Ok(counters) => {
                        let PortPair { own, partner } = port_pair(&text, &link);
                        ports.push(LacpPort { bond: bond.clone(), link, counters, own, partner });
                    }
                    Err(error) => debug!(%link, %error, "the LACPDUs of a link cannot be read"),
                }
            }
        }
        ports
    }

    /// Speeds of all bonds that send through some member with a speed. The kernel adds the speeds of the members that it
    /// sends through (`bond_ethtool_get_link_ksettings()`).
    pub(super) fn lag_speeds(&mut self) -> Vec<LagSpeed> {
        let Self { ethtool, buffer, links, .. } = self;
        let Some(ethtool) = ethtool else { return Vec::new() };
        let bonds: Vec<SmolStr> = links.bonds().names().cloned().collect();
        let speed = |bond: SmolStr| {
            let settings = ethtool.link(links.index(&bond)?, buffer)?;
            Some(LagSpeed { bond, mbps: settings.speed_mbps? })
        };
        bonds.into_iter().filter_map(speed).collect()
    }
}

/// The LACPDUs that a member has sent and received.
fn counters(
    queries: &mut QuerySocket,
    buffer: &mut [u8],
    index: u32,
) -> Result<LacpduCounters, QueryError> {
    let mut found = LacpduCounters::default();
    let mut each = |listing: Listing<'_>| {
        if let Listing::Object(frame) = listing {
            found = counters_of(&frame);
        }
    };
    queries.query(buffer, &mut each, |octets, sequence| {
        let length = HEADER_LEN + STATS_HEADER_LEN;
        put_header(octets, length, RTM_GETSTATS, NLM_F_REQUEST | NLM_F_ACK, sequence);
        let wanted = 1u32 << (IFLA_STATS_LINK_XSTATS_SLAVE - 1); // IFLA_STATS_FILTER_BIT
        octets.extend([0; 4]);
        octets.extend(index.to_ne_bytes());
        octets.extend(wanted.to_ne_bytes());
    })?;
    Ok(found)
}

/// The counters in an answer. A kernel that lacks one leaves its attribute out.
fn counters_of(frame: &Frame<'_>) -> LacpduCounters {
    let mut octets = frame.payload.get(STATS_HEADER_LEN..).unwrap_or_default();
    for nested in [IFLA_STATS_LINK_XSTATS_SLAVE, LINK_XSTATS_TYPE_BOND, BOND_XSTATS_3AD] {
        let inner = attributes(octets).find(|(kind, _)| *kind == nested);
        octets = inner.map_or(&[], |(_, value)| value);
    }
    let counter = |wanted: u16| {
        let (_, value) = attributes(octets).find(|(kind, _)| *kind == wanted)?;
        value.try_into().ok().map(u64::from_ne_bytes)
    };
    LacpduCounters {
        received: counter(BOND_3AD_STAT_LACPDU_RX),
        sent: counter(BOND_3AD_STAT_LACPDU_TX),
        unknown: counter(BOND_3AD_STAT_LACPDU_UNKNOWN_RX),
        illegal: counter(BOND_3AD_STAT_LACPDU_ILLEGAL_RX),
    }
}

/// The file of a bond. The name of a link has no slash, and is neither `.` nor `..`.
fn file_of(bond: &str) -> io::Result<String> {
    fs::read_to_string([PROC_BONDING, bond].iter().collect::<PathBuf>())
}

/// The ports of a member in the file of its bond (`bond_info_show_slave()`):
///
/// ```text
/// Slave Interface: eth1
/// details actor lacp pdu:
///     port priority: 255
///     port number: 1
/// details partner lacp pdu:
///     system mac address: 02:00:00:00:00:09
///     port priority: 255
///     port number: 2
/// ```
fn port_pair(text: &str, link: &str) -> PortPair {
    let section = text.lines().skip_while(|line| member_line(line) != Some(link)).skip(1);
    let section: Vec<&str> = section.take_while(|line| member_line(line).is_none()).collect();
    let details = |of: &str| {
        let heading = format!("details {of} lacp pdu:");
        let lines = section.iter().skip_while(move |line| **line != heading).skip(1);
        lines.take_while(|line| line.starts_with(' ')).filter_map(|line| line.split_once(": "))
    };
    let field = |of: &str, name: &str| {
        details(of).find_map(|(label, value)| (label.trim() == name).then(|| value.trim()))
    };
    let port = |of: &str| {
        let number = |name: &str| field(of, name)?.parse().ok();
        Some(PortNumber { number: number("port number")?, priority: number("port priority")? })
    };
    // A port that nobody has answered has made up the numbers of the other end.
    let answers = field("partner", "system mac address")
        .is_some_and(|mac| mac.chars().any(|digit| !matches!(digit, '0' | ':')));
    PortPair { own: port("actor"), partner: port("partner").filter(|_| answers) }
}

fn member_line(line: &str) -> Option<&str> {
    line.strip_prefix("Slave Interface: ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::rtnetlink::frame::{ATTRIBUTE_HEADER_LEN, aligned};

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let length = u16::try_from(ATTRIBUTE_HEADER_LEN + value.len()).unwrap();
        let mut octets = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        octets.extend(value);
        octets.resize(aligned(octets.len()), 0);
        octets
    }

    #[test]
    fn counters_are_those_that_the_kernel_sends() {
        let counter = |kind, count: u64| attribute(kind, &count.to_ne_bytes());
        let check = |inner: Vec<u8>, want: LacpduCounters| {
            let of_bond = attribute(LINK_XSTATS_TYPE_BOND, &attribute(BOND_XSTATS_3AD, &inner));
            let other = attribute(1, &[0; 8]);
            let nested = attribute(IFLA_STATS_LINK_XSTATS_SLAVE, &[other, of_bond].concat());
            let payload = [vec![0; STATS_HEADER_LEN], nested].concat();
            for length in 0..payload.len() {
                let payload = &payload[..length];
                counters_of(&Frame { kind: 92, flags: 0, sequence: 1, payload });
            }
            let frame = Frame { kind: 92, flags: 0, sequence: 1, payload: &payload };
            assert_eq!(counters_of(&frame), want);
        };
        let padding = attribute(9, &[]);
        let marker = counter(4, 99);
        let all = [counter(0, 7), padding, counter(1, 8), counter(2, 1), counter(3, 2), marker];
        let want =
            LacpduCounters { received: Some(7), sent: Some(8), unknown: Some(1), illegal: Some(2) };
        check(all.concat(), want);
        let received = LacpduCounters { received: Some(u64::MAX), ..LacpduCounters::default() };
        check(counter(0, u64::MAX), received);
        check(attribute(0, &[1, 2]), LacpduCounters::default());
        check(Vec::new(), LacpduCounters::default());
    }

    /// The file of a bond of kernel 6.1 with two members; the other end of the second one is silent.
    const FILE: &str = "\
Ethernet Channel Bonding Driver: v6.1.176

Bonding Mode: IEEE 802.3ad Dynamic link aggregation
Transmit Hash Policy: layer2 (0)
MII Status: up

802.3ad info
LACP active: on
LACP rate: fast
System priority: 65535
System MAC address: 02:00:00:00:00:01
Active Aggregator Info:
\tAggregator ID: 1
\tPartner Mac Address: 02:00:00:00:00:09

Slave Interface: eth1
MII Status: up
Aggregator ID: 1
details actor lacp pdu:
    system priority: 65535
    system mac address: 02:00:00:00:00:01
    port key: 15
    port priority: 255
    port number: 1
    port state: 63
details partner lacp pdu:
    system priority: 65535
    system mac address: 02:00:00:00:00:09
    oper key: 15
    port priority: 200
    port number: 12
    port state: 63

Slave Interface: eth10
MII Status: up
Aggregator ID: 2
details actor lacp pdu:
    system priority: 65535
    system mac address: 02:00:00:00:00:01
    port key: 15
    port priority: 255
    port number: 2
    port state: 69
details partner lacp pdu:
    system priority: 65535
    system mac address: 00:00:00:00:00:00
    oper key: 1
    port priority: 255
    port number: 1
    port state: 1
";

    #[test]
    fn numbers_of_ports_are_those_of_the_member() {
        let port = |number, priority| Some(PortNumber { number, priority });
        let check = |text: &str, link: &str, own, partner| {
            assert_eq!(port_pair(text, link), PortPair { own, partner }, "{link} in {text}");
        };
        check(FILE, "eth1", port(1, 255), port(12, 200));
        check(FILE, "eth10", port(2, 255), None);
        check(FILE, "eth2", None, None);
        // A reader without CAP_NET_ADMIN gets no details.
        let bare: Vec<&str> = FILE.lines().filter(|line| !line.starts_with("    ")).collect();
        check(&bare.join("\n"), "eth1", None, None);
        check(&FILE.replace("port number: 1\n", "port number: x\n"), "eth1", None, port(12, 200));
        check(&FILE.replace("port number: 12", "port number: 65536"), "eth1", port(1, 255), None);
        check("", "eth1", None, None);
        for length in 0..FILE.len() {
            port_pair(&FILE[..length], "eth10");
        }
    }
}
