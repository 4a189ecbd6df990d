//! gnoi.os: the software version that the box runs, and the one that it runs next.
//!
//! A box has one supervisor. Installed versions are known to the operator's program alone ([`crate::slots`]); the
//! result of an activation is decided by [`Software`].

mod install;

use holdfast_base::{Caller, ErrorChain};
use holdfast_core::Datastore;
use holdfast_proto::gnoi::bootconfig::SetBootConfigRequest;
use holdfast_proto::gnoi::os::activate_error::Type;
use holdfast_proto::gnoi::os::os_server::Os;
use holdfast_proto::gnoi::os::standby_state::State;
use holdfast_proto::gnoi::os::{
    self, ActivateOk, ActivateRequest, ActivateResponse, InstallRequest, StandbyState,
    VerifyRequest, VerifyResponse, VerifyStandby, activate_response, verify_standby,
};
use holdfast_security::acctz::secrets;
use holdfast_store::StoreError;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::{error, info};

use self::install::{ANSWERS, InstallAnswer, Transfer};
use super::boot_config::{self, SetBoot};
use crate::device::Device;
use crate::gnsi::Gnsi;
use crate::northbound::status::Refusal;
use crate::packages::Packages;
use crate::reboot::{RebootError, Reboots};
use crate::software::{ActivateError, PendingBootConfig, Software};

/// Serves gnoi.os.
#[derive(Debug)]
pub(in crate::northbound) struct OsService<D> {
    core: D,
    gnsi: Gnsi,
    software: Software,
    packages: Packages,
    reboots: Reboots,
}

impl<D: Datastore> OsService<D> {
    pub(in crate::northbound) fn new(core: D, gnsi: &Gnsi, device: &Device) -> Self {
        let Device { software, packages, reboots, .. } = device.clone();
        Self { core, gnsi: gnsi.clone(), software, packages, reboots }
    }
}

#[tonic::async_trait]
impl<D: Datastore> Os for OsService<D> {
    type InstallStream = ReceiverStream<InstallAnswer>;

    async fn install(
        &self,
        request: Request<Streaming<InstallRequest>>,
    ) -> Result<Response<Self::InstallStream>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI OS Install")?;
        let (answers, stream) = mpsc::channel(ANSWERS);
        let software = self.software.clone();
        let packages = self.packages.clone();
        let undertakings = self.reboots.undertakings().clone();
        let transfer = Transfer { software, packages, undertakings, caller, answers };
        // A task of its own, because an installation goes on when the client is gone.
        tokio::spawn(transfer.run(request.into_inner()));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn activate(
        &self,
        request: Request<ActivateRequest>,
    ) -> Result<Response<ActivateResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI OS Activate")?;
        let core = self.core.clone();
        let gnsi = self.gnsi.clone();
        let software = self.software.clone();
        let reboots = self.reboots.clone();
        let request = request.into_inner();
        // Completed even if the client goes meanwhile.
        let activating =
            async move { activate(&core, &gnsi, &software, &reboots, &caller, request).await };
        let activated = self.gnsi.rotations.run(activating).await;
        let response = Some(activated.unwrap_or_else(|| Err(Refusal::stopping()))?);
        Ok(Response::new(ActivateResponse { response }))
    }

    async fn verify(
        &self,
        request: Request<VerifyRequest>,
    ) -> Result<Response<VerifyResponse>, Status> {
        Caller::authenticated(&request)?;
        let standby = StandbyState { state: State::Unsupported.into() };
        Ok(Response::new(VerifyResponse {
            version: self.software.running().to_owned(),
            activation_fail_message: self.software.failure().unwrap_or_default(),
            verify_standby: Some(VerifyStandby {
                state: Some(verify_standby::State::StandbyState(standby)),
            }),
            individual_supervisor_install: false,
        }))
    }
}

async fn activate<D: Datastore>(
    core: &D,
    gnsi: &Gnsi,
    software: &Software,
    reboots: &Reboots,
    caller: &Caller,
    request: ActivateRequest,
) -> Result<activate_response::Response, Refusal> {
    let ActivateRequest { version, standby_supervisor, no_reboot, boot_config } = request;
    if standby_supervisor {
        return Ok(refused(Type::NotSupportedOnBackup, "this box has one supervisor"));
    }
    if version.is_empty() {
        return Ok(refused(Type::NonExistentVersion, "`version` is missing"));
    }
    software.slots().program().map_err(|error| Refusal::precondition(error.to_string()))?;
    if let Some(set) = &boot_config {
        boot_config::examine(core, gnsi, set.clone()).await?;
    }
    if !no_reboot {
        require_no_reboot(reboots)?;
    }
    let name = format!("the activation of version `{version}`");
    let _undertaking = reboots.undertakings().begin(name);
    let boot_config = boot_config.map(|set| set.encode_to_vec());
    if let Err(error) = software.activate(&version, &caller.name, boot_config).await {
        return activate_refusal(error);
    }
    if !no_reboot {
        reboots.at_once(format!("version {version} is activated"))?;
    }
    Ok(activate_response::Response::ActivateOk(ActivateOk {}))
}

/// Refuses an activation while a reboot is pending, because that would boot the activated version.
fn require_no_reboot(reboots: &Reboots) -> Result<(), Refusal> {
    match reboots.pending() {
        Some(pending) => Err(RebootError::Pending(pending.reason).into()),
        None => Ok(()),
    }
}

fn activate_refusal(error: ActivateError) -> Result<activate_response::Response, Refusal> {
    let text = ErrorChain(&error).to_string();
    match error {
        ActivateError::Store(error) => Err(error.into()),
        ActivateError::NotInstalled { .. } => Ok(refused(Type::NonExistentVersion, text)),
        ActivateError::Slot(_) => Ok(refused(Type::Unspecified, text)),
    }
}

fn refused(kind: Type, detail: impl Into<String>) -> activate_response::Response {
    activate_response::Response::ActivateError(os::ActivateError {
        r#type: kind.into(),
        detail: detail.into(),
    })
}

/// Brings the boot configuration of an activation into force if its version runs now. Called before anything is served.
///
/// # Errors
/// When the result of the activation cannot be recorded.
pub(in crate::northbound) async fn begin_software<D: Datastore>(
    core: &D,
    gnsi: &Gnsi,
    software: &Software,
) -> Result<(), StoreError> {
    let Some(coming) = software.begin().await? else { return Ok(()) };
    let version = coming.version.clone();
    match apply_boot_config(core, gnsi, coming).await {
        Ok(()) => {
            info!(version, "the boot configuration that came with the software is in force");
            software.complete();
            Ok(())
        }
        Err(refusal) => {
            let why = format!(
                "version {version} runs, without the boot configuration that came with it: {}",
                secrets::message(refusal.text()) // readers see it
            );
            error!(why, "the boot configuration that came with the software is dropped");
            software.incomplete(why).await
        }
    }
}

async fn apply_boot_config<D: Datastore>(
    core: &D,
    gnsi: &Gnsi,
    coming: PendingBootConfig,
) -> Result<(), Refusal> {
    let PendingBootConfig { by, boot_config, .. } = coming;
    let set = SetBootConfigRequest::decode(&boot_config[..]);
    let set = set.map_err(|error| Refusal::internal(error.to_string()))?;
    let caller = Caller::own(by);
    let beside = Software::completion();
    boot_config::set_boot(core, gnsi, &caller, SetBoot { beside, ..boot_config::read(set)? }).await
}
