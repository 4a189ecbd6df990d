//! Samples of polled leaves: taken at instants that all streams share, with one reading at each.
//!
//! Streams that need the same sources share a sample. A stream never waits for a source that it does not need.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use holdfast_base::now_ns;
use holdfast_config::Models;
use holdfast_config::schema::Origin;
use holdfast_config::tree::Tree;
use holdfast_telemetry::polled::with_polled_leaves;
use holdfast_telemetry::{LeafVersion, Revision};
use tokio::sync::Mutex;
use tokio::time::Instant;

use holdfast_core::{Datastore, PolledSources};

/// The latest due time from now: beyond any uptime, and within the range of `Instant`.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Time for which a sample is kept that no stream asks for: streams with longer intervals rarely share one.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Samples that the streams of one service share.
///
/// Instants are whole multiples of the interval since the service began, so that streams with the
/// same interval wake together, and what one of them reads serves them all.
#[derive(Debug)]
pub(in super::super) struct Sampler<D> {
    core: D,
    epoch: Instant,
    shared: std::sync::Mutex<SharedSamples>,
}

/// The last sample of each set of sources that some stream needs.
type SharedSamples = BTreeMap<(Origin, PolledSources), Arc<SampleSlot>>;

/// The last sample of one set of sources. Whoever takes a sample holds the lock, and the others wait for it.
#[derive(Debug, Default)]
struct SampleSlot(Mutex<Option<Sample>>);

/// A revision, with polled leaves laid over it.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) tree: Tree<LeafVersion>,
    /// Models of the revision.
    pub(super) models: Arc<Models>,
    /// Time of the reading, in nanoseconds since 1970.
    pub(super) time_ns: u64,
    tick: Option<Instant>,
}

impl Sample {
    /// A sample of a revision without polled leaves.
    pub(super) fn of(origin: Origin, revision: &Revision, time_ns: u64) -> Self {
        let models = Arc::clone(&revision.models);
        Self { tree: revision.tree(origin).clone(), models, time_ns, tick: None }
    }
}

impl<D: Datastore> Sampler<D> {
    pub(in super::super) fn new(core: D) -> Self {
        Self { core, epoch: Instant::now(), shared: std::sync::Mutex::default() }
    }

    pub(in super::super) fn core(&self) -> &D {
        &self.core
    }

    /// The first instant after `now` at which samples with this interval are due.
    pub(super) fn tick_after(&self, now: Instant, interval: Duration) -> Instant {
        let since = now.duration_since(self.epoch).as_nanos();
        let ticks = since / interval.as_nanos().max(1) + 1;
        let due = u64::try_from(ticks * interval.as_nanos()).map(Duration::from_nanos);
        self.epoch + due.unwrap_or(FAR).min(now.duration_since(self.epoch) + FAR)
    }

    /// The sample of an instant, with what these sources give. The first stream that asks for it takes it.
    pub(super) async fn sample(
        &self,
        sources: &PolledSources,
        origin: Origin,
        tick: Instant,
    ) -> Sample {
        let slot = self.slot(sources, origin);
        let mut latest = slot.0.lock().await;
        match &*latest {
            Some(sample) if sample.tick == Some(tick) => sample.clone(),
            _ => {
                let sample = self.read(sources, origin, &self.core.revision(), tick).await;
                latest.insert(sample).clone()
            }
        }
    }

    /// The slot of a set of sources. Slots whose sample nobody has asked for since [`KEPT_FOR`] are dropped.
    fn slot(&self, sources: &PolledSources, origin: Origin) -> Arc<SampleSlot> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (origin, sources.clone());
        if let Some(slot) = shared.get(&key) {
            return Arc::clone(slot);
        }
        let now = Instant::now();
        shared.retain(|_, slot| slot.is_of_use(now));
        Arc::clone(shared.entry(key).or_default())
    }

    /// A sample on top of this very revision, with what these sources give.
    pub(super) async fn read(
        &self,
        sources: &PolledSources,
        origin: Origin,
        revision: &Revision,
        tick: Instant,
    ) -> Sample {
        let leaves = self.core.polled(origin, sources).await;
        let time_ns = now_ns();
        let tree =
            with_polled_leaves(revision.schema(origin), revision.tree(origin), leaves, time_ns);
        Sample { tree, models: Arc::clone(&revision.models), time_ns, tick: Some(tick) }
    }
}

impl SampleSlot {
    fn is_of_use(&self, now: Instant) -> bool {
        // Somebody is taking a sample where the lock is not free.
        let Ok(sample) = self.0.try_lock() else { return true };
        let tick = sample.as_ref().and_then(|sample| sample.tick);
        tick.is_some_and(|tick| now.saturating_duration_since(tick) < KEPT_FOR)
    }
}
