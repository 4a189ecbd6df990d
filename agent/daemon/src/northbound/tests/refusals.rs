//! Codes and texts of refusals, for each kind of bad input.

use holdfast_base::Role;
use holdfast_config::limits;
use holdfast_core::CommitError;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::{self, TypedValue, subscribe_request, typed_value};
use holdfast_proto::google::rpc;
use prost::Message;
use tonic::{Code, Status};

use super::fake_datastore::FakeDatastore;
use super::harness::{
    Subscription, channel, client, client_as, get_request, list, path, set, set_request, subscribe,
    update,
};

const MTU: &str = "/interfaces/interface[name=eth0]/config/mtu";
const ETH0: &str = r#"update /interfaces/interface[name=eth0]/config {"name":"eth0","mtu":1514}"#;

// proves 1.19, 1.22, 1.23, 1.28, 1.42, 1.49, 1.54, 1.55, 1.56
#[tokio::test]
async fn bad_gets_get_their_codes() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(&mut client, ETH0).await;
    let get = |paths: &[&str]| get_request(paths);
    let with = |change: &dyn Fn(&mut gnmi::GetRequest)| {
        let mut request = get_request(&[MTU]);
        change(&mut request);
        request
    };
    let rows = [
        (
            get(&["/interfaces/interface[name=eth0]/config/nonsense"]),
            Code::Unimplemented,
            "config/nonsense",
        ),
        (get(&["/lldp"]), Code::Unimplemented, "lldp"),
        (get(&["/interfaces/interface[bogus=1]"]), Code::InvalidArgument, "bogus"),
        (get(&["/interfaces[name=eth0]"]), Code::InvalidArgument, "/interfaces[name=eth0]"),
        (get(&["/interfaces/interface[name=eth9]/config/mtu"]), Code::NotFound, "eth9"),
        (get(&[MTU, "/interfaces/interface[name=eth9]"]), Code::NotFound, "eth9"),
        (
            get(&["/interfaces/interface[name=eth0]/config/description"]),
            Code::NotFound,
            "description",
        ),
        (get(&["bogus:/interfaces"]), Code::Unimplemented, "bogus"),
        (get(&["cli:/interfaces"]), Code::Unimplemented, "cli"),
        (get(&["holdfast_cli:/"]), Code::Unimplemented, "holdfast_cli"),
        (with(&|it| it.encoding = gnmi::Encoding::Bytes as i32), Code::Unimplemented, "BYTES"),
        (with(&|it| it.encoding = gnmi::Encoding::Ascii as i32), Code::Unimplemented, "ASCII"),
        (with(&|it| it.encoding = 42), Code::Unimplemented, "42"),
        (with(&|it| it.r#type = 9), Code::InvalidArgument, "9"),
        (with(&|it| it.path[0].target = "box".into()), Code::InvalidArgument, "target"),
        (with(&|it| it.path[0].elem[0].name = String::new()), Code::InvalidArgument, "no name"),
        (
            with(&|it| {
                it.path =
                    vec![gnmi::Path { elem: vec![gnmi::PathElem::default()], ..Default::default() }]
            }),
            Code::InvalidArgument,
            "no name",
        ),
        (
            with(&|it| {
                it.prefix = Some(path("openconfig:/"));
                it.path[0].origin = "openconfig".into();
            }),
            Code::InvalidArgument,
            "origin",
        ),
        (
            with(&|it| {
                it.prefix = Some(path("/interfaces"));
                it.path = vec![
                    path("openconfig:/interface[name=eth0]"),
                    path("holdfast_native:/interface[name=eth0]"),
                ];
            }),
            Code::InvalidArgument,
            "origins",
        ),
        (
            with(&|it| it.use_models = vec![model("no-such-model", "")]),
            Code::InvalidArgument,
            "no-such-model",
        ),
        (
            with(&|it| it.use_models = vec![model("openconfig-interfaces", "0.0.1")]),
            Code::InvalidArgument,
            "0.0.1",
        ),
    ];
    for (request, code, word) in rows {
        let request_text = format!("{request:?}");
        let status = client.get(request).await.expect_err(&request_text);
        check(&status, code, word, &request_text);
    }
}

#[tokio::test]
async fn sets_over_a_limit_are_refused_by_its_name() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(&mut client, ETH0).await;
    let before = holdfast_core::Datastore::revision(&core).number;
    let search = "/system/dns/config/search";
    let of = |path_of: &str, value: typed_value::Value| {
        let val = Some(TypedValue { value: Some(value) });
        let update = gnmi::Update { path: Some(path(path_of)), val, ..Default::default() };
        gnmi::SetRequest { update: vec![update], ..Default::default() }
    };
    let domain = |at| typed_value::Value::StringVal(format!("d{at}"));
    let domains = (0..=limits::LEAF_LIST_ENTRIES.figure).map(domain);
    let element: Vec<_> = domains.map(|value| TypedValue { value: Some(value) }).collect();
    let array = "[".to_owned() + &r#""a","#.repeat(limits::LEAF_LIST_ENTRIES.figure) + r#""a"]"#;
    let entries =
        r#"{"interface":["#.to_owned() + &"{},".repeat(limits::LIST_ENTRIES.figure) + "{}]}";
    let words = " d".repeat(limits::LEAF_LIST_ENTRIES.figure + 1);
    let lines = "interface a\n".repeat(limits::LIST_ENTRIES.figure + 1);
    let long = format!("/interfaces/interface[name={}]", "x".repeat(1 << 20));
    let rows = [
        (
            of(search, typed_value::Value::LeaflistVal(gnmi::ScalarArray { element })),
            &limits::LEAF_LIST_ENTRIES,
            search,
        ),
        (
            of(search, typed_value::Value::JsonIetfVal(array.into())),
            &limits::LEAF_LIST_ENTRIES,
            search,
        ),
        (
            of("cli:/", typed_value::Value::AsciiVal(format!("system search-domain{words}"))),
            &limits::LEAF_LIST_ENTRIES,
            "line 1: system search-domain",
        ),
        (
            of("/interfaces", typed_value::Value::JsonIetfVal(entries.into())),
            &limits::LIST_ENTRIES,
            "/interfaces/interface",
        ),
        (of("cli:/", typed_value::Value::AsciiVal(lines)), &limits::LIST_ENTRIES, "line "),
        (
            gnmi::SetRequest {
                delete: vec![gnmi::Path::default(); limits::SET_OPERATIONS.figure + 1],
                ..Default::default()
            },
            &limits::SET_OPERATIONS,
            "",
        ),
        (
            gnmi::SetRequest {
                prefix: Some(path(&long)),
                delete: vec![gnmi::Path::default(); limits::JOINED_PATHS.figure >> 20],
                ..Default::default()
            },
            &limits::JOINED_PATHS,
            "",
        ),
    ];
    for (request, limit, place) in rows {
        let status = client.set(request).await.expect_err(limit.name);
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        for part in [limit.name, &limit.figure.to_string(), place] {
            assert!(status.message().contains(part), "{part}: {}", status.message());
        }
    }
    assert_eq!(holdfast_core::Datastore::revision(&core).number, before);
}

// proves 1.15, 1.22, 1.23, 1.28, 1.42, 1.73, 1.74, 1.75, 1.78, 1.79, 1.80, 1.81
#[tokio::test]
async fn bad_sets_get_their_codes_and_change_nothing() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(&mut client, ETH0).await;
    let before = holdfast_core::Datastore::revision(&core).number;
    let with = |change: &dyn Fn(&mut gnmi::SetRequest)| {
        let mut request = set_request(r#"update /system/config/hostname "box""#);
        change(&mut request);
        request
    };
    let wire = |value: typed_value::Value| {
        let val = Some(TypedValue { value: Some(value) });
        gnmi::Update { path: Some(path(MTU)), val, ..Default::default() }
    };
    let route = "/network-instances/network-instance[name=DEFAULT]/protocols";
    let rows = [
        (set_request(&format!(r#"update {MTU} "abc""#)), Code::InvalidArgument, "mtu"),
        (set_request(&format!("update {MTU} 70000000")), Code::InvalidArgument, "mtu"),
        (set_request(&format!("update {MTU} {{")), Code::InvalidArgument, "mtu"),
        (
            set_request(
                r#"update /interfaces/interface[name=eth0]/config {"type":"openconfig-x:none"}"#,
            ),
            Code::InvalidArgument,
            "type",
        ),
        (
            set_request(
                r#"update /system/config/hostname "box"; update /interfaces/interface[name=eth0]/config/mtu "abc""#,
            ),
            Code::InvalidArgument,
            "mtu",
        ),
        (
            set_request(r#"update /interfaces/interface[name=eth0]/config/nonsense 1"#),
            Code::NotFound,
            "nonsense",
        ),
        (set_request(r#"replace /lldp {}"#), Code::NotFound, "lldp"),
        (
            set_request(r#"delete /interfaces/interface[name=eth0]/config/nonsense"#),
            Code::NotFound,
            "nonsense",
        ),
        (
            set_request(r#"update /interfaces/interface[name=eth0]/config {"nonsense":1}"#),
            Code::NotFound,
            "nonsense",
        ),
        (
            set_request(r#"update /interfaces/interface[name=*]/config/description "x""#),
            Code::InvalidArgument,
            "wildcard",
        ),
        (
            set_request(r#"replace /interfaces/*/config/description "x""#),
            Code::InvalidArgument,
            "wildcard",
        ),
        (
            set_request(r#"update /interfaces/interface/config/description "x""#),
            Code::InvalidArgument,
            "name",
        ),
        (
            set_request(r#"update /interfaces/interface[name=eth0]/state/oper-status "UP""#),
            Code::InvalidArgument,
            "state",
        ),
        (
            set_request(r#"delete /interfaces/interface[name=eth0]/state/oper-status"#),
            Code::InvalidArgument,
            "state",
        ),
        (
            set_request(&format!(
                r#"update {route}/protocol[identifier=STATIC]/config {{"name":"s"}}"#
            )),
            Code::InvalidArgument,
            "name",
        ),
        (
            set_request(r#"update /interfaces/interface[name=eth0] {"name":"eth1"}"#),
            Code::InvalidArgument,
            "eth1",
        ),
        (
            set_request(r#"replace /interfaces/interface[name=eth0] {}"#),
            Code::InvalidArgument,
            "eth0",
        ),
        (set_request(&format!("replace {MTU} null")), Code::InvalidArgument, "mtu"),
        (
            set_request(r#"update /interfaces/interface[nome=eth0]/config/description "x""#),
            Code::InvalidArgument,
            "nome",
        ),
        (
            set_request(r#"update bogus:/system/config/hostname "x""#),
            Code::InvalidArgument,
            "bogus",
        ),
        (set_request(r#"update cli:/ "hostname x""#), Code::Unimplemented, "ascii_val"),
        (set_request(r#"update cli:/system "hostname x""#), Code::Unimplemented, "ascii_val"),
        (set_request("delete cli:/"), Code::InvalidArgument, "CLI text"),
        (
            with(&|it| it.update.push(wire(typed_value::Value::AsciiVal("1500".into())))),
            Code::Unimplemented,
            "ASCII",
        ),
        (
            with(&|it| it.update.push(wire(typed_value::Value::ProtoBytes(Vec::new().into())))),
            Code::Unimplemented,
            "proto_bytes",
        ),
        (
            with(&|it| {
                it.update.push(gnmi::Update { path: Some(path(MTU)), ..Default::default() })
            }),
            Code::InvalidArgument,
            "without a value",
        ),
        (
            with(&|it| it.update.push(wire(typed_value::Value::StringVal("wide".into())))),
            Code::InvalidArgument,
            "mtu",
        ),
        (
            with(&|it| it.update[0].path.as_mut().unwrap().target = "box".into()),
            Code::InvalidArgument,
            "target",
        ),
        (
            with(&|it| it.update[0].path.as_mut().unwrap().elem[0].name = String::new()),
            Code::InvalidArgument,
            "no name",
        ),
        (
            with(&|it| {
                it.prefix = Some(path("openconfig:/"));
                it.update[0].path.as_mut().unwrap().origin = "openconfig".into();
            }),
            Code::InvalidArgument,
            "origin",
        ),
        (
            with(&|it| it.union_replace.push(update("/", "{}"))),
            Code::InvalidArgument,
            "union_replace",
        ),
    ];
    for (request, code, word) in rows {
        let request_text = format!("{request:?}");
        let status = client.set(request).await.expect_err(&request_text);
        check(&status, code, word, &request_text);
        assert_eq!(holdfast_core::Datastore::revision(&core).number, before, "{request_text}");
    }
}

// proves 1.95, 1.96, 1.97, 1.105, 1.107, 1.110, 1.111
#[tokio::test]
async fn bad_subscriptions_get_their_codes() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let stream = |it: &str| subscribe(list(Mode::Stream, &[it]));
    let with = |change: &dyn Fn(&mut gnmi::SubscriptionList)| {
        let mut list = list(Mode::Stream, &["change /interfaces"]);
        change(&mut list);
        subscribe(list)
    };
    let poll = gnmi::SubscribeRequest {
        request: Some(subscribe_request::Request::Poll(gnmi::Poll {})),
        ..Default::default()
    };
    let counter = "/interfaces/interface[name=eth0]/state/counters/in-octets";
    let rows = [
        (poll, Code::InvalidArgument, "SubscriptionList"),
        (gnmi::SubscribeRequest::default(), Code::InvalidArgument, "SubscriptionList"),
        (with(&|it| it.subscription.clear()), Code::InvalidArgument, "no subscription"),
        (stream("change /lldp"), Code::Unimplemented, "lldp"),
        (subscribe(list(Mode::Once, &["change /lldp"])), Code::Unimplemented, "lldp"),
        (subscribe(list(Mode::Poll, &["change /lldp"])), Code::Unimplemented, "lldp"),
        (stream("change /interfaces/interface[nome=eth0]"), Code::InvalidArgument, "nome"),
        (stream("change bogus:/interfaces"), Code::Unimplemented, "bogus"),
        (
            with(&|it| it.subscription[0].path.as_mut().unwrap().elem[0].name.clear()),
            Code::InvalidArgument,
            "no name",
        ),
        (
            with(&|it| it.subscription[0].path.as_mut().unwrap().target = "box".into()),
            Code::InvalidArgument,
            "target",
        ),
        (
            with(&|it| {
                it.subscription[0].mode = gnmi::SubscriptionMode::Sample as i32;
                it.subscription[0].sample_interval = 1;
            }),
            Code::InvalidArgument,
            "sample_interval",
        ),
        (
            with(&|it| it.subscription[0].heartbeat_interval = 1),
            Code::InvalidArgument,
            "heartbeat_interval",
        ),
        (stream("target /interfaces interval=10"), Code::InvalidArgument, "sample_interval"),
        (stream(&format!("change {counter}")), Code::InvalidArgument, "in-octets"),
        (
            stream("change /interfaces/interface/state/counters/in-octets"),
            Code::InvalidArgument,
            "in-octets",
        ),
        (with(&|it| it.encoding = gnmi::Encoding::Bytes as i32), Code::Unimplemented, "BYTES"),
        (with(&|it| it.mode = 9), Code::InvalidArgument, "9"),
        (with(&|it| it.subscription[0].mode = 9), Code::InvalidArgument, "9"),
        (with(&|it| it.qos = Some(gnmi::QosMarking { marking: 64 })), Code::InvalidArgument, "64"),
        (
            with(&|it| it.use_models = vec![model("no-such-model", "")]),
            Code::InvalidArgument,
            "no-such-model",
        ),
    ];
    for (request, code, word) in rows {
        let request_text = format!("{request:?}");
        let mut subscription = Subscription::open(&mut client, request).await;
        let status = subscription.responses.message().await.expect_err(&request_text);
        check(&status, code, word, &request_text);
    }
}

// proves 1.96
#[tokio::test]
async fn a_second_list_ends_its_own_stream_only() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let first = subscribe(list(Mode::Stream, &["change /system"]));
    let mut good = Subscription::open(&mut client, first.clone()).await;
    let mut bad = Subscription::open(&mut client, first.clone()).await;
    assert_eq!(bad.next().await, "sync");
    assert_eq!(good.next().await, "sync");
    bad.request_tx.send(first).await.unwrap();
    assert_eq!(bad.next().await, "InvalidArgument");
    core.state("/system/state/hostname", "box");
    assert_eq!(good.next().await, r#"/system/state/hostname="box""#);
    good.poll().await;
    assert_eq!(good.next().await, "InvalidArgument");
}

// proves 1.83
#[tokio::test]
async fn all_failing_operations_are_in_the_details() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let request = set_request(&format!(
        r#"delete /system/nonsense; update /system/config/hostname "box"; update {MTU} "abc""#
    ));
    let status = client.set(request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let details = rpc::Status::decode(status.details()).unwrap();
    assert_eq!((details.code, details.message.as_str()), (Code::NotFound as i32, status.message()));
    let all = rpc::BadRequest::decode(details.details[0].value.as_slice()).unwrap();
    let fields: Vec<_> = all.field_violations.iter().map(|it| it.field.as_str()).collect();
    assert_eq!(fields, ["delete[0]", "update[1]"]);
    assert!(all.field_violations[1].description.contains("mtu"));
}

#[tokio::test]
async fn failures_of_the_core_have_their_codes() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let rows = [
        (
            CommitError::Object {
                path: "/interfaces/interface[name=x/y]".into(),
                reason: "no such name".into(),
            },
            Code::InvalidArgument,
            "x/y",
        ),
        (
            CommitError::Failed {
                path: None,
                object: "route 10.0.0.0/8".into(),
                errno: Some(101),
                message: "Network is unreachable".into(),
                undone: true,
            },
            Code::Internal,
            "unreachable",
        ),
        (
            CommitError::Failed {
                path: None,
                object: "link br0".into(),
                errno: Some(1),
                message: "Operation not permitted: the agent needs CAP_NET_ADMIN".into(),
                undone: true,
            },
            Code::FailedPrecondition,
            "CAP_NET_ADMIN",
        ),
        (CommitError::Overloaded, Code::ResourceExhausted, "wait"),
        (CommitError::Stopped, Code::Unavailable, "stopping"),
    ];
    for (error, code, word) in rows {
        let error_text = format!("{error:?}");
        core.fail(error);
        let request = set_request(r#"update /system/config/hostname "box""#);
        let status = client.set(request).await.unwrap_err();
        check(&status, code, word, &error_text);
    }
}

#[tokio::test]
async fn calls_without_a_caller_and_writes_of_readers_are_refused() {
    let core = FakeDatastore::new();
    let mut stranger = super::harness::Client::new(channel(&core, None).await);
    let status = stranger.get(get_request(&["/"])).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let mut reader = client_as(&core, Role::ReadOnly).await;
    reader.get(get_request(&["/"])).await.unwrap();
    let status = reader.set(set_request("delete /system")).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

#[track_caller]
fn check(status: &Status, code: Code, word: &str, request: &str) {
    assert_eq!(status.code(), code, "{request}: {status:?}");
    assert!(status.message().contains(word), "{request}: {status:?}");
}

fn model(name: &str, version: &str) -> gnmi::ModelData {
    gnmi::ModelData { name: name.into(), version: version.into(), ..Default::default() }
}
