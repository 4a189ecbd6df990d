//! Reboots over gNOI: what each method restarts, and the work that it would cut off.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use holdfast_base::Role;
use holdfast_platform::transport::{Fault, SimulatedKernel};
use holdfast_proto::gnoi::bootconfig::SetBootConfigVerifiedRequest;
use holdfast_proto::gnoi::bootconfig::boot_config_client::BootConfigClient;
use holdfast_proto::gnoi::bootconfig::set_boot_config_verified_request;
use holdfast_proto::gnoi::factory_reset::StartRequest;
use holdfast_proto::gnoi::factory_reset::factory_reset_client::FactoryResetClient;
use holdfast_proto::gnoi::os::os_client::OsClient;
use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnoi::system::{
    CancelRebootRequest, RebootMethod, RebootRequest, RebootStatusRequest, reboot_status,
};
use holdfast_proto::gnsi::authz::authz_client::AuthzClient;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::commits::{MTU, Rig};
use super::fake_datastore::FakeDatastore;
use super::gnoi::{config, package, reboot, request};
use super::harness::{TestBackend, channel, client, set_request};
use super::os::{part, slots, transfer_request};
use crate::agent_tests::Agent;

const HOUR: Duration = Duration::from_secs(3600);

/// Asks for reboots and gives them up again.
struct Rebooter(SystemClient<Channel>);

impl Rebooter {
    async fn new(core: &impl TestBackend) -> Self {
        Self(SystemClient::new(channel(core, Some(Role::Admin)).await))
    }

    async fn reboot_and_cancel(&mut self, method: RebootMethod, force: bool) -> Result<(), Status> {
        let request = RebootRequest { force, ..reboot(method, HOUR, "of a test") };
        self.0.reboot(request).await?;
        self.0.cancel_reboot(CancelRebootRequest::default()).await.map(drop)
    }

    /// A reboot is refused, and the refusal names `what`; with force it is not.
    async fn is_held_up_by(&mut self, what: &str) {
        while self.reboot_and_cancel(RebootMethod::Warm, false).await.is_ok() {
            tokio::task::yield_now().await; // what was asked for has not begun yet
        }
        let refused = self.reboot_and_cancel(RebootMethod::Warm, false).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
        for word in [what, "force"] {
            assert!(refused.message().contains(word), "{what}: {refused:?}");
        }
        self.reboot_and_cancel(RebootMethod::Warm, true).await.unwrap();
    }

    /// Nothing holds a reboot up any more.
    async fn is_free(&mut self) {
        while let Err(refused) = self.reboot_and_cancel(RebootMethod::Warm, false).await {
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
            tokio::task::yield_now().await;
        }
    }
}

/// The requests of a stream that stays open until this is dropped.
fn open<T: Send + 'static>(
    first: impl IntoIterator<Item = T>,
) -> (mpsc::Sender<T>, ReceiverStream<T>) {
    let (request_tx, request_rx) = mpsc::channel(4);
    for request in first {
        request_tx.try_send(request).unwrap();
    }
    (request_tx, ReceiverStream::new(request_rx))
}

// proves 6.4
#[tokio::test]
async fn undertakings_refuse_a_reboot_without_force() {
    let mode = Permissions::from_mode(0o700); // it holds more than the agent's files
    let folder = tempfile::Builder::new().permissions(mode).tempdir().unwrap();
    let kernel = SimulatedKernel::new(&["eth0"]);
    slots(folder.path());
    let agent = Agent::start(&kernel, folder.path()).await;
    let mut rebooter = Rebooter::new(&agent).await;
    let admin = || channel(&agent, Some(Role::Admin));
    rebooter.is_free().await;

    let (requests, stream) = open([]);
    let answers = AuthzClient::new(admin().await).rotate(stream).await.unwrap();
    rebooter.is_held_up_by("a rotation of gnsi.authz").await;
    drop((requests, answers));
    rebooter.is_free().await;

    let set = set_boot_config_verified_request::SetRequest::Set(request(config("", "tried")));
    let (requests, stream) = open([SetBootConfigVerifiedRequest { set_request: Some(set) }]);
    let answers = BootConfigClient::new(admin().await).set_boot_config_verified(stream).await;
    rebooter.is_held_up_by("a boot configuration that is tried").await;
    drop((requests, answers));
    rebooter.is_free().await;

    let (requests, stream) = open([part(transfer_request("2.0", 0))]);
    let answers = OsClient::new(admin().await).install(stream).await.unwrap();
    rebooter.is_held_up_by("the installation of version `2.0`").await;
    drop((requests, answers));
    rebooter.is_free().await;

    let (requests, stream) = open([package("os.img")]);
    let mut system = SystemClient::new(admin().await);
    let sending = tokio::spawn(async move { system.set_package(stream).await });
    rebooter.is_held_up_by("the transfer of package `os.img`").await;
    drop(requests);
    sending.await.unwrap().unwrap_err();
    rebooter.is_free().await;

    client(&agent).await.set(set_request(&format!("update {MTU} 1314"))).await.unwrap();
    kernel.fault_at(1, Fault::Hang);
    let mut resets = FactoryResetClient::new(admin().await);
    let resetting = tokio::spawn(async move { resets.start(StartRequest::default()).await });
    rebooter.is_held_up_by("a factory reset").await;
    kernel.resume();
    resetting.await.unwrap().unwrap();
}

// proves 6.4
#[tokio::test]
async fn a_commit_that_waits_holds_a_reboot_up_until_it_is_confirmed() {
    let mut rig = Rig::new().await;
    let mut rebooter = Rebooter::new(&rig.agent).await;
    for end in ["confirm a", "cancel a"] {
        rig.set_with(&format!("update {MTU} 1314"), "begin a 3000").await.unwrap();
        rebooter.is_held_up_by("the commit `a`, which waits to be confirmed").await;
        rig.set_with("", end).await.unwrap();
        rebooter.is_free().await;
    }
}

// proves 6.4, 6.5
#[tokio::test]
async fn each_reboot_method_is_carried_out_or_refused() {
    let folder = TempDir::new().unwrap();
    let agent = Agent::start(&SimulatedKernel::new(&[]), folder.path()).await;
    let mut of_agent = Rebooter::new(&agent).await;
    let at_once = reboot(RebootMethod::Cold, Duration::ZERO, "now");
    let refused = of_agent.0.reboot(at_once).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    for word in ["COLD", "--reboot agent"] {
        assert!(refused.message().contains(word), "{refused:?}");
    }
    // A reboot that can still be cancelled is accepted, and refused when it is due.
    of_agent.reboot_and_cancel(RebootMethod::Cold, false).await.unwrap();
    let soon = reboot(RebootMethod::Cold, Duration::from_millis(20), "soon");
    of_agent.0.reboot(soon).await.unwrap();
    let reboots = agent.device.reboots.clone();
    let waited = tokio::time::timeout(Duration::from_millis(200), reboots.due()).await;
    assert!(waited.is_err(), "{waited:?}");
    let status = of_agent.0.reboot_status(RebootStatusRequest::default()).await.unwrap();
    let status = status.into_inner();
    assert_eq!((status.active, status.count, &*status.reason), (false, 0, "soon"));
    let outcome = status.status.unwrap();
    assert_eq!(outcome.status(), reboot_status::Status::Failure);
    assert!(outcome.message.contains("--reboot agent"), "{outcome:?}");

    let core = FakeDatastore::new(); // with `--reboot system`
    let mut of_box = Rebooter::new(&core).await;
    for method in [RebootMethod::Cold, RebootMethod::Warm] {
        of_box.0.reboot(reboot(method, Duration::ZERO, "now")).await.unwrap();
        core.reboots().due().await;
        let status = of_box.0.reboot_status(RebootStatusRequest::default()).await.unwrap();
        assert!(status.get_ref().active, "{status:?}");
        assert_eq!(status.get_ref().method(), method);
        core.reboots().cancel(); // as the next start finds it
    }

    // A reboot that is called off when it is due.
    let soon = reboot(RebootMethod::Cold, Duration::from_millis(20), "soon");
    of_box.0.reboot(soon).await.unwrap();
    let _installing = core.reboots().undertakings().begin("another image");
    let waited = tokio::time::timeout(Duration::from_millis(200), core.reboots().due()).await;
    assert!(waited.is_err(), "{waited:?}");
    let status = of_box.0.reboot_status(RebootStatusRequest::default()).await.unwrap().into_inner();
    assert_eq!((status.active, status.count, &*status.reason), (false, 2, "soon"));
    let outcome = status.status.unwrap();
    assert_eq!(outcome.status(), reboot_status::Status::RetriableFailure);
    assert!(outcome.message.contains("another image"), "{outcome:?}");
}
