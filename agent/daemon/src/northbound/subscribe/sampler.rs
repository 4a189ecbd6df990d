//! Samples of polled leaves: taken at instants that all streams share, with one reading at each.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::now_ns;
use holdfast_config::Models;
use holdfast_config::schema::Origin;
use holdfast_config::tree::Tree;
use holdfast_telemetry::polled::with_polled_leaves;
use holdfast_telemetry::{LeafVersion, Revision};
use tokio::sync::Mutex;
use tokio::time::Instant;

use holdfast_core::Datastore;

/// The latest due time from now: beyond any uptime, and within the range of `Instant`.
const FAR: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// Samples that the streams of one service share.
///
/// Instants are whole multiples of the interval since the service began, so that streams with the
/// same interval wake together, and what one of them reads serves them all.
#[derive(Debug)]
pub(in super::super) struct Sampler<D> {
    core: D,
    epoch: Instant,
    openconfig: Mutex<Option<Sample>>,
    native: Mutex<Option<Sample>>,
}

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
        let openconfig = Mutex::new(None);
        let native = Mutex::new(None);
        Self { core, epoch: Instant::now(), openconfig, native }
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

    /// The sample of an instant. The first stream that asks for it takes it.
    pub(super) async fn sample(&self, origin: Origin, tick: Instant) -> Sample {
        let shared = match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        };
        let mut latest = shared.lock().await;
        match &*latest {
            Some(sample) if sample.tick == Some(tick) => sample.clone(),
            _ => {
                let sample = self.read(origin, &self.core.revision(), tick).await;
                latest.insert(sample).clone()
            }
        }
    }

    /// A sample on top of this very revision.
    pub(super) async fn read(&self, origin: Origin, revision: &Revision, tick: Instant) -> Sample {
        let leaves = self.core.polled(origin).await;
        let time_ns = now_ns();
        let tree =
            with_polled_leaves(revision.schema(origin), revision.tree(origin), leaves, time_ns);
        Sample { tree, models: Arc::clone(&revision.models), time_ns, tick: Some(tick) }
    }
}
