//! Capabilities and Get.

use holdfast_base::{Role, now_ns};
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::get_request::DataType;
use holdfast_proto::gnmi::subscription_list::Mode;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use super::fake_datastore::FakeDatastore;
use super::harness::{
    Client, Subscription, channel, client, get_request, list, path, set, set_request, subscribe,
    text, value,
};

const COUNTER: &str = "/interfaces/interface[name=eth0]/state/counters/in-octets";

/// A box with eth0 and eth1 configured, eth0 up with a counter.
async fn box_with_ports() -> (FakeDatastore, Client) {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(
        &mut client,
        r#"update /interfaces {"interface":[{"name":"eth0","config":{"name":"eth0","mtu":1514}},{"name":"eth1","config":{"name":"eth1","enabled":false}}]}"#,
    )
    .await;
    core.state("/interfaces/interface[name=eth0]/state/oper-status", "UP");
    core.state("/interfaces/interface[name=eth0]/state/mtu", "1514");
    core.polled_leaf(COUNTER, "42");
    core.polled_leaf("/interfaces/interface[name=eth7]/state/counters/in-octets", "7");
    (core, client)
}

// proves 1.45, 1.46, 1.47
#[tokio::test]
async fn capabilities_tell_version_models_and_encodings() {
    let mut client = client(&FakeDatastore::new()).await;
    let answer =
        client.capabilities(gnmi::CapabilityRequest::default()).await.unwrap().into_inner();
    assert_eq!(answer.g_nmi_version, "0.10.0");
    let encodings: Vec<_> = answer.supported_encodings().collect();
    let [json, ietf] = [gnmi::Encoding::Json, gnmi::Encoding::JsonIetf];
    assert_eq!(encodings, [json, ietf, gnmi::Encoding::Proto, gnmi::Encoding::Ascii]);
    let model = |name| answer.supported_models.iter().find(|it| it.name == name).unwrap();
    for it in &answer.supported_models {
        let times = answer.supported_models.iter().filter(|other| *other == it).count();
        assert_eq!(times, 1, "{it:?}");
    }
    assert_eq!(model("openconfig-interfaces").organization, "OpenConfig working group");
    let version: Vec<_> = model("openconfig-interfaces").version.split('.').collect();
    assert_eq!(version.len(), 3, "a semantic version: {version:?}");
    assert!(version.iter().all(|part| part.parse::<u32>().is_ok()));
    assert!(!model("holdfast").version.is_empty());
}

// proves 1.20, 1.29, 1.33, 1.38, 1.57
#[tokio::test]
async fn a_path_reads_what_it_names() {
    let (_core, mut client) = box_with_ports().await;
    let rows = [
        ("/interfaces/interface[name=eth0]/config/mtu", "1514"),
        ("openconfig:/interfaces/interface[name=eth0]/config/mtu", "1514"),
        ("/openconfig-interfaces:interfaces/interface[name=eth0]/config/mtu", "1514"),
        ("/interfaces/interface[name=eth0]/config/name", r#""eth0""#),
        // not configured: the default of the model
        ("/interfaces/interface[name=eth0]/config/enabled", "true"),
        ("/interfaces/interface[name=eth0]/state/oper-status", r#""UP""#),
        (COUNTER, r#""42""#),
        (
            "/interfaces/interface[name=eth0]/state",
            r#"{"openconfig-interfaces:counters":{"in-octets":"42"},"openconfig-interfaces:mtu":1514,"openconfig-interfaces:oper-status":"UP"}"#,
        ),
    ];
    for (path, want) in rows {
        assert_eq!(one(&mut client, path).await, want, "{path}");
    }
}

// proves 1.36, 1.37, 1.39, 1.43
#[tokio::test]
async fn each_encoding_has_its_form() {
    let (_core, mut client) = box_with_ports().await;
    let rows = [
        ("/interfaces/interface[name=eth0]/config/mtu", 0, "Json 1514"),
        (COUNTER, 0, "Json 42"),
        (COUNTER, gnmi::Encoding::JsonIetf as i32, r#"JsonIetf "42""#),
        (COUNTER, gnmi::Encoding::Proto as i32, "uint 42"),
        ("/interfaces/interface[name=eth0]/config/mtu", gnmi::Encoding::Proto as i32, "uint 1514"),
        (
            "/interfaces/interface[name=eth0]/config/name",
            gnmi::Encoding::Proto as i32,
            "string eth0",
        ),
        (
            "/interfaces/interface[name=eth0]/config/enabled",
            gnmi::Encoding::Proto as i32,
            "bool true",
        ),
        (
            "/interfaces/interface[name=eth0]/state/oper-status",
            gnmi::Encoding::Proto as i32,
            "string UP",
        ),
        ("/interfaces/interface[name=eth0]/state/counters", 0, r#"Json {"in-octets":42}"#),
        (
            "/interfaces/interface[name=eth0]/state/counters",
            gnmi::Encoding::JsonIetf as i32,
            r#"JsonIetf {"openconfig-interfaces:in-octets":"42"}"#,
        ),
    ];
    for (at, encoding, want) in rows {
        let request = gnmi::GetRequest { encoding, ..get_request(&[at]) };
        let answer = client.get(request).await.unwrap().into_inner();
        let val = answer.notification[0].update[0].val.as_ref();
        use gnmi::typed_value;
        let form = match val.and_then(|val| val.value.as_ref()) {
            Some(typed_value::Value::JsonVal(_)) => "Json ",
            Some(typed_value::Value::JsonIetfVal(_)) => "JsonIetf ",
            _ => "",
        };
        assert_eq!(format!("{form}{}", value(val)), want, "{at}");
    }
}

// proves 1.52, 1.53
#[tokio::test]
async fn types_split_configuration_and_state() {
    let (_core, mut client) = box_with_ports().await;
    let rows = [
        (
            DataType::Config,
            "/interfaces/interface[name=eth0]/config/enabled=bool true /interfaces/interface[name=eth0]/config/mtu=uint 1514 /interfaces/interface[name=eth0]/config/name=string eth0 /interfaces/interface[name=eth0]/name=string eth0",
        ),
        (
            DataType::State,
            "/interfaces/interface[name=eth0]/state/counters/in-octets=uint 42 /interfaces/interface[name=eth0]/state/mtu=uint 1514 /interfaces/interface[name=eth0]/state/oper-status=string UP",
        ),
        (
            DataType::Operational,
            "/interfaces/interface[name=eth0]/state/counters/in-octets=uint 42 /interfaces/interface[name=eth0]/state/oper-status=string UP",
        ),
        (
            DataType::All,
            "/interfaces/interface[name=eth0]/config/enabled=bool true /interfaces/interface[name=eth0]/config/mtu=uint 1514 /interfaces/interface[name=eth0]/config/name=string eth0 /interfaces/interface[name=eth0]/name=string eth0 /interfaces/interface[name=eth0]/state/counters/in-octets=uint 42 /interfaces/interface[name=eth0]/state/mtu=uint 1514 /interfaces/interface[name=eth0]/state/oper-status=string UP",
        ),
    ];
    for (kind, want) in rows {
        let request = gnmi::GetRequest {
            r#type: kind as i32,
            encoding: gnmi::Encoding::Proto as i32,
            ..get_request(&["/interfaces/interface[name=eth0]"])
        };
        let answer = client.get(request).await.unwrap().into_inner();
        let mut leaves: Vec<_> = answer.notification[0]
            .update
            .iter()
            .map(|it| format!("{}={}", text(it.path.as_ref()), value(it.val.as_ref())))
            .filter(|it| !it.contains("/config/type") && !it.contains("loopback"))
            .collect();
        leaves.sort();
        assert_eq!(leaves.join(" "), want, "{kind:?}");
    }
    let request = gnmi::GetRequest {
        r#type: DataType::State as i32,
        ..get_request(&["/interfaces/interface"])
    };
    let answer = client.get(request).await.unwrap().into_inner();
    assert_eq!(answer.notification[0].update.len(), 1, "eth1 has no state, and is not there");
}

// proves 1.31, 1.32, 1.58
#[tokio::test]
async fn wildcards_give_one_update_for_each_instance() {
    let (_core, mut client) = box_with_ports().await;
    let rows = [
        (
            "/interfaces/interface[name=*]/config/name",
            r#"/interfaces/interface[name=eth0]/config/name="eth0" /interfaces/interface[name=eth1]/config/name="eth1""#,
        ),
        (
            "/interfaces/interface/config/name",
            r#"/interfaces/interface[name=eth0]/config/name="eth0" /interfaces/interface[name=eth1]/config/name="eth1""#,
        ),
        ("/interfaces/*/config/mtu", "/interfaces/interface[name=eth0]/config/mtu=1514"),
        (
            "/interfaces/.../oper-status",
            r#"/interfaces/interface[name=eth0]/state/oper-status="UP""#,
        ),
        ("/.../in-octets", r#"/interfaces/interface[name=eth0]/state/counters/in-octets="42""#),
        ("/interfaces/interface[name=*]/config/description", ""),
    ];
    for (path, want) in rows {
        let answer = client.get(get_request(&[path])).await.unwrap().into_inner();
        assert_eq!(answer.notification.len(), 1, "{path}");
        assert_eq!(super::harness::notification_text(&answer.notification[0]), want, "{path}");
    }
}

// proves 1.56, 1.58
#[tokio::test]
async fn a_list_without_keys_may_find_nothing_and_an_entry_may_not() {
    let (_core, mut client) = box_with_ports().await;
    let list = "/interfaces/interface[name=eth0]/subinterfaces/subinterface";
    for encoding in [gnmi::Encoding::JsonIetf, gnmi::Encoding::Proto] {
        let request =
            |path: &str| gnmi::GetRequest { encoding: encoding as i32, ..get_request(&[path]) };
        for path in [list.to_owned(), format!("{list}[index=*]")] {
            let answer = client.get(request(&path)).await.unwrap().into_inner();
            let updates: Vec<_> = answer.notification.iter().map(|it| it.update.len()).collect();
            assert_eq!(updates, [0], "{path} {encoding:?}");
        }
        let refusal = client.get(request(&format!("{list}[index=7]"))).await.unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::NotFound, "{encoding:?}");
    }
}

// proves 1.21, 1.27, 1.50, 1.51
#[tokio::test]
async fn an_answer_has_a_notification_for_each_path_under_the_prefix_of_the_request() {
    let (_core, mut client) = box_with_ports().await;
    let start = now_ns();
    for target in ["", "box"] {
        let prefix =
            gnmi::Path { target: target.to_owned(), ..path("/interfaces/interface[name=eth0]") };
        let request = gnmi::GetRequest {
            prefix: Some(prefix),
            ..get_request(&["/config/mtu", "/config/name"])
        };
        let answer = client.get(request).await.unwrap().into_inner();
        assert_eq!(answer.notification.len(), 2);
        for (notification, want) in answer.notification.iter().zip(["/config/mtu", "/config/name"])
        {
            let prefix = notification.prefix.as_ref().unwrap();
            assert_eq!(text(Some(prefix)), "/interfaces/interface[name=eth0]");
            assert_eq!((prefix.origin.as_str(), prefix.target.as_str()), ("openconfig", target));
            assert_eq!(notification.update.len(), 1);
            assert_eq!(text(notification.update[0].path.as_ref()), want);
            assert!((start..=now_ns()).contains(&notification.timestamp.cast_unsigned()));
        }
    }
    let request = gnmi::GetRequest {
        prefix: Some(path("/interfaces/interface[name=*]/config")),
        ..get_request(&["/mtu"])
    };
    let answer = client.get(request).await.unwrap().into_inner();
    assert_eq!(text(answer.notification[0].prefix.as_ref()), "/");
    assert_eq!(
        super::harness::notification_text(&answer.notification[0]),
        "/interfaces/interface[name=eth0]/config/mtu=1514"
    );
}

// proves 1.35
#[tokio::test]
async fn old_elements_are_read_and_not_written() {
    let (_core, mut client) = box_with_ports().await;
    let old = ["interfaces", "interface[name=eth0]", "config", "mtu"].map(String::from).to_vec();
    #[expect(deprecated, reason = "that is what it is about")]
    let path = gnmi::Path { element: old, ..Default::default() };
    let request = gnmi::GetRequest { path: vec![path], ..get_request(&[]) };
    let answer = client.get(request).await.unwrap().into_inner();
    let update = &answer.notification[0].update[0];
    assert_eq!(value(update.val.as_ref()), "1514");
    let path = update.path.as_ref().unwrap();
    assert_eq!(text(Some(path)), "/interfaces/interface[name=eth0]/config/mtu");
    #[expect(deprecated, reason = "that is what it is about")]
    let written = &path.element;
    assert!(written.is_empty());
}

/// A wire path with both forms, which need not agree.
fn in_both_forms(current: &str, old: &[&str]) -> gnmi::Path {
    #[expect(deprecated, reason = "that is what it is about")]
    gnmi::Path { element: old.iter().map(ToString::to_string).collect(), ..path(current) }
}

/// The client library of OpenConfig fills both forms in every path. `elem` counts, whatever `element` holds.
// proves 1.35
#[tokio::test]
async fn elem_counts_beside_old_elements() {
    let (_core, mut client) = box_with_ports().await;
    let config = "/interfaces/interface[name=eth0]/config";
    let same = ["interfaces", "interface[name=eth0]", "config"];
    for old in [&same[..], &["interfaces", "interface[name=eth1]"], &["interface["], &[""; 100]] {
        let request =
            gnmi::GetRequest { prefix: Some(in_both_forms(config, old)), ..get_request(&["/mtu"]) };
        let answer = client.get(request).await.unwrap().into_inner();
        assert_eq!(value(answer.notification[0].update[0].val.as_ref()), "1514", "{old:?}");
        let request =
            gnmi::GetRequest { path: vec![in_both_forms(config, old)], ..get_request(&[]) };
        let answer = client.get(request).await.unwrap().into_inner();
        assert!(value(answer.notification[0].update[0].val.as_ref()).contains("1514"), "{old:?}");

        let mut subscriptions = list(Mode::Once, &["change /"]);
        subscriptions.prefix = Some(in_both_forms(config, old));
        subscriptions.subscription[0].path = Some(in_both_forms("/mtu", old));
        let mut stream = Subscription::open(&mut client, subscribe(subscriptions)).await;
        assert!(stream.next().await.contains("config/mtu=1514"), "{old:?}");

        let mut request = set_request("update /description \"x\"");
        request.prefix = Some(in_both_forms(config, old));
        request.update[0].path = Some(in_both_forms("/description", old));
        let answer = client.set(request).await.unwrap().into_inner();
        let answered = [answer.prefix.as_ref().unwrap(), answer.response[0].path.as_ref().unwrap()];
        assert_eq!(answered.map(|path| text(Some(path))), [config, "/description"], "{old:?}");
        #[expect(deprecated, reason = "that is what it is about")]
        let is_written = answered.iter().any(|path| !path.element.is_empty());
        assert!(!is_written, "{old:?}");
    }
    #[expect(deprecated, reason = "that is what it is about")]
    let prefix = gnmi::Path { element: same.map(String::from).to_vec(), ..Default::default() };
    let request = gnmi::GetRequest { prefix: Some(prefix), ..get_request(&["/mtu"]) };
    let answer = client.get(request).await.unwrap().into_inner();
    assert_eq!(text(answer.notification[0].prefix.as_ref()), config);
}

/// The name of a module that is served stands for the origin that serves it; answers have the name of the origin.
#[tokio::test]
async fn a_module_stands_for_its_origin() {
    let (_core, mut client) = box_with_ports().await;
    let mtu = "/interfaces/interface[name=eth0]/config/mtu";
    let origin = "openconfig";
    let octets = "1514";
    for module in ["openconfig-interfaces", "openconfig-system"] {
        let at = format!("{module}:{mtu}");
        let answer = client.get(get_request(&[&at])).await.unwrap().into_inner();
        let notification = &answer.notification[0];
        assert_eq!(notification.prefix.as_ref().unwrap().origin, origin);
        assert_eq!(value(notification.update[0].val.as_ref()), octets);
        let request = gnmi::GetRequest {
            prefix: Some(gnmi::Path { origin: module.into(), ..Default::default() }),
            ..get_request(&[at.split_once(':').unwrap().1])
        };
        client.get(request).await.unwrap();

        let subscription = subscribe(list(Mode::Once, &[&format!("change {at}")]));
        let mut stream = Subscription::open(&mut client, subscription).await;
        assert!(stream.next().await.contains(octets));
        let answer = set(&mut client, &format!("update {at} {octets}")).await;
        assert_eq!(answer.prefix.unwrap().origin, origin);
    }
    // The native tree of this box is empty: the path is known, and there is no such data.
    for origin in ["holdfast", "holdfast_native"] {
        let at = format!("{origin}:/interfaces/interface[name=eth0]/mtu");
        let status = client.get(get_request(&[&at])).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::NotFound, "{status:?}");
    }
    // Names of one origin are one origin.
    let request = gnmi::SetRequest {
        prefix: Some(path("/interfaces/interface[name=eth0]/config")),
        ..set_request(
            "update openconfig-interfaces:/mtu 1514; update openconfig:/description \"x\"",
        )
    };
    client.set(request).await.unwrap();
    for unknown in ["openconfig-bgp", "interfaces", "openconfig-interfaces:", "Openconfig"] {
        let request = gnmi::Path { origin: unknown.into(), ..path(mtu) };
        let request = gnmi::GetRequest { path: vec![request], ..get_request(&[]) };
        let status = client.get(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unimplemented, "{status:?}");
    }
}

// proves 1.26
#[tokio::test]
async fn augmented_nodes_are_in_the_origin_of_the_tree() {
    let (_core, mut client) = box_with_ports().await;
    let at = "/interfaces/interface[name=eth0]/openconfig-if-ethernet:ethernet/config/mac-address";
    set(&mut client, &format!(r#"update openconfig:{at} "02:00:00:00:00:01""#)).await;
    assert_eq!(one(&mut client, at).await, r#""02:00:00:00:00:01""#);
    let answer = client.get(get_request(&[at])).await.unwrap().into_inner();
    assert_eq!(answer.notification[0].prefix.as_ref().unwrap().origin, "openconfig");
    // The name of the augmenting module is not an origin of its own: it means that of the tree.
    let answer = client.get(get_request(&[&format!("openconfig-if-ethernet:{at}")])).await;
    let answer = answer.unwrap().into_inner();
    assert_eq!(answer.notification[0].prefix.as_ref().unwrap().origin, "openconfig");
}

#[tokio::test]
async fn use_models_hides_the_leaves_of_others() {
    let (_core, mut client) = box_with_ports().await;
    set(
        &mut client,
        r#"update /interfaces/interface[name=eth0]/ethernet/config {"mac-address":"02:00:00:00:00:01"}"#,
    )
    .await;
    let at = "/interfaces/interface[name=eth0]";
    assert!(one(&mut client, at).await.contains("02:00:00:00:00:01"));
    let model = gnmi::ModelData { name: "openconfig-interfaces".into(), ..Default::default() };
    let request = gnmi::GetRequest { use_models: vec![model], ..get_request(&[at]) };
    let answer = client.get(request).await.unwrap().into_inner();
    let document = value(answer.notification[0].update[0].val.as_ref());
    assert!(document.contains("mtu") && !document.contains("02:00:00:00:00:01"), "{document}");
}

#[tokio::test]
async fn an_unconfigured_port_has_state_alone() {
    let (core, mut client) = box_with_ports().await;
    core.state("/interfaces/interface[name=eth7]/state/oper-status", "DOWN");
    for encoding in [gnmi::Encoding::JsonIetf, gnmi::Encoding::Proto] {
        for (kind, at, found) in [
            (DataType::Config, "/interfaces", false),
            (DataType::Config, "/interfaces/interface[name=*]/name", false),
            (DataType::State, "/interfaces", true),
            (DataType::All, "/interfaces", true),
        ] {
            let request = gnmi::GetRequest {
                r#type: kind as i32,
                encoding: encoding as i32,
                ..get_request(&[at])
            };
            let answer = client.get(request).await.unwrap().into_inner();
            let text = super::harness::notification_text(&answer.notification[0]);
            assert_eq!(text.contains("eth7"), found, "{kind:?} {at}: {text}");
            assert!(text.contains("eth0"), "{kind:?} {at}: {text}");
        }
    }
}

#[tokio::test]
async fn the_native_origin_is_served_by_the_same_code() {
    let (_core, mut client) = box_with_ports().await;
    set(&mut client, r#"update holdfast_native:/interfaces/interface[name=eth1] {"mtu":1400}"#)
        .await;
    let at = "holdfast_native:/interfaces/interface[name=eth1]/mtu";
    assert_eq!(one(&mut client, at).await, "1400");
    let answer = client.get(get_request(&[at])).await.unwrap().into_inner();
    assert_eq!(answer.notification[0].prefix.as_ref().unwrap().origin, "holdfast_native");
}

#[tokio::test]
async fn only_paths_that_cover_such_leaves_are_read_from_the_box() {
    let (core, mut client) = box_with_ports().await;
    one(&mut client, "/interfaces/interface[name=eth0]/config").await;
    one(&mut client, "/interfaces/interface[name=eth0]/state/oper-status").await;
    assert_eq!(core.reads(), 0);
    one(&mut client, "/interfaces").await;
    assert_eq!(core.reads(), 1);
    let request =
        gnmi::GetRequest { r#type: DataType::Config as i32, ..get_request(&["/interfaces"]) };
    client.get(request).await.unwrap();
    assert_eq!(core.reads(), 1);
}

#[tokio::test]
async fn only_the_sources_of_the_wanted_leaves_are_asked() {
    let (core, mut client) = box_with_ports().await;
    for (path, sources) in [
        (COUNTER, 1),
        ("/interfaces", 4), // counters and rates of interfaces, speeds of bonds, and counters of VLANs
        ("/system/memory", 1),
        ("/system/state/current-datetime", 1),
        ("/system/memory/state/free", 1),
        ("holdfast_native:/system/state/up-time", 1),
    ] {
        // The fake kernel has none of most of these leaves.
        let _answer = client.get(get_request(&[path])).await;
        assert_eq!(core.take_asked(), sources, "{path}");
    }
    // The fake kernel shows no clock, which is known once its source was asked.
    let both = client.get(get_request(&[COUNTER, "/system/state/current-datetime"])).await;
    assert_eq!(both.unwrap_err().code(), tonic::Code::NotFound);
    assert_eq!(core.take_asked(), 2, "one for each path");
    let counter = format!("target {COUNTER}");
    let once = subscribe(list(Mode::Once, &[&counter]));
    let mut once = Subscription::open(&mut client, once).await;
    once.until_sync().await;
    assert_eq!(core.take_asked(), 1, "a subscription");
    client.get(get_request(&["/"])).await.unwrap();
    assert!(core.take_asked() > 4, "the root has leaves of all");
}

// proves 1.10
#[tokio::test]
async fn health_and_reflection_are_served() {
    let core = FakeDatastore::new();
    let channel = channel(&core, Some(Role::ReadOnly)).await;
    let request = tonic_health::pb::HealthCheckRequest { service: "gnmi.gNMI".into() };
    let health = HealthClient::new(channel.clone()).check(request).await.unwrap().into_inner();
    assert_eq!(health.status(), tonic_health::pb::health_check_response::ServingStatus::Serving);
    let request = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut answers = ServerReflectionClient::new(channel)
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response.unwrap();
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    let mut names: Vec<_> = list.service.iter().map(|it| it.name.as_str()).collect();
    names.sort_unstable();
    assert!(names.contains(&"gnmi.gNMI") && names.contains(&"grpc.health.v1.Health"), "{names:?}");
}

/// The value of the only update for a path.
async fn one(client: &mut Client, path: &str) -> String {
    let answer = client.get(get_request(&[path])).await.unwrap().into_inner();
    let [notification] = answer.notification.as_slice() else { panic!("{answer:?}") };
    let [update] = notification.update.as_slice() else { panic!("{answer:?}") };
    value(update.val.as_ref())
}
