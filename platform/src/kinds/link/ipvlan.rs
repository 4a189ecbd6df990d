//! Links that share the link-layer address of another link.

use netlink_packet_route::link::{InfoData, InfoIpVlan, IpVlanMode};

use super::frames_below;
use super::row::{
    Attribute, Change, Constant, LinkRow, MadeLink, MtuRule, Param, ParamRow, ParamType, data,
};

/// Links that share the address of the link below.
pub static IPVLAN: LinkRow = LinkRow {
    data: Some(|| InfoData::IpVlan(Vec::new())),
    params: &[
        ParamRow {
            is_mandatory: true,
            ..ParamRow::new("device", ParamType::Link, Attribute::Below)
        },
        ParamRow {
            default: Some(Constant::Name(L3)),
            change: Change::InPlace,
            ..ParamRow::new(
                "mode",
                ParamType::Enum(&MODES),
                data!(IpVlan, InfoIpVlan::Mode, mode, shown),
            )
        },
    ],
    refuses_below: &["ipvlan"],
    mtu: MtuRule::OfBelow(|_| 0),
    claims: |link| frames_below(link, side(link)),
    ..LinkRow::new("ipvlan")
};

const MODES: [&str; 3] = ["l2", L3, "l3s"];
/// Mode of a new link in the kernel and in the model.
const L3: &str = "l3";

fn mode(param: &Param) -> Option<IpVlanMode> {
    let Param::Name(name) = param else { return None };
    match name.as_str() {
        "l2" => Some(IpVlanMode::L2),
        "l3s" => Some(IpVlanMode::L3S),
        _ => Some(IpVlanMode::L3),
    }
}

fn shown(mode: &IpVlanMode) -> Param {
    let name = match mode {
        IpVlanMode::L2 => "l2",
        IpVlanMode::L3S => "l3s",
        _ => L3,
    };
    Param::Name(name.into())
}

/// The links that can share the link below with this one: the kernel keeps one mode for all of them
/// (`ipvlan_set_port_mode()`).
fn side(link: &MadeLink) -> &'static str {
    match link.get("mode").and_then(mode) {
        Some(IpVlanMode::L2) => "ipvlan l2",
        Some(IpVlanMode::L3S) => "ipvlan l3s",
        _ => "ipvlan l3",
    }
}
