//! The pathz policy in gNMI: reads and writes of paths, permitted and refused.

use std::time::Duration;

use holdfast_core::Datastore;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::{self, TypedValue, typed_value};
use tonic::Code;

use super::extensions::extensions;
use super::fake_datastore::FakeDatastore;
use super::harness::{
    Client, Subscription, client, get_request, list, path, set, set_request, subscribe, text,
    update, value,
};
use crate::gnsi::pathz::tests::{judge, rights};

const COUNTER: &str = "/interfaces/interface[name=eth0]/state/counters/in-octets";
/// Policies for the caller of these tests, `test` of the group `staff`.
const PORT_ONLY: &str = "user test + read /interfaces/interface[name=eth0]";
const ALL_BUT_ETH1: &str =
    "group staff + read /; user test - read /interfaces/interface[name=eth1]";
const NO_STATE: &str = "user test + read /interfaces; \
    user test - read /interfaces/interface[name=*]/state; \
    user test + read /interfaces/interface[name=*]/state/counters";

/// A box with eth0 and eth1 configured, eth0 up with a counter, and a host name.
async fn box_with_ports() -> (FakeDatastore, Client) {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(
        &mut client,
        r#"update /interfaces {"interface":[{"name":"eth0","config":{"name":"eth0","mtu":1514}},{"name":"eth1","config":{"name":"eth1","mtu":1414}}]}; update /system/config/hostname "box""#,
    )
    .await;
    core.state("/interfaces/interface[name=eth0]/state/oper-status", "UP");
    core.state("/interfaces/interface[name=eth1]/state/oper-status", "DOWN");
    core.polled_leaf(COUNTER, "42");
    (core, client)
}

/// All leaves below a path as `path=value`, or the code of the refusal.
async fn leaves(client: &mut Client, at: &str) -> String {
    let encoding = gnmi::Encoding::Proto as i32;
    answer(client, gnmi::GetRequest { encoding, ..get_request(&[at]) }).await
}

async fn answer(client: &mut Client, request: gnmi::GetRequest) -> String {
    match client.get(request).await {
        Err(status) => format!("{:?}", status.code()),
        Ok(answer) => {
            let notification = answer.into_inner().notification.remove(0);
            let leaf = |it: &gnmi::Update| {
                format!("{}={}", text(it.path.as_ref()), value(it.val.as_ref()))
            };
            notification.update.iter().map(leaf).collect::<Vec<_>>().join(" ")
        }
    }
}

// proves 5.55
#[tokio::test]
async fn without_a_policy_everything_is_allowed() {
    let (core, mut client) = box_with_ports().await;
    assert!(leaves(&mut client, "/").await.contains("/system/config/hostname=string box"));
    set(&mut client, "delete /interfaces/interface[name=eth1]").await;
    core.pathz().enforce(Some(judge("")));
    assert_eq!(leaves(&mut client, "/").await, "PermissionDenied");
    core.pathz().enforce(None);
    assert!(leaves(&mut client, "/system").await.contains("hostname"));
}

// proves 5.46, 5.49, 5.50, 5.53
#[tokio::test]
async fn a_get_is_refused_or_shows_what_may_be_seen() {
    const MTU0: &str = "/interfaces/interface[name=eth0]/config/mtu=uint 1514";
    let (core, mut client) = box_with_ports().await;
    let mtu = "/interfaces/interface[name=*]/config/mtu";
    let rows = [
        ("user other + read /", "/interfaces", "PermissionDenied"),
        ("user test + write /", "/interfaces", "PermissionDenied"),
        (PORT_ONLY, "/interfaces/interface[name=eth0]/config/mtu", "/config/mtu=uint 1514"),
        (
            PORT_ONLY,
            "openconfig:/interfaces/interface[name=eth0]/config/mtu",
            "/config/mtu=uint 1514",
        ),
        (PORT_ONLY, "/interfaces/interface[name=eth1]/config/mtu", "PermissionDenied"),
        (PORT_ONLY, "/interfaces/interface[name=eth9]/config/mtu", "PermissionDenied"),
        (PORT_ONLY, "/interfaces", "PermissionDenied"),
        (PORT_ONLY, "/", "PermissionDenied"),
        (PORT_ONLY, mtu, "PermissionDenied"),
        (PORT_ONLY, "/interfaces/*/config/mtu", "PermissionDenied"),
        (PORT_ONLY, "/.../mtu", "PermissionDenied"),
        (PORT_ONLY, "holdfast_native:/interfaces/interface[name=eth0]", "PermissionDenied"),
        // Denied nodes below a path are left out without a trace.
        (ALL_BUT_ETH1, mtu, MTU0),
        (ALL_BUT_ETH1, "/interfaces/*/config/mtu", MTU0),
        (ALL_BUT_ETH1, "/interfaces/interface[name=eth1]", "PermissionDenied"),
        (ALL_BUT_ETH1, "/interfaces/interface[name=eth1]/config/mtu", "PermissionDenied"),
        (NO_STATE, "/interfaces/interface[name=*]/state/oper-status", "PermissionDenied"),
        (NO_STATE, "/interfaces/interface[name=*]/*/oper-status", ""),
        (NO_STATE, "/interfaces/interface[name=eth1]/state/counters", "NotFound"),
    ];
    for (rules, at, want) in rows {
        core.pathz().enforce(Some(judge(rules)));
        let got = leaves(&mut client, at).await;
        let got = got
            .strip_prefix("/interfaces/interface[name=eth0]")
            .filter(|_| want.starts_with("/config"))
            .unwrap_or(&got);
        assert_eq!(got, want, "{rules}: {at}");
    }
}

// proves 5.49
#[tokio::test]
async fn documents_lack_what_is_denied() {
    let (core, mut client) = box_with_ports().await;
    let rows = [
        (ALL_BUT_ETH1, "/interfaces", vec!["eth0", "counters"], vec!["eth1", "1414", "DOWN"]),
        (ALL_BUT_ETH1, "/", vec!["eth0", "hostname"], vec!["eth1", "1414", "DOWN"]),
        (NO_STATE, "/interfaces", vec!["eth0", "eth1", "1414", "42"], vec!["oper-status"]),
        (
            "user test + read /interfaces; user test - read /interfaces/interface[name=*]/name; \
             user test - read /interfaces/interface[name=*]/config",
            "/interfaces",
            // The keys are part of the path of the state that may be seen.
            vec![r#""name":"eth0""#, "UP"],
            vec![r#""config""#, "mtu"],
        ),
        (
            "user test + read /; user test - read /interfaces/interface",
            "/interfaces",
            vec!["{}"],
            vec!["eth"],
        ),
    ];
    for (rules, at, there, missing) in rows {
        core.pathz().enforce(Some(judge(rules)));
        let got = match answer(&mut client, get_request(&[at])).await {
            code if code == "NotFound" => "{}".to_owned(),
            document => document,
        };
        assert!(there.iter().all(|word| got.contains(word)), "{rules}: {at}: {got}");
        assert!(!missing.iter().any(|word| got.contains(word)), "{rules}: {at}: {got}");
    }
}

// proves 5.49, 5.50
#[tokio::test]
async fn every_subscribe_is_refused_or_filtered() {
    let (core, mut client) = box_with_ports().await;
    let modes = [
        (Mode::Once, "change /interfaces"),
        (Mode::Poll, "change /interfaces"),
        (Mode::Stream, "target /interfaces"),
        (Mode::Stream, "change /interfaces"),
        (Mode::Stream, "sample /interfaces interval=1"),
    ];
    for (mode, subscriptions) in modes {
        core.pathz().enforce(Some(judge(PORT_ONLY)));
        let mut refused =
            Subscription::open(&mut client, subscribe(list(mode, &[subscriptions]))).await;
        assert_eq!(refused.next().await, "PermissionDenied", "{subscriptions}");
        core.pathz().enforce(Some(judge(ALL_BUT_ETH1)));
        let mut stream =
            Subscription::open(&mut client, subscribe(list(mode, &[subscriptions]))).await;
        let text = stream.until_sync().await.join(" ");
        assert!(text.contains("[name=eth0]/config/mtu=1514"), "{subscriptions}: {text}");
        assert!(text.contains("in-octets"), "{subscriptions}: {text}");
        assert!(!text.contains("eth1"), "{subscriptions}: {text}");
    }
}

// proves 5.49
#[tokio::test(start_paused = true)]
async fn changes_and_deletes_of_denied_paths_are_not_sent() {
    let (core, mut client) = box_with_ports().await;
    core.pathz().enforce(Some(judge(&format!(
        "{ALL_BUT_ETH1}; user test + write /; user test - read /interfaces/interface[name=*]/config/description"
    ))));
    let subscriptions = list(Mode::Stream, &["change /interfaces"]);
    let mut stream = Subscription::open(&mut client, subscribe(subscriptions)).await;
    stream.until_sync().await;
    set(&mut client, r#"update /interfaces/interface[name=eth1]/config/mtu 1500; update /interfaces/interface[name=eth0]/config/description "x""#).await;
    set(&mut client, "delete /interfaces/interface[name=eth1]; delete /interfaces/interface[name=eth0]/config/description").await;
    core.remove_state("/interfaces/interface[name=eth1]");
    set(&mut client, "update /interfaces/interface[name=eth0]/config/mtu 1600").await;
    let updates = stream.within(Duration::from_millis(100)).await;
    assert_eq!(updates, ["/interfaces/interface[name=eth0]/config/mtu=1600"]);
    set(&mut client, "delete /interfaces/interface[name=eth0]/config/mtu").await;
    let updates = stream.within(Duration::from_millis(100)).await;
    // The key leaf is left, which has no default.
    let deletes =
        ["enabled", "mtu"].map(|leaf| format!("-/interfaces/interface[name=eth0]/config/{leaf}"));
    assert_eq!(updates, [deletes.join(" ")]);
}

// proves 5.54
#[tokio::test]
async fn another_policy_ends_open_streams_with_its_reason() {
    let (core, mut client) = box_with_ports().await;
    for (mode, rules) in [(Mode::Stream, ""), (Mode::Poll, ALL_BUT_ETH1)] {
        core.pathz().enforce((!rules.is_empty()).then(|| judge(rules)));
        let subscriptions = list(mode, &["change /interfaces"]);
        let mut stream = Subscription::open(&mut client, subscribe(subscriptions)).await;
        stream.until_sync().await;
        core.pathz().enforce(Some(judge(ALL_BUT_ETH1)));
        let status = stream.responses.message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().contains("the pathz policy has changed"), "{}", status.message());
    }
}

// proves 5.53
#[tokio::test]
async fn cli_text_is_readable_as_a_whole_or_not_at_all() {
    let (core, mut client) = box_with_ports().await;
    let show = |command: &str| gnmi::GetRequest {
        encoding: gnmi::Encoding::Ascii as i32,
        path: vec![gnmi::Path { origin: "cli".into(), ..path(command) }],
        ..Default::default()
    };
    for (rules, is_visible) in [
        ("user test + read /; user test + read holdfast_native:/", false),
        ("user test + read holdfast_cli:/interfaces", false),
        ("user test + read holdfast_cli:/; user test - read cli:/interfaces", false),
        ("user test + read cli:/", true),
        ("user test + read holdfast_cli:/; user test - write cli:/interfaces", true),
    ] {
        core.pathz().enforce(Some(judge(rules)));
        for command in ["/show/running-config", "/show/effective"] {
            let got = answer(&mut client, show(command)).await;
            assert_eq!(got != "PermissionDenied", is_visible, "{rules}: {command}: {got}");
        }
    }
}

/// Result of a Set: `ok`, or the code and the text.
async fn outcome(client: &mut Client, request: gnmi::SetRequest) -> String {
    match client.set(request).await {
        Ok(_) => "ok".to_owned(),
        Err(status) => format!("{:?}: {}", status.code(), status.message()),
    }
}

// proves 5.51, 5.52
#[tokio::test]
async fn a_set_is_refused_for_any_path_that_may_not_be_written() {
    let policy = "user test + read /; user test + write /; \
        user test - write /interfaces/interface[name=eth1]; \
        user test - read /interfaces/interface[name=eth1]/config/description; \
        user test - write /system/config/hostname";
    let eth0 = r#"{"name":"eth0","config":{"name":"eth0","mtu":1600}}"#;
    let eth1 = r#"{"name":"eth1","config":{"name":"eth1","mtu":1414}}"#;
    let whole = r#"{"name":"eth1","config":{"name":"eth1","mtu":1414,"enabled":false}}"#;
    let rows = [
        ("update /interfaces/interface[name=eth0]/config/mtu 1600", ""),
        (
            "update /interfaces/interface[name=eth1]/config/mtu 1600",
            "/interfaces/interface[name=eth1]/config/mtu",
        ),
        // A caller who may read a value may send it back.
        ("update /interfaces/interface[name=eth1]/config/mtu 1414", ""),
        // An equal value is refused if the caller may not read it, because success would reveal it.
        (
            r#"update /interfaces/interface[name=eth1]/config/description "secret""#,
            "/interfaces/interface[name=eth1]/config/description",
        ),
        (
            r#"update /interfaces/interface[name=eth9]/config/mtu 1600; update /system/config/hostname "x""#,
            "/system/config/hostname",
        ),
        ("delete /interfaces/interface[name=eth1]", "/interfaces/interface[name=eth1]"),
        (
            "delete /interfaces/interface[name=eth1]/config/enabled",
            "/interfaces/interface[name=eth1]/config/enabled",
        ),
        ("delete /interfaces/interface[name=eth0]", ""),
        // Operations on a path above also cover the denied node.
        ("delete /interfaces", "/interfaces/interface[name=eth1]/config/enabled"),
        (
            "delete /interfaces/interface[name=*]/config/mtu",
            "/interfaces/interface[name=eth1]/config/mtu",
        ),
        ("delete /interfaces/*/config/mtu", "/interfaces/interface[name=eth1]/config/mtu"),
        ("delete /", "/interfaces/interface[name=eth1]/config/enabled"),
        (
            &format!(r#"replace /interfaces {{"interface":[{eth0}]}}"#),
            "/interfaces/interface[name=eth1]/config/enabled",
        ),
        (&format!(r#"update /interfaces {{"interface":[{eth0}]}}"#), ""),
        (&format!(r#"update /interfaces {{"interface":[{eth0},{eth1}]}}"#), ""),
        (
            &format!(
                r#"replace / {{"openconfig-interfaces:interfaces":{{"interface":[{eth0},{whole}]}}}}"#
            ),
            "/system/config/hostname",
        ),
    ];
    for (operations, denied) in rows {
        let (core, mut client) = box_with_ports().await;
        set(&mut client, r#"update /interfaces/interface[name=eth1]/config/enabled false"#).await;
        let before = core.configuration().layers().clone();
        core.pathz().enforce(Some(judge(policy)));
        let got = outcome(&mut client, set_request(operations)).await;
        if denied.is_empty() {
            assert_eq!(got, "ok", "{operations}");
        } else {
            assert!(got.starts_with("PermissionDenied"), "{operations}: {got}");
            assert!(got.contains(&format!("`{denied}`")), "{operations}: {got}");
            assert_eq!(*core.configuration().layers(), before, "{operations}");
        }
    }
}

/// Values that the caller may write but not read are not revealed.
// proves 5.51, 5.52
#[tokio::test]
async fn a_refusal_discloses_nothing_that_is_denied() {
    let (core, mut client) = box_with_ports().await;
    set(&mut client, "update holdfast_native:/interfaces/interface[name=eth0]/mtu 1500").await;
    // The refusal names neither the path that denies it nor its value.
    core.pathz().enforce(Some(judge(
        "user test + write /; user test - write /interfaces/interface[name=eth1]",
    )));
    for operation in ["delete /interfaces", r#"replace /interfaces {"interface":[]}"#] {
        let got = outcome(&mut client, set_request(operation)).await;
        assert!(got.starts_with("PermissionDenied") && got.contains("`/interfaces`"), "{got}");
        assert!(!got.contains("eth1"), "{got}");
    }
    // An equal value is refused like any other.
    for mtu in [1414, 1400] {
        let operation = format!("update /interfaces/interface[name=eth1]/config/mtu {mtu}");
        let got = outcome(&mut client, set_request(&operation)).await;
        assert!(got.starts_with("PermissionDenied"), "{got}");
    }
    // The other origin has another value, which is named only to callers who may read it.
    let conflict = "update /interfaces/interface[name=eth0]/config/mtu 9000";
    let got = outcome(&mut client, set_request(conflict)).await;
    assert!(got.starts_with("InvalidArgument") && !got.contains("1500"), "{got}");
    core.pathz().enforce(Some(judge("user test + write /; user test + read holdfast_native:/")));
    let got = outcome(&mut client, set_request(conflict)).await;
    assert!(got.starts_with("InvalidArgument") && got.contains("1500"), "{got}");
}

fn cli(text: &str) -> gnmi::Update {
    let val = Some(TypedValue { value: Some(typed_value::Value::AsciiVal(text.into())) });
    gnmi::Update { path: Some(path("cli:/")), val, ..Default::default() }
}

// proves 2.14, 5.52, 5.53
#[tokio::test]
async fn union_replace_and_text_are_judged_by_what_they_change() {
    const OPENCONFIG: &str = "user test + write /; user test + read /";
    const TEXT: &str = "user test + write holdfast_cli:/";
    let union = |entries: Vec<gnmi::Update>| gnmi::SetRequest {
        union_replace: entries,
        ..Default::default()
    };
    let replace = |text: &str| gnmi::SetRequest { replace: vec![cli(text)], ..Default::default() };
    let append = |text: &str| gnmi::SetRequest { update: vec![cli(text)], ..Default::default() };
    let root = r#"{"openconfig-system:system":{"config":{"hostname":"box"}}}"#;
    let mtu = "interface eth5\n  mtu 1300\n";
    let rows = [
        (OPENCONFIG.to_owned(), append(mtu), false),
        (TEXT.to_owned(), append(mtu), true),
        (
            format!("{TEXT}; user test - write cli:/interfaces/interface[name=eth5]"),
            append(mtu),
            false,
        ),
        (
            format!("{TEXT}; user test - write cli:/interfaces/interface[name=eth1]"),
            append(mtu),
            true,
        ),
        ("user test + write holdfast_native:/".to_owned(), append(mtu), false),
        ("user test + write holdfast_cli:/interfaces".to_owned(), append(mtu), false),
        // eth7 was made by CLI text, so a replace without it removes it.
        (TEXT.to_owned(), replace(mtu), true),
        (
            format!("{TEXT}; user test - write cli:/interfaces/interface[name=eth7]"),
            replace(mtu),
            false,
        ),
        // The OpenConfig layer is removed as well.
        (TEXT.to_owned(), union(vec![cli(mtu)]), false),
        (format!("{TEXT}; {OPENCONFIG}"), union(vec![cli(mtu)]), true),
        (format!("{TEXT}; {OPENCONFIG}"), union(vec![update("/", root), cli(mtu)]), true),
        (
            format!("{TEXT}; {OPENCONFIG}; user test - write /interfaces/interface[name=eth1]"),
            union(vec![update("/", root), cli(mtu)]),
            false,
        ),
        // The layer of CLI text is removed if only OpenConfig is sent.
        (OPENCONFIG.to_owned(), union(vec![update("/", root)]), false),
        (
            format!("{OPENCONFIG}; user test + write holdfast_native:/"),
            union(vec![update("/", root)]),
            true,
        ),
        ("user test + write /system".to_owned(), union(vec![update("/", root)]), false),
    ];
    for (rules, request, is_permitted) in rows {
        let (core, mut client) = box_with_ports().await;
        outcome(&mut client, append("interface eth7\n  mtu 1200\n")).await;
        core.pathz().enforce(Some(judge(&rules)));
        let got = outcome(&mut client, request.clone()).await;
        let want = if is_permitted { "ok" } else { "PermissionDenied" };
        assert!(got.starts_with(want), "{rules}: {request:?}: {got}");
    }
}

#[tokio::test]
async fn a_dry_run_needs_to_read_everything() {
    let (core, mut client) = box_with_ports().await;
    let extension = extensions("dry-run");
    let operation = "update /interfaces/interface[name=eth0]/config/mtu 1600";
    let request = gnmi::SetRequest { extension, ..set_request(operation) };
    core.pathz().enforce(Some(judge("user test + write /; user test + read /")));
    let got = outcome(&mut client, request.clone()).await;
    assert!(got.starts_with("PermissionDenied: a dry run"), "{got}");
}

/// The policy is checked for the written nodes alone, whatever else there is, and not at all if everything may be
/// written.
#[tokio::test]
async fn judging_costs_what_is_written() {
    use holdfast_config::edit::{Edit, EditAuthorization, EditTarget, Payload};
    use holdfast_config::schema::Origin;
    let entry =
        |port: usize| format!(r#"{{"name":"p{port}","config":{{"name":"p{port}","mtu":1414}}}}"#);
    let ports: Vec<String> = (0..500).map(entry).collect();
    let (core, mut client) = box_with_ports().await;
    set(&mut client, &format!(r#"update /interfaces {{"interface":[{}]}}"#, ports.join(","))).await;
    let steps = |rules: &str, text: &str| {
        let permissions = std::sync::Arc::new(rights(&judge(rules), "test"));
        let target = EditTarget {
            origin: Origin::OpenConfig,
            path: "/interfaces/interface[name=p3]/config/mtu".parse().unwrap(),
        };
        let payload = Payload::Json { text: text.as_bytes().to_vec().into(), ietf: true };
        let edit = Edit {
            updates: vec![(target, payload)],
            authorization: EditAuthorization::new(permissions.clone()),
            ..Edit::default()
        };
        let is_permitted = core.configuration().edit(&edit).is_ok();
        (is_permitted, permissions.write_steps())
    };
    assert_eq!(steps("user test + write /", "1500"), (true, 4));
    let some = "user test + write /; user test - write /interfaces/interface[name=p7]";
    let (is_permitted, taken) = steps(some, "1500");
    assert!(is_permitted && taken <= 12, "{taken} steps");
}
