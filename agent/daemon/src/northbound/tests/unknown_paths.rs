//! Subscriptions to paths that no model has: refused, or ignored and counted.

use std::time::Duration;

use holdfast_config::Models;
use holdfast_platform::transport::SimulatedKernel;
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::subscription_list::Mode;
use tonic::Code;

use super::fake_datastore::FakeDatastore;
use super::harness::{
    Client, Subscription, client, get_request, list, path, set, set_request, subscribe, text, value,
};
use crate::agent_tests::Agent;
use crate::gnsi::pathz::tests::judge;
use crate::northbound::IgnoredSubscriptions;
use crate::settings::UnknownPaths;

const SERVER: &str = "holdfast_native:/system/grpc-server[name=DEFAULT]";
const STATUS: &str = "/interfaces/interface[name=eth0]/state/oper-status";
const MODES: [Mode; 3] = [Mode::Once, Mode::Poll, Mode::Stream];
/// All that counts as unknown.
const UNKNOWN: [&str; 7] = [
    "/acl",
    "/interfaces/interface[name=eth0]/state/nonsense",
    "/openconfig-network-instance:interfaces",
    "/.../nonsense",
    "holdfast_native:/nonsense",
    "bogus:/interfaces",
    "cli:/show",
];

/// Has the configuration say what becomes of unknown paths.
async fn configure(client: &mut Client, word: &str) {
    set(client, &format!(r#"update {SERVER}/unknown-subscription-paths "{word}""#)).await;
}

/// A box with one port that is up.
async fn eth0(word: &str) -> (FakeDatastore, Client) {
    let core = FakeDatastore::new();
    core.state(STATUS, "UP");
    let mut client = client(&core).await;
    configure(&mut client, word).await;
    (core, client)
}

/// Subscribes to `paths`, each ON_CHANGE.
async fn open(client: &mut Client, mode: Mode, paths: &[&str]) -> Subscription {
    let subscriptions: Vec<String> = paths.iter().map(|path| format!("change {path}")).collect();
    let subscriptions: Vec<&str> = subscriptions.iter().map(String::as_str).collect();
    Subscription::open(client, subscribe(list(mode, &subscriptions))).await
}

/// The ignored paths that readers see, each with its count.
async fn counts(client: &mut Client) -> Vec<String> {
    let at = format!("{SERVER}/ignored-subscription/state");
    let encoding = gnmi::Encoding::Proto as i32;
    let request = gnmi::GetRequest { encoding, ..get_request(&[&at]) };
    let updates = client.get(request).await.unwrap().into_inner().notification.remove(0).update;
    let leaf = |it: &gnmi::Update| (text(it.path.as_ref()), value(it.val.as_ref()));
    let leaves: Vec<_> = updates.iter().map(leaf).collect();
    let paths = leaves.iter().filter(|(at, _)| at.ends_with("/state/path"));
    let counts = leaves.iter().filter(|(at, _)| at.ends_with("/state/count"));
    let lines = paths.zip(counts).map(|((at, path), (other, count))| {
        assert_eq!(at.strip_suffix("/path"), other.strip_suffix("/count"));
        let (_, path) = path.split_once(' ').unwrap();
        format!("{path} {}", count.trim_start_matches("uint "))
    });
    let mut lines: Vec<String> = lines.collect();
    lines.sort();
    lines
}

#[tokio::test(start_paused = true)]
async fn the_rest_of_a_list_is_answered() {
    let up = format!("{STATUS}=\"UP\"");
    for unknown in UNKNOWN {
        for mode in MODES {
            let (core, mut client) = eth0("ignore").await;
            let mut stream = open(&mut client, mode, &[unknown, STATUS, unknown]).await;
            assert_eq!(stream.until_sync().await, [up.as_str(), "sync"], "{unknown} {mode:?}");
            match mode {
                Mode::Once => assert_eq!(stream.next().await, "end", "{unknown}"),
                Mode::Poll => {
                    stream.poll().await;
                    assert_eq!(stream.until_sync().await, [up.as_str(), "sync"], "{unknown}");
                }
                Mode::Stream => {
                    core.state(STATUS, "DOWN");
                    assert_eq!(stream.next().await, format!("{STATUS}=\"DOWN\""), "{unknown}");
                }
            }
            configure(&mut client, "refuse").await;
            let mut refused = open(&mut client, mode, &[STATUS, unknown]).await;
            assert_eq!(refused.next().await, "Unimplemented", "{unknown} {mode:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_of_nothing_else_is_an_empty_subscription() {
    for mode in MODES {
        let (core, mut client) = eth0("ignore").await;
        let mut stream = open(&mut client, mode, &UNKNOWN).await;
        assert_eq!(stream.next().await, "sync", "{mode:?}");
        if mode == Mode::Poll {
            stream.poll().await;
            assert_eq!(stream.next().await, "sync");
        }
        if mode == Mode::Once {
            assert_eq!(stream.next().await, "end");
        } else {
            core.state(STATUS, "DOWN");
            let later = stream.within(Duration::from_secs(3600)).await;
            assert!(later.is_empty(), "{mode:?}: {later:?}");
        }
    }
}

/// Each row is one more subscription behind an unknown one, or a change of the list.
#[tokio::test]
async fn other_mistakes_are_refused_beside_an_ignored_path() {
    type Change = Box<dyn Fn(&mut gnmi::SubscriptionList)>;
    let also = |wire: gnmi::Path| -> Change {
        Box::new(move |list| list.subscription[1].path = Some(wire.clone()))
    };
    let nameless = |at: &str| {
        let mut path = path(at);
        path.elem[0].name.clear();
        path
    };
    let mut keys_on_depth = path("bogus:/.../x");
    keys_on_depth.elem[0].key = [("name".to_owned(), "a".to_owned())].into();
    let both = |origin: &str| -> Change {
        let origin = origin.to_owned();
        Box::new(move |list| {
            list.prefix = Some(path("/interfaces"));
            list.subscription[0].path = Some(path(&format!("{origin}:/x")));
        })
    };
    let rows: [(Change, Code, &str); 14] = [
        (also(path("/interfaces/interface[nome=eth0]")), Code::InvalidArgument, "nome"),
        (also(path("/interfaces[name=eth0]")), Code::InvalidArgument, "not a list"),
        (also(nameless("/interfaces")), Code::InvalidArgument, "no name"),
        (also(nameless("bogus:/interfaces")), Code::InvalidArgument, "no name"),
        (also(keys_on_depth), Code::InvalidArgument, "keys on `...`"),
        (also(path("/.../.../.../.../...")), Code::ResourceExhausted, "path-depth-wildcards"),
        (also(path("bogus:/.../.../.../.../...")), Code::ResourceExhausted, "path-depth-wildcards"),
        (
            also(gnmi::Path { target: "box".into(), ..path("bogus:/x") }),
            Code::InvalidArgument,
            "target",
        ),
        (both("bogus"), Code::InvalidArgument, "several origins"),
        (
            Box::new(|list| list.subscription = vec![list.subscription[0].clone(); 10_001]),
            Code::ResourceExhausted,
            "subscriptions",
        ),
        (Box::new(|list| list.subscription[1].mode = 9), Code::InvalidArgument, "9"),
        (
            Box::new(|list| list.encoding = gnmi::Encoding::Bytes as i32),
            Code::Unimplemented,
            "BYTES",
        ),
        (
            Box::new(|list| {
                let name = "no-such-model".into();
                list.use_models = vec![gnmi::ModelData { name, ..Default::default() }];
            }),
            Code::InvalidArgument,
            "no-such-model",
        ),
        (
            Box::new(|list| {
                let counter = "/interfaces/interface/state/counters/in-octets";
                list.subscription[1].path = Some(path(counter));
            }),
            Code::InvalidArgument,
            "in-octets",
        ),
    ];
    let (_core, mut client) = eth0("ignore").await;
    for (at, (change, code, word)) in rows.iter().enumerate() {
        let mut wrong = list(Mode::Stream, &["change /acl", "change /system/config/hostname"]);
        change(&mut wrong);
        let mut stream = Subscription::open(&mut client, subscribe(wrong)).await;
        let status = stream.responses.message().await.expect_err(word);
        assert_eq!(status.code(), *code, "row {at}: {status:?}");
        assert!(status.message().contains(word), "row {at}: {status:?}");
    }
    assert_eq!(counts(&mut client).await, [""; 0], "no list was answered");
}

#[tokio::test]
async fn get_and_set_stay_strict() {
    let (_core, mut client) = eth0("ignore").await;
    for unknown in UNKNOWN {
        let encoding = gnmi::Encoding::Ascii as i32 * i32::from(unknown.starts_with("cli:"));
        let request = gnmi::GetRequest { encoding, ..get_request(&[unknown]) };
        let status = client.get(request).await.expect_err(unknown);
        assert_eq!(status.code(), Code::Unimplemented, "{unknown}: {status:?}");
    }
    for (unknown, code) in [
        ("/acl", Code::NotFound),
        ("bogus:/interfaces", Code::InvalidArgument),
        ("holdfast_native:/nonsense", Code::NotFound),
    ] {
        let status = client.set(set_request(&format!("delete {unknown}"))).await.unwrap_err();
        assert_eq!(status.code(), code, "{unknown}: {status:?}");
    }
}

/// A caller who may not read a path is not told whether a model has it: neither by the answer nor by the counts.
#[tokio::test]
async fn pathz_is_checked_before_the_models() {
    const NO_SYSTEM: &str = "user test + read /; user test - read /system; \
        user test + read holdfast_native:/; user test + write /; user test + write holdfast_native:/";
    let (core, mut client) = eth0("ignore").await;
    core.pathz().enforce(Some(judge(NO_SYSTEM)));
    for (unknown, want) in [
        ("/system/config/bogus", "PermissionDenied"),
        ("/system/config/hostname", "PermissionDenied"),
        ("/.../bogus", "sync"),
        ("/*/config/bogus", "sync"),
        ("/interfaces/bogus", "sync"),
    ] {
        let mut stream = open(&mut client, Mode::Once, &["/acl", unknown]).await;
        assert_eq!(stream.next().await, want, "{unknown}");
    }
    assert_eq!(counts(&mut client).await, ["/acl 3", "/interfaces/bogus 1"]);
}

#[tokio::test]
async fn a_path_of_a_model_that_is_not_used_is_not_unknown() {
    let (_core, mut client) = eth0("ignore").await;
    let model = gnmi::ModelData { name: "openconfig-system".into(), ..Default::default() };
    let paths = [&format!("change {STATUS}"), "change /acl"];
    let subscriptions =
        gnmi::SubscriptionList { use_models: vec![model], ..list(Mode::Once, &paths) };
    let mut stream = Subscription::open(&mut client, subscribe(subscriptions)).await;
    assert_eq!([stream.next().await, stream.next().await], ["sync", "end"]);
    assert_eq!(counts(&mut client).await, ["/acl 1"]);
}

#[tokio::test]
async fn the_configuration_goes_before_the_command_line() {
    let native = Models::load().unwrap().native;
    for option in [UnknownPaths::Refuse, UnknownPaths::Ignore] {
        let ignored = IgnoredSubscriptions::new(&native, option).unwrap();
        let core = FakeDatastore::new();
        let mut client = client(&core).await;
        assert_eq!(ignored.setting(&core), option, "nothing is configured");
        for (word, want) in [("refuse", UnknownPaths::Refuse), ("ignore", UnknownPaths::Ignore)] {
            configure(&mut client, word).await;
            assert_eq!(ignored.setting(&core), want, "{option:?}");
        }
        set(&mut client, &format!("delete {SERVER}")).await;
        assert_eq!(ignored.setting(&core), option, "nothing is configured any more");
    }
}

#[tokio::test]
async fn ignored_subscriptions_are_counted_by_path() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let mut client = client(&agent).await;
    let mut refused = open(&mut client, Mode::Once, &["/acl"]).await;
    assert_eq!(refused.next().await, "Unimplemented");
    configure(&mut client, "ignore").await;
    assert_eq!(counts(&mut client).await, [""; 0]);

    for _ in 0..2 {
        let mut poll = open(&mut client, Mode::Poll, &UNKNOWN[..4]).await;
        assert_eq!(poll.until_sync().await, ["sync"]);
        poll.poll().await;
        assert_eq!(poll.until_sync().await, ["sync"], "a poll is not another subscription");
    }
    let mut subscriptions = list(Mode::Once, &["change /a/b", "change /c", "change /a/b"]);
    subscriptions.prefix = Some(path("bogus:/\u{7}[k=\\]]"));
    let mut once = Subscription::open(&mut client, subscribe(subscriptions)).await;
    assert_eq!([once.next().await, once.next().await], ["sync", "end"]);
    let mut once = open(&mut client, Mode::Once, &UNKNOWN[4..]).await;
    assert_eq!([once.next().await, once.next().await], ["sync", "end"]);
    let want = [
        "/.../nonsense 2",
        "/acl 2",
        "/interfaces/interface[name=eth0]/state/nonsense 2",
        "/openconfig-network-instance:interfaces 2",
        "bogus:/interfaces 1",
        "bogus:/\u{fffd}[k=\\]]/a/b 2",
        "bogus:/\u{fffd}[k=\\]]/c 1",
        "holdfast_cli:/show 1",
        "holdfast_native:/nonsense 1",
    ];
    assert_eq!(counts(&mut client).await, want);

    // As many as are counted at a time, in one list.
    let others: Vec<String> = (0..995).map(|at| format!("/other/path{at}")).collect();
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let mut once = open(&mut client, Mode::Once, &others).await;
    assert_eq!(once.next().await, "sync");
    let counted = counts(&mut client).await;
    assert_eq!(counted.len(), 1000);
    assert!(counted.contains(&want[8].to_owned()), "{counted:?}");
    assert!(!counted.iter().any(|it| want[..4].contains(&it.as_str())), "{counted:?}");
}
