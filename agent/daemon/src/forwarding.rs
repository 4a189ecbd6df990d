//! The forwarding table of the kernel as state: the best routes of all programs, and their next hops.
//!
//! The kernel is asked when somebody reads the tables. A reading is shared by all who ask within [`SHARED_FOR`]. Its
//! entries are derived when a client is told of them, so a hundred thousand routes take some ten megabytes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::ErrorChain;
use holdfast_config::{InstancePath, Keys, MissingNode, Models, Name, NodeId, Step, Value};
use holdfast_core::PolledState;
use holdfast_platform::forwarding::{
    ForwardingEntry, ForwardingIds, ForwardingTable, HopGroup, NextHop,
};
use holdfast_platform::kinds::entry::interface_of;
use holdfast_platform::route_table::RouteTable;
use holdfast_telemetry::polled_entry::{EntryContent, ListPlace, PolledEntry, WayToLeaf};
use holdfast_telemetry::{EntryState, PolledList, PolledReading};
use smol_str::format_smolstr;
use tokio::sync::Mutex;
use tracing::{error, warn};

/// Age up to which a reading is shared. A hundred thousand routes take the kernel a tenth of a second, and collectors that
/// sample at one interval ask together.
const SHARED_FOR: Duration = Duration::from_secs(1);
/// Name of the network instance with the main table.
const DEFAULT_INSTANCE: &str = "DEFAULT";

/// Reader of the forwarding table.
#[derive(Debug)]
pub(crate) struct ForwardingState {
    routes: RouteTable,
    /// The container that holds the lists.
    above: InstancePath,
    lists: Lists,
    last: Mutex<Last>,
}

/// The last reading, and the numbers that the next one goes on with.
#[derive(Debug, Default)]
struct Last {
    reading: Option<(Instant, PolledReading)>,
    ids: ForwardingIds,
    /// How many prefixes were left out of it.
    omitted: usize,
}

#[derive(Debug)]
struct Lists {
    ipv4: RouteList,
    ipv6: RouteList,
    groups: GroupList,
    hops: HopList,
}

/// A list of routes, and the nodes of an entry.
#[derive(Debug)]
struct RouteList {
    place: Arc<ListPlace>,
    nodes: Arc<RouteNodes>,
}

#[derive(Debug)]
struct RouteNodes {
    state: NodeId,
    prefix: NodeId,
    next_hop_group: NodeId,
    origin_protocol: NodeId,
}

#[derive(Debug)]
struct GroupList {
    place: Arc<ListPlace>,
    nodes: Arc<GroupNodes>,
}

#[derive(Debug)]
struct GroupNodes {
    state: NodeId,
    id: NodeId,
    next_hop: NodeId,
    hop_state: NodeId,
    hop_index: NodeId,
    weight: NodeId,
}

#[derive(Debug)]
struct HopList {
    place: Arc<ListPlace>,
    nodes: Arc<HopNodes>,
}

#[derive(Debug)]
struct HopNodes {
    state: NodeId,
    index: NodeId,
    ip_address: NodeId,
    interface: NodeId,
    subinterface: NodeId,
}

impl ForwardingState {
    /// # Errors
    /// When the native model lacks a node, which the first test finds.
    pub(crate) fn new(models: &Arc<Models>, routes: RouteTable) -> Result<Self, MissingNode> {
        let instance = ("network-instance", &[("name", DEFAULT_INSTANCE)][..]);
        let native = &models.native;
        let above =
            native.instance_path(&[("network-instances", &[][..]), instance, ("afts", &[])])?;
        let lists = Lists::find(models)?;
        Ok(Self { routes, above, lists, last: Mutex::default() })
    }

    async fn reading(&self) -> PolledReading {
        let mut last = self.last.lock().await;
        if let Some((begun, reading)) = &last.reading
            && begun.elapsed() < SHARED_FOR
        {
            return reading.clone();
        }
        let begun = Instant::now();
        let ids = std::mem::take(&mut last.ids);
        let table = match self.routes.forwarding(ids).await {
            Ok((table, ids)) => {
                last.ids = ids;
                table
            }
            Err(error) => {
                error!(error = %ErrorChain(&error), "the forwarding tables are not shown");
                ForwardingTable::default()
            }
        };
        if table.omitted > 0 && last.omitted == 0 {
            warn!(
                prefixes = table.omitted,
                "the forwarding tables are shown without these prefixes: there are too many"
            );
        }
        last.omitted = table.omitted;
        let reading = self.lists.reading(&self.above, &table);
        last.reading = Some((begun, reading.clone()));
        reading
    }
}

#[tonic::async_trait]
impl PolledState for ForwardingState {
    fn nodes(&self) -> Vec<NodeId> {
        self.lists.nodes()
    }

    async fn read(&self) -> PolledReading {
        self.reading().await
    }
}

impl Lists {
    fn find(models: &Arc<Models>) -> Result<Self, MissingNode> {
        let find = |below: &str| {
            models.native.require(&format!("/network-instances/network-instance/afts/{below}"))
        };
        let place =
            |list: &str| Ok(Arc::new(ListPlace { models: Arc::clone(models), list: find(list)? }));
        let routes = |list: &str| {
            let node = |leaf: &str| find(&format!("{list}/state/{leaf}"));
            let nodes = Arc::new(RouteNodes {
                state: find(&format!("{list}/state"))?,
                prefix: node("prefix")?,
                next_hop_group: node("next-hop-group")?,
                origin_protocol: node("origin-protocol")?,
            });
            Ok(RouteList { place: place(list)?, nodes })
        };
        Ok(Self {
            ipv4: routes("ipv4-entry")?,
            ipv6: routes("ipv6-entry")?,
            groups: GroupList {
                place: place("next-hop-group")?,
                nodes: Arc::new(GroupNodes {
                    state: find("next-hop-group/state")?,
                    id: find("next-hop-group/state/id")?,
                    next_hop: find("next-hop-group/next-hop")?,
                    hop_state: find("next-hop-group/next-hop/state")?,
                    hop_index: find("next-hop-group/next-hop/state/index")?,
                    weight: find("next-hop-group/next-hop/state/weight")?,
                }),
            },
            hops: HopList {
                place: place("next-hop")?,
                nodes: Arc::new(HopNodes {
                    state: find("next-hop/state")?,
                    index: find("next-hop/state/index")?,
                    ip_address: find("next-hop/state/ip-address")?,
                    interface: find("next-hop/state/interface")?,
                    subinterface: find("next-hop/state/subinterface")?,
                }),
            },
        })
    }

    /// Leaves that a reading may have, with all keys.
    fn nodes(&self) -> Vec<NodeId> {
        let places = [&self.ipv4.place, &self.ipv6.place, &self.groups.place, &self.hops.place];
        let leaves = places.into_iter().flat_map(|place| {
            let schema = &place.models.native;
            let nodes = schema.nodes().iter().filter(|node| node.polled);
            let is_below = |node: NodeId| schema.with_ancestors(node).any(|it| it == place.list);
            nodes.map(|node| node.id).filter(move |node| is_below(*node)).collect::<Vec<_>>()
        });
        leaves.collect()
    }

    fn reading(&self, above: &InstancePath, table: &ForwardingTable) -> PolledReading {
        let list = |place: &ListPlace, entries: Vec<(Keys, Arc<dyn EntryState>)>| PolledList {
            above: above.clone(),
            list: place.list,
            entries: entries.into(),
        };
        let routes = |routes: &RouteList, is_wanted: &dyn Fn(&ForwardingEntry) -> bool| {
            let entries = table.entries.iter().filter(|entry| is_wanted(entry));
            let shared = |entry: &ForwardingEntry| {
                let nodes = Arc::clone(&routes.nodes);
                PolledEntry::shared(&routes.place, RouteContent { nodes, entry: *entry })
            };
            list(&routes.place, entries.map(shared).collect())
        };
        let group = |group: &HopGroup| {
            let nodes = Arc::clone(&self.groups.nodes);
            PolledEntry::shared(&self.groups.place, GroupContent { nodes, group: group.clone() })
        };
        let hop = |hop: &NextHop| {
            let nodes = Arc::clone(&self.hops.nodes);
            PolledEntry::shared(&self.hops.place, HopContent { nodes, hop: hop.clone() })
        };
        let lists = vec![
            routes(&self.ipv4, &|entry| entry.prefix.addr().is_ipv4()),
            routes(&self.ipv6, &|entry| entry.prefix.addr().is_ipv6()),
            list(&self.groups.place, table.groups.iter().map(group).collect()),
            list(&self.hops.place, table.hops.iter().map(hop).collect()),
        ];
        PolledReading { leaves: Vec::new(), lists }
    }
}

#[derive(Debug)]
struct RouteContent {
    nodes: Arc<RouteNodes>,
    entry: ForwardingEntry,
}

impl RouteContent {
    fn prefix(&self) -> Value {
        Value::Str(format_smolstr!("{}", self.entry.prefix))
    }
}

impl EntryContent for RouteContent {
    fn keys(&self) -> Keys {
        Keys::single(self.prefix())
    }

    fn leaves(&self) -> Vec<(WayToLeaf, Value)> {
        let RouteNodes { state, prefix, next_hop_group, origin_protocol } = *self.nodes;
        let way = |leaf| vec![Step::node(state), Step::node(leaf)];
        let mut leaves = vec![(way(prefix), self.prefix())];
        leaves.extend(self.entry.group.map(|id| (way(next_hop_group), Value::Uint(id))));
        let origin = self.entry.origin.map(|origin| Value::Enum(Name::constant(origin.word())));
        leaves.extend(origin.map(|origin| (way(origin_protocol), origin)));
        leaves
    }
}

#[derive(Debug)]
struct GroupContent {
    nodes: Arc<GroupNodes>,
    group: HopGroup,
}

impl EntryContent for GroupContent {
    fn keys(&self) -> Keys {
        Keys::single(Value::Uint(self.group.id))
    }

    fn leaves(&self) -> Vec<(WayToLeaf, Value)> {
        let GroupNodes { state, id, next_hop, hop_state, hop_index, weight } = *self.nodes;
        let mut leaves =
            vec![(vec![Step::node(state), Step::node(id)], Value::Uint(self.group.id))];
        for member in &self.group.members {
            let entry = Step::entry(next_hop, Keys::single(Value::Uint(member.hop)));
            let way = |leaf| vec![entry.clone(), Step::node(hop_state), Step::node(leaf)];
            leaves.push((way(hop_index), Value::Uint(member.hop)));
            leaves.push((way(weight), Value::Uint(u64::from(member.weight))));
        }
        leaves
    }
}

#[derive(Debug)]
struct HopContent {
    nodes: Arc<HopNodes>,
    hop: NextHop,
}

impl EntryContent for HopContent {
    fn keys(&self) -> Keys {
        Keys::single(Value::Uint(self.hop.index))
    }

    fn leaves(&self) -> Vec<(WayToLeaf, Value)> {
        let HopNodes { state, index, ip_address, interface, subinterface } = *self.nodes;
        let way = |leaf| vec![Step::node(state), Step::node(leaf)];
        let mut leaves = vec![(way(index), Value::Uint(self.hop.index))];
        let gateway = self.hop.gateway.map(|gateway| Value::Str(format_smolstr!("{gateway}")));
        leaves.extend(gateway.map(|gateway| (way(ip_address), gateway)));
        if let Some((name, vlan)) = self.hop.link.as_deref().map(interface_of) {
            leaves.push((way(interface), Value::Str(name.into())));
            leaves.push((way(subinterface), Value::Uint(vlan.into())));
        }
        leaves
    }
}
