//! Entries of the native model that no kind of value stands for: they are checked, and some show their configuration.

use std::sync::Arc;

use holdfast_config::{NodeId, Schema};

use super::access::{DefaultProfile, Profiles, ServerNodes, UserNodes};
use super::instances::{InstanceNodes, ProtocolNodes, check_instance};
use super::reconciliation::ReconciliationNodes;
use crate::kinds::entry::{Entry, ObjectError, ObjectValues};
use crate::kinds::native::{ModelError, NativeKind};
use crate::kinds::state::StateEntry;

/// Users, servers, policies, instances and protocols in the native model.
#[derive(Clone, Debug)]
pub(super) struct NativeEntries {
    pub(super) user: UserNodes,
    pub(super) server: ServerNodes,
    pub(super) reconciliation: ReconciliationNodes,
    pub(super) instance: InstanceNodes,
    pub(super) protocol: ProtocolNodes,
    /// TLS profiles that may be referred to.
    pub(super) profiles: Arc<dyn Profiles>,
}

impl NativeEntries {
    pub(super) fn find(schema: &Schema) -> Result<Self, ModelError> {
        Ok(Self {
            user: UserNodes::find(schema, "/system/user")?,
            server: ServerNodes::find(schema, "/system/grpc-server")?,
            reconciliation: ReconciliationNodes::find(schema, "/reconciliation")?,
            instance: InstanceNodes::find(schema, "/network-instances")?,
            protocol: ProtocolNodes::find(schema, "/network-instances/network-instance/static")?,
            profiles: Arc::new(DefaultProfile),
        })
    }
}

impl NativeKind for NativeEntries {
    fn lists(&self) -> Vec<NodeId> {
        let policies = [self.reconciliation.container, self.reconciliation.rule];
        let others = [self.user.entry, self.server.entry];
        let instances = [self.instance.instance, self.protocol.protocol];
        [policies, others, instances].concat()
    }

    fn values(&self, entry: &Entry<'_>) -> Result<ObjectValues, ObjectError> {
        match entry.node() {
            Some(node) if node == self.server.entry => self.check_server(entry)?,
            Some(node) if node == self.reconciliation.rule => {
                self.reconciliation.check_rule(entry)?;
            }
            Some(node) if node == self.instance.instance => check_instance(entry)?,
            _ => {}
        }
        Ok(ObjectValues::new())
    }

    fn has_configured_state(&self, list: NodeId) -> bool {
        [self.user.entry, self.protocol.protocol].contains(&list)
    }

    fn configured_state(&self, entry: &Entry<'_>) -> Option<StateEntry> {
        match entry.node() {
            Some(node) if node == self.user.entry => self.user_state(entry),
            Some(node) if node == self.protocol.protocol => self.protocol_state(entry),
            _ => None,
        }
    }
}
