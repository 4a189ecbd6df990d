//! The material of the views: the state that a caller may read.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Router};
use holdfast_base::{Caller, now_ns};
use holdfast_config::json::{Flavour, print};
use holdfast_config::schema::{Origin, Schema};
use holdfast_config::tree::{Child, NodeRef, Tree};
use holdfast_config::{InstancePath, Models};
use holdfast_core::{CoreHandle, Datastore as _, PolledSources};
use holdfast_faults::Alarm;
use holdfast_platform::route_table::RouteTable;
use holdfast_security::pathz::NodeView;
use holdfast_telemetry::LeafVersion;
use holdfast_telemetry::polled::with_polled_leaves;
use serde_json::Value;

use crate::faults::{AlarmFilter, AlarmPlaces, AlarmView, FaultService, permits};
use crate::gnsi::pathz::{PathPermissions, Pathz, visible_while};
use crate::listeners::Listeners;
use crate::local::rights::{LookError, path_rights, require_reader};
use crate::users::Users;

/// The parts of the agent that views look at; clones share them.
#[derive(Clone, Debug)]
pub struct Look {
    pub core: CoreHandle,
    pub(crate) pathz: Arc<Pathz>,
    pub users: Users,
    pub listeners: Listeners,
    pub faults: FaultService,
    pub places: Arc<AlarmPlaces>,
    pub routes: RouteTable,
    /// Version of the software that runs.
    pub version: String,
    /// Start of this run, in nanoseconds since 1970.
    pub started_ns: u64,
}

/// The state of one moment, as far as a caller may read it.
#[derive(Debug)]
pub(in crate::local) struct Readable {
    pub(in crate::local) models: Arc<Models>,
    pub(in crate::local) rights: Option<Arc<PathPermissions>>,
    pub(in crate::local) origin: Origin,
    pub(in crate::local) tree: Tree<LeafVersion>,
    pub(super) time_ns: u64,
}

impl Look {
    /// Reads the newest state of the native model, with the leaves at and below some paths of the schema that are read on
    /// demand.
    pub(in crate::local) async fn readable(&self, caller: &Caller, polled: &[&str]) -> Readable {
        let models = self.core.models();
        let sources = self.core.polled_catalog().below(&models.native, polled);
        self.readable_of(caller, Origin::Native, &sources).await
    }

    /// Reads the newest state of one model, with what some sources give.
    pub(in crate::local) async fn readable_of(
        &self,
        caller: &Caller,
        origin: Origin,
        sources: &PolledSources,
    ) -> Readable {
        let revision = self.core.current_revision().await;
        let polled = self.core.polled(origin, sources).await;
        let models = Arc::clone(&revision.models);
        let rights = path_rights(&self.pathz, caller, &models);
        let time_ns = now_ns();
        let tree =
            with_polled_leaves(models.schema(origin), revision.tree(origin), polled, time_ns);
        let tree = match &rights {
            None => tree,
            Some(rights) => pruned(models.schema(origin), rights.read(origin.into()), &tree),
        };
        Readable { models, rights, origin, tree, time_ns }
    }

    /// Permissions of a caller for paths; `None` when nothing is restricted.
    pub(in crate::local) fn path_rights(&self, caller: &Caller) -> Option<Arc<PathPermissions>> {
        path_rights(&self.pathz, caller, &self.core.models())
    }

    /// The alarms of a filter that a caller may read.
    pub(in crate::local) fn alarm_view(&self, caller: &Caller, filter: AlarmFilter) -> AlarmView {
        let rights = self.path_rights(caller);
        AlarmView { filter, rights, places: Arc::clone(&self.places) }
    }

    /// Open alarms that a caller may read.
    pub(in crate::local) async fn alarms(
        &self,
        readable: &Readable,
    ) -> Result<Vec<Alarm>, LookError> {
        let mut alarms = self.faults.alarms().await.map_err(LookError::failed)?;
        alarms.retain(|alarm| self.places.permits(readable.rights.as_deref(), alarm));
        Ok(alarms)
    }
}

/// Keeps routes from callers whom the pathz policy restricts: their answers show things of all kinds, without asking for each.
pub fn showing_everything(routes: Router, look: Look) -> Router {
    routes.layer(from_fn_with_state(look, require_whole_view))
}

async fn require_whole_view(
    State(look): State<Look>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let judged = require_reader(&caller).and_then(|()| match look.path_rights(&caller) {
        Some(rights) if !rights.reads_everything() => Err(LookError::Denied(format!(
            "the pathz policy does not let `{}` read everything, and this command shows everything; `show state` shows what \
             the policy permits",
            caller.name
        ))),
        _ => Ok(()),
    });
    match judged {
        Ok(()) => next.run(request).await,
        Err(denied) => denied.into_response(),
    }
}

/// The part of a tree that may be read.
fn pruned(schema: &Schema, view: &NodeView, tree: &Tree<LeafVersion>) -> Tree<LeafVersion> {
    let root = NodeRef::Branch(tree.root());
    let go_on = || ControlFlow::Continue(());
    let seen = visible_while(schema, view, &InstancePath(Vec::new()), root, &go_on);
    match seen.continue_value().flatten() {
        Some(Child::Container(root)) => Tree::from_root(root),
        _ => Tree::new(),
    }
}

impl Readable {
    /// True when the caller may read the node at a path of this model.
    pub(super) fn permits(&self, path: &InstancePath) -> bool {
        let rights = self.rights.as_ref();
        rights.is_none_or(|rights| permits(rights, self.origin, path))
    }

    /// The content of a container at the top, with bare names; null where there is none.
    pub(super) fn top(&self, name: &str) -> Value {
        let schema = self.models.schema(self.origin);
        let Ok(path) = schema.instance_path(&[(name, &[][..])]) else { return Value::Null };
        let Some(branch) = self.tree.find_branch(&path.0) else { return Value::Null };
        let node = path.last().map_or(schema.root(), |step| step.node);
        let printed = print(schema, node, NodeRef::Branch(&branch), Flavour::Plain, &|_| true);
        printed.and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_config::tree::Leaf;

    use super::*;
    use crate::gnsi::pathz::tests::{MODELS, judge, rights};

    #[test]
    fn a_caller_sees_what_the_policy_lets_it_read() {
        let schema = MODELS.schema(Origin::Native);
        let mut tree = Tree::new();
        for name in ["eth0", "eth1"] {
            let path = format!("/interfaces/interface[name={name}]/state/oper-status");
            let path = schema.resolve_write(&path.parse().unwrap()).unwrap();
            let up = holdfast_config::Value::Enum(holdfast_config::Name::of("UP"));
            tree.set_leaf(schema, &path, Leaf::new(up, LeafVersion::default()));
        }
        let policy = judge("user bob + read holdfast_native:/interfaces/interface[name=eth0]");
        for (user, want) in [("bob", &["eth0"][..]), ("eve", &[])] {
            let rights = Arc::new(rights(&policy, user));
            let tree = pruned(schema, rights.read(Origin::Native.into()), &tree);
            let models = Arc::clone(&MODELS);
            let origin = Origin::Native;
            let time_ns = 0;
            let seen = Readable { models, rights: Some(rights), origin, tree, time_ns };
            assert_eq!(crate::local::views::interface_names(&seen), want, "{user}");
        }
    }
}
