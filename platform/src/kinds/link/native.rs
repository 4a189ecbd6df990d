//! `interface` entries as links, and links as state.

use std::net::AddrParseError;
use std::sync::Arc;

use holdfast_config::{InstancePath, NodeId, Schema, Step, Value};
use holdfast_scheduler::{Key, ObjectValue, SharedValue};
use smallvec::smallvec;
use smol_str::SmolStr;

use super::own_names::OwnNames;
use super::pairs::VethPairs;
use super::stacks::{StackNodes, Stacks};
use super::status::LinkStatus;
use super::{
    DUMMY, LEAST_IPV6_MTU, LINK_ROWS, Link, LinkKind, LinkRow, MadeLink, OperState, Param,
    ParamRow, ParamType, PortRule, VLAN as VLAN_ROW, can_become, fresh_mtu, key,
};
use crate::kinds::entry::{
    Entry, LINK_STEP, ObjectError, ObjectValues, ip_text, not_of_one_host, number, text,
    vlan_index, vlan_of,
};
use crate::kinds::ethernet::{self, Duplex, Ethernet, EthernetAttribute};
use crate::kinds::link_setting::{LinkSysctl, NativeSettings, WantedSetting};
use crate::kinds::native::{
    Adoption, EntryShare, ForLinks, INTERFACE, InterfaceNodes, ModelError, NativeKind, StatusNodes,
    VLAN, ValueEntry, find, nodes,
};
use crate::kinds::reading::first_text;
use crate::kinds::relation::Relation;
use crate::kinds::state::{Leaves, Planes, StateEntry, enum_value, text_value};
use crate::kinds::types::{Family, MacAddr};

/// Bytes of the longest interface name (`IFNAMSIZ` less the final zero).
const MAX_NAME_OCTETS: usize = 15;

/// Bytes of the longest alias of a link (`IFALIASZ` less the final zero).
const MAX_ALIAS_OCTETS: usize = 255;

nodes!(
    /// `interface` without the lists below it.
    LinkNodes {
        entry: "",
        kind: "/type",
        enabled: "/enabled",
        description: "/description",
        mtu: "/mtu",
        mac: "/mac-address",
        ignore_linkdown: "/ignore-routes-with-linkdown",
        port_speed: "/port-speed",
        duplex_mode: "/duplex-mode",
        auto_negotiate: "/auto-negotiate",
        forwarding_viable: "/forwarding-viable",
        hold_time: "/hold-time",
        hold_time_up: "/hold-time/up",
        hold_time_down: "/hold-time/down",
        penalty: "/penalty",
        penalty_half_life: "/penalty/half-life",
        penalty_flap: "/penalty/flap-penalty",
        penalty_suppress: "/penalty/suppress",
        penalty_reuse: "/penalty/reuse",
        penalty_max_suppress: "/penalty/max-suppress",
        subinterface: "/subinterface",
        subinterface_enabled: "/subinterface/enabled",
        subinterface_description: "/subinterface/description",
    }
);

nodes!(
    /// State of a link.
    LinkStateNodes {
        state: "/state",
        state_name: "/state/name",
        state_kind: "/state/type",
        state_enabled: "/state/enabled",
        state_admin: "/state/admin-status",
        state_oper: "/state/oper-status",
        state_observed: "/state/observed-status",
        state_down_by: "/state/told-down-by",
        state_index: "/state/ifindex",
        state_mtu: "/state/mtu",
        state_mac: "/state/mac-address",
        state_hardware_mac: "/state/hardware-mac-address",
        state_description: "/state/description",
        state_peer: "/state/peer",
        state_last_change: "/state/last-change",
        state_subinterface_description: "/state/subinterface-description",
        state_ipv4_enabled: "/state/ipv4-enabled",
        state_ipv6_enabled: "/state/ipv6-enabled",
        state_effective_status: "/state/effective-status",
        state_forwarding_viable: "/state/forwarding-viable",
        state_hold_time: "/state/hold-time",
        state_hold_time_up: "/state/hold-time/up",
        state_hold_time_down: "/state/hold-time/down",
        state_penalty: "/state/penalty",
        state_penalty_half_life: "/state/penalty/half-life",
        state_penalty_flap: "/state/penalty/flap-penalty",
        state_penalty_suppress: "/state/penalty/suppress",
        state_penalty_reuse: "/state/penalty/reuse",
        state_penalty_max_suppress: "/state/penalty/max-suppress",
        state_counters: "/state/counters",
        state_carrier_transitions: "/state/counters/carrier-transitions",
    }
);

nodes!(
    /// `vlan` of an interface, without what it has in common with an interface.
    VlanNodes {
        entry: "",
        id: "/vlan-id",
        protocol: "/protocol",
        enabled: "/enabled",
        description: "/description",
        mtu: "/mtu",
        link_name: "/link-name",
        state_id: "/state/vlan-id",
    }
);

nodes!(
    /// One family of a link.
    LinkFamilyNodes {
        container: "",
        enabled: "/enabled",
        mtu: "/mtu",
        address: "/address",
    }
);

/// `interface` in the native model.
#[derive(Clone, Debug)]
pub(crate) struct NativeLink {
    pub(crate) interfaces: InterfaceNodes,
    pub(crate) nodes: LinkNodes,
    pub(crate) vlan: VlanNodes,
    states: ForLinks<LinkStateNodes>,
    v4: ForLinks<LinkFamilyNodes>,
    v6: ForLinks<LinkFamilyNodes>,
    settings: NativeSettings,
    rows: Vec<BoundRow>,
    ports: Vec<BoundPorts>,
}

/// How links of a kind take ports, bound to the leaves of a port.
#[derive(Clone, Copy, Debug)]
struct BoundPorts {
    kind: &'static str,
    rule: PortRule,
    leaf: NodeId,
    state: NodeId,
}

impl BoundPorts {
    fn find(schema: &Schema, kind: &'static str, rule: PortRule) -> Result<Self, ModelError> {
        let leaf = find(schema, &format!("{INTERFACE}/{}", rule.leaf))?;
        let state = find(schema, &format!("{INTERFACE}/state/{}", rule.leaf))?;
        Ok(Self { kind, rule, leaf, state })
    }
}

/// A kind of link that the agent makes, bound to the nodes of its parameters.
#[derive(Clone, Debug)]
struct BoundRow {
    row: &'static LinkRow,
    /// Container of the parameters, and their leaves in the order of the row; `None` for a kind without parameters.
    params: Option<BoundParams>,
}

#[derive(Clone, Debug)]
struct BoundParams {
    container: NodeId,
    leaves: Vec<NodeId>,
    /// Container and leaves that show them, as far as the model has such.
    state: Option<(NodeId, Vec<Option<NodeId>>)>,
}

impl BoundRow {
    fn find(schema: &Schema, row: &'static LinkRow) -> Result<Self, ModelError> {
        if row.params.is_empty() {
            return Ok(Self { row, params: None });
        }
        let container = format!("{INTERFACE}/{}", row.name);
        let leaf = |param: &ParamRow| find(schema, &format!("{container}/{}", param.leaf));
        let leaves = row.params.iter().map(leaf).collect::<Result<_, _>>()?;
        let container = find(schema, &container)?;
        let state = format!("{INTERFACE}/state/{}", row.name);
        let shown = |param: &ParamRow| schema.find(&format!("{state}/{}", param.leaf));
        let state = schema.find(&state).map(|node| (node, row.params.iter().map(shown).collect()));
        Ok(Self { row, params: Some(BoundParams { container, leaves, state }) })
    }

    /// Shows the parameters of a link of this kind.
    fn show(&self, made: &MadeLink, leaves: &mut Leaves) {
        let Some((container, nodes)) = self.params.as_ref().and_then(|it| it.state.as_ref()) else {
            return;
        };
        for (leaf, (row, param)) in nodes.iter().zip(made.params()) {
            let value = param.and_then(|param| shown(row.ty, param));
            if let Some((leaf, value)) = leaf.zip(value) {
                leaves.put_below(*container, leaf, value);
            }
        }
    }

    /// Adds the parameters that a link of this kind does not have without configuration.
    fn configure(&self, made: &MadeLink, leaves: &mut Leaves) {
        let Some(params) = &self.params else { return };
        for (leaf, (row, param)) in params.leaves.iter().zip(made.params()) {
            let param = param.filter(|param| row.default.map(Param::from).as_ref() != Some(*param));
            if let Some(value) = param.and_then(|param| shown(row.ty, param)) {
                leaves.put_below(params.container, *leaf, value);
            }
        }
    }

    /// Path of a parameter below the entry of its link.
    fn leaf(&self, leaf: &str) -> Option<[NodeId; 2]> {
        let params = self.params.as_ref()?;
        Some([params.container, params.leaves[self.row.position(leaf)?]])
    }

    /// The link that the entry `name` asks for.
    fn made(&self, name: &SmolStr, entry: &Entry<'_>) -> Result<MadeLink, ObjectError> {
        let mut made = MadeLink::new(self.row);
        let Some(params) = &self.params else { return Ok(made) };
        let container = entry.container(params.container);
        for (position, row) in self.row.params.iter().enumerate() {
            let leaf = params.leaves[position];
            let error = |reason: String| entry.inner_error(params.container, leaf, reason);
            let value = container.as_ref().and_then(|container| container.value(leaf));
            let Some(value) = value else {
                if row.is_mandatory {
                    let error = error("this leaf is mandatory".to_owned());
                    return Err(ObjectError { incomplete: true, ..error });
                }
                continue;
            };
            let param = param(row.ty, value).map_err(&error)?;
            if let Param::Name(other) = &param
                && !matches!(row.ty, ParamType::Enum(_))
            {
                if let Some(reason) = name_fault(other) {
                    return Err(error(format!("`{other}` cannot be the name of a link: {reason}")));
                }
                if other == name {
                    return Err(error(match row.ty {
                        ParamType::FarEnd => "a link cannot be the other end of itself".to_owned(),
                        _ => format!("a {} link cannot be its own {}", self.row.name, row.leaf),
                    }));
                }
            }
            made.set(position, Some(param));
        }
        (self.row.check)(&made).map_err(|fault| match self.leaf(fault.leaf) {
            Some([container, leaf]) => entry.inner_error(container, leaf, fault.reason),
            None => entry.error(fault.reason),
        })?;
        Ok(made)
    }
}

/// The leaf of a parameter; `None` for a value that the model has no name for.
fn shown(ty: ParamType, param: &Param) -> Option<Value> {
    match (ty, param) {
        (ParamType::Enum(words), Param::Name(name)) => {
            words.iter().find(|word| name == **word).map(|word| enum_value(word))
        }
        (_, Param::Bool(on)) => Some(Value::Bool(*on)),
        (_, Param::Uint(number)) => Some(Value::Uint((*number).into())),
        (_, Param::Ip(ip)) => Some(ip_text(*ip)),
        (_, Param::Name(name)) => Some(Value::Str(name.clone())),
    }
}

/// A parameter from its leaf.
fn param(ty: ParamType, value: &Value) -> Result<Param, String> {
    let name = text(value);
    match (ty, value) {
        (ParamType::Bool, Value::Bool(on)) => Ok(Param::Bool(*on)),
        (ParamType::Uint, value) if let Some(number) = number(value) => Ok(Param::Uint(number)),
        (ParamType::Ip, _) if let Some(text) = name => {
            text.parse().map(Param::Ip).map_err(|error: AddrParseError| error.to_string())
        }
        (ParamType::Enum(_) | ParamType::Link | ParamType::FarEnd | ParamType::OwnName, _)
            if let Some(name) = name =>
        {
            Ok(Param::Name(name))
        }
        _ => Err("the value is of another type than this leaf".to_owned()),
    }
}

impl NativeLink {
    pub(crate) fn find(schema: &Schema) -> Result<Self, ModelError> {
        Ok(Self {
            interfaces: InterfaceNodes::bind(schema)?,
            nodes: LinkNodes::find(schema, INTERFACE)?,
            vlan: VlanNodes::find(schema, VLAN)?,
            states: ForLinks::find(|list| LinkStateNodes::find(schema, list))?,
            v4: ForLinks::find(|list| LinkFamilyNodes::find(schema, &format!("{list}/ipv4")))?,
            v6: ForLinks::find(|list| LinkFamilyNodes::find(schema, &format!("{list}/ipv6")))?,
            settings: NativeSettings::find(schema)?,
            rows: LINK_ROWS
                .iter()
                .filter(|row| row.is_type)
                .map(|row| BoundRow::find(schema, row))
                .collect::<Result<_, _>>()?,
            ports: LINK_ROWS
                .iter()
                .filter_map(|row| Some(BoundPorts::find(schema, row.name, row.ports?)))
                .collect::<Result<_, _>>()?,
        })
    }

    /// The kinds that have a parameter of this type, each with its leaf, and the containers around it.
    fn leaves_of(&self, ty: ParamType) -> Vec<(&'static str, Vec<NodeId>)> {
        let leaf = |row: &BoundRow| {
            let param = row.row.params.iter().find(|param| param.ty == ty)?;
            Some((row.row.name, row.leaf(param.leaf)?.to_vec()))
        };
        self.rows.iter().filter_map(leaf).collect()
    }

    fn link(&self, name: &SmolStr, entry: &Entry<'_>) -> Result<Link, ObjectError> {
        if let Some(reason) = name_fault(name) {
            return Err(entry.error(format!("`{name}` cannot be the name of a link: {reason}")));
        }
        if let Some((port, index)) = vlan_of(name) {
            let reason = format!(
                "`{name}` is the link of a VLAN: configure `vlan {index}` of interface `{port}`"
            );
            return Err(entry.error(reason));
        }
        let nodes = &self.nodes;
        let mac: Option<MacAddr> = entry.parsed(nodes.mac)?;
        if let Some((mac, reason)) = mac.and_then(|mac| Some((mac, not_of_one_host(mac)?))) {
            return Err(entry.leaf_error(nodes.mac, format!("{mac} is {reason}")));
        }
        if mac.is_some() && name == "lo" {
            let reason = "the loopback link has no link-layer address that could be given back";
            return Err(entry.leaf_error(nodes.mac, reason));
        }
        let subinterface = entry.container(nodes.subinterface);
        let subinterface = subinterface.as_ref();
        let description = description(entry, nodes.description)?;
        let subinterface_description =
            subinterface.and_then(|it| it.text(nodes.subinterface_description));
        if subinterface_description.as_ref().is_some_and(is_too_long) {
            let leaf = nodes.subinterface_description;
            return Err(entry.inner_error(nodes.subinterface, leaf, TOO_LONG));
        }
        self.check_penalty(entry)?;
        let kind = self.link_kind(name, entry)?;
        let master = self.master(name, &kind, entry)?;
        // Either way of shutting the link shuts it.
        let up = subinterface.and_then(|it| it.bool(nodes.subinterface_enabled)).unwrap_or(true);
        let link = Link {
            enabled: entry.bool(nodes.enabled).unwrap_or(true) && up,
            description: description.or_else(|| subinterface_description.clone()),
            mac,
            master_kind: master.as_ref().map(|(ports, _)| ports.kind.into()),
            master: master.map(|(_, name)| name),
            subinterface_description,
            ethernet: self.ethernet(name, &kind, entry)?,
            ..Link::new(name.clone(), kind)
        };
        self.with_families(link, entry, nodes.mtu, entry.bool(nodes.ignore_linkdown))
    }

    /// The link that this one is a port of, as one of the leaves for it says.
    fn master(
        &self,
        name: &SmolStr,
        kind: &LinkKind,
        entry: &Entry<'_>,
    ) -> Result<Option<(BoundPorts, SmolStr)>, ObjectError> {
        let mut named =
            self.ports.iter().filter_map(|ports| Some((*ports, entry.text(ports.leaf)?)));
        let Some((ports, master)) = named.next() else { return Ok(None) };
        if let Some((other, _)) = named.next() {
            let reason =
                format!("a link cannot have both `{}` and `{}`", ports.rule.leaf, other.rule.leaf);
            return Err(entry.leaf_error(other.leaf, reason));
        }
        let role = ports.rule.role;
        if master == *name {
            let reason = format!("a link cannot be a {role} of itself");
            return Err(entry.leaf_error(ports.leaf, reason));
        }
        if *kind == LinkKind::Loopback || ports.rule.refuses.contains(&kind.name()) {
            let reason = format!("a {} link cannot be a {role} of a {}", kind.name(), ports.kind);
            return Err(entry.leaf_error(ports.leaf, reason));
        }
        if ports.rule.gives_mac_and_mtu {
            self.check_gives(ports, &master, entry)?;
        }
        Ok(Some((ports, master)))
    }

    /// Refuses the attributes that a link has from its bond.
    fn check_gives(
        &self,
        ports: BoundPorts,
        master: &SmolStr,
        entry: &Entry<'_>,
    ) -> Result<(), ObjectError> {
        let nodes = &self.nodes;
        let reason = |what| {
            format!(
                "a {} has the {what} of its {}: set it on `{master}`",
                ports.rule.role, ports.kind
            )
        };
        if entry.value(nodes.mac).is_some() {
            return Err(entry.leaf_error(nodes.mac, reason("link-layer address")));
        }
        if entry.value(nodes.mtu).is_some() {
            return Err(entry.leaf_error(nodes.mtu, reason("MTU")));
        }
        for family in [&self.v4.interface, &self.v6.interface] {
            let container = entry.container(family.container);
            if container.is_some_and(|it| it.value(family.mtu).is_some()) {
                return Err(entry.inner_error(family.container, family.mtu, reason("MTU")));
            }
        }
        Ok(())
    }

    /// The link of a VLAN.
    fn vlan(&self, entry: &Entry<'_>) -> Result<Link, ObjectError> {
        let nodes = &self.vlan;
        let port = entry.name_of_step(LINK_STEP)?;
        let name = entry.link_name()?;
        let fault = match &**port {
            _ if vlan_of(port).is_some() => Some("a VLAN cannot stand on a VLAN"),
            "lo" => Some("the loopback link carries no VLANs"),
            _ => None,
        };
        if let Some(reason) = fault {
            return Err(entry.error(format!("the link of this VLAN cannot be `{name}`: {reason}")));
        }
        let own_name = self.own_name_of_vlan(&name, entry)?;
        let id: u32 = entry.number(nodes.id).ok_or_else(|| entry.incomplete(nodes.id))?;
        let mut made = MadeLink::new(&VLAN_ROW).with("vlan-id", id).with("device", port.as_str());
        if let Some(protocol) = entry.text(nodes.protocol) {
            made = made.with("protocol", protocol.as_str());
        }
        if own_name != name {
            made = made.with("link-name", own_name.as_str());
        }
        let link = Link {
            enabled: entry.bool(nodes.enabled).unwrap_or(true),
            description: description(entry, nodes.description)?,
            ..Link::new(name, made.into())
        };
        self.with_families(link, entry, nodes.mtu, None)
    }

    /// Name in the kernel of the link of a VLAN that the agent knows by `name`.
    fn own_name_of_vlan(&self, name: &SmolStr, entry: &Entry<'_>) -> Result<SmolStr, ObjectError> {
        let leaf = self.vlan.link_name;
        let Some(own_name) = entry.text(leaf).filter(|own_name| own_name != name) else {
            let fault = |reason| {
                let way = "`link-name` gives it another name";
                entry.error(format!("the link of this VLAN cannot be `{name}`: {reason}; {way}"))
            };
            return name_fault(name).map_or(Ok(name.clone()), |reason| Err(fault(reason)));
        };
        let reason = match vlan_of(&own_name) {
            Some((port, index)) => Some(format!("it is the name of VLAN {index} of `{port}`")),
            None if MADE_BY_THE_KERNEL.contains(&own_name.as_str()) => Some(MADE_ANYWAY.to_owned()),
            None => name_fault(&own_name).map(str::to_owned),
        };
        match reason {
            Some(reason) => {
                let reason = format!("`{own_name}` cannot be the name of this link: {reason}");
                Err(entry.leaf_error(leaf, reason))
            }
            None => Ok(own_name),
        }
    }

    /// Refuses a name for the link of a VLAN that a link of others has.
    fn admit_own_name(
        &self,
        path: &InstancePath,
        link: &Link,
        holder: Option<&Link>,
    ) -> Result<(), ObjectError> {
        let own_name = link.own_name();
        let Some(holder) = holder.filter(|it| own_name != link.name && !it.is_ours()) else {
            return Ok(());
        };
        let kind = holder.kind.name();
        let reason = format!(
            "the link of VLAN `{}` cannot be called `{own_name}`: a {kind} link has this name",
            link.name
        );
        let path = path.join(Step::node(self.vlan.link_name));
        Err(ObjectError { path, reason, incomplete: false })
    }

    /// Adds what a link has of IP, and its MTU, which the families share.
    fn with_families(
        &self,
        link: Link,
        entry: &Entry<'_>,
        mtu_leaf: NodeId,
        ignore_linkdown: Option<bool>,
    ) -> Result<Link, ObjectError> {
        let v4 = self.v4.of_path(entry.path);
        let v6 = self.v6.of_path(entry.path);
        let bool_of =
            |family: &LinkFamilyNodes, leaf| entry.container(family.container)?.bool(leaf);
        let mtu = self.mtu(entry, mtu_leaf)?;
        // Where the link has configured addresses, traffic takes another way while it has no carrier.
        let has_addresses = [v4, v6].into_iter().any(|family| {
            let list = entry.container(family.container);
            list.is_some_and(|it| it.branch.has_list(family.address))
        });
        let by_default = has_addresses.then_some(true);
        // The setting of IPv6 does not exist where the MTU is configured too small for it.
        let has_ipv6 = mtu.is_none_or(|mtu| mtu >= LEAST_IPV6_MTU);
        let mut settings = self.settings.wanted(entry);
        for family in [Family::V4, Family::V6] {
            let by_default = by_default.filter(|_| family == Family::V4 || has_ipv6);
            let Some(ignored) = ignore_linkdown.or(by_default) else { continue };
            let sysctl = LinkSysctl::IgnoreRoutesWithLinkdown;
            settings.push(WantedSetting { sysctl, family, values: vec![ignored.into()] });
        }
        Ok(Link {
            mtu,
            ipv4_enabled: bool_of(v4, v4.enabled),
            ipv6_enabled: bool_of(v6, v6.enabled),
            settings,
            ..link
        })
    }

    /// Speed and duplex that the port has to have, if any of them is given.
    fn ethernet(
        &self,
        name: &SmolStr,
        kind: &LinkKind,
        entry: &Entry<'_>,
    ) -> Result<Option<Ethernet>, ObjectError> {
        let nodes = &self.nodes;
        let settings = Ethernet {
            link: name.clone(),
            speed_mbps: entry.number(nodes.port_speed),
            duplex: entry.text(nodes.duplex_mode).and_then(|name| Duplex::by_name(&name)),
            auto_negotiate: entry.bool(nodes.auto_negotiate),
        };
        let Some(first) = settings.attributes().next() else { return Ok(None) };
        if *kind == LinkKind::Loopback || kind.name() == DUMMY.name {
            let reason = format!("a {} link has no speed and no duplex mode", kind.name());
            return Err(entry.leaf_error(self.ethernet_leaf(first), reason));
        }
        Ok(Some(settings))
    }

    /// Refuses speed and duplex that the port contradicts, since nothing but its driver sets them. Values that were
    /// accepted before stay accepted, whatever happened to the port since.
    fn admit_ethernet(
        &self,
        path: &InstancePath,
        link: &Link,
        before: Option<&Link>,
        planes: Planes<'_>,
    ) -> Result<(), ObjectError> {
        let (Some(requested), Some(planes)) = (&link.ethernet, planes.observed::<Ethernet>())
        else {
            return Ok(());
        };
        let before = before.and_then(|before| before.ethernet.as_ref());
        let is_new = |it: &_| before.and_then(|before| before.counterpart(*it)) != Some(*it);
        let contradicted = requested.attributes().filter(is_new).find_map(|requested| {
            let planes = planes.counterpart(requested).filter(|planes| *planes != requested)?;
            Some((requested, planes))
        });
        let Some((requested, planes)) = contradicted else { return Ok(()) };
        let name = &link.name;
        let reason = format!(
            "port `{name}` has {planes}, not {requested}, and the agent cannot change that"
        );
        let path = path.join(Step::node(self.ethernet_leaf(requested)));
        Err(ObjectError { path, reason, incomplete: false })
    }

    fn ethernet_leaf(&self, attribute: EthernetAttribute) -> NodeId {
        let nodes = &self.nodes;
        match attribute {
            EthernetAttribute::Speed(_) => nodes.port_speed,
            EthernetAttribute::Duplex(_) => nodes.duplex_mode,
            EthernetAttribute::AutoNegotiate(_) => nodes.auto_negotiate,
        }
    }

    /// The one MTU that the kernel has for all of a link, from the leaves that can ask for it.
    fn mtu(&self, entry: &Entry<'_>, leaf: NodeId) -> Result<Option<u32>, ObjectError> {
        let mut agreed: Option<(u32, &str)> = entry.number(leaf).map(|octets| (octets, "the link"));
        let v4 = self.v4.of_path(entry.path);
        let v6 = self.v6.of_path(entry.path);
        for (family, name) in [(v4, "IPv4"), (v6, "IPv6")] {
            let Some(octets) =
                entry.container(family.container).and_then(|it| it.number(family.mtu))
            else {
                continue;
            };
            match agreed {
                Some((other, whose)) if other != octets => {
                    let reason = format!(
                        "{name} has the MTU of its link, but {whose} sets that MTU to {other} bytes (without the Ethernet header)"
                    );
                    return Err(entry.inner_error(family.container, family.mtu, reason));
                }
                _ => agreed = Some((octets, name)),
            }
        }
        Ok(agreed.map(|(octets, _)| octets))
    }

    fn link_kind(&self, name: &SmolStr, entry: &Entry<'_>) -> Result<LinkKind, ObjectError> {
        let nodes = &self.nodes;
        let kind = entry.text(nodes.kind);
        let fault = |reason: &str| Err(entry.leaf_error(nodes.kind, reason));
        match kind.as_deref().unwrap_or("physical") {
            // OpenConfig calls the loopback device by its own type; natively either will do.
            "physical" if name == "lo" => Ok(LinkKind::Loopback),
            "physical" => Ok(LinkKind::Physical),
            "loopback" if name == "lo" => Ok(LinkKind::Loopback),
            // Any other loopback is a link that leads nowhere.
            "loopback" => Ok(LinkKind::from(&DUMMY)),
            other if name == "lo" => {
                fault(&format!("`lo` is the loopback link, not a {other} link"))
            }
            _ if MADE_BY_THE_KERNEL.contains(&name.as_str()) => {
                Err(entry.error(format!("`{name}` cannot be the name of a link: {MADE_ANYWAY}")))
            }
            other if let Some(row) = self.rows.iter().find(|it| it.row.name == other) => {
                row.made(name, entry).map(LinkKind::Made)
            }
            "vlan" => fault("a VLAN is an entry of the list `vlan` of its interface"),
            other => fault(&format!("the agent cannot make links of type {other}")),
        }
    }

    /// The configuration of an observed link, or why there is none.
    fn adopted(&self, link: &Link) -> Result<StateEntry, String> {
        let nodes = &self.nodes;
        let path = self.interfaces.link(&link.name);
        let mut leaves = Leaves::of_entry();
        let (enabled, description, mtu) = match vlan_index(&path) {
            Some(_) => (self.vlan.enabled, self.vlan.description, self.vlan.mtu),
            None => (nodes.enabled, nodes.description, nodes.mtu),
        };
        match &link.kind {
            LinkKind::Other(kind) => return Err(format!("links of type {kind} are not modelled")),
            LinkKind::Made(made) if made.row().name == VLAN_ROW.name => {
                self.adopt_vlan(link, made, &path, &mut leaves)?;
            }
            LinkKind::Made(made) => self.adopt_made(link, made, &mut leaves)?,
            LinkKind::Physical | LinkKind::Loopback => {}
        }
        leaves.put(enabled, Value::Bool(link.enabled));
        leaves.optional(description, link.description.as_deref().map(text_value));
        let own_mtu = link.own_mtu().filter(|mtu| fresh_mtu(&link.kind) != Some(*mtu));
        let own_mtu = own_mtu.filter(|_| !link.has_those_of_master());
        leaves.optional(mtu, own_mtu.map(|octets| Value::Uint(octets.into())));
        if let Some(master) = &link.master {
            let ports = self.ports.iter();
            let ports = ports.clone().find(|it| link.master_kind.as_deref() == Some(it.kind));
            let ports = ports.ok_or_else(|| {
                let kind = link.master_kind.as_deref().unwrap_or("unknown");
                format!("it is a port of {master}, whose type {kind} is not modelled")
            })?;
            leaves.put(ports.leaf, text_value(master));
        }
        Ok(leaves.entry(path))
    }

    fn adopt_made(&self, link: &Link, made: &MadeLink, leaves: &mut Leaves) -> Result<(), String> {
        let row = self.rows.iter().find(|it| it.row.name == made.row().name);
        let row = row.ok_or_else(|| format!("links of type {} have no entry", link.kind.name()))?;
        let is_without = |param: &ParamRow, of: Option<&Param>| {
            let value = of.and_then(|of| shown(param.ty, of));
            value.is_none() && (param.is_mandatory || of.is_some())
        };
        let mut params = made.params();
        if let Some((param, _)) = params.find(|(param, value)| is_without(param, *value)) {
            // The other end of a pair may be in another namespace. Then the link is a port like any other.
            return match param.ty {
                ParamType::FarEnd => Ok(()),
                _ => Err(format!("its `{}` is not modelled, or not known", param.leaf)),
            };
        }
        leaves.text_enum(self.nodes.kind, row.row.name);
        row.configure(made, leaves);
        Ok(())
    }

    fn adopt_vlan(
        &self,
        link: &Link,
        made: &MadeLink,
        path: &InstancePath,
        leaves: &mut Leaves,
    ) -> Result<(), String> {
        let port = vlan_of(&link.name).map(|(port, _)| port).filter(|_| vlan_index(path).is_some());
        if port.is_none() || made.below().as_deref() != port {
            return Err("a VLAN is modelled by the name of its port, a dot and a number".to_owned());
        }
        let vlan = &self.vlan;
        let leaf_of =
            [("vlan-id", vlan.id), ("protocol", vlan.protocol), ("link-name", vlan.link_name)];
        for (param, value) in made.params() {
            let leaf = leaf_of.iter().find(|(name, _)| *name == param.leaf).map(|(_, leaf)| *leaf);
            let value = value.filter(|it| param.default.map(Param::from).as_ref() != Some(*it));
            if let Some((leaf, value)) = leaf.zip(value.and_then(|it| shown(param.ty, it))) {
                leaves.put(leaf, value);
            }
        }
        Ok(())
    }

    pub(crate) fn link_state(
        &self,
        planes: Planes<'_>,
        status: Option<LinkStatus>,
    ) -> Option<StateEntry> {
        if let Some(link) = planes.observed::<Link>() {
            return Some(self.link_for_state(link, planes.applied(), status));
        }
        // Configured but absent: a port that is not plugged in, or a link that waits for another.
        let link: &Link = planes.intended()?;
        let nodes = self.states.of_link(&link.name);
        let path = self.interfaces.link(&link.name);
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, &link.own_name());
        leaves.text_enum(nodes.state_admin, admin_status(link.enabled));
        let told = status.map_or(OperState::NotPresent, |status| status.told);
        leaves.text_enum(nodes.state_oper, told.name());
        if let Some(status) = status {
            show_status(nodes, status, &mut leaves);
        }
        Some(leaves.entry(path))
    }

    /// Adds to the observed link the attributes of `applied` that the kernel cannot store.
    fn link_for_state(
        &self,
        link: &Link,
        applied: Option<&Link>,
        status: Option<LinkStatus>,
    ) -> StateEntry {
        let nodes = self.states.of_link(&link.name);
        let path = self.interfaces.link(&link.name);
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, &link.own_name());
        leaves.text_enum(nodes.state_kind, link.kind.model_name());
        if let Some(Param::Uint(id)) = link.kind.made().and_then(|made| made.get("vlan-id"))
            && vlan_of(&link.name).is_some()
        {
            leaves.put(self.vlan.state_id, Value::Uint((*id).into()));
        }
        leaves.put(nodes.state_enabled, Value::Bool(link.enabled));
        leaves.text_enum(nodes.state_admin, admin_status(link.enabled));
        leaves.optional(nodes.state_mtu, link.mtu.map(|mtu| Value::Uint(mtu.into())));
        leaves.optional(nodes.state_mac, link.mac.map(|mac| text_value(&mac.to_string())));
        leaves.optional(nodes.state_description, link.description.as_deref().map(text_value));
        for ports in &self.ports {
            let master = link.master.as_deref();
            let master = master.filter(|_| link.master_kind.as_deref() == Some(ports.kind));
            leaves.optional(ports.state, master.map(text_value));
        }
        if let Some(peer) = link.kind.far_end() {
            leaves.text(nodes.state_peer, &peer);
        }
        if let Some(made) = link.kind.made() {
            let row = self.rows.iter().find(|it| it.row.name == made.row().name);
            row.into_iter().for_each(|row| row.show(made, &mut leaves));
        }
        let description = applied.and_then(|applied| applied.subinterface_description.as_deref());
        leaves.optional(nodes.state_subinterface_description, description.map(text_value));
        let ipv4 = applied.and_then(|applied| applied.ipv4_enabled).unwrap_or(true);
        leaves.put(nodes.state_ipv4_enabled, Value::Bool(ipv4));
        leaves.optional(nodes.state_ipv6_enabled, link.ipv6_enabled.map(Value::Bool));
        if let Some(facts) = &link.facts {
            let made_with = facts.hardware_mac.map(|mac| text_value(&mac.to_string()));
            leaves.optional(nodes.state_hardware_mac, made_with);
            let told = status.map_or(facts.oper, |status| status.told);
            leaves.text_enum(nodes.state_oper, told.name());
            if let Some(status) = status {
                show_status(nodes, status, &mut leaves);
            }
            leaves.put(nodes.state_index, Value::Uint(facts.index.into()));
            let changed_ns = status.map_or(facts.last_change_ns, |status| status.changed_ns);
            leaves.put(nodes.state_last_change, Value::Uint(changed_ns));
            let changes = Value::Uint(facts.carrier_changes.into());
            leaves.put_below(nodes.state_counters, nodes.state_carrier_transitions, changes);
        }
        leaves.entry(path)
    }

    fn admit_kind(
        &self,
        path: &InstancePath,
        link: &Link,
        observed: &Link,
    ) -> Result<(), ObjectError> {
        if observed.is_ours() || can_become(observed, link) {
            return Ok(());
        }
        let name = &link.name;
        let kind = link.kind.name();
        let has = observed.kind.name();
        let (path, reason) = if link.kind.same_kind(&observed.kind) {
            let reason = format!(
                "link `{name}` exists already: others made it, and the parameters of a {kind} link cannot be changed"
            );
            (path.clone(), reason)
        } else {
            let reason = format!("link `{name}` exists and is a {has} link, not a {kind} link");
            (path.join(Step::node(self.nodes.kind)), reason)
        };
        Err(ObjectError { path, reason, incomplete: false })
    }

    /// Refuses a link-layer address for a link of others that has none, such as a tunnel: it could never be given back.
    fn admit_mac(
        &self,
        path: &InstancePath,
        link: &Link,
        observed: &Link,
    ) -> Result<(), ObjectError> {
        let has_none = observed.mac.is_none_or(|mac| mac.0 == [0; 6]);
        if link.mac.is_none() || observed.is_ours() || !has_none {
            return Ok(());
        }
        let reason =
            format!("link `{}` has no link-layer address that could be given back", link.name);
        let path = path.join(Step::node(self.nodes.mac));
        Err(ObjectError { path, reason, incomplete: false })
    }
}

impl NativeKind for NativeLink {
    fn lists(&self) -> Vec<NodeId> {
        vec![self.nodes.entry, self.vlan.entry]
    }

    fn values(&self, entry: &Entry<'_>) -> Result<ObjectValues, ObjectError> {
        let link = match vlan_index(entry.path) {
            Some(_) => self.vlan(entry)?,
            None => self.link(entry.name_of_step(LINK_STEP)?, entry)?,
        };
        Ok(smallvec![(key(&link.name), Arc::new(link) as SharedValue)])
    }

    fn own_key(&self, entry: &Entry<'_>) -> Result<Option<Key>, ObjectError> {
        Ok(Some(key(&entry.link_name()?)))
    }

    /// A link of one kind does not become one of another, unless we made it, nor does one of other fixed parameters, and a
    /// port has the speed that its driver gave it.
    fn admit<'p>(
        &self,
        path: &InstancePath,
        value: &dyn ObjectValue,
        planes: &dyn Fn(&Key) -> Planes<'p>,
    ) -> Result<(), ObjectError> {
        let Some(link) = value.as_any().downcast_ref::<Link>() else { return Ok(()) };
        let link_planes = planes(&key(&link.name));
        if let Some(observed) = link_planes.observed() {
            self.admit_kind(path, link, observed)?;
            self.admit_mac(path, link, observed)?;
        }
        self.admit_own_name(path, link, planes(&key(&link.own_name())).observed())?;
        let observed = planes(&ethernet::key(&link.name));
        self.admit_ethernet(path, link, link_planes.intended(), observed)
    }

    fn relations(&self) -> Vec<Box<dyn Relation>> {
        vec![
            Box::new(OwnNames::new(self.vlan.link_name)),
            Box::new(VethPairs::new(self.nodes.kind, self.leaves_of(ParamType::FarEnd).into())),
            Box::new(Stacks::new(StackNodes {
                kind: self.nodes.kind,
                vlan: self.vlan.entry,
                below: self.leaves_of(ParamType::Link),
            })),
        ]
    }

    fn state(&self, _: &Key, planes: Planes<'_>) -> Option<StateEntry> {
        self.link_state(planes, None)
    }

    /// The loopback link is as it is without a configuration, apart from its addresses.
    fn adoption(&self, value: &dyn ObjectValue) -> Option<Adoption> {
        let link: &Link = value.as_any().downcast_ref()?;
        if link.kind == LinkKind::Loopback {
            return None;
        }
        let adopted = self.adopted(link);
        let left_out = |reason| Adoption::LeftOut(format!("link {}: {reason}", link.name));
        Some(adopted.map_or_else(left_out, Adoption::Entry))
    }

    /// None for a link that is administratively down, which is not a fault.
    fn value_entry(&self, key: &Key, planes: Planes<'_>) -> Option<ValueEntry> {
        let links = [planes.intended::<Link>(), planes.observed::<Link>()];
        let is_shut = links.into_iter().flatten().any(|link| !link.enabled);
        let name = first_text(key).filter(|_| !is_shut)?;
        Some(ValueEntry { path: self.interfaces.link(&name), share: EntryShare::Whole })
    }

    fn status_nodes(&self) -> Vec<StatusNodes> {
        let of = |list, nodes: &LinkStateNodes| StatusNodes {
            list,
            container: nodes.state,
            leaf: nodes.state_effective_status,
        };
        vec![of(self.nodes.entry, &self.states.interface), of(self.vlan.entry, &self.states.vlan)]
    }
}

/// Shows what else there is of the status of a link than the told one.
fn show_status(nodes: &LinkStateNodes, status: LinkStatus, leaves: &mut Leaves) {
    let observed = status.observed.map(|observed| enum_value(observed.name()));
    leaves.optional(nodes.state_observed, observed);
    let down_by = status.down_by.map(|reason| enum_value(reason.name()));
    leaves.optional(nodes.state_down_by, down_by);
    status.settings.show(nodes, leaves);
}

/// Text of the alias of a link.
fn description(entry: &Entry<'_>, leaf: NodeId) -> Result<Option<SmolStr>, ObjectError> {
    match entry.text(leaf) {
        Some(text) if is_too_long(&text) => Err(entry.leaf_error(leaf, TOO_LONG)),
        text => Ok(text),
    }
}

fn is_too_long(alias: &SmolStr) -> bool {
    alias.len() > MAX_ALIAS_OCTETS
}

/// Reason to refuse a description of more than [`MAX_ALIAS_OCTETS`].
const TOO_LONG: &str = "a description may have 255 bytes at most";

fn admin_status(enabled: bool) -> &'static str {
    if enabled { "UP" } else { "DOWN" }
}

/// Names of links that modules of the kernel make when they are loaded, and of the bonding module's file among the links.
const MADE_BY_THE_KERNEL: [&str; 7] =
    ["gre0", "gretap0", "erspan0", "tunl0", "sit0", "ip6tnl0", "bonding_masters"];

/// Reason to refuse one of these names.
const MADE_ANYWAY: &str = "the kernel itself makes a link of this name, which nobody can delete";

/// Why the kernel takes no link of this name (`dev_valid_name()`, and the folders of the sysctls).
fn name_fault(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("the name is empty"),
        _ if name.len() > MAX_NAME_OCTETS => Some("the name has more than 15 bytes"),
        "." | ".." => Some("the name means a folder"),
        "all" | "default" => Some("the kernel's settings for all links have this name"),
        _ if name.contains(['/', ':']) => Some("the name has a slash or a colon"),
        _ if name.contains('%') => Some("the kernel puts a number in the place of a percent sign"),
        _ if name.chars().any(|c| c.is_whitespace() || c.is_control()) => {
            Some("the name has a space")
        }
        _ => None,
    }
}
