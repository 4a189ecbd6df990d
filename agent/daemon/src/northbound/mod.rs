//! The services of the listener: translation of requests into domain values and of results into answers. No decisions
//! are made here.
//!
//! Start at [`gnmi`] to follow a request. [`status`] alone knows gRPC codes of refusals, [`path`]
//! and [`encoding`] know the wire. The services see the core through [`Datastore`].
//!
//! Absent on purpose: authentication (a layer in front puts the caller into each request), and
//! configuration semantics (the core's).

mod boot_document;
mod bootstrap;
mod capabilities;
mod cli_get;
mod encoding;
mod extensions;
mod faults;
mod get;
mod gnmi;
mod gnoi;
mod gnsi;
mod handlers;
mod maintenance;
mod on_demand;
mod packages;
mod path;
mod read_request;
mod reads;
mod response_stream;
mod services;
mod set;
mod status;
mod subscribe;
#[cfg(test)]
pub(crate) mod tests;
mod unknown_path;

pub(crate) use boot_document::boot_document;
pub use bootstrap::bootstrap;
pub use handlers::handler_routes;
pub use subscribe::IgnoredSubscriptions;

use std::sync::Arc;

use holdfast_config::{MissingNode, limits};
use holdfast_core::Datastore;
use holdfast_proto::FILE_DESCRIPTOR_SET;
use holdfast_proto::gnmi::g_nmi_server::GNmiServer;
use holdfast_proto::gnoi::bootconfig::boot_config_server::BootConfigServer;
use holdfast_proto::gnoi::factory_reset::factory_reset_server::FactoryResetServer;
use holdfast_proto::gnoi::file::file_server::FileServer;
use holdfast_proto::gnoi::healthz::healthz_server::HealthzServer;
use holdfast_proto::gnoi::os::os_server::OsServer;
use holdfast_proto::gnoi::system::system_server::SystemServer;
use holdfast_proto::gnsi::acctz::acctz_stream_server::AcctzStreamServer;
use holdfast_proto::gnsi::authz::authz_server::AuthzServer;
use holdfast_proto::gnsi::certz::certz_server::CertzServer;
use holdfast_proto::gnsi::pathz::pathz_server::PathzServer;
use holdfast_proto::holdfast::faults::faults_server::FaultsServer;
use holdfast_proto::holdfast::maintenance::maintenance_server::MaintenanceServer;
use holdfast_proto::holdfast::services::operations_server::OperationsServer;
use holdfast_proto::holdfast::services::packages_server::PackagesServer;
use holdfast_store::StoreError;
use http::HeaderValue;
use tonic::Code;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::{LayerExt, Routes, RoutesBuilder};
use tonic_reflection::server::{v1, v1alpha};
use tower::util::MapResponseLayer;

use self::faults::FaultsService;
use self::gnmi::GnmiService;
use self::gnoi::{
    BootConfigService, FactoryResetService, FileService, HealthzService, OsService, SystemService,
};
use self::gnsi::{AcctzService, AuthzService, CertzService, CredentialzService, PathzService};
use self::handlers::HandlerService;
use self::maintenance::MaintenanceService;
use self::on_demand::OnDemand;
use self::packages::PackagesService;
use self::services::OperationsService;
use crate::device::Device;
use crate::faults::FaultService;
use crate::gnsi::Gnsi;
use crate::methods::SERVED;
use crate::services::PackageInstaller;
use crate::software::Software;

/// The largest message either way, in bytes.
pub const MAX_MESSAGE_SIZE: usize = limits::MESSAGE_SIZE.figure;

/// Families of services on the listener, as the native model names them.
pub const SERVICES: &[&str] = &["gnmi", "gnoi", "gnsi"];

/// Parts that some of the services need beside the core.
#[derive(Debug)]
pub struct RouteParts {
    pub ignored: Arc<IgnoredSubscriptions>,
    /// `None` where no agent runs behind the services, in tests of others.
    pub installer: Option<PackageInstaller>,
    pub faults: Option<FaultService>,
}

impl RouteParts {
    /// Parts of a listener behind which no agent looks for faults or has packages.
    pub fn without_agent(ignored: Arc<IgnoredSubscriptions>) -> Self {
        Self { ignored, installer: None, faults: None }
    }
}

/// All services of the listener: gNMI, gNOI, gNSI, service instances and packages, the health of each, and reflection.
///
/// # Errors
/// When the native model lacks a node, which the first test finds.
pub async fn routes(
    core: impl Datastore,
    device: Device,
    gnsi: &Gnsi,
    parts: RouteParts,
) -> Result<Routes, MissingNode> {
    let RouteParts { ignored, installer, faults } = parts;
    let boot = BootConfigServer::new(BootConfigService::new(core.clone(), gnsi))
        .max_decoding_message_size(MAX_MESSAGE_SIZE)
        .max_encoding_message_size(MAX_MESSAGE_SIZE);
    let reboots = device.reboots.clone();
    let reset = FactoryResetServer::new(FactoryResetService::new(core.clone(), reboots));
    // An activation brings a whole boot configuration.
    let os = OsServer::new(OsService::new(core.clone(), gnsi, &device))
        .max_decoding_message_size(MAX_MESSAGE_SIZE);
    let files = FileServer::new(FileService::new(device.files.clone()));
    let healthz = HealthzServer::new(HealthzService::new(core.clone(), faults.clone()));
    let system = SystemServer::new(SystemService::new(core.clone(), device));
    // A bundle of 20 000 authorities is a message of tens of megabytes.
    let certz = CertzServer::new(CertzService::new(core.clone(), gnsi))
        .max_decoding_message_size(MAX_MESSAGE_SIZE);
    let authz = AuthzServer::new(AuthzService::new(core.clone(), gnsi));
    let credentialz = CredentialzService::server(core.clone(), gnsi);
    let acctz = AcctzStreamServer::new(AcctzService::new(core.clone(), gnsi.accounts.clone()));
    let pathz = PathzServer::new(PathzService::new(core.clone(), gnsi))
        .max_decoding_message_size(MAX_MESSAGE_SIZE)
        .max_encoding_message_size(MAX_MESSAGE_SIZE);
    let operations = OperationsServer::new(OperationsService::new(core.clone()))
        .max_encoding_message_size(MAX_MESSAGE_SIZE);
    let handlers = installer.as_ref().map(PackageInstaller::handlers).cloned();
    let handler = HandlerService::server(handlers);
    let packages = PackagesServer::new(PackagesService::new(installer));
    let maintenance = MaintenanceServer::new(MaintenanceService::new(faults.clone()));
    let faults = FaultsService::new(core.clone(), gnsi.pathz.clone(), faults)?;
    let faults = FaultsServer::new(faults).max_encoding_message_size(MAX_MESSAGE_SIZE);
    let gnmi = GNmiServer::new(GnmiService::new(core, gnsi.pathz.clone(), ignored))
        .max_decoding_message_size(MAX_MESSAGE_SIZE)
        .max_encoding_message_size(MAX_MESSAGE_SIZE);
    let (reporter, health) = tonic_health::server::health_reporter();
    health_of(&reporter, &gnmi).await;
    health_of(&reporter, &boot).await;
    health_of(&reporter, &reset).await;
    health_of(&reporter, &files).await;
    health_of(&reporter, &healthz).await;
    health_of(&reporter, &os).await;
    health_of(&reporter, &system).await;
    health_of(&reporter, &authz).await;
    health_of(&reporter, &credentialz).await;
    health_of(&reporter, &certz).await;
    health_of(&reporter, &acctz).await;
    health_of(&reporter, &pathz).await;
    health_of(&reporter, &operations).await;
    health_of(&reporter, &packages).await;
    health_of(&reporter, &handler).await;
    health_of(&reporter, &faults).await;
    health_of(&reporter, &maintenance).await;
    let gnmi = MapResponseLayer::new(limit_as_exhaustion).named_layer(gnmi);
    let mut routes = RoutesBuilder::default();
    let boot = MapResponseLayer::new(limit_as_exhaustion).named_layer(boot);
    routes.add_service(gnmi).add_service(health);
    routes.add_service(boot).add_service(reset).add_service(system).add_service(authz);
    routes.add_service(credentialz).add_service(files).add_service(healthz);
    routes.add_service(MapResponseLayer::new(limit_as_exhaustion).named_layer(os));
    routes.add_service(MapResponseLayer::new(limit_as_exhaustion).named_layer(certz));
    routes.add_service(acctz);
    routes.add_service(pathz).add_service(operations).add_service(packages).add_service(handler);
    routes.add_service(faults).add_service(maintenance);
    routes.add_service(OnDemand::new(reflection_v1));
    routes.add_service(OnDemand::new(reflection_v1alpha));
    Ok(routes.routes())
}

/// Brings the boot configuration of an activated software version into force if that version runs now. Called once,
/// before anything is served.
///
/// # Errors
/// When the result cannot be recorded.
pub async fn resume_activation(
    core: &impl Datastore,
    gnsi: &Gnsi,
    software: &Software,
) -> Result<(), StoreError> {
    self::gnoi::begin_software(core, gnsi, software).await
}

/// Turns OUT_OF_RANGE into RESOURCE_EXHAUSTED. tonic refuses a message over the limit with the former, before a handler
/// sees it; no handler uses that code.
fn limit_as_exhaustion(mut response: http::Response<Body>) -> http::Response<Body> {
    const STATUS: &str = "grpc-status";
    let code = response.headers().get(STATUS).map(|code| Code::from_bytes(code.as_bytes()));
    if code == Some(Code::OutOfRange) {
        let code = HeaderValue::from(Code::ResourceExhausted as i32);
        response.headers_mut().insert(STATUS, code);
    }
    response
}

/// Reads a pathz policy from a stored artefact.
///
/// # Errors
/// With the reason as text for the log.
pub fn pathz_draft(content: &[u8]) -> Result<holdfast_security::pathz::DraftPolicy, String> {
    self::gnsi::pathz::draft(content).map_err(|status| status.to_string())
}

/// Reports a service as serving to the health service, by its name.
async fn health_of<S: NamedService>(reporter: &tonic_health::server::HealthReporter, _service: &S) {
    reporter.set_serving::<S>().await;
}

fn reflection_v1() -> v1::ServerReflectionServer<impl v1::ServerReflection> {
    reflection().build_v1().expect("the descriptors were made by our build")
}

fn reflection_v1alpha() -> v1alpha::ServerReflectionServer<impl v1alpha::ServerReflection> {
    reflection().build_v1alpha().expect("the descriptors were made by our build")
}

/// Reflection of the services that are served, not of all that the descriptors have.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    let described = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    SERVED.into_iter().fold(described, tonic_reflection::server::Builder::with_service_name)
}
