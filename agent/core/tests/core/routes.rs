//! Static routes as values: one for each kernel route, and one owner for each kernel route.

use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::{LeasedPort, LeasedRoute};
use holdfast_core::{
    CommitError, CommitOptions, CommitStamp, Datastore, Intent, Preview, Statuses,
};
use holdfast_platform::kinds::route;
use holdfast_platform::transport::SimulatedKernel;
use holdfast_scheduler::{Key, Target};

use super::{Agent, BOX, caller, routes};

/// `RT_TABLE_MAIN`.
const MAIN_TABLE: u32 = 254;
const PREFIX: &str = "10.0.0.0/8";

/// Lines of the command line, each as an update; `no` deletes.
fn lines(text: &str) -> Edit {
    let payload = |line: &str| {
        let target = EditTarget { origin: Origin::Native, path: "/".parse().unwrap() };
        (target, Payload::Cli { text: line.to_owned() })
    };
    Edit { updates: text.split("; ").map(payload).collect(), ..Edit::default() }
}

async fn commit(agent: &Agent, text: &str) -> Result<CommitStamp, CommitError> {
    agent.handle.commit(&caller(), lines(text), CommitOptions::default()).await
}

async fn preview(agent: &Agent, text: &str) -> Result<Preview, CommitError> {
    agent.handle.preview(&caller(), Intent::edit(lines(text)), CommitOptions::default()).await
}

/// A next hop of the route in a protocol.
fn hop(protocol: &str, leaf: &str) -> String {
    format!("network-instance DEFAULT static {protocol} route {PREFIX} next-hop 0 {leaf}")
}

fn key(prefix: &str, metric: u32) -> Key {
    route::key(MAIN_TABLE, prefix.parse().unwrap(), metric)
}

/// Routes of the kernel to the prefix.
fn kernel_routes(kernel: &SimulatedKernel) -> String {
    let metrics =
        [20, 5].into_iter().filter(|&metric| kernel.observed(&key(PREFIX, metric)).is_some());
    metrics.map(|metric| metric.to_string()).collect::<Vec<_>>().join(" ")
}

/// A protocol has no value, and the entry of a route has one, its kernel route.
#[tokio::test]
async fn the_planner_visits_a_route_once() {
    const COUNT: u16 = 1000;
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    let visited = async || {
        agent.handle.wait_until_idle().await.unwrap();
        agent.handle.inspect(|view| view.engine.counters().visited).await.unwrap()
    };
    let before = visited().await;
    agent.update(&routes(0, COUNT.into())).await.unwrap();
    assert_eq!(visited().await - before, u64::from(COUNT));
    let first = key("10.0.0.0/32", 20);
    let needs = agent.handle.inspect(move |view| view.engine.needs(&first)).await.unwrap();
    assert!(!needs.is_empty() && needs.iter().all(|it| !matches!(it.target, Target::Whole(_))));
    let before = visited().await;
    agent.delete("/network-instances").await.unwrap();
    // And the route of the box itself.
    assert_eq!(visited().await - before, u64::from(COUNT) + 1);
    agent.stop().await;
}

#[tokio::test]
async fn a_kernel_route_of_two_protocols_is_refused_with_path_and_owner() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    commit(&agent, &hop("m", "next-hop 192.0.2.2")).await.unwrap();
    for protocol in ["a", "z"] {
        let request = hop(protocol, "next-hop 192.0.2.3");
        let place = format!("static[name={protocol}]/route[prefix={PREFIX}]");
        let reason = "route 10.0.0.0/8 metric 20 conflicts with that of protocol STATIC m of DEFAULT: only one of them can exist";
        let commit_error = commit(&agent, &request).await.unwrap_err();
        let preview_error = preview(&agent, &request).await.unwrap_err();
        for refused in [commit_error, preview_error] {
            let CommitError::Object { path, reason: given } = &refused else { panic!("{refused}") };
            assert!(path.ends_with(&place), "{refused}");
            assert_eq!(given, reason);
        }
    }
    // Another metric is another kernel route.
    let beside = hop("a", "next-hop 192.0.2.3") + "; " + &hop("a", "metric 5");
    commit(&agent, &beside).await.unwrap();
    assert_eq!(kernel_routes(&kernel), "20 5");
    let refused = commit(&agent, &hop("a", "metric 20")).await.unwrap_err();
    assert!(refused.to_string().contains("protocol STATIC m of DEFAULT"), "{refused}");

    // One request moves a route from protocol to protocol, in either order of their names.
    commit(&agent, "no network-instance DEFAULT static a").await.unwrap();
    for (from, to) in [("m", "a"), ("a", "m")] {
        let deletion = format!("no network-instance DEFAULT static {from}; ");
        commit(&agent, &(deletion + &hop(to, "next-hop 192.0.2.3"))).await.unwrap();
        assert_eq!(kernel_routes(&kernel), "20", "{from} to {to}");
        assert!(agent.handle.statuses(true).await.unwrap().is_empty());
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_leased_route_and_a_configured_one_exclude_one_another() {
    let kernel = SimulatedKernel::new(&["eth0", "eth1"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let route =
        LeasedRoute { prefix: PREFIX.parse().unwrap(), gateway: Some([198, 51, 100, 2].into()) };
    let port = LeasedPort {
        name: "eth1".into(),
        addresses: vec!["198.51.100.1/24".parse().unwrap()],
        routes: vec![route],
    };
    agent.handle.change(&caller(), Intent::Lease(vec![port.clone()])).await.unwrap();
    assert_eq!(kernel_routes(&kernel), "20");
    agent.update(BOX).await.unwrap();
    let refused = commit(&agent, &hop("s", "next-hop 192.0.2.2")).await.unwrap_err().to_string();
    assert!(refused.contains("static[name=s]"), "{refused}");
    assert!(refused.contains("that of protocol STATIC lease of DEFAULT"), "{refused}");

    agent.handle.change(&caller(), Intent::Lease(Vec::new())).await.unwrap();
    assert_eq!(kernel_routes(&kernel), "");
    commit(&agent, &hop("s", "next-hop 192.0.2.2")).await.unwrap();
    let leased = agent.handle.change(&caller(), Intent::Lease(vec![port])).await.unwrap_err();
    assert!(leased.to_string().contains("that of protocol STATIC s of DEFAULT"), "{leased}");
    agent.stop().await;
}

/// The keys of a route follow its next hops; what is shown of it follows its configuration.
#[tokio::test]
async fn a_route_changes_its_kernel_routes_with_its_metrics() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    agent.update(BOX).await.unwrap();
    let second = |leaf: &str| hop("m", leaf).replace("next-hop 0", "next-hop 1");
    let description = format!("network-instance DEFAULT static m route {PREFIX} description");
    for (change, want, published) in [
        (hop("m", "next-hop 192.0.2.2"), "20", r#""metric":20"#),
        (hop("m", "metric 5"), "5", r#""metric":5"#),
        (second("next-hop 192.0.2.3"), "20 5", r#""next-hop":"192.0.2.3""#),
        (format!("{description} uplink"), "20 5", r#""description":"uplink""#),
        (format!("no {}", hop("m", "").trim_end()), "20", r#""description":"uplink""#),
    ] {
        commit(&agent, &change).await.unwrap();
        agent.handle.current_revision().await;
        assert_eq!(kernel_routes(&kernel), want, "{change}");
        let state = agent.published_text();
        assert!(state.contains(published), "{change}: {state}");
    }
    let made_before = kernel.contents();
    let published = agent.published_text();
    agent.stop().await;
    let agent = Agent::start(&kernel, folder.path()).await;
    assert_eq!((kernel.contents(), agent.published_text()), (made_before, published));
    agent.stop().await;
}

/// A plan is what a client expects only if what has no values is the same as well.
#[tokio::test]
async fn the_hash_of_a_plan_covers_what_has_no_values() {
    let kernel = SimulatedKernel::new(&[]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let hash = async |text: &str| preview(&agent, text).await.unwrap().hash;
    let resync = "reconciliation resync-interval";
    let one = hash(&format!("{resync} 60")).await;
    assert_eq!(hash(&format!("{resync} 60")).await, one);
    assert_ne!(hash(&format!("{resync} 61")).await, one);
    let route = |text: &str| {
        format!(
            "{}; network-instance DEFAULT static m route {PREFIX} description {text}",
            hop("m", "next-hop drop")
        )
    };
    assert_ne!(hash(&route("a")).await, hash(&route("b")).await);
    let options = CommitOptions { expected_plan: Some(one), ..CommitOptions::default() };
    let other = lines(&format!("{resync} 61"));
    let refused = agent.handle.commit(&caller(), other, options.clone()).await.unwrap_err();
    assert!(matches!(refused, CommitError::PlanDiffers { .. }), "{refused}");
    agent.handle.commit(&caller(), lines(&format!("{resync} 60")), options).await.unwrap();
    agent.stop().await;
}
