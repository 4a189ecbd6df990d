//! Settings of a link and family that the kernel has as sysctls: each is a kind of values of its own.

use holdfast_config::{Schema, Value};
use holdfast_scheduler::{Cascade, Dependency, Descriptor, Effect, Key, KindId, Segment};
use serde::{Deserialize, Serialize};
use smallvec::smallvec;
use smol_str::SmolStr;

use super::codec::{EncodeError, Op, Request, Requests};
use super::link;
use super::links::LinkIndex;
use super::native::{Bind, ForLinks, InterfaceNodes, ModelError, NativeKind, ValueEntry, nodes};
use super::reading::{ClassList, ClassRow, Query, RTM_NEWNETCONF, Read, first_text};
use super::row::{Encode, Kind, PreImageForm, PreImageRow};
use super::state::{Leaves, Planes, StateEntry};
use super::types::Family;
use crate::transport_id;

/// Forwarding of one family on a link.
pub const FORWARDING: KindId = KindId(14);

/// Whether one family leaves out next hops over a link without a carrier.
pub const IGNORE_LINKDOWN: KindId = KindId(18);

/// A setting of a link and family, as the kernel names it below `/proc/sys/net/FAMILY/conf/LINK`. All of them are switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LinkSysctl {
    /// Packets that arrive here are forwarded.
    Forwarding,
    /// Next hops over this link are left out while it has no carrier.
    IgnoreRoutesWithLinkdown,
}

impl LinkSysctl {
    /// All settings.
    pub const ALL: [Self; 2] = [Self::Forwarding, Self::IgnoreRoutesWithLinkdown];

    /// Name of the file.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Forwarding => "forwarding",
            Self::IgnoreRoutesWithLinkdown => "ignore_routes_with_linkdown",
        }
    }
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
    /// The value of the file.
    pub enabled: bool,
    /// Observed only: the link carries our mark, so there is no foreign setting to restore.
    pub on_our_link: bool,
}

impl LinkSetting {
    /// Path of the sysctl below `/proc/sys`.
    pub fn path(&self) -> String {
        setting_path(self.sysctl, &self.link, self.family)
    }
}

/// Path of the sysctl of a setting, below `/proc/sys`.
pub fn setting_path(sysctl: LinkSysctl, link: &str, family: Family) -> String {
    format!("net/{}/conf/{link}/{}", family.name(), sysctl.file_name())
}

/// Setting `N` of [`LinkSysctl::ALL`], of all links and both families.
#[derive(Debug, Default)]
pub struct LinkSettingDescriptor<const N: usize>;

/// The kind of a setting.
pub fn kind_of(sysctl: LinkSysctl) -> KindId {
    match sysctl {
        LinkSysctl::Forwarding => FORWARDING,
        LinkSysctl::IgnoreRoutesWithLinkdown => IGNORE_LINKDOWN,
    }
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
    let of = move |sysctl| [Family::V4, Family::V6].map(|family| key(sysctl, link, family));
    LinkSysctl::ALL.into_iter().flat_map(of)
}

/// Parses the content of the sysctl file; `None` when it is not a number.
pub fn observed(
    sysctl: LinkSysctl,
    link: &str,
    family: Family,
    text: &str,
    on_our_link: bool,
) -> Option<LinkSetting> {
    let enabled = text.trim().parse::<u8>().ok()? != 0;
    Some(LinkSetting { sysctl, link: link.into(), family, enabled, on_our_link })
}

impl<const N: usize> Kind for LinkSettingDescriptor<N> {
    const NATIVE: Option<Bind> = Some(NativeSetting::bind);
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
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, SettingRow>());
    const GOES_WITH_LINK: Option<fn(&str) -> Cascade> =
        Some(|link| Cascade::Under(link_prefix(LinkSysctl::ALL[N], link)));
}

impl<const N: usize> Descriptor for LinkSettingDescriptor<N> {
    type Value = LinkSetting;

    fn kind(&self) -> KindId {
        kind_of(LinkSysctl::ALL[N])
    }

    fn name(&self) -> &'static str {
        match LinkSysctl::ALL[N] {
            LinkSysctl::Forwarding => "forwarding",
            LinkSysctl::IgnoreRoutesWithLinkdown => "ignore-routes-with-linkdown",
        }
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
        expected.enabled == observed.enabled
    }

    fn rekeyed(&self, part: &LinkSetting, key: &Key) -> Option<LinkSetting> {
        Some(LinkSetting { link: link::link_of(key)?, ..part.clone() })
    }

    /// The setting exists as long as the link does, so there is always a value to restore.
    fn restore(&self, observed: &LinkSetting) -> Option<LinkSetting> {
        (!observed.on_our_link).then(|| observed.clone())
    }

    /// Every link keeps the setting; the default of all of them without us is off.
    fn after_delete(&self, deleted: &LinkSetting) -> Option<LinkSetting> {
        Some(LinkSetting { enabled: false, ..deleted.clone() })
    }
}

#[derive(Serialize, Deserialize)]
struct SettingRow {
    link: SmolStr,
    ipv6: bool,
    enabled: bool,
}

impl<const N: usize> PreImageRow<LinkSettingDescriptor<N>> for SettingRow {
    const TAG: &'static str = match LinkSysctl::ALL[N] {
        LinkSysctl::Forwarding => "forwarding",
        LinkSysctl::IgnoreRoutesWithLinkdown => "ignore-linkdown",
    };

    fn of(part: &LinkSetting) -> Option<Self> {
        let ipv6 = part.family == Family::V6;
        let row = Self { link: part.link.clone(), ipv6, enabled: part.enabled };
        (part.sysctl == LinkSysctl::ALL[N]).then_some(row)
    }

    fn value(self) -> LinkSetting {
        let Self { link, ipv6, enabled } = self;
        let family = if ipv6 { Family::V6 } else { Family::V4 };
        LinkSetting { sysctl: LinkSysctl::ALL[N], link, family, enabled, on_our_link: false }
    }
}

nodes!(
    /// State of settings.
    SettingNodes {
        state: "/state",
        ipv4_forwarding: "/state/ipv4-forwarding",
        ipv6_forwarding: "/state/ipv6-forwarding",
        ipv4_ignore_linkdown: "/state/ipv4-ignore-routes-with-linkdown",
        ipv6_ignore_linkdown: "/state/ipv6-ignore-routes-with-linkdown",
    }
);

/// Settings in the native model: attributes of an interface.
#[derive(Debug)]
struct NativeSetting {
    interfaces: InterfaceNodes,
    nodes: ForLinks<SettingNodes>,
}

impl NativeSetting {
    fn bind(schema: &Schema) -> Result<Box<dyn NativeKind>, ModelError> {
        let interfaces = InterfaceNodes::bind(schema)?;
        let nodes = ForLinks::find(|list| SettingNodes::find(schema, list))?;
        Ok(Box::new(Self { interfaces, nodes }))
    }
}

impl NativeKind for NativeSetting {
    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        let part: &LinkSetting = planes.observed()?;
        let nodes = self.nodes.of_link(&part.link);
        let path = self.interfaces.link(&part.link);
        let mut leaves = Leaves::of(nodes.state);
        let leaf = match (part.sysctl, part.family) {
            (LinkSysctl::Forwarding, Family::V4) => nodes.ipv4_forwarding,
            (LinkSysctl::Forwarding, Family::V6) => nodes.ipv6_forwarding,
            (LinkSysctl::IgnoreRoutesWithLinkdown, Family::V4) => nodes.ipv4_ignore_linkdown,
            (LinkSysctl::IgnoreRoutesWithLinkdown, Family::V6) => nodes.ipv6_ignore_linkdown,
        };
        leaves.put(leaf, Value::Bool(part.enabled));
        Some(leaves.entry(path))
    }

    fn value_entry(&self, key: &Key, _: Planes<'_>) -> Option<ValueEntry> {
        self.interfaces.attribute(key)
    }
}

/// Settings of links. Our netlink library does not know their messages: the transport reads the bytes.
pub(super) static SETTINGS: ClassRow = ClassRow {
    name: "Settings",
    groups: &[24, 25], // `RTNLGRP_IPV4_NETCONF`, `RTNLGRP_IPV6_NETCONF`
    messages: &[RTM_NEWNETCONF],
    is_on_links: true,
    list: ClassList::Settings,
    decode: |_, _, _, _| Vec::new(),
};

fn encode(op: Op<'_, LinkSetting>, _: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let (part, enabled) = match op {
        Op::Create(new) | Op::Adopt { new, .. } | Op::Update { new, .. } => (new, new.enabled),
        Op::Delete(old) => (old, false),
        Op::Release { old, restore } if old.enabled == restore.enabled => {
            return Ok(Requests::new());
        }
        Op::Release { old, restore } => (old, restore.enabled),
    };
    Ok(smallvec![Request::Sysctl { path: part.path(), value: u8::from(enabled).to_string() }])
}
