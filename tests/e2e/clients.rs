//! Clients by others, as operators use them.

use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::{Gnmic, gnmi_cli, python};
use holdfast_tests::eventually::eventually;
use holdfast_tests::netns::Netns;

const ETH0: &str = "/interfaces/interface[name=eth0]";

#[tokio::test]
async fn gnmic_reads_the_capabilities() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let output = Gnmic::for_admin(&agent).run(&["capabilities"]).await;
    for part in ["gNMI version: 0.10.0", "openconfig-interfaces", "JSON_IETF", "PROTO"] {
        assert!(output.contains(part), "`{part}` is not in {output}");
    }
}

#[tokio::test]
async fn gnmic_sets_and_gets() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    let set = async |arguments: &[&str]| {
        gnmic.run(&[&["-e", "json_ietf", "set"], arguments].concat()).await
    };

    set(&["--update-path", &format!("{ETH0}/config/mtu"), "--update-value", "1414"]).await;
    set(&["--update-path", &format!("{ETH0}/config/description"), "--update-value", "by gnmic"])
        .await;
    let link = net.link("eth0");
    assert_eq!((link.mtu, link.alias.as_str()), (1400, "by gnmic"));

    let replacement = r#"{"name": "eth0", "enabled": true, "description": "replaced"}"#;
    set(&["--replace-path", &format!("{ETH0}/config"), "--replace-value", replacement]).await;
    let link = net.link("eth0");
    assert_eq!((link.mtu, link.alias.as_str(), link.up), (1500, "replaced", true));

    for (of, present, absent) in [
        ("all", "oper-status", "no-such-thing"),
        ("config", "replaced", "oper-status"),
        ("state", "oper-status", "\"config\""),
        ("operational", "oper-status", "replaced"),
    ] {
        let answer = gnmic
            .json(&["-e", "json_ietf", "get", "--type", of, "--path", "/interfaces"])
            .await
            .to_string();
        assert!(answer.contains(present) && !answer.contains(absent), "{of}: {answer}");
    }

    set(&["--delete", &format!("{ETH0}/config/description")]).await;
    assert_eq!(net.link("eth0").alias, "");

    let complaint = gnmic
        .refused(&[
            "set",
            "--update-path",
            &format!("{ETH0}/config/mtu"),
            "--update-value",
            "70000",
        ])
        .await;
    assert!(complaint.contains("InvalidArgument") && complaint.contains("mtu"), "{complaint}");
}

/// Each form in which gnmic sends a union_replace: OpenConfig with text, with native paths, text alone,
/// and all of it in a file.
// proves 2.5, 2.6, 2.7
#[tokio::test]
async fn gnmic_sends_unions() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let agent = AgentProcess::start(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    let union = async |entries: &[&str]| {
        let entries = entries.iter().flat_map(|entry| ["--union-replace", entry]);
        gnmic.run(&["set"].into_iter().chain(entries).collect::<Vec<_>>()).await
    };
    let links = || (net.link("eth0").mtu, net.link("eth1").mtu, net.link("eth1").alias);
    let eth1 = "/interfaces/interface[name=eth1]/config";

    let output = union(&[
        "holdfast_cli:/:::ascii:::interface eth0\n  mtu 1400",
        &format!("{eth1}/mtu:::uint:::1314"),
        &format!(r#"{eth1}:::json_ietf:::{{"description": "by gnmic"}}"#),
    ])
    .await;
    assert_eq!(links(), (1400, 1300, "by gnmic".to_owned()), "{output}");
    assert_eq!(output.matches("UNION_REPLACE").count(), 3, "{output}");

    union(&[
        r#"holdfast_native:/interfaces/interface[name=eth0]:::json_ietf:::{"mtu": 1350}"#,
        &format!("openconfig:{eth1}/mtu:::uint:::1214"),
    ])
    .await;
    assert_eq!(links(), (1350, 1200, "by gnmic".to_owned()), "what no path names stays");

    union(&["cli:/:::ascii:::interface eth1\n  description alone"]).await;
    assert_eq!(links(), (1500, 1500, "alone".to_owned()));

    let file = agent.state_dir().join("request.yaml");
    let request = "union-replaces:\n- path: cli:/\n  encoding: ascii\n  value: |\n    interface eth0\n      mtu 1450\n\
                   - path: /interfaces/interface[name=eth1]/config\n  encoding: json_ietf\n  value:\n    description: from a file\n";
    std::fs::write(&file, request).unwrap();
    gnmic.run(&["set", "--request-file", &file.display().to_string()]).await;
    assert_eq!(links(), (1450, 1500, "from a file".to_owned()));

    let conflict = [
        "holdfast_cli:/:::ascii:::interface eth1\n  mtu 1400",
        &format!("{eth1}/mtu:::uint:::1500"),
    ];
    let entries = conflict.iter().flat_map(|entry| ["--union-replace", entry]);
    let complaint = gnmic.refused(&["set"].into_iter().chain(entries).collect::<Vec<_>>()).await;
    for word in ["InvalidArgument", "line 2: mtu 1400", "config/mtu", "1500"] {
        assert!(complaint.contains(word), "`{word}` is not in {complaint}");
    }
}

/// A union_replace that must be confirmed: rolled back without the confirmation, kept with it.
// proves 2.14
#[tokio::test]
async fn gnmic_confirms_a_union_or_not() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    let mtu = |octets: u32| format!("holdfast_cli:/:::ascii:::interface eth0\n  mtu {octets}");
    let set = async |arguments: &[&str]| gnmic.run(&[&["set"], arguments].concat()).await;
    set(&["--union-replace", &mtu(1400)]).await;
    let open = ["--commit-id", "one", "--commit-request", "--rollback-duration", "60s"];

    set(&[&["--union-replace", &mtu(1300)][..], &open].concat()).await;
    assert_eq!(net.link("eth0").mtu, 1300);
    set(&["--commit-id", "one", "--commit-cancel"]).await;
    assert_eq!(net.link("eth0").mtu, 1400, "taken back");

    set(&[&["--union-replace", &mtu(1300)][..], &open].concat()).await;
    let complaint = gnmic.refused(&["set", "--union-replace", &mtu(1200)]).await;
    assert!(complaint.contains("FailedPrecondition"), "{complaint}");
    set(&["--commit-id", "one", "--commit-confirm"]).await;
    assert_eq!(net.link("eth0").mtu, 1300);
}

#[tokio::test]
async fn gnmic_follows_the_box() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    let status = format!("{ETH0}/state/oper-status");
    let subscribe = ["-e", "json_ietf", "subscribe", "--path", &status, "--format", "event"];

    let once = gnmic.run(&[&subscribe[..], &["--mode", "once"]].concat()).await;
    assert!(once.contains("DOWN"), "{once}");

    let mut changes = gnmic.stream(&[&subscribe[..], &["--stream-mode", "on-change"]].concat());
    changes.until("DOWN").await;
    net.ip("link set eth0 up");
    changes.until("UP").await;
    gnmic
        .run(&[
            "set",
            "--update-path",
            &format!("{ETH0}/config/enabled"),
            "--update-value",
            "false",
        ])
        .await;
    changes.until("DOWN").await;

    let octets = format!("{ETH0}/state/counters/in-octets");
    let sampled = [
        "subscribe",
        "--path",
        &octets,
        "--stream-mode",
        "sample",
        "--sample-interval",
        "1s",
        "--format",
        "event",
    ];
    let mut samples = gnmic.stream(&sampled);
    for _ in 0..3 {
        samples.until("in-octets").await;
    }
}

#[tokio::test]
async fn gnmic_sends_one_list_to_boxes_of_several_vendors() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    let status = format!("{ETH0}/state/oper-status");
    let paths = ["--path", "/lldp/interfaces", "--path", &status, "--path", "eos_native:/Sysdb"];
    let list = [&["-e", "json_ietf", "subscribe", "--mode", "once"], &paths[..]].concat();
    let complaint = gnmic.refused(&list).await;
    assert!(complaint.contains("Unimplemented"), "{complaint}");

    let lines = "system\n  grpc-server DEFAULT\n    unknown-subscription-paths ignore\n";
    gnmic.run(&["set", "--update-cli", lines]).await;
    let output = gnmic.run(&list).await;
    assert!(output.contains("DOWN"), "{output}");
    let ignored = "holdfast_native:/system/grpc-server[name=DEFAULT]/ignored-subscription";
    for path in ["/lldp/interfaces", "eos_native:/Sysdb"] {
        let count = format!("{ignored}[path={path}]/state/count");
        let answer = gnmic.json(&["-e", "json_ietf", "get", "--path", &count]).await;
        assert!(answer.to_string().contains(r#":"1""#), "{path}: {answer}");
    }
}

/// The library of gnmi_cli fills `elem` and the deprecated `element` of every path and prefix.
#[tokio::test]
async fn gnmi_cli_subscribes() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    net.ip("link set eth0 up");
    let agent = AgentProcess::start(&net).await;
    let status = "interfaces/interface[name=eth0]/state/oper-status";
    for (mode, limits) in [
        ("once", &[][..]),
        ("polling", &["-count", "2", "-polling_interval", "100ms"]),
        ("streaming", &["-streaming_duration", "2s"]),
    ] {
        let arguments = ["-query_type", mode, "-query", status];
        let printed = gnmi_cli(&agent, &[&arguments[..], limits].concat()).await;
        assert!(printed.contains("oper-status") && printed.contains("UP"), "{mode}: {printed}");
    }
    let get = r#"path: {elem: {name: "interfaces"} elem: {name: "interface" key: {key: "name" value: "eth0"}}
        elem: {name: "config"} elem: {name: "name"} element: "interfaces" element: "interface[name=eth0]"
        element: "config" element: "name"} encoding: JSON_IETF"#;
    let printed = gnmi_cli(&agent, &["-get", "-proto", get]).await;
    assert!(printed.contains("eth0"), "{printed}");
}

/// As the documents of pygnmi write a path: the module where an origin stands.
#[tokio::test]
async fn gnmic_names_a_module_as_origin() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    let at = "openconfig-interfaces:/interfaces/interface[name=eth0]/config/description";
    gnmic.run(&["set", "--update-path", at, "--update-value", "by its module"]).await;
    assert_eq!(net.link("eth0").alias, "by its module");
    for at in [at, "holdfast:/interfaces/interface[name=eth0]/state/description"] {
        let answer = gnmic.json(&["-e", "json_ietf", "get", "--path", at]).await.to_string();
        assert!(answer.contains("by its module"), "{answer}");
    }
}

#[tokio::test]
async fn pygnmi_gets_sets_and_subscribes() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    python(&agent, "pygnmi_client.py", &[]).await;
    assert_eq!(net.link("eth0").alias, "by pygnmi");
}

#[tokio::test]
async fn oc_config_validate_passes() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    net.ip("link set eth0 up");
    net.ip("link set peer0 up");
    let agent = AgentProcess::start(&net).await;
    python(&agent, "validate.py", &[]).await;
    eventually("the address is in the kernel", || {
        net.addresses("eth0").contains(&"192.0.2.1/24".to_owned())
    })
    .await;
}

// proves 1.24, 1.25, 1.40, 1.61, 2.25, 2.51, 2.52
#[tokio::test]
async fn gnmic_writes_and_reads_text() {
    let net = Netns::enter().with_veth("eth0", "peer0");
    let agent = AgentProcess::start(&net).await;
    let gnmic = Gnmic::for_admin(&agent);
    let text_of = async |command: &str| {
        let path = format!("cli:/show {command}");
        gnmic.run(&["-e", "ascii", "get", "--path", &path, "--values-only"]).await
    };
    gnmic
        .run(&["set", "--replace-cli", "interface eth0\n  mtu 1400\n  description \"by text\""])
        .await;
    let link = net.link("eth0");
    assert_eq!((link.mtu, link.alias.as_str()), (1400, "by text"));
    gnmic
        .run(&[
            "set",
            "--update-cli",
            "interface eth0 mtu 1300",
            "--update-cli",
            "interface br0 type bridge",
        ])
        .await;
    assert_eq!(net.link("eth0").mtu, 1300);
    assert!(net.find_link("br0").is_some());

    let running = text_of("running-config").await;
    assert!(running.contains("interface br0 type bridge"), "{running}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text_in(&running)).unwrap();
    gnmic.run(&["set", "--replace-cli-file", file.path().to_str().unwrap()]).await;
    assert_eq!(text_of("running-config").await, running, "what is read can be sent back");
    let effective = text_of("effective").await;
    assert!(effective.contains("mtu 1300 # client native"), "{effective}");

    gnmic.run(&["set", "--update-cli", "no interface br0"]).await;
    assert!(net.find_link("br0").is_none());
    let complaint = gnmic.refused(&["set", "--update-cli", "interface eth0 mut 1400"]).await;
    assert!(
        complaint.contains("line 1") && complaint.contains("did you mean `mtu`?"),
        "{complaint}"
    );
}

/// The CLI text in gnmic's output, which is a JSON string or the text itself.
fn text_in(printed: &str) -> String {
    let values: Result<Vec<String>, _> = serde_json::from_str(printed);
    values.map_or_else(|_| printed.to_owned(), |values| values.concat())
}
