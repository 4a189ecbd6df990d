//! Static routes across entries: their next hops, and the routes to one prefix.

use holdfast_config::{Branch, InstancePath, Keys, Provenance, Step, Tree, Value};
use holdfast_scheduler::Key;
use ipnet::IpNet;
use smol_str::{SmolStr, ToSmolStr as _};

use super::{DEFAULT_INSTANCE, Registry};
use crate::kinds::entry::only_text;
use crate::values::{KernelRoute, NextHop};

/// A next hop of a static route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteHop {
    /// Its entry in the native model.
    pub entry: InstancePath,
    /// The kernel route that has it.
    pub route: Key,
    /// The next hop as it is configured, a fence laid over it.
    pub hop: NextHop,
}

impl Registry {
    /// True for the entry of a static route.
    pub fn is_static_route(&self, entry: &InstancePath) -> bool {
        entry.last().is_some_and(|step| step.node == self.route.route)
    }

    /// Next hops of a static route; none where the agent does not carry the route of the entry out.
    pub fn route_hops(&self, path: &InstancePath, entry: &Branch<Provenance>) -> Vec<RouteHop> {
        let values = self.values(path, entry).unwrap_or_default();
        let mut found = Vec::new();
        for (key, value) in values.iter() {
            let route = value.as_any().downcast_ref::<KernelRoute>();
            let source = route.and_then(|route| route.source.as_ref());
            for hop in source.into_iter().flat_map(|source| &source.next_hops) {
                let keys = Keys::single(Value::Str(hop.index.clone()));
                let entry = path.join(Step::entry(self.route.hop, keys));
                found.push(RouteHop { entry, route: key.clone(), hop: hop.clone() });
            }
        }
        found
    }

    /// Kernel routes that the static routes of a native tree to one prefix ask for, of all protocols.
    pub fn static_routes_to(&self, tree: &Tree<Provenance>, prefix: IpNet) -> Vec<KernelRoute> {
        let instance = SmolStr::new_static(DEFAULT_INSTANCE);
        let keys = Keys::single(Value::Str(instance.clone()));
        let above = [Step::node(self.route.instances), Step::entry(self.route.instance, keys)];
        let Some(branch) = tree.find_branch(&above) else { return Vec::new() };
        let protocols = branch.list(self.route.protocol);
        let protocols = protocols.into_iter().flat_map(|list| list.iter());
        let routes = protocols.filter_map(|(keys, _)| {
            let path =
                self.route.path(&instance, only_text(keys)?, Value::Str(prefix.to_smolstr()));
            let entry = tree.find_branch(&path.0)?;
            let values = self.values(&path, &entry).ok()?;
            let routes = values.iter().filter_map(|(_, it)| it.as_any().downcast_ref());
            Some(routes.cloned().collect::<Vec<KernelRoute>>())
        });
        routes.flatten().collect()
    }
}
