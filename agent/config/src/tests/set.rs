//! The rules of Set (gNMI specification 3.4), one origin at a time.

use super::*;

const ETH0: &str = "/interfaces/interface[name=eth0]";
const ADDRESSES: &str =
    "/interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]/ipv4/addresses";
const ROUTES: &str = "/network-instances/network-instance[name=DEFAULT]/protocols/protocol[identifier=STATIC][name=s]/static-routes";

// proves 1.63
#[test]
fn deletes_come_first_then_replaces_then_updates() {
    check(
        &[
            &format!("update {ETH0}/config/mtu 1500; update {ETH0}/config/description \"a\""),
            &format!(
                "update {ETH0}/config/mtu 1600; replace {ETH0}/config {{\"description\":\"b\"}}; delete {ETH0}"
            ),
        ],
        ETH0,
        &["/config/description=b", "/config/enabled=true default", "/config/mtu=1600"],
    );
}

// proves 1.64
#[test]
fn in_each_list_the_last_wins() {
    check(
        &[&format!("update {ETH0}/config/mtu 1500; update {ETH0}/config/mtu 1600")],
        &format!("{ETH0}/config/mtu"),
        &["=1600"],
    );
    check(
        &[&format!(
            "replace {ETH0}/config {{\"mtu\":1500}}; replace {ETH0}/config {{\"description\":\"b\"}}"
        )],
        ETH0,
        &["/config/description=b", "/config/enabled=true default"],
    );
}

#[test]
fn a_request_without_operations_changes_nothing() {
    let one = after(&["update /system/config/hostname \"box\""]);
    let other = one.edit(&Edit::default()).unwrap();
    assert!(changed_objects(&one, &other).is_empty());
    assert_eq!(one.layers(), other.layers());
}

// proves 1.69
#[test]
fn missing_ancestors_are_created() {
    check(
        &[&format!("update {ETH0}/config/mtu 1500")],
        ETH0,
        &["/config/enabled=true default", "/config/mtu=1500"],
    );
    let view = after(&[&format!("update {ETH0}/config/mtu 1500")]);
    let text = json_of(&view, "/interfaces/interface[name=eth0]");
    assert!(text.contains("\"name\":\"eth0\""), "{text}");
    assert!(text.contains("\"config\":{"), "{text}");
    assert_eq!(text.matches("eth0").count(), 2, "the key leaf and its copy in config: {text}");
}

// proves 1.70
#[test]
fn a_replace_removes_what_it_omits_and_defaults_come_back() {
    check(
        &[
            &format!(
                "update {ETH0}/config {{\"mtu\":1500,\"enabled\":false,\"description\":\"a\"}}"
            ),
            &format!("replace {ETH0}/config {{\"mtu\":1600}}"),
        ],
        ETH0,
        &["/config/enabled=true default", "/config/mtu=1600"],
    );
    check_effective(
        &[
            &format!("update {ETH0}/config {{\"enabled\":false}}"),
            &format!("replace {ETH0}/config {{\"mtu\":1600}}"),
        ],
        "/interfaces/interface[name=eth0]",
        &["/type=physical default", "/enabled=true oc-default", "/mtu=1586"],
    );
    check_effective(
        &[
            "update native:/interfaces/interface[name=eth0] {\"enabled\":false}",
            "replace native:/interfaces/interface[name=eth0] {\"name\":\"eth0\"}",
        ],
        "/interfaces/interface[name=eth0]",
        &["/type=physical default", "/enabled=true default"],
    );
}

// proves 1.71
#[test]
fn a_replace_of_a_collection_removes_entries_and_an_update_never_does() {
    let two = format!(
        "update {ADDRESSES} {{\"address\":[{},{}]}}",
        address("10.0.0.1", 24),
        address("10.0.0.2", 24)
    );
    let third = format!("{{\"address\":[{}]}}", address("10.0.0.3", 24));
    let line = |ip: &str| format!("/address[ip={ip}]/config/prefix-length=24");
    let want = [line("10.0.0.1"), line("10.0.0.2"), line("10.0.0.3")];
    let want: Vec<&str> = want.iter().map(String::as_str).collect();
    check(&[&two, &format!("update {ADDRESSES} {third}")], ADDRESSES, &want);
    check(&[&two, &format!("replace {ADDRESSES} {third}")], ADDRESSES, &want[2..]);
}

// proves 1.73
#[test]
fn a_replace_cannot_delete() {
    check_refused(
        &[&format!("update {ETH0}/config/mtu 1500"), &format!("replace {ETH0} {{ }}")],
        &[
            "cannot replace `/interfaces/interface[name=eth0]`: an empty value cannot replace a list entry; use a delete",
        ],
    );
    check_refused(
        &[&format!("replace {ETH0}/config/mtu null")],
        &[
            "cannot replace `/interfaces/interface[name=eth0]/config/mtu`: an empty value cannot replace a list entry; use a delete",
        ],
    );
}

// proves 1.74
#[test]
fn keys_must_be_complete() {
    check_refused(
        &["update /interfaces/interface/config/mtu 1500"],
        &["cannot update `/interfaces/interface/config/mtu`: key `name` is missing"],
    );
    check_refused(
        &[
            "replace /network-instances/network-instance[name=DEFAULT]/protocols/protocol[name=s] {\"config\":{}}",
        ],
        &[
            "cannot replace `/network-instances/network-instance[name=DEFAULT]/protocols/protocol[name=s]`: key `identifier` is missing",
        ],
    );
    check_refused(
        &["update /interfaces {\"interface\":[{\"config\":{\"mtu\":1500}}]}"],
        &["cannot update `/interfaces/interface (entry 1)`: key `name` is missing"],
    );
}

// proves 1.75
#[test]
fn keys_of_path_and_payload_must_agree() {
    for payload in [
        "{\"name\":\"eth1\",\"config\":{\"mtu\":1500}}",
        "{\"config\":{\"name\":\"eth1\",\"mtu\":1500}}",
    ] {
        let errors = refused(&[&format!("update {ETH0} {payload}")]);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains("eth1") && errors[0].contains("eth0"), "{errors:?}");
    }
    check_refused(
        &[&format!("update {ETH0}/config/name \"eth1\"")],
        &[
            "cannot update `/interfaces/interface[name=eth0]/config/name`: key `name` is `eth1` here, but the entry is `eth0`",
        ],
    );
    for operation in ["update", "replace"] {
        check_refused(
            &[&format!("{operation} {ETH0}/config {{\"name\":\"eth1\",\"mtu\":1500}}")],
            &[&format!(
                "cannot {operation} `{ETH0}/config`: key `name` is `eth1` here, but the entry is `eth0`"
            )],
        );
    }
}

// proves 1.76
#[test]
fn deletes_take_wildcards_and_incomplete_keys() {
    let two = "update /interfaces/interface[name=eth0]/config {\"mtu\":1500,\"description\":\"a\"}; \
               update /interfaces/interface[name=eth1]/config {\"mtu\":1500,\"description\":\"b\"}";
    let rest = [
        "[name=eth0]/config/enabled=true default",
        "[name=eth0]/config/mtu=1500",
        "[name=eth1]/config/enabled=true default",
        "[name=eth1]/config/mtu=1500",
    ];
    for path in [
        "/interfaces/interface[name=*]/config/description",
        "/interfaces/interface/config/description",
        "/interfaces/interface/*/description",
        "/interfaces/.../description",
    ] {
        check(&[two, &format!("delete {path}")], "/interfaces/interface", &rest);
    }
    check(&[two, "delete /interfaces/interface[name=*]"], "/", &[]);
    check_refused(
        &["update /interfaces/interface[name=*]/config/mtu 1500"],
        &[
            "cannot update `/interfaces/interface[name=*]/config/mtu`: wildcards are for deletes only",
        ],
    );
}

// proves 1.77
#[test]
fn deletes_of_missing_nodes_succeed() {
    check(&[&format!("delete {ETH0}/config/mtu; delete /system")], "/", &[]);
    check(
        &["delete /interfaces/interface[name=eth0]/subinterfaces/subinterface[index=7]"],
        "/",
        &[],
    );
}

// proves 1.78, 1.79, 1.81
#[test]
fn bad_operations_are_refused_with_their_paths() {
    for (request, want) in [
        (
            "delete /system/config/nonsense",
            "cannot delete `/system/config/nonsense`: the model has no such node",
        ),
        (
            "update /system/nonsense 1",
            "cannot update `/system/nonsense`: the model has no such node",
        ),
        (
            "update /system {\"config\":{\"nonsense\":1}}",
            "cannot update `/system/config/nonsense`: the model has no such node",
        ),
        (
            "update /system/state/hostname \"a\"",
            "cannot update `/system/state/hostname`: state cannot be written",
        ),
        (
            "delete /system/state/hostname",
            "cannot delete `/system/state/hostname`: state cannot be written",
        ),
        (
            "update /system {\"state\":{\"hostname\":\"a\"}}",
            "cannot update `/system/state`: state cannot be written",
        ),
    ] {
        check_refused(&[request], &[want]);
    }
    let errors = refused(&[&format!("update {ETH0}/config/mtu \"abc\"")]);
    assert!(errors[0].starts_with("cannot update `/interfaces/interface[name=eth0]/config/mtu`: "));
}

// proves 1.67
#[test]
fn all_invalid_operations_are_reported_and_none_is_applied() {
    let start = after(&[&format!("update {ETH0}/config/mtu 1500")]);
    let request = format!("delete {ETH0}; update /system/x 1; update {ETH0}/config/mtu 70000");
    let errors = start.edit(&edit(&request)).unwrap_err();
    assert_eq!(errors.iter().len(), 2);
    assert_eq!(errors.first().cause, EditCause::UnknownPath);
    assert_eq!(errors.first().operation, EditOperation::Update(0));
    assert_eq!(below(&lines_view(&start, Origin::OpenConfig), ETH0).len(), 2);
}

// proves 1.84
#[test]
fn a_set_of_one_origin_keeps_the_layer_of_the_other() {
    let native = "update native:/interfaces/interface[name=br0] {\"type\":\"bridge\",\"bridge\":{\"stp\":true}}";
    let check = |requests: &[&str]| {
        check(
            requests,
            "native:/interfaces/interface[name=br0]",
            &[
                "/type=bridge",
                "/enabled=true default",
                "/bridge/stp=true",
                "/bridge/vlan-filtering=false default",
                "/bridge/ageing-time=300 default",
            ],
        )
    };
    check(&[native, "replace / {}"]);
    check(&[native, "delete /"]);
    check(&[native, "replace / {\"interfaces\":{}}"]);
}

// proves 1.88
#[test]
fn root_container_and_item_forms_give_the_same() {
    let item = "{\"name\":\"eth0\",\"config\":{\"name\":\"eth0\",\"mtu\":1500}}";
    let forms = [
        format!("replace / {{\"interfaces\":{{\"interface\":[{item}]}}}}"),
        format!("replace /interfaces {{\"interface\":[{item}]}}"),
        format!("replace {ETH0} {item}"),
    ];
    let configurations: Vec<_> = forms.iter().map(|request| after(&[request])).collect();
    for other in &configurations[1..] {
        assert_eq!(configurations[0].layers(), other.layers());
    }
}

// proves 1.87
#[test]
fn references_need_no_target() {
    let routes = format!(
        "update {ROUTES}/static[prefix=10.0.0.0/8]/next-hops/next-hop[index=a] \
         {{\"interface-ref\":{{\"config\":{{\"interface\":\"eth7\",\"subinterface\":3}}}}}}"
    );
    check_effective(
        &[&routes],
        "/network-instances/network-instance[name=DEFAULT]/static[name=s]/route[prefix=10.0.0.0/8]",
        &["/next-hop[index=a]/interface=eth7", "/next-hop[index=a]/subinterface=3"],
    );
}

#[test]
fn a_lag_and_its_lacp_are_a_bond() {
    let member = |name: &str| {
        format!("update /interfaces/interface[name={name}]/ethernet/config/aggregate-id \"bond0\"")
    };
    let requests = [
        "update /lacp/interfaces/interface[name=bond0] \
         {\"config\":{\"name\":\"bond0\",\"interval\":\"FAST\",\"lacp-mode\":\"PASSIVE\",\"system-priority\":7}}"
            .to_owned(),
        "update /interfaces/interface[name=bond0] {\"config\":{\"name\":\"bond0\",\"type\":\"iana-if-type:ieee8023adLag\"},\
         \"aggregation\":{\"config\":{\"lag-type\":\"LACP\",\"min-links\":2}}}"
            .to_owned(),
        member("eth1"),
    ];
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    let configuration = after(&requests);
    let found = lines_effective(&configuration);
    for line in [
        "/lacp/interface[name=bond0]/interval=FAST",
        "/lacp/interface[name=bond0]/active=false",
        "/lacp/interface[name=bond0]/system-priority=7",
        "/interfaces/interface[name=bond0]/type=bond",
        "/interfaces/interface[name=bond0]/bond/mode=802.3ad",
        "/interfaces/interface[name=bond0]/bond/min-links=2",
        "/interfaces/interface[name=bond0]/bond/miimon=100 default",
        "/interfaces/interface[name=eth1]/aggregate=bond0",
    ] {
        assert!(found.iter().any(|it| it == line), "{line} in {found:#?}");
    }
}

#[test]
fn unsupported_values_are_refused() {
    for (request, want) in [
        (
            format!("update {ETH0}/config/mtu 80"),
            "cannot update `/interfaces/interface[name=eth0]/config/mtu`: an MTU of 80 bytes is too small: with \
             the 14 bytes of the Ethernet header it must be 82 at least",
        ),
        (
            format!("update {ETH0}/subinterfaces/subinterface[index=0]/ipv6/config/mtu 65536"),
            "cannot update `/interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]/ipv6/config/mtu`: \
             an MTU of 65536 bytes is too large: the limit is 65535",
        ),
        (
            format!("update {ETH0}/subinterfaces/subinterface[index=0]/vlan/config/vlan-id 1"),
            "cannot update `/interfaces/interface[name=eth0]/subinterfaces/subinterface[index=0]/vlan/config/vlan-id`: \
             subinterface 0 is the link itself, which has no tag",
        ),
        (
            "update /network-instances {\"network-instance\":[{\"name\":\"red\",\"config\":{\"name\":\"red\"}}]}".into(),
            "cannot update `/network-instances/network-instance[name=red]`: network instances other than DEFAULT \
             are not supported",
        ),
        (
            "update native:/network-instances/network-instance[name=red] {}".into(),
            "cannot update `/network-instances/network-instance[name=red]`: network instances other than DEFAULT \
             are not supported",
        ),
        (
            format!("update {ETH0}/config/type \"IF_ETHERNET_BAD\""),
            "",
        ),
    ] {
        let errors = refused(&[&request]);
        if !want.is_empty() {
            assert_eq!(errors[0].replace("\\/", "/"), want.replace("\\/", "/"), "{request}");
        }
    }
}

#[test]
fn an_address_needs_its_prefix_length() {
    check_refused(
        &["update native:/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1] {}"],
        &[
            "cannot update `/interfaces/interface[name=eth0]/ipv4/address[ip=10.0.0.1]/prefix-length`: a mandatory leaf is not set",
        ],
    );
    check_refused(
        &["update cli: interface eth0\n  ipv4\n    address 10.0.0.1"],
        &["cannot update `line 3: address 10.0.0.1`: a mandatory leaf is not set"],
    );
}

// proves 1.92
#[test]
fn the_root_annotation_stays_with_the_openconfig_layer() {
    let note = |text: &str| {
        format!(
            "{{\"@\":{{\"openconfig-metadata:protobuf-metadata\":\"{text}\"}},\"system\":{{\"config\":{{\"hostname\":\"a\"}}}}}}"
        )
    };
    let annotation =
        |requests: &[&str]| after(requests).layers().annotation.clone().map(|it| it.to_string());
    let first = format!("replace / {}", note("AAAA"));
    assert_eq!(annotation(&[&first]).as_deref(), Some("AAAA"));
    assert_eq!(
        annotation(&[&first, &format!("update / {}", note("BBBB"))]).as_deref(),
        Some("BBBB")
    );
    assert_eq!(
        annotation(&[&first, "update /system/config/hostname \"b\""]).as_deref(),
        Some("AAAA")
    );
    assert_eq!(annotation(&[&first, "replace / {}"]), None);
    assert_eq!(annotation(&[&first, "delete /"]), None);
    let most = "A".repeat(1_048_000_usize.div_ceil(3) * 4);
    assert_eq!(
        annotation(&[&format!("replace / {}", note(&most))]).map(|it| it.len()),
        Some(most.len())
    );
    assert_eq!(refused(&[&format!("replace / {}", note(&(most + "AAAA")))]).len(), 1);
    let below = "{\"@\":{\"openconfig-metadata:protobuf-metadata\":\"AAAA\"}}";
    assert_eq!(refused(&[&format!("update /system {below}")]).len(), 1);
}

#[test]
fn an_entry_lives_as_long_as_it_is_given_or_holds_something() {
    let exists = |requests: &[&str]| {
        let path = models().openconfig.resolve_write(&ETH0.parse().unwrap()).unwrap();
        after(requests).config_view(Origin::OpenConfig).get(&path).is_some()
    };
    let set = format!("update {ETH0}/config/mtu 1500");
    let update = format!("update {ETH0} {{\"config\":{{\"name\":\"eth0\",\"mtu\":1500}}}}");
    let delete = format!("delete {ETH0}/config/mtu");
    assert!(exists(&[&set]));
    assert!(!exists(&[&set, &delete]), "made on the way only");
    assert!(exists(&[&update, &delete]), "given as such");
    assert!(exists(&[&set, &format!("update {ETH0}/config/name \"eth0\""), &delete]));
    assert!(!exists(&[&update, &format!("delete {ETH0}")]));
    assert!(exists(&[&update, &format!("delete {ETH0}/config")]));
}

fn address(ip: &str, length: u8) -> String {
    format!("{{\"ip\":\"{ip}\",\"config\":{{\"ip\":\"{ip}\",\"prefix-length\":{length}}}}}")
}

/// The view of a subtree as plain JSON.
pub(super) fn json_of(configuration: &Configuration, path: &str) -> String {
    let target = target(path);
    let schema = configuration.models().schema(target.origin);
    let at = schema.resolve_write(&target.path).unwrap();
    let found = configuration.config_view(target.origin).get(&at).unwrap();
    let node = at.last().map_or(schema.root(), |step| step.node);
    let text = json::print(schema, node, found, json::Flavour::Plain, &|_| true);
    String::from_utf8(text.unwrap_or_else(|| b"{}".to_vec())).unwrap()
}
