//! Actions through losses, with a clock of the test: rows of events, and every short sequence of them.

use holdfast_config::services::ActionPhase;
use holdfast_config::{ClaimKey, ServiceTag};

use super::*;

const ID: u64 = 7;
const TIMEOUT: u64 = 300;

fn name() -> ActionName {
    ActionName { service: "guest".into(), action: "create".into() }
}

fn request() -> ActionRequest {
    let tag = ServiceTag { service: "guest".into(), key_name: "name".into(), key: "web".into() };
    let component = ["day-0".into(), "web".into()];
    ActionRequest {
        id: ID,
        state: ClaimKey { tag, component, state: "requested".into() },
        phase: ActionPhase::Create,
        action: "create".into(),
        params: "{}".into(),
        vars: "".into(),
        trace: "t".into(),
        cause: None,
        timeout_s: TIMEOUT,
    }
}

fn registration(is_idempotent: bool) -> Registration {
    let actions = BTreeSet::from([name()]);
    let idempotent_actions = if is_idempotent { actions.clone() } else { BTreeSet::new() };
    Registration { name: "h".into(), actions, idempotent_actions, ..Registration::default() }
}

/// One action, with the sessions of its handler.
struct Driven {
    actions: OpenActions,
    wait: Option<ActionWait>,
    session: SessionId,
    is_idempotent: bool,
    /// Messages of the agent, and refusals, in one word each.
    said: Vec<String>,
}

impl Driven {
    fn new(is_idempotent: bool) -> Self {
        let actions = OpenActions::default();
        Self { actions, wait: None, session: 0, is_idempotent, said: Vec::new() }
    }

    fn note_sent(&mut self, messages: impl IntoIterator<Item = Addressed>) {
        for (session, message) in messages {
            assert_eq!(session, self.session, "nobody else is spoken to");
            self.said.push(match message {
                AgentMessage::Action(request) => format!("action{}", request.id),
                AgentMessage::QueryAction { id, .. } => format!("query{id}"),
                AgentMessage::ActionRecorded { id } => format!("recorded{id}"),
                other => panic!("{other:?}"),
            });
        }
    }

    fn news(&mut self, session: SessionId, news: ActionNews) {
        if let Err(error) = self.actions.note(session, ID, news) {
            self.said.push(format!("{:?}", error.kind));
        }
        // The queue sends what has to be sent again.
        let messages = self.actions.send_unsent();
        self.note_sent(messages);
    }

    async fn event(&mut self, event: &str) {
        let own = self.session;
        let status = ActionNews::Status;
        match event {
            "begin" | "resume" => {
                let is_new = event == "begin";
                let step = if is_new { Step::Unsent } else { Step::Lost };
                self.wait = Some(self.actions.open(request(), step));
                let messages =
                    if is_new { self.actions.send_unsent() } else { self.actions.ask_lost() };
                self.note_sent(messages);
            }
            "attach" => {
                self.session += 1;
                let queries = self.actions.attach(self.session, &registration(self.is_idempotent));
                let unsent = self.actions.send_unsent();
                self.note_sent(queries.into_iter().chain(unsent));
            }
            "detach" => self.actions.detach(self.session),
            "recorded" => {
                let message = self.actions.recorded(ID);
                self.note_sent(message);
            }
            "accepted" => self.news(own, ActionNews::Accepted),
            "result" => self.news(own, ActionNews::Ended(Ok("1".into()))),
            "error" => self.news(own, ActionNews::Ended(Err("no".into()))),
            "large" => self.news(own, ActionNews::Ended(Ok("1".repeat(MAX_RESULT + 1)))),
            "garbage" => self.news(own, ActionNews::Ended(Ok("{".into()))),
            "stale" => self.news(0, ActionNews::Ended(Ok("1".into()))),
            "unknown" => self.news(own, status(ReportedProgress::Unknown)),
            "unseen" => self.news(own, status(ReportedProgress::NeverSeen)),
            "running" => self.news(own, status(ReportedProgress::Running)),
            "ended" => self.news(own, status(ReportedProgress::Ended(Ok("2".into())))),
            seconds => {
                tokio::time::advance(Duration::from_secs(seconds.parse().unwrap())).await;
                self.actions.late(ID);
                let messages = self.actions.send_unsent();
                self.note_sent(messages);
            }
        }
    }

    /// Messages, and the end.
    fn outcome(mut self) -> String {
        let end = self.wait.as_mut().map(|it| it.end_rx.try_recv());
        let end = match end {
            Some(Ok(ActionEvent::Ended(result))) => format!("ended {result}"),
            Some(Ok(ActionEvent::Failed(reason))) => format!("failed {reason}"),
            Some(Ok(ActionEvent::Lost(reason))) => format!("lost {reason}"),
            Some(Ok(other)) => panic!("{other:?}"),
            Some(Err(_)) | None => "open".to_owned(),
        };
        format!("{} {end}", self.said.join(" ")).trim().to_owned()
    }
}

async fn outcome(is_idempotent: bool, events: &str) -> String {
    let mut driven = Driven::new(is_idempotent);
    for event in events.split_whitespace() {
        driven.event(event).await;
    }
    driven.outcome()
}

// proves sv.B70, sv.A44
#[tokio::test(start_paused = true)]
async fn an_action_is_followed_through_every_loss() {
    for (events, want) in [
        ("attach begin accepted result", "action7 ended 1"),
        ("attach begin result", "action7 ended 1"),
        ("attach begin accepted error", "action7 failed no"),
        ("attach begin large", "action7 Exhausted failed the result has more than 65536 bytes"),
        (
            "attach begin garbage",
            "action7 Invalid failed the result is not JSON: EOF while parsing an object at line 1 column 1",
        ),
        // Its time.
        ("attach begin 299", "action7 open"),
        ("attach begin 300", "action7 failed its handler has not accepted it within 300 s"),
        ("attach begin accepted 300 result", "action7 Unknown failed not done within 300 s"),
        // Nobody has it yet.
        ("begin attach", "action7 open"),
        ("begin 300", "failed the action was not begun: no handler came within 300 s"),
        // The handler is lost, and asked by id.
        ("attach begin accepted detach attach running result", "action7 query7 ended 1"),
        ("attach begin accepted detach attach ended", "action7 query7 ended 2"),
        ("attach begin detach attach result", "action7 query7 ended 1"),
        ("attach begin detach attach unseen result", "action7 query7 action7 ended 1"),
        (
            "attach begin accepted detach attach unknown",
            "action7 query7 lost its handler cannot tell what came of it",
        ),
        (
            "attach begin detach attach 30",
            "action7 query7 lost its handler has not said within 30 s what came of it",
        ),
        ("attach begin detach attach detach attach running", "action7 query7 query7 open"),
        ("attach begin detach 299", "action7 open"),
        (
            "attach begin detach 300",
            "action7 lost its handler was lost, and none came within 300 s",
        ),
        ("attach begin detach 200 attach running 299", "action7 query7 open"),
        // The agent was started anew.
        ("resume attach ended", "query7 ended 2"),
        ("attach resume unseen result", "query7 action7 ended 1"),
        // Messages from somebody else, about nothing, or unasked.
        ("attach begin stale", "action7 Unknown open"),
        ("attach result", "Unknown open"),
        ("attach begin ended", "action7 Precondition open"),
        ("attach begin result result", "action7 Unknown ended 1"),
        // The handler is told when it may forget the action, and is asked about it until then.
        ("attach begin result recorded", "action7 recorded7 ended 1"),
        (
            "attach begin 300 recorded",
            "action7 recorded7 failed its handler has not accepted it within 300 s",
        ),
        ("attach begin result recorded ended", "action7 recorded7 Unknown ended 1"),
        ("attach begin result detach attach ended recorded", "action7 query7 recorded7 ended 1"),
        ("attach begin result detach recorded attach", "action7 ended 1"),
        ("attach begin result 300 600", "action7 ended 1"),
    ] {
        assert_eq!(outcome(false, events).await, want, "{events}");
    }
}

// proves sv.B70
#[tokio::test(start_paused = true)]
async fn an_action_that_may_be_done_twice_is_sent_again_where_nobody_can_tell() {
    for (events, want) in [
        ("attach begin accepted detach attach unknown result", "action7 query7 action7 ended 1"),
        ("attach begin detach attach 30", "action7 query7 action7 open"),
        ("attach begin detach attach running", "action7 query7 open"),
        (
            "attach begin detach 300",
            "action7 lost its handler was lost, and none came within 300 s",
        ),
        ("attach begin 300", "action7 failed its handler has not accepted it within 300 s"),
    ] {
        assert_eq!(outcome(true, events).await, want, "{events}");
    }
}

// proves sv.B70
#[tokio::test(start_paused = true)]
async fn no_sequence_of_events_sends_an_action_twice_that_may_have_been_done() {
    const EVENTS: [&str; 7] =
        ["attach", "detach", "accepted", "unknown", "unseen", "running", "31"];
    const LENGTH: u32 = 6;
    let mut repeated = 0;
    for number in 0..EVENTS.len().pow(LENGTH) {
        let digits = (0..LENGTH).map(|at| number / EVENTS.len().pow(at) % EVENTS.len());
        let events: Vec<_> = digits.map(|digit| EVENTS[digit]).collect();
        let mut driven = Driven::new(false);
        driven.event("attach").await;
        driven.event("begin").await;
        // A handler has it from the first message on, until one says that it never saw it.
        for event in &events {
            let before = driven.said.iter().filter(|it| *it == "action7").count();
            driven.event(event).await;
            let after = driven.said.iter().filter(|it| *it == "action7").count();
            assert!(after == before || *event == "unseen", "{events:?}: {:?}", driven.said);
            repeated += after - before;
        }
    }
    assert!(repeated > 0, "the handler is sent what it has never seen");
}
