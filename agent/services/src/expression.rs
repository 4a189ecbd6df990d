//! Conditions without a package, as alarm rules have them: the same language, and the same fuel.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_config::path::Path;
use holdfast_config::schema::{NodeKind, Origin};
use holdfast_config::{InstancePath, Models, Value as LeafValue};
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value};
use smol_str::SmolStr;

use crate::convert;
use crate::engine::{self, EngineError};
use crate::grants::split_origin;
use crate::limits::EXPRESSION_FUEL;

/// A value that a condition reads by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedValue {
    Text(SmolStr),
    Number(u64),
}

/// A leaf of state that a condition reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateLeaf {
    pub origin: Origin,
    pub path: InstancePath,
    /// Its value is read from the system when somebody asks for it.
    pub is_polled: bool,
}

impl StateLeaf {
    /// Finds a leaf by its path: of the native model, or of OpenConfig behind `openconfig:`.
    ///
    /// # Errors
    /// With the reason, for a path that does not name one leaf of state.
    pub fn find(models: &Models, path: &str) -> Result<Self, String> {
        let (origin, rest) = split_origin(path)?;
        let schema = models.schema(origin);
        let parsed: Path = rest.parse().map_err(|error| format!("`{path}`: {error}"))?;
        let patterns = schema.resolve_read(&parsed).map_err(|error| error.to_string())?;
        let [pattern] = patterns.as_slice() else {
            return Err(format!("`{path}` names more than one leaf"));
        };
        let Some(path_of_leaf) = pattern.concrete() else {
            return Err(format!("`{path}` names more than one leaf: give a value for each key"));
        };
        let node = schema.node(pattern.last().unwrap_or(schema.root()));
        if !matches!(node.kind, NodeKind::Leaf | NodeKind::LeafList) {
            return Err(format!("`{path}` is not a leaf"));
        }
        if node.config {
            return Err(format!("`{path}` is configuration: a rule reads state"));
        }
        Ok(Self { origin, path: path_of_leaf, is_polled: node.polled })
    }
}

/// Answers what a condition asks with `state(path)` and `rate(path)`.
pub trait StateFacts: fmt::Debug + Send + Sync {
    /// Value of a leaf; `None` where there is none.
    ///
    /// # Errors
    /// With the reason, for a path that does not name a leaf of state.
    fn state(&self, path: &str) -> Result<Option<LeafValue>, String>;

    /// Rise of a leaf in a second, since the period before; `None` where it had no value then.
    ///
    /// # Errors
    /// With the reason, for a path that does not name a leaf with a number.
    fn rate(&self, path: &str) -> Result<Option<f64>, String>;
}

/// Evaluates conditions.
pub struct Conditions(Environment<'static>);

impl Conditions {
    pub fn new() -> Self {
        Self(engine::environment(EXPRESSION_FUEL))
    }

    /// Checks the form of a condition, and that it asks for no other names than these.
    ///
    /// # Errors
    /// With place and reason.
    pub fn check(&self, condition: &str, names: &[&str]) -> Result<(), String> {
        let compiled = engine::compile(&self.0, condition).map_err(|error| error.to_string())?;
        let is_known = |name: &str| {
            names.contains(&name) || self.0.globals().any(|(global, _)| global == name)
        };
        let asked: BTreeSet<String> = compiled.undeclared_variables(false).into_iter().collect();
        match asked.iter().find(|name| !is_known(name)) {
            Some(name) => Err(format!("there is no `{name}`; there are {}", names.join(", "))),
            None => Ok(()),
        }
    }

    /// Whether a condition is true of these values.
    ///
    /// # Errors
    /// With the reason, when it cannot be evaluated, takes too much, or is neither true nor false.
    pub fn is_true(
        &self,
        condition: &str,
        names: &BTreeMap<&'static str, NamedValue>,
    ) -> Result<bool, String> {
        self.evaluate(condition, values_of(names))
    }

    /// Checks that a condition is true or false of example values. A condition that cannot be evaluated with them passes,
    /// because it may be with others.
    ///
    /// # Errors
    /// With the reason, when the result is neither true nor false.
    pub fn check_result(
        &self,
        condition: &str,
        examples: &BTreeMap<&'static str, NamedValue>,
    ) -> Result<(), String> {
        match self.result(condition, values_of(examples)) {
            Ok(result) => truth(&result).map(drop),
            Err(_) => Ok(()),
        }
    }

    /// Whether a condition is true of the state of the box; `None` where a leaf that it reads has no value.
    ///
    /// # Errors
    /// With the reason, when it cannot be evaluated, takes too much, or is neither true nor false.
    pub fn is_true_of_state(
        &self,
        condition: &str,
        facts: &Arc<dyn StateFacts>,
    ) -> Result<Option<bool>, String> {
        let is_missing = Arc::new(AtomicBool::new(false));
        let of_state = Arc::clone(facts);
        let missing = Arc::clone(&is_missing);
        let state = Value::from_function(move |path: String| {
            let value = of_state.state(&path).map_err(refused)?;
            value.as_ref().map(convert::value).ok_or_else(|| no_value(&path, &missing))
        });
        let of_rates = Arc::clone(facts);
        let missing = Arc::clone(&is_missing);
        let rate = Value::from_function(move |path: String| {
            let rate = of_rates.rate(&path).map_err(refused)?;
            rate.ok_or_else(|| no_value(&path, &missing))
        });
        let functions = Value::from_pairs([("state", state), ("rate", rate)]);
        let result = self.evaluate(condition, functions);
        match is_missing.load(Ordering::Relaxed) {
            true => Ok(None),
            false => result.map(Some),
        }
    }

    fn evaluate(&self, condition: &str, names: Value) -> Result<bool, String> {
        truth(&self.result(condition, names)?)
    }

    fn result(&self, condition: &str, names: Value) -> Result<Value, String> {
        let compiled = engine::compile(&self.0, condition).map_err(|error| error.to_string())?;
        let result = compiled.eval(names);
        result.map_err(|error| EngineError::of(&error).to_string())
    }
}

fn values_of(names: &BTreeMap<&'static str, NamedValue>) -> Value {
    Value::from_pairs(names.iter().map(|(name, value)| {
        let value = match value {
            NamedValue::Text(text) => Value::from(text.as_str()),
            NamedValue::Number(number) => Value::from(*number),
        };
        (*name, value)
    }))
}

fn truth(result: &Value) -> Result<bool, String> {
    match result.kind() {
        ValueKind::Bool => Ok(result.is_true()),
        kind => Err(format!("the result is a {kind}, neither true nor false")),
    }
}

fn refused(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, reason)
}

/// Ends an evaluation that cannot have a result.
fn no_value(path: &str, is_missing: &AtomicBool) -> Error {
    is_missing.store(true, Ordering::Relaxed);
    refused(format!("`{path}` has no value"))
}

impl Default for Conditions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Conditions")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> BTreeMap<&'static str, NamedValue> {
        BTreeMap::from([
            ("type", NamedValue::Text("link-down".into())),
            ("severity", NamedValue::Number(3)),
            ("MAJOR", NamedValue::Number(3)),
        ])
    }

    #[test]
    fn a_condition_is_true_or_false_of_named_values() {
        let conditions = Conditions::new();
        for (condition, wanted) in [
            ("severity >= MAJOR", Ok(true)),
            ("severity > MAJOR or type == 'link-down'", Ok(true)),
            ("type == 'x'", Ok(false)),
            ("type", Err("neither true nor false")),
            ("gremlins == 1", Err("undefined")),
            ("range(100000) | list | length > 1", Err("fuel")),
        ] {
            match (conditions.is_true(condition, &names()), wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{condition}"),
                (Err(found), Err(wanted)) => {
                    assert!(found.contains(wanted), "{condition}: {found}")
                }
                (found, _) => panic!("{condition}: {found:?}"),
            }
        }
    }

    /// A box with one leaf, which rises by 5 a second.
    #[derive(Debug)]
    struct OneLeaf;

    impl StateFacts for OneLeaf {
        fn state(&self, path: &str) -> Result<Option<LeafValue>, String> {
            match path {
                "/there" => Ok(Some(LeafValue::Uint(7))),
                "/not-there" => Ok(None),
                path => Err(format!("`{path}` is not a leaf")),
            }
        }

        fn rate(&self, path: &str) -> Result<Option<f64>, String> {
            Ok(self.state(path)?.map(|_| 5.0))
        }
    }

    #[test]
    fn a_condition_reads_leaves_and_their_rates() {
        let conditions = Conditions::new();
        let facts: Arc<dyn StateFacts> = Arc::new(OneLeaf);
        for (condition, wanted) in [
            ("state('/there') > 6", Ok(Some(true))),
            ("rate('/there') > 6", Ok(Some(false))),
            ("state('/not-there') > 6", Ok(None)),
            ("rate('/not-there') > 6 or true", Ok(None)),
            ("state('/there') > 6 or state('/not-there') > 6", Ok(Some(true))),
            ("state('/nowhere') > 6", Err("`/nowhere` is not a leaf")),
            ("state('/there')", Err("neither true nor false")),
        ] {
            match (conditions.is_true_of_state(condition, &facts), wanted) {
                (Ok(found), Ok(wanted)) => assert_eq!(found, wanted, "{condition}"),
                (Err(found), Err(wanted)) => {
                    assert!(found.contains(wanted), "{condition}: {found}")
                }
                (found, _) => panic!("{condition}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_condition_that_does_not_parse_is_refused_with_its_place() {
        const NAMES: [&str; 2] = ["severity", "MAJOR"];
        let check = |condition: &str| Conditions::new().check(condition, &NAMES);
        let refused = check("severity >=").unwrap_err();
        assert!(refused.contains("column") && refused.contains("syntax"), "{refused}");
        let nested = format!("{}1", "not ".repeat(1000));
        assert!(check(&nested).unwrap_err().contains("limit"));
        assert_eq!(check("severity >= MAJOR"), Ok(()));
        assert_eq!(check("severity in range(3)"), Ok(()));
        let unknown = check("severitty >= MAJOR").unwrap_err();
        assert_eq!(unknown, "there is no `severitty`; there are severity, MAJOR");
    }
}
