//! The loop that takes reports in and carries out what comes of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{ErrorChain, now_ns};
use holdfast_config::tree::{Branch, Tree};
use holdfast_config::{MissingNode, Provenance, schema::Schema};
use holdfast_core::{CoreHandle, Datastore};
use holdfast_faults::{
    Alarm, Condition, Effects, Faults, Input, OperatorError, Report, Resume, Source, Transition,
};
use holdfast_scheduler::Now;
use holdfast_store::{Artefact, Journal, Store};
use holdfast_telemetry::Revision;
use tokio::sync::{Notify, broadcast, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use super::handle::{FaultService, Listening, News, OperatorWord, Request};
use super::instances::Instances;
use super::links::{BoxView, Links};
use super::rows::RowWriter;
use super::settings::SettingNodes;
use super::shown::AlarmLeaves;
use super::{disk, server, values};
use crate::deadline::wait_until;
use crate::gnsi::TlsProfiles;
use crate::listeners::Listeners;

/// Reports that wait for the loop; their sources wait for a place.
const INPUTS: usize = 64;
/// Transitions that a listener may fall behind before it is told that it missed some.
const TRANSITIONS: usize = 1024;
/// Least time between two revisions with alarms, since each one wakes every subscriber.
const SHOW_INTERVAL: Duration = Duration::from_millis(1);

/// Time to write the end of the log for the next run.
const JOURNAL_TIMEOUT: Duration = Duration::from_millis(200);

/// What the faults of a box are found in.
#[derive(Debug)]
pub struct FaultParts<'a> {
    pub core: CoreHandle,
    pub store: Store,
    /// Rows of an earlier run, by name.
    pub rows: &'a BTreeMap<String, Artefact>,
    pub state_folder: PathBuf,
    /// The log of earlier runs, and of this one.
    pub journal: Journal,
    pub listeners: Listeners,
    pub profiles: TlsProfiles,
}

/// The log of earlier runs; without one that can be read, a new one begins.
fn read_log(journal: &Journal) -> Vec<Transition> {
    let mut log = Vec::new();
    let read = journal.read((0, u64::MAX), |content| {
        log.extend(Transition::from_stored(content));
        true
    });
    if let Err(error) = read {
        warn!(error = %ErrorChain(&error), "the log of alarms cannot be read");
    }
    log
}

/// Begins to look for faults. The tasks end with the handle that is returned.
///
/// # Errors
/// When the native model lacks a node, which the first test finds.
pub fn start(parts: FaultParts<'_>) -> Result<(FaultService, AbortOnDropHandle<()>), MissingNode> {
    let FaultParts { core, store, rows, state_folder, journal, listeners, profiles } = parts;
    let models = core.models();
    let stored = rows.iter().map(|(name, row)| (name.clone(), row.content.to_vec()));
    let (faults, unreadable) = Faults::restored(stored, read_log(&journal));
    if !unreadable.is_empty() {
        warn!(?unreadable, "alarms of another version of the agent are not known here");
    }
    let (input_tx, inputs) = mpsc::channel(INPUTS);
    let rows = Arc::new(RowWriter::default());
    let (service, requests) = FaultService::new();
    let relevel = Arc::new(Notify::new());
    let outlets = Outlets { rows: Arc::clone(&rows), journal, relevel: Arc::clone(&relevel) };
    let task = FaultTask::new(core.clone(), &models.native, faults, outlets)?;
    let mut tasks = JoinSet::new();
    let disk = store.clone();
    tasks.spawn(async move { rows.run(disk).await });
    tasks.spawn(disk::follow(store, state_folder, input_tx.clone()));
    tasks.spawn(values::follow(core, input_tx.clone(), relevel));
    tasks.spawn(server::follow(listeners, profiles, input_tx));
    let running = tokio::spawn(async move {
        let _sources = tasks;
        task.run(inputs, requests).await;
    });
    Ok((service, AbortOnDropHandle::new(running)))
}

/// Where effects go, beside the revisions.
struct Outlets {
    rows: Arc<RowWriter>,
    journal: Journal,
    relevel: Arc<Notify>,
}

/// All that is known of faults, and where it goes.
pub(super) struct FaultTask {
    core: CoreHandle,
    revisions: watch::Receiver<Arc<Revision>>,
    faults: Faults,
    links: Links,
    instances: Instances,
    setting_nodes: SettingNodes,
    /// The part of the configuration that had the settings last; `None` before the first look.
    settings: Option<Option<Arc<Branch<Provenance>>>>,
    leaves: AlarmLeaves,
    outlets: Outlets,
    transitions: broadcast::Sender<Arc<Transition>>,
    /// Conditions whose alarms are to be shown, transitions to be told then, and when that was done last.
    unshown: BTreeSet<Condition>,
    untold: Vec<Arc<Transition>>,
    shown_at: Option<Instant>,
    began: Instant,
}

impl FaultTask {
    fn new(
        core: CoreHandle,
        native: &Schema,
        faults: Faults,
        outlets: Outlets,
    ) -> Result<Self, MissingNode> {
        Ok(Self {
            revisions: core.watch(),
            core,
            faults,
            links: Links::new(native)?,
            instances: Instances::default(),
            setting_nodes: SettingNodes::find(native)?,
            settings: None,
            leaves: AlarmLeaves::find(native)?,
            outlets,
            transitions: broadcast::channel(TRANSITIONS).0,
            unshown: BTreeSet::new(),
            untold: Vec::new(),
            shown_at: None,
            began: Instant::now(),
        })
    }

    /// Looks for faults until the core stops.
    async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        mut requests: mpsc::Receiver<Request>,
    ) {
        self.look_at_all();
        self.show().await; // a summary of nothing, too
        let core = self.core.clone();
        let ended = core.ended();
        tokio::pin!(ended);
        loop {
            let due = self.faults.due().map(|due| self.began + due);
            let show = self.show_due();
            tokio::select! {
                biased;
                () = wait_until(show) => self.show().await,
                () = &mut ended => return self.end().await,
                // The sender lives as long as the handle of the core, which this task has.
                _ = self.revisions.changed() => self.look(),
                () = wait_until(due) => self.take(Input::Due),
                input = inputs.recv() => match input {
                    Some(input) => self.take(input),
                    None => return,
                },
                request = requests.recv() => match request {
                    Some(request) => self.answer(request).await,
                    None => return,
                },
            }
        }
    }

    /// Writes what the next run needs to go on with the log.
    async fn end(&mut self) {
        let (written_tx, written) = oneshot::channel();
        let rows = vec![self.faults.last_row()];
        self.outlets.rows.put(rows, Some(written_tx));
        // When the disk refuses, the next run has a gap in its log.
        let _ = written.await;
        let journal = self.outlets.journal.clone();
        let flushed = tokio::task::spawn_blocking(move || journal.flush(JOURNAL_TIMEOUT));
        let _ = flushed.await;
    }

    /// Looks at the newest revision, as if there had been none before.
    fn look_at_all(&mut self) {
        self.links.forget();
        self.instances.forget();
        let level = self.reports();
        self.take(Input::Level(Source::Revision, level));
    }

    /// Looks at what differs in the newest revision.
    fn look(&mut self) {
        let reports = self.reports();
        if !reports.is_empty() {
            self.take(Input::Reports(Source::Revision, reports));
        }
    }

    /// Reports about what differs in the newest revision. The configuration may be ahead of it: a revision with that follows.
    fn reports(&mut self) -> Vec<Report> {
        let revision = self.revisions.borrow_and_update().clone();
        let configuration = self.core.configuration();
        self.take_settings(configuration.effective());
        let view = BoxView { state: &revision.native, configuration: configuration.effective() };
        let mut reports = self.links.look(view, revision.time_ns);
        reports.extend(self.instances.look(&configuration.layers().book, revision.time_ns));
        reports
    }

    fn take_settings(&mut self, configuration: &Tree<Provenance>) {
        let part = self.setting_nodes.part(configuration);
        let is_same = match (&self.settings, &part) {
            (Some(Some(before)), Some(now)) => Arc::ptr_eq(before, now),
            (Some(None), None) => true,
            _ => false,
        };
        if !is_same {
            let settings = Arc::new(self.setting_nodes.read(part.as_deref()));
            self.settings = Some(part);
            self.take(Input::Settings(settings));
        }
    }

    fn take(&mut self, input: Input) {
        let now = self.now();
        let effects = self.faults.on(input, now);
        self.carry_out(effects, None);
    }

    /// Notes what is to be shown and told, and sends rows on their way to the disk.
    fn carry_out(&mut self, effects: Effects, written: Option<oneshot::Sender<bool>>) {
        let Effects { shown, transitions, rows, wanted_levels } = effects;
        self.unshown.extend(shown);
        for transition in &transitions {
            log(transition);
            let kept = Arc::clone(transition);
            self.outlets.journal.append(transition.id, move || kept.to_stored());
        }
        self.untold.extend(transitions);
        if !rows.is_empty() {
            self.outlets.rows.put(rows, written);
        }
        for source in wanted_levels {
            match source {
                Source::Revision => self.look_at_all(),
                Source::Engine => self.outlets.relevel.notify_one(),
                // These have a handful of conditions, which they report as a whole with each change.
                Source::Disk | Source::Server | Source::Diagnosis => {}
            }
        }
    }

    /// When the next revision with alarms may come, if there is something to be shown.
    fn show_due(&self) -> Option<Instant> {
        let is_idle = self.unshown.is_empty() && self.untold.is_empty();
        (!is_idle).then(|| self.shown_at.map_or(self.began, |at| at + SHOW_INTERVAL))
    }

    /// Shows alarms in the next revision, and then tells listeners.
    async fn show(&mut self) {
        let conditions = std::mem::take(&mut self.unshown);
        self.core.show_state(self.leaves.show(&self.faults, &conditions)).await;
        self.shown_at = Some(Instant::now());
        for transition in self.untold.drain(..) {
            // There may be no listener.
            let _ = self.transitions.send(transition);
        }
    }

    async fn answer(&mut self, request: Request) {
        // Whoever asked may have gone.
        match request {
            Request::Alarms(answer) => drop(answer.send(self.faults.alarms().cloned().collect())),
            Request::Log { after, answer } => {
                let log = self.faults.log().transitions();
                let log = log.filter(|transition| transition.id > after).cloned();
                drop(answer.send(log.collect()));
            }
            Request::Operate { word, answer } => self.operate(&word, answer).await,
            Request::Listen { after, answer } => drop(answer.send(self.listen(after).await)),
        }
    }

    async fn operate(
        &mut self,
        word: &OperatorWord,
        answer: oneshot::Sender<Result<bool, OperatorError>>,
    ) {
        let now = self.now();
        match self.faults.operate(word.condition(), word.state(), word.said(), now) {
            Ok(effects) => {
                let (written_tx, written) = oneshot::channel();
                self.carry_out(effects, Some(written_tx));
                self.show().await;
                tokio::spawn(async move {
                    let is_durable = written.await.unwrap_or(false);
                    drop(answer.send(Ok(is_durable)));
                });
            }
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    async fn listen(&mut self, after: Option<u64>) -> Listening {
        self.show().await; // what is not told yet is in the answer, and must not be told again
        let transitions = self.transitions.subscribe();
        let last_id = self.faults.log().last_id();
        let resumed = after.map(|after| self.faults.log().since(after));
        let news = match resumed {
            Some(Resume::Transitions(missed)) => missed.into_iter().map(News::Transition).collect(),
            Some(Resume::Gap) | None => {
                let alarms = self.faults.alarms().cloned().collect();
                VecDeque::from([News::Snapshot { alarms, is_gap: after.is_some(), last_id }])
            }
        };
        Listening { news, last_id, transitions }
    }

    fn now(&self) -> Now {
        Now { monotonic: self.began.elapsed(), unix_ns: now_ns() }
    }
}

/// One line for each change that is no repetition; fields have the names of RFC 5674.
fn log(transition: &Transition) {
    let Alarm { condition, severity, text, .. } = &transition.alarm;
    if !transition.is_told() {
        return;
    }
    let change = transition.change.name();
    info!(event = transition.id, alarm = %condition, perceived_severity = %severity, "{change}: {text}");
}
