//! The parameters of an instance: a document of its type, checked, with defaults in use.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_config::json::{self, Flavour};
use holdfast_config::limits::excerpt;
use holdfast_config::schema::Origin;
use holdfast_config::tree::{Child, Leaf, NodeRef, Tree};
use holdfast_config::{
    Branch, Configuration, Edit, EditTarget, Elem, InstancePath, Keys, Layers, LeafMark, Path,
    Payload, Provenance, ProvenanceKind, ServiceTag,
};
use serde_json::value::RawValue;
use smol_str::SmolStr;

use super::Package;
use crate::convert;
use crate::limits::PARAMETERS_SIZE;
use crate::parameters::{Parameters, ParametersError};
use crate::yang::{SERVICES_MODULE, ServiceList};

impl Package {
    /// Reads the parameters of an instance: an RFC 7951 document with the members of its list entry, the key among them.
    /// The entry is checked as a Set of it alone would be, and then by libyang.
    ///
    /// # Errors
    /// With everything the models say against it.
    pub fn parameters(&self, document: &[u8]) -> Result<Parameters, Vec<ParametersError>> {
        let one = |error: String| vec![ParametersError(error)];
        PARAMETERS_SIZE.check(document.len()).map_err(|error| one(error.to_string()))?;
        let models = &self.list.models;
        let schema = &models.native;
        let key = self.key_of(document).map_err(one)?;
        let path = self.path_of(&key);
        let target = EditTarget { origin: Origin::Native, path: path.clone() };
        let payload = Payload::Json { text: document.to_vec().into(), ietf: true };
        let edit = Edit { updates: vec![(target, payload)], ..Edit::default() };
        let empty = Configuration::new(models.clone(), Layers::new());
        let refused = |errors: holdfast_config::EditErrors| {
            errors
                .iter()
                .map(|error| ParametersError(format!("`{}`: {}", error.path, error.cause)))
                .collect::<Vec<_>>()
        };
        let after = empty.edit(&edit).map_err(refused)?;
        let path = schema.resolve_write(&path).map_err(|error| one(error.to_string()))?;
        match after.effective().find_branch(&path.0) {
            Some(entry) => self.parameters_of(&key, &path, &entry),
            None => Err(one(format!("`{}` is not there", path.to_path(schema)))),
        }
    }

    /// The parameters of an instance, after libyang has checked it, of its entry in the effective configuration.
    ///
    /// # Errors
    /// With what libyang says against it.
    pub(crate) fn parameters_of(
        &self,
        key: &str,
        path: &InstancePath,
        entry: &Branch<Provenance>,
    ) -> Result<Parameters, Vec<ParametersError>> {
        self.validate(path, &Arc::new(supplied(entry)))?;
        Ok(self.accepted_parameters(key, entry))
    }

    /// The parameters of an instance that were checked.
    pub(crate) fn accepted_parameters(&self, key: &str, entry: &Branch<Provenance>) -> Parameters {
        let ServiceList { models, list, .. } = &self.list;
        Parameters {
            tag: self.tag(key).to_string().into(),
            service: self.outline.name.text.clone(),
            key: key.into(),
            values: convert::branch(&models.native, *list, Some(entry)),
            document: self.document_for_handlers(entry),
        }
    }

    /// An entry with the defaults in use; empty where no handler asks for it.
    fn document_for_handlers(&self, entry: &Branch<Provenance>) -> Arc<str> {
        if self.outline.handler.is_none() {
            return "".into();
        }
        let ServiceList { models, list, .. } = &self.list;
        let entry = Arc::new(entry.clone());
        let root = NodeRef::Branch(&entry);
        let document = json::print(&models.native, *list, root, Flavour::Ietf, &|_| true);
        let members: BTreeMap<String, Box<RawValue>> =
            serde_json::from_slice(&document.unwrap_or_default()).unwrap_or_default();
        // As within its list: names have no prefix there, because all are of one module.
        let prefix = format!("{}:", self.outline.name.text);
        let bare = |name: &str| name.strip_prefix(&prefix).unwrap_or(name).to_owned();
        let members: BTreeMap<String, Box<RawValue>> =
            members.into_iter().map(|(name, value)| (bare(&name), value)).collect();
        serde_json::to_string(&members).unwrap_or_default().into()
    }

    /// Path of the instance with this key; `None` for a text that is not a key of the type.
    pub(crate) fn instance_path(&self, key: &str) -> Option<InstancePath> {
        self.list.models.native.resolve_write(&self.path_of(key)).ok()
    }

    fn path_of(&self, key: &str) -> Path {
        let ServiceList { models, key: leaf, .. } = &self.list;
        let module = &self.outline.name.text;
        let name = &*models.native.node(*leaf).name;
        let entry = Elem::new(format!("{module}:{module}")).key(name, key);
        Path { elems: vec![Elem::new(format!("{SERVICES_MODULE}:services")), entry] }
    }

    /// The entry of an instance as a document that [`Package::parameters`] reads.
    pub(crate) fn document_of(&self, entry: &Branch<Provenance>) -> Option<Arc<str>> {
        let ServiceList { models, list, .. } = &self.list;
        let supplied = Arc::new(supplied(entry));
        let root = NodeRef::Branch(&supplied);
        let document = json::print(&models.native, *list, root, Flavour::Ietf, &|_| true)?;
        String::from_utf8(document).ok().map(Arc::from)
    }

    /// Name of the instance with this key.
    pub(crate) fn tag(&self, key: &str) -> ServiceTag {
        ServiceTag {
            service: self.outline.name.text.clone(),
            key_name: self.list.models.native.node(self.list.key).name.clone(),
            key: key.into(),
        }
    }

    /// Value of the key in a document, as text.
    fn key_of(&self, document: &[u8]) -> Result<SmolStr, String> {
        let schema = &self.list.models.native;
        let node = schema.node(self.list.key);
        let members: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(document)
            .map_err(|error| format!("the text is not a JSON document of an instance: {error}"))?;
        let qualified = format!("{}:{}", schema.module(node.module).name, node.name);
        let value = members.get(&*node.name).or_else(|| members.get(&qualified));
        match value {
            Some(serde_json::Value::String(text)) => Ok(text.into()),
            Some(value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_))) => {
                Ok(value.to_string().into())
            }
            Some(value) => {
                Err(format!("`{}` is not a value of the key `{}`", excerpt(value), node.name))
            }
            None => Err(format!("the key `{}` is missing", node.name)),
        }
    }

    /// Asks libyang about the instance, as if there was no other.
    fn validate(
        &self,
        path: &InstancePath,
        entry: &Arc<Branch<LeafMark>>,
    ) -> Result<(), Vec<ParametersError>> {
        let schema = &self.list.models.native;
        let mut alone = Tree::new();
        alone.put(schema, path, Child::Container(entry.clone()), &LeafMark::Explicit);
        let root = NodeRef::Branch(alone.root());
        let document = json::print(schema, schema.root(), root, Flavour::Ietf, &|_| true);
        let one = |error: String| vec![ParametersError(error)];
        let document = String::from_utf8(document.unwrap_or_default())
            .map_err(|error| one(error.to_string()))?;
        PARAMETERS_SIZE.check(document.len()).map_err(|error| one(error.to_string()))?;
        let said = self.list.validator.check(&document);
        said.map_err(|error| vec![ParametersError(excerpt(&error))])
    }
}

/// A branch without the leaves that are defaults.
fn supplied(branch: &Branch<Provenance>) -> Branch<LeafMark> {
    let mut supplied = Branch::with_capacity(branch.children().len());
    supplied.given = branch.given;
    for (node, child) in branch.children() {
        if let Some(child) = supplied_child(child) {
            supplied.put(*node, child);
        }
    }
    supplied
}

fn supplied_child(child: &Child<Provenance>) -> Option<Child<LeafMark>> {
    let child = match child {
        Child::Leaf(leaf) => match leaf.meta.kind {
            ProvenanceKind::NativeDefault | ProvenanceKind::OpenConfigDefault => return None,
            ProvenanceKind::Explicit | ProvenanceKind::Factory => {
                Child::Leaf(Leaf::new(leaf.value.clone(), LeafMark::Explicit))
            }
        },
        Child::Container(inner) => Child::Container(Arc::new(supplied(inner))),
        Child::List(list) => {
            let entry = |(keys, entry): (&Keys, &Arc<Branch<Provenance>>)| {
                (keys.clone(), Arc::new(supplied(entry)))
            };
            Child::List(list.iter().map(entry).collect())
        }
    };
    (!child.is_empty()).then_some(child)
}
