//! The loop that takes reports in and carries out what comes of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{ErrorChain, now_ns};
use holdfast_config::tree::{Branch, Tree};
use holdfast_config::{
    Configuration, EffectiveStatus, FenceOwner, MissingNode, Provenance, SharedPath,
};
use holdfast_core::{CoreHandle, Datastore, ServiceState};
use holdfast_faults::{
    Action, Alarm, Change, Condition, Effects, Faults, FenceTarget, Health, ImpactState, Input,
    Latch, LatchKind, LatchRequest, LogEntry, OperatorError, OutsideReport, Report, ResetError,
    Resource, Resume, Session, SessionEvent, SessionInput, SessionRequest, Settings, Silence,
    Source, Transition, Wants, Word,
};
use holdfast_platform::netns::Netns;
use holdfast_platform::probe::Probes;
use holdfast_scheduler::Now;
use holdfast_store::{Artefact, Journal, Store};
use holdfast_telemetry::Revision;
use smol_str::{SmolStr, format_smolstr};
use tokio::sync::{Mutex, Notify, broadcast, mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use super::bonds::Bonds;
use super::drains::{DrainStanding, Drains, Outcome};
use super::fencer::{Fencer, Wishes, shut_by};
use super::gateways::Gateways;
use super::guard::Guard;
use super::handle::{
    FaultService, LatchRefusal, Listening, News, OperatorWord, ReportError, Reporter, Request,
};
use super::impacts::ImpactWalks;
use super::instances::Instances;
use super::links::{BoxView, Links};
use super::objects::BoxObjects;
use super::reporters::{OVERFLOW_TIME, Reporters};
use super::rows::RowWriter;
use super::rules::RuleConditions;
use super::session_fences::{SessionFences, SessionWishes};
use super::sessions::{
    CHECK_INTERVAL, ContentWalks, FollowedSessions, SessionAnswer, SessionNews, SessionRefusal,
};
use super::settings::SettingNodes;
use super::shown::AlarmLeaves;
use super::shown_sessions::SessionLeaves;
use super::stamps::{RuleStamps, Stamps};
use super::visibility::{AlarmPlaces, RuleOwners};
use super::{disk, leases, probes, server, services, sessions, thresholds, values};
use crate::deadline::wait_until;
use crate::dhcp::LostLeases;
use crate::gnsi::pathz::PolicyWatch;
use crate::gnsi::{Pathz, TlsProfiles};
use crate::listeners::Listeners;
use crate::reboot::boot_id;
use crate::services::{Handlers, RefusedPackage};
use crate::software::Software;

/// Reports that wait for the loop; their sources wait for a place.
const INPUTS: usize = 64;
/// Transitions that a listener may fall behind before it is told that it missed some.
const TRANSITIONS: usize = 1024;
/// Steps of sessions that somebody who follows them may fall behind before all sessions are told again.
const SESSION_STEPS: usize = 1024;
/// Least time between two revisions with alarms, since each one wakes every subscriber.
const SHOW_INTERVAL: Duration = Duration::from_millis(1);
/// Pause before faults are looked for again after a bug. Each pause is twice the one before, so that a bug that comes again
/// at once costs next to nothing.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long the alarm that faults were not looked for stays, so that a collector that polls every five minutes sees it.
const LOST_TIME: Duration = Duration::from_secs(600);
/// The longest time for which an alarm is held back until its impact is known, where the settings say so.
const CONSERVATIVE_TIME: Duration = Duration::from_millis(500);
/// Marks in one revision, since a reader waits for all of them.
const MARKS_AT_ONCE: usize = 1024;

/// Time to write the end of the log for the next run.
const JOURNAL_TIMEOUT: Duration = Duration::from_millis(200);

/// Sources in which the faults of a box are found.
#[derive(Debug)]
pub struct FaultParts {
    pub core: CoreHandle,
    pub store: Store,
    pub state_folder: PathBuf,
    /// The log of earlier runs, and of this one.
    pub journal: Journal,
    pub listeners: Listeners,
    pub profiles: TlsProfiles,
    pub software: Software,
    pub probes: Probes,
    pub lost_leases: LostLeases,
    pub handlers: Handlers,
    /// The network namespace that the agent manages.
    pub netns: Arc<Netns>,
    /// Packages that could not be loaded.
    pub refused_packages: Vec<RefusedPackage>,
    pub(crate) pathz: Arc<Pathz>,
}

/// The log of earlier runs; without one that can be read, a new one begins.
fn read_log(journal: &Journal) -> Vec<LogEntry> {
    let mut log = Vec::new();
    let read = journal.read((0, u64::MAX), |content| {
        log.extend(LogEntry::from_stored(content));
        true
    });
    if let Err(error) = read {
        warn!(error = %ErrorChain(&error), "the log of alarms cannot be read");
    }
    log
}

/// Begins to look for faults, from the rows of an earlier run by name. The tasks end with the handle that is returned.
///
/// # Errors
/// When the native model lacks a node, which the first test finds.
pub fn start(
    parts: FaultParts,
    rows: &BTreeMap<String, Artefact>,
) -> Result<(FaultService, AbortOnDropHandle<()>), MissingNode> {
    let stored = rows.iter().map(|(name, row)| (name.clone(), row.content.to_vec()));
    let objects = Arc::new(BoxObjects::new(parts.core.clone(), &parts.core.models().native)?);
    let connections = parts.listeners.connections().clone();
    let guard = Arc::new(Guard::new(parts.core.clone(), connections, Arc::clone(&parts.netns)));
    let drains = Arc::new(Drains::new(parts.core.clone())?);
    let (service, requests) = FaultService::new(
        parts.core.clone(),
        Arc::clone(&objects),
        Arc::clone(&guard),
        Arc::clone(&drains),
    );
    let keeper = Keeper {
        objects,
        parts,
        guard,
        drains,
        rows: Arc::new(RowWriter::new(stored.collect())),
        requests: Arc::new(Mutex::new(requests)),
    };
    let first = keeper.begin(0)?;
    let keeping = tokio::spawn(async move { keeper.keep_looking(first).await });
    Ok((service, AbortOnDropHandle::new(keeping)))
}

/// Everything that looking for faults needs. It begins anew when it has ended by a bug.
struct Keeper {
    parts: FaultParts,
    objects: Arc<BoxObjects>,
    guard: Arc<Guard>,
    drains: Arc<Drains>,
    rows: Arc<RowWriter>,
    /// Requests of clients, which the running task holds.
    requests: Arc<Mutex<mpsc::Receiver<Request>>>,
}

impl Keeper {
    async fn keep_looking(self, first: JoinSet<()>) {
        let rows = Arc::clone(&self.rows);
        let disk = self.parts.store.clone();
        let _writing = AbortOnDropHandle::new(tokio::spawn(async move { rows.run(disk).await }));
        let mut running = first;
        let mut pause = FIRST_PAUSE;
        for attempt in 1.. {
            let began = Instant::now();
            let Some(bug) = first_bug(&mut running).await else { return };
            running.shutdown().await;
            if began.elapsed() > LONGEST_PAUSE {
                pause = FIRST_PAUSE;
            }
            error!(error = %ErrorChain(&bug), ?pause, "looking for faults ended by a bug, and begins anew");
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
            match self.begin(attempt) {
                Ok(again) => running = again,
                // The first beginning has found all nodes.
                Err(error) => return error!(error = %ErrorChain(&error), "nobody looks for faults"),
            }
        }
    }

    /// Begins from stored rows; sources report their levels. `attempt` is the number of earlier beginnings of this run.
    fn begin(&self, attempt: u32) -> Result<JoinSet<()>, MissingNode> {
        let FaultParts {
            core,
            store,
            state_folder,
            journal,
            listeners,
            profiles,
            software,
            probes,
            lost_leases,
            handlers,
            netns: _,
            refused_packages,
            pathz,
        } = &self.parts;
        let log = read_log(journal);
        let objects = Arc::clone(&self.objects);
        let now = Now { monotonic: Duration::ZERO, unix_ns: now_ns() };
        let (faults, unreadable) =
            Faults::restored(self.rows.current(), log, Box::new(Arc::clone(&objects)), now);
        let owners = RuleOwners {
            pathz: Arc::clone(pathz),
            places: Arc::new(AlarmPlaces::find(&core.models().native)?),
            models: core.models(),
        };
        let rule_stamps = Arc::<RuleStamps>::default();
        let conditions = RuleConditions::new(owners.clone(), Arc::clone(&rule_stamps));
        let faults = faults.with_evaluator(Box::new(conditions));
        if !unreadable.is_empty() {
            warn!(?unreadable, "alarms of another version of the agent are not known here");
        }
        let (input_tx, inputs) = mpsc::channel(INPUTS);
        let relevel = Arc::new(Notify::new());
        let (settings, probed) = watch::channel(Arc::default());
        let reprobe = Arc::new(Notify::new());
        let outlets = Outlets {
            settings,
            reprobe: Arc::clone(&reprobe),
            rows: Arc::clone(&self.rows),
            journal: journal.clone(),
            relevel: Arc::clone(&relevel),
            fencer: Arc::default(),
            rule_stamps,
            guard: Arc::clone(&self.guard),
            drains: Arc::clone(&self.drains),
            sessions: Arc::default(),
        };
        let guard = Arc::clone(&self.guard);
        let fencing = Arc::clone(&outlets.fencer).run(core.clone(), guard, input_tx.clone());
        let draining = Arc::clone(&self.drains).run(input_tx.clone());
        let ways = (Arc::clone(&self.guard), Arc::clone(&self.drains));
        let sessions = Arc::clone(&outlets.sessions);
        let emptying = sessions.run(core.clone(), ways, input_tx.clone());
        let mut task = FaultTask::new(core.clone(), objects, faults, outlets)?;
        let policies = pathz.follow();
        if attempt > 0 {
            task.begins_again(attempt);
        }
        let mut tasks = JoinSet::new();
        tasks.spawn(fencing);
        tasks.spawn(draining);
        tasks.spawn(emptying);
        tasks.spawn(disk::follow(store.clone(), state_folder.clone(), input_tx.clone()));
        tasks.spawn(values::follow(core.clone(), input_tx.clone(), relevel));
        let judged = probed.clone();
        tasks.spawn(thresholds::follow(core.clone(), owners, judged, input_tx.clone()));
        let probing = probes::follow(probes.clone(), probed, input_tx.clone(), reprobe);
        tasks.spawn(probing);
        tasks.spawn(leases::follow(lost_leases.clone(), input_tx.clone()));
        let services_tx = input_tx.clone();
        tasks.spawn(server::follow(
            listeners.clone(),
            profiles.clone(),
            software.clone(),
            input_tx,
        ));
        tasks.spawn(services::follow(
            core.clone(),
            handlers.clone(),
            refused_packages.clone(),
            services_tx,
        ));
        let requests = Arc::clone(&self.requests);
        tasks.spawn(async move { task.run(inputs, policies, &mut *requests.lock().await).await });
        Ok(tasks)
    }
}

/// The first bug that ends one of the tasks; `None` when all of them have ended with the agent.
async fn first_bug(tasks: &mut JoinSet<()>) -> Option<JoinError> {
    while let Some(ended) = tasks.join_next().await {
        if let Err(bug) = ended {
            return Some(bug);
        }
    }
    None
}

/// State to be shown.
#[derive(Debug, Default)]
struct Unshown {
    alarms: BTreeSet<Condition>,
    marks: BTreeMap<SharedPath, Option<EffectiveStatus>>,
    latches: BTreeSet<Condition>,
    monitors: BTreeSet<SmolStr>,
    rules: BTreeSet<Condition>,
    sessions: BTreeSet<SmolStr>,
    groups: BTreeSet<SmolStr>,
    fences: BTreeSet<FenceTarget>,
    /// Owners that want something else fenced. They are heard when all that suffers is shown, so that nothing counts as working
    /// that does not.
    wishes: BTreeSet<FenceOwner>,
    /// Since when something waits.
    since: Option<Instant>,
}

impl Unshown {
    fn is_empty(&self) -> bool {
        self.alarms.is_empty()
            && self.marks.is_empty()
            && self.latches.is_empty()
            && self.monitors.is_empty()
            && self.rules.is_empty()
            && self.sessions.is_empty()
            && self.groups.is_empty()
            && self.fences.is_empty()
            && self.wishes.is_empty()
    }
}

/// Answers once it is known whether the disk has taken what was written.
fn answer_when_written<E: Send + 'static>(
    written: oneshot::Receiver<bool>,
    answer: oneshot::Sender<Result<bool, E>>,
) {
    tokio::spawn(async move {
        let is_durable = written.await.unwrap_or(false);
        drop(answer.send(Ok(is_durable)));
    });
}

/// Where effects go, beside the revisions.
struct Outlets {
    rows: Arc<RowWriter>,
    journal: Journal,
    relevel: Arc<Notify>,
    fencer: Arc<Fencer>,
    guard: Arc<Guard>,
    drains: Arc<Drains>,
    sessions: Arc<SessionFences>,
    /// Settings for probes and threshold rules, and the wish that they begin anew.
    settings: watch::Sender<Arc<Settings>>,
    reprobe: Arc<Notify>,
    /// When rules were evaluated.
    rule_stamps: Arc<RuleStamps>,
}

/// All that is known of faults, and where it goes.
pub(super) struct FaultTask {
    core: CoreHandle,
    revisions: watch::Receiver<Arc<Revision>>,
    faults: Faults,
    links: Links,
    instances: Instances,
    setting_nodes: SettingNodes,
    /// Bonds, which are groups of their members.
    bonds: Bonds,
    /// Next hops that are probed without entries of their own.
    gateways: Gateways,
    /// The parts of the configuration that had the settings last, of faults and of maintenance; `None` before the first look.
    settings: Option<[Option<Arc<Branch<Provenance>>>; 2]>,
    leaves: AlarmLeaves,
    session_leaves: SessionLeaves,
    walks: ImpactWalks,
    content_walks: ContentWalks,
    objects: Arc<BoxObjects>,
    /// The core does not know yet which links are maintained.
    is_maintenance_changed: bool,
    /// When sessions that are restoring looked last whether their resources work.
    checked_at: Option<Instant>,
    reporters: Reporters,
    /// Links as they were when somebody looked for the members of uplink groups.
    members_seen: Option<usize>,
    fences: FenceTable,
    outlets: Outlets,
    transitions: broadcast::Sender<Arc<Transition>>,
    session_steps: broadcast::Sender<Arc<SessionEvent>>,
    /// State to be shown, and transitions to be told then.
    unshown: Unshown,
    untold: Vec<Arc<Transition>>,
    untold_steps: Vec<Arc<SessionEvent>>,
    shown_at: Option<Instant>,
    stamps: Stamps,
    began: Instant,
}

impl FaultTask {
    fn new(
        core: CoreHandle,
        objects: Arc<BoxObjects>,
        faults: Faults,
        outlets: Outlets,
    ) -> Result<Self, MissingNode> {
        let models = core.models();
        let native = &models.native;
        Ok(Self {
            revisions: core.watch(),
            walks: ImpactWalks::new(core.clone(), Arc::clone(&objects)),
            content_walks: ContentWalks::new(core.clone(), Arc::clone(&objects)),
            objects,
            is_maintenance_changed: true,
            checked_at: None,
            session_leaves: SessionLeaves::find(native)?,
            session_steps: broadcast::channel(SESSION_STEPS).0,
            untold_steps: Vec::new(),
            leaves: AlarmLeaves::find(core.models())?,
            core,
            faults,
            links: Links::new(native)?,
            instances: Instances::default(),
            bonds: Bonds::new(native)?,
            gateways: Gateways::new(native)?,
            setting_nodes: SettingNodes::find(native)?,
            settings: None,
            reporters: Reporters::default(),
            members_seen: None,
            fences: FenceTable::default(),
            outlets,
            transitions: broadcast::channel(TRANSITIONS).0,
            unshown: Unshown::default(),
            untold: Vec::new(),
            shown_at: None,
            stamps: Stamps::default(),
            began: Instant::now(),
        })
    }

    /// Looks for faults until the core stops.
    async fn run(
        mut self,
        mut inputs: mpsc::Receiver<Input>,
        mut policies: PolicyWatch,
        requests: &mut mpsc::Receiver<Request>,
    ) {
        self.maintain().await;
        self.look_at_all();
        self.take(Input::Booted(boot_id().unwrap_or_default().into()));
        self.unshown.latches.extend(self.faults.latches().map(Latch::condition));
        self.force_down().await;
        self.refence();
        self.show(); // a summary of nothing, too
        let core = self.core.clone();
        let ended = core.ended();
        tokio::pin!(ended);
        let mut graph = core.graph_version();
        let mut drained = self.outlets.drains.outcome();
        loop {
            let due = self.faults.due().map(|due| self.began + due);
            let show = self.show_due();
            let walk = self.walks.due();
            let content_walk = self.content_walks.due();
            let check = self.check_due();
            if self.is_maintenance_changed {
                self.maintain().await;
            }
            tokio::select! {
                biased;
                () = wait_until(show) => self.show(),
                () = &mut ended => return self.end().await,
                // The sender lives as long as the handle of the core, which this task has.
                _ = self.revisions.changed() => self.look(),
                () = wait_until(due) => self.take(Input::Due),
                () = wait_until(walk) => self.walks.begin(&self.faults),
                (condition, impact) = self.walks.found() => {
                    self.take(Input::Impact(condition, impact));
                }
                () = wait_until(content_walk) => self.content_walks.begin(),
                (id, contents) = self.content_walks.found() => {
                    if let Some(contents) = contents {
                        self.take(Input::Session(id, SessionInput::Contents(contents)));
                    }
                }
                () = wait_until(check) => self.check_sessions(),
                input = inputs.recv() => match input {
                    Some(input) => self.take(input),
                    None => return,
                },
                request = requests.recv() => match request {
                    Some(request) => self.answer_in_turn(request, requests).await,
                    None => return,
                },
                () = policies.replaced() => self.take(Input::Permissions),
                _ = graph.changed() => {
                    self.walks.outdate(&self.faults);
                    self.content_walks.want(self.faults.sessions_to_look_at());
                }
                // The sender lives as long as the outlets.
                _ = drained.changed() => self.look_at_fences(),
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
        self.look_for_members();
    }

    /// Looks at what differs in the newest revision.
    fn look(&mut self) {
        let reports = self.reports();
        if !reports.is_empty() {
            self.take(Input::Reports(Source::Revision, reports));
        }
        self.look_for_members();
        self.look_at_fences();
    }

    /// Finds the members of uplink groups that are neither configured nor on the box.
    fn look_for_members(&mut self) {
        let visited = self.links.visited();
        if self.members_seen.replace(visited) == Some(visited) {
            return;
        }
        let groups = self.faults.settings().groups().iter();
        let members = groups.flat_map(|group| &group.members);
        let missing = members.filter(|member| !self.links.knows(member)).cloned().collect();
        self.take(Input::Missing(missing));
    }

    /// Has shown what is fenced, where that differs.
    fn look_at_fences(&mut self) {
        let outcome = self.outlets.drains.outcome().borrow().clone();
        let changed = self.fences.look(&self.core.configuration(), &outcome);
        self.unshown.fences.extend(changed);
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
        let nodes = &self.setting_nodes;
        let parts = [nodes.part(configuration), nodes.maintenance_part(configuration)];
        let is_same = |(before, now): (&Option<Arc<_>>, &Option<Arc<_>>)| match (before, now) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (None, None) => true,
            _ => false,
        };
        let are_same = self.settings.as_ref().is_some_and(|it| it.iter().zip(&parts).all(is_same));
        let are_probed_others = self.gateways.want(nodes.probed_routes(parts[0].as_deref()));
        let are_gateways_others = self.gateways.look(configuration);
        let are_bonds_others = self.bonds.look(configuration);
        if !are_same || are_probed_others || are_gateways_others || are_bonds_others {
            let [faults, maintenance] = &parts;
            let models = self.core.models();
            let settings = nodes.read(faults.as_deref(), maintenance.as_deref(), &models.native);
            let probes = self.gateways.probes(settings.probe_entries());
            let settings = settings.with_probes(probes).with_groups(self.bonds.groups());
            let settings = Arc::new(settings);
            self.settings = Some(parts);
            self.members_seen = None;
            let monitors = settings.monitors().iter().map(|monitor| monitor.name.clone());
            self.unshown.monitors.extend(self.reporters.set(monitors.collect()));
            self.take(Input::Settings(Arc::clone(&settings)));
            self.outlets.settings.send_replace(settings);
        }
    }

    fn take(&mut self, input: Input) {
        let now = self.take_input();
        if let Input::Impact(condition, _) = &input {
            self.stamps.know_impact(condition);
        }
        let effects = self.faults.on(input, now);
        self.carry_out(effects, None);
    }

    /// Notes what is to be shown and told, and sends rows on their way to the disk.
    fn carry_out(&mut self, effects: Effects, written: Option<oneshot::Sender<bool>>) {
        let Effects {
            shown,
            transitions,
            rows,
            marks,
            wanted_impacts,
            shown_rules,
            shown_groups,
            are_latches_changed: _,
            changed_fences,
            shown_sessions,
            session_events,
            is_maintenance_changed,
            wanted_levels,
        } = effects;
        self.is_maintenance_changed |= is_maintenance_changed;
        if is_maintenance_changed {
            self.content_walks.want(self.faults.sessions_to_look_at());
        }
        self.unshown.sessions.extend(shown_sessions);
        session_events.iter().for_each(log_step);
        self.unshown.alarms.extend(shown);
        self.unshown.marks.extend(marks);
        self.unshown.rules.extend(shown_rules);
        self.unshown.since.get_or_insert_with(Instant::now);
        for transition in &transitions {
            log(transition);
            if transition.change == Change::Raised {
                self.stamps.raise(&transition.alarm, transition.id);
            }
        }
        let steps = session_events.iter().map(|event| LogEntry::Step(Arc::clone(&event.step)));
        let alarms = transitions.iter().cloned().map(LogEntry::Alarm);
        let mut entries: Vec<LogEntry> = steps.chain(alarms).collect();
        entries.sort_by_key(LogEntry::id);
        for entry in entries {
            self.outlets.journal.append(entry.id(), move || entry.to_stored());
        }
        self.untold_steps.extend(session_events.into_iter().map(Arc::new));
        self.stamps.judge(&self.outlets.rule_stamps);
        self.untold.extend(transitions);
        if !rows.is_empty() || written.is_some() {
            self.outlets.rows.put(rows, written);
        }
        self.walks.want(wanted_impacts);
        self.unshown.wishes.extend(changed_fences);
        if !shown_groups.is_empty() {
            self.outlets.guard.set_groups(self.faults.group_standings());
            self.unshown.groups.extend(shown_groups);
        }
        for source in wanted_levels {
            match source {
                Source::Revision => self.look_at_all(),
                Source::Engine => self.outlets.relevel.notify_one(),
                Source::Probes => self.outlets.reprobe.notify_one(),
                // These have a handful of conditions, which they report as a whole with each change, or report again.
                Source::Disk
                | Source::Server
                | Source::Services
                | Source::Leases
                | Source::Latches
                | Source::Fences
                | Source::Drains
                | Source::Groups
                | Source::Rules
                | Source::Sessions
                | Source::Reporter(_)
                | Source::Diagnosis => {}
            }
        }
    }

    /// When the next revision with alarms may come, if there is something to be shown.
    fn show_due(&self) -> Option<Instant> {
        if self.unshown.is_empty() && self.untold.is_empty() && self.untold_steps.is_empty() {
            return None;
        }
        let earliest = self.shown_at.map_or(self.began, |at| at + SHOW_INTERVAL);
        if !self.faults.is_conservative() {
            return Some(earliest);
        }
        let is_pending = |condition: &Condition| {
            let impact = self.faults.alarm(condition).and_then(|alarm| alarm.impact);
            impact.is_some_and(|impact| impact.state == ImpactState::Pending)
        };
        let since = self.unshown.since.filter(|_| self.unshown.alarms.iter().any(is_pending));
        Some(since.map_or(earliest, |since| earliest.max(since + CONSERVATIVE_TIME)))
    }

    /// Shows marks and then alarms, and tells listeners. An impact is shown before its alarm says that it is
    /// complete.
    fn show(&mut self) {
        let unshown = std::mem::take(&mut self.unshown);
        let Unshown { alarms, marks, latches, monitors, rules, sessions, groups, .. } = unshown;
        let fences = unshown.fences;
        let wishes = unshown.wishes;
        let mut marks: VecDeque<_> = marks.into_iter().collect();
        while marks.len() > MARKS_AT_ONCE {
            let portion = marks.drain(..MARKS_AT_ONCE).collect();
            self.count_unmarked(self.core.mark(ServiceState::new(), portion));
        }
        let mut leaves = self.leaves.show(&self.faults, &alarms);
        for condition in &latches {
            let latch = self.faults.latches().find(|latch| latch.condition() == *condition);
            leaves.extend(self.leaves.show_latch(condition, latch));
        }
        for name in &monitors {
            leaves.extend(self.leaves.show_monitor(name, self.reporters.counts(name)));
        }
        for rule in &rules {
            leaves.extend(self.leaves.show_rule(rule, self.faults.rule_state(rule)));
        }
        for id in &sessions {
            leaves.extend(self.session_leaves.show(id, self.faults.session(id)));
        }
        for group in &groups {
            leaves.extend(self.leaves.show_group(group, self.faults.group_state(group)));
        }
        for target in &fences {
            leaves.extend(self.leaves.show_fence(target, self.fences.get(target)));
        }
        let shown = || alarms.iter().filter_map(|it| self.faults.alarm(it));
        self.stamps.show_marks(shown());
        self.count_unmarked(self.core.mark(leaves, marks.into()));
        self.stamps.show(shown());
        for owner in &wishes {
            self.want(owner);
        }
        self.shown_at = Some(Instant::now());
        for transition in self.untold.drain(..) {
            // There may be no listener.
            let _ = self.transitions.send(transition);
        }
        for step in self.untold_steps.drain(..) {
            let _ = self.session_steps.send(step);
        }
        self.stamps.tell();
    }

    fn count_unmarked(&self, unmarked: usize) {
        if unmarked > 0 {
            warn!(unmarked, "more objects do not work than have a mark of it");
        }
    }

    /// Passes on what an owner wants fenced.
    fn want(&self, owner: &FenceOwner) {
        if let FenceOwner::Session(id) = owner {
            return self.want_for_session(id);
        }
        let mut shut = Wishes::new();
        let mut drained = BTreeSet::new();
        for (target, wish) in self.faults.fences().get(owner).into_iter().flatten() {
            let resource = target.resource.clone();
            match target.action {
                Action::Shut => drop(shut.insert(resource, wish.allows_isolation)),
                Action::Drain => drop(drained.insert(resource)),
            }
        }
        self.outlets.fencer.want(owner.clone(), shut);
        self.outlets.drains.want(owner.clone(), drained);
    }

    /// Passes on what a session wants fenced; nothing, once it is forgotten.
    fn want_for_session(&self, id: &SmolStr) {
        let (number, wants) = self.faults.session_wants(id);
        let session = self.faults.session(id);
        let links = session.into_iter().flat_map(|it| &it.resources);
        let links = links.filter(|it| matches!(it, Resource::Interface(_)));
        let wishes = SessionWishes {
            number,
            wants,
            links: links.cloned().collect(),
            allows_isolation: session.is_some_and(|it| it.allows_isolation),
        };
        self.outlets.sessions.want(id.clone(), wishes);
    }

    /// Has everything fenced that is to be, and nothing else, after a start.
    fn refence(&self) {
        let mut owners: BTreeSet<FenceOwner> = self.faults.fences().keys().cloned().collect();
        let sessions = self.faults.sessions();
        let fencing = sessions.filter(|it| it.state.is_open() || it.wants() != Wants::default());
        let fencing: BTreeSet<SmolStr> = fencing.map(|it| it.id.clone()).collect();
        self.outlets.drains.retain_sessions(&fencing);
        owners.extend(fencing.into_iter().map(FenceOwner::Session));
        owners.iter().for_each(|owner| self.want(owner));
        self.outlets.drains.has_level();
        // Clients speak for themselves.
        owners.insert(FenceOwner::Client);
        self.outlets.fencer.retain(owners);
    }

    /// Tells the core which links are forced down.
    async fn force_down(&self) {
        let forced = self.faults.latches().filter(|latch| latch.kind == LatchKind::ForcedDown);
        let links = forced.filter_map(|latch| match &latch.resource {
            Resource::Interface(name) => Some(name.clone()),
            _ => None,
        });
        if let Err(error) = self.core.force_down(links.collect()).await {
            warn!(error = %ErrorChain(&error), "the core does not take what is forced down");
        }
    }

    /// Tells the core which links are maintained.
    async fn maintain(&mut self) {
        self.is_maintenance_changed = false;
        let links = sessions::maintained(&self.faults, &self.core, &self.objects);
        if let Err(error) = self.core.maintain(links).await {
            warn!(error = %ErrorChain(&error), "the core does not take what is maintained");
        }
    }

    /// When sessions that are restoring look again whether their resources work.
    fn check_due(&self) -> Option<Instant> {
        let is_checking = self.faults.sessions().any(Session::is_checking);
        is_checking.then(|| self.checked_at.map_or_else(Instant::now, |at| at + CHECK_INTERVAL))
    }

    fn check_sessions(&mut self) {
        self.checked_at = Some(Instant::now());
        let checking = self.faults.sessions().filter(|it| it.is_checking());
        let health =
            |it: &Session| (it.id.clone(), sessions::health(it, &self.faults, &self.links));
        let checked: Vec<(SmolStr, Health)> = checking.map(health).collect();
        for (id, health) in checked {
            self.take(Input::Session(id, SessionInput::Health(health)));
        }
    }

    /// Carries out a request about a session. The answer comes when that is on disk, or when the disk has refused it.
    async fn request_session(
        &mut self,
        request: SessionRequest,
        answer: oneshot::Sender<Result<SessionAnswer, SessionRefusal>>,
    ) {
        if let SessionRequest::Create { plan, .. } = &request
            && let Some(unknown) = plan.resources.iter().find(|it| !self.knows(it))
        {
            drop(answer.send(Err(SessionRefusal::NoSuchResource(unknown.clone()))));
            return;
        }
        let deleted = match &request {
            SessionRequest::Delete { session, .. } => self.faults.session(session).cloned(),
            _ => None,
        };
        let now = self.take_input();
        let (id, effects) = match self.faults.request_session(request, now) {
            Ok(done) => done,
            Err(error) => return drop(answer.send(Err(error.into()))),
        };
        let written = self.carry_out_noticed(effects);
        // Nothing is placed any more when the answer comes.
        self.maintain().await;
        self.show();
        let Some(session) = self.faults.session(&id).cloned().or(deleted) else { return };
        tokio::spawn(async move {
            let is_durable = written.await.unwrap_or(false);
            drop(answer.send(Ok(SessionAnswer { session, is_durable })));
        });
    }

    fn follow_sessions(&mut self, after: Option<u64>) -> FollowedSessions {
        self.show(); // what is not told yet is in the answer, and must not be told again
        let last_id = self.faults.log().last_id();
        let news = match after.and_then(|after| self.faults.session_events_since(after)) {
            Some(missed) => missed.into_iter().map(|it| SessionNews::Step(it.into())).collect(),
            None => {
                let sessions = self.faults.sessions().cloned().collect();
                VecDeque::from([SessionNews::Snapshot {
                    sessions,
                    is_gap: after.is_some(),
                    last_id,
                }])
            }
        };
        FollowedSessions { news, last_id, steps: self.session_steps.subscribe() }
    }

    /// Says for a while that faults were not looked for.
    fn begins_again(&mut self, attempt: u32) {
        let text = format_smolstr!(
            "faults were not looked for, because of a bug: {attempt} times since the agent was started"
        );
        let lost = Condition::new("monitor-lost", Resource::Agent);
        let report = Report::holding(lost, text, now_ns());
        let report = Report { silence: Some(Silence::Ends(LOST_TIME)), ..report };
        self.take(Input::Reports(Source::Diagnosis, vec![report]));
        self.unshown.alarms.extend(self.leaves.shown_before(&self.revisions.borrow()));
    }

    /// Answers a request. Latches that wait behind a latch are set together with it: the core is told of all of them at
    /// once, and one amendment shows them.
    async fn answer_in_turn(&mut self, first: Request, requests: &mut mpsc::Receiver<Request>) {
        let mut latches = Vec::new();
        let mut next = Some(first);
        while let Some(request) = next.take() {
            match request {
                Request::Latch { request, answer } => {
                    latches.push((request, answer));
                    next = requests.try_recv().ok();
                }
                other => {
                    self.latch(std::mem::take(&mut latches)).await;
                    self.answer(other).await;
                }
            }
        }
        self.latch(latches).await;
    }

    async fn answer(&mut self, request: Request) {
        // Whoever asked may have gone.
        match request {
            Request::Alarms(answer) => drop(answer.send(self.faults.alarms().cloned().collect())),
            Request::Log { after, answer } => {
                let log = self.faults.log().entries();
                drop(answer.send(log.filter(|entry| entry.id() > after).cloned().collect()));
            }
            Request::Session { request, answer } => self.request_session(request, answer).await,
            Request::FollowSessions { after, answer } => {
                drop(answer.send(self.follow_sessions(after)));
            }
            Request::SessionSteps(answer) => {
                drop(answer.send(self.faults.session_events()));
            }
            Request::Sessions(answer) => {
                drop(answer.send(self.faults.sessions().cloned().collect()));
            }
            Request::Operate { word, answer } => self.operate(&word, answer),
            Request::Report { reporter, report, answer } => {
                drop(answer.send(self.report(&reporter, report)));
            }
            Request::Latch { request, answer } => self.latch(vec![(request, answer)]).await,
            Request::Affected { alarm, limit, answer } => {
                let affected = self.faults.affected(&alarm).take(limit);
                drop(answer.send(affected.collect()));
            }
            Request::Times(answer) => drop(answer.send(self.stamps.times())),
            Request::Raises { after, answer } => drop(answer.send(self.stamps.after(after))),
            Request::ResetRule { owner, name, answer } => self.reset_rule(&owner, &name, answer),
            Request::Listen { after, answer } => drop(answer.send(self.listen(after))),
        }
    }

    /// Takes a report from outside in.
    fn report(&mut self, reporter: &Reporter, report: OutsideReport) -> Result<(), ReportError> {
        let now = self.take_input();
        let Reporter { monitor, caller } = reporter;
        let entry = self.faults.settings().monitor(monitor);
        if let Some(caller) = caller
            && entry.is_none_or(|entry| entry.identity.as_ref() != Some(caller))
        {
            let refused =
                ReportError::Identity { monitor: monitor.clone(), caller: caller.clone() };
            return Err(refused);
        }
        let rate = entry.map_or(0, |entry| entry.rate);
        let taken = match self.reporters.admit(monitor, rate, now.monotonic) {
            false => {
                self.note_overflow(monitor, rate);
                Err(ReportError::Rate { monitor: monitor.clone(), rate })
            }
            true if report.word != Word::Cleared && !self.knows(&report.condition.resource) => {
                Err(ReportError::NoSuchResource(report.condition.resource.clone()))
            }
            true => {
                self.faults.report_from_outside(monitor, report, now).map_err(ReportError::from)
            }
        };
        self.reporters.note(monitor, taken.is_ok(), now.unix_ns);
        self.unshown.monitors.insert(monitor.clone());
        let effects = taken?;
        self.carry_out(effects, None);
        Ok(())
    }

    fn note_overflow(&mut self, monitor: &SmolStr, rate: u32) {
        let condition = Condition::new("queue-overflow", Resource::Agent).qualified(monitor);
        let text = format_smolstr!("{monitor} sends more than {rate} reports a second");
        let report = Report::holding(condition, text, now_ns());
        let report = Report { silence: Some(Silence::Ends(OVERFLOW_TIME)), ..report };
        self.take(Input::Reports(Source::Diagnosis, vec![report]));
    }

    /// True unless the box has no such link.
    fn knows(&self, resource: &Resource) -> bool {
        match resource {
            Resource::Interface(name) => self.links.knows(name),
            _ => true,
        }
    }

    /// Sets or lifts latches. The answers come when that is on disk, or when the disk has refused it.
    async fn latch(&mut self, requests: Vec<LatchCall>) {
        let mut written = Vec::new();
        let mut are_changed = false;
        for (request, answer) in requests {
            if request.is_set && !self.knows(&request.resource) {
                drop(answer.send(Err(LatchRefusal::NoSuchResource(request.resource))));
                continue;
            }
            let condition = Condition::new(request.kind.alarm_type(), request.resource.clone());
            let now = self.take_input();
            let fenced_for = request.is_fenced.then(|| FenceOwner::Latch(request.by.clone()));
            match self.faults.latch(request, now) {
                Ok(effects) => {
                    are_changed |= effects.are_latches_changed;
                    self.unshown.latches.insert(condition);
                    written.push((self.carry_out_noticed(effects), answer));
                }
                Err(error) => {
                    // The interface is shut before a latch is set: it is given back.
                    fenced_for.iter().for_each(|owner| self.want(owner));
                    drop(answer.send(Err(error.into())));
                }
            }
        }
        if are_changed {
            self.force_down().await;
        }
        // Where alarms are shown with their impact, these wait for it, too.
        if !written.is_empty() && !self.faults.is_conservative() {
            self.show();
        }
        for (written, answer) in written {
            answer_when_written(written, answer);
        }
    }

    /// Carries effects out. The receiver is told whether they are on disk.
    fn carry_out_noticed(&mut self, effects: Effects) -> oneshot::Receiver<bool> {
        let (written_tx, written) = oneshot::channel();
        self.carry_out(effects, Some(written_tx));
        written
    }

    fn operate(
        &mut self,
        word: &OperatorWord,
        answer: oneshot::Sender<Result<bool, OperatorError>>,
    ) {
        let now = self.take_input();
        let done = self.faults.operate(word.condition(), word.state(), word.said(), now);
        self.answer_operator(done, answer);
    }

    /// Sets a rule back whose alarm stays until somebody does.
    fn reset_rule(
        &mut self,
        owner: &str,
        name: &str,
        answer: oneshot::Sender<Result<bool, ResetError>>,
    ) {
        let now = self.take_input();
        let done = self.faults.reset_rule(owner, name, now);
        self.answer_operator(done, answer);
    }

    /// Carries out and shows what an operator's word comes to. The answer comes when that is on disk, or when the disk has
    /// refused it.
    fn answer_operator<E: Send + 'static>(
        &mut self,
        done: Result<Effects, E>,
        answer: oneshot::Sender<Result<bool, E>>,
    ) {
        match done {
            Ok(effects) => {
                let written = self.carry_out_noticed(effects);
                self.show();
                answer_when_written(written, answer);
            }
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    fn listen(&mut self, after: Option<u64>) -> Listening {
        self.show(); // what is not told yet is in the answer, and must not be told again
        let transitions = self.transitions.subscribe();
        let last_id = self.faults.log().last_id();
        let resumed = after.map(|after| self.faults.log().since(after));
        let news = match resumed {
            Some(Resume::Entries(missed)) => {
                let transitions = missed.iter().filter_map(LogEntry::transition).cloned();
                transitions.map(News::Transition).collect()
            }
            Some(Resume::Gap) | None => {
                let alarms = self.faults.alarms().cloned().collect();
                VecDeque::from([News::Snapshot { alarms, is_gap: after.is_some(), last_id }])
            }
        };
        Listening { news, last_id, transitions }
    }

    /// Begins to take something in. The moment counts for all that comes of it.
    fn take_input(&mut self) -> Now {
        self.stamps.take_input();
        Now { monotonic: self.began.elapsed(), unix_ns: now_ns() }
    }
}

/// A request for a latch, with the place for its answer.
type LatchCall = (LatchRequest, oneshot::Sender<Result<bool, LatchRefusal>>);

/// One line for each step that administrators are told of.
fn log_step(event: &SessionEvent) {
    let SessionEvent { step, session } = event;
    if step.consumer.is_none() {
        let Session { id, reason, .. } = &**session;
        let change = step.change.name();
        let state = step.state;
        info!(session = %id, %state, %reason, "maintenance: {change}");
    }
}

/// All that is fenced, as it is shown.
#[derive(Debug, Default)]
struct FenceTable {
    /// The configuration that was looked at last.
    configuration: Option<Configuration>,
    rows: BTreeMap<FenceTarget, DrainStanding>,
}

impl FenceTable {
    fn get(&self, target: &FenceTarget) -> Option<&DrainStanding> {
        self.rows.get(target)
    }

    /// Looks at the fences of a configuration, and at drains. Returns what differs from what was seen before.
    fn look(&mut self, configuration: &Configuration, drains: &Outcome) -> BTreeSet<FenceTarget> {
        let fences = |it: &Configuration| it.layers().fences().clone();
        let before = self.configuration.as_ref().map(fences);
        let is_same = before.is_some_and(|before| before.is_same(&fences(configuration)));
        let mut rows: BTreeMap<FenceTarget, DrainStanding> = BTreeMap::new();
        if is_same {
            let shut = self.rows.iter().filter(|(target, _)| target.action == Action::Shut);
            rows.extend(shut.map(|(target, row)| (target.clone(), row.clone())));
        } else {
            for (item, owners) in configuration.fence_items() {
                let Some(name) = shut_by(item) else { continue };
                let target =
                    FenceTarget { resource: Resource::Interface(name), action: Action::Shut };
                let owners = owners.into_iter().collect();
                rows.insert(target, DrainStanding { owners, ..DrainStanding::default() });
            }
            self.configuration = Some(configuration.clone());
        }
        let target =
            |resource: &Resource| FenceTarget { resource: resource.clone(), action: Action::Drain };
        rows.extend(drains.drains.iter().map(|(resource, it)| (target(resource), it.clone())));
        let before = std::mem::replace(&mut self.rows, rows);
        let all = before.keys().chain(self.rows.keys());
        all.filter(|target| before.get(*target) != self.rows.get(*target)).cloned().collect()
    }
}

/// One line for each change that is not a repetition; fields have the names of RFC 5674.
fn log(transition: &Transition) {
    let Alarm { condition, severity, text, .. } = &transition.alarm;
    if !transition.is_told() {
        return;
    }
    let change = transition.change.name();
    info!(event = transition.id, alarm = %condition, perceived_severity = %severity, "{change}: {text}");
}
