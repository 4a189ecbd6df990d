//! The configuration of faults.

use std::sync::Arc;
use std::time::Duration;

use holdfast_config::tree::{Branch, Tree};
use holdfast_config::{MissingNode, NodeId, Provenance, Value, schema::Schema};
use holdfast_faults::{Filter, Glob, Policy, Settings, Severity, Shelf};
use smol_str::SmolStr;

/// Nodes of the configuration of faults.
#[derive(Debug)]
pub(super) struct SettingNodes {
    management: NodeId,
    policy: PolicyNodes,
    shelf: ShelfNodes,
}

#[derive(Debug)]
struct PolicyNodes {
    list: NodeId,
    name: NodeId,
    order: NodeId,
    kind: NodeId,
    resource: NodeId,
    effect: NodeId,
    severity: NodeId,
    raise_after: NodeId,
    clear_after: NodeId,
    count: NodeId,
    window: NodeId,
}

#[derive(Debug)]
struct ShelfNodes {
    list: NodeId,
    name: NodeId,
    kind: NodeId,
    resource: NodeId,
}

/// A branch of the effective configuration.
type ConfigBranch = Branch<Provenance>;

impl SettingNodes {
    /// Finds the nodes in the native model.
    ///
    /// # Errors
    /// When the model lacks one of them, which would be a bug that the first test finds.
    pub(super) fn find(native: &Schema) -> Result<Self, MissingNode> {
        let node = |path: &str| {
            let path = format!("/fault-management{path}");
            native.find(&path).ok_or(MissingNode(path))
        };
        let policy = |leaf: &str| node(&format!("/policy/{leaf}"));
        let shelf = |leaf: &str| node(&format!("/shelf/{leaf}"));
        Ok(Self {
            management: node("")?,
            policy: PolicyNodes {
                list: node("/policy")?,
                name: policy("name")?,
                order: policy("order")?,
                kind: policy("type")?,
                resource: policy("resource")?,
                effect: policy("effect")?,
                severity: policy("severity")?,
                raise_after: policy("raise-after")?,
                clear_after: policy("clear-after")?,
                count: policy("count")?,
                window: policy("window")?,
            },
            shelf: ShelfNodes {
                list: node("/shelf")?,
                name: shelf("name")?,
                kind: shelf("type")?,
                resource: shelf("resource")?,
            },
        })
    }

    /// The part of a configuration that has the settings.
    pub(super) fn part(&self, tree: &Tree<Provenance>) -> Option<Arc<ConfigBranch>> {
        tree.root().container(self.management).cloned()
    }

    /// The settings in such a part.
    pub(super) fn read(&self, part: Option<&ConfigBranch>) -> Settings {
        let entries = |list: NodeId| {
            let list = part.and_then(|branch| branch.list(list));
            let entries = list.into_iter().flat_map(|list| list.iter());
            entries.map(|(_, entry)| Arc::clone(entry)).collect::<Vec<_>>()
        };
        let policies = entries(self.policy.list).iter().map(|it| self.policy.read(it)).collect();
        let shelves = entries(self.shelf.list).iter().map(|it| self.shelf.read(it)).collect();
        Settings::new(policies, shelves)
    }
}

impl PolicyNodes {
    fn read(&self, entry: &ConfigBranch) -> Policy {
        let milliseconds = |node| number(entry, node).map(Duration::from_millis);
        // The effective configuration has the defaults of the model.
        let limited = |node| clamped(number(entry, node).unwrap_or_default());
        Policy {
            name: text(entry, self.name),
            order: limited(self.order),
            filter: filter(entry, self.kind, self.resource),
            is_ignored: entry
                .value(self.effect)
                .is_some_and(|effect| effect.to_string() == "ignore"),
            severity: entry.value(self.severity).and_then(|it| Severity::by_name(&it.to_string())),
            raise_after: milliseconds(self.raise_after),
            clear_after: milliseconds(self.clear_after).unwrap_or_default(),
            count: limited(self.count),
            window: Duration::from_secs(number(entry, self.window).unwrap_or_default()),
        }
    }
}

impl ShelfNodes {
    fn read(&self, entry: &ConfigBranch) -> Shelf {
        Shelf { name: text(entry, self.name), filter: filter(entry, self.kind, self.resource) }
    }
}

fn filter(entry: &ConfigBranch, kind: NodeId, resource: NodeId) -> Filter {
    let glob = |node| entry.value(node).map(|value| Glob::new(&value.to_string()));
    Filter { kind: glob(kind).unwrap_or_default(), resource: glob(resource).unwrap_or_default() }
}

fn text(entry: &ConfigBranch, node: NodeId) -> SmolStr {
    entry.value(node).map(|value| value.to_string().into()).unwrap_or_default()
}

fn number(entry: &ConfigBranch, node: NodeId) -> Option<u64> {
    match entry.value(node) {
        Some(Value::Uint(number)) => Some(*number),
        _ => None,
    }
}

/// The models limit these numbers to 32 bits.
fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
