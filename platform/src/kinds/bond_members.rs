//! Members of bonds, as the kernel shows them: which links a bond has, and what LACP has come to on each of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use holdfast_config::{InstancePath, Keys, NodeId, Schema, Step, Value};
use holdfast_scheduler::{Descriptor, Effect, Key, KindId, Segment, SharedValue};
use netlink_packet_route::link::{
    BondAdInfo, InfoBond, InfoBondPort, InfoPortData, LacpState, LinkInfo, LinkMessage, MiiStatus,
};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::codec::Observation;
use super::lacp::{bond_attributes, own_system};
use super::link::{self, BOND, Link, OperState};
use super::native::{
    Bind, INTERFACE, InterfaceNodes, ModelError, NativeKind, ValueEntry, find, nodes,
};
use super::reading::{Query, Read, first_text};
use super::row::{Kind, Shown};
use super::state::{Leaves, Planes, StateEntry, text_value};
use super::types::MacAddr;

/// The members of a bond.
pub const BOND_MEMBERS: KindId = KindId(5);

/// LACP on a member of a bond.
pub const LACP_MEMBER: KindId = KindId(8);

/// The members of a bond. Observed only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BondMembers {
    /// The bond.
    pub bond: SmolStr,
    /// Names of its members, in order.
    pub members: Vec<SmolStr>,
}

/// LACP on a member of a bond. Observed only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LacpMember {
    /// The bond.
    pub bond: SmolStr,
    /// The member.
    pub link: SmolStr,
    /// State of this end (`IFLA_BOND_SLAVE_AD_ACTOR_OPER_PORT_STATE`), the octet of IEEE 802.1AX-2020, 6.4.2.3.
    pub actor_state: u8,
    /// The group of links that the bond uses; `None` for a member that is not in it.
    pub aggregator: Option<Aggregator>,
}

/// The group of links that a bond uses (`IFLA_BOND_AD_INFO`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregator {
    /// Number of it in the bond.
    pub id: u16,
    /// This system.
    pub system: Option<MacAddr>,
    /// The system at the other end; `None` while nobody answers.
    pub partner: Option<MacAddr>,
    /// Key of this end: links of one key can be used together.
    pub actor_key: u16,
    /// Key of the other end.
    pub partner_key: u16,
}

/// Members of bonds.
#[derive(Debug, Default)]
pub struct BondMembersDescriptor;

/// LACP on members of bonds.
#[derive(Debug, Default)]
pub struct LacpMemberDescriptor;

/// The key of the members of a bond.
pub fn key(bond: &str) -> Key {
    Key::of(BOND_MEMBERS).str(bond)
}

/// The key of LACP on a member of a bond.
pub fn lacp_member_key(bond: &str, link: &str) -> Key {
    Key::of(LACP_MEMBER).str(bond).str(link)
}

/// The bonds of one namespace with their members. A message about one link may change what is known of another.
#[derive(Clone, Debug, Default)]
pub(crate) struct BondIndex {
    bonds: HashMap<SmolStr, BondEntry>,
    /// Members by the index of their link.
    members: HashMap<u32, MemberEntry>,
    /// Bonds of members that have changed: the kernel sends no message about a bond that has found its partner.
    in_doubt: BTreeSet<SmolStr>,
}

#[derive(Clone, Debug, Default)]
struct BondEntry {
    /// Indices of its members.
    members: BTreeSet<u32>,
    aggregator: Option<Aggregator>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct MemberEntry {
    bond: SmolStr,
    link: SmolStr,
    /// State of this end, and the number of its aggregator; `None` without LACP.
    state: Option<(LacpState, u16)>,
    /// Its carrier, which LACP follows.
    oper: Option<OperState>,
}

impl BondIndex {
    /// Records a link that the kernel showed. Returns what it is as a bond and as a member, and what changes of others.
    pub(crate) fn observe(
        &mut self,
        index: u32,
        link: &Link,
        message: &LinkMessage,
    ) -> Vec<Observation> {
        let mut all = Vec::new();
        let member = member_of(link, message);
        let before = self.members.get(&index).cloned();
        let place = |it: &MemberEntry| (it.bond.clone(), it.link.clone(), it.state.is_some());
        if before.as_ref().map(place) != member.as_ref().map(place) {
            all.extend(self.forget(index));
        }
        if let Some(member) = member {
            let bond = member.bond.clone();
            if before.as_ref() != Some(&member) && member.state.is_some() {
                self.in_doubt.insert(bond.clone());
            }
            self.members.insert(index, member);
            let is_new = self.bonds.entry(bond.clone()).or_default().members.insert(index);
            all.extend(is_new.then(|| self.members_of(&bond)));
            all.extend(self.lacp_of(index));
        }
        if link.kind.made().is_some_and(|made| made.row().name == BOND.name) {
            let aggregator = aggregator(link, bond_attributes(message));
            let bond = self.bonds.entry(link.name.clone()).or_default();
            let is_other = bond.aggregator != aggregator;
            bond.aggregator = aggregator;
            let members: Vec<u32> = bond.members.iter().copied().filter(|_| is_other).collect();
            all.push(self.members_of(&link.name));
            all.extend(members.into_iter().filter_map(|member| self.lacp_of(member)));
        }
        all
    }

    /// Records that a link is gone, or is no longer a member. Returns what changes of its bond.
    pub(crate) fn forget(&mut self, index: u32) -> Vec<Observation> {
        let Some(MemberEntry { bond, link, .. }) = self.members.remove(&index) else {
            return Vec::new();
        };
        let gone = (lacp_member_key(&bond, &link), None);
        let Some(entry) = self.bonds.get_mut(&bond) else { return vec![gone] };
        entry.members.remove(&index);
        vec![gone, self.members_of(&bond)]
    }

    /// Records that a bond is gone.
    pub(crate) fn forget_bond(&mut self, name: &str) {
        self.bonds.remove(name);
        self.in_doubt.remove(name);
    }

    /// Bonds that have to be read again, since the last call.
    pub(crate) fn take_in_doubt(&mut self) -> BTreeSet<SmolStr> {
        std::mem::take(&mut self.in_doubt)
    }

    /// Names of the bonds.
    pub(crate) fn names(&self) -> impl Iterator<Item = &SmolStr> {
        self.bonds.keys()
    }

    /// Bonds with those of their members that run LACP.
    pub(crate) fn with_lacp(&self) -> BTreeMap<SmolStr, Vec<SmolStr>> {
        let mut bonds = BTreeMap::<_, Vec<SmolStr>>::new();
        for member in self.members.values().filter(|member| member.state.is_some()) {
            bonds.entry(member.bond.clone()).or_default().push(member.link.clone());
        }
        bonds
    }

    /// Names of the members of a bond, in order.
    pub(crate) fn members(&self, bond: &SmolStr) -> Vec<SmolStr> {
        let indices = self.bonds.get(bond).map(|bond| &bond.members);
        let entries = indices.into_iter().flatten().filter_map(|index| self.members.get(index));
        let mut members: Vec<SmolStr> = entries.map(|member| member.link.clone()).collect();
        members.sort_unstable();
        members
    }

    fn members_of(&self, bond: &SmolStr) -> Observation {
        let members = self.members(bond);
        let value: SharedValue = Arc::new(BondMembers { bond: bond.clone(), members });
        (key(bond), Some(value))
    }

    fn lacp_of(&self, index: u32) -> Option<Observation> {
        let MemberEntry { bond, link, state, .. } = self.members.get(&index)?;
        let (actor_state, aggregator_id) = (*state)?;
        let aggregator = self.bonds.get(bond).and_then(|bond| bond.aggregator.clone());
        let value: SharedValue = Arc::new(LacpMember {
            bond: bond.clone(),
            link: link.clone(),
            actor_state: actor_state.bits(),
            aggregator: aggregator.filter(|aggregator| aggregator.id == aggregator_id),
        });
        Some((lacp_member_key(bond, link), Some(value)))
    }
}

/// Bits of the state of a member that is used. The kernel leaves them as they are on a member that has lost its carrier, and
/// does not use it (`IFLA_BOND_SLAVE_MII_STATUS`).
const IN_USE: LacpState =
    LacpState::SYNCHRONIZATION.union(LacpState::COLLECTING).union(LacpState::DISTRIBUTING);

/// The link as a member of a bond.
fn member_of(link: &Link, message: &LinkMessage) -> Option<MemberEntry> {
    let bond = link.master.clone()?;
    if link.master_kind.as_deref() != Some(BOND.name) {
        return None;
    }
    let port = link::info_of(message).iter().find_map(|info| match info {
        LinkInfo::PortData(InfoPortData::BondPort(attributes)) => Some(attributes),
        _ => None,
    });
    let port = port.map(|port| &**port).unwrap_or_default();
    let actor = port.iter().find_map(|attribute| match attribute {
        InfoBondPort::AdActorOperPortState(state) => Some(*state),
        _ => None,
    });
    let is_cut = port.iter().any(|attribute| {
        matches!(attribute, InfoBondPort::MiiStatus(status) if *status != MiiStatus::Up)
    });
    let actor = actor.map(|state| if is_cut { state - IN_USE } else { state });
    let aggregator = port.iter().find_map(|attribute| match attribute {
        InfoBondPort::AdAggregatorId(id) => Some(*id),
        _ => None,
    });
    let oper = link.facts.as_ref().map(|facts| facts.oper);
    Some(MemberEntry { bond, link: link.name.clone(), state: actor.zip(aggregator), oper })
}

/// The group of links that a bond uses; `None` for a bond that has none.
fn aggregator(bond: &Link, attributes: &[InfoBond]) -> Option<Aggregator> {
    let info = attributes.iter().find_map(|attribute| match attribute {
        InfoBond::AdInfo(info) => Some(info),
        _ => None,
    })?;
    let configured = attributes.iter().find_map(|attribute| match attribute {
        InfoBond::AdActorSystem(bytes) => own_system(*bytes),
        _ => None,
    });
    let system = configured.or(bond.mac);
    let mut aggregator = Aggregator { id: 0, system, partner: None, actor_key: 0, partner_key: 0 };
    for attribute in info {
        match attribute {
            BondAdInfo::Aggregator(id) => aggregator.id = *id,
            BondAdInfo::ActorKey(key) => aggregator.actor_key = *key,
            BondAdInfo::PartnerKey(key) => aggregator.partner_key = *key,
            BondAdInfo::PartnerMac(bytes) => aggregator.partner = own_system(*bytes),
            _ => {}
        }
    }
    Some(aggregator)
}

impl Kind for BondMembersDescriptor {
    const READ: Read =
        Read::Kernel { class: &link::LINKS, one: |key| first_text(key).map(Query::Link) };
    const NATIVE: Option<Bind> = Some(NativeBondMembers::bind);
}

impl Descriptor for BondMembersDescriptor {
    type Value = BondMembers;

    fn kind(&self) -> KindId {
        BOND_MEMBERS
    }

    fn name(&self) -> &'static str {
        "bond-members"
    }

    fn key(&self, members: &BondMembers) -> Key {
        key(&members.bond)
    }

    fn label(&self, members: &BondMembers) -> String {
        format!("members of {}", members.bond)
    }

    fn effect(&self) -> Effect {
        Effect::Property
    }
}

impl Kind for LacpMemberDescriptor {
    const READ: Read =
        Read::Kernel { class: &link::LINKS, one: |key| Some(Query::Link(bond_and_link(key)?.1)) };
    const SHOWN: Shown = Shown::AsEntry;
    const NATIVE: Option<Bind> = Some(NativeLacpMember::bind);
}

impl Descriptor for LacpMemberDescriptor {
    type Value = LacpMember;

    fn kind(&self) -> KindId {
        LACP_MEMBER
    }

    fn name(&self) -> &'static str {
        "lacp-member"
    }

    fn key(&self, member: &LacpMember) -> Key {
        lacp_member_key(&member.bond, &member.link)
    }

    fn label(&self, member: &LacpMember) -> String {
        format!("LACP on member {} of {}", member.link, member.bond)
    }

    fn effect(&self) -> Effect {
        Effect::Property
    }
}

fn bond_and_link(key: &Key) -> Option<(SmolStr, SmolStr)> {
    let mut segments = key.segments();
    match (segments.next()?, segments.next()?) {
        (Segment::Str(bond), Segment::Str(link)) => Some((bond.into(), link.into())),
        _ => None,
    }
}

nodes!(
    /// State of the members of a bond.
    BondMembersNodes {
        state: "/state",
        bond: "/state/bond",
        member: "/state/bond/member",
    }
);

/// Members in the native model: a leaf-list of the bond.
#[derive(Debug)]
struct NativeBondMembers {
    interfaces: InterfaceNodes,
    nodes: BondMembersNodes,
}

impl NativeBondMembers {
    fn bind(schema: &Schema) -> Result<Box<dyn NativeKind>, ModelError> {
        let interfaces = InterfaceNodes::bind(schema)?;
        let nodes = BondMembersNodes::find(schema, INTERFACE)?;
        Ok(Box::new(Self { interfaces, nodes }))
    }
}

impl NativeKind for NativeBondMembers {
    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        let BondMembers { bond, members } = planes.observed()?;
        let mut leaves = Leaves::of(self.nodes.state);
        if !members.is_empty() {
            let members: Vec<Value> = members.iter().map(|member| text_value(member)).collect();
            leaves.put_below(self.nodes.bond, self.nodes.member, Value::List(members.into()));
        }
        Some(leaves.entry(self.interfaces.link(bond)))
    }

    fn value_entry(&self, key: &Key, _: Planes<'_>) -> Option<ValueEntry> {
        self.interfaces.attribute(key)
    }
}

nodes!(
    /// LACP on a member.
    LacpMemberNodes {
        state: "/state",
        interface: "/state/interface",
        activity: "/state/active",
        timeout: "/state/timeout",
        aggregatable: "/state/aggregatable",
        synchronization: "/state/synchronization",
        collecting: "/state/collecting",
        distributing: "/state/distributing",
        system_id: "/state/system-id",
        partner_id: "/state/partner-id",
        oper_key: "/state/oper-key",
        partner_key: "/state/partner-key",
    }
);

/// LACP on members in the native model: a list of each bond with LACP.
#[derive(Debug)]
struct NativeLacpMember {
    lacp: NodeId,
    bond: NodeId,
    member: NodeId,
    nodes: LacpMemberNodes,
}

impl NativeLacpMember {
    fn bind(schema: &Schema) -> Result<Box<dyn NativeKind>, ModelError> {
        const MEMBER: &str = "/lacp/interface/member";
        Ok(Box::new(Self {
            lacp: find(schema, "/lacp")?,
            bond: find(schema, "/lacp/interface")?,
            member: find(schema, MEMBER)?,
            nodes: LacpMemberNodes::find(schema, MEMBER)?,
        }))
    }
}

impl NativeKind for NativeLacpMember {
    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        let member: &LacpMember = planes.observed()?;
        let nodes = &self.nodes;
        let state = LacpState::from_bits_retain(member.actor_state);
        let is = |bit| Value::Bool(state.contains(bit));
        let word = |bit, on, off| if state.contains(bit) { on } else { off };
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.interface, &member.link);
        leaves.put(nodes.activity, is(LacpState::LACP_ACTIVITY));
        leaves.text_enum(nodes.timeout, word(LacpState::LACP_TIMEOUT, "SHORT", "LONG"));
        leaves.put(nodes.aggregatable, is(LacpState::AGGREGATION));
        let synchronization = word(LacpState::SYNCHRONIZATION, "IN_SYNC", "OUT_SYNC");
        leaves.text_enum(nodes.synchronization, synchronization);
        leaves.put(nodes.collecting, is(LacpState::COLLECTING));
        leaves.put(nodes.distributing, is(LacpState::DISTRIBUTING));
        if let Some(aggregator) = &member.aggregator {
            let mac = |mac: Option<MacAddr>| mac.map(|mac| text_value(&mac.to_string()));
            leaves.optional(nodes.system_id, mac(aggregator.system));
            leaves.optional(nodes.partner_id, mac(aggregator.partner));
            leaves.put(nodes.oper_key, Value::Uint(aggregator.actor_key.into()));
            let partner_key =
                aggregator.partner.map(|_| Value::Uint(aggregator.partner_key.into()));
            leaves.optional(nodes.partner_key, partner_key);
        }
        let entry =
            |list, name: &SmolStr| Step::entry(list, Keys::single(Value::Str(name.clone())));
        let bond = entry(self.bond, &member.bond);
        let member = entry(self.member, &member.link);
        Some(leaves.entry(InstancePath(vec![Step::node(self.lacp), bond, member])))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_config::Schema;
    use netlink_packet_route::link::{BondMode, InfoData, InfoKind, InfoPortKind, LinkAttribute};

    use super::*;
    use crate::kinds::links::LinkIndex;
    use crate::objects::Registry;
    use netlink_packet_route::RouteNetlinkMessage;

    const BOND_INDEX: u32 = 7;

    fn message(index: u32, name: &str, attributes: Vec<LinkAttribute>) -> RouteNetlinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = index;
        message.attributes = vec![LinkAttribute::IfName(name.into())];
        message.attributes.extend(attributes);
        RouteNetlinkMessage::NewLink(message)
    }

    /// A bond, with the partner that LACP has found.
    fn bond(partner: [u8; 6]) -> RouteNetlinkMessage {
        let info = vec![
            BondAdInfo::Aggregator(1),
            BondAdInfo::ActorKey(15),
            BondAdInfo::PartnerKey(9),
            BondAdInfo::PartnerMac(partner),
        ];
        let data = vec![InfoBond::Mode(BondMode::Ieee8023Ad), InfoBond::AdInfo(info)];
        let info = vec![LinkInfo::Kind(InfoKind::Bond), LinkInfo::Data(InfoData::Bond(data))];
        let mac = LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]);
        message(BOND_INDEX, "bond0", vec![mac, LinkAttribute::LinkInfo(info)])
    }

    fn member(index: u32, name: &str, state: LacpState, aggregator: u16) -> RouteNetlinkMessage {
        port(index, name, state, aggregator, MiiStatus::Up)
    }

    fn cut_member(index: u32, name: &str, state: LacpState, group: u16) -> RouteNetlinkMessage {
        port(index, name, state, group, MiiStatus::Down)
    }

    fn port(
        index: u32,
        name: &str,
        state: LacpState,
        aggregator: u16,
        carrier: MiiStatus,
    ) -> RouteNetlinkMessage {
        let port = vec![
            InfoBondPort::MiiStatus(carrier),
            InfoBondPort::AdAggregatorId(aggregator),
            InfoBondPort::AdActorOperPortState(state),
        ];
        let info = vec![
            LinkInfo::PortKind(InfoPortKind::Bond),
            LinkInfo::PortData(InfoPortData::BondPort(port)),
        ];
        let master = LinkAttribute::Controller(BOND_INDEX);
        message(index, name, vec![master, LinkAttribute::LinkInfo(info)])
    }

    /// State of the members that a message tells of.
    fn shown(links: &mut LinkIndex, message: &RouteNetlinkMessage) -> Vec<String> {
        let schema = Schema::native().unwrap();
        let registry = Registry::new(&schema).unwrap();
        let observations = crate::kinds::decode(message, 0, 1, links);
        let of_members = observations
            .into_iter()
            .filter(|(key, _)| [BOND_MEMBERS, LACP_MEMBER].contains(&key.kind()));
        let lines = of_members.flat_map(|(key, value)| {
            let Some(value) = value else { return vec![format!("{key} is gone")] };
            let planes = Planes { observed: Some(&*value), ..Planes::default() };
            let entry = registry.state(&key, planes).unwrap();
            let line = |(path, value): (InstancePath, &Value)| {
                format!("{} = {value}", path.to_path(&schema))
            };
            entry.leaves().map(line).collect()
        });
        lines.collect()
    }

    #[test]
    fn members_show_what_lacp_has_come_to() {
        let mut links = LinkIndex::new();
        assert!(shown(&mut links, &bond([0; 6])).is_empty());
        let waiting = LacpState::LACP_ACTIVITY | LacpState::AGGREGATION;
        let agreed = waiting
            | LacpState::SYNCHRONIZATION
            | LacpState::COLLECTING
            | LacpState::DISTRIBUTING
            | LacpState::LACP_TIMEOUT;
        let eth1 = "/lacp/interface[name=bond0]/member[interface=eth1]/state";
        let has = |lines: &[String], want: &[String]| {
            want.iter().for_each(|line| assert!(lines.contains(line), "{line} in {lines:#?}"));
        };
        let lines = shown(&mut links, &member(2, "eth1", waiting, 1));
        has(
            &lines,
            &[
                "/interfaces/interface[name=bond0]/state/bond/member = eth1".to_owned(),
                format!("{eth1}/active = true"),
                format!("{eth1}/timeout = LONG"),
                format!("{eth1}/synchronization = OUT_SYNC"),
                format!("{eth1}/collecting = false"),
                format!("{eth1}/system-id = 02:00:00:00:00:01"),
                format!("{eth1}/oper-key = 15"),
            ],
        );
        assert!(!lines.iter().any(|line| line.contains("partner")), "{lines:#?}");
        has(
            &shown(&mut links, &member(2, "eth1", agreed, 1)),
            &[
                format!("{eth1}/timeout = SHORT"),
                format!("{eth1}/aggregatable = true"),
                format!("{eth1}/synchronization = IN_SYNC"),
                format!("{eth1}/collecting = true"),
                format!("{eth1}/distributing = true"),
            ],
        );
        // The bond has to be read: what it says of the partner goes for the members of the group that it uses.
        assert_eq!(links.bonds().take_in_doubt(), ["bond0".into()].into());
        shown(&mut links, &member(2, "eth1", agreed, 1));
        assert!(links.bonds().take_in_doubt().is_empty());
        let other = shown(&mut links, &member(3, "eth2", agreed, 2));
        has(&other, &["/interfaces/interface[name=bond0]/state/bond/member = eth1 eth2".into()]);
        let lines = shown(&mut links, &bond([2, 0, 0, 0, 0, 9]));
        has(
            &lines,
            &[format!("{eth1}/partner-id = 02:00:00:00:00:09"), format!("{eth1}/partner-key = 9")],
        );
        assert!(!lines.iter().any(|line| line.contains("eth2]/state/partner")), "{lines:#?}");
        // A member without carrier is not used, whatever its state says.
        let lines = shown(&mut links, &cut_member(2, "eth1", agreed, 1));
        has(&lines, &[format!("{eth1}/collecting = false"), format!("{eth1}/aggregatable = true")]);
        // A link that leaves the bond is not shown any more.
        let lines = shown(&mut links, &message(2, "eth1", Vec::new()));
        let gone = format!("{} is gone", lacp_member_key("bond0", "eth1"));
        has(
            &lines,
            &[gone, "/interfaces/interface[name=bond0]/state/bond/member = eth2".to_owned()],
        );
    }
}
