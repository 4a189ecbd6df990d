//! The components of an instance, with the variables of the tree nodes that made them.

use std::collections::BTreeMap;

use minijinja::Value as TemplateValue;
use smol_str::SmolStr;

/// One component of an instance.
#[derive(Clone, Debug)]
pub struct Component {
    pub component_type: SmolStr,
    pub name: SmolStr,
    /// Types and names of the components whose claims it takes over.
    pub replaces: Vec<(SmolStr, SmolStr)>,
    pub vars: Variables,
}

/// Variables of the tree nodes that made a component, the innermost last.
#[derive(Clone, Debug, Default)]
pub struct Variables(pub(crate) Vec<(SmolStr, TemplateValue)>);

impl Component {
    /// True for a component of this type and name.
    pub(crate) fn is(&self, [component_type, name]: &[SmolStr; 2]) -> bool {
        self.component_type == *component_type && self.name == *name
    }

    /// Type and name.
    pub(crate) fn id(&self) -> [SmolStr; 2] {
        [self.component_type.clone(), self.name.clone()]
    }
}

impl Variables {
    /// Names and values as a JSON document, empty for none.
    pub(crate) fn to_text(&self) -> String {
        match self.0.is_empty() {
            true => String::new(),
            false => serde_json::to_string(&self.0).unwrap_or_default(),
        }
    }

    /// Values by name as a JSON object, empty for none. Of two with one name, the inner one counts.
    pub(crate) fn to_object(&self) -> String {
        let values: BTreeMap<&str, &TemplateValue> =
            self.0.iter().map(|(name, value)| (name.as_str(), value)).collect();
        match values.is_empty() {
            true => String::new(),
            false => serde_json::to_string(&values).unwrap_or_default(),
        }
    }

    /// Variables of the document that [`Variables::to_text`] makes. Another one has none.
    pub(crate) fn of_text(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap_or_default())
    }
}
