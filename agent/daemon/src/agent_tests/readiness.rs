//! Instances of services that are ready in the revision of the answer to their Set.

use holdfast_config::services::ServicePlan;
use holdfast_core::Datastore;
use holdfast_platform::kinds;
use holdfast_platform::transport::SimulatedKernel;
use holdfast_store::faults::Fault;
use holdfast_telemetry::BoundaryReceiver;

use super::services::{LINK_UP, commit, instance, plan, removal, shown, start, until};

const READY: &str =
    "attached reached, init reached, ready reached, sized reached, init reached, ready reached";

/// State of an instance in the revision of the next commit, and the number of that revision.
async fn shown_next(boundaries: &mut BoundaryReceiver, name: &str) -> (String, u64) {
    let boundary = boundaries.recv().await.unwrap();
    (shown(&boundary.revision, name), boundary.revision.number)
}

#[tokio::test]
async fn an_instance_with_nothing_to_wait_for_is_ready_in_the_revision_of_the_answer() {
    let kernel = SimulatedKernel::new(&["eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&kernel, folder.path(), "").await;
    let mut boundaries = agent.handle.boundaries();
    let stamp = commit(&agent, instance("acme", "eth1")).await.unwrap();
    let first = plan(&agent, "acme").unwrap();
    assert_eq!(shown_next(&mut boundaries, "acme").await, (READY.to_owned(), stamp.revision));
    // Nothing is left to do for the conductor: the next commit is that of the next request.
    let other = commit(&agent, instance("bolt", "eth9")).await.unwrap();
    let (bolt, number) = shown_next(&mut boundaries, "bolt").await;
    assert_eq!(number, other.revision);
    assert!(bolt.starts_with("attached reached, init reached, ready not-reached"), "{bolt}");
    assert_eq!(plan(&agent, "acme").unwrap(), first);
    assert_eq!(first.record.last_user, "tests");
    agent.stop().await;

    let requests = kernel.requests();
    let agent = start(&kernel, folder.path(), "").await;
    assert_eq!(plan(&agent, "acme").unwrap(), first, "what the last write has is on disk");
    assert_eq!(kernel.requests(), requests);
    kernel.plug("eth9");
    until(&agent, "bolt", ServicePlan::is_ready).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_gate_that_is_closed_keeps_ready_for_the_walk_that_opens_it() {
    let kernel = SimulatedKernel::new(&["eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&kernel, folder.path(), LINK_UP).await;
    let mut boundaries = agent.handle.boundaries();
    commit(&agent, instance("acme", "eth1")).await.unwrap();
    let (answer, _) = shown_next(&mut boundaries, "acme").await;
    assert!(
        answer.contains("attached reached") && answer.contains("sized not-reached"),
        "{answer}"
    );
    assert!(!answer.contains("ready reached"), "{answer}");
    // The port is up because of the Set itself.
    let (walk, _) = shown_next(&mut boundaries, "acme").await;
    assert_eq!(walk, READY, "the walk has its own last write");
    agent.stop().await;
}

#[tokio::test]
async fn a_walk_that_the_kernel_does_not_answer_holds_up_no_other_walk() {
    let kernel = SimulatedKernel::new(&["eth1", "eth2"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&kernel, folder.path(), LINK_UP).await;
    kernel.hang_at(kinds::ADDRESS);
    commit(&agent, instance("addressed", "eth1")).await.unwrap();
    while kernel.hanging() == 0 {
        tokio::task::yield_now().await;
    }
    commit(&agent, instance("acme", "eth2")).await.unwrap();
    until(&agent, "acme", ServicePlan::is_ready).await;
    assert!(!plan(&agent, "addressed").unwrap().is_ready() && kernel.hanging() > 0);
    kernel.resume();
    until(&agent, "addressed", ServicePlan::is_ready).await;
    agent.stop().await;
}

/// The disk refuses the last write, or reports as an error what it has written.
#[tokio::test]
async fn ready_comes_and_goes_with_the_commit() {
    let kernel = SimulatedKernel::new(&["eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = start(&kernel, folder.path(), "").await;
    let before = kernel.contents();
    agent.store().refuse(Fault::Lost).await.unwrap();
    commit(&agent, instance("acme", "eth1")).await.unwrap_err();
    agent.handle.wait_until_idle().await.unwrap();
    assert_eq!((kernel.contents(), plan(&agent, "acme")), (before.clone(), None));

    agent.store().refuse(Fault::Misreported).await.unwrap();
    commit(&agent, instance("acme", "eth1")).await.unwrap();
    assert!(plan(&agent, "acme").unwrap().is_ready());
    let contents = kernel.contents();
    agent.stop().await;
    let agent = start(&kernel, folder.path(), "").await;
    assert!(plan(&agent, "acme").unwrap().is_ready());
    assert_eq!(kernel.contents(), contents);
    commit(&agent, removal("acme")).await.unwrap();
    assert_eq!((kernel.contents(), plan(&agent, "acme")), (before, None));
    agent.stop().await;
}
