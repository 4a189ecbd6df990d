//! Output of templates, read as the payload of a client is: types, units and keys are those of the models.

use crate::engine::TemplateKind;
use crate::grants::{Admission, Grants, is_of_services, split_origin};
use crate::limits::CLAIM_LINES;
use crate::work::WorkErrorKind;
use holdfast_config::cli::{self, StatementAction};
use holdfast_config::edit::{InvalidPayload, SecretKeeperHandle, check_supported};
use holdfast_config::json::{self, DocumentContent, Flavour};
use holdfast_config::limits::{CLAIM_LEAVES, excerpt};
use holdfast_config::path::PathSyntaxError;
use holdfast_config::schema::Origin;
use holdfast_config::services::EditContent;
use holdfast_config::tree::{Leaf, List, is_key_or_copy};
use holdfast_config::{
    Branch, Child, Claim, InstancePath, LeafMark, Models, NodeId, Path, PathError, Schema, Step,
    Tree, reserved,
};

/// Output of the work of one state: a sparse tree of one origin, all leaves explicit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub origin: Origin,
    pub tree: Tree<LeafMark>,
    /// Number of its leaves; of an edit those that its claim does not have yet.
    pub leaves: usize,
}

/// Reason to refuse output, and the line of it.
#[derive(Debug)]
pub(crate) struct OutputError {
    pub(crate) kind: WorkErrorKind,
    pub(crate) line: Option<usize>,
    pub(crate) reason: String,
}

impl OutputError {
    fn failed(line: Option<usize>, reason: impl ToString) -> Self {
        Self { kind: WorkErrorKind::Failed, line, reason: reason.to_string() }
    }

    fn denied(line: Option<usize>, reason: impl ToString) -> Self {
        Self { kind: WorkErrorKind::Denied, line, reason: reason.to_string() }
    }

    pub(crate) fn limit(error: holdfast_config::LimitExceeded) -> Self {
        Self { kind: WorkErrorKind::Limit, line: None, reason: error.to_string() }
    }
}

/// Models, rights and keys by which output is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputReader<'a> {
    pub(crate) models: &'a Models,
    pub(crate) grants: &'a Grants,
    /// Reader of the public keys of users.
    pub(crate) keeper: &'a SecretKeeperHandle,
}

/// Reads output.
pub(crate) fn read(
    reader: OutputReader<'_>,
    kind: TemplateKind,
    text: &str,
) -> Result<Output, OutputError> {
    let OutputReader { models, grants, .. } = reader;
    let (origin, tree) = match kind {
        TemplateKind::Cli => (Origin::Native, command_lines(models, grants, text)?),
        TemplateKind::NativeJson => (Origin::Native, document(models, Origin::Native, text)?),
        TemplateKind::OpenConfigJson => {
            (Origin::OpenConfig, document(models, Origin::OpenConfig, text)?)
        }
    };
    admitted(reader, origin, &tree, &Tree::new())
}

/// Reads an edit of a handler, for a claim, as the output of a template is read.
pub(crate) fn read_edit(
    reader: OutputReader<'_>,
    edit: EditContent<'_>,
    claim: &Claim,
) -> Result<Output, OutputError> {
    let OutputReader { models, grants, .. } = reader;
    let (origin, tree) = match edit {
        EditContent::Lines(text) => (Origin::Native, command_lines(models, grants, text)?),
        EditContent::Document { path, value } => {
            let failed = |reason: String| OutputError::failed(None, reason);
            let (origin, path) = split_origin(path).map_err(failed)?;
            let path: Path =
                path.parse().map_err(|error: PathSyntaxError| failed(error.to_string()))?;
            (origin, value_at(models.schema(origin), &path, value)?)
        }
    };
    admitted(reader, origin, &tree, claim.tree(origin))
}

/// Part of a tree that a package may put out; a tree with more in it is refused. Leaves that are in `beside` are not
/// counted.
fn admitted(
    OutputReader { models, grants, keeper }: OutputReader<'_>,
    origin: Origin,
    tree: &Tree<LeafMark>,
    beside: &Tree<LeafMark>,
) -> Result<Output, OutputError> {
    let schema = models.schema(origin);
    let mut admitted = AdmittedTree { grants, schema, beside, leaves: 0 };
    let mut root = (**tree.root()).clone();
    admitted.branch(&mut InstancePath::root(), &mut root)?;
    CLAIM_LEAVES.check(admitted.leaves).map_err(OutputError::limit)?;
    let misfit = |InvalidPayload { path, cause }: InvalidPayload| {
        OutputError::failed(None, format!("`{path}`: {cause}"))
    };
    check_supported(models, origin, &InstancePath::root(), &root).map_err(misfit)?;
    let leaves = admitted.leaves;
    let mut tree = Tree::from_root(root.into());
    if origin == Origin::OpenConfig {
        keeper.keep_keys(models, &mut tree).map_err(misfit)?;
    }
    Ok(Output { origin, tree, leaves })
}

fn command_lines(
    models: &Models,
    grants: &Grants,
    text: &str,
) -> Result<Tree<LeafMark>, OutputError> {
    let lines = text.bytes().filter(|octet| *octet == b'\n').count();
    CLAIM_LINES.check(lines).map_err(OutputError::limit)?;
    let schema = &models.native;
    let statements = cli::parse(schema, text).map_err(|errors| match errors.first() {
        Some(first) => {
            let quoted = excerpt(&first.text);
            OutputError::failed(Some(first.line), format!("`{quoted}`: {}", first.reason))
        }
        None => OutputError::failed(None, "it cannot be read"),
    })?;
    let mut tree = Tree::new();
    for statement in statements {
        let path = &statement.path;
        let line = Some(statement.line);
        admit(schema, grants, path).map_err(|reason| OutputError::denied(line, reason))?;
        match statement.act {
            StatementAction::Set(value) => {
                tree.set_leaf(schema, path, Leaf::new(value, LeafMark::Explicit));
            }
            StatementAction::Create => {
                tree.branch_mut(schema, &path.0, &LeafMark::Explicit).given = true;
            }
            StatementAction::No => {
                return Err(OutputError::failed(line, NO_NO));
            }
        }
    }
    Ok(tree)
}

/// The tree with one value at a path.
fn value_at(schema: &Schema, path: &Path, value: &[u8]) -> Result<Tree<LeafMark>, OutputError> {
    let failed = |reason: String| OutputError::failed(None, reason);
    let unknown = |error: PathError| failed(format!("`{}`: {error}", excerpt(path)));
    let path = schema.resolve_write(path).map_err(unknown)?;
    let mark = LeafMark::Explicit;
    let read = json::parse(schema, &path, value, Flavour::Ietf, true, mark);
    let read = read.map_err(|error| failed(error.to_string()))?;
    if read.annotations.is_some_and(|found| !found.is_empty()) {
        return Err(failed("a service makes no annotations".to_owned()));
    }
    let mut tree = Tree::new();
    match read.content {
        DocumentContent::Leaf(value) => tree.set_leaf(schema, &path, Leaf::new(value, mark)),
        DocumentContent::Branch(branch) => {
            tree.put(schema, &path, Child::Container(branch.into()), &mark);
        }
        DocumentContent::List(list) => tree.put(schema, &path, Child::List(list), &mark),
    }
    Ok(tree)
}

fn document(models: &Models, origin: Origin, text: &str) -> Result<Tree<LeafMark>, OutputError> {
    let root = InstancePath::root();
    let schema = models.schema(origin);
    let mark = LeafMark::Explicit;
    let read = json::parse(schema, &root, text.as_bytes(), Flavour::Ietf, true, mark)
        .map_err(|error| OutputError::failed(error.line, error))?;
    if read.annotations.is_some_and(|found| !found.is_empty()) {
        return Err(OutputError::failed(None, "a service makes no annotations"));
    }
    match read.content {
        DocumentContent::Branch(branch) => Ok(Tree::from_root(branch.into())),
        DocumentContent::Leaf(_) | DocumentContent::List(_) => {
            Err(OutputError::failed(None, "a document begins at the root"))
        }
    }
}

/// Reason to refuse `no` in the output of a template.
pub(crate) const NO_NO: &str = "a service has no `no`: what is not put out again goes";

/// Holds a path against the grants and what no package may write.
pub(crate) fn admit(
    schema: &Schema,
    grants: &Grants,
    path: &InstancePath,
) -> Result<Admission, String> {
    let Some(last) = path.last() else { return Ok(Admission::OnTheWay) };
    let quoted = || excerpt(&path.to_path(schema));
    if is_of_services(schema, last.node) {
        return Err(format!("`{}`: services neither read nor write services", quoted()));
    }
    if schema.origin() == Origin::OpenConfig
        && let Some(row) = reserved::row(schema, last.node)
        && !row.is_for_services
    {
        return Err(format!("`{}` is reserved for {}: {}", quoted(), row.service, row.why));
    }
    match grants.admission(schema, path) {
        Admission::Refused => Err(format!("`{}` is not in the grants to write", quoted())),
        admission => Ok(admission),
    }
}

/// A walk of a whole tree that refuses what is not granted. Entries that only lead to something granted lose the mark that
/// they are wanted for themselves, and go when they lead to nothing.
struct AdmittedTree<'a> {
    grants: &'a Grants,
    schema: &'a Schema,
    beside: &'a Tree<LeafMark>,
    leaves: usize,
}

impl AdmittedTree<'_> {
    fn branch(
        &mut self,
        path: &mut InstancePath,
        branch: &mut Branch<LeafMark>,
    ) -> Result<(), OutputError> {
        let refused = |reason| OutputError::denied(None, reason);
        let admission = admit(self.schema, self.grants, path).map_err(refused)?;
        if admission == Admission::OnTheWay {
            branch.given = false;
        }
        let passed = admission == Admission::OnTheWay;
        let wanted =
            branch.children().iter().filter(|(node, child)| !(passed && self.is_key(*node, child)));
        let wanted: Vec<_> = wanted.map(|(node, _)| *node).collect();
        for node in wanted {
            path.0.push(Step::node(node));
            match branch.child_mut(node) {
                Some(Child::Leaf(_)) => {
                    match admit(self.schema, self.grants, path).map_err(refused)? {
                        Admission::Granted => {
                            self.leaves += usize::from(self.beside.leaf(path).is_none());
                        }
                        Admission::OnTheWay | Admission::Refused => {}
                    }
                }
                Some(Child::Container(inside)) => {
                    self.branch(path, std::sync::Arc::make_mut(inside))?;
                }
                Some(Child::List(list)) => self.list(path, list)?,
                None => {}
            }
            path.0.pop();
            if branch.child(node).is_some_and(Child::is_empty) {
                branch.take(node);
            }
        }
        Ok(())
    }

    /// True for the keys of an entry and their copies, which come with what is below it.
    fn is_key(&self, node: NodeId, child: &Child<LeafMark>) -> bool {
        match child {
            Child::Leaf(_) => is_key_or_copy(self.schema, node),
            Child::Container(inside) => {
                inside.children().iter().all(|(node, child)| self.is_key(*node, child))
            }
            Child::List(_) => false,
        }
    }

    fn list(
        &mut self,
        path: &mut InstancePath,
        list: &mut List<LeafMark>,
    ) -> Result<(), OutputError> {
        let Some(step) = path.0.pop() else { return Ok(()) };
        let keys: Vec<_> = list.iter().map(|(keys, _)| keys.clone()).collect();
        for keys in keys {
            path.0.push(Step::entry(step.node, keys.clone()));
            let entry = list.entry_mut(&keys, Branch::default);
            self.branch(path, entry)?;
            if !entry.given && entry.has_only_keys(self.schema) {
                list.remove(&keys);
            }
            path.0.pop();
        }
        path.0.push(step);
        Ok(())
    }
}
