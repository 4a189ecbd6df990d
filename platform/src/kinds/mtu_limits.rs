//! MTUs that links allow to others: to a tunnel the link below it, to a bridge its ports.

use std::collections::{BTreeSet, HashMap};

use super::link::{Link, LinkMtu, MadeLink};
use smol_str::SmolStr;

/// MTU of a bridge without ports, bytes of layer 3 (`ETH_DATA_LEN`).
const BRIDGE_WITHOUT_PORTS: u32 = 1500;
/// Smallest MTU of a tunnel, however small the link below it is, bytes of layer 3 (`ETH_MIN_MTU`).
const LEAST_OF_TUNNEL: u32 = 68;

/// MTUs of the links of one namespace, with the links that follow them. A change costs as much as there are links that
/// follow the changed one.
#[derive(Clone, Debug, Default)]
pub(crate) struct MtuLimits {
    links: HashMap<u32, Entry>,
    by_name: HashMap<SmolStr, u32>,
    /// Tunnels by the link below.
    tunnels: BTreeSet<(SmolStr, u32)>,
    /// Ports by their bridge, those of the smallest MTU first.
    ports: BTreeSet<(SmolStr, u32, u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    name: SmolStr,
    mtu: u32,
    master: Option<SmolStr>,
    /// The part of a link that follows others, as it was observed.
    part: Option<LinkMtu>,
    /// Bytes that a tunnel adds.
    overhead: u32,
}

impl MtuLimits {
    /// Records a link that the kernel showed. Returns its own part, and those of the links that follow it where their limit is
    /// another one than before.
    pub(crate) fn observe(&mut self, index: u32, link: &Link) -> Vec<LinkMtu> {
        let Some(mtu) = link.mtu else { return Vec::new() };
        let overhead = link.kind.made().map_or(0, MadeLink::overhead);
        let name = link.name.clone();
        let master = link.master.clone();
        let entry = Entry { name, mtu, master, part: link.limited_mtu(), overhead };
        let before = self.links.get(&index).cloned();
        let mut followers = BTreeSet::new();
        if before.as_ref() != Some(&entry) {
            followers.extend(before.iter().flat_map(|before| self.followers(before)));
            self.remove_entry(index);
            self.insert(index, entry);
            followers.extend(self.links.get(&index).into_iter().flat_map(|it| self.followers(it)));
        }
        followers.insert(index);
        self.parts(followers)
    }

    /// Records that a link is gone. Returns the parts of the links that followed it.
    pub(crate) fn forget(&mut self, index: u32) -> Vec<LinkMtu> {
        let Some(entry) = self.remove_entry(index) else { return Vec::new() };
        let followers = self.followers(&entry).collect();
        self.parts(followers)
    }

    /// MTU of the link of this name.
    pub(crate) fn mtu(&self, name: &str) -> Option<u32> {
        self.links.get(self.by_name.get(name)?).map(|entry| entry.mtu)
    }

    /// True for a link that follows others; `None` for one that the kernel has not shown.
    pub(crate) fn is_follower(&self, index: u32) -> Option<bool> {
        Some(self.links.get(&index)?.part.is_some())
    }

    /// MTU that the other links allow to the link of a part.
    pub(crate) fn limit(&self, part: &LinkMtu) -> Option<u32> {
        match &part.device {
            Some(device) => {
                let overhead = self.links.get(self.by_name.get(&part.link)?)?.overhead;
                Some(self.mtu(device)?.saturating_sub(overhead).max(LEAST_OF_TUNNEL))
            }
            None => {
                let ports = self.ports.range((part.link.clone(), 0, 0)..);
                let mut ports = ports.take_while(|(bridge, ..)| *bridge == part.link);
                Some(ports.next().map_or(BRIDGE_WITHOUT_PORTS, |(_, mtu, _)| *mtu))
            }
        }
    }

    /// Links that follow another one: its bridge, and the tunnels on it.
    fn followers<'e>(&'e self, entry: &'e Entry) -> impl Iterator<Item = u32> + 'e {
        let bridge = entry.master.as_ref().and_then(|master| self.by_name.get(master)).copied();
        let tunnels = self.tunnels.range((entry.name.clone(), 0)..);
        let tunnels = tunnels.take_while(|(device, _)| *device == entry.name);
        bridge.into_iter().chain(tunnels.map(|(_, index)| *index))
    }

    fn parts(&self, indices: BTreeSet<u32>) -> Vec<LinkMtu> {
        let parts = indices.iter().filter_map(|index| self.links.get(index)?.part.clone());
        parts.map(|part| LinkMtu { limit: self.limit(&part), ..part }).collect()
    }

    fn insert(&mut self, index: u32, entry: Entry) {
        self.by_name.insert(entry.name.clone(), index);
        let device = entry.part.as_ref().and_then(|part| part.device.clone());
        self.tunnels.extend(device.map(|device| (device, index)));
        let port = entry.master.clone().map(|bridge| (bridge, entry.mtu, index));
        self.ports.extend(port);
        self.links.insert(index, entry);
    }

    fn remove_entry(&mut self, index: u32) -> Option<Entry> {
        let entry = self.links.remove(&index)?;
        if self.by_name.get(&entry.name) == Some(&index) {
            self.by_name.remove(&entry.name);
        }
        if let Some(device) = entry.part.as_ref().and_then(|part| part.device.clone()) {
            self.tunnels.remove(&(device, index));
        }
        if let Some(bridge) = entry.master.clone() {
            self.ports.remove(&(bridge, entry.mtu, index));
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::values::{BRIDGE, LinkKind, VXLAN};

    fn link(name: &str, kind: LinkKind, mtu: u32, master: Option<&str>) -> Link {
        Link { mtu: Some(mtu), master: master.map(Into::into), ..Link::new(name, kind) }
    }

    #[test]
    fn links_that_follow_a_changed_one_have_another_limit() {
        let mut mtus = MtuLimits::default();
        let bridge = || LinkKind::from(&BRIDGE);
        let tunnel = |local: &str| {
            let tunnel = MadeLink::new(&VXLAN).with("vni", 7).with("device", "eth0");
            let local: Option<IpAddr> = local.parse().ok();
            local.map_or(tunnel.clone(), |local| tunnel.with("local", local)).into()
        };
        let mut check = |index, link: Option<Link>, want: &str| {
            let parts = match &link {
                Some(link) => mtus.observe(index, link),
                None => mtus.forget(index),
            };
            let text = |part: &LinkMtu| {
                format!("{} {}", part.link, part.limit.map_or("?".into(), |it| it.to_string()))
            };
            let parts: Vec<String> = parts.iter().map(text).collect();
            assert_eq!(parts.join(", "), want, "{link:?}");
        };
        let port = |name, mtu, master| Some(link(name, LinkKind::Physical, mtu, master));
        check(1, Some(link("br0", bridge(), 1500, None)), "br0 1500");
        check(3, Some(link("vx4", tunnel(""), 1450, None)), "vx4 ?");
        check(2, port("eth0", 1500, None), "vx4 1450");
        check(4, Some(link("vx6", tunnel("2001:db8::1"), 1430, None)), "vx6 1430");
        check(2, port("eth0", 1500, None), "");
        check(2, port("eth0", 1400, Some("br0")), "br0 1400, vx4 1350, vx6 1330");
        check(5, port("eth1", 1300, Some("br0")), "br0 1300");
        check(5, port("eth1", 9000, Some("br0")), "br0 1400");
        check(2, port("eth0", 100, None), "br0 9000, vx4 68, vx6 68");
        check(5, None, "br0 1500");
        check(3, None, "");
    }
}
