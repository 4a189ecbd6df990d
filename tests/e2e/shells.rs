//! A controller reads the whole tree and sends it back: case 11 of section 6 of agent/config/UNION.md, on the real kernel.

use std::collections::BTreeSet;

use holdfast_proto::gnmi::get_request::DataType;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::{self, SetRequest, Update, typed_value};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::whole_tree;
use holdfast_tests::eventually::eventually;
use holdfast_tests::gnmi::{GnmiClient, json_of, update};
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use holdfast_tests::subscription::{Event, subscribe_to};
use serde_json::{Map, Value, json};

use crate::documents::{ipv4_of, port_with_route};
use crate::union::union;

/// Paths with state alone, which no configuration document has.
const STATE_ALONE: [&str; 9] = [
    "afts",
    "alarms",
    "cpus",
    "mount-points",
    "processes",
    "authz-policy-counters",
    "gnmi-pathz-policy-counters",
    "gnmi-pathz-policies",
    "source-records",
];

/// The tree of `/` that a controller gets by Subscribe ONCE in PROTO: configuration, and the keys of all entries.
async fn read_tree(client: &GnmiClient) -> Value {
    let mut list = subscribe_to(Mode::Once, &[("/", gnmi::SubscriptionMode::TargetDefined)]);
    list.encoding = gnmi::Encoding::Proto.into();
    let mut stream = client.subscribe(list).await.unwrap();
    let mut tree = json!({});
    loop {
        match stream.next().await.unwrap() {
            Event::Notification(notification) => keep_config_and_keys(&mut tree, &notification),
            Event::Sync | Event::End => return tree,
        }
    }
}

fn keep_config_and_keys(tree: &mut Value, notification: &gnmi::Notification) {
    for update in &notification.update {
        let mut elems = notification.prefix.clone().unwrap_or_default().elem;
        elems.extend(update.path.clone().unwrap_or_default().elem);
        let names: Vec<&str> = elems.iter().map(|elem| elem.name.as_str()).collect();
        if names.iter().any(|name| STATE_ALONE.contains(name)) {
            continue;
        }
        let is_config = names.contains(&"config");
        let entries = elems.iter().rposition(|elem| !elem.key.is_empty()).map_or(0, |at| at + 1);
        let (leaf, above) = elems.split_last().unwrap();
        let steps = if is_config { above } else { &elems[..entries] };
        let at = steps.iter().fold(&mut *tree, |at, elem| {
            if elem.key.is_empty() {
                container(at, &elem.name)
            } else {
                list_entry(list(at, &elem.name), elem)
            }
        });
        if is_config {
            at[leaf.name.as_str()] = json_of(update.val.as_ref().unwrap());
        }
    }
}

fn container<'t>(at: &'t mut Value, name: &str) -> &'t mut Value {
    at.as_object_mut().unwrap().entry(name).or_insert_with(|| json!({}))
}

fn list<'t>(at: &'t mut Value, name: &str) -> &'t mut Vec<Value> {
    let list = at.as_object_mut().unwrap().entry(name).or_insert_with(|| json!([]));
    list.as_array_mut().unwrap()
}

/// The entry with these keys, which are repeated in its `config` as generated structures have them.
fn list_entry<'t>(list: &'t mut Vec<Value>, elem: &gnmi::PathElem) -> &'t mut Value {
    let typed = |key: &String| match elem.name.as_str() {
        "subinterface" => json!(key.parse::<u32>().unwrap()),
        _ => json!(key),
    };
    let keys: Map<String, Value> =
        elem.key.iter().map(|(name, key)| (name.clone(), typed(key))).collect();
    let is_it = |entry: &Value| keys.iter().all(|(name, value)| entry[name] == *value);
    let at = list.iter().position(is_it).unwrap_or_else(|| {
        let mut entry = keys.clone();
        entry.insert("config".to_owned(), Value::Object(keys.clone()));
        list.push(Value::Object(entry));
        list.len() - 1
    });
    &mut list[at]
}

/// A document in plain JSON, because the modules of its members are not known here.
fn document(path: &str, value: Value) -> Update {
    let octets = value.to_string().into_bytes();
    let val = Some(gnmi::TypedValue { value: Some(typed_value::Value::JsonVal(octets.into())) });
    Update { val, ..update(path, Value::Null) }
}

/// The forms in which the tree is sent back, one request for each.
fn set_requests_of(tree: &Value) -> Vec<SetRequest> {
    let replace = |replace: Vec<Update>| SetRequest { replace, ..Default::default() };
    let containers = || ["interfaces", "network-instances"];
    let of = |name: &str| document(&format!("/{name}"), tree[name].clone());
    let interfaces = tree["interfaces"]["interface"].as_array().unwrap();
    let item = |entry: &Value| {
        let name = entry["name"].as_str().unwrap();
        document(&format!("/interfaces/interface[name={name}]"), entry.clone())
    };
    let addresses = interfaces.iter().flat_map(|entry| {
        let name = entry["name"].as_str().unwrap().to_owned();
        let addresses = &entry["subinterfaces"]["subinterface"][0]["ipv4"]["addresses"]["address"];
        let addresses = addresses.as_array().cloned().unwrap_or_default();
        addresses.into_iter().map(move |address| {
            let ip = address["ip"].as_str().unwrap();
            document(&format!("{}/addresses/address[ip={ip}]", ipv4_of(&name)), address.clone())
        })
    });
    vec![
        replace(vec![document("/", tree.clone())]),
        replace(containers().map(of).to_vec()),
        replace(interfaces.iter().map(item).collect()),
        replace(addresses.collect()),
        SetRequest { union_replace: vec![document("/", tree.clone())], ..Default::default() },
        SetRequest { union_replace: containers().map(of).to_vec(), ..Default::default() },
    ]
}

/// The names of interfaces and addresses in a document.
fn interfaces_and_addresses(tree: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for interface in tree["interfaces"]["interface"].as_array().unwrap() {
        let name = interface["name"].as_str().unwrap();
        found.insert(name.to_owned());
        let sub = &interface["subinterfaces"]["subinterface"][0];
        for family in ["ipv4", "ipv6"] {
            for address in sub[family]["addresses"]["address"].as_array().into_iter().flatten() {
                found.insert(format!("{name} {}", address["ip"].as_str().unwrap()));
            }
        }
    }
    found
}

/// A box with three links that have addresses of the kernel and of others; eth0 is configured.
async fn box_with_a_port() -> (Netns, AgentProcess, GnmiClient) {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    for link in ["lo", "peer0", "eth1", "peer1"] {
        net.ip(&format!("link set {link} up"));
    }
    net.ip("address add 203.0.113.1/24 dev eth1");
    let agent = AgentProcess::start(&net).await;
    let client = agent.gnmi().await;
    port_with_route(&client, "eth0").await;
    eventually("ports show what their cables are", || net.has_consistent_link_states()).await;
    // Waits for the addresses of the kernel, because a later one would look like the effect of a request.
    for link in ["eth0", "eth1", "peer0", "peer1"] {
        let addresses = || net.ip(&format!("-6 address show dev {link} scope link -tentative"));
        let is_seen = || agent.show("values").contains(&format!("address/{link}/fe80"));
        eventually(link, || addresses().contains("fe80") && is_seen()).await;
    }
    (net, agent, client)
}

/// A tree that was read is sent back in each form, twice, without an operation. Entries that had only state are pending
/// then, also after a restart.
#[tokio::test]
async fn a_tree_that_was_read_is_sent_back() {
    let (net, mut agent, client) = box_with_a_port().await;
    let tree = read_tree(&client).await;
    let names = interfaces_and_addresses(&tree);
    for name in ["lo", "lo 127.0.0.1", "lo ::1", "eth0 192.0.2.1", "eth1 203.0.113.1", "peer1"] {
        assert!(names.contains(name), "{name} is not in {names:?}");
    }
    assert!(names.iter().any(|name| name.starts_with("eth1 fe80::")), "{names:?}");
    let values = agent.show("values");
    let monitor = Monitor::start(&net).await;
    for request in set_requests_of(&tree) {
        for _ in 0..2 {
            client.set(request.clone()).await.unwrap_or_else(|refused| {
                panic!("{refused:?}: {request:?}");
            });
        }
        let document = client.read_as("openconfig:/", DataType::Config).await.unwrap();
        let document = document.to_string();
        assert!(document.contains("127.0.0.1") && document.contains("203.0.113.1"), "{document}");
    }
    assert_eq!(monitor.finish(&net).await, [""; 0]);
    assert_eq!(agent.show("values"), values, "nothing is adopted");

    let is_listed = |agent: &AgentProcess| {
        let pending = agent.show("pending");
        let waits = |key: &str, leaf: &str| {
            pending.lines().any(|line| {
                line.starts_with("PENDING") && line.contains(key) && line.contains(leaf)
            })
        };
        assert!(waits("/lo/127.0.0.1", "(waits for prefix-length)"), "{pending}");
        assert!(waits("/lo/::1", "(waits for prefix-length)"), "{pending}");
        assert!(waits("/peer1 ", "(waits for a leaf of its own)"), "{pending}");
        assert!(!pending.contains("192.0.2.1"), "{pending}");
    };
    is_listed(&agent);
    agent.restart().await;
    is_listed(&agent);
    assert_eq!(net.addresses("eth1"), ["203.0.113.1/24"]);
}

/// Sends the tree back with a controller in Go, which implements the protocol independently.
#[tokio::test]
async fn a_controller_sends_back_what_it_read() {
    let (net, agent, client) = box_with_a_port().await;
    let values = agent.show("values");
    let monitor = Monitor::start(&net).await;
    let printed = whole_tree(&agent).await;
    for form in ["the root", "containers", "items", "union_replace"] {
        assert!(printed.contains(&format!("sent back: {form}")), "{printed}");
    }
    assert_eq!(monitor.finish(&net).await, [""; 0]);
    assert_eq!(agent.show("values"), values, "nothing is adopted");
    let document = client.read_as("openconfig:/", DataType::Config).await.unwrap().to_string();
    assert!(document.contains("127.0.0.1") && document.contains("fe80::"), "{document}");
}

/// A prefix length turns a shell into an address. Without it the agent's address is removed, and a foreign one stays.
#[tokio::test]
async fn a_shell_becomes_an_address_and_a_shell_again() {
    let (net, agent, client) = box_with_a_port().await;
    let tree = read_tree(&client).await;
    let replace = vec![document("/", tree.clone())];
    client.set(SetRequest { replace, ..Default::default() }).await.unwrap();
    let address = |ip: &str| format!("{}/addresses/address[ip={ip}]", ipv4_of("eth1"));
    let new = json!({"ip": "198.18.0.1", "config": {"ip": "198.18.0.1"}});
    client.update(&address("198.18.0.1"), new).await.unwrap();
    assert_eq!(net.addresses("eth1"), ["203.0.113.1/24"], "a shell touches nothing");

    for (ip, length, with) in [
        ("198.18.0.1", 30, vec!["198.18.0.1/30", "203.0.113.1/24"]),
        ("203.0.113.1", 24, vec!["203.0.113.1/24"]),
    ] {
        let leaf = format!("{}/config/prefix-length", address(ip));
        client.update(&leaf, length).await.unwrap();
        assert_eq!(net.addresses("eth1"), with, "{ip}");
        assert!(!agent.show("pending").contains(ip));
        client.delete(&leaf).await.unwrap();
        assert_eq!(net.addresses("eth1"), ["203.0.113.1/24"], "{ip}");
        assert!(agent.show("pending").contains(ip), "it is a shell again");
    }
    // The earlier tree has neither: a union_replace with it removes the added shell.
    union(&client, vec![document("/", tree)]).await.unwrap();
    assert!(!agent.show("pending").contains("198.18.0.1"));

    // An entry with a leaf of its own that lacks another one is refused, and so are native entries.
    let bare = json!({"index": "0", "config": {"index": "0", "metric": 5}});
    let hop = format!(
        "{}/static[prefix=10.9.0.0\\/16]/next-hops/next-hop[index=0]",
        crate::documents::STATIC_ROUTES
    );
    assert!(client.update(&hop, bare).await.is_err());
    let native = "holdfast_native:/interfaces/interface[name=eth1]/ipv4/address[ip=198.18.0.2]";
    assert!(client.update(native, json!({"ip": "198.18.0.2"})).await.is_err());
}
