//! The lease layer: addresses and routes that DHCP gave to ports of this box.

use std::net::IpAddr;

use ipnet::IpNet;
use smol_str::SmolStr;

use crate::configuration::Configuration;
use crate::edit::{Attribution, EditCause, EditError, EditErrors, EditOperation};
use crate::layer::{LayerKey, LeafMark};
use crate::models::Models;
use crate::path::{Elem, Path};
use crate::progress::CancelToken;
use crate::resolve::PathError;
use crate::tree::{Leaf, Tree};
use crate::value::Value;

/// Network instance of leased routes.
const INSTANCE: &str = "DEFAULT";
/// Protocol name of leased routes; different from those of clients, so that the entries do not merge.
const ROUTES: &str = "lease";

/// A port that uses DHCP, with its present leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedPort {
    /// Name of the link. It is enabled while DHCP runs, unless a stronger layer disables it.
    pub name: SmolStr,
    /// Leased addresses of both families.
    pub addresses: Vec<IpNet>,
    /// Leased routes of both families. The first route to a prefix counts.
    pub routes: Vec<LeasedRoute>,
}

/// A route through the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedRoute {
    pub prefix: IpNet,
    /// `None` when the prefix is on-link.
    pub gateway: Option<IpAddr>,
}

impl Configuration {
    /// Computes the configuration with exactly these leases; without ports the lease layer is empty. Configuration
    /// of other owners is stronger, and hides leases.
    ///
    /// # Errors
    /// When the name of a port is not a valid link name.
    pub fn leased(&self, ports: &[LeasedPort]) -> Result<Self, EditErrors> {
        let mut tree = Tree::new();
        for port in ports {
            add(self.models(), &mut tree, port).map_err(|error| {
                let path = format!("/interfaces/interface[name={}]", port.name);
                let cause = EditCause::from(&error);
                EditErrors::from(EditError { operation: EditOperation::Lease, path, cause })
            })?;
        }
        let mut layers = self.layers().clone();
        *layers.tree_mut(LayerKey::LEASE) = tree;
        self.with_layers(
            layers,
            &Attribution::of_trees(self.models(), |_| EditOperation::Lease),
            &CancelToken::default(),
        )
    }
}

fn add(models: &Models, tree: &mut Tree<LeafMark>, port: &LeasedPort) -> Result<(), PathError> {
    let link = [Elem::new("interfaces"), entry("interface", "name", &port.name)];
    let mut set = |above: &[Elem], below: &[Elem], value: Value| {
        let path = models.native.resolve_write(&Path { elems: [above, below].concat() })?;
        tree.set_leaf(&models.native, &path, Leaf::new(value, LeafMark::Explicit));
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

/// Path of the only next hop of a leased route.
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
