//! Revisions after changes of the kernel, large and small.

use holdfast_config::parallel;
use holdfast_core::Datastore;
use holdfast_platform::descriptors::route;
use holdfast_platform::transport::{Fault, SimulatedKernel};
use holdfast_scheduler::{Key, State};
use tempfile::TempDir;

use super::reconcile::held;
use super::{Agent, BOX, routes};

/// `RT_TABLE_MAIN`.
const MAIN_TABLE: u32 = 254;
const FIRST: &str = "10.0.0.0/32";
const SECOND: &str = "10.0.0.1/32";

/// Next hops of a static route, as they are shown.
fn hops(agent: &Agent, prefix: &str) -> String {
    let shown: serde_json::Value = serde_json::from_str(&agent.shown()).unwrap();
    let find = |inside: &serde_json::Value, key: &str, value: &str| {
        let entries = inside.as_array().unwrap().iter();
        entries.clone().find(|it| it[key] == value).unwrap().clone()
    };
    let instances = &shown["openconfig-network-instance:network-instances"];
    let instance = find(&instances["network-instance"], "name", "DEFAULT");
    let protocol = find(&instance["protocols"]["protocol"], "name", "static");
    let route = find(&protocol["static-routes"]["static"], "prefix", prefix);
    route["next-hops"].to_string()
}

/// An agent that tells of routes that vanish and does nothing about them.
async fn watchful(kernel: &SimulatedKernel) -> (Agent, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    let policy = r#"{"drift-policy": [{"object": "route", "action": "report"}]}"#;
    held(&agent, policy).await.unwrap();
    (agent, folder)
}

fn first() -> Key {
    route::key(MAIN_TABLE, FIRST.parse().unwrap(), 0)
}

async fn state(agent: &Agent, key: &Key) -> State {
    let key = key.clone();
    agent.handle.inspect(move |view| view.engine.state(&key)).await.unwrap()
}

#[tokio::test]
async fn a_route_lost_during_a_large_commit_is_not_published() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let (agent, _folder) = watchful(&kernel).await;
    let all = parallel::FEW + 1;
    kernel.fault_at(all as u64, Fault::Hang);
    let document = routes(0, all);
    let meddle = async {
        while !kernel.is_hung() || state(&agent, &first()).await != State::Configured {
            tokio::task::yield_now().await;
        }
        kernel.delete_route(FIRST.parse().unwrap());
        while state(&agent, &first()).await == State::Configured {
            tokio::task::yield_now().await;
        }
        kernel.resume();
    };
    let (done, ()) = tokio::join!(agent.update(&document), meddle);
    done.unwrap();
    assert!(hops(&agent, SECOND).contains("\"state\""), "{}", hops(&agent, SECOND));
    assert!(!hops(&agent, FIRST).contains("\"state\""), "{}", hops(&agent, FIRST));
    agent.stop().await;
}

#[tokio::test]
async fn a_route_lost_before_the_late_publication_is_not_published() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let (agent, _folder) = watchful(&kernel).await;
    let shown = agent.handle.revision().number;
    let done = agent.update_all(&[&routes(0, parallel::FEW + 1)]).await.unwrap();
    assert_eq!(agent.handle.revision().number, shown, "answered, and not yet shown");
    kernel.delete_route(FIRST.parse().unwrap());
    assert_eq!(agent.handle.current_revision().await.number, done.revision);
    while state(&agent, &first()).await == State::Configured {
        tokio::task::yield_now().await;
    }
    assert!(hops(&agent, SECOND).contains("\"state\""), "{}", hops(&agent, SECOND));
    assert!(!hops(&agent, FIRST).contains("\"state\""), "{}", hops(&agent, FIRST));
    agent.stop().await;
}
