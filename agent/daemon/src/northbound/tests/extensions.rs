//! Extensions through a real channel: the effect of each, and refusals.

use holdfast_core::Datastore;
use holdfast_proto::gnmi_ext::extension::Ext;
use holdfast_proto::gnmi_ext::{self, Extension, commit, config_subscription, history};
use holdfast_proto::{gnmi, holdfast};
use prost::Message;
use tonic::Code;

use super::fake_datastore::FakeDatastore;
use super::harness::*;

/// One extension as text: `depth 2`, `begin ID SECONDS`, `confirm ID`, `cancel ID`, `extend ID SECONDS`,
/// `election ROLE HIGH LOW`, `config`, `dry-run`, `expected HASH`, and some that are wrong.
fn extension(text: &str) -> Extension {
    let words: Vec<&str> = text.split(' ').collect();
    let number = |at: usize| words[at].parse().unwrap();
    let seconds = |at: usize| {
        let seconds = words.get(at).map(|word| word.parse().unwrap());
        seconds.map(|seconds| prost_types::Duration { seconds, nanos: 0 })
    };
    let id = || words.get(1).unwrap_or(&"").to_string();
    let commit = |action| Ext::Commit(gnmi_ext::Commit { id: id(), action: Some(action) });
    let config = |action| Ext::ConfigSubscription(gnmi_ext::ConfigSubscription { action });
    let past = |request| Ext::History(gnmi_ext::History { request });
    let plan = |content| registered(26150, &holdfast::Plan { content }.encode_to_vec());
    let wire = match words[0] {
        "depth" => Ext::Depth(gnmi_ext::Depth { level: number(1) }),
        "begin" => {
            let rollback_duration = seconds(2);
            commit(commit::Action::Commit(gnmi_ext::CommitRequest { rollback_duration }))
        }
        "confirm" => commit(commit::Action::Confirm(gnmi_ext::CommitConfirm {})),
        "cancel" => commit(commit::Action::Cancel(gnmi_ext::CommitCancel {})),
        "extend" => {
            let rollback_duration = seconds(2);
            let extend = gnmi_ext::CommitSetRollbackDuration { rollback_duration };
            commit(commit::Action::SetRollbackDuration(extend))
        }
        "commit-without-action" => Ext::Commit(gnmi_ext::Commit { id: id(), action: None }),
        "election" => {
            let role = Some(gnmi_ext::Role { id: id() }).filter(|role| !role.id.is_empty());
            let high = words[2].parse().unwrap();
            let low = words[3].parse().unwrap();
            let election_id = Some(gnmi_ext::Uint128 { high, low });
            Ext::MasterArbitration(gnmi_ext::MasterArbitration { role, election_id })
        }
        "election-without-id" => Ext::MasterArbitration(gnmi_ext::MasterArbitration::default()),
        "config" => config(Some(config_subscription::Action::Start(Default::default()))),
        "config-done" => config(Some(config_subscription::Action::SyncDone(Default::default()))),
        "config-without-action" => config(None),
        "snapshot" => past(Some(history::Request::SnapshotTime(1))),
        "range" => {
            let start = words[1].parse().unwrap();
            let end = words[2].parse().unwrap();
            past(Some(history::Request::Range(gnmi_ext::TimeRange { start, end })))
        }
        "past-without-time" => past(None),
        "dry-run" => plan(Some(holdfast::plan::Content::DryRun(holdfast::DryRun {}))),
        "expected" => {
            plan(Some(holdfast::plan::Content::Expected(holdfast::Expected { hash: id() })))
        }
        "preview" => plan(Some(holdfast::plan::Content::Preview(Default::default()))),
        "plan-without-content" => plan(None),
        "wait" => {
            let wait = holdfast::Wait::from_str_name(&format!("WAIT_{}", words[1])).unwrap();
            let wait = holdfast::Services { wait: wait as i32, within: seconds(2), outcome: None };
            registered(26151, &wait.encode_to_vec())
        }
        "waited" => {
            let outcome = Some(Default::default());
            let waited = holdfast::Services { outcome, ..Default::default() };
            registered(26151, &waited.encode_to_vec())
        }
        "no-wait" => registered(26151, b"\xff\xff"),
        "no-plan" => registered(26150, b"\xff\xff"),
        "unknown" => registered(999, b"what is this"),
        other => panic!("no extension: {other}"),
    };
    Extension { ext: Some(wire) }
}

fn registered(id: i32, msg: &[u8]) -> Ext {
    Ext::RegisteredExt(gnmi_ext::RegisteredExtension { id, msg: msg.to_vec().into() })
}

pub(super) fn extensions(texts: &str) -> Vec<Extension> {
    texts.split("; ").filter(|it| !it.is_empty()).map(extension).collect()
}

// proves 1.127, 1.128, 1.133, 1.137, 1.141, 1.142
#[tokio::test]
async fn extensions_that_are_wrong_or_out_of_place_are_refused_by_name() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let before = core.revision().number;
    for (texts, word) in [
        ("depth 1", "depth"),
        ("config", "config_subscription"),
        ("snapshot", "history"),
        ("begin", "id"),
        ("confirm", "id"),
        ("cancel", "id"),
        ("extend  5", "id"),
        ("commit-without-action a", "has no action"),
        ("extend a", "greater than zero"),
        ("extend a 0", "greater than zero"),
        ("extend a -1", "out of range"),
        ("begin a -1", "out of range"),
        ("begin a 9999999999", "out of range"),
        ("election-without-id", "election_id"),
        ("confirm a; cancel a", "twice"),
        ("election  0 1; election  0 2", "twice"),
        ("expected xyz", "not the hash"),
        ("preview", "answer"),
        ("plan-without-content", "dry_run"),
        ("no-plan", "holdfast.Plan"),
        ("no-wait", "holdfast.Services"),
        ("wait UNSET 1", "must have a `wait`"),
        ("wait READY", "above zero"),
        ("wait READY 0", "above zero"),
        ("wait READY -1", "above zero"),
        ("wait SETTLED 601", "at most 600s"),
        ("waited", "an outcome belongs to an answer"),
        ("wait READY 1; wait SETTLED 1", "twice"),
        ("dry-run; wait READY 1", "dry run commits nothing"),
    ] {
        let mut request = set_request(r#"update /system/config/hostname "box""#);
        request.extension = extensions(texts);
        let status = client.set(request).await.expect_err(texts);
        assert_eq!(status.code(), Code::InvalidArgument, "{texts}: {status:?}");
        assert!(status.message().contains(word), "{texts}: {status:?}");
    }
    assert_eq!(core.revision().number, before);
    for texts in
        ["config", "commit-without-action a", "begin a", "snapshot", "dry-run", "wait READY 1"]
    {
        let request = gnmi::GetRequest { extension: extensions(texts), ..get_request(&["/"]) };
        let status = client.get(request).await.expect_err(texts);
        assert_eq!(status.code(), Code::InvalidArgument, "{texts}: {status:?}");
    }
    for texts in ["depth 1", "config", "begin a", "snapshot", "dry-run"] {
        let extension = extensions(texts);
        let request = gnmi::CapabilityRequest { extension };
        let status = client.capabilities(request).await.expect_err(texts);
        assert_eq!(status.code(), Code::InvalidArgument, "{texts}: {status:?}");
    }
    use gnmi::subscription_list::Mode;
    for (mode, texts, code) in [
        (Mode::Stream, "config-done", Code::InvalidArgument),
        (Mode::Stream, "config-without-action", Code::InvalidArgument),
        (Mode::Stream, "confirm a", Code::InvalidArgument),
        (Mode::Stream, "dry-run", Code::InvalidArgument),
        (Mode::Stream, "past-without-time", Code::InvalidArgument),
        (Mode::Stream, "snapshot", Code::InvalidArgument),
        (Mode::Poll, "snapshot", Code::InvalidArgument),
        (Mode::Once, "snapshot", Code::Unimplemented),
        (Mode::Once, "range 1 2", Code::InvalidArgument),
        (Mode::Poll, "range 1 2", Code::InvalidArgument),
        (Mode::Stream, "range 2 1", Code::InvalidArgument),
        (Mode::Stream, "range 1 2", Code::Unimplemented),
    ] {
        let request = subscribe(list(mode, &["target /system"]));
        let request = gnmi::SubscribeRequest { extension: extensions(texts), ..request };
        let mut subscription = Subscription::open(&mut client, request).await;
        assert_eq!(subscription.next().await, format!("{code:?}"), "{mode:?} {texts}");
    }
}

// proves 1.127
#[tokio::test]
async fn unknown_extensions_are_ignored() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let mut unknown = extensions("unknown");
    unknown.push(Extension::default());
    let mut request = set_request(r#"update /system/config/hostname "box""#);
    request.extension = unknown.clone();
    client.set(request).await.unwrap();
    let request = gnmi::GetRequest {
        extension: unknown.clone(),
        ..get_request(&["/system/config/hostname"])
    };
    let response = client.get(request).await.unwrap().into_inner();
    assert_eq!(value(response.notification[0].update[0].val.as_ref()), r#""box""#);
    let request = gnmi::CapabilityRequest { extension: unknown };
    client.capabilities(request).await.unwrap();
}

/// A box with a leaf on each level of the interface tree.
async fn box_with_a_port() -> (FakeDatastore, Client) {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(
        &mut client,
        concat!(
            r#"update /interfaces/interface[name=eth0]/config {"name": "eth0", "mtu": 1414}; "#,
            r#"update /system/config/hostname "box""#
        ),
    )
    .await;
    core.state("/interfaces/interface[name=eth0]/state/oper-status", "UP");
    core.polled_leaf("/interfaces/interface[name=eth0]/state/counters/in-octets", "42");
    (core, client)
}

// proves 1.140
#[tokio::test]
async fn depth_limits_the_levels_below_each_path_of_a_get() {
    let (_core, mut client) = box_with_a_port().await;
    let eth0 = "/interfaces/interface[name=eth0]";
    for (depth, at, has, has_not) in [
        // a container without leaves of its own
        (1, "/interfaces", "", "eth0"),
        (2, "/interfaces", r#""name":"eth0""#, "mtu"),
        (3, "/interfaces", r#""mtu":1414"#, "in-octets"),
        (4, "/interfaces", r#""in-octets":"42""#, "nothing else"),
        (0, "/interfaces", r#""in-octets":"42""#, "nothing else"),
        // an entry and its list are one level
        (1, "/interfaces/interface", r#""eth0""#, "mtu"),
        (2, "/interfaces/interface", r#""mtu":1414"#, "in-octets"),
        (1, eth0, r#""eth0""#, "mtu"),
        (2, eth0, "oper-status", "in-octets"),
        (3, eth0, "in-octets", "nothing else"),
        // wildcards, the root, a leaf
        (1, "/interfaces/interface[name=*]/state", "oper-status", "in-octets"),
        (3, "/", "hostname", "mtu"),
        (1, "/interfaces/interface[name=eth0]/config/mtu", "1414", "nothing else"),
    ] {
        for encoding in [gnmi::Encoding::JsonIetf, gnmi::Encoding::Proto] {
            let extension = extensions(&format!("depth {depth}"));
            let encoding = encoding as i32;
            let request = gnmi::GetRequest { extension, encoding, ..get_request(&[at]) };
            let answer = client.get(request).await.unwrap().into_inner();
            let leaves: Vec<String> = answer.notification[0]
                .update
                .iter()
                .map(|it| format!("{}={}", text(it.path.as_ref()), value(it.val.as_ref())))
                .collect();
            let leaves = leaves.join(" ");
            if encoding == gnmi::Encoding::JsonIetf as i32 {
                assert!(leaves.contains(has), "{depth} {at}: {leaves}");
            } else {
                let leaf = has.split(':').next().unwrap().trim_matches('"');
                assert!(leaves.contains(leaf), "{depth} {at}: {leaves}");
            }
            assert!(!leaves.contains(has_not), "{depth} {at}: {leaves}");
        }
    }
    // An absent path is absent at any depth.
    let extension = extensions("depth 1");
    let absent = "/interfaces/interface[name=eth9]";
    let request = gnmi::GetRequest { extension, ..get_request(&[absent]) };
    assert_eq!(client.get(request).await.unwrap_err().code(), Code::NotFound);
}

// proves 1.140
#[tokio::test]
async fn depth_limits_the_levels_below_all_paths_of_a_subscription() {
    let (core, mut client) = box_with_a_port().await;
    use gnmi::subscription_list::Mode;
    let paths = ["change /interfaces/interface[name=eth0]", "change /interfaces/interface/state"];
    let request = gnmi::SubscribeRequest {
        extension: extensions("depth 1"),
        ..subscribe(list(Mode::Stream, &paths))
    };
    let mut subscription = Subscription::open(&mut client, request).await;
    let text = subscription.until_sync().await.join(" ");
    assert!(text.contains("oper-status") && text.contains("[name=eth0]/name"), "{text}");
    assert!(!text.contains("mtu") && !text.contains("in-octets"), "{text}");
    // Of both containers, only the leaves of `state` are within one level.
    set(&mut client, "update /interfaces/interface[name=eth0]/config/mtu 1314").await;
    core.state("/interfaces/interface[name=eth0]/state/oper-status", "DOWN");
    let next = subscription.next().await;
    assert_eq!(next, r#"/interfaces/interface[name=eth0]/state/oper-status="DOWN""#);
}
