//! The page of the guide with each leaf that reaches the kernel: where the kernel has it, and how a change of it is carried
//! out. `HOLDFAST_WRITE=1 cargo test -p holdfast-platform leaf_table` writes the page.

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
of the text form, and the attribute or file of the kernel. The last column says how a change is carried out:

* *in place*: the object stays.
* *with the link down*: the link is down during the change, and the dry run says so.
* *another object*: the old object goes, and another one comes. Other objects that stand on it go and come, too.
* *none*: the kernel is asked for nothing.

A test of holdfast-platform writes this page.

| native | OpenConfig | text | kernel | change |
|---|---|---|---|---|
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

/// Leaves by their path without keys: where the kernel has them, and how they change. A path below `ip` stands for both families. A path
/// below `vlan` that is not here is like the one of the port.
const LEAVES: [(&str, &str, Change); 51] = [
    ("type", "`IFLA_INFO_KIND`", Change::Recreate),
    ("enabled", "`IFF_UP`", Change::InPlace),
    ("description", "`IFLA_IFALIAS`", Change::InPlace),
    ("mtu", "`IFLA_MTU`", Change::InPlace),
    ("mac-address", "`IFLA_ADDRESS`", Change::InPlace),
    ("port-speed", "compared with what ethtool says", Change::Nothing),
    ("duplex-mode", "compared with what ethtool says", Change::Nothing),
    ("auto-negotiate", "compared with what ethtool says", Change::Nothing),
    ("master", "`IFLA_MASTER`: a bridge", Change::InPlace),
    ("aggregate", "`IFLA_MASTER`: a bond", Change::LinkDown),
    ("forwarding-viable", "the routes that leave by the link", Change::InPlace),
    ("hold-time/up", "nothing", Change::Nothing),
    ("hold-time/down", "nothing", Change::Nothing),
    ("penalty/half-life", "nothing", Change::Nothing),
    ("penalty/flap-penalty", "nothing", Change::Nothing),
    ("penalty/suppress", "nothing", Change::Nothing),
    ("penalty/reuse", "nothing", Change::Nothing),
    ("penalty/max-suppress", "nothing", Change::Nothing),
    ("subinterface/enabled", "`IFF_UP`", Change::InPlace),
    ("subinterface/description", "`IFLA_IFALIAS`", Change::InPlace),
    ("veth/peer", "`VETH_INFO_PEER`", Change::Recreate),
    ("vxlan/vni", "`IFLA_VXLAN_ID`", Change::Recreate),
    ("vxlan/local", "`IFLA_VXLAN_LOCAL`, `IFLA_VXLAN_LOCAL6`", Change::Recreate),
    ("vxlan/remote", "`IFLA_VXLAN_GROUP`, `IFLA_VXLAN_GROUP6`", Change::Recreate),
    ("vxlan/port", "`IFLA_VXLAN_PORT`", Change::Recreate),
    ("vxlan/device", "`IFLA_VXLAN_LINK`", Change::Recreate),
    ("vxlan/learning", "`IFLA_VXLAN_LEARNING`", Change::Recreate),
    ("bridge/stp", "`IFLA_BR_STP_STATE`", Change::InPlace),
    ("bridge/vlan-filtering", "`IFLA_BR_VLAN_FILTERING`", Change::InPlace),
    ("bridge/ageing-time", "`IFLA_BR_AGEING_TIME`", Change::InPlace),
    ("bond/mode", "`IFLA_BOND_MODE`", Change::Recreate),
    ("bond/min-links", "`IFLA_BOND_MIN_LINKS`", Change::InPlace),
    ("bond/miimon", "`IFLA_BOND_MIIMON`", Change::InPlace),
    ("bond/xmit-hash-policy", "`IFLA_BOND_XMIT_HASH_POLICY`", Change::InPlace),
    ("macvlan/device", "`IFLA_LINK`", Change::Recreate),
    ("macvlan/mode", "`IFLA_MACVLAN_MODE`", Change::InPlace),
    ("ipvlan/device", "`IFLA_LINK`", Change::Recreate),
    ("ipvlan/mode", "`IFLA_IPVLAN_MODE`", Change::InPlace),
    ("vlan/link-name", "`IFLA_IFNAME`", Change::Recreate),
    ("vlan/vlan-id", "`IFLA_VLAN_ID`", Change::Recreate),
    ("vlan/protocol", "`IFLA_VLAN_PROTOCOL`", Change::Recreate),
    ("ipv4/enabled", "whether the addresses are on the link", Change::InPlace),
    ("ipv6/enabled", "`disable_ipv6`", Change::InPlace),
    ("ip/mtu", "`IFLA_MTU`", Change::InPlace),
    ("ip/address/prefix-length", "`RTM_NEWADDR`: `ifa_prefixlen`", Change::Recreate),
    ("ip/address/type", "the order of `RTM_NEWADDR`", Change::Recreate),
    ("ip/neighbor/link-layer-address", "`RTM_NEWNEIGH`: `NDA_LLADDR`", Change::InPlace),
    ("interval", "`IFLA_BOND_AD_LACP_RATE`", Change::LinkDown),
    ("active", "`IFLA_BOND_AD_LACP_ACTIVE`", Change::LinkDown),
    ("system-mac", "`IFLA_BOND_AD_ACTOR_SYSTEM`", Change::InPlace),
    ("system-priority", "`IFLA_BOND_AD_ACTOR_SYS_PRIO`", Change::InPlace),
];

/// Leaves of routes, in the same form.
const ROUTE_LEAVES: [(&str, &str, Change); 6] = [
    ("type", "nothing: table main is the one instance", Change::Nothing),
    ("static/route/description", "nothing", Change::Nothing),
    ("static/route/next-hop/next-hop", "`RTM_NEWROUTE`: `RTA_GATEWAY`", Change::InPlace),
    ("static/route/next-hop/interface", "`RTM_NEWROUTE`: `RTA_OIF`", Change::InPlace),
    ("static/route/next-hop/subinterface", "`RTM_NEWROUTE`: `RTA_OIF`", Change::InPlace),
    ("static/route/next-hop/metric", "`RTM_NEWROUTE`: `RTA_PRIORITY`", Change::Recreate),
];

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

/// Where the kernel has a leaf of the settings of a link, if it is one.
fn setting(within: &str) -> Option<String> {
    let within = within.strip_prefix("vlan/").unwrap_or(within);
    let asks = |row: &&'static SettingRow| match within.split_once('/') {
        Some(("ipv4", leaf)) => row.families.contains(&Family::V4) && row.leaves.contains(&leaf),
        Some(("ipv6", leaf)) => row.families.contains(&Family::V6) && row.leaves.contains(&leaf),
        // The link asks for it.
        _ => row.leaves.is_empty() && row.name == within,
    };
    let row = LinkSysctl::ALL.iter().map(|sysctl| sysctl.row()).find(asks)?;
    let files: Vec<String> = row.files.iter().map(|file| format!("`{file}`")).collect();
    Some(files.join(", "))
}

/// Where the kernel has a leaf, and how a change of it is carried out.
fn in_kernel(shown: &str, within: &str) -> Option<(String, Change)> {
    if shown.starts_with("/network-instances/") {
        let (_, kernel, change) = ROUTE_LEAVES.iter().find(|(path, ..)| *path == within)?;
        return Some(((*kernel).to_owned(), *change));
    }
    if let Some(files) = setting(within) {
        return Some((files, Change::InPlace));
    }
    let find = |path: &str| LEAVES.iter().find(|(leaf, ..)| *leaf == path);
    let of_port = within.strip_prefix("vlan/").unwrap_or(within);
    let of_family = of_port.replacen("ipv4/", "ip/", 1).replacen("ipv6/", "ip/", 1);
    let (_, kernel, change) = [within, of_port, &of_family].into_iter().find_map(find)?;
    Some(((*kernel).to_owned(), *change))
}

fn page(models: &Models) -> String {
    let mut text = INTRODUCTION.to_owned();
    let counterparts = models.map.openconfig_paths(&models.openconfig);
    for (leaf, line) in Grammar::new(&models.native).leaves() {
        let NativePath { shown, within } = native_path(&models.native, leaf);
        if !CONTAINERS.iter().any(|container| shown.starts_with(container)) {
            continue;
        }
        let (kernel, change) =
            in_kernel(&shown, &within).unwrap_or_else(|| panic!("{shown} ({within})"));
        let paths = counterparts.get(&leaf).into_iter().flatten().map(|path| format!("`{path}`"));
        let paths = paths.collect::<Vec<_>>().join(", ");
        let change = change.words();
        let _infallible =
            writeln!(text, "| `{shown}` | {paths} | `{line}` | {kernel} | {change} |");
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
            let listed = LEAVES.iter().find(|(leaf, ..)| *leaf == path);
            let (_, _, change) = listed.unwrap_or_else(|| panic!("{path} is not in the table"));
            let expected = match param.change {
                ParamChange::InPlace => Change::InPlace,
                ParamChange::Recreate => Change::Recreate,
            };
            assert_eq!(*change, expected, "{path}");
            seen.insert(path);
        }
    }
    assert!(seen.len() > 15, "{seen:?}");
}
