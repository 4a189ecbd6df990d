//! Work that several handlers have for one instance, and one handler for several instances.

use holdfast_base::ErrorChain;
use holdfast_config::services::{CauseKind, ServicePlan};

use super::super::super::operations::{OperationError, Operations};
use super::*;
use crate::agent_tests::service_transactions::transactions;

/// Three states of a port: two of handlers, and one of a template between them.
fn mixed() -> ServiceTypes {
    TestType::new()
        .handler("")
        .component("port")
        .state("enabled", WORK)
        .state("described", r#"work = "describe.cli""#)
        .state("sized", WORK)
        .template("describe.cli", "interface {{ params.port }}\n  description {{ unit }}\n")
        .types()
}

/// Lines of a state of a handler.
const WORK: &str = r#"work = "handler""#;
const ENABLED: &str = "/interfaces/interface[name=eth1]/enabled";

/// The registration of a handler for one state.
fn for_state(name: &str, state: &str) -> Registration {
    let mut registration = registration();
    let call = registration.calls.pop_first().unwrap();
    registration.calls.insert(ServedCall { state: Some(state.into()), ..call });
    Registration { name: name.into(), ..registration }
}

fn states(calls: &[HandlerCall]) -> Vec<&str> {
    calls.iter().map(|call| call.place.state.state.as_str()).collect()
}

// proves sv.B41
#[tokio::test]
async fn states_of_one_instance_are_made_by_templates_and_by_several_handlers() {
    let (agent, _folder) = agent_of(mixed()).await;
    let mut shelf = TestHandler::attach_with(&agent, for_state("shelf", "enabled")).await;
    let mut rack = TestHandler::attach_with(&agent, for_state("rack", "sized")).await;
    let made = set(&agent, ACME, ETH1);
    let (tid, calls) = shelf.calls().await;
    assert_eq!(states(&calls), ["enabled"]);
    shelf.edit((tid, 0), ENABLED, "true").await;
    shelf.end(tid, &[r#"{"unit":"shelf-3"}"#]).await;
    let (tid, calls) = rack.calls().await;
    assert_eq!((states(&calls), &*calls[0].opaque), (vec!["sized"], r#"{"unit":"shelf-3"}"#));
    rack.edit((tid, 0), MTU, "1400").await;
    rack.end(tid, &[""]).await;
    made.await.unwrap().unwrap();
    assert_eq!([shelf.closed().await, rack.closed().await], [Ok(()), Ok(())]);
    let made = agent.handle.configuration().layers().claims().clone();
    let holders: Vec<_> = made.iter().map(|(key, _)| key.state.as_str()).collect();
    assert_eq!(holders, ["described", "enabled", "sized"]);
    let ground = agent.handle.configuration();
    let leaf = |path: &str| {
        let path = ground.models().native.resolve_write(&path.parse().unwrap()).unwrap();
        ground.effective().leaf(&path).unwrap().value.to_string()
    };
    let description = MTU.replace("mtu", "description");
    assert_eq!([ENABLED, MTU, &description].map(leaf), ["true", "1400", "shelf-3"]);

    // Without one of the two, its state alone has nobody.
    drop(rack);
    let refused = set(&agent, BOLT, ETH1);
    let (tid, calls) = shelf.calls().await;
    assert_eq!(states(&calls), ["enabled"]);
    shelf.end(tid, &[r#"{"unit":"shelf-3"}"#]).await;
    let (kind, text) = failure(refused.await.unwrap());
    assert_eq!(kind, WorkFailureKind::Unavailable);
    assert!(text.contains("port eth1, sized: no handler is attached"), "{text}");
    assert!(agent.handle.configuration().layers().claims().is_same(&made));
    agent.stop().await;
}

// proves sv.B92
#[tokio::test]
async fn several_instances_are_deployed_again_in_one_transaction() {
    let (agent, _folder) = agent().await;
    let mut handler = TestHandler::attach(&agent).await;
    for path in [ACME, BOLT, "/services/access[name=coop]"] {
        let made = set(&agent, path, ETH1);
        let (tid, _) = handler.commit().await;
        handler.done(tid).await;
        made.await.unwrap().unwrap();
    }
    let layers = || agent.handle.configuration().layers().clone();
    let tags = ["acme", "bolt", "coop"].map(|name| format!("access[name='{name}']"));
    let plan = |name: &String| layers().book.get(&name.parse().unwrap()).unwrap().clone();
    let before = tags.each_ref().map(plan);
    let begin = || {
        let operations = Operations(agent.handle.clone());
        let tags = tags[..2].to_vec();
        tokio::spawn(async move { operations.redeploy(&user("ada").into(), &tags).await })
    };
    let mut boundaries = agent.handle.boundaries();
    let redeployed = begin();
    let (tid, calls) = handler.calls().await;
    let asked: Vec<_> = calls.iter().map(|call| call.place.state.tag.to_string()).collect();
    assert_eq!(asked, tags[..2], "one message has the work of both");
    for call in [0, 1] {
        handler.edit((tid, call), MTU, "1310").await;
    }
    handler.end(tid, &["", ""]).await;
    assert_eq!(redeployed.await.unwrap().unwrap().len(), 2);
    boundaries.recv().await.unwrap();
    agent.turns().await;
    assert!(boundaries.try_recv().is_err(), "there was one transaction");
    let after = tags.each_ref().map(plan);
    let walked: Vec<_> = before.iter().zip(&after).map(|(old, new)| old != new).collect();
    assert_eq!(walked, [true, true, false]);
    assert_eq!(after[0].record.last_run_ns, after[1].record.last_run_ns);

    // A failure of one of them leaves all as they were.
    let before = layers();
    let refused = begin();
    let (tid, _) = handler.calls().await;
    handler.edit((tid, 0), MTU, "1320").await;
    handler.edit((tid, 1), "/system/hostname", "\"a\"").await;
    assert_eq!(handler.refusal().await, HandlerErrorKind::Denied);
    handler.end(tid, &["", ""]).await;
    let Err(OperationError::Commit(error)) = refused.await.unwrap() else { panic!("it fails") };
    let (kind, text) = failure(Err(error));
    assert!(kind == WorkFailureKind::Denied && text.contains("not in the grants"), "{text}");
    agent.turns().await;
    assert!(layers() == before && boundaries.try_recv().is_err());
    agent.stop().await;
}

/// Two components, each with a state of another handler.
fn apart() -> ServiceTypes {
    let port = TestType::new().handler("").component("port").state("enabled", WORK);
    port.component("size").state("sized", WORK).types()
}

/// Both handlers are of one user, so that nothing but the number of the call says who reads.
#[tokio::test]
async fn what_a_handler_reads_counts_for_its_own_call() {
    let (agent, _folder) = agent_of(apart()).await;
    let mut shelf = TestHandler::attach_with(&agent, for_state("shelf", "enabled")).await;
    let mut rack = TestHandler::attach_with(&agent, for_state("rack", "sized")).await;
    let made = set(&agent, ACME, ETH1);
    let ((tid, of_shelf), (same, of_rack)) =
        (shelf.numbered_calls().await, rack.numbered_calls().await);
    assert_eq!((tid, of_shelf[0].0, of_rack[0].0), (same, 0, 1));
    assert_eq!(shelf.read_for((tid, 0), MTU).unwrap(), []);
    assert_eq!(rack.read_for((tid, 1), OTHER_MTU).unwrap(), []);
    assert_eq!(rack.read_for((tid, 2), MTU).unwrap_err().kind, HandlerErrorKind::Unknown);
    set(&agent, OTHER_MTU, "1300").await.unwrap().unwrap();
    shelf.edit((tid, 0), ENABLED, "true").await;
    shelf.end_calls(tid, &[(0, "")]).await;
    rack.end_calls(tid, &[(1, "")]).await;
    // The value that the rack has read differs now, and nobody else is asked again.
    let (tid, calls) = rack.calls().await;
    assert_eq!(states(&calls), ["sized"]);
    rack.end(tid, &[""]).await;
    made.await.unwrap().unwrap();
    assert_eq!(shelf.closed().await, Ok(()));
    let is_asked = |it: &AgentMessage| matches!(it, AgentMessage::ServicesCommit { .. });
    assert!(!shelf.sent().iter().any(is_asked), "it was asked once");
    agent.stop().await;
}

/// A type whose instances wait for a handler, and then give their port the same address.
fn addressing() -> ServiceTypes {
    let address = "interface {{ params.port }}
  ipv4
    address 192.0.2.1
      prefix-length 24
";
    TestType::new()
        .service(r#"missing-handler = "defer""#)
        .handler("")
        .component("port")
        .state("enabled", WORK)
        .state("addressed", r#"work = "address.cli""#)
        .template("address.cli", address)
        .types()
}

/// The failure of each instance, if it has one.
fn failures(agent: &Agent) -> Vec<Option<Arc<str>>> {
    let configuration = agent.handle.configuration();
    let plans = configuration.layers().book.iter().map(|(_, plan)| plan);
    let of_plan = |plan: &Arc<ServicePlan>| {
        let mut states = plan.components.iter().flat_map(|it| &it.states);
        states.find_map(|state| state.failure.clone())
    };
    plans.map(of_plan).collect()
}

#[tokio::test]
async fn instances_that_were_refused_together_are_asked_for_alone() {
    let (agent, _folder) = agent_of(addressing()).await;
    for (path, port) in [(ACME, "eth0"), (BOLT, "eth1")] {
        let params = format!(r#"{{"port":"{port}"}}"#);
        set(&agent, path, &params).await.unwrap().unwrap();
    }
    let mut handler = TestHandler::connect(&agent, registration());
    let (tid, calls) = handler.calls().await;
    assert_eq!(calls.len(), 2);
    handler.end(tid, &["", ""]).await;
    let refused = handler.closed().await.unwrap_err();
    assert!(refused.contains("only one of them can exist"), "{refused}");
    // One is made; the other one is refused alone, and walks once more to say so.
    for _ in 0..3 {
        let (tid, calls) = handler.calls().await;
        assert_eq!(calls.len(), 1);
        handler.end(tid, &[""]).await;
    }
    let has_failed = || failures(&agent).iter().filter(|it| it.is_some()).count() == 1;
    until(&agent, has_failed).await;
    agent.turns().await;
    let is_asked = |it: &AgentMessage| matches!(it, AgentMessage::ServicesCommit { .. });
    assert!(!handler.sent().iter().any(is_asked), "nothing has changed since");

    // The reason of its refusal goes. The answer of the handler still counts.
    let made = if failures(&agent)[0].is_none() { ACME } else { BOLT };
    let gone = deletion(made);
    agent.handle.commit(&user("ada"), gone, CommitOptions::default()).await.unwrap();
    until(&agent, || failures(&agent) == [None]).await;
    assert!(!handler.sent().iter().any(is_asked));
    agent.stop().await;
}

// proves sv.A44
#[tokio::test]
async fn a_handler_that_comes_before_the_loss_of_the_other_one_is_noted_is_asked() {
    let (agent, _folder) = agent_of(addressing()).await;
    set(&agent, ACME, ETH1).await.unwrap().unwrap();
    let mut lost = TestHandler::connect(&agent, registration());
    let (_, calls) = lost.calls().await;
    drop(lost);
    while agent.services.handlers().holder(&calls[0].place).is_some() {
        tokio::task::yield_now().await;
    }
    let mut other = TestHandler::connect(&agent, registration());
    let (tid, again) = timeout(LIMIT, other.calls()).await.expect("it is asked in its place");
    assert_eq!(again, calls);
    other.end(tid, &[""]).await;
    until(&agent, || failures(&agent) == [None]).await;
    agent.stop().await;
}

// proves sv.A22
#[tokio::test]
async fn a_walk_whose_configuration_kept_changing_is_tried_again() {
    let (agent, _folder) = agent_of(addressing()).await;
    set(&agent, ACME, ETH1).await.unwrap().unwrap();
    let mut handler = TestHandler::connect(&agent, registration());
    // Two calls of one walk, whose answers count no more, and the call of another one.
    for mtu in ["1310", "1320", ""] {
        let (tid, _) = handler.calls().await;
        handler.read(tid, MTU);
        if !mtu.is_empty() {
            set(&agent, MTU, mtu).await.unwrap().unwrap();
        }
        handler.end(tid, &[""]).await;
    }
    let is_made = || !agent.handle.configuration().layers().claims().is_empty();
    until(&agent, is_made).await;
    assert_eq!(failures(&agent), [None]);
    agent.stop().await;
}

// proves sv.A25, sv.A27
#[tokio::test]
async fn what_a_handler_puts_out_is_validated_then_committed_or_only_shown() {
    let (agent, _folder) = agent().await;
    let mut handler = TestHandler::attach(&agent).await;
    set(&agent, MTU, "1300").await.unwrap().unwrap();
    let contradiction = set(&agent, ACME, ETH1);
    let (refused_tid, _) = handler.commit().await;
    handler.put_out(refused_tid, MTU, "1400").await;
    let error = ErrorChain(&contradiction.await.unwrap().unwrap_err()).to_string();
    assert!(error.contains("`1300` by client native") && error.contains("`1400` by"), "{error}");
    assert_eq!(handler.closed().await, Err(error.clone()));
    assert!(agent.handle.configuration().layers().claims().is_empty());

    let core = agent.handle.clone();
    let intent = Intent::edit(edit(ACME, ETH1));
    let preview =
        tokio::spawn(
            async move { core.preview(&user("ada"), intent, CommitOptions::default()).await },
        );
    let (tid, _) = handler.commit().await;
    handler.put_out(tid, MTU, "1300").await;
    let preview = preview.await.unwrap().unwrap();
    let shown: Vec<_> = preview.services.first.iter().map(|it| it.service.as_str()).collect();
    assert_eq!(shown, ["access[name='acme']"]);
    assert!(agent.handle.configuration().layers().claims().is_empty(), "it is only shown");

    let made = set(&agent, ACME, ETH1);
    let (made_tid, _) = handler.commit().await;
    handler.put_out(made_tid, MTU, "1300").await;
    made.await.unwrap().unwrap();
    assert_eq!(handler.closed().await, Ok(()));
    let transactions = transactions(&*agent.handle.current_revision().await);
    assert_eq!(transactions.len(), 2, "{transactions:?}");
    let leaf = |id, leaf: &str| transactions[&id].get(leaf).cloned().unwrap_or_default();
    assert_eq!([leaf(1, "result"), leaf(1, "origin")], ["failed", "service"]);
    assert_eq!(leaf(1, "reason"), error);
    assert_eq!(
        [leaf(1, "handler-tid"), leaf(2, "handler-tid")].map(|it| it.replace(['[', ']'], "")),
        [refused_tid, made_tid].map(|it| it.to_string())
    );
    assert_eq!(leaf(2, "result"), "success");
    agent.stop().await;
}

/// A port that a template enables, and that a handler gives a size once it is up.
fn gated() -> ServiceTypes {
    TestType::new()
        .handler("")
        .component("port")
        .state("enabled", r#"work = "enable.cli""#)
        .state("sized", &format!("{LINK_UP}\n{WORK}"))
        .template("enable.cli", "interface {{ params.port }}\n  enabled true\n")
        .types()
}

// proves sv.B114
#[tokio::test]
async fn a_call_says_what_woke_its_instance_unless_somebody_asked_for_it() {
    let (agent, _folder) = agent_of(gated()).await;
    let mut handler = TestHandler::attach(&agent).await;
    set(&agent, ACME, ETH1).await.unwrap().unwrap();
    let causes = |it: &AgentMessage| match it {
        AgentMessage::ServicesCommit { tid, causes, .. } => Some((*tid, causes.clone())),
        _ => None,
    };
    let (tid, woken) = handler.next(causes).await;
    handler.put_out(tid, MTU, "1300").await;
    assert_eq!(handler.closed().await, Ok(()));
    let acme = "access[name='acme']".parse().unwrap();
    let cause = &woken[&acme];
    assert_eq!(cause.kind, CauseKind::Condition);
    assert_eq!(&*cause.subject, "state /interfaces/interface[name=eth1]/state/oper-status");
    assert_eq!((cause.before.as_deref(), cause.after.as_deref()), (Some("DOWN"), Some("UP")));
    assert!(cause.places[0].contains("port eth1, sized"), "{cause:?}");

    let again = [acme.to_string()];
    let operations = Operations(agent.handle.clone());
    let redeployed =
        tokio::spawn(
            async move { operations.redeploy(&user("ada").into(), &again).await.map(drop) },
        );
    let (tid, asked) = handler.next(causes).await;
    handler.put_out(tid, MTU, "1300").await;
    redeployed.await.unwrap().unwrap();
    assert!(asked.is_empty(), "{asked:?}");
    agent.stop().await;
}

#[tokio::test]
async fn names_and_reasons_of_handlers_have_a_bounded_length() {
    let (agent, _folder) = agent().await;
    let handlers = agent.services.handlers().clone();
    let large = "x".repeat(3_500_000);
    for (name, want) in [("", "has a name"), (&*large, "at most 128 bytes"), ("a\nb", "control")] {
        let registration = Registration { name: name.into(), ..registration() };
        let refused = handlers.attach(&user("shelf"), registration).map(drop).unwrap_err();
        assert_eq!(refused.kind, HandlerErrorKind::Invalid);
        assert!(refused.text.contains(want), "{refused}");
    }
    let call =
        ServedCall { service: large.as_str().into(), ..registration().calls.pop_first().unwrap() };
    let unknown = Registration { calls: BTreeSet::from([call]), ..registration() };
    let refused = handlers.attach(&user("shelf"), unknown).map(drop).unwrap_err();
    assert!(refused.text.len() <= 4096, "{}", refused.text.len());

    let name: SmolStr = "n".repeat(128).into();
    let mut handler =
        TestHandler::attach_with(&agent, Registration { name, ..registration() }).await;
    let made = set(&agent, ACME, ETH1);
    let (tid, _) = handler.commit().await;
    let origin = large.clone();
    let reason = large;
    handler.say(HandlerMessage::Error { tid, origin, reason }).await;
    let error = ErrorChain(&made.await.unwrap().unwrap_err()).to_string();
    assert!(error.contains("failed in xxx") && error.len() < 10_000, "{}", error.len());
}

#[tokio::test]
async fn the_edits_of_a_handler_have_a_budget_of_octets() {
    let (agent, _folder) = agent().await;
    let mut handler = TestHandler::attach(&agent).await;
    let made = set(&agent, ACME, ETH1);
    let (tid, _) = handler.commit().await;
    let large = format!("{}1400", " ".repeat(4_000_000));
    for _ in 0..16 {
        handler.edit((tid, 0), MTU, &large).await;
    }
    handler.edit((tid, 0), MTU, &large).await;
    assert_eq!(handler.refusal().await, HandlerErrorKind::Exhausted);
    handler.end(tid, &[""]).await;
    let error = ErrorChain(&made.await.unwrap().unwrap_err()).to_string();
    assert!(error.contains("handler-edits"), "{error}");

    // The next transaction has a budget of its own.
    let made = set(&agent, ACME, ETH1);
    let (tid, _) = handler.commit().await;
    handler.done(tid).await;
    made.await.unwrap().unwrap();
}
