//! The components of an instance, as the tree of its type makes them.
//!
//! A node with `foreach` is evaluated once for each item, which it binds to its name and to `item`. Then come its
//! condition, what it observes, its variables, and what it creates or holds. Variables of one node do not see each other;
//! those of nodes above they do.

use std::collections::BTreeSet;
use std::sync::Arc;

use minijinja::Value as TemplateValue;
use minijinja::value::ValueKind;
use smol_str::SmolStr;

use super::Package;
use crate::component::{Component, Variables};
use crate::convert;
use crate::facts::Facts;
use crate::limits::{COMPONENTS, TREE_VISITS};
use crate::outline::{LocatedText, NodeContent, OUTLINE, SELF, TreeNode};
use crate::scope::Scope;
use crate::work::{WorkError, WorkErrorKind};

/// Result of the evaluation of a tree.
#[derive(Clone, Debug)]
pub(crate) struct Synthesis {
    pub(crate) components: Vec<Component>,
    /// Values that nodes observe, as JSON documents.
    pub(crate) observed: Vec<String>,
}

/// Longest name of a component, in octets. It is a key of state paths, and may come from parameters.
const NAME_LENGTH: usize = 255;

impl Package {
    /// The components of an instance in the order of the tree, `self` first.
    ///
    /// # Errors
    /// When an expression fails, two components have one type and name, or there are too many.
    pub fn components(
        &self,
        scope: &Scope,
        facts: &Arc<dyn Facts>,
    ) -> Result<Vec<Component>, WorkError> {
        self.synthesis(scope, facts).map(|it| it.components)
    }

    /// The components of an instance, with what their tree observes.
    pub(crate) fn synthesis(
        &self,
        scope: &Scope,
        facts: &Arc<dyn Facts>,
    ) -> Result<Synthesis, WorkError> {
        let itself = Component {
            component_type: SELF.into(),
            name: SELF.into(),
            replaces: Vec::new(),
            vars: Variables::default(),
        };
        let found = Synthesis { components: vec![itself], observed: Vec::new() };
        let known = BTreeSet::new();
        let mut evaluation = TreeEvaluation { package: self, facts, visits: 0, known, found };
        evaluation.nodes(&self.outline.tree, scope)?;
        Ok(evaluation.found)
    }
}

struct TreeEvaluation<'a> {
    package: &'a Package,
    facts: &'a Arc<dyn Facts>,
    visits: usize,
    known: BTreeSet<(SmolStr, SmolStr)>,
    found: Synthesis,
}

impl TreeEvaluation<'_> {
    fn nodes(&mut self, nodes: &[TreeNode], scope: &Scope) -> Result<(), WorkError> {
        for node in nodes {
            let Some((items, name)) = &node.foreach else {
                self.node(node, scope)?;
                continue;
            };
            for item in self.items(items, scope)? {
                self.node(node, &scope.with(name, item.clone()).with("item", item))?;
            }
        }
        Ok(())
    }

    fn items(&self, items: &LocatedText, scope: &Scope) -> Result<Vec<TemplateValue>, WorkError> {
        let value = self.evaluate(items, scope)?;
        let is_list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
        let found = value.try_iter().ok().filter(|_| is_list);
        let found = found.ok_or_else(|| {
            self.package
                .failed(items, format!("the items are a list, and this is {}", value.kind()))
        })?;
        // One more than all visits, so that the limit is met before the items take memory.
        Ok(found.take(TREE_VISITS.figure + 1).collect())
    }

    fn node(&mut self, node: &TreeNode, scope: &Scope) -> Result<(), WorkError> {
        self.visits += 1;
        TREE_VISITS.check(self.visits).map_err(|error| limit(node, error))?;
        if let Some(condition) = &node.condition
            && !self.package.condition(condition, scope, self.facts)?
        {
            return Ok(());
        }
        for observed in &node.observe {
            let value = self.evaluate(observed, scope)?;
            self.found.observed.push(serde_json::to_string(&value).unwrap_or_default());
        }
        let mut inner = scope.clone();
        for (name, value) in &node.vars {
            inner = inner.with(name, self.evaluate(value, scope)?);
        }
        match &node.content {
            NodeContent::Nodes(nodes) => self.nodes(nodes, &inner),
            NodeContent::Create { component_type, name, replaces } => {
                let at = name;
                let name = self.name(name, &inner)?;
                if !self.known.insert((component_type.clone(), name.clone())) {
                    let reason = format!("there are two components `{component_type} {name}`");
                    return Err(self.package.failed(at, reason));
                }
                let replaced = |(kind, name): &(SmolStr, LocatedText)| {
                    Ok((kind.clone(), self.name(name, &inner)?))
                };
                let replaces = replaces.iter().map(replaced).collect::<Result<_, WorkError>>()?;
                let vars = Variables(inner.vars().to_vec());
                let component_type = component_type.clone();
                let components = &mut self.found.components;
                components.push(Component { component_type, name, replaces, vars });
                COMPONENTS.check(components.len()).map_err(|error| limit(node, error))
            }
        }
    }

    fn name(&self, expression: &LocatedText, scope: &Scope) -> Result<SmolStr, WorkError> {
        let value = self.evaluate(expression, scope)?;
        let name = convert::scalar_text(&value).filter(|name| !name.is_empty());
        let name = name.filter(|name| name.len() <= NAME_LENGTH).map(SmolStr::from);
        name.ok_or_else(|| {
            let reason = format!(
                "the name of a component is a text of up to {NAME_LENGTH} bytes, and this is {}",
                value.kind()
            );
            self.package.failed(expression, reason)
        })
    }

    fn evaluate(
        &self,
        expression: &LocatedText,
        scope: &Scope,
    ) -> Result<TemplateValue, WorkError> {
        self.package.evaluate(expression, scope, self.facts)
    }
}

fn limit(node: &TreeNode, error: holdfast_config::LimitExceeded) -> WorkError {
    WorkError {
        kind: WorkErrorKind::Limit,
        file: OUTLINE.into(),
        position: Some(node.position),
        reason: error.to_string(),
    }
}
