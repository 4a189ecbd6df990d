//! Users and the gRPC server as values, and their state.

use std::net::IpAddr;

use holdfast_config::{InstancePath, Keys, Name, Step, Value};
use smol_str::SmolStr;

use super::state::{Leaves, StateEntry};
use super::{Entry, ObjectError, Registry, ip_text};
use crate::values::{GrpcServer, User};

/// The TLS profile that always exists: the identity of the box.
const DEFAULT_PROFILE: &str = "system_default_profile";
/// The one gRPC server of the agent (the default of its name in OpenConfig).
pub const GRPC_SERVER: &str = "DEFAULT";

/// Where the gRPC server is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// The addresses it listens on.
    pub addresses: Vec<IpAddr>,
    /// Its TCP port.
    pub port: u16,
    /// Short names of the families of services it has: `gnmi`, `gnoi`.
    pub services: Vec<&'static str>,
}

/// The TLS profiles that the gRPC server may be bound to.
pub trait Profiles: std::fmt::Debug + Send + Sync {
    /// Why it may not be bound to the profile of this id.
    fn refusal(&self, id: &str) -> Option<String>;
}

/// Of a box without other profiles.
#[derive(Debug)]
pub(super) struct DefaultProfile;

impl Profiles for DefaultProfile {
    fn refusal(&self, id: &str) -> Option<String> {
        (id != DEFAULT_PROFILE)
            .then(|| format!("there is no TLS profile `{id}`, only `{DEFAULT_PROFILE}`"))
    }
}

impl Registry {
    pub(super) fn user<M>(
        &self,
        name: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<User, ObjectError> {
        let leaf = self.nodes.user.role;
        let role = entry.text(leaf).ok_or_else(|| entry.incomplete(leaf))?;
        Ok(User { name: name.clone(), role })
    }

    pub(super) fn grpc_server<M>(
        &self,
        name: &SmolStr,
        entry: &Entry<'_, M>,
    ) -> Result<GrpcServer, ObjectError> {
        let leaf = self.nodes.server.certificate_id;
        let certificate_id = entry.text(leaf);
        if let Some(reason) = certificate_id.as_ref().and_then(|id| self.profiles.refusal(id)) {
            return Err(entry.leaf_error(leaf, reason));
        }
        Ok(GrpcServer { name: name.clone(), certificate_id })
    }

    pub(super) fn user_state(&self, user: &User) -> StateEntry {
        let nodes = &self.nodes.user;
        let path = self.in_system(nodes.entry, &user.name);
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, &user.name);
        // The role was a name of the model when the value was made.
        leaves.put(nodes.state_role, Value::Enum(Name::of(&user.role)));
        leaves.entry(path)
    }

    /// The state of the gRPC server, which is there whether or not anything of it is configured.
    pub fn server_state(&self, listening: &Listening) -> StateEntry {
        let nodes = &self.nodes.server;
        let path = self.in_system(nodes.entry, GRPC_SERVER);
        let mut leaves = Leaves::of(nodes.state);
        leaves.text(nodes.state_name, GRPC_SERVER);
        leaves.put(nodes.state_port, Value::Uint(listening.port.into()));
        let mut addresses: Vec<Value> = listening.addresses.iter().copied().map(ip_text).collect();
        addresses.sort();
        addresses.dedup();
        leaves.put(nodes.state_listen_addresses, Value::List(addresses.into()));
        let services = listening.services.iter().map(|name| Value::Str(SmolStr::new_static(name)));
        leaves.put(nodes.state_services, Value::List(services.collect()));
        leaves.entry(path)
    }

    fn in_system(&self, list: holdfast_config::NodeId, name: &str) -> InstancePath {
        let entry = Step::entry(list, Keys::single(Value::Str(name.into())));
        InstancePath(vec![Step::node(self.nodes.system.system), entry])
    }
}
