//! gnoi.bootconfig: the configuration that the box boots with, as a whole.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use holdfast_config::{Boot, BootChange};
use holdfast_proto::bootz;
use holdfast_proto::gnoi::bootconfig::boot_config_server::BootConfig;
use holdfast_proto::gnoi::bootconfig::set_boot_config_verified_request::SetRequest as Step;
use holdfast_proto::gnoi::bootconfig::{
    GetBootConfigRequest, GetBootConfigResponse, SetBootConfigRequest, SetBootConfigResponse,
    SetBootConfigVerifiedRequest, SetBootConfigVerifiedResponse,
};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use tracing::{info, warn};

use crate::caller::Caller;
use crate::core::Intent;
use crate::gnsi::Gnsi;
use crate::logging::Chain;
use crate::northbound::Datastore;
use crate::northbound::gnsi::{Artefacts, Seeds};
use crate::northbound::status::Refusal;

/// How long a boot configuration may be tried before it is taken back: a person who looks whether the box is still
/// there needs minutes, and nobody else can change what the box boots with in the meantime.
const TRIAL: Duration = Duration::from_secs(600);
/// Answers that wait for the client: each step has one.
const ANSWERS: usize = 4;

type Answers = mpsc::Sender<Result<SetBootConfigVerifiedResponse, Status>>;

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
        Caller::authenticated(&request)?;
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
        let (boot, artefacts) = read(request.into_inner())?;
        let boot = boot.map(|boot| BootChange::Set(Some(Arc::new(boot))));
        let (core, gnsi) = (self.core.clone(), self.gnsi.clone());
        // A task of its own: what is tried is kept or taken back also when the client is gone.
        let set = tokio::spawn(async move { set(&core, &gnsi, &caller, boot, artefacts).await });
        set.await.map_err(|error| Refusal::internal(error.to_string()))??;
        Ok(Response::new(SetBootConfigResponse {}))
    }

    async fn set_boot_config_verified(
        &self,
        request: Request<Streaming<SetBootConfigVerifiedRequest>>,
    ) -> Result<Response<Self::SetBootConfigVerifiedStream>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI SetBootConfigVerified")?;
        let (answers, stream) = mpsc::channel(ANSWERS);
        let (core, requests) = (self.core.clone(), request.into_inner());
        // A task of its own: what is tried is taken back also when the client and its stream are gone.
        tokio::spawn(async move {
            if let Err(status) = verified(&core, &caller, requests, &answers).await {
                let _client_is_gone = answers.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

/// One trial: what is set is in force at once, and stays if the client says so.
async fn verified<D: Datastore>(
    core: &D,
    caller: &Caller,
    mut requests: Streaming<SetBootConfigVerifiedRequest>,
    answers: &Answers,
) -> Result<(), Status> {
    let first = requests.message().await?.and_then(|request| request.set_request);
    let Some(Step::Set(set)) = first else {
        return Err(Refusal::invalid("the first message has to be `set`").into());
    };
    let (boot, artefacts) = read(set)?;
    if artefacts.is_some() {
        return Err(Refusal::unimplemented(
            "`authz` and `pathz` cannot be tried with a boot configuration: rotate them",
        )
        .into());
    }
    let Some(boot) = boot else {
        return Err(Refusal::invalid(
            "`set` has to bring a boot_config: nothing else can be tried",
        )
        .into());
    };
    change(core, caller, BootChange::Try(Arc::new(boot))).await?;
    let told = answers.send(Ok(SetBootConfigVerifiedResponse {})).await;
    let end = match told {
        Ok(()) => timeout(TRIAL, next_end(&mut requests)).await,
        Err(_) => Ok(End::Cut),
    };
    let end = end.unwrap_or(End::Late);
    if matches!(end, End::Finalized) {
        change(core, caller, BootChange::Confirm).await?;
        let _client_is_gone = answers.send(Ok(SetBootConfigVerifiedResponse {})).await;
        return Ok(());
    }
    info!(caller = %caller.name, reason = end.reason(), "taking a tried boot configuration back");
    if let Err(error) = core.change(caller, Intent::Boot(BootChange::GoBack)).await {
        warn!(error = %Chain(&error), "cannot take a tried boot configuration back; a restart will");
        return Err(Refusal::from(error).into());
    }
    match end {
        End::RolledBack(_) => {
            let _client_is_gone = answers.send(Ok(SetBootConfigVerifiedResponse {})).await;
            Ok(())
        }
        End::Finalized | End::Cut => Ok(()),
        End::Late => {
            Err(Refusal::late(format!("nothing was said within {TRIAL:?}: it is taken back"))
                .into())
        }
        End::Wrong => Err(Refusal::invalid("`set` may come once: it is taken back").into()),
    }
}

/// How a trial ends.
enum End {
    Finalized,
    RolledBack(String),
    /// The stream ended without a word.
    Cut,
    Late,
    Wrong,
}

impl End {
    fn reason(&self) -> &str {
        match self {
            Self::Finalized => "it is finalized",
            Self::RolledBack(reason) => reason,
            Self::Cut => "the stream ended",
            Self::Late => "nothing was said in time",
            Self::Wrong => "the client sent `set` again",
        }
    }
}

async fn next_end(requests: &mut Streaming<SetBootConfigVerifiedRequest>) -> End {
    match requests.message().await {
        Ok(Some(request)) => match request.set_request {
            Some(Step::Finalize(_)) => End::Finalized,
            Some(Step::Rollback(rollback)) => End::RolledBack(rollback.reason),
            Some(Step::Set(_)) | None => End::Wrong,
        },
        Ok(None) | Err(_) => End::Cut,
    }
}

async fn change(core: &impl Datastore, caller: &Caller, change: BootChange) -> Result<(), Refusal> {
    core.change(caller, Intent::Boot(change)).await?;
    Ok(())
}

/// Sets the boot configuration and what is gNSI's, all or nothing.
pub(in crate::northbound) async fn set(
    core: &impl Datastore,
    gnsi: &Gnsi,
    caller: &Caller,
    boot: Option<BootChange>,
    artefacts: Option<Artefacts>,
) -> Result<(), Refusal> {
    let seeds = match artefacts {
        Some(artefacts) => Seeds::try_all(core, gnsi, caller, artefacts).await?,
        None => Seeds::default(),
    };
    if let Some(boot) = boot
        && let Err(refusal) = change(core, caller, boot).await
    {
        seeds.undo(&refusal).await;
        return Err(refusal);
    }
    seeds.keep().await
}

/// What a request brings; nothing for what it leaves alone.
fn read(request: SetBootConfigRequest) -> Result<(Option<Boot>, Option<Artefacts>), Refusal> {
    #[allow(deprecated, reason = "it is refused by name")]
    let certificates = request.certificates.is_some();
    for (name, given) in [
        ("credentials", request.credentials.is_some()),
        ("certificates", certificates),
        ("certz", request.certz.is_some()),
    ] {
        if given {
            return Err(Refusal::unimplemented(format!(
                "`{name}` needs gNSI, which is not there yet"
            )));
        }
    }
    let artefacts = Artefacts { authz: request.authz, pathz: request.pathz };
    let artefacts = (!artefacts.is_empty()).then_some(artefacts);
    Ok((request.boot_config.map(read_boot).transpose()?, artefacts))
}

/// What a client says the box is to boot with.
fn read_boot(config: bootz::BootConfig) -> Result<Boot, Refusal> {
    for (name, given) in [
        ("dynamic_vendor_config", !config.dynamic_vendor_config.is_empty()),
        ("dynamic_oc_config", !config.dynamic_oc_config.is_empty()),
    ] {
        if given {
            return Err(Refusal::invalid(format!("`{name}` is for bootstrapping only")));
        }
    }
    boot_of(&config)
}

/// The part of it that is kept, and given back to whoever asks; what is for bootstrapping only is left out.
pub(in crate::northbound) fn boot_of(config: &bootz::BootConfig) -> Result<Boot, Refusal> {
    if config.bootloader_config.is_some() {
        return Err(Refusal::invalid("`bootloader_config` is not supported"));
    }
    let mut kept = config.clone();
    kept.dynamic_vendor_config.clear();
    kept.dynamic_oc_config.clear();
    let record = kept.encode_to_vec();
    let (vendor, openconfig) = (config.vendor_config.to_vec(), config.oc_config.to_vec());
    Ok(Boot { vendor, openconfig, record })
}
