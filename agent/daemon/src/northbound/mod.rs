//! What clients speak to: translates requests into domain values and answers back, decides nothing.
//!
//! Start at [`gnmi`] to follow a request. [`status`] alone knows gRPC codes of refusals, [`path`]
//! and [`encoding`] know the wire. The services see the core through [`Datastore`].
//!
//! Absent on purpose: authentication (a layer in front puts the caller into each request), and
//! configuration semantics (the core's).

mod capabilities;
mod datastore;
mod dscp;
mod encoding;
mod extensions;
mod get;
mod gnmi;
mod gnoi;
mod gnsi;
mod path;
mod request;
mod set;
mod show;
mod status;
mod subscribe;
#[cfg(test)]
mod tests;

pub use datastore::Datastore;
pub use dscp::Dscp;

use holdfast_proto::FILE_DESCRIPTOR_SET;
use holdfast_proto::gnmi::g_nmi_server::GNmiServer;
use holdfast_proto::gnoi::bootconfig::boot_config_server::BootConfigServer;
use holdfast_proto::gnoi::factory_reset::factory_reset_server::FactoryResetServer;
use holdfast_proto::gnoi::system::system_server::SystemServer;
use http::HeaderValue;
use tonic::Code;
use tonic::body::Body;
use tonic::service::{LayerExt, Routes, RoutesBuilder};
use tower::util::MapResponseLayer;

use self::gnmi::GnmiService;
use self::gnoi::{BootConfigService, FactoryResetService, SystemService};
use crate::gnsi::pathz::Pathz;
use crate::reboot::Reboots;

/// The largest message either way, in octets. A whole device with 100 000 routes is a Set of
/// about 15 MB, and a root annotation adds one; more in one message is a mistake or an attack.
pub const MAX_MESSAGE_SIZE: usize = 64 * 1024 * 1024;

/// Families of services on the listener, by the words of the native model.
pub const SERVICES: &[&str] = &["gnmi", "gnoi"];

/// All services of the listener: gNMI, gNOI, the health of each, and reflection.
///
/// # Errors
/// When the descriptors in the binary are broken: a mistake of ours, found by the first test.
pub async fn routes(
    core: impl Datastore,
    reboots: Reboots,
    pathz: Pathz,
) -> Result<Routes, tonic_reflection::server::Error> {
    let boot = BootConfigServer::new(BootConfigService::new(core.clone()))
        .max_decoding_message_size(MAX_MESSAGE_SIZE)
        .max_encoding_message_size(MAX_MESSAGE_SIZE);
    let reset = FactoryResetServer::new(FactoryResetService::new(core.clone(), reboots.clone()));
    let system = SystemServer::new(SystemService::new(reboots));
    let gnmi = GNmiServer::new(GnmiService::new(core, pathz))
        .max_decoding_message_size(MAX_MESSAGE_SIZE)
        .max_encoding_message_size(MAX_MESSAGE_SIZE);
    let (reporter, health) = tonic_health::server::health_reporter();
    health_of(&reporter, &gnmi).await;
    health_of(&reporter, &boot).await;
    health_of(&reporter, &reset).await;
    health_of(&reporter, &system).await;
    let gnmi = MapResponseLayer::new(limit_as_exhaustion).named_layer(gnmi);
    let mut routes = RoutesBuilder::default();
    let boot = MapResponseLayer::new(limit_as_exhaustion).named_layer(boot);
    routes.add_service(gnmi).add_service(health);
    routes.add_service(boot).add_service(reset).add_service(system);
    routes.add_service(reflection().build_v1()?);
    routes.add_service(reflection().build_v1alpha()?);
    Ok(routes.routes())
}

/// A message over the limit is refused before a handler sees it, as OUT_OF_RANGE, which no handler
/// uses; what a client should read is that a resource is exhausted.
fn limit_as_exhaustion(mut response: http::Response<Body>) -> http::Response<Body> {
    const STATUS: &str = "grpc-status";
    let code = response.headers().get(STATUS).map(|code| Code::from_bytes(code.as_bytes()));
    if code == Some(Code::OutOfRange) {
        let code = HeaderValue::from(Code::ResourceExhausted as i32);
        response.headers_mut().insert(STATUS, code);
    }
    response
}

/// Health asks by the name of a service.
async fn health_of<S: tonic::server::NamedService>(
    reporter: &tonic_health::server::HealthReporter,
    _service: &S,
) {
    reporter.set_serving::<S>().await;
}

/// What a client may ask the types of: the services that are there, not all that are described.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    use tonic::server::NamedService;
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .with_service_name(<GNmiServer<()> as NamedService>::NAME)
        .with_service_name(<BootConfigServer<()> as NamedService>::NAME)
        .with_service_name(<FactoryResetServer<()> as NamedService>::NAME)
        .with_service_name(<SystemServer<()> as NamedService>::NAME)
        .with_service_name("grpc.health.v1.Health")
}
