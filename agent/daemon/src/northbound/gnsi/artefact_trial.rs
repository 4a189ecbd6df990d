//! Artefacts that come without a stream: with a boot configuration, or with a bootstrap.
//!
//! Each service handles its artefacts like those of a rotation: [`ArtefactTrial::begin`] brings all of them into force, or
//! none. Then [`ArtefactTrial::changes`] lists the changes to record and [`ArtefactTrial::mark_final`] notes that they are recorded, or
//! [`ArtefactTrial::undo`] rolls back. One of the last two must follow, so the caller runs in a task that does not end with the
//! client.

use std::sync::Arc;

use holdfast_base::Caller;
use holdfast_config::{BootChange, Configuration, Value};
use holdfast_core::{CommitError, Datastore};
use holdfast_platform::objects::GRPC_SERVER;
use holdfast_proto::{bootz, gnsi};
use holdfast_store::ArtefactChange;
use smol_str::SmolStr;
use tokio::task::spawn_blocking;

use super::rotate::{Rotatable, Upload, UploadTrial, examine_upload, try_uploads};
use super::{authz, certz, credentialz, pathz, switched_on};
use crate::gnsi::{Gnsi, TrialProfilesGuard};
use crate::northbound::status::Refusal;

/// Artefacts for the gNSI services; `None` for a service whose artefacts stay.
#[derive(Debug, Default)]
pub(crate) struct Artefacts {
    pub(crate) authz: Option<gnsi::authz::UploadRequest>,
    pub(crate) pathz: Option<gnsi::pathz::UploadRequest>,
    /// All TLS profiles.
    pub(crate) certz: Option<bootz::CertzProfiles>,
    /// Credentials of all accounts.
    pub(crate) credentials: Option<bootz::Credentials>,
}

/// Artefacts that are in force on trial.
#[must_use = "what is tried has to be kept or undone"]
#[derive(Default)]
pub(crate) struct ArtefactTrial {
    tried: Vec<Box<dyn ServiceTrial>>,
    trial_profiles: Option<TrialProfilesGuard>,
}

/// An upload, and the service that it is for.
type ServiceUpload<F> = Option<(F, Upload<F>)>;

/// All uploads, translated for their services.
struct ServiceUploads<D: Datastore> {
    authz: ServiceUpload<authz::RotatableAuthz<D>>,
    pathz: ServiceUpload<pathz::RotatablePathz<D>>,
    certz: ServiceUpload<certz::RotatableCertz<D>>,
    credentials: ServiceUpload<credentialz::RotatableCredentialz<D>>,
}

/// Uploads on trial of one service.
#[tonic::async_trait]
trait ServiceTrial: Send + Sync {
    fn changes(&self) -> Vec<ArtefactChange>;
    async fn mark_final(self: Box<Self>);
    async fn undo(self: Box<Self>, why: &Refusal);
}

#[tonic::async_trait]
impl<S: Rotatable> ServiceTrial for UploadTrial<S> {
    fn changes(&self) -> Vec<ArtefactChange> {
        UploadTrial::changes(self)
    }

    async fn mark_final(self: Box<Self>) {
        (*self).mark_final().await;
    }

    async fn undo(self: Box<Self>, why: &Refusal) {
        (*self).undo(why).await;
    }
}

impl Artefacts {
    pub(crate) fn is_empty(&self) -> bool {
        let Self { authz, pathz, certz, credentials } = self;
        authz.is_none() && pathz.is_none() && certz.is_none() && credentials.is_none()
    }
}

impl ArtefactTrial {
    /// Brings all artefacts into force on trial. They are checked against the configuration with `boot`.
    ///
    /// # Errors
    /// When one of them is refused; none is in force then.
    pub(crate) async fn begin(
        core: &impl Datastore,
        gnsi: &Gnsi,
        caller: &Caller,
        boot: Option<&BootChange>,
        artefacts: Artefacts,
    ) -> Result<Self, Refusal> {
        if artefacts.is_empty() {
            return Ok(Self::default());
        }
        switched_on(core)?;
        let coming = configuration_with(core, boot).await?;
        let mut seeds = Self::default();
        match seeds.try_each(core, gnsi, caller, &coming, artefacts).await {
            Ok(()) => Ok(seeds),
            Err(refusal) => {
                seeds.undo(&refusal).await;
                Err(refusal)
            }
        }
    }

    async fn try_each(
        &mut self,
        core: &impl Datastore,
        gnsi: &Gnsi,
        caller: &Caller,
        coming: &Configuration,
        artefacts: Artefacts,
    ) -> Result<(), Refusal> {
        let offers = ServiceUploads::read(core, gnsi, coming, artefacts).await?;
        if let Some((face, upload)) = offers.authz {
            self.add(face, caller, upload).await?;
        }
        if let Some((face, upload)) = offers.pathz {
            self.add(face, caller, upload).await?;
        }
        if let Some((face, upload)) = offers.certz {
            let tried = try_uploads(Arc::new(face), caller, vec![upload]).await?;
            self.trial_profiles =
                Some(gnsi.certz.profiles.allow_trial_profiles(&tried.now().profiles));
            self.tried.push(Box::new(tried));
        }
        if let Some((face, upload)) = offers.credentials {
            self.add(face, caller, upload).await?;
        }
        Ok(())
    }

    async fn add<S: Rotatable>(
        &mut self,
        face: S,
        caller: &Caller,
        upload: Upload<S>,
    ) -> Result<(), Refusal> {
        let tried = try_uploads(Arc::new(face), caller, vec![upload]).await?;
        self.tried.push(Box::new(tried));
        Ok(())
    }

    /// Checks that all artefacts could be in force now, with `boot`, without bringing them into force.
    ///
    /// # Errors
    /// The first refusal.
    pub(crate) async fn examine(
        core: &impl Datastore,
        gnsi: &Gnsi,
        boot: Option<&BootChange>,
        artefacts: Artefacts,
    ) -> Result<(), Refusal> {
        let coming = configuration_with(core, boot).await?;
        if artefacts.is_empty() {
            return Ok(());
        }
        switched_on(core)?;
        let ServiceUploads { authz, pathz, certz, credentials } =
            ServiceUploads::read(core, gnsi, &coming, artefacts).await?;
        examine_service(authz)?;
        examine_service(pathz)?;
        examine_service(certz)?;
        examine_service(credentials)
    }

    /// Changes of the store that make the artefacts final.
    pub(crate) fn changes(&self) -> Vec<ArtefactChange> {
        self.tried.iter().flat_map(|seed| seed.changes()).collect()
    }

    /// Called when the configuration of the artefacts is in force. After that no other configuration may refer to TLS
    /// profiles that are not final.
    pub(crate) fn joined(&mut self) {
        self.trial_profiles = None;
    }

    /// Notes that the artefacts are final, once they are recorded.
    pub(crate) async fn mark_final(self) {
        for seed in self.tried {
            seed.mark_final().await;
        }
    }

    /// Rolls the artefacts back.
    pub(crate) async fn undo(self, why: &Refusal) {
        for seed in self.tried.into_iter().rev() {
            seed.undo(why).await;
        }
    }
}

impl<D: Datastore> ServiceUploads<D> {
    /// Translates artefacts. `coming` is the configuration that they will be in force with.
    async fn read(
        core: &D,
        gnsi: &Gnsi,
        coming: &Configuration,
        artefacts: Artefacts,
    ) -> Result<Self, Refusal> {
        let mut offers = Self { authz: None, pathz: None, certz: None, credentials: None };
        if let Some(policy) = artefacts.authz {
            let face = authz::RotatableAuthz::new(core.clone(), gnsi);
            offers.authz = Some((face, authz::upload(policy)));
        }
        if let Some(policy) = artefacts.pathz {
            let face = pathz::RotatablePathz::new(core.clone(), gnsi);
            offers.pathz = Some((face, pathz::read_upload(policy)?));
        }
        if let Some(policy) = artefacts.certz {
            let face = certz::RotatableCertz::new(core.clone(), gnsi);
            let profiles = &gnsi.certz.profiles;
            let upload = certz::replacement(policy, bound_in(coming), profiles).await?;
            offers.certz = Some((face, upload));
        }
        if let Some(policy) = artefacts.credentials {
            let face = credentialz::RotatableCredentialz::new(core.clone(), gnsi);
            let upload = credentialz::replacement(policy).await?;
            let upload = face.with_accounts(upload, |name| is_user_in(coming, name)).await?;
            offers.credentials = Some((face, upload));
        }
        Ok(offers)
    }
}

/// Checks an upload by the rules of its service.
fn examine_service<S: Rotatable>(offer: ServiceUpload<S>) -> Result<(), Refusal> {
    offer.map_or(Ok(()), |(face, upload)| examine_upload(&face, upload))
}

impl std::fmt::Debug for ArtefactTrial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} services", self.tried.len())
    }
}

/// The configuration as it will be with `boot`.
async fn configuration_with(
    core: &impl Datastore,
    boot: Option<&BootChange>,
) -> Result<Configuration, Refusal> {
    let (now, Some(change)) = (core.configuration(), boot.cloned()) else {
        return Ok(core.configuration());
    };
    let changed = spawn_blocking(move || now.boot_changed(&change)).await;
    let changed = changed.map_err(|_| Refusal::internal("examining the configuration panicked"))?;
    changed.map_err(|errors| CommitError::Edit(errors).into())
}

/// True when a configuration has a role for the user.
fn is_user_in(configuration: &Configuration, name: &str) -> bool {
    let path = [("system", &[][..]), ("user", &[("username", name)]), ("role", &[])];
    leaf_in(configuration, &path).is_some()
}

/// The TLS profile that a configuration binds the gRPC server to.
fn bound_in(configuration: &Configuration) -> Option<SmolStr> {
    let path =
        [("system", &[][..]), ("grpc-server", &[("name", GRPC_SERVER)]), ("certificate-id", &[])];
    match leaf_in(configuration, &path)? {
        Value::Str(id) => Some(id),
        _ => None,
    }
}

fn leaf_in(configuration: &Configuration, path: &[(&str, &[(&str, &str)])]) -> Option<Value> {
    let path = configuration.models().native.instance_path(path).ok()?;
    configuration.effective().find_leaf(&path).map(|leaf| leaf.value)
}
