//! Service plans as native state: `/service-state/plan`, the queue of their actions, and the status in each instance.

use std::collections::BTreeMap;

use holdfast_config::services::{
    ActionProgress, Book, CallRef, ComponentPlan, READY, SELF, ServicePlan, StateStatus,
};
use holdfast_config::{
    Configuration, Elem, InstancePath, Layers, Models, Name, Path, ServiceTag, Value,
};
use holdfast_telemetry::{ConfigOrState, DraftTree, Mutation};

/// Component and state whose status is that of the instance.
const WHOLE: [&str; 3] = [SELF, SELF, READY];

/// Shows the plans that differ between two versions of the layers. The cost is in proportion to these.
pub(super) fn follow(tree: &mut DraftTree<'_>, old: &Layers, new: &Configuration) {
    let models = new.models();
    for (tag, old, new) in Book::differences(&old.book, &new.layers().book) {
        let [old, new] =
            [old, new].map(|plan| plan.map(|it| items(models, tag, it)).unwrap_or_default());
        for (path, item) in &old {
            if !new.contains_key(path) {
                let gone = if item.is_some() { ConfigOrState::State } else { ConfigOrState::Both };
                tree.apply(path, Mutation::Gone(gone));
            }
        }
        for (path, item) in new {
            if let Some(value) = item.clone().filter(|_| old.get(&path) != Some(&item)) {
                tree.apply(&path, Mutation::Set(value));
            }
        }
    }
}

/// State leaves of one plan by their paths, and the paths of its list entries, without a value. What the models lack is left
/// out.
fn items(
    models: &Models,
    tag: &ServiceTag,
    plan: &ServicePlan,
) -> BTreeMap<InstancePath, Option<Value>> {
    let mut items = queue_items(models, tag, plan);
    let own = [Elem::new("service-state"), Elem::new("plan").key("service", tag.to_string())];
    let mut add = |elems: Vec<Elem>, value: Option<Value>| {
        items.extend(models.native.resolve_write(&Path { elems }).ok().map(|path| (path, value)));
    };
    let put = |add: &mut dyn FnMut(Vec<Elem>, Option<Value>), above: &[Elem], leaf: &str, value| {
        add(above.iter().cloned().chain([Elem::new(leaf)]).collect(), Some(value));
    };
    let text = |text: &str| Value::Str(text.into());
    add(own.to_vec(), None);
    put(&mut add, &own, "version", text(&plan.version));
    put(&mut add, &own, "zombie", Value::Bool(plan.leaving.is_some()));
    if let Some(failure) = &plan.failure {
        put(&mut add, &own, "failure", text(failure));
    }
    for component in &plan.components {
        let ComponentPlan { component_type, name, back_track, states, .. } = component;
        let elem = Elem::new("component").key("type", &**component_type).key("name", &**name);
        let above: Vec<Elem> = own.iter().cloned().chain([elem]).collect();
        add(above.clone(), None);
        put(&mut add, &above, "back-tracking", Value::Bool(back_track.is_some()));
        for state in states {
            let elem = Elem::new("state").key("name", &*state.name);
            let above: Vec<Elem> = above.iter().cloned().chain([elem]).collect();
            add(above.clone(), None);
            put(&mut add, &above, "status", status(state.status()));
            put(&mut add, &above, "since", Value::Uint(state.since_ns));
            if let Some(waits_for) = &state.waits_for {
                put(&mut add, &above, "waits-for", text(waits_for));
            }
            if let Some(failure) = &state.failure {
                put(&mut add, &above, "failure", text(failure));
            }
            if let Some(action) = &state.action {
                put(&mut add, &above, "action-status", Value::Enum(Name::of(action.status())));
                if let Some(failure) = action.failure() {
                    put(&mut add, &above, "action-failure", text(failure));
                }
            }
            if plan.leaving.is_none() && WHOLE == [&**component_type, &**name, &*state.name] {
                let instance = tag.path().elems.into_iter();
                let above: Vec<Elem> = instance.chain([Elem::new("state")]).collect();
                put(&mut add, &above, "status", status(state.status()));
            }
        }
    }
    items
}

/// Entries of `/service-state/queue`: the calls of a plan but for those that have succeeded.
fn queue_items(
    models: &Models,
    tag: &ServiceTag,
    plan: &ServicePlan,
) -> BTreeMap<InstancePath, Option<Value>> {
    let text = |text: &str| Value::Str(text.into());
    let is_listed = |it: &CallRef<'_>| it.action.progress != ActionProgress::Succeeded;
    let entry = |CallRef { component, state, action }: CallRef<'_>| {
        let entry = Elem::new("queue").key("id", action.id.to_string());
        let path = Path { elems: vec![Elem::new("service-state"), entry] };
        let leaves = [
            ("service", text(&tag.to_string())),
            ("component-type", text(&component.component_type)),
            ("component", text(&component.name)),
            ("state", text(&state.name)),
            ("phase", Value::Enum(Name::of(action.phase.name()))),
            ("action", text(&action.call.builtin)),
            ("status", Value::Enum(Name::of(action.progress.name()))),
            ("attempts", Value::Uint(action.attempts)),
            ("since", Value::Uint(action.since_ns)),
        ];
        let failure = action.failure().map(|failure| ("text", text(failure)));
        let leaf = |(name, value): (&str, Value)| {
            let elems = path.elems.iter().cloned().chain([Elem::new(name)]).collect();
            (Path { elems }, Some(value))
        };
        let leaves: Vec<_> = leaves.into_iter().chain(failure).map(leaf).collect();
        std::iter::once((path, None)).chain(leaves)
    };
    let items = plan.calls().filter(is_listed).flat_map(entry);
    let resolved = |(path, value)| Some((models.native.resolve_write(&path).ok()?, value));
    items.filter_map(resolved).collect()
}

fn status(status: StateStatus) -> Value {
    Value::Enum(Name::of(status.name()))
}
