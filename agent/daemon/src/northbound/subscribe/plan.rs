//! A subscription list, checked and split into leaves with events and leaves that are polled.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use holdfast_config::limits::SUBSCRIPTIONS;
use holdfast_core::Datastore;
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::subscribe_request;
use holdfast_proto::gnmi::subscription_list::Mode;
use holdfast_telemetry::{ChangeDetection, LeafSetCache, ReadType, Selection};
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
    /// The paths of subscriptions that are left out, since no model has them.
    pub(super) ignored: Vec<SmolStr>,
    pub(super) marking: Option<u8>,
}

/// Leaves of one subscription that are sent in the same mode.
#[derive(Clone, Debug)]
pub(super) struct SubscriptionPart {
    pub(super) selection: Arc<Selection>,
    /// True when some of the leaves are polled.
    pub(super) polled: bool,
    pub(super) pace: StreamMode,
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
            return Err(Refusal::invalid("a Subscribe RPC begins with a SubscriptionList"));
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
        let admitted = reader.admitted(joined).await?;
        let prefix = reader.prefix.clone();
        let subscriptions = list.subscription;
        let split =
            move |work: &ReadBudget| split_all(&reader, &admitted, &subscriptions, mode, work);
        let (parts, ignored) = reads.run(split).await?;
        let encoding = Encoding::read(list.encoding)?;
        let (updates_only, configuration) = (list.updates_only, wishes.configuration);
        Ok(Self { mode, encoding, updates_only, configuration, prefix, parts, ignored, marking })
    }
}

/// The parts of all subscriptions, and the paths of those that are ignored. Other fields of an ignored subscription are
/// not checked.
fn split_all(
    reader: &ReadRequest,
    admitted: &[OrUnknown<AdmittedPath>],
    subscriptions: &[gnmi::Subscription],
    mode: Mode,
    work: &ReadBudget,
) -> Result<(Vec<SubscriptionPart>, Vec<SmolStr>), ReadStop> {
    let paths = reader.resolve_paths(admitted, work)?;
    let cache = RefCell::default();
    let (mut parts, mut ignored) = (Vec::new(), Vec::new());
    for (wire, path) in subscriptions.iter().zip(&paths) {
        let path = match path {
            Ok(path) => path,
            Err(unknown) => {
                ignored.push(unknown.name.clone());
                continue;
            }
        };
        work.spend(path.patterns.len())?;
        let split = Split { reader, path, cache: &cache };
        match mode {
            Mode::Once | Mode::Poll => parts.extend(split.at_once()),
            Mode::Stream => parts.extend(split.stream(wire)?),
        }
    }
    Ok((parts, ignored))
}

fn marking(marking: u32) -> Result<u8, Refusal> {
    u8::try_from(marking).ok().filter(|_| marking <= MAX_DSCP).ok_or_else(|| {
        Refusal::invalid(format!("qos.marking {marking} is not a DSCP from 0 to {MAX_DSCP}"))
    })
}

/// One subscription about to be split into parts.
struct Split<'a> {
    reader: &'a ReadRequest,
    path: &'a ReadPath,
    cache: &'a RefCell<LeafSetCache>,
}

impl Split<'_> {
    fn at_once(&self) -> Option<SubscriptionPart> {
        self.part(ChangeDetection::All, StreamMode::Changes { heartbeat: None })
    }

    fn stream(&self, wire: &gnmi::Subscription) -> Result<Vec<SubscriptionPart>, Refusal> {
        let heartbeat = interval("heartbeat_interval", wire.heartbeat_interval)?;
        let parts = match gnmi::SubscriptionMode::try_from(wire.mode) {
            Ok(gnmi::SubscriptionMode::TargetDefined) => self.target_defined(wire, heartbeat)?,
            Ok(gnmi::SubscriptionMode::OnChange) => self.on_change(heartbeat)?,
            Ok(gnmi::SubscriptionMode::Sample) => {
                let every = interval("sample_interval", wire.sample_interval)?;
                let pace = StreamMode::Sample {
                    interval: every.unwrap_or(MIN_SAMPLE_INTERVAL),
                    suppress: wire.suppress_redundant,
                    heartbeat,
                    deletes: true,
                };
                [self.part(ChangeDetection::All, pace), None]
            }
            Err(_) => return Err(Refusal::invalid(format!("there is no mode {}", wire.mode))),
        };
        Ok(parts.into_iter().flatten().collect())
    }

    fn target_defined(
        &self,
        wire: &gnmi::Subscription,
        heartbeat: Option<Duration>,
    ) -> Result<[Option<SubscriptionPart>; 2], Refusal> {
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
        Ok([
            self.part(ChangeDetection::Event, StreamMode::Changes { heartbeat }),
            self.part(ChangeDetection::Polled, pace),
        ])
    }

    /// Splits an ON_CHANGE subscription. Leaves without events are sampled at the agent's own interval; a path that
    /// names nothing else is refused.
    fn on_change(
        &self,
        heartbeat: Option<Duration>,
    ) -> Result<[Option<SubscriptionPart>; 2], Refusal> {
        let pace = StreamMode::Sample {
            interval: DEFAULT_SAMPLE_INTERVAL,
            suppress: true,
            heartbeat,
            deletes: false,
        };
        let events = self.part(ChangeDetection::Event, StreamMode::Changes { heartbeat });
        let polled = self.part(ChangeDetection::Polled, pace);
        if let (None, Some(polled)) = (&events, &polled) {
            let schema = self.reader.schema(self.path.joined.origin);
            let leaf = polled.selection.first_leaf(schema).unwrap_or_default();
            let reason = format!("`{leaf}` has no change events: use SAMPLE");
            return Err(Refusal::malformed(self.path.joined.path.to_string(), reason));
        }
        Ok([events, polled])
    }

    fn part(&self, class: ChangeDetection, pace: StreamMode) -> Option<SubscriptionPart> {
        let cache = &mut self.cache.borrow_mut();
        let selection = self.reader.selection(cache, self.path, class)?;
        let polled = self.reader.selection(cache, self.path, ChangeDetection::Polled).is_some();
        Some(SubscriptionPart {
            selection,
            polled: polled && class != ChangeDetection::Event,
            pace,
        })
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
