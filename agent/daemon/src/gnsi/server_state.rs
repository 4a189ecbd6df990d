//! State of the gRPC server: its TLS profile, and counters of its connections.

use holdfast_config::schema::Schema;
use holdfast_config::{InstancePath, MissingNode, NodeId, Value};
use holdfast_core::{CertificateId, Datastore, PolledState, ServiceState};
use holdfast_platform::objects::GRPC_SERVER;
use holdfast_security::certz::{EntityKind, Freshness};
use holdfast_security::rotation::created_on_ns;
use holdfast_telemetry::PolledReading;
use smol_str::SmolStr;

use super::certz::TlsProfiles;

/// Nanoseconds in a second: certificates count seconds, leaves nanoseconds.
const NS_PER_S: u64 = 1_000_000_000;

/// Leaves below the server's `state` container.
#[derive(Clone, Debug)]
pub(crate) struct ServerState {
    profiles: TlsProfiles,
    certificate_id: InstancePath,
    profile_id: InstancePath,
    expires_on: InstancePath,
    /// Version and creation time of each kind of entity.
    entities: [(EntityKind, InstancePath, InstancePath); 4],
    /// Count and time of accepted connections, and of rejected ones.
    connections: [(InstancePath, InstancePath); 2],
}

impl ServerState {
    pub(super) fn new(native: &Schema, profiles: TlsProfiles) -> Result<Self, MissingNode> {
        let leaf = |name: &str| path(native, &format!("state/{name}"));
        let entity = |kind, name: &str| {
            Ok((kind, leaf(&format!("{name}-version"))?, leaf(&format!("{name}-created-on"))?))
        };
        let counted = |what: &str| {
            let count = leaf(&format!("counters/connection-{what}s"))?;
            Ok((count, leaf(&format!("counters/last-connection-{what}"))?))
        };
        Ok(Self {
            profiles,
            certificate_id: leaf("certificate-id")?,
            profile_id: leaf("ssl-profile-id")?,
            expires_on: leaf("certificate-expires-on")?,
            entities: [
                entity(EntityKind::CertificateChain, "certificate")?,
                entity(EntityKind::TrustBundle, "ca-trust-bundle")?,
                entity(EntityKind::RevocationLists, "certificate-revocation-list-bundle")?,
                entity(EntityKind::AuthenticationPolicy, "authentication-policy")?,
            ],
            connections: [counted("accept")?, counted("reject")?],
        })
    }

    /// Publishes the profile for new connections.
    pub(crate) async fn show(&self, core: &impl Datastore) {
        core.show_state(self.leaves()).await;
    }

    /// Publishes the profile for new connections, and returns its id.
    pub(super) async fn show_serving(&self, core: &impl Datastore) -> SmolStr {
        let serving = self.profiles.server_profile().id;
        tracing::info!(profile = %serving, "new connections meet this TLS profile");
        self.show(core).await;
        serving
    }

    /// Publishes the profile whenever the configuration binds the server to another one than `published`, and whenever the
    /// identity of the box was replaced.
    pub(super) async fn follow(
        self,
        mut published: SmolStr,
        mut binding: CertificateId,
        core: impl Datastore,
    ) {
        let mut identity = self.profiles.identity_changes();
        loop {
            tokio::select! {
                there_are_more = binding.changed() => {
                    if !there_are_more {
                        return;
                    }
                    if self.profiles.server_profile().id != published {
                        published = self.show_serving(&core).await;
                    }
                }
                // The sender is in the profiles.
                Ok(()) = identity.changed() => self.show(&core).await,
            }
        }
    }

    fn leaves(&self) -> ServiceState {
        let serving = self.profiles.server_profile();
        let id = || Some(Value::Str(serving.id.clone()));
        let ns = |value: Option<u64>| value.map(Value::Uint);
        let expires_on = serving.expires_on.and_then(|s| s.checked_mul(NS_PER_S));
        let mut leaves = vec![
            (self.certificate_id.clone(), id()),
            (self.profile_id.clone(), id()),
            (self.expires_on.clone(), ns(expires_on)),
        ];
        for (kind, version, created_on) in &self.entities {
            let freshness = serving.profile.freshness(*kind);
            let text = |it: &Freshness| Value::Str(it.version.as_str().into());
            leaves.push((version.clone(), freshness.map(text)));
            let age = freshness.and_then(|it| created_on_ns(it.created_on));
            leaves.push((created_on.clone(), ns(age)));
        }
        leaves
    }
}

impl ServerState {
    fn counts(&self) -> Vec<(InstancePath, Value)> {
        let counts = self.profiles.connections().counts();
        let mut leaves = Vec::new();
        for ((count, last), (number, time)) in self.connections.iter().zip(counts) {
            leaves.push((count.clone(), Value::Uint(number)));
            leaves.extend(time.map(|time| (last.clone(), Value::Uint(time))));
        }
        leaves
    }
}

#[tonic::async_trait]
impl PolledState for ServerState {
    fn nodes(&self) -> Vec<NodeId> {
        let paths = self.connections.iter().flat_map(|(count, last)| [count, last]);
        paths.filter_map(InstancePath::leaf).collect()
    }

    async fn read(&self) -> PolledReading {
        self.counts().into()
    }
}

/// Path of a leaf below the entry of the server.
fn path(native: &Schema, below: &str) -> Result<InstancePath, MissingNode> {
    let entry: &[(&str, &str)] = &[("name", GRPC_SERVER)];
    let mut elems = vec![("system", &[][..]), ("grpc-server", entry)];
    elems.extend(below.split('/').map(|name| (name, &[][..])));
    native.instance_path(&elems)
}
