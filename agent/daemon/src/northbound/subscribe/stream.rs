//! One subscriber: the parts that are due, and the order in which they are sent.

use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_config::Models;
use holdfast_config::schema::Origin;
use holdfast_config::tree::Tree;
use holdfast_core::Datastore;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_telemetry::commits::MAX_BOUNDARIES;
use holdfast_telemetry::{Boundary, BoundaryReceiver, Compare, Cursor, Revision, Walk};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::super::reads::{ReadPool, WalkQuota};
use super::super::response_stream::StreamError;
use super::super::status::Refusal;
use super::notifications::{NotificationWriter, SendFilter, TimestampMode, UpdateSender};
use super::plan::{StreamMode, SubscriptionPart, SubscriptionPlan};
use super::sampler::{Sample, Sampler};
use crate::budget::CallerBudget;

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
    cursor: Cursor,
    /// Number of the revision up to which changes were sent.
    sent: u64,
    sample_due: Option<Instant>,
    heartbeat_due: Option<Instant>,
}

impl<'a, D: Datastore> Subscriber<'a, D> {
    pub(super) fn new(
        sampler: &'a Sampler<D>,
        plan: SubscriptionPlan,
        outlet: UpdateSender,
        (reads, budget): (ReadPool, CallerBudget),
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
            self.plan.follow(&self.reads, &revision.models).await?;
            let mut samples = SampleCache::default();
            for part in &self.plan.parts {
                let sample = self.sample_now(part, &revision, &mut samples).await;
                let time = TimestampMode::OfReading { time_ns: sample.time_ns };
                let mut teller = self.writer(part, time);
                let walk = Walk::whole(part.selection.clone(), &sample.tree);
                teller.send_walk(walk, SendFilter::All, portions).await?;
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
        self.plan.follow(&self.reads, &revision.models).await?;
        let mut lives = self.begin(&revision, portions).await?;
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
                }
                boundary = next_commit(commits.as_mut()) => {
                    let boundary = boundary?;
                    self.send_changes(&mut lives, &boundary.revision, portions).await?;
                    if lives.iter().any(ActivePart::follows_changes) {
                        self.outlet.sync_done(&boundary).await?;
                    }
                }
                () = wait_until(due) => self.send_due(&mut lives, portions).await?,
            }
        }
    }

    /// Sends the initial values of all parts.
    async fn begin(
        &self,
        revision: &Arc<Revision>,
        portions: &mut WalkQuota,
    ) -> Result<Vec<ActivePart>, StreamError> {
        let mut samples = SampleCache::default();
        let mut lives = Vec::with_capacity(self.plan.parts.len());
        for part in &self.plan.parts {
            let sample = self.sample_now(part, revision, &mut samples).await;
            let mut cursor = Cursor::new(part.selection.clone(), sample.tree.clone());
            if !self.plan.updates_only {
                let time = match part.pace {
                    StreamMode::Changes { .. } => {
                        TimestampMode::OfEvent { revision_ns: revision.time_ns }
                    }
                    StreamMode::Sample { .. } => {
                        TimestampMode::OfReading { time_ns: sample.time_ns }
                    }
                };
                let mut teller = self.writer(part, time);
                teller.send_walk(cursor.whole(&sample.tree), SendFilter::All, portions).await?;
                teller.flush().await?;
            }
            let part = part.clone();
            let mut live = ActivePart {
                part,
                cursor,
                sent: revision.number,
                sample_due: None,
                heartbeat_due: None,
            };
            live.schedule(self.sampler, Instant::now());
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
        if !self.plan.follow(&self.reads, models).await? {
            return Ok(());
        }
        for part in &self.plan.parts {
            match lives.iter_mut().find(|live| live.part.id == part.id) {
                Some(live) => live.replace(part.clone()),
                None => lives.push(ActivePart::appended(part.clone(), self.sampler)),
            }
        }
        Ok(())
    }

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
        let tree = revision.tree(live.part.selection.origin);
        let mut teller =
            self.writer(&live.part, TimestampMode::OfEvent { revision_ns: revision.time_ns });
        teller
            .send_walk(live.cursor.next(tree, Compare::Events), SendFilter::All, portions)
            .await?;
        teller.flush().await
    }

    async fn send_due(
        &mut self,
        lives: &mut Vec<ActivePart>,
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
                self.resend(lives, at, (tick, heartbeat), portions).await?;
            }
        }
        Ok(())
    }

    /// Sends a sample or a heartbeat of the part at a place of the list.
    async fn resend(
        &mut self,
        lives: &mut Vec<ActivePart>,
        at: usize,
        (tick, heartbeat): (Instant, bool),
        portions: &mut WalkQuota,
    ) -> Result<(), StreamError> {
        let (suppress, deletes) = match lives[at].part.pace {
            StreamMode::Changes { .. } => {
                // Removals that were not sent yet must not get lost by the repetition.
                let revision = self.sampler.core().revision();
                self.follow(lives, &revision.models).await?;
                self.send_new_changes(&mut lives[at], &revision, portions).await?;
                (false, false)
            }
            StreamMode::Sample { suppress, deletes, .. } => (suppress && !heartbeat, deletes),
        };
        let sample = self.sample_at(&lives[at].part, tick).await;
        self.follow(lives, &sample.models).await?;
        let live = &mut lives[at];
        let mut teller =
            self.writer(&live.part, TimestampMode::OfReading { time_ns: sample.time_ns });
        if suppress {
            let tell = if deletes { SendFilter::All } else { SendFilter::Updates };
            teller
                .send_walk(live.cursor.next(&sample.tree, Compare::Values), tell, portions)
                .await?;
        } else {
            if deletes {
                let walk = live.cursor.next(&sample.tree, Compare::Values);
                teller.send_walk(walk, SendFilter::Deletes, portions).await?;
            }
            teller.send_walk(live.cursor.whole(&sample.tree), SendFilter::All, portions).await?;
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
        if !part.polled {
            return Sample::of(origin, revision, now_ns());
        }
        let is_known = match origin {
            Origin::OpenConfig => &mut samples.openconfig,
            Origin::Native => &mut samples.native,
        };
        if let Some(sample) = is_known {
            return sample.clone();
        }
        is_known.insert(self.sampler.read(origin, revision, Instant::now()).await).clone()
    }

    /// The leaves of a part, at an instant that it shares with other streams.
    async fn sample_at(&self, part: &SubscriptionPart, tick: Instant) -> Sample {
        let origin = part.selection.origin;
        if part.polled {
            self.sampler.sample(origin, tick).await
        } else {
            Sample::of(origin, &self.sampler.core().revision(), now_ns())
        }
    }

    fn writer(&self, part: &SubscriptionPart, time: TimestampMode) -> NotificationWriter<'_> {
        let origin = part.selection.origin;
        let models = Arc::clone(self.plan.models());
        let prefix = self.plan.prefix.root(origin);
        NotificationWriter::new(&self.outlet, (models, origin), self.plan.encoding, prefix, time)
    }
}

impl ActivePart {
    /// A part whose first leaves were appended while the stream runs: all of them are due.
    fn appended<D: Datastore>(part: SubscriptionPart, sampler: &Sampler<D>) -> Self {
        let cursor = Cursor::new(part.selection.clone(), Tree::new());
        let mut live = Self { part, cursor, sent: 0, sample_due: None, heartbeat_due: None };
        let now = Instant::now();
        live.schedule(sampler, now);
        live.sample_due = live.sample_due.map(|_| now);
        live
    }

    fn replace(&mut self, part: SubscriptionPart) {
        self.cursor.select(part.selection.clone());
        self.part = part;
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

async fn wait_until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
