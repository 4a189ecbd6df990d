//! Parser from JSON to typed leaves, in one pass and without an intermediate value.
//!
//! serde drives: each node has a seed that knows its valid content. An error is kept in [`DocumentReader::failure`], and
//! its path is composed while the parser unwinds, so that valid documents do not pay for it.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use self::leaf::{LeafListSeed, LeafSeed};
use self::list::ListSeed;
use super::{Flavour, JsonError, JsonErrorKind};
use crate::instance::{InstancePath, Keys};
use crate::limits::excerpt;
use crate::path::Elem;
use crate::progress::ParseProgress;
use crate::schema::{Node, NodeId, NodeKind, Schema, ValueError};
use crate::tree::{Branch, Child, LeafMeta, List};
use crate::value::Value;

/// Declares visitor methods that fail: because there is null, or because another shape is expected.
macro_rules! other_shapes {
    ($value:ty, $expected:literal: $($shape:ident)*) => {
        fn visit_unit<E: serde::de::Error>(self) -> Result<$value, E> {
            Err(self.reader.fail(JsonErrorKind::Null))
        }

        $(other_shapes!(@ $shape $value, $expected);)*
    };
    (@ seq $value:ty, $expected:literal) => {
        fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<$value, A::Error> {
            Err(self.reader.fail(JsonErrorKind::Shape($expected)))
        }
    };
    (@ map $value:ty, $expected:literal) => {
        fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<$value, A::Error> {
            Err(self.reader.fail(JsonErrorKind::Shape($expected)))
        }
    };
    (@ bool $value:ty, $expected:literal) => { other_shapes!(@ visit_bool bool, $value, $expected); };
    (@ i64 $value:ty, $expected:literal) => { other_shapes!(@ visit_i64 i64, $value, $expected); };
    (@ u64 $value:ty, $expected:literal) => { other_shapes!(@ visit_u64 u64, $value, $expected); };
    (@ f64 $value:ty, $expected:literal) => { other_shapes!(@ visit_f64 f64, $value, $expected); };
    (@ str $value:ty, $expected:literal) => { other_shapes!(@ visit_str &str, $value, $expected); };
    (@ $visit:ident $given:ty, $value:ty, $expected:literal) => {
        fn $visit<E: serde::de::Error>(self, _: $given) -> Result<$value, E> {
            Err(self.reader.fail(JsonErrorKind::Shape($expected)))
        }
    };
}

mod leaf;
mod list;

/// Member with the annotations of the root.
const ANNOTATIONS: &str = "@";

/// A parsed document.
#[derive(Debug)]
pub struct Document<M: LeafMeta> {
    pub content: DocumentContent<M>,
    /// Annotations of the root by name, unchanged; only documents for the root can have any.
    pub annotations: Option<serde_json::Map<String, serde_json::Value>>,
}

/// Typed content, in the shape of the target.
#[derive(Debug)]
pub enum DocumentContent<M: LeafMeta> {
    Leaf(Value),
    /// Content of a container, of a list entry (including its keys) or of the root. Entries and presence
    /// containers in it are marked as given.
    Branch(Branch<M>),
    /// Entries of a list, for a target without keys.
    List(List<M>),
}

/// Parses `text` as the content of `target`; every leaf carries `meta`. With `writable`, state is refused, and
/// entries are completed by the leaves that repeat their keys.
///
/// # Errors
/// At the first error, with its full path.
pub fn parse<M: LeafMeta>(
    schema: &Schema,
    target: &InstancePath,
    text: &[u8],
    flavour: Flavour,
    writable: bool,
    meta: M,
) -> Result<Document<M>, JsonError> {
    parse_with_progress(schema, target, text, flavour, writable, meta, &ParseProgress::default())
}

/// Parses one of several documents that share their limits, unless the request is cancelled meanwhile.
///
/// # Errors
/// The errors of [`parse`]; and when all documents together exceed the limits of a configuration, or the request was
/// cancelled.
pub fn parse_with_progress<M: LeafMeta>(
    schema: &Schema,
    target: &InstancePath,
    text: &[u8],
    flavour: Flavour,
    writable: bool,
    meta: M,
    progress: &ParseProgress,
) -> Result<Document<M>, JsonError> {
    let failure = RefCell::default();
    let reader =
        DocumentReader { schema, flavour, writable, meta, failure, split: false, progress };
    let counted = progress.entries();
    if text.len() >= LARGE_DOCUMENT_OCTETS {
        match read(&DocumentReader { split: true, ..reader.again() }, target, text) {
            Err(JsonError { fault, .. }) if !matches!(fault, JsonErrorKind::Stop(_)) => {
                progress.rewind(counted);
            }
            read => return read,
        }
    }
    // A single pass, which can tell line and column of an error.
    read(&reader, target, text)
}

fn read<M: LeafMeta>(
    reader: &DocumentReader<'_, M>,
    target: &InstancePath,
    text: &[u8],
) -> Result<Document<M>, JsonError> {
    let mut annotations = None;
    let mut json = serde_json::Deserializer::from_slice(text);
    let result = reader.document(target, &mut json, &mut annotations);
    match result.and_then(|content| json.end().map(|()| content)) {
        Ok(content) => Ok(Document { content, annotations }),
        Err(error) => Err(reader.failed(target, &error)),
    }
}

/// State that all seeds share.
struct DocumentReader<'a, M: LeafMeta> {
    schema: &'a Schema,
    flavour: Flavour,
    writable: bool,
    meta: M,
    failure: RefCell<ErrorTrace>,
    /// Splits lists into entries first, so that long lists can be parsed in parallel.
    split: bool,
    progress: &'a ParseProgress,
}

/// Documents from this size on are scanned twice, in order to parse the entries of long lists in parallel.
const LARGE_DOCUMENT_OCTETS: usize = 256 << 10;

/// First error of a document. The trail grows while the parser unwinds, innermost node first.
#[derive(Default)]
struct ErrorTrace {
    fault: Option<JsonErrorKind>,
    trail: Vec<String>,
}

impl<M: LeafMeta> DocumentReader<'_, M> {
    /// A reader with the same settings and without a failure.
    fn again(&self) -> Self {
        let meta = self.meta.clone();
        Self { meta, failure: RefCell::default(), ..*self }
    }

    fn document<'de, D: Deserializer<'de>>(
        &self,
        target: &InstancePath,
        json: D,
        annotations: &mut Option<serde_json::Map<String, serde_json::Value>>,
    ) -> Result<DocumentContent<M>, D::Error> {
        let (id, keys) = target
            .last()
            .map_or((self.schema.root(), None), |step| (step.node, step.keys.as_ref()));
        let node = self.schema.node(id);
        if self.writable && !node.config {
            return Err(self.fail(JsonErrorKind::ReadOnly));
        }
        match (&node.kind, keys) {
            (NodeKind::Leaf, _) => {
                LeafSeed { reader: self, node }.deserialize(json).map(DocumentContent::Leaf)
            }
            (NodeKind::LeafList, _) => {
                LeafListSeed { reader: self, node }.deserialize(json).map(DocumentContent::Leaf)
            }
            (NodeKind::List { .. }, None) => {
                ListSeed { reader: self, node }.deserialize(json).map(DocumentContent::List)
            }
            (kind, keys) => {
                let mut branch = new_branch(node);
                if let (NodeKind::List { keys: leaves }, Some(keys)) = (kind, keys) {
                    for (leaf, value) in leaves.iter().zip(keys) {
                        branch.put_leaf(*leaf, value.clone(), self.meta.clone());
                    }
                }
                let seed = BranchSeed {
                    reader: self,
                    node,
                    branch: &mut branch,
                    top: Some(annotations),
                    keys,
                };
                seed.deserialize(json)?;
                if matches!(kind, NodeKind::List { .. }) {
                    self.complete_key_copies(node, &mut branch)
                        .map_err(|fault| self.fail(fault))?;
                }
                Ok(DocumentContent::Branch(branch))
            }
        }
    }

    /// Records the error. The one that serde propagates has no content.
    fn fail<E: serde::de::Error>(&self, fault: JsonErrorKind) -> E {
        self.failure.borrow_mut().fault.get_or_insert(fault);
        E::custom("")
    }

    /// Counts list entries that follow.
    fn count<E: serde::de::Error>(&self, entries: usize) -> Result<(), E> {
        self.progress.count_entries(entries).map_err(|stop| self.fail(JsonErrorKind::Stop(stop)))
    }

    fn value<E: serde::de::Error>(&self, value: Result<Value, ValueError>) -> Result<Value, E> {
        value.map_err(|error| self.fail(JsonErrorKind::Value(error)))
    }

    fn at(&self, segment: impl FnOnce() -> String) {
        self.failure.borrow_mut().trail.push(segment());
    }

    fn failed(&self, target: &InstancePath, error: &serde_json::Error) -> JsonError {
        let ErrorTrace { fault, trail } = self.failure.take();
        let base = target.to_path(self.schema).to_string();
        let path = trail
            .iter()
            .rev()
            .fold(base.trim_end_matches('/').to_owned(), |path, part| path + "/" + part);
        let path = if path.is_empty() { "/".to_owned() } else { path };
        let fault = fault.unwrap_or_else(|| JsonErrorKind::Syntax(error.to_string()));
        let has_place = error.line() > 0 && !matches!(fault, JsonErrorKind::Stop(_));
        JsonError { path, fault, line: has_place.then(|| error.line()) }
    }

    /// Looks up the child for a member's name. RFC 7951 requires the module where it changes, and at the top of a
    /// whole document; a document for a lower node may omit it there.
    fn member(&self, parent: &Node, top: bool, name: &str) -> Result<NodeId, JsonErrorKind> {
        if name.starts_with('@') {
            return Err(JsonErrorKind::Annotation);
        }
        let (module, bare) =
            name.split_once(':').map_or((None, name), |(module, bare)| (Some(module), bare));
        let id = self.schema.child(parent.id, module, bare).ok_or(JsonErrorKind::Unknown)?;
        let child = self.schema.node(id);
        let is_root = parent.kind == NodeKind::Root;
        let changes = is_root || child.module != parent.module;
        if self.flavour == Flavour::Ietf && module.is_none() && changes && (is_root || !top) {
            let module = &self.schema.module(child.module).name;
            return Err(JsonErrorKind::Unqualified(excerpt(&format_args!("{module}:{name}"))));
        }
        if self.writable && !self.schema.node(id).config {
            return Err(JsonErrorKind::ReadOnly);
        }
        Ok(id)
    }

    /// Keys of a parsed entry.
    fn keys(&self, node: &Node, branch: &mut Branch<M>) -> Result<Keys, JsonErrorKind> {
        let NodeKind::List { keys } = &node.kind else { return Ok(Keys::default()) };
        let value = |key: &NodeId| {
            let missing = || JsonErrorKind::MissingKey(self.schema.node(*key).name.to_string());
            branch.value(*key).cloned().ok_or_else(missing)
        };
        let keys = keys.iter().map(value).collect::<Result<_, _>>()?;
        self.complete_key_copies(node, branch)?;
        Ok(keys)
    }

    /// Handles leaves in an entry's `config` container that repeat its keys: the values must be equal, and missing
    /// leaves are added to documents for writing.
    fn complete_key_copies(
        &self,
        node: &Node,
        branch: &mut Branch<M>,
    ) -> Result<(), JsonErrorKind> {
        let NodeKind::List { keys } = &node.kind else { return Ok(()) };
        for key in keys {
            let Some(twin) = self.schema.leaf(*key).leafref else { continue };
            let Some(container) = self
                .schema
                .node(twin)
                .parent
                .filter(|c| self.schema.node(*c).parent == Some(node.id))
            else {
                continue;
            };
            let copy = branch.container(container).and_then(|c| c.value(twin));
            match (copy, branch.value(*key)) {
                (Some(copy), Some(is)) if copy != is => {
                    return Err(mismatch(self.schema.node(*key), is, copy));
                }
                (None, Some(is)) if self.writable => {
                    let is = is.clone();
                    branch.container_mut(container).put_leaf(twin, is, self.meta.clone());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Path segment of an entry: `name[key=value]` with the keys that are known, else its position.
    fn entry_segment(&self, node: &Node, branch: &Branch<M>, position: usize) -> String {
        let NodeKind::List { keys } = &node.kind else { return node.name.to_string() };
        let mut elem = Elem::new(node.name.as_str());
        for key in keys {
            match branch.value(*key) {
                Some(value) => {
                    elem.keys.push((self.schema.node(*key).name.to_string(), excerpt(value)))
                }
                None => return format!("{} (entry {})", node.name, position + 1),
            }
        }
        elem.to_string()
    }
}

fn mismatch(key: &Node, path: &Value, payload: &Value) -> JsonErrorKind {
    JsonErrorKind::KeyMismatch {
        key: key.name.to_string(),
        path: excerpt(path),
        payload: excerpt(payload),
    }
}

/// Initial capacity for children of a new branch; most have no more.
const ROOM: usize = 4;

fn new_branch<M: LeafMeta>(node: &Node) -> Branch<M> {
    let mut branch = Branch::with_capacity(node.children.len().min(ROOM));
    branch.given = is_given(&node.kind);
    branch
}

/// True for nodes whose mere presence counts.
fn is_given(kind: &NodeKind) -> bool {
    matches!(kind, NodeKind::List { .. } | NodeKind::Container { presence: true })
}

/// Parses an object into `branch`.
struct BranchSeed<'a, 'r, M: LeafMeta> {
    reader: &'a DocumentReader<'r, M>,
    node: &'a Node,
    branch: &'a mut Branch<M>,
    /// Destination of annotations; set only for the outermost object.
    top: Option<&'a mut Option<serde_json::Map<String, serde_json::Value>>>,
    /// Keys from the path, which the document may repeat.
    keys: Option<&'a Keys>,
}

impl<'de, M: LeafMeta> DeserializeSeed<'de> for BranchSeed<'_, '_, M> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de, M: LeafMeta> Visitor<'de> for BranchSeed<'_, '_, M> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let top = self.top.is_some();
        while let Some(member) =
            map.next_key_seed(MemberSeed { reader: self.reader, parent: self.node, top })?
        {
            match member {
                Member::Child(id) => self.child(id, &mut map)?,
                Member::Annotations => {
                    let read = map.next_value::<serde_json::Map<String, serde_json::Value>>();
                    let read = read.inspect_err(|_| self.reader.at(|| ANNOTATIONS.to_owned()))?;
                    if let Some(annotations) = &mut self.top {
                        **annotations = Some(read);
                    }
                }
            }
        }
        Ok(())
    }

    other_shapes!((), "an object": bool i64 u64 f64 str seq);
}

impl<M: LeafMeta> BranchSeed<'_, '_, M> {
    fn child<'de, A: MapAccess<'de>>(&mut self, id: NodeId, map: &mut A) -> Result<(), A::Error> {
        let node = self.reader.schema.node(id);
        let known_key = match (&self.node.kind, self.keys) {
            (NodeKind::List { keys: leaves }, Some(keys)) => {
                leaves.iter().position(|k| *k == id).map(|at| &keys[at])
            }
            _ => None,
        };
        let result = match (known_key, self.branch.child(id)) {
            (None, Some(_)) => Err(self.reader.fail(JsonErrorKind::Duplicate)),
            (Some(key), _) => {
                map.next_value_seed(LeafSeed { reader: self.reader, node }).and_then(|value| {
                    if value == *key {
                        Ok(())
                    } else {
                        Err(self.reader.fail(mismatch(node, key, &value)))
                    }
                })
            }
            (None, None) => self.new_child(node, map),
        };
        result.inspect_err(|_| match &node.kind {
            NodeKind::List { .. }
                if self
                    .reader
                    .failure
                    .borrow()
                    .trail
                    .last()
                    .is_some_and(|t| is_entry_of(t, node)) => {}
            _ => self.reader.at(|| node.name.to_string()),
        })
    }

    fn new_child<'de, A: MapAccess<'de>>(
        &mut self,
        node: &Node,
        map: &mut A,
    ) -> Result<(), A::Error> {
        let reader = self.reader;
        let child = match &node.kind {
            NodeKind::Leaf => self.leaf(map.next_value_seed(LeafSeed { reader, node })?),
            NodeKind::LeafList => match map.next_value_seed(LeafListSeed { reader, node })? {
                Value::List(values) if values.is_empty() => return Ok(()),
                values => self.leaf(values),
            },
            NodeKind::List { .. } => Child::List(map.next_value_seed(ListSeed { reader, node })?),
            NodeKind::Container { .. } | NodeKind::Root => {
                let mut branch = new_branch(node);
                map.next_value_seed(BranchSeed {
                    reader,
                    node,
                    branch: &mut branch,
                    top: None,
                    keys: None,
                })?;
                branch.fit();
                Child::Container(Arc::new(branch))
            }
        };
        if !child.is_empty() {
            self.branch.put(node.id, child);
        }
        Ok(())
    }

    fn leaf(&self, value: Value) -> Child<M> {
        Child::Leaf(crate::tree::Leaf::new(value, self.reader.meta.clone()))
    }
}

/// True when the segment names an entry of this list already, so that the path needs no segment for the list.
fn is_entry_of(segment: &str, node: &Node) -> bool {
    segment
        .strip_prefix(node.name.as_str())
        .is_some_and(|rest| rest.starts_with('[') || rest.starts_with(" (entry"))
}

enum Member {
    Child(NodeId),
    Annotations,
}

/// Parses the name of a member.
struct MemberSeed<'a, 'r, M: LeafMeta> {
    reader: &'a DocumentReader<'r, M>,
    parent: &'a Node,
    top: bool,
}

impl<'de, M: LeafMeta> DeserializeSeed<'de> for MemberSeed<'_, '_, M> {
    type Value = Member;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Member, D::Error> {
        json.deserialize_str(self)
    }
}

impl<M: LeafMeta> Visitor<'_> for MemberSeed<'_, '_, M> {
    type Value = Member;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Member, E> {
        if name == ANNOTATIONS && self.parent.kind == NodeKind::Root {
            return Ok(Member::Annotations);
        }
        self.reader.member(self.parent, self.top, name).map(Member::Child).map_err(|fault| {
            self.reader.at(|| excerpt(name));
            self.reader.fail(fault)
        })
    }
}
