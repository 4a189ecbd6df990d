//! VLANs of ports: entries of the list `vlan` of an interface.

use holdfast_scheduler::{Claim, Facet};
use netlink_packet_route::link::{InfoData, InfoVlan, VlanProtocol};

use super::LINK;
use super::row::{
    Attribute, Constant, LinkRow, MadeLink, MtuRule, Param, ParamRow, ParamType, as_uint, data,
};

/// VLANs. The kernel answers that it has changed the identifier of one, and changes nothing, so another one is made.
pub static VLAN: LinkRow = LinkRow {
    data: Some(|| InfoData::Vlan(Vec::new())),
    params: &[
        ParamRow {
            is_mandatory: true,
            ..ParamRow::new(
                "vlan-id",
                ParamType::Uint,
                data!(
                    Vlan,
                    InfoVlan::Id,
                    |param| u16::try_from(as_uint(param)?).ok(),
                    |id: &u16| Param::Uint((*id).into())
                ),
            )
        },
        ParamRow {
            default: Some(Constant::Name(CUSTOMER_TAG)),
            ..ParamRow::new(
                "protocol",
                ParamType::Enum(&[CUSTOMER_TAG, SERVICE_TAG]),
                data!(Vlan, InfoVlan::Protocol, protocol, |protocol: &VlanProtocol| Param::Name(
                    match protocol {
                        VlanProtocol::Ieee8021Ad => SERVICE_TAG,
                        _ => CUSTOMER_TAG,
                    }
                    .into()
                )),
            )
        },
        ParamRow {
            is_mandatory: true,
            ..ParamRow::new("device", ParamType::Link, Attribute::Below)
        },
        // Another name would be a change in place for the kernel. Routes and settings know a link by its name, so the agent makes
        // another link.
        ParamRow::new("link-name", ParamType::OwnName, Attribute::OwnName),
    ],
    is_type: false,
    goes_down_with_below: true,
    mtu: MtuRule::OfBelow(|_| 0),
    claims: |link| vec![identity(link)],
    ..LinkRow::new("vlan")
};

/// The protocol of tags in the native model, IEEE 802.1Q and IEEE 802.1ad.
const CUSTOMER_TAG: &str = "802.1Q";
const SERVICE_TAG: &str = "802.1ad";

fn protocol(param: &Param) -> Option<VlanProtocol> {
    match param {
        Param::Name(name) if name == SERVICE_TAG => Some(VlanProtocol::Ieee8021Ad),
        Param::Name(_) => Some(VlanProtocol::Ieee8021Q),
        _ => None,
    }
}

/// A port has one VLAN of each identifier and protocol (`register_vlan_dev()`).
fn identity(link: &MadeLink) -> Claim {
    let id = link.get("vlan-id").and_then(as_uint).unwrap_or_default();
    let is_service = link.get("protocol").and_then(protocol) == Some(VlanProtocol::Ieee8021Ad);
    let identity = Facet::of(LINK, "vlan").str(&link.below().unwrap_or_default());
    Claim::alone(identity.u32(id).u32(is_service.into()))
}
