//! Conditions without a package, as alarm rules have them: the same language, and the same fuel.

use std::collections::BTreeMap;
use std::fmt;

use minijinja::value::ValueKind;
use minijinja::{Environment, Value};
use smol_str::SmolStr;

use crate::engine::{self, EngineError};
use crate::limits::EXPRESSION_FUEL;

/// A value that a condition reads by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamedValue {
    Text(SmolStr),
    Number(u64),
}

/// Evaluates conditions.
pub struct Conditions(Environment<'static>);

impl Conditions {
    pub fn new() -> Self {
        Self(engine::environment(EXPRESSION_FUEL))
    }

    /// Checks the form of a condition.
    ///
    /// # Errors
    /// With place and reason.
    pub fn check(&self, condition: &str) -> Result<(), String> {
        engine::compile(&self.0, condition).map(drop).map_err(|error| error.to_string())
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
        let values = names.iter().map(|(name, value)| {
            let value = match value {
                NamedValue::Text(text) => Value::from(text.as_str()),
                NamedValue::Number(number) => Value::from(*number),
            };
            (*name, value)
        });
        let compiled = engine::compile(&self.0, condition).map_err(|error| error.to_string())?;
        let result = compiled.eval(Value::from_pairs(values));
        let result = result.map_err(|error| EngineError::of(&error).to_string())?;
        match result.kind() {
            ValueKind::Bool => Ok(result.is_true()),
            kind => Err(format!("it is a {kind}, neither true nor false")),
        }
    }
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

    #[test]
    fn a_condition_that_does_not_parse_is_refused_with_its_place() {
        let refused = Conditions::new().check("severity >=").unwrap_err();
        assert!(refused.contains("column") && refused.contains("syntax"), "{refused}");
        let nested = format!("{}1", "not ".repeat(1000));
        assert!(Conditions::new().check(&nested).unwrap_err().contains("limit"));
        assert_eq!(Conditions::new().check("severity >= MAJOR"), Ok(()));
    }
}
