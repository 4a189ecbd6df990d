//! A subscription list, checked and split into leaves with events and leaves that are polled.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::Models;
use holdfast_config::limits::SUBSCRIPTIONS;
use holdfast_core::{Datastore, PolledSources};
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::subscribe_request;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_telemetry::{ChangeDetection, DerivedLists, LeafSetCache, ReadType, Selection};
use smol_str::SmolStr;

use super::super::encoding::Encoding;
use super::super::extensions::ReadExtensions;
use super::super::path::Prefix;
use super::super::read_request::{AdmittedPath, ReadPath, ReadRequest};
use super::super::reads::{ReadBudget, ReadPool, ReadStop};
use super::super::status::Refusal;
use super::super::unknown_path::OrUnknown;
use crate::gnsi::pathz::PathPermissions;
use crate::settings::UnknownPaths;

/// The shortest interval between samples, and the one that interval 0 means. Reading all counters
/// of a box takes milliseconds, and a client that needs more than this wants a packet capture.
pub(in super::super) const MIN_SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which leaves without events are read, if the client leaves the choice to the agent.
pub(in super::super) const DEFAULT_SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Code points of the differentiated services field have six bits.
const MAX_DSCP: u32 = 63;

/// A subscription list that will be served.
#[derive(Debug)]
pub(super) struct SubscriptionPlan {
    pub(super) mode: Mode,
    pub(super) encoding: Encoding,
    pub(super) updates_only: bool,
    /// True when configuration alone is wanted, with a mark after each commit.
    pub(super) configuration: bool,
    pub(super) prefix: Prefix,
    pub(super) parts: Vec<SubscriptionPart>,
    lookup: PathLookup,
    /// The paths of subscriptions that are left out, since no model has them.
    pub(super) ignored: Vec<SmolStr>,
    pub(super) marking: Option<u8>,
}

/// The paths of a subscription list, to be looked up again when the models have more nodes.
#[derive(Clone, Debug)]
struct PathLookup {
    /// The request, with the models that the parts are for.
    reader: Arc<ReadRequest>,
    admitted: Arc<[OrUnknown<AdmittedPath>]>,
    /// Lists that are told after everything else.
    derived: Arc<DerivedLists>,
    /// Modes of each subscription; none of one that is ignored.
    modes: Arc<[Modes]>,
}

/// Modes of the leaves of one subscription, by the way in which changes of them are detected.
type Modes = Vec<(ChangeDetection, StreamMode)>;

/// Number of a subscription in its list, and the kind of leaves of a part of it.
pub(super) type PartId = (usize, ChangeDetection);

/// Leaves of one subscription that are sent in the same mode.
#[derive(Clone, Debug)]
pub(super) struct SubscriptionPart {
    pub(super) id: PartId,
    pub(super) selection: Arc<Selection>,
    /// Set when some of the leaves are polled.
    pub(super) polled: Option<PolledPart>,
    pub(super) pace: StreamMode,
}

/// The polled leaves of a part.
#[derive(Clone, Debug)]
pub(super) struct PolledPart {
    pub(super) sources: PolledSources,
    /// True when entries of some lists come and go without an event.
    pub(super) has_lists: bool,
}

/// The occasions on which a stream sends its leaves again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamMode {
    /// A change sends the changed leaves; a heartbeat, if there is one, sends all of them.
    Changes { heartbeat: Option<Duration> },
    Sample {
        interval: Duration,
        /// Sends only values that differ from the last ones sent, except at a heartbeat.
        suppress: bool,
        heartbeat: Option<Duration>,
        /// Sends removals, too. Not for polled leaves next to leaves with events: their entry is removed by an event,
        /// and a late removal by a sample would delete what has come since.
        deletes: bool,
    },
}

impl SubscriptionPlan {
    pub(super) async fn read<D: Datastore>(
        core: &D,
        reads: &ReadPool,
        rights: Option<&Arc<PathPermissions>>,
        unknown: UnknownPaths,
        request: gnmi::SubscribeRequest,
    ) -> Result<Self, Refusal> {
        let Some(subscribe_request::Request::Subscribe(list)) = request.request else {
            return Err(Refusal::invalid("a Subscribe RPC must begin with a SubscriptionList"));
        };
        if list.subscription.is_empty() {
            return Err(Refusal::invalid("the SubscriptionList has no subscription"));
        }
        SUBSCRIPTIONS.check(list.subscription.len())?;
        let mode = Mode::try_from(list.mode)
            .map_err(|_| Refusal::invalid(format!("there is no mode {}", list.mode)))?;
        let wishes = ReadExtensions::of_subscribe(&request.extension, mode)?;
        let marking = list.qos.map(|qos| marking(qos.marking)).transpose()?;
        let kind = if wishes.configuration { ReadType::Config } else { ReadType::All };
        let reader =
            ReadRequest::new(core, rights, list.prefix, kind, &list.use_models, wishes.depth)?
                .with(unknown);
        let joined = reader.joined(list.subscription.iter().map(|it| it.path.as_ref()))?;
        let admitted: Arc<[_]> = reader.admitted(joined).await?.into();
        let prefix = reader.prefix.clone();
        let reader = Arc::new(reader);
        let asking = Arc::clone(&reader);
        let permissions = Arc::clone(&admitted);
        let derived = Arc::clone(&core.revision().derived);
        let subscriptions = list.subscription;
        let lists = Arc::clone(&derived);
        let split = move |work: &ReadBudget| {
            SplitList::of(&asking, &permissions, &lists, &subscriptions, mode, work)
        };
        let SplitList { parts, modes, ignored } = reads.run(split).await?;
        let lookup = PathLookup { reader, admitted, derived, modes: modes.into() };
        let encoding = Encoding::read(list.encoding)?;
        let updates_only = list.updates_only;
        let configuration = wishes.configuration;
        Ok(Self {
            mode,
            encoding,
            updates_only,
            configuration,
            prefix,
            parts,
            lookup,
            ignored,
            marking,
        })
    }

    /// Models whose nodes the parts select.
    pub(super) fn models(&self) -> &Arc<Models> {
        self.lookup.reader.models()
    }

    /// Looks the paths up again if `models` have more nodes. Returns true when the parts are new: a part keeps its id,
    /// and others can be added. A subscription that was ignored at the start stays ignored.
    ///
    /// # Errors
    /// When the paths name too many nodes now.
    pub(super) async fn follow(
        &mut self,
        core: &impl Datastore,
        reads: &ReadPool,
        models: &Arc<Models>,
    ) -> Result<bool, Refusal> {
        if self.models().includes(models) {
            return Ok(false);
        }
        let reader = Arc::new(self.lookup.reader.for_models(core, models));
        self.lookup.reader = reader;
        let lookup = self.lookup.clone();
        self.parts = reads.run(move |work| lookup.parts(work)).await?;
        Ok(true)
    }
}

impl PathLookup {
    fn parts(&self, work: &ReadBudget) -> Result<Vec<SubscriptionPart>, ReadStop> {
        let paths = self.reader.resolve_paths(&self.admitted, work)?;
        let cache = RefCell::new(LeafSetCache::new(Arc::clone(&self.derived)));
        let mut parts = Vec::new();
        for (number, (path, modes)) in paths.iter().zip(&*self.modes).enumerate() {
            let Ok(path) = path else { continue };
            work.spend(path.patterns.len())?;
            parts.extend(Split { reader: &self.reader, number, path, cache: &cache }.parts(modes));
        }
        Ok(parts)
    }
}

/// A subscription list, split into parts.
#[derive(Debug, Default)]
struct SplitList {
    parts: Vec<SubscriptionPart>,
    /// Modes of each subscription.
    modes: Vec<Modes>,
    /// Paths of subscriptions that are ignored. Their other fields are not checked.
    ignored: Vec<SmolStr>,
}

impl SplitList {
    fn of(
        reader: &ReadRequest,
        admitted: &[OrUnknown<AdmittedPath>],
        derived: &Arc<DerivedLists>,
        subscriptions: &[gnmi::Subscription],
        mode: Mode,
        work: &ReadBudget,
    ) -> Result<Self, ReadStop> {
        let paths = reader.resolve_paths(admitted, work)?;
        let cache = RefCell::new(LeafSetCache::new(Arc::clone(derived)));
        let mut list = Self::default();
        for (number, (wire, path)) in subscriptions.iter().zip(&paths).enumerate() {
            let path = match path {
                Ok(path) => path,
                Err(unknown) => {
                    list.ignored.push(unknown.name.clone());
                    list.modes.push(Modes::new());
                    continue;
                }
            };
            work.spend(path.patterns.len())?;
            let split = Split { reader, number, path, cache: &cache };
            let modes = match mode {
                Mode::Once | Mode::Poll => at_once(),
                Mode::Stream => split.stream(wire)?,
            };
            list.parts.extend(split.parts(&modes));
            list.modes.push(modes);
        }
        Ok(list)
    }
}

fn at_once() -> Modes {
    vec![(ChangeDetection::All, StreamMode::Changes { heartbeat: None })]
}

fn marking(marking: u32) -> Result<u8, Refusal> {
    u8::try_from(marking).ok().filter(|_| marking <= MAX_DSCP).ok_or_else(|| {
        Refusal::invalid(format!("qos.marking {marking} is not a DSCP from 0 to {MAX_DSCP}"))
    })
}

/// One subscription about to be split into parts.
struct Split<'a> {
    reader: &'a ReadRequest,
    number: usize,
    path: &'a ReadPath,
    cache: &'a RefCell<LeafSetCache>,
}

impl Split<'_> {
    fn stream(&self, wire: &gnmi::Subscription) -> Result<Modes, Refusal> {
        let heartbeat = interval("heartbeat_interval", wire.heartbeat_interval)?;
        match gnmi::SubscriptionMode::try_from(wire.mode) {
            Ok(gnmi::SubscriptionMode::TargetDefined) => self.target_defined(wire, heartbeat),
            Ok(gnmi::SubscriptionMode::OnChange) => self.on_change(heartbeat),
            Ok(gnmi::SubscriptionMode::Sample) => {
                let every = interval("sample_interval", wire.sample_interval)?;
                let pace = StreamMode::Sample {
                    interval: every.unwrap_or(MIN_SAMPLE_INTERVAL),
                    suppress: wire.suppress_redundant,
                    heartbeat,
                    deletes: true,
                };
                Ok(vec![(ChangeDetection::All, pace)])
            }
            Err(_) => Err(Refusal::invalid(format!("there is no mode {}", wire.mode))),
        }
    }

    fn target_defined(
        &self,
        wire: &gnmi::Subscription,
        heartbeat: Option<Duration>,
    ) -> Result<Modes, Refusal> {
        if wire.sample_interval != 0 {
            let reason = "a sample_interval on a TARGET_DEFINED subscription";
            return Err(Refusal::malformed(self.path.joined.path.to_string(), reason));
        }
        let pace = StreamMode::Sample {
            interval: DEFAULT_SAMPLE_INTERVAL,
            suppress: false,
            heartbeat,
            deletes: false,
        };
        Ok(vec![
            (ChangeDetection::Event, StreamMode::Changes { heartbeat }),
            (ChangeDetection::Polled, pace),
        ])
    }

    /// Splits an ON_CHANGE subscription. Leaves without events are sampled at the agent's own interval; a path that
    /// names nothing else is refused.
    fn on_change(&self, heartbeat: Option<Duration>) -> Result<Modes, Refusal> {
        let pace = StreamMode::Sample {
            interval: DEFAULT_SAMPLE_INTERVAL,
            suppress: true,
            heartbeat,
            deletes: false,
        };
        let [events, polled] =
            [ChangeDetection::Event, ChangeDetection::Polled].map(|class| self.selection(class));
        if let (None, Some(polled)) = (&events, &polled) {
            let schema = self.reader.schema(self.path.joined.origin);
            let leaf = polled.first_leaf(schema).unwrap_or_default();
            let reason = format!("`{leaf}` has no change events: use SAMPLE");
            return Err(Refusal::malformed(self.path.joined.path.to_string(), reason));
        }
        Ok(vec![
            (ChangeDetection::Event, StreamMode::Changes { heartbeat }),
            (ChangeDetection::Polled, pace),
        ])
    }

    /// The parts with leaves.
    fn parts(&self, modes: &[(ChangeDetection, StreamMode)]) -> Vec<SubscriptionPart> {
        modes.iter().filter_map(|(class, pace)| self.part(*class, *pace)).collect()
    }

    fn part(&self, class: ChangeDetection, pace: StreamMode) -> Option<SubscriptionPart> {
        let selection = self.selection(class)?;
        let polled = match class {
            ChangeDetection::Event => None,
            _ => self.selection(ChangeDetection::Polled).map(|polled| self.polled_part(&polled)),
        };
        Some(SubscriptionPart { id: (self.number, class), selection, polled, pace })
    }

    fn polled_part(&self, polled: &Selection) -> PolledPart {
        let schema = self.reader.schema(polled.origin);
        let is_wanted = polled.leaf_filter(schema);
        let in_polled_list = |leaf| schema.node(leaf).polled && schema.is_list_key(leaf);
        let mut leaves = schema.nodes().iter().map(|node| node.id);
        let has_lists = leaves.any(|leaf| in_polled_list(leaf) && is_wanted(leaf));
        PolledPart { sources: self.reader.sources(polled), has_lists }
    }

    fn selection(&self, class: ChangeDetection) -> Option<Arc<Selection>> {
        self.reader.selection(&mut self.cache.borrow_mut(), self.path, class)
    }
}

/// Reads an interval in nanoseconds; 0 counts as absent.
fn interval(name: &str, nanoseconds: u64) -> Result<Option<Duration>, Refusal> {
    let interval = Duration::from_nanos(nanoseconds);
    match nanoseconds {
        0 => Ok(None),
        _ if interval < MIN_SAMPLE_INTERVAL => Err(Refusal::invalid(format!(
            "{name} of {interval:?} is unsupported: the shortest is {MIN_SAMPLE_INTERVAL:?}"
        ))),
        _ => Ok(Some(interval)),
    }
}
