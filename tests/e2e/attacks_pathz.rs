//! Subscribe STREAM under a pathz policy: a denied value is never sent, whenever it appears and however it changes.

use std::time::Duration;

use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_proto::gnmi::{SubscriptionList, SubscriptionMode};
use holdfast_proto::gnsi::pathz;
use holdfast_proto::gnsi::pathz::authorization_rule::Principal;
use holdfast_proto::gnsi::pathz::pathz_client::PathzClient;
use holdfast_proto::gnsi::pathz::rotate_request;
use holdfast_tests::agent::{ADMIN, AgentProcess};
use holdfast_tests::gnmi::{Credentials, GnmiClient, parse_path};
use holdfast_tests::netns::Netns;
use holdfast_tests::rotation::{CutPoint, Rotation};
use holdfast_tests::subscription::{Subscription, subscribe_to};
use tonic::Code;

const GUEST: &str = "guest";
const GUEST_PASSWORD: &str = "a password of the guest";
const PERIOD: Duration = Duration::from_secs(1);

/// A policy that allows the administrator everything, and the guest to read the permitted paths without the denied
/// ones.
fn upload(version: &str, permitted: &[&str], denied: &[&str]) -> pathz::RotateRequest {
    let rule = |user: &str, path: &str, action: pathz::Action, mode: pathz::Mode| {
        pathz::AuthorizationRule {
            id: format!("{user} {path} {action:?} {mode:?}"),
            principal: Some(Principal::User(user.into())),
            path: Some(parse_path(path)),
            action: action.into(),
            mode: mode.into(),
        }
    };
    let permit = pathz::Action::Permit;
    let deny = pathz::Action::Deny;
    let mut rules = vec![
        rule(ADMIN, "/", permit, pathz::Mode::Read),
        rule(ADMIN, "/", permit, pathz::Mode::Write),
    ];
    rules.extend(permitted.iter().map(|path| rule(GUEST, path, permit, pathz::Mode::Read)));
    rules.extend(denied.iter().map(|path| rule(GUEST, path, deny, pathz::Mode::Read)));
    let policy = Some(pathz::AuthorizationPolicy { rules, groups: Vec::new() });
    rotate_request(rotate_request::RotateRequest::UploadRequest(pathz::UploadRequest {
        version: version.into(),
        created_on: 1,
        policy,
    }))
}

fn rotate_request(request: rotate_request::RotateRequest) -> pathz::RotateRequest {
    pathz::RotateRequest { rotate_request: Some(request), force_overwrite: false }
}

async fn install(agent: &AgentProcess, upload: pathz::RotateRequest) {
    let mut client = PathzClient::with_interceptor(agent.channel().await, agent.credentials());
    let mut rotation = Rotation::open(|requests| client.rotate(requests)).await.unwrap();
    let finalize =
        rotate_request(rotate_request::RotateRequest::FinalizeRotation(pathz::FinalizeRequest {}));
    rotation.run_until(CutPoint::Finalized, upload, finalize).await;
    rotation.close().await.unwrap();
}

fn list(mode: SubscriptionMode) -> SubscriptionList {
    let mut list = subscribe_to(Mode::Stream, &[("/interfaces", mode)]);
    for subscription in &mut list.subscription {
        subscription.sample_interval = u64::try_from(PERIOD.as_nanos()).unwrap();
    }
    list
}

/// Reads on until the wanted line, twice where a sample may be under way, and checks that no line has a denied value.
async fn check_next_lines(stream: &mut Subscription, line: &str, what: &str) {
    for _ in 0..2 {
        let lines = stream.until_all(&[line]).await;
        assert_permitted(&lines, what);
    }
}

fn assert_permitted(lines: &[String], what: &str) {
    let leaks = ["secret", "description", "eth1"];
    let leaked = lines.iter().find(|line| leaks.iter().any(|leak| line.contains(leak)));
    assert_eq!(leaked, None, "{what}");
}

#[tokio::test]
async fn streams_never_contain_denied_leaves() {
    let net = Netns::enter().with_veth("eth0", "peer0").with_veth("eth1", "peer1");
    let agent = AgentProcess::start(&net).await;
    assert!(agent.user(&["set", GUEST, "--role", "admin"], GUEST_PASSWORD).status.success());
    let admin = agent.gnmi().await;
    let leaf = |port: &str, leaf: &str| format!("/interfaces/interface[name={port}]/config/{leaf}");
    admin.update(&leaf("eth0", "description"), "secret at first").await.unwrap();
    let descriptions =
        ["config", "state"].map(|part| format!("/interfaces/interface[name=*]/{part}/description"));
    let denied = [&*descriptions[0], &*descriptions[1], "/interfaces/interface[name=eth1]"];
    install(&agent, upload("v1", &["/interfaces"], &denied)).await;

    let credentials = Credentials::new(GUEST, GUEST_PASSWORD).unwrap();
    let guest = GnmiClient::over(agent.channel().await, credentials);
    let mut changes = guest.subscribe(list(SubscriptionMode::OnChange)).await.unwrap();
    let mut samples = guest.subscribe(list(SubscriptionMode::Sample)).await.unwrap();
    for stream in [&mut changes, &mut samples] {
        let lines = stream.until_sync().await;
        assert!(lines.iter().any(|line| line.contains("eth0")), "{lines:#?}");
        assert_permitted(&lines, "at first");
    }

    // Changes by the administrator that are denied to the guest, and then one of the MTU, which is permitted.
    let ports = ["eth0", "eth1"];
    for (number, what) in ["changes", "appears", "is gone", "is back"].into_iter().enumerate() {
        match what {
            "changes" => {
                admin.update(&leaf("eth0", "description"), "secret now").await.unwrap();
            }
            "appears" => {
                admin.update(&leaf("eth1", "description"), "secret too").await.unwrap();
            }
            "is gone" => {
                for port in ports {
                    admin.delete(&leaf(port, "description")).await.unwrap();
                }
            }
            _ => {
                for port in ports {
                    admin.update(&leaf(port, "description"), "secret again").await.unwrap();
                }
            }
        }
        let mtu = 1400 + u32::try_from(number).unwrap();
        admin.update(&leaf("eth1", "mtu"), mtu - 100).await.unwrap();
        admin.update(&leaf("eth0", "mtu"), mtu).await.unwrap();
        let part_text = format!("= {mtu}");
        let updates = changes.until_all(&[&part_text]).await;
        assert_permitted(&updates, what);
        check_next_lines(&mut samples, &part_text, what).await;
    }

    // Another policy ends both streams, and neither shows a denied value.
    install(&agent, upload("v2", &["/interfaces/interface[name=eth0]/state"], &[])).await;
    for stream in [&mut changes, &mut samples] {
        assert_eq!(stream.until_refused().await.code(), Code::Unavailable);
    }
    let mut refused = guest.subscribe(list(SubscriptionMode::OnChange)).await.unwrap();
    assert_eq!(refused.until_refused().await.code(), Code::PermissionDenied);
}
