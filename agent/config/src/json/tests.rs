//! Tables of a target, a document and the result.

use super::*;
use crate::path::Path;
use crate::schema::{NodeId, Schema};
use crate::tree::{Branch, NodeRef};

const INTERFACE: &str = "/interfaces/interface[name=eth0]";

#[test]
fn documents_are_read_and_printed_alike() {
    let whole = r#"{"openconfig-interfaces:interfaces":{"interface":[{"name":"eth0","config":{"enabled":true,"mtu":1500,"name":"eth0","type":"iana-if-type:ethernetCsmacd"},"openconfig-if-ethernet:ethernet":{"config":{"mac-address":"02:00:00:00:00:01"}}}]}}"#;
    check_same(Flavour::Ietf, "/", whole);
    let plain = r#"{"interfaces":{"interface":[{"name":"eth0","config":{"enabled":true,"mtu":1500,"name":"eth0","type":"ethernetCsmacd"},"ethernet":{"config":{"mac-address":"02:00:00:00:00:01"}}}]}}"#;
    check_same(Flavour::Plain, "/", plain);
    check_same(
        Flavour::Plain,
        INTERFACE,
        r#"{"name":"eth0","config":{"description":"a\n\"b\" \\"}}"#,
    );
    check_same(Flavour::Ietf, "/interfaces/interface[name=eth0]/config/mtu", "1500");
    check_same(Flavour::Plain, "/system/config/hostname", r#""box""#);
}

// proves 1.37
#[test]
fn flavours_are_not_mixed() {
    let bare = "`/interfaces`: the name lacks its module (RFC 7951): write `openconfig-interfaces:interfaces`";
    check(Flavour::Ietf, "/", r#"{"interfaces":{}}"#, bare);
    check(Flavour::Plain, "/", r#"{"interfaces":{}}"#, "{}");
    check(Flavour::Plain, "/", r#"{"openconfig-interfaces:interfaces":{}}"#, "{}");
    let ethernet = format!(
        "`{INTERFACE}/ethernet`: the name lacks its module (RFC 7951): write `openconfig-if-ethernet:ethernet`"
    );
    check(
        Flavour::Ietf,
        "/interfaces",
        r#"{"interface":[{"name":"eth0","ethernet":{}}]}"#,
        &ethernet,
    );
    // Counters are state: 64-bit numbers.
    let counter = "/interfaces/interface[name=eth0]/state/counters/in-octets";
    check(Flavour::Ietf, counter, "\"7\"", "\"7\"");
    check(
        Flavour::Ietf,
        counter,
        "7",
        "`/interfaces/interface[name=eth0]/state/counters/in-octets`: `7` is not a uint64 within \
         0..18446744073709551615 as RFC 7951 writes it: as a string",
    );
    check(Flavour::Plain, counter, "7", "7");
    check(Flavour::Plain, counter, "18446744073709551615", "18446744073709551615");
}

#[test]
fn faults_name_the_path_and_the_reason() {
    for (target, text, want) in [
        (
            "/interfaces",
            r#"{"interface":[{"config":{}}]}"#,
            "`/interfaces/interface (entry 1)`: key `name` is missing",
        ),
        (
            "/interfaces",
            r#"{"interface":[{"name":"a"},{"name":"a"}]}"#,
            "`/interfaces/interface[name=a]`: the node is given twice",
        ),
        (
            "/interfaces",
            r#"{"interface":[{"name":"a","config":{"mtu":1,"mtu":1}}]}"#,
            "`/interfaces/interface[name=a]/config/mtu`: the node is given twice",
        ),
        (
            "/interfaces",
            r#"{"interface":[{"name":"a","config":{"mtu":"abc"}}]}"#,
            "`/interfaces/interface[name=a]/config/mtu`: the string \"abc\" is not a uint16 within 0..65535",
        ),
        (
            "/interfaces",
            r#"{"interface":[{"name":"a","config":{"mtu":70000}}]}"#,
            "`/interfaces/interface[name=a]/config/mtu`: `70000` is not a uint16 within 0..65535",
        ),
        (
            INTERFACE,
            r#"{"config":{"type":"bogus"}}"#,
            "`/interfaces/interface[name=eth0]/config/type`: `bogus` is not one of iana-interface-type, bridge, ethernetCsmacd, ieee8023adLag, l2vlan, other, \
             propVirtual, softwareLoopback, tunnel",
        ),
        (
            INTERFACE,
            r#"{"name":"eth1"}"#,
            "`/interfaces/interface[name=eth0]/name`: key `name` is `eth1` in the payload, but `eth0` in the path",
        ),
        (
            INTERFACE,
            r#"{"config":{"name":"eth1"}}"#,
            "`/interfaces/interface[name=eth0]`: key `name` is `eth1` in the payload, but `eth0` in the path",
        ),
        (
            "/interfaces",
            r#"{"interface":[{"name":"a","config":{"name":"b"}}]}"#,
            "`/interfaces/interface[name=a]`: key `name` is `b` in the payload, but `a` in the path",
        ),
        (
            INTERFACE,
            r#"{"config":{"bogus":1}}"#,
            "`/interfaces/interface[name=eth0]/config/bogus`: the model has no such node",
        ),
        (
            INTERFACE,
            r#"{"config":{"mtu":null}}"#,
            "`/interfaces/interface[name=eth0]/config/mtu`: null is not a value; use a delete to remove a node",
        ),
        (
            INTERFACE,
            r#"{"config":7}"#,
            "`/interfaces/interface[name=eth0]/config`: an object is expected here",
        ),
        (
            "/interfaces",
            r#"{"interface":{}}"#,
            "`/interfaces/interface`: an array of objects is expected here",
        ),
        (
            INTERFACE,
            r#"{"config":{"mtu":[1]}}"#,
            "`/interfaces/interface[name=eth0]/config/mtu`: one value is expected here",
        ),
        (
            INTERFACE,
            r#"{"@":{}}"#,
            "`/interfaces/interface[name=eth0]/@`: annotations are kept at the root only",
        ),
        (
            "/",
            "{",
            "`/`: the value is not a JSON document: EOF while parsing an object at line 1 column 1",
        ),
        (
            "/",
            "{} x",
            "`/`: the value is not a JSON document: trailing characters at line 1 column 4",
        ),
    ] {
        check(Flavour::Plain, target, text, want);
    }
}

#[test]
fn state_is_refused_when_writing() {
    let schema = Schema::openconfig().unwrap();
    let target = schema.resolve_write(&INTERFACE.parse().unwrap()).unwrap();
    let error =
        parse(&schema, &target, br#"{"state":{"mtu":1}}"#, Flavour::Plain, true, ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "`/interfaces/interface[name=eth0]/state`: state cannot be written"
    );
    assert!(!error.is_unknown());
}

#[test]
fn annotations_of_the_root_are_collected() {
    let schema = Schema::openconfig().unwrap();
    let text = br#"{"@":{"openconfig-metadata:protobuf-metadata":"YWJj"}}"#;
    let document = parse(&schema, &Default::default(), text, Flavour::Ietf, true, ()).unwrap();
    let annotations = document.annotations.unwrap();
    assert_eq!(annotations["openconfig-metadata:protobuf-metadata"], "YWJj");
}

// proves 1.38
#[test]
fn a_leaf_is_a_bare_value_and_all_else_an_object_or_array() {
    check_same(Flavour::Ietf, "/interfaces/interface[name=eth0]/config/mtu", "10042");
    check_same(Flavour::Ietf, "/interfaces/interface[name=eth0]/config/description", "\"x\"");
    check(
        Flavour::Ietf,
        "/interfaces/interface[name=eth0]/config/description",
        "x",
        "`/interfaces/interface[name=eth0]/config/description`: the value is not a JSON document: expected value at line 1 column 1",
    );
    check_same(Flavour::Plain, "/interfaces/interface[name=eth0]/config", r#"{"mtu":1}"#);
    check_same(Flavour::Plain, "/interfaces", r#"{"interface":[{"name":"a"}]}"#);
}

#[test]
fn texts_of_one_meaning_become_one_value() {
    let entry = r#"{"subinterfaces":{"subinterface":[{"index":0,"ipv6":{"addresses":{"address":[{"ip":"2001:DB8:0::1","config":{"ip":"2001:db8::1","prefix-length":64}}]}}}]}}"#;
    let want = r#"{"name":"eth0","subinterfaces":{"subinterface":[{"index":0,"ipv6":{"addresses":{"address":[{"ip":"2001:db8::1","config":{"ip":"2001:db8::1","prefix-length":64}}]}}}]}}"#;
    check(Flavour::Plain, INTERFACE, entry, want);
}

#[test]
fn a_filter_keeps_the_keys_of_what_it_shows() {
    let schema = Schema::openconfig().unwrap();
    let text = br#"{"interfaces":{"interface":[{"name":"a","config":{"mtu":1},"state":{"mtu":2}},{"name":"b","config":{}}]}}"#;
    let DocumentContent::Branch(root) = read(&schema, "/", text, Flavour::Plain).unwrap() else {
        panic!()
    };
    let root = std::sync::Arc::new(root);
    let print = |filter: NodeFilter<'_>| {
        let out = print(&schema, schema.root(), NodeRef::Branch(&root), Flavour::Plain, filter)
            .unwrap_or_default();
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        print(&|n| !n.config),
        r#"{"interfaces":{"interface":[{"name":"a","state":{"mtu":2}}]}}"#
    );
    assert_eq!(
        print(&|n| n.config),
        r#"{"interfaces":{"interface":[{"name":"a","config":{"mtu":1}},{"name":"b"}]}}"#
    );
    assert_eq!(print(&|_| false), "");
}

#[test]
fn a_large_document_is_read_like_a_small_one() {
    // Over a thousand entries, of a size at which lists are split.
    let entry = |number: usize, mtu: &str| {
        let description = "x".repeat(200);
        format!(
            r#"{{"name":"eth{number:04}","config":{{"description":"{description}","mtu":{mtu},"name":"eth{number:04}"}}}}"#
        )
    };
    let document = |wrong: Option<(usize, String)>| {
        let mut entries: Vec<String> = (0..1500).map(|number| entry(number, "1500")).collect();
        if let Some((at, text)) = wrong {
            entries[at] = text;
        }
        format!(r#"{{"interfaces":{{"interface":[{}]}}}}"#, entries.join(","))
    };
    let good = document(None);
    assert!(good.len() > 256 << 10);
    check_same(Flavour::Plain, "/", &good);
    let mtu = "`/interfaces/interface[name=eth1200]/config/mtu`: ";
    for (at, text, want) in [
        (1200, entry(1200, "true"), format!("{mtu}`true` is not a uint16 within 0..65535")),
        (1200, entry(1200, "null"), format!("{mtu}null is not a value; use a delete to remove a node")),
        (1200, entry(7, "1"), "`/interfaces/interface[name=eth0007]`: the node is given twice".to_owned()),
        (0, "[]".to_owned(), "`/interfaces/interface (entry 1)`: an object is expected here".to_owned()),
        (0, "{,}".to_owned(), "`/interfaces/interface (entry 1)`: the value is not a JSON document: key must be a string at line 1 column 30".to_owned()),
    ] {
        check(Flavour::Plain, "/", &document(Some((at, text))), &want);
    }
}

fn read(
    schema: &Schema,
    target: &str,
    text: &[u8],
    flavour: Flavour,
) -> Result<DocumentContent<()>, JsonError> {
    let target = schema.resolve_write(&target.parse::<Path>().unwrap()).unwrap();
    parse(schema, &target, text, flavour, false, ()).map(|document| document.content)
}

#[track_caller]
fn check_same(flavour: Flavour, target: &str, text: &str) {
    check(flavour, target, text, text);
}

/// `want` is the document printed again, or the message.
#[track_caller]
fn check(flavour: Flavour, target: &str, text: &str, want: &str) {
    let schema = Schema::openconfig().unwrap();
    let node = schema
        .resolve_write(&target.parse::<Path>().unwrap())
        .unwrap()
        .last()
        .map_or(schema.root(), |s| s.node);
    let got = match read(&schema, target, text.as_bytes(), flavour) {
        Ok(content) => print_parsed(&schema, node, content, flavour),
        Err(error) => error.to_string(),
    };
    assert_eq!(got, want);
}

fn print_parsed(
    schema: &Schema,
    node: NodeId,
    content: DocumentContent<()>,
    flavour: Flavour,
) -> String {
    let out = match content {
        DocumentContent::Leaf(value) => Some(print_value(schema, node, &value, flavour)),
        DocumentContent::Branch(branch) => {
            let branch: std::sync::Arc<Branch<()>> = branch.into();
            print(schema, node, NodeRef::Branch(&branch), flavour, &|_| true)
        }
        DocumentContent::List(list) => {
            print(schema, node, NodeRef::List(&list), flavour, &|_| true)
        }
    };
    String::from_utf8(out.unwrap_or_else(|| b"{}".to_vec())).unwrap()
}
