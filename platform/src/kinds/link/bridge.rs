//! Bridges.

use netlink_packet_route::link::{BridgeStpState, InfoBridge, InfoData};

use super::row::{
    Attribute, Change, Constant, LinkRow, MtuRule, Param, ParamRow, ParamType, PortRule, as_bool,
    as_uint, data,
};

/// Ticks in which the kernel counts the ageing of a bridge, hundredths of a second (`USER_HZ`).
const AGEING_TICKS_PER_S: u32 = 100;

/// Age at which a bridge forgets a learned address without configuration, seconds (IEEE 802.1D-1998, table 7-5).
pub(super) const DEFAULT_AGEING_S: u32 = 300;

/// Bridges.
pub static BRIDGE: LinkRow = LinkRow {
    data: Some(|| InfoData::Bridge(Vec::new())),
    params: &[
        ParamRow {
            default: Some(Constant::Uint(DEFAULT_AGEING_S)),
            implied: Some(Constant::Uint(DEFAULT_AGEING_S)),
            change: Change::InPlace,
            // During a topology change the kernel ages addresses faster (IEEE 802.1D-1998, 8.5.3.14).
            is_hidden: Some(is_changing),
            ..ParamRow::new(
                "ageing-time",
                ParamType::Uint,
                data!(
                    Bridge,
                    InfoBridge::AgeingTime,
                    |param| Some(as_uint(param)?.saturating_mul(AGEING_TICKS_PER_S)),
                    |ticks: &u32| Param::Uint(ticks / AGEING_TICKS_PER_S)
                ),
            )
        },
        ParamRow {
            default: Some(Constant::Bool(false)),
            implied: Some(Constant::Bool(false)),
            change: Change::InPlace,
            ..ParamRow::new(
                "stp",
                ParamType::Bool,
                data!(
                    Bridge,
                    InfoBridge::StpState,
                    |param| Some(match as_bool(param)? {
                        true => BridgeStpState::KernelStp,
                        false => BridgeStpState::Disabled,
                    }),
                    |state: &BridgeStpState| Param::Bool(*state != BridgeStpState::Disabled)
                ),
            )
        },
        ParamRow {
            default: Some(Constant::Bool(false)),
            implied: Some(Constant::Bool(false)),
            change: Change::InPlace,
            ..ParamRow::new(
                "vlan-filtering",
                ParamType::Bool,
                data!(Bridge, InfoBridge::VlanFiltering, as_bool, |on: &bool| Param::Bool(*on)),
            )
        },
    ],
    mtu: MtuRule::OfPorts,
    ports: Some(PortRule {
        leaf: "master",
        role: "port",
        needs_down: false,
        gives_mac_and_mtu: false,
        refuses: &["bridge"],
    }),
    ..LinkRow::new("bridge")
};

/// True for a bridge with a topology change of its spanning tree in progress.
fn is_changing(data: &InfoData) -> bool {
    let InfoData::Bridge(all) = data else { return false };
    all.iter().any(|attribute| matches!(attribute, InfoBridge::TopologyChange(1..)))
}
