//! Lookup of textual paths in a schema: concrete paths for writing, patterns for reading and deleting.

mod expand;
#[cfg(test)]
mod reference;

use std::collections::HashSet;

use smallvec::SmallVec;

use self::expand::AllNodes;
pub use self::expand::{Expansion, SchemaFilter};
use crate::instance::{InstancePath, Keys, Step};
use crate::limits::{LimitExceeded, excerpt};
use crate::path::{ANY, ANY_DEPTH, Elem, Path};
use crate::schema::{NodeId, NodeKind, Schema, ValueError};
use crate::value::Value;

/// Nodes to read: a path of schema nodes whose list keys may be open.
///
/// Wildcard names are already expanded against the schema, so that one textual path can result in several
/// patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathPattern(pub Vec<PatternStep>);

/// One step of a [`PathPattern`]. Only lists have `keys`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PatternStep {
    pub node: NodeId,
    pub keys: Option<KeyPattern>,
}

/// The wanted value for each key of a list, in schema order; `None` matches every value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyPattern(pub SmallVec<[Option<Value>; 1]>);

/// Reason why a path names nothing in this schema. Each error has the whole path and the part up to the invalid
/// element.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    #[error("path `{path}`: the model has no `{at}`")]
    Unknown { path: String, at: String },
    #[error("path `{path}`: {reason} at `{at}`")]
    Malformed { path: String, at: String, reason: String },
    #[error("path `{path}`: bad value of key `{key}` at `{at}`: {reason}")]
    BadKey { path: String, at: String, key: String, reason: ValueError },
    #[error("path `{path}`: `{at}` lacks key `{key}`")]
    MissingKey { path: String, at: String, key: String },
    #[error("path `{path}`: no wildcard is permitted at `{at}` here")]
    Wildcard { path: String, at: String },
    #[error("path `{path}`: {limit}")]
    TooLarge { path: String, limit: LimitExceeded },
}

/// A node that the agent needs and its model lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the native model has no `{0}`")]
pub struct MissingNode(pub String);

impl PathError {
    /// Refuses a path that is too large to be meaningful.
    fn check_limits(path: &Path) -> Result<(), Self> {
        path.check_limits().map_err(|limit| Self::TooLarge { path: excerpt(path), limit })
    }

    /// True when the path is well-formed, and the schema has no such node.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

/// The beginning of a path up to its first wildcard name, looked up in a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Literal {
    /// The steps that exist in the schema. A key whose value cannot be parsed is left open.
    pub steps: Vec<PatternStep>,
    /// Reason why the schema lacks a part of it.
    pub error: Option<PathError>,
}

impl KeyPattern {
    /// Matches every entry of a list with `count` keys.
    pub fn any(count: usize) -> Self {
        Self(SmallVec::from_elem(None, count))
    }

    pub fn matches(&self, keys: &Keys) -> bool {
        self.0.len() == keys.len()
            && self.0.iter().zip(keys).all(|(want, is)| want.as_ref().is_none_or(|w| w == is))
    }

    /// The keys of the one entry that matches, when no key is open.
    pub fn concrete(&self) -> Option<Keys> {
        self.0.iter().cloned().collect()
    }

    pub(crate) fn covers(&self, other: &KeyPattern) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| mine.is_none() || mine == theirs)
    }
}

impl PatternStep {
    pub fn matches(&self, step: &Step) -> bool {
        self.node == step.node
            && match (&self.keys, &step.keys) {
                (Some(want), Some(is)) => want.matches(is),
                (None, None) => true,
                _ => false,
            }
    }
}

impl PathPattern {
    /// True when the path is one that this pattern names, or lies below it.
    pub fn covers(&self, path: &InstancePath) -> bool {
        self.0.len() <= path.0.len()
            && self.0.iter().zip(&path.0).all(|(want, is)| want.matches(is))
    }

    /// True when a node that this pattern names is equal to the path, or its ancestor or descendant.
    pub fn overlaps(&self, path: &InstancePath) -> bool {
        self.0.iter().zip(&path.0).all(|(want, is)| want.matches(is))
    }

    /// Path of the one node that matches, when no key is open.
    pub fn concrete(&self) -> Option<InstancePath> {
        let step = |s: &PatternStep| match &s.keys {
            None => Some(Step::node(s.node)),
            Some(keys) => keys.concrete().map(|keys| Step::entry(s.node, keys)),
        };
        self.0.iter().map(step).collect::<Option<Vec<_>>>().map(InstancePath)
    }

    /// Formats the pattern as a path, with `*` for each open key.
    pub fn to_path(&self, schema: &Schema) -> Path {
        let text = |value: &Option<Value>| {
            value.as_ref().map_or_else(|| ANY.to_owned(), ToString::to_string)
        };
        let elem = |step: &PatternStep| {
            let values = step.keys.iter().flat_map(|keys| &keys.0);
            path_elem(schema, step.node, values.map(text))
        };
        Path { elems: self.0.iter().map(elem).collect() }
    }

    /// Schema node of the last step; `None` for the root.
    pub fn last(&self) -> Option<NodeId> {
        self.0.last().map(|step| step.node)
    }
}

impl From<&InstancePath> for PathPattern {
    fn from(path: &InstancePath) -> Self {
        let step = |s: &Step| PatternStep {
            node: s.node,
            keys: s.keys.as_ref().map(|keys| KeyPattern(keys.iter().cloned().map(Some).collect())),
        };
        Self(path.0.iter().map(step).collect())
    }
}

impl Schema {
    /// Looks up a path to read. The names `*` and `...`, the key value `*` and omitted keys match everything. The
    /// patterns do not overlap, and are in schema order.
    ///
    /// # Errors
    /// When the schema has no such node, an element is malformed, or the value of a key does not fit its type.
    pub fn resolve_read(&self, path: &Path) -> Result<Vec<PathPattern>, PathError> {
        PathError::check_limits(path)?;
        self.check_form(path)?;
        let Literal { steps, error } = self.literal(path);
        match error {
            Some(error) => Err(error),
            None => Ok(self.expand(path, steps, &AllNodes)?.patterns),
        }
    }

    /// Refuses a path that is malformed for any schema.
    ///
    /// # Errors
    /// [`PathError::Malformed`] for the first such element.
    pub fn check_form(&self, path: &Path) -> Result<(), PathError> {
        let place = |at| ElementLookup { schema: self, path, at };
        (0..path.elems.len()).try_for_each(|at| place(at).check_form())
    }

    /// Looks up the beginning of a path that is known to be well-formed.
    pub fn literal(&self, path: &Path) -> Literal {
        let mut literal = Literal { steps: Vec::new(), error: None };
        let mut node = self.root();
        for at in 0..path.literal_len() {
            let place = ElementLookup { schema: self, path, at };
            let Some(child) = place.child(node) else {
                literal.error = Some(place.unknown());
                break;
            };
            node = child;
            let mut keys = place.open_keys(node);
            literal.error = place.read_keys(node, &mut keys).err();
            literal.steps.push(PatternStep { node, keys });
            if literal.error.is_some() {
                break;
            }
        }
        literal
    }

    /// Looks up a path to delete. The rules are those of a read, including wildcards and omitted keys.
    ///
    /// # Errors
    /// The errors of [`Schema::resolve_read`].
    pub fn resolve_delete(&self, path: &Path) -> Result<Vec<PathPattern>, PathError> {
        self.resolve_read(path)
    }

    /// Finds a node that the agent itself names, by its schema path.
    ///
    /// # Errors
    /// Names the path when the model does not have it.
    pub fn require(&self, path: &str) -> Result<NodeId, MissingNode> {
        self.find(path).ok_or_else(|| MissingNode(path.to_owned()))
    }

    /// Finds the instance path of a node that the agent itself names, with the keys of list entries.
    ///
    /// # Errors
    /// Names the path when the model does not have it.
    pub fn instance_path(
        &self,
        elems: &[(&str, &[(&str, &str)])],
    ) -> Result<InstancePath, MissingNode> {
        let elem = |(name, keys): &(&str, &[(&str, &str)])| Elem {
            name: (*name).to_owned(),
            keys: keys
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        };
        let path = Path { elems: elems.iter().map(elem).collect() };
        self.resolve_write(&path).map_err(|_| MissingNode(path.to_string()))
    }

    /// Looks up the node that an update or replace names.
    ///
    /// # Errors
    /// The errors of [`Schema::resolve_read`]; and when there is a wildcard, or a list entry lacks a key.
    pub fn resolve_write(&self, path: &Path) -> Result<InstancePath, PathError> {
        let mut steps = Vec::with_capacity(path.elems.len());
        let mut node = self.root();
        for (at, elem) in path.elems.iter().enumerate() {
            let place = ElementLookup { schema: self, path, at };
            place.check_form()?;
            if [ANY, ANY_DEPTH].contains(&elem.name.as_str()) {
                return Err(place.wildcard());
            }
            node = place.child(node).ok_or_else(|| place.unknown())?;
            let keys = place.keys(node)?;
            steps.push(Step { node, keys: keys.map(|k| place.all_keys(node, &k)).transpose()? });
        }
        Ok(InstancePath(steps))
    }
}

/// An element during the lookup of its path, for error messages.
#[derive(Clone, Copy)]
struct ElementLookup<'a> {
    schema: &'a Schema,
    path: &'a Path,
    at: usize,
}

impl ElementLookup<'_> {
    fn elem(&self) -> &Elem {
        &self.path.elems[self.at]
    }

    fn check_form(&self) -> Result<(), PathError> {
        let elem = self.elem();
        if elem.name.is_empty() {
            return Err(self.malformed("an element without a name"));
        }
        if elem.name == ANY_DEPTH && !elem.keys.is_empty() {
            return Err(self.malformed("keys on `...`"));
        }
        let mut names = HashSet::new();
        // A single key, which most lists have, cannot be a duplicate.
        let several = elem.keys.len() > 1;
        match elem.keys.iter().find(|(name, _)| several && !names.insert(name)) {
            Some((name, _)) => Err(self.malformed(format!("key `{name}` given twice"))),
            None => Ok(()),
        }
    }

    fn child(&self, parent: NodeId) -> Option<NodeId> {
        let (module, name) = self.elem().split_name();
        self.schema.child(parent, module, name)
    }

    /// Keys of this element as a pattern for the list `node`; `None` when `node` is not a list.
    fn keys(&self, node: NodeId) -> Result<Option<KeyPattern>, PathError> {
        let mut pattern = self.open_keys(node);
        self.read_keys(node, &mut pattern)?;
        Ok(pattern)
    }

    /// Pattern for every entry of `node`; `None` when it is not a list.
    fn open_keys(&self, node: NodeId) -> Option<KeyPattern> {
        match &self.schema.node(node).kind {
            NodeKind::List { keys } => Some(KeyPattern::any(keys.len())),
            _ => None,
        }
    }

    fn read_keys(&self, node: NodeId, into: &mut Option<KeyPattern>) -> Result<(), PathError> {
        let elem = self.elem();
        let (NodeKind::List { keys }, Some(pattern)) = (&self.schema.node(node).kind, into) else {
            return if elem.keys.is_empty() {
                Ok(())
            } else {
                Err(self.malformed("keys on a node that is not a list"))
            };
        };
        for (name, text) in &elem.keys {
            let bare = name.rsplit_once(':').map_or(name.as_str(), |(_, bare)| bare);
            let Some(index) = keys.iter().position(|&key| self.schema.node(key).name == bare)
            else {
                return Err(self.malformed(format!("unknown key `{name}`")));
            };
            if text != ANY {
                pattern.0[index] = Some(self.key_value(keys[index], name, text)?);
            }
        }
        Ok(())
    }

    fn key_value(&self, key: NodeId, name: &str, text: &str) -> Result<Value, PathError> {
        let ty = &self.schema.leaf(key).ty;
        ty.parse_text(text).map_err(|reason| PathError::BadKey {
            path: excerpt(self.path),
            at: self.place(),
            key: excerpt(name),
            reason,
        })
    }

    fn all_keys(&self, node: NodeId, pattern: &KeyPattern) -> Result<Keys, PathError> {
        if let Some(keys) = pattern.concrete() {
            return Ok(keys);
        }
        if self.elem().keys.iter().any(|(_, text)| text == ANY) {
            return Err(self.wildcard());
        }
        let open = pattern.0.iter().position(Option::is_none).unwrap_or_default();
        let key = match &self.schema.node(node).kind {
            NodeKind::List { keys } => self.schema.node(keys[open]).name.to_string(),
            _ => String::new(),
        };
        Err(PathError::MissingKey { path: excerpt(self.path), at: self.place(), key })
    }

    fn place(&self) -> String {
        self.path.head(self.at + 1)
    }

    fn unknown(&self) -> PathError {
        PathError::Unknown { path: excerpt(self.path), at: self.place() }
    }

    fn wildcard(&self) -> PathError {
        PathError::Wildcard { path: excerpt(self.path), at: self.place() }
    }

    fn malformed(&self, reason: impl Into<String>) -> PathError {
        PathError::Malformed {
            path: excerpt(self.path),
            at: self.place(),
            reason: excerpt(&reason.into()),
        }
    }
}

impl InstancePath {
    /// Formats the path as text, with keys in canonical form and names without modules.
    pub fn to_path(&self, schema: &Schema) -> Path {
        let elem = |step: &Step| {
            let values = step.keys.iter().flatten();
            path_elem(schema, step.node, values.map(ToString::to_string))
        };
        Path { elems: self.0.iter().map(elem).collect() }
    }
}

/// One element of a path, with the texts of its keys in schema order.
fn path_elem(schema: &Schema, node: NodeId, values: impl Iterator<Item = String>) -> Elem {
    let node = schema.node(node);
    let mut elem = Elem::new(node.name.as_str());
    if let NodeKind::List { keys } = &node.kind {
        let names = keys.iter().map(|key| schema.node(*key).name.to_string());
        elem.keys = names.zip(values).collect();
    }
    elem
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves 1.29, 1.30, 1.31
    #[test]
    fn reads_take_wildcards_at_every_level() {
        check_read("/", "/");
        check_read("/interfaces/interface/config/mtu", "/interfaces/interface[name=*]/config/mtu");
        check_read(
            "/interfaces/interface[name=*]/config/mtu",
            "/interfaces/interface[name=*]/config/mtu",
        );
        check_read("/interfaces/interface[name=eth0]", "/interfaces/interface[name=eth0]");
        check_read("/openconfig-interfaces:interfaces", "/interfaces");
        check_read("/system/*/hostname", "/system/config/hostname /system/state/hostname");
        check_read("/*/interface/config/name", "/interfaces/interface[name=*]/config/name");
        check_read("/*[name=x]", "`/*[name=x]`: the model has no `/*[name=x]`");
        check_read("/interfaces/*[name=x]/name", "/interfaces/interface[name=x]/name");
        check_read("/system/...", "/system");
        check_read("/.../hostname", "/system/config/hostname /system/state/hostname");
        check_read(
            "/network-instances/network-instance/protocols/protocol[name=a]/name",
            "/network-instances/network-instance[name=*]/protocols/protocol[identifier=*][name=a]/name",
        );
        check_read(
            "/network-instances/network-instance/protocols/protocol[name=a][identifier=STATIC]",
            "/network-instances/network-instance[name=*]/protocols/protocol[identifier=STATIC][name=a]",
        );
        check_read(
            "/interfaces/interface[name=a]/subinterfaces/subinterface[index=0]",
            "/interfaces/interface[name=a]/subinterfaces/subinterface[index=0]",
        );
    }

    #[test]
    fn malformed_and_unknown_paths_are_different_errors() {
        check_read(
            "/interfaces/bogus/mtu",
            "`/interfaces/bogus/mtu`: the model has no `/interfaces/bogus`",
        );
        check_read("/.../bogus", "`/.../bogus`: the model has no `/.../bogus`");
        check_read(
            "/system[name=x]",
            "`/system[name=x]`: keys on a node that is not a list at `/system[name=x]`",
        );
        check_read(
            "/interfaces/interface[id=x]",
            "`/interfaces/interface[id=x]`: unknown key `id` at `/interfaces/interface[id=x]`",
        );
        check_read(
            "/interfaces/interface/subinterfaces/subinterface[index=x]",
            "`/interfaces/interface/subinterfaces/subinterface[index=x]`: bad value of key `index` at \
             `/interfaces/interface/subinterfaces/subinterface[index=x]`: `x` is not a uint32 within 0..4294967295",
        );
        let unnamed = Path { elems: vec![Elem::new("")] };
        let schema = Schema::openconfig().unwrap();
        assert!(matches!(schema.resolve_read(&unnamed), Err(PathError::Malformed { .. })));
    }

    #[test]
    fn writes_name_one_node() {
        check_write(
            "/interfaces/interface[name=a]/config/mtu",
            "/interfaces/interface[name=a]/config/mtu",
        );
        check_write(
            "/interfaces/interface/config",
            "`/interfaces/interface/config`: `/interfaces/interface` lacks key `name`",
        );
        let protocol =
            "/network-instances/network-instance[name=a]/protocols/protocol[identifier=STATIC]";
        check_write(protocol, &format!("`{protocol}`: `{protocol}` lacks key `name`"));
        for path in ["/interfaces/interface[name=*]", "/interfaces/*", "/interfaces/..."] {
            check_write(path, &format!("`{path}`: no wildcard is permitted at `{path}` here"));
        }
        check_write("/bogus", "`/bogus`: the model has no `/bogus`");
    }

    #[test]
    fn patterns_cover_what_lies_at_or_below_them() {
        let schema = Schema::openconfig().unwrap();
        let one = |path: &str| schema.resolve_write(&path.parse().unwrap()).unwrap();
        let pattern =
            &schema.resolve_read(&"/interfaces/interface/config".parse().unwrap()).unwrap()[0];
        assert!(pattern.covers(&one("/interfaces/interface[name=a]/config/mtu")));
        assert!(!pattern.covers(&one("/interfaces/interface[name=a]")));
        assert!(pattern.overlaps(&one("/interfaces/interface[name=a]")));
        assert!(!pattern.overlaps(&one("/interfaces/interface[name=a]/state")));
        assert_eq!(pattern.concrete(), None);
        let path = one("/interfaces/interface[name=a]");
        assert_eq!(PathPattern::from(&path).concrete(), Some(path));
    }

    #[track_caller]
    fn check_read(path: &str, want: &str) {
        let schema = Schema::openconfig().unwrap();
        let got = match schema.resolve_read(&path.parse().unwrap()) {
            Ok(found) => found.iter().map(|p| text(&schema, p)).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        };
        assert_eq!(got.strip_prefix("path ").unwrap_or(&got), want);
    }

    #[track_caller]
    fn check_write(path: &str, want: &str) {
        let schema = Schema::openconfig().unwrap();
        let got = match schema.resolve_write(&path.parse().unwrap()) {
            Ok(found) => found.to_path(&schema).to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(got.strip_prefix("path ").unwrap_or(&got), want);
    }

    fn text(schema: &Schema, pattern: &PathPattern) -> String {
        let elem = |step: &PatternStep| {
            let mut elem = Elem::new(schema.node(step.node).name.as_str());
            if let (NodeKind::List { keys }, Some(values)) =
                (&schema.node(step.node).kind, &step.keys)
            {
                for (key, value) in keys.iter().zip(&values.0) {
                    let value = value.as_ref().map_or(ANY.into(), Value::to_string);
                    elem.keys.push((schema.node(*key).name.to_string(), value));
                }
            }
            elem
        };
        Path { elems: pattern.0.iter().map(elem).collect() }.to_string()
    }
}
