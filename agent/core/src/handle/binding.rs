//! The TLS profile that the configuration in force binds the gRPC server to.

use holdfast_config::schema::NodeId;
use holdfast_config::{Configuration, InstancePath, Keys, Models, Step, Value};
use holdfast_platform::objects::GRPC_SERVER;
use smol_str::SmolStr;
use tokio::sync::watch;

/// Looks the profile up in the newest configuration: a change counts for the next connection.
#[derive(Clone, Debug)]
pub struct CertificateId {
    configuration_rx: watch::Receiver<Configuration>,
    path: InstancePath,
}

impl CertificateId {
    /// `None` when the native model has no gRPC server.
    pub(crate) fn new(
        models: &Models,
        configuration_rx: watch::Receiver<Configuration>,
    ) -> Option<Self> {
        let find = |path| models.native.find(path);
        let (system, server): (NodeId, NodeId) = (find("/system")?, find("/system/grpc-server")?);
        let leaf = find("/system/grpc-server/certificate-id")?;
        let entry = Step::entry(server, Keys::single(Value::Str(GRPC_SERVER.into())));
        let path = InstancePath(vec![Step::node(system), entry, Step::node(leaf)]);
        Some(Self { configuration_rx, path })
    }

    /// Resolves with the next change of the configuration; false when there will be none.
    pub async fn changed(&mut self) -> bool {
        self.configuration_rx.changed().await.is_ok()
    }

    /// The id of the profile, where one is configured.
    pub fn current(&self) -> Option<SmolStr> {
        let configuration = self.configuration_rx.borrow();
        match configuration.effective().find_leaf(&self.path)?.value {
            Value::Str(id) => Some(id),
            _ => None,
        }
    }
}
