//! Checks of a Set that changes the configuration of faults.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use holdfast_common::nearest;
use holdfast_config::schema::Schema;
use holdfast_config::{
    Configuration, InstancePath, Keys, MissingNode, Models, NodeId, Step, Value,
};
use holdfast_core::SettingsCheck;
use holdfast_faults::{
    AlarmRule, DEFAULT_CONSUMER, Filter, Glob, MAX_GROUP_LINKS, MAX_GROUPS, MAX_PROBES, MAX_RULES,
    Probe, TYPES, UplinkGroup, circle,
};
use holdfast_services::expression::Conditions;

use super::probes::MAX_PACKETS;
use super::rules;
use super::settings::{ConfigBranch, PatternLeaves, SettingNodes, entries, entry_path, globs};
use super::thresholds;

/// Targets of one probe: more than are needed to tell a dead target from a dead way.
const MAX_TARGETS: usize = 16;

/// Threshold rules that are judged: each may use up its fuel once a second, which takes about a millisecond.
const MAX_THRESHOLD_RULES: usize = 256;

/// Refuses probes that would send too much, rules that cannot be evaluated, uplink groups that stand in a circle, and consumers
/// of nothing.
#[derive(Debug)]
pub struct FaultSettingsCheck {
    nodes: SettingNodes,
    conditions: Conditions,
}

impl FaultSettingsCheck {
    /// # Errors
    /// When the native model lacks a node, which the first test finds.
    pub fn new(native: &Schema) -> Result<Self, MissingNode> {
        Ok(Self { nodes: SettingNodes::find(native)?, conditions: Conditions::new() })
    }

    /// Refuses patterns that fit no alarm: an entry that does nothing would look like one that works.
    fn patterns(&self, part: &ConfigBranch) -> Result<(), Refusal> {
        for PatternLeaves { list, types, resources } in self.nodes.pattern_leaves() {
            for (keys, entry) in entries(part, list) {
                let checked = check_patterns(&globs(entry, types), &globs(entry, resources));
                if let Err(error) = checked {
                    return Err(Refusal { list, keys: keys.clone(), reason: error.to_string() });
                }
            }
        }
        Ok(())
    }

    fn probes(&self, part: &ConfigBranch) -> Result<(), Refusal> {
        let list = self.nodes.probe.list;
        let mut packets = 0;
        for (number, (keys, entry)) in entries(part, list).enumerate() {
            let refused = |reason: String| Refusal { list, keys: keys.clone(), reason };
            let Some(probe) = self.nodes.probe.read(entry) else {
                return Err(refused("a probe needs a `next-hop`".to_owned()));
            };
            packets += packets_of(&probe);
            let nowhere = [&probe.next_hop].into_iter().chain(&probe.targets);
            let nowhere = nowhere.filter(|it| it.is_unspecified() || it.is_multicast());
            let families =
                probe.targets.iter().filter(|it| it.is_ipv4() != probe.next_hop.is_ipv4());
            let reason = if number >= MAX_PROBES {
                format!("more than {MAX_PROBES} probes are not run")
            } else if probe.targets.len() > MAX_TARGETS {
                format!("a probe has at most {MAX_TARGETS} targets")
            } else if let Some(address) = nowhere.into_iter().next() {
                format!("{address} is not the address of a host, so nobody answers for it")
            } else if let Some(target) = families.into_iter().next() {
                format!(
                    "the target {target} is not of the family of the next hop {}",
                    probe.next_hop
                )
            } else if packets > u128::from(MAX_PACKETS) * 1000 {
                format!(
                    "with it, all probes together send more than {MAX_PACKETS} packets a second: make its `interval` longer"
                )
            } else {
                continue;
            };
            return Err(refused(reason));
        }
        Ok(())
    }

    fn rules(&self, part: &ConfigBranch, models: &Arc<Models>) -> Result<(), Refusal> {
        let list = self.nodes.rule.list;
        let requires_resource = self.nodes.requires_resource(part);
        let mut thresholds = 0;
        for (number, (keys, entry)) in entries(part, list).enumerate() {
            let rule = self.nodes.rule.read(entry);
            let mut reason = String::new();
            if number >= MAX_RULES {
                let _ = write!(reason, "more than {MAX_RULES} rules are not looked at");
            } else if rule.threshold.is_some() {
                thresholds += 1;
                let is_too_many = thresholds > MAX_THRESHOLD_RULES;
                reason = self.threshold_refusal(&rule, models, is_too_many).unwrap_or_default();
            } else if requires_resource && rule.filter.resource == Glob::default() {
                reason =
                    "its `resource` is `*`, and `settings/require-resource` is true".to_owned();
            } else if let Err(error) = self.expression(&rule) {
                reason = format!("its `expression` is refused: {error}");
            }
            if !reason.is_empty() {
                return Err(Refusal { list, keys: keys.clone(), reason });
            }
        }
        Ok(())
    }

    fn threshold_refusal(
        &self,
        rule: &AlarmRule,
        models: &Arc<Models>,
        is_too_many: bool,
    ) -> Option<String> {
        if is_too_many {
            return Some(format!("more than {MAX_THRESHOLD_RULES} threshold rules are not judged"));
        }
        if rule.filter != Filter::default() {
            let reason = "it is a threshold rule, which reads leaves: `type` and `resource` belong to an event rule";
            return Some(reason.to_owned());
        }
        let Some(expression) = &rule.expression else {
            return Some("a threshold rule needs an `expression`".to_owned());
        };
        let checked = thresholds::check(&self.conditions, expression, models);
        checked.err().map(|error| format!("its `expression` is refused: {error}"))
    }

    /// Refuses consumers that cannot be told from the one for all others, and those whose paths lead nowhere.
    fn consumers(&self, part: &ConfigBranch, native: &Schema) -> Result<(), Refusal> {
        let nodes = &self.nodes.maintenance.consumer;
        for (keys, entry) in entries(part, nodes.list) {
            let refused = |reason| Refusal { list: nodes.list, keys: keys.clone(), reason };
            if nodes.id(entry) == DEFAULT_CONSUMER {
                let reason = "this is the name of the consumer of what no entry names";
                return Err(refused(reason.to_owned()));
            }
            for path in nodes.paths(entry) {
                if let Err(error) = entry_path(&path, native) {
                    return Err(refused(format!("its `path` leads nowhere: {error}")));
                }
            }
        }
        Ok(())
    }

    fn groups(&self, part: &ConfigBranch) -> Result<(), Refusal> {
        let list = self.nodes.group.list;
        let mut groups = Vec::new();
        for (number, (keys, entry)) in entries(part, list).enumerate() {
            let group = self.nodes.group.read(entry);
            let refused = |reason: String| Refusal { list, keys: keys.clone(), reason };
            if number >= MAX_GROUPS {
                return Err(refused(format!("more than {MAX_GROUPS} groups are not looked at")));
            }
            for (links, name) in [(&group.members, "members"), (&group.dependents, "dependents")] {
                if links.len() > MAX_GROUP_LINKS {
                    return Err(refused(format!("a group has at most {MAX_GROUP_LINKS} {name}")));
                }
            }
            groups.push(group);
        }
        let Some(circle) = circle(&groups) else { return Ok(()) };
        let Some(first) = circle.first() else { return Ok(()) };
        let keys = Keys::single(Value::Str(first.name.clone()));
        Err(Refusal { list, keys, reason: circle_text(&circle) })
    }

    fn expression(&self, rule: &AlarmRule) -> Result<(), String> {
        rule.expression
            .as_ref()
            .map_or(Ok(()), |expression| rules::check(&self.conditions, expression))
    }

    /// The entry that is refused, in this container.
    fn path(container: NodeId, refusal: &Refusal) -> InstancePath {
        InstancePath(vec![
            Step { node: container, keys: None },
            Step { node: refusal.list, keys: Some(refusal.keys.clone()) },
        ])
    }
}

/// An entry that is refused.
struct Refusal {
    list: NodeId,
    keys: Keys,
    reason: String,
}

/// A pattern that fits no alarm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PatternError {
    #[error("the pattern `{pattern}` fits no type of alarm{meant}")]
    Type { pattern: Glob, meant: String },
    #[error(
        "the pattern `{0}` fits no resource: resources are `agent`, `box`, and those that begin with `group:`, `interface:`, `next-hop:`, `service:`, `value:` or `x:`"
    )]
    Resource(Glob),
}

/// Checks that some alarm may be of one of the types, and one on one of the resources.
///
/// # Errors
/// With the first pattern that no alarm can fit.
pub(super) fn check_patterns(types: &[Glob], resources: &[Glob]) -> Result<(), PatternError> {
    if let Some(pattern) = types.iter().find(|pattern| !pattern.fits_a_type()) {
        let meant = nearest(&pattern.to_string(), || TYPES.iter().map(|row| row.name));
        let meant = meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
        return Err(PatternError::Type { pattern: pattern.clone(), meant });
    }
    match resources.iter().find(|pattern| !pattern.fits_a_resource()) {
        Some(pattern) => Err(PatternError::Resource(pattern.clone())),
        None => Ok(()),
    }
}

/// The way round a circle, by the interfaces that close it.
fn circle_text(circle: &[&UplinkGroup]) -> String {
    let following = circle.iter().skip(1).chain(circle.first());
    let steps = circle.iter().zip(following).map(|(group, next)| {
        let shared = group.dependents.intersection(&next.members).next();
        let link = shared.map_or("", |it| it.as_str());
        let next = &next.name;
        format!("{link} is a dependent of `{}` and a member of `{next}`", group.name)
    });
    let steps: Vec<String> = steps.collect();
    format!("a group may not depend on itself: {}", steps.join(", "))
}

/// Packets of a probe in a thousand seconds.
fn packets_of(probe: &Probe) -> u128 {
    let targets = u128::try_from(probe.targets.len()).unwrap_or(u128::MAX);
    let interval = probe.interval.max(Duration::from_millis(1));
    targets * 1_000_000 / interval.as_millis()
}

impl SettingsCheck for FaultSettingsCheck {
    fn refusal(&self, old: &Configuration, new: &Configuration) -> Option<(InstancePath, String)> {
        let refuse = |container, checked: Result<(), Refusal>| {
            checked.err().map(|refusal| (Self::path(container, &refusal), refusal.reason))
        };
        let faults = changed(|it| self.nodes.part(it.effective()), old, new);
        let refused = faults.and_then(|part| {
            let checked = self.patterns(&part).and_then(|()| self.probes(&part));
            let checked = checked.and_then(|()| self.rules(&part, new.shared_models()));
            let checked = checked.and_then(|()| self.groups(&part));
            refuse(self.nodes.management, checked)
        });
        refused.or_else(|| {
            let part = changed(|it| self.nodes.maintenance_part(it.effective()), old, new)?;
            let checked = self.consumers(&part, &new.models().native);
            refuse(self.nodes.maintenance.container, checked)
        })
    }
}

/// A part of the new configuration, unless it is that of the old one.
fn changed(
    part: impl Fn(&Configuration) -> Option<Arc<ConfigBranch>>,
    old: &Configuration,
    new: &Configuration,
) -> Option<Arc<ConfigBranch>> {
    let after = part(new)?;
    let is_same = part(old).is_some_and(|before| Arc::ptr_eq(&before, &after));
    (!is_same).then_some(after)
}
