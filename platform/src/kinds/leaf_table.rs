//! The page of the guide with each leaf that reaches the kernel: where the kernel has it, and how a change of it is carried
//! out. `HOLDFAST_WRITE=1 cargo test -p holdfast-platform leaf_table` writes the page.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use holdfast_config::cli::Grammar;
use holdfast_config::schema::{NodeKind, Schema};
use holdfast_config::{Models, NodeId};

use super::link::{LINK_ROWS, ParamChange};
use super::link_setting::{LinkSysctl, SettingRow};
use super::types::Family;

/// The page, from the folder of this package.
const PAGE: &str = "../packaging/guide/models/leaves.md";

/// The page without its rows.
const INTRODUCTION: &str = "\
# Leaves and the kernel

Each leaf of the native model that is about the kernel. A row has the leaves of OpenConfig that stand for it, the line
of the text form, and the attribute or file of the kernel. The last column names the test below `tests` that sets the
leaf and looks at the kernel. The column before it says how a change is carried out:

* *in place*: the object stays.
* *with the link down*: the link is down during the change, and the dry run says so.
* *another object*: the old object goes, and another one comes. Other objects that stand on it go and come, too.
* *none*: the kernel is asked for nothing.

A test of holdfast-platform writes this page.

| native | OpenConfig | text | kernel | change | tested by |
|---|---|---|---|---|---|
";

/// Containers of the native model whose leaves reach the kernel. The other ones are about the agent itself, or become files.
const CONTAINERS: [&str; 3] = ["/interfaces/", "/lacp/", "/network-instances/"];

/// How a change of a leaf is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// The object stays as it is otherwise.
    InPlace,
    /// The link is down during the change.
    LinkDown,
    /// Another object comes in the place of this one.
    Recreate,
    /// The kernel is asked for nothing.
    Nothing,
}

impl Change {
    fn words(self) -> &'static str {
        match self {
            Self::InPlace => "in place",
            Self::LinkDown => "with the link down",
            Self::Recreate => "another object",
            Self::Nothing => "none",
        }
    }
}

/// A leaf by its path without keys.
#[derive(Clone)]
struct LeafRow {
    path: &'static str,
    /// Where the kernel has it.
    kernel: Cow<'static, str>,
    change: Change,
    /// The test that sets it and looks at the kernel: a folder of the tests with a module.
    test: &'static str,
}

const fn leaf(
    path: &'static str,
    kernel: &'static str,
    change: Change,
    test: &'static str,
) -> LeafRow {
    LeafRow { path, kernel: Cow::Borrowed(kernel), change, test }
}

/// Leaves of links and what is on them. A path below `ip` stands for both families. A path below `vlan` that is not here is
/// like the one of the port.
static LEAVES: [LeafRow; 51] = [
    leaf("type", "`IFLA_INFO_KIND`", Change::Recreate, "e2e/set"),
    leaf("enabled", "`IFF_UP`", Change::InPlace, "e2e/link_dependencies"),
    leaf("description", "`IFLA_IFALIAS`", Change::InPlace, "e2e/set"),
    leaf("mtu", "`IFLA_MTU`", Change::InPlace, "e2e/given_back"),
    leaf("mac-address", "`IFLA_ADDRESS`", Change::InPlace, "e2e/given_back"),
    leaf("port-speed", "compared with what ethtool says", Change::Nothing, "e2e/ethernet"),
    leaf("duplex-mode", "compared with what ethtool says", Change::Nothing, "e2e/ethernet"),
    leaf("auto-negotiate", "compared with what ethtool says", Change::Nothing, "e2e/ethernet"),
    leaf("master", "`IFLA_MASTER`: a bridge", Change::InPlace, "e2e/scenarios"),
    leaf("aggregate", "`IFLA_MASTER`: a bond", Change::LinkDown, "lab/bonds"),
    leaf("forwarding-viable", "the routes that leave by the link", Change::InPlace, "e2e/drains"),
    leaf("hold-time/up", "nothing", Change::Nothing, "e2e/hold_time"),
    leaf("hold-time/down", "nothing", Change::Nothing, "e2e/hold_time"),
    leaf("penalty/half-life", "nothing", Change::Nothing, "e2e/hold_time"),
    leaf("penalty/flap-penalty", "nothing", Change::Nothing, "e2e/hold_time"),
    leaf("penalty/suppress", "nothing", Change::Nothing, "e2e/hold_time"),
    leaf("penalty/reuse", "nothing", Change::Nothing, "e2e/hold_time"),
    leaf("penalty/max-suppress", "nothing", Change::Nothing, "e2e/hold_time"),
    leaf("subinterface/enabled", "`IFF_UP`", Change::InPlace, "e2e/subinterfaces"),
    leaf("subinterface/description", "`IFLA_IFALIAS`", Change::InPlace, "e2e/subinterfaces"),
    leaf("veth/peer", "`VETH_INFO_PEER`", Change::Recreate, "lab/links"),
    leaf("vxlan/vni", "`IFLA_VXLAN_ID`", Change::Recreate, "lab/links"),
    leaf("vxlan/local", "`IFLA_VXLAN_LOCAL`, `IFLA_VXLAN_LOCAL6`", Change::Recreate, "lab/links"),
    leaf("vxlan/remote", "`IFLA_VXLAN_GROUP`, `IFLA_VXLAN_GROUP6`", Change::Recreate, "lab/links"),
    leaf("vxlan/port", "`IFLA_VXLAN_PORT`", Change::Recreate, "lab/links"),
    leaf("vxlan/device", "`IFLA_VXLAN_LINK`", Change::Recreate, "lab/links"),
    leaf("vxlan/learning", "`IFLA_VXLAN_LEARNING`", Change::Recreate, "lab/links"),
    leaf("bridge/stp", "`IFLA_BR_STP_STATE`", Change::InPlace, "lab/links"),
    leaf("bridge/vlan-filtering", "`IFLA_BR_VLAN_FILTERING`", Change::InPlace, "lab/links"),
    leaf("bridge/ageing-time", "`IFLA_BR_AGEING_TIME`", Change::InPlace, "lab/links"),
    leaf("bond/mode", "`IFLA_BOND_MODE`", Change::Recreate, "lab/bonds"),
    leaf("bond/min-links", "`IFLA_BOND_MIN_LINKS`", Change::InPlace, "lab/bonds"),
    leaf("bond/miimon", "`IFLA_BOND_MIIMON`", Change::InPlace, "lab/bonds"),
    leaf("bond/xmit-hash-policy", "`IFLA_BOND_XMIT_HASH_POLICY`", Change::InPlace, "lab/bonds"),
    leaf("macvlan/device", "`IFLA_LINK`", Change::Recreate, "lab/links"),
    leaf("macvlan/mode", "`IFLA_MACVLAN_MODE`", Change::InPlace, "lab/links"),
    leaf("ipvlan/device", "`IFLA_LINK`", Change::Recreate, "lab/links"),
    leaf("ipvlan/mode", "`IFLA_IPVLAN_MODE`", Change::InPlace, "lab/links"),
    leaf("vlan/link-name", "`IFLA_IFNAME`", Change::Recreate, "lab/vlans"),
    leaf("vlan/vlan-id", "`IFLA_VLAN_ID`", Change::Recreate, "lab/links"),
    leaf("vlan/protocol", "`IFLA_VLAN_PROTOCOL`", Change::Recreate, "lab/links"),
    leaf(
        "ipv4/enabled",
        "whether the addresses are on the link",
        Change::InPlace,
        "e2e/subinterfaces",
    ),
    leaf("ipv6/enabled", "`disable_ipv6`", Change::InPlace, "e2e/subinterfaces"),
    leaf("ip/mtu", "`IFLA_MTU`", Change::InPlace, "e2e/subinterfaces"),
    leaf(
        "ip/address/prefix-length",
        "`RTM_NEWADDR`: `ifa_prefixlen`",
        Change::Recreate,
        "e2e/subinterfaces",
    ),
    leaf("ip/address/type", "the order of `RTM_NEWADDR`", Change::Recreate, "e2e/subinterfaces"),
    leaf(
        "ip/neighbor/link-layer-address",
        "`RTM_NEWNEIGH`: `NDA_LLADDR`",
        Change::InPlace,
        "e2e/scenarios",
    ),
    leaf("interval", "`IFLA_BOND_AD_LACP_RATE`", Change::LinkDown, "lab/bonds"),
    leaf("active", "`IFLA_BOND_AD_LACP_ACTIVE`", Change::LinkDown, "lab/bonds"),
    leaf("system-mac", "`IFLA_BOND_AD_ACTOR_SYSTEM`", Change::InPlace, "lab/bonds"),
    leaf("system-priority", "`IFLA_BOND_AD_ACTOR_SYS_PRIO`", Change::InPlace, "lab/bonds"),
];

/// Leaves of routes.
static ROUTE_LEAVES: [LeafRow; 6] = [
    leaf("type", "nothing: table main is the one instance", Change::Nothing, "e2e/set"),
    leaf("static/route/description", "nothing", Change::Nothing, "e2e/set"),
    leaf(
        "static/route/next-hop/next-hop",
        "`RTM_NEWROUTE`: `RTA_GATEWAY`",
        Change::InPlace,
        "e2e/routes",
    ),
    leaf(
        "static/route/next-hop/interface",
        "`RTM_NEWROUTE`: `RTA_OIF`",
        Change::InPlace,
        "e2e/routes",
    ),
    leaf(
        "static/route/next-hop/subinterface",
        "`RTM_NEWROUTE`: `RTA_OIF`",
        Change::InPlace,
        "lab/vlans",
    ),
    leaf(
        "static/route/next-hop/metric",
        "`RTM_NEWROUTE`: `RTA_PRIORITY`",
        Change::Recreate,
        "e2e/foreign_routes",
    ),
];

/// Settings of links with a test of their own, by their names or leaves. `link_settings` tests the others.
const SETTING_TESTS: [(&str, &str); 2] =
    [("ignore-routes-with-linkdown", "e2e/carrier"), ("forwarding", "e2e/forwarding")];

/// A path with the names of keys, and the same without keys and without the container and list of the object.
struct NativePath {
    shown: String,
    within: String,
}

fn native_path(schema: &Schema, leaf: NodeId) -> NativePath {
    let mut nodes: Vec<NodeId> = schema.with_ancestors(leaf).collect();
    nodes.reverse();
    let mut path = NativePath { shown: String::new(), within: String::new() };
    for (depth, node) in nodes.iter().map(|node| schema.node(*node)).skip(1).enumerate() {
        path.shown.extend(["/", node.name.as_str()]);
        if let NodeKind::List { keys } = &node.kind {
            let keys = keys.iter().map(|key| format!("[{}]", schema.node(*key).name));
            path.shown.extend(keys);
        }
        // The container and the list of the object.
        if depth >= 2 {
            let slash = if path.within.is_empty() { "" } else { "/" };
            path.within.extend([slash, node.name.as_str()]);
        }
    }
    // A leaf of the container itself, for all objects in it.
    if path.within.is_empty() {
        path.within.extend(nodes.last().map(|leaf| schema.node(*leaf).name.as_str()));
    }
    path
}

/// A leaf of the settings of a link, if it is one.
fn setting(within: &str) -> Option<LeafRow> {
    let within = within.strip_prefix("vlan/").unwrap_or(within);
    let asks = |row: &&'static SettingRow| match within.split_once('/') {
        Some(("ipv4", leaf)) => row.families.contains(&Family::V4) && row.leaves.contains(&leaf),
        Some(("ipv6", leaf)) => row.families.contains(&Family::V6) && row.leaves.contains(&leaf),
        // The link asks for it.
        _ => row.leaves.is_empty() && row.name == within,
    };
    let row = LinkSysctl::ALL.iter().map(|sysctl| sysctl.row()).find(asks)?;
    let files: Vec<String> = row.files.iter().map(|file| format!("`{file}`")).collect();
    let name = within.rsplit('/').next()?;
    let own = SETTING_TESTS.iter().find(|(setting, _)| *setting == name);
    let test = own.map_or("e2e/link_settings", |(_, test)| test);
    let kernel = files.join(", ").into();
    Some(LeafRow { path: row.name, kernel, change: Change::InPlace, test })
}

/// Where the kernel has a leaf, and how a change of it is carried out and tested.
fn in_kernel(shown: &str, within: &str) -> Option<LeafRow> {
    if shown.starts_with("/network-instances/") {
        return ROUTE_LEAVES.iter().find(|row| row.path == within).cloned();
    }
    if let Some(setting) = setting(within) {
        return Some(setting);
    }
    let find = |path: &str| LEAVES.iter().find(|row| row.path == path);
    let of_port = within.strip_prefix("vlan/").unwrap_or(within);
    let of_family = of_port.replacen("ipv4/", "ip/", 1).replacen("ipv6/", "ip/", 1);
    [within, of_port, &of_family].into_iter().find_map(find).cloned()
}

/// True when a test names a leaf, by the name of one of the models.
fn is_named(test: &str, paths: &[String]) -> bool {
    let source = fs::read_to_string(format!("../tests/{test}.rs")).unwrap_or_default();
    let mut words = source.split(|it: char| !it.is_ascii_alphanumeric() && !"-_".contains(it));
    let names: Vec<&str> = paths.iter().filter_map(|path| path.rsplit('/').next()).collect();
    words.any(|word| names.contains(&word))
}

fn page(models: &Models) -> String {
    let mut text = INTRODUCTION.to_owned();
    let counterparts = models.map.openconfig_paths(&models.openconfig);
    for (leaf, line) in Grammar::new(&models.native).leaves() {
        let NativePath { shown, within } = native_path(&models.native, leaf);
        if !CONTAINERS.iter().any(|container| shown.starts_with(container)) {
            continue;
        }
        let found = in_kernel(&shown, &within).unwrap_or_else(|| panic!("{shown} ({within})"));
        let LeafRow { kernel, change, test, .. } = found;
        let mut paths: Vec<String> =
            counterparts.get(&leaf).into_iter().flatten().map(ToString::to_string).collect();
        let shown_paths: Vec<String> = paths.iter().map(|path| format!("`{path}`")).collect();
        let shown_paths = shown_paths.join(", ");
        paths.push(shown.clone());
        assert!(is_named(test, &paths), "tests/{test}.rs does not name {shown}");
        let change = change.words();
        let _infallible = writeln!(
            text,
            "| `{shown}` | {shown_paths} | `{line}` | {kernel} | {change} | {test} |"
        );
    }
    text
}

#[test]
fn the_page_of_leaves_is_what_the_code_has() {
    let page = page(&Models::load().unwrap());
    if std::env::var_os("HOLDFAST_WRITE").is_some() {
        fs::write(PAGE, &page).unwrap();
    }
    assert_eq!(fs::read_to_string(PAGE).unwrap(), page, "HOLDFAST_WRITE=1 writes {PAGE}");
}

#[test]
fn parameters_of_links_change_as_their_rows_say() {
    let mut seen = BTreeSet::new();
    for row in LINK_ROWS {
        for param in
            row.params.iter().filter(|param| !(row.name == "vlan" && param.leaf == "device"))
        {
            let path = format!("{}/{}", row.name, param.leaf);
            let listed = LEAVES.iter().find(|row| row.path == path);
            let listed = listed.unwrap_or_else(|| panic!("{path} is not in the table"));
            let expected = match param.change {
                ParamChange::InPlace => Change::InPlace,
                ParamChange::Recreate => Change::Recreate,
            };
            assert_eq!(listed.change, expected, "{path}");
            seen.insert(path);
        }
    }
    assert!(seen.len() > 15, "{seen:?}");
}
