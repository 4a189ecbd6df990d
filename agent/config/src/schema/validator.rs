//! Rules of YANG that only libyang evaluates: `must`, `when`, `unique`, `min-elements` and targets of leafrefs.
//!
//! The agent's own models have few of them, and the union knows those. Modules of others may have any.

use yang5::context::Context;
use yang5::data::{DataFormat, DataParserFlags, DataTree, DataValidationFlags};

use super::{Schema, SchemaError, compile, sources};

/// The compiled modules of a schema as libyang keeps them.
#[derive(Debug)]
pub struct Validator {
    context: Context,
}

/// A rule that a document breaks, in the words of libyang.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidData(pub String);

impl Schema {
    /// Compiles all modules of this schema again, to check documents against them.
    ///
    /// # Errors
    /// When libyang refuses a module, which it took before.
    pub fn validator(&self) -> Result<Validator, SchemaError> {
        let context = compile::context(self.origin, sources(self.origin), &self.appended)?;
        Ok(Validator { context })
    }
}

impl Validator {
    /// Checks a document of RFC 7951 as if there was nothing else. Modules without a node in it are not asked.
    ///
    /// # Errors
    /// At the first rule that it breaks.
    pub fn check(&self, document: &str) -> Result<(), InvalidData> {
        if document.contains('\0') {
            return Err(InvalidData("a document has no zero byte".to_owned())); // libyang's binding would panic
        }
        let parsed = DataTree::parse_string(
            &self.context,
            document,
            DataFormat::JSON,
            DataParserFlags::STRICT | DataParserFlags::NO_STATE,
            DataValidationFlags::PRESENT | DataValidationFlags::NO_STATE,
        );
        parsed.map(|_| ()).map_err(|error| InvalidData(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::YangModule;

    const MODULE: &str = r#"module rules { yang-version 1.1; namespace "urn:rules"; prefix r;
        container things { list thing { key name; unique colour; min-elements 1;
            leaf name { type string; } leaf colour { type string; must ". != ../name"; }
            leaf shade { when "../colour = 'red'"; type string; }
            leaf like { type leafref { path "../../thing/name"; } } } } }"#;

    #[test]
    fn rules_of_appended_modules_are_evaluated() {
        let module = YangModule { name: "rules".into(), text: MODULE.into() };
        let validator =
            Schema::native().unwrap().with_modules(&[module]).unwrap().validator().unwrap();
        for (things, breaks) in [
            (r#"[{"name":"a","colour":"red","shade":"dark","like":"a"}]"#, ""),
            (r#"[{"name":"red","colour":"red"}]"#, "Must"),
            (r#"[{"name":"a","shade":"dark"}]"#, "When"),
            (r#"[{"name":"a","colour":"x"},{"name":"b","colour":"x"}]"#, "Unique"),
            (r#"[{"name":"a","like":"b"}]"#, "leafref"),
            ("[]", "few"),
        ] {
            let document = format!(r#"{{"rules:things":{{"thing":{things}}}}}"#);
            let message =
                validator.check(&document).err().map_or(String::new(), |it| it.to_string());
            assert!(
                message.contains(breaks) && message.is_empty() == breaks.is_empty(),
                "{things}: {message}"
            );
        }
        assert!(validator.check("{}\0").is_err());
    }
}
