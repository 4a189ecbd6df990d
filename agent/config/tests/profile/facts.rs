//! Each node of the compiled profile against its row: the expanded tree that libyang gives is what the
//! table says, column by column, and nothing else is there.

use std::collections::BTreeMap;

use holdfast_config::schema::types::{BuiltinType, Type};
use holdfast_config::schema::{LeafSchema, Node, NodeId, NodeKind, Schema};
use holdfast_config::value::Value;
use serde_json::json;

use crate::table::{Row, name, parent, plain, read};

/// Rows with conditions whose condition the profile leaves out, and why.
const DROPPED_WHENS: [(&str, &str); 33] = [
    ("/interfaces/interface[name]/hold-time", BOTH_DAMPERS),
    ("/system/gnmi-pathz-policies", GNSI),
    ("/system/aaa/authentication/glome/state/active-glome-key-version", GNSI),
    ("/system/aaa/authentication/glome/state/enabled", GNSI),
    ("/system/aaa/authentication/users/user[username]/state/authorized-keys-list-created-on", GNSI),
    ("/system/aaa/authentication/users/user[username]/state/authorized-keys-list-version", GNSI),
    (
        "/system/aaa/authentication/users/user[username]/state/authorized-principals-list-created-on",
        GNSI,
    ),
    (
        "/system/aaa/authentication/users/user[username]/state/authorized-principals-list-version",
        GNSI,
    ),
    ("/system/aaa/authentication/users/user[username]/state/password-created-on", GNSI),
    ("/system/aaa/authentication/users/user[username]/state/password-version", GNSI),
    ("/system/grpc-servers/grpc-server[name]/acctz", GNSI),
    ("/system/ssh-server/state/active-host-certificate-created-on", GNSI),
    ("/system/ssh-server/state/active-host-certificate-expires-on", GNSI),
    ("/system/ssh-server/state/active-host-certificate-version", GNSI),
    ("/system/ssh-server/state/active-host-key-created-on", GNSI),
    ("/system/ssh-server/state/active-host-key-version", GNSI),
    ("/system/ssh-server/state/active-trusted-user-ca-keys-created-on", GNSI),
    ("/system/ssh-server/state/active-trusted-user-ca-keys-version", GNSI),
    ("/system/grpc-servers/grpc-server[name]/gnmi-pathz-policy-counters", GNSI),
    ("/system/grpc-servers/grpc-server[name]/state/gnmi-pathz-policy-created-on", GNSI),
    ("/system/grpc-servers/grpc-server[name]/state/gnmi-pathz-policy-version", GNSI),
    ("/system/grpc-servers/grpc-server[name]/authz-policy-counters", GNSI),
    ("/system/grpc-servers/grpc-server[name]/state/authentication-policy-created-on", TLS_ALWAYS),
    ("/system/grpc-servers/grpc-server[name]/state/authentication-policy-version", TLS_ALWAYS),
    ("/system/grpc-servers/grpc-server[name]/state/ca-trust-bundle-created-on", TLS_ALWAYS),
    ("/system/grpc-servers/grpc-server[name]/state/ca-trust-bundle-version", TLS_ALWAYS),
    ("/system/grpc-servers/grpc-server[name]/state/certificate-created-on", TLS_ALWAYS),
    ("/system/grpc-servers/grpc-server[name]/state/certificate-expires-on", TLS_ALWAYS),
    (
        "/system/grpc-servers/grpc-server[name]/state/certificate-revocation-list-bundle-created-on",
        TLS_ALWAYS,
    ),
    (
        "/system/grpc-servers/grpc-server[name]/state/certificate-revocation-list-bundle-version",
        TLS_ALWAYS,
    ),
    ("/system/grpc-servers/grpc-server[name]/state/certificate-version", TLS_ALWAYS),
    ("/system/grpc-servers/grpc-server[name]/state/counters", TLS_ALWAYS),
    ("/system/grpc-servers/grpc-server[name]/state/ssl-profile-id", TLS_ALWAYS),
];

const BOTH_DAMPERS: &str = "leaves hold times out beside a penalty; here a link may have both";
const TLS_ALWAYS: &str = "they ask for transport security, without which there is no server";
const GNSI: &str = "depends on the services that are asked for, which is not configuration here: all of them are there";

#[test]
fn each_node_is_what_its_row_says() {
    let schema = Schema::openconfig().unwrap();
    let rows: BTreeMap<String, Row> =
        read("nodes.tsv").into_iter().map(|r| (r["path"].clone(), r)).collect();
    for node in schema.nodes().iter().filter(|n| n.kind != NodeKind::Root) {
        let path = keyed_path(&schema, node.id);
        let row = rows.get(&path).unwrap_or_else(|| panic!("{path} has no row"));
        check_node(&schema, node, row);
    }
    assert_eq!(schema.nodes().len() - 1, rows.len(), "a row has no node");
}

#[test]
fn each_condition_is_written_or_dropped_on_purpose() {
    for row in read("nodes.tsv") {
        let dropped = DROPPED_WHENS.iter().any(|(path, _)| *path == row["path"]);
        let has_one = row["when_count"] != "0";
        assert_eq!(!row["when"].is_empty() || dropped, has_one, "{}", row["path"]);
    }
}

#[test]
fn each_condition_is_understood() {
    let schema = Schema::openconfig().unwrap();
    for node in schema.nodes() {
        assert!(node.whens.iter().all(|w| w.test.is_some()), "{}: {:?}", node.name, node.whens);
    }
}

#[test]
fn each_configured_leaf_has_a_state_leaf() {
    let rows = read("nodes.tsv");
    for row in rows.iter().filter(|r| r["kind"].starts_with("leaf")) {
        if let Some(above) = parent(&row["path"]).strip_suffix("/config") {
            let mirror = format!("{above}/state/{}", name(&row["path"]));
            assert!(rows.iter().any(|r| r["path"] == mirror), "{mirror} is missing");
        }
    }
}

#[test]
fn each_identity_that_fits_is_in_the_table() {
    let schema = Schema::openconfig().unwrap();
    let identities: Vec<_> = read("identities.tsv")
        .iter()
        .map(|r| format!("{}:{}", r["module"], r["identity"]))
        .collect();
    for leaf in schema.nodes().iter().filter_map(|n| n.leaf.as_ref()) {
        if let BuiltinType::Identity(fitting) = &leaf.ty.base {
            assert!(!fitting.is_empty());
            assert!(fitting.iter().all(|i| identities.contains(&i.qualified.to_string())));
        }
    }
}

/// The data path with the keys of each list in brackets, as the tables write it.
fn keyed_path(schema: &Schema, id: NodeId) -> String {
    let node = schema.node(id);
    let Some(parent) = node.parent else { return String::new() };
    let keys = match &node.kind {
        NodeKind::List { keys } => {
            keys.iter().map(|k| format!("[{}]", schema.node(*k).name)).collect()
        }
        _ => String::new(),
    };
    format!("{}/{}{keys}", keyed_path(schema, parent), node.name)
}

fn check_node(schema: &Schema, node: &Node, row: &Row) {
    let path = &row["path"];
    let same = |what: &str, is: &str| assert_eq!(is, row[what], "{what} of {path}");
    same("module", &schema.module(node.module).name);
    same("config", if node.config { "true" } else { "false" });
    same("kind", kind(node));
    same(
        "presence",
        if node.kind == (NodeKind::Container { presence: true }) { "true" } else { "" },
    );
    // The order of state is the server's (RFC 7950 7.7.7): libyang calls that the user's.
    if node.config && matches!(node.kind, NodeKind::List { .. } | NodeKind::LeafList) {
        same("ordered_by", if node.user_ordered { "user" } else { "system" });
    }
    let extensions = [
        (node.on_change, "telemetry-on-change"),
        (node.atomic, "telemetry-atomic"),
        (node.hashed, "openconfig-hashed-value"),
    ];
    let names: Vec<_> = extensions.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    same("extensions", &names.join(" "));
    assert_eq!(node.polled, row["polled"] == "true", "polled of {path}");
    if let Some(leaf) = &node.leaf {
        check_leaf(schema, leaf, row);
    }
}

fn kind(node: &Node) -> &'static str {
    match node.kind {
        NodeKind::Root => "root",
        NodeKind::Container { .. } => "container",
        NodeKind::List { .. } => "list",
        NodeKind::Leaf => "leaf",
        NodeKind::LeafList => "leaf-list",
    }
}

fn check_leaf(schema: &Schema, leaf: &LeafSchema, row: &Row) {
    let path = &row["path"];
    assert_eq!(leaf.mandatory, row["mandatory"] == "true", "mandatory of {path}");
    assert_eq!(leaf.units.as_deref().unwrap_or_default(), row["units"], "units of {path}");
    let default = match &leaf.default {
        Some(Value::Identity(name)) => name.to_string(),
        Some(Value::List(values)) => {
            values.iter().map(Value::to_string).collect::<Vec<_>>().join("|")
        }
        Some(value) => value.to_string(),
        None => String::new(),
    };
    assert_eq!(default, row["default"], "default of {path}");
    let want: serde_json::Value = serde_json::from_str(&row["type_spec"]).unwrap();
    if let Some(target) = leaf.leafref {
        assert_eq!(want["base"], "leafref", "type of {path}");
        assert_eq!(keyed_path(schema, target), want["target"], "target of {path}");
        return;
    }
    assert_eq!(spec(&leaf.ty, leaf), with_all_bases(facts_only(&want)), "type of {path}");
}

/// The table's description of a type, without details that the compiled schema drops: names of typedefs, and the
/// second form of patterns.
fn facts_only(spec: &serde_json::Value) -> serde_json::Value {
    let mut facts = json!({});
    for (key, value) in spec.as_object().unwrap() {
        match key.as_str() {
            "members" => {
                facts[key] =
                    value.as_array().unwrap().iter().map(facts_only).flat_map(members).collect()
            }
            "typedef" | "posix_patterns" => {}
            _ => facts[key] = value.clone(),
        }
    }
    facts
}

/// The description of a union whose identityrefs have the bases of all of them, which the compiled schema keeps together.
fn with_all_bases(mut spec: serde_json::Value) -> serde_json::Value {
    let members = spec.get_mut("members").and_then(serde_json::Value::as_array_mut);
    let Some(members) = members else { return spec };
    let of_member = |member: &serde_json::Value| member["bases"].as_array().cloned();
    let bases: Vec<_> = members.iter().filter_map(of_member).flatten().collect();
    for member in members.iter_mut().filter(|member| member["base"] == "identityref") {
        member["bases"] = bases.clone().into();
    }
    spec
}

/// Flattens a union within a union into its members, as libyang does.
fn members(spec: serde_json::Value) -> Vec<serde_json::Value> {
    match spec["members"].as_array() {
        Some(members) => members.clone(),
        None => vec![spec],
    }
}

/// A compiled type in the form of the table.
fn spec(ty: &Type, leaf: &LeafSchema) -> serde_json::Value {
    match &ty.base {
        BuiltinType::Bool => json!({"base": "boolean"}),
        BuiltinType::Empty => json!({"base": "empty"}),
        BuiltinType::Int { bits, ranges } => {
            let whole = (i64::MIN >> (64 - bits), i64::MAX >> (64 - bits));
            restricted(format!("int{bits}"), "range", ranges.as_ref(), whole)
        }
        BuiltinType::Uint { bits, ranges } => restricted(
            format!("uint{bits}"),
            "range",
            ranges.as_ref(),
            (0, u64::MAX >> (64 - bits)),
        ),
        BuiltinType::Decimal { scale, .. } => {
            json!({"base": "decimal64", "fraction_digits": scale})
        }
        BuiltinType::Str { lengths, patterns } => {
            let mut spec = restricted("string".into(), "length", lengths.as_ref(), (0, u64::MAX));
            let texts = |inverted| {
                patterns.iter().filter(move |p| p.inverted == inverted).map(|p| p.xsd.to_string())
            };
            for (name, inverted) in [("patterns", false), ("inverted_patterns", true)] {
                let texts: Vec<_> = texts(inverted).collect();
                if !texts.is_empty() {
                    spec[name] = json!(texts);
                }
            }
            spec
        }
        BuiltinType::Binary { lengths } => {
            restricted("binary".into(), "length", lengths.as_ref(), (0, u64::MAX))
        }
        BuiltinType::Enum(members) => {
            let mut spec = json!({"base": "enumeration"});
            spec["enums"] = members.iter().map(|m| json!(m.name.as_str())).collect();
            if members.iter().enumerate().any(|(i, m)| m.value != i32::try_from(i).unwrap()) {
                spec["values"] = members.iter().map(|m| json!(m.value)).collect();
            }
            spec
        }
        BuiltinType::Identity(_) => {
            let bases: Vec<_> = leaf.identity_bases.iter().map(|b| b.to_string()).collect();
            json!({"base": "identityref", "bases": bases})
        }
        BuiltinType::Bits(names) => {
            json!({"base": "bits", "bits": names.iter().map(|n| n.as_str()).collect::<Vec<_>>()})
        }
        BuiltinType::Union(members) => {
            json!({"base": "union", "members": members.iter().map(|m| spec(m, leaf)).collect::<Vec<_>>()})
        }
    }
}

fn restricted<T: PartialEq + serde::Serialize + Copy>(
    base: String,
    what: &str,
    ranges: &[(T, T)],
    whole: (T, T),
) -> serde_json::Value {
    let mut spec = json!({"base": base});
    if ranges != [whole] {
        spec[what] = json!(ranges);
    }
    spec
}

#[test]
fn paths_lose_their_keys_for_schemas() {
    assert_eq!(plain("/a/b[c][d]/e"), "/a/b/e");
}
