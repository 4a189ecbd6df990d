//! `holdfast.services.v1.Packages`: packages of services, from signed archives.

use holdfast_base::{Caller, ErrorChain};
use holdfast_core::InvalidPlanHash;
use holdfast_proto::holdfast::services as wire;
use holdfast_proto::holdfast::services::packages_server::Packages;
use tonic::{Code, Request, Response, Status};

use super::extensions::plan::preview_message;
use super::status::Refusal;
use crate::services::{
    InstallError, InstallTerms, Installation, LoadedPackage, PackageInstaller, Requester,
};
use crate::trace::trace_of;

/// Serves the packages of one agent.
#[derive(Debug)]
pub(super) struct PackagesService {
    /// `None` where no agent runs behind the services.
    installer: Option<PackageInstaller>,
}

impl PackagesService {
    pub(super) fn new(installer: Option<PackageInstaller>) -> Self {
        Self { installer }
    }

    /// Requester and installer of one request.
    fn admit<T>(
        &self,
        request: &Request<T>,
        operation: &str,
    ) -> Result<(Requester, &PackageInstaller), Status> {
        let caller = Caller::authenticated(request)?;
        caller.require_admin(operation)?;
        let missing = || Refusal::unimplemented("there are no packages of services");
        let by = Requester { caller, trace: trace_of(request.metadata().as_ref()) };
        Ok((by, self.installer.as_ref().ok_or_else(missing)?))
    }
}

#[tonic::async_trait]
impl Packages for PackagesService {
    async fn install(
        &self,
        request: Request<wire::InstallRequest>,
    ) -> Result<Response<wire::InstallResponse>, Status> {
        let (by, installer) = self.admit(&request, "Install of services")?;
        let request = request.into_inner();
        let terms = terms(&request)?;
        let installed =
            installer.install_signed(&by, &request.archive, &request.signature, terms).await;
        let Installation { summary, preview, unfit } = installed.map_err(Refusal::from)?;
        let preview = preview.map(preview_message);
        Ok(Response::new(wire::InstallResponse { summary, preview, unfit }))
    }

    async fn remove(
        &self,
        request: Request<wire::RemoveRequest>,
    ) -> Result<Response<wire::RemoveResponse>, Status> {
        let (by, installer) = self.admit(&request, "Remove of services")?;
        let wire::RemoveRequest { name, force } = request.get_ref();
        installer.remove(&by, name, *force).await.map_err(Refusal::from)?;
        Ok(Response::new(wire::RemoveResponse {}))
    }

    async fn list(
        &self,
        request: Request<wire::ListRequest>,
    ) -> Result<Response<wire::ListResponse>, Status> {
        let (_, installer) = self.admit(&request, "List of services")?;
        let packages = installer.list().await.into_iter().map(package).collect();
        Ok(Response::new(wire::ListResponse { packages }))
    }
}

fn terms(request: &wire::InstallRequest) -> Result<InstallTerms, Refusal> {
    let expected = match request.expected.as_str() {
        "" => None,
        text => Some(
            text.parse().map_err(|error: InvalidPlanHash| Refusal::invalid(error.to_string()))?,
        ),
    };
    let wire::InstallRequest { dry_run: is_dry_run, each, force, downgrade, .. } = *request;
    Ok(InstallTerms { is_dry_run, expected, each, force, downgrade })
}

fn package(package: LoadedPackage) -> wire::Package {
    let LoadedPackage {
        name,
        version,
        instances,
        digest,
        is_installed,
        is_switched_on,
        signer,
        refusal,
        others,
    } = package;
    wire::Package {
        name: name.into(),
        version: version.to_string(),
        instances: u64::try_from(instances).unwrap_or(u64::MAX),
        digest,
        installed: is_installed,
        signer: signer.unwrap_or_default(),
        signer_refused: refusal.unwrap_or_default(),
        other_versions: others.iter().map(ToString::to_string).collect(),
        switched_off: !is_switched_on,
    }
}

impl From<InstallError> for Refusal {
    fn from(error: InstallError) -> Self {
        let text = ErrorChain(&error).to_string();
        match error {
            InstallError::Package(_) | InstallError::Check(_) => Self::invalid(text),
            InstallError::Signature(_) => Self::denied(text),
            InstallError::Missing(_) => Self::missing(text),
            InstallError::Precondition(_) => Self::precondition(text),
            InstallError::Exists(_) => Self::new(Code::AlreadyExists, text),
            InstallError::Limit(_) => Self::exhausted(text),
            InstallError::Process(_) => Self::internal(text),
            InstallError::Commit(error) => error.into(),
        }
    }
}
