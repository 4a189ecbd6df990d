//! Handlers of services: processes that do the work of states, from gnmic to the kernel.

use std::time::{Duration, Instant};

use holdfast_proto::holdfast::services as wire;
use holdfast_proto::holdfast::services::from_handler::Message as Said;
use holdfast_tests::clients::Gnmic;
use holdfast_tests::eventually::eventually;
use holdfast_tests::handler::{HandlerProcess, RawHandler, ServedBox};
use holdfast_tests::netns::Netns;
use holdfast_tests::services::{no_plans, operate, plans_with, port_package, set, update};
use tempfile::TempDir;

const ACME: &str = "holdfast_native:/services/sized-port[name=acme]";
const PARAMS: &str = r#"{"bridge": "br0", "port": "eth1"}"#;
const REFUSED: &str = r#"{"bridge": "refused", "port": "eth1"}"#;

/// A handler attaches the port; then a template sizes it with a value that the handler keeps.
const OUTLINE: &str = r#"[service]
name = "sized-port"
version = "1.0.0"
missing-handler = "MISSING"
[grants]
write = ["/interfaces/interface"]
read = ["/interfaces/interface/state/oper-status"]
[handler]
user = "USER"
[[component]]
type = "port"
  [[component.state]]
  name = "attached"
  work = "handler"
  DELETE
[[tree]]
create = { type = "port", name = "params.port" }
"#;

/// A box with two ports, and a type of this outline.
async fn served(outline: &str) -> ServedBox {
    let net = Netns::enter().with_veth("eth1", "peer1").with_veth("eth2", "peer2");
    let outline = outline.replace("MISSING", "fail").replace("USER", "root").replace("DELETE", "");
    ServedBox::start(net, port_package(&outline)).await
}

fn master(on: &ServedBox) -> Option<String> {
    let found = on.net.ip_json("link show dev eth1");
    found[0]["master"].as_str().map(str::to_owned)
}

/// Waits until the port is on the bridge.
async fn attached(on: &ServedBox) {
    eventually("the port is on the bridge", || master(on).as_deref() == Some("br0")).await;
}

// proves sv.A9, sv.A10, sv.A12, sv.A16, sv.A20, sv.B43
#[tokio::test]
async fn a_handler_in_python_makes_what_an_instance_asks_for() {
    let on = served(OUTLINE).await;
    let refused = on.gnmic.refused(&set(ACME, PARAMS)).await;
    assert!(refused.contains("Unavailable") && refused.contains("no handler"), "{refused}");

    let mut handler = HandlerProcess::python(&on.socket, &[("READ", "1")]).await;
    update(&on.gnmic, ACME, PARAMS).await;
    assert_eq!(master(&on).as_deref(), Some("br0"));
    let work = handler.heard("services_commit").await;
    for part in ["sized-port[name=\\'acme\\']", "component_type: \"port\"", "state: \"attached\""] {
        assert!(work.contains(part), "`{part}` is not in {work}");
    }
    let read = handler.heard("read").await;
    assert!(read.contains("/interfaces/interface[name=eth1]/state/oper-status"), "{read}");
    let closed = handler.heard("closed").await;
    assert!(closed.contains("committed: true"), "{closed}");

    let refused = on.gnmic.refused(&set(ACME, REFUSED)).await;
    let text = "failed in sized-port-handler: no bridge is called refused";
    assert!(refused.contains("Aborted") && refused.contains(text), "{refused}");
    assert_eq!(master(&on).as_deref(), Some("br0"), "nothing of the refused Set stays");
    plans_with(&on.gnmic, &["sized-port[name='acme']", "reached"]).await;

    // The output of a handler stays without it, and goes with its instance.
    handler.kill().await;
    on.gnmic.run(&["set", "--delete", ACME]).await;
    assert_eq!(master(&on), None);
    assert!(on.net.find_link("br0").is_none());
}

// proves sv.B44, sv.B45, sv.B56
#[tokio::test]
async fn what_a_handler_puts_out_to_last_stays_until_it_is_purged() {
    let outline = OUTLINE
        .replace("DELETE", r#"delete = { work = "handler" }"#)
        .replace("user = \"USER\"", "user = \"root\"\nmodification = true");
    let mut on = served(&outline).await;
    let variables = [("PHASES", "create,delete"), ("LASTING", "1")];
    let mut handler = HandlerProcess::python(&on.socket, &variables).await;
    update(&on.gnmic, ACME, PARAMS).await;
    for phase in ["PRE_MODIFICATION", "CREATE", "POST_MODIFICATION"] {
        let work = handler.heard("services_commit").await;
        assert!(work.contains(&format!("phase: PHASE_{phase}")), "{work}");
    }
    let aliases = |on: &ServedBox| ["eth2", "eth1"].map(|port| on.net.link(port).alias);
    let lasting = ["before", "after"].map(ToOwned::to_owned);
    assert_eq!((aliases(&on), master(&on).as_deref()), (lasting.clone(), Some("br0")));

    on.gnmic.run(&["set", "--delete", ACME]).await;
    assert_eq!((aliases(&on), master(&on)), (lasting.clone(), None));
    assert_eq!(on.net.link("eth1").mtu, 1300, "the delete call has put that out");
    on.agent.kill();
    on.agent.restart().await;
    let gnmic = Gnmic::for_admin(&on.agent);
    assert_eq!(aliases(&on), lasting);
    let of_type = "persist:sized-port";
    let of_instance = "persist:sized-port[name='acme']";
    let owners = ["-e", "json_ietf", "get", "--path", "holdfast_native:/service-state/ownership"];
    let owners = gnmic.json(&owners).await.to_string();
    assert!(owners.contains(&format!("{of_type:?}")) && owners.contains(of_instance), "{owners}");
    let description = "holdfast_native:/interfaces/interface[name=eth1]/description";
    let refused = gnmic.refused(&set(description, "\"mine\"")).await;
    assert!(refused.contains("InvalidArgument") && refused.contains(of_type), "{refused}");

    for (claim, alias, mtu) in [(of_instance, "after", 1500), (of_type, "", 1500)] {
        operate(&on.agent, &["purge", claim]).unwrap();
        let link = on.net.link("eth1");
        assert_eq!((link.alias.as_str(), link.mtu), (alias, mtu));
    }
    let missing = operate(&on.agent, &["purge", of_type]).unwrap_err();
    assert!(missing.contains("there is no claim"), "{missing}");
    no_plans(&gnmic).await;
}

// proves sv.J20
#[tokio::test]
async fn a_start_asks_no_handler_for_what_is_as_it_was() {
    let mut on = served(OUTLINE).await;
    let mut handler = HandlerProcess::python(&on.socket, &[]).await;
    update(&on.gnmic, ACME, PARAMS).await;
    handler.heard("closed").await;
    on.agent.kill();
    on.agent.restart().await;
    let gnmic = Gnmic::for_admin(&on.agent);
    let mut again = HandlerProcess::python(&on.socket, &[]).await;
    // The first call that it hears is that of a change.
    update(&gnmic, ACME, r#"{"bridge": "br7"}"#).await;
    let work = again.heard("services_commit").await;
    assert!(work.contains("br7"), "{work}");
    assert_eq!(master(&on).as_deref(), Some("br7"));
}

#[tokio::test]
async fn a_handler_in_go_makes_what_an_instance_asks_for() {
    let on = served(OUTLINE).await;
    let _handler = HandlerProcess::go(&on.socket, &[]).await;
    update(&on.gnmic, ACME, PARAMS).await;
    assert_eq!(master(&on).as_deref(), Some("br0"));
}

#[tokio::test]
async fn a_handler_may_keep_a_state_that_is_to_be_left() {
    let outline = OUTLINE.replace("DELETE", r#"delete = { work = "handler" }"#);
    let on = served(&outline).await;
    let folder = TempDir::new().unwrap();
    let in_use = folder.path().join("in-use");
    std::fs::write(&in_use, "").unwrap();
    let variables = [("PHASES", "create,delete"), ("KEEP", in_use.to_str().unwrap())];
    let mut handler = HandlerProcess::python(&on.socket, &variables).await;
    update(&on.gnmic, ACME, PARAMS).await;
    on.gnmic.run(&["set", "--delete", ACME]).await;
    plans_with(&on.gnmic, &["in-use is there", "zombie"]).await;
    let refused = on.gnmic.refused(&set(ACME, PARAMS)).await;
    assert!(refused.contains("FailedPrecondition") && refused.contains("zombie"), "{refused}");

    std::fs::remove_file(&in_use).unwrap();
    operate(&on.agent, &["redeploy", "sized-port[name='acme']"]).unwrap();
    handler.heard("closed").await;
    no_plans(&on.gnmic).await;
    assert_eq!(master(&on), None);
}

// proves sv.A22, sv.A44
#[tokio::test]
async fn a_handler_that_is_killed_during_a_set_refuses_it_at_once_and_others_go_on() {
    let on = served(OUTLINE).await;
    let mut handler = HandlerProcess::python(&on.socket, &[("THINK", "60")]).await;
    let request = set(ACME, PARAMS);
    let thinking = on.gnmic.refused(&request);
    tokio::pin!(thinking);
    tokio::select! {
        refused = &mut thinking => panic!("{refused}"),
        _ = handler.heard("services_commit") => {}
    }
    let mtu = "holdfast_native:/interfaces/interface[name=eth2]/mtu";
    update(&on.gnmic, mtu, "1300").await;
    assert_eq!(
        on.net.link("eth2").mtu,
        1300,
        "a Set of another port does not wait for the handler"
    );

    let killed = Instant::now();
    handler.kill().await;
    let refused = thinking.await;
    assert!(refused.contains("Unavailable") && refused.contains("handler lost"), "{refused}");
    assert!(killed.elapsed() < Duration::from_secs(10), "it need not wait for a deadline");
    assert_eq!(master(&on), None);
    let config = ["-e", "json_ietf", "get", "--type", "config", "--path", "holdfast_native:/"];
    let config = on.gnmic.json(&config).await.to_string();
    assert!(!config.contains("acme"), "{config}");
}

// proves sv.A21
#[tokio::test]
async fn a_handler_has_no_more_time_than_the_client_waits() {
    let on = served(OUTLINE).await;
    let mut handler = HandlerProcess::python(&on.socket, &[("THINK", "60")]).await;
    // The first request checks the password, which takes its time.
    let request = [&["--timeout", "8s"][..], &set(ACME, PARAMS)].concat();
    let refused = on.gnmic.refused(&request).await;
    assert!(
        refused.contains("DeadlineExceeded") && refused.contains("did not answer in time"),
        "{refused}"
    );
    handler.heard("abort").await;
    assert_eq!(master(&on), None);
}

#[tokio::test]
async fn a_handler_is_asked_again_when_what_it_has_read_has_changed_meanwhile() {
    let on = served(OUTLINE).await;
    let variables = [("THINK", "2"), ("READ", "1")];
    let mut handler = HandlerProcess::python(&on.socket, &variables).await;
    let status = || on.net.ip_json("link show dev eth1")[0]["operstate"].clone();
    on.net.ip("link set eth1 up");
    on.net.ip("link set peer1 up");
    eventually("the port is up", || status() == "UP").await;
    let request = set(ACME, PARAMS);
    let made = on.gnmic.run(&request);
    tokio::pin!(made);
    tokio::select! {
        _ = &mut made => panic!("the handler thinks"),
        _ = handler.heard("read") => {}
    }
    on.net.ip("link set peer1 down");
    // The first question was asked before its answer was read.
    tokio::join!(made, handler.heard("services_commit"));
    assert_eq!(master(&on).as_deref(), Some("br0"));
}

#[tokio::test]
async fn an_instance_of_a_type_that_defers_waits_for_its_handler() {
    let on = served(&OUTLINE.replace("MISSING", "defer")).await;
    update(&on.gnmic, ACME, PARAMS).await;
    assert_eq!(master(&on), None);
    plans_with(&on.gnmic, &["\"waits-for\":\"a handler of sized-port\""]).await;
    let _handler = HandlerProcess::python(&on.socket, &[]).await;
    attached(&on).await;
}

// proves sv.A11, sv.A18, sv.A19, sv.A24, sv.A30, sv.A41
#[tokio::test]
async fn a_handler_that_breaks_the_rules_of_the_stream_is_told_so() {
    let on = served(OUTLINE).await;
    let mut handler = RawHandler::attach(&on.socket).await.unwrap();
    let second = RawHandler::attach(&on.socket).await.unwrap_err();
    assert_eq!(second.code(), tonic::Code::AlreadyExists, "{second}");
    assert!(second.message().contains("`raw`"), "{second}");

    let edit = |tid, path: &str, creator: &str| {
        let json = if path.contains("hostname") { "\"a\"" } else { "1400" };
        Said::Edit(wire::Edit {
            tid,
            path: path.to_owned(),
            json: json.to_owned(),
            creator: creator.to_owned(),
            ..wire::Edit::default()
        })
    };
    let mtu = "/interfaces/interface[name=eth1]/mtu";
    handler.say(edit(77, mtu, "")).await;
    let (code, text) = handler.refusal().await;
    assert!(code == 5 && text.contains("77"), "{code} {text}");

    // An edit outside of the grants fails its call.
    let request = set(ACME, PARAMS);
    let (refused, ()) = tokio::join!(on.gnmic.refused(&request), async {
        let tid = handler.commit().await;
        handler.say(edit(tid, mtu, "no tag")).await;
        assert_eq!(handler.refusal().await.0, 3);
        handler.say(edit(tid, mtu, "other[name='a']")).await;
        assert_eq!(handler.refusal().await.0, 7);
        handler.say(edit(tid, "/system/hostname", "")).await;
        let (code, text) = handler.refusal().await;
        assert!(code == 7 && text.contains("not in the grants"), "{code} {text}");
        handler.say(Said::Done(wire::Done { tid, served: vec![wire::Served::default()] })).await;
    });
    assert!(
        refused.contains("PermissionDenied") && refused.contains("not in the grants"),
        "{refused}"
    );

    // A call that it does not name fails, and an edit after its Done is late.
    let (refused, ()) = tokio::join!(on.gnmic.refused(&request), async {
        let tid = handler.commit().await;
        handler.say(edit(tid, mtu, "sized-port[name='acme']")).await;
        handler.say(Said::Done(wire::Done { tid, served: Vec::new() })).await;
        handler.say(edit(tid, mtu, "")).await;
        let (code, _) = handler.refusal().await;
        assert!([5, 9].contains(&code), "the transaction has ended, or is about to: {code}");
    });
    assert!(
        refused.contains("Aborted") && refused.contains("sized-port[name='acme']"),
        "{refused}"
    );
}

#[tokio::test]
async fn only_the_user_of_the_outline_may_serve_a_type() {
    let on = served(&OUTLINE.replace("USER", "nobody")).await;
    let refused = RawHandler::attach(&on.socket).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
    assert!(on.agent.log().contains("listening"));
}
