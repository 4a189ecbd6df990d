//! OpenConfig and CLI text about the same box: agreement, conflicts, and moves between them.

use super::stack::{ETH0, check_lines, owners};
use super::union::{PORT, ports};
use super::*;

/// Case 3, by text.
// proves 2.29, 2.30, 2.36, 2.37, 2.42, 2.43
#[test]
fn text_and_openconfig_agree_or_are_refused_with_both_sides() {
    let text = "update cli: interface eth0\n  mtu 1400";
    let both = after(&[text, &format!("update {ETH0}/config/mtu 1414")]);
    assert_eq!(
        owners(&both, "/interfaces/interface[name=eth0]/mtu"),
        ["client native", "client openconfig"]
    );
    let above = "`/interfaces/interface[name=eth0]/config/mtu` is";
    let below = "`/interfaces/interface[name=eth0]/mtu` is";
    check_refused(
        &[text, &format!("update {ETH0}/config/mtu 1500")],
        &[&format!(
            "cannot update `{PORT}/config/mtu`: {below} `1400` by client native (`interface eth0 mtu 1400`) and \
             {above} `1500` by client openconfig"
        )],
    );
    check_refused(
        &[&format!("update {ETH0}/config/mtu 1500"), text],
        &[&format!(
            "cannot update `line 2: mtu 1400`: {below} `1400` by client native (`line 2: mtu 1400`) and \
             {above} `1500` by client openconfig"
        )],
    );
    let union = |mtu: usize| {
        format!(
            "union {}; union cli: ! a comment\ninterface eth0\n  mtu 1400",
            ports(&[&format!("eth0 {{\"mtu\":{mtu}}}")])
        )
    };
    after(&[&union(1414)]);
    check_refused(
        &[&union(1500)],
        &[&format!(
            "cannot union_replace `line 3: mtu 1400`: {below} `1400` by client native (`line 3: mtu 1400`) and \
             {above} `1500` by client openconfig"
        )],
    );
    let deleted = then(&both, &format!("delete {ETH0}/config/mtu"));
    assert_eq!(owners(&deleted, "/interfaces/interface[name=eth0]/mtu"), ["client native"]);
}

/// Every leaf in which the origins differ is reported.
#[test]
fn all_conflicts_are_reported() {
    let union = format!(
        "union cli: interface a\n  mtu 1400\n  description one\ninterface b\n  enabled false; union {}",
        ports(&["a {\"mtu\":1500,\"description\":\"two\"}", "b {\"enabled\":true}"])
    );
    let errors = refused(&[&union]);
    assert_eq!(errors.len(), 3, "{errors:#?}");
    for word in ["`line 2: mtu 1400`", "`line 3: description one`", "`line 5: enabled false`"] {
        assert!(errors.iter().any(|error| error.contains(word)), "{word}: {errors:#?}");
    }
}

/// The document's 5.3.4, equal values included; list keys may repeat.
// proves 2.40, 2.41
#[test]
fn union_replace_of_paths_refuses_a_leaf_in_both_origins() {
    let native = |leaf: &str| format!("union native:/interfaces/interface[name=eth0] {{{leaf}}}");
    let openconfig = format!("union {}", ports(&["eth0 {\"mtu\":1414}"]));
    for mtu in [1400, 1500] {
        check_refused(
            &[&format!("{openconfig}; {}", native(&format!("\"mtu\":{mtu}")))],
            &[&format!(
                "cannot union_replace `{PORT}/mtu`: `{PORT}/mtu` is `{mtu}` by client native and \
                 `{PORT}/config/mtu` is `1414` by client openconfig: a union_replace of paths takes a leaf in one \
                 origin only"
            )],
        );
    }
    let both =
        after(&[&format!("{openconfig}; {}", native("\"name\":\"eth0\",\"master\":\"br0\""))]);
    check_lines(
        &lines_effective(&both),
        PORT,
        &["/type=physical default", "/enabled=true oc-default", "/mtu=1400", "/master=br0"],
    );
}

/// Case 4.
// proves 2.50
#[test]
fn moving_leaves_between_origins_changes_no_object() {
    let openconfig = format!(
        "union {}",
        ports(&["eth0 {\"enabled\":true,\"mtu\":1414,\"description\":\"up\"}"])
    );
    let text = "union cli: interface eth0\n  enabled true\n  mtu 1400\n  description up";
    let native = "union native:/ {\"interfaces\":{\"interface\":[{\"name\":\"eth0\",\"enabled\":true,\"mtu\":1400,\"description\":\"up\"}]}}";
    let path = "union native:/interfaces/interface[name=eth0] {\"enabled\":true,\"mtu\":1400,\"description\":\"up\"}";
    for (one, other, owner) in [
        (text, openconfig.as_str(), "client openconfig"),
        (native, &openconfig, "client openconfig"),
        (&openconfig, text, "client native"),
        (&openconfig, native, "client native"),
        (&openconfig, path, "client native"),
        (text, path, "client native"),
    ] {
        let start = after(&[one]);
        let end = after(&[one, other]);
        assert!(changed_objects(&start, &end).is_empty(), "{one} -> {other}");
        for leaf in ["enabled", "mtu", "description"] {
            assert_eq!(owners(&end, &format!("{PORT}/{leaf}")), [owner], "{one} -> {other}");
        }
    }
    let beside = "union /system {\"config\":{\"motd-banner\":\"hi\"}}";
    let start = after(&[path]);
    let end = after(&[
        path,
        &format!(
            "{}; {beside}",
            openconfig
                .replace("union / {\"interfaces\":", "union /interfaces ")
                .replace("}]}}", "}]}")
        ),
    ]);
    assert!(!changed_objects(&start, &end).is_empty(), "OpenConfig alone begins from the factory");
}

/// Case 5, and scenario A of the document: a native-only leaf next to an OpenConfig feature.
// proves 2.16, 2.20, 2.34
#[test]
fn a_native_only_knob_beside_an_openconfig_feature() {
    let knob = "native:/interfaces/interface[name=eth0]/master \"br0\"";
    let feature = "/interfaces/interface[name=eth0] {\"config\":{\"mtu\":1500}}";
    let want = ["/type=physical default", "/enabled=true oc-default", "/mtu=1486", "/master=br0"];
    for requests in [
        vec![format!("union {knob}; union {feature}")],
        vec![format!("union {feature}; union {knob}")],
        vec![
            format!("update {knob}"),
            format!("union {feature}; union native:/system/motd-banner \"hi\""),
        ],
        vec![format!("union cli: interface eth0\n  master br0; union {feature}")],
    ] {
        let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
        check_effective(&requests, PORT, &want);
    }
    let tunnel = "union cli: interface vx0\n  type vxlan\n  vxlan\n    vni 7; union /interfaces/interface[name=vx0]/config/description \"t\"";
    check_effective(
        &[tunnel],
        "/interfaces/interface[name=vx0]",
        &[
            "/type=vxlan",
            "/enabled=true oc-default",
            "/description=t",
            "/vxlan/vni=7",
            "/vxlan/port=4789 default",
            "/vxlan/learning=true default",
        ],
    );
}

/// Scenario B of the document: one feature all in OpenConfig, another all in text.
// proves 2.31, 2.32, 2.33, 2.35, 2.48
#[test]
fn each_feature_has_the_defaults_of_its_origin() {
    let union = format!(
        "union {}; union cli: interface br0\n  type bridge\n  bridge\n    stp true",
        ports(&["eth0 {\"description\":\"port\"}"])
    );
    check_effective(
        &[&union],
        "/interfaces/interface",
        &[
            "[name=br0]/type=bridge",
            "[name=br0]/enabled=true default",
            "[name=br0]/bridge/stp=true",
            "[name=br0]/bridge/vlan-filtering=false default",
            "[name=br0]/bridge/ageing-time=300 default",
            "[name=eth0]/type=physical default",
            "[name=eth0]/enabled=true oc-default",
            "[name=eth0]/description=port",
        ],
    );
    let both = "union cli: interface eth0\n  enabled false; union /interfaces/interface[name=eth0]/config/mtu 1500";
    check_effective(&[both], &format!("{PORT}/enabled"), &["=false"]);
}

/// Example 6.3 of the document: the name of the box by text, an interface by OpenConfig, either first.
// proves 2.6, 2.8, 2.9
#[test]
fn cli_hostname_and_openconfig_interface_combine() {
    let text = "union cli: system hostname myhost";
    let interface = "union /interfaces/interface[name=Management0] {\"config\":{\"name\":\"Management0\",\"description\":\"m\"},\"name\":\"Management0\"}";
    let one = after(&[&format!("{text}; {interface}")]);
    let other = after(&[&format!("{interface}; {text}")]);
    assert_eq!(one.layers(), other.layers());
    check_lines(
        &lines_effective(&one),
        "/",
        &[
            "system/hostname=myhost",
            "interfaces/interface[name=Management0]/type=physical default",
            "interfaces/interface[name=Management0]/enabled=true oc-default",
            "interfaces/interface[name=Management0]/description=m",
        ],
    );
}
