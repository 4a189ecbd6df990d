//! Permissions of one user, checked node by node.

use std::sync::Arc;

use holdfast_config::cli::{Statement, StatementAction};
use holdfast_config::edit::{EditAuthorizer, RequestForms};
use holdfast_config::resolve::SchemaFilter;
use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Change, Leaf, NodeRef, Tree};
use holdfast_config::{
    Configuration, InstancePath, LayerKey, Layers, LeafMark, Models, NodeId, PatternStep, Step,
};
use holdfast_security::pathz::nodes::{NodeView, position, step};
use holdfast_security::pathz::{Action, Mode, Position};
use smol_str::SmolStr;

use super::counters::Counters;
use super::{CompiledPolicy, PolicyForms, Scope};

/// The root node of each schema.
const ROOT: NodeId = NodeId(0);

/// Permissions of one user under one policy, by one version of the models.
#[derive(Debug)]
pub struct PathPermissions {
    policy: Arc<PolicyForms>,
    compiled: Arc<CompiledPolicy>,
    user: SmolStr,
    read: [Arc<NodeView>; 3],
    write: [Arc<NodeView>; 3],
    counters: Arc<Counters>,
}

/// Descends by one step of a pattern. Open keys stand for all values at once.
fn pattern_step(view: &NodeView, from: &Position, step: &PatternStep) -> Position {
    view.step(from, &step.node, |place| step.keys.as_ref()?.0.get(*place)?.as_ref())
}

fn permits(position: &Position) -> bool {
    position.action() == Action::Permit
}

fn permits_pattern(view: &NodeView, pattern: &[PatternStep]) -> bool {
    permits(&pattern.iter().fold(view.root(), |at, it| pattern_step(view, &at, it)))
}

impl PathPermissions {
    /// Permissions for data of `models`, and of earlier versions of them. Decisions are counted.
    pub(super) fn new(
        policy: Arc<PolicyForms>,
        models: &Arc<Models>,
        user: SmolStr,
        counters: Arc<Counters>,
    ) -> Self {
        let compiled = policy.compiled(models);
        let [read, write] = [Mode::Read, Mode::Write].map(|mode| compiled.views(&user, mode));
        Self { policy, compiled, user, read, write, counters }
    }

    /// Makes permissions of the user for data of other models; `None` when these judge it, too.
    fn others_for(&self, models: &Arc<Models>) -> Option<Self> {
        let Self { policy, compiled, user, counters, .. } = self;
        let other = || Self::new(policy.clone(), models, user.clone(), counters.clone());
        (!compiled.models().includes(models)).then(other)
    }

    /// These permissions for data of `models`.
    pub fn for_models(self: &Arc<Self>, models: &Arc<Models>) -> Arc<Self> {
        self.others_for(models).map_or_else(|| Arc::clone(self), Arc::new)
    }

    fn count(&self, scope: Scope, node: NodeId, mode: Mode, permitted: bool) {
        self.counters.count(self.compiled.schema_path(scope, node), mode, permitted);
    }

    /// True when a request may name these steps, because a rule permits them or an ancestor. Counted.
    pub fn may_request(&self, scope: Scope, steps: &[PatternStep]) -> bool {
        let permitted = permits_pattern(self.read(scope), steps);
        let node = steps.last().map_or(ROOT, |step| step.node);
        self.count(scope, node, Mode::Read, permitted);
        permitted
    }

    /// Checks a request for unknown nodes below these steps. A permission is not counted then.
    pub fn may_request_below(&self, scope: Scope, steps: &[PatternStep]) -> bool {
        permits_pattern(self.read(scope), steps) || self.may_request(scope, steps)
    }

    /// Counts the decision about an operation that names this node.
    pub fn count_write(&self, scope: Scope, node: NodeId, permitted: bool) {
        self.count(scope, node, Mode::Write, permitted);
    }

    /// True when the whole tree may be read.
    pub fn reads_all(&self, scope: Scope) -> bool {
        let root = self.read(scope).root();
        permits(&root) && root.has_no_rule_below()
    }

    /// True when both origins may be read as a whole.
    pub fn reads_everything(&self) -> bool {
        [Scope::OpenConfig, Scope::Native].iter().all(|scope| self.reads_all(*scope))
    }

    /// Checks a request for CLI text, which requires permission to read the whole tree. Counted.
    pub fn may_request_text(&self) -> bool {
        let permitted = self.reads_all(Scope::Text);
        self.count(Scope::Text, ROOT, Mode::Read, permitted);
        permitted
    }

    /// Rules for reading an origin.
    pub fn read(&self, scope: Scope) -> &Arc<NodeView> {
        &self.read[scope as usize]
    }

    fn write(&self, scope: Scope) -> &NodeView {
        &self.write[scope as usize]
    }

    /// Number of steps taken to check writes, for tests.
    #[cfg(test)]
    pub(crate) fn write_steps(&self) -> u64 {
        self.write.iter().map(|view| view.steps()).sum()
    }
}

/// Limit for expanding a reader's wildcards in the schema: subtrees in which no entry can be read are skipped.
#[derive(Clone, Copy, Debug)]
pub struct PermittedExpansion<'a>(pub Option<&'a NodeView>);

/// Readability of all instances of one schema node.
#[derive(Debug)]
pub struct ExpansionPosition {
    /// Position without any keys.
    position: Position,
    /// True when more may be readable in some entries on the way.
    some: bool,
}

impl SchemaFilter for PermittedExpansion<'_> {
    type NodeState = Option<ExpansionPosition>;

    fn root(&self) -> Self::NodeState {
        self.0.map(|view| ExpansionPosition { position: view.root(), some: false })
    }

    fn below(&self, at: &Self::NodeState, child: NodeId) -> Option<Self::NodeState> {
        let (Some(view), Some(above)) = (self.0, at) else { return Some(None) };
        let position = view.step(&above.position, &child, |_| None);
        let some = above.some || view.permits_some(&child);
        let readable = some || permits(&position) || view.leads_to_permit(&child);
        readable.then_some(Some(ExpansionPosition { position, some }))
    }
}

impl EditAuthorizer for PathPermissions {
    fn for_models(&self, models: &Arc<Models>) -> Option<Arc<dyn EditAuthorizer>> {
        Some(Arc::new(self.others_for(models)?))
    }

    fn may_clear(&self, origin: Origin, steps: &[PatternStep]) -> bool {
        permits_pattern(self.write(origin.into()), steps)
    }

    fn may_send_cli_text(&self) -> bool {
        permits(&self.write(Scope::Text).root())
    }

    fn may_apply_statement(&self, before: &Configuration, statement: &Statement) -> bool {
        let Statement { path, act, .. } = statement;
        if permits(&position(self.write(Scope::Text), &path.0)) {
            return true;
        }
        let present = before.config_view(Origin::Native).get(path);
        let same = match (act, present) {
            (StatementAction::Set(value), Some(NodeRef::Leaf(present))) => present.value == *value,
            (StatementAction::Create, Some(NodeRef::Branch(_))) => true,
            _ => false,
        };
        same && self.may_read(Origin::Native, path)
    }

    fn may_write_payload(
        &self,
        before: &Configuration,
        origin: Origin,
        path: &InstancePath,
        supplied: NodeRef<'_, LeafMark>,
    ) -> Result<(), InstancePath> {
        let view_before = before.config_view(origin);
        // Values may be sent back by those who may read them. For others, an accepted equal value would reveal the
        // present one.
        let is_unchanged = |path: &InstancePath, leaf: Option<&Leaf<LeafMark>>| {
            let same = match (view_before.get(path), leaf) {
                (Some(NodeRef::Leaf(present)), Some(leaf)) => present.value == leaf.value,
                (Some(NodeRef::Branch(_)), None) => true,
                _ => false,
            };
            same && self.may_read(origin, path)
        };
        let view = self.write(origin.into());
        let schema = before.models().schema(origin);
        let mut search = Search { view, schema, path: path.clone(), exception: &is_unchanged };
        if search.finds(position(view, &path.0), supplied) { Err(search.path) } else { Ok(()) }
    }

    fn may_change(
        &self,
        before: &Configuration,
        after: &Layers,
        written: RequestForms,
    ) -> Result<(), (Origin, InstancePath)> {
        let annotated = before.layers().annotation == after.annotation;
        if !annotated && !permits(&self.write(Scope::OpenConfig).root()) {
            return Err((Origin::OpenConfig, InstancePath::root()));
        }
        let changes = LayerChanges { rights: self, before, after };
        let nothing = |_: &InstancePath, _: Option<&Leaf<LeafMark>>| false;
        changes.judge(Scope::OpenConfig, Origin::OpenConfig, &nothing)?;
        // A factory leaf follows the permission of its OpenConfig counterparts, as far as they are shown.
        let factory = |path: &InstancePath, leaf: Option<&Leaf<LeafMark>>| {
            leaf.is_some_and(|leaf| leaf.meta == LeafMark::Factory)
                && self.may_write_counterparts(before, path)
        };
        if written.text {
            changes.judge(Scope::Text, Origin::Native, &nothing)?;
        }
        if written.native || !written.text {
            changes.judge(Scope::Native, Origin::Native, &factory)?;
        }
        Ok(())
    }

    fn may_read(&self, origin: Origin, path: &InstancePath) -> bool {
        let reads = |scope| permits(&position(self.read(scope), &path.0));
        reads(origin.into()) || origin == Origin::Native && reads(Scope::Text)
    }
}

impl PathPermissions {
    /// True when a native path has OpenConfig counterparts, and all of them may be written.
    fn may_write_counterparts(&self, before: &Configuration, native: &InstancePath) -> bool {
        let openconfig = before.models().map.up_path(native);
        let view = self.write(Scope::OpenConfig);
        !openconfig.is_empty() && openconfig.iter().all(|path| permits(&position(view, &path.0)))
    }
}

/// Exception for a leaf (or an entry with nothing but keys) that may be written although the rules deny it.
type WriteException<'a> = &'a dyn Fn(&InstancePath, Option<&Leaf<LeafMark>>) -> bool;

/// Differences in the client's layers.
struct LayerChanges<'a> {
    rights: &'a PathPermissions,
    before: &'a Configuration,
    after: &'a Layers,
}

impl LayerChanges<'_> {
    fn judge(
        &self,
        scope: Scope,
        origin: Origin,
        excused: WriteException<'_>,
    ) -> Result<(), (Origin, InstancePath)> {
        let view = self.rights.write(scope);
        let schema = self.before.models().schema(origin);
        let root = view.root();
        if root.has_no_rule_below() && permits(&root) {
            return Ok(());
        }
        let layer = LayerKey::client(origin);
        let mut denied = None;
        Tree::diff(
            self.before.layers().tree(layer),
            self.after.tree(layer),
            &mut |path, change| {
                if denied.is_some() {
                    return;
                }
                let mut search = Search { view, schema, path: path.clone(), exception: excused };
                let at = position(view, &path.0);
                let found = match change {
                    Change::Added(found) | Change::Removed(found) => search.finds(at, found),
                    // The stronger mark decides: an explicitly set leaf is not a factory leaf.
                    Change::Leaf { old, new } => {
                        let leaf = if old.meta == LeafMark::Explicit { old } else { new };
                        search.finds(at, NodeRef::Leaf(leaf))
                    }
                    Change::Given(_) => !permits(&at),
                };
                denied = found.then_some(search.path);
            },
        );
        denied.map_or(Ok(()), |path| Err((origin, path)))
    }
}

/// Search for the first node of a subtree that may not be written.
struct Search<'a> {
    view: &'a NodeView,
    schema: &'a Schema,
    /// Current path; at the end, that of the result.
    path: InstancePath,
    exception: WriteException<'a>,
}

impl Search<'_> {
    /// Skips subtrees that the rules permit as a whole.
    fn finds(&mut self, at: Position, found: NodeRef<'_, LeafMark>) -> bool {
        if at.has_no_rule_below() && permits(&at) {
            return false;
        }
        match found {
            NodeRef::Leaf(leaf) => !permits(&at) && !(self.exception)(&self.path, Some(leaf)),
            NodeRef::Branch(branch) => {
                let mut bare = true;
                for (node, child) in branch.children() {
                    // Keys belong to the path of their siblings.
                    if self.schema.is_list_key(*node) {
                        continue;
                    }
                    bare = false;
                    if self.finds_in(&at, Step::node(*node), child.into()) {
                        return true;
                    }
                }
                bare && !permits(&at) && !(self.exception)(&self.path, None)
            }
            // The caller descends into entries with their keys.
            NodeRef::List(_) => false,
        }
    }

    fn finds_in(&mut self, above: &Position, to: Step, found: NodeRef<'_, LeafMark>) -> bool {
        if let NodeRef::List(list) = found {
            return list.iter().any(|(keys, entry)| {
                let to = Step::entry(to.node, keys.clone());
                self.finds_in(above, to, NodeRef::Branch(entry))
            });
        }
        let at = step(self.view, above, &to);
        self.path.0.push(to);
        let finds = self.finds(at, found);
        if !finds {
            self.path.0.pop();
        }
        finds
    }
}
