//! Refused Sets: each has its code, names the mistake, and changes nothing.

use holdfast_proto::gnmi::get_request::DataType;
use holdfast_proto::gnmi::{self, SetRequest, TypedValue, Update, typed_value};
use holdfast_proto::google::rpc;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::{GnmiClient, parse_path, update};
use holdfast_tests::netns::Netns;
use prost::Message;
use serde_json::json;
use tonic::Code;

use crate::documents::{STATIC_ROUTES, config_of, ipv4_of, port};

/// Checks that a value is refused with a code; returns the words.
pub(crate) async fn refused(
    client: &GnmiClient,
    path: &str,
    value: serde_json::Value,
    code: Code,
) -> String {
    let refusal = match client.update(path, value).await {
        Ok(_) => panic!("{path} is accepted"),
        Err(refusal) => refusal,
    };
    assert_eq!(refusal.code(), code, "{path}: {refusal}");
    refusal.message().to_owned()
}

// proves 1.74, 1.75, 1.78, 1.79, 1.80, 1.81
#[tokio::test]
async fn invalid_sets_have_their_error_codes() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    client.update(&config_of("eth0"), json!({"mtu": 1414})).await.unwrap();
    let before = client.read_as("/", DataType::Config).await.unwrap();

    let config = config_of("eth0");
    let protocols = "/network-instances/network-instance[name=DEFAULT]/protocols";
    let leaf = |name: &str| format!("{config}/{name}");
    let updates: Vec<(&str, Update, Code)> = vec![
        ("unknown node", update(&leaf("colour"), "red"), Code::NotFound),
        ("unknown node in the payload", update(&config, json!({"colour": "red"})), Code::NotFound),
        ("a number that is a word", update(&leaf("mtu"), "big"), Code::InvalidArgument),
        ("a number out of range", update(&leaf("mtu"), 70_000), Code::InvalidArgument),
        ("a boolean that is a number", update(&leaf("enabled"), 1), Code::InvalidArgument),
        ("null", update(&leaf("mtu"), json!(null)), Code::InvalidArgument),
        ("a container that is a leaf", update(&config, 7), Code::InvalidArgument),
        (
            "state",
            update("/interfaces/interface[name=eth0]/state/mtu", 1400),
            Code::InvalidArgument,
        ),
        (
            "a wildcard",
            update("/interfaces/interface[name=*]/config/mtu", 1400),
            Code::InvalidArgument,
        ),
        (
            "another key in the payload",
            update("/interfaces/interface[name=eth0]", json!({"name": "eth1"})),
            Code::InvalidArgument,
        ),
        (
            "one key of two",
            update(&format!("{protocols}/protocol[name=static]/config/enabled"), true),
            Code::InvalidArgument,
        ),
        (
            "an unknown key",
            update("/interfaces/interface[nom=eth0]/config/mtu", 1400),
            Code::InvalidArgument,
        ),
        (
            "no address",
            update(
                &format!(
                    "{}/addresses/address[ip=192.0.2.300]/config/prefix-length",
                    ipv4_of("eth0")
                ),
                24,
            ),
            Code::InvalidArgument,
        ),
        (
            "a tag on subinterface 0",
            update(
                "/interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]/vlan/config/vlan-id",
                7,
            ),
            Code::InvalidArgument,
        ),
        (
            "another instance",
            update("/network-instances/network-instance[name=red]/config/name", "red"),
            Code::InvalidArgument,
        ),
        (
            "a prefix with host bits that is not a prefix",
            update(&format!("{STATIC_ROUTES}/static[prefix=10.0.0.0]/config/prefix"), "10.0.0.0"),
            Code::InvalidArgument,
        ),
        (
            "no value",
            Update { path: Some(parse_path(&leaf("mtu"))), ..Default::default() },
            Code::InvalidArgument,
        ),
        (
            "malformed JSON",
            typed(&leaf("mtu"), typed_value::Value::JsonIetfVal(b"{".to_vec().into())),
            Code::InvalidArgument,
        ),
        (
            "a value of another type",
            typed(&leaf("enabled"), typed_value::Value::StringVal("yes".into())),
            Code::InvalidArgument,
        ),
        (
            "an encoding that we do not speak",
            typed(&leaf("mtu"), typed_value::Value::ProtoBytes(b"\x01".to_vec().into())),
            Code::Unimplemented,
        ),
        (
            "an unknown origin",
            update(&format!("cisco_native:{config}"), json!({"mtu": 1400})),
            Code::InvalidArgument,
        ),
    ];
    for (what, bad, code) in updates {
        let both = [
            ("update", SetRequest { update: vec![bad.clone()], ..Default::default() }),
            ("replace", SetRequest { replace: vec![bad], ..Default::default() }),
        ];
        for (operation, request) in both {
            match client.set(request).await {
                Ok(_) => panic!("{operation} with {what} is accepted"),
                Err(refusal) => {
                    assert_eq!(refusal.code(), code, "{operation} with {what}: {refusal}");
                    assert!(!refusal.message().is_empty(), "{operation} with {what}: no reason");
                }
            }
        }
    }

    let refusal =
        client.delete("/interfaces/interface[name=eth0]/config/colour").await.unwrap_err();
    assert_eq!(refusal.code(), Code::NotFound, "{refusal}");
    assert_eq!(client.read_as("/", DataType::Config).await.unwrap(), before);
    assert_eq!(net.link("eth0").mtu, 1400);
}

// proves 1.14
#[tokio::test]
async fn every_failing_operation_is_in_the_details() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let config = config_of("eth0");
    let request = SetRequest {
        delete: vec![parse_path(&format!("{config}/colour"))],
        update: vec![
            update(&format!("{config}/description"), "fine"),
            update(&format!("{config}/mtu"), "big"),
        ],
        ..Default::default()
    };
    let refusal = agent.gnmi().await.set(request).await.unwrap_err();

    assert_eq!(refusal.code(), Code::NotFound, "the code is that of the first: {refusal}");
    let status = rpc::Status::decode(refusal.details()).unwrap();
    assert_eq!((status.code, status.message.as_str()), (Code::NotFound as i32, refusal.message()));
    let bad = rpc::BadRequest::decode(status.details[0].value.as_slice()).unwrap();
    let fields: Vec<_> =
        bad.field_violations.iter().map(|violation| violation.field.as_str()).collect();
    assert_eq!(fields, ["delete[0]", "update[1]"]);
}

// proves 1.28
#[tokio::test]
async fn target_outside_the_prefix_is_refused() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let path = gnmi::Path { target: "box".into(), ..parse_path("/system/config/hostname") };
    let request = gnmi::GetRequest { path: vec![path], ..Default::default() };
    assert_eq!(client.get(request).await.unwrap_err().code(), Code::InvalidArgument);
}

fn typed(path: &str, value: typed_value::Value) -> Update {
    let val = Some(TypedValue { value: Some(value) });
    Update { path: Some(parse_path(path)), val, ..Default::default() }
}

#[tokio::test]
async fn one_address_on_two_links_is_refused_by_name() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let both =
        json!({"interface": [port("eth0", &["192.0.2.1/24"]), port("peer0", &["192.0.2.1/24"])]});
    let refused = client.update("/interfaces", both).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let words = refused.message();
    assert!(words.contains("/interfaces/interface[name=") && words.contains("eth0"), "{words}");
    assert!(words.contains("of 192.0.2.1 on peer0") && words.contains("only one"), "{words}");
    assert_eq!(net.addresses("eth0"), [""; 0]);
}
