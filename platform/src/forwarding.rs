//! The forwarding table: the next hops that the kernel uses for each prefix, whichever program made the route.
//!
//! It is made while the kernel lists its routes ([`RouteTable::forwarding`](crate::RouteTable::forwarding)): no list of
//! routes is kept beside it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;

use ipnet::IpNet;
use smol_str::SmolStr;

use crate::listed_route::{HopFault, ListedHop, ListedRoute};

/// Number of the table that the kernel forwards by (`RT_TABLE_MAIN`).
const MAIN_TABLE: u32 = 254;
/// Prefixes of one family in a table; those beyond are counted. A table takes some 0.3 kB for each while it is read by a
/// client, and a box with the routes of its whole site has some ten thousand.
const MOST_PREFIXES: usize = 250_000;

/// Where the kernel sends packets, by its main table.
#[derive(Clone, Debug, Default)]
pub struct ForwardingTable {
    /// Ascending by family and prefix.
    pub entries: Vec<ForwardingEntry>,
    /// Ascending by id.
    pub groups: Vec<HopGroup>,
    /// Ascending by index.
    pub hops: Vec<NextHop>,
    /// How many prefixes there are beyond these.
    pub omitted: usize,
}

/// The best route to a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardingEntry {
    /// Destination.
    pub prefix: IpNet,
    /// Id of its next hops; `None` where packets are dropped.
    pub group: Option<u64>,
    /// `None` for a program that OpenConfig has no name for.
    pub origin: Option<RouteOrigin>,
}

/// Kind of program that made a route, as OpenConfig names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteOrigin {
    /// A program that speaks BGP.
    Bgp,
    /// The kernel, for the subnet of an address.
    DirectlyConnected,
    /// A program that speaks IS-IS.
    Isis,
    /// A program that speaks OSPF, for IPv4.
    Ospf,
    /// A program that speaks OSPF, for IPv6.
    Ospf3,
    /// This agent, or somebody with `ip route`.
    Static,
}

/// Next hops that share the packets of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopGroup {
    /// Number of the group.
    pub id: u64,
    /// Ascending by index of the next hop.
    pub members: Vec<GroupMember>,
}

/// A next hop in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupMember {
    /// Index of the next hop.
    pub hop: u64,
    /// Its share of the packets, relative to that of the others.
    pub weight: u16,
}

/// A way that packets take out of the box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Number of the next hop.
    pub index: u64,
    /// The gateway; `None` when the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// The link.
    pub link: Option<SmolStr>,
}

/// Numbers of next hops and groups. A next hop or group keeps its number from one table to the next.
#[derive(Debug, Default)]
pub struct ForwardingIds {
    hops: Numbers<(Option<IpAddr>, Option<SmolStr>)>,
    groups: Numbers<Vec<GroupMember>>,
}

/// Numbers from 1 for equal values.
#[derive(Debug)]
struct Numbers<T> {
    known: HashMap<T, u64>,
    last: u64,
}

/// A table that is being made.
#[derive(Debug)]
pub(crate) struct ForwardingBuilder<'i> {
    ids: &'i mut ForwardingIds,
    /// Best routes of the family that is being listed.
    best: BTreeMap<IpNet, BestRoute>,
    omitted: usize,
    table: ForwardingTable,
}

/// The best route to a prefix so far.
#[derive(Debug)]
struct BestRoute {
    metric: u32,
    group: Option<u64>,
    origin: Option<RouteOrigin>,
}

impl<'i> ForwardingBuilder<'i> {
    pub(crate) fn new(ids: &'i mut ForwardingIds) -> Self {
        Self { ids, best: BTreeMap::new(), omitted: 0, table: ForwardingTable::default() }
    }

    /// Begins the list of a family, or begins it again after a change of the routes spoiled it.
    pub(crate) fn begin_family(&mut self) {
        self.best.clear();
        self.omitted = 0;
    }

    /// Takes a route of the family. Of several routes to a prefix, the kernel uses the first one with the lowest metric.
    pub(crate) fn take(&mut self, route: &ListedRoute) {
        if route.table != MAIN_TABLE {
            return;
        }
        let works =
            |hop: &&ListedHop| !matches!(hop.fault, Some(HopFault::NoCarrier | HopFault::Down));
        let hops: Vec<&ListedHop> = route.hops.iter().filter(works).collect();
        let is_of_use = match route.treatment {
            "unicast" => !hops.is_empty(),
            "blackhole" | "unreachable" | "prohibit" => true,
            _ => false,
        };
        let before = self.best.get(&route.prefix);
        if !is_of_use || before.is_some_and(|before| before.metric <= route.metric) {
            return;
        }
        if before.is_none() && self.best.len() >= MOST_PREFIXES {
            self.omitted += 1;
            return;
        }
        let group = (!hops.is_empty()).then(|| self.group(&hops));
        let origin = RouteOrigin::of(route);
        self.best.insert(route.prefix, BestRoute { metric: route.metric, group, origin });
    }

    /// Ends the list of a family.
    pub(crate) fn end_family(&mut self) {
        let best = std::mem::take(&mut self.best).into_iter();
        let entry =
            |(prefix, BestRoute { group, origin, .. })| ForwardingEntry { prefix, group, origin };
        self.table.entries.extend(best.map(entry));
        self.table.omitted += self.omitted;
    }

    /// The table, with the next hops and groups that its entries use.
    pub(crate) fn finish(self) -> ForwardingTable {
        let Self { ids, mut table, .. } = self;
        ids.groups.keep_used(table.entries.iter().filter_map(|entry| entry.group));
        let group =
            |(members, id): (&Vec<GroupMember>, u64)| HopGroup { id, members: members.clone() };
        table.groups = ids.groups.iter().map(group).collect();
        table.groups.sort_by_key(|group| group.id);
        let members = table.groups.iter().flat_map(|group| &group.members);
        ids.hops.keep_used(members.map(|member| member.hop));
        table.hops = ids
            .hops
            .iter()
            .map(|((gateway, link), index)| NextHop {
                index,
                gateway: *gateway,
                link: link.clone(),
            })
            .collect();
        table.hops.sort_by_key(|hop| hop.index);
        table
    }

    fn group(&mut self, hops: &[&ListedHop]) -> u64 {
        let mut members: Vec<GroupMember> = hops
            .iter()
            .map(|hop| GroupMember {
                hop: self.ids.hops.number((hop.gateway, hop.link.clone())),
                weight: hop.weight,
            })
            .collect();
        members.sort_unstable();
        self.ids.groups.number(members)
    }
}

impl RouteOrigin {
    fn of(route: &ListedRoute) -> Option<Self> {
        Some(match route.protocol.as_str() {
            _ if route.is_ours => Self::Static,
            "static" | "boot" => Self::Static,
            "kernel" => Self::DirectlyConnected,
            "bgp" => Self::Bgp,
            "isis" => Self::Isis,
            "ospf" if route.prefix.addr().is_ipv6() => Self::Ospf3,
            "ospf" => Self::Ospf,
            _ => return None,
        })
    }

    /// The name that OpenConfig has for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bgp => "BGP",
            Self::DirectlyConnected => "DIRECTLY_CONNECTED",
            Self::Isis => "ISIS",
            Self::Ospf => "OSPF",
            Self::Ospf3 => "OSPF3",
            Self::Static => "STATIC",
        }
    }
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self { known: HashMap::new(), last: 0 }
    }
}

impl<T: Eq + Hash> Numbers<T> {
    fn number(&mut self, value: T) -> u64 {
        let number = *self.known.entry(value).or_insert(self.last + 1);
        self.last = self.last.max(number);
        number
    }

    /// Forgets all values but those with these numbers.
    fn keep_used(&mut self, numbers: impl Iterator<Item = u64>) {
        let used: HashSet<u64> = numbers.collect();
        self.known.retain(|_, number| used.contains(number));
    }

    fn iter(&self) -> impl Iterator<Item = (&T, u64)> {
        self.known.iter().map(|(value, number)| (value, *number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(gateway: &str, link: &str) -> ListedHop {
        let gateway = (!gateway.is_empty()).then(|| gateway.parse().unwrap());
        ListedHop { gateway, link: Some(link.into()), weight: 1, fault: None }
    }

    fn route(prefix: &str, metric: u32, hops: Vec<ListedHop>) -> ListedRoute {
        let prefix = prefix.parse().unwrap();
        let protocol = "bgp".to_owned();
        let treatment = if hops.is_empty() { "blackhole" } else { "unicast" };
        let unmodelled = None;
        ListedRoute {
            table: 254,
            prefix,
            metric,
            protocol,
            is_ours: false,
            treatment,
            unmodelled,
            hops,
        }
    }

    fn table(ids: &mut ForwardingIds, routes: &[ListedRoute]) -> ForwardingTable {
        let mut builder = ForwardingBuilder::new(ids);
        builder.begin_family();
        builder.take(&route("203.0.113.0/24", 1, vec![hop("192.0.2.99", "gone0")]));
        builder.begin_family(); // the first attempt was spoiled
        routes.iter().for_each(|route| builder.take(route));
        builder.end_family();
        builder.finish()
    }

    fn text(table: &ForwardingTable) -> String {
        let entry = |it: &ForwardingEntry| match it.group {
            Some(group) => format!("{} {group}", it.prefix),
            None => format!("{} drop", it.prefix),
        };
        let group = |it: &HopGroup| {
            let members = it.members.iter().map(|it| format!("{}*{}", it.hop, it.weight));
            format!("{}: {}", it.id, members.collect::<Vec<_>>().join(" "))
        };
        let hop = |it: &NextHop| format!("{}={}", it.index, it.link.as_deref().unwrap_or_default());
        let join = |texts: Vec<String>| texts.join(", ");
        let entries = join(table.entries.iter().map(entry).collect());
        let groups = join(table.groups.iter().map(group).collect());
        let hops = join(table.hops.iter().map(hop).collect());
        format!("{entries}; {groups}; {hops}")
    }

    #[test]
    fn equal_sets_of_next_hops_are_one_group_and_keep_their_numbers() {
        let mut ids = ForwardingIds::default();
        let [one, other] = [hop("192.0.2.1", "eth0"), hop("192.0.2.2", "eth1")];
        let twice = ListedHop { weight: 2, ..other.clone() };
        let first = [
            route("10.0.0.0/8", 20, vec![other.clone(), one.clone()]),
            route("10.1.0.0/16", 20, vec![one.clone(), other.clone()]),
            route("10.2.0.0/16", 20, vec![one.clone(), twice]),
            route("10.3.0.0/16", 20, vec![]),
        ];
        // The numbers 1 were those of the attempt that was spoiled.
        assert_eq!(
            text(&table(&mut ids, &first)),
            "10.0.0.0/8 2, 10.1.0.0/16 2, 10.2.0.0/16 3, 10.3.0.0/16 drop; \
             2: 2*1 3*1, 3: 2*2 3*1; 2=eth1, 3=eth0"
        );
        let later = [
            route("10.1.0.0/16", 20, vec![hop("", "eth2")]),
            route("10.2.0.0/16", 20, vec![one, other]),
        ];
        assert_eq!(
            text(&table(&mut ids, &later)),
            "10.1.0.0/16 5, 10.2.0.0/16 2; 2: 2*1 3*1, 5: 5*1; 2=eth1, 3=eth0, 5=eth2"
        );
    }

    #[test]
    fn the_kernel_uses_the_route_with_the_lowest_metric_that_works() {
        let dead = |fault| ListedHop { fault: Some(fault), ..hop("192.0.2.3", "eth3") };
        let [one, other] = [hop("192.0.2.1", "eth0"), hop("192.0.2.2", "eth1")];
        let local = ListedRoute { table: 255, ..route("10.9.0.0/16", 1, vec![one.clone()]) };
        let thrown = ListedRoute { treatment: "throw", ..route("10.8.0.0/16", 1, vec![]) };
        let routes = [
            route("10.0.0.0/8", 5, vec![dead(HopFault::Down)]),
            route("10.0.0.0/8", 20, vec![one.clone()]),
            route("10.0.0.0/8", 30, vec![other.clone()]),
            route("10.1.0.0/16", 30, vec![other.clone()]),
            route("10.1.0.0/16", 20, vec![one.clone(), dead(HopFault::NoCarrier)]),
            route("10.2.0.0/16", 20, vec![dead(HopFault::SentWithoutCarrier)]),
            local,
            thrown,
        ];
        let found = table(&mut ForwardingIds::default(), &routes);
        let links = |prefix: &str| {
            let prefix: IpNet = prefix.parse().unwrap();
            let entry = found.entries.iter().find(|it| it.prefix == prefix)?;
            let group = found.groups.iter().find(|it| Some(it.id) == entry.group)?;
            let link = |member: &GroupMember| {
                let hop = found.hops.iter().find(|it| it.index == member.hop)?;
                hop.link.as_deref()
            };
            Some(group.members.iter().filter_map(link).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(links("10.0.0.0/8").as_deref(), Some("eth0"));
        assert_eq!(links("10.1.0.0/16").as_deref(), Some("eth0"));
        assert_eq!(links("10.2.0.0/16").as_deref(), Some("eth3"));
        assert_eq!(found.entries.len(), 3, "other tables and `throw` are left out");
    }
}
