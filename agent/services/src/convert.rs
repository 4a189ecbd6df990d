//! Values of the models as values of templates.

use holdfast_config::schema::NodeKind;
use holdfast_config::tree::ListEntry as _;
use holdfast_config::{Branch, Child, LeafMeta, NodeId, Schema, Value};
use minijinja::Value as TemplateValue;
use minijinja::value::ValueKind;

/// The value of a leaf or leaf-list. Identities have their bare names, and the type `empty` is true.
pub(crate) fn value(value: &Value) -> TemplateValue {
    match value {
        Value::Bool(value) => TemplateValue::from(*value),
        Value::Int(value) => TemplateValue::from(*value),
        Value::Uint(value) => TemplateValue::from(*value),
        Value::Decimal { digits, scale } => {
            #[allow(clippy::cast_precision_loss, reason = "expressions have no exact fractions")]
            let digits = *digits as f64;
            TemplateValue::from(digits / 10_f64.powi(i32::from(*scale)))
        }
        Value::Empty => TemplateValue::from(true),
        Value::List(values) => values.iter().map(self::value).collect(),
        Value::Str(_) | Value::Binary(_) | Value::Enum(_) | Value::Identity(_) | Value::Bits(_) => {
            TemplateValue::from(value.to_string())
        }
    }
}

/// The text of a string, a number or a boolean.
pub(crate) fn scalar_text(value: &TemplateValue) -> Option<String> {
    match value.kind() {
        ValueKind::String | ValueKind::Number => Some(value.to_string()),
        // Jinja writes them as Python does.
        ValueKind::Bool => Some(value.is_true().to_string()),
        _ => None,
    }
}

/// The configuration below a node as a map, with `_` for `-` in names. Containers, lists and leaf-lists are there
/// when they are empty, too; absent leaves and presence containers are not.
pub(crate) fn branch<M: LeafMeta>(
    schema: &Schema,
    node: NodeId,
    effective: Option<&Branch<M>>,
) -> TemplateValue {
    let members = schema.node(node).children.iter().filter_map(|id| {
        let child = schema.node(*id);
        if !child.config {
            return None;
        }
        let existing = effective.and_then(|it| it.child(*id));
        let value = match &child.kind {
            NodeKind::Root => return None,
            NodeKind::Leaf => match existing? {
                Child::Leaf(leaf) => value(&leaf.value),
                Child::Container(_) | Child::List(_) => return None,
            },
            NodeKind::LeafList => match existing {
                Some(Child::Leaf(leaf)) => value(&leaf.value),
                _ => TemplateValue::from(Vec::<TemplateValue>::new()),
            },
            NodeKind::List { .. } => {
                let entries = effective.and_then(|it| it.list(*id));
                let entries = entries.into_iter().flat_map(|list| list.iter());
                entries.map(|(_, entry)| branch(schema, *id, Some(&entry.branch()))).collect()
            }
            NodeKind::Container { presence } => {
                let inside = effective.and_then(|it| it.container(*id));
                if *presence && inside.is_none() {
                    return None;
                }
                branch(schema, *id, inside.map(|it| &**it))
            }
        };
        Some((child.name.replace('-', "_"), value))
    });
    TemplateValue::from_pairs(members)
}
