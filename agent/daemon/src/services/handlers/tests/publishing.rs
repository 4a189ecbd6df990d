//! Leaves that handlers publish, and how long they outlast these.

use std::time::Duration;

use holdfast_config::ServiceTag;
use holdfast_core::Datastore as _;
use nix::unistd::{User, geteuid};
use tempfile::TempDir;

use super::super::messages::{HandlerErrorKind, HandlerMessage};
use super::super::publishing::WITHDRAWAL_DELAY;
use super::{ACME, ETH1, TestHandler, agent, agent_of, set, until};
use crate::agent_tests::{Agent, package_files, types_of};

const PEER: &str = "/services/access[name=acme]/seen/peer";

/// The leaf that handlers of these tests publish.
fn shown_peer(agent: &Agent) -> Option<String> {
    let models = agent.handle.models();
    let path = models.native.resolve_write(&PEER.parse().unwrap()).unwrap();
    agent.handle.revision().native.find_leaf(&path).map(|leaf| leaf.value.to_string())
}

/// Lets the agent go on until it shows this value of the leaf.
async fn until_shown(agent: &Agent, want: Option<&str>) {
    while shown_peer(agent).as_deref() != want {
        tokio::task::yield_now().await;
    }
}

impl TestHandler {
    async fn publish(&self, path: &str, json: &str) {
        let path = path.to_owned();
        let json = json.to_owned();
        self.say(HandlerMessage::Publish { path, json }).await;
    }
}

/// An agent with an instance, and its handler.
async fn with_acme() -> (Agent, TempDir, TestHandler) {
    let (agent, folder) = agent().await;
    let mut handler = TestHandler::attach(&agent).await;
    let made = set(&agent, ACME, ETH1);
    let (tid, _) = handler.commit().await;
    handler.done(tid).await;
    made.await.unwrap().unwrap();
    (agent, folder, handler)
}

#[tokio::test]
async fn a_published_leaf_is_state_of_its_instance() {
    let (agent, _folder, mut handler) = with_acme().await;
    handler.publish(PEER, "\"core1\"").await;
    until_shown(&agent, Some("core1")).await;
    handler.publish("/interfaces/interface[name=eth1]/state/oper-status", "\"UP\"").await;
    assert_eq!(handler.refusal().await, HandlerErrorKind::Denied);
    handler.publish(PEER, "").await;
    until_shown(&agent, None).await;
}

// proves sv.A44
#[tokio::test]
async fn published_leaves_outlast_their_handler_for_a_minute() {
    let (agent, _folder, handler) = with_acme().await;
    handler.publish(PEER, "\"core1\"").await;
    until_shown(&agent, Some("core1")).await;
    // A handler that comes back in time and publishes again loses nothing.
    drop(handler);
    agent.turns().await;
    agent.pass(WITHDRAWAL_DELAY - Duration::from_secs(1)).await;
    let handler = TestHandler::attach(&agent).await;
    handler.publish(PEER, "\"core2\"").await;
    until_shown(&agent, Some("core2")).await;
    agent.pass(Duration::from_secs(2)).await;
    agent.turns().await;
    assert_eq!(shown_peer(&agent).as_deref(), Some("core2"));

    drop(handler);
    agent.turns().await;
    agent.pass(WITHDRAWAL_DELAY - Duration::from_secs(1)).await;
    agent.turns().await;
    assert_eq!(shown_peer(&agent).as_deref(), Some("core2"), "its time is not over");
    agent.pass(Duration::from_secs(2)).await;
    until_shown(&agent, None).await;
    agent.stop().await;
}

/// A type with a state that waits for a leaf of its own instance.
const GATED: &str = r#"[service]
name = "access"
version = "1.0.0"
[grants]
write = ["/interfaces/interface"]
read = ["/services/access/vm-up-and-running"]
[handler]
user = "USER"
[[component]]
type = "vrouter"
  [[component.state]]
  name = "vm-requested"
  work = "handler"
  [[component.state]]
  name = "vm-configured"
  when = "state('/services/access[name={}]/vm-up-and-running', service.key) == true"
  work = "main.cli"
[[tree]]
create = { type = "vrouter", name = "service.key" }
"#;

const GATED_MODULE: &str = r#"module access { yang-version 1.1; namespace "urn:access"; prefix a;
  import holdfast-services { prefix svc; } import holdfast { prefix hf; }
  revision 2026-11-27 { description "First."; }
  augment "/svc:services" { list access { key name; uses svc:service-instance;
    leaf name { type string; } leaf port { type hf:interface-name; mandatory true; }
    leaf vm-up-and-running { type boolean; config false; } } } }"#;

/// The first example of another system, as its document has it.
// proves sv.B17
#[tokio::test]
async fn a_gate_on_a_leaf_of_the_instance_opens_once_its_handler_publishes_it() {
    let user = User::from_uid(geteuid()).unwrap().unwrap().name;
    let outline = GATED.replace("USER", &user);
    let files = package_files([
        ("service.toml", outline.as_str()),
        ("access@2026-11-27.yang", GATED_MODULE),
        ("templates/main.cli", "interface {{ params.port }}\n  mtu 1400\n"),
    ]);
    let (agent, _folder) = agent_of(types_of(&files)).await;
    let mut handler = TestHandler::attach(&agent).await;
    let made = set(&agent, ACME, ETH1);
    let (tid, _) = handler.commit().await;
    handler.done(tid).await;
    made.await.unwrap().unwrap();
    let tag: ServiceTag = "access[name='acme']".parse().unwrap();
    let is_configured = || {
        let book = agent.handle.configuration().layers().book.clone();
        let plan = book.get(&tag).cloned();
        let component = plan.as_ref().and_then(|it| it.component("vrouter", "acme"));
        component.and_then(|it| it.state("vm-configured")).is_some_and(|it| it.is_reached)
    };
    let publish = async |handler: &TestHandler, instance: &str, json: &str| {
        let path = format!("/services/access[name={instance}]/vm-up-and-running");
        handler.publish(&path, json).await;
        agent.turns().await;
    };
    publish(&handler, "other", "true").await;
    assert!(!is_configured(), "it is the leaf of another instance");
    publish(&handler, "acme", "false").await;
    assert!(!is_configured());
    publish(&handler, "acme", "true").await;
    until(&agent, is_configured).await;
    publish(&handler, "acme", "").await;
    until(&agent, || !is_configured()).await;
    agent.stop().await;
}

/// Bytes of a large leaf. One user may publish three of them, all users together thirty.
const LARGE: usize = 1 << 20;

#[tokio::test]
async fn a_user_has_a_budget_for_published_octets_whoever_connects_again() {
    let (agent, _folder, mut handler) = with_acme().await;
    let leaf = |at: usize| format!("/services/access[name=other{at}]/seen/peer");
    let large = || format!("\"{}\"", "x".repeat(LARGE));
    for at in 0..3 {
        handler.publish(&leaf(at), &large()).await;
        handler.publish(&leaf(at), &large()).await; // again, in its own place
    }
    handler.publish(&leaf(3), &large()).await;
    assert_eq!(handler.refusal().await, HandlerErrorKind::Exhausted);
    // A withdrawn leaf makes room, and a new session of the same user does not.
    handler.publish(&leaf(0), "").await;
    handler.publish(&leaf(3), &large()).await;
    drop(handler);
    agent.turns().await;
    let mut handler = TestHandler::attach(&agent).await;
    handler.publish(&leaf(4), &large()).await;
    assert_eq!(handler.refusal().await, HandlerErrorKind::Exhausted);
    handler.publish(PEER, "\"core1\"").await;
    until_shown(&agent, Some("core1")).await;

    drop(handler);
    agent.turns().await;
    agent.pass(WITHDRAWAL_DELAY + Duration::from_secs(1)).await;
    until_shown(&agent, None).await;
    let handler = TestHandler::attach(&agent).await;
    handler.publish(&leaf(4), &large()).await;
    handler.publish(PEER, "\"core2\"").await;
    until_shown(&agent, Some("core2")).await;
    agent.stop().await;
}
