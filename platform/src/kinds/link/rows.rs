//! The table of the kinds of links that the agent makes.

use netlink_packet_route::link::InfoKind;

use super::bond::BOND;
use super::bridge::BRIDGE;
use super::dummy::DUMMY;
use super::ipvlan::IPVLAN;
use super::macvlan::MACVLAN;
use super::row::{LinkRow, PortRule};
use super::veth::VETH;
use super::vlan::VLAN;
use super::vxlan::VXLAN;

/// The kinds of links that the agent makes.
pub static LINK_ROWS: &[&LinkRow] =
    &[&VETH, &BRIDGE, &VXLAN, &DUMMY, &VLAN, &MACVLAN, &IPVLAN, &BOND];

/// The row of a kind by its name in the native model.
pub(crate) fn row_named(name: &str) -> Option<&'static LinkRow> {
    LINK_ROWS.iter().find(|row| row.name == name).copied()
}

/// The row of a kind by its name in the kernel.
pub(crate) fn row_of_kind(kind: &InfoKind) -> Option<&'static LinkRow> {
    row_named(&kind.to_string())
}

/// How links of a kind take ports, by the name of the kind in the kernel.
pub(crate) fn port_rule(kind: &str) -> Option<PortRule> {
    row_named(kind)?.ports
}
