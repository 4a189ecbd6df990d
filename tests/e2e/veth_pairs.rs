//! Veth pairs whose ends are configured one by one: a change of one end has to fit the other.

use holdfast_proto::gnmi::SetRequest;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::gnmi::parse_path;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};
use tonic::Code;

use crate::documents::port;
use crate::union::{cli, interfaces, native, union};

fn entry(name: &str) -> String {
    format!("/interfaces/interface[name={name}]")
}

fn end(peer: &str) -> Value {
    json!({"type": "veth", "veth": {"peer": peer}})
}

/// Veth links of the namespace by number, each with its other end.
fn veth_links_by_index(net: &Netns) -> Vec<(String, String)> {
    let output = net.ip("-o link show type veth");
    let words = output.lines().map(str::split_whitespace);
    let words = words.filter_map(|mut words| Some((words.next()?, words.next()?)));
    words.map(|(number, names)| (number.into(), names.trim_end_matches(':').into())).collect()
}

/// Pairs of link names, without numbers.
fn pairs(net: &Netns) -> Vec<String> {
    let mut pairs: Vec<String> =
        veth_links_by_index(net).into_iter().map(|(_, names)| names).collect();
    pairs.sort();
    pairs
}

#[tokio::test]
async fn veth_change_that_orphans_the_peer_is_refused() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let both = || vec![native(&entry("va"), end("vb")), native(&entry("vb"), end("va"))];
    client.set(SetRequest { update: both(), ..Default::default() }).await.unwrap();
    assert_eq!(pairs(&net), ["va@vb", "vb@va"]);

    let before = veth_links_by_index(&net);
    let peer = native(&format!("{}/veth/peer", entry("va")), "vc");
    let alone = vec![native(&entry("va"), end("vc")), native(&entry("vb"), end("va"))];
    let bridge = native(&entry("vb"), json!({"type": "bridge"}));
    let update = |update| SetRequest { update, ..Default::default() };
    for (what, request, place) in [
        ("a leaf", update(vec![peer.clone()]), "interface[name=va]/veth/peer"),
        ("text", update(vec![cli("interface va veth peer vc")]), "interface[name=va]/veth/peer"),
        (
            "an entry in place of the old one",
            SetRequest { replace: vec![native(&entry("va"), end("vc"))], ..Default::default() },
            "interface[name=va]/veth/peer",
        ),
        (
            "a union that says both ends",
            SetRequest { union_replace: alone, ..Default::default() },
            "interface[name=va]/veth/peer",
        ),
        (
            "a bridge in place of an end",
            SetRequest { replace: vec![bridge], ..Default::default() },
            "interface[name=vb]",
        ),
    ] {
        let refusal = client.set(request).await.unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument, "{what}: {refusal}");
        for part in [place, "`va`", "`vb`", "other end"] {
            assert!(refusal.message().contains(part), "{what}: {part}: {refusal}");
        }
    }
    assert_eq!(veth_links_by_index(&net), before, "nothing of it reached the kernel");

    // With the other end in the same request, by whatever order and origin, it moves.
    let moved = SetRequest {
        delete: vec![parse_path(&format!("holdfast_native:{}", entry("vb")))],
        update: vec![peer],
        ..Default::default()
    };
    client.set(moved).await.unwrap();
    assert_eq!(pairs(&net), ["va@vc", "vc@va"]);
    let pair = |one: &str, other: &str| {
        let text = |name: &str, peer: &str| {
            format!("interface {name}\n  type veth\n  veth\n    peer {peer}\n")
        };
        vec![cli(&(text("va", one) + &text("vc", other)))]
    };
    union(&client, pair("vc", "va")).await.unwrap();
    assert_eq!(pairs(&net), ["va@vc", "vc@va"]);
    union(&client, pair("vd", "ve")).await.unwrap();
    assert_eq!(pairs(&net), ["va@vd", "vc@ve", "vd@va", "ve@vc"]);
    assert_eq!(agent.show("pending"), "");
}

/// OpenConfig has no other end to name: what it says of a link is about whatever has that name.
#[tokio::test]
async fn veth_end_as_openconfig_port_follows_its_peer() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    let openconfig = || interfaces(json!([port("vb", &["192.0.2.1/24"])]));
    union(&client, vec![native(&entry("va"), end("vb")), openconfig()]).await.unwrap();
    assert_eq!(pairs(&net), ["va@vb", "vb@va"]);
    assert_eq!(net.addresses("vb"), ["192.0.2.1/24"]);
    // The agent does not make it, so nothing is left behind that would have to fit.
    union(&client, vec![native(&entry("va"), end("vc")), openconfig()]).await.unwrap();
    assert_eq!(pairs(&net), ["va@vc", "vc@va"]);
    assert!(agent.show("pending").contains("vb"));
    // Two links cannot have one other end, though.
    let third = native(&entry("vx"), end("vc"));
    let refusal = client.set(SetRequest { update: vec![third], ..Default::default() }).await;
    let refusal = refusal.unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument, "{refusal}");
    assert!(refusal.message().contains("link `va` names the same end"), "{refusal}");
}
