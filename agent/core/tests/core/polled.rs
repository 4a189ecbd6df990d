//! State that is read when somebody asks: which sources a question reaches.

use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_config::{Models, NodeId, Value};
use holdfast_core::{PolledSources, PolledState};
use holdfast_telemetry::PolledReading;
use tempfile::TempDir;

use super::*;

/// A source of one leaf, which counts how often it is read.
#[derive(Debug)]
struct CountedSource {
    models: Arc<Models>,
    path: &'static str,
    reads: AtomicUsize,
}

impl CountedSource {
    fn new(path: &'static str) -> Arc<Self> {
        let models = Arc::new(Models::load().unwrap());
        Arc::new(Self { models, path, reads: AtomicUsize::new(0) })
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }
}

#[tonic::async_trait]
impl PolledState for CountedSource {
    fn nodes(&self) -> Vec<NodeId> {
        vec![self.models.native.find(self.path).unwrap()]
    }

    async fn read(&self) -> PolledReading {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let path = self.models.native.resolve_write(&self.path.parse().unwrap()).unwrap();
        vec![(path, Value::Uint(7))].into()
    }
}

#[tokio::test]
async fn a_question_reads_the_sources_of_its_leaves_and_no_others() {
    let folder = TempDir::new().unwrap();
    let free = CountedSource::new("/resources/memory/free");
    let up_time = CountedSource::new("/system/state/up-time");
    let sources: Vec<Arc<dyn PolledState>> = vec![free.clone(), up_time.clone()];
    let agent = Agent::start_with(&SimulatedKernel::new(&[]), folder.path(), sources).await;
    let ask = async |origin, path: &str| {
        let models = agent.handle.models();
        let sources = agent.handle.polled_catalog().below(models.schema(origin), &[path]);
        let reading = agent.handle.polled(origin, &sources).await;
        let name = |path: &holdfast_config::InstancePath| path.to_path(models.schema(origin));
        let found = reading.leaves.iter().map(|(path, _)| name(path).to_string());
        (found.collect::<Vec<_>>().join(" "), free.reads(), up_time.reads())
    };
    for (origin, path, want) in [
        (Origin::OpenConfig, "/interfaces", ("", 0, 0)),
        (Origin::OpenConfig, "/system/memory", ("/system/memory/state/free", 1, 0)),
        (Origin::OpenConfig, "/system/memory/state/used", ("", 1, 0)),
        (Origin::Native, "/system/state", ("/system/state/up-time", 1, 1)),
        (Origin::Native, "/resources/memory/free", ("/resources/memory/free", 2, 1)),
        (Origin::Native, "/", ("/resources/memory/free /system/state/up-time", 3, 2)),
    ] {
        let (found, frees, up_times) = ask(origin, path).await;
        assert_eq!((&*found, frees, up_times), want, "{path}");
    }
    assert_eq!(agent.handle.polled(Origin::Native, &PolledSources::default()).await.size(), 0);
}
