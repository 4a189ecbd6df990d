//! The YANG module of a package: rules about how it is written, and its compilation with the agent's models.

mod expansion;
mod statement;
#[cfg(test)]
mod tests;
mod xpath;

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_config::schema::{NodeKind, Origin, SchemaError, Validator, YangModule};
use holdfast_config::{Models, ModelsError, NodeId, Schema};
use smol_str::SmolStr;

use self::statement::Statement;
use crate::error::{PackageError, Position};
use crate::limits::MODULE_SIZE;

/// Module of ours that packages augment.
pub const SERVICES_MODULE: &str = "holdfast-services";
const SERVICES_YANG: &str = include_str!("../../yang/holdfast-services.yang");
/// Module with the marks that the agent's own models carry.
const EXTENSIONS_MODULE: &str = "holdfast-extensions";
/// Grouping that the list of a package uses.
const GROUPING: &str = "service-instance";

/// Statements that a module of a package may have at its top, beside the one augment.
const TOP: [&str; 14] = [
    "yang-version",
    "namespace",
    "prefix",
    "import",
    "organization",
    "contact",
    "description",
    "reference",
    "revision",
    "typedef",
    "grouping",
    "identity",
    "feature",
    "extension",
];

/// Statements that no package may have anywhere, and why.
const NOWHERE: [(&str, &str); 7] = [
    ("rpc", "a package has no operations: instances are data"),
    ("action", "a package has no operations: instances are data"),
    ("notification", "a package has no notifications: state is subscribed to"),
    ("anydata", "the agent keeps typed data only"),
    ("anyxml", "the agent keeps typed data only"),
    ("deviation", "a package changes no other module"),
    ("include", "a package has one file of YANG"),
];

/// The list of a service type in the compiled models.
#[derive(Clone, Debug)]
pub struct ServiceList {
    /// All models, with those of the package.
    pub models: Arc<Models>,
    pub list: NodeId,
    pub key: NodeId,
    /// Rules of the module that libyang alone evaluates.
    pub validator: Arc<Validator>,
}

/// A module of a package that is written as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceModule<'a> {
    name: &'a str,
    file: &'a str,
    text: &'a str,
}

impl ServiceModule<'_> {
    /// Appends the module, and the one of ours that it augments, to the models. It takes the place of another version.
    ///
    /// # Errors
    /// With what libyang says, and when instances could not be told apart or be named in templates.
    pub fn compile(&self, models: &Models) -> Result<ServiceList, Vec<PackageError>> {
        let fail = |reason: String| vec![PackageError::of_file(self.file, reason)];
        let is_known = [&models.native, &models.openconfig].map(|it| has_module(it, self.name));
        // The module of another version of the type gives way.
        if is_known.contains(&true) && models.native.find(&self.path()).is_none() {
            return Err(fail(format!("the agent has a module `{}` of its own", self.name)));
        }
        let mut modules = vec![YangModule { name: self.name.into(), text: self.text.into() }];
        if !has_module(&models.native, SERVICES_MODULE) {
            let ours = YangModule { name: SERVICES_MODULE.into(), text: SERVICES_YANG.into() };
            modules.insert(0, ours);
        }
        let models = models.with_modules(Origin::Native, &modules);
        let models = models.map_err(|error| match error {
            ModelsError::Schema(error) => vec![self.located(error)],
            error => fail(error.to_string()),
        })?;
        let schema = &models.native;
        let path = self.path();
        let list =
            schema.find(&path).ok_or_else(|| fail(format!("the module makes no list `{path}`")))?;
        let NodeKind::List { keys } = &schema.node(list).kind else {
            return Err(fail(format!("`{path}` is not a list")));
        };
        let [key] = keys[..] else {
            return Err(fail(format!("the list of a type has one key, not {}", keys.len())));
        };
        let twins = twins(schema, list);
        if !twins.is_empty() {
            return Err(twins.into_iter().flat_map(fail).collect());
        }
        let validator = schema.validator().map_err(|error| fail(error.to_string()))?;
        Ok(ServiceList { models: Arc::new(models), list, key, validator: Arc::new(validator) })
    }
}

impl ServiceModule<'_> {
    /// Path of the list in the schema.
    fn path(&self) -> String {
        format!("/{SERVICES_MODULE}:services/{0}:{0}", self.name)
    }

    /// An error of libyang: at the statement that it quotes, in its line where that is known.
    fn located(&self, SchemaError { reason, place, .. }: SchemaError) -> PackageError {
        let line = place.filter(|(module, _)| *module == self.name).map(|(_, line)| line);
        let quoted: Vec<&str> = reason.split('"').skip(1).step_by(2).collect();
        let mut found = None;
        if let Ok(module) = statement::read(self.text) {
            module.walk(&mut |it| {
                let is_quoted = quoted.contains(&it.argument.as_str())
                    || line.is_some() && quoted.contains(&it.keyword.as_str());
                let at = Position::of(self.text, it.octet);
                if found.is_none() && is_quoted && line.is_none_or(|line| line == at.line) {
                    found = Some(at);
                }
            });
        }
        let start_of = |line: usize| {
            let text = self.text.lines().nth(line - 1).unwrap_or_default();
            let column = text.chars().take_while(|c| c.is_whitespace()).count() + 1;
            Position { line, column }
        };
        match found.or_else(|| line.map(start_of)) {
            Some(position) => PackageError::in_line(self.file, position, reason),
            None => PackageError::of_file(self.file, reason),
        }
    }
}

fn has_module(schema: &Schema, name: &str) -> bool {
    schema.modules().any(|(_, module)| module.name == name)
}

/// Pairs of children whose names are one and the same in templates, where `-` is `_`.
fn twins(schema: &Schema, at: NodeId) -> Vec<String> {
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    let mut found = Vec::new();
    for child in &schema.node(at).children {
        let node = schema.node(*child);
        if let Some(other) = names.insert(node.name.replace('-', "_"), &node.name) {
            found.push(format!("`{other}` and `{}` differ in `-` and `_` only", node.name));
        }
        found.extend(twins(schema, *child));
    }
    found
}

/// Checks how the module of the type `service` is written.
///
/// # Errors
/// With everything that is not as the agent wants it, each with its place.
pub fn check<'a>(
    models: &Models,
    service: &str,
    file: &'a str,
    text: &'a str,
) -> Result<ServiceModule<'a>, Vec<PackageError>> {
    if let Err(error) = MODULE_SIZE.check(text.len()) {
        return Err(vec![PackageError::of_file(file, error)]);
    }
    let module = statement::read(text).map_err(|error| {
        vec![PackageError::at(file, text, &(error.octet..text.len()), error.reason)]
    })?;
    let mut check =
        ModuleCheck { models, file, text, prefixes: BTreeMap::new(), errors: Vec::new() };
    check.module(&module, service);
    // libyang reads it only after that.
    if let Err(reason) = expansion::check(&models.native, &module) {
        check.fail(&module, reason);
    }
    match check.errors.is_empty() {
        true => Ok(ServiceModule { name: file.split('@').next().unwrap_or_default(), file, text }),
        false => Err(check.errors),
    }
}

struct ModuleCheck<'a> {
    models: &'a Models,
    file: &'a str,
    text: &'a str,
    /// Imported modules by their prefixes.
    prefixes: BTreeMap<SmolStr, SmolStr>,
    errors: Vec<PackageError>,
}

impl ModuleCheck<'_> {
    fn fail(&mut self, at: &Statement, reason: impl std::fmt::Display) {
        self.errors.push(PackageError::at(self.file, self.text, &(at.octet..at.octet), reason));
    }

    fn module(&mut self, module: &Statement, service: &str) {
        if !module.is("module") {
            return self.fail(module, "the file is not a module");
        }
        if module.argument != service {
            let reason = format!("the module is `{}`, and the type `{service}`", module.argument);
            self.fail(module, reason);
        }
        self.file_name(module);
        self.namespace(module);
        module.all("import").for_each(|import| self.import(import));
        if !self.prefixes.values().any(|name| name == SERVICES_MODULE) {
            self.fail(module, format!("the import of `{SERVICES_MODULE}` is missing"));
        }
        module.walk(&mut |statement| self.anywhere(statement));
        for top in &module.inside {
            let known =
                top.prefix.is_some() || TOP.contains(&top.keyword.as_str()) || top.is("augment");
            if !known && !NOWHERE.iter().any(|(keyword, _)| top.is(keyword)) {
                let reason = format!(
                    "`{}`: a package adds one list to the services, and nothing else",
                    top.keyword
                );
                self.fail(top, reason);
            }
            self.leafrefs(top, 0);
        }
        let augments: Vec<&Statement> = module.all("augment").collect();
        match augments[..] {
            [augment] => self.augment(augment, service),
            [] => {
                self.fail(module, format!("nothing augments the container of `{SERVICES_MODULE}`"))
            }
            [_, second, ..] => self.fail(second, "a package has one augment"),
        }
    }

    /// Checks that the file is called after the module and its newest revision.
    fn file_name(&mut self, module: &Statement) {
        let newest = module.all("revision").max_by_key(|revision| &revision.argument);
        let Some(newest) = newest else {
            return self.fail(module, "a revision is missing; the file has its date");
        };
        let wanted = format!("{}@{}.yang", module.argument, newest.argument);
        if wanted != self.file {
            self.fail(newest, format!("the file of this revision is `{wanted}`"));
        }
    }

    fn namespace(&mut self, module: &Statement) {
        let Some(statement) = module.all("namespace").next() else { return };
        let schemas = [&self.models.native, &self.models.openconfig];
        let mut known = schemas.iter().flat_map(|schema| schema.modules());
        // The same module twice is a second package of the type, which is said elsewhere.
        let owner =
            known.find(|(_, it)| it.namespace == statement.argument && it.name != module.argument);
        if let Some((_, owner)) = owner {
            let reason = format!("the namespace is that of the module `{}`", owner.name);
            self.fail(statement, reason);
        }
        let ours = statement::read(SERVICES_YANG).ok();
        let ours = ours.as_ref().and_then(|ours| ours.argument_of("namespace"));
        if ours == Some(statement.argument.as_str()) {
            self.fail(
                statement,
                format!("the namespace is that of the module `{SERVICES_MODULE}`"),
            );
        }
    }

    fn import(&mut self, import: &Statement) {
        let name = import.argument.as_str();
        if name == EXTENSIONS_MODULE {
            self.fail(import, format!("the marks of `{name}` are for the agent's own models"));
        } else if name != SERVICES_MODULE && !has_module(&self.models.native, name) {
            self.fail(import, format!("the agent has no module `{name}` to import"));
        }
        if let Some(prefix) = import.argument_of("prefix") {
            self.prefixes.insert(prefix.into(), name.into());
        }
    }

    /// Checks a statement that may stand anywhere.
    fn anywhere(&mut self, statement: &Statement) {
        if let Some((keyword, reason)) = NOWHERE.iter().find(|(it, _)| statement.is(it)) {
            self.fail(statement, format!("`{keyword}`: {reason}"));
        }
        if ["must", "when"].iter().any(|it| statement.is(it))
            && xpath::has_absolute_path(&statement.argument)
        {
            let reason = format!(
                "`{}` has a path from the root: an instance is checked alone, and sees itself only",
                statement.keyword
            );
            self.fail(statement, reason);
        }
    }

    /// Checks that leafrefs stay in the instance, or need no target. `depth` counts the data nodes above.
    fn leafrefs(&mut self, statement: &Statement, depth: usize) {
        let inside = match statement.keyword.as_str() {
            // A grouping is used in the list of the type, or below it.
            "container" | "list" | "leaf" | "leaf-list" | "grouping" => depth + 1,
            "augment" if !statement.argument.starts_with('/') => {
                depth + statement.argument.split('/').count()
            }
            _ => depth,
        };
        let path = statement.argument_of("path").filter(|_| statement.is("type"));
        if let Some(path) = path {
            let free = statement.argument_of("require-instance") == Some("false");
            let stays = xpath::steps_up(path).is_some_and(|ups| ups < depth);
            if !free && !stays {
                let reason =
                    "a leafref that leads out of the instance needs `require-instance false`";
                self.fail(statement, reason);
            }
        }
        for below in &statement.inside {
            self.leafrefs(below, inside);
        }
    }

    fn augment(&mut self, augment: &Statement, service: &str) {
        let of_services =
            |prefix: &str| self.prefixes.get(prefix).is_some_and(|it| it == SERVICES_MODULE);
        let target = augment.argument.strip_prefix('/').and_then(|it| it.split_once(':'));
        if !target.is_some_and(|(prefix, name)| of_services(prefix) && name == "services") {
            let reason = format!(
                "a package augments `/services` of `{SERVICES_MODULE}`, not `{}`",
                augment.argument
            );
            return self.fail(augment, reason);
        }
        let mut lists = 0;
        for node in &augment.inside {
            match node.keyword.as_str() {
                "description" | "reference" | "status" => {}
                "list" if node.prefix.is_none() => {
                    lists += 1;
                    self.list(node, service);
                }
                other => self
                    .fail(node, format!("`{other}`: the augment has one list, and nothing else")),
            }
        }
        if lists != 1 {
            self.fail(augment, format!("the augment has one list, not {lists}"));
        }
    }

    fn list(&mut self, list: &Statement, service: &str) {
        if list.argument != service {
            self.fail(list, format!("the list is `{}`, and the type `{service}`", list.argument));
        }
        let keys = list.argument_of("key").map_or(0, |keys| keys.split_whitespace().count());
        if keys != 1 {
            self.fail(list, format!("the list of a type has one key, not {keys}"));
        }
        let of_services = |name: &str| {
            let (prefix, name) = name.split_once(':').unwrap_or_default();
            name == GROUPING && self.prefixes.get(prefix).is_some_and(|it| it == SERVICES_MODULE)
        };
        match list.all("uses").find(|uses| of_services(&uses.argument)) {
            Some(uses) if uses.inside.is_empty() => {}
            Some(uses) => self.fail(uses, format!("the grouping `{GROUPING}` is used as it is")),
            None => self.fail(
                list,
                format!("the list does not use the grouping `{GROUPING}` of `{SERVICES_MODULE}`"),
            ),
        }
    }
}
