//! A handler that does one step at a time, and notes its actions as one does that keeps a journal on disk.

use std::collections::BTreeMap;

use holdfast_base::now_ns;
use holdfast_config::services::Surroundings;

use super::*;

/// Reaction of a handler to the oldest transaction that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    Done,
    /// States that are to be left are kept.
    Keep,
    Error,
    More,
}

impl Reaction {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Keep => "kept",
            Self::Error => "error",
            Self::More => "more time",
        }
    }
}

/// Extent to which an action is known to have gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    Running,
    Ended {
        is_success: bool,
    },
    /// The agent has recorded the end, so that nobody asks for it any more.
    Recorded,
}

/// Work of a handler: the opaque values that it returns, with what it has put out.
pub(super) type Work = fn(&HandlerCall, Option<String>) -> (Vec<(String, String)>, String);

/// A handler that does a step when it is told to.
pub(super) struct SteppedHandler {
    registration: Registration,
    /// Path that a call reads before its work, by its parameters, and the work.
    reads: fn(&HandlerCall) -> String,
    work: Work,
    pub(super) process: Option<TestHandler>,
    /// Transactions that were neither closed nor aborted, with the calls that are not answered.
    pub(super) open: BTreeMap<u64, Vec<(usize, HandlerCall)>>,
    /// Knowledge of all actions, which outlasts the process.
    pub(super) journal: BTreeMap<u64, Noted>,
    /// False for one that has lost its journal, and says that it cannot tell.
    pub(super) has_journal: bool,
    /// Names of the actions that were begun.
    pub(super) begun: Vec<SmolStr>,
    /// Actions that the process was sent, and those that it was asked about: the agent waits for these alone.
    sent: BTreeSet<u64>,
    pub(super) asked: BTreeSet<u64>,
}

impl SteppedHandler {
    pub(super) fn new(
        registration: Registration,
        reads: fn(&HandlerCall) -> String,
        work: Work,
    ) -> Self {
        Self {
            registration,
            reads,
            work,
            process: None,
            open: BTreeMap::new(),
            journal: BTreeMap::new(),
            has_journal: true,
            begun: Vec::new(),
            sent: BTreeSet::new(),
            asked: BTreeSet::new(),
        }
    }

    /// Starts the process, unless it is there.
    pub(super) fn attach(&mut self, agent: &Agent) {
        if self.process.is_none() {
            self.sent.clear();
            self.asked.clear();
            self.process = Some(TestHandler::connect(agent, self.registration.clone()));
        }
    }

    /// Ends the process. Messages that it has not read are lost, and calls that it has not answered belong to nobody.
    pub(super) fn die(&mut self) -> bool {
        self.open.clear();
        self.process.take().is_some()
    }

    /// Reads the messages of the agent. True when there was one that asks for something.
    pub(super) async fn listen(&mut self) -> bool {
        let messages = self.process.as_mut().map(TestHandler::sent).unwrap_or_default();
        let mut is_asked = false;
        for message in messages {
            is_asked |=
                matches!(message, AgentMessage::ServicesCommit { .. } | AgentMessage::Action(_));
            let answer = self.receive(message);
            if let (Some(process), Some(answer)) = (&self.process, answer) {
                process.say(answer).await;
            }
        }
        is_asked
    }

    /// Notes a message, and returns the answer to it.
    fn receive(&mut self, message: AgentMessage) -> Option<HandlerMessage> {
        match message {
            AgentMessage::ServicesCommit { tid, calls, .. } => {
                assert!(self.open.insert(tid, calls).is_none(), "a transaction came twice");
            }
            AgentMessage::Closed { tid, .. } | AgentMessage::Abort { tid, .. } => {
                assert!(self.open.remove(&tid).is_some(), "it ends what was begun, once");
            }
            AgentMessage::Action(ActionRequest { id, action, .. }) => {
                let before = self.journal.insert(id, Noted::Running);
                assert_eq!(before, None, "the action {id} came twice");
                self.begun.push(action);
                self.sent.insert(id);
                return Some(HandlerMessage::Action { id, news: ActionNews::Accepted });
            }
            AgentMessage::QueryAction { id, .. } => {
                self.asked.insert(id);
                let news = ActionNews::Status(self.status(id));
                return Some(HandlerMessage::Action { id, news });
            }
            AgentMessage::ActionRecorded { id } => self.note_recorded(id),
            AgentMessage::Synced => {
                // An action that has ended, and was not asked about, is recorded.
                let ended = self.journal.iter().filter(|(_, it)| matches!(it, Noted::Ended { .. }));
                let ended: Vec<u64> = ended.map(|(id, _)| *id).collect();
                let recorded = ended.into_iter().filter(|id| !self.asked.contains(id));
                recorded.collect::<Vec<_>>().into_iter().for_each(|id| self.note_recorded(id));
            }
            AgentMessage::Ping => return Some(HandlerMessage::Pong),
            AgentMessage::Refused { error, .. } => panic!("{error}"),
            AgentMessage::Registered | AgentMessage::Drain => {}
        }
        None
    }

    fn note_recorded(&mut self, id: u64) {
        self.journal.insert(id, Noted::Recorded);
    }

    fn status(&self, id: u64) -> ReportedProgress {
        if !self.has_journal {
            return ReportedProgress::Unknown;
        }
        match self.journal.get(&id) {
            None => ReportedProgress::NeverSeen,
            Some(Noted::Running) => ReportedProgress::Running,
            Some(Noted::Ended { is_success }) => {
                ReportedProgress::Ended(result_of_action(*is_success))
            }
            Some(Noted::Recorded) => panic!("the action {id} was recorded, and is asked about"),
        }
    }

    /// Does something with the oldest transaction that waits for it. False when there is none.
    pub(super) async fn react(&mut self, reaction: Reaction) -> bool {
        let Some(process) = &self.process else { return false };
        let Some((tid, calls)) = self.open.iter_mut().find(|(_, calls)| !calls.is_empty()) else {
            return false;
        };
        let tid = *tid;
        match reaction {
            Reaction::Error => {
                calls.clear();
                let origin = String::new();
                let reason = "no power".to_owned();
                process.say(HandlerMessage::Error { tid, origin, reason }).await;
            }
            Reaction::More => process.say(HandlerMessage::More { tid, seconds: 60 }).await,
            Reaction::Done | Reaction::Keep => {
                let mut served = Vec::new();
                for (call, content) in std::mem::take(calls) {
                    let is_kept =
                        reaction == Reaction::Keep && content.place.phase == CallPhase::Delete;
                    let keep = if is_kept { "in use".to_owned() } else { String::new() };
                    let opaque = match content.place.phase {
                        CallPhase::Delete => String::new(),
                        _ => do_work(process, (tid, call), &content, self.reads, self.work).await,
                    };
                    served.push(ServedWork { call, opaque, keep });
                }
                process.say(HandlerMessage::Done { tid, served }).await;
            }
        }
        true
    }

    /// Ends the oldest action that is under way. False when there is none.
    pub(super) async fn end(&mut self, is_success: bool) -> bool {
        let Some(process) = &self.process else { return false };
        let mut running = self.journal.iter_mut().filter(|(_, it)| **it == Noted::Running);
        let Some((id, noted)) = running.next() else { return false };
        *noted = Noted::Ended { is_success };
        if self.sent.contains(id) || self.asked.contains(id) {
            let news = ActionNews::Ended(result_of_action(is_success));
            process.say(HandlerMessage::Action { id: *id, news }).await;
        }
        true
    }
}

fn result_of_action(is_success: bool) -> Result<String, String> {
    if is_success { Ok("null".to_owned()) } else { Err("no power".to_owned()) }
}

async fn do_work(
    process: &TestHandler,
    at: (u64, usize),
    call: &HandlerCall,
    reads: fn(&HandlerCall) -> String,
    work: Work,
) -> String {
    // The transaction may have been given up meanwhile.
    let read = process.read_for(at, &reads(call)).unwrap_or_default();
    let (edits, opaque) = work(call, read.into_iter().next().map(|(_, value)| value));
    for (path, value) in edits {
        process.edit(at, &path, &value).await;
    }
    opaque
}

/// True when a walk of all instances changes nothing, and asks nobody.
pub(super) fn is_settled(agent: &Agent) -> bool {
    let configuration = agent.handle.configuration();
    let surroundings = Surroundings {
        state: Some(Arc::new(agent.handle.observed_box())),
        now_ns: now_ns(),
        is_lenient: true,
        due: configuration.layers().book.iter().map(|(tag, _)| tag.clone()).collect(),
        answers: agent.services.handlers().answers_at_hand(),
        may_ask: true,
        ..Surroundings::default()
    };
    configuration.trial(&surroundings).is_empty()
}

/// True when an action is queued or under way.
pub(super) fn has_open_actions(agent: &Agent) -> bool {
    let configuration = agent.handle.configuration();
    let mut plans = configuration.layers().book.iter();
    plans.any(|(_, plan)| plan.calls().any(|it| it.action.is_under_way()))
}

/// Each state of all instances, without times.
pub(super) fn plans(configuration: &Configuration) -> Vec<String> {
    let mut lines = Vec::new();
    for (tag, plan) in configuration.layers().book.iter() {
        let whole = (&plan.version, &plan.leaving, &plan.failure);
        for component in &plan.components {
            for state in &component.states {
                let action = state.action.as_ref().map(|it| it.status());
                let shown = (state.is_reached, &state.failure, &state.waits_for, action);
                let kind = &component.component_type;
                let name = &component.name;
                let [opaque, state] = [&*state.opaque, state.name.as_str()];
                lines.push(format!("{tag} {kind} {name} {state}: {shown:?} {opaque} {whole:?}"));
            }
        }
    }
    lines
}
