//! Links with a link-layer address of their own on another link.

use netlink_packet_route::link::{InfoData, InfoMacVlan, MacVlanMode};

use super::frames_below;
use super::row::{Attribute, Change, Constant, LinkRow, MtuRule, Param, ParamRow, ParamType, data};

/// Links with an address of their own on another link. The mode `passthru`, which takes the whole link below, is not offered: it
/// changes only with another link.
pub static MACVLAN: LinkRow = LinkRow {
    data: Some(|| InfoData::MacVlan(Vec::new())),
    params: &[
        ParamRow {
            is_mandatory: true,
            ..ParamRow::new("device", ParamType::Link, Attribute::Below)
        },
        ParamRow {
            default: Some(Constant::Name(VEPA)),
            change: Change::InPlace,
            ..ParamRow::new(
                "mode",
                ParamType::Enum(&MODES),
                data!(MacVlan, InfoMacVlan::Mode, mode, shown),
            )
        },
    ],
    refuses_below: &["macvlan"],
    mtu: MtuRule::OfBelow(|_| 0),
    claims: |link| frames_below(link, "macvlan"),
    ..LinkRow::new("macvlan")
};

/// Modes that a link changes to and from in place.
const MODES: [&str; 3] = ["private", VEPA, "bridge"];
/// Mode of a new link in the kernel and in the model.
const VEPA: &str = "vepa";

fn mode(param: &Param) -> Option<MacVlanMode> {
    let Param::Name(name) = param else { return None };
    match name.as_str() {
        "private" => Some(MacVlanMode::Private),
        "bridge" => Some(MacVlanMode::Bridge),
        _ => Some(MacVlanMode::Vepa),
    }
}

fn shown(mode: &MacVlanMode) -> Param {
    let name = match mode {
        MacVlanMode::Private => "private",
        MacVlanMode::Bridge => "bridge",
        MacVlanMode::Passthrough => "passthru",
        MacVlanMode::Source => "source",
        _ => VEPA,
    };
    Param::Name(name.into())
}
