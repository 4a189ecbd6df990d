//! Service transactions: their traces.

use std::sync::Arc;

use holdfast_config::edit::Edit;
use holdfast_config::services::ServicePlan;
use holdfast_core::{CommitOptions, CommitStamp, CoreView, Datastore};
use holdfast_platform::transport::SimulatedKernel;
use holdfast_scheduler::TransactionRecord;

use super::services::{LINK_UP, instance, plan, start, until};
use super::{Agent, caller};
use crate::services::{Operations, Requester};

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

// proves sv.B96
#[tokio::test]
async fn a_set_and_the_walk_that_follows_have_one_trace() {
    let (kernel, folder) = (SimulatedKernel::new(&["eth1"]), tempfile::tempdir().unwrap());
    let agent = start(&kernel, folder.path(), LINK_UP).await;
    traced(&agent, instance("acme", "eth1"), "change/7").await;
    // The port is up because of the Set itself, which opens the gate.
    until(&agent, "acme", ServicePlan::is_ready).await;
    let records = engine_records(&agent, "change/7").await;
    let [set, walk] = &records[..] else { panic!("{records:?}") };
    assert_eq!((&*set.description, &*walk.description), ("set", "walk"));
    assert!(!walk.operations.is_empty(), "its operations are those of the transaction");
    assert_eq!(walk.author.as_ref().unwrap().client, "service access[name='acme']");
    assert_eq!(plan(&agent, "acme").unwrap().record.trace, "change/7");
    agent.stop().await;
}

// proves sv.B96
#[tokio::test]
async fn operations_have_the_trace_of_the_request() {
    let (kernel, folder) = (SimulatedKernel::new(&["eth1"]), tempfile::tempdir().unwrap());
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
    let records = engine_records(&agent, "undeploy/3").await;
    assert!(records.iter().any(|it| !it.operations.is_empty()), "{records:?}");
    agent.stop().await;
}
