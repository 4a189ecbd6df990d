//! Settings of a link and family that the kernel has as sysctls: each is a kind of values of its own.

use std::io;

use holdfast_config::{NodeId, Schema, Value};
use holdfast_scheduler::{Cascade, Dependency, Descriptor, Effect, Key, KindId, Segment};
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, Inet6DevConf, InetDevConf, LinkAttribute, LinkMessage,
};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::codec::{EncodeError, Op, Request, Requests};
use super::entry::{self, Entry};
use super::link;
use super::links::LinkIndex;
use super::native::{Bind, ForLinks, InterfaceNodes, ModelError, NativeKind, ValueEntry, find};
use super::reading::{ClassList, ClassRow, Query, RTM_NEWNETCONF, Read, first_text};
use super::row::{Encode, Kind, PreImageForm, PreImageRow};
use super::state::{Leaves, Planes, StateEntry, enum_value};
use super::types::Family;
use crate::transport_id;

/// Whether addresses come from advertisements of routers.
pub const AUTOCONF: KindId = KindId(1);

/// Probes for duplicates of an address. An address that comes later is probed for that often.
pub const DAD_TRANSMITS: KindId = KindId(4);

/// Forwarding of one family on a link.
pub const FORWARDING: KindId = KindId(14);

/// Whether one family leaves out next hops over a link without a carrier.
pub const IGNORE_LINKDOWN: KindId = KindId(18);

/// Whether packets are dropped whose source is not reached over the link that they came by.
pub const REVERSE_PATH: KindId = KindId(23);

/// Whether ARP is answered for other hosts.
pub const PROXY_ARP: KindId = KindId(24);

/// A setting of a link and family, as the kernel names it below `/proc/sys/net/FAMILY/conf/LINK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LinkSysctl {
    /// Packets that arrive here are forwarded.
    Forwarding,
    /// Next hops over this link are left out while it has no carrier.
    IgnoreRoutesWithLinkdown,
    /// Packets are dropped whose source is not reached over the link that they came by (RFC 3704).
    ReversePath,
    /// ARP is answered for hosts elsewhere (RFC 1027), and for hosts behind this link.
    ProxyArp,
    /// Probes for duplicates of an address.
    DadTransmits,
    /// Addresses come from advertisements of routers (RFC 4862), also while the box is one.
    Autoconf,
}

/// Contents of the files of a setting.
pub type FileValues = Vec<u32>;

/// The row of a setting.
#[derive(Debug)]
pub struct SettingRow {
    /// Kind of its values.
    pub kind: KindId,
    /// Name of the kind, as shown to users.
    pub name: &'static str,
    /// Kind of its rows in the database.
    pub tag: &'static str,
    /// Families that have it.
    pub families: &'static [Family],
    /// Names of its files, in the order in which they are written.
    pub files: &'static [&'static str],
    /// Attribute of `RTM_NEWNETCONF` with the first file. A setting without one changes without an announcement.
    pub netconf: Option<u16>,
    /// True where the kernel goes by the largest of the values of the link and of `all`.
    pub has_least: bool,
    /// Contents of the files of a link for which nobody has set it.
    pub without_us: &'static [u32],
    /// Leaves below the family that ask for it; none for a setting that the link asks for.
    pub(super) leaves: &'static [&'static str],
    /// The files, by the values of the leaves.
    files_for: fn(&[Option<&Value>]) -> Option<FileValues>,
    /// Leaves that show it, below the state of the link and after the name of the family.
    states: &'static [&'static str],
    /// Values of these leaves; `None` for one that has no value.
    shown: fn(&[u32]) -> Vec<Option<Value>>,
    /// The contents of its files in a message about the link. `None` where it says nothing of the family.
    listed: fn(&LinkMessage) -> Option<FileValues>,
}

const BOTH: &[Family] = &[Family::V4, Family::V6];

/// All settings, in the order of [`LinkSysctl`].
static SETTING_ROWS: [SettingRow; 6] = [
    SettingRow {
        kind: FORWARDING,
        name: "forwarding",
        tag: "forwarding",
        families: BOTH,
        files: &["forwarding"],
        netconf: Some(2), // `NETCONFA_FORWARDING`
        has_least: false,
        without_us: &[0],
        leaves: &["forwarding"],
        files_for: |leaves| Some(vec![bool_of(leaves[0])?.into()]),
        states: &["forwarding"],
        shown: show_switch,
        listed: |_| None,
    },
    SettingRow {
        kind: IGNORE_LINKDOWN,
        name: "ignore-routes-with-linkdown",
        tag: "ignore-linkdown",
        families: BOTH,
        files: &["ignore_routes_with_linkdown"],
        netconf: Some(6), // `NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN`
        has_least: false,
        without_us: &[0],
        leaves: &[],
        files_for: |_| None,
        states: &["ignore-routes-with-linkdown"],
        shown: show_switch,
        listed: |_| None,
    },
    SettingRow {
        kind: REVERSE_PATH,
        name: "urpf",
        tag: "urpf",
        families: &[Family::V4],
        files: &["rp_filter"],
        netconf: Some(3), // `NETCONFA_RP_FILTER`
        has_least: true,
        without_us: &[0],
        leaves: &["urpf/enabled", "urpf/mode"],
        files_for: |leaves| {
            let mode = match (bool_of(leaves[0])?, word_of(leaves[1])) {
                (false, _) => 0,
                (true, Some("LOOSE")) => 2,
                (true, _) => 1,
            };
            Some(vec![mode])
        },
        states: &["urpf-enabled", "urpf-mode"],
        shown: |values| {
            let mode = match values[0] {
                0 => None,
                1 => Some("STRICT"),
                _ => Some("LOOSE"),
            };
            vec![Some(Value::Bool(mode.is_some())), mode.map(enum_value)]
        },
        listed: |message| Some(vec![number(inet(message)?.rp_filter)?]),
    },
    SettingRow {
        kind: PROXY_ARP,
        name: "proxy-arp",
        tag: "proxy-arp",
        families: &[Family::V4],
        files: &["proxy_arp", "proxy_arp_pvlan"],
        netconf: Some(5), // `NETCONFA_PROXY_NEIGH`
        has_least: false,
        without_us: &[0, 0],
        leaves: &["proxy-arp"],
        files_for: |leaves| {
            Some(match word_of(leaves[0])? {
                "ALL" => vec![1, 1],
                "REMOTE_ONLY" => vec![1, 0],
                _ => vec![0, 0],
            })
        },
        states: &["proxy-arp"],
        shown: |values| {
            let mode = match values {
                [0, ..] => "DISABLE",
                [_, 0] => "REMOTE_ONLY",
                _ => "ALL",
            };
            vec![Some(enum_value(mode))]
        },
        listed: |message| {
            let conf = inet(message)?;
            Some(vec![number(conf.proxy_arp)?, number(conf.proxy_arp_pvlan)?])
        },
    },
    SettingRow {
        kind: DAD_TRANSMITS,
        name: "dad-transmits",
        tag: "dad-transmits",
        families: &[Family::V6],
        files: &["dad_transmits"],
        netconf: None,
        has_least: false,
        without_us: &[1],
        leaves: &["dad-transmits"],
        files_for: |leaves| Some(vec![entry::number(leaves[0]?)?]),
        states: &["dad-transmits"],
        shown: |values| vec![Some(Value::Uint(values[0].into()))],
        listed: |message| Some(vec![number(inet6(message)?.dad_transmits)?]),
    },
    SettingRow {
        kind: AUTOCONF,
        name: "autoconf",
        tag: "autoconf",
        families: &[Family::V6],
        files: &["autoconf", "accept_ra"],
        netconf: None,
        has_least: false,
        without_us: &[1, 1],
        leaves: &["autoconf"],
        files_for: |leaves| {
            // With 1 the kernel listens to routers only where it does not forward.
            Some(if bool_of(leaves[0])? { vec![1, 2] } else { vec![0, 1] })
        },
        states: &["autoconf"],
        shown: |values| vec![Some(Value::Bool(values[0] != 0 && values[1] != 0))],
        listed: |message| {
            let conf = inet6(message)?;
            Some(vec![number(conf.autoconf)?, number(conf.accept_ra)?])
        },
    },
];

fn show_switch(values: &[u32]) -> Vec<Option<Value>> {
    vec![Some(Value::Bool(values[0] != 0))]
}

fn bool_of(value: Option<&Value>) -> Option<bool> {
    match value? {
        Value::Bool(on) => Some(*on),
        _ => None,
    }
}

fn word_of(value: Option<&Value>) -> Option<&str> {
    match value? {
        Value::Enum(word) => Some(word),
        _ => None,
    }
}

/// The kernel has all of these as signed numbers, and none of them is below zero.
fn number(value: i32) -> Option<u32> {
    u32::try_from(value).ok()
}

fn inet(message: &LinkMessage) -> Option<&InetDevConf> {
    families(message).find_map(|family| match family {
        AfSpecUnspec::Inet(parts) => parts.iter().find_map(|part| match part {
            AfSpecInet::DevConf(conf) => Some(conf),
            _ => None,
        }),
        _ => None,
    })
}

fn inet6(message: &LinkMessage) -> Option<&Inet6DevConf> {
    families(message).find_map(|family| match family {
        AfSpecUnspec::Inet6(parts) => parts.iter().find_map(|part| match part {
            AfSpecInet6::DevConf(conf) => Some(conf),
            _ => None,
        }),
        _ => None,
    })
}

/// The families of a link in a message about it.
fn families(message: &LinkMessage) -> impl Iterator<Item = &AfSpecUnspec> {
    let parts = message.attributes.iter().filter_map(|attribute| match attribute {
        LinkAttribute::AfSpecUnspec(parts) => Some(parts),
        _ => None,
    });
    parts.flatten()
}

impl LinkSysctl {
    /// All settings.
    pub const ALL: [Self; 6] = [
        Self::Forwarding,
        Self::IgnoreRoutesWithLinkdown,
        Self::ReversePath,
        Self::ProxyArp,
        Self::DadTransmits,
        Self::Autoconf,
    ];

    /// Its row.
    pub fn row(self) -> &'static SettingRow {
        &SETTING_ROWS[self as usize]
    }

    /// Every setting with each of its families.
    pub fn of_families() -> impl Iterator<Item = (Self, Family)> {
        Self::ALL
            .into_iter()
            .flat_map(|sysctl| sysctl.row().families.iter().map(move |family| (sysctl, *family)))
    }

    /// True where an announcement of the kernel has all of the setting.
    pub fn is_announced(self) -> bool {
        let row = self.row();
        row.netconf.is_some() && row.files.len() == 1 && !row.has_least
    }

    /// The settings that a message about a link shows in whole. Announcements have the others.
    pub(crate) fn listed(message: &LinkMessage) -> Vec<(Self, Family, FileValues)> {
        let listed = |(sysctl, family): (Self, Family)| {
            Some((sysctl, family, (sysctl.row().listed)(message)?))
        };
        Self::of_families().filter_map(listed).collect()
    }
}

/// A setting of one family that the configuration of a link asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedSetting {
    /// The setting.
    pub sysctl: LinkSysctl,
    /// The family.
    pub family: Family,
    /// The contents of its files.
    pub values: FileValues,
}

/// Part of a link: a setting of one family.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkSetting {
    /// The setting.
    pub sysctl: LinkSysctl,
    /// The link.
    pub link: SmolStr,
    /// The family.
    pub family: Family,
    /// The contents of its files.
    pub values: FileValues,
    /// Observed only: the value for all links, where the kernel goes by that one if it is larger.
    pub least: Option<u32>,
    /// Observed only: the link carries our mark, so there is no foreign setting to restore.
    pub on_our_link: bool,
}

impl LinkSetting {
    /// A setting as it is to be.
    pub fn new(
        sysctl: LinkSysctl,
        link: impl Into<SmolStr>,
        family: Family,
        values: &[u32],
    ) -> Self {
        let values = values.into();
        Self { sysctl, link: link.into(), family, values, least: None, on_our_link: false }
    }

    /// The values that the kernel goes by.
    fn in_force(&self) -> FileValues {
        let least = self.least.unwrap_or(0);
        self.values.iter().map(|value| least.max(*value)).collect()
    }
}

/// Link name in the paths of the settings that hold for all links.
const ALL_LINKS: &str = "all";

/// Paths of the files of a setting, below `/proc/sys`.
pub fn setting_paths(
    sysctl: LinkSysctl,
    link: &str,
    family: Family,
) -> impl Iterator<Item = String> + '_ {
    let files = sysctl.row().files.iter();
    files.map(move |file| format!("net/{}/conf/{link}/{file}", family.name()))
}

/// Reads a setting with `read`, which gives the content of a file. `None` where the link has no such setting.
pub(crate) fn read(
    sysctl: LinkSysctl,
    link: &str,
    family: Family,
    links: &LinkIndex,
    mut read: impl FnMut(&str) -> io::Result<Option<String>>,
) -> io::Result<Option<LinkSetting>> {
    let values = numbers(sysctl, &links.own_name(link), family, &mut read)?;
    let Some(values) = values else { return Ok(None) };
    let on_our_link = links.is_ours(link);
    let least = if sysctl.row().has_least { least(sysctl, family, read)? } else { None };
    Ok(Some(LinkSetting { sysctl, link: link.into(), family, values, least, on_our_link }))
}

/// The value for all links of the one setting that has such; `read` gives the content of a file.
pub(crate) fn least_for_all(read: impl Fn(&str) -> io::Result<Option<String>>) -> Option<u32> {
    let mut settings = LinkSysctl::of_families().filter(|(sysctl, _)| sysctl.row().has_least);
    let (sysctl, family) = settings.next()?;
    least(sysctl, family, read).ok().flatten()
}

/// The value of a setting for all links.
fn least(
    sysctl: LinkSysctl,
    family: Family,
    mut read: impl FnMut(&str) -> io::Result<Option<String>>,
) -> io::Result<Option<u32>> {
    let values = numbers(sysctl, ALL_LINKS, family, &mut read)?;
    Ok(values.and_then(|values| values.first().copied()))
}

/// The contents of the files of a setting; `None` where one of them is missing or is not a number.
fn numbers(
    sysctl: LinkSysctl,
    link: &str,
    family: Family,
    read: &mut impl FnMut(&str) -> io::Result<Option<String>>,
) -> io::Result<Option<FileValues>> {
    let mut values = FileValues::new();
    for path in setting_paths(sysctl, link, family) {
        let number = read(&path)?.and_then(|text| text.trim().parse().ok());
        let Some(number) = number else { return Ok(None) };
        values.push(number);
    }
    Ok(Some(values))
}

/// Setting `N` of [`LinkSysctl::ALL`], of all links and its families.
#[derive(Debug, Default)]
pub struct LinkSettingDescriptor<const N: usize>;

/// The kind of a setting.
pub fn kind_of(sysctl: LinkSysctl) -> KindId {
    sysctl.row().kind
}

/// The key of a setting of one family on a link.
pub fn key(sysctl: LinkSysctl, link: &str, family: Family) -> Key {
    link_prefix(sysctl, link).u32(match family {
        Family::V4 => 4,
        Family::V6 => 6,
    })
}

/// Common prefix of the keys of one setting of a link.
pub fn link_prefix(sysctl: LinkSysctl, link: &str) -> Key {
    Key::of(kind_of(sysctl)).str(link)
}

/// Keys of all settings of a link.
pub fn keys(link: &str) -> impl Iterator<Item = Key> + '_ {
    LinkSysctl::of_families().map(move |(sysctl, family)| key(sysctl, link, family))
}

impl<const N: usize> Kind for LinkSettingDescriptor<N> {
    const NATIVE: Option<Bind> = Some(NativeSettings::bind);
    const READ: Read = Read::Kernel {
        class: &SETTINGS,
        one: |key| {
            let family = match key.segments().nth(1)? {
                Segment::Int(4) => Family::V4,
                _ => Family::V6,
            };
            Some(Query::Setting(LinkSysctl::ALL[N], first_text(key)?, family))
        },
    };
    const ENCODE: Option<Encode<LinkSetting>> = Some(encode);
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, StoredSetting>());
    const GOES_WITH_LINK: Option<fn(&str) -> Cascade> =
        Some(|link| Cascade::Under(link_prefix(LinkSysctl::ALL[N], link)));
}

impl<const N: usize> Descriptor for LinkSettingDescriptor<N> {
    type Value = LinkSetting;

    fn kind(&self) -> KindId {
        kind_of(LinkSysctl::ALL[N])
    }

    fn name(&self) -> &'static str {
        LinkSysctl::ALL[N].row().name
    }

    fn key(&self, part: &LinkSetting) -> Key {
        key(part.sysctl, &part.link, part.family)
    }

    fn label(&self, part: &LinkSetting) -> String {
        format!("{} {} of {}", part.family.name(), self.name(), part.link)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::SYSCTL)
    }

    /// The kernel has no such setting while the MTU of the link is too small for the family.
    fn dependencies(&self, part: &LinkSetting) -> Vec<Dependency> {
        vec![link::has_settings(&part.link, part.family)]
    }

    fn satisfied_by(&self, expected: &LinkSetting, observed: &LinkSetting) -> bool {
        expected.values == observed.values
    }

    fn rekeyed(&self, part: &LinkSetting, key: &Key) -> Option<LinkSetting> {
        Some(LinkSetting { link: link::link_of(key)?, ..part.clone() })
    }

    /// The setting exists as long as the link does, so there is always a value to restore.
    fn restore(&self, observed: &LinkSetting) -> Option<LinkSetting> {
        (!observed.on_our_link).then(|| observed.clone())
    }

    /// Every link keeps the setting, with the kernel's default.
    fn after_delete(&self, deleted: &LinkSetting) -> Option<LinkSetting> {
        let values = deleted.sysctl.row().without_us.into();
        Some(LinkSetting { values, ..deleted.clone() })
    }
}

/// A setting in the database.
#[derive(Serialize, Deserialize)]
struct StoredSetting {
    link: SmolStr,
    ipv6: bool,
    /// Whether the first file is not 0: all that versions have which knew switches alone.
    enabled: bool,
    #[serde(default)]
    values: FileValues,
}

impl<const N: usize> PreImageRow<LinkSettingDescriptor<N>> for StoredSetting {
    const TAG: &'static str = SETTING_ROWS[N].tag;

    fn of(part: &LinkSetting) -> Option<Self> {
        let ipv6 = part.family == Family::V6;
        let values = part.values.clone();
        let enabled = values.first().is_some_and(|value| *value != 0);
        let row = Self { link: part.link.clone(), ipv6, enabled, values };
        (part.sysctl == LinkSysctl::ALL[N]).then_some(row)
    }

    fn value(self) -> LinkSetting {
        let Self { link, ipv6, enabled, values } = self;
        let family = if ipv6 { Family::V6 } else { Family::V4 };
        let values = if values.is_empty() { vec![enabled.into()] } else { values };
        LinkSetting::new(LinkSysctl::ALL[N], link, family, &values)
    }
}

/// Leaves of one setting and family.
#[derive(Clone, Debug)]
struct SettingNodes {
    sysctl: LinkSysctl,
    family: Family,
    /// Container of the family.
    container: NodeId,
    /// Containers below it, and the leaf.
    leaves: Vec<Vec<NodeId>>,
    states: Vec<NodeId>,
}

/// Leaves of all settings of links that stand in one list.
#[derive(Clone, Debug)]
struct LinkSettingNodes {
    state: NodeId,
    settings: Vec<SettingNodes>,
}

impl LinkSettingNodes {
    fn find(schema: &Schema, list: &str) -> Result<Self, ModelError> {
        let settings = LinkSysctl::of_families().map(|(sysctl, family)| {
            let row = sysctl.row();
            let container = format!("{list}/{}", family.name());
            let leaf = |path: &&str| {
                let ends = path.match_indices('/').map(|(end, _)| end).chain([path.len()]);
                ends.map(|end| find(schema, &format!("{container}/{}", &path[..end]))).collect()
            };
            let state =
                |leaf: &&str| find(schema, &format!("{list}/state/{}-{leaf}", family.name()));
            Ok(SettingNodes {
                sysctl,
                family,
                container: find(schema, &container)?,
                leaves: row.leaves.iter().map(leaf).collect::<Result<_, _>>()?,
                states: row.states.iter().map(state).collect::<Result<_, _>>()?,
            })
        });
        let settings = settings.collect::<Result<_, _>>()?;
        Ok(Self { state: find(schema, &format!("{list}/state"))?, settings })
    }
}

/// Settings of links in the native model.
#[derive(Clone, Debug)]
pub(crate) struct NativeSettings {
    interfaces: InterfaceNodes,
    nodes: ForLinks<LinkSettingNodes>,
}

impl NativeSettings {
    pub(crate) fn find(schema: &Schema) -> Result<Self, ModelError> {
        let interfaces = InterfaceNodes::bind(schema)?;
        let nodes = ForLinks::find(|list| LinkSettingNodes::find(schema, list))?;
        Ok(Self { interfaces, nodes })
    }

    fn bind(schema: &Schema) -> Result<Box<dyn NativeKind>, ModelError> {
        Ok(Box::new(Self::find(schema)?))
    }

    /// The settings that the leaves of an interface or VLAN ask for.
    pub(crate) fn wanted(&self, entry: &Entry<'_>) -> Vec<WantedSetting> {
        let settings = self.nodes.of_path(entry.path).settings.iter();
        let wanted = settings.filter_map(|nodes| {
            let family = entry.container(nodes.container)?;
            let leaves: Vec<Option<Value>> =
                nodes.leaves.iter().map(|path| value_at(&family, path)).collect();
            let leaves: Vec<Option<&Value>> = leaves.iter().map(Option::as_ref).collect();
            if leaves.is_empty() {
                return None;
            }
            let values = (nodes.sysctl.row().files_for)(&leaves)?;
            Some(WantedSetting { sysctl: nodes.sysctl, family: nodes.family, values })
        });
        wanted.collect()
    }
}

/// The value of a leaf, given the containers on the way to it.
fn value_at(entry: &Entry<'_>, path: &[NodeId]) -> Option<Value> {
    match path {
        [] => None,
        [leaf] => entry.value(*leaf).cloned(),
        [container, rest @ ..] => value_at(&entry.container(*container)?, rest),
    }
}

impl NativeKind for NativeSettings {
    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        let part: &LinkSetting = planes.observed()?;
        let nodes = self.nodes.of_link(&part.link);
        let of_part = |it: &&SettingNodes| it.sysctl == part.sysctl && it.family == part.family;
        let setting = nodes.settings.iter().find(of_part)?;
        let mut leaves = Leaves::of(nodes.state);
        let shown = (part.sysctl.row().shown)(&part.in_force());
        for (leaf, value) in setting.states.iter().zip(shown) {
            leaves.optional(*leaf, value);
        }
        Some(leaves.entry(self.interfaces.link(&part.link)))
    }

    fn value_entry(&self, key: &Key, _: Planes<'_>) -> Option<ValueEntry> {
        self.interfaces.attribute(key)
    }
}

/// Settings of links. Our netlink library does not know their messages: the transport reads the bytes.
pub(crate) static SETTINGS: ClassRow = ClassRow {
    name: "Settings",
    groups: &[24, 25], // `RTNLGRP_IPV4_NETCONF`, `RTNLGRP_IPV6_NETCONF`
    messages: &[RTM_NEWNETCONF],
    is_on_links: true,
    list: ClassList::Settings,
    decode: |_, _, _, _| Vec::new(),
};

fn encode(op: Op<'_, LinkSetting>, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let (part, values) = match op {
        Op::Create(new) | Op::Adopt { new, .. } | Op::Update { new, .. } => (new, &new.values[..]),
        Op::Delete(old) => (old, old.sysctl.row().without_us),
        Op::Release { old, restore } if old.values == restore.values => {
            return Ok(Requests::new());
        }
        Op::Release { old, restore } => (old, &restore.values[..]),
    };
    let own_name = links.own_name(&part.link);
    let paths = setting_paths(part.sysctl, &own_name, part.family);
    let writes = paths.zip(values);
    Ok(writes.map(|(path, value)| Request::Sysctl { path, value: value.to_string() }).collect())
}
