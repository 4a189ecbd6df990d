//! Self-description of the box: Capabilities, reflection, health.

use std::collections::BTreeSet;

use holdfast_proto::gnmi::Encoding;
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::netns::Netns;
use tokio_stream::StreamExt;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

// proves 1.45, 1.46, 1.47
#[tokio::test]
async fn capabilities_name_version_models_and_encodings() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;
    let capabilities = agent.gnmi().await.capabilities().await.unwrap();

    assert_eq!(capabilities.g_nmi_version, "0.10.0");
    let encodings: BTreeSet<_> = capabilities.supported_encodings().collect();
    let [json, ietf] = [Encoding::Json, Encoding::JsonIetf];
    assert_eq!(encodings, BTreeSet::from([json, ietf, Encoding::Proto, Encoding::Ascii]));

    let interfaces = capabilities
        .supported_models
        .iter()
        .find(|model| model.name == "openconfig-interfaces")
        .unwrap();
    assert_eq!(interfaces.organization, "OpenConfig working group");
    for model in
        capabilities.supported_models.iter().filter(|model| model.name.starts_with("openconfig-"))
    {
        let parts: Vec<_> = model.version.split('.').map(str::parse::<u32>).collect();
        assert!(
            parts.len() == 3 && parts.iter().all(Result::is_ok),
            "{}: `{}`",
            model.name,
            model.version
        );
    }
    assert!(
        capabilities.supported_models.iter().any(|model| model.name == "holdfast"),
        "the native model is missing"
    );
}

// proves 1.10, 1.11, 6.15, 6.20, 6.21, 6.22, 6.23, 6.25, 6.26, 6.27, 6.28, 6.29: what is out of scope is not registered
#[tokio::test]
async fn reflection_lists_all_that_the_listener_serves() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;

    let ask = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..Default::default()
    };
    let mut client =
        ServerReflectionClient::with_interceptor(agent.channel().await, agent.credentials());
    let answers = client.server_reflection_info(tokio_stream::once(ask)).await.unwrap();
    let answer = answers.into_inner().next().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let mut names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "gnmi.gNMI",
            "gnoi.bootconfig.BootConfig",
            "gnoi.factory_reset.FactoryReset",
            "gnoi.file.File",
            "gnoi.healthz.Healthz",
            "gnoi.os.OS",
            "gnoi.system.System",
            "gnsi.acctz.v1.AcctzStream",
            "gnsi.authz.v1.Authz",
            "gnsi.certz.v1.Certz",
            "gnsi.credentialz.v1.Credentialz",
            "gnsi.pathz.v1.Pathz",
            "grpc.health.v1.Health",
            "holdfast.faults.v1.Faults",
            "holdfast.maintenance.v1.Maintenance",
            "holdfast.services.v1.Handler",
            "holdfast.services.v1.Operations",
            "holdfast.services.v1.Packages",
        ]
    );
}

#[tokio::test]
async fn health_is_served() {
    let net = Netns::enter();
    let agent = AgentProcess::start(&net).await;

    let mut client = HealthClient::with_interceptor(agent.channel().await, agent.credentials());
    let answer = client.check(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(answer.status(), ServingStatus::Serving);
}
