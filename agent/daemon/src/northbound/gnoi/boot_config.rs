//! gnoi.bootconfig: the configuration that the box boots with, as a whole.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use holdfast_base::Caller;
use holdfast_config::{BootChange, BootConfiguration};
use holdfast_core::{Datastore, Intent};
use holdfast_proto::bootz;
use holdfast_proto::gnoi::bootconfig::boot_config_server::BootConfig;
use holdfast_proto::gnoi::bootconfig::{
    GetBootConfigRequest, GetBootConfigResponse, SetBootConfigRequest, SetBootConfigResponse,
    SetBootConfigVerifiedRequest, SetBootConfigVerifiedResponse, set_boot_config_verified_request,
};
use holdfast_store::ArtefactChange;
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::{info, warn};

use crate::aaa::CallPermission;
use crate::gnsi::{Gnsi, Rotations};
use crate::northbound::gnsi::{ArtefactTrial, Artefacts, may_finalize};
use crate::northbound::status::Refusal;

/// Time after which a tried boot configuration is taken back: a person who checks that the box is still reachable needs
/// minutes, and other clients cannot change the boot configuration meanwhile.
const TRIAL: Duration = Duration::from_secs(600);
/// Answers that wait for the client: each step has one.
const ANSWERS: usize = 4;

type AnswerSender = mpsc::Sender<Result<SetBootConfigVerifiedResponse, Status>>;

/// Serves gnoi.bootconfig from a datastore.
#[derive(Debug)]
pub(in crate::northbound) struct BootConfigService<D> {
    core: D,
    gnsi: Gnsi,
}

impl<D: Datastore> BootConfigService<D> {
    pub(in crate::northbound) fn new(core: D, gnsi: &Gnsi) -> Self {
        Self { core, gnsi: gnsi.clone() }
    }
}

#[tonic::async_trait]
impl<D: Datastore> BootConfig for BootConfigService<D> {
    type SetBootConfigVerifiedStream =
        Pin<Box<dyn Stream<Item = Result<SetBootConfigVerifiedResponse, Status>> + Send>>;

    async fn get_boot_config(
        &self,
        request: Request<GetBootConfigRequest>,
    ) -> Result<Response<GetBootConfigResponse>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI GetBootConfig")?;
        let boot = self.core.configuration().layers().boot.clone();
        let decoded = boot.map(|boot| bootz::BootConfig::decode(&boot.record[..])).transpose();
        let boot_config = decoded.map_err(|error| Refusal::internal(error.to_string()))?;
        Ok(Response::new(GetBootConfigResponse { boot_config }))
    }

    async fn set_boot_config(
        &self,
        request: Request<SetBootConfigRequest>,
    ) -> Result<Response<SetBootConfigResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI SetBootConfig")?;
        set_boot(&self.core, &self.gnsi, &caller, read(request.into_inner())?).await?;
        Ok(Response::new(SetBootConfigResponse {}))
    }

    async fn set_boot_config_verified(
        &self,
        request: Request<Streaming<SetBootConfigVerifiedRequest>>,
    ) -> Result<Response<Self::SetBootConfigVerifiedStream>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI SetBootConfigVerified")?;
        let permission = CallPermission::of(request.extensions())?;
        let (answers, stream) = mpsc::channel(ANSWERS);
        let core = self.core.clone();
        let gnsi = self.gnsi.clone();
        let requests = request.into_inner();
        // A task of its own, because a trial is also taken back when the client and its stream are gone.
        let trial = async move {
            let ended = run_trial(&core, &gnsi, &caller, &permission, requests, &answers).await;
            if let Err(refusal) = ended {
                let _client_is_gone = answers.send(Err(refusal.into())).await;
            }
        };
        if !self.gnsi.rotations.spawn(trial) {
            return Err(Refusal::stopping().into());
        }
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

/// Runs one trial: the configuration is in force at once, and stays if the client finalizes it.
async fn run_trial<D: Datastore>(
    core: &D,
    gnsi: &Gnsi,
    caller: &Caller,
    permission: &CallPermission,
    mut requests: Streaming<SetBootConfigVerifiedRequest>,
    answers: &AnswerSender,
) -> Result<(), Refusal> {
    let unread = |status: Status| Refusal::aborted(status.message());
    let first = requests.message().await.map_err(unread)?.and_then(|request| request.set_request);
    let Some(set_boot_config_verified_request::SetRequest::Set(set)) = first else {
        return Err(Refusal::invalid("the first message must be `set`"));
    };
    let _undertaking = gnsi.rotations.undertakings().begin("a boot configuration that is tried");
    let trial = Trial::begin(core, gnsi, caller, set).await?;
    let answered = answers.send(Ok(SetBootConfigVerifiedResponse {})).await;
    let end = match answered {
        Ok(()) => next_end(&mut requests, &gnsi.rotations).await,
        Err(_) => TrialEnd::Cut,
    };
    let end = match end {
        TrialEnd::Finalized => match may_finalize(permission, true) {
            Ok(()) => TrialEnd::Finalized,
            Err(refusal) => TrialEnd::Denied(refusal),
        },
        end => end,
    };
    match end {
        TrialEnd::Finalized => trial.keep(core, gnsi, caller).await?,
        _ => {
            info!(caller = %caller.name, reason = end.reason(), "rolling back the trial of a boot configuration");
            trial.take_back(core, caller, &end.refusal()).await?;
        }
    }
    if let TrialEnd::Finalized | TrialEnd::RolledBack(_) = end {
        let _client_is_gone = answers.send(Ok(SetBootConfigVerifiedResponse {})).await;
        return Ok(());
    }
    Err(end.refusal())
}

/// Boot configuration and artefacts that are in force until the client decides.
struct Trial {
    seeds: ArtefactTrial,
    with_boot: bool,
}

impl Trial {
    async fn begin(
        core: &impl Datastore,
        gnsi: &Gnsi,
        caller: &Caller,
        set: SetBootConfigRequest,
    ) -> Result<Self, Refusal> {
        let (boot, artefacts) = parts(set)?;
        if boot.is_none() && artefacts.is_empty() {
            return Err(Refusal::invalid("`set` has no content"));
        }
        let boot = boot.map(|boot| BootChange::Try(Arc::new(boot)));
        let mut seeds = ArtefactTrial::begin(core, gnsi, caller, boot.as_ref(), artefacts).await?;
        let with_boot = boot.is_some();
        if let Some(boot) = boot
            && let Err(refusal) = change(core, caller, boot).await
        {
            seeds.undo(&refusal).await;
            return Err(refusal);
        }
        seeds.joined();
        Ok(Self { seeds, with_boot })
    }

    async fn keep(
        self,
        core: &impl Datastore,
        gnsi: &Gnsi,
        caller: &Caller,
    ) -> Result<(), Refusal> {
        let confirm = self.with_boot.then_some(BootChange::Confirm);
        let Err(refusal) = write(core, gnsi, caller, confirm, self.seeds.changes()).await else {
            self.seeds.mark_final().await;
            return Ok(());
        };
        self.take_back(core, caller, &refusal).await?;
        Err(refusal)
    }

    async fn take_back(
        self,
        core: &impl Datastore,
        caller: &Caller,
        why: &Refusal,
    ) -> Result<(), Refusal> {
        let back =
            if self.with_boot { change(core, caller, BootChange::GoBack).await } else { Ok(()) };
        self.seeds.undo(why).await;
        back.inspect_err(|refusal| {
            warn!(
                reason = refusal.text(),
                "cannot roll back the trial of a boot configuration; the next start will"
            );
        })
    }
}

/// End of a trial.
enum TrialEnd {
    Finalized,
    RolledBack(String),
    /// The stream ended without a decision.
    Cut,
    Late,
    UnexpectedSet,
    /// The client has lost the permission to finalize.
    Denied(Refusal),
    Stopping,
}

impl TrialEnd {
    fn reason(&self) -> &str {
        match self {
            Self::Finalized => "it is finalized",
            Self::RolledBack(reason) => reason,
            Self::Cut => "the stream ended",
            Self::Late => "the client was silent for too long",
            Self::UnexpectedSet => "the client sent `set` again",
            Self::Denied(refusal) => refusal.text(),
            Self::Stopping => "the agent stops",
        }
    }

    /// Status for the client, if it is still there.
    fn refusal(&self) -> Refusal {
        match self {
            Self::Finalized | Self::RolledBack(_) | Self::Cut => {
                Refusal::aborted("the stream ended without finalize: the trial is rolled back")
            }
            Self::Late => Refusal::late(format!(
                "the client was silent for {TRIAL:?}: the trial is rolled back"
            )),
            Self::UnexpectedSet => {
                Refusal::invalid("`set` may be sent once: the trial is rolled back")
            }
            Self::Denied(refusal) => refusal.clone(),
            Self::Stopping => Refusal::stopping(),
        }
    }
}

async fn next_end(
    requests: &mut Streaming<SetBootConfigVerifiedRequest>,
    rotations: &Rotations,
) -> TrialEnd {
    let message = tokio::select! {
        message = timeout(TRIAL, requests.message()) => message,
        () = rotations.stopping() => return TrialEnd::Stopping,
    };
    match message {
        Ok(Ok(Some(request))) => match request.set_request {
            Some(set_boot_config_verified_request::SetRequest::Finalize(_)) => TrialEnd::Finalized,
            Some(set_boot_config_verified_request::SetRequest::Rollback(rollback)) => {
                TrialEnd::RolledBack(rollback.reason)
            }
            Some(set_boot_config_verified_request::SetRequest::Set(_)) | None => {
                TrialEnd::UnexpectedSet
            }
        },
        Ok(Ok(None) | Err(_)) => TrialEnd::Cut,
        Err(_) => TrialEnd::Late,
    }
}

async fn change(core: &impl Datastore, caller: &Caller, change: BootChange) -> Result<(), Refusal> {
    core.change(caller, Intent::boot(change)).await?;
    Ok(())
}

/// Changes that are made together or not at all.
#[derive(Debug, Default)]
pub(in crate::northbound) struct SetBoot {
    pub(in crate::northbound) boot: Option<BootChange>,
    pub(in crate::northbound) artefacts: Artefacts,
    /// Further artefacts that are recorded in the same transaction.
    pub(in crate::northbound) beside: Vec<ArtefactChange>,
}

/// Sets boot configuration and gNSI artefacts, all or nothing. The change is completed even if the client goes
/// meanwhile.
pub(in crate::northbound) async fn set_boot<D: Datastore>(
    core: &D,
    gnsi: &Gnsi,
    caller: &Caller,
    set: SetBoot,
) -> Result<(), Refusal> {
    let core = core.clone();
    let caller = caller.clone();
    let own = gnsi.clone();
    let SetBoot { boot, artefacts, beside } = set;
    let set = async move {
        let seeds = ArtefactTrial::begin(&core, &own, &caller, boot.as_ref(), artefacts).await?;
        let changes = seeds.changes().into_iter().chain(beside).collect();
        match write(&core, &own, &caller, boot, changes).await {
            Ok(()) => seeds.mark_final().await,
            Err(refusal) => {
                seeds.undo(&refusal).await;
                return Err(refusal);
            }
        }
        Ok(())
    };
    gnsi.rotations.run(set).await.unwrap_or_else(|| Err(Refusal::stopping()))
}

/// Records a change of the boot configuration and gNSI artefacts in one transaction.
async fn write(
    core: &impl Datastore,
    gnsi: &Gnsi,
    caller: &Caller,
    boot: Option<BootChange>,
    artefacts: Vec<ArtefactChange>,
) -> Result<(), Refusal> {
    match boot {
        Some(change) => {
            core.change(caller, Intent::Boot { change, artefacts }).await?;
        }
        None if artefacts.is_empty() => {}
        None => gnsi.store().write_artefacts(artefacts).await?,
    }
    Ok(())
}

/// Checks that a request could be carried out now, without changing anything.
pub(super) async fn examine(
    core: &impl Datastore,
    gnsi: &Gnsi,
    request: SetBootConfigRequest,
) -> Result<(), Refusal> {
    let SetBoot { boot, artefacts, .. } = read(request)?;
    ArtefactTrial::examine(core, gnsi, boot.as_ref(), artefacts).await
}

/// Reads a request.
pub(super) fn read(request: SetBootConfigRequest) -> Result<SetBoot, Refusal> {
    let (boot, artefacts) = parts(request)?;
    let boot = boot.map(|boot| BootChange::Set(Some(Arc::new(boot))));
    Ok(SetBoot { boot, artefacts, beside: Vec::new() })
}

/// Splits a request into boot configuration and artefacts; absent fields change nothing.
fn parts(request: SetBootConfigRequest) -> Result<(Option<BootConfiguration>, Artefacts), Refusal> {
    #[allow(deprecated, reason = "it is refused by name")]
    if request.certificates.is_some() {
        return Err(Refusal::unimplemented("`certificates` is deprecated: use `certz`"));
    }
    let SetBootConfigRequest { boot_config, credentials, authz, pathz, certz, .. } = request;
    let artefacts = Artefacts { authz, pathz, certz, credentials };
    Ok((boot_config.map(read_boot).transpose()?, artefacts))
}

/// Reads the boot configuration of a client, which may not have the fields for bootstrapping.
fn read_boot(config: bootz::BootConfig) -> Result<BootConfiguration, Refusal> {
    for (name, field) in [
        ("dynamic_vendor_config", !config.dynamic_vendor_config.is_empty()),
        ("dynamic_oc_config", !config.dynamic_oc_config.is_empty()),
    ] {
        if field {
            return Err(Refusal::invalid(format!("`{name}` is for bootstrapping only")));
        }
    }
    boot_of(&config)
}

/// Reads the part of a boot configuration that is kept and that GetBootConfig returns; fields for bootstrapping are
/// left out.
pub(in crate::northbound) fn boot_of(
    config: &bootz::BootConfig,
) -> Result<BootConfiguration, Refusal> {
    if config.bootloader_config.is_some() {
        return Err(Refusal::invalid(
            "`bootloader_config` is not supported: this box manages no boot loader",
        ));
    }
    let mut kept = config.clone();
    kept.dynamic_vendor_config.clear();
    kept.dynamic_oc_config.clear();
    let record = kept.encode_to_vec();
    let vendor = config.vendor_config.to_vec();
    let openconfig = config.oc_config.to_vec();
    Ok(BootConfiguration { vendor, openconfig, record })
}
