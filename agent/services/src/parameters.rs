//! The parameters of an instance: a document of its type, checked, with defaults in use.

use std::sync::Arc;

use holdfast_config::json::{self, Flavour};
use holdfast_config::limits::excerpt;
use holdfast_config::schema::Origin;
use holdfast_config::tree::{Child, NodeRef, Tree};
use holdfast_config::{
    Branch, Configuration, Edit, EditTarget, Elem, InstancePath, LayerKey, Layers, LeafMark, Path,
    Payload,
};
use minijinja::Value as TemplateValue;
use smol_str::SmolStr;

use crate::convert;
use crate::limits::PARAMETERS_SIZE;
use crate::package::Package;
use crate::yang::{SERVICES_MODULE, ServiceList};

/// The parameters of one instance.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Name of the instance, such as `l3-access[name='acme']`.
    pub tag: SmolStr,
    /// Name of the type.
    pub service: SmolStr,
    pub key: SmolStr,
    pub(crate) values: TemplateValue,
}

/// Reason to refuse the parameters of an instance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParametersError(pub String);

impl Package {
    /// Reads the parameters of an instance: an RFC 7951 document with the members of its list entry, the key among them.
    /// The entry is checked as a Set of it alone would be, and then by libyang.
    ///
    /// # Errors
    /// With everything the models say against it.
    pub fn parameters(&self, document: &[u8]) -> Result<Parameters, Vec<ParametersError>> {
        let one = |error: String| vec![ParametersError(error)];
        PARAMETERS_SIZE.check(document.len()).map_err(|error| one(error.to_string()))?;
        let ServiceList { models, list, key: leaf, .. } = &self.list;
        let schema = &models.native;
        let key = self.key_of(document).map_err(one)?;
        let module = &self.outline.name.text;
        let entry = Elem::new(format!("{module}:{module}")).key(&*schema.node(*leaf).name, &*key);
        let path = Path { elems: vec![Elem::new(format!("{SERVICES_MODULE}:services")), entry] };
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
        let effective = after.effective().branch(&path).map(|branch| &**branch);
        let supplied = after.layers().tree(LayerKey::CLIENT_NATIVE).branch(&path);
        let Some(supplied) = supplied else {
            return Err(one(format!("`{}` is not there", path.to_path(schema))));
        };
        self.validate(&path, supplied)?;
        Ok(Parameters {
            tag: smol_str::format_smolstr!("{module}[{}='{key}']", schema.node(*leaf).name),
            service: module.clone(),
            key,
            values: convert::branch(schema, *list, effective, Some(supplied)),
        })
    }

    /// Value of the key in a document, as text.
    fn key_of(&self, document: &[u8]) -> Result<SmolStr, String> {
        let schema = &self.list.models.native;
        let node = schema.node(self.list.key);
        let members: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(document)
            .map_err(|error| format!("it is no JSON document of an instance: {error}"))?;
        let qualified = format!("{}:{}", schema.module(node.module).name, node.name);
        let value = members.get(&*node.name).or_else(|| members.get(&qualified));
        match value {
            Some(serde_json::Value::String(text)) => Ok(text.into()),
            Some(value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_))) => {
                Ok(value.to_string().into())
            }
            Some(value) => {
                Err(format!("`{}` is no value of the key `{}`", excerpt(value), node.name))
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
        let document = String::from_utf8(document.unwrap_or_default())
            .map_err(|error| vec![ParametersError(error.to_string())])?;
        let said = self.list.validator.check(&document);
        said.map_err(|error| vec![ParametersError(excerpt(&error))])
    }
}
