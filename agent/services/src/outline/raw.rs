//! The document `service.toml` as it is written, with the place of each value.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

pub(super) type Text = Spanned<String>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Document {
    pub(super) service: Service,
    #[serde(default)]
    pub(super) grants: Grants,
    pub(super) handler: Option<Handler>,
    #[serde(default)]
    pub(super) component: Vec<Spanned<Component>>,
    #[serde(default)]
    pub(super) tree: Vec<Spanned<Node>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Service {
    pub(super) name: Text,
    pub(super) version: Text,
    #[serde(default)]
    pub(super) converge: Converge,
    #[serde(default)]
    pub(super) missing_handler: MissingHandler,
    pub(super) work: Option<Text>,
}

/// Transaction of the first walk of an instance.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Converge {
    /// The one of the request, which is refused when the walk fails.
    #[default]
    Set,
    /// One of its own, after the request.
    After,
}

/// Fate of a request whose walk asks a handler that is not attached.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum MissingHandler {
    /// The request is refused.
    #[default]
    Fail,
    /// The instance is stored, and waits for the handler.
    Defer,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Grants {
    #[serde(default)]
    pub(super) write: Vec<Text>,
    #[serde(default)]
    pub(super) read: Vec<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Handler {
    pub(super) user: Option<Text>,
    #[serde(default)]
    pub(super) identities: Vec<Text>,
    #[serde(default)]
    pub(super) modification: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Component {
    #[serde(rename = "type")]
    pub(super) component_type: Text,
    #[serde(default)]
    pub(super) state: Vec<Spanned<State>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct State {
    pub(super) name: Text,
    pub(super) when: Option<Text>,
    #[serde(default)]
    pub(super) sticky: bool,
    pub(super) timeout: Option<Spanned<i64>>,
    pub(super) work: Option<Text>,
    #[serde(default)]
    pub(super) commit_after: bool,
    pub(super) action: Option<Spanned<Action>>,
    pub(super) delete: Option<Delete>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Delete {
    pub(super) when: Option<Text>,
    pub(super) work: Option<Text>,
    #[serde(default)]
    pub(super) commit_after: bool,
    pub(super) action: Option<Spanned<Action>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Action {
    pub(super) handler: Option<Text>,
    pub(super) builtin: Option<Text>,
    #[serde(default)]
    pub(super) params: BTreeMap<String, Text>,
    #[serde(default)]
    pub(super) sync: bool,
    pub(super) result: Option<Text>,
    pub(super) serial: Option<Text>,
    #[serde(default)]
    pub(super) save: BTreeMap<Text, Text>,
    pub(super) timeout: Option<Spanned<i64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Node {
    #[serde(rename = "if")]
    pub(super) condition: Option<Text>,
    #[serde(default)]
    pub(super) observe: Vec<Text>,
    pub(super) foreach: Option<Text>,
    #[serde(rename = "as")]
    pub(super) binding: Option<Text>,
    #[serde(default)]
    pub(super) vars: BTreeMap<Text, Text>,
    pub(super) create: Option<Spanned<Create>>,
    #[serde(default)]
    pub(super) node: Vec<Spanned<Node>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    #[serde(rename = "type")]
    pub(super) component_type: Text,
    pub(super) name: Text,
    #[serde(default)]
    pub(super) replaces: Vec<ReplacedComponent>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplacedComponent {
    #[serde(rename = "type")]
    pub(super) component_type: Text,
    pub(super) name: Text,
}
