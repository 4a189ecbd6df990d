//! Routes of all programs, listed when somebody asks.
//!
//! The agent follows few routes of others, because a routing daemon may have a million. A person who looks at the box
//! wants to see all of them, once: they are listed by a thread of their own in the managed namespace, so that nothing else
//! waits, and nothing of them is kept.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::now_ns;
use ipnet::IpNet;

use crate::forwarding::{ForwardingBuilder, ForwardingIds, ForwardingTable};
use crate::kinds::links::LinkIndex;
use crate::kinds::route;
pub use crate::listed_route::{HopFault, ListedHop, ListedRoute};
use crate::netns::{Netns, NetnsError};
use crate::transport::codecs::Codecs;
use crate::transport::rtnetlink::query::{self, Listing, QueryError, QuerySocket};
use crate::transport::rtnetlink::socket::DATAGRAM_SIZE;
use crate::values::Family;

/// Routes of one answer; those beyond are counted. A person reads fewer, and a full table of the Internet stays out of
/// memory.
const MOST_ROUTES: usize = 10_000;
/// Number of the table with the addresses of the box itself (`RT_TABLE_LOCAL`), which does not route.
const LOCAL_TABLE: u32 = 255;

/// Choice of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteSelection {
    /// All routes.
    All,
    /// The most specific routes that hold this address.
    Toward(IpAddr),
    /// All routes into this prefix.
    Below(IpNet),
}

impl RouteSelection {
    /// True for the prefix of a route that may be wanted. Of those toward an address, the most specific ones are found at the end.
    pub fn admits(self, prefix: &IpNet) -> bool {
        match self {
            Self::All => true,
            Self::Toward(address) => prefix.contains(&address),
            Self::Below(wanted) => wanted.contains(prefix),
        }
    }

    /// The wanted ones of the admitted routes, by family, prefix and metric.
    fn sorted(self, mut routes: Vec<ListedRoute>) -> Vec<ListedRoute> {
        if let Self::Toward(_) = self {
            let longest = routes.iter().map(|route| route.prefix.prefix_len()).max();
            routes.retain(|route| Some(route.prefix.prefix_len()) == longest);
        }
        routes.sort_by_key(|it| (it.table, it.prefix.addr().is_ipv6(), it.prefix, it.metric));
        routes
    }
}

/// Routes of one question.
#[derive(Clone, Debug, Default)]
pub struct RouteListing {
    /// The routes by table, family, prefix and metric.
    pub routes: Vec<ListedRoute>,
    /// How many there are beyond these.
    pub omitted: usize,
}

/// Reason for which there is no list.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteTableError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// A system call failed.
    #[error("cannot ask the kernel for its routes")]
    Socket(#[source] io::Error),
    /// The kernel gave no list.
    #[error("cannot list the {what} of the kernel: {reason}")]
    Kernel {
        /// The requested routes.
        what: &'static str,
        /// Answer of the kernel.
        reason: String,
    },
}

/// Reader of the routes of one namespace; clones share it.
#[derive(Clone, Debug)]
pub struct RouteTable {
    netns: Arc<Netns>,
}

impl RouteTable {
    pub(crate) fn new(netns: Arc<Netns>) -> Self {
        Self { netns }
    }

    /// The routes of the namespace in which this process was started.
    pub fn here() -> Self {
        Self { netns: Arc::default() }
    }

    /// Lists the routes of a selection.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or the kernel gives no list.
    pub async fn list(&self, selection: RouteSelection) -> Result<RouteListing, RouteTableError> {
        self.on_thread(move || listed(selection)).await
    }

    /// The forwarding table of the kernel. Next hops and groups that the previous table had keep their numbers.
    ///
    /// # Errors
    /// When the namespace cannot be entered, or the kernel gives no list.
    pub async fn forwarding(
        &self,
        mut ids: ForwardingIds,
    ) -> Result<(ForwardingTable, ForwardingIds), RouteTableError> {
        self.on_thread(move || {
            let mut builder = ForwardingBuilder::new(&mut ids);
            read_routes(&mut builder)?;
            let table = builder.finish();
            Ok((table, ids))
        })
        .await
    }

    /// Runs a function on a thread of its own in the managed namespace.
    async fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, RouteTableError> + Send + 'static,
    ) -> Result<T, RouteTableError> {
        self.netns.run("routes", work).await.map_err(RouteTableError::Socket)??
    }
}

fn listed(selection: RouteSelection) -> Result<RouteListing, RouteTableError> {
    let mut selected = SelectedRoutes::new(selection);
    read_routes(&mut selected)?;
    let RouteListing { routes, omitted } = selected.all;
    Ok(RouteListing { routes: selection.sorted(routes), omitted })
}

/// A taker of the routes of one family after the other.
trait RouteSink {
    /// The list of a family begins, or begins again because a change of the routes spoiled it.
    fn begin(&mut self);

    fn take(&mut self, route: ListedRoute);

    /// The list of the family is complete.
    fn end(&mut self);
}

/// The routes of a selection, up to a limit.
#[derive(Debug)]
struct SelectedRoutes {
    selection: RouteSelection,
    family: RouteListing,
    all: RouteListing,
}

impl SelectedRoutes {
    fn new(selection: RouteSelection) -> Self {
        Self { selection, family: RouteListing::default(), all: RouteListing::default() }
    }
}

impl RouteSink for SelectedRoutes {
    fn begin(&mut self) {
        self.family = RouteListing::default();
    }

    fn take(&mut self, route: ListedRoute) {
        if route.table == LOCAL_TABLE || !self.selection.admits(&route.prefix) {
            return;
        }
        if self.family.routes.len() < MOST_ROUTES {
            self.family.routes.push(route);
        } else {
            self.family.omitted += 1;
        }
    }

    fn end(&mut self) {
        let RouteListing { routes, omitted } = std::mem::take(&mut self.family);
        self.all.routes.extend(routes);
        self.all.omitted += omitted;
    }
}

impl RouteSink for ForwardingBuilder<'_> {
    fn begin(&mut self) {
        self.begin_family();
    }

    fn take(&mut self, route: ListedRoute) {
        Self::take(self, &route);
    }

    fn end(&mut self) {
        self.end_family();
    }
}

/// Lists the routes of both families.
fn read_routes(sink: &mut impl RouteSink) -> Result<(), RouteTableError> {
    let mut queries = QuerySocket::new().map_err(RouteTableError::Socket)?;
    let mut buffer = vec![0; DATAGRAM_SIZE];
    let links = links(&mut queries, &mut buffer)?;
    for family in [Family::V4, Family::V6] {
        let mut take = |listing: Listing<'_>| match listing {
            Listing::Begin => sink.begin(),
            Listing::Object(frame) => {
                let route = frame.decode().ok().and_then(|it| route::decode_listed(&it, &links));
                route.into_iter().for_each(|route| sink.take(route));
            }
        };
        match queries.list(&query::all_routes(family), &mut buffer, &mut take) {
            // The kernel has no IPv6.
            Err(QueryError::Refused { .. }) if family == Family::V6 => continue,
            listed => listed.map_err(|error| refusal("routes", &error))?,
        }
        sink.end();
    }
    Ok(())
}

/// Names of the links. All are recorded before any message is decoded for good, because links may refer to later ones.
fn links(queries: &mut QuerySocket, buffer: &mut [u8]) -> Result<LinkIndex, RouteTableError> {
    let mut messages = Vec::new();
    let mut take = |listing: Listing<'_>| match listing {
        Listing::Begin => messages.clear(),
        Listing::Object(frame) => messages.extend(frame.decode()),
    };
    queries.list(&query::links(), buffer, &mut take).map_err(|error| refusal("links", &error))?;
    let mut links = LinkIndex::new();
    for message in &messages {
        (Codecs::default().decode)(message, 0, now_ns(), &mut links);
    }
    Ok(links)
}

fn refusal(what: &'static str, error: &QueryError) -> RouteTableError {
    RouteTableError::Kernel { what, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_tests::fixture::{enter_fresh_namespaces, ip};

    fn route(prefix: &str, metric: u32) -> ListedRoute {
        ListedRoute {
            table: 254,
            prefix: prefix.parse().unwrap(),
            metric,
            protocol: "static".to_owned(),
            is_ours: false,
            treatment: "unicast",
            unmodelled: None,
            hops: Vec::new(),
        }
    }

    #[test]
    fn a_selection_is_an_address_or_a_prefix() {
        let all = ["2001:db8::/32", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "0.0.0.0/0"];
        let found = |selection: RouteSelection| {
            let routes =
                all.map(|prefix| route(prefix, 5)).into_iter().chain([route("10.1.2.0/24", 1)]);
            let routes = routes.filter(|it| selection.admits(&it.prefix)).collect();
            let routes = selection.sorted(routes);
            routes
                .iter()
                .map(|it| format!("{} {}", it.prefix, it.metric))
                .collect::<Vec<_>>()
                .join(", ")
        };
        for (selection, want) in [
            (RouteSelection::Toward("10.1.2.3".parse().unwrap()), "10.1.2.0/24 1, 10.1.2.0/24 5"),
            (RouteSelection::Toward("192.0.2.1".parse().unwrap()), "0.0.0.0/0 5"),
            (RouteSelection::Toward("2001:db9::1".parse().unwrap()), ""),
            (
                RouteSelection::Below("10.1.0.0/16".parse().unwrap()),
                "10.1.0.0/16 5, 10.1.2.0/24 1, 10.1.2.0/24 5",
            ),
            (
                RouteSelection::All,
                "0.0.0.0/0 5, 10.0.0.0/8 5, 10.1.0.0/16 5, 10.1.2.0/24 1, 10.1.2.0/24 5, 2001:db8::/32 5",
            ),
        ] {
            assert_eq!(found(selection), want);
        }
    }

    #[test]
    fn routes_of_every_program_are_listed_with_their_next_hops() {
        enter_fresh_namespaces();
        for line in [
            "link add eth0 type veth peer name far0",
            "link set eth0 up",
            "link set far0 up",
            "address add 192.0.2.1/24 dev eth0",
            "link add eth1 type veth peer name far1",
            "link set eth1 up",
            "address add 198.51.100.1/24 dev eth1",
            "route add 10.0.0.0/8 via 192.0.2.2 proto bgp metric 20",
            "route add 10.1.0.0/16 via 192.0.2.2 proto 150",
            "route add blackhole 10.2.0.0/16 proto static",
            "route add unreachable 10.3.0.0/16",
            "route add 10.4.0.0/16 via 198.51.100.2 table 77",
        ] {
            ip(line);
        }
        let text = |route: &ListedRoute| {
            let hop = |hop: &ListedHop| {
                let link = hop.link.as_deref().unwrap_or_default();
                let gateway = hop.gateway.map(|ip| ip.to_string()).unwrap_or_default();
                let fault = hop.fault.map(|it| it.text(link)).unwrap_or_default();
                format!("{gateway} {link} {fault}").trim().to_owned()
            };
            let hops: Vec<String> = route.hops.iter().map(hop).collect();
            let ours = if route.is_ours { "ours" } else { &route.protocol };
            let ListedRoute { table, prefix, treatment, .. } = route;
            format!("{table} {prefix} {ours} {treatment}: {}", hops.join("; "))
        };
        let listed = listed(RouteSelection::Below("0.0.0.0/0".parse().unwrap())).unwrap();
        let lines: Vec<String> = listed.routes.iter().map(text).collect();
        assert_eq!(
            lines,
            [
                "77 10.4.0.0/16 boot unicast: 198.51.100.2 eth1 eth1 has no carrier, the kernel sends all the same",
                "254 10.0.0.0/8 bgp unicast: 192.0.2.2 eth0",
                "254 10.1.0.0/16 ours unicast: 192.0.2.2 eth0",
                "254 10.2.0.0/16 static blackhole: ",
                "254 10.3.0.0/16 boot unreachable: ",
                "254 192.0.2.0/24 kernel unicast: eth0",
                "254 198.51.100.0/24 kernel unicast: eth1 eth1 has no carrier, the kernel sends all the same",
            ]
        );
        assert_eq!(listed.omitted, 0);
    }
}
