//! Changes with every kind of accident.

use std::pin::pin;

use holdfast_common::parallel;
use holdfast_platform::transport::Fault;
use holdfast_store::faults;
use tokio::time::timeout;

use super::*;

#[tokio::test]
async fn a_change_is_in_the_kernel_on_disk_and_visible_when_it_is_answered() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let fresh = kernel.contents();
    agent.update(BOX).await.unwrap();
    let contents = kernel.contents();
    let published = agent.published_text();
    assert_ne!(contents, fresh);
    assert!(
        published.contains(r#""mtu":1414,"#) && published.contains("198.51.100.0/24"),
        "{published}"
    );
    agent.stop().await;

    // A restart in sync asks nothing of the kernel.
    let requests = kernel.requests();
    let agent = Agent::start(&kernel, folder.path()).await;
    assert_eq!(agent.published_text(), published);
    assert_eq!((kernel.requests() - requests, kernel.contents()), (0, contents));

    // The port gets back what it had, and readers see nothing of the change.
    agent.delete("/").await.unwrap();
    assert_eq!(kernel.contents(), fresh);
    agent.stop().await;
}

/// The revision of a change with more objects than one thread handles is begun before the objects exist.
#[tokio::test]
async fn a_large_change_shows_what_small_ones_show() {
    const SMALL: usize = 500;
    let all = parallel::FEW + SMALL;
    let mut published = Vec::new();
    for size in [all, SMALL] {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        agent.update(BOX).await.unwrap();
        for first in (0..all).step_by(size) {
            agent.update(&routes(first, size)).await.unwrap();
        }
        let created = kernel.contents().iter().filter(|it| it.contains("/32")).count();
        assert!(created >= all, "{created} of {all} routes are there");
        published.push(agent.published_text());
        agent.stop().await;
    }
    assert_eq!(published[0], published[1]);
}

/// A large change is answered before its revision is made; a reader waits for that revision.
#[tokio::test]
async fn current_revision_after_an_answer_has_the_commit() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    let count = parallel::FEW + 1;
    for first in [0, count] {
        let committed = agent.update_all(&[&routes(first, count)]).await.unwrap();
        let revision = agent.handle.current_revision().await;
        assert_eq!((revision.number, revision.time_ns), (committed.revision, committed.time_ns));
        assert_eq!(agent.published_text().matches("\"metric\":20").count(), first + count + 1);
    }
    agent.stop().await;
}

/// The pre-image of the port is recorded first. A large change goes out in portions, and none of them overtakes the
/// operations that wait for the record.
#[tokio::test]
async fn routes_do_not_overtake_the_port_they_leave_by() {
    const MORE_THAN_A_PORTION: usize = 5000;
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.store().refuse(faults::Fault::Late).await.unwrap();
    agent.update_all(&[BOX, &routes(0, MORE_THAN_A_PORTION)]).await.unwrap();
    let created = kernel.contents().iter().filter(|it| it.contains("/32")).count();
    assert!(created >= MORE_THAN_A_PORTION, "{created} routes are there");
    agent.stop().await;
}

/// While the disk refuses the pre-image of a port, neither the port nor its dependents are touched. Once the disk
/// accepts it, the port gets back its earlier state in the end.
#[tokio::test]
async fn a_port_without_a_recorded_pre_image_is_not_changed() {
    for is_there in [true, false] {
        let ports: &[&str] = if is_there { &["eth0"] } else { &[] };
        let kernel = SimulatedKernel::new(ports);
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        if is_there {
            agent.store().refuse(faults::Fault::Unwritten).await.unwrap();
            let fresh = kernel.contents();
            let refused = agent.update(BOX).await.unwrap_err().to_string();
            assert!(refused.contains("eth0: cannot record what was there before"), "{refused}");
            assert_eq!(kernel.contents(), fresh);
            agent.update(BOX).await.unwrap();
        } else {
            agent.update(BOX).await.unwrap();
            agent.store().refuse(faults::Fault::Unwritten).await.unwrap();
            kernel.plug("eth0");
            in_force(&agent).await;
        }
        agent.stop().await;
        let agent = Agent::start(&kernel, folder.path()).await;
        agent.delete("/").await.unwrap();
        assert_eq!(kernel.contents(), SimulatedKernel::new(&["eth0"]).contents());
        agent.stop().await;
    }
}

#[tokio::test]
async fn a_failure_at_any_request_leaves_everything_as_it_was() {
    let mut nth = 0;
    loop {
        nth += 1;
        let kernel = SimulatedKernel::new(&["eth0"]);
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        let before = (kernel.contents(), agent.published_text());
        kernel.fault_at(
            nth,
            if nth % 2 == 0 { Fault::Panic } else { Fault::Fail(nix::libc::EINVAL) },
        );
        let requests = kernel.requests();
        match agent.update(BOX).await {
            Err(CommitError::Failed { undone, .. }) => assert!(undone, "request {nth}"),
            Err(error) => panic!("request {nth}: {error}"),
            Ok(_) => {
                assert!(
                    kernel.requests() - requests < nth,
                    "request {nth} failed and nobody noticed"
                );
                assert!(nth > 3, "the change takes several requests");
                return agent.stop().await;
            }
        }
        assert_eq!((kernel.contents(), agent.published_text()), before, "request {nth}");
        // And the same request does it when nothing is in its way.
        agent.update(BOX).await.unwrap();
        agent.stop().await;
    }
}

/// While the disk refuses to record a change, nothing is asked of the kernel, and the engine intends nothing of it.
#[tokio::test]
async fn a_change_that_cannot_be_recorded_does_not_begin() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let requests = kernel.requests();
    for document in [BOX, "{}"] {
        let before = (kernel.contents(), agent.published_text(), agent.states().await);
        agent.store().refuse(faults::Fault::Unprepared).await.unwrap();
        let refused = agent.update(document).await.unwrap_err();
        assert!(matches!(refused, CommitError::Store(_)), "{refused}");
        agent.pass(Duration::from_secs(10)).await;
        assert_eq!((kernel.contents(), agent.published_text(), agent.states().await), before);
    }
    assert_eq!(kernel.requests(), requests);
    agent.update(BOX).await.unwrap();
    agent.stop().await;
}

/// A commit whose last write the disk refuses is taken back, and the next one succeeds.
#[tokio::test]
async fn a_commit_that_the_disk_refuses_is_taken_back() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let before = (kernel.contents(), agent.published_text());
    agent.store().refuse(faults::Fault::Lost).await.unwrap();
    let refused = agent.update(BOX).await.unwrap_err();
    assert!(matches!(refused, CommitError::Store(_)), "{refused}");
    agent.pass(Duration::from_secs(10)).await;
    assert_eq!((kernel.contents(), agent.published_text()), before);
    agent.update(BOX).await.unwrap();
    let unchanged = (kernel.contents(), agent.published_text());
    agent.store().refuse(faults::Fault::Misreported).await.unwrap();
    agent.delete("/network-instances").await.unwrap();
    agent.update(BOX).await.unwrap();
    agent.stop().await;
    let agent = Agent::start(&kernel, folder.path()).await;
    assert_eq!((kernel.contents(), agent.published_text()), unchanged);
    agent.stop().await;
}

#[tokio::test]
async fn facts_flow_while_the_kernel_does_not_answer() {
    let ports = SimulatedKernel::new(&["eth0", "eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&ports, folder.path()).await;
    let mut revisions = agent.handle.watch();
    ports.fault_at(1, Fault::Hang);
    let waiting = agent.update(BOX);
    let watching = async {
        while !ports.is_hung() {
            tokio::time::sleep(Duration::from_millis(1)).await; // the change is on its way
        }
        ports.set_mtu("eth1", 1300);
        loop {
            revisions.changed().await.unwrap();
            if agent.published_text().contains(r#""mtu":1314"#) {
                break;
            }
        }
        let published = agent.published_text();
        assert!(
            !published.contains("uplink") && !published.contains("1414"),
            "not accepted yet: {published}"
        );
        ports.resume();
    };
    let (result, ()) = tokio::join!(waiting, watching);
    result.unwrap();
    assert!(agent.published_text().contains("uplink"));
    agent.stop().await;
}

#[tokio::test]
async fn nothing_is_converged_while_an_operation_is_under_way() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.handle.wait_until_idle().await.unwrap();
    kernel.fault_at(1, Fault::Hang);
    let watching = async {
        while !kernel.is_hung() {
            tokio::time::sleep(Duration::from_millis(1)).await; // the change is on its way
        }
        let mut settled = pin!(agent.handle.wait_until_idle());
        assert!(timeout(Duration::ZERO, &mut settled).await.is_err());
        // Later questions are answered later.
        agent.handle.statuses(true).await.unwrap();
        assert!(timeout(Duration::ZERO, &mut settled).await.is_err());
        kernel.resume();
        settled.await.unwrap();
    };
    let (result, ()) = tokio::join!(agent.update(BOX), watching);
    result.unwrap();
    agent.stop().await;
}

#[tokio::test]
async fn a_port_that_is_missing_gets_its_configuration_when_it_comes() {
    let kernel = SimulatedKernel::new(&[]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    let pending = agent.handle.statuses(true).await.unwrap();
    assert!(pending.iter().any(|status| !status.detail.unmet.is_empty()), "{pending:#?}");
    kernel.plug("eth0");
    in_force(&agent).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_refused_object_is_named_in_the_model_of_the_request() {
    const NATIVE: &str = "/network-instances/network-instance[name=DEFAULT]/static[name=s]/route[prefix=10.0.0.0/8]/next-hop[index=0]";
    const OPENCONFIG: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=s]/static-routes/static[prefix=10.0.0.0/8]/next-hops/next-hop[index=0]/config";
    let kernel = SimulatedKernel::new(&[]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    for (origin, path, named) in
        [(Origin::Native, NATIVE, "/static["), (Origin::OpenConfig, OPENCONFIG, "/static-routes/")]
    {
        let target = EditTarget { origin, path: path.parse().unwrap() };
        let text = br#"{"next-hop": "224.0.0.1"}"#.to_vec().into();
        let updates = vec![(target, Payload::Json { text, ietf: true })];
        let edit = Edit { updates, ..Edit::default() };
        let refused = agent.handle.commit(&caller(), edit, CommitOptions::default()).await;
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(named) && error.contains("cannot be a gateway"), "{error}");
    }
    agent.stop().await;
}

/// State of an object is removed with it, also when the object goes because of another one.
#[tokio::test]
async fn published_state_is_equal_after_a_restart() {
    const SETTLED: Duration = Duration::from_secs(10);
    for deletion in [
        "/interfaces/interface[name=eth0]/subinterfaces",
        "/interfaces/interface[name=eth0]",
        "/interfaces",
        "/network-instances",
        "/network-instances/network-instance[name=DEFAULT]/protocols",
    ] {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        agent.update(BOX).await.unwrap();
        assert!(agent.published_text().contains("interface-ref"));
        agent.delete(deletion).await.unwrap();
        agent.pass(SETTLED).await;
        let published = agent.published_text();
        agent.stop().await;
        let agent = Agent::start(&kernel, folder.path()).await;
        assert_eq!(agent.published_text(), published, "without {deletion}");
        agent.stop().await;
    }
}
