//! gNOI OS: an image that is cut off, a complete one, and the version after the next start.

use std::fs;
use std::path::Path;

use holdfast_proto::gnoi::bootconfig::SetBootConfigRequest;
use holdfast_proto::gnoi::os::os_client::OsClient;
use holdfast_proto::gnoi::os::{
    ActivateOk, ActivateRequest, InstallRequest, TransferRequest, activate_response,
    install_request, install_response,
};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::clients::grpcurl;
use holdfast_tests::eventually::eventually_async;
use holdfast_tests::netns::Netns;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::boot_config::mgmt;
use crate::bootz::install_by;

/// Image program that keeps versions as files. The box runs an activated version at once, except for `bad`.
const SLOTS: &str = r#"
cd "$(dirname "$0")"
case "$1" in
install) cp "$2" "slots/$3" ;;
activate) [ "$2" = bad ] || echo "$2" >running; exit 100 ;;
list) cat running; ls slots ;;
esac"#;

async fn call(agent: &AgentProcess, rpc: &str, messages: &str) -> String {
    grpcurl(agent, &[&format!("gnoi.os.OS/{rpc}")], messages).await.unwrap()
}

async fn verify(agent: &AgentProcess) -> Value {
    serde_json::from_str(&call(agent, "Verify", "{}").await).unwrap()
}

async fn install(agent: &AgentProcess, version: &str) {
    let messages = [
        json!({"transferRequest": {"version": version, "packageSize": "8"}}),
        json!({"transferContent": "YW4gaW1hZ2U="}), // `an image`
        json!({"transferEnd": {}}),
    ];
    let messages = messages.map(|it| it.to_string()).join("\n");
    let answers = call(agent, "Install", &messages).await;
    for word in ["transferReady", "\"bytesReceived\": \"8\"", "validated"] {
        assert!(answers.contains(word), "{answers}");
    }
}

/// Activates a version with a boot configuration of this host name, and waits until the agent is back.
async fn activate(agent: &AgentProcess, version: &str, hostname: &str) {
    let starts = || agent.log().matches("listening").count();
    let before = starts();
    let boot_config = SetBootConfigRequest {
        boot_config: Some(mgmt(1400, hostname)),
        ..SetBootConfigRequest::default()
    };
    let request = ActivateRequest {
        version: version.to_owned(),
        boot_config: Some(boot_config),
        ..ActivateRequest::default()
    };
    let mut client = OsClient::with_interceptor(agent.channel().await, agent.credentials());
    let response = client.activate(request).await.unwrap().into_inner().response;
    assert_eq!(response, Some(activate_response::Response::ActivateOk(ActivateOk {})));
    eventually_async("the agent is back", async || {
        starts() > before && grpcurl(agent, &["gnoi.os.OS/Verify"], "{}").await.is_ok()
    })
    .await;
}

/// Sends the beginning of an image, and returns when it has arrived. The stream is open as long as the sender exists.
async fn begin_transfer(agent: &AgentProcess, version: &str) -> mpsc::Sender<InstallRequest> {
    let (request_tx, request_rx) = mpsc::channel(4);
    let part = |request| InstallRequest { request: Some(request) };
    let transfer = TransferRequest { version: version.to_owned(), ..Default::default() };
    request_tx.send(part(install_request::Request::TransferRequest(transfer))).await.unwrap();
    request_tx
        .send(part(install_request::Request::TransferContent(vec![7; 2 << 20].into())))
        .await
        .unwrap();
    let mut client = OsClient::with_interceptor(agent.channel().await, agent.credentials());
    let mut answers = client.install(ReceiverStream::new(request_rx)).await.unwrap().into_inner();
    loop {
        let answers = answers.message().await.unwrap().unwrap().response.unwrap();
        if let install_response::Response::TransferProgress(progress) = answers {
            assert_eq!(progress.bytes_received, 2 << 20);
            return request_tx;
        }
    }
}

fn files(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

// proves 4.83, 6.12, 6.13, 6.14
#[tokio::test]
async fn image_is_installed_and_activated_with_its_boot_config() {
    let net = Netns::enter();
    let folder = TempDir::new().unwrap();
    let slots = folder.path().join("slots");
    let command = folder.path().join("images");
    fs::create_dir(&slots).unwrap();
    fs::write(folder.path().join("running"), "1.0\n").unwrap();
    install_by(&command, SLOTS);
    let options = ["--image-command", command.to_str().unwrap()];
    let mut agent = AgentProcess::start_with(&net, &options).await;
    assert_eq!(verify(&agent).await["version"], "1.0");

    // Killed in the middle of a transfer: no file is left, and nothing is installed.
    let stream = begin_transfer(&agent, "2.0").await;
    let packages = agent.state_dir().join("packages");
    assert_eq!(files(&packages), 1);
    agent.kill();
    drop(stream);
    agent.restart().await;
    assert_eq!((files(&packages), files(&slots)), (0, 0));
    assert!(verify(&agent).await.get("activationFailMessage").is_none());

    install(&agent, "2.0").await;
    assert_eq!(fs::read(slots.join("2.0")).unwrap(), b"an image");
    activate(&agent, "2.0", "two").await;
    let verified = verify(&agent).await;
    assert_eq!(verified["version"], "2.0");
    assert_eq!(verified["verifyStandby"]["standbyState"]["state"], "UNSUPPORTED");
    let read = async |path: &str| agent.gnmi().await.read(path).await.unwrap();
    assert_eq!(read("/system/state/software-version").await, json!("2.0"));
    assert_eq!(read("/system/state/hostname").await, json!("two"));

    // The box cannot boot this version, and keeps its own.
    install(&agent, "bad").await;
    activate(&agent, "bad", "three").await;
    let verified = verify(&agent).await;
    let message = "version bad was activated, 2.0 runs";
    assert_eq!(
        (&verified["version"], &verified["activationFailMessage"]),
        (&json!("2.0"), &json!(message))
    );
    assert_eq!(read("/system/state/hostname").await, json!("two"));
}
