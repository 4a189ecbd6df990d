//! Readers and writers when nodes are appended to the models.

use std::time::Duration;

use holdfast_config::Value;
use holdfast_proto::gnmi::CapabilityRequest;
use holdfast_proto::gnmi::subscription_list::Mode;

use super::fake_datastore::FakeDatastore;
use super::harness::{
    Client, Subscription, client, get_request, list, set, set_request, subscribe, value,
};
use crate::gnsi::pathz::tests::appended::GROWN;
use crate::gnsi::pathz::tests::judge;

const SIZE: &str = "holdfast_native:/things/thing[name=a]/size";
const SET: &str = "update holdfast_native:/things/thing[name=a]/size 1; \
    update holdfast_native:/things/thing[name=a]/note \"x\"; \
    update holdfast_native:/things/thing[name=b]/size 2; \
    update holdfast_native:/interfaces/interface[name=eth0]/colour \"red\"";

async fn eth0() -> (FakeDatastore, Client) {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(&mut client, "update holdfast_native:/interfaces/interface[name=eth0]/mtu 1400").await;
    (core, client)
}

async fn stream(client: &mut Client, mode: Mode, subscription: &str) -> Subscription {
    Subscription::open(client, subscribe(list(mode, &[subscription]))).await
}

async fn updates_of(stream: &mut Subscription) -> String {
    stream.within(Duration::from_secs(1)).await.join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_running_stream_tells_of_appended_leaves() {
    for (path, at_append, at_change) in [
        (
            "change holdfast_native:/",
            "/interfaces/interface[name=eth0]/colour=\"red\" /things/thing[name=a]/name=\"a\" \
             /things/thing[name=a]/size=1 /things/thing[name=a]/note=\"x\" \
             /things/thing[name=b]/name=\"b\" /things/thing[name=b]/size=2",
            "/things/thing[name=a]/size=5",
        ),
        ("change holdfast_native:/*/*/colour", "refused", ""),
        (
            "change holdfast_native:/interfaces/*/*",
            "/interfaces/interface[name=eth0]/colour=\"red\"",
            "",
        ),
        ("target holdfast_native:/interfaces/.../size", "refused", ""),
        (SIZE, "refused", ""),
        (
            "sample holdfast_native:/interfaces/interface[name=eth0] interval=1 suppress",
            "/interfaces/interface[name=eth0]/colour=\"red\"",
            "",
        ),
        ("change holdfast_native:/interfaces/interface[name=eth0]/mtu", "", ""),
    ] {
        let (core, mut client) = eth0().await;
        let path = if path == SIZE { format!("change {SIZE}") } else { path.to_owned() };
        let mut stream = stream(&mut client, Mode::Stream, &path).await;
        if at_append == "refused" {
            assert_eq!(stream.next().await, "Unimplemented", "{path}");
            continue;
        }
        stream.until_sync().await;
        core.append(&GROWN);
        assert_eq!(updates_of(&mut stream).await, "", "{path}: no leaf has changed");
        set(&mut client, SET).await;
        assert_eq!(updates_of(&mut stream).await, at_append, "{path}");
        set(&mut client, &format!("update {SIZE} 5")).await;
        assert_eq!(updates_of(&mut stream).await, at_change, "{path}");
    }
}

/// The part with polled leaves begins while the stream runs.
#[tokio::test(start_paused = true)]
async fn appended_leaves_without_events_are_sampled() {
    let (core, mut client) = eth0().await;
    let mut stream =
        stream(&mut client, Mode::Stream, "target holdfast_native:/system/ssh-server").await;
    stream.until_sync().await;
    core.append(&GROWN);
    core.polled_native_leaf("/system/ssh-server/attempts", Value::Uint(3));
    assert_eq!(updates_of(&mut stream).await, "/system/ssh-server/attempts=\"3\"");
}

#[tokio::test(start_paused = true)]
async fn polls_and_streams_show_what_the_policy_permits_of_appended_nodes() {
    const RULES: &str = "user test + write /; user test + write holdfast_native:/; \
        user test + read holdfast_native:/; user test - read holdfast_native:/things/thing[name=a]; \
        user test - read holdfast_native:/interfaces/interface[name=*]/colour; \
        user test - write holdfast_native:/things/thing[name=b]/note";
    let (core, mut client) = eth0().await;
    core.pathz().enforce(Some(judge(RULES)));
    let mut follower = stream(&mut client, Mode::Stream, "change holdfast_native:/").await;
    let mut poll = stream(&mut client, Mode::Poll, "change holdfast_native:/").await;
    follower.until_sync().await;
    poll.until_sync().await;
    core.append(&GROWN);
    set(&mut client, SET).await;
    let visible = "/things/thing[name=b]/name=\"b\" /things/thing[name=b]/size=2";
    assert_eq!(things_only(&updates_of(&mut follower).await), visible);
    poll.poll().await;
    let polled = poll.until_sync().await.join(" ");
    assert!(
        polled.contains(visible)
            && !polled.contains("[name=eth0]/colour")
            && !polled.contains("[name=a]/size"),
        "{polled}"
    );
    let answer = client.get(get_request(&["holdfast_native:/"])).await.unwrap().into_inner();
    let document = value(answer.notification[0].update[0].val.as_ref());
    assert!(document.contains("\"size\":2") && !document.contains("\"size\":1"), "{document}");
    assert!(!document.contains("\"red\""), "{document}");
    assert!(client.get(get_request(&[SIZE])).await.is_err());
    let note = set_request("update holdfast_native:/things/thing[name=b]/note \"y\"");
    assert!(client.set(note).await.is_err());
    set(&mut client, "update holdfast_native:/things/thing[name=b]/size 3").await;
}

/// Sent leaves without the counters of the policy.
fn things_only(text: &str) -> String {
    let words =
        text.split(' ').filter(|it| it.starts_with("/things/") || it.starts_with("/interfaces/"));
    words.collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn capabilities_and_gets_have_appended_nodes() {
    let (core, mut client) = eth0().await;
    let has = |answer: holdfast_proto::gnmi::CapabilityResponse| {
        answer.supported_models.iter().any(|model| model.name == "things")
    };
    let request = CapabilityRequest::default;
    assert!(!has(client.capabilities(request()).await.unwrap().into_inner()));
    assert!(client.set(set_request(SET)).await.is_err());
    core.append(&GROWN);
    assert!(has(client.capabilities(request()).await.unwrap().into_inner()));
    set(&mut client, SET).await;
    let answer = client.get(get_request(&[SIZE])).await.unwrap().into_inner();
    assert_eq!(value(answer.notification[0].update[0].val.as_ref()), "1");
}
