//! Service transactions: their traces, and their history.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_config::edit::Edit;
use holdfast_config::schema::Origin;
use holdfast_config::services::ServicePlan;
use holdfast_core::{CommitOptions, CommitStamp, CoreView, Datastore, Intent};
use holdfast_platform::transport::{Fault, SimulatedKernel};
use holdfast_scheduler::TransactionRecord;
use holdfast_store::faults::Fault::Unprepared;
use holdfast_telemetry::Revision;
use http::StatusCode;
use http_body_util::BodyExt as _;
use tokio::time::timeout;
use tower::ServiceExt as _;

use super::services::{LINK_UP, commit, instance, plan, removal, start, until};
use super::{Agent, BOX, LIMIT, caller};
use crate::services::{Operations, Requester};

/// Leaves of the transactions that a revision shows, by id; those of instances by their last name.
pub(crate) type Shown = BTreeMap<u64, BTreeMap<String, String>>;

pub(crate) fn transactions(revision: &Revision) -> Shown {
    let schema = revision.schema(Origin::Native);
    let mut found = Shown::new();
    for path in ["/service-state/transaction/*", "/service-state/transaction/instance/*"] {
        let patterns = schema.resolve_read(&path.parse().unwrap()).unwrap();
        for (path, value) in patterns.iter().flat_map(|it| revision.native.leaves(it)) {
            let id = path.0.iter().find_map(|step| step.keys.as_ref()).unwrap();
            let id = id.iter().next().unwrap().to_string().parse().unwrap();
            let leaf = schema.node(path.last().unwrap().node).name.to_string();
            let leaf = if path.0.len() > 3 { format!("instance {leaf}") } else { leaf };
            found.entry(id).or_default().insert(leaf, value.to_string());
        }
    }
    found
}

/// Checks leaves of one transaction; an empty text stands for a leaf that is not there.
#[track_caller]
fn has(leaves: &BTreeMap<String, String>, wanted: &[(&str, &str)]) {
    for (leaf, want) in wanted {
        let value = leaves.get(*leaf).map(String::as_str).unwrap_or_default();
        assert_eq!(value, *want, "{leaf} of {leaves:?}");
    }
}

/// Carries out a Set to which the client has given a trace.
async fn traced(agent: &Agent, edit: Edit, trace: &str) -> CommitStamp {
    let options = CommitOptions { trace: Some(trace.into()), ..CommitOptions::default() };
    agent.handle.commit(&caller(), edit, options).await.unwrap()
}

/// Transactions of the engine with a trace, oldest first.
async fn engine_records(agent: &Agent, trace: &'static str) -> Vec<Arc<TransactionRecord>> {
    let of_trace = move |record: &&Arc<TransactionRecord>| {
        record.author.as_ref().is_some_and(|author| author.trace == trace)
    };
    let question = move |view: &CoreView<'_>| {
        view.engine.history().records().filter(of_trace).cloned().collect()
    };
    agent.handle.inspect(question).await.unwrap()
}

// proves sv.A27, sv.A28, sv.B96, sv.B114, sv.J22
#[tokio::test]
async fn a_set_and_the_walk_that_follows_have_one_trace_and_the_walk_its_cause() {
    let kernel = SimulatedKernel::new(&["eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&kernel, folder.path(), LINK_UP).await;
    let mut boundaries = agent.handle.boundaries();
    let stamp = traced(&agent, instance("acme", "eth1"), "change/7").await;
    let answer = boundaries.recv().await.unwrap().revision;
    assert_eq!(answer.number, stamp.revision);
    let shown = transactions(&answer);
    let set = &shown[&1];
    has(set, &[("kind", "set"), ("user", "tests"), ("trace-id", "change/7")]);
    has(set, &[("result", "success"), ("origin", ""), ("reason", "")]);
    has(set, &[("instance service", "access[name='acme']"), ("instance cause", "")]);
    let time = |leaf: &str| set[leaf].parse::<u64>().unwrap();
    assert!(0 < time("started") && time("started") <= time("ended"));

    // The port is up because of the Set itself, which opens the gate.
    let walked = transactions(&boundaries.recv().await.unwrap().revision);
    let [(1, _), (2, walk)] = walked.iter().collect::<Vec<_>>()[..] else { panic!("{walked:?}") };
    has(walk, &[("kind", "walk"), ("user", "service access[name='acme']"), ("result", "success")]);
    has(walk, &[("trace-id", "change/7"), ("instance trace-id", "change/7")]);
    has(
        walk,
        &[("instance cause", "condition"), ("instance before", "DOWN"), ("instance after", "UP")],
    );
    let subject = "state /interfaces/interface[name=eth1]/state/oper-status";
    has(walk, &[("instance subject", subject)]);
    assert!(walk["instance place"].contains("port eth1, sized"), "{walk:?}");

    until(&agent, "acme", ServicePlan::is_ready).await;
    let records = engine_records(&agent, "change/7").await;
    let [set, walk] = &records[..] else { panic!("{records:?}") };
    assert_eq!(set.description, "set");
    let cause = format!("walk, access[name='acme']: {subject} was DOWN, and is UP (port eth1");
    assert!(walk.description.starts_with(&cause), "{walk:?}");
    assert!(!walk.operations.is_empty(), "its operations are those of the transaction");
    assert_eq!(walk.author.as_ref().unwrap().client, "service access[name='acme']");
    assert_eq!(plan(&agent, "acme").unwrap().record.trace, "change/7");
    agent.stop().await;
}

// proves sv.A27
#[tokio::test]
async fn transactions_that_fail_say_where_and_why_and_outlast_a_restart() {
    let kernel = SimulatedKernel::new(&["eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&kernel, folder.path(), "").await;
    kernel.fault_at(1, Fault::Fail(nix::libc::EINVAL));
    let refused = commit(&agent, instance("acme", "eth1")).await.unwrap_err();
    let shown = transactions(&*agent.handle.current_revision().await);
    has(&shown[&1], &[("kind", "set"), ("result", "failed"), ("origin", "system")]);
    has(&shown[&1], &[("instance service", "access[name='acme']")]);
    assert_eq!(shown[&1]["reason"], refused.to_string());

    commit(&agent, instance("acme", "eth1")).await.unwrap();
    let contradiction = Edit {
        updates: [instance("acme", "eth1"), instance("bolt", "eth2")].map(|it| it.updates).concat(),
        ..Edit::default()
    };
    agent.store().refuse(Unprepared).await.unwrap();
    commit(&agent, contradiction).await.unwrap_err();
    let shown = transactions(&*agent.handle.current_revision().await);
    has(&shown[&2], &[("result", "success"), ("reason", "")]);
    has(&shown[&3], &[("result", "failed"), ("origin", "database")]);
    has(&shown[&3], &[("instance service", "access[name='bolt']")]);

    // A change without instances is none of services.
    agent.update(BOX).await.unwrap();
    agent.update(r#"{"no-module:nothing": {}}"#).await.unwrap_err();
    assert_eq!(transactions(&agent.handle.revision()).len(), 3);
    agent.handle.wait_until_idle().await.unwrap();
    agent.stop().await;
    let agent = start(&kernel, folder.path(), "").await;
    let again = transactions(&agent.handle.revision());
    let before = again.range(..=3).map(|(id, leaves)| (*id, leaves.clone())).collect::<Shown>();
    assert_eq!(before, shown);
    agent.stop().await;
}

// proves sv.A27
#[tokio::test]
async fn the_newest_hundred_transactions_are_shown() {
    let kernel = SimulatedKernel::new(&["eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&kernel, folder.path(), "").await;
    for at in 0..150 {
        let edit = if at % 2 == 0 { instance("acme", "eth1") } else { removal("acme") };
        commit(&agent, edit).await.unwrap();
    }
    let shown = transactions(&*agent.handle.current_revision().await);
    let ids: Vec<u64> = shown.keys().copied().collect();
    let last = *ids.last().unwrap();
    assert!(last >= 150, "{last}");
    assert_eq!(ids, (last - 99..=last).collect::<Vec<_>>());
    agent.stop().await;
    let agent = start(&kernel, folder.path(), "").await;
    assert!(transactions(&agent.handle.revision()).contains_key(&last));
    agent.stop().await;
}

// proves sv.A27, sv.J21
#[tokio::test]
async fn a_factory_reset_empties_the_history() {
    let kernel = SimulatedKernel::new(&["eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&kernel, folder.path(), "").await;
    commit(&agent, instance("acme", "eth1")).await.unwrap();
    agent
        .handle
        .change(&caller(), Intent::FactoryReset { retain_certificates: true })
        .await
        .unwrap();
    agent.stop().await;
    let agent = start(&kernel, folder.path(), "").await;
    assert_eq!(transactions(&agent.handle.revision()), Shown::new());
    agent.stop().await;
}

// proves sv.B96
#[tokio::test]
async fn operations_have_the_trace_of_the_request() {
    let kernel = SimulatedKernel::new(&["eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&kernel, folder.path(), "").await;
    traced(&agent, instance("acme", "eth1"), "change/7").await;
    let operations = Operations(agent.handle.clone());
    let by = |trace: &str| Requester { caller: caller(), trace: Some(trace.into()) };
    operations.redeploy(&by("redeploy/1"), &[]).await.unwrap();
    assert_eq!(plan(&agent, "acme").unwrap().record.trace, "redeploy/1");
    operations.reactive_redeploy(Some("redeploy/2".into()), &[]).unwrap();
    until(&agent, "acme", |plan| plan.record.trace == "redeploy/2").await;
    operations.redeploy(&caller().into(), &[]).await.unwrap();
    let made = plan(&agent, "acme").unwrap().record.trace.clone();
    assert!(made.len() == 16 && made != "redeploy/2", "the agent makes one: {made}");
    operations.undeploy(&by("undeploy/3"), "access[name='acme']").await.unwrap();
    let shown = transactions(&*agent.handle.current_revision().await);
    let kinds = shown.values().map(|it| format!("{} {}", it["kind"], it["trace-id"]));
    let kinds: Vec<_> = kinds.filter(|it| !it.starts_with("walk")).collect();
    let last = format!("redeploy {made}");
    let want = [
        "set change/7",
        "redeploy redeploy/1",
        "reactive-redeploy redeploy/2",
        &last,
        "set undeploy/3",
    ];
    assert_eq!(kinds, want);
    agent.stop().await;
}

/// The answer to `why` about a value or an instance.
pub(crate) async fn why(agent: &Agent, key: &str, format: &str) -> (StatusCode, String) {
    let routes = holdfast_introspect::routes(agent.handle.clone(), 1, None, None);
    let key: String = key.bytes().map(|octet| format!("%{octet:02x}")).collect();
    let address = format!("/scheduler/why?key={key}&format={format}");
    let request = http::Request::get(address).body(axum::body::Body::empty()).unwrap();
    let answer = routes.oneshot(request).await.unwrap();
    let (head, body) = answer.into_parts();
    let octets = body.collect().await.unwrap().to_bytes();
    (head.status, String::from_utf8(octets.to_vec()).unwrap())
}

/// The answer about an instance, once it has this part.
async fn why_with(agent: &Agent, tag: &str, part: &str) -> String {
    let mut revisions = agent.handle.watch();
    loop {
        let (status, text) = why(agent, tag, "text").await;
        assert_eq!(status, StatusCode::OK, "{text}");
        if text.contains(part) {
            return text;
        }
        timeout(LIMIT, revisions.changed()).await.expect("it comes in time").unwrap();
    }
}

// proves sv.B114, sv.A37
#[tokio::test]
async fn why_of_an_instance_leads_to_what_it_waits_for_and_to_its_transactions() {
    let kernel = SimulatedKernel::new(&["eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&kernel, folder.path(), LINK_UP).await;
    traced(&agent, instance("acme", "eth1"), "change/7").await;
    until(&agent, "acme", ServicePlan::is_ready).await;
    traced(&agent, instance("bolt", "eth9"), "change/8").await;
    // Once its next walk waits for the object, the gate is not asked any more.
    let text = why_with(&agent, "access[name='bolt']", "(then gate `").await;
    for part in [
        "access[name='bolt']: not ready, version 1.0.0\n  changed last by tests, trace change/8\n",
        "port eth9\n",
        "  attached  reached",
        "  sized  not-reached  (waits for ",
        ")  (then gate `state('/interfaces/interface[name={}]/state/oper-status', params.port) == 'UP'`)\n",
        "CONFIGURED  link br0  (also access[name='acme'])\n",
        "PENDING  ",
        "waits for port eth9",
        "  set by tests, trace change/8: success\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("change/7"), "of its own transactions alone: {text}");

    // Its readings are shown a moment after the answer.
    let text = why_with(&agent, "access[name='acme']", "reads\n").await;
    let read = "reads\n  state /interfaces/interface[name=eth1]/state/oper-status: UP  (port eth1, sized: gate `";
    assert!(text.contains(read), "{text}");
    let cause = "because of condition state /interfaces/interface[name=eth1]/state/oper-status, was DOWN, is UP\n";
    assert!(text.contains(cause) && text.contains("access[name='acme']: ready"), "{text}");
    commit(&agent, removal("acme")).await.unwrap();
    let (_, document) = why(&agent, "access[name='acme']", "json").await;
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["Gone"], true);
    assert_eq!(document["Transactions"][0]["kind"], "set");
    let (status, text) = why(&agent, "access[name='coop']", "json").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{text}");
    assert_eq!(why(&agent, "link/eth1", "text").await.0, StatusCode::OK);
    agent.stop().await;
}
