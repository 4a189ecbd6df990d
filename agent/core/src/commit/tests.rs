//! Rows of the state machine: state and input, next state and effects.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use holdfast_common::parallel;
use holdfast_config::edit::{Edit, EditTarget, Payload};
use holdfast_config::schema::Origin;
use holdfast_config::services::NeededCalls;
use holdfast_config::{Configuration, Layers, Models, Namespace};
use holdfast_platform::kinds;
use holdfast_platform::objects::Registry;
use holdfast_scheduler::{Engine, Key, KindId, OperationError, TransactionOutcome, TxnId};
use holdfast_store::StoreError;
use holdfast_telemetry::{DerivedLists, Revision};

use super::*;
use crate::examination::{HandlerTransaction, ObservedBox, UnansweredCalls};
use crate::publication::{BuilderPanicked, BuiltRevision};
use crate::request::BoundedList;
use crate::service_history::HistoryChange;
use crate::shared_engine::SharedEngine;

static MODELS: LazyLock<Arc<Models>> = LazyLock::new(|| Arc::new(Models::load().unwrap()));

/// Transaction of the engine that belongs to the commit.
const TXN: TxnId = TxnId(7);
const OTHER: TxnId = TxnId(8);

const STATES: [&str; 21] = [
    "Admitted",
    "Examining",
    "Asking",
    "Answered",
    "Waiting",
    "Planning",
    "Preparing",
    "Recording",
    "GivenUp",
    "Executing",
    "Judging",
    "Finalizing",
    "Aborting",
    "StartingUndo",
    "Reverting",
    "Applying",
    "Applying large",
    "Replying",
    "Building",
    "Confirming",
    "Ended",
];

const INPUTS: [&str; 30] = [
    "unanswered",
    "answered",
    "answered: refused",
    "turn: answered",
    "change",
    "confirm",
    "cancel",
    "examined",
    "examined: refused",
    "clear",
    "outdated",
    "abandoned",
    "planned",
    "planned: refused",
    "prepared",
    "recorded",
    "recorded: disk",
    "done",
    "failed",
    "cancelled",
    "other done",
    "other failed",
    "judged",
    "finished",
    "finished: disk",
    "undo started",
    "no undo",
    "applied",
    "replied",
    "built",
];

/// Rows that are the same for all kinds of commits that are carried out.
const ROWS: &[(&str, &str, &str, &str)] = &[
    ("Admitted", "change", "Examining", "examine"),
    ("Admitted", "confirm", "Confirming", "confirm"),
    ("Examining", "examined", "Waiting", "wait"),
    ("Examining", "examined: refused", "Ended", "release, answer refused"),
    ("Examining", "cancel", "Ended", "release, answer abandoned"),
    ("Examining", "unanswered", "Asking", "ask"),
    ("Asking", "answered", "Answered", "note answers"),
    ("Asking", "answered: refused", "Ended", "release, answer refused"),
    ("Asking", "cancel", "Ended", "release, answer abandoned"),
    ("Answered", "turn: answered", "Examining", "examine answered"),
    ("Waiting", "clear", "Planning", "plan"),
    ("Waiting", "outdated", "Examining", "examine"),
    ("Waiting", "abandoned", "Ended", "release, answer abandoned"),
    ("Planning", "planned", "Preparing", "record"),
    ("Planning", "planned: refused", "Ended", "release, answer refused"),
    ("Preparing", "prepared", "Recording", ""),
    ("Recording", "recorded", "Executing", "start 7"),
    ("Recording", "recorded: disk", "Reverting", "cancel 7"),
    ("Recording", "done", "GivenUp", ""),
    ("Recording", "failed", "GivenUp", ""),
    ("Recording", "cancelled", "GivenUp", ""),
    ("GivenUp", "recorded", "Aborting", "abort"),
    ("GivenUp", "recorded: disk", "Ended", "release, answer disk"),
    ("Executing", "done", "Finalizing", "finalize"),
    ("Judging", "judged", "Finalizing", "finalize with 1 row"),
    ("Executing", "failed", "Aborting", "abort"),
    ("Executing", "cancelled", "Aborting", "abort"),
    ("Finalizing", "finished", "Applying", "set credentials, apply"),
    ("Finalizing", "finished: disk", "StartingUndo", "undo"),
    ("Aborting", "finished", "Ended", "release, answer failed"),
    ("Aborting", "finished: disk", "Ended", "release, answer failed"),
    ("StartingUndo", "undo started", "Reverting", ""),
    ("StartingUndo", "no undo", "Ended", "release, answer disk"),
    ("Reverting", "done", "Ended", "release, answer disk"),
    ("Reverting", "failed", "Ended", "release, answer disk"),
    ("Reverting", "cancelled", "Ended", "release, answer disk"),
    ("Applying", "applied", "Ended", "publish, answer 3"),
    ("Applying large", "applied", "Replying", "answer 3 ahead"),
    ("Replying", "replied", "Building", "build"),
    ("Building", "built", "Ended", "publish built"),
    ("Confirming", "finished", "Ended", "close window, release, answer unchanged"),
    ("Confirming", "finished: disk", "Ended", "release, answer disk"),
];

fn configuration() -> Configuration {
    Configuration::new(Arc::clone(&MODELS), Layers::new())
}

/// A configuration after an edit of more entries than are few.
fn large() -> Configuration {
    let route = |n: usize| {
        let prefix = format!("10.{}.{}.{}/32", n >> 16, n >> 8 & 255, n & 255);
        format!(r#"{{"prefix": "{prefix}", "config": {{"prefix": "{prefix}"}}}}"#)
    };
    let routes: Vec<_> = (0..=parallel::FEW).map(route).collect();
    let text = format!(
        r#"{{"openconfig-network-instance:network-instances": {{"network-instance": [{{
            "name": "DEFAULT", "config": {{"name": "DEFAULT"}}, "protocols": {{"protocol": [{{
                "identifier": "openconfig-policy-types:STATIC", "name": "static",
                "config": {{"identifier": "openconfig-policy-types:STATIC", "name": "static"}},
                "static-routes": {{"static": [{}]}}}}]}}}}]}}}}"#,
        routes.join(",")
    );
    let target = EditTarget { origin: Origin::OpenConfig, path: "/".parse().unwrap() };
    let payload = Payload::Json { text: text.into(), ietf: true };
    let edit = Edit { updates: vec![(target, payload)], ..Edit::default() };
    configuration().edit(&edit).unwrap()
}

fn intent() -> Box<Intent> {
    Box::new(Intent::Switch { service: Namespace::Gnsi, on: true })
}

fn candidate() -> Box<Candidate> {
    Box::new(Candidate {
        intent: intent(),
        footprint: Arc::new(Footprint::everything()),
        configuration: configuration(),
        changes: Vec::new(),
        rows: Vec::new(),
        credentials: CredentialValues::default(),
        differences: BoundedList::default(),
        services: BoundedList::default(),
        unready: BTreeSet::new(),
        packages: Vec::new(),
        touched: BTreeSet::new(),
        difference: None,
    })
}

fn unanswered() -> UnansweredChange {
    let ground = configuration().ground();
    let needed = Arc::new(NeededCalls { calls: Vec::new(), ground });
    let state = Arc::new(ObservedBox {
        revision: Arc::new(Revision::new(Arc::clone(&MODELS), DerivedLists::default())),
        configuration: configuration(),
        engine: SharedEngine::new(Engine::new(kinds::registry())),
        registry: Arc::new(Registry::new(&MODELS.native).unwrap()),
    });
    UnansweredChange { intent: intent(), calls: UnansweredCalls { needed, state } }
}

#[derive(Debug)]
struct NoTransaction;

impl HandlerTransaction for NoTransaction {
    fn tid(&self) -> u64 {
        1
    }

    fn end(self: Box<Self>, _: Result<(), String>) {}
}

fn reply() -> HandlerReply {
    HandlerReply { answers: Vec::new(), transaction: Box::new(NoTransaction) }
}

fn planned(configuration: Configuration) -> Box<PlannedChange> {
    let credentials = CredentialValues::default();
    let changes = Arc::default();
    let unready = BTreeSet::new();
    Box::new(PlannedChange { configuration, changes, credentials, unready, instances: 0 })
}

/// A change that has walked an instance of a service.
fn walked() -> Box<PlannedChange> {
    let unready = BTreeSet::from(["access[name='acme']".parse().unwrap()]);
    Box::new(PlannedChange { unready, ..*planned(configuration()) })
}

/// The change in which that instance is ready: another configuration, and a row.
fn judged() -> Box<JudgedChange> {
    let rows = vec![Change::layer(b"plan".into(), Some(b"ready".into()))];
    Box::new(JudgedChange { configuration: large(), rows })
}

fn applied() -> Arc<AppliedChange> {
    let stamp = CommitStamp { time_ns: 1, revision: 3 };
    Arc::new(AppliedChange {
        old: configuration(),
        changes: Arc::default(),
        confirm_id: None,
        history: HistoryChange::default(),
        stamp,
    })
}

fn refusal() -> CommitError {
    CommitError::Internal { reason: "refused".into() }
}

fn failed(txn: TxnId) -> TransactionOutcome {
    let key = Key::of(KindId(1));
    let error = OperationError::message("failed");
    TransactionOutcome::Failed { txn, key, label: "a link".into(), error, undone: true }
}

fn done(txn: TxnId) -> TransactionOutcome {
    TransactionOutcome::Done { txn, pending: Vec::new(), failed: Vec::new() }
}

fn state(name: &str) -> State {
    let txn = TXN;
    let change = planned(configuration());
    match name {
        "Admitted" => State::Admitted,
        "Examining" => State::Examining,
        "Asking" => State::Asking { intent: intent() },
        "Answered" => State::Answered { intent: intent() },
        "Waiting" => State::Waiting { candidate: candidate() },
        "Planning" => State::Planning,
        "Preparing" => State::Preparing,
        "Recording" => State::Recording { txn, change },
        "GivenUp" => State::GivenUp { outcome: failed(txn), change },
        "GivenUp, done" => State::GivenUp { outcome: done(txn), change },
        "Executing" => State::Executing { txn, change },
        "Executing walk" => State::Executing { txn, change: walked() },
        "GivenUp walk, done" => State::GivenUp { outcome: done(txn), change: walked() },
        "Judging" => State::Judging { change: walked() },
        "Finalizing" => State::Finalizing { change },
        "Finalizing large" => State::Finalizing { change: planned(large()) },
        "Aborting" => State::Aborting { error: failure(failed(txn), &change).unwrap() },
        "StartingUndo" => State::StartingUndo { error: StoreError::Stopped },
        "Reverting" => State::Reverting { txn, error: StoreError::Stopped },
        "Applying" => State::Applying { is_large: false },
        "Applying large" => State::Applying { is_large: true },
        "Replying" => State::Replying { applied: applied() },
        "Building" => State::Building { applied: applied() },
        "Confirming" => State::Confirming,
        "Ended" => State::Ended,
        other => panic!("`{other}` is not a state"),
    }
}

fn name(state: &State) -> &'static str {
    match state {
        State::Admitted => "Admitted",
        State::Examining => "Examining",
        State::Asking { .. } => "Asking",
        State::Answered { .. } => "Answered",
        State::Waiting { .. } => "Waiting",
        State::Planning => "Planning",
        State::Preparing => "Preparing",
        State::Recording { txn: TXN, .. } => "Recording",
        State::GivenUp { .. } => "GivenUp",
        State::Executing { txn: TXN, .. } => "Executing",
        State::Judging { .. } => "Judging",
        State::Finalizing { .. } => "Finalizing",
        State::Aborting { .. } => "Aborting",
        State::StartingUndo { .. } => "StartingUndo",
        State::Reverting { txn: TXN, .. } => "Reverting",
        State::Recording { .. } | State::Executing { .. } | State::Reverting { .. } => {
            "the transaction of another commit"
        }
        State::Applying { is_large: false } => "Applying",
        State::Applying { is_large: true } => "Applying large",
        State::Replying { .. } => "Replying",
        State::Building { .. } => "Building",
        State::Confirming => "Confirming",
        State::Ended => "Ended",
    }
}

fn input(name: &str) -> Input<()> {
    match name {
        "change" => Input::Change(intent()),
        "confirm" => Input::Confirm,
        "cancel" => Input::Cancel,
        "unanswered" => Input::Unanswered(Box::new(unanswered())),
        "answered" => Input::Answered(Ok(reply())),
        "answered: refused" => Input::Answered(Err(refusal())),
        "turn: answered" => Input::Turn(Turn::Answered),
        "examined" => Input::Examined(Ok(candidate())),
        "examined: refused" => Input::Examined(Err(refusal())),
        "clear" => Input::Turn(Turn::Clear),
        "outdated" => Input::Turn(Turn::Outdated),
        "abandoned" => Input::Turn(Turn::Abandoned),
        "planned" => Input::Planned(Ok(())),
        "planned: refused" => Input::Planned(Err(refusal())),
        "prepared" => Input::Prepared { txn: TXN, change: planned(configuration()) },
        "recorded" => Input::Recorded(Ok(())),
        "recorded: disk" => Input::Recorded(Err(StoreError::Stopped)),
        "done" => Input::Engine(done(TXN)),
        "failed" => Input::Engine(failed(TXN)),
        "cancelled" => Input::Engine(TransactionOutcome::Cancelled { txn: TXN, undone: true }),
        "other done" => Input::Engine(done(OTHER)),
        "other failed" => Input::Engine(failed(OTHER)),
        "judged" => Input::Judged(Some(judged())),
        "not judged" => Input::Judged(None),
        "finished" => Input::Finished(Ok(())),
        "finished: disk" => Input::Finished(Err(StoreError::Stopped)),
        "undo started" => Input::UndoStarted(Some(TXN)),
        "no undo" => Input::UndoStarted(None),
        "applied" => Input::Applied(applied()),
        "replied" => Input::Replied,
        "built" => {
            let next = Revision::new(Arc::clone(&MODELS), DerivedLists::default());
            let base = Arc::new(next.clone());
            let keys = Arc::default();
            let shown = HashMap::new();
            let left = Vec::new();
            Input::Built(Ok(Box::new(BuiltRevision { base, next, keys, shown, left })))
        }
        "panicked" => Input::Built(Err(BuilderPanicked)),
        other => panic!("`{other}` is not an input"),
    }
}

fn text(effect: &Effect<()>) -> String {
    match effect {
        Effect::Examine(_) => "examine".into(),
        Effect::ExamineAnswered(_) => "examine answered".into(),
        Effect::Ask(_) => "ask".into(),
        Effect::NoteAnswers(_) => "note answers".into(),
        Effect::Wait(_) => "wait".into(),
        Effect::Plan(_) => "plan".into(),
        Effect::Record(()) => "record".into(),
        Effect::Start(txn) => format!("start {}", txn.0),
        Effect::Cancel(txn) => format!("cancel {}", txn.0),
        Effect::Judge(_, due) => format!("judge {}", due.len()),
        Effect::Finalize(rows) if rows.is_empty() => "finalize".into(),
        Effect::Finalize(rows) => format!("finalize with {} row", rows.len()),
        Effect::Abort => "abort".into(),
        Effect::Undo(_) => "undo".into(),
        Effect::SetCredentials(_) => "set credentials".into(),
        Effect::Apply(_) => "apply".into(),
        Effect::Build(_) => "build".into(),
        Effect::Publish(_, None) => "publish".into(),
        Effect::Publish(_, Some(Ok(_))) => "publish built".into(),
        Effect::Publish(_, Some(Err(_))) => "publish without builder".into(),
        Effect::Confirm => "confirm".into(),
        Effect::CloseWindow => "close window".into(),
        Effect::Release => "release".into(),
        Effect::Answer(Ok(stamp)) => format!("answer {}", stamp.revision),
        Effect::Answer(Err(CommitError::Abandoned)) => "answer abandoned".into(),
        Effect::Answer(Err(CommitError::Store(_))) => "answer disk".into(),
        Effect::Answer(Err(CommitError::Failed { .. })) => "answer failed".into(),
        Effect::Answer(Err(CommitError::Stopped)) => "answer stopped".into(),
        Effect::Answer(Err(_)) => "answer refused".into(),
        Effect::AnswerAhead(stamp) => format!("answer {} ahead", stamp.revision),
        Effect::AnswerUnchanged => "answer unchanged".into(),
        Effect::AnswerPreview(()) => "answer preview".into(),
    }
}

/// The next state and the effects, as text.
fn next(kind: CommitKind, from: &str, on: &str) -> (&'static str, String) {
    let mut commit = Commit { kind, state: state(from) };
    let effects: Vec<_> = commit.on(input(on)).iter().map(text).collect();
    (name(&commit.state), effects.join(", "))
}

fn check(kind: CommitKind, rows: &[(&str, &str, &str, &str)]) {
    for &(from, on, to, effects) in rows {
        assert_eq!(next(kind, from, on), (to, effects.to_owned()), "{kind:?}: {from}, {on}");
    }
}

#[test]
fn each_state_has_its_inputs() {
    check(CommitKind::Recorded, ROWS);
}

#[test]
fn an_input_that_a_state_does_not_wait_for_changes_nothing() {
    for from in STATES {
        for on in INPUTS {
            if !ROWS.iter().any(|(state, input, ..)| (*state, *input) == (from, on)) {
                let stays = (from, String::new());
                assert_eq!(next(CommitKind::Recorded, from, on), stays, "{from}, {on}");
            }
        }
    }
}

#[test]
fn a_dry_run_ends_with_its_plan() {
    check(
        CommitKind::DryRun,
        &[
            ("Admitted", "change", "Examining", "examine"),
            ("Examining", "examined", "Planning", "plan"),
            ("Examining", "cancel", "Ended", "release, answer abandoned"),
            ("Planning", "planned", "Ended", "release, answer preview"),
            ("Planning", "planned: refused", "Ended", "release, answer refused"),
        ],
    );
}

#[test]
fn credentials_alone_skip_the_disk() {
    let in_force = "set credentials, release, answer unchanged";
    check(
        CommitKind::Unrecorded,
        &[
            ("Planning", "planned", "Preparing", "record"),
            ("Recording", "recorded", "Executing", "start 7"),
            ("Executing", "done", "Ended", in_force),
            ("Executing", "failed", "Ended", "release, answer failed"),
            ("Executing", "cancelled", "Ended", "release, answer stopped"),
            ("GivenUp", "recorded", "Ended", "release, answer failed"),
            ("GivenUp, done", "recorded", "Ended", in_force),
        ],
    );
}

#[test]
fn a_plan_that_ends_before_its_record_is_judged_after_it() {
    let rows = [("GivenUp, done", "recorded", "Finalizing", "finalize")];
    check(CommitKind::Recorded, &rows);
}

#[test]
fn walked_instances_are_judged_before_the_commit_is_final() {
    check(
        CommitKind::Recorded,
        &[
            ("Executing walk", "done", "Judging", "judge 1"),
            ("Executing walk", "failed", "Aborting", "abort"),
            ("GivenUp walk, done", "recorded", "Judging", "judge 1"),
            ("Judging", "judged", "Finalizing", "finalize with 1 row"),
            ("Judging", "not judged", "Finalizing", "finalize"),
        ],
    );
    let mut commit = Commit { kind: CommitKind::Recorded, state: state("Judging") };
    commit.on(input("judged"));
    let State::Finalizing { change } = &commit.state else { panic!("it is made final") };
    assert!(change.configuration.entries() > 0, "the judged configuration comes into force");
}

#[test]
fn a_change_of_many_instances_is_large() {
    let change = |instances| PlannedChange { instances, ..*planned(configuration()) };
    assert!(!change(1).is_large() && change(parallel::FEW / 10).is_large());
}

#[test]
fn a_large_commit_is_answered_before_it_is_published() {
    check(
        CommitKind::Recorded,
        &[
            ("Finalizing", "finished", "Applying", "set credentials, apply"),
            ("Finalizing large", "finished", "Applying large", "set credentials, apply"),
            ("Applying large", "applied", "Replying", "answer 3 ahead"),
            ("Building", "panicked", "Ended", "publish without builder"),
        ],
    );
    for name in STATES {
        let commit = Commit { kind: CommitKind::Recorded, state: state(name) };
        assert_eq!(commit.is_publishing(), ["Replying", "Building"].contains(&name), "{name}");
        assert_eq!(commit.has_ended(), name == "Ended");
    }
}
