//! Computation of answers to `explain` about values.

use std::collections::BTreeSet;

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Leaf, NodeRef};
use holdfast_config::{InstancePath, LeafMeta, Provenance, ProvenanceKind, Step, Tree};
use holdfast_core::CoreView;
use holdfast_platform::objects::ObjectKeys;
use holdfast_platform::objects::state::Planes;
use holdfast_scheduler::{Key, SharedValue, ValueState, ValueStatus};
use serde_json::json;

use super::arguments::format_time;
use super::document::{Renderer, details, txn_name, word};
use super::waits;

/// Largest number of values for a path, and of leaves for a value.
const SHOWN: usize = 1000;

/// Computes answers within the core.
pub(super) struct Explainer<'a> {
    pub(super) view: &'a CoreView<'a>,
    pub(super) render: &'a Renderer,
}

impl Explainer<'_> {
    pub(super) fn document(&self, status: &ValueStatus) -> serde_json::Value {
        let bases = self.bases(status);
        let chain = self.dependency_chain(&status.key);
        json!({
            "Key": self.render.key(&status.key),
            "Label": status.label,
            "State": status.state.to_string(),
            "Because": self.state_reason(status),
            "Chain": chain,
            "AskedBy": self.requested_by(&bases),
            "Bases": bases.iter().map(|key| self.render.key(key)).collect::<Vec<_>>(),
            "Leaves": self.leaves(&bases),
            "PartOf": status.part_of.iter().map(|key| self.render.key(key)).collect::<Vec<_>>(),
            "Parts": self.parts(status),
            "NeededBy": self
                .view
                .engine
                .dependents(&status.key, SHOWN)
                .iter()
                .map(|key| self.summary(key))
                .collect::<Vec<_>>(),
            "NeededInTurn": self.needed_in_turn(&status.key),
        })
    }

    /// Reason for which a value is not as it should be, down to what is missing; nothing for one that is.
    pub(super) fn obstacle(&self, key: &Key) -> Option<serde_json::Value> {
        let status = self.view.engine.status(key)?;
        let is_fine = status.state == ValueState::Configured && status.detail.unmet.is_empty();
        (!is_fine && status.state != ValueState::Nonexistent).then(
            || json!({"Because": self.state_reason(&status), "Chain": self.dependency_chain(key)}),
        )
    }

    fn summary(&self, key: &Key) -> serde_json::Value {
        let engine = self.view.engine;
        json!({
            "Key": self.render.key(key),
            "Label": engine.label(key),
            "State": engine.state(key).to_string(),
        })
    }

    /// Parts of a value. Properties are left out, as their state is that of the value.
    fn parts(&self, status: &ValueStatus) -> Vec<serde_json::Value> {
        let is_in_graph = |key: &&Key| self.view.engine.status(key).is_some();
        status.parts.iter().filter(is_in_graph).map(|key| self.summary(key)).collect()
    }

    /// The value and all values that it is a part of, itself first.
    fn bases(&self, status: &ValueStatus) -> Vec<Key> {
        let mut bases = vec![status.key.clone()];
        let mut at = 0;
        while let Some(key) = bases.get(at).cloned() {
            at += 1;
            let above = self.view.engine.status(&key).map(|it| it.part_of).unwrap_or_default();
            for key in above {
                if !bases.contains(&key) {
                    bases.push(key);
                }
            }
        }
        bases
    }

    /// Text for the reason of a value's state.
    fn state_reason(&self, status: &ValueStatus) -> String {
        let unmet = || status.detail.unmet.join(", ");
        let waits = || format!("it waits for: {}", unmet());
        match status.state {
            ValueState::Configured if !status.detail.unmet.is_empty() => {
                format!("the system has as much of it as is possible without: {}", unmet())
            }
            ValueState::Configured => "the system has what is intended".to_owned(),
            ValueState::Obtained => "the system has it, and it is not configured".to_owned(),
            ValueState::InProgress => "an operation on it is under way".to_owned(),
            ValueState::Cyclic => {
                let circle = status.detail.cycle.iter().map(|key| self.view.engine.label(key));
                format!("it waits for itself: {}", circle.collect::<Vec<_>>().join(", "))
            }
            ValueState::Pending if !status.detail.unmet.is_empty() => waits(),
            ValueState::Conflict => {
                let holder = status.detail.conflict.as_ref();
                let holder = holder.map(|key| self.view.engine.label(key));
                format!("{} holds what it needs", holder.unwrap_or_default())
            }
            ValueState::Missing => self.with_repair(
                status,
                "it was applied, and is gone from the system since".to_owned(),
            ),
            ValueState::Drifted => {
                let known = status.detail.drift.clone();
                let known = known.unwrap_or_else(|| {
                    "it was applied, and the system changed it since".to_owned()
                });
                self.with_repair(status, known)
            }
            _ => {
                let error = status.detail.error_text(self.view.now.monotonic);
                error.unwrap_or_else(|| details(status).join("; "))
            }
        }
    }

    /// A reason, followed by what becomes of the value.
    fn with_repair(&self, status: &ValueStatus, reason: String) -> String {
        let repair = status.detail.repair_text(self.view.now.monotonic);
        std::iter::once(reason).chain(repair).collect::<Vec<_>>().join("; ")
    }

    /// The chain from a waiting value to one without a further explanation.
    fn dependency_chain(&self, start: &Key) -> Vec<serde_json::Value> {
        let link = |link: &waits::WaitLink| {
            json!({
                "Key": self.render.key(&link.key),
                "Label": link.label,
                "State": link.state.to_string(),
                "WaitsFor": link.waits_for,
            })
        };
        waits::chain(self.view, start).iter().map(link).collect()
    }

    /// Values that need this one by way of another.
    fn needed_in_turn(&self, key: &Key) -> Vec<serde_json::Value> {
        let entry = |(key, through): &(Key, Key)| {
            let mut entry = self.summary(key);
            entry["Through"] = json!(self.view.engine.label(through));
            entry
        };
        waits::needed_in_turn(self.view, key, SHOWN).iter().map(entry).collect()
    }

    /// The last transaction in which a client requested the value, or one that it is a part of.
    fn requested_by(&self, bases: &[Key]) -> serde_json::Value {
        let history = self.view.engine.history();
        let of = |key: &Key| {
            let records = history.touching(key).filter(|record| {
                record.author.is_some()
                    && record.requested.iter().any(|(requested, _)| requested == key)
            });
            records.last()
        };
        let Some(record) = bases.iter().filter_map(of).max_by_key(|record| record.txn) else {
            return serde_json::Value::Null;
        };
        json!({
            "Client": record.author.as_ref().map(|author| &author.client),
            "Trace": record.author.as_ref().map(|author| &author.trace),
            "Txn": txn_name(record.txn),
            "Time": format_time(record.ended_ns),
        })
    }

    /// Configuration leaves of the value, with the owners of each.
    fn leaves(&self, bases: &[Key]) -> Vec<serde_json::Value> {
        let entries: BTreeSet<InstancePath> =
            bases.iter().filter_map(|key| self.entry(key)).collect();
        let effective = self.view.configuration.effective();
        let native = self.view.models().schema(Origin::Native);
        // Entries of lists below are objects of their own, other than next hops.
        let is_own = |step: &Step| step.keys.is_none() || native.node(step.node).object.is_none();
        let mut leaves = Vec::new();
        for entry in entries {
            let Some(branch) = effective.find_branch(&entry.0) else { continue };
            let depth = entry.0.len();
            let mut path = entry;
            NodeRef::Branch(&branch).walk(&mut path, &mut |path, leaf| {
                if leaves.len() < SHOWN && path.0[depth..].iter().all(is_own) {
                    leaves.push(self.leaf(path, leaf));
                }
            });
        }
        leaves
    }

    fn leaf(&self, path: &InstancePath, leaf: &Leaf<Provenance>) -> serde_json::Value {
        let models = self.view.models();
        let mut above = models.map.up_path(path);
        if above.is_empty() {
            // A key has no counterpart of its own: the entry has one.
            above = models.map.up_path(&InstancePath(path.0[..path.0.len() - 1].to_vec()));
        }
        let text = |path: &InstancePath, schema: &Schema| path.to_path(schema).to_string();
        json!({
            "Path": text(path, models.schema(Origin::Native)),
            "OpenConfig": above
                .iter()
                .map(|path| text(path, models.schema(Origin::OpenConfig)))
                .collect::<Vec<_>>(),
            "Value": leaf.value.to_string(),
            "Kind": match leaf.meta.kind {
                ProvenanceKind::Explicit => "explicit",
                ProvenanceKind::OpenConfigDefault => "default of openconfig",
                ProvenanceKind::Factory => "factory",
                ProvenanceKind::NativeDefault => "default",
            },
            "Owners": self.view.configuration.owner_names(path, &leaf.meta),
        })
    }

    /// Entry of the native tree that a value stands for.
    fn entry(&self, key: &Key) -> Option<InstancePath> {
        let planes = self.view.engine.planes(key);
        let value: &SharedValue = planes.into_iter().flatten().next()?;
        let value = Some(&**value);
        let planes = Planes { intended: value, applied: value, observed: value };
        Some(self.view.objects().state(key, planes)?.path)
    }

    /// Values from the configuration at and below a path.
    pub(super) fn objects(&self, origin: Origin, path: &InstancePath) -> Vec<Key> {
        let natives = match origin {
            Origin::Native => leaves_at_or_below(self.view.configuration.effective(), path),
            Origin::OpenConfig => {
                let view = self.view.configuration.config_view(origin);
                let map = &self.view.models().map;
                leaves_at_or_below(view, path)
                    .iter()
                    .filter_map(|leaf| map.path_to_native(leaf))
                    .collect()
            }
        };
        let keys: BTreeSet<Key> = natives.iter().flat_map(|path| self.values_at(path)).collect();
        keys.into_iter().collect()
    }

    /// Keys of the object that contains a native path.
    fn values_at(&self, path: &InstancePath) -> ObjectKeys {
        let keys = |end| {
            let path = InstancePath(path.0[..end].to_vec());
            let branch = self.view.configuration.effective().find_branch(&path.0);
            self.view.objects().keys(&path, &branch.unwrap_or_default()).ok()
        };
        (1..=path.0.len()).rev().find_map(keys).unwrap_or_default()
    }

    pub(super) fn object(&self, key: &Key) -> serde_json::Value {
        let mut document = self.summary(key);
        let status = self.view.engine.status(key);
        document["Parts"] = status.iter().flat_map(|status| self.parts(status)).collect();
        document["Because"] = json!(status.as_ref().map(|status| self.state_reason(status)));
        document
    }
}

/// Leaves at and below a path; the path itself when there are none.
fn leaves_at_or_below<M: LeafMeta>(tree: &Tree<M>, path: &InstancePath) -> Vec<InstancePath> {
    let mut leaves = Vec::new();
    if let Some(found) = tree.find(&path.0) {
        NodeRef::from(&found).walk(&mut path.clone(), &mut |path, _| {
            if leaves.len() < SHOWN {
                leaves.push(path.clone());
            }
        });
    }
    if leaves.is_empty() {
        leaves.push(path.clone());
    }
    leaves
}

pub(super) fn as_text(document: &serde_json::Value) -> String {
    let list = |name: &str| document[name].as_array().cloned().unwrap_or_default();
    let line = |it: &serde_json::Value| format!("  {}  {}\n", word(it, "State"), word(it, "Label"));
    if document["Path"].is_string() {
        let mut text = format!("{}\n", word(document, "Path"));
        if list("Objects").is_empty() {
            text += "  nothing of the box comes from this\n";
        }
        for object in list("Objects") {
            text += &line(&object);
            let parts = object["Parts"].as_array().cloned().unwrap_or_default();
            text.extend(parts.iter().map(|part| format!("  {}", line(part))));
        }
        return text;
    }
    let mut text = match document["Took"].as_str() {
        Some(taken) => format!("{taken}\n"),
        None => String::new(),
    };
    text += &format!(
        "{}: {}\n  {}\n",
        word(document, "Label"),
        word(document, "State"),
        word(document, "Because")
    );
    for link in list("Chain").iter().filter(|link| link["WaitsFor"].is_string()) {
        text += &format!("  {} waits for {}\n", word(link, "Label"), word(link, "WaitsFor"));
    }
    if document["AskedBy"].is_object() {
        let by = &document["AskedBy"];
        let [client, trace, txn, time] =
            ["Client", "Trace", "Txn", "Time"].map(|name| word(by, name));
        text += &format!("asked by {client} in {txn} at {time}, trace {trace}\n");
    }
    for leaf in list("Leaves") {
        let owners: Vec<_> = leaf["Owners"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(serde_json::Value::as_str)
            .collect();
        let whose = [word(&leaf, "Kind"), &owners.join(", ")].join(" ");
        let whose = match leaf["OpenConfig"][0].as_str() {
            Some(path) if owners.contains(&"client openconfig") => format!("{whose}: {path}"),
            _ => whose,
        };
        text +=
            &format!("  {} = {}  ({})\n", word(&leaf, "Path"), word(&leaf, "Value"), whose.trim());
    }
    for (title, name) in [("parts", "Parts"), ("needed by", "NeededBy")] {
        let all = list(name);
        if !all.is_empty() {
            text += &format!("{title}\n");
            text.extend(all.iter().map(line));
        }
    }
    let in_turn = list("NeededInTurn");
    if !in_turn.is_empty() {
        text += "needed in turn\n";
        for it in in_turn {
            let state = word(&it, "State");
            let label = word(&it, "Label");
            text += &format!("  {state}  {label}  (through {})\n", word(&it, "Through"));
        }
    }
    text
}
