//! Changes of a link's status that are held back: `hold-time` and `penalty`.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use holdfast_proto::gnmi::SubscriptionMode;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::gnmi::GnmiClient;
use holdfast_tests::mounts::{self, mount};
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::subscribe_to;
use holdfast_tests::tap;
use serde_json::{Value, json};
use tonic::Code;

use crate::alarms::{DOWN, NATIVE, fault, leaf, open_alarms, wait_until_open, wait_until_over};
use crate::documents::port;

const ETH0: &str = "/interfaces/interface[name=eth0]";
const FLAPPING: &str = "link-flapping@interface:eth0";
/// A time in milliseconds that no test lasts.
const FOREVER_MS: u64 = 600_000;

/// eth0, a tap that this process holds, with its agent.
struct Rig {
    net: Netns,
    tap: File,
    agent: AgentProcess,
    client: GnmiClient,
}

impl Rig {
    async fn new() -> Self {
        let net = Netns::enter();
        // A sysfs that shows the namespace of this thread, as a box has it.
        mounts::enter_own().unwrap();
        mount(&["-t", "sysfs", "sysfs"], Path::new("/sys")).unwrap();
        net.ip("tuntap add dev eth0 mode tap");
        net.ip("link set eth0 up");
        let tap = tap::hold("eth0").unwrap();
        let agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        let document = json!({"interface": [port("eth0", &["10.0.0.1/24"])]});
        client.update("/interfaces", document).await.unwrap();
        let rig = Self { net, tap, agent, client };
        rig.until_told("UP").await;
        rig
    }

    async fn hold(&self, up_ms: u64, down_ms: u64) {
        let config = json!({"up": up_ms, "down": down_ms});
        self.client.update(&format!("{ETH0}/hold-time/config"), config).await.unwrap();
    }

    fn set_carrier(&self, has_carrier: bool) {
        tap::set_carrier(&self.tap, has_carrier).unwrap();
    }

    async fn state(&self, leaf: &str) -> Value {
        self.client.read(&format!("{ETH0}/state/{leaf}")).await.unwrap()
    }

    async fn number(&self, leaf: &str) -> u64 {
        self.state(leaf).await.as_str().unwrap().parse().unwrap()
    }

    async fn until_told(&self, status: &str) {
        let what = format!("eth0 is told as {status}");
        eventually_async(&what, async || self.state("oper-status").await == status).await;
    }

    /// Status that the kernel shows, if another one is told.
    async fn observed(&self) -> Option<Value> {
        let path = format!("holdfast_native:{ETH0}/state/observed-status");
        match self.client.read(&path).await {
            Ok(status) => Some(status),
            Err(status) if status.code() == Code::NotFound => None,
            Err(status) => panic!("{status}"),
        }
    }

    async fn until_observed(&self, status: Option<&str>) {
        let status = status.map(Value::from);
        let what = format!("{status:?} is held back");
        eventually_async(&what, async || self.observed().await == status).await;
    }
}

/// How often an alarm was raised, by the log.
fn raised(agent: &AgentProcess, alarm: &str) -> usize {
    let log = fault(agent, &["log"]);
    log.lines().filter(|line| line.contains("raised") && line.contains(alarm)).count()
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

fn ns(ms: u64) -> u64 {
    ms * 1_000_000
}

/// The cases of RT-5.5 of featureprofiles. A short time there is an endless time here, so that a slow machine does
/// not fail a test.
// proves sv.C53
#[tokio::test]
async fn a_status_is_told_once_it_has_held_for_its_time() {
    const DOWN_MS: u64 = 300;
    const UP_MS: u64 = 500;
    let rig = Rig::new().await;
    rig.hold(FOREVER_MS, DOWN_MS).await;
    // TC1: the settings are state.
    for (leaf, value) in [("down", DOWN_MS), ("up", FOREVER_MS)] {
        let state = rig.client.read(&format!("{ETH0}/hold-time/state/{leaf}")).await.unwrap();
        assert_eq!(state, json!(value), "{leaf}");
    }
    let transitions = rig.number("counters/carrier-transitions").await;
    // TC2: long down.
    let lost_at = now_ns();
    rig.set_carrier(false);
    rig.until_told("DOWN").await;
    let told_at = rig.number("last-change").await;
    assert!(told_at >= lost_at + ns(DOWN_MS), "{told_at} is too early after {lost_at}");
    assert_eq!((rig.observed().await, rig.state("admin-status").await), (None, json!("UP")));
    wait_until_open(&rig.client, DOWN).await;
    // TC3: short up.
    rig.set_carrier(true);
    rig.until_observed(Some("UP")).await;
    rig.set_carrier(false);
    rig.until_observed(None).await;
    assert_eq!(rig.state("oper-status").await, json!("DOWN"));
    assert_eq!(rig.number("last-change").await, told_at);
    assert!(open_alarms(&rig.agent).contains(DOWN));
    // TC4: long up.
    rig.hold(UP_MS, DOWN_MS).await;
    let back_at = now_ns();
    rig.set_carrier(true);
    rig.until_told("UP").await;
    let told_at = rig.number("last-change").await;
    assert!(told_at >= back_at + ns(UP_MS), "{told_at} is too early after {back_at}");
    wait_until_over(&rig.client, DOWN).await;
    // TC5: short down.
    rig.hold(FOREVER_MS, FOREVER_MS).await;
    rig.set_carrier(false);
    rig.until_observed(Some("DOWN")).await;
    assert_eq!(rig.state("oper-status").await, json!("UP"));
    rig.set_carrier(true);
    rig.until_observed(None).await;
    assert_eq!(rig.state("oper-status").await, json!("UP"));
    assert_eq!(rig.number("last-change").await, told_at);
    assert_eq!(open_alarms(&rig.agent), "");
    assert_eq!(raised(&rig.agent, DOWN), 1);
    // Each loss and return is counted, told or not.
    assert_eq!(rig.number("counters/carrier-transitions").await, transitions + 6);
    // Without a time, what was held back is told.
    rig.set_carrier(false);
    rig.until_observed(Some("DOWN")).await;
    rig.client.delete(&format!("{ETH0}/hold-time")).await.unwrap();
    rig.until_told("DOWN").await;
    // The operator is believed at once.
    rig.hold(FOREVER_MS, FOREVER_MS).await;
    rig.set_carrier(true);
    rig.until_observed(Some("UP")).await;
    rig.client.delete(&format!("{ETH0}/hold-time")).await.unwrap();
    rig.until_told("UP").await;
    rig.hold(FOREVER_MS, FOREVER_MS).await;
    rig.client.update(&format!("{ETH0}/config/enabled"), false).await.unwrap();
    rig.until_told("DOWN").await;
    assert_eq!(rig.observed().await, None);
}

// proves sv.C53
#[tokio::test]
async fn a_link_that_flaps_within_its_hold_time_is_flapping_and_never_down() {
    /// Long enough that a busy machine does not hold a loss up for that long.
    const HOLD_MS: u64 = 2000;
    const LOSSES: u64 = 300;
    /// A hundred losses a second.
    const HALF: Duration = Duration::from_millis(5);
    let rig = Rig::new().await;
    rig.hold(0, HOLD_MS).await;
    let transitions = rig.number("counters/carrier-transitions").await;
    let status = format!("{ETH0}/state/oper-status");
    let count = format!("{ETH0}/state/counters/carrier-transitions");
    let on_change = SubscriptionMode::OnChange;
    let list = subscribe_to(Mode::Stream, &[(&status, on_change), (&count, on_change)]);
    let mut told = rig.client.subscribe(list).await.unwrap();
    told.until_sync().await;
    for _ in 0..LOSSES {
        rig.set_carrier(false);
        tokio::time::sleep(HALF).await;
        rig.set_carrier(true);
        tokio::time::sleep(HALF).await;
    }
    let last = format!("{count} = \"{}\"", transitions + 2 * LOSSES);
    let lines = told.until_all(&[&last]).await;
    assert!(!lines.iter().any(|line| line.contains("oper-status")), "{lines:?}");
    wait_until_open(&rig.client, FLAPPING).await;
    // It is shown once a second.
    eventually_async("each loss is an occurrence", async || {
        let occurrences = leaf(&rig.client, NATIVE, FLAPPING, "occurrences").await;
        occurrences == Some(json!(LOSSES.to_string()))
    })
    .await;
    assert_eq!((raised(&rig.agent, DOWN), raised(&rig.agent, FLAPPING)), (0, 1));
    // It ends down.
    let lost_at = now_ns();
    rig.set_carrier(false);
    let lines = told.until_all(&["oper-status = \"DOWN\""]).await;
    assert_eq!(lines.iter().filter(|line| line.contains("oper-status")).count(), 1, "{lines:?}");
    assert!(rig.number("last-change").await >= lost_at + ns(HOLD_MS));
    wait_until_open(&rig.client, DOWN).await;
}

#[tokio::test]
async fn nothing_that_was_held_back_is_lost_by_a_restart() {
    let mut rig = Rig::new().await;
    rig.hold(FOREVER_MS, FOREVER_MS).await;
    rig.set_carrier(false);
    rig.until_observed(Some("DOWN")).await;
    rig.agent.restart().await;
    rig.client = rig.agent.gnmi().await;
    rig.until_told("DOWN").await;
    assert_eq!(rig.observed().await, None);
    wait_until_open(&rig.client, DOWN).await;
    rig.set_carrier(true);
    rig.until_observed(Some("UP")).await;
    assert_eq!(rig.state("oper-status").await, json!("DOWN"), "the settings hold again");
    drop(rig.net);
}

#[tokio::test]
async fn a_penalty_tells_a_link_as_down_that_lost_its_carrier_often() {
    const MAX_SUPPRESS_MS: u64 = 1500;
    let rig = Rig::new().await;
    let penalty = format!("{ETH0}/penalty-based-aied/config");
    let figures = |reuse: u64, max_suppress_ms: u64| {
        json!({
            "decay-half-life": FOREVER_MS, "flap-penalty": 1000, "suppress-threshold": 2500,
            "reuse-threshold": reuse, "max-suppress-time": max_suppress_ms,
        })
    };
    let refused = rig.client.update(&penalty, figures(2501, 0)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    assert!(refused.message().contains("reuse-threshold"), "{refused}");
    rig.client.update(&penalty, figures(700, FOREVER_MS)).await.unwrap();
    for _ in 0..3 {
        rig.set_carrier(false);
        tokio::time::sleep(Duration::from_millis(50)).await;
        rig.set_carrier(true);
    }
    rig.until_observed(Some("UP")).await;
    assert_eq!(rig.state("oper-status").await, json!("DOWN"));
    let shown = rig.client.read(&format!("{ETH0}/penalty-based-aied/state")).await.unwrap();
    assert!(shown.to_string().contains("suppress-threshold\":2500"), "{shown}");
    wait_until_open(&rig.client, DOWN).await;
    let text = leaf(&rig.client, NATIVE, DOWN, "text").await.unwrap();
    assert!(text.to_string().contains("lost its carrier too often"), "{text}");
    assert_eq!(rig.state("admin-status").await, json!("UP"));
    // The longest time counts from the last loss.
    rig.client.update(&penalty, figures(700, MAX_SUPPRESS_MS)).await.unwrap();
    rig.until_told("UP").await;
    rig.until_observed(None).await;
    wait_until_over(&rig.client, DOWN).await;
}
