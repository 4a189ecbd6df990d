//! The native origin: operations, encodings and reads like those of OpenConfig, over the whole native schema.

use std::time::Duration;

use holdfast_config::show;
use holdfast_core::Datastore;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::{self, Encoding, TypedValue, typed_value};
use tonic::Code;

use super::fake_datastore::FakeDatastore;
use super::harness::{
    Client, Subscription, client, get_request, list, path, set, set_request, subscribe, value,
};

const ETH0: &str = "holdfast_native:/interfaces/interface[name=eth0]";

/// Native configuration of clients as CLI text, one line for each leaf.
fn running_config(core: &FakeDatastore) -> String {
    show::show(&core.configuration(), "show running-config").unwrap()
}

// proves 2.55, 1.63, 1.64, 1.70, 1.71, 1.76, 1.77, 1.84
#[tokio::test]
async fn operations_mean_what_they_mean_in_openconfig() {
    let whole = "interface eth0\n  description a\n  mtu 1400\n";
    let rows = [
        (format!("update {ETH0}/mtu 1300"), "interface eth0\n  description a\n  mtu 1300\n"),
        (
            format!(r#"update {ETH0} {{"enabled":false}}"#),
            "interface eth0\n  enabled false\n  description a\n  mtu 1400\n",
        ),
        (format!(r#"replace {ETH0} {{"enabled":false}}"#), "interface eth0\n  enabled false\n"),
        (
            format!("replace {ETH0}/mtu 1300; update {ETH0}/mtu 1200"),
            "interface eth0\n  description a\n  mtu 1200\n",
        ),
        (
            format!("delete {ETH0}/mtu; update {ETH0}/mtu 1200"),
            "interface eth0\n  description a\n  mtu 1200\n",
        ),
        (format!("delete {ETH0}/mtu; delete {ETH0}/mtu"), "interface eth0\n  description a\n"),
        (
            "delete holdfast_native:/interfaces/interface[name=*]/description".into(),
            "interface eth0\n  mtu 1400\n",
        ),
        (format!("delete {ETH0}"), ""),
        ("delete holdfast_native:/interfaces".into(), ""),
        ("delete holdfast_native:/".into(), ""),
        ("delete holdfast_native:/interfaces/interface[name=eth9]".into(), whole),
        (
            r#"replace holdfast_native:/ {"holdfast:system":{"hostname":"b"}}"#.into(),
            "system\n  hostname b\n",
        ),
        (
            r#"replace holdfast_native:/interfaces {"interface":[{"name":"eth1","mtu":1300}]}"#
                .into(),
            "interface eth1\n  mtu 1300\n",
        ),
        ("replace / {}".into(), whole),
    ];
    for (operations, want) in rows {
        let core = FakeDatastore::new();
        let mut client = client(&core).await;
        set(&mut client, &format!(r#"update {ETH0} {{"description":"a","mtu":1400}}"#)).await;
        set(&mut client, &operations).await;
        assert_eq!(running_config(&core), want, "{operations}");
    }
}

// proves 2.55, 1.73, 1.74, 1.75, 1.78, 1.79, 1.80, 1.81
#[tokio::test]
async fn refusals_have_the_codes_of_openconfig() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let rows = [
        (format!("update {ETH0}/nonsense 1"), Code::NotFound, "nonsense"),
        (format!("delete {ETH0}/nonsense"), Code::NotFound, "nonsense"),
        (format!(r#"update {ETH0} {{"nonsense":1}}"#), Code::NotFound, "nonsense"),
        (format!("update {ETH0}/mtu 67"), Code::InvalidArgument, "68..65535"),
        (format!(r#"update {ETH0}/mtu "x""#), Code::InvalidArgument, "mtu"),
        (format!(r#"update {ETH0}/type "router""#), Code::InvalidArgument, "type"),
        (format!("update {ETH0}/state/mtu 1400"), Code::InvalidArgument, "state"),
        (format!("delete {ETH0}/state/mtu"), Code::InvalidArgument, "state"),
        (format!("replace {ETH0} {{}}"), Code::InvalidArgument, "delete"),
        (format!(r#"update {ETH0} {{"name":"eth1"}}"#), Code::InvalidArgument, "eth1"),
        (
            format!(r#"update {ETH0}/ipv4/address[ip=10.0.0.1] {{"ip":"10.0.0.1"}}"#),
            Code::InvalidArgument,
            "prefix-length",
        ),
        (
            "update holdfast_native:/interfaces/interface/mtu 1400".into(),
            Code::InvalidArgument,
            "name",
        ),
        (
            "update holdfast_native:/interfaces/interface[name=*]/mtu 1400".into(),
            Code::InvalidArgument,
            "wildcard",
        ),
        (format!(r#"update {ETH0}/type "veth""#), Code::InvalidArgument, "veth/peer"),
        (format!(r#"update {ETH0}/type "vxlan""#), Code::InvalidArgument, "vxlan/vni"),
    ];
    for (operations, code, word) in rows {
        let status = client.set(set_request(&operations)).await.expect_err(&operations);
        assert_eq!(status.code(), code, "{operations}: {status}");
        assert!(status.message().contains(word), "{operations}: {status}");
        assert_eq!(running_config(&core), "", "{operations}");
    }
    let request = get_request(&["holdfast_native:/interfaces/bogus"]);
    assert_eq!(client.get(request).await.unwrap_err().code(), Code::Unimplemented);
    let request = get_request(&[&format!("{ETH0}/mtu")]);
    assert_eq!(client.get(request).await.unwrap_err().code(), Code::NotFound);
}

async fn got(client: &mut Client, at: &str, encoding: Encoding) -> Vec<String> {
    let request = gnmi::GetRequest { encoding: encoding as i32, ..get_request(&[at]) };
    let answer = client.get(request).await.unwrap().into_inner().notification;
    answer[0].update.iter().map(|it| value(it.val.as_ref())).collect()
}

// proves 2.55, 1.36, 1.37, 1.38, 1.39
#[tokio::test]
async fn every_encoding_is_read_and_written() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let at = |leaf: &str| format!("{ETH0}/{leaf}");
    let scalars = [
        ("mtu", typed_value::Value::UintVal(1400), "uint 1400"),
        ("enabled", typed_value::Value::BoolVal(false), "bool false"),
        ("type", typed_value::Value::StringVal("veth".into()), "string veth"),
        ("veth/peer", typed_value::Value::StringVal("vb".into()), "string vb"),
        ("ipv4/address[ip=10.0.0.1]/prefix-length", typed_value::Value::UintVal(24), "uint 24"),
    ];
    let wire = |(leaf, value, _): &(&str, typed_value::Value, &str)| gnmi::Update {
        path: Some(path(&at(leaf))),
        val: Some(TypedValue { value: Some(value.clone()) }),
        ..Default::default()
    };
    let update = scalars.iter().map(wire).collect();
    client.set(gnmi::SetRequest { update, ..Default::default() }).await.unwrap();
    for (leaf, _, want) in &scalars {
        assert_eq!(got(&mut client, &at(leaf), Encoding::Proto).await, [*want], "{leaf}");
    }
    assert_eq!(got(&mut client, &at("mtu"), Encoding::Json).await, ["1400"]);
    let whole = got(&mut client, "holdfast_native:/", Encoding::JsonIetf).await;
    assert!(whole[0].contains("\"holdfast:interfaces\""), "{whole:?}");
    let plain = got(&mut client, "holdfast_native:/", Encoding::Json).await;
    assert!(plain[0].contains("\"interfaces\"") && !plain[0].contains("holdfast:"), "{plain:?}");

    let before = running_config(&core);
    for (document, flavour) in [(&whole[0], true), (&plain[0], false)] {
        let text = document.as_bytes().to_vec().into();
        let value = if flavour {
            typed_value::Value::JsonIetfVal(text)
        } else {
            typed_value::Value::JsonVal(text)
        };
        let val = Some(TypedValue { value: Some(value) });
        let replace =
            gnmi::Update { path: Some(path("holdfast_native:/")), val, ..Default::default() };
        client
            .set(gnmi::SetRequest { replace: vec![replace], ..Default::default() })
            .await
            .unwrap();
        assert_eq!(running_config(&core), before, "what is read can be sent back");
    }
}

// proves 2.55
#[tokio::test]
async fn subscriptions_follow_native_leaves() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    set(&mut client, &format!("update {ETH0}/mtu 1400")).await;
    let at = format!("{ETH0}/mtu");
    for mode in [Mode::Once, Mode::Poll] {
        let request = subscribe(list(mode, &[&format!("target {at}")]));
        let mut subscription = Subscription::open(&mut client, request).await;
        let updates = subscription.until_sync().await;
        assert!(updates[0].ends_with("mtu=1400"), "{mode:?}: {updates:?}");
    }
    let request = subscribe(list(Mode::Stream, &[&format!("change {at}")]));
    let mut stream = Subscription::open(&mut client, request).await;
    assert!(stream.until_sync().await[0].ends_with("mtu=1400"));
    set(&mut client, &format!("update {at} 1300")).await;
    assert!(stream.next().await.ends_with("mtu=1300"));
    set(&mut client, &format!("delete {at}")).await;
    assert!(stream.next().await.starts_with('-'));
    assert!(stream.within(Duration::from_millis(10)).await.is_empty());
}

/// Each leaf that can be written has a path that Set and Get know.
// proves 2.55
#[tokio::test]
async fn every_native_leaf_can_be_read() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let models = core.models();
    let schema = &models.native;
    let leaves = schema.nodes().iter().filter(|node| node.leaf.is_some());
    for leaf in leaves {
        let mut names = Vec::new();
        let mut at = Some(leaf.id);
        while let Some(id) = at {
            names.push(schema.node(id).name.to_string());
            at = schema.node(id).parent;
        }
        names.retain(|name| !name.is_empty());
        names.reverse();
        let at = format!("holdfast_native:/{}", names.join("/"));
        let delete = client.set(set_request(&format!("delete {at}"))).await;
        let refused = delete.err().map(|status| status.code());
        let origins = if leaf.config && !schema.is_list_key(leaf.id) {
            None
        } else {
            Some(Code::InvalidArgument)
        };
        assert_eq!(refused, origins, "{at}");
        let answer = client.get(get_request(&[&at])).await;
        assert!(answer.is_ok() || answer.unwrap_err().code() == Code::NotFound, "{at}");
    }
}
