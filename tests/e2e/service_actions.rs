//! Actions of handlers: carried out once, whoever is killed meanwhile, and the guest of `packaging/services`.

use std::process::Command;

use holdfast_proto::holdfast::services as wire;
use holdfast_proto::holdfast::services::from_handler::Message as Said;
use holdfast_proto::holdfast::services::to_handler::Message as Heard;
use holdfast_tests::eventually::eventually;
use holdfast_tests::handler::{HandlerProcess, RawHandler, ServedBox, attach_next};
use holdfast_tests::monitor::Monitor;
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{nothing_left, operate, packed, plans_with, port_package, update};

const ACME: &str = "holdfast_native:/services/sized-port[name=acme]";
const PARAMS: &str = r#"{"bridge": "br0", "port": "eth1"}"#;

/// A template attaches the port, a handler prepares it, and then a template sizes it.
const OUTLINE: &str = r#"[service]
name = "sized-port"
version = "1.0.0"
[grants]
write = ["/interfaces/interface"]
[handler]
user = "root"
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "port.cli"
  action = { handler = "prepare", params = { port = "params.port" }, sync = true, result = "result.port == params.port" }
  [[component.state]]
  name = "sized"
  work = "size.cli"
[[tree]]
create = { type = "port", name = "params.port" }
"#;

/// A box with a port, and the type of the outline.
async fn with_port() -> ServedBox {
    ServedBox::start(Netns::enter().with_veth("eth1", "peer1"), port_package(OUTLINE)).await
}

async fn sized(on: &ServedBox) {
    eventually("the port is sized", || on.net.link("eth1").mtu == 1400).await;
}

/// Attaches a handler, once the agent knows that the one before it is gone.
async fn attach(on: &ServedBox) -> RawHandler {
    attach_next(async || {
        let actions = vec!["prepare".to_owned()];
        let served = wire::ServedType { actions, ..wire::ServedType::default() };
        RawHandler::attach_for(&on.socket, "sized-port", served).await
    })
    .await
}

/// The next action or query: its identifier, and whether it is a query.
async fn asked(handler: &mut RawHandler) -> (u64, bool) {
    let asked = |it: &Heard| match it {
        Heard::Action(action) => Some((action.id, false)),
        Heard::QueryAction(query) => Some((query.id, true)),
        _ => None,
    };
    handler.next(asked).await
}

fn accepted(id: u64) -> Said {
    Said::ActionAccepted(wire::ActionAccepted { id })
}

fn result(id: u64) -> Said {
    let json = r#"{"port": "eth1"}"#.to_owned();
    let error = String::new();
    Said::ActionResult(wire::ActionResult { id, json, error })
}

fn status(id: u64, progress: wire::ActionProgress) -> Said {
    let json = match progress {
        wire::ActionProgress::Ended => r#"{"port": "eth1"}"#,
        _ => "",
    };
    Said::ActionStatus(wire::ActionStatus {
        id,
        progress: progress.into(),
        json: json.to_owned(),
        error: String::new(),
    })
}

// proves sv.B62, sv.B72, sv.B74
#[tokio::test]
async fn handlers_in_python_and_go_carry_actions_out() {
    for is_go in [false, true] {
        let on = with_port().await;
        // Nobody waits for the handler but the action.
        update(&on.gnmic, ACME, PARAMS).await;
        assert_eq!(on.net.link("eth1").master.as_deref(), Some("br0"));
        let waits = "\"action-waits-for\":\"a handler of sized-port that carries out prepare\"";
        plans_with(&on.gnmic, &["create-init", "queued", waits]).await;
        assert_eq!(on.net.link("eth1").mtu, 1500);
        let shown = on.agent.show("services");
        let waits =
            "(action create-init waits for a handler of sized-port that carries out prepare)";
        assert!(shown.contains(waits), "{shown}");
        let variables = [("ACTIONS", "prepare"), ("PHASES", "")];
        let mut handler = if is_go {
            HandlerProcess::go(&on.socket, &variables).await
        } else {
            HandlerProcess::python(&on.socket, &variables).await
        };
        sized(&on).await;
        plans_with(&on.gnmic, &["create-reached"]).await;
        if !is_go {
            handler.heard("action_recorded").await;
        }
    }
}

// proves sv.B70, sv.A44, sv.B43
#[tokio::test]
async fn a_handler_that_is_lost_before_the_result_is_asked_by_id() {
    let on = with_port().await;
    let mut handler = attach(&on).await;
    update(&on.gnmic, ACME, PARAMS).await;
    let (id, is_query) = asked(&mut handler).await;
    assert!(!is_query);
    handler.say(accepted(id)).await;
    drop(handler);

    // It never saw the call: it comes again, with the same identifier.
    let mut handler = attach(&on).await;
    assert_eq!(asked(&mut handler).await, (id, true));
    handler.say(status(id, wire::ActionProgress::NeverSeen)).await;
    assert_eq!(asked(&mut handler).await, (id, false));
    drop(handler);

    // It is under way, and is waited for. The query comes before the end of what waits for the handler.
    let mut handler = attach(&on).await;
    let first = |it: &Heard| match it {
        Heard::QueryAction(_) => Some(true),
        Heard::Synced(_) => Some(false),
        _ => None,
    };
    assert!(handler.next(first).await, "the query comes before Synced");
    handler.say(status(id, wire::ActionProgress::Running)).await;
    handler.say(result(id + 1)).await;
    let (code, text) = handler.refusal().await;
    assert!(code == 5 && text.contains(&(id + 1).to_string()), "{code} {text}");
    assert_eq!(on.net.link("eth1").mtu, 1500);
    handler.say(result(id)).await;
    sized(&on).await;
    handler.say(result(id)).await;
    assert_eq!(handler.refusal().await.0, 5, "a result counts once");
}

// proves sv.B70, sv.B67, sv.B69
#[tokio::test]
async fn an_agent_that_is_killed_during_an_action_asks_its_handler() {
    for progress in [wire::ActionProgress::Ended, wire::ActionProgress::Unknown] {
        let mut on = with_port().await;
        let mut handler = attach(&on).await;
        update(&on.gnmic, ACME, PARAMS).await;
        let (id, _) = asked(&mut handler).await;
        handler.say(accepted(id)).await;
        on.agent.kill();
        on.agent.restart().await;
        let mut handler = attach(&on).await;
        assert_eq!(asked(&mut handler).await, (id, true), "the call is not made again");
        handler.say(status(id, progress)).await;
        if progress == wire::ActionProgress::Unknown {
            plans_with(&on.gnmic, &["in-doubt", "cannot tell what came of it"]).await;
            assert_eq!(on.net.link("eth1").mtu, 1500);
            operate(&on.agent, &["redeploy", "sized-port[name='acme']"]).unwrap();
            plans_with(&on.gnmic, &["in-doubt"]).await;
            operate(&on.agent, &["resolve", &id.to_string(), "done"]).unwrap();
        }
        sized(&on).await;
    }
}

/// Guests of one test. Their names are those of the whole machine, and go with this.
struct Guests(String);

impl Guests {
    fn new(name: &str) -> Self {
        Self(format!("hf-{name}-{}", std::process::id()))
    }

    /// Path of the instance.
    fn path(&self) -> String {
        format!("holdfast_native:/services/guest[name={}]", self.0)
    }

    fn count(&self) -> usize {
        let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        namespaces.filter(|it| it.file_name().to_string_lossy() == self.0).count()
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        // Most tests have removed it.
        let _ = Command::new("ip").args(["netns", "delete", &self.0]).output();
    }
}

const GUEST: &str = r#"{"port": "guest0", "gateway": "192.0.2.1/24", "prefix": "198.51.100.0/24", "via": "192.0.2.2"}"#;

// proves sv.B23, sv.B55, sv.B66, sv.B70
#[tokio::test]
async fn a_guest_is_made_once_configured_and_taken_down_in_order() {
    let on = ServedBox::start(Netns::enter(), packed("guest")).await;
    let guests = Guests::new("once");
    let path = guests.path();
    let mut handler = HandlerProcess::shipped(&on.socket, "guest", on.folder.path(), &[]).await;
    update(&on.gnmic, &path, GUEST).await;
    eventually("the guest has its address and route", || {
        on.net.find_link("guest0").is_some()
            && on.net.addresses("guest0") == ["192.0.2.1/24"]
            && on.net.ip("route show 198.51.100.0/24").contains("via 192.0.2.2 dev guest0")
    })
    .await;
    plans_with(&on.gnmic, &["create-reached"]).await;
    let made = on.net.link("guest0");
    assert_eq!(guests.count(), 1);
    let first = handler.heard("action").await;
    assert!(first.contains("action: \"create\""), "{first}");
    // The socket is what is left in the folder.
    let has_forgotten = || std::fs::read_dir(on.folder.path()).unwrap().flatten().count() == 1;
    eventually("the handler has forgotten what is recorded", has_forgotten).await;

    let tag = format!("guest[name='{}']", guests.0);
    for _ in 0..10 {
        operate(&on.agent, &["redeploy", &tag]).unwrap();
    }
    assert_eq!((guests.count(), on.net.link("guest0")), (1, made), "there is one guest");

    let monitor = Monitor::start(&on.net).await;
    on.gnmic.run(&["set", "--delete", &path]).await;
    let next = handler.heard("action").await;
    assert!(next.contains("action: \"destroy\""), "redeployments have made no call: {next}");
    // It has been asked, and has to carry that out.
    nothing_left(&on.gnmic).await;
    assert_eq!(guests.count(), 0);
    let notices = monitor.finish(&on.net).await;
    let at = |part: &str| {
        let is_it = |line: &String| line.starts_with("Deleted") && line.contains(part);
        notices.iter().position(is_it).unwrap_or_else(|| panic!("no {part} in {notices:?}"))
    };
    assert!(at("inet 192.0.2.1/24") < at("guest0@"), "{notices:?}");
    assert!(on.net.find_link("guest0").is_none());
}

// proves sv.B70, sv.A44
#[tokio::test]
async fn a_guest_whose_handler_is_killed_while_it_is_made_is_not_made_again() {
    let on = ServedBox::start(Netns::enter(), packed("guest")).await;
    let guests = Guests::new("killed");
    let slow = [("SECONDS", "600")];
    let mut handler = HandlerProcess::shipped(&on.socket, "guest", on.folder.path(), &slow).await;
    update(&on.gnmic, &guests.path(), GUEST).await;
    handler.heard("action").await;
    // The journal has it before anything else is done.
    let has_begun = || std::fs::read_dir(on.folder.path()).unwrap().flatten().count() > 1;
    eventually("the handler has noted the action", has_begun).await;
    handler.kill().await;
    let mut handler = HandlerProcess::shipped(&on.socket, "guest", on.folder.path(), &[]).await;
    plans_with(&on.gnmic, &["in-doubt", "cannot tell what came of it"]).await;
    assert_eq!(guests.count(), 0);

    let shown = on.agent.show("services");
    let entry = shown.split("queue of actions\n").nth(1).unwrap();
    let id = entry.split_whitespace().next().unwrap();
    operate(&on.agent, &["reschedule", id]).unwrap();
    let again = handler.heard("action").await;
    assert!(!again.starts_with(&format!("action id: {id} ")), "it is another call: {again}");
    assert!(again.contains("kind: \"reschedule\""), "the earlier one is its cause: {again}");
    eventually("the guest is there", || {
        guests.count() == 1 && on.net.find_link("guest0").is_some()
    })
    .await;
}
