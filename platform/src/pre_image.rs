//! Encoding of the original state of objects, for the database.
//!
//! Only values from [`Descriptor::restore`](holdfast_scheduler::Descriptor::restore) are stored: the attributes to
//! put back when a port, a setting or a file is given up. Rows outlive the version that wrote them, so each kind says their
//! form apart from its type of values ([`PreImageRow`](crate::kinds::row::PreImageRow)). [`value_json`](crate::value_json) follows these types, and may change with them.

use holdfast_scheduler::{Key, ObjectValue, SharedValue};
use serde::de::Error as _;

use crate::kinds::KINDS;
use crate::kinds::row::Tag;

/// The bytes cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the stored pre-image of an object")]
pub struct PreImageError(#[from] serde_json::Error);

/// Encodes a value; `None` for a kind with nothing to restore.
pub fn to_bytes(value: &dyn ObjectValue) -> Option<Vec<u8>> {
    KINDS.iter().filter_map(|row| row.pre_image).find_map(|form| (form.write)(value))
}

/// Decodes the output of [`to_bytes`].
///
/// # Errors
/// When the bytes have another form.
pub fn from_bytes(octets: &[u8]) -> Result<(Key, SharedValue), PreImageError> {
    let Tag { kind } = serde_json::from_slice(octets)?;
    let mut forms = KINDS.iter().filter_map(|row| row.pre_image);
    let form = forms.find(|form| form.tag == kind);
    let form = form.ok_or_else(|| serde_json::Error::custom(format!("no kind `{kind}`")))?;
    Ok((form.read)(octets)?)
}

#[cfg(test)]
mod tests {
    use holdfast_security::credentialz::Digest;

    use super::*;
    use crate::values::{
        Address, AddressFacts, AddressOrigin, BRIDGE, Content, ForeignRoute, Hop, Hostname,
        KernelRoute, Lacp, LacpSystem, Link, LinkFacts, LinkKind, LinkMaster, LinkMtu, LinkSetting,
        LinkSysctl, MAIN_TABLE, MacAddr, MadeLink, Neighbor, Password, Port, RouteTarget, TextFile,
    };

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
        let bridge = MadeLink::new(&BRIDGE).with("stp", true);
        let link = "eth0".into();
        let ip = [192, 0, 2, 1].into();
        let facts = Some(LinkFacts { index: 7, ..LinkFacts::default() });
        check(Link { facts, ..port.clone() });
        check(port);
        check(Link::new("br0", bridge.into()));
        for kind in ["bridge", "bond"] {
            let kind = Some(kind.into());
            let master = Some("m0".into());
            check(LinkMaster { link: "eth0".into(), master, kind, on_our_link: false });
        }
        check(LinkMaster { link: "eth0".into(), master: None, kind: None, on_our_link: false });
        check(Lacp { is_fast: true, system: None, ..Lacp::new("bond0") });
        let mac = Some(MacAddr([2, 0, 0, 0, 0, 9]));
        let system = Some(LacpSystem { mac, priority: 7 });
        check(Lacp { is_active: false, system, ..Lacp::new("bond0") });
        let mtu = LinkMtu {
            link: "vx".into(),
            mtu: Some(1400),
            device: Some("eth0".into()),
            limit: None,
            on_our_link: false,
        };
        check(mtu);
        for (sysctl, family) in LinkSysctl::of_families() {
            let values: Vec<u32> = (1..).take(sysctl.row().files.len()).collect();
            check(LinkSetting::new(sysctl, "eth0", family, &values));
        }
        check(Address::new("eth0", ip, 24));
        check(Neighbor { link, ip, mac, facts: None });
        let hop = Hop { gateway: Some(ip), link: Some("eth0".into()) };
        for target in [RouteTarget::Hops(vec![hop]), RouteTarget::Blackhole] {
            let foreign = Some(Box::new(ForeignRoute { protocol: 3, message: vec![2, 0, 255] }));
            let prefix = "0.0.0.0/0".parse().unwrap();
            let table = MAIN_TABLE;
            let metric = 20;
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
        assert!(to_bytes(&Port { link: "eth0".into(), takes_ports: None }).is_none());
        assert!(from_bytes(b"{\"kind\":\"link\"}").is_err());
    }
}
