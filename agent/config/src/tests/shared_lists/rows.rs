//! Rows: paths between the models, single requests, and texts of maps that are refused.

use std::collections::BTreeSet;

use super::super::footprint::examine;
use super::super::set::json_of;
use super::*;
use crate::schema::NodeKind;

fn native_of(openconfig: &str) -> Option<String> {
    let models = list_models();
    let path = models.openconfig.resolve_write(&openconfig.parse().unwrap()).unwrap();
    let native = match path.last().unwrap().keys {
        Some(_) => models.map.entry_to_native(&path),
        None => models.map.path_to_native(&path),
    };
    native.map(|path| path.to_path(&models.native).to_string())
}

fn openconfig_of(native: &str) -> Vec<String> {
    let models = list_models();
    let path = models.native.resolve_write(&native.parse().unwrap()).unwrap();
    let found = models.map.up_path(&path);
    found.iter().map(|path| path.to_path(&models.openconfig).to_string()).collect()
}

#[test]
fn paths_lead_to_the_list_that_has_the_entry() {
    let eth0 = "/interfaces/interface[name=eth0]";
    let address = "ipv4/addresses/address[ip=10.0.0.1]";
    for (openconfig, native) in [
        ("subinterface[index=0]", None),
        ("subinterface[index=7]", Some("vlan[index=7]")),
        ("subinterface[index=0]/config/description", Some("subinterface/description")),
        ("subinterface[index=7]/config/description", Some("vlan[index=7]/description")),
        ("subinterface[index=7]/config/index", Some("vlan[index=7]/index")),
        ("subinterface[index=0]/ipv4/config/mtu", Some("ipv4/mtu")),
        ("subinterface[index=7]/ipv4/config/mtu", Some("vlan[index=7]/ipv4/mtu")),
        ("subinterface[index=7]/vlan/config/vlan-id", Some("vlan[index=7]/vlan-id")),
        (
            "subinterface[index=7]/vlan/match/single-tagged/config/vlan-id",
            Some("vlan[index=7]/vlan-id"),
        ),
        (&format!("subinterface[index=0]/{address}"), Some("ipv4/address[ip=10.0.0.1]")),
        (
            &format!("subinterface[index=7]/{address}"),
            Some("vlan[index=7]/ipv4/address[ip=10.0.0.1]"),
        ),
        (
            &format!("subinterface[index=7]/{address}/config/prefix-length"),
            Some("vlan[index=7]/ipv4/address[ip=10.0.0.1]/prefix-length"),
        ),
    ] {
        let want = native.map(|native| format!("{eth0}/{native}"));
        assert_eq!(native_of(&format!("{SUBS}/{openconfig}")), want, "{openconfig}");
    }
    for (openconfig, native) in [
        ("card[speed=SPEED_10GB][slot=2]", Some("fast-card[slot=2]")),
        ("card[speed=SPEED_10GB][slot=2]/config/slot", Some("fast-card[slot=2]/slot")),
        ("card[speed=SPEED_40GB][slot=2]", Some("card[slot=2][speed=40000]")),
        ("card[speed=SPEED_40GB][slot=2]/config/speed", Some("card[slot=2][speed=40000]/speed")),
        ("card[speed=SPEED_40GB][slot=2]/config/slot", Some("card[slot=2][speed=40000]/slot")),
        ("card[speed=SPEED_100GB][slot=1]/config/label", Some("main-label")),
        ("card[speed=SPEED_100GB][slot=2]/config/label", Some("card[slot=2][speed=100000]/label")),
        ("card[speed=SPEED_40GB][slot=10]", None),
        ("card[speed=SPEED_UNKNOWN][slot=1]", None),
    ] {
        let want = native.map(|native| format!("/shelf/{native}"));
        assert_eq!(native_of(&format!("/shelf/{openconfig}")), want, "{openconfig}");
    }
}

#[test]
fn native_paths_lead_to_entries_and_alternatives() {
    let vlan = "/interfaces/interface[name=eth0]/vlan[index=7]";
    let sub = format!("{SUBS}/subinterface[index=7]");
    assert_eq!(openconfig_of(vlan), [&*sub]);
    assert_eq!(
        openconfig_of(&format!("{vlan}/vlan-id")),
        [
            format!("{sub}/vlan/config/vlan-id"),
            format!("{sub}/vlan/match/single-tagged/config/vlan-id"),
        ]
    );
    assert_eq!(
        openconfig_of(&format!("{vlan}/ipv4")),
        [
            "ipv4/addresses/address",
            "ipv4/config/enabled",
            "ipv4/config/mtu",
            "ipv4/neighbors/neighbor",
            "ipv4/proxy-arp/config/mode",
            "ipv4/urpf/config/enabled",
            "ipv4/urpf/config/mode",
        ]
        .map(|it| format!("{sub}/{it}"))
    );
    assert_eq!(
        openconfig_of("/shelf/card[speed=40000][slot=2]"),
        ["/shelf/card[slot=2][speed=SPEED_40GB]"]
    );
    // OpenConfig has these entries for others, or not at all.
    for native in ["10000", "100000", "12345"] {
        let card = format!("/shelf/card[speed={native}][slot=1]");
        assert_eq!(openconfig_of(&card), [""; 0], "{native}");
    }
    // The list of cards belongs to several, so that a container of one of them does not stand for it.
    assert_eq!(openconfig_of("/shelf"), ["/shelf/card[slot=1][speed=SPEED_100GB]/config/label"]);
    let start = run(
        bare(),
        &["update native:/shelf/card[speed=40000][slot=2]/label \"a\"; \
           update /shelf/card[speed=SPEED_10GB][slot=3]/config/label \"b\"; \
           update /shelf/card[speed=SPEED_25GB][slot=3]/config/label \"c\""],
    );
    let cleared = run(start, &["union native:/shelf {\"main-label\":\"m\"}"]);
    check_in_effect(&cleared, "/shelf", &["/main-label=m"]);
    check_view(&cleared, "/shelf", &[]);
}

#[test]
fn state_has_the_first_alternative() {
    let models = list_models();
    let up = |native: &str, value: Value| {
        let path = models.native.resolve_write(&native.parse().unwrap());
        let path = path.unwrap_or_else(|error| panic!("{native}: {error}"));
        let found = models.map.up(&[(path, value)]);
        let line = |(path, value): &(InstancePath, Value)| {
            format!("{}={value}", path.to_path(&models.openconfig))
        };
        found.iter().map(line).collect::<Vec<_>>()
    };
    let vlan = "/interfaces/interface[name=eth0]/vlan[index=7]";
    let sub = format!("{SUBS}/subinterface[index=7]");
    let single = format!("{sub}/vlan/match/single-tagged");
    assert_eq!(
        up(&format!("{vlan}/state/vlan-id"), Value::Uint(7)),
        [format!("{single}/state/vlan-id=7"), format!("{sub}/vlan/state/vlan-id=7")],
        "each row of state"
    );
    assert_eq!(
        up(&format!("{vlan}/vlan-id"), Value::Uint(7)),
        [format!("{single}/config/vlan-id=7")]
    );
    let sub = format!("{SUBS}/subinterface[index=7]/state");
    assert_eq!(
        up(&format!("{vlan}/state/name"), Value::Str("eth0.7".into())),
        [format!("{sub}/index=7"), format!("{sub}/name=eth0.7")]
    );
    assert_eq!(
        up(&format!("{vlan}/state/mtu"), Value::Uint(1000)),
        [format!("{SUBS}/subinterface[index=7]/ipv4/state/mtu=1000")]
    );
}

/// Case 19: a port's own subinterface and VLANs, by OpenConfig and by native, over a factory configuration.
#[test]
fn three_origins_of_one_list_stay_apart() {
    let start = factory_box(
        "update native:/interfaces/interface[name=eth0] {\"subinterface\":{\"description\":\"f0\"},\
         \"ipv4\":{\"address\":[{\"ip\":\"10.0.0.1\",\"prefix-length\":24}]},\
         \"vlan\":[{\"index\":5,\"vlan-id\":5,\"description\":\"f5\",\
         \"ipv4\":{\"address\":[{\"ip\":\"10.5.0.1\",\"prefix-length\":24}]}}]}",
    );
    let factory_lines = [
        "[index=0]/config/description=f0 factory",
        "[index=0]/ipv4/addresses/address[ip=10.0.0.1]/config/prefix-length=24 factory",
        "[index=5]/config/description=f5 factory",
        "[index=5]/ipv4/addresses/address[ip=10.5.0.1]/config/prefix-length=24 factory",
        "[index=5]/vlan/match/single-tagged/config/vlan-id=5 factory",
    ];
    let sub = format!("{SUBS}/subinterface");
    let sorted = |configuration: &Configuration| {
        let mut lines = below(&lines_view(configuration, Origin::OpenConfig), &sub);
        lines.sort();
        lines
    };
    let with = |more: &[&str]| {
        let mut lines: Vec<String> =
            factory_lines.iter().chain(more).map(|line| (*line).to_owned()).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&start), with(&[]));
    let vlan_10 = format!(
        "update {SUBS}/subinterface[index=10] {{\"config\":{{\"index\":10,\"description\":\"d10\"}},\
         \"vlan\":{{\"match\":{{\"single-tagged\":{{\"config\":{{\"vlan-id\":10}}}}}}}},\
         \"ipv4\":{{\"addresses\":{{\"address\":[{{\"ip\":\"10.10.0.1\",\"config\":{{\"ip\":\"10.10.0.1\",\"prefix-length\":24}}}}]}}}}}}"
    );
    let lines_10 = [
        "[index=10]/config/description=d10",
        "[index=10]/config/enabled=true default",
        "[index=10]/ipv4/addresses/address[ip=10.10.0.1]/config/prefix-length=24",
        "[index=10]/vlan/match/single-tagged/config/vlan-id=10",
    ];
    let added = run(start.clone(), &[&vlan_10]);
    assert_eq!(sorted(&added), with(&lines_10));
    // Native entries are not in OpenConfig, and do not take anything away there.
    let beside = run(
        added,
        &["update native:/interfaces/interface[name=eth0]/vlan[index=20] {\"vlan-id\":20}; \
           update native:/interfaces/interface[name=eth0]/vlan[index=10]/ipv4/mtu 1400; \
           update native:/interfaces/interface[name=eth0]/ipv4/mtu 1300"],
    );
    assert_eq!(sorted(&beside), with(&lines_10));
    let effective = below(&lines_effective(&beside), ETH0);
    for line in [
        "/subinterface/description=f0 factory",
        "/ipv4/mtu=1300",
        "/ipv4/address[ip=10.0.0.1]/prefix-length=24 factory",
        "/vlan[index=5]/vlan-id=5 factory",
        "/vlan[index=10]/vlan-id=10",
        "/vlan[index=10]/enabled=true oc-default",
        "/vlan[index=10]/ipv4/mtu=1400",
        "/vlan[index=10]/ipv4/address[ip=10.10.0.1]/prefix-length=24",
        "/vlan[index=20]/vlan-id=20",
        "/vlan[index=20]/enabled=true default",
    ] {
        assert!(effective.iter().any(|it| it == line), "{line} is not among {effective:#?}");
    }
    // A leaf of subinterface 0, then one of a VLAN, each beside what the other one shows.
    let zero = run(
        beside.clone(),
        &[&format!("update {SUBS}/subinterface[index=0]/ipv4/config/enabled true")],
    );
    let mut want = with(&lines_10);
    want.push("[index=0]/ipv4/config/enabled=true".to_owned());
    want.sort();
    assert_eq!(sorted(&zero), want);
    let both =
        run(zero.clone(), &[&format!("update {SUBS}/subinterface[index=10]/ipv4/config/mtu 1400")]);
    want.push("[index=10]/ipv4/config/mtu=1400".to_owned());
    want.sort();
    assert_eq!(sorted(&both), want);
    // Each level goes alone. The port has a leaf of its own, or its factory leaves would come back with the last one.
    let both = run(both, &["update /interfaces/interface[name=eth0]/config/mtu 1500"]);
    let zero_gone = run(both.clone(), &[&format!("delete {SUBS}/subinterface[index=0]")]);
    want.retain(|line| !line.starts_with("[index=0]"));
    assert_eq!(sorted(&zero_gone), want);
    let ten_gone = run(zero_gone, &[&format!("delete {SUBS}/subinterface[index=10]")]);
    want.retain(|line| !line.starts_with("[index=10]"));
    assert_eq!(sorted(&ten_gone), want);
    assert!(lines_effective(&ten_gone).iter().any(|it| it.contains("/vlan[index=20]/vlan-id=20")));
    let all_gone = run(both, &[&format!("delete {SUBS}")]);
    assert_eq!(sorted(&all_gone), [""; 0]);
}

/// A replace with the answer of Get changes nothing.
#[test]
fn what_was_read_is_sent_back() {
    let start = factory_box(
        "update native:/interfaces/interface[name=eth0] {\"subinterface\":{\"description\":\"f0\"},\
         \"vlan\":[{\"index\":5,\"vlan-id\":5}]}; update native:/shelf {\"main-label\":\"m\",\
         \"fast-card\":[{\"slot\":1,\"label\":\"f\"}],\"card\":[{\"speed\":40000,\"slot\":2,\"label\":\"c\"},{\"speed\":12345,\"slot\":2,\"label\":\"x\"}]}",
    );
    let vlan = run(
        start.clone(),
        &[
            &format!("update {SUBS}/subinterface[index=10]/vlan/config/vlan-id 10"),
            "update /shelf/card[speed=SPEED_25GB][slot=3]/config/label \"g\"",
        ],
    );
    for (number, start) in [start, vlan].iter().enumerate() {
        for origin in ["", "native:"] {
            let text = json_of(start, &format!("{origin}/"));
            let same = run(start.clone(), &[&format!("replace {origin}/ {text}")]);
            assert_eq!(same.layers(), start.layers(), "box {number}, {origin}: {text}");
        }
    }
}

/// Case 20.
#[test]
fn alternatives_agree_or_are_refused() {
    let vlan = format!("{SUBS}/subinterface[index=10]/vlan");
    let single = format!("{vlan}/match/single-tagged/config/vlan-id");
    let direct = format!("{vlan}/config/vlan-id");
    let effective = "/interfaces/interface[name=eth0]/vlan[index=10]/vlan-id";
    for (one, other, shown, also) in [
        (&single, &direct, "/match/single-tagged/config/vlan-id", "/config/vlan-id"),
        (&direct, &single, "/config/vlan-id", "/match/single-tagged/config/vlan-id"),
    ] {
        let start = run(bare(), &[&format!("update {one} 10")]);
        check_view(&start, &vlan, &[&format!("{shown}=10")]);
        check_in_effect(&start, effective, &["=10"]);
        let both = run(start.clone(), &[&format!("update {other} 10")]);
        let mut lines = [format!("{shown}=10"), format!("{also}=10")];
        lines.sort();
        let mut view = below(&lines_view(&both, Origin::OpenConfig), &vlan);
        view.sort();
        assert_eq!(view, lines);
        check_in_effect(&both, effective, &["=10"]);
        let mut sides = [(one, "10"), (other, "11")];
        sides.sort_by_key(|(path, _)| **path != single);
        let [(first, a), (second, b)] = sides;
        assert_eq!(
            refusals(&start, &format!("update {other} 11")),
            [format!(
                "cannot update `{other}`: `{first}` is `{a}` by client openconfig and `{second}` is `{b}` by client openconfig"
            )]
        );
        let moved = run(start.clone(), &[&format!("delete {one}; update {other} 11")]);
        check_view(&moved, &vlan, &[&format!("{also}=11")]);
        // A union_replace onto what is running: a path means all that its native leaves have.
        let native = "union native:/system/motd-banner \"m\"";
        let newer = run(start.clone(), &[&format!("union {other} 11; {native}")]);
        check_view(&newer, &vlan, &[&format!("{also}=11")]);
        check_in_effect(&newer, effective, &["=11"]);
        let by_native = run(
            start.clone(),
            &["union native:/interfaces/interface[name=eth0]/vlan[index=10]/vlan-id 12"],
        );
        check_view(&by_native, &vlan, &[]);
        check_in_effect(&by_native, effective, &["=12"]);
        // Another origin, with the path that the client used.
        let refused = refusals(
            &start,
            "update native:/interfaces/interface[name=eth0]/vlan[index=10]/vlan-id 12",
        );
        assert!(
            refused[0].contains(&format!("`{one}` is `10` by client openconfig")),
            "{refused:?}"
        );
        let kept = run(
            both,
            &[
                &format!("delete {one}"),
                "update native:/interfaces/interface[name=eth0]/vlan[index=10]/vlan-id 10",
            ],
        );
        check_view(&kept, &vlan, &[&format!("{also}=10")]);
    }
    let untagged = format!("{SUBS}/subinterface[index=0]/vlan/config/vlan-id");
    assert_eq!(
        refusals(&bare(), &format!("update {untagged} 10")),
        [format!(
            "cannot update `{untagged}`: subinterface 0 is the link itself, which has no tag"
        )]
    );
    let factory =
        factory_box("update native:/interfaces/interface[name=eth0]/vlan[index=10]/vlan-id 10");
    check_view(&factory, &vlan, &["/match/single-tagged/config/vlan-id=10 factory"]);
    let own = run(factory, &[&format!("update {direct} 10")]);
    check_view(&own, &vlan, &["/config/vlan-id=10"]);
    let refused = refusals(&bare(), &format!("update {direct} \"10.20\""));
    assert_eq!(
        refused,
        [
            format!("cannot update `{direct}`: `10.20` has two VLAN tags, and one is supported"),
            format!("cannot update `{single}`: a mandatory leaf is not set"),
        ]
    );
}

/// Case 21.
#[test]
fn keys_that_the_native_list_cannot_have_are_refused() {
    for (card, reason) in [
        (
            "[slot=10][speed=SPEED_40GB]",
            "the device has no entry `10`: a key has to be a uint8 within 1..9",
        ),
        (
            "[slot=0][speed=SPEED_10GB]",
            "the device has no entry `0`: a key has to be a uint8 within 1..9",
        ),
        (
            "[slot=1][speed=SPEED_UNKNOWN]",
            "`openconfig-if-ethernet:SPEED_UNKNOWN` is not a speed that a port can be configured with",
        ),
    ] {
        let path = format!("/shelf/card{card}/config/label");
        assert_eq!(
            refusals(&bare(), &format!("update {path} \"a\"")),
            [format!("cannot update `{path}`: {reason}")]
        );
        let keys: Vec<&str> = card.split(['[', ']', '=']).filter(|it| !it.is_empty()).collect();
        let entry = format!(
            "{{\"slot\":{},\"speed\":\"{}\",\"config\":{{\"label\":\"a\"}}}}",
            keys[1], keys[3]
        );
        let whole = refusals(&bare(), &format!("update /shelf {{\"card\":[{entry}]}}"));
        assert!(whole[0].contains(reason), "{whole:?}");
    }
    let native = run(bare(), &["update native:/shelf/card[speed=12345][slot=1]/label \"a\""]);
    check_in_effect(&native, "/shelf", &["/card[slot=1][speed=12345]/label=a"]);
    check_view(&native, "/shelf", &[]);
}

/// Entries of one OpenConfig list that are three native lists and a leaf.
#[test]
fn blocks_share_a_list() {
    let labels = [
        ("[speed=SPEED_100GB][slot=1]", "main", "/main-label"),
        ("[speed=SPEED_10GB][slot=1]", "fast", "/fast-card[slot=1]/label"),
        ("[speed=SPEED_100GB][slot=2]", "hundred", "/card[slot=2][speed=100000]/label"),
        ("[speed=SPEED_40GB][slot=1]", "forty", "/card[slot=1][speed=40000]/label"),
    ];
    let set =
        |card: &str, label: &str| format!("update /shelf/card{card}/config/label \"{label}\"");
    let mut all = bare();
    for (card, label, native) in labels {
        all = run(all, &[&set(card, label)]);
        let lines = lines_effective(&all);
        assert!(lines.contains(&format!("/shelf{native}={label}")), "{native}: {lines:#?}");
    }
    assert_eq!(below(&lines_view(&all, Origin::OpenConfig), "/shelf").len(), labels.len());
    for (card, _, native) in labels {
        let without = run(all.clone(), &[&format!("delete /shelf/card{card}")]);
        assert_eq!(lines_effective(&without).len(), labels.len() - 1);
        assert!(!lines_effective(&without).iter().any(|it| it.contains(native)), "{card}");
        let by_native = run(all.clone(), &[&format!("union native:/shelf{} \"n\"", native)]);
        let lines = lines_effective(&by_native);
        assert_eq!(lines.len(), labels.len(), "{native}");
        assert!(lines.contains(&format!("/shelf{native}=n")), "{native}: {lines:#?}");
        assert_eq!(
            below(&lines_view(&by_native, Origin::OpenConfig), "/shelf").len(),
            labels.len() - 1
        );
    }
}

/// A delete of all cards covers the leaf that one of them is, beside the native lists.
#[test]
fn footprints_cover_every_list_that_shares() {
    let start = run(bare(), &["update native:/system/motd-banner \"m\""]);
    let all = examine(&start, "delete /shelf/card[slot=*][speed=*]").unwrap();
    for (request, clear) in [
        ("update native:/shelf/main-label \"m\"", false),
        ("update native:/shelf/fast-card[slot=1]/label \"f\"", false),
        ("update /shelf/card[slot=2][speed=SPEED_40GB]/config/label \"c\"", false),
        ("update native:/system/motd-banner \"n\"", true),
    ] {
        let other = examine(&start, request).unwrap();
        assert_eq!(all.footprint.keeps_clear_of(&other.footprint), clear, "{request}");
    }
    let vlan = |index: u32| {
        let request = format!("update {SUBS}/subinterface[index={index}]/vlan/config/vlan-id 10");
        examine(&then(&start, &format!("update {ETH0}/config/mtu 1500")), &request).unwrap()
    };
    assert!(vlan(7).footprint.keeps_clear_of(&vlan(8).footprint));
    assert!(!vlan(7).footprint.keeps_clear_of(&vlan(7).footprint));
}

/// Each OpenConfig leaf has a row in every native list that its entry can be in, so that none is taken without an effect.
#[test]
fn every_leaf_has_a_row_wherever_it_can_be() {
    for models in [models(), list_models()] {
        let map = &models.map;
        let schema = &models.openconfig;
        let rows = map.openconfig_places();
        let nodes = |steps: &[Step]| steps.iter().map(|step| step.node).collect::<Vec<_>>();
        let ways: BTreeSet<_> = rows.iter().map(|(at, steps)| (*at, nodes(steps))).collect();
        let mut missing = Vec::new();
        for (at, anchor) in map.anchors.iter().enumerate() {
            let Some(counterpart) = &anchor.openconfig else { continue };
            // The leaves of the entry itself, down to lists; of lists, those that rows of this entry pass through.
            let mut open = vec![(counterpart.list, Vec::new())];
            while let Some((node, way)) = open.pop() {
                for child in schema.node(node).children.iter().map(|child| schema.node(*child)) {
                    let way: Vec<_> = way.iter().copied().chain([child.id]).collect();
                    let is_passed =
                        || ways.iter().any(|(it, other)| *it == at && other.starts_with(&way));
                    match &child.kind {
                        NodeKind::List { .. } if !is_passed() => {}
                        NodeKind::Leaf | NodeKind::LeafList => {
                            let is_there =
                                schema.is_list_key(child.id) || ways.contains(&(at, way));
                            // State follows when an object reports it.
                            if !is_there && child.config {
                                missing.push((
                                    full_path(&models.native, anchor.list()),
                                    full_path(schema, Some(child.id)),
                                ));
                            }
                        }
                        _ => open.push((child.id, way)),
                    }
                }
            }
        }
        assert_eq!(missing, []);
    }
}

fn full_path(schema: &Schema, node: Option<NodeId>) -> String {
    let up = |node: &NodeId| schema.node(*node).parent;
    let names = std::iter::successors(node, up).map(|node| schema.node(node).name.to_string());
    names.collect::<Vec<_>>().join(" of ")
}

#[test]
fn texts_of_maps_are_refused_with_their_line() {
    let models = schemas();
    let check = |rows: &str, want: &str| {
        let text = map_text(rows);
        let line = |number: usize| number + map_text("").lines().count();
        match map::Map::from_text(&text, &models.openconfig, &models.native) {
            Ok(_) => panic!("{rows}: it compiles"),
            Err(error) => {
                let (number, reason) = want.split_once(' ').unwrap();
                assert_eq!(error.reason, reason, "{rows}");
                assert_eq!(error.line, line(number.parse().unwrap()), "{rows}");
            }
        }
    };
    let card = "at /shelf/card[speed=*:ethernet-speed][slot=*] /shelf/card[speed=*][slot=*]\n";
    let fast = "at /shelf/card[speed=SPEED_10GB][slot=*] /shelf/fast-card[slot=*]\n";
    for (rows, want) in [
        (
            format!("{card}{card}"),
            "2 `/shelf/card[slot=*][speed=*]` has a block already, in line LINE",
        ),
        (
            format!("{card}config config/label label same\nconfig config/label label same"),
            "3 this OpenConfig leaf has a row already",
        ),
        (
            "at /shelf/card[speed=*:no][slot=*] /shelf/card[speed=*][slot=*]".to_owned(),
            "1 no codec is called `no`",
        ),
        (
            "at /shelf/card[speed=SPEED_1GB][slot=1] /shelf/fast-card[slot=*]".to_owned(),
            "1 the native key `slot` is not one of the OpenConfig list",
        ),
        (
            format!("{fast}at /shelf/card[speed=SPEED_10GB][slot=*] /shelf/card[speed=*][slot=*]"),
            "2 the native key `speed` is not one of the OpenConfig list",
        ),
        ("place no / /".to_owned(), "1 no block before this line is called `no`"),
        ("block a\nconfig x y same".to_owned(), "1 block `a` has no end"),
        ("block a\nend".to_owned(), "1 block `a` is never placed"),
        (
            "block a\nblock b".to_owned(),
            "2 `block` cannot stand in a block, and `a` has no end yet",
        ),
        (
            "block a\nend\nplace a / /\nblock a\nend".to_owned(),
            "4 line LINE has a block `a` already",
        ),
        (
            format!("{card}at /shelf/card[speed=*][slot=*] /shelf/spare-card[speed=*][slot=*]"),
            "2 entries of the OpenConfig list `card` are in two blocks",
        ),
        ("end".to_owned(), "1 `end` is not a statement"),
        (
            format!(
                "block a\nconfig config/nothing label same\nend\n{card}place a /shelf/card[speed=*:ethernet-speed][slot=*] /shelf/card[speed=*][slot=*]"
            ),
            "2 `config` has no `nothing` (in the block that line LINE places)",
        ),
        (
            "block a\nend\nplace a /shelf/card[speed=*][slot=*] /shelf/card[speed=*][slot=*]"
                .to_owned(),
            "3 `/shelf/card[slot=*][speed=*]` has no block before this line",
        ),
    ] {
        // Lines that a message names are those of the whole text.
        let base = map_text("").lines().count();
        let first = match want {
            _ if want.contains("already") => 1,
            _ => 5,
        };
        check(&rows, &want.replace("LINE", &(base + first).to_string()));
    }
}
