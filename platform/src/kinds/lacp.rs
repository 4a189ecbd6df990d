//! LACP (IEEE 802.1AX) of a bond: how both ends agree on its members.
//!
//! The settings are attributes of the bond in the kernel, and a value of their own here: OpenConfig has them in another list
//! than the bond, and clients send that list first. Without a bond in the mode of LACP the value waits.
//!
//! The kernel changes interval and activity only while the bond is down, so that what stands on the bond is interrupted.

use std::sync::Arc;

use holdfast_config::{InstancePath, Keys, NodeId, Schema, Step, Value};
use holdfast_scheduler::{
    Cascade, ChangeMethod, Dependency, Descriptor, Effect, Key, KindId, SharedValue,
};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{
    BondLacpRate, InfoBond, InfoData, LinkAttribute, LinkInfo, LinkMessage,
};
use serde::{Deserialize, Serialize};
use smallvec::smallvec;
use smol_str::SmolStr;

use super::codec::{EncodeError, Observation, Op, Request, Requests};
use super::entry::{Entry, ObjectError, ObjectValues, not_of_one_host};
use super::link::{self, BOND, Link, LinkRow};
use super::links::LinkIndex;
use super::native::{Bind, EntryShare, ModelError, NativeKind, StatusNodes, ValueEntry, nodes};
use super::reading::{Query, Read, first_text};
use super::row::{Encode, Kind, PreImageForm, PreImageRow, Shown};
use super::state::{Leaves, Planes, StateEntry, text_value};
use super::types::MacAddr;
use crate::transport_id;

/// LACP of a bond. Lower than the numbers of what stands on a link, so that it is set before that.
pub const LACP: KindId = KindId(9);

/// Priority of a system without configuration, which is that of the kernel (IEEE 802.1AX-2020, 6.4.2.1 has the lowest first).
const DEFAULT_PRIORITY: u16 = 65_535;

/// LACP of a bond.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lacp {
    /// The bond.
    pub bond: SmolStr,
    /// True for an LACPDU a second, false for one in 30 seconds (`IFLA_BOND_AD_LACP_RATE`).
    pub is_fast: bool,
    /// True when this end sends first, false when it waits for the other end (`IFLA_BOND_AD_LACP_ACTIVE`).
    pub is_active: bool,
    /// Identity of the box. Observed: `None` where the kernel does not show it, as in the messages that a program without
    /// `CAP_NET_ADMIN` brings about.
    pub system: Option<LacpSystem>,
    /// Observed only: the bond carries our mark, so there is no foreign setting to restore.
    pub on_our_link: bool,
}

/// Identity of a box for the other end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LacpSystem {
    /// `IFLA_BOND_AD_ACTOR_SYSTEM`; `None` is the link-layer address of the bond.
    pub mac: Option<MacAddr>,
    /// `IFLA_BOND_AD_ACTOR_SYS_PRIO`. The end with the lower one decides which links are used.
    pub priority: u16,
}

impl Lacp {
    /// Settings of a bond without configuration.
    pub fn new(bond: impl Into<SmolStr>) -> Self {
        Self {
            bond: bond.into(),
            is_fast: false,
            is_active: true,
            system: Some(LacpSystem { mac: None, priority: DEFAULT_PRIORITY }),
            on_our_link: false,
        }
    }
}

/// LACP of bonds.
#[derive(Debug, Default)]
pub struct LacpDescriptor;

/// The key of the LACP of a bond.
pub fn key(bond: &str) -> Key {
    Key::of(LACP).str(bond)
}

/// The attributes of a bond in a message about a link; empty for other links.
pub(super) fn bond_attributes(message: &LinkMessage) -> &[InfoBond] {
    let data = link::info_of(message).iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Bond(attributes)) => Some(&**attributes),
        _ => None,
    });
    data.unwrap_or_default()
}

/// LACP of the bond that a message is about; `None` for other links.
pub(super) fn observation(link: &Link, attributes: &[InfoBond]) -> Option<Observation> {
    let bond = link.kind.made().filter(|made| is_bond(made.row()))?;
    let value = link::bond::has_lacp(bond).then(|| {
        let value = Lacp { on_our_link: link.is_ours(), ..decode(&link.name, attributes) };
        Arc::new(value) as SharedValue
    });
    Some((key(&link.name), value))
}

fn is_bond(row: &LinkRow) -> bool {
    row.name == BOND.name
}

fn decode(bond: &SmolStr, attributes: &[InfoBond]) -> Lacp {
    let mut lacp = Lacp::new(bond.clone());
    let mut mac = None;
    let mut priority = None;
    for attribute in attributes {
        match attribute {
            InfoBond::AdLacpRate(rate) => lacp.is_fast = *rate == BondLacpRate::Fast,
            InfoBond::AdLacpActive(on) => lacp.is_active = *on,
            InfoBond::AdActorSystem(bytes) => mac = own_system(*bytes),
            InfoBond::AdActorSysPrio(number) => priority = Some(*number),
            _ => {}
        }
    }
    lacp.system = priority.map(|priority| LacpSystem { mac, priority });
    lacp
}

/// The address of a system. All zeros stand for that of the bond.
pub(super) fn own_system(bytes: [u8; 6]) -> Option<MacAddr> {
    (bytes != [0; 6]).then_some(MacAddr(bytes))
}

impl Kind for LacpDescriptor {
    const ENCODE: Option<Encode<Lacp>> = Some(encode);
    const READ: Read =
        Read::Kernel { class: &link::LINKS, one: |key| first_text(key).map(Query::Link) };
    const SHOWN: Shown = Shown::AsEntry;
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, LacpRow>());
    const NATIVE: Option<Bind> = Some(NativeLacp::bind);
    const GOES_WITH_LINK: Option<fn(&str) -> Cascade> = Some(|link| Cascade::Under(key(link)));
}

impl Descriptor for LacpDescriptor {
    type Value = Lacp;

    fn kind(&self) -> KindId {
        LACP
    }

    fn name(&self) -> &'static str {
        "lacp"
    }

    fn key(&self, lacp: &Lacp) -> Key {
        key(&lacp.bond)
    }

    fn label(&self, lacp: &Lacp) -> String {
        format!("LACP of {}", lacp.bond)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::RTNETLINK)
    }

    fn dependencies(&self, lacp: &Lacp) -> Vec<Dependency> {
        vec![link::runs_lacp(&lacp.bond)]
    }

    fn satisfied_by(&self, expected: &Lacp, observed: &Lacp) -> bool {
        let is_shown = observed.system.is_some();
        expected.is_fast == observed.is_fast
            && expected.is_active == observed.is_active
            && (!is_shown || expected.system == observed.system)
    }

    fn change(&self, old: &Lacp, new: &Lacp) -> ChangeMethod {
        if needs_down(old, new) { ChangeMethod::LinkDown } else { ChangeMethod::InPlace }
    }

    fn restore(&self, observed: &Lacp) -> Option<Lacp> {
        (!observed.on_our_link).then(|| observed.clone())
    }

    /// Every bond in the mode of LACP has these settings.
    fn after_delete(&self, deleted: &Lacp) -> Option<Lacp> {
        Some(Lacp { on_our_link: deleted.on_our_link, ..Lacp::new(deleted.bond.clone()) })
    }

    fn rekeyed(&self, lacp: &Lacp, key: &Key) -> Option<Lacp> {
        Some(Lacp { bond: first_text(key)?, ..lacp.clone() })
    }
}

#[derive(Serialize, Deserialize)]
struct LacpRow {
    bond: SmolStr,
    is_fast: bool,
    is_active: bool,
    system: Option<LacpSystem>,
}

impl PreImageRow<LacpDescriptor> for LacpRow {
    const TAG: &'static str = "lacp";

    fn of(lacp: &Lacp) -> Option<Self> {
        let Lacp { bond, is_fast, is_active, system, .. } = lacp.clone();
        Some(Self { bond, is_fast, is_active, system })
    }

    fn value(self) -> Lacp {
        let Self { bond, is_fast, is_active, system } = self;
        Lacp { bond, is_fast, is_active, system, on_our_link: false }
    }
}

/// True for a change that the kernel makes only while the bond is down.
fn needs_down(old: &Lacp, new: &Lacp) -> bool {
    old.is_fast != new.is_fast || old.is_active != new.is_active
}

/// A new bond has the defaults, and is not put down for those. A bond that is up is put down for what the kernel changes only
/// then, and up again also where it refuses the change.
fn encode(op: Op<'_, Lacp>, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let (old, new) = match op {
        Op::Create(new) => (Lacp::new(new.bond.clone()), new.clone()),
        Op::Adopt { old, new } | Op::Update { old, new } => (old.clone(), new.clone()),
        Op::Release { old, restore } => (old.clone(), restore.clone()),
        Op::Delete(old) => (old.clone(), Lacp::new(old.bond.clone())),
    };
    let Some(index) = links.index(&new.bond) else {
        return match op {
            Op::Delete(_) | Op::Release { .. } => Ok(Requests::new()), // it went with its bond
            _ => Err(EncodeError::LinkNotFound(new.bond)),
        };
    };
    let mut while_down = Vec::new();
    if old.is_fast != new.is_fast {
        let rate = if new.is_fast { BondLacpRate::Fast } else { BondLacpRate::Slow };
        while_down.push(InfoBond::AdLacpRate(rate));
    }
    if old.is_active != new.is_active {
        while_down.push(InfoBond::AdLacpActive(new.is_active));
    }
    let mut in_place = Vec::new();
    if let Some(system) = new.system.as_ref().filter(|system| Some(*system) != old.system.as_ref())
    {
        in_place.push(InfoBond::AdActorSysPrio(system.priority));
        in_place.push(InfoBond::AdActorSystem(system.mac.map_or([0; 6], |mac| mac.0)));
    }
    let mut requests = Requests::new();
    if !in_place.is_empty() {
        requests.push(change(index, in_place));
    }
    if needs_down(&old, &new) && links.will_be_up(index) {
        let down = link::switch(index, false);
        let up = link::switch(index, true);
        requests.extend([down, change(index, while_down), up]);
    } else if !while_down.is_empty() {
        requests.push(change(index, while_down));
    }
    Ok(requests)
}

fn change(index: u32, attributes: Vec<InfoBond>) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    let data = LinkInfo::Data(InfoData::Bond(attributes));
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(BOND.kind()), data]));
    Request::change(RouteNetlinkMessage::NewLink(message))
}

nodes!(
    /// `interface` of LACP.
    LacpNodes {
        lacp: "",
        default_system_priority: "/system-priority",
        entry: "/interface",
        interval: "/interface/interval",
        active: "/interface/active",
        system_mac: "/interface/system-mac",
        system_priority: "/interface/system-priority",
        state: "/interface/state",
        state_name: "/interface/state/name",
        state_interval: "/interface/state/interval",
        state_active: "/interface/state/active",
        state_system_mac: "/interface/state/system-mac",
        state_system_priority: "/interface/state/system-priority",
        state_effective_status: "/interface/state/effective-status",
    }
);

/// Words of the native model for the interval.
const FAST: &str = "FAST";
const SLOW: &str = "SLOW";

/// The list of bonds with LACP in the native model.
#[derive(Debug)]
pub(super) struct NativeLacp {
    nodes: LacpNodes,
}

impl NativeLacp {
    fn bind(schema: &Schema) -> Result<Box<dyn NativeKind>, ModelError> {
        Ok(Box::new(Self { nodes: LacpNodes::find(schema, "/lacp")? }))
    }

    fn path(&self, bond: &SmolStr) -> InstancePath {
        let nodes = &self.nodes;
        let entry = Step::entry(nodes.entry, Keys::single(Value::Str(bond.clone())));
        InstancePath(vec![Step::node(nodes.lacp), entry])
    }

    fn lacp(&self, entry: &Entry<'_>) -> Result<Lacp, ObjectError> {
        let nodes = &self.nodes;
        let bond = entry.name_of_step(LACP_STEP)?;
        let mac: Option<MacAddr> = entry.parsed(nodes.system_mac)?;
        if let Some((mac, reason)) = mac.and_then(|mac| Some((mac, not_of_one_host(mac)?))) {
            return Err(entry.leaf_error(nodes.system_mac, format!("{mac} is {reason}")));
        }
        let of_all = || entry.number_above(nodes.default_system_priority);
        let priority = priority(entry, nodes.system_priority)?.or_else(of_all);
        let priority = priority.unwrap_or(DEFAULT_PRIORITY);
        Ok(Lacp {
            is_fast: entry.text(nodes.interval).is_some_and(|interval| interval == FAST),
            is_active: entry.bool(nodes.active).unwrap_or(true),
            system: Some(LacpSystem { mac, priority }),
            ..Lacp::new(bond.clone())
        })
    }
}

/// Priority of a system in a leaf of an entry.
pub(super) fn priority(entry: &Entry<'_>, leaf: NodeId) -> Result<Option<u16>, ObjectError> {
    match entry.number(leaf) {
        Some(0) => Err(entry.leaf_error(leaf, "the kernel takes priorities from 1 on")),
        other => Ok(other),
    }
}

/// Step of a path that names a bond: `lacp/interface[name]`.
const LACP_STEP: usize = 1;

impl NativeKind for NativeLacp {
    fn lists(&self) -> Vec<NodeId> {
        vec![self.nodes.entry]
    }

    fn values(&self, entry: &Entry<'_>) -> Result<ObjectValues, ObjectError> {
        let lacp = self.lacp(entry)?;
        Ok(smallvec![(key(&lacp.bond), Arc::new(lacp) as SharedValue)])
    }

    fn own_key(&self, entry: &Entry<'_>) -> Result<Option<Key>, ObjectError> {
        Ok(Some(key(entry.name_of_step(LACP_STEP)?)))
    }

    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        let lacp: &Lacp = planes.observed()?;
        let nodes = &self.nodes;
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, &lacp.bond);
        leaves.text_enum(nodes.state_interval, if lacp.is_fast { FAST } else { SLOW });
        leaves.put(nodes.state_active, Value::Bool(lacp.is_active));
        if let Some(system) = &lacp.system {
            let mac = system.mac.map(|mac| text_value(&mac.to_string()));
            leaves.optional(nodes.state_system_mac, mac);
            leaves.put(nodes.state_system_priority, Value::Uint(system.priority.into()));
        }
        Some(leaves.entry(self.path(&lacp.bond)))
    }

    fn value_entry(&self, key: &Key, _: Planes<'_>) -> Option<ValueEntry> {
        Some(ValueEntry { path: self.path(&first_text(key)?), share: EntryShare::Whole })
    }

    fn status_nodes(&self) -> Vec<StatusNodes> {
        let nodes = &self.nodes;
        let list = nodes.entry;
        let container = nodes.state;
        vec![StatusNodes { list, container, leaf: nodes.state_effective_status }]
    }
}
