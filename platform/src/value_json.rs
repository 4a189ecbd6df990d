//! Values as JSON, for inspection of the engine and for replaying recordings.
//!
//! The form is that of the types of values in this version: nothing of it is stored. What the database keeps of a value is
//! a [`pre_image`](crate::pre_image), whose form later versions read.

use std::sync::Arc;

use holdfast_scheduler::{KindId, ObjectValue, SharedValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::kinds;
use crate::values::{
    Account, Address, ConnectedPrefix, CredentialFile, Ethernet, GlomeLogin, Hostname, KernelRoute,
    Link, LinkMaster, LinkMtu, LinkSetting, LinkUp, Neighbor, Password, Port, Program, SshServer,
    TextFile,
};

/// A document cannot be read as a value.
#[derive(Debug, thiserror::Error)]
pub enum ValueJsonError {
    /// Values of this kind have no JSON form.
    #[error("values of kind {} are not recorded", _0.0)]
    Kind(KindId),
    /// The document is not a value of this kind.
    #[error("the document is no value of kind {}", kind.0)]
    Document {
        /// Expected kind.
        kind: KindId,
        /// Error of the parser.
        source: serde_json::Error,
    },
}

/// JSON conversion of one type.
struct JsonConversion {
    kind: KindId,
    write: fn(&dyn ObjectValue) -> Option<serde_json::Value>,
    read: fn(serde_json::Value) -> serde_json::Result<SharedValue>,
}

/// One line for each kind of value.
const FORMS: &[JsonConversion] = &[
    form::<Hostname>(kinds::HOSTNAME),
    form::<TextFile>(kinds::TEXT_FILE),
    form::<Program>(kinds::PROGRAM),
    form::<Account>(kinds::ACCOUNT),
    form::<CredentialFile>(kinds::CREDENTIAL_FILE),
    form::<SshServer>(kinds::SSH_SERVER),
    form::<GlomeLogin>(kinds::GLOME_LOGIN),
    form::<Password>(kinds::PASSWORD),
    form::<Port>(kinds::PORT),
    form::<Link>(kinds::LINK),
    form::<LinkUp>(kinds::LINK_UP),
    form::<LinkMaster>(kinds::LINK_MASTER),
    form::<LinkMtu>(kinds::LINK_MTU),
    form::<Ethernet>(kinds::ETHERNET),
    form::<Ethernet>(kinds::ETHERNET_CONFIG),
    form::<LinkSetting>(kinds::FORWARDING),
    form::<LinkSetting>(kinds::IGNORE_LINKDOWN),
    form::<Address>(kinds::ADDRESS),
    form::<ConnectedPrefix>(kinds::CONNECTED),
    form::<Neighbor>(kinds::NEIGHBOR),
    form::<KernelRoute>(kinds::ROUTE),
];

const fn form<T: ObjectValue + Serialize + DeserializeOwned>(kind: KindId) -> JsonConversion {
    JsonConversion {
        kind,
        write: |value| serde_json::to_value(value.as_any().downcast_ref::<T>()?).ok(),
        read: |document| Ok(Arc::new(serde_json::from_value::<T>(document)?)),
    }
}

/// Converts a value to JSON; to its `Debug` text when its kind has no JSON form.
pub fn to_json(kind: KindId, value: &dyn ObjectValue) -> serde_json::Value {
    let form = FORMS.iter().find(|form| form.kind == kind);
    form.and_then(|form| (form.write)(value))
        .unwrap_or_else(|| serde_json::Value::String(format!("{value:?}")))
}

/// Longest text of one attribute in [`difference`], in characters: an MTU or an address, not a file.
const MAX_WORD: usize = 64;

/// Attributes of the requested value that the observed one has otherwise, as `mtu 1450 instead of 9000`. Attributes that
/// the request leaves open are not compared.
pub(crate) fn difference(
    kind: KindId,
    expected: &dyn ObjectValue,
    observed: &dyn ObjectValue,
) -> String {
    let mut words = Vec::new();
    compare("value", &to_json(kind, expected), &to_json(kind, observed), &mut words);
    words.join(", ")
}

fn compare(
    name: &str,
    expected: &serde_json::Value,
    observed: &serde_json::Value,
    words: &mut Vec<String>,
) {
    use serde_json::Value;
    match (expected, observed) {
        (Value::Null, _) => {}
        (expected, observed) if expected == observed => {}
        (Value::Object(expected), Value::Object(observed))
            if expected.keys().eq(observed.keys()) =>
        {
            for (name, expected) in expected {
                compare(name, expected, &observed[name], words);
            }
        }
        (expected, observed) => {
            let word = |value: &Value| {
                let text = match value {
                    Value::Null => "none".to_owned(),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                match text.char_indices().nth(MAX_WORD) {
                    Some((end, _)) => format!("{}...", &text[..end]),
                    None => text,
                }
            };
            let name = name.replace('_', "-").to_ascii_lowercase();
            words.push(format!("{name} {} instead of {}", word(observed), word(expected)));
        }
    }
}

/// Converts a document of [`to_json`] back to a value.
///
/// # Errors
/// When the kind has no JSON form, or the document is not of that form.
pub fn from_json(kind: KindId, document: serde_json::Value) -> Result<SharedValue, ValueJsonError> {
    let form = FORMS.iter().find(|form| form.kind == kind).ok_or(ValueJsonError::Kind(kind))?;
    (form.read)(document).map_err(|source| ValueJsonError::Document { kind, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::{BridgeParams, Hop, LinkKind, MacAddr, RouteTarget};

    #[test]
    fn every_kind_has_a_json_conversion() {
        let unrecorded: Vec<_> = crate::kinds::registry()
            .iter()
            .filter(|descriptor| !FORMS.iter().any(|form| form.kind == descriptor.kind()))
            .map(|descriptor| descriptor.name())
            .collect();
        assert!(unrecorded.is_empty(), "{unrecorded:?}");
    }

    #[test]
    fn a_difference_names_attributes_and_both_values() {
        let expected = Link { mtu: Some(9000), ..Link::new("br0", LinkKind::Dummy) };
        let observed = Link { mtu: Some(1450), description: Some("x".into()), ..expected.clone() };
        let words = difference(kinds::LINK, &expected, &observed);
        assert_eq!(words, "mtu 1450 instead of 9000");
        assert_eq!(difference(kinds::LINK, &expected, &expected), "");
    }

    #[test]
    fn json_values_round_trip() {
        let mac = Some(MacAddr([2, 0, 0, 0, 0, 1]));
        check(
            kinds::LINK,
            Link { mac, ..Link::new("br0", LinkKind::Bridge(BridgeParams::default())) },
        );
        let digest = holdfast_security::credentialz::Digest::of(b"hash");
        check(kinds::PASSWORD, crate::values::Password { account: "alice".into(), digest });
        let ip = "2001:db8::1".parse().unwrap();
        check(kinds::ADDRESS, Address::new("eth0", ip, 64));
        let hop = Hop { gateway: Some(ip), link: None };
        let (table, prefix) = (254, "10.0.0.0/8".parse().unwrap());
        let target = RouteTarget::Hops(vec![hop]);
        check(kinds::ROUTE, KernelRoute::new(table, prefix, 0, target));
    }

    #[test]
    fn a_document_of_another_kind_is_refused() {
        assert!(matches!(
            from_json(KindId(9999), serde_json::Value::Null),
            Err(ValueJsonError::Kind(_))
        ));
        let port = to_json(kinds::PORT, &Port { link: "eth0".into() });
        assert!(matches!(from_json(kinds::ADDRESS, port), Err(ValueJsonError::Document { .. })));
    }

    #[track_caller]
    fn check(kind: KindId, value: impl ObjectValue) {
        let document = to_json(kind, &value);
        assert!(document.is_object(), "{document}");
        assert!(value.same(&*from_json(kind, document).unwrap()), "{value:?}");
    }
}
