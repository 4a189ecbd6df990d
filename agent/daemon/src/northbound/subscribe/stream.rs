//! One subscriber: the parts that are due, and the order in which they are sent.
//!
//! Lists whose entries are derived may have a hundred thousand of them. A client that is sent changes hears of everything else
//! first, at the beginning and later: each part has two cursors, and between two portions of such lists everything else
//! that has changed meanwhile is sent. Samples, and commits for those who follow them, are sent in one walk.

use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_config::Models;
use holdfast_config::schema::Origin;
use holdfast_config::tree::Tree;
use holdfast_core::{Datastore, PolledSources};
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_telemetry::commits::MAX_BOUNDARIES;
use holdfast_telemetry::{
    Boundary, BoundaryReceiver, Compare, Cursor, DerivedCursor, LeafVersion, Lists, Revision,
    Selection, Walk,
};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::super::reads::{ReadPool, WalkQuota};
use super::super::response_stream::StreamError;
use super::super::status::Refusal;
use super::notifications::{NotificationWriter, SendFilter, TimestampMode, UpdateSender};
use super::plan::{StreamMode, SubscriptionPart, SubscriptionPlan};
use super::sampler::{Sample, Sampler};
use crate::budget::CallerBudget;
use crate::deadline::wait_until;

/// The task of one Subscribe RPC.
#[derive(Debug)]
pub(super) struct Subscriber<'a, D> {
    sampler: &'a Sampler<D>,
    plan: SubscriptionPlan,
    outlet: UpdateSender,
    reads: ReadPool,
    budget: CallerBudget,
}

/// Samples that the parts of one answer share, by origin.
#[derive(Debug, Default)]
struct SampleCache {
    openconfig: Option<Sample>,
    native: Option<Sample>,
}

/// A part of a stream, with its progress and its next due times.
#[derive(Debug)]
struct ActivePart {
    part: SubscriptionPart,
    /// Position in all leaves, or in all but those of derived lists where these are told apart. `None` when there are none.
    cursor: Option<Cursor>,
    /// Number of the revision up to which changes were sent.
    sent: u64,
    derived: Option<DerivedPart>,
    sample_due: Option<Instant>,
    heartbeat_due: Option<Instant>,
}

/// The derived lists of a part, where they are told apart.
#[derive(Debug)]
struct DerivedPart {
    cursor: DerivedCursor,
    /// Number of the revision up to which changes were sent, or are being sent.
    sent: u64,
    /// Time stamps of the walk that is under way.
    time: TimestampMode,
}

/// Selections of the two cursors of a part.
#[derive(Debug)]
struct Selections {
    /// Everything, except derived lists where these are told apart.
    others: Option<Arc<Selection>>,
    derived: Option<Arc<Selection>>,
}

type RevisionReceiver = watch::Receiver<Arc<Revision>>;

impl<'a, D: Datastore> Subscriber<'a, D> {
    pub(super) fn new(
        sampler: &'a Sampler<D>,
        plan: SubscriptionPlan,
        outlet: UpdateSender,
        reads: ReadPool,
        budget: CallerBudget,
    ) -> Self {
        Self { sampler, plan, outlet, reads, budget }
    }

    pub(super) async fn run(mut self, mut poll_rx: mpsc::Receiver<()>) -> Result<(), StreamError> {
        let portions = &mut self.reads.walk_quota();
        match self.plan.mode {
            Mode::Once => self.send_once(portions).await,
            Mode::Poll => {
                self.send_once(portions).await?;
                while poll_rx.recv().await.is_some() {
                    portions.rested();
                    self.send_once(portions).await?;
                }
                Ok(())
            }
            Mode::Stream => self.stream(portions).await,
        }
    }

    /// Sends all present values, then sync; sync alone for a client that wants updates only.
    async fn send_once(&mut self, portions: &mut WalkQuota) -> Result<(), StreamError> {
        if !self.plan.updates_only {
            let _turn = self.budget.synchronisation().await;
            let revision = self.sampler.core().current_revision().await;
            self.plan.follow(self.sampler.core(), &self.reads, &revision.models).await?;
            let mut samples = SampleCache::default();
            for part in &self.plan.parts {
                let sample = self.sample_now(part, &revision, &mut samples).await;
                let time = TimestampMode::OfReading { time_ns: sample.time_ns };
                let mut teller = self.writer(part, time);
                let mut walk = Walk::whole(part.selection.clone(), &sample.tree);
                teller.send_walk(&mut walk, SendFilter::All, portions).await?;
                teller.flush().await?;
            }
        }
        self.outlet.sync().await
    }

    async fn stream(&mut self, portions: &mut WalkQuota) -> Result<(), StreamError> {
        // Subscribed before the first revision is taken, so that no commit is missed between the two.
        let mut commits = self.plan.configuration.then(|| self.sampler.core().boundaries());
        let mut revision_rx = self.sampler.core().watch();
        let turn = self.budget.synchronisation().await;
        self.sampler.core().current_revision().await;
        let revision = revision_rx.borrow_and_update().clone();
        self.plan.follow(self.sampler.core(), &self.reads, &revision.models).await?;
        let mut lives = self.begin(&revision, portions).await?;
        self.send_derived(&mut lives, &mut revision_rx, portions).await?;
        drop((revision, turn));
        self.outlet.sync().await?;
        loop {
            portions.rested();
            let due = lives.iter().filter_map(ActivePart::due).min();
            tokio::select! {
                changed = revision_rx.changed(), if commits.is_none() => {
                    changed.map_err(|_| Refusal::stopping())?;
                    let revision = revision_rx.borrow_and_update().clone();
                    self.send_changes(&mut lives, &revision, portions).await?;
                    lives.iter_mut().for_each(|live| live.begin_derived(&revision));
                    self.send_derived(&mut lives, &mut revision_rx, portions).await?;
                }
                boundary = next_commit(commits.as_mut()) => {
                    let boundary = boundary?;
                    self.send_changes(&mut lives, &boundary.revision, portions).await?;
                    if lives.iter().any(ActivePart::follows_changes) {
                        self.outlet.sync_done(&boundary).await?;
                    }
                }
                () = wait_until(due) => {
                    self.send_due(&mut lives, &mut revision_rx, portions).await?;
                }
            }
        }
    }

    /// Sends the initial values of all parts, except those of derived lists that are told apart: their walks begin.
    async fn begin(
        &self,
        revision: &Arc<Revision>,
        portions: &mut WalkQuota,
    ) -> Result<Vec<ActivePart>, StreamError> {
        let mut samples = SampleCache::default();
        let mut lives = Vec::with_capacity(self.plan.parts.len());
        for part in &self.plan.parts {
            let sample = self.sample_now(part, revision, &mut samples).await;
            let selections = self.selections(part);
            let mut live = ActivePart::new(part.clone(), selections, &sample.tree, revision.number);
            live.schedule(self.sampler, Instant::now());
            if !self.plan.updates_only {
                let time = match part.pace {
                    StreamMode::Changes { .. } => {
                        TimestampMode::OfEvent { revision_ns: revision.time_ns }
                    }
                    StreamMode::Sample { .. } => {
                        TimestampMode::OfReading { time_ns: sample.time_ns }
                    }
                };
                self.send_again(&mut live, time, portions).await?;
            }
            lives.push(live);
        }
        Ok(lives)
    }

    /// Takes nodes into the parts that were appended since: in `models`, and not in those of the plan.
    async fn follow(
        &mut self,
        lives: &mut Vec<ActivePart>,
        models: &Arc<Models>,
    ) -> Result<(), StreamError> {
        if !self.plan.follow(self.sampler.core(), &self.reads, models).await? {
            return Ok(());
        }
        for part in &self.plan.parts {
            let selections = self.selections(part);
            match lives.iter_mut().find(|live| live.part.id == part.id) {
                Some(live) => live.replace(part.clone(), selections),
                None => lives.push(ActivePart::appended(part.clone(), selections, self.sampler)),
            }
        }
        Ok(())
    }

    /// Selections of the two cursors of a part: of everything but derived lists, and of these. A part that is sampled has one
    /// for all of its leaves, and so has one that follows commits, since the end of each is marked.
    fn selections(&self, part: &SubscriptionPart) -> Selections {
        if self.plan.configuration || !matches!(part.pace, StreamMode::Changes { .. }) {
            return Selections { others: Some(part.selection.clone()), derived: None };
        }
        let schema = self.plan.models().schema(part.selection.origin);
        let within = |lists| part.selection.within(schema, lists).map(Arc::new);
        Selections { others: within(Lists::Others), derived: within(Lists::Derived) }
    }

    /// Sends what has changed up to a revision, except derived lists that are told apart.
    async fn send_changes(
        &mut self,
        lives: &mut Vec<ActivePart>,
        revision: &Revision,
        portions: &mut WalkQuota,
    ) -> Result<(), StreamError> {
        self.follow(lives, &revision.models).await?;
        for live in lives.iter_mut().filter(|live| live.follows_changes()) {
            self.send_new_changes(live, revision, portions).await?;
        }
        Ok(())
    }

    async fn send_new_changes(
        &self,
        live: &mut ActivePart,
        revision: &Revision,
        portions: &mut WalkQuota,
    ) -> Result<(), StreamError> {
        if revision.number <= live.sent {
            return Ok(()); // a heartbeat has already sent it
        }
        live.sent = revision.number;
        let origin = live.part.selection.origin;
        let Some(cursor) = &mut live.cursor else { return Ok(()) };
        let mut walk = cursor.next(revision.tree(origin), Compare::Events);
        let time = TimestampMode::OfEvent { revision_ns: revision.time_ns };
        let mut teller = self.writer(&live.part, time);
        teller.send_walk(&mut walk, SendFilter::All, portions).await?;
        teller.flush().await?;
        if let Some(derived) = &mut live.derived {
            derived.cursor.forget(revision.schema(origin), &walk.take_deleted());
        }
        Ok(())
    }

    /// Sends the walks of derived lists that have begun. Between two portions, everything else that has changed meanwhile is
    /// sent; it does not wait for permits of these long walks.
    async fn send_derived(
        &mut self,
        lives: &mut Vec<ActivePart>,
        revision_rx: &mut RevisionReceiver,
        portions: &mut WalkQuota,
    ) -> Result<(), StreamError> {
        while let Some(live) = lives.iter_mut().find(|live| live.is_telling_derived()) {
            self.send_derived_until_news(live, revision_rx, portions).await?;
            if has_news(revision_rx) {
                let revision = revision_rx.borrow_and_update().clone();
                let mut urgent = self.reads.walk_quota();
                self.send_changes(lives, &revision, &mut urgent).await?;
            }
        }
        // Changes in derived lists meanwhile are next, after due samples.
        if lives.iter().any(ActivePart::is_derived_behind) {
            revision_rx.mark_changed();
        }
        Ok(())
    }

    /// Sends portions of a walk of derived lists until it ends, or until there is another revision.
    async fn send_derived_until_news(
        &self,
        live: &mut ActivePart,
        revision_rx: &RevisionReceiver,
        portions: &mut WalkQuota,
    ) -> Result<(), StreamError> {
        let Some(derived) = &mut live.derived else { return Ok(()) };
        let mut teller = self.writer(&live.part, derived.time);
        while let Some(walk) = derived.cursor.walk() {
            if teller.send_portion(walk, SendFilter::All, portions).await? {
                derived.cursor.finish();
            } else if has_news(revision_rx) {
                break;
            }
        }
        teller.flush().await
    }

    /// Sends all leaves of a part as they were sent last. The walk of derived lists that are told apart begins.
    async fn send_again(
        &self,
        live: &mut ActivePart,
        time: TimestampMode,
        portions: &mut WalkQuota,
    ) -> Result<(), StreamError> {
        if let Some(derived) = &mut live.derived {
            derived.time = time;
            derived.cursor.begin_again();
        }
        let Some(cursor) = &live.cursor else { return Ok(()) };
        let mut teller = self.writer(&live.part, time);
        teller.send_walk(&mut cursor.again(), SendFilter::All, portions).await?;
        teller.flush().await
    }

    async fn send_due(
        &mut self,
        lives: &mut Vec<ActivePart>,
        revision_rx: &mut RevisionReceiver,
        portions: &mut WalkQuota,
    ) -> Result<(), StreamError> {
        let now = Instant::now();
        for at in 0..lives.len() {
            let live = &mut lives[at];
            let heartbeat = live.heartbeat_due.is_some_and(|due| due <= now);
            let tick = live.sample_due.filter(|due| *due <= now);
            if heartbeat || tick.is_some() {
                let tick = tick.or(live.heartbeat_due).unwrap_or(now);
                live.schedule(self.sampler, now);
                match live.part.pace {
                    StreamMode::Changes { .. } => {
                        self.send_heartbeat(lives, at, revision_rx, portions).await?;
                    }
                    StreamMode::Sample { suppress, deletes, .. } => {
                        let is_whole = heartbeat || !suppress;
                        self.send_sample(lives, at, tick, is_whole, deletes, portions).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Repeats the leaves of the part at a place of the list. Changes come first: removals that were not sent yet must not get
    /// lost by the repetition.
    async fn send_heartbeat(
        &mut self,
        lives: &mut Vec<ActivePart>,
        at: usize,
        revision_rx: &mut RevisionReceiver,
        portions: &mut WalkQuota,
    ) -> Result<(), StreamError> {
        let revision = self.sampler.core().revision();
        self.follow(lives, &revision.models).await?;
        self.send_new_changes(&mut lives[at], &revision, portions).await?;
        lives[at].begin_derived(&revision);
        self.send_derived(lives, revision_rx, portions).await?;
        let time = TimestampMode::OfReading { time_ns: now_ns() };
        self.send_again(&mut lives[at], time, portions).await?;
        self.send_derived(lives, revision_rx, portions).await
    }

    /// Sends a sample of the part at a place of the list: all values, or those that differ from the last sample; with removals if
    /// `deletes`.
    async fn send_sample(
        &mut self,
        lives: &mut Vec<ActivePart>,
        at: usize,
        tick: Instant,
        is_whole: bool,
        deletes: bool,
        portions: &mut WalkQuota,
    ) -> Result<(), StreamError> {
        let sample = self.sample_at(&lives[at].part, tick).await;
        self.follow(lives, &sample.models).await?;
        let live = &mut lives[at];
        let Some(cursor) = &mut live.cursor else { return Ok(()) };
        let mut teller =
            self.writer(&live.part, TimestampMode::OfReading { time_ns: sample.time_ns });
        let has_lists = live.part.polled.as_ref().is_some_and(|it| it.has_lists);
        if is_whole {
            if deletes || has_lists {
                let tell =
                    if deletes { SendFilter::Deletes } else { SendFilter::DeletesOfPolledLists };
                let mut walk = cursor.next(&sample.tree, Compare::Values);
                teller.send_walk(&mut walk, tell, portions).await?;
            }
            let mut walk = cursor.whole(&sample.tree);
            teller.send_walk(&mut walk, SendFilter::All, portions).await?;
        } else {
            let tell = if deletes { SendFilter::All } else { SendFilter::Updates };
            let mut walk = cursor.next(&sample.tree, Compare::Values);
            teller.send_walk(&mut walk, tell, portions).await?;
        }
        teller.flush().await
    }

    /// The leaves of a part, laid over this revision. Polled leaves are read now, unless another part of the answer has
    /// read them.
    async fn sample_now(
        &self,
        part: &SubscriptionPart,
        revision: &Revision,
        samples: &mut SampleCache,
    ) -> Sample {
        let origin = part.selection.origin;
        if part.polled.is_none() {
            return Sample::of(origin, revision, now_ns());
        }
        let is_known = match origin {
            Origin::OpenConfig => &mut samples.openconfig,
            Origin::Native => &mut samples.native,
        };
        if let Some(sample) = is_known {
            return sample.clone();
        }
        let mut sources = PolledSources::default();
        let parts = self.plan.parts.iter().filter(|it| it.selection.origin == origin);
        parts.filter_map(|it| it.polled.as_ref()).for_each(|it| sources.extend(&it.sources));
        is_known.insert(self.sampler.read(&sources, origin, revision, Instant::now()).await).clone()
    }

    /// The leaves of a part, at an instant that it shares with other streams.
    async fn sample_at(&self, part: &SubscriptionPart, tick: Instant) -> Sample {
        let origin = part.selection.origin;
        match &part.polled {
            Some(polled) => self.sampler.sample(&polled.sources, origin, tick).await,
            None => Sample::of(origin, &self.sampler.core().revision(), now_ns()),
        }
    }

    fn writer(&self, part: &SubscriptionPart, time: TimestampMode) -> NotificationWriter<'_> {
        let origin = part.selection.origin;
        let models = Arc::clone(self.plan.models());
        let prefix = self.plan.prefix.root(origin);
        NotificationWriter::new(&self.outlet, models, origin, self.plan.encoding, prefix, time)
    }
}

impl ActivePart {
    /// A part that has sent `tree` of the revision with this number, or is about to.
    fn new(
        part: SubscriptionPart,
        selections: Selections,
        tree: &Tree<LeafVersion>,
        sent: u64,
    ) -> Self {
        let cursor = selections.others.map(|selection| Cursor::new(selection, tree.clone()));
        let derived = selections.derived.map(|selection| DerivedPart::new(selection, tree, sent));
        Self { part, cursor, sent, derived, sample_due: None, heartbeat_due: None }
    }

    /// A part whose first leaves were appended while the stream runs: all of them are due.
    fn appended<D: Datastore>(
        part: SubscriptionPart,
        selections: Selections,
        sampler: &Sampler<D>,
    ) -> Self {
        let mut live = Self::new(part, selections, &Tree::new(), 0);
        let now = Instant::now();
        live.schedule(sampler, now);
        live.sample_due = live.sample_due.map(|_| now);
        live
    }

    /// Replaces the part by one for models with more nodes. A cursor whose first leaves are among these has sent nothing.
    fn replace(&mut self, part: SubscriptionPart, selections: Selections) {
        match (&mut self.cursor, selections.others) {
            (Some(cursor), Some(selection)) => cursor.select(selection),
            (cursor, Some(selection)) => *cursor = Some(Cursor::new(selection, Tree::new())),
            (_, None) => {}
        }
        match (&mut self.derived, selections.derived) {
            (Some(derived), Some(selection)) => derived.cursor.select(selection),
            (derived, Some(selection)) => {
                *derived = Some(DerivedPart::new(selection, &Tree::new(), 0));
            }
            (_, None) => {}
        }
        self.part = part;
    }

    /// Begins to send what has changed in derived lists, where these are told apart. Everything else was sent up to the same
    /// revision.
    fn begin_derived(&mut self, revision: &Revision) {
        let tree = revision.tree(self.part.selection.origin);
        if let Some(derived) = &mut self.derived
            && revision.number > derived.sent
        {
            derived.sent = revision.number;
            derived.time = TimestampMode::OfEvent { revision_ns: revision.time_ns };
            derived.cursor.begin_next(tree, Compare::Events);
        }
    }

    fn is_telling_derived(&self) -> bool {
        self.derived.as_ref().is_some_and(|derived| derived.cursor.is_walking())
    }

    fn is_derived_behind(&self) -> bool {
        self.derived.as_ref().is_some_and(|derived| derived.sent < self.sent)
    }

    fn follows_changes(&self) -> bool {
        matches!(self.part.pace, StreamMode::Changes { .. })
    }

    fn due(&self) -> Option<Instant> {
        self.sample_due.into_iter().chain(self.heartbeat_due).min()
    }

    /// Moves due times that have passed to their next instants.
    fn schedule<D: Datastore>(&mut self, sampler: &Sampler<D>, now: Instant) {
        let (interval, heartbeat) = match self.part.pace {
            StreamMode::Changes { heartbeat } => (None, heartbeat),
            StreamMode::Sample { interval, heartbeat, .. } => (Some(interval), heartbeat),
        };
        let next = |due: Option<Instant>, interval| match due {
            Some(due) if due > now => due,
            _ => sampler.tick_after(now, interval),
        };
        self.sample_due = interval.map(|interval| next(self.sample_due, interval));
        self.heartbeat_due = heartbeat.map(|heartbeat| next(self.heartbeat_due, heartbeat));
    }
}

impl DerivedPart {
    fn new(selection: Arc<Selection>, tree: &Tree<LeafVersion>, sent: u64) -> Self {
        let cursor = DerivedCursor::new(selection, tree.clone());
        Self { cursor, sent, time: TimestampMode::OfEvent { revision_ns: 0 } }
    }
}

/// True when there is a revision that was not taken yet. At the end there are no more.
fn has_news(revision_rx: &RevisionReceiver) -> bool {
    revision_rx.has_changed().unwrap_or_default()
}

/// The next commit; pending for ever without a receiver.
async fn next_commit(commits: Option<&mut BoundaryReceiver>) -> Result<Boundary, Refusal> {
    let Some(commits) = commits else { return std::future::pending().await };
    commits.recv().await.map_err(|error| match error {
        RecvError::Lagged(_) => {
            Refusal::exhausted(format!("more than {MAX_BOUNDARIES} commits were not read"))
        }
        RecvError::Closed => Refusal::stopping(),
    })
}
