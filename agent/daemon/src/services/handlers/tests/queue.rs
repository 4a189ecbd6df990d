//! The queue of actions, with a handler that carries them out when a test says so.

use std::collections::BTreeMap;

use holdfast_config::services::CauseKind;
use holdfast_core::{Preview, Walks};

use super::*;

/// A type whose state has an action, with these members, and another action when it is left.
fn acting_type(members: &str) -> TestType {
    let lines = format!(
        r#"work = "size.cli"
action = {{ handler = "prepare", params = {{ shelf = "params.shelf" }}{members} }}
delete = {{ action = {{ handler = "remove" }} }}"#
    );
    let size = "interface {{ params.port }}\n  mtu 1400\n";
    TestType::new().handler("").component("port").state("sized", &lines).template("size.cli", size)
}

/// A type with a port that is enabled, and asks for an action once it is up.
fn gated_type() -> TestType {
    let action = r#"action = { handler = "prepare", params = { shelf = "params.shelf" } }"#;
    TestType::new()
        .handler("")
        .component("port")
        .state("enabled", r#"work = "enable.cli""#)
        .state("prepared", &format!("{LINK_UP}\n{action}"))
        .template("enable.cli", "interface {{ params.port }}\n  enabled true\n")
}

/// Actions on one shelf are carried out one after the other.
const SERIAL: &str = ", serial = \"params.shelf\"";
const PARAMS: &str = r#"{"port":"eth1","shelf":"left"}"#;

/// An agent with a handler that carries out the actions of its type.
async fn acting(of: &TestType) -> (Agent, TempDir, TestHandler) {
    let (agent, folder) = agent_of(of.types()).await;
    let handler = TestHandler::attach_with(&agent, for_actions()).await;
    (agent, folder, handler)
}

pub(super) fn for_actions() -> Registration {
    let name = |action: &str| ActionName { service: "access".into(), action: action.into() };
    let actions = ["prepare", "remove"].map(name).into();
    Registration { name: "shelf".into(), actions, ..Registration::default() }
}

impl TestHandler {
    /// The next action.
    async fn action(&mut self) -> ActionRequest {
        let action = |it: &AgentMessage| match it {
            AgentMessage::Action(request) => Some(request.clone()),
            _ => None,
        };
        self.next(action).await
    }

    /// Names of the actions that were sent since the last message that was taken.
    fn sent_actions(&mut self) -> Vec<String> {
        let action = |message| match message {
            AgentMessage::Action(request) => Some(request.action.to_string()),
            _ => None,
        };
        self.sent().into_iter().filter_map(action).collect()
    }

    /// Ends an action.
    async fn result(&self, id: u64, result: Result<(), &str>) {
        let ended = result.map(|()| "null".to_owned()).map_err(ToOwned::to_owned);
        self.say(HandlerMessage::Action { id, news: ActionNews::Ended(ended) }).await;
    }
}

fn redeployment() -> Intent {
    let due = BTreeSet::from(["access[name='acme']".parse().unwrap()]);
    Intent::Walk(Walks { due, is_redeployment: true, ..Walks::default() })
}

/// The status of the action of `acme`, also of one that has ended.
fn action_status(agent: &Agent) -> &'static str {
    let configuration = agent.handle.configuration();
    let plan = configuration.layers().book.get(&"access[name='acme']".parse().unwrap());
    let calls = plan.into_iter().flat_map(|plan| &plan.components);
    let mut actions = calls.flat_map(|it| &it.states).filter_map(|it| it.action.as_ref());
    actions.next().map_or("none", |action| action.status())
}

/// Plans a change, which leaves the action of the instance as it is.
async fn planned(agent: &Agent, handler: &mut TestHandler, intent: Intent) -> Preview {
    let before = action_status(agent);
    let options = CommitOptions::default();
    let preview = agent.handle.preview(&user("ada"), intent, options).await.unwrap();
    agent.turns().await;
    assert_eq!((handler.sent_actions(), action_status(agent)), (Vec::new(), before));
    preview
}

// proves sv.B71
#[tokio::test]
async fn a_dry_run_begins_no_action() {
    let (agent, _folder, mut handler) = acting(&acting_type("")).await;
    let creation = Intent::edit(edit(ACME, PARAMS));
    let preview = planned(&agent, &mut handler, creation).await;
    let reached = preview.services.first[0].states.iter().map(|it| it.effect.name());
    assert!(reached.clone().any(|effect| effect == "reached"), "it is walked");

    set(&agent, ACME, PARAMS).await.unwrap().unwrap();
    let action = handler.action().await;
    assert_eq!(action.action, "prepare");
    handler.result(action.id, Err("no power")).await;
    until(&agent, || action_status(&agent) == "failed").await;
    planned(&agent, &mut handler, redeployment()).await;
    agent.handle.change(&user("ada"), redeployment()).await.unwrap();
    let again = handler.action().await;
    assert_eq!(again.action, "prepare");
    handler.result(again.id, Ok(())).await;
    until(&agent, || action_status(&agent) == "create-reached").await;
    planned(&agent, &mut handler, redeployment()).await;

    let preview = planned(&agent, &mut handler, Intent::edit(deletion(ACME))).await;
    assert!(preview.operations.total > 0);
    agent.handle.commit(&user("ada"), deletion(ACME), CommitOptions::default()).await.unwrap();
    let action = handler.action().await;
    assert_eq!(action.action, "remove");
    handler.result(action.id, Ok(())).await;
    until(&agent, || agent.handle.configuration().layers().book.is_empty()).await;
    agent.stop().await;
}

/// Instances that want actions at the same time.
const INSTANCES: usize = 12;

/// Makes the instances, which share two shelves.
async fn make_instances(agent: &Agent) {
    for number in 0..INSTANCES {
        let shelf = ["left", "right"][number % 2];
        let path = format!("/services/access[name=n{number}]");
        let port = "eth1";
        let params = format!(r#"{{"port":"{port}","shelf":"{shelf}"}}"#);
        set(agent, &path, &params).await.unwrap().unwrap();
    }
}

fn shelf(action: &ActionRequest) -> String {
    let params: serde_json::Value = serde_json::from_str(&action.params).unwrap();
    params["shelf"].as_str().unwrap().to_owned()
}

// proves sv.B75
#[tokio::test]
async fn actions_on_one_resource_run_one_after_the_other_and_others_beside_them() {
    let (agent, _folder, mut handler) = acting(&acting_type(SERIAL)).await;
    make_instances(&agent).await;
    let mut left = BTreeMap::from(["left", "right"].map(|it| (it.to_owned(), INSTANCES / 2)));
    let mut open = BTreeMap::new();
    let mut ids = BTreeSet::new();
    while !left.is_empty() {
        while open.len() < left.len() {
            let action = handler.action().await;
            assert!(ids.insert(action.id), "each is sent once");
            let before = open.insert(shelf(&action), action.id);
            assert_eq!(before, None, "the shelf is in use");
        }
        agent.turns().await;
        assert_eq!(handler.sent_actions(), [""; 0], "both shelves are in use");
        // Now the one, now the other.
        let ended = if ids.len() % 3 == 0 { open.pop_last() } else { open.pop_first() };
        let (shelf, id) = ended.unwrap();
        handler.result(id, Ok(())).await;
        *left.get_mut(&shelf).unwrap() -= 1;
        left.retain(|_, count| *count > 0);
    }
    assert_eq!(ids.len(), INSTANCES);
    agent.stop().await;
}

// proves sv.B75
#[tokio::test]
async fn a_resource_stays_in_use_while_nobody_knows_what_came_of_its_action() {
    let (agent, _folder, mut handler) = acting(&acting_type(SERIAL)).await;
    make_instances(&agent).await;
    let both = [handler.action().await, handler.action().await];
    drop(handler);
    agent.turns().await;
    let mut handler = TestHandler::attach_with(&agent, for_actions()).await;
    agent.turns().await;
    assert_eq!(handler.sent_actions(), [""; 0], "it is asked first");
    let status = |id, progress| HandlerMessage::Action { id, news: ActionNews::Status(progress) };
    handler.say(status(both[0].id, ReportedProgress::Running)).await;
    handler.say(status(both[1].id, ReportedProgress::Unknown)).await;
    // A call in doubt is left to an operator, and does not hold the others up.
    let next = handler.action().await;
    assert_eq!(shelf(&next), shelf(&both[1]));
    agent.turns().await;
    assert_eq!(handler.sent_actions(), [""; 0]);
    handler.result(both[0].id, Ok(())).await;
    assert_eq!(shelf(&handler.action().await), shelf(&both[0]));
    agent.stop().await;
}

// proves sv.B75
#[tokio::test]
async fn eight_actions_run_at_a_time() {
    const AT_ONCE: usize = 8;
    let (agent, _folder, mut handler) = acting(&acting_type("")).await;
    make_instances(&agent).await;
    let mut open = Vec::new();
    for ended in 0..INSTANCES {
        while open.len() < AT_ONCE.min(INSTANCES - ended) {
            open.push(handler.action().await.id);
        }
        agent.turns().await;
        assert_eq!(handler.sent_actions(), [""; 0]);
        handler.result(open.remove(open.len() / 2), Ok(())).await;
    }
    agent.stop().await;
}

/// The tree cannot be evaluated while its port has this description.
const UNKNOWN: &str =
    "config('/interfaces/interface[name={}]/description', 'eth0') != 'unknown' or nothing";

// proves sv.B67
#[tokio::test]
async fn the_end_of_an_action_is_recorded_while_its_instance_cannot_be_evaluated() {
    for result in [Ok(()), Err("no power")] {
        let (agent, folder, mut handler) = acting(&acting_type("").condition(UNKNOWN)).await;
        set(&agent, ACME, PARAMS).await.unwrap().unwrap();
        let action = handler.action().await;
        let description = "/interfaces/interface[name=eth0]/description";
        set(&agent, description, "\"unknown\"").await.unwrap().unwrap();
        let failure = || {
            let configuration = agent.handle.configuration();
            let plans = configuration.layers().book.iter();
            plans.filter_map(|(_, plan)| plan.failure.clone()).next()
        };
        until(&agent, || failure().is_some()).await;
        handler.result(action.id, result).await;
        let recorded = |it: &AgentMessage| match it {
            AgentMessage::ActionRecorded { id } => Some(*id),
            AgentMessage::QueryAction { .. } => panic!("it has said so"),
            _ => None,
        };
        assert_eq!(handler.next(recorded).await, action.id);
        let status = if result.is_ok() { "create-reached" } else { "failed" };
        assert_eq!(action_status(&agent), status);
        agent.turns().await;
        assert!(handler.sent().is_empty(), "nobody asks for it again");

        set(&agent, description, "\"known\"").await.unwrap().unwrap();
        until(&agent, || failure().is_none()).await;
        assert_eq!((action_status(&agent), handler.sent_actions()), (status, Vec::new()));
        agent.stop().await;
        drop(folder);
    }
}

/// Leaves of the only entry of the queue, by their names.
async fn queue_entry(agent: &Agent) -> BTreeMap<String, String> {
    let revision = agent.handle.current_revision().await;
    let schema = revision.schema(Origin::Native);
    let patterns = schema.resolve_read(&"/service-state/queue/*".parse().unwrap()).unwrap();
    let leaves = patterns.iter().flat_map(|it| revision.native.leaves(it));
    let name = |path: &InstancePath| schema.node(path.last().unwrap().node).name.to_string();
    leaves.map(|(path, value)| (name(&path), value.to_string())).collect()
}

// proves sv.B114
#[tokio::test]
async fn an_action_says_who_asked_for_it_or_what_woke_its_instance() {
    let (agent, _folder, mut handler) = acting(&acting_type("")).await;
    set(&agent, ACME, PARAMS).await.unwrap().unwrap();
    let asked = handler.action().await;
    let cause = asked.cause.unwrap();
    assert_eq!((&*cause.kind, &*cause.author.user), ("set", "ada"));
    assert_eq!((&cause.author.trace, &cause.walk), (&asked.trace, &None));
    let entry = queue_entry(&agent).await;
    assert_eq!([&entry["kind"], &entry["user"], &entry["trace-id"]], ["set", "ada", &*asked.trace]);
    assert!(!entry.contains_key("cause"), "{entry:?}");
    handler.result(asked.id, Err("no power")).await;
    until(&agent, || action_status(&agent) == "failed").await;

    agent.handle.change(&user("bob"), redeployment()).await.unwrap();
    let cause = handler.action().await.cause.unwrap();
    assert_eq!((&*cause.kind, &*cause.author.user), ("redeploy", "bob"));
    agent.stop().await;

    let (agent, _folder) = agent_of(gated_type().types()).await;
    let actions = for_actions().actions.into_iter().filter(|it| it.action == "prepare").collect();
    let registration = Registration { actions, ..for_actions() };
    let mut handler = TestHandler::attach_with(&agent, registration).await;
    set(&agent, ACME, PARAMS).await.unwrap().unwrap();
    let woken = handler.action().await;
    let cause = woken.cause.unwrap();
    assert_eq!((&*cause.kind, &*cause.author.user), ("walk", "service access[name='acme']"));
    let walk = cause.walk.clone().unwrap();
    let oper_status = "state /interfaces/interface[name=eth1]/state/oper-status";
    assert_eq!((walk.kind, &*walk.subject), (CauseKind::Condition, oper_status));
    assert_eq!((walk.before.as_deref(), walk.after.as_deref()), (Some("DOWN"), Some("UP")));
    let entry = queue_entry(&agent).await;
    let shown = ["kind", "cause", "subject", "before", "after"].map(|it| entry[it].clone());
    assert_eq!(shown, ["walk", "condition", oper_status, "DOWN", "UP"]);
    agent.stop().await;
}
