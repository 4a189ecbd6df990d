//! gNOI through a real channel: what the answers say, and what is there afterwards.

use std::time::Duration;

use holdfast_proto::bootz;
use holdfast_proto::gnoi::bootconfig::boot_config_client::BootConfigClient;
use holdfast_proto::gnoi::bootconfig::set_boot_config_verified_request::SetRequest as Step;
use holdfast_proto::gnoi::bootconfig::{
    FinalizeRequest, GetBootConfigRequest, RollbackRequest, SetBootConfigRequest,
    SetBootConfigVerifiedRequest, SetBootConfigVerifiedResponse,
};
use holdfast_proto::gnoi::factory_reset::factory_reset_client::FactoryResetClient;
use holdfast_proto::gnoi::factory_reset::{ResetError, StartRequest};
use holdfast_proto::gnoi::system::system_client::SystemClient;
use holdfast_proto::gnoi::system::{
    CancelRebootRequest, PingRequest, RebootMethod, RebootRequest, RebootStatusRequest, TimeRequest,
};
use holdfast_proto::google::rpc;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::fake::Fake;
use super::harness::{channel, client, get_request, set_request};
use crate::caller::Role;
use crate::northbound::Datastore;
use crate::telemetry::view::now_ns;

type Boots = BootConfigClient<Channel>;

const MGMT: &str = r#"{"holdfast:interfaces":{"interface":[{"name":"mgmt0","enabled":true}]}}"#;

async fn boots(core: &Fake) -> Boots {
    BootConfigClient::new(channel(core, Some(Role::Admin)).await)
}

fn config(vendor: &str, hostname: &str) -> bootz::BootConfig {
    let oc_config = match hostname {
        "" => String::new(),
        name => format!(r#"{{"openconfig-system:system":{{"config":{{"hostname":"{name}"}}}}}}"#),
    };
    bootz::BootConfig {
        vendor_config: vendor.to_owned().into(),
        oc_config: oc_config.into(),
        ..Default::default()
    }
}

fn request(config: bootz::BootConfig) -> SetBootConfigRequest {
    SetBootConfigRequest { boot_config: Some(config), ..Default::default() }
}

async fn set(client: &mut Boots, config: bootz::BootConfig) -> Result<(), Status> {
    client.set_boot_config(request(config)).await.map(drop)
}

async fn get(client: &mut Boots) -> Option<bootz::BootConfig> {
    client.get_boot_config(GetBootConfigRequest {}).await.unwrap().into_inner().boot_config
}

fn hostname(core: &Fake) -> Option<String> {
    let configuration = core.configuration();
    let path = configuration.models().native.resolve_write(&"/system/hostname".parse().unwrap());
    configuration.effective().leaf(&path.unwrap()).map(|leaf| leaf.value.to_string())
}

// proves 3.7, 3.25, 3.26, 3.27, 3.30, 4.75, 4.77, 4.78, 4.82
#[tokio::test]
async fn a_boot_configuration_is_set_as_a_whole_and_read_as_it_was_set() {
    let core = Fake::new();
    let mut client = boots(&core).await;
    assert_eq!(get(&mut client).await, None);
    set(&mut client, config(MGMT, "one")).await.unwrap();
    assert_eq!(get(&mut client).await, Some(config(MGMT, "one")));
    assert_eq!(hostname(&core).as_deref(), Some("one"));
    client.set_boot_config(SetBootConfigRequest::default()).await.unwrap();
    assert_eq!(get(&mut client).await, Some(config(MGMT, "one")), "nothing was said of it");

    let clash = r#"{"holdfast:system":{"hostname":"two"}}"#;
    let dynamic = |vendor: &str, openconfig: &str| bootz::BootConfig {
        dynamic_vendor_config: vendor.to_owned().into(),
        dynamic_oc_config: openconfig.to_owned().into(),
        ..config(MGMT, "three")
    };
    for (refused, word) in [
        (config("{", ""), "vendor_config"),
        (config(clash, "one"), "hostname"),
        (config(r#"{"holdfast:nosuch":1}"#, ""), "nosuch"),
        (dynamic("{}", ""), "dynamic_vendor_config"),
        (dynamic("", "{}"), "dynamic_oc_config"),
    ] {
        let status = set(&mut client, refused).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(word), "{status:?}");
        assert_eq!(get(&mut client).await, Some(config(MGMT, "one")));
        assert_eq!(hostname(&core).as_deref(), Some("one"));
    }
    set(&mut client, bootz::BootConfig::default()).await.unwrap();
    assert_eq!(get(&mut client).await, Some(bootz::BootConfig::default()));
    assert_eq!(hostname(&core), None);
}

// proves 3.11, 3.12, 3.14, 3.17, 3.19, 3.24
#[tokio::test]
async fn clients_are_told_what_is_reserved_and_for_whom() {
    let core = Fake::new();
    set(&mut boots(&core).await, config(MGMT, "boot")).await.unwrap();
    let mut gnmi = client(&core).await;
    let users = "/system/aaa/authentication/users/user[username=ada]/config";
    for (operation, item, owner) in [
        (r#"update /system/config/hostname "mine""#.to_owned(), "hostname", "bootz"),
        ("delete /interfaces/interface[name=mgmt0]".to_owned(), "mgmt0", "bootz"),
        (
            r#"update /interfaces/interface[name=mgmt0]/config/enabled false"#.to_owned(),
            "mgmt0",
            "bootz",
        ),
        (format!(r#"update {users} {{"role":"admin","password":"x"}}"#), "password", "gnsi"),
    ] {
        let status = gnmi.set(set_request(&operation)).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{operation}: {status:?}");
        for word in [item, owner] {
            assert!(status.message().contains(word), "{operation}: {status:?}");
        }
    }
    gnmi.set(set_request("delete /")).await.unwrap();
    assert_eq!(hostname(&core).as_deref(), Some("boot"));
    // Get CONFIG shows what clients hold: none of boot's, so it can be sent back.
    let get = gnmi.get(get_request(&["/system"])).await;
    let shown = get.map(|it| format!("{it:?}")).unwrap_or_default();
    assert!(!shown.contains("boot"), "{shown}");
}

/// One trial of a boot configuration.
struct Trial {
    request_tx: mpsc::Sender<SetBootConfigVerifiedRequest>,
    responses: Streaming<SetBootConfigVerifiedResponse>,
}

impl Trial {
    async fn open(client: &mut Boots, config: bootz::BootConfig) -> Self {
        let (request_tx, request_rx) = mpsc::channel(4);
        let trial = Self::say_to(&request_tx, Step::Set(request(config)));
        trial.await;
        let responses = client.set_boot_config_verified(ReceiverStream::new(request_rx)).await;
        let mut responses = responses.unwrap().into_inner();
        assert!(responses.message().await.unwrap().is_some());
        Self { request_tx, responses }
    }

    async fn say_to(request_tx: &mpsc::Sender<SetBootConfigVerifiedRequest>, step: Step) {
        let request = SetBootConfigVerifiedRequest { set_request: Some(step) };
        request_tx.send(request).await.unwrap();
    }

    async fn say(&self, step: Step) {
        Self::say_to(&self.request_tx, step).await;
    }

    /// The answer to the last step, and the end.
    async fn end(mut self) -> Result<bool, Status> {
        let answered = self.responses.message().await?.is_some();
        drop(self.request_tx);
        assert!(self.responses.message().await?.is_none());
        Ok(answered)
    }
}

/// Waits until the host name is this one: what a cut stream leaves is taken back by itself.
async fn until(core: &Fake, name: &str) {
    while hostname(core).as_deref() != Some(name) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

// proves 4.80, 4.81
#[tokio::test]
async fn a_boot_configuration_that_is_not_finalized_is_taken_back() {
    let core = Fake::new();
    let mut client = boots(&core).await;
    set(&mut client, config(MGMT, "one")).await.unwrap();

    let trial = Trial::open(&mut client, config("", "two")).await;
    assert_eq!(hostname(&core).as_deref(), Some("two"));
    let status = set(&mut client, config("", "three")).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "one trial at a time");
    let rollback = RollbackRequest { reason: "no link".to_owned() };
    trial.say(Step::Rollback(rollback)).await;
    assert!(trial.end().await.unwrap());
    assert_eq!(get(&mut client).await, Some(config(MGMT, "one")));
    assert_eq!(hostname(&core).as_deref(), Some("one"));

    drop(Trial::open(&mut client, config("", "two")).await);
    until(&core, "one").await;
    assert_eq!(get(&mut client).await, Some(config(MGMT, "one")));

    let trial = Trial::open(&mut client, config("", "two")).await;
    trial.say(Step::Set(request(config("", "three")))).await;
    assert_eq!(trial.end().await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(hostname(&core).as_deref(), Some("one"));

    let trial = Trial::open(&mut client, config("", "two")).await;
    trial.say(Step::Finalize(FinalizeRequest {})).await;
    assert!(trial.end().await.unwrap());
    assert_eq!(hostname(&core).as_deref(), Some("two"));
    set(&mut client, config("", "three")).await.unwrap();
}

#[tokio::test]
async fn a_trial_begins_with_what_is_to_be_tried() {
    let core = Fake::new();
    let mut client = boots(&core).await;
    for first in [Step::Finalize(FinalizeRequest {}), Step::Set(SetBootConfigRequest::default())] {
        let request = SetBootConfigVerifiedRequest { set_request: Some(first) };
        let stream = client.set_boot_config_verified(tokio_stream::once(request)).await.unwrap();
        let status = stream.into_inner().message().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

fn reboot(method: RebootMethod, delay: Duration, message: &str) -> RebootRequest {
    RebootRequest {
        method: method as i32,
        delay: ns(delay),
        message: message.to_owned(),
        ..Default::default()
    }
}

// proves 6.1, 6.4, 6.5, 6.6, 6.30
#[tokio::test]
async fn reboots_are_asked_for_shown_and_given_up() {
    let core = Fake::new();
    let mut client = SystemClient::new(channel(&core, Some(Role::Admin)).await);
    let shown = client.time(TimeRequest {}).await.unwrap().into_inner().time;
    assert!(now_ns().abs_diff(shown) < ns(Duration::from_secs(1)));

    client.cancel_reboot(CancelRebootRequest::default()).await.unwrap();
    let hour = Duration::from_secs(3600);
    for method in [RebootMethod::Unknown, RebootMethod::Warm, RebootMethod::Powerdown] {
        let status = client.reboot(reboot(method, hour, "")).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{method:?}");
    }
    client.reboot(reboot(RebootMethod::Cold, hour, "upgrade")).await.unwrap();
    let second = client.reboot(reboot(RebootMethod::Cold, hour, "again")).await.unwrap_err();
    assert_eq!(second.code(), Code::FailedPrecondition);
    let status = client.reboot_status(RebootStatusRequest::default()).await.unwrap().into_inner();
    assert!(status.active && status.reason == "upgrade" && status.status.is_none(), "{status:?}");
    let hour = ns(hour);
    assert!(status.wait <= hour && status.wait > hour / 2 && status.when > now_ns(), "{status:?}");
    client.cancel_reboot(CancelRebootRequest::default()).await.unwrap();
    let status = client.reboot_status(RebootStatusRequest::default()).await.unwrap().into_inner();
    assert!(!status.active && status.wait == 0 && status.status.is_some(), "{status:?}");

    let refused = client.ping(PingRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

// proves 6.11
#[tokio::test]
async fn a_factory_reset_that_cannot_be_says_what_it_lacks() {
    let core = Fake::new();
    set(&mut boots(&core).await, config(MGMT, "one")).await.unwrap();
    let mut client = FactoryResetClient::new(channel(&core, Some(Role::Admin)).await);
    for (request, want) in [
        (StartRequest { factory_os: true, ..Default::default() }, (true, false)),
        (StartRequest { zero_fill: true, ..Default::default() }, (false, true)),
    ] {
        let status = client.start(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let details = rpc::Status::decode(status.details()).unwrap().details;
        let error = ResetError::decode(&details[0].value[..]).unwrap();
        assert_eq!((error.factory_os_unsupported, error.zero_fill_unsupported), want);
        assert_eq!(hostname(&core).as_deref(), Some("one"));
    }
    client.start(StartRequest::default()).await.unwrap();
    assert_eq!((hostname(&core), get(&mut boots(&core).await).await), (None, None));
    assert!(core.reboots().pending().is_some());
}

// proves 1.7
#[tokio::test]
async fn a_reader_changes_nothing() {
    let core = Fake::new();
    let channel = || channel(&core, Some(Role::ReadOnly));
    let mut client = BootConfigClient::new(channel().await);
    let status = set(&mut client, config(MGMT, "one")).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let none = tokio_stream::empty::<SetBootConfigVerifiedRequest>();
    let status = client.set_boot_config_verified(none).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let mut client = SystemClient::new(channel().await);
    client.time(TimeRequest {}).await.unwrap();
    let cold = reboot(RebootMethod::Cold, Duration::ZERO, "");
    assert_eq!(client.reboot(cold).await.unwrap_err().code(), Code::PermissionDenied);
    let mut client = FactoryResetClient::new(channel().await);
    let status = client.start(StartRequest::default()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert_eq!(hostname(&core), None);
}
