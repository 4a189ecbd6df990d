//! Forwarding per interface and family: two sysctls of each link.

use holdfast_scheduler::{Dependency, Descriptor, Effect, Key, KindId};
use smallvec::smallvec;

use super::{kinds, link};
use crate::codec::{Codec, EncodeError, Op, Request, Requests};
use crate::links::LinkIndex;
use crate::transport;
use crate::values::{Family, Forwarding};

/// Forwarding of one family on one link.
#[derive(Debug)]
pub struct ForwardingDescriptor;

/// The key of one family's forwarding on a link.
pub fn key(link: &str, family: Family) -> Key {
    link_prefix(link).u32(match family {
        Family::V4 => 4,
        Family::V6 => 6,
    })
}

/// Common prefix of the keys of a link's forwarding.
pub fn link_prefix(link: &str) -> Key {
    Key::of(kinds::FORWARDING).str(link)
}

/// Parses the content of the sysctl file; `None` when it is not a number.
pub fn observed(link: &str, family: Family, text: &str, on_our_link: bool) -> Option<Forwarding> {
    let enabled = text.trim().parse::<u8>().ok()? != 0;
    Some(Forwarding { link: link.into(), family, enabled, on_our_link })
}

impl Descriptor for ForwardingDescriptor {
    type Value = Forwarding;

    fn kind(&self) -> KindId {
        kinds::FORWARDING
    }

    fn name(&self) -> &'static str {
        "forwarding"
    }

    fn key(&self, part: &Forwarding) -> Key {
        key(&part.link, part.family)
    }

    fn label(&self, part: &Forwarding) -> String {
        format!("{} forwarding of {}", part.family.name(), part.link)
    }

    fn effect(&self) -> Effect {
        Effect::Operation(transport::SYSCTL)
    }

    /// The kernel has no such setting while the MTU of the link is too small for the family.
    fn dependencies(&self, part: &Forwarding) -> Vec<Dependency> {
        vec![link::has_settings(&part.link, part.family)]
    }

    fn satisfied_by(&self, expected: &Forwarding, observed: &Forwarding) -> bool {
        expected.enabled == observed.enabled
    }

    /// The setting exists as long as the link does, so there is always a value to restore.
    fn restore(&self, observed: &Forwarding) -> Option<Forwarding> {
        (!observed.on_our_link).then(|| observed.clone())
    }

    /// Every link keeps the setting; its default without us is off.
    fn after_delete(&self, deleted: &Forwarding) -> Option<Forwarding> {
        Some(Forwarding { enabled: false, ..deleted.clone() })
    }
}

impl Codec for ForwardingDescriptor {
    type Value = Forwarding;

    fn encode(&self, op: Op<'_, Forwarding>, _: &mut LinkIndex) -> Result<Requests, EncodeError> {
        let (part, enabled) = match op {
            Op::Create(new) | Op::Adopt { new, .. } | Op::Update { new, .. } => (new, new.enabled),
            Op::Delete(old) => (old, false),
            Op::Release { old, restore } => (old, restore.enabled),
        };
        Ok(smallvec![Request::Sysctl { path: part.path(), value: u8::from(enabled).to_string() }])
    }
}
