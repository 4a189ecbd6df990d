//! Whether a link on another one is up.
//!
//! The kernel refuses to raise a VLAN while its port is down, takes it down with the port, and raises it with the port, also one
//! that was shut before. So that such a link is up is a value of its own: it waits for the link below, goes with it, and is
//! removed where nobody asks for it.

use std::sync::Arc;

use holdfast_scheduler::{
    Cascade, Dependency, Descriptor, Effect, Facet, Key, KindId, Offer, Part,
};
use serde::{Deserialize, Serialize};
use smallvec::smallvec;
use smol_str::SmolStr;

use super::encode::switch;
use super::{LINK_ADMIN, LINKS, LinkAdmin, LinkUp, link_of, up_key};
use crate::kinds::codec::{EncodeError, Op, Requests};
use crate::kinds::links::LinkIndex;
use crate::kinds::native::{AttributeOfLink, Bind};
use crate::kinds::reading::{Query, Read};
use crate::kinds::row::{Encode, Kind, PreImageForm, PreImageRow};
use crate::transport_id;

/// Links on other links, which are up.
#[derive(Debug, Default)]
pub struct LinkAdminDescriptor;

/// The key of the value that a link on another one is up.
pub fn admin_key(link: &str) -> Key {
    Key::of(LINK_ADMIN).str(link)
}

/// Facet of what goes down with a link.
pub(super) fn above_facet(below: &str) -> Facet {
    Facet::of(LINK_ADMIN, "above").str(below)
}

impl Kind for LinkAdminDescriptor {
    const NATIVE: Option<Bind> = Some(AttributeOfLink::bind);
    const READ: Read = Read::Kernel { class: &LINKS, one: |key| link_of(key).map(Query::Link) };
    const ENCODE: Option<Encode<LinkAdmin>> = Some(encode);
    const PRE_IMAGE: Option<PreImageForm> = Some(PreImageForm::of::<Self, AdminRow>());
    const GOES_WITH_LINK: Option<fn(&str) -> Cascade> =
        Some(|link| Cascade::Under(admin_key(link)));
}

impl Descriptor for LinkAdminDescriptor {
    type Value = LinkAdmin;

    fn kind(&self) -> KindId {
        LINK_ADMIN
    }

    fn name(&self) -> &'static str {
        "link-admin"
    }

    fn key(&self, part: &LinkAdmin) -> Key {
        admin_key(&part.link)
    }

    fn label(&self, part: &LinkAdmin) -> String {
        format!("{} administratively up", part.link)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport_id::RTNETLINK)
    }

    fn dependencies(&self, part: &LinkAdmin) -> Vec<Dependency> {
        let up = |below: &_| Dependency::exact(format!("link {below} up"), up_key(below));
        part.below.iter().map(|below| up(below)).collect()
    }

    fn provides(&self, part: &LinkAdmin) -> Vec<Offer> {
        part.below.iter().map(|below| above_facet(below).into()).collect()
    }

    fn parts(&self, part: &LinkAdmin) -> Vec<Part> {
        vec![(up_key(&part.link), Arc::new(LinkUp { link: part.link.clone() }))]
    }

    fn satisfied_by(&self, _: &LinkAdmin, _: &LinkAdmin) -> bool {
        true
    }

    fn owned(&self, observed: &LinkAdmin) -> bool {
        observed.on_our_link
    }

    fn restore(&self, observed: &LinkAdmin) -> Option<LinkAdmin> {
        (!observed.on_our_link).then(|| observed.clone())
    }

    fn rekeyed(&self, part: &LinkAdmin, key: &Key) -> Option<LinkAdmin> {
        Some(LinkAdmin { link: link_of(key)?, ..part.clone() })
    }
}

#[derive(Serialize, Deserialize)]
struct AdminRow {
    link: SmolStr,
    below: Option<SmolStr>,
}

impl PreImageRow<LinkAdminDescriptor> for AdminRow {
    const TAG: &'static str = "admin";

    fn of(part: &LinkAdmin) -> Option<Self> {
        Some(Self { link: part.link.clone(), below: part.below.clone() })
    }

    fn value(self) -> LinkAdmin {
        LinkAdmin { link: self.link, below: self.below, on_our_link: false }
    }
}

fn encode(op: Op<'_, LinkAdmin>, links: &mut LinkIndex) -> Result<Requests, EncodeError> {
    let (part, up) = match op {
        Op::Create(new) | Op::Adopt { new, .. } | Op::Update { new, .. } => (new, true),
        Op::Delete(old) => (old, false),
        Op::Release { .. } => return Ok(Requests::new()), // it was up before us
    };
    let Some(index) = links.index(&part.link) else {
        return match up {
            true => Err(EncodeError::LinkNotFound(part.link.clone())),
            false => Ok(Requests::new()), // it went with its link
        };
    };
    Ok(smallvec![switch(index, up)])
}
