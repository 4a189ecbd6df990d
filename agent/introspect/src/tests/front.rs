//! Documents of the front view, and metrics beside those of the engine.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use holdfast_config::{EffectiveStatus, InstancePath, Path, Value};
use holdfast_core::{ConfirmAction, Confirmation};

use super::*;

/// Id of the only alarm of [`FakeFacts`].
const ALARM: &str = "link-down@interface:eth0";
const ROUTE: &str = "/network-instances/network-instance[name=DEFAULT]/static[name=static]/route[prefix=198.51.100.0/24]";

/// An agent with one alarm, which takes a route down, and some refusals.
#[derive(Debug)]
pub(super) struct FakeFacts(pub(super) Arc<Models>);

impl AgentFacts for FakeFacts {
    fn affected<'f>(
        &'f self,
        alarm: &'f str,
        limit: usize,
    ) -> BoxFuture<'f, Result<Vec<(InstancePath, EffectiveStatus)>, AffectedError>> {
        let route = self.0.native.resolve_write(&ROUTE.parse().unwrap()).unwrap();
        let affected = vec![(route, EffectiveStatus::Down); limit.min(2)];
        let answer = match alarm {
            ALARM => Ok(affected),
            other => Err(AffectedError::NotOpen(other.to_owned())),
        };
        async move { answer }.boxed()
    }

    fn tallies(&self) -> BoxFuture<'_, AgentTallies> {
        let times = Distribution { classes: vec![(0.5, 1)], sum_seconds: 2.5, count: 2 };
        let tallies = AgentTallies {
            refused_sets: vec![("InvalidArgument".to_owned(), 3)],
            failed_logins: vec![("wrong password", 2)],
            fault_times: vec![("alarm-shown", times)],
        };
        async move { tallies }.boxed()
    }
}

/// Shows a leaf of the native model as state of a service.
async fn show(agent: &TestAgent, path: &str, value: Value) {
    let core = agent.core.handle();
    let path: Path = path.parse().unwrap();
    let path = core.models().native.resolve_write(&path).unwrap();
    core.show_state(vec![(path, Some(value))]).await;
}

/// Lines of the page of metrics that begin so, without the name.
async fn samples(agent: &TestAgent, name: &str) -> Vec<String> {
    let text = agent.get("/metrics").await.text;
    text.lines().filter_map(|line| line.strip_prefix(name)).map(str::to_owned).collect()
}

async fn commit_unconfirmed(agent: &TestAgent, id: &str) {
    let target = EditTarget { origin: Origin::OpenConfig, path: "/".parse().unwrap() };
    let payload = Payload::Json { text: BOX_CONFIG.as_bytes().to_vec().into(), ietf: true };
    let edit = Edit { updates: vec![(target, payload)], ..Edit::default() };
    let action = ConfirmAction::Begin { rollback_after: Duration::from_secs(600) };
    let confirmation = Some(Confirmation { id: id.into(), action });
    let options = CommitOptions { confirmation, ..CommitOptions::default() };
    agent.core.handle().commit(&TestAgent::caller(), edit, options).await.unwrap();
}

#[tokio::test]
async fn a_commit_that_waits_is_shown_with_the_time_that_is_left() {
    let agent = TestAgent::start(&["eth0"]).await;
    let document = agent.read("/scheduler/agent").await;
    assert_eq!(document["Version"], json!(env!("CARGO_PKG_VERSION")));
    assert_eq!(document["Unconfirmed"], json!(null));
    assert_eq!(
        samples(&agent, "holdfast_unconfirmed_commit").await,
        [" 0", "_remaining_seconds 0"]
    );

    commit_unconfirmed(&agent, "c1").await;
    let document = agent.read("/scheduler/agent").await;
    assert_eq!(document["Unconfirmed"]["Id"], json!("c1"));
    let left = document["Unconfirmed"]["LeftNs"].as_u64().unwrap();
    assert!((1..=600_000_000_000).contains(&left), "{left}");
    let [waits, left] = samples(&agent, "holdfast_unconfirmed_commit").await.try_into().unwrap();
    assert_eq!(waits, " 1");
    let left: f64 = left.strip_prefix("_remaining_seconds ").unwrap().parse().unwrap();
    assert!(left > 0.0 && left <= 600.0, "{left}");
    agent.stop().await;
}

#[tokio::test]
async fn an_alarm_unfolds_to_values_that_it_takes_down() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    let found = agent.read(&format!("/scheduler/impact?alarm={ALARM}&limit=1")).await;
    let route = json!({
        "Path": ROUTE, "Status": "DOWN", "Key": "route/254/198.51.100.0/24/20",
        "Label": "route 198.51.100.0/24 metric 20", "Services": [],
    });
    assert_eq!(found, json!([route]));
    for (query, status, error) in [
        ("alarm=x", 404, "there is no open alarm `x`"),
        ("", 400, "argument `alarm` is missing"),
        ("alarm=x&limit=1001", 400, "`limit=1001` is not from 1 to 1000"),
    ] {
        let answer = agent.get(&format!("/scheduler/impact?{query}")).await;
        assert_eq!(answer.status.as_u16(), status, "{query}");
        assert!(answer.text.contains(error), "{}", answer.text);
    }
    agent.stop().await;
}

#[tokio::test]
async fn sessions_that_have_ended_are_shown_on_request() {
    let agent = TestAgent::start(&[]).await;
    assert_eq!(agent.read("/scheduler/maintenance").await, json!([]));
    for (id, status, start) in [("a", "draining", 1), ("b", "over", 2), ("c", "announced", 3)] {
        let leaf = |name: &str| format!("/maintenance-state/session[id={id}]/state/{name}");
        show(&agent, &leaf("id"), Value::Str(id.into())).await;
        let status = Value::Enum(holdfast_config::Name::constant(status));
        show(&agent, &leaf("status"), status).await;
        show(&agent, &leaf("starts-at"), Value::Uint(start)).await;
        let resource = Value::Str("interface:eth0".into());
        show(&agent, &leaf("resource"), Value::List(vec![resource].into())).await;
    }
    let open = agent.read("/scheduler/maintenance").await;
    assert_eq!(names(&open, "Id"), ["c", "a"]);
    assert_eq!(open[1]["Resources"], json!(["interface:eth0"]));
    assert_eq!((&open[1]["Status"], &open[1]["Overdue"]), (&json!("draining"), &json!(false)));
    let all = agent.read("/scheduler/maintenance?all=1").await;
    assert_eq!(names(&all, "Id"), ["c", "b", "a"]);
    agent.stop().await;
}

#[tokio::test]
async fn interfaces_have_their_state_and_addresses() {
    let agent = TestAgent::start(&["eth0", "eth1"]).await;
    agent.set(BOX_CONFIG).await;
    let document = agent.read("/scheduler/interfaces").await;
    let links = document["Interfaces"].as_array().unwrap();
    let link = |name: &str| links.iter().find(|it| it["Name"] == json!(name)).unwrap();
    let address = json!([{"Prefix": "192.0.2.1/24", "IsThere": true}]);
    assert_eq!(link("eth0")["Addresses"], address);
    assert_eq!(link("eth0")["AdminStatus"], json!("UP"));
    assert_eq!(link("eth0")["Mtu"], json!(1400));
    assert_eq!(link("eth1")["Addresses"], json!([]));
    agent.stop().await;
}

#[tokio::test]
async fn losses_and_repairs_are_counted_by_kind() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    assert_eq!(samples(&agent, "holdfast_losses_total{").await, Vec::<String>::new());
    let repaired = [r#"descriptor="address"} 1"#];
    agent.kernel.delete_address("eth0", "192.0.2.1".parse().unwrap(), 24);
    while !samples(&agent, "holdfast_repairs_total{").await.contains(&repaired[0].to_owned()) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let losses = samples(&agent, "holdfast_losses_total{").await;
    assert!(losses.contains(&r#"descriptor="address"} 1"#.to_owned()), "{losses:?}");
    agent.stop().await;
}

#[tokio::test]
async fn metrics_have_refusals_times_of_faults_services_and_certificates() {
    let agent = TestAgent::start(&["eth0"]).await;
    let refused = samples(&agent, "holdfast_gnmi_sets_refused_total{").await;
    assert_eq!(refused, [r#"code="InvalidArgument"} 3"#]);
    let failed = samples(&agent, "holdfast_logins_failed_total{").await;
    assert_eq!(failed, [r#"reason="wrong password"} 2"#]);
    let times = samples(&agent, "holdfast_fault_duration_seconds").await;
    let class =
        |end: &str, count: u8| format!(r#"_bucket{{step="alarm-shown",le="{end}"}} {count}"#);
    let sum = r#"_sum{step="alarm-shown"} 2.5"#.to_owned();
    let count = r#"_count{step="alarm-shown"} 2"#.to_owned();
    assert_eq!(times, [class("0.5", 1), class("+Inf", 2), sum, count]);
    let services = samples(&agent, "holdfast_services{").await;
    let none = |status: &str| format!(r#"status="{status}"}} 0"#);
    assert_eq!(services, ["zombie", "failed", "ready", "not-reached"].map(none));

    assert_eq!(samples(&agent, "holdfast_certificate").await, Vec::<String>::new());
    let end = now_ns() + 864_000_000_000_000;
    let leaf = "/system/grpc-server[name=DEFAULT]/state/certificate-expires-on";
    show(&agent, leaf, Value::Uint(end)).await;
    let [left] = samples(&agent, "holdfast_certificate_remaining_days{").await.try_into().unwrap();
    let days: f64 = left.strip_prefix(r#"certificate="grpc-server"} "#).unwrap().parse().unwrap();
    assert!(days > 9.0 && days <= 10.0, "{days}");
    agent.stop().await;
}

#[tokio::test]
async fn the_guide_explains_each_metric() {
    let guide = include_str!("../../../../packaging/guide/operating/metrics.md");
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    let text = agent.get("/metrics").await.text;
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE holdfast_"));
    for name in names.filter_map(|line| line.split(' ').next()) {
        assert!(guide.contains(&format!("`{name}`")), "the guide lacks holdfast_{name}");
    }
    agent.stop().await;
}
