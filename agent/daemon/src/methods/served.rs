//! The services of the listener, and their RPCs.

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
use holdfast_proto::gnsi::credentialz::credentialz_server::CredentialzServer;
use holdfast_proto::gnsi::pathz::pathz_server::PathzServer;
use holdfast_proto::holdfast::faults::faults_server::FaultsServer;
use holdfast_proto::holdfast::maintenance::maintenance_server::MaintenanceServer;
use holdfast_proto::holdfast::services::handler_server::HandlerServer;
use holdfast_proto::holdfast::services::operations_server::OperationsServer;
use holdfast_proto::holdfast::services::packages_server::PackagesServer;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::server::NamedService;

/// The services of the listener by their full names, except reflection, which names itself.
pub(crate) const SERVED: [&str; 18] = [
    <GNmiServer<()> as NamedService>::NAME,
    <BootConfigServer<()> as NamedService>::NAME,
    <FactoryResetServer<()> as NamedService>::NAME,
    <FileServer<()> as NamedService>::NAME,
    <HealthzServer<()> as NamedService>::NAME,
    <OsServer<()> as NamedService>::NAME,
    <SystemServer<()> as NamedService>::NAME,
    <AuthzServer<()> as NamedService>::NAME,
    <AcctzStreamServer<()> as NamedService>::NAME,
    <CredentialzServer<()> as NamedService>::NAME,
    <CertzServer<()> as NamedService>::NAME,
    <PathzServer<()> as NamedService>::NAME,
    <OperationsServer<()> as NamedService>::NAME,
    <PackagesServer<()> as NamedService>::NAME,
    <HandlerServer<()> as NamedService>::NAME,
    <FaultsServer<()> as NamedService>::NAME,
    <MaintenanceServer<()> as NamedService>::NAME,
    "grpc.health.v1.Health",
];

/// Paths of all RPCs of the listener in HTTP/2, `/package.Service/DigestMethod`, reflection included.
pub(crate) fn rpcs() -> Vec<String> {
    let sets = [
        FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let files = sets.into_iter().flat_map(|set| {
        FileDescriptorSet::decode(set).expect("the descriptors were made by our build").file
    });
    let rpcs = files.flat_map(|file| {
        let package = file.package().to_owned();
        file.service.into_iter().flat_map(move |service| {
            let name = format!("{package}.{}", service.name());
            let served = SERVED.contains(&name.as_str()) || package.starts_with("grpc.reflection.");
            let rpcs = service.method.into_iter().filter(move |_| served);
            rpcs.map(move |rpc| format!("/{name}/{}", rpc.name())).collect::<Vec<_>>()
        })
    });
    rpcs.collect()
}
