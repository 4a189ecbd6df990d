//! VLANs of a port, on a kernel that has them.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::eventually::{eventually, eventually_async};
use holdfast_tests::in_lab;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};

const ETH0: &str = "holdfast_native:/interfaces/interface[name=eth0]";

/// A VLAN with this identifier and the address 10.0.ID.1.
fn vlan(index: u32, id: u32) -> Value {
    let address = json!({"ip": format!("10.0.{id}.1"), "prefix-length": 24});
    json!({"index": index, "vlan-id": id, "ipv4": {"address": [address]}})
}

/// A box whose port eth0 leads to a trunk with the VLANs 5 and 6.
fn trunk() -> (Netns, Netns) {
    let net = Netns::enter();
    let beyond = Netns::detached();
    net.add_cable("eth0", &beyond, "peer0");
    beyond.ip("link set peer0 up");
    for id in [5, 6] {
        beyond.ip(&format!("link add link peer0 name peer0.{id} type vlan id {id}"));
        beyond.ip(&format!("link set peer0.{id} up"));
        beyond.ip(&format!("address add 10.0.{id}.2/24 dev peer0.{id}"));
    }
    (net, beyond)
}

fn reaches(agent: &AgentProcess, address: &str) -> bool {
    let ping = agent.command("ping").args(["-c", "1", "-W", "1", address]).output().unwrap();
    ping.status.success()
}

fn id_of(net: &Netns, link: &str) -> Option<u64> {
    let links = net.ip_json("-details link show type vlan");
    let link = links.iter().find(|it| it["ifname"] == link)?;
    link["linkinfo"]["info_data"]["id"].as_u64()
}

#[tokio::test]
async fn vlans_of_a_trunk_carry_traffic_and_follow_their_port() {
    in_lab!({
        let (net, _beyond) = trunk();
        net.ip("link add foreign type dummy");
        let mut agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        let shut = json!({"index": 7, "vlan-id": 7, "enabled": false});
        let port = json!({"name": "eth0", "vlan": [vlan(5, 5), vlan(60, 6), shut]});
        client.update("holdfast_native:/interfaces", json!({"interface": [port]})).await.unwrap();
        assert_eq!([id_of(&net, "eth0.5"), id_of(&net, "eth0.60")], [Some(5), Some(6)]);
        assert!(reaches(&agent, "10.0.5.2") && reaches(&agent, "10.0.6.2"), "{}", agent.log());
        assert!(!net.link("eth0.7").up);

        // The port goes down by configuration, and by hand: its VLANs come back with it, the shut one stays down.
        client.update(&format!("{ETH0}/enabled"), json!(false)).await.unwrap();
        assert!(!net.link("eth0.5").up);
        client.update(&format!("{ETH0}/enabled"), json!(true)).await.unwrap();
        assert!(net.link("eth0.5").up && !net.link("eth0.7").up);
        net.ip("link set eth0 down");
        eventually("the port and its VLANs are up", || {
            net.link("eth0").up && net.link("eth0.5").up && !net.link("eth0.7").up
        })
        .await;
        eventually("the VLAN carries traffic", || reaches(&agent, "10.0.5.2")).await;

        // Changes of others to a VLAN are undone.
        net.ip("link set eth0.7 up");
        eventually("the shut VLAN is down", || !net.link("eth0.7").up).await;
        net.ip("link delete eth0.5");
        eventually("the VLAN is there again", || {
            net.find_link("eth0.5").is_some() && reaches(&agent, "10.0.5.2")
        })
        .await;

        // The MTU follows the port, and a larger one than that of the port waits.
        client.update(&format!("{ETH0}/mtu"), json!(1400)).await.unwrap();
        assert_eq!(net.link("eth0.5").mtu, 1400);
        client.update(&format!("{ETH0}/vlan[index=5]/mtu"), json!(1450)).await.unwrap();
        assert_eq!(net.link("eth0.5").mtu, 1400);
        client.delete(&format!("{ETH0}/mtu")).await.unwrap();
        eventually("the VLANs have what they may have", || {
            (net.link("eth0.5").mtu, net.link("eth0.60").mtu) == (1450, 1500)
        })
        .await;

        // The kernel changes no identifier in place: another link takes the name.
        client.update(&format!("{ETH0}/vlan[index=60]/vlan-id"), json!(8)).await.unwrap();
        assert_eq!(id_of(&net, "eth0.60"), Some(8));
        assert_eq!(net.addresses("eth0.60"), ["10.0.6.1/24"]);
        let twice = json!({"index": 61, "vlan-id": 8});
        let error = client.update(ETH0, json!({"vlan": [twice]})).await.unwrap_err();
        assert!(error.message().contains("eth0.60"), "{error:?}");

        // The agent ends without a word, and takes its VLANs over as they are.
        let index = |name: &str| net.ip_json(&format!("link show {name}"))[0]["ifindex"].clone();
        let before = index("eth0.5");
        agent.kill();
        agent.restart().await;
        assert_eq!(index("eth0.5"), before);
        let client = agent.gnmi().await;
        let state = client.read(&format!("{ETH0}/vlan[index=5]/state/oper-status")).await.unwrap();
        assert_eq!(state, json!("UP"));

        // The same VLANs in OpenConfig, and one that its client makes.
        let subinterfaces = "/interfaces/interface[name=eth0]/subinterfaces";
        let tagged = format!("{subinterfaces}/subinterface[index=60]/vlan/match/single-tagged");
        assert_eq!(client.read(&format!("{tagged}/state/vlan-id")).await.unwrap(), json!(8));
        let tag = json!({"match": {"single-tagged": {"config": {"vlan-id": 9}}}});
        let sub = json!({"index": 9, "config": {"index": 9}, "openconfig-vlan:vlan": tag});
        client.update(subinterfaces, json!({"subinterface": [sub]})).await.unwrap();
        assert_eq!(id_of(&net, "eth0.9"), Some(9));
        let path = format!("{subinterfaces}/subinterface[index=9]");
        let counters = client.read(&format!("{path}/state/counters/in-pkts")).await.unwrap();
        assert!(counters.is_string(), "{counters}");
        client.delete(&path).await.unwrap();
        assert_eq!(id_of(&net, "eth0.9"), None);

        // A route of OpenConfig by the VLAN.
        let statics = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=s]/static-routes";
        let by_vlan = json!({"interface": "eth0", "subinterface": 5});
        let hop = json!({"index": "a", "config": {"index": "a", "next-hop": "10.0.5.2"},
            "interface-ref": {"config": by_vlan.clone()}});
        let prefix = "198.51.100.0/24";
        let route = json!({"prefix": prefix, "config": {"prefix": prefix}, "next-hops": {"next-hop": [hop]}});
        client.update(statics, json!({"static": [route]})).await.unwrap();
        assert_eq!(net.ip_json(&format!("route show {prefix}"))[0]["dev"], "eth0.5");
        let reference =
            format!("{statics}/static[prefix={prefix}]/next-hops/next-hop[index=a]/interface-ref");
        for leaves in ["config", "state"] {
            let shown = client.read(&format!("{reference}/{leaves}")).await.unwrap();
            let shown = shown.to_string().replace("openconfig-network-instance:", "");
            assert_eq!(shown, by_vlan.to_string(), "{leaves}");
        }
        let afts = "/network-instances/network-instance[name=DEFAULT]/afts/next-hops";
        let hops = client.read(afts).await.unwrap().to_string();
        assert!(hops.contains(r#"{"interface":"eth0","subinterface":5}"#), "{hops}");
        client.delete(statics).await.unwrap();

        client.delete(&format!("{ETH0}/vlan")).await.unwrap();
        assert_eq!(net.ip_json("link show type vlan"), Vec::<Value>::new());
        assert!(net.find_link("foreign").is_some());
    });
}

/// A port whose name is as long as the kernel takes it, which leads to a trunk with VLAN 5.
fn trunk_of_a_long_port() -> (Netns, Netns) {
    let net = Netns::enter();
    let beyond = Netns::detached();
    net.add_cable(LONG, &beyond, "peer0");
    beyond.ip("link set peer0 up");
    beyond.ip("link add link peer0 name peer0.5 type vlan id 5");
    beyond.ip("link set peer0.5 up");
    beyond.ip("address add 10.0.5.2/24 dev peer0.5");
    (net, beyond)
}

/// A name of 15 bytes: a dot and a number have no room behind it.
const LONG: &str = "a-port-of-15-by";

#[tokio::test]
async fn the_link_of_a_vlan_has_the_name_that_it_is_given() {
    in_lab!({
        let (net, _beyond) = trunk_of_a_long_port();
        net.ip("link add taken type dummy");
        let mut agent = AgentProcess::start(&net).await;
        let client = agent.gnmi().await;
        let port = format!("holdfast_native:/interfaces/interface[name={LONG}]");
        let mut mgmt = vlan(5, 5);
        let refused =
            client.update(&port, json!({"name": LONG, "vlan": [mgmt.clone()]})).await.unwrap_err();
        assert!(refused.message().contains("`link-name` gives it another name"), "{refused}");
        mgmt["link-name"] = json!("mgmt");
        mgmt["ipv4"]["forwarding"] = json!(true);
        client.update(&port, json!({"name": LONG, "vlan": [mgmt]})).await.unwrap();
        assert_eq!(id_of(&net, "mgmt"), Some(5));
        assert_eq!(net.sysctl("ipv4/conf/mgmt/forwarding"), "1");
        assert!(reaches(&agent, "10.0.5.2"), "{}", agent.log());

        // State has the name, and the counters and settings of the link.
        let subinterface =
            format!("/interfaces/interface[name={LONG}]/subinterfaces/subinterface[index=5]");
        let state = client.read(&format!("{subinterface}/state")).await.unwrap().to_string();
        assert!(state.contains(r#""mgmt""#) && state.contains(r#""UP""#), "{state}");
        let counters = client.read(&format!("{subinterface}/state/counters/in-pkts")).await;
        assert!(counters.unwrap().is_string());
        let forwarding = format!("{port}/vlan[index=5]/state/ipv4-forwarding");
        assert_eq!(client.read(&forwarding).await.unwrap(), json!(true));
        let shown = agent.show("interfaces");
        assert!(shown.lines().any(|line| line.starts_with("mgmt ")), "{shown}");

        // A route by the VLAN.
        let hop =
            json!({"index": "a", "interface": LONG, "subinterface": 5, "next-hop": "10.0.5.2"});
        let route = json!({"prefix": "198.51.100.0/24", "next-hop": [hop]});
        let statics =
            "holdfast_native:/network-instances/network-instance[name=DEFAULT]/static[name=s]";
        client.update(statics, json!({"name": "s", "route": [route]})).await.unwrap();
        let device = || net.ip_json("route show 198.51.100.0/24")[0]["dev"].clone();
        assert_eq!(device(), "mgmt");

        // Another name is another link, and all that stands on it follows. The plan says so.
        let vlan_words = ["interface", LONG, "vlan", "5", "link-name", "data"];
        let output =
            agent.command("config").args(["set", "--dry-run"]).args(vlan_words).output().unwrap();
        let plan = String::from_utf8(output.stdout).unwrap();
        assert!(plan.contains(&format!("recreated  link {LONG}.5 called mgmt")), "{plan}");
        assert!(plan.contains("198.51.100.0/24"), "{plan}");
        let index = |name: &str| net.ip_json(&format!("link show {name}"))[0]["ifindex"].clone();
        let before = index("mgmt");
        let link_name = format!("{port}/vlan[index=5]/link-name");
        client.update(&link_name, json!("data")).await.unwrap();
        assert_eq!((id_of(&net, "mgmt"), id_of(&net, "data")), (None, Some(5)));
        assert_ne!(index("data"), before);
        assert_eq!(
            (device(), net.addresses("data")),
            (json!("data"), vec!["10.0.5.1/24".to_owned()])
        );
        assert_eq!(net.sysctl("ipv4/conf/data/forwarding"), "1");
        assert!(reaches(&agent, "10.0.5.2"));

        // Changes of others are undone: another name, and a deletion.
        // The kernel renames links that are down, and the agent raises this one at once.
        let rename = "for attempt in $(seq 100); do
            printf 'link set data down\\nlink set data name other\\n' | ip -batch - && exit 0
        done; exit 1";
        net.shell(rename);
        eventually("the link has its name", || {
            id_of(&net, "data") == Some(5) && net.find_link("other").is_none()
        })
        .await;
        eventually("it carries traffic", || reaches(&agent, "10.0.5.2")).await;
        net.ip("link delete data");
        eventually("the link is there again", || reaches(&agent, "10.0.5.2")).await;
        eventually("with its route", || {
            net.ip_json("route show 198.51.100.0/24").first().is_some_and(|it| it["dev"] == "data")
        })
        .await;

        // Names that others have.
        let configured = json!({"interface": [{"name": "br7", "type": "bridge"}]});
        client.update("holdfast_native:/interfaces", configured).await.unwrap();
        let second = json!({"index": 6, "vlan-id": 6, "link-name": "second"});
        client.update(&port, json!({"vlan": [second]})).await.unwrap();
        let vlan = format!("{LONG}.5");
        for (name, other) in [
            ("taken", "a dummy link"),
            ("br7", "interface `br7` is configured"),
            ("second", &format!("the link of VLAN `{LONG}.6`")),
        ] {
            let refused = client.update(&link_name, json!(name)).await.unwrap_err();
            let text = refused.message();
            assert!([&vlan, name, other].iter().all(|part| text.contains(part)), "{text}");
        }
        let late = json!({"interface": [{"name": "data", "type": "physical"}]});
        let refused = client.update("holdfast_native:/interfaces", late).await.unwrap_err();
        assert!(refused.message().contains(&vlan), "{refused}");

        // The agent ends without a word, and takes the link over by its name.
        let before = index("data");
        agent.kill();
        agent.restart().await;
        assert_eq!(index("data"), before);
        let client = agent.gnmi().await;
        eventually_async("its state", || async {
            client.read(&format!("{subinterface}/state/name")).await.ok() == Some(json!("data"))
        })
        .await;
        assert!(reaches(&agent, "10.0.5.2"));

        // Both links swap their names in one request, and go.
        let swap = [(5, "second"), (6, "data")];
        let swap = swap.map(|(index, name)| json!({"index": index, "link-name": name}));
        client.update(&port, json!({"vlan": swap})).await.unwrap();
        assert_eq!((id_of(&net, "second"), id_of(&net, "data")), (Some(5), Some(6)));
        client.delete(&format!("{port}/vlan")).await.unwrap();
        assert_eq!(net.ip_json("link show type vlan"), Vec::<Value>::new());
        assert!(net.find_link("taken").is_some());
    });
}
