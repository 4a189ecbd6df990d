//! Settings of drains in the configuration, and counters of links.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_config::schema::Schema;
use holdfast_config::tree::{List, Tree};
use holdfast_config::{InstancePath, MissingNode, NodeId, Provenance, Value};
use holdfast_faults::Resource;
use smol_str::SmolStr;

use super::settings::{clamped, number};

/// Nodes of the native model.
#[derive(Debug)]
pub(super) struct DrainNodes {
    interfaces: NodeId,
    interface: NodeId,
    forwarding_viable: NodeId,
    maintenance: NodeId,
    settings: NodeId,
    metric: NodeId,
    quiet_pps: NodeId,
    timeout: NodeId,
    in_pkts: NodeId,
    out_pkts: NodeId,
}

/// How traffic is led away. The defaults are those of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DrainSettings {
    /// Figure that a next hop gets on top of its metric.
    pub(super) metric: u32,
    /// A link that carries fewer packets a second is drained.
    pub(super) quiet_pps: u32,
    /// How long that is waited for.
    pub(super) timeout: Duration,
}

/// Links that clients have said not to use.
#[derive(Debug, Default)]
pub(super) struct DrainedByClients {
    /// The configured links when they were looked at last.
    seen: List<Provenance>,
    pub(super) links: BTreeSet<Resource>,
}

impl Default for DrainSettings {
    fn default() -> Self {
        Self { metric: 1000, quiet_pps: 10, timeout: Duration::from_secs(30) }
    }
}

impl DrainNodes {
    /// # Errors
    /// When the native model lacks a node, which the first test finds.
    pub(super) fn find(native: &Schema) -> Result<Self, MissingNode> {
        let node = |path: &str| native.require(path);
        Ok(Self {
            interfaces: node("/interfaces")?,
            interface: node("/interfaces/interface")?,
            forwarding_viable: node("/interfaces/interface/forwarding-viable")?,
            maintenance: node("/maintenance")?,
            settings: node("/maintenance/settings")?,
            metric: node("/maintenance/settings/drain-metric")?,
            quiet_pps: node("/maintenance/settings/quiet-pps")?,
            timeout: node("/maintenance/settings/drain-timeout")?,
            in_pkts: node("/interfaces/interface/state/counters/in-pkts")?,
            out_pkts: node("/interfaces/interface/state/counters/out-pkts")?,
        })
    }

    pub(super) fn settings(&self, configuration: &Tree<Provenance>) -> DrainSettings {
        let maintenance = configuration.root().container(self.maintenance);
        let settings = maintenance.and_then(|it| it.container(self.settings));
        let leaf = |node| settings.and_then(|it| number(it, node));
        let default = DrainSettings::default();
        DrainSettings {
            metric: leaf(self.metric).map_or(default.metric, clamped),
            quiet_pps: leaf(self.quiet_pps).map_or(default.quiet_pps, clamped),
            timeout: leaf(self.timeout).map_or(default.timeout, Duration::from_secs),
        }
    }

    /// Takes in which links clients have said not to use now. Links that are as they were are not looked at.
    pub(super) fn update(&self, drained: &mut DrainedByClients, configuration: &Tree<Provenance>) {
        let interfaces = configuration.root().container(self.interfaces);
        let links = interfaces.and_then(|it| it.list(self.interface)).cloned().unwrap_or_default();
        for difference in List::differences(&drained.seen, &links) {
            let Some(Value::Str(name)) = difference.keys.first() else { continue };
            let resource = Resource::Interface(name.clone());
            let viable = difference.new.and_then(|link| link.value(self.forwarding_viable));
            if viable == Some(&Value::Bool(false)) {
                drained.links.insert(resource);
            } else {
                drained.links.remove(&resource);
            }
        }
        drained.seen = links;
    }

    /// True for the counters of packets of a link.
    pub(super) fn counts_packets(&self, leaf: NodeId) -> bool {
        [self.in_pkts, self.out_pkts].contains(&leaf)
    }

    /// Packets that a link has carried, both ways together, by these leaves; 0 for one without counters.
    pub(super) fn packets(&self, leaves: &[(InstancePath, Value)], interface: &SmolStr) -> u64 {
        let is_of_link = |path: &InstancePath| {
            let list = path.0.iter().find(|step| step.node == self.interface);
            let name = list.and_then(|step| step.keys.as_ref()?.first());
            matches!(name, Some(Value::Str(name)) if name == interface)
        };
        let counts = leaves.iter().filter_map(|(path, value)| {
            let is_count = path.leaf().is_some_and(|leaf| self.counts_packets(leaf));
            match value {
                Value::Uint(count) if is_count && is_of_link(path) => Some(*count),
                _ => None,
            }
        });
        counts.fold(0, u64::wrapping_add)
    }
}
