//! Service transactions as native state: `/service-state/transaction`.

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::services::{ServiceTransaction, WalkCause, WalkedInstance};
use holdfast_config::{Elem, InstancePath, Name, Path, Value};
use holdfast_telemetry::{ConfigOrState, DraftTree, Mutation};

use crate::service_history::HistoryChange;

/// Shows transactions that have ended, and takes away those that are kept no longer. Nodes that the models lack are
/// left out.
pub(super) fn follow(tree: &mut DraftTree<'_>, HistoryChange { added, dropped }: &HistoryChange) {
    if tree.origin() != Origin::Native || added.is_empty() && dropped.is_empty() {
        return;
    }
    let models = std::sync::Arc::clone(tree.models());
    let schema = &models.native;
    for id in dropped {
        if let Ok(path) = schema.resolve_write(&Path { elems: entry(*id).into() }) {
            tree.apply(&path, Mutation::Gone(ConfigOrState::Both));
        }
    }
    for (path, value) in added.iter().flat_map(|it| leaves(schema, it)) {
        tree.apply(&path, Mutation::Set(value));
    }
}

fn entry(id: u64) -> [Elem; 2] {
    [Elem::new("service-state"), Elem::new("transaction").key("id", id.to_string())]
}

pub(super) fn text(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| Value::Str(text.into()))
}

/// State leaves of one transaction, by their paths.
fn leaves(schema: &Schema, transaction: &ServiceTransaction) -> Vec<(InstancePath, Value)> {
    let ServiceTransaction { id, kind, author, started_ns, ended_ns, .. } = transaction;
    let ServiceTransaction { failure, instances, omitted, handler_tids, .. } = transaction;
    let result = if failure.is_some() { "failed" } else { "success" };
    let tids = handler_tids.iter().map(|tid| Value::Uint(*tid)).collect();
    let failure = failure.as_ref();
    let own = [
        ("kind", text(kind)),
        ("user", text(&author.user)),
        ("trace-id", text(&author.trace)),
        ("started", Some(Value::Uint(*started_ns))),
        ("ended", Some(Value::Uint(*ended_ns))),
        ("result", Some(Value::Enum(Name::of(result)))),
        ("origin", failure.map(|it| Value::Enum(Name::of(it.origin.name())))),
        ("reason", failure.and_then(|it| text(&it.reason))),
        ("omitted", (*omitted > 0).then_some(Value::Uint(*omitted))),
        ("handler-tid", (!handler_tids.is_empty()).then_some(Value::List(tids))),
    ];
    let above = entry(*id);
    let mut found = located(schema, &above, own);
    for WalkedInstance { tag, trace, cause } in instances {
        let [service_state, transaction] = above.clone();
        let instance = Elem::new("instance").key("service", tag.to_string());
        let above = [service_state, transaction, instance];
        let service = text(&tag.to_string());
        found.extend(located(schema, &above, [("service", service), ("trace-id", text(trace))]));
        found.extend(cause.iter().flat_map(|cause| located(schema, &above, cause_leaves(cause))));
    }
    found
}

/// Leaves of a cause; some may be absent.
pub(super) fn cause_leaves(cause: &WalkCause) -> [(&'static str, Option<Value>); 5] {
    let WalkCause { kind, subject, before, after, places } = cause;
    let places: Vec<Value> = places.iter().map(|place| Value::Str((&**place).into())).collect();
    [
        ("cause", Some(Value::Enum(Name::of(kind.name())))),
        ("subject", text(subject)),
        ("before", before.as_deref().and_then(text)),
        ("after", after.as_deref().and_then(text)),
        ("place", (!places.is_empty()).then(|| Value::List(places.into()))),
    ]
}

/// The leaves with a value, below an entry.
fn located<const N: usize>(
    schema: &Schema,
    above: &[Elem],
    leaves: [(&str, Option<Value>); N],
) -> Vec<(InstancePath, Value)> {
    let leaf = |(name, value): (&str, Option<Value>)| {
        let elems = above.iter().cloned().chain([Elem::new(name)]).collect();
        Some((schema.resolve_write(&Path { elems }).ok()?, value?))
    };
    leaves.into_iter().filter_map(leaf).collect()
}
