//! Bonds: several links as one, which OpenConfig calls an aggregate.

use netlink_packet_route::link::{BondMode, BondXmitHashPolicy, InfoBond, InfoData};
use smol_str::ToSmolStr as _;

use super::row::{
    Attribute, Change, Constant, LinkRow, MadeLink, Param, ParamFault, ParamRow, ParamType,
    PortRule, as_named, as_uint, data,
};

/// Mode in which both ends agree on the members (IEEE 802.1AX), and that of a bond without configuration.
const LACP_MODE: &str = "802.3ad";
/// Modes, as the kernel names them.
const MODES: [&str; 7] = [
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    LACP_MODE,
    "balance-tlb",
    "balance-alb",
];
/// Rules that tell one flow from another, as the kernel names them.
const HASH_POLICIES: [&str; 6] =
    ["layer2", "layer3+4", "layer2+3", "encap2+3", "encap3+4", "vlan+srcmac"];
/// How often the kernel looks at the carrier of the members without configuration, milliseconds. With 0, its own value, a
/// bond goes on to send through a member that has lost its carrier.
const MIIMON_MS: u32 = 100;

/// Facet of a bond whose members are agreed on by LACP.
pub(crate) const LACP_FACET: &str = "lacp";

/// Bonds.
pub static BOND: LinkRow = LinkRow {
    data: Some(|| InfoData::Bond(Vec::new())),
    params: &[
        // The kernel changes it only while the bond is down and has no members.
        ParamRow {
            default: Some(Constant::Name(LACP_MODE)),
            implied: Some(Constant::Name("balance-rr")),
            ..ParamRow::new(
                "mode",
                ParamType::Enum(&MODES),
                data!(Bond, InfoBond::Mode, as_named, |mode: &BondMode| Param::Name(
                    mode.to_smolstr()
                )),
            )
        },
        ParamRow {
            default: Some(Constant::Uint(0)),
            implied: Some(Constant::Uint(0)),
            change: Change::InPlace,
            ..ParamRow::new(
                "min-links",
                ParamType::Uint,
                data!(Bond, InfoBond::MinLinks, as_uint, |least: &u32| Param::Uint(*least)),
            )
        },
        ParamRow {
            default: Some(Constant::Uint(MIIMON_MS)),
            change: Change::InPlace,
            ..ParamRow::new(
                "miimon",
                ParamType::Uint,
                data!(Bond, InfoBond::MiiMon, as_uint, |pause_ms: &u32| Param::Uint(*pause_ms)),
            )
        },
        ParamRow {
            default: Some(Constant::Name("layer2")),
            implied: Some(Constant::Name("layer2")),
            change: Change::InPlace,
            ..ParamRow::new(
                "xmit-hash-policy",
                ParamType::Enum(&HASH_POLICIES),
                data!(Bond, InfoBond::XmitHashPolicy, as_named, |policy: &BondXmitHashPolicy| {
                    Param::Name(policy.to_smolstr())
                }),
            )
        },
    ],
    ports: Some(PortRule {
        leaf: "aggregate",
        role: "member",
        needs_down: true,
        gives_mac_and_mtu: true,
        refuses: &["bond", "bridge"],
    }),
    facets: |bond| if has_lacp(bond) { &[LACP_FACET] } else { &[] },
    check,
    ..LinkRow::new("bond")
};

/// True for a bond whose members are agreed on by LACP.
pub(crate) fn has_lacp(bond: &MadeLink) -> bool {
    bond.row().name == BOND.name && is_lacp_mode(bond)
}

fn is_lacp_mode(bond: &MadeLink) -> bool {
    bond.get("mode") == Some(&Param::from(LACP_MODE))
}

/// The kernel counts the members for `min-links` in the mode of LACP alone. One member is what every bond needs.
fn check(bond: &MadeLink) -> Result<(), ParamFault> {
    let least = bond.get("min-links").and_then(as_uint).unwrap_or_default();
    if least > 1 && !is_lacp_mode(bond) {
        let reason = "the kernel heeds more than 1 only in mode 802.3ad (lag-type LACP)";
        return Err(ParamFault { leaf: "min-links", reason });
    }
    Ok(())
}
