//! The request `explain` for the name of a service instance: its states and what each waits for, the objects that it made
//! down to the one that is missing, who else asks for them, what it has read, the gates that are not asked yet, and its last
//! transactions.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use holdfast_config::schema::Origin;
use holdfast_config::services::{ServicePlan, StateStatus, TypeVersion};
use holdfast_config::{Elem, InstancePath, Path, ServiceTag};
use holdfast_core::{CoreView, Datastore as _, ObservedBox};
use holdfast_scheduler::Key;
use serde_json::{Value, json};

use super::Introspect;
use super::arguments::format_time;
use super::document::word;
use super::explainer::Explainer;
use super::http_error::HttpError;
use super::services::{Instances, Shown};

/// State leaves of one entry of a list, by their names.
type Leaves = BTreeMap<String, String>;

/// The instance that a request names. Keys of values begin with their kind and a slash.
pub(super) fn instance_of(text: &str) -> Option<ServiceTag> {
    text.parse().ok().filter(|tag: &ServiceTag| !tag.service.contains('/'))
}

impl Introspect {
    /// Explains an instance. An instance that is gone has its last transactions.
    pub(super) async fn explain_instance(&self, tag: ServiceTag) -> Result<Value, HttpError> {
        // The newest state shows all changes that were answered before the question.
        let _revision = self.core.current_revision().await;
        let state = self.core.observed_box();
        let transactions = transactions(&state, &tag);
        let Some(plan) = state.configuration().layers().book.get(&tag) else {
            if transactions.is_empty() {
                return Err(HttpError::not_found(format!("there is no instance `{tag}`")));
            }
            return Ok(json!({
                "Service": tag.to_string(), "Gone": true, "Transactions": transactions,
            }));
        };
        let instances = Instances::of(&state, [&tag].into_iter());
        let keys = instances.keys();
        let render = self.render.clone();
        let question = move |view: &CoreView<'_>| {
            let explainer = Explainer { view, render: &render };
            let shown = |key: Key| {
                let shown: Shown = (view.engine.label(&key), view.engine.state(&key).to_string());
                let reason = explainer.obstacle(&key).map(|it| (render.key(&key), it));
                ((key, shown), reason)
            };
            let (states, reasons): (BTreeMap<_, _>, Vec<_>) = keys.into_iter().map(shown).unzip();
            (states, reasons.into_iter().flatten().collect())
        };
        let (states, reasons): (BTreeMap<Key, Shown>, BTreeMap<String, Value>) =
            self.core.inspect(question).await?;
        let mut document = instances.document(self, &states, &tag, plan);
        explain_objects(&mut document, &reasons);
        add_gates(&mut document, &state, &tag, plan);
        add_action_waits(&mut document, &state, &tag);
        document["LastUser"] = json!(plan.record.last_user);
        document["Trace"] = json!(plan.record.trace);
        document["Reads"] = json!(reads(&state, &tag));
        document["Transactions"] = json!(transactions);
        Ok(document)
    }
}

/// Adds to each object the reason for its state, where that is not what is asked for.
fn explain_objects(document: &mut Value, reasons: &BTreeMap<String, Value>) {
    let explain = |object: &mut Value| {
        let reason = object["Key"].as_str().and_then(|key| reasons.get(key));
        object["Obstacle"] = reason.cloned().unwrap_or_default();
    };
    states_of(document).flat_map(|(_, state)| items_of(&mut state["Objects"])).for_each(explain);
    items_of(&mut document["Left"]).flat_map(|it| items_of(&mut it["Objects"])).for_each(explain);
}

/// Adds the gates of the states that are to be entered, and of those to be left. While something else is waited for, a gate is
/// not asked, so it is not among what is read.
fn add_gates(document: &mut Value, of: &ObservedBox, tag: &ServiceTag, plan: &ServicePlan) {
    let Some(services) = of.configuration().services() else { return };
    let by = TypeVersion { service: &tag.service, version: Some(&plan.version) };
    for component in items_of(&mut document["Components"]) {
        let component_type = word(component, "Type").to_owned();
        let backs_out = component["BackTracking"] == true;
        for state in items_of(&mut component["States"]) {
            let is_to_move = (state["Status"] == StateStatus::Reached.name()) == backs_out;
            let name = word(state, "Name");
            let gate = services.gate(by, [&component_type, name], backs_out);
            state["Gate"] = json!(gate.filter(|_| is_to_move));
        }
    }
}

/// Adds what actions wait for, which the tasks of services show.
fn add_action_waits(document: &mut Value, of: &ObservedBox, tag: &ServiceTag) {
    let plan = Elem::new("plan").key("service", tag.to_string());
    let waits = entries(of, [plan, Elem::new("component"), Elem::new("state")]);
    let waits: BTreeMap<_, _> = waits
        .into_iter()
        .filter_map(|(keys, leaves)| Some((keys, leaves.get("action-waits-for")?.clone())))
        .collect();
    for (component, state) in states_of(document) {
        let name = word(state, "Name").to_owned();
        let place: Vec<_> = [tag.to_string()].into_iter().chain(component).chain([name]).collect();
        state["ActionWaitsFor"] = json!(waits.get(&place));
    }
}

/// Type and name of the component of each state, with the state.
fn states_of(document: &mut Value) -> impl Iterator<Item = ([String; 2], &mut Value)> {
    items_of(&mut document["Components"]).flat_map(|component| {
        let of = ["Type", "Name"].map(|it| word(component, it).to_owned());
        items_of(&mut component["States"]).map(move |state| (of.clone(), state))
    })
}

fn items_of(list: &mut Value) -> impl Iterator<Item = &mut Value> {
    list.as_array_mut().into_iter().flatten()
}

/// State of the entries of a list below `/service-state`, by the values of all keys on the way.
fn entries(
    state: &ObservedBox,
    list: impl IntoIterator<Item = Elem>,
) -> BTreeMap<Vec<String>, Leaves> {
    let elems = [Elem::new("service-state")].into_iter().chain(list).chain([Elem::new("*")]);
    let path = Path { elems: elems.collect() };
    let schema = &state.configuration().models().native;
    let patterns = schema.resolve_read(&path).unwrap_or_default();
    let mut found: BTreeMap<Vec<String>, Leaves> = BTreeMap::new();
    for (InstancePath(steps), value) in
        patterns.iter().flat_map(|it| state.state(Origin::Native, it))
    {
        let Some(last) = steps.last() else { continue };
        let keys = steps.iter().filter_map(|step| step.keys.as_ref()).flat_map(|keys| keys.iter());
        let place = keys.map(ToString::to_string).collect();
        let leaf = schema.node(last.node).name.to_string();
        found.entry(place).or_default().insert(leaf, value.to_string());
    }
    found
}

/// The last readings of the instance, with the places of its package that read.
fn reads(state: &ObservedBox, tag: &ServiceTag) -> Vec<Leaves> {
    let wait = Elem::new("wait").key("service", tag.to_string()).key("plane", "*").key("path", "*");
    entries(state, [wait]).into_values().collect()
}

/// The last transactions of an instance, newest first, with the cause of its walk in each.
fn transactions(state: &ObservedBox, tag: &ServiceTag) -> Vec<Leaves> {
    let instance = Elem::new("instance").key("service", tag.to_string());
    let of_instance = entries(state, [Elem::new("transaction"), instance]);
    let mut all = entries(state, [Elem::new("transaction")]);
    let mut found: Vec<(u64, Leaves)> = Vec::new();
    for (place, own) in of_instance {
        let Some((id, mut leaves)) =
            place.first().and_then(|id| all.remove_entry(&vec![id.clone()]))
        else {
            continue;
        };
        let cause = ["cause", "subject", "before", "after", "place"];
        let cause = cause.iter().filter_map(|it| Some(((*it).to_owned(), own.get(*it)?.clone())));
        leaves.extend(cause);
        found.push((id[0].parse().unwrap_or_default(), leaves));
    }
    found.sort_unstable_by_key(|(id, _)| std::cmp::Reverse(*id));
    found.into_iter().map(|(_, leaves)| leaves).collect()
}

/// Text for people.
pub(super) fn as_text(document: &Value) -> String {
    let mut text = heading(document);
    let list = |of: &Value, name: &str| of[name].as_array().cloned().unwrap_or_default();
    for component in list(document, "Components") {
        let backs_out = if component["BackTracking"] == true { "  backs out" } else { "" };
        text += &format!("{} {}{backs_out}\n", word(&component, "Type"), word(&component, "Name"));
        for state in list(&component, "States") {
            text += &state_line(&state);
            list(&state, "Objects").iter().for_each(|object| text += &object_lines(object));
        }
    }
    for left in list(document, "Left") {
        text += &format!("{}\n", word(&left, "Claim"));
        list(&left, "Objects").iter().for_each(|object| text += &object_lines(object));
    }
    for (title, name, line) in [
        ("reads", "Reads", read_line as fn(&Value) -> String),
        ("transactions", "Transactions", transaction_line),
    ] {
        let all = list(document, name);
        if !all.is_empty() {
            text += &format!("{title}\n");
            all.iter().for_each(|it| text += &line(it));
        }
    }
    text
}

fn heading(document: &Value) -> String {
    let tag = word(document, "Service");
    if document["Gone"] == true {
        return format!("{tag}: gone\n");
    }
    let status = match document {
        _ if document["Zombie"] == true => "deleted, and still backs out",
        _ if document["Failure"].is_string() => "failed",
        _ if document["Ready"] == true => "ready",
        _ => "not ready",
    };
    let mut text = format!("{tag}: {status}, version {}\n", word(document, "Version"));
    if let Some(reason) = document["Failure"].as_str() {
        let _infallible = writeln!(text, "  {reason}");
    }
    let [user, trace] = ["LastUser", "Trace"].map(|name| word(document, name));
    if !user.is_empty() {
        let _infallible = writeln!(text, "  changed last by {user}, trace {trace}");
    }
    text
}

fn state_line(state: &Value) -> String {
    let mut text = format!("  {}  {}", word(state, "Name"), word(state, "Status"));
    for (name, what) in
        [("WaitsFor", "waits for "), ("Failure", ""), ("ActionFailure", "action failed: ")]
    {
        if let Some(reason) = state[name].as_str() {
            let _infallible = write!(text, "  ({what}{reason})");
        }
    }
    let waits_for = word(state, "WaitsFor").to_owned();
    if let Some(gate) = state["Gate"].as_str().filter(|gate| !waits_for.contains(*gate)) {
        let _infallible = write!(text, "  (then gate `{gate}`)");
    }
    // The failure is said above, with its reason.
    let has_failed = state["ActionFailure"].is_string();
    if let Some(action) = state["Action"].as_str().filter(|_| !has_failed) {
        let wait = state["ActionWaitsFor"].as_str();
        let wait = wait.map(|it| format!(", waits for {it}")).unwrap_or_default();
        let _infallible = write!(text, "  (action {action}{wait})");
    }
    text + "\n"
}

/// An object, who else asks for it, and why it is not as it should be.
fn object_lines(object: &Value) -> String {
    let others: Vec<_> =
        object["Others"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let others =
        if others.is_empty() { String::new() } else { format!("  (also {})", others.join(", ")) };
    let mut text = format!("    {}  {}{others}\n", word(object, "State"), word(object, "Label"));
    let obstacle = &object["Obstacle"];
    if let Some(reason) = obstacle["Because"].as_str() {
        let _infallible = writeln!(text, "      {reason}");
    }
    for link in obstacle["Chain"].as_array().into_iter().flatten() {
        if let Some(missing) = link["WaitsFor"].as_str() {
            let _infallible = writeln!(text, "      {} waits for {missing}", word(link, "Label"));
        }
    }
    text
}

fn read_line(read: &Value) -> String {
    let value = read["value"].as_str().unwrap_or("not there");
    let [plane, path, place] = ["plane", "path", "place"].map(|name| word(read, name));
    format!("  {plane} {path}: {value}  ({place})\n")
}

fn transaction_line(it: &Value) -> String {
    let time = word(it, "ended").parse().map(format_time).unwrap_or_default();
    let [id, kind, user, result] = ["id", "kind", "user", "result"].map(|name| word(it, name));
    let mut text =
        format!("  {id}  {time}  {kind} by {user}, trace {}: {result}", word(it, "trace-id"));
    if let Some(reason) = it["reason"].as_str() {
        let _infallible = write!(text, " ({}: {reason})", word(it, "origin"));
    }
    if let Some(cause) = it["cause"].as_str() {
        let before = it["before"].as_str().map(|it| format!(", was {it}")).unwrap_or_default();
        let after = it["after"].as_str().map(|it| format!(", is {it}")).unwrap_or_default();
        let subject = it["subject"].as_str().map(|it| format!(" {it}")).unwrap_or_default();
        let _infallible = write!(text, "\n    because of {cause}{subject}{before}{after}");
    }
    text + "\n"
}
