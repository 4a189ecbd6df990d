//! gnoi.factory_reset: reset to the factory configuration.

use holdfast_base::Caller;
use holdfast_core::{Datastore, Intent};
use holdfast_proto::gnoi::factory_reset::factory_reset_server::FactoryReset;
use holdfast_proto::gnoi::factory_reset::{
    ResetError, ResetSuccess, StartRequest, StartResponse, start_response,
};
use tonic::{Request, Response, Status};

use crate::northbound::status::Refusal;
use crate::reboot::Reboots;

/// Serves gnoi.factory_reset.
#[derive(Debug)]
pub(in crate::northbound) struct FactoryResetService<D> {
    core: D,
    reboots: Reboots,
}

impl<D: Datastore> FactoryResetService<D> {
    pub(in crate::northbound) fn new(core: D, reboots: Reboots) -> Self {
        Self { core, reboots }
    }
}

#[tonic::async_trait]
impl<D: Datastore> FactoryReset for FactoryResetService<D> {
    async fn start(
        &self,
        request: Request<StartRequest>,
    ) -> Result<Response<StartResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI FactoryReset")?;
        let StartRequest { factory_os, zero_fill, retain_certs } = request.into_inner();
        if factory_os || zero_fill {
            return Err(unsupported(factory_os, zero_fill).into());
        }
        let _undertaking = self.reboots.undertakings().begin("a factory reset");
        let intent = Intent::FactoryReset { retain_certificates: retain_certs };
        self.core.change(&caller, intent).await.map_err(Refusal::from)?;
        // A pending reboot is replaced by the reboot of the reset.
        self.reboots.cancel();
        let scheduled = self.reboots.at_once("factory reset".to_owned());
        scheduled.map_err(|error| Refusal::internal(error.to_string()))?;
        Ok(Response::new(StartResponse {
            response: Some(start_response::Response::ResetSuccess(ResetSuccess {})),
        }))
    }
}

fn unsupported(factory_os: bool, zero_fill: bool) -> Refusal {
    let detail = "the agent can neither replace the operating system nor overwrite disks";
    let error = ResetError {
        factory_os_unsupported: factory_os,
        zero_fill_unsupported: zero_fill,
        other: false,
        detail: detail.to_owned(),
    };
    Refusal::invalid(detail).with("gnoi.factory_reset.ResetError", &error)
}
