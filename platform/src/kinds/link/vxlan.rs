//! Ends of VXLAN tunnels.

use std::net::IpAddr;

use holdfast_scheduler::{Claim, Facet};
use netlink_packet_route::link::{InfoData, InfoVxlan};

use super::LINK;
use super::row::{
    Attribute, Constant, LinkRow, MadeLink, MtuRule, Param, ParamFault, ParamRow, ParamType,
    as_bool, as_uint, data,
};

/// IANA's UDP port for VXLAN, the default of the native model.
const IANA_PORT: u32 = 4789;
/// Bytes that a tunnel over IPv4 adds to each packet: the outer headers of IP, UDP and VXLAN, and the inner Ethernet header
/// (`VXLAN_HEADROOM`).
const OVERHEAD_OF_IPV4: u32 = 50;
/// The same over IPv6 (`VXLAN6_HEADROOM`).
const OVERHEAD_OF_IPV6: u32 = 70;

/// Ends of VXLAN tunnels.
pub static VXLAN: LinkRow = LinkRow {
    data: Some(|| InfoData::Vxlan(Vec::new())),
    params: &[
        ParamRow {
            is_mandatory: true,
            ..ParamRow::new(
                "vni",
                ParamType::Uint,
                data!(Vxlan, InfoVxlan::Id, as_uint, |vni: &u32| Param::Uint(*vni)),
            )
        },
        ParamRow {
            default: Some(Constant::Uint(IANA_PORT)),
            ..ParamRow::new(
                "port",
                ParamType::Uint,
                data!(
                    Vxlan,
                    InfoVxlan::Port,
                    |param| u16::try_from(as_uint(param)?).ok(),
                    |port: &u16| Param::Uint((*port).into())
                ),
            )
        },
        ParamRow {
            default: Some(Constant::Bool(true)),
            ..ParamRow::new(
                "learning",
                ParamType::Bool,
                data!(Vxlan, InfoVxlan::Learning, as_bool, |on: &bool| Param::Bool(*on)),
            )
        },
        ParamRow::new("local", ParamType::Ip, LOCAL),
        ParamRow::new("remote", ParamType::Ip, REMOTE),
        ParamRow::new(
            "device",
            ParamType::Link,
            data!(Vxlan, InfoVxlan::Link, as_uint, |index: &u32| Param::Uint(*index)),
        ),
    ],
    mtu: MtuRule::OfBelow(|link| match is_over_ipv6(link) {
        true => OVERHEAD_OF_IPV6,
        false => OVERHEAD_OF_IPV4,
    }),
    check,
    is_over_ipv6,
    claims: |link| vec![identity(link)],
    ..LinkRow::new("vxlan")
};

/// Source address of the outer packets.
const LOCAL: Attribute = Attribute::Data {
    put: |data, param| {
        if let InfoData::Vxlan(all) = data
            && let Param::Ip(ip) = param
        {
            all.push(match ip {
                IpAddr::V4(ip) => InfoVxlan::Local(*ip),
                IpAddr::V6(ip) => InfoVxlan::Local6(*ip),
            });
        }
    },
    take: |data| {
        let InfoData::Vxlan(all) = data else { return None };
        all.iter().find_map(|attribute| match attribute {
            InfoVxlan::Local(ip) => Some(Param::Ip(IpAddr::V4(*ip))),
            InfoVxlan::Local6(ip) => Some(Param::Ip(IpAddr::V6(*ip))),
            _ => None,
        })
    },
};

/// The other end of the tunnel, or the multicast group of all of them.
const REMOTE: Attribute = Attribute::Data {
    put: |data, param| {
        if let InfoData::Vxlan(all) = data
            && let Param::Ip(ip) = param
        {
            all.push(match ip {
                IpAddr::V4(ip) => InfoVxlan::Group(*ip),
                IpAddr::V6(ip) => InfoVxlan::Group6(*ip),
            });
        }
    },
    take: |data| {
        let InfoData::Vxlan(all) = data else { return None };
        all.iter().find_map(|attribute| match attribute {
            InfoVxlan::Group(ip) => Some(Param::Ip(IpAddr::V4(*ip))),
            InfoVxlan::Group6(ip) => Some(Param::Ip(IpAddr::V6(*ip))),
            _ => None,
        })
    },
};

fn address(link: &MadeLink, leaf: &str) -> Option<IpAddr> {
    match link.get(leaf) {
        Some(Param::Ip(ip)) => Some(*ip),
        _ => None,
    }
}

/// True when the outer packets are of IPv6. A tunnel without addresses is one of IPv4.
fn is_over_ipv6(link: &MadeLink) -> bool {
    address(link, "local").or(address(link, "remote")).is_some_and(|ip| ip.is_ipv6())
}

fn is_link_local(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn check(link: &MadeLink) -> Result<(), ParamFault> {
    let local = address(link, "local");
    let remote = address(link, "remote");
    let fault = |leaf, reason| Err(ParamFault { leaf, reason });
    if let (Some(local), Some(remote)) = (local, remote)
        && local.is_ipv4() != remote.is_ipv4()
    {
        return fault("remote", "local and remote address must be of one family");
    }
    if local.is_some_and(|local| local.is_multicast()) {
        return fault("local", "a tunnel cannot have the address of a multicast group as its own");
    }
    let has_device = link.below().is_some();
    if local.iter().chain(&remote).any(is_link_local) && !has_device {
        return fault("device", "a link-local address needs a device");
    }
    if remote.is_some_and(|remote| remote.is_multicast()) && !has_device {
        return fault("device", "a multicast group needs a device");
    }
    Ok(())
}

/// Identity of a VXLAN link in the kernel: no two have the same network identifier, port and family, and, with link-local
/// addresses, the same link below (`vxlan_config_validate()`).
fn identity(link: &MadeLink) -> Claim {
    let number = |leaf| link.get(leaf).and_then(as_uint).unwrap_or_default();
    let addresses = [address(link, "local"), address(link, "remote")];
    let on_one_link = addresses.iter().flatten().any(is_link_local);
    let below = link.below().filter(|_| on_one_link).unwrap_or_default();
    let identity = Facet::of(LINK, "vxlan").u32(number("vni")).u32(number("port"));
    Claim::alone(identity.u32(is_over_ipv6(link).into()).str(&below))
}
