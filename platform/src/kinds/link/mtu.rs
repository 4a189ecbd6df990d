//! MTUs of links that other links limit.
//!
//! The kernel refuses a VXLAN link an MTU that does not fit the link below it, but leaves the MTU as it is when that link
//! shrinks later. A bridge follows the smallest MTU of its ports until somebody sets one, and never does so again. Both make the
//! result depend on the order of changes. So the MTU of such a link is a value of its own, which holds what the configuration
//! asks for as soon as the other links allow it, and follows them where it asks for nothing.

use holdfast_scheduler::{Cascade, Descriptor, Effect, ErrorClass, Key, KindId, OperationError};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use super::LinkMtu;
use super::{LINK_MTU, LINKS, link_of};
use crate::kinds::codec::{EncodeError, Op, Request, Requests};
use crate::kinds::links::LinkIndex;
use crate::kinds::native::{AttributeOfLink, Bind};
use crate::kinds::reading::{Query, Read};
use crate::kinds::row::{Encode, Kind, PreImageForm, PreImageRow};
use crate::transport_id;

/// MTUs of links that other links limit.
#[derive(Debug, Default)]
pub struct LinkMtuDescriptor;

/// The key of the MTU of a link that other links limit.
pub fn mtu_key(link: &str) -> Key {
    Key::of(LINK_MTU).str(link)
}

/// `errno` values by which the kernel refuses an MTU that does not fit the link below: of tunnels, and of VLANs.
const DOES_NOT_FIT: [i32; 2] = [nix::errno::Errno::EINVAL as i32, nix::errno::Errno::ERANGE as i32];

/// Beginning of the kernel's message for an MTU outside of what the driver can have, whatever the other links are.
const OUT_OF_RANGE: &str = "mtu ";

impl Kind for LinkMtuDescriptor {
    const NATIVE: Option<Bind> = Some(AttributeOfLink::bind);
    const READ: Read = Read::Kernel { class: &LINKS, one: |key| link_of(key).map(Query::Link) };
    const ENCODE: Option<Encode<LinkMtu>> = Some(encode);
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, MtuRow>());
    const GOES_WITH_LINK: Option<fn(&str) -> Cascade> = Some(|link| Cascade::Under(mtu_key(link)));

    /// The MTU of a tunnel is refused where the link below is too small.
    fn why_refused(part: &LinkMtu, links: &LinkIndex) -> Option<String> {
        let mtu = part.mtu?;
        let device = part.device.as_ref()?;
        let limit = links.mtu_limit(part)?;
        let below = links.mtu(device)?;
        let overhead = below.saturating_sub(limit);
        (mtu > limit).then(|| {
            format!(
                "MTU {mtu} is too large for device {device} (MTU {below} less {overhead} bytes)"
            )
        })
    }
}

impl Descriptor for LinkMtuDescriptor {
    type Value = LinkMtu;

    fn kind(&self) -> KindId {
        LINK_MTU
    }

    fn name(&self) -> &'static str {
        "link-mtu"
    }

    fn key(&self, part: &LinkMtu) -> Key {
        mtu_key(&part.link)
    }

    fn label(&self, part: &LinkMtu) -> String {
        match part.mtu {
            Some(mtu) => format!("MTU {mtu} of {}", part.link),
            None => format!("MTU of {}", part.link),
        }
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::RTNETLINK)
    }

    /// A tunnel that has a larger MTU than its link below allows has to shrink. On a link of others, only what is configured
    /// counts.
    fn satisfied_by(&self, expected: &LinkMtu, observed: &LinkMtu) -> bool {
        let fits = |mtu| observed.limit.is_none_or(|limit| mtu <= limit);
        match (expected.mtu, observed.limit) {
            (Some(mtu), _) => observed.mtu == Some(mtu) && (expected.device.is_none() || fits(mtu)),
            (None, Some(limit)) => !observed.on_our_link || observed.mtu == Some(limit),
            (None, None) => true,
        }
    }

    fn has_to_follow(&self, before: &LinkMtu, observed: &LinkMtu) -> bool {
        before.mtu == observed.mtu && before.limit != observed.limit
    }

    fn rekeyed(&self, part: &LinkMtu, key: &Key) -> Option<LinkMtu> {
        Some(LinkMtu { link: link_of(key)?, ..part.clone() })
    }

    fn restore(&self, observed: &LinkMtu) -> Option<LinkMtu> {
        (!observed.on_our_link).then(|| LinkMtu { limit: None, ..observed.clone() })
    }

    /// Every such link has an MTU.
    fn after_delete(&self, deleted: &LinkMtu) -> Option<LinkMtu> {
        Some(LinkMtu { mtu: None, ..deleted.clone() })
    }

    /// The kernel says no more than that the value is invalid when an MTU does not fit the link below. An MTU that was set
    /// and is not the expected one, which no `errno` tells, has to follow a port that changed in the same transaction.
    fn classify(&self, error: &OperationError) -> ErrorClass {
        let is_refused = error.errno.is_some_and(|errno| DOES_NOT_FIT.contains(&errno));
        let does_not_fit = is_refused && !error.message.starts_with(OUT_OF_RANGE);
        let has_moved_on = error.errno.is_none();
        if does_not_fit || has_moved_on { ErrorClass::Unmet } else { error.class() }
    }
}

#[derive(Serialize, Deserialize)]
struct MtuRow {
    link: SmolStr,
    mtu: Option<u32>,
    /// Link below a tunnel.
    device: Option<SmolStr>,
}

impl PreImageRow<LinkMtuDescriptor> for MtuRow {
    const TAG: &'static str = "mtu";

    fn of(part: &LinkMtu) -> Option<Self> {
        Some(Self { link: part.link.clone(), mtu: part.mtu, device: part.device.clone() })
    }

    fn value(self) -> LinkMtu {
        let Self { link, mtu, device } = self;
        LinkMtu { link, mtu, device, limit: None, on_our_link: false }
    }
}

/// The MTU that fits comes before one that does not: the kernel refuses the second and keeps the first. A link
/// that the kernel has not shown yet is made in the same batch. Without a configured MTU it gets the right one
/// from the kernel, and a bridge goes on to follow its ports as long as nobody sets one.
fn encode(op: Op<'_, LinkMtu>, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let (part, present) = match op {
        Op::Create(new) if new.mtu.is_none() => match links.mtu(&new.link) {
            Some(present) => (new.clone(), Some(present)),
            None => return Ok(Requests::new()),
        },
        Op::Create(new) => (new.clone(), None),
        Op::Adopt { old, new } | Op::Update { old, new } => (new.clone(), old.mtu),
        Op::Release { old, restore } => (restore.clone(), old.mtu),
        Op::Delete(old) => (LinkMtu { mtu: None, ..old.clone() }, old.mtu),
    };
    let gives_up = matches!(op, Op::Delete(_) | Op::Release { .. });
    if links.follows_mtu(&part.link) == Some(false) {
        // A link of others has the name.
        return match gives_up {
            true => Ok(Requests::new()),
            false => Err(EncodeError::OthersLink(part.link.clone())),
        };
    }
    let Some(index) = links.index(&part.link) else {
        return match gives_up {
            true => Ok(Requests::new()), // it went with its link
            false => Err(EncodeError::LinkNotFound(part.link.clone())),
        };
    };
    let limit = links.mtu_limit(&part);
    let too_large = |mtu: &u32| part.device.is_some() && limit.is_some_and(|limit| *mtu > limit);
    let fitting = limit.filter(|_| part.mtu.is_none_or(|mtu| too_large(&mtu)));
    let wanted = fitting.into_iter().chain(part.mtu);
    let wanted = wanted.filter(|mtu| Some(*mtu) != present || too_large(mtu));
    Ok(wanted.map(|mtu| set(index, mtu)).collect())
}

fn set(index: u32, mtu: u32) -> Request {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::Mtu(mtu));
    Request::change(RouteNetlinkMessage::SetLink(message))
}
