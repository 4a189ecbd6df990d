//! A package: its files, read, checked and compiled.

mod parameters;
pub mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_config::edit::SecretKeeperHandle;
use holdfast_config::limits::{CLAIM_LEAVES, excerpt};
use holdfast_config::schema::Origin;
use holdfast_config::services::{ActionCall, EditContent};
use holdfast_config::{GrowingClaim, Models, Tree};
use minijinja::Value as TemplateValue;
use minijinja::value::ValueKind;
use smol_str::SmolStr;

use crate::archive::PackageFiles;
use crate::convert;
use crate::engine::{Engine, TemplateKind};
use crate::error::{PackageError, PackageErrors};
use crate::facts::{self, Asker, Facts, KnownAnswers, Plane, Read};
use crate::grants::{self, Grants};
use crate::outline::{Action, LocatedText, OUTLINE, Outline, TEMPLATES, Version, Work};
use crate::output::{self, Output, OutputError, OutputReader};
use crate::scope::Scope;
use crate::work::{WorkError, WorkErrorKind};
use crate::yang::{self, ServiceList};

/// End of the name of the module's file.
const MODULE_END: &str = ".yang";

/// A package that holds no errors.
#[derive(Debug)]
pub struct Package {
    pub outline: Outline,
    pub list: ServiceList,
    pub(crate) grants: Arc<Grants>,
    pub(crate) engine: Engine,
    keeper: SecretKeeperHandle,
    known: Option<Arc<dyn KnownAnswers>>,
}

impl Package {
    /// Reads an archive that is called `NAME-VERSION.hfs`.
    ///
    /// # Errors
    /// When the archive, its name or the package in it is wrong.
    pub fn read_archive(
        models: &Models,
        name: &str,
        archive: &[u8],
    ) -> Result<(Self, Vec<PackageError>), PackageErrors> {
        let (package, warnings) = Self::read(models, &PackageFiles::read(archive)?)?;
        let wanted = package.archive_name();
        match name == wanted {
            true => Ok((package, warnings)),
            false => {
                let reason =
                    format!("the archive is called `{}`, and holds `{wanted}`", excerpt(name));
                Err(PackageError::of_file("", reason).into())
            }
        }
    }

    /// Reads the files of a package, for these models. The second value has what an author is warned of.
    ///
    /// # Errors
    /// With all errors of the outline, or of everything else when that has none.
    pub fn read(
        models: &Models,
        files: &PackageFiles,
    ) -> Result<(Self, Vec<PackageError>), PackageErrors> {
        let (outline, warnings) = read_outline(files)?;
        let list = compile_module(models, &outline, files);
        Ok((Self::assembled(models, outline, list, files)?, warnings))
    }

    /// Reads the files of a package whose module is compiled already.
    ///
    /// # Errors
    /// The errors of [`Package::read`], except those of the YANG module.
    pub fn with_module(list: ServiceList, files: &PackageFiles) -> Result<Self, PackageErrors> {
        let (outline, _) = read_outline(files)?;
        Self::assembled(&list.models.clone(), outline, Ok(list), files)
    }

    fn assembled(
        models: &Models,
        outline: Outline,
        list: Result<ServiceList, Vec<PackageError>>,
        files: &PackageFiles,
    ) -> Result<Self, PackageErrors> {
        let mut errors = Vec::new();
        let mut note = |found: Vec<PackageError>| errors.extend(found);
        let list = list.map_err(&mut note).ok();
        let engine = templates(files).and_then(|it| Engine::new(it.into_iter()));
        let engine = engine.map_err(&mut note).ok();
        note(missing_work(&outline, files));
        if let Some(engine) = &engine {
            let check = |it: &LocatedText| engine.check_expression(it).err();
            note(outline.expressions().into_iter().filter_map(check).collect());
        }
        let known = list.as_ref().map_or(models, |list| &list.models);
        let grants = Grants::new(known, &outline).map_err(&mut note).ok();
        let (Some(list), Some(engine), Some(grants), true) =
            (list, engine, grants, errors.is_empty())
        else {
            return Err(PackageErrors(errors));
        };
        let keeper = SecretKeeperHandle::default();
        Ok(Self { outline, list, grants: Arc::new(grants), engine, keeper, known: None })
    }

    /// Sets the reader of the public keys that the package gives users; without one it gives none.
    #[must_use]
    pub fn with_keeper(self, keeper: SecretKeeperHandle) -> Self {
        Self { keeper, ..self }
    }

    /// Makes questions fail that have no answer; without it, all is known.
    #[must_use]
    pub(crate) fn with_known_answers(self, known: Option<Arc<dyn KnownAnswers>>) -> Self {
        Self { known, ..self }
    }

    /// Name of the archive of this package.
    pub fn archive_name(&self) -> String {
        self.outline.archive_name()
    }

    pub fn version(&self) -> Version {
        self.outline.version
    }

    /// Renders the work of a state, and reads the output; `None` for a state without a template.
    ///
    /// # Errors
    /// When the template fails, or what it puts out cannot be read or is not granted.
    pub fn render(
        &self,
        work: Option<&Work>,
        scope: &Scope,
        facts: &Arc<dyn Facts>,
    ) -> Result<Option<Output>, WorkError> {
        let Some(Work::Template(template)) = work else { return Ok(None) };
        let path = &template.text[TEMPLATES.len() + 1..];
        let Some(kind) = TemplateKind::of(path) else { return Ok(None) };
        let rendered = self.engine.render(path, kind, &self.names(scope, facts))?;
        let output = output::read(self.output_reader(), kind, &rendered.text);
        output.map(Some).map_err(|error| {
            let origin = error.line.and_then(|line| self.engine.origin(&rendered, line));
            let (file, position) = match origin {
                Some((file, position)) => (file, Some(position)),
                None => (template.text.clone(), None),
            };
            WorkError { kind: error.kind, file, position, reason: error.reason }
        })
    }

    /// Adds an edit of a handler to the claim of its state. The claim as a whole has no more leaves than the output of a
    /// template may have.
    pub(crate) fn add_edit(
        &self,
        growing: &mut GrowingClaim,
        edit: EditContent<'_>,
    ) -> Result<(), OutputError> {
        let GrowingClaim { claim, leaves } = growing;
        let output = output::read_edit(self.output_reader(), edit, claim)?;
        let grown = *leaves + output.leaves;
        CLAIM_LEAVES.check(grown).map_err(OutputError::limit)?;
        let tree = match output.origin {
            Origin::Native => &mut claim.native,
            Origin::OpenConfig => &mut claim.openconfig,
        };
        *tree = Tree::merged(&Tree::new(), &output.tree, tree).0;
        *leaves = grown;
        Ok(())
    }

    fn output_reader(&self) -> OutputReader<'_> {
        let models = &self.list.models;
        let grants = &self.grants;
        let keeper = &self.keeper;
        OutputReader { models, grants, keeper }
    }

    /// The leaves at a path that expressions and handlers may read.
    pub(crate) fn readable(&self, plane: Plane, path: &str) -> Result<Read, String> {
        grants::readable(&self.list.models, &self.grants, plane, path)
    }

    /// Truth of a condition.
    ///
    /// # Errors
    /// When the evaluation fails, or gives anything but a boolean.
    pub fn condition(
        &self,
        condition: &LocatedText,
        scope: &Scope,
        facts: &Arc<dyn Facts>,
    ) -> Result<bool, WorkError> {
        let value = self.evaluate(condition, scope, facts)?;
        match value.kind() {
            ValueKind::Bool => Ok(value.is_true()),
            kind => {
                Err(self
                    .failed(condition, format!("a condition is true or false, and this is {kind}")))
            }
        }
    }

    /// The call of an action, with its parameters as they are now.
    ///
    /// # Errors
    /// When an expression of it fails.
    pub fn action_call(
        &self,
        action: &Action,
        scope: &Scope,
        facts: &Arc<dyn Facts>,
    ) -> Result<ActionCall, WorkError> {
        let value = |expression| self.evaluate(expression, scope, facts);
        let params = action.params.iter().map(|(name, it)| Ok((name.as_str(), value(it)?)));
        let params = params.collect::<Result<BTreeMap<_, _>, WorkError>>()?;
        let serial = action.serial.as_ref().map(value).transpose()?;
        let serial = serial.and_then(|it| convert::scalar_text(&it)).unwrap_or_default();
        Ok(ActionCall {
            target: action.target.clone(),
            params: serde_json::to_string(&params).unwrap_or_default().into(),
            serial: serial.into(),
            timeout_s: action.timeout.as_secs(),
        })
    }

    pub(crate) fn evaluate(
        &self,
        expression: &LocatedText,
        scope: &Scope,
        facts: &Arc<dyn Facts>,
    ) -> Result<TemplateValue, WorkError> {
        let value = self.engine.evaluate(expression, &self.names(scope, facts))?;
        match value.is_undefined() {
            true => Err(self.failed(expression, "undefined value".to_owned())),
            false => Ok(value),
        }
    }

    /// Failure of an expression of the outline.
    pub(crate) fn failed(&self, expression: &LocatedText, reason: String) -> WorkError {
        WorkError {
            kind: WorkErrorKind::Failed,
            file: OUTLINE.into(),
            position: Some(expression.position),
            reason: format!("`{}`: {reason}", excerpt(&expression.text)),
        }
    }

    fn names(&self, scope: &Scope, facts: &Arc<dyn Facts>) -> BTreeMap<SmolStr, TemplateValue> {
        let asker = Asker {
            models: Arc::clone(&self.list.models),
            grants: Arc::clone(&self.grants),
            known: self.known.clone(),
            key: scope.key().clone(),
        };
        scope.names().into_iter().chain(facts::functions(facts, asker)).collect()
    }
}

fn read_outline(files: &PackageFiles) -> Result<(Outline, Vec<PackageError>), PackageErrors> {
    let text = files.text(OUTLINE);
    let text = text.ok_or_else(|| PackageError::of_file(OUTLINE, "the file is missing"))??;
    Outline::read(text)
}

/// Checks and compiles the one module of a package.
fn compile_module(
    models: &Models,
    outline: &Outline,
    files: &PackageFiles,
) -> Result<ServiceList, Vec<PackageError>> {
    let modules: Vec<&str> =
        files.iter().map(|(path, _)| path).filter(|path| path.ends_with(MODULE_END)).collect();
    let one = |error: PackageError| vec![error];
    let file = match modules[..] {
        [file] => file,
        [] => {
            let reason =
                format!("the file of the module `{}@DATE.yang` is missing", outline.name.text);
            return Err(one(PackageError::of_file("", reason)));
        }
        [_, second, ..] => {
            return Err(one(PackageError::of_file(second, "a package has one file of YANG")));
        }
    };
    let text = files.text(file).transpose().map_err(one)?.unwrap_or_default();
    yang::check(models, &outline.name.text, file, text)?.compile(models)
}

/// Templates of a package, by their paths below the folder of templates.
fn templates(files: &PackageFiles) -> Result<Vec<(&str, &str)>, Vec<PackageError>> {
    let mut errors = Vec::new();
    let mut found = Vec::new();
    for (path, _) in files.iter() {
        let Some(name) = path.strip_prefix(TEMPLATES).and_then(|it| it.strip_prefix('/')) else {
            continue;
        };
        match files.text(path) {
            Some(Ok(text)) => found.push((name, text)),
            Some(Err(error)) => errors.push(error),
            None => {}
        }
    }
    if errors.is_empty() { Ok(found) } else { Err(errors) }
}

/// Templates that states name and that are not there, or whose names do not tell what they put out.
fn missing_work(outline: &Outline, files: &PackageFiles) -> Vec<PackageError> {
    let refused = |template: &LocatedText| {
        let reason = match (files.get(&template.text), TemplateKind::of(&template.text)) {
            (None, _) => format!("there is no `{}`", template.text),
            (Some(_), None) => format!(
                "`{}` does not say what it puts out: `*.cli`, `*.native.json` or `*.oc.json`",
                template.text
            ),
            (Some(_), Some(_)) => return None,
        };
        Some(PackageError::in_line(OUTLINE, template.position, reason))
    };
    outline.templates().filter_map(refused).collect()
}
