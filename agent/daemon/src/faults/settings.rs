//! The configuration of faults.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::tree::{Branch, Tree};
use holdfast_config::{
    InstancePath, Keys, MissingNode, NodeId, Path, Provenance, Value, schema::Schema,
};
use holdfast_faults::{
    Action, AlarmRule, Consumer, Effect, Filter, Glob, MaintenanceSettings, Monitor, ObjectAction,
    Policy, Probe, ProbeMode, Require, Settings, Severity, Shelf, Threshold, UplinkGroup,
};
use smol_str::SmolStr;

use super::gateways::ProbedRoutes;

/// Nodes of the configuration of faults.
#[derive(Debug)]
pub(super) struct SettingNodes {
    pub(super) management: NodeId,
    shortcut: NodeId,
    settings: NodeId,
    policy: PolicyNodes,
    shelf: ShelfNodes,
    monitor: MonitorNodes,
    pub(super) probe: ProbeNodes,
    pub(super) rule: RuleNodes,
    pub(super) group: GroupNodes,
    require_resource: NodeId,
    probe_next_hops: NodeId,
    pub(super) maintenance: MaintenanceNodes,
}

/// Leaves or leaf-lists of a list with patterns of alarms.
#[derive(Clone, Copy, Debug)]
pub(super) struct PatternLeaves {
    pub(super) list: NodeId,
    pub(super) types: NodeId,
    pub(super) resources: NodeId,
}

/// Nodes of the configuration of maintenance.
#[derive(Debug)]
pub(super) struct MaintenanceNodes {
    pub(super) container: NodeId,
    settings: NodeId,
    minimum_lead_time: NodeId,
    default_action: NodeId,
    drain_timeout: NodeId,
    pub(super) consumer: ConsumerNodes,
}

#[derive(Debug)]
pub(super) struct ConsumerNodes {
    pub(super) list: NodeId,
    id: NodeId,
    identity: NodeId,
    service_type: NodeId,
    path: NodeId,
    requires_agreement: NodeId,
    default_action: NodeId,
    max_impacted: NodeId,
    lead_time: NodeId,
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
    action: NodeId,
    recovery_delay: NodeId,
    allow_isolation: NodeId,
}

#[derive(Debug)]
struct ShelfNodes {
    list: NodeId,
    name: NodeId,
    kind: NodeId,
    resource: NodeId,
}

#[derive(Debug)]
struct MonitorNodes {
    list: NodeId,
    name: NodeId,
    identity: NodeId,
    types: NodeId,
    resources: NodeId,
    max_severity: NodeId,
    max_ttl: NodeId,
    rate: NodeId,
}

#[derive(Debug)]
pub(super) struct ProbeNodes {
    pub(super) list: NodeId,
    name: NodeId,
    next_hop: NodeId,
    target: NodeId,
    require: NodeId,
    mode: NodeId,
    interface: NodeId,
    interval: NodeId,
    down_after: NodeId,
    up_after: NodeId,
}

#[derive(Debug)]
pub(super) struct RuleNodes {
    pub(super) list: NodeId,
    owner: NodeId,
    name: NodeId,
    description: NodeId,
    enabled: NodeId,
    severity: NodeId,
    repeats: NodeId,
    reset: NodeId,
    rule_kind: NodeId,
    kind: NodeId,
    resource: NodeId,
    expression: NodeId,
    period: NodeId,
    count: NodeId,
}

#[derive(Debug)]
pub(super) struct GroupNodes {
    pub(super) list: NodeId,
    name: NodeId,
    members: NodeId,
    least: NodeId,
    dependents: NodeId,
    action: NodeId,
    recovery_delay: NodeId,
    allow_isolation: NodeId,
}

/// A branch of the effective configuration.
pub(super) type ConfigBranch = Branch<Provenance>;

impl SettingNodes {
    /// Finds the nodes in the native model.
    ///
    /// # Errors
    /// When the model lacks one of them, which would be a bug that the first test finds.
    pub(super) fn find(native: &Schema) -> Result<Self, MissingNode> {
        let node = |path: &str| native.require(&format!("/fault-management{path}"));
        let policy = |leaf: &str| node(&format!("/policy/{leaf}"));
        let shelf = |leaf: &str| node(&format!("/shelf/{leaf}"));
        let monitor = |leaf: &str| node(&format!("/monitor/{leaf}"));
        let probe = |leaf: &str| node(&format!("/probe/{leaf}"));
        let rule = |leaf: &str| node(&format!("/alarm-rule/{leaf}"));
        let group = |leaf: &str| node(&format!("/uplink-group/{leaf}"));
        Ok(Self {
            management: node("")?,
            settings: node("/settings")?,
            shortcut: node("/settings/shortcut")?,
            require_resource: node("/settings/require-resource")?,
            probe_next_hops: node("/settings/probe-next-hops")?,
            maintenance: MaintenanceNodes::find(native)?,
            monitor: MonitorNodes {
                list: node("/monitor")?,
                name: monitor("name")?,
                identity: monitor("identity")?,
                types: monitor("types")?,
                resources: monitor("resources")?,
                max_severity: monitor("max-severity")?,
                max_ttl: monitor("max-ttl")?,
                rate: monitor("rate")?,
            },
            probe: ProbeNodes {
                list: node("/probe")?,
                name: probe("name")?,
                next_hop: probe("next-hop")?,
                target: probe("target")?,
                require: probe("require")?,
                mode: probe("mode")?,
                interface: probe("interface")?,
                interval: probe("interval")?,
                down_after: probe("down-after")?,
                up_after: probe("up-after")?,
            },
            rule: RuleNodes {
                list: node("/alarm-rule")?,
                owner: rule("owner")?,
                name: rule("name")?,
                description: rule("description")?,
                enabled: rule("enabled")?,
                severity: rule("severity")?,
                repeats: rule("repeat-actions")?,
                reset: rule("reset")?,
                rule_kind: rule("kind")?,
                kind: rule("type")?,
                resource: rule("resource")?,
                expression: rule("expression")?,
                period: rule("period")?,
                count: rule("count")?,
            },
            group: GroupNodes {
                list: node("/uplink-group")?,
                name: group("name")?,
                members: group("member")?,
                least: group("least")?,
                dependents: group("dependent")?,
                action: group("action")?,
                recovery_delay: group("recovery-delay")?,
                allow_isolation: group("allow-isolation")?,
            },
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
                action: policy("action")?,
                recovery_delay: policy("recovery-delay")?,
                allow_isolation: policy("allow-isolation")?,
            },
            shelf: ShelfNodes {
                list: node("/shelf")?,
                name: shelf("name")?,
                kind: shelf("type")?,
                resource: shelf("resource")?,
            },
        })
    }

    /// The part of a configuration that has the settings of faults.
    pub(super) fn part(&self, tree: &Tree<Provenance>) -> Option<Arc<ConfigBranch>> {
        tree.root().container(self.management).cloned()
    }

    /// The part of a configuration that has the settings of maintenance.
    pub(super) fn maintenance_part(&self, tree: &Tree<Provenance>) -> Option<Arc<ConfigBranch>> {
        tree.root().container(self.maintenance.container).cloned()
    }

    /// The settings in such parts.
    pub(super) fn read(
        &self,
        faults: Option<&ConfigBranch>,
        maintenance: Option<&ConfigBranch>,
        native: &Schema,
    ) -> Settings {
        let mut settings = faults.map(|part| self.read_faults(part)).unwrap_or_default();
        settings.maintenance =
            maintenance.map(|part| self.maintenance.read(part, native)).unwrap_or_default();
        settings
    }

    fn read_faults(&self, part: &ConfigBranch) -> Settings {
        let settings = part.container(self.settings);
        let shortcut = settings.and_then(|settings| settings.value(self.shortcut));
        let rules = entries(part, self.rule.list).filter(|(_, it)| self.rule.is_enabled(it));
        let policies = entries(part, self.policy.list).map(|(_, it)| self.policy.read(it));
        let shelves = entries(part, self.shelf.list).map(|(_, it)| self.shelf.read(it));
        let monitors = entries(part, self.monitor.list).map(|(_, it)| self.monitor.read(it));
        let probes = entries(part, self.probe.list).filter_map(|(_, it)| self.probe.read(it));
        let groups = entries(part, self.group.list).map(|(_, it)| self.group.read(it));
        let mut settings = Settings::new(policies.collect(), shelves.collect())
            .with_monitors(monitors.collect())
            .with_probes(probes.collect())
            .with_groups(groups.collect())
            .with_alarm_rules(rules.map(|(_, it)| self.rule.read(it)).collect());
        settings.is_conservative = shortcut == Some(&Value::Bool(false));
        settings
    }

    /// The leaves by which entries choose alarms.
    pub(super) fn pattern_leaves(&self) -> [PatternLeaves; 4] {
        let leaves = |list, types, resources| PatternLeaves { list, types, resources };
        [
            leaves(self.policy.list, self.policy.kind, self.policy.resource),
            leaves(self.shelf.list, self.shelf.kind, self.shelf.resource),
            leaves(self.rule.list, self.rule.kind, self.rule.resource),
            leaves(self.monitor.list, self.monitor.types, self.monitor.resources),
        ]
    }

    /// The routes whose next hops are probed without entries of their own.
    pub(super) fn probed_routes(&self, part: Option<&ConfigBranch>) -> ProbedRoutes {
        let settings = part.and_then(|part| part.container(self.settings));
        let name = settings.and_then(|settings| settings.value(self.probe_next_hops));
        name.and_then(|name| ProbedRoutes::by_name(&name.to_string())).unwrap_or_default()
    }

    /// True unless the operator permits rules for every resource.
    pub(super) fn requires_resource(&self, part: &ConfigBranch) -> bool {
        let settings = part.container(self.settings);
        let value = settings.and_then(|settings| settings.value(self.require_resource));
        value != Some(&Value::Bool(false))
    }
}

impl MaintenanceNodes {
    fn find(native: &Schema) -> Result<Self, MissingNode> {
        let node = |path: &str| native.require(&format!("/maintenance{path}"));
        let consumer = |leaf: &str| node(&format!("/consumer/{leaf}"));
        Ok(Self {
            container: node("")?,
            settings: node("/settings")?,
            minimum_lead_time: node("/settings/minimum-lead-time")?,
            default_action: node("/settings/default-action")?,
            drain_timeout: node("/settings/drain-timeout")?,
            consumer: ConsumerNodes {
                list: node("/consumer")?,
                id: consumer("id")?,
                identity: consumer("identity")?,
                service_type: consumer("service-type")?,
                path: consumer("path")?,
                requires_agreement: consumer("requires-agreement")?,
                default_action: consumer("default-action")?,
                max_impacted: consumer("max-impacted")?,
                lead_time: consumer("lead-time")?,
            },
        })
    }

    fn read(&self, part: &ConfigBranch, native: &Schema) -> MaintenanceSettings {
        let settings = part.container(self.settings);
        let seconds = |node| settings.and_then(|it| number(it, node)).map(Duration::from_secs);
        let default = MaintenanceSettings::default();
        MaintenanceSettings {
            minimum_lead_time: seconds(self.minimum_lead_time).unwrap_or(default.minimum_lead_time),
            default_action: settings
                .and_then(|it| object_action(it, self.default_action))
                .unwrap_or(default.default_action),
            drain_timeout: seconds(self.drain_timeout).unwrap_or(default.drain_timeout),
            consumers: entries(part, self.consumer.list)
                .map(|(_, entry)| self.consumer.read(entry, native))
                .collect(),
        }
    }
}

impl ConsumerNodes {
    fn read(&self, entry: &ConfigBranch, native: &Schema) -> Consumer {
        let optional = |node| entry.value(node).map(|it| SmolStr::from(it.to_string()));
        Consumer {
            id: text(entry, self.id),
            identity: optional(self.identity),
            service_type: optional(self.service_type),
            // Paths that lead nowhere are refused before they come here.
            paths: self.paths(entry).filter_map(|path| entry_path(&path, native).ok()).collect(),
            requires_agreement: entry.value(self.requires_agreement) == Some(&Value::Bool(true)),
            default_action: object_action(entry, self.default_action),
            max_impacted: number(entry, self.max_impacted).map(clamped),
            lead_time: number(entry, self.lead_time).map(Duration::from_secs),
        }
    }

    /// The paths of a consumer, as they are written.
    pub(super) fn paths<'e>(
        &self,
        entry: &'e ConfigBranch,
    ) -> impl Iterator<Item = String> + use<'e> {
        let paths = match entry.value(self.path) {
            Some(Value::List(paths)) => Some(paths.iter()),
            _ => None,
        };
        paths.into_iter().flatten().map(ToString::to_string)
    }

    pub(super) fn id(&self, entry: &ConfigBranch) -> SmolStr {
        text(entry, self.id)
    }
}

/// The entry that a path of the native model leads to.
pub(super) fn entry_path(path: &str, native: &Schema) -> Result<InstancePath, String> {
    let path: Path = path.parse().map_err(|error| format!("{error}"))?;
    native.resolve_write(&path).map_err(|error| error.to_string())
}

fn object_action(entry: &ConfigBranch, node: NodeId) -> Option<ObjectAction> {
    entry.value(node).and_then(|it| ObjectAction::by_name(&it.to_string()))
}

impl PolicyNodes {
    fn read(&self, entry: &ConfigBranch) -> Policy {
        let milliseconds = |node| number(entry, node).map(Duration::from_millis);
        // The effective configuration has the defaults of the model.
        let limited = |node| clamped(number(entry, node).unwrap_or_default());
        let effect = entry.value(self.effect).map(ToString::to_string);
        Policy {
            name: text(entry, self.name),
            order: limited(self.order),
            filter: filter(entry, self.kind, self.resource),
            is_ignored: effect.as_deref() == Some("ignore"),
            effect: effect.as_deref().and_then(Effect::by_name),
            severity: severity(entry, self.severity),
            raise_after: milliseconds(self.raise_after),
            clear_after: milliseconds(self.clear_after).unwrap_or_default(),
            count: limited(self.count),
            window: Duration::from_secs(number(entry, self.window).unwrap_or_default()),
            action: action(entry, self.action),
            recovery_delay: Duration::from_secs(
                number(entry, self.recovery_delay).unwrap_or_default(),
            ),
            allows_isolation: entry.value(self.allow_isolation) == Some(&Value::Bool(true)),
        }
    }
}

impl ShelfNodes {
    fn read(&self, entry: &ConfigBranch) -> Shelf {
        Shelf { name: text(entry, self.name), filter: filter(entry, self.kind, self.resource) }
    }
}

impl MonitorNodes {
    fn read(&self, entry: &ConfigBranch) -> Monitor {
        let globs = |node| globs(entry, node);
        Monitor {
            name: text(entry, self.name),
            identity: entry.value(self.identity).map(|it| it.to_string().into()),
            kinds: globs(self.types),
            resources: globs(self.resources),
            max_severity: severity(entry, self.max_severity).unwrap_or(Severity::Major),
            max_ttl: Duration::from_secs(number(entry, self.max_ttl).unwrap_or_default()),
            rate: clamped(number(entry, self.rate).unwrap_or_default()),
        }
    }
}

impl RuleNodes {
    fn is_enabled(&self, entry: &ConfigBranch) -> bool {
        entry.value(self.enabled) != Some(&Value::Bool(false))
    }

    pub(super) fn read(&self, entry: &ConfigBranch) -> AlarmRule {
        let is_threshold = has_name(entry, self.rule_kind, "threshold");
        let threshold = Threshold {
            period: Duration::from_secs(number(entry, self.period).unwrap_or_default()),
            count: clamped(number(entry, self.count).unwrap_or_default()),
        };
        AlarmRule {
            owner: text(entry, self.owner),
            name: text(entry, self.name),
            severity: severity(entry, self.severity).unwrap_or(Severity::Major),
            repeats: entry.value(self.repeats) == Some(&Value::Bool(true)),
            is_reset_by_hand: has_name(entry, self.reset, "manual"),
            threshold: is_threshold.then_some(threshold),
            filter: filter(entry, self.kind, self.resource),
            expression: entry.value(self.expression).map(|it| it.to_string().into()),
            description: text(entry, self.description),
        }
    }
}

impl GroupNodes {
    pub(super) fn read(&self, entry: &ConfigBranch) -> UplinkGroup {
        let delay = number(entry, self.recovery_delay).unwrap_or_default();
        let least = clamped(number(entry, self.least).unwrap_or_default());
        UplinkGroup {
            name: text(entry, self.name),
            members: names(entry, self.members),
            least: usize::try_from(least).unwrap_or(usize::MAX),
            dependents: names(entry, self.dependents),
            action: action(entry, self.action),
            recovery_delay: Duration::from_secs(delay),
            allows_isolation: entry.value(self.allow_isolation) == Some(&Value::Bool(true)),
            is_bond: false,
        }
    }
}

impl ProbeNodes {
    /// The probe of an entry; `None` where it has no next hop.
    pub(super) fn read(&self, entry: &ConfigBranch) -> Option<Probe> {
        let next_hop = address(entry.value(self.next_hop)?)?;
        let targets: Vec<IpAddr> = match entry.value(self.target) {
            Some(Value::List(targets)) => targets.iter().filter_map(address).collect(),
            _ => Vec::new(),
        };
        let limited = |node| clamped(number(entry, node).unwrap_or_default());
        Some(Probe {
            name: text(entry, self.name),
            next_hop,
            targets: if targets.is_empty() { vec![next_hop] } else { targets },
            require: if has_name(entry, self.require, "all") { Require::All } else { Require::Any },
            mode: if has_name(entry, self.mode, "neighbor") {
                ProbeMode::Neighbor
            } else {
                ProbeMode::Icmp
            },
            interface: entry.value(self.interface).map(|it| it.to_string().into()),
            interval: Duration::from_millis(number(entry, self.interval).unwrap_or_default()),
            down_after: limited(self.down_after),
            up_after: limited(self.up_after),
        })
    }
}

/// Entries of a list.
pub(super) fn entries(
    part: &ConfigBranch,
    list: NodeId,
) -> impl Iterator<Item = (&Keys, &Arc<ConfigBranch>)> {
    part.list(list).into_iter().flat_map(|list| list.iter())
}

/// The action of a policy or group; `None` for the word `none`.
fn action(entry: &ConfigBranch, node: NodeId) -> Option<Action> {
    entry.value(node).and_then(|it| Action::by_name(&it.to_string()))
}

/// Names in a leaf-list.
fn names(entry: &ConfigBranch, node: NodeId) -> BTreeSet<SmolStr> {
    match entry.value(node) {
        Some(Value::List(names)) => names.iter().map(|name| name.to_string().into()).collect(),
        _ => BTreeSet::new(),
    }
}

/// Patterns in a leaf or leaf-list.
pub(super) fn globs(entry: &ConfigBranch, node: NodeId) -> Vec<Glob> {
    match entry.value(node) {
        Some(Value::List(patterns)) => {
            patterns.iter().map(|pattern| Glob::new(&pattern.to_string())).collect()
        }
        Some(pattern) => vec![Glob::new(&pattern.to_string())],
        None => Vec::new(),
    }
}

fn severity(entry: &ConfigBranch, node: NodeId) -> Option<Severity> {
    entry.value(node).and_then(|it| Severity::by_name(&it.to_string()))
}

fn address(value: &Value) -> Option<IpAddr> {
    value.to_string().parse().ok()
}

fn filter(entry: &ConfigBranch, kind: NodeId, resource: NodeId) -> Filter {
    let glob = |node| entry.value(node).map(|value| Glob::new(&value.to_string()));
    Filter { kind: glob(kind).unwrap_or_default(), resource: glob(resource).unwrap_or_default() }
}

fn text(entry: &ConfigBranch, node: NodeId) -> SmolStr {
    entry.value(node).map(|value| value.to_string().into()).unwrap_or_default()
}

/// True when a leaf has this name of an enumeration.
fn has_name(entry: &ConfigBranch, node: NodeId, name: &str) -> bool {
    entry.value(node).is_some_and(|it| it.to_string() == name)
}

pub(super) fn number(entry: &ConfigBranch, node: NodeId) -> Option<u64> {
    match entry.value(node) {
        Some(Value::Uint(number)) => Some(*number),
        _ => None,
    }
}

/// The models limit these numbers to 32 bits.
pub(super) fn clamped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
