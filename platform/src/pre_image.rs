//! Encoding of the original state of objects, for the database.
//!
//! Only values from [`Descriptor::restore`](holdfast_scheduler::Descriptor::restore) are stored: the attributes to
//! put back when a port, a setting or a file is given up. Rows outlive the version that wrote them, so their form is kept
//! apart from the types of values. [`value_json`](crate::value_json) follows these types, and may change with them.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_scheduler::{Key, ObjectValue, SharedValue};
use holdfast_security::credentialz::DigestError;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::kinds::{address, credential, link, link_setting, neighbor, route, system};
use crate::values::{
    Address, BridgeParams, Content, Family, ForeignRoute, Hop, Hostname, KernelRoute, Link,
    LinkFacts, LinkKind, LinkMaster, LinkMtu, LinkSetting, LinkSysctl, MAIN_TABLE, MacAddr,
    Neighbor, Password, RouteTarget, TextFile,
};

/// The octets cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("cannot read what an object was before us")]
pub struct PreImageError(#[source] Box<dyn std::error::Error + Send + Sync>);

/// Row format. Fields are only ever added, with a default.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum PreImageRow {
    Link {
        name: String,
        enabled: bool,
        description: Option<String>,
        mtu: Option<u32>,
        mac: Option<String>,
        bridge: Option<BridgeRow>,
        /// `ifindex`, which differs for another device of the same name.
        #[serde(default)]
        index: Option<u32>,
        /// `disable_ipv6`, inverted.
        #[serde(default)]
        ipv6_enabled: Option<bool>,
    },
    Master {
        link: String,
        master: Option<String>,
    },
    Mtu {
        link: String,
        mtu: Option<u32>,
        /// Link below a tunnel.
        device: Option<String>,
    },
    Forwarding {
        link: String,
        ipv6: bool,
        enabled: bool,
    },
    IgnoreLinkdown {
        link: String,
        ipv6: bool,
        enabled: bool,
    },
    Address {
        link: String,
        ip: IpAddr,
        prefix_len: u8,
    },
    Neighbor {
        link: String,
        ip: IpAddr,
        mac: Option<String>,
    },
    /// A route of another program that ours took the place of.
    Route {
        prefix: IpNet,
        /// Metric of ours; that of the other route is in `message`.
        metric: u32,
        /// Next hops; `None` for a route that drops packets.
        hops: Option<Vec<HopRow>>,
        /// `rtm_protocol`.
        protocol: u8,
        /// `RTM_NEWROUTE` as the kernel showed it.
        message: Vec<u8>,
    },
    Hostname {
        name: String,
    },
    Password {
        account: String,
        /// Digest of the hash, in hexadecimal digits. The hash itself is in the vault.
        digest: String,
    },
    File {
        path: String,
        whole: Option<String>,
        block: Option<String>,
        /// Target of the symbolic link that the file replaced.
        #[serde(default)]
        link: Option<String>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct BridgeRow {
    stp: bool,
    vlan_filtering: bool,
    ageing_time_s: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct HopRow {
    gateway: Option<IpAddr>,
    link: Option<String>,
}

/// A setting of a link as a value.
fn setting(sysctl: LinkSysctl, link: String, ipv6: bool, enabled: bool) -> (Key, SharedValue) {
    let family = if ipv6 { Family::V6 } else { Family::V4 };
    let link = link.into();
    let part = LinkSetting { sysctl, link, family, enabled, on_our_link: false };
    (link_setting::key(sysctl, &part.link, family), Arc::new(part))
}

/// Encodes a value; `None` for a kind with nothing to restore.
pub fn to_bytes(value: &dyn ObjectValue) -> Option<Vec<u8>> {
    let row = row(value)?;
    Some(serde_json::to_vec(&row).expect("the rows have no maps and no foreign types"))
}

/// Decodes the output of [`to_bytes`].
///
/// # Errors
/// When the octets have another form.
pub fn from_bytes(octets: &[u8]) -> Result<(Key, SharedValue), PreImageError> {
    let row: PreImageRow =
        serde_json::from_slice(octets).map_err(|error| PreImageError(error.into()))?;
    value(row)
}

fn row(value: &dyn ObjectValue) -> Option<PreImageRow> {
    let any = value.as_any();
    let mac = |mac: Option<MacAddr>| mac.map(|mac| mac.to_string());
    if let Some(it) = any.downcast_ref::<Link>() {
        let bridge = match &it.kind {
            LinkKind::Bridge(params) => Some(BridgeRow {
                stp: params.stp,
                vlan_filtering: params.vlan_filtering,
                ageing_time_s: params.ageing_time_s,
            }),
            _ => None,
        };
        return Some(PreImageRow::Link {
            name: it.name.to_string(),
            enabled: it.enabled,
            description: it.description.as_ref().map(ToString::to_string),
            mtu: it.mtu,
            mac: mac(it.mac),
            bridge,
            index: it.facts.as_ref().map(|facts| facts.index),
            ipv6_enabled: it.ipv6_enabled,
        });
    }
    if let Some(it) = any.downcast_ref::<LinkMaster>() {
        let master = it.master.as_ref().map(ToString::to_string);
        return Some(PreImageRow::Master { link: it.link.to_string(), master });
    }
    if let Some(it) = any.downcast_ref::<LinkMtu>() {
        let device = it.device.as_ref().map(ToString::to_string);
        return Some(PreImageRow::Mtu { link: it.link.to_string(), mtu: it.mtu, device });
    }
    if let Some(it) = any.downcast_ref::<LinkSetting>() {
        let (link, ipv6, enabled) = (it.link.to_string(), it.family == Family::V6, it.enabled);
        return Some(match it.sysctl {
            LinkSysctl::Forwarding => PreImageRow::Forwarding { link, ipv6, enabled },
            LinkSysctl::IgnoreRoutesWithLinkdown => {
                PreImageRow::IgnoreLinkdown { link, ipv6, enabled }
            }
        });
    }
    if let Some(it) = any.downcast_ref::<Address>() {
        let link = it.link.to_string();
        return Some(PreImageRow::Address { link, ip: it.ip, prefix_len: it.prefix_len });
    }
    if let Some(it) = any.downcast_ref::<Neighbor>() {
        return Some(PreImageRow::Neighbor {
            link: it.link.to_string(),
            ip: it.ip,
            mac: mac(it.mac),
        });
    }
    if let Some(it) = any.downcast_ref::<KernelRoute>() {
        let foreign = it.foreign.as_ref()?;
        let hop = |hop: &Hop| HopRow {
            gateway: hop.gateway,
            link: hop.link.as_ref().map(ToString::to_string),
        };
        let hops = match &it.target {
            RouteTarget::Hops(hops) => Some(hops.iter().map(hop).collect()),
            RouteTarget::Blackhole => None,
        };
        return Some(PreImageRow::Route {
            prefix: it.prefix,
            metric: it.metric,
            hops,
            protocol: foreign.protocol,
            message: foreign.message.clone(),
        });
    }
    if let Some(it) = any.downcast_ref::<Hostname>() {
        return Some(PreImageRow::Hostname { name: it.name.to_string() });
    }
    if let Some(it) = any.downcast_ref::<Password>() {
        let digest = it.digest.to_string();
        return Some(PreImageRow::Password { account: it.account.to_string(), digest });
    }
    let it = any.downcast_ref::<TextFile>()?;
    let (whole, block, link) = match &it.content {
        Content::Whole(text) => (Some(text.clone()), None, None),
        Content::Block(text) => (None, Some(text.clone()), None),
        Content::OwnHost { domain, host } => {
            (None, host.as_ref().map(|host| system::hosts_block(host, domain)), None)
        }
        Content::Absent => (None, None, None),
        Content::Link { target, text } => (Some(text.clone()), None, Some(target.clone())),
    };
    Some(PreImageRow::File { path: it.path.to_string(), whole, block, link })
}

fn value(row: PreImageRow) -> Result<(Key, SharedValue), PreImageError> {
    let mac = |text: Option<String>| {
        text.map(|text| text.parse::<MacAddr>()).transpose().map_err(|e| PreImageError(e.into()))
    };
    Ok(match row {
        PreImageRow::Link {
            name,
            enabled,
            description,
            mtu,
            mac: text,
            bridge,
            index,
            ipv6_enabled,
        } => {
            // Only attributes are restored, so the parameters of other kinds do not matter.
            let kind = bridge.map_or(LinkKind::Physical, |bridge| {
                LinkKind::Bridge(BridgeParams {
                    stp: bridge.stp,
                    vlan_filtering: bridge.vlan_filtering,
                    ageing_time_s: bridge.ageing_time_s,
                })
            });
            let description = description.map(Into::into);
            let facts = index.map(|index| LinkFacts { index, ..LinkFacts::default() });
            let mac = mac(text)?;
            let new = Link::new(name, kind);
            let link = Link { enabled, description, mtu, mac, ipv6_enabled, facts, ..new };
            (link::key(&link.name), Arc::new(link))
        }
        PreImageRow::Master { link, master } => {
            let master = master.map(Into::into);
            let part = LinkMaster { link: link.into(), master, on_our_link: false };
            (link::master_key(&part.link), Arc::new(part))
        }
        PreImageRow::Mtu { link, mtu, device } => {
            let device = device.map(Into::into);
            let link = link.into();
            let part = LinkMtu { link, mtu, device, limit: None, on_our_link: false };
            (link::mtu_key(&part.link), Arc::new(part))
        }
        PreImageRow::Forwarding { link, ipv6, enabled } => {
            setting(LinkSysctl::Forwarding, link, ipv6, enabled)
        }
        PreImageRow::IgnoreLinkdown { link, ipv6, enabled } => {
            setting(LinkSysctl::IgnoreRoutesWithLinkdown, link, ipv6, enabled)
        }
        PreImageRow::Address { link, ip, prefix_len } => {
            let address = Address::new(link, ip, prefix_len);
            (address::key(&address.link, ip), Arc::new(address))
        }
        PreImageRow::Neighbor { link, ip, mac: text } => {
            let neighbor = Neighbor { link: link.into(), ip, mac: mac(text)?, facts: None };
            (neighbor::key(&neighbor.link, ip), Arc::new(neighbor))
        }
        PreImageRow::Route { prefix, metric, hops, protocol, message } => {
            let hop = |row: HopRow| Hop { gateway: row.gateway, link: row.link.map(Into::into) };
            let target = hops.map_or(RouteTarget::Blackhole, |hops| {
                RouteTarget::Hops(hops.into_iter().map(hop).collect())
            });
            let foreign = Some(Box::new(ForeignRoute { protocol, message }));
            let table = MAIN_TABLE;
            let route = KernelRoute { foreign, ..KernelRoute::new(table, prefix, metric, target) };
            (route::key(table, prefix, metric), Arc::new(route))
        }
        PreImageRow::Hostname { name } => {
            (system::hostname_key(), Arc::new(Hostname { name: name.into() }))
        }
        PreImageRow::Password { account, digest } => {
            let digest =
                digest.parse().map_err(|error: DigestError| PreImageError(error.into()))?;
            let password = Password { account: account.into(), digest };
            (credential::password_key(&password.account), Arc::new(password))
        }
        PreImageRow::File { path, whole, block, link } => {
            let content = match (whole, block, link) {
                (text, _, Some(target)) => Content::Link { target, text: text.unwrap_or_default() },
                (Some(text), ..) => Content::Whole(text),
                (None, Some(text), _) => Content::Block(text),
                (None, None, None) => Content::Absent,
            };
            let key = system::file_key(&path);
            (key, Arc::new(TextFile { path: path.into(), content }))
        }
    })
}

#[cfg(test)]
mod tests {
    use holdfast_security::credentialz::Digest;

    use super::*;
    use crate::values::{AddressFacts, AddressOrigin, Port};

    #[test]
    fn stored_values_round_trip() {
        let mac = Some(MacAddr([2, 0, 0, 0, 0, 1]));
        let port = Link {
            enabled: false,
            mtu: Some(1500),
            mac,
            description: Some("\"quoted\"".into()),
            ..Link::new("eth0", LinkKind::Physical)
        };
        let bridge = BridgeParams { stp: true, ..BridgeParams::default() };
        let (link, ip) = ("eth0".into(), [192, 0, 2, 1].into());
        let facts = Some(LinkFacts { index: 7, ..LinkFacts::default() });
        check(Link { facts, ..port.clone() });
        check(port);
        check(Link::new("br0", LinkKind::Bridge(bridge)));
        check(LinkMaster { link: "eth0".into(), master: Some("br0".into()), on_our_link: false });
        let mtu = LinkMtu {
            link: "vx".into(),
            mtu: Some(1400),
            device: Some("eth0".into()),
            limit: None,
            on_our_link: false,
        };
        check(mtu);
        let family = Family::V6;
        for sysctl in LinkSysctl::ALL {
            let (link, on_our_link) = ("eth0".into(), false);
            check(LinkSetting { sysctl, link, family, enabled: true, on_our_link });
        }
        check(Address::new("eth0", ip, 24));
        check(Neighbor { link, ip, mac, facts: None });
        let hop = Hop { gateway: Some(ip), link: Some("eth0".into()) };
        for target in [RouteTarget::Hops(vec![hop]), RouteTarget::Blackhole] {
            let foreign = Some(Box::new(ForeignRoute { protocol: 3, message: vec![2, 0, 255] }));
            let prefix = "0.0.0.0/0".parse().unwrap();
            let (table, metric) = (MAIN_TABLE, 20);
            check(KernelRoute { foreign, ..KernelRoute::new(table, prefix, metric, target) });
        }
        check(Hostname { name: "box".into() });
        check(Password { account: "alice".into(), digest: Digest::of(b"hash") });
        let link = Content::Link { target: "../run/motd".into(), text: "t".into() };
        let whole = Content::Whole("a\n".into());
        for content in [whole, Content::Block("b".into()), Content::Absent, link] {
            check(TextFile { path: "etc/motd".into(), content });
        }
    }

    /// Rows as earlier versions have written them. A row that fails means that a database cannot be read any more: add
    /// fields with a default, and leave these lines as they are.
    #[test]
    fn rows_of_earlier_versions_are_read() {
        for row in [
            r#"{"kind":"link","name":"eth0","enabled":false,"description":"up","mtu":1500,"mac":"02:00:00:00:00:01","bridge":null}"#,
            r#"{"kind":"link","name":"eth0","enabled":true,"description":null,"mtu":null,"mac":null,"bridge":null,"index":7,"ipv6_enabled":true}"#,
            r#"{"kind":"link","name":"br0","enabled":true,"description":null,"mtu":null,"mac":null,"bridge":{"stp":true,"vlan_filtering":false,"ageing_time_s":300},"index":null,"ipv6_enabled":null}"#,
            r#"{"kind":"master","link":"eth0","master":"br0"}"#,
            r#"{"kind":"forwarding","link":"eth0","ipv6":true,"enabled":true}"#,
            r#"{"kind":"address","link":"eth0","ip":"192.0.2.1","prefix_len":24}"#,
            r#"{"kind":"neighbor","link":"eth0","ip":"192.0.2.1","mac":"02:00:00:00:00:01"}"#,
            r#"{"kind":"route","prefix":"0.0.0.0/0","metric":20,"hops":[{"gateway":"192.0.2.1","link":"eth0"}],"protocol":3,"message":[2,0,255]}"#,
            r#"{"kind":"hostname","name":"box"}"#,
            r#"{"kind":"password","account":"alice","digest":"d04b98f48e8f8bcc15c6ae5ac050801cd6dcfd428fb5f9e65c4e16e7807340fa"}"#,
            r#"{"kind":"file","path":"etc/motd","whole":"a","block":null}"#,
            r#"{"kind":"file","path":"etc/motd","whole":"a","block":null,"link":"../run/motd"}"#,
        ] {
            let (_, value) = from_bytes(row.as_bytes()).unwrap_or_else(|error| {
                panic!("{row}: {error:?}");
            });
            let written = String::from_utf8(to_bytes(&*value).unwrap()).unwrap();
            let [before, now] = [row, &written].map(|text| {
                serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).unwrap()
            });
            for (field, value) in before {
                assert_eq!(now.get(&field), Some(&value), "{field} of {written}");
            }
        }
    }

    #[track_caller]
    fn check(value: impl ObjectValue) {
        let octets = to_bytes(&value).unwrap();
        let (key, read) = from_bytes(&octets).unwrap();
        assert!(value.same(&*read), "{value:?} {read:?}");
        let registry = crate::kinds::registry();
        assert_eq!(key, registry.descriptor(key.kind()).unwrap().key(&*read));
    }

    #[test]
    fn observed_facts_are_not_stored() {
        let facts = Some(AddressFacts { ours: false, origin: AddressOrigin::Static, status: None });
        let ip = [192, 0, 2, 1].into();
        let observed = Address { facts, ..Address::new("eth0", ip, 24) };
        let (_, read) = from_bytes(&to_bytes(&observed).unwrap()).unwrap();
        assert!(read.same(&Address { facts: None, ..observed }));
        assert!(to_bytes(&Port { link: "eth0".into() }).is_none());
        assert!(from_bytes(b"{\"kind\":\"link\"}").is_err());
    }
}
