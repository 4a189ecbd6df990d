//! Alarms as leaves of the native model; the map makes those of OpenConfig of them.

use std::sync::Arc;

use holdfast_config::schema::Schema;
use holdfast_config::{InstancePath, Keys, MissingNode, Models, Name, Value};
use holdfast_core::ServiceState;
use holdfast_faults::{
    Alarm, Condition, Faults, FenceTarget, GroupState, ImpactCount, Latch, OperatorState,
    RuleState, RuleStatus, Severity,
};
use holdfast_telemetry::Revision;
use smol_str::{SmolStr, ToSmolStr};

use super::drains::DrainStanding;

/// Routes that are shown of those that stay on a drained resource: more than anybody reads.
const MAX_SHOWN_LEFT: usize = 1000;

/// Paths of the leaves that show alarms.
#[derive(Debug)]
pub(super) struct AlarmLeaves {
    open: EntryLeaves,
    shelved: EntryLeaves,
    shelf: InstancePath,
    suppressed_by: InstancePath,
    severities: [(Severity, InstancePath); 4],
    shelved_count: InstancePath,
    last_event_id: InstancePath,
    latch: LatchLeaves,
    monitor: MonitorLeaves,
    rule: RuleLeaves,
    group: GroupLeaves,
    fence: FenceLeaves,
    /// For the texts of paths.
    models: Arc<Models>,
}

/// Paths of the leaves of an alarm, below some entry.
#[derive(Debug)]
struct EntryLeaves {
    id: InstancePath,
    kind: InstancePath,
    resource: InstancePath,
    severity: InstancePath,
    text: InstancePath,
    time_created: InstancePath,
    last_raised: InstancePath,
    last_changed: InstancePath,
    event_id: InstancePath,
    occurrences: InstancePath,
    operator_state: InstancePath,
    operator: InstancePath,
    operator_text: InstancePath,
    sources: InstancePath,
    cause: InstancePath,
    impact_state: InstancePath,
    impact_down: InstancePath,
    impact_degraded: InstancePath,
}

/// Paths of the leaves of a latch.
#[derive(Debug)]
struct LatchLeaves {
    id: InstancePath,
    resource: InstancePath,
    by: InstancePath,
    reason: InstancePath,
    time: InstancePath,
}

/// Paths of the leaves of a reporter.
#[derive(Debug)]
struct MonitorLeaves {
    name: InstancePath,
    last_seen: InstancePath,
    reports: InstancePath,
    refused: InstancePath,
}

/// Paths of the leaves of a rule.
#[derive(Debug)]
struct RuleLeaves {
    owner: InstancePath,
    name: InstancePath,
    state: InstancePath,
    since: InstancePath,
    last_event_id: InstancePath,
    fired: InstancePath,
    errors: InstancePath,
}

impl RuleLeaves {
    fn find(native: &Schema) -> Result<Self, MissingNode> {
        let leaf = |name: &str| {
            let entry = ("rule", &[("owner", "any"), ("name", "any")][..]);
            native.instance_path(&[("fault-state", &[][..]), entry, ("state", &[]), (name, &[])])
        };
        Ok(Self {
            owner: leaf("owner")?,
            name: leaf("name")?,
            state: leaf("state")?,
            since: leaf("since")?,
            last_event_id: leaf("last-event-id")?,
            fired: leaf("fired-count")?,
            errors: leaf("errors")?,
        })
    }
}

/// Paths of the leaves of an uplink group.
#[derive(Debug)]
struct GroupLeaves {
    name: InstancePath,
    status: InstancePath,
    lost: InstancePath,
}

/// Paths of the leaves of a fence.
#[derive(Debug)]
struct FenceLeaves {
    resource: InstancePath,
    action: InstancePath,
    owners: InstancePath,
    left: InstancePath,
}

impl FenceLeaves {
    fn find(native: &Schema) -> Result<Self, MissingNode> {
        let leaf = |name: &str| {
            let entry = ("fence", &[("resource", "any"), ("action", "shut")][..]);
            native.instance_path(&[("fault-state", &[][..]), entry, ("state", &[]), (name, &[])])
        };
        Ok(Self {
            resource: leaf("resource")?,
            action: leaf("action")?,
            owners: leaf("owner")?,
            left: leaf("left")?,
        })
    }
}

/// Counts of a reporter since the agent was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MonitorCounts {
    /// Nanoseconds since 1970.
    pub(super) last_seen_ns: u64,
    pub(super) reports: u64,
    pub(super) refused: u64,
}

impl EntryLeaves {
    fn find(native: &Schema, list: &str) -> Result<Self, MissingNode> {
        let leaf = |name: &str| entry_leaf(native, list, name);
        let impact = |name: &str| {
            let entry = (list, &[("id", "any")][..]);
            let path =
                [("fault-state", &[][..]), entry, ("state", &[]), ("impact", &[]), (name, &[])];
            native.instance_path(&path)
        };
        Ok(Self {
            id: leaf("id")?,
            kind: leaf("type")?,
            resource: leaf("resource")?,
            severity: leaf("severity")?,
            text: leaf("text")?,
            time_created: leaf("time-created")?,
            last_raised: leaf("last-raised")?,
            last_changed: leaf("last-changed")?,
            event_id: leaf("event-id")?,
            occurrences: leaf("occurrences")?,
            operator_state: leaf("operator-state")?,
            operator: leaf("operator")?,
            operator_text: leaf("operator-text")?,
            sources: leaf("source")?,
            cause: leaf("cause")?,
            impact_state: impact("state")?,
            impact_down: impact("down")?,
            impact_degraded: impact("degraded")?,
        })
    }

    /// The leaves of an alarm in this list; all of them go without one.
    fn show(&self, id: &SmolStr, alarm: Option<&Alarm>, leaves: &mut ServiceState) {
        let operator = alarm.filter(|alarm| alarm.operator_state != OperatorState::None);
        let mut put = |path: &InstancePath, value: Option<Value>| {
            leaves.push((path.clone().with_last_key(Value::Str(id.clone())), value));
        };
        let text = |text: &str| Value::Str(text.into());
        put(&self.id, alarm.map(|_| Value::Str(id.clone())));
        put(&self.kind, alarm.map(|it| text(&it.condition.kind.name)));
        put(&self.resource, alarm.map(|it| text(&it.condition.resource.to_string())));
        put(&self.severity, alarm.map(|it| Value::Enum(Name::constant(it.severity.name()))));
        put(&self.text, alarm.map(|it| Value::Str(it.text.clone())));
        put(&self.time_created, alarm.map(|it| Value::Uint(it.created_ns)));
        put(&self.last_raised, alarm.map(|it| Value::Uint(it.raised_ns)));
        put(&self.last_changed, alarm.map(|it| Value::Uint(it.changed_ns)));
        put(&self.event_id, alarm.map(|it| Value::Uint(it.transition)));
        put(&self.occurrences, alarm.map(|it| Value::Uint(it.occurrences)));
        let state = |it: &Alarm| Value::Enum(Name::constant(it.operator_state.name()));
        put(&self.operator_state, alarm.map(state));
        put(&self.operator, operator.map(|it| Value::Str(it.operator.clone())));
        let words = operator.filter(|it| !it.operator_text.is_empty());
        put(&self.operator_text, words.map(|it| Value::Str(it.operator_text.clone())));
        let sources =
            |it: &Alarm| it.sources.iter().map(|source| Value::Str(source.name())).collect();
        put(&self.sources, alarm.map(|it| Value::List(sources(it))));
        let cause = alarm.and_then(|it| it.cause.as_ref());
        put(&self.cause, cause.map(|it| text(&it.to_string())));
        let impact = alarm.and_then(|it| it.impact);
        let number = |count: usize| Value::Uint(count.try_into().unwrap_or(u64::MAX));
        let state = |it: ImpactCount| Value::Enum(Name::constant(it.state.name()));
        put(&self.impact_state, impact.map(state));
        put(&self.impact_down, impact.map(|it| number(it.down)));
        put(&self.impact_degraded, impact.map(|it| number(it.degraded)));
    }
}

impl AlarmLeaves {
    /// Finds the leaves in the native model.
    ///
    /// # Errors
    /// When the model lacks one of them, which would be a bug that the first test finds.
    pub(super) fn find(models: Arc<Models>) -> Result<Self, MissingNode> {
        let native = &models.native;
        let summary = |leaf: &str| {
            native.instance_path(&[("fault-state", &[][..]), ("summary", &[]), (leaf, &[])])
        };
        Ok(Self {
            open: EntryLeaves::find(native, "alarm")?,
            shelved: EntryLeaves::find(native, "shelved-alarm")?,
            shelf: entry_leaf(native, "shelved-alarm", "shelf")?,
            suppressed_by: entry_leaf(native, "shelved-alarm", "suppressed-by")?,
            severities: [
                (Severity::Critical, summary("critical")?),
                (Severity::Major, summary("major")?),
                (Severity::Minor, summary("minor")?),
                (Severity::Warning, summary("warning")?),
            ],
            shelved_count: summary("shelved")?,
            last_event_id: summary("last-event-id")?,
            latch: LatchLeaves {
                id: entry_leaf(native, "latch", "id")?,
                resource: entry_leaf(native, "latch", "resource")?,
                by: entry_leaf(native, "latch", "by")?,
                reason: entry_leaf(native, "latch", "reason")?,
                time: entry_leaf(native, "latch", "time")?,
            },
            monitor: MonitorLeaves {
                name: entry_leaf(native, "monitor", "name")?,
                last_seen: entry_leaf(native, "monitor", "last-seen")?,
                reports: entry_leaf(native, "monitor", "reports")?,
                refused: entry_leaf(native, "monitor", "refused")?,
            },
            rule: RuleLeaves::find(native)?,
            group: GroupLeaves {
                name: entry_leaf(native, "uplink-group", "name")?,
                status: entry_leaf(native, "uplink-group", "effective-status")?,
                lost: entry_leaf(native, "uplink-group", "lost")?,
            },
            fence: FenceLeaves::find(native)?,
            models,
        })
    }

    /// Leaves of a latch; all of them go without one.
    pub(super) fn show_latch(&self, id: &Condition, latch: Option<&Latch>) -> ServiceState {
        let id = SmolStr::from(id.to_string());
        let at = |path: &InstancePath| path.clone().with_last_key(Value::Str(id.clone()));
        let text = |text: &str| Value::Str(text.into());
        vec![
            (at(&self.latch.id), latch.map(|_| text(&id))),
            (at(&self.latch.resource), latch.map(|it| text(&it.resource.to_string()))),
            (at(&self.latch.by), latch.map(|it| text(&it.by))),
            (at(&self.latch.reason), latch.map(|it| text(&it.reason))),
            (at(&self.latch.time), latch.map(|it| Value::Uint(it.at_ns))),
        ]
    }

    /// Leaves of a reporter; all of them go with its entry.
    pub(super) fn show_monitor(
        &self,
        name: &SmolStr,
        counts: Option<MonitorCounts>,
    ) -> ServiceState {
        let at = |path: &InstancePath| path.clone().with_last_key(Value::Str(name.clone()));
        let last_seen = counts.map(|it| it.last_seen_ns).filter(|time_ns| *time_ns > 0);
        vec![
            (at(&self.monitor.name), counts.map(|_| Value::Str(name.clone()))),
            (at(&self.monitor.last_seen), last_seen.map(Value::Uint)),
            (at(&self.monitor.reports), counts.map(|it| Value::Uint(it.reports))),
            (at(&self.monitor.refused), counts.map(|it| Value::Uint(it.refused))),
        ]
    }

    /// Leaves of a rule, by the condition of its alarm; all of them go with its entry.
    pub(super) fn show_rule(&self, rule: &Condition, state: Option<&RuleState>) -> ServiceState {
        let Some((owner, name)) = rule.qualifier.split_once('/') else { return Vec::new() };
        let keys = Keys::from_iter([owner, name].map(|it| Value::Str(it.into())));
        let at = |path: &InstancePath| with_keys(path, &keys);
        let text = |text: &str| state.map(|_| Value::Str(text.into()));
        let name_of = |it: &RuleState| match it.status {
            RuleStatus::Ok => "ok",
            RuleStatus::Alarm => "alarm",
            RuleStatus::InsufficientData => "insufficient-data",
        };
        let last_event = state.map(|it| it.last_event_id).filter(|id| *id > 0);
        vec![
            (at(&self.rule.owner), text(owner)),
            (at(&self.rule.name), text(name)),
            (at(&self.rule.state), state.map(|it| Value::Enum(Name::constant(name_of(it))))),
            (at(&self.rule.since), state.map(|it| Value::Uint(it.since_ns))),
            (at(&self.rule.last_event_id), last_event.map(Value::Uint)),
            (at(&self.rule.fired), state.map(|it| Value::Uint(it.fired))),
            (at(&self.rule.errors), state.map(|it| Value::Uint(it.errors))),
        ]
    }

    /// Leaves of an uplink group; all of them go with its entry.
    pub(super) fn show_group(&self, name: &SmolStr, state: Option<&GroupState>) -> ServiceState {
        let at = |path: &InstancePath| path.clone().with_last_key(Value::Str(name.clone()));
        let status = state.and_then(|it| it.status);
        let status = status.map(|it| Value::Enum(Name::constant(it.name())));
        let lost = state.map(|it| &it.lost).filter(|lost| !lost.is_empty());
        let lost = lost.map(|lost| Value::List(lost.iter().cloned().map(Value::Str).collect()));
        vec![
            (at(&self.group.name), state.map(|_| Value::Str(name.clone()))),
            (at(&self.group.status), status),
            (at(&self.group.lost), lost),
        ]
    }

    /// Leaves of a fence; all of them go with it.
    pub(super) fn show_fence(
        &self,
        target: &FenceTarget,
        standing: Option<&DrainStanding>,
    ) -> ServiceState {
        let resource = Value::Str(target.resource.to_string().into());
        let action = Value::Enum(Name::constant(target.action.name()));
        let keys = Keys::from_iter([resource.clone(), action.clone()]);
        let at = |path: &InstancePath| with_keys(path, &keys);
        let list = |texts: Vec<SmolStr>| {
            let some = Some(texts).filter(|texts| !texts.is_empty());
            some.map(|texts| Value::List(texts.into_iter().map(Value::Str).collect()))
        };
        let owners = standing.map(|it| it.owners.iter().map(ToSmolStr::to_smolstr).collect());
        let native = &self.models.native;
        let text = |entry: &InstancePath| entry.to_path(native).to_smolstr();
        let left = standing.map(|it| it.left.iter().take(MAX_SHOWN_LEFT).map(text).collect());
        vec![
            (at(&self.fence.resource), standing.map(|_| resource)),
            (at(&self.fence.action), standing.map(|_| action)),
            (at(&self.fence.owners), owners.and_then(list)),
            (at(&self.fence.left), left.and_then(list)),
        ]
    }

    /// Conditions with an alarm in a revision, open or on a shelf.
    pub(super) fn shown_before(&self, revision: &Revision) -> Vec<Condition> {
        let lists = [&self.open.id, &self.shelved.id].into_iter().filter_map(|leaf| {
            let [state, list, ..] = leaf.0.as_slice() else { return None };
            revision.native.root().container(state.node)?.list(list.node)
        });
        let entries = lists.flat_map(|list| list.iter());
        entries.filter_map(|(keys, _)| keys.first()?.to_string().parse().ok()).collect()
    }

    /// Leaves of these conditions' alarms, and of the summary.
    pub(super) fn show<'a>(
        &self,
        faults: &Faults,
        conditions: impl IntoIterator<Item = &'a Condition>,
    ) -> ServiceState {
        let mut leaves = ServiceState::new();
        for condition in conditions {
            let id = SmolStr::from(condition.to_string());
            let alarm = faults.alarm(condition);
            let shelved = alarm.filter(|alarm| alarm.is_aside());
            let open = alarm.filter(|alarm| !alarm.is_aside());
            self.open.show(&id, open, &mut leaves);
            self.shelved.show(&id, shelved, &mut leaves);
            let shelf = shelved.and_then(|alarm| alarm.shelf.clone());
            let path = self.shelf.clone().with_last_key(Value::Str(id.clone()));
            leaves.push((path, shelf.map(Value::Str)));
            let session = shelved.and_then(|alarm| alarm.suppressed_by.clone());
            let path = self.suppressed_by.clone().with_last_key(Value::Str(id));
            leaves.push((path, session.map(Value::Str)));
        }
        for (severity, path) in &self.severities {
            let open = faults.open(*severity);
            leaves.push((path.clone(), Some(Value::Uint(open.into()))));
        }
        leaves.push((self.shelved_count.clone(), Some(Value::Uint(faults.shelved().into()))));
        let last = faults.log().last_id();
        leaves.push((self.last_event_id.clone(), Some(Value::Uint(last))));
        leaves
    }
}

/// The path with other keys of its last entry.
fn with_keys(path: &InstancePath, keys: &Keys) -> InstancePath {
    let mut path = path.clone();
    if let Some(entry) = path.0.iter_mut().rfind(|step| step.keys.is_some()) {
        entry.keys = Some(keys.clone());
    }
    path
}

/// A leaf of the state of some entry of a list.
fn entry_leaf(native: &Schema, list: &str, leaf: &str) -> Result<InstancePath, MissingNode> {
    let key = if ["monitor", "uplink-group"].contains(&list) { "name" } else { "id" };
    let entry = (list, &[(key, "any")][..]);
    native.instance_path(&[("fault-state", &[][..]), entry, ("state", &[]), (leaf, &[])])
}
