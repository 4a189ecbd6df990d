//! Names that templates and expressions see.

use minijinja::Value as TemplateValue;
use smol_str::SmolStr;

use crate::component::Component;
use crate::parameters::Parameters;
pub use crate::reserved_names::RESERVED_NAMES;

/// Values of one evaluation, by the names that expressions use.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Key of the instance.
    key: SmolStr,
    params: TemplateValue,
    service: TemplateValue,
    component: Option<TemplateValue>,
    /// Values that actions and handlers keep with the instance.
    opaque: Vec<(SmolStr, TemplateValue)>,
    /// Variables of the tree, the innermost last; `item` is one of them.
    vars: Vec<(SmolStr, TemplateValue)>,
}

impl Scope {
    /// The names of an instance. `leaving` is true when it is deleted or un-deployed.
    pub fn of_instance(parameters: &Parameters, leaving: bool) -> Self {
        let service = TemplateValue::from_pairs([
            ("tag", TemplateValue::from(parameters.tag.as_str())),
            ("type", TemplateValue::from(parameters.service.as_str())),
            ("key", TemplateValue::from(parameters.key.as_str())),
            ("leaving", TemplateValue::from(leaving)),
        ]);
        let params = parameters.values.clone();
        let opaque = Vec::new();
        let key = parameters.key.clone();
        Self { key, params, service, component: None, opaque, vars: Vec::new() }
    }

    /// The names of a component of the instance: those of the instance, and the variables of its tree nodes.
    #[must_use]
    pub fn of_component(&self, component: &Component) -> Self {
        let names = TemplateValue::from_pairs([
            ("type", component.component_type.as_str()),
            ("name", component.name.as_str()),
        ]);
        Self { component: Some(names), vars: component.vars.0.clone(), ..self.clone() }
    }

    /// With the opaque values of the instance, which hide variables.
    #[must_use]
    pub(crate) fn with_opaque(&self, opaque: Vec<(SmolStr, TemplateValue)>) -> Self {
        Self { opaque, ..self.clone() }
    }

    /// With one more variable, which hides those above it.
    #[must_use]
    pub(crate) fn with(&self, name: &str, value: TemplateValue) -> Self {
        let mut scope = self.clone();
        scope.vars.push((name.into(), value));
        scope
    }

    /// Key of the instance.
    pub(crate) fn key(&self) -> &SmolStr {
        &self.key
    }

    pub(crate) fn vars(&self) -> &[(SmolStr, TemplateValue)] {
        &self.vars
    }

    /// Everything by its name.
    pub(crate) fn names(&self) -> Vec<(SmolStr, TemplateValue)> {
        let mut names = self.vars.clone();
        names.extend(self.opaque.iter().cloned());
        names.push(("params".into(), self.params.clone()));
        names.push(("service".into(), self.service.clone()));
        names.extend(self.component.clone().map(|it| ("component".into(), it)));
        names
    }
}
