//! State that is read when somebody asks for it, and which sources a question needs.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::{Models, NodeId};
use holdfast_platform::{BoxClock, Collector, LacpPorts, LagSpeeds, LinkRates};
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

/// Sources of polled state, and the leaves of one model that are wanted of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PolledSources {
    numbers: BTreeSet<usize>,
    leaves: BTreeSet<NodeId>,
}

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
        let mut asked = PolledSources::default();
        for (number, source) in self.sources.iter().enumerate() {
            for leaf in source.of(origin).iter().filter(|leaf| is_wanted(**leaf)) {
                asked.numbers.insert(number);
                asked.leaves.insert(*leaf);
            }
        }
        asked
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
        self.numbers.is_empty()
    }

    /// Number of the sources.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Adds the sources and leaves of another question.
    pub fn extend(&mut self, other: &Self) {
        self.numbers.extend(&other.numbers);
        self.leaves.extend(&other.leaves);
    }

    /// The part of these sources that is asked.
    pub(crate) fn of<'s, T>(&self, sources: &'s [T]) -> impl Iterator<Item = &'s T> {
        self.numbers.iter().filter_map(|number| sources.get(*number))
    }

    /// The wanted part of a reading of the sources, by the paths of one model.
    pub(crate) fn wanted(
        &self,
        models: &Models,
        origin: Origin,
        native: PolledReading,
    ) -> PolledReading {
        let is_wanted = |leaf: NodeId| self.leaves.contains(&leaf);
        let mut reading = match origin {
            Origin::OpenConfig => native.to_openconfig(&models.map, &is_wanted),
            Origin::Native => native,
        };
        if origin == Origin::Native {
            reading.leaves.retain(|(path, _)| path.leaf().is_some_and(is_wanted));
        }
        let schema = models.schema(origin);
        let is_below = |leaf: &NodeId, list| schema.with_ancestors(*leaf).any(|node| node == list);
        reading.lists.retain(|it| self.leaves.iter().any(|leaf| is_below(leaf, it.list)));
        reading
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

#[tonic::async_trait]
impl PolledState for LinkRates {
    fn nodes(&self) -> Vec<NodeId> {
        Self::nodes(self)
    }

    async fn read(&self) -> PolledReading {
        Self::read(self).await.into()
    }
}

#[tonic::async_trait]
impl PolledState for LacpPorts {
    fn nodes(&self) -> Vec<NodeId> {
        Self::nodes(self)
    }

    async fn read(&self) -> PolledReading {
        Self::read(self).await.into()
    }
}

#[tonic::async_trait]
impl PolledState for LagSpeeds {
    fn nodes(&self) -> Vec<NodeId> {
        Self::nodes(self)
    }

    async fn read(&self) -> PolledReading {
        Self::read(self).await.into()
    }
}
