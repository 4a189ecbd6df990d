//! The size of a module once its groupings are expanded.
//!
//! libyang puts the nodes of a grouping in the place of each `uses`, and the members of a union in the place of its name. Some
//! lines of nested groupings can therefore stand for any number of nodes. The text tells how many: each definition is
//! counted once, however often it is used.

use std::collections::BTreeMap;

use holdfast_config::Schema;
use smol_str::SmolStr;

use super::statement::{self, Statement};
use crate::limits::{SCHEMA_DEPTH, SCHEMA_NODES};

/// Statements that are read and kept once, or not at all.
const DOCUMENTATION: [&str; 6] =
    ["description", "reference", "status", "units", "organization", "contact"];

/// Size of a statement with everything that it stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    nodes: usize,
    /// Levels from the statement to the lowest one below it.
    depth: usize,
}

/// Checks that a module, which is beside those of the schema, comes to no more than the limits.
///
/// # Errors
/// With the limit that it exceeds.
pub(super) fn check(schema: &Schema, module: &Statement) -> Result<(), String> {
    let imported = imported_modules(schema, module);
    let mut expansion = Expansion { imported: &imported, sizes: BTreeMap::new(), level: 0 };
    let size = expansion.inside(&[module])?;
    SCHEMA_NODES.check(size.nodes).map_err(|error| error.to_string())
}

/// All modules that the module needs, by name. A missing module is refused elsewhere.
fn imported_modules(schema: &Schema, module: &Statement) -> BTreeMap<SmolStr, Statement> {
    let mut found = BTreeMap::new();
    let imports = |of: &Statement| of.all("import").map(|it| it.argument.clone()).collect();
    let mut open: Vec<String> = imports(module);
    while let Some(name) = open.pop() {
        if found.contains_key(name.as_str()) {
            continue;
        }
        let text = schema.module_text(&name);
        if let Some(statement) = text.and_then(|text| statement::read(text).ok()) {
            open.extend(imports(&statement));
            found.insert(name.into(), statement);
        }
    }
    found
}

struct Expansion<'a> {
    imported: &'a BTreeMap<SmolStr, Statement>,
    /// Sizes of groupings and types by the addresses of their statements; `None` while one is counted. libyang
    /// refuses a grouping or type that uses itself.
    sizes: BTreeMap<*const Statement, Option<Size>>,
    /// Levels above the statement that is counted.
    level: usize,
}

impl<'a> Expansion<'a> {
    /// Size of what is inside of the last statement of a scope, which has all statements around it before.
    fn inside(&mut self, scope: &[&'a Statement]) -> Result<Size, String> {
        let Some(last) = scope.last() else { return Ok(Size::default()) };
        self.level += 1;
        SCHEMA_DEPTH.check(self.level).map_err(|error| error.to_string())?;
        let mut whole = Size::default();
        for statement in &last.inside {
            let size = self.statement(statement, scope)?;
            whole.nodes = whole.nodes.saturating_add(size.nodes);
            whole.depth = whole.depth.max(size.depth);
        }
        self.level -= 1;
        SCHEMA_DEPTH.check(self.level + whole.depth).map_err(|error| error.to_string())?;
        Ok(whole)
    }

    fn statement(
        &mut self,
        statement: &'a Statement,
        scope: &[&'a Statement],
    ) -> Result<Size, String> {
        if DOCUMENTATION.iter().any(|keyword| statement.is(keyword)) {
            return Ok(Size::default());
        }
        let inner = [scope, &[statement]].concat();
        let defined = match () {
            () if statement.is("uses") => self.definition("grouping", statement, scope)?,
            () if statement.is("type") => self.definition("typedef", statement, scope)?,
            () => Size::default(),
        };
        let own = match statement.is("grouping") || statement.is("typedef") {
            true => self.defined(&inner)?,
            false => self.inside(&inner)?,
        };
        Ok(Size {
            nodes: own.nodes.saturating_add(defined.nodes).saturating_add(1),
            depth: own.depth.max(defined.depth) + 1,
        })
    }

    /// Size of the definition that a statement names; nothing for one that is not there, such as that of a builtin type.
    fn definition(
        &mut self,
        keyword: &'static str,
        statement: &'a Statement,
        scope: &[&'a Statement],
    ) -> Result<Size, String> {
        let Some(module) = scope.first().copied() else { return Ok(Size::default()) };
        let (prefix, name) = match statement.argument.split_once(':') {
            Some((prefix, name)) => (Some(prefix), name),
            None => (None, statement.argument.as_str()),
        };
        let is_own = |prefix: &str| module.argument_of("prefix") == Some(prefix);
        let found = match prefix {
            Some(prefix) if !is_own(prefix) => {
                let is_it = |it: &&Statement| it.argument_of("prefix") == Some(prefix);
                let import = module.all("import").find(is_it);
                let other = import.and_then(|it| self.imported.get(it.argument.as_str()));
                other.and_then(|other| Some(vec![other, defined_in(other, keyword, name)?]))
            }
            _ => (1..=scope.len()).rev().find_map(|length| {
                let definition = defined_in(scope[length - 1], keyword, name)?;
                Some([&scope[..length], &[definition]].concat())
            }),
        };
        found.map_or(Ok(Size::default()), |scope| self.defined(&scope))
    }

    /// Size of the definition at the end of a scope.
    fn defined(&mut self, scope: &[&'a Statement]) -> Result<Size, String> {
        let Some(definition) = scope.last() else { return Ok(Size::default()) };
        let address: *const Statement = *definition;
        if let Some(known) = self.sizes.get(&address) {
            let size = known.unwrap_or_default();
            SCHEMA_DEPTH.check(self.level + size.depth).map_err(|error| error.to_string())?;
            return Ok(size);
        }
        self.sizes.insert(address, None);
        let size = self.inside(scope)?;
        self.sizes.insert(address, Some(size));
        Ok(size)
    }
}

fn defined_in<'a>(
    within: &'a Statement,
    keyword: &'static str,
    name: &str,
) -> Option<&'a Statement> {
    within.inside.iter().find(|it| it.is(keyword) && it.argument == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of a module with these statements.
    fn nodes(statements: &str) -> Result<usize, String> {
        let text =
            format!("module m {{ prefix m; import holdfast {{ prefix hf; }} {statements} }}");
        let module = statement::read(&text).unwrap();
        let schema = Schema::native().unwrap();
        check(&schema, &module)?;
        let imported = imported_modules(&schema, &module);
        let mut expansion = Expansion { imported: &imported, sizes: BTreeMap::new(), level: 0 };
        let frame =
            statement::read("module m { prefix m; import holdfast { prefix hf; } }").unwrap();
        let of_frame = expansion.inside(&[&frame])?.nodes;
        Ok(expansion.inside(&[&module])?.nodes - of_frame)
    }

    #[test]
    fn groupings_and_types_are_counted_where_they_are_used() {
        for (statements, want) in [
            ("leaf a { type string; description \"of no weight\"; }", 2),
            ("grouping g { leaf a { type string; } }", 3),
            ("grouping g { leaf a { type string; } } uses g; uses m:g;", 3 + 3 + 3),
            (
                "grouping g { leaf a { type string; } } uses g { refine a { mandatory true; } }",
                3 + 5,
            ),
            ("typedef t { type union { type int8; type int16; } } leaf a { type t; }", 4 + 5),
            // The innermost of one name counts, and a name of another block does not.
            (
                "grouping g { leaf a; } container c { grouping g { leaf b; leaf c; } uses g; }",
                2 + 1 + 3 + 3,
            ),
            ("container c { grouping g { leaf a; } } container d { uses g; }", 3 + 2),
            ("uses no-such; leaf a { type no:such; }", 1 + 2),
            ("grouping g { uses g; }", 2),
        ] {
            assert_eq!(nodes(statements), Ok(want), "{statements}");
        }
        let imported = nodes("leaf a { type hf:interface-ref; }").unwrap();
        let unknown = nodes("leaf a { type hf:no-such; }").unwrap();
        assert_eq!(unknown, 2);
        assert!(imported >= unknown);
    }

    /// Definitions that each use the one before them so many times.
    fn nested(levels: usize, times: usize) -> String {
        let mut text = "grouping g0 { leaf a { type string; } }".to_owned();
        for level in 1..=levels {
            let uses = |at| format!("container c{at} {{ uses g{}; }}", level - 1);
            let uses: String = (0..times).map(uses).collect();
            text += &format!("grouping g{level} {{ {uses} }}");
        }
        text
    }

    #[test]
    fn some_lines_that_stand_for_millions_of_nodes_are_refused() {
        assert!(nodes(&nested(2, 10)).is_ok());
        for bomb in [nested(6, 10), nested(39, 2), nested(7, 10)] {
            let refused = nodes(&bomb).unwrap_err();
            assert!(refused.contains("schema-nodes"), "{refused}");
        }
        // Unions of unions have no nodes, and as many types.
        let mut unions = "typedef t0 { type int8; }".to_owned();
        for level in 1..=6 {
            let members = format!("type t{};", level - 1).repeat(10);
            unions += &format!("typedef t{level} {{ type union {{ {members} }} }}");
        }
        assert!(nodes(&unions).unwrap_err().contains("schema-nodes"));
        // Thousands of levels would take the stack, whatever the order in which they are written.
        let chain: Vec<_> =
            (1..5000).map(|it| format!("grouping g{it} {{ uses g{}; }}", it - 1)).collect();
        for text in [chain.concat(), chain.iter().rev().cloned().collect()] {
            let refused = nodes(&format!("grouping g0 {{ leaf a; }} {text}")).unwrap_err();
            assert!(refused.contains("schema-depth"), "{refused}");
        }
    }
}
