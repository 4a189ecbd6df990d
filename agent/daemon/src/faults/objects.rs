//! Entries of the native model that a resource is.

use std::collections::BTreeSet;
use std::net::IpAddr;

use holdfast_config::schema::Schema;
use holdfast_config::tree::Tree;
use holdfast_config::{InstancePath, Keys, MissingNode, NodeId, Provenance, Step, Value};
use holdfast_core::{CoreHandle, Datastore as _};
use holdfast_faults::{Objects, Resource};
use ipnet::IpNet;

/// Finds entries in the effective configuration.
#[derive(Debug)]
pub(super) struct BoxObjects {
    core: CoreHandle,
    nodes: ObjectNodes,
}

#[derive(Debug)]
struct ObjectNodes {
    interfaces: NodeId,
    interface: NodeId,
    families: [FamilyNodes; 2],
}

/// Nodes of the addresses of a family.
#[derive(Debug)]
struct FamilyNodes {
    family: NodeId,
    address: NodeId,
    prefix_length: NodeId,
}

impl BoxObjects {
    /// # Errors
    /// When the native model lacks a node, which the first test finds.
    pub(super) fn new(core: CoreHandle, native: &Schema) -> Result<Self, MissingNode> {
        let node = |path: &str| native.require(path);
        let family = |name: &str| {
            let base = format!("/interfaces/interface/{name}");
            Ok(FamilyNodes {
                address: node(&format!("{base}/address"))?,
                prefix_length: node(&format!("{base}/address/prefix-length"))?,
                family: node(&base)?,
            })
        };
        let nodes = ObjectNodes {
            interfaces: node("/interfaces")?,
            interface: node("/interfaces/interface")?,
            families: [family("ipv4")?, family("ipv6")?],
        };
        Ok(Self { core, nodes })
    }

    /// Names of the configured links.
    pub(super) fn links<'t>(
        &self,
        configuration: &'t Tree<Provenance>,
    ) -> impl Iterator<Item = &'t str> {
        let interfaces = configuration.root().container(self.nodes.interfaces);
        let links = interfaces.and_then(|it| it.list(self.nodes.interface));
        links.into_iter().flat_map(|links| links.iter()).filter_map(|(keys, _)| {
            match keys.first() {
                Some(Value::Str(name)) => Some(name.as_str()),
                _ => None,
            }
        })
    }

    fn link(&self, keys: &Keys) -> InstancePath {
        InstancePath(vec![
            Step { node: self.nodes.interfaces, keys: None },
            Step { node: self.nodes.interface, keys: Some(keys.clone()) },
        ])
    }

    /// The configured addresses with a prefix that has this address: by one of these, the next hop is reached.
    fn addresses_towards(&self, next_hop: IpAddr) -> BTreeSet<InstancePath> {
        let configuration = self.core.configuration();
        let interfaces = configuration.effective().root().container(self.nodes.interfaces);
        let links = interfaces.and_then(|it| it.list(self.nodes.interface));
        let mut found = BTreeSet::new();
        for (link, entry) in links.into_iter().flat_map(|links| links.iter()) {
            for nodes in &self.nodes.families {
                let addresses = entry.container(nodes.family).and_then(|it| it.list(nodes.address));
                for (keys, address) in addresses.into_iter().flat_map(|list| list.iter()) {
                    let length = address.value(nodes.prefix_length);
                    if prefix(keys, length).is_some_and(|prefix| prefix.contains(&next_hop)) {
                        let mut path = self.link(link);
                        path.0.push(Step { node: nodes.family, keys: None });
                        path.0.push(Step { node: nodes.address, keys: Some(keys.clone()) });
                        found.insert(path);
                    }
                }
            }
        }
        found
    }
}

fn prefix(address: &Keys, length: Option<&Value>) -> Option<IpNet> {
    let address = address.first()?.to_string().parse().ok()?;
    let Some(Value::Uint(length)) = length else { return None };
    IpNet::new(address, u8::try_from(*length).ok()?).ok()
}

impl Objects for BoxObjects {
    fn of(&self, resource: &Resource) -> BTreeSet<InstancePath> {
        match resource {
            Resource::Interface(name) => {
                BTreeSet::from([self.link(&Keys::single(Value::Str(name.clone())))])
            }
            Resource::NextHop(address) => self.addresses_towards(*address),
            _ => BTreeSet::new(),
        }
    }
}
