//! Service plans as native state: `/service-state/plan`, the queue of their actions, and the state in each instance; and
//! who asks for each object, `/service-state/ownership`.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_config::schema::Schema;
use holdfast_config::services::{
    ActionCause, Book, CallRef, ChangeAuthor, ComponentPlan, InstanceRecord, LogLine, READY, SELF,
    ServicePlan, StateStatus,
};
use holdfast_config::{
    Claims, Configuration, Elem, InstancePath, Layers, Models, Name, Path, ServiceTag, Value,
};
use holdfast_telemetry::{ConfigOrState, DraftTree, Mutation};

use super::service_transactions;

/// Component and state whose status is that of the instance.
const WHOLE: [&str; 3] = [SELF, SELF, READY];
/// Schema path of the states of plans.
const STATES: &str = "/service-state/plan/component/state";
/// Leaf that each state of a plan has.
const STATUS: &str = "status";

/// Path of the status of the state to which a leaf belongs; `None` for leaves that belong to no state of a plan. Others than
/// the core show leaves of states, too, and may not know yet that a state is gone: its status is not there then.
pub(super) fn status_beside(schema: &Schema, leaf: &InstancePath) -> Option<InstancePath> {
    let [_, _, _, state, _] = &leaf.0[..] else { return None };
    let states = schema.find(STATES).filter(|node| *node == state.node)?;
    let mut status = leaf.clone();
    status.0.last_mut()?.node = schema.child(states, None, STATUS)?;
    Some(status)
}

/// Shows the plans that differ between two versions of the layers. The cost is in proportion to these.
pub(super) fn follow(tree: &mut DraftTree<'_>, old: &Layers, new: &Configuration) {
    let models = new.models();
    follow_owners(tree, old.claims(), new);
    for (tag, old, new) in Book::differences(&old.book, &new.layers().book) {
        follow_log(tree, models, tag, [old, new]);
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

/// State leaves of one plan by their paths, and the paths of its list entries, without a value. Nodes that the models
/// lack are left out.
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
    for (place, component) in (1..).zip(&plan.components) {
        let ComponentPlan { component_type, name, back_track, states, .. } = component;
        let elem = Elem::new("component").key("type", &**component_type).key("name", &**name);
        let above: Vec<Elem> = own.iter().cloned().chain([elem]).collect();
        add(above.clone(), None);
        put(&mut add, &above, "position", Value::Uint(place));
        put(&mut add, &above, "back-tracking", Value::Bool(back_track.is_some()));
        for (place, state) in (1..).zip(states) {
            let elem = Elem::new("state").key("name", &*state.name);
            let above: Vec<Elem> = above.iter().cloned().chain([elem]).collect();
            add(above.clone(), None);
            put(&mut add, &above, "position", Value::Uint(place));
            put(&mut add, &above, STATUS, status(component.status_of(state)));
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
                let above = instance_state(tag);
                put(&mut add, &above, "status", status(component.status_of(state)));
                let InstanceRecord { created_ns, last_run_ns, last_user, trace, .. } = &plan.record;
                for (leaf, time) in [("created", *created_ns), ("last-run", *last_run_ns)] {
                    if time > 0 {
                        put(&mut add, &above, leaf, Value::Uint(time));
                    }
                }
                for (leaf, name) in [("last-user", last_user), ("trace-id", trace)] {
                    if !name.is_empty() {
                        put(&mut add, &above, leaf, text(name));
                    }
                }
            }
        }
    }
    items
}

/// Path of the container with the state of an instance.
fn instance_state(tag: &ServiceTag) -> Vec<Elem> {
    tag.path().elems.into_iter().chain([Elem::new("state")]).collect()
}

/// Shows the lines that were added to the log of an instance, and removes those that were dropped.
fn follow_log(
    tree: &mut DraftTree<'_>,
    models: &Models,
    tag: &ServiceTag,
    plans: [Option<&ServicePlan>; 2],
) {
    let shown = |plan: Option<&ServicePlan>| {
        plan.filter(|plan| plan.leaving.is_none()).map(|plan| plan.record.clone())
    };
    let [old, new] = plans.map(|plan| shown(plan).unwrap_or_default());
    let line = |number: u64| {
        let entry = Elem::new("log").key("number", number.to_string());
        instance_state(tag).into_iter().chain([entry]).collect::<Vec<_>>()
    };
    let is_gone = |number: u64| number < new.first_line || number >= new.next_line();
    for (number, _) in old.lines_from(0).filter(|(number, _)| is_gone(*number)) {
        if let Ok(path) = models.native.resolve_write(&Path { elems: line(number) }) {
            tree.apply(&path, Mutation::Gone(ConfigOrState::Both));
        }
    }
    for (number, LogLine { time_ns, text }) in new.lines_from(old.next_line()) {
        let leaves = [("time", Value::Uint(*time_ns)), ("text", Value::Str((&**text).into()))];
        for (leaf, value) in leaves {
            let elems = line(number).into_iter().chain([Elem::new(leaf)]).collect();
            if let Ok(path) = models.native.resolve_write(&Path { elems }) {
                tree.apply(&path, Mutation::Set(value));
            }
        }
    }
}

/// Shows who asks for the objects of claims that differ. The cost is in proportion to these.
fn follow_owners(tree: &mut DraftTree<'_>, old: &Claims, new: &Configuration) {
    let models = new.models();
    let claims = new.layers().claims();
    let changes = old.changes_to(claims);
    let objects: BTreeSet<InstancePath> = changes
        .iter()
        .flat_map(|(key, after)| [old.get(key), after.as_ref()])
        .flatten()
        .flat_map(|claim| claim.objects(models))
        .collect();
    for object in objects {
        let [before, after] = [old, claims].map(|claims| claims.owners(models, &object));
        if before == after {
            continue;
        }
        let name = object.to_path(&models.native).to_string();
        let entry = Elem::new("object").key("path", name);
        let mut elems = vec![Elem::new("service-state"), Elem::new("ownership"), entry];
        let mutation = match after.is_empty() {
            true => Mutation::Gone(ConfigOrState::Both),
            false => {
                elems.push(Elem::new("tag"));
                Mutation::Set(Value::List(after.into_iter().map(Value::Str).collect()))
            }
        };
        if let Ok(path) = models.native.resolve_write(&Path { elems }) {
            tree.apply(&path, mutation);
        }
    }
}

/// Entries of `/service-state/queue`: the calls of a plan except those that have succeeded.
fn queue_items(
    models: &Models,
    tag: &ServiceTag,
    plan: &ServicePlan,
) -> BTreeMap<InstancePath, Option<Value>> {
    let text = |text: &str| Value::Str(text.into());
    let entry = |CallRef { component, state, action }: CallRef<'_>| {
        let entry = Elem::new("queue").key("id", action.id.to_string());
        let path = Path { elems: vec![Elem::new("service-state"), entry] };
        let leaves = [
            ("service", text(&tag.to_string())),
            ("component-type", text(&component.component_type)),
            ("component", text(&component.name)),
            ("state", text(&state.name)),
            ("phase", Value::Enum(Name::of(action.phase.name()))),
            ("action", text(action.call.target.name())),
            ("status", Value::Enum(Name::of(action.progress.name()))),
            ("attempts", Value::Uint(action.attempts)),
            ("since", Value::Uint(action.since_ns)),
        ];
        let failure = action.failure().map(|failure| ("text", text(failure)));
        let cause = action.cause.iter().flat_map(|it| action_cause_leaves(it));
        let leaf = |(name, value): (&str, Value)| {
            let elems = path.elems.iter().cloned().chain([Elem::new(name)]).collect();
            (Path { elems }, Some(value))
        };
        let leaves: Vec<_> = leaves.into_iter().chain(failure).chain(cause).map(leaf).collect();
        std::iter::once((path, None)).chain(leaves)
    };
    let items = plan.queued_calls().flat_map(entry);
    let resolved = |(path, value)| Some((models.native.resolve_write(&path).ok()?, value));
    items.filter_map(resolved).collect()
}

/// Leaves of the change in which an action was asked for.
fn action_cause_leaves(
    ActionCause { kind, author, walk }: &ActionCause,
) -> impl Iterator<Item = (&'static str, Value)> {
    let ChangeAuthor { user, trace } = author;
    let own = [("kind", kind), ("user", user), ("trace-id", trace)];
    let own = own.into_iter().map(|(leaf, name)| (leaf, service_transactions::text(name)));
    let walk = walk.iter().flat_map(service_transactions::cause_leaves);
    own.chain(walk).filter_map(|(leaf, value)| Some((leaf, value?)))
}

fn status(status: StateStatus) -> Value {
    Value::Enum(Name::of(status.name()))
}
