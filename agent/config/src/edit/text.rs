//! Application of CLI text to the client's native layer.

use super::attribution::{CliText, Subject};
use super::errors::MAX_CONFLICTS;
use super::session::EditSession;
use super::{Conflict, Edit, EditCause, EditOperation, EditTarget, Payload};
use crate::cli::{self, Statement, StatementAction};
use crate::instance::InstancePath;
use crate::layer::{LayerKey, LeafMark};
use crate::limits::excerpt;
use crate::resolve::PathPattern;
use crate::schema::{NodeKind, Origin};
use crate::tree::{Branch, Child, Leaf, NodeRef};

/// A negation `no X`, compared with the other origin after all lines are read.
#[derive(Debug)]
pub(super) struct Negation {
    path: InstancePath,
    /// True when there was an X to remove.
    existed: bool,
}

impl EditSession<'_> {
    /// Refuses more than one replace by CLI text. Updates may follow it.
    pub(super) fn check_text_replaces(&mut self, edit: &Edit) {
        let texts = edit.replaces.iter().enumerate().filter(|(_, (_, it))| is_text(it));
        for (at, (target, _)) in texts.skip(1) {
            let reason = "a request may have only one replace by CLI text";
            self.fail(EditOperation::Replace(at), target, EditCause::Malformed(reason.to_owned()));
        }
    }

    /// Applies a text. A replace and a union_replace start from the factory configuration, an update from the
    /// present one.
    pub(super) fn text(&mut self, operation: EditOperation, target: &EditTarget, text: &str) {
        if target.origin != Origin::Native || !target.path.elems.is_empty() {
            let reason = "CLI text has no path".to_owned();
            return self.fail(operation, target, EditCause::Malformed(reason));
        }
        if !self.may_send_cli_text(operation, target) {
            return;
        }
        let statements = match cli::parse_with_progress(&self.models().native, text, &self.progress)
        {
            Ok(statements) => statements,
            Err(errors) => {
                let text = CliText::new(operation, text, Vec::new());
                for error in errors {
                    let cause =
                        error.stop.map_or(EditCause::BadValue(error.reason), EditCause::from);
                    self.refuse(operation, text.quoted(error.line), cause);
                }
                return;
            }
        };
        if !matches!(operation, EditOperation::Update(_)) {
            self.scope.add_subtree(Origin::Native, &PathPattern::default());
            *self.layers.tree_mut(LayerKey::CLIENT_NATIVE) = self.before.factory().clone();
        }
        let text = CliText::new(operation, text, statements);
        for statement in &text.statements {
            if self.must_stop(operation) {
                return;
            }
            self.scope.add_statement(statement);
            let result = self.admit(statement).and_then(|()| self.statement(statement));
            if let Err(cause) = result {
                self.refuse(operation, text.quoted(statement.line), cause);
            }
        }
        self.attribution.text(text);
        if !matches!(operation, EditOperation::Update(_)) {
            self.flush_additions();
            self.share_memory(LayerKey::CLIENT_NATIVE);
        }
    }

    fn admit(&self, statement: &Statement) -> Result<(), EditCause> {
        self.writable(Origin::Native, &statement.path)?;
        if !self.may_apply_statement(statement) {
            return Err(EditCause::Denied);
        }
        let owner = self.before.reserved_for(Origin::Native, &statement.path);
        match owner.filter(|_| statement.act == StatementAction::No) {
            Some(owner) => Err(EditCause::Reserved {
                owner,
                why: "only its owner removes it",
                claims: Vec::new(),
            }),
            None => Ok(()),
        }
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), EditCause> {
        let schema = &self.models().native;
        let tree = self.layers.tree_mut(LayerKey::CLIENT_NATIVE);
        let Statement { path, act, .. } = statement;
        match act {
            StatementAction::Set(value) => {
                let Some(node) = path.last().map(|step| schema.node(step.node)) else {
                    return Ok(());
                };
                let leaf = Leaf::new(value.clone(), LeafMark::Explicit);
                let is_asked_for = |present: &&Leaf<LeafMark>| {
                    present.meta == LeafMark::Explicit || self.additions.has(Origin::Native, path)
                };
                match tree.leaf(path).filter(is_asked_for) {
                    Some(present) if node.kind == NodeKind::LeafList => {
                        self.additions.add(Origin::Native, path, &present.value, &leaf)?;
                    }
                    _ => tree.set_leaf(schema, path, leaf),
                }
            }
            StatementAction::Create => {
                tree.branch_mut(schema, &path.0, &LeafMark::Explicit).given = true
            }
            StatementAction::No => {
                let before = self.before.layers().tree(LayerKey::CLIENT_NATIVE);
                let present = tree.remove(schema, path) || before.get(path).is_some();
                let pattern = PathPattern::from(path);
                let remaining = tree.clone();
                self.ports.restore(tree, Origin::Native, &pattern, |port| {
                    present && !port.is_in(Origin::Native, &remaining)
                });
                self.additions.discard(Origin::Native, path);
                self.negations.push(Negation { path: path.clone(), existed: present });
            }
        }
        Ok(())
    }

    /// Checks each `no X` whose X is set explicitly in OpenConfig: invalid in a union_replace, and elsewhere
    /// unless it removed something.
    pub(super) fn check_negations(&mut self, union: bool) {
        let models = self.models();
        let native = self.layers.tree(LayerKey::CLIENT_NATIVE);
        let openconfig = self.layers.tree(LayerKey::CLIENT_OPENCONFIG);
        let mut errors = Vec::new();
        for Negation { path, existed } in &self.negations {
            if *existed && !union || native.get(path).is_some_and(is_explicit) {
                continue;
            }
            if errors.len() == MAX_CONFLICTS {
                break;
            }
            let above = models.map.up_path_in(path, openconfig);
            let standing = above.iter().find_map(|it| {
                let found = openconfig.get(it).filter(|it| !models.map.has_only_keys(*it))?;
                Some((it, found))
            });
            let Some((above, found)) = standing else { continue };
            let subject = Subject { native: Some(path), openconfig: Some(above) };
            let absent = self.attribution.side(LayerKey::CLIENT_NATIVE, subject, None);
            let value = match found {
                NodeRef::Leaf(leaf) => format!("`{}`", excerpt(&leaf.value)),
                NodeRef::Branch(_) | NodeRef::List(_) => "there".to_owned(),
            };
            let there =
                self.attribution.side_with_text(LayerKey::CLIENT_OPENCONFIG, subject, value);
            let conflict = Conflict { sides: [absent, there] };
            // The line itself is at fault, regardless of the owner of the leaf.
            let subject = Subject { openconfig: None, ..subject };
            errors.push(self.attribution.error(subject, EditCause::Conflict(Box::new(conflict))));
        }
        self.errors.extend(errors);
    }
}

pub(super) fn is_text(payload: &Payload) -> bool {
    matches!(payload, Payload::Cli { .. })
}

/// True when something in it was set by more than the factory configuration.
fn is_explicit(found: NodeRef<'_, LeafMark>) -> bool {
    match found {
        NodeRef::Leaf(leaf) => leaf.meta == LeafMark::Explicit,
        NodeRef::Branch(branch) => has_explicit_leaf(branch),
        NodeRef::List(list) => list.iter().any(|(_, entry)| has_explicit_leaf(entry)),
    }
}

fn has_explicit_leaf(branch: &Branch<LeafMark>) -> bool {
    branch.children().iter().any(|(_, child)| match child {
        Child::Leaf(leaf) => leaf.meta == LeafMark::Explicit,
        Child::Container(branch) => has_explicit_leaf(branch),
        Child::List(list) => list.iter().any(|(_, entry)| has_explicit_leaf(entry)),
    })
}
