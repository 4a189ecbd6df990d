//! Values as JSON, for inspection of the engine and for replaying recordings.
//!
//! The form is that of the types of values in this version: nothing of it is stored. The database keeps a
//! [`pre_image`](crate::pre_image) of a value, whose form later versions read.

use holdfast_scheduler::{KindId, ObjectValue, SharedValue};

use crate::kinds;

/// A document cannot be read as a value.
#[derive(Debug, thiserror::Error)]
pub enum ValueJsonError {
    /// Values of this kind have no JSON form.
    #[error("values of kind {} are not recorded", _0.0)]
    Kind(KindId),
    /// The document is not a value of this kind.
    #[error("the document is not a value of kind {}", kind.0)]
    Document {
        /// Expected kind.
        kind: KindId,
        /// Error of the parser.
        source: serde_json::Error,
    },
}

/// Converts a value to JSON; to its `Debug` text when its kind has no JSON form.
pub fn to_json(kind: KindId, value: &dyn ObjectValue) -> serde_json::Value {
    kinds::row_of(kind)
        .and_then(|row| (row.json.write)(value))
        .unwrap_or_else(|| serde_json::Value::String(format!("{value:?}")))
}

/// Converts a document of [`to_json`] back to a value.
///
/// # Errors
/// When the kind has no JSON form, or the document is not of that form.
pub fn from_json(kind: KindId, document: serde_json::Value) -> Result<SharedValue, ValueJsonError> {
    let row = kinds::row_of(kind).ok_or(ValueJsonError::Kind(kind))?;
    (row.json.read)(document).map_err(|source| ValueJsonError::Document { kind, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{
        Address, BRIDGE, Hop, KernelRoute, Link, LinkKind, MacAddr, Port, RouteTarget,
    };

    #[test]
    fn every_kind_has_a_json_conversion() {
        let unrecorded: Vec<_> = kinds::registry()
            .iter()
            .filter(|descriptor| kinds::row_of(descriptor.kind()).is_none())
            .map(|descriptor| descriptor.name())
            .collect();
        assert!(unrecorded.is_empty(), "{unrecorded:?}");
    }

    #[test]
    fn json_values_round_trip() {
        let mac = Some(MacAddr([2, 0, 0, 0, 0, 1]));
        check(kinds::LINK, Link { mac, ..Link::new("br0", LinkKind::from(&BRIDGE)) });
        let digest = holdfast_security::credentialz::Digest::of(b"hash");
        check(kinds::PASSWORD, crate::values::Password { account: "alice".into(), digest });
        let ip = "2001:db8::1".parse().unwrap();
        check(kinds::ADDRESS, Address::new("eth0", ip, 64));
        let hop = Hop { gateway: Some(ip), link: None };
        let table = 254;
        let prefix = "10.0.0.0/8".parse().unwrap();
        let target = RouteTarget::Hops(vec![hop]);
        check(kinds::ROUTE, KernelRoute::new(table, prefix, 0, target));
    }

    #[test]
    fn a_document_of_another_kind_is_refused() {
        assert!(matches!(
            from_json(KindId(9999), serde_json::Value::Null),
            Err(ValueJsonError::Kind(_))
        ));
        let port = to_json(kinds::PORT, &Port { link: "eth0".into(), takes_ports: None });
        assert!(matches!(from_json(kinds::ADDRESS, port), Err(ValueJsonError::Document { .. })));
    }

    #[track_caller]
    fn check(kind: KindId, value: impl ObjectValue) {
        let document = to_json(kind, &value);
        assert!(document.is_object(), "{document}");
        assert!(value.same(&*from_json(kind, document).unwrap()), "{value:?}");
    }
}
