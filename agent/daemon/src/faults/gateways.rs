//! Next hops of static routes that are probed without a `probe` entry of their own (`settings/probe-next-hops`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use holdfast_config::schema::Schema;
use holdfast_config::tree::{Branch, List, ListEntry as _, Tree};
use holdfast_config::{Keys, MissingNode, NodeId, Provenance, Value};
use holdfast_faults::{MAX_PROBES, Probe, ProbeMode, Require};
use smol_str::{SmolStr, format_smolstr};
use tracing::warn;

use super::settings::number;

/// Rhythm of these probes, which is the default of `probe` entries.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
const PROBE_ROUNDS: u32 = 3;

/// Prefixes of a default route.
const DEFAULT_ROUTES: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// Routes whose next hops are probed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ProbedRoutes {
    #[default]
    None,
    DefaultRoutes,
    All,
}

holdfast_config::enum_names!(ProbedRoutes {
    None = "none",
    DefaultRoutes = "default-routes",
    All = "all",
});

impl ProbedRoutes {
    fn has(self, prefix: Option<&Value>) -> bool {
        match self {
            Self::None => false,
            Self::DefaultRoutes => {
                prefix.is_some_and(|it| DEFAULT_ROUTES.contains(&&*it.to_string()))
            }
            Self::All => true,
        }
    }
}

/// A router that routes name, with its link where the address alone does not say which router it is.
type Gateway = (IpAddr, Option<SmolStr>);

/// Follows the next hops of static routes. Without a wish for probes it looks at no route.
#[derive(Debug)]
pub(super) struct Gateways {
    nodes: RouteNodes,
    wanted: ProbedRoutes,
    /// The routes as they were looked at last, by instance and protocol.
    seen: BTreeMap<[Keys; 2], List<Provenance>>,
    /// How many next hops name each gateway.
    counts: BTreeMap<Gateway, usize>,
}

#[derive(Debug)]
struct RouteNodes {
    instances: NodeId,
    instance: NodeId,
    protocol: NodeId,
    route: NodeId,
    hop: NodeId,
    target: NodeId,
    interface: NodeId,
    subinterface: NodeId,
}

impl Gateways {
    /// # Errors
    /// When the native model lacks a node, which the first test finds.
    pub(super) fn new(native: &Schema) -> Result<Self, MissingNode> {
        let node = |path: &str| native.require(&format!("/network-instances{path}"));
        let hop = "/network-instance/static/route/next-hop";
        let nodes = RouteNodes {
            instances: node("")?,
            instance: node("/network-instance")?,
            protocol: node("/network-instance/static")?,
            route: node("/network-instance/static/route")?,
            hop: node(hop)?,
            target: node(&format!("{hop}/next-hop"))?,
            interface: node(&format!("{hop}/interface"))?,
            subinterface: node(&format!("{hop}/subinterface"))?,
        };
        Ok(Self {
            nodes,
            wanted: ProbedRoutes::None,
            seen: BTreeMap::new(),
            counts: BTreeMap::new(),
        })
    }

    /// Takes in which routes are probed. True when that differs.
    pub(super) fn want(&mut self, wanted: ProbedRoutes) -> bool {
        if self.wanted == wanted {
            return false;
        }
        self.wanted = wanted;
        self.seen.clear();
        self.counts.clear();
        true
    }

    /// Looks at the routes that differ. True when other gateways are to be probed.
    pub(super) fn look(&mut self, configuration: &Tree<Provenance>) -> bool {
        if self.wanted == ProbedRoutes::None {
            return false;
        }
        let now = self.nodes.routes(configuration);
        let before = std::mem::replace(&mut self.seen, now.clone());
        let none = List::default();
        let places: BTreeSet<&[Keys; 2]> = before.keys().chain(now.keys()).collect();
        let mut differs = false;
        for place in places {
            let [old, new] = [&before, &now].map(|routes| routes.get(place).unwrap_or(&none));
            for difference in List::differences(old, new) {
                if !self.wanted.has(difference.keys.first()) {
                    continue;
                }
                let [old, new] = [difference.old, difference.new]
                    .map(|route| route.map(|it| it.branch().into_shared()));
                for gateway in self.nodes.gateways(old.as_deref()) {
                    differs |= self.forget(&gateway);
                }
                for gateway in self.nodes.gateways(new.as_deref()) {
                    let count = self.counts.entry(gateway).or_default();
                    *count += 1;
                    differs |= *count == 1;
                }
            }
        }
        differs
    }

    /// Takes one next hop off the count of a gateway. True when it was the last one.
    fn forget(&mut self, gateway: &Gateway) -> bool {
        let Some(count) = self.counts.get_mut(gateway) else { return false };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        self.counts.remove(gateway);
        true
    }

    /// Probes of the gateways that no configured probe has as its next hop, as many as may be run beside the configured
    /// ones.
    pub(super) fn probes(&self, configured: &[Probe]) -> Vec<Probe> {
        let is_configured =
            |address: &IpAddr| configured.iter().any(|probe| probe.next_hop == *address);
        let wanted = self.counts.keys().filter(|(address, _)| !is_configured(address));
        let mut probes: Vec<Probe> = wanted.map(probe_of).collect();
        let room = MAX_PROBES.saturating_sub(configured.len());
        if probes.len() > room {
            warn!(
                next_hops = probes.len(),
                probed = room,
                "more next hops than can be probed: the first ones are, by address"
            );
            probes.truncate(room);
        }
        probes
    }
}

/// A next hop is a neighbour of the box, and need not answer echo requests.
fn probe_of((address, link): &Gateway) -> Probe {
    let name = match link {
        Some(link) => format_smolstr!("{address}%{link}"),
        None => format_smolstr!("{address}"),
    };
    Probe {
        name,
        next_hop: *address,
        targets: vec![*address],
        require: Require::Any,
        mode: ProbeMode::Neighbor,
        interface: link.clone(),
        interval: PROBE_INTERVAL,
        down_after: PROBE_ROUNDS,
        up_after: PROBE_ROUNDS,
    }
}

impl RouteNodes {
    fn routes(&self, configuration: &Tree<Provenance>) -> BTreeMap<[Keys; 2], List<Provenance>> {
        let mut routes = BTreeMap::new();
        let instances = configuration.root().container(self.instances);
        let instances = instances.and_then(|it| it.list(self.instance));
        for (instance, entry) in instances.into_iter().flat_map(|it| it.iter()) {
            let protocols = entry.list(self.protocol).into_iter().flat_map(|it| it.iter());
            for (protocol, entry) in protocols {
                let list = entry.list(self.route).cloned().unwrap_or_default();
                routes.insert([instance.clone(), protocol.clone()], list);
            }
        }
        routes
    }

    fn gateways(&self, route: Option<&Branch<Provenance>>) -> Vec<Gateway> {
        let hops = route.and_then(|it| it.list(self.hop)).into_iter().flat_map(|it| it.iter());
        hops.filter_map(|(_, hop)| self.gateway(&hop.branch().into_shared())).collect()
    }

    fn gateway(&self, hop: &Branch<Provenance>) -> Option<Gateway> {
        let address: IpAddr = hop.value(self.target)?.to_string().parse().ok()?;
        let is_ambiguous =
            matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        if !is_ambiguous {
            return Some((address, None));
        }
        // The link of a VLAN may have a name of its own, which the route does not tell.
        let is_vlan = number(hop, self.subinterface).is_some_and(|index| index > 0);
        let link = hop.value(self.interface).filter(|_| !is_vlan)?;
        Some((address, Some(link.to_string().into())))
    }
}
