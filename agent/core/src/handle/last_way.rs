//! The guard `last-way`: what would lose its last way if an interface were shut.
//!
//! The walk of an impact finds the objects that stand on the interface alone; it knows what is redundant. Two things
//! are looked at besides: connections of administrators, which end with the address that they came to, and default
//! routes that other programs have made, which are not values of ours.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use holdfast_config::schema::Origin;
use holdfast_config::{EffectiveStatus, Elem, InstancePath, Keys, Path, Value};
use holdfast_platform::values::{KernelRoute, MAIN_TABLE, RouteTarget};
use holdfast_platform::{Destination, failure};
use smol_str::SmolStr;

use super::CoreHandle;
use super::datastore::Datastore;
use super::impact::EntryImpact;
use crate::request::CommitError;

/// The default prefixes of both families.
const DEFAULTS: [&str; 2] = ["0.0.0.0/0", "::/0"];

/// Something that works, and would not if an interface were shut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastWay {
    /// An administrator is connected to this address of the interface.
    Session { address: IpAddr },
    /// The default route of the box leads by the interface, and no other one is there.
    DefaultRoute { prefix: &'static str },
    /// Entries of the native model: this one and more.
    Entries { first: String, others: usize },
}

impl fmt::Display for LastWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session { address } => {
                write!(f, "an administrator is connected to its address {address}")
            }
            Self::DefaultRoute { prefix } => {
                write!(f, "the default route {prefix} has no other way")
            }
            Self::Entries { first, others: 0 } => write!(f, "`{first}` has no other way"),
            Self::Entries { first, others } => {
                write!(f, "`{first}` and {others} more have no other way")
            }
        }
    }
}

impl CoreHandle {
    /// Finds what would lose its last way if this interface were shut, the gravest first; `None` where nothing would.
    /// Objects that are marked as DOWN already lose nothing, nor do the addresses and neighbours of the interface
    /// itself. `sessions` are the addresses of this box to which administrators are connected.
    ///
    /// # Errors
    /// When the walk of the impact has panicked, or the core has stopped.
    pub async fn last_way(
        &self,
        interface: &str,
        sessions: &BTreeSet<IpAddr>,
    ) -> Result<Option<LastWay>, CommitError> {
        let impact = self.impact(failure::of_interface(interface)).await?;
        let link = self.registry.link_path(&interface.into());
        let own = impact.down.iter().filter(|entry| entry.starts_with(&link));
        let mut addresses = own.filter_map(address_of);
        let is_session =
            |address: &IpAddr| sessions.iter().any(|session| session.to_canonical() == *address);
        if let Some(address) = addresses.find(is_session) {
            return Ok(Some(LastWay::Session { address }));
        }
        let marks = self.chain.marks();
        let is_down =
            |entry: &InstancePath| marks.get(&entry.clone().into()) == Some(EffectiveStatus::Down);
        let loses = |entry: &&InstancePath| !entry.starts_with(&link) && !is_down(entry);
        let lost: Vec<&InstancePath> = impact.down.iter().filter(loses).collect();
        if let Some(prefix) = lost.iter().find_map(|entry| default_of(entry)) {
            return Ok(Some(LastWay::DefaultRoute { prefix }));
        }
        for prefix in DEFAULTS {
            if self.loses_foreign_default(prefix, interface, &impact).await? {
                return Ok(Some(LastWay::DefaultRoute { prefix }));
            }
        }
        let models = self.models();
        let text = |entry: &InstancePath| entry.to_path(models.schema(Origin::Native)).to_string();
        Ok(lost
            .split_first()
            .map(|(first, others)| LastWay::Entries { first: text(first), others: others.len() }))
    }

    /// True when another program has made a default route by this interface, and there is none by another one.
    async fn loses_foreign_default(
        &self,
        prefix: &str,
        interface: &str,
        impact: &EntryImpact,
    ) -> Result<bool, CommitError> {
        let Ok(network) = prefix.parse() else { return Ok(false) };
        let destination = Destination { table: MAIN_TABLE, prefix: network };
        let announced = self.inspect(move |view| {
            view.foreign_routes.to(&destination).cloned().collect::<Vec<KernelRoute>>()
        });
        let mut foreign = announced.await?;
        foreign.extend(self.route_lookup.of_daemons(&[destination]).await.into_values());
        let links: BTreeSet<&SmolStr> = foreign.iter().flat_map(links_of).collect();
        let is_by_it = links.iter().any(|link| *link == interface);
        Ok(is_by_it && links.len() == 1 && !self.has_own_default(prefix, impact))
    }

    /// True when a default route of the configuration stays in use.
    fn has_own_default(&self, prefix: &str, impact: &EntryImpact) -> bool {
        let any = |list: &str| Elem { keys: vec![("name".into(), "*".into())], ..Elem::new(list) };
        let keys = vec![("prefix".to_owned(), prefix.to_string())];
        let route = Elem { keys, ..Elem::new("route") };
        let instances = Elem::new("network-instances");
        let elems = vec![instances, any("network-instance"), any("static"), route];
        let configuration = self.configuration_rx.borrow().clone();
        let patterns = configuration.models().native.resolve_read(&Path { elems });
        let patterns = patterns.unwrap_or_default();
        let effective = configuration.effective();
        let routes = patterns.iter().flat_map(|pattern| effective.select(pattern));
        let stays = |route: &InstancePath| impact.down.binary_search(route).is_err();
        routes.map(|(route, _)| route).any(|route| stays(&route))
    }
}

/// The address that is the key of an entry, if it has one.
fn address_of(entry: &InstancePath) -> Option<IpAddr> {
    only_key(entry)?.parse().ok()
}

/// The prefix of a default route, if the entry is one.
fn default_of(entry: &InstancePath) -> Option<&'static str> {
    let key = only_key(entry)?;
    DEFAULTS.into_iter().find(|prefix| key == *prefix)
}

fn only_key(entry: &InstancePath) -> Option<SmolStr> {
    let keys: &Keys = entry.last()?.keys.as_ref()?;
    match &**keys {
        [Value::Str(key)] => Some(key.clone()),
        _ => None,
    }
}

/// Links that a route leads by.
fn links_of(route: &KernelRoute) -> Vec<&SmolStr> {
    match &route.target {
        RouteTarget::Hops(hops) => hops.iter().filter_map(|hop| hop.link.as_ref()).collect(),
        RouteTarget::Blackhole => Vec::new(),
    }
}
