//! Subscribe, with a paused clock that advances only when all tasks wait.

use std::time::Duration;

use holdfast_base::now_ns;
use holdfast_core::Datastore;
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::subscribe_response;
use holdfast_proto::gnmi::subscription_list::Mode;
use prost::Message as _;

use super::fake_datastore::{FakeDatastore, STATIC_ROUTES};
use super::harness::{Client, Subscription, client, list, set, subscribe, text};
use crate::northbound::response_stream::STUCK_CLIENT;
use crate::northbound::subscribe::DEFAULT_SAMPLE_INTERVAL;

const STATUS: &str = "/interfaces/interface[name=eth0]/state/oper-status";
const COUNTER: &str = "/interfaces/interface[name=eth0]/state/counters/in-octets";
const COUNTERS: &str = "/interfaces/interface[name=eth0]/state/counters";

async fn eth0() -> (FakeDatastore, Client) {
    let core = FakeDatastore::new();
    core.state(STATUS, "UP");
    core.polled_leaf(COUNTER, "1");
    let client = client(&core).await;
    (core, client)
}

async fn stream(client: &mut Client, subscriptions: &[&str]) -> Subscription {
    Subscription::open(client, subscribe(list(Mode::Stream, subscriptions))).await
}

fn up() -> String {
    format!("{STATUS}=\"UP\"")
}

fn down() -> String {
    format!("{STATUS}=\"DOWN\"")
}

fn count(value: u32) -> String {
    format!("{COUNTER}=\"{value}\"")
}

// proves 1.99, 1.100, 1.104
#[tokio::test(start_paused = true)]
async fn once_is_values_sync_end() {
    let (_core, mut client) = eth0().await;
    let absent = "change /interfaces/interface[name=eth9]/state";
    let request = subscribe(list(Mode::Once, &[&format!("change {STATUS}"), absent]));
    let mut once = Subscription::open(&mut client, request).await;
    assert_eq!([once.next().await, once.next().await, once.next().await], [&up(), "sync", "end"]);
}

// proves 1.101, 1.102
#[tokio::test(start_paused = true)]
async fn each_poll_is_values_sync() {
    let (core, mut client) = eth0().await;
    let request = subscribe(list(Mode::Poll, &[&format!("change {STATUS}")]));
    let mut poll = Subscription::open(&mut client, request).await;
    assert_eq!(poll.until_sync().await, [&up(), "sync"]);
    core.state(STATUS, "DOWN");
    assert!(poll.within(Duration::from_secs(60)).await.is_empty(), "nobody polled");
    poll.poll().await;
    assert_eq!(poll.until_sync().await, [&down(), "sync"]);
    poll.poll().await;
    assert_eq!(poll.until_sync().await, [&down(), "sync"]);
    let Subscription { request_tx, mut responses } = poll;
    drop(request_tx);
    assert!(responses.message().await.unwrap().is_none());
}

// proves 1.103
#[tokio::test(start_paused = true)]
async fn updates_only_begins_with_sync() {
    let (core, mut client) = eth0().await;
    let request = |mode, subscription: &str| {
        let list = list(mode, &[subscription]);
        subscribe(gnmi::SubscriptionList { updates_only: true, ..list })
    };
    let change = format!("change {STATUS}");
    let mut once = Subscription::open(&mut client, request(Mode::Once, &change)).await;
    assert_eq!([once.next().await, once.next().await], ["sync", "end"]);
    let mut poll = Subscription::open(&mut client, request(Mode::Poll, &change)).await;
    assert_eq!(poll.next().await, "sync");
    poll.poll().await;
    assert_eq!(poll.next().await, "sync");
    let mut changes = Subscription::open(&mut client, request(Mode::Stream, &change)).await;
    assert_eq!(changes.next().await, "sync");
    let sample = format!("sample {COUNTER} interval=2");
    let mut samples = Subscription::open(&mut client, request(Mode::Stream, &sample)).await;
    assert_eq!(samples.next().await, "sync");
    core.state(STATUS, "DOWN");
    assert_eq!(changes.next().await, down());
    assert_eq!(samples.next().await, count(1));
}

// proves 1.104, 1.106, 1.113, 1.126
#[tokio::test(start_paused = true)]
async fn changes_are_sent_once_in_order() {
    let (core, mut client) = eth0().await;
    let mut changes =
        stream(&mut client, &["change /interfaces/interface/state/oper-status"]).await;
    assert_eq!(changes.until_sync().await, [&up(), "sync"]);
    assert!(changes.within(Duration::from_secs(3600)).await.is_empty(), "nothing changed");
    core.state(STATUS, "DOWN");
    assert_eq!(changes.next().await, down());
    core.state(STATUS, "DOWN");
    core.state("/interfaces/interface[name=eth0]/state/mtu", "1514");
    assert!(changes.within(Duration::from_secs(60)).await.is_empty(), "not what was asked for");
    core.state("/interfaces/interface[name=eth9]/state/oper-status", "UP");
    let eth9 = "/interfaces/interface[name=eth9]/state/oper-status";
    assert_eq!(changes.next().await, format!("{eth9}=\"UP\""));
    core.remove_state("/interfaces/interface[name=eth9]");
    assert_eq!(changes.next().await, format!("-{eth9}"));
}

// proves 1.113
#[tokio::test(start_paused = true)]
async fn an_entry_that_goes_is_one_delete() {
    let (core, mut client) = eth0().await;
    core.state("/interfaces/interface[name=eth1]/state/oper-status", "UP");
    let mut changes = stream(&mut client, &["change /interfaces"]).await;
    changes.until_sync().await;
    core.remove_state("/interfaces/interface[name=eth0]");
    assert_eq!(changes.next().await, "-/interfaces/interface[name=eth0]");
}

// proves 1.114, 1.115
#[tokio::test(start_paused = true)]
async fn a_set_is_one_notification_and_restored_defaults_are_updates() {
    let (_core, mut client) = eth0().await;
    let config = "/interfaces/interface[name=eth0]/config";
    set(
        &mut client,
        &format!(
            r#"update {config} {{"name":"eth0","mtu":1514,"enabled":false,"description":"a"}}"#
        ),
    )
    .await;
    let mut changes = stream(&mut client, &[&format!("change {config}")]).await;
    changes.until_sync().await;
    set(&mut client, &format!("delete {config}/enabled")).await;
    assert_eq!(changes.next().await, format!("{config}/enabled=true"));
    set(
        &mut client,
        &format!(r#"replace {config} {{"name":"eth0","enabled":false,"description":"b"}}"#),
    )
    .await;
    assert_eq!(
        changes.next().await,
        format!("-{config}/mtu {config}/description=\"b\" {config}/enabled=false")
    );
}

// proves 1.68
#[tokio::test(start_paused = true)]
async fn a_failed_set_sends_no_notification() {
    let (_core, mut client) = eth0().await;
    let mut changes = stream(&mut client, &["change /system"]).await;
    assert_eq!(changes.next().await, "sync");
    let request = super::harness::set_request(
        r#"update /system/config/hostname "box"; update /interfaces/interface[name=eth0]/config/mtu "abc""#,
    );
    client.set(request).await.unwrap_err();
    assert!(changes.within(Duration::from_secs(60)).await.is_empty());
}

// proves 1.106
#[tokio::test(start_paused = true)]
async fn a_heartbeat_repeats_unchanged_values() {
    let (core, mut client) = eth0().await;
    let mut changes = stream(&mut client, &[&format!("change {STATUS} heartbeat=2")]).await;
    assert_eq!(changes.until_sync().await, [&up(), "sync"]);
    assert_eq!(changes.within(Duration::from_secs(10)).await, vec![up(); 5]);
    core.state(STATUS, "DOWN");
    assert_eq!(changes.within(Duration::from_secs(2)).await, vec![down(); 2]);
}

// proves 1.107
#[tokio::test(start_paused = true)]
async fn samples_come_at_their_interval() {
    let (core, mut client) = eth0().await;
    let rows = [("interval=2", 5), ("interval=0", 10), ("interval=10", 1)];
    for (interval, samples) in rows {
        let sample = format!("sample {STATUS} {interval}");
        let mut stream = stream(&mut client, &[&sample]).await;
        assert_eq!(stream.until_sync().await, [&up(), "sync"]);
        assert_eq!(stream.within(Duration::from_secs(10)).await, vec![up(); samples], "{interval}");
    }
    assert_eq!(core.reads(), 0, "this leaf has events, nobody needs to ask");
}

// proves 1.108
#[tokio::test(start_paused = true)]
async fn redundant_samples_are_suppressed_leaf_by_leaf_except_at_a_heartbeat() {
    let (core, mut client) = eth0().await;
    let other = format!("{COUNTERS}/out-octets");
    core.polled_leaf(&other, "7");
    let options = "interval=1 suppress heartbeat=60";
    let mut samples = stream(&mut client, &[&format!("sample {COUNTERS} {options}")]).await;
    let all = format!("{} {other}=\"7\"", count(1));
    assert_eq!(samples.until_sync().await, [&all, "sync"]);
    assert!(samples.within(Duration::from_secs(30)).await.is_empty());
    core.polled_leaf(COUNTER, "2");
    assert_eq!(samples.next().await, count(2));
    let all = format!("{} {other}=\"7\"", count(2));
    assert_eq!(samples.within(Duration::from_secs(40)).await, [all], "the heartbeat");
}

// proves 1.98, 1.109
#[tokio::test(start_paused = true)]
async fn the_target_chooses_events_where_there_are_some() {
    let (core, mut client) = eth0().await;
    let state = "/interfaces/interface[name=eth0]/state";
    let mut request = list(Mode::Stream, &[&format!("target {state}")]);
    (request.mode, request.subscription[0].mode) = (0, 0); // what a client leaves out
    let mut stream = Subscription::open(&mut client, subscribe(request)).await;
    assert_eq!(stream.until_sync().await, [&up(), &count(1), "sync"]);
    core.state(STATUS, "DOWN");
    let event = stream.within(Duration::from_millis(10)).await;
    assert_eq!(event, [down()], "at once");
    let later = stream.within(DEFAULT_SAMPLE_INTERVAL * 3).await;
    assert_eq!(later, vec![count(1); 3], "the counter is sampled, the status is not");
}

#[tokio::test(start_paused = true)]
async fn on_change_watches_counters_that_the_path_merely_covers() {
    let (core, mut client) = eth0().await;
    let mut stream = stream(&mut client, &["change /interfaces"]).await;
    stream.until_sync().await;
    assert!(stream.within(DEFAULT_SAMPLE_INTERVAL * 5).await.is_empty());
    core.polled_leaf(COUNTER, "2");
    assert_eq!(stream.within(DEFAULT_SAMPLE_INTERVAL).await, [count(2)]);
    // The counter goes with its port, and is sent again when it comes back with the same value.
    core.remove_state("/interfaces/interface[name=eth0]");
    assert_eq!(stream.next().await, "-/interfaces");
    core.state(STATUS, "UP");
    let back = stream.within(DEFAULT_SAMPLE_INTERVAL).await;
    assert!(back.iter().all(|line| !line.starts_with('-')), "{back:?}");
    let back = back.join(" ");
    assert!(back.contains(&up()) && back.contains(&count(2)), "{back}");
}

// proves 1.98, 1.99
#[tokio::test(start_paused = true)]
async fn modes_mix_in_one_list() {
    let (core, mut client) = eth0().await;
    let change = format!("change {STATUS}");
    let sample = format!("sample {COUNTER} interval=5");
    let mut stream = stream(&mut client, &[&change, &sample, "target /system"]).await;
    assert_eq!(stream.until_sync().await, [&up(), &count(1), "sync"]);
    core.state(STATUS, "DOWN");
    let mut lines = stream.within(Duration::from_secs(10)).await;
    lines.sort();
    assert_eq!(lines, [count(1), count(1), down()]);
}

#[tokio::test(start_paused = true)]
async fn streams_of_one_interval_share_each_reading() {
    let (core, mut client) = eth0().await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = stream(&mut client, &[&format!("sample {COUNTER} interval=1")]).await;
        stream.until_sync().await;
        streams.push(stream);
    }
    let before = core.reads();
    tokio::time::sleep(Duration::from_millis(3500)).await;
    assert_eq!(core.reads() - before, 3);
}

// proves 1.121, 1.122
#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_the_newest_value_and_a_count() {
    let (core, mut client) = eth0().await;
    let mut changes = stream(&mut client, &["change /interfaces/interface/state"]).await;
    changes.until_sync().await;
    let steps = 100_u32;
    for step in 0..steps {
        core.state(STATUS, if step % 2 == 0 { "DOWN" } else { "UP" });
    }
    let lines = changes.within(Duration::from_secs(1)).await;
    let counted: u32 = lines
        .iter()
        .map(|it| 1 + it.split_once('*').map_or(0, |(_, more)| more.parse::<u32>().unwrap()))
        .sum();
    assert_eq!(counted, steps, "{lines:?}");
    assert!(lines.len() < 10 && lines.last().unwrap().starts_with(&up()), "{lines:?}");
}

// proves 1.112, 1.119, 1.120
#[tokio::test(start_paused = true)]
async fn a_notification_has_leaves_of_one_true_time() {
    let (core, mut client) = eth0().await;
    let event = core.revision().time_ns;
    core.state("/interfaces/interface[name=eth0]/state/mtu", "1514");
    let later = core.revision().time_ns;
    let list = gnmi::SubscriptionList {
        allow_aggregation: true,
        ..list(
            Mode::Stream,
            &[
                "change /interfaces/interface/state/oper-status",
                "change /interfaces/interface/state/mtu",
                &format!("sample {COUNTER} interval=1"),
            ],
        )
    };
    let start = now_ns();
    let mut stream = Subscription::open(&mut client, subscribe(list)).await;
    let mut times = Vec::new();
    while let Some(subscribe_response::Response::Update(it)) =
        stream.responses.message().await.unwrap().unwrap().response
    {
        let it = gnmi::Notification::decode(it).unwrap();
        assert!(
            it.update.iter().all(|update| text(update.path.as_ref()).matches('/').count() >= 4)
        );
        assert_eq!(it.prefix.as_ref().unwrap().origin, "openconfig");
        times.push(it.timestamp.cast_unsigned());
    }
    assert_eq!(times[..2], [event, later]);
    assert!((start..=now_ns()).contains(&times[2]), "read now");
}

/// Sets static routes, whose list has derived entries.
async fn set_routes(client: &mut Client, count: u32) {
    let route = |number: u32| {
        let prefix = format!("{}/32", std::net::Ipv4Addr::from(0x0a00_0000 + number));
        let hop = r#"{"index":"0","config":{"index":"0","next-hop":"192.0.2.2"}}"#;
        format!(
            r#"{{"prefix":"{prefix}","config":{{"prefix":"{prefix}"}},"next-hops":{{"next-hop":[{hop}]}}}}"#
        )
    };
    let routes: Vec<_> = (0..count).map(route).collect();
    set(client, &format!(r#"update {STATIC_ROUTES} {{"static":[{}]}}"#, routes.join(","))).await;
}

/// The updates of some messages, with true for those of routes.
fn kinds(messages: &[String]) -> Vec<(bool, &str)> {
    let lines = messages.iter().flat_map(|message| message.split(' '));
    lines.map(|line| (line.contains("/static["), line)).collect()
}

#[track_caller]
fn check_routes_are_last(messages: &[String]) {
    let kinds = kinds(messages);
    let first = kinds.iter().position(|(is_route, _)| *is_route).unwrap();
    assert!(first > 0, "{kinds:?}");
    assert!(kinds[first..].iter().all(|(is_route, _)| *is_route), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn derived_lists_are_told_after_everything_else() {
    let (core, mut client) = eth0().await;
    set_routes(&mut client, 3).await;
    let routes = format!("change {STATIC_ROUTES} heartbeat=2");
    for subscriptions in
        [&["change / heartbeat=2"][..], &[&routes, "change /interfaces heartbeat=2"]]
    {
        let mut changes = stream(&mut client, subscriptions).await;
        let mut first = changes.until_sync().await;
        assert_eq!(first.pop().unwrap(), "sync");
        first.retain(|message| !message.contains("counters")); // sampled
        check_routes_are_last(&first);
        let mut again = changes.within(Duration::from_secs(2)).await;
        let sort = |messages: &[String]| {
            let kinds = kinds(messages);
            let mut lines: Vec<_> = kinds.iter().map(|(_, line)| (*line).to_owned()).collect();
            lines.sort();
            lines
        };
        again.retain(|message| !message.contains("counters"));
        assert_eq!(sort(&again), sort(&first), "the heartbeat repeats all of it");
    }
    let mut changes = stream(&mut client, &["change /"]).await;
    changes.until_sync().await;
    // One revision that changes both.
    let both = format!(
        r#"delete {STATIC_ROUTES}/static[prefix=10.0.0.1/32]; update /system/config/hostname "box""#
    );
    set(&mut client, &both).await;
    let told = changes.within(Duration::from_secs(1)).await;
    check_routes_are_last(&told);
    // The instance goes with all that is in it, and with one update.
    set(&mut client, "delete /network-instances/network-instance[name=DEFAULT]").await;
    let told = changes.within(Duration::from_secs(1)).await;
    assert_eq!(told, ["-/network-instances"], "{:?}", core.revision().number);
}

/// The client reads nothing while the change is made, so a part of the table is still to be told.
#[tokio::test(start_paused = true)]
async fn a_change_is_told_amid_a_long_derived_list() {
    const ROUTES: u32 = 5000;
    let (core, mut client) = eth0().await;
    set_routes(&mut client, ROUTES).await;
    let mut changes = stream(&mut client, &["change /"]).await;
    let is_route = |message: &str| message.contains("/static[");
    while !is_route(&changes.next().await) {}
    core.state(STATUS, "DOWN");
    let rest = changes.until_sync().await;
    let told = rest.iter().position(|message| message.contains(&down())).unwrap();
    assert!(rest[told..].iter().any(|message| is_route(message)), "it comes with the last routes");

    // The same beside a change of the table, with a change of the table itself behind it.
    set(&mut client, &format!("delete {STATIC_ROUTES}")).await;
    set_routes(&mut client, ROUTES).await;
    while !is_route(&changes.next().await) {}
    core.state(STATUS, "UP");
    set(&mut client, &format!("delete {STATIC_ROUTES}/static[prefix=10.0.0.1/32]")).await;
    let rest = changes.within(Duration::from_secs(1)).await;
    let told = rest.iter().position(|message| message.contains(&up())).unwrap();
    assert!(rest[told..].iter().filter(|message| is_route(message)).count() > 2, "{rest:?}");
    assert_eq!(*rest.last().unwrap(), format!("-{STATIC_ROUTES}/static[prefix=10.0.0.1/32]"));
}

// proves 1.27
#[tokio::test(start_paused = true)]
async fn the_target_of_the_request_is_in_each_notification() {
    let (_core, mut client) = eth0().await;
    for target in ["", "box"] {
        let prefix = gnmi::Path { target: target.into(), ..super::harness::path("/interfaces") };
        let list = gnmi::SubscriptionList {
            prefix: Some(prefix),
            ..list(Mode::Once, &["change /interface[name=eth0]/state/oper-status"])
        };
        let mut once = Subscription::open(&mut client, subscribe(list)).await;
        let message = once.responses.message().await.unwrap().unwrap();
        let Some(subscribe_response::Response::Update(notification)) = message.response else {
            panic!("{message:?}")
        };
        let notification = gnmi::Notification::decode(notification).unwrap();
        assert_eq!(notification.prefix.unwrap().target, target);
        assert_eq!(text(notification.update[0].path.as_ref()), STATUS);
    }
}

#[tokio::test(start_paused = true)]
async fn streams_end_with_the_agent() {
    let (core, mut client) = eth0().await;
    let change = ["change /interfaces"];
    let mut changes = stream(&mut client, &change).await;
    changes.until_sync().await;
    let mut poll = Subscription::open(&mut client, subscribe(list(Mode::Poll, &change))).await;
    poll.until_sync().await;
    core.stop();
    assert_eq!([changes.next().await, poll.next().await], ["Unavailable", "Unavailable"]);
}

// proves 1.125
#[tokio::test]
async fn a_thousand_cancelled_streams_leave_nothing() {
    let (core, mut client) = eth0().await;
    for _ in 0..1000 {
        let mut stream = stream(&mut client, &["change /interfaces", "sample /system"]).await;
        assert_ne!(stream.next().await, "end");
    }
    for _ in 0..100 {
        if core.watchers() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} streams are left", core.watchers());
}

// proves 1.123
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_let_go() {
    let (core, mut client) = eth0().await;
    let long = "x".repeat(200);
    let mut stream = stream(&mut client, &["sample /interfaces interval=1"]).await;
    stream.until_sync().await;
    for port in 0..2000 {
        core.state(&format!("/interfaces/interface[name=eth{port}]/state/description"), &long);
    }
    tokio::time::sleep(STUCK_CLIENT * 2).await;
    assert_eq!(core.watchers(), 0, "the task is gone, and with it what it held");
    let mut last = String::new();
    while last.is_empty() || last.starts_with('/') {
        last = stream.next().await;
    }
    assert_eq!(last, "ResourceExhausted");
}
