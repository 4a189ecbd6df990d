//! gnoi.os through a real channel: answers, installed images, and the version after the next boot.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_base::Role;
use holdfast_core::Datastore;
use holdfast_platform::transport::SimulatedKernel;
use holdfast_proto::bootz;
use holdfast_proto::gnoi::bootconfig::SetBootConfigRequest;
use holdfast_proto::gnoi::os::os_client::OsClient;
use holdfast_proto::gnoi::os::{
    ActivateRequest, InstallRequest, InstallResponse, StandbyState, TransferEnd, TransferRequest,
    VerifyRequest, VerifyResponse, activate_error, activate_response, install_error,
    install_request, install_response, standby_state, verify_standby,
};
use holdfast_proto::gnsi::authz;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::fake_datastore::FakeDatastore;
use super::harness::{TestBackend, channel};
use crate::agent_tests::Agent;
use crate::image::MAX_IMAGE;
use crate::reboot::RebootScope;
use crate::slots::Slots;
use crate::slots::tests::program;

type Client = OsClient<Channel>;

/// Image program that keeps versions as files of a folder, and the running and the next version as names in two other
/// files. An image may begin with the name of a fault.
const SLOTS: &str = r#"
case "$1" in
install)
    case "$(head -c 12 "$2")" in
    incompatible) exit 101 ;; text*) exit 102 ;; broken*) exit 103 ;; large*) exit 104 ;;
    failing*) exit 1 ;; lost*) exit 0 ;;
    slow*) while [ ! -e go-on ]; do sleep 0.01; done ;;
    esac
    cp "$2" "slots/$3" ;;
activate) [ "$2" != stuck ] || exit 1; echo "$2" >next; exit 100 ;;
list) cat running; ls slots ;;
esac"#;

async fn client(core: &impl TestBackend) -> Client {
    OsClient::new(channel(core, Some(Role::Admin)).await).max_encoding_message_size(usize::MAX)
}

/// A box with slots that runs version 1.0.
fn with_slots() -> FakeDatastore {
    FakeDatastore::with_slots(slots, "1.0")
}

pub(super) fn slots(folder: &Path) -> Slots {
    fs::write(folder.join("running"), "1.0\n").unwrap();
    fs::create_dir(folder.join("slots")).unwrap();
    program(folder, SLOTS)
}

pub(super) fn transfer_request(version: &str, package_size: u64) -> install_request::Request {
    let version = version.to_owned();
    install_request::Request::TransferRequest(TransferRequest {
        version,
        package_size,
        ..Default::default()
    })
}

fn content(octets: impl Into<Vec<u8>>) -> install_request::Request {
    install_request::Request::TransferContent(octets.into().into())
}

fn end() -> install_request::Request {
    install_request::Request::TransferEnd(TransferEnd {})
}

pub(super) fn part(part: install_request::Request) -> InstallRequest {
    InstallRequest { request: Some(part) }
}

/// Sends all parts, and returns the answers as text, up to the end.
async fn install(client: &mut Client, parts: Vec<install_request::Request>) -> Vec<String> {
    let requests = tokio_stream::iter(parts.into_iter().map(part).collect::<Vec<_>>());
    let mut responses = client.install(requests).await.unwrap().into_inner();
    let mut messages = Vec::new();
    loop {
        match responses.message().await {
            Ok(None) => return messages,
            Ok(Some(response)) => messages.push(text(response)),
            Err(status) => {
                messages.push(format!("{:?}: {}", status.code(), status.message()));
                return messages;
            }
        }
    }
}

fn text(response: InstallResponse) -> String {
    match response.response.unwrap() {
        install_response::Response::TransferReady(_) => "ready".to_owned(),
        install_response::Response::TransferProgress(progress) => {
            format!("progress {}", progress.bytes_received)
        }
        install_response::Response::Validated(validated) => {
            format!("validated {}", validated.version)
        }
        install_response::Response::InstallError(error) => {
            format!(
                "{}: {}",
                install_error::Type::try_from(error.r#type).unwrap().as_str_name(),
                error.detail
            )
        }
        install_response::Response::SyncProgress(_) => panic!("there is nothing to keep in sync"),
    }
}

/// Number of files in the folder for incoming images.
fn arrivals(core: &FakeDatastore) -> usize {
    fs::read_dir(core.state_folder().join("packages")).map_or(0, Iterator::count)
}

// proves 6.12
#[tokio::test]
async fn an_image_comes_in_pieces_and_is_installed_whole() {
    let core = with_slots();
    let mut client = client(&core).await;
    let mebi = vec![7; 1 << 20];
    let parts =
        vec![transfer_request("2.0", 0), content(mebi.clone()), content("x"), content(mebi), end()];
    let messages = install(&mut client, parts).await;
    let first = &messages[0];
    let last = messages.last().unwrap();
    assert_eq!((first.as_str(), last.as_str()), ("ready", "validated 2.0"));
    let progress: Vec<u64> = messages[1..messages.len() - 1]
        .iter()
        .map(|it| it.strip_prefix("progress ").unwrap().parse().unwrap())
        .collect();
    assert!(progress.is_sorted() && progress.last() <= Some(&2_097_153), "{messages:?}");
    assert!(!progress.is_empty(), "{messages:?}");
    let installed = fs::read(core.state_folder().join("slots/2.0")).unwrap();
    assert_eq!((installed.len(), installed[1 << 20]), (2_097_153, b'x'));
    assert_eq!(arrivals(&core), 0);

    // A version that is installed or running is not transferred again.
    for version in ["2.0", "1.0"] {
        let messages = install(&mut client, vec![transfer_request(version, 0)]).await;
        assert_eq!(messages, [format!("validated {version}")]);
    }
    // Only the program knows the installed versions: here it has removed one.
    fs::remove_file(core.state_folder().join("slots/2.0")).unwrap();
    let messages =
        install(&mut client, vec![transfer_request("2.0", 2), content("ab"), end()]).await;
    assert_eq!(
        (messages[0].as_str(), messages.last().unwrap().as_str()),
        ("ready", "validated 2.0")
    );
}

// proves 6.12
#[tokio::test]
async fn faults_of_an_image_are_install_errors() {
    let core = with_slots();
    let mut client = client(&core).await;
    let standby = install_request::Request::TransferRequest(TransferRequest {
        version: "2.0".to_owned(),
        standby_supervisor: true,
        ..Default::default()
    });
    let image = |octets: &str| vec![transfer_request("2.0", 0), content(octets), end()];
    for (parts, want) in [
        (vec![standby], "NOT_SUPPORTED_ON_BACKUP: this box has one supervisor"),
        (vec![transfer_request("2.0", MAX_IMAGE + 1)], "TOO_LARGE: package_size 8589934593"),
        (
            vec![transfer_request("2.0", 4), content("12345")],
            "INTEGRITY_FAIL: the image has 5 bytes",
        ),
        (
            vec![transfer_request("2.0", 4), content("123"), end()],
            "INTEGRITY_FAIL: the image has 3 bytes",
        ),
        (vec![transfer_request("2.0", 0), end()], "PARSE_FAIL: the image is empty"),
        (image("incompatible"), "INCOMPATIBLE: `"),
        (image("text"), "PARSE_FAIL: `"),
        (image("broken"), "INTEGRITY_FAIL: `"),
        (image("large"), "TOO_LARGE: `"),
        (image("failing"), "INSTALL_RUN_PACKAGE: `"),
        (
            image("lost"),
            "INSTALL_RUN_PACKAGE: version `2.0` was installed, but is not listed afterwards",
        ),
        (vec![end()], "InvalidArgument: the first message"),
        (
            vec![transfer_request("2.0", 0), content("1")],
            "InvalidArgument: the stream ended before",
        ),
        (
            vec![transfer_request("2.0", 0), transfer_request("2.0", 0)],
            "InvalidArgument: `transfer_request` may",
        ),
        (
            vec![transfer_request("2.0", 0), content(vec![0; (4 << 20) + 1])],
            "InvalidArgument: `transfer_co",
        ),
        (vec![transfer_request("", 0)], "InvalidArgument: version `` is empty"),
        (vec![transfer_request("--force", 0)], "InvalidArgument: version `--force` begins"),
        (vec![transfer_request("2\n3", 0)], "InvalidArgument: version `2\\n3` is not one line"),
    ] {
        let messages = install(&mut client, parts).await;
        let last = messages.last().unwrap();
        assert!(last.starts_with(want), "{want}: {messages:?}");
        assert!(!messages.iter().any(|it| it.starts_with("validated")), "{messages:?}");
        let slots = fs::read_dir(core.state_folder().join("slots")).unwrap().count();
        assert_eq!((arrivals(&core), slots), (0, 0), "{want}");
    }
}

/// An Install RPC, step by step.
struct Stream {
    request_tx: mpsc::Sender<InstallRequest>,
    responses: Streaming<InstallResponse>,
}

impl Stream {
    async fn open(client: &mut Client, version: &str) -> Self {
        let (request_tx, request_rx) = mpsc::channel(4);
        request_tx.send(part(transfer_request(version, 0))).await.unwrap();
        let responses = client.install(ReceiverStream::new(request_rx)).await.unwrap();
        let mut stream = Self { request_tx, responses: responses.into_inner() };
        assert_eq!(stream.next().await, "ready");
        stream
    }

    async fn say(&self, request: install_request::Request) {
        self.request_tx.send(part(request)).await.unwrap();
    }

    async fn next(&mut self) -> String {
        match self.responses.message().await {
            Ok(message) => message.map_or("end".to_owned(), text),
            Err(status) => format!("{:?}", status.code()),
        }
    }

    async fn last(mut self) -> String {
        loop {
            match self.next().await {
                progress if progress.starts_with("progress") => {}
                last => return last,
            }
        }
    }
}

// proves 6.12
#[tokio::test]
async fn one_image_comes_at_a_time() {
    let core = with_slots();
    let mut client = client(&core).await;
    let busy = "INSTALL_IN_PROGRESS: another package is being transferred: try again later";
    let first = Stream::open(&mut client, "2.0").await;
    assert_eq!(install(&mut client, vec![transfer_request("3.0", 0)]).await, [busy]);
    first.say(content("slow")).await;
    first.say(end()).await;
    assert_eq!(install(&mut client, vec![transfer_request("3.0", 0)]).await, [busy]);
    // The program is not stopped when the client goes.
    drop(first);
    fs::write(core.state_folder().join("go-on"), "").unwrap();
    let installed = core.state_folder().join("slots/2.0");
    while !installed.exists() || arrivals(&core) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // A client that goes in the middle of a transfer leaves nothing, and the next one can begin.
    let dropped = Stream::open(&mut client, "3.0").await;
    dropped.say(content("half")).await;
    drop(dropped);
    while arrivals(&core) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let next = Stream::open(&mut client, "3.0").await;
    next.say(content("whole")).await;
    next.say(end()).await;
    assert_eq!(next.last().await, "validated 3.0");
}

// proves 6.12
#[tokio::test]
async fn an_install_without_messages_times_out() {
    let core = with_slots();
    let mut client = client(&core).await;
    let stream = Stream::open(&mut client, "2.0").await;
    stream.say(content("half")).await;
    let request_tx = stream.request_tx.clone();
    tokio::time::pause(); // not before: the program has a time of its own
    assert_eq!(stream.last().await, "DeadlineExceeded");
    drop(request_tx);
    assert_eq!(arrivals(&core), 0);
}

fn to(version: &str) -> ActivateRequest {
    ActivateRequest { version: version.to_owned(), ..Default::default() }
}

async fn activate(client: &mut Client, request: ActivateRequest) -> Result<String, Status> {
    let answer = client.activate(request).await?.into_inner().response.unwrap();
    Ok(match answer {
        activate_response::Response::ActivateOk(_) => "ok".to_owned(),
        activate_response::Response::ActivateError(error) => {
            let kind = activate_error::Type::try_from(error.r#type).unwrap();
            format!("{}: {}", kind.as_str_name(), error.detail)
        }
    })
}

// proves 6.12, 6.13
#[tokio::test]
async fn a_box_without_slots_says_which_setting_it_lacks() {
    let core = FakeDatastore::new();
    let mut client = client(&core).await;
    let messages =
        install(&mut client, vec![transfer_request("2.0", 0), content("x"), end()]).await;
    assert_eq!(messages.len(), 1);
    assert!(
        messages[0].starts_with("FailedPrecondition") && messages[0].contains("--image-command")
    );
    let refused = activate(&mut client, to("1.0")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("--image-command"), "{refused:?}");
    assert_eq!(core.reboots().pending(), None);
}

// proves 6.13
#[tokio::test]
async fn a_version_is_activated_if_it_is_there() {
    let core = with_slots();
    let mut client = client(&core).await;
    for version in ["2.0", "stuck"] {
        let messages =
            install(&mut client, vec![transfer_request(version, 0), content("x"), end()]).await;
        assert_eq!(messages.last().unwrap(), &format!("validated {version}"));
    }
    let next = || fs::read_to_string(core.state_folder().join("next")).unwrap_or_default();
    let boot_config = |text: &str| {
        let boot =
            bootz::BootConfig { vendor_config: text.to_owned().into(), ..Default::default() };
        Some(SetBootConfigRequest { boot_config: Some(boot), ..Default::default() })
    };
    let policy = authz::UploadRequest { policy: "{".to_owned(), ..Default::default() };
    let policy = SetBootConfigRequest { authz: Some(policy), ..Default::default() };
    for (request, want) in [
        (to(""), "NON_EXISTENT_VERSION: `version` is missing"),
        (
            to("3.0"),
            "NON_EXISTENT_VERSION: version `3.0` is not installed; installed are 1.0, 2.0, st",
        ),
        (ActivateRequest { standby_supervisor: true, ..to("2.0") }, "NOT_SUPPORTED_ON_BACKUP: t"),
        (to("stuck"), "UNSPECIFIED: `"),
        (ActivateRequest { boot_config: boot_config("{"), ..to("2.0") }, "InvalidArgument: "),
        (ActivateRequest { boot_config: Some(policy), ..to("2.0") }, "InvalidArgument: "),
    ] {
        let outcome = activate(&mut client, request).await;
        let outcome = outcome.unwrap_or_else(|it| format!("{:?}: {}", it.code(), it.message()));
        assert!(outcome.starts_with(want), "{want}: {outcome}");
        assert_eq!((next().as_str(), core.reboots().pending()), ("", None), "{outcome}");
    }
    let later = ActivateRequest { no_reboot: true, ..to("2.0") };
    assert_eq!(activate(&mut client, later.clone()).await.unwrap(), "ok");
    assert_eq!((next().as_str(), core.reboots().pending()), ("2.0\n", None));
    assert_eq!(activate(&mut client, to("1.0")).await.unwrap(), "ok");
    let pending = core.reboots().pending().unwrap();
    assert_eq!((next().as_str(), &*pending.reason), ("1.0\n", "version 1.0 is activated"));
    assert_eq!(pending.extent, RebootScope::System, "by the operator's setting");
    let refused = activate(&mut client, to("2.0")).await.unwrap_err();
    assert_eq!((refused.code(), next().as_str()), (Code::FailedPrecondition, "1.0\n"));
    assert_eq!(activate(&mut client, later).await.unwrap(), "ok");
}

// proves 6.13, 6.14
#[tokio::test]
async fn a_reader_only_looks_which_version_runs() {
    let core = with_slots();
    let mut client = OsClient::new(channel(&core, Some(Role::ReadOnly)).await);
    let unsupported = StandbyState { state: standby_state::State::Unsupported.into() };
    let verified = client.verify(VerifyRequest {}).await.unwrap().into_inner();
    let VerifyResponse { version, activation_fail_message, .. } = &verified;
    assert_eq!((version.as_str(), activation_fail_message.as_str()), ("1.0", ""));
    let state = verified.verify_standby.and_then(|it| it.state);
    assert_eq!(state, Some(verify_standby::State::StandbyState(unsupported)));
    assert!(!verified.individual_supervisor_install);
    let refused = activate(&mut client, to("1.0")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    let refused = client.install(tokio_stream::empty()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

/// The whole agent on a box with slots, over its boots.
struct Rig {
    kernel: SimulatedKernel,
    folder: tempfile::TempDir,
    agent: Agent,
}

/// Event after an activation.
#[derive(Clone, Copy, Debug)]
enum AfterActivation {
    /// The agent is killed and started again.
    Killed,
    /// The box boots the activated version.
    Boots,
    /// The boot of the activated version fails, and the box comes back with the former one.
    FallsBack,
}

impl Rig {
    async fn new() -> Self {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let mode = fs::Permissions::from_mode(0o700); // it holds more than the agent's files
        let folder = tempfile::Builder::new().permissions(mode).tempdir().unwrap();
        slots(folder.path());
        fs::write(folder.path().join("slots/2.0"), "").unwrap();
        let agent = Agent::start(&kernel, folder.path()).await;
        Self { kernel, folder, agent }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn then(self, then: AfterActivation) -> Self {
        let boots = !matches!(then, AfterActivation::Killed);
        if boots {
            let reboots = &self.agent.device.reboots;
            let _is_pending = reboots.at_once(String::new());
            reboots.due().await;
        }
        if let AfterActivation::Boots = then {
            fs::copy(self.file("next"), self.file("running")).unwrap();
        }
        let Self { kernel, folder, agent } = self;
        agent.stop().await;
        let agent = Agent::start(&kernel, folder.path()).await;
        Self { kernel, folder, agent }
    }

    async fn verify(&self) -> (String, String) {
        let mut client = client(&self.agent).await;
        let verified = client.verify(VerifyRequest {}).await.unwrap().into_inner();
        (verified.version, verified.activation_fail_message)
    }

    fn hostname(&self) -> Option<String> {
        let configuration = self.agent.handle.configuration();
        let path =
            configuration.models().native.resolve_write(&"/system/hostname".parse().unwrap());
        configuration.effective().find_leaf(&path.unwrap()).map(|leaf| leaf.value.to_string())
    }

    /// Host name and authz policy in force, which come with an activation.
    fn activated_state(&self) -> (Option<String>, Option<String>) {
        let authz = self.agent.gnsi.authz.last().map(|it| it.version.clone());
        (self.hostname(), authz)
    }
}

fn coming(hostname: &str) -> ActivateRequest {
    let vendor_config = format!(r#"{{"holdfast:system":{{"hostname":"{hostname}"}}}}"#).into();
    let boot = bootz::BootConfig { vendor_config, ..Default::default() };
    let policy = authz::UploadRequest {
        version: hostname.to_owned(),
        created_on: 7,
        policy: r#"{"name":"open","allow_rules":[{"name":"all"}]}"#.to_owned(),
    };
    let set =
        SetBootConfigRequest { boot_config: Some(boot), authz: Some(policy), ..Default::default() };
    ActivateRequest { boot_config: Some(set), ..to("2.0") }
}

// proves 4.83, 6.13, 6.14
#[tokio::test]
async fn boot_config_of_an_activation_applies_when_its_version_first_runs() {
    use AfterActivation::{Boots, FallsBack, Killed};
    let fell_back = "version 2.0 was activated, 1.0 runs";
    let new = || (Some("new".to_owned()), Some("new".to_owned()));
    for (course, version, message, want) in [
        (&[][..], "1.0", "", (None, None)),
        (&[Killed], "1.0", "", (None, None)),
        (&[Boots], "2.0", "", new()),
        (&[Killed, Boots], "2.0", "", new()),
        (&[Boots, Killed], "2.0", "", new()),
        (&[FallsBack], "1.0", fell_back, (None, None)),
        (&[FallsBack, Killed], "1.0", fell_back, (None, None)),
        // A later boot succeeds after all: the configuration of the activation is gone, and so is the failure message.
        (&[FallsBack, Boots], "2.0", "", (None, None)),
    ] {
        let mut rig = Rig::new().await;
        let mut client = client(&rig.agent).await;
        assert_eq!(activate(&mut client, coming("new")).await.unwrap(), "ok");
        assert!(rig.agent.device.reboots.pending().is_some());
        for then in course {
            rig = rig.then(*then).await;
        }
        assert_eq!(rig.verify().await, (version.to_owned(), message.to_owned()), "{course:?}");
        assert_eq!(rig.activated_state(), want, "{course:?}");
        let state = format!(r#""software-version":"{version}""#);
        assert!(rig.agent.published_text().contains(&state), "{}", rig.agent.published_text());
        // The configuration is applied once; later changes stay.
        if version == "2.0" {
            rig.agent
                .update(r#"{"openconfig-system:system":{"config":{"motd-banner":"x"}}}"#)
                .await
                .unwrap();
            rig = rig.then(Killed).await;
            assert_eq!(
                (rig.verify().await.1.as_str(), rig.activated_state()),
                ("", want),
                "{course:?}"
            );
        }
        rig.agent.stop().await;
    }
}

// proves 4.83, 6.14
#[tokio::test]
async fn verify_reports_a_boot_config_that_no_longer_applies() {
    let rig = Rig::new().await;
    let mut client = client(&rig.agent).await;
    assert_eq!(activate(&mut client, coming("new")).await.unwrap(), "ok");
    // gNSI is switched off meanwhile: its policies are refused, and so is the rest.
    let off =
        holdfast_core::Intent::Switch { service: holdfast_config::Namespace::Gnsi, on: false };
    rig.agent.handle.change(&crate::agent_tests::caller(), off).await.unwrap();
    let rig = rig.then(AfterActivation::Boots).await;
    let (version, message) = rig.verify().await;
    assert_eq!(version, "2.0");
    assert!(
        message.starts_with("version 2.0 runs, without") && message.contains("gNSI"),
        "{message}"
    );
    assert_eq!(rig.activated_state(), (None, None));
    let rig = rig.then(AfterActivation::Killed).await;
    assert_eq!(rig.verify().await, (version, message));
    rig.agent.stop().await;
}

/// Versions that SetPackage and a bootstrap install count as activations.
#[tokio::test]
async fn a_package_that_is_activated_takes_the_place_of_an_activation() {
    use AfterActivation::{Boots, FallsBack};
    for (then, version, message) in
        [(Boots, "3.0", ""), (FallsBack, "1.0", "version 3.0 was activated, 1.0 runs")]
    {
        let rig = Rig::new().await;
        let mut client = client(&rig.agent).await;
        let first = ActivateRequest { no_reboot: true, ..coming("first") };
        assert_eq!(activate(&mut client, first).await.unwrap(), "ok");
        let package = rig.file("package");
        fs::write(&package, "an image").unwrap();
        let software = &rig.agent.device.software;
        software.install_and_activate(&package, "3.0", "ada").await.unwrap();
        let rig = rig.then(then).await;
        assert_eq!(rig.verify().await, (version.to_owned(), message.to_owned()));
        assert_eq!(rig.activated_state(), (None, None), "it came with another version");
        rig.agent.stop().await;
    }
}

// proves 6.13
#[tokio::test]
async fn the_last_activation_counts_and_takes_what_came_with_it() {
    let rig = Rig::new().await;
    let mut client = client(&rig.agent).await;
    let no_reboot = |request| ActivateRequest { no_reboot: true, ..request };
    assert_eq!(activate(&mut client, no_reboot(coming("first"))).await.unwrap(), "ok");
    assert_eq!(activate(&mut client, no_reboot(coming("second"))).await.unwrap(), "ok");
    // An activation that fails leaves the previous one valid.
    fs::write(rig.file("slots/stuck"), "").unwrap();
    let failed = activate(&mut client, ActivateRequest { version: "stuck".into(), ..coming("x") });
    assert!(failed.await.unwrap().starts_with("UNSPECIFIED"));
    let rig = rig.then(AfterActivation::Boots).await;
    assert_eq!(rig.hostname().as_deref(), Some("second"));
    rig.agent.stop().await;
}
