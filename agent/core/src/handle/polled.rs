//! State that is read when somebody asks for it, and which sources a question needs.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::{Models, NodeId};
use holdfast_platform::{BoxClock, Collector};
use holdfast_telemetry::PolledReading;

/// A source of state that changes without an event: counters, and when they moved last.
#[tonic::async_trait]
pub trait PolledState: std::fmt::Debug + Send + Sync {
    /// Native leaves that a reading may have. Readers of other leaves do not cause a reading.
    fn nodes(&self) -> Vec<NodeId>;

    /// Present values, by native path.
    async fn read(&self) -> PolledReading;
}

/// The leaves that each source of polled state may give, by the numbers of the sources.
#[derive(Debug, Default)]
pub struct PolledCatalog {
    sources: Vec<SourceNodes>,
}

#[derive(Debug)]
struct SourceNodes {
    openconfig: Vec<NodeId>,
    native: Vec<NodeId>,
}

/// Sources of polled state.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolledSources(BTreeSet<usize>);

impl PolledCatalog {
    /// The catalog of these sources. The nodes of a source are in every later version of the models.
    pub(crate) fn new(models: &Models, sources: &[Arc<dyn PolledState>]) -> Self {
        Self::of_nodes(models, sources.iter().map(|it| it.nodes()))
    }

    /// The catalog of sources with these native leaves.
    pub fn of_nodes(models: &Models, sources: impl Iterator<Item = Vec<NodeId>>) -> Self {
        let source = |native: Vec<NodeId>| {
            let shown = native.iter().flat_map(|leaf| models.map.leaves_to_openconfig(*leaf));
            SourceNodes { openconfig: shown.collect(), native }
        };
        Self { sources: sources.map(source).collect() }
    }

    /// The sources of the leaves that are wanted.
    pub fn sources(&self, origin: Origin, is_wanted: impl Fn(NodeId) -> bool) -> PolledSources {
        let sources = self.sources.iter().enumerate();
        let asked = sources.filter(|(_, source)| source.of(origin).iter().any(|it| is_wanted(*it)));
        PolledSources(asked.map(|(number, _)| number).collect())
    }

    /// The sources of the leaves at these paths of the schema and below them.
    pub fn below(&self, schema: &Schema, paths: &[&str]) -> PolledSources {
        let above: Vec<NodeId> = paths.iter().filter_map(|path| schema.find(path)).collect();
        let is_below = |leaf| schema.with_ancestors(leaf).any(|node| above.contains(&node));
        self.sources(schema.origin(), is_below)
    }
}

impl SourceNodes {
    fn of(&self, origin: Origin) -> &[NodeId] {
        match origin {
            Origin::OpenConfig => &self.openconfig,
            Origin::Native => &self.native,
        }
    }
}

impl PolledSources {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the sources of another question.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    pub(crate) fn contains(&self, number: usize) -> bool {
        self.0.contains(&number)
    }
}

#[tonic::async_trait]
impl PolledState for Collector {
    fn nodes(&self) -> Vec<NodeId> {
        Self::nodes(self)
    }

    async fn read(&self) -> PolledReading {
        Self::read(self).await.to_vec().into()
    }
}

#[tonic::async_trait]
impl PolledState for BoxClock {
    fn nodes(&self) -> Vec<NodeId> {
        Self::nodes(self)
    }

    async fn read(&self) -> PolledReading {
        Self::read(self).into()
    }
}
