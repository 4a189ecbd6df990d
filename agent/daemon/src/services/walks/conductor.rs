//! Walks that instances need without a change of their parameters: a gate opens, an object comes or is refused.
//!
//! ```text
//! revision, configuration, status of an object
//!    | an answer that a walk has read is another one, or the plan, or an object of a claim
//!    v
//! due instances -- conditions that read it alone, on a thread --> the same results: done
//!    |
//!    ` another result, or no condition -- tried on that thread, without effects --> nothing changes: done
//!                                           |
//!    +--------------------------------------+
//!    ` something changes --> one transaction for up to BATCH instances, TRANSACTIONS of them at one time
//!                               | refused, several: each alone
//!                               ` refused, one: its states fail with the reason, until the configuration or what it
//!                                               reads changes
//! ```
//!
//! Instances that need the work of a handler have transactions of their own; any number of them is under way.
//!
//! A state with a timeout is tried at its time, too. Everything is judged by level: what is missed while a transaction
//! runs is found when its configuration comes. The reads of all instances are compared with each revision by
//! [`Watches`], so the cost of a revision is in proportion to what both changed and is read.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{ErrorChain, now_ns};
use holdfast_config::schema::Origin;
use holdfast_config::services::{
    Book, BoxState, CauseKind, Ground, LeafRead, Plane, Read, Surroundings, WalkCause,
};
use holdfast_config::{Configuration, Elem, ServiceTag, Value};
use holdfast_core::{
    CommitError, CommitStamp, CoreEvent, CoreHandle, Datastore, Intent, ObservedBox, Walks,
};
use holdfast_scheduler::Key;
use holdfast_services::watch::{Answer, DueInstances, DueRound};
use holdfast_services::{TouchedReads, Watches};
use tokio::sync::broadcast::error::RecvError;
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, warn};

use super::due_walks::DueWalks;
use super::hold_back::HoldBack;
use super::object_index::ObjectIndex;
use super::over_limit::OverLimit;
use super::waits::ShownWaits;
use crate::services::handlers::Handlers;
use crate::services::requester::Requester;

/// Instances that walk in one transaction.
const BATCH: usize = 64;
/// Transactions without the work of handlers at one time. A transaction that waits for the kernel holds up none of
/// the others, and clients have most of the places in the queue of the core.
const TRANSACTIONS: usize = 8;
/// Time after which a walk is tried again that found the core busy.
const RETRY: Duration = Duration::from_secs(1);

/// Longest time until an instance with a timeout is tried again: the clock of the box may be set meanwhile.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// Walks instances for as long as the handle is kept.
pub(in crate::services) fn conduct(core: CoreHandle, handlers: Handlers) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(Conductor::new(core, handlers).run()))
}

/// The box as it was looked at once.
#[derive(Clone, Debug)]
struct View {
    state: Arc<ObservedBox>,
    ground: Ground,
}

impl View {
    fn new(core: &CoreHandle) -> Self {
        let state = Arc::new(core.observed_box());
        let ground = state.configuration().ground();
        Self { state, ground }
    }

    fn configuration(&self) -> &Configuration {
        self.state.configuration()
    }

    fn book(&self) -> &Book {
        &self.configuration().layers().book
    }

    fn answer(&self, read: &Read) -> Answer {
        match read {
            Read::Service(tag) => {
                let plan = self.book().get(tag);
                vec![Value::Bool(plan.is_some_and(|plan| plan.is_ready()))]
            }
            Read::Leaves(read) => read.values(&self.ground, Some(&*self.state)),
        }
    }

    /// Reads of instances whose answers may differ from those of an earlier view.
    fn touched(&self, old: &Self, watches: &Watches) -> TouchedReads {
        let mut touched = TouchedReads::default();
        let native = Origin::Native;
        let openconfig = Origin::OpenConfig;
        let grounds = [old, self].map(|view| view.ground.effective());
        watches.compare(Plane::Ground, native, grounds.into(), &mut touched);
        let grounds = [old, self].map(|view| view.ground.config_view(openconfig));
        watches.compare(Plane::Ground, openconfig, grounds.into(), &mut touched);
        for origin in [native, openconfig] {
            let states = [old, self].map(|view| view.state.revision().tree(origin));
            watches.compare(Plane::State, origin, states.into(), &mut touched);
        }
        for (tag, ..) in Book::differences(old.book(), self.book()) {
            watches.touch_service(tag, &mut touched);
        }
        touched
    }
}

/// End of one transaction.
struct WalkEnd {
    due: DueWalks,
    /// Handlers were asked for it.
    is_asked: bool,
    result: Result<CommitStamp, CommitError>,
}

struct Conductor {
    core: CoreHandle,
    handlers: Handlers,
    /// The box as the last round saw it.
    view: View,
    /// Reads of the instances' last walks.
    watches: Watches,
    waits: ShownWaits,
    /// Instances whose waits may differ from what is shown.
    unshown: BTreeSet<ServiceTag>,
    /// Instances by the keys of the objects of their claims.
    objects: ObjectIndex<ServiceTag>,
    keys: BTreeMap<ServiceTag, BTreeSet<Key>>,
    /// Instances to be tried.
    due: DueInstances,
    /// Causes of these.
    causes: DueWalks,
    /// Transactions under way.
    walking: JoinSet<WalkEnd>,
    /// Number of these for which no handler is asked.
    unasked: usize,
    /// Instances of transactions that have not begun, for which no handler is asked.
    waiting: VecDeque<DueWalks>,
    /// Instances of all of these.
    busy: BTreeSet<ServiceTag>,
    /// Instances whose walk was refused, with the reason.
    refused: BTreeMap<ServiceTag, Arc<str>>,
    /// Instances of a batch that was refused: each is walked alone.
    alone: BTreeSet<ServiceTag>,
    over_limit: OverLimit,
    held_back: HoldBack,
    /// Instances that pause.
    paused: BTreeSet<ServiceTag>,
    /// Times at which states become late.
    timeouts: BTreeMap<ServiceTag, Instant>,
    retry_at: Option<Instant>,
}

impl Conductor {
    fn new(core: CoreHandle, handlers: Handlers) -> Self {
        let view = View::new(&core);
        let mut conductor = Self {
            core,
            handlers,
            walking: JoinSet::new(),
            unasked: 0,
            waiting: VecDeque::new(),
            busy: BTreeSet::new(),
            view,
            watches: Watches::default(),
            waits: ShownWaits::default(),
            unshown: BTreeSet::new(),
            objects: ObjectIndex::default(),
            keys: BTreeMap::new(),
            due: DueInstances::default(),
            causes: DueWalks::default(),
            refused: BTreeMap::new(),
            alone: BTreeSet::new(),
            over_limit: OverLimit::default(),
            held_back: HoldBack::default(),
            paused: BTreeSet::new(),
            timeouts: BTreeMap::new(),
            retry_at: None,
        };
        // At the start all conditions are judged once. Instances from before there were plans have claims alone; those of a
        // boot configuration may have neither, where a commit was taken back in which they were walked.
        let configuration = conductor.view.configuration().clone();
        let with_claims = configuration.layers().claims().iter().map(|(key, _)| key.tag.clone());
        let with_plans = configuration.layers().book.iter().map(|(tag, _)| tag.clone());
        let known = with_claims.chain(with_plans).chain(configuration.instances());
        conductor.note_plans(known.collect(), CauseKind::Start);
        conductor
    }

    async fn run(mut self) {
        let mut events = self.core.listen();
        let mut revisions = self.core.watch();
        let mut attached = self.handlers.watch();
        loop {
            self.round().await;
            self.show_waits().await;
            let wake_at = self.wake_at();
            tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => self.note_event(event),
                    Err(RecvError::Lagged(_)) => self.note_all_moved(),
                    Err(RecvError::Closed) => return,
                },
                changed = revisions.changed() => if changed.is_err() { return },
                changed = attached.changed() => if changed.is_err() { return },
                Some(ended) = self.walking.join_next() => if !self.note_walked(ended).await { return },
                () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
            }
        }
    }

    /// Time at which a pause ends, a state becomes late, or a refused walk is tried again.
    fn wake_at(&self) -> Option<Instant> {
        let now = Instant::now();
        let pauses = self.paused.iter().filter_map(|tag| self.held_back.until(tag, now));
        pauses.chain(self.timeouts.values().copied()).chain(self.retry_at).min()
    }

    fn note_event(&mut self, event: CoreEvent) {
        let CoreEvent::Statuses { changed, omitted } = event else { return };
        if omitted > 0 {
            return self.note_all_moved();
        }
        for status in changed.iter() {
            let mut holders = self.objects.holders(&status.key).peekable();
            if holders.peek().is_none() {
                continue;
            }
            let cause = WalkCause::object(&status.label, &status.state.to_string());
            for tag in holders {
                self.causes.note(tag, &cause);
                self.due.insert_moved(tag.clone());
            }
        }
    }

    /// Notes that the status of any object may differ.
    fn note_all_moved(&mut self) {
        let cause = WalkCause::bare(CauseKind::Object);
        for tag in self.keys.keys() {
            self.causes.note(tag, &cause);
            self.due.insert_moved(tag.clone());
        }
    }

    /// Notes an instance that may differ in anything.
    fn note_due(&mut self, tag: ServiceTag, cause: &WalkCause) {
        self.causes.note(&tag, cause);
        self.due.insert(tag);
    }

    fn note_all_due(&mut self, tags: impl IntoIterator<Item = ServiceTag>, kind: CauseKind) {
        let cause = WalkCause::bare(kind);
        tags.into_iter().for_each(|tag| self.note_due(tag, &cause));
    }

    /// Looks at the box again, and begins to walk what has to be walked.
    async fn round(&mut self) {
        self.look();
        // Instances may wait for a handler that has just been attached.
        for service in self.handlers.take_due_services() {
            let cause = WalkCause::handler(&service);
            let of_type: Vec<_> =
                self.view.book().of_type(&service).map(|(tag, _)| tag.clone()).collect();
            of_type.into_iter().for_each(|tag| self.note_due(tag, &cause));
        }
        let now = Instant::now();
        let late: Vec<_> = self.timeouts.extract_if(.., |_, at| *at <= now).collect();
        self.note_all_due(late.into_iter().map(|(tag, _)| tag), CauseKind::Time);
        if self.retry_at.is_some_and(|at| at > now) {
            return;
        }
        self.retry_at = None;
        let held_back = &self.held_back;
        let over = self.paused.extract_if(.., |tag| held_back.until(tag, now).is_none());
        for tag in over.collect::<Vec<_>>() {
            self.show_pause(&tag, None).await;
        }
        let mut due = std::mem::take(&mut self.due);
        let round = due.take(|tag| !self.paused.contains(tag) && !self.is_busy(tag));
        self.due = due;
        if round.is_empty() {
            self.handlers.await_walks(&BTreeSet::new());
            return;
        }
        let mut causes = self.causes.take(round.tags());
        let [changing, calling] = self.try_out(round).await;
        self.handlers.await_walks(&calling);
        self.ask(causes.take(&calling));
        let (alone, together): (Vec<_>, Vec<_>) =
            changing.into_iter().partition(|tag| self.alone.contains(tag));
        for batch in together.chunks(BATCH).chain(alone.chunks(1)) {
            self.busy.extend(batch.iter().cloned());
            self.waiting.push_back(causes.take(batch));
        }
        self.begin_waiting();
    }

    /// Begins transactions that wait, as many as may be under way.
    fn begin_waiting(&mut self) {
        while self.unasked < TRANSACTIONS
            && let Some(due) = self.waiting.pop_front()
        {
            self.unasked += 1;
            self.begin(due, false);
        }
    }

    /// Begins one transaction, whose instances are busy already.
    fn begin(&mut self, due: DueWalks, is_asked: bool) {
        let core = self.core.clone();
        let tags = due.tags();
        let by = Requester::of_instances(&tags, self.view.book());
        let refused = self.refused_of(&tags);
        let causes = due.causes().clone();
        let intent = Intent::Walk(Walks { due: tags, refused, causes, ..Walks::default() });
        self.walking.spawn(async move {
            let result = by.change(&core, intent).await;
            WalkEnd { due, is_asked, result }
        });
    }

    /// True while an operation on an object of an instance, or its walk, is under way. The end is an event.
    fn is_busy(&self, tag: &ServiceTag) -> bool {
        let keys = self.keys.get(tag);
        self.busy.contains(tag) || keys.is_some_and(|keys| self.view.state.is_any_in_progress(keys))
    }

    /// Compares the box with the last round, and notes the instances that may have to walk.
    fn look(&mut self) {
        let new = View::new(&self.core);
        let before = std::mem::replace(&mut self.view, new);
        if !before.ground.effective().is_same(self.view.ground.effective()) {
            // The contradiction of a refused walk may have gone.
            let refused = std::mem::take(&mut self.refused).into_keys();
            self.note_all_due(refused, CauseKind::Retry);
        }
        let old = before.configuration();
        let new = self.view.configuration().clone();
        let changed = old.changed_instances(&new);
        for tag in &changed {
            self.alone.remove(tag);
        }
        self.note_all_due(changed, CauseKind::Parameters);
        let [had, has] = [old, &new].map(|it| it.layers().book.totals());
        let tags = self.over_limit.take(has.less_than(had));
        self.note_all_due(tags, CauseKind::Retry);
        let plans = Book::differences(&old.layers().book, &new.layers().book);
        let plans = plans.map(|(tag, ..)| tag.clone()).collect();
        self.note_plans(plans, CauseKind::Plan);
        self.note_walked_reads(&before);
        let touched = self.view.touched(&before, &self.watches);
        let view = &self.view;
        for change in self.watches.wake(&touched, |read| view.answer(read)) {
            self.causes.note_answer(view.configuration().models(), &change);
            for tag in change.woken.keys() {
                self.refused.remove(tag);
                self.unshown.insert(tag.clone());
            }
            self.due.insert_woken(change.woken);
        }
    }

    /// Notes what instances have read in the last change, with the state as it was before: what the change itself has moved
    /// since, such as a link that came up, is the cause of a walk.
    fn note_walked_reads(&mut self, before: &View) {
        let view = self.view.clone();
        let cause = WalkCause::bare(CauseKind::Plan);
        for (tag, reads) in view.configuration().reads_since(before.configuration()) {
            let answer = |read: &Read| match read {
                Read::Leaves(LeafRead { plane: Plane::State, .. }) => before.answer(read),
                _ => view.answer(read),
            };
            self.watches.replace(tag, reads.clone(), answer);
            self.note_due(tag.clone(), &cause);
        }
    }

    /// Notes instances whose plans have changed, with the objects of their claims.
    fn note_plans(&mut self, tags: BTreeSet<ServiceTag>, cause: CauseKind) {
        let mut gone = BTreeSet::new();
        let cause = WalkCause::bare(cause);
        for tag in tags {
            for key in self.keys.remove(&tag).into_iter().flatten() {
                self.objects.remove(&key, &tag);
            }
            let configuration = self.view.configuration();
            let claims = configuration.layers().claims().of_instance(&tag).map(|(key, _)| key);
            let keys: BTreeSet<Key> = claims.flat_map(|it| self.view.state.keys(it)).collect();
            keys.iter().for_each(|key| self.objects.insert(key, &tag));
            if self.view.book().get(&tag).is_none() {
                self.held_back.forget(&tag);
                gone.insert(tag.clone());
            }
            if !keys.is_empty() || !gone.contains(&tag) {
                self.keys.insert(tag.clone(), keys);
            }
            self.note_due(tag, &cause);
        }
        for tag in &gone {
            self.timeouts.remove(tag);
            self.over_limit.remove(tag);
            self.watches.remove(tag);
            self.unshown.insert(tag.clone());
        }
        self.handlers.forget(&gone);
    }

    /// Walks instances without effects, those that are touched alone if a condition has another result, and keeps
    /// what they read. Returns the instances that change, and those whose handlers must be asked.
    async fn try_out(&mut self, round: DueRound) -> [BTreeSet<ServiceTag>; 2] {
        let view = self.view.clone();
        let refused = self.refused_of(&round.whole);
        let state: Arc<dyn BoxState> = Arc::<ObservedBox>::clone(&view.state);
        let tried = round.clone();
        let answers = self.handlers.answers_at_hand();
        let outcome = spawn_blocking(move || {
            let surroundings = Surroundings {
                state: Some(state),
                now_ns: now_ns(),
                is_lenient: true,
                due: tried.whole,
                touched: tried.touched,
                refused,
                answers,
                may_ask: true,
                ..Surroundings::default()
            };
            view.configuration().trial(&surroundings)
        });
        self.unshown.extend(round.tags().cloned());
        let Ok(mut outcome) = outcome.await else {
            error!(services = ?round, "the walk of services panicked; it is not tried again before something changes");
            return Default::default();
        };
        let view = &self.view;
        let walked =
            self.due.note(round, &mut outcome, &mut self.watches, |read| view.answer(read));
        for tag in &walked {
            self.timeouts.remove(tag);
            self.over_limit.remove(tag);
        }
        let now = Instant::now();
        let now_ns = now_ns();
        for (tag, at_ns) in outcome.wake_at_ns {
            let at = now + Duration::from_nanos(at_ns.saturating_sub(now_ns)).min(MAX_SLEEP);
            self.timeouts.insert(tag, at);
        }
        for tag in outcome.over_limit {
            warn!(service = %tag, "a limit of the box keeps a service from going on");
            self.over_limit.insert(tag);
        }
        let calling: BTreeSet<_> =
            outcome.calls.into_iter().map(|call| call.place.state.tag).collect();
        let claims = outcome.claims.into_iter().map(|(key, _)| key.tag);
        let changing = claims.chain(outcome.plans.into_iter().map(|(tag, _)| tag));
        let changing = changing.filter(|tag| !calling.contains(tag)).collect();
        [changing, calling]
    }

    /// Begins the walks of instances that handlers are asked for: one transaction for those of a type, and one for each
    /// instance of a batch that was refused.
    fn ask(&mut self, mut calling: DueWalks) {
        let (alone, together): (Vec<_>, Vec<_>) =
            calling.tags().into_iter().partition(|tag| self.alone.contains(tag));
        let of_types = together.chunk_by(|one, other| one.service == other.service);
        for batch in of_types.flat_map(|tags| tags.chunks(BATCH)).chain(alone.chunks(1)) {
            self.busy.extend(batch.iter().cloned());
            self.begin(calling.take(batch), true);
        }
    }

    /// Notes the end of a transaction. False when the core has stopped.
    async fn note_walked(&mut self, ended: Result<WalkEnd, JoinError>) -> bool {
        match ended {
            Ok(WalkEnd { due, is_asked, result }) => {
                let tags = due.tags();
                self.busy.retain(|tag| !tags.contains(tag));
                if is_asked {
                    self.handlers.note_walked(&tags);
                } else {
                    self.unasked -= 1;
                }
                let goes_on = self.note_end(due, result).await;
                self.begin_waiting();
                goes_on
            }
            Err(error) => {
                error!(%error, "a walk of services panicked");
                true
            }
        }
    }

    fn refused_of(&self, tags: &BTreeSet<ServiceTag>) -> BTreeMap<ServiceTag, Arc<str>> {
        let refused = self.refused.iter().filter(|(tag, _)| tags.contains(*tag));
        refused.map(|(tag, reason)| (tag.clone(), Arc::clone(reason))).collect()
    }

    /// Notes what became of a transaction. False when the core has stopped.
    async fn note_end(&mut self, due: DueWalks, result: Result<CommitStamp, CommitError>) -> bool {
        match result {
            Ok(_) => {
                let now = Instant::now();
                let configuration = self.core.configuration();
                for tag in due.tags() {
                    self.alone.remove(&tag);
                    let plan = configuration.layers().book.get(&tag).map(|plan| &**plan);
                    if self.held_back.note(&tag, plan, now) {
                        warn!(service = %tag, "a service walks again and again, and is held back");
                        self.show_pause(&tag, Some(Value::Bool(true))).await;
                        self.paused.insert(tag);
                    }
                }
            }
            Err(CommitError::Stopped) => return false,
            Err(CommitError::Overloaded) => {
                self.retry_at = Some(Instant::now() + RETRY);
                self.note_again(&due);
            }
            // The input of its handlers has changed meanwhile. The present input is walked as any other change.
            Err(CommitError::Unsettled { .. }) => self.note_again(&due),
            Err(_) if due.len() > 1 => {
                self.alone.extend(due.tags());
                self.note_again(&due);
                self.retry_at = Some(Instant::now());
            }
            Err(error) => self.refuse(&due, &error),
        }
        true
    }

    /// Notes instances whose walks were given up.
    fn note_again(&mut self, due: &DueWalks) {
        for (tag, cause) in due.causes() {
            self.note_due(tag.clone(), cause);
        }
    }

    /// Shows what instances wait for, as far as it differs.
    async fn show_waits(&mut self) {
        let tags = std::mem::take(&mut self.unshown);
        let models = self.view.configuration().models();
        let changes = self.waits.update(models, &self.watches, tags);
        if !changes.is_empty() {
            self.core.show_state(changes).await;
        }
    }

    /// Shows in the state of an instance that it pauses, or nothing.
    async fn show_pause(&self, tag: &ServiceTag, value: Option<Value>) {
        let mut path = tag.path();
        path.elems.extend([Elem::new("state"), Elem::new("walks-held-back")]);
        // A type without its package has no instances in the models.
        if let Ok(path) = self.view.configuration().models().native.resolve_write(&path) {
            self.core.show_state(vec![(path, value)]).await;
        }
    }

    /// Notes that the walk of one instance was refused. A walk that is refused although its states fail is not tried
    /// again before something changes.
    fn refuse(&mut self, due: &DueWalks, error: &CommitError) {
        let reason: Arc<str> = ErrorChain(error).to_string().into();
        for (tag, cause) in due.causes() {
            warn!(service = %tag, %reason, "a walk of a service was refused");
            if self.refused.insert(tag.clone(), Arc::clone(&reason)).is_none() {
                self.note_due(tag.clone(), cause);
                self.retry_at = Some(Instant::now());
            }
        }
    }
}
