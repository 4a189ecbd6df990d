//! gnoi.system: time and reboots, pings and traces, processes and packages.

use std::time::Duration;

use holdfast_base::{Caller, now_ns};
use holdfast_core::Datastore;
use holdfast_proto::gnoi::system::system_server::System;
use holdfast_proto::gnoi::system::{
    CancelRebootRequest, CancelRebootResponse, KillProcessRequest, KillProcessResponse,
    PingRequest, PingResponse, RebootMethod, RebootRequest, RebootResponse, RebootStatus,
    RebootStatusRequest, RebootStatusResponse, SetPackageRequest, SetPackageResponse,
    SwitchControlProcessorRequest, SwitchControlProcessorResponse, TimeRequest, TimeResponse,
    TracerouteRequest, TracerouteResponse, reboot_status,
};
use holdfast_proto::gnoi::types::Path;
use nix::time::{ClockId, clock_gettime};
use tonic::{Request, Response, Status, Streaming};

use super::component::require_processor;
use super::probe::{AnswerStream, ProbeCalls};
use super::{package, process};
use crate::device::Device;
use crate::northbound::status::Refusal;
use crate::packages::Packages;
use crate::reboot::{
    LastReboot, NO_REBOOT_OF_THE_BOX, RebootError, RebootScope, Reboots, RequestedReboot,
};
use crate::software::Software;

/// Serves gnoi.system.
#[derive(Debug)]
pub(in crate::northbound) struct SystemService<D> {
    core: D,
    reboots: Reboots,
    packages: Packages,
    software: Software,
    probes: ProbeCalls,
}

impl<D: Datastore> SystemService<D> {
    pub(in crate::northbound) fn new(core: D, device: Device) -> Self {
        let Device { reboots, packages, probes, software, .. } = device;
        Self { core, reboots, packages, software, probes: ProbeCalls::new(probes) }
    }

    /// Refuses subcomponents other than the one processor, which stands for the whole box.
    fn check_subcomponents(&self, subcomponents: &[Path]) -> Result<(), Refusal> {
        let models = self.core.models();
        subcomponents.iter().try_for_each(|path| require_processor(&models, path))
    }
}

#[tonic::async_trait]
impl<D: Datastore> System for SystemService<D> {
    type PingStream = AnswerStream<PingResponse>;
    type TracerouteStream = AnswerStream<TracerouteResponse>;

    async fn time(&self, request: Request<TimeRequest>) -> Result<Response<TimeResponse>, Status> {
        Caller::authenticated(&request)?;
        Ok(Response::new(TimeResponse { time: now_ns() }))
    }

    async fn reboot(
        &self,
        request: Request<RebootRequest>,
    ) -> Result<Response<RebootResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI Reboot")?;
        let RebootRequest { method, delay, message: reason, subcomponents, force } =
            request.into_inner();
        let delay = Duration::from_nanos(delay);
        let extent = scope_of_method(method, self.reboots.setting(), delay)?;
        self.check_subcomponents(&subcomponents)?;
        let wish = RequestedReboot { extent, delay, reason, force };
        self.reboots.request(wish).map_err(Refusal::from)?;
        Ok(Response::new(RebootResponse {}))
    }

    async fn reboot_status(
        &self,
        request: Request<RebootStatusRequest>,
    ) -> Result<Response<RebootStatusResponse>, Status> {
        Caller::authenticated(&request)?;
        self.check_subcomponents(&request.get_ref().subcomponents)?;
        Ok(Response::new(status(&self.reboots)))
    }

    async fn cancel_reboot(
        &self,
        request: Request<CancelRebootRequest>,
    ) -> Result<Response<CancelRebootResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI CancelReboot")?;
        self.check_subcomponents(&request.get_ref().subcomponents)?;
        self.reboots.cancel();
        Ok(Response::new(CancelRebootResponse {}))
    }

    async fn kill_process(
        &self,
        request: Request<KillProcessRequest>,
    ) -> Result<Response<KillProcessResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI KillProcess")?;
        process::kill(&self.reboots, &caller, request.into_inner())?;
        Ok(Response::new(KillProcessResponse {}))
    }

    async fn ping(
        &self,
        request: Request<PingRequest>,
    ) -> Result<Response<Self::PingStream>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI Ping")?;
        Ok(Response::new(self.probes.ping(request.into_inner()).await?))
    }

    async fn traceroute(
        &self,
        request: Request<TracerouteRequest>,
    ) -> Result<Response<Self::TracerouteStream>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI Traceroute")?;
        Ok(Response::new(self.probes.trace(request.into_inner()).await?))
    }

    async fn set_package(
        &self,
        request: Request<Streaming<SetPackageRequest>>,
    ) -> Result<Response<SetPackageResponse>, Status> {
        let caller = Caller::authenticated(&request)?;
        caller.require_admin("gNOI SetPackage")?;
        let Self { packages, software, reboots, .. } = self;
        let parts = request.into_inner();
        package::set(packages, software, reboots.undertakings(), &caller, parts).await?;
        Ok(Response::new(SetPackageResponse {}))
    }

    async fn switch_control_processor(
        &self,
        request: Request<SwitchControlProcessorRequest>,
    ) -> Result<Response<SwitchControlProcessorResponse>, Status> {
        Caller::authenticated(&request)?.require_admin("gNOI SwitchControlProcessor")?;
        let path = request.into_inner().control_processor;
        let path = path.ok_or_else(|| Refusal::invalid("control_processor is missing"))?;
        require_processor(&self.core.models(), &path)?;
        Ok(Response::new(SwitchControlProcessorResponse {
            control_processor: Some(path),
            version: self.software.running().to_owned(),
            uptime: uptime()?,
        }))
    }
}

/// The extent of a reboot method. WARM is "reload configuration but not underlying hardware" in system.proto, which a
/// restart of the agent does; COLD includes the operating system and the hardware. A box that is not to be rebooted refuses
/// COLD at once, but with a delay when it is due: until then it can be cancelled.
fn scope_of_method(
    method: i32,
    setting: RebootScope,
    delay: Duration,
) -> Result<RebootScope, Refusal> {
    let method = RebootMethod::try_from(method).unwrap_or(RebootMethod::Unknown);
    match (method, setting) {
        (RebootMethod::Warm, _) => Ok(RebootScope::Agent),
        (RebootMethod::Cold, RebootScope::System) => Ok(RebootScope::System),
        (RebootMethod::Cold, RebootScope::Agent) if !delay.is_zero() => Ok(RebootScope::System),
        (RebootMethod::Cold, RebootScope::Agent) => {
            Err(Refusal::invalid(format!("method COLD is not supported: {NO_REBOOT_OF_THE_BOX}")))
        }
        (other, _) => {
            let other = other.as_str_name();
            Err(Refusal::invalid(format!("method {other} is not supported: use COLD or WARM")))
        }
    }
}

/// The reboot method of an extent; UNKNOWN without one.
fn method_of(extent: Option<RebootScope>) -> RebootMethod {
    match extent {
        Some(RebootScope::System) => RebootMethod::Cold,
        Some(RebootScope::Agent) => RebootMethod::Warm,
        None => RebootMethod::Unknown,
    }
}

/// Nanoseconds since the box was started, including suspended time.
fn uptime() -> Result<i64, Refusal> {
    let since = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from);
    let since = since.map_err(|error| Refusal::internal(error.to_string()))?;
    Ok(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

fn status(reboots: &Reboots) -> RebootStatusResponse {
    let last = reboots.last().unwrap_or_default();
    if let Some(pending) = reboots.pending() {
        let wait = pending.at.saturating_duration_since(tokio::time::Instant::now());
        return RebootStatusResponse {
            active: true,
            wait: u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX),
            when: pending.when_ns,
            reason: pending.reason,
            count: last.count,
            method: method_of(Some(pending.extent)).into(),
            status: None,
        };
    }
    let outcome = match &last {
        LastReboot { failure: Some(_), extent, .. } if !reboots.can(*extent) => {
            reboot_status::Status::Failure
        }
        LastReboot { failure: Some(_), .. } => reboot_status::Status::RetriableFailure,
        LastReboot { count: 0, .. } => reboot_status::Status::Unknown,
        _ => reboot_status::Status::Success,
    };
    RebootStatusResponse {
        active: false,
        wait: 0,
        when: last.when_ns,
        reason: last.reason,
        count: last.count,
        method: method_of(last.extent).into(),
        status: Some(RebootStatus {
            status: outcome.into(),
            message: last.failure.unwrap_or_default(),
        }),
    }
}

impl From<RebootError> for Refusal {
    fn from(error: RebootError) -> Self {
        match error {
            RebootError::Pending(_) | RebootError::UnderWay(_) => {
                Self::precondition(error.to_string())
            }
            RebootError::Delay => Self::invalid(error.to_string()),
        }
    }
}
