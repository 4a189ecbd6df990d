//! What DHCP servers gave to ports of this box, as the lease layer.

use std::net::IpAddr;

use ipnet::IpNet;
use smol_str::SmolStr;

use crate::configuration::Configuration;
use crate::edit::{Attribution, Cause, EditError, EditErrors, Operation};
use crate::layer::{LayerKey, Mark};
use crate::models::Models;
use crate::path::{Elem, Path};
use crate::progress::Cancel;
use crate::resolve::PathError;
use crate::tree::{Leaf, Tree};
use crate::value::Value;

/// The network instance that leased routes are in.
const INSTANCE: &str = "DEFAULT";
/// The name under which leased routes stand there: no client's, so that each keeps its own.
const ROUTES: &str = "lease";

/// A port that asks DHCP servers, and what it has of them now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedPort {
    /// The link. It is up as long as it asks, unless somebody stronger shuts it.
    pub name: SmolStr,
    /// Of either family.
    pub addresses: Vec<IpNet>,
    /// Of either family. Of several to one prefix the first counts.
    pub routes: Vec<LeasedRoute>,
}

/// A route that goes out by the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedRoute {
    pub prefix: IpNet,
    /// None when the prefix is on the link itself.
    pub gateway: Option<IpAddr>,
}

impl Configuration {
    /// What this would be with exactly this in the lease layer; with no port it is empty. What somebody else asks for
    /// is stronger, and hides it.
    ///
    /// # Errors
    /// When a port has a name that no link can have.
    pub fn leased(&self, ports: &[LeasedPort]) -> Result<Self, EditErrors> {
        let mut tree = Tree::new();
        for port in ports {
            add(self.models(), &mut tree, port).map_err(|error| {
                let (path, cause) =
                    (format!("/interfaces/interface[name={}]", port.name), Cause::from(&error));
                EditErrors(vec![EditError { operation: Operation::Lease, path, cause }])
            })?;
        }
        let mut layers = self.layers().clone();
        *layers.tree_mut(LayerKey::LEASE) = tree;
        self.with_layers(
            layers,
            &Attribution::of_trees(self.models(), |_| Operation::Lease),
            &Cancel::default(),
        )
    }
}

fn add(models: &Models, tree: &mut Tree<Mark>, port: &LeasedPort) -> Result<(), PathError> {
    let link = [Elem::new("interfaces"), entry("interface", "name", &port.name)];
    let mut set = |above: &[Elem], below: &[Elem], value: Value| {
        let path = models.native.resolve_write(&Path { elems: [above, below].concat() })?;
        tree.set_leaf(&models.native, &path, Leaf::new(value, Mark::Explicit));
        Ok(())
    };
    set(&link, &[Elem::new("enabled")], Value::Bool(true))?;
    for address in &port.addresses {
        let family = if address.addr().is_ipv4() { "ipv4" } else { "ipv6" };
        let list = entry("address", "ip", &address.addr().to_string());
        let length = Value::Uint(address.prefix_len().into());
        set(&link, &[Elem::new(family), list, Elem::new("prefix-length")], length)?;
    }
    for (at, route) in port.routes.iter().enumerate() {
        let prefix = route.prefix.trunc();
        if port.routes[..at].iter().any(|earlier| earlier.prefix.trunc() == prefix) {
            continue;
        }
        let hop = hop(&prefix);
        set(&hop, &[Elem::new("interface")], Value::Str(port.name.clone()))?;
        if let Some(gateway) = route.gateway {
            set(&hop, &[Elem::new("next-hop")], Value::Str(gateway.to_string().into()))?;
        }
    }
    Ok(())
}

/// The one next hop of a leased route.
fn hop(prefix: &IpNet) -> [Elem; 5] {
    [
        Elem::new("network-instances"),
        entry("network-instance", "name", INSTANCE),
        entry("static", "name", ROUTES),
        entry("route", "prefix", &prefix.to_string()),
        entry("next-hop", "index", "0"),
    ]
}

fn entry(list: &str, key: &str, value: &str) -> Elem {
    Elem { keys: vec![(key.to_owned(), value.to_owned())], ..Elem::new(list) }
}
