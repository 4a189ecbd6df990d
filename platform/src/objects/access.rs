//! State of users, and the check and state of the gRPC server. The agent looks both up in its configuration; no kernel object
//! stands for them.

use holdfast_config::{InstancePath, Keys, LeafMeta, NodeId, Step, Value};
use smol_str::SmolStr;

use super::state::{Leaves, StateEntry};
use super::{Entry, ObjectError, Registry};

/// The TLS profile that always exists: the identity of the box.
const DEFAULT_PROFILE: &str = "system_default_profile";
/// The one gRPC server of the agent (the default of its name in OpenConfig).
pub const GRPC_SERVER: &str = "DEFAULT";

/// TLS profiles to which the gRPC server may be bound.
pub trait Profiles: std::fmt::Debug + Send + Sync {
    /// Reason why the server may not be bound to this profile, if there is one.
    fn refusal(&self, id: &str) -> Option<String>;
}

/// Profiles of a box that has only the default one.
#[derive(Debug)]
pub(super) struct DefaultProfile;

impl Profiles for DefaultProfile {
    fn refusal(&self, id: &str) -> Option<String> {
        (id != DEFAULT_PROFILE)
            .then(|| format!("there is no TLS profile `{id}`, only `{DEFAULT_PROFILE}`"))
    }
}

impl Registry {
    pub(super) fn check_server<M: LeafMeta>(
        &self,
        entry: &Entry<'_, M>,
    ) -> Result<(), ObjectError> {
        let leaf = self.nodes.server.certificate_id;
        match entry.text(leaf).and_then(|id| self.profiles.refusal(&id)) {
            Some(reason) => Err(entry.leaf_error(leaf, reason)),
            None => Ok(()),
        }
    }

    pub(super) fn user_state<M: LeafMeta>(&self, name: &str, entry: &Entry<'_, M>) -> StateEntry {
        let nodes = &self.nodes.user;
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, name);
        leaves.optional(nodes.state_role, entry.value(nodes.role).cloned());
        leaves.entry(self.in_system(nodes.entry, name))
    }

    /// State of the gRPC server, which exists even without any configuration. `services` are the short names of the service
    /// families that it offers: `gnmi`, `gnoi`. Where it listens is published by the agent as its sockets are opened.
    pub fn server_state(&self, services: &[&'static str]) -> StateEntry {
        let nodes = &self.nodes.server;
        let path = self.in_system(nodes.entry, GRPC_SERVER);
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, GRPC_SERVER);
        let services = services.iter().map(|name| Value::Str(SmolStr::new_static(name)));
        leaves.put(nodes.state_services, Value::List(services.collect()));
        leaves.entry(path)
    }

    fn in_system(&self, list: NodeId, name: &str) -> InstancePath {
        let entry = Step::entry(list, Keys::single(Value::Str(name.into())));
        InstancePath(vec![Step::node(self.nodes.system.system), entry])
    }
}
