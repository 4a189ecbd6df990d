//! State of users, and the check and state of the gRPC server. The agent looks both up in its configuration; no kernel object
//! stands for them.

use holdfast_config::{InstancePath, Keys, Step, Value};
use smol_str::SmolStr;

use super::Registry;
use super::entries::NativeEntries;
use crate::kinds::entry::{Entry, ObjectError};
use crate::kinds::native::nodes;
use crate::kinds::state::{Leaves, StateEntry};

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

nodes!(
    /// `user` of the system.
    UserNodes {
        entry: "",
        role: "/role",
        state: "/state",
        state_name: "/state/username",
        state_role: "/state/role",
    }
);

nodes!(
    /// `grpc-server` of the system.
    ServerNodes {
        entry: "",
        certificate_id: "/certificate-id",
        state: "/state",
        state_name: "/state/name",
        state_services: "/state/services",
    }
);

impl NativeEntries {
    pub(super) fn check_server(&self, entry: &Entry<'_>) -> Result<(), ObjectError> {
        let leaf = self.server.certificate_id;
        match entry.text(leaf).and_then(|id| self.profiles.refusal(&id)) {
            Some(reason) => Err(entry.leaf_error(leaf, reason)),
            None => Ok(()),
        }
    }

    pub(super) fn user_state(&self, entry: &Entry<'_>) -> Option<StateEntry> {
        let nodes = &self.user;
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, entry.key_text()?);
        leaves.optional(nodes.state_role, entry.value(nodes.role).cloned());
        Some(leaves.entry(entry.path.clone()))
    }
}

impl Registry {
    /// State of the gRPC server, which exists even without any configuration. `services` are the short names of the service
    /// families that it offers: `gnmi`, `gnoi`. Where it listens is published by the agent as its sockets are opened.
    pub fn server_state(&self, services: &[&'static str]) -> StateEntry {
        let nodes = &self.entries.server;
        let path = InstancePath(vec![
            Step::node(self.system.system),
            Step::entry(nodes.entry, Keys::single(Value::Str(SmolStr::new_static(GRPC_SERVER)))),
        ]);
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, GRPC_SERVER);
        let services = services.iter().map(|name| Value::Str(SmolStr::new_static(name)));
        leaves.put(nodes.state_services, Value::List(services.collect()));
        leaves.entry(path)
    }
}
