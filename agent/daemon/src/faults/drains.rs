//! Drains: traffic is led away from interfaces and next hops, for whoever asks for it.
//!
//! Policies, uplink groups, sessions of maintenance and clients (`forwarding-viable`) want resources drained. The
//! effect on each route follows from the graph ([`CoreHandle::drain_plan`]); it is looked at again whenever the graph
//! or the configuration has changed, and the difference is one change of the fence layer for each owner.
//!
//! Start at [`Drains::run`]. Who waits for a drain has a [`Drain`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_base::ErrorChain;
use holdfast_config::schema::Origin;
use holdfast_config::{Configuration, FenceItem, FenceOwner, InstancePath, Lift, MissingNode};
use holdfast_core::{CoreHandle, Datastore as _, DrainTarget, GraphVersion};
use holdfast_faults::{Input, Report, Resource, Source};
use smol_str::{SmolStr, ToSmolStr as _};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::drain_settings::{DrainNodes, DrainSettings, DrainedByClients};
use super::fencer::{self, RETRY_PAUSE};
use super::guard::FenceError;
use super::impacts::{REPEAT_INTERVAL, REPEAT_SHARE};
use super::objects::BoxObjects;

/// Time for which a link carries next to nothing before it counts as drained.
const QUIET_TIME: Duration = Duration::from_secs(2);
/// Pause between two looks at the packets of a link that is drained.
const SAMPLE_PAUSE: Duration = Duration::from_millis(500);

/// All drains. They go on for as long as the agent runs, whatever becomes of the task of faults.
#[derive(Debug)]
pub(super) struct Drains {
    core: CoreHandle,
    nodes: DrainNodes,
    objects: BoxObjects,
    wanted: Mutex<Wanted>,
    woken: Notify,
    outcome: watch::Sender<Arc<Outcome>>,
}

/// Resources that are to be drained.
#[derive(Clone, Debug, Default)]
struct Wanted {
    by_owner: BTreeMap<FenceOwner, BTreeSet<Resource>>,
    /// Owners whose wishes are known: what they do not want is not drained. Others may be about to say that they go on.
    known: BTreeSet<FenceOwner>,
    /// True once all wishes of policies and groups are known.
    has_level: bool,
    settings: DrainSettings,
    /// Number of changes of all this.
    version: u64,
}

/// Drains as they were carried out last.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// The version of what was wanted.
    version: u64,
    /// Drains without those that were refused.
    pub(super) drains: BTreeMap<Resource, DrainStanding>,
    errors: BTreeMap<(FenceOwner, Resource), SmolStr>,
}

/// One drain as it was carried out last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DrainStanding {
    pub(super) owners: BTreeSet<FenceOwner>,
    /// Routes that stay, since they have no other way.
    pub(super) left: Arc<[InstancePath]>,
}

/// How a drain ends for one who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// Next to nothing goes over the link any more.
    Drained,
    /// `maintenance/settings/drain-timeout` has passed.
    TimedOut,
}

/// Reason for which something is not drained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DrainError {
    #[error("{0} cannot be drained: only interfaces and next hops can")]
    NoWay(Resource),
    #[error("{resource} is not drained: {reason}")]
    Refused { resource: Resource, reason: SmolStr },
    #[error("the agent is stopping, and no longer drains")]
    Stopped,
}

/// A drain for one who waits for it. It goes on when this is dropped.
#[derive(Debug)]
pub struct Drain {
    drains: Arc<Drains>,
    owner: FenceOwner,
    resource: Resource,
    /// The version of all wishes that has this one.
    version: u64,
    began: Instant,
    outcome: watch::Receiver<Arc<Outcome>>,
}

/// Next hops that are raised, by their entries, with their metrics.
type Metrics = BTreeMap<InstancePath, u32>;

impl Drains {
    /// # Errors
    /// When the native model lacks a node, which the first test finds.
    pub(super) fn new(core: CoreHandle) -> Result<Self, MissingNode> {
        let models = core.models();
        Ok(Self {
            nodes: DrainNodes::find(&models.native)?,
            objects: BoxObjects::new(core.clone(), &models.native)?,
            core,
            wanted: Mutex::default(),
            woken: Notify::new(),
            outcome: watch::channel(Arc::default()).0,
        })
    }

    /// Takes in what an owner wants drained now.
    pub(super) fn want(&self, owner: FenceOwner, resources: BTreeSet<Resource>) {
        self.change(|wanted| wanted.set(owner, resources));
    }

    /// Takes in that all policies and groups have said what they want.
    pub(super) fn has_level(&self) {
        self.change(|wanted| wanted.has_level = true);
    }

    /// Begins to drain a resource, or goes on with it.
    ///
    /// # Errors
    /// For a resource that is neither an interface nor a next hop.
    pub(super) fn begin(
        self: &Arc<Self>,
        owner: FenceOwner,
        resource: Resource,
    ) -> Result<Drain, DrainError> {
        if !matches!(resource, Resource::Interface(_) | Resource::NextHop(_)) {
            return Err(DrainError::NoWay(resource));
        }
        let version = self.change(|wanted| {
            let mut resources = wanted.of(&owner);
            resources.insert(resource.clone());
            wanted.set(owner.clone(), resources);
        });
        let outcome = self.outcome.subscribe();
        let drains = Arc::clone(self);
        Ok(Drain { drains, owner, resource, version, began: Instant::now(), outcome })
    }

    /// Ends a drain. Returns when its metrics are off.
    ///
    /// # Errors
    /// When the core has refused that; it is tried again.
    pub(super) async fn end(
        &self,
        owner: &FenceOwner,
        resource: &Resource,
    ) -> Result<(), DrainError> {
        let version = self.change(|wanted| {
            let mut resources = wanted.of(owner);
            resources.remove(resource);
            wanted.set(owner.clone(), resources);
        });
        let mut outcome = self.outcome.subscribe();
        carried_out(&mut outcome, version, owner, resource).await
    }

    /// Has the drains of all sessions ended but those of these.
    pub(super) fn retain_sessions(&self, living: &BTreeSet<SmolStr>) {
        let configuration = self.core.configuration();
        let fenced = configuration.fence_items().flat_map(|(_, owners)| owners);
        let is_dead =
            |owner: &FenceOwner| matches!(owner, FenceOwner::Session(id) if !living.contains(id));
        self.change(|wanted| {
            let owners = wanted.by_owner.keys().cloned().chain(fenced);
            let dead: BTreeSet<FenceOwner> = owners.filter(is_dead).collect();
            dead.into_iter().for_each(|owner| wanted.set(owner, BTreeSet::new()));
        });
    }

    /// Moves after each time at which drains were carried out.
    pub(super) fn outcome(&self) -> watch::Receiver<Arc<Outcome>> {
        self.outcome.subscribe()
    }

    /// Carries drains out until the core stops or nobody takes the reports.
    pub(super) async fn run(self: Arc<Self>, inputs: mpsc::Sender<Input>) {
        let mut changes = Changes::new(&self.core);
        let mut raised: BTreeMap<Resource, Metrics> = BTreeMap::new();
        let mut by_clients = DrainedByClients::default();
        let mut has_told = false;
        let mut may_begin = Instant::now();
        loop {
            let configuration = self.core.configuration();
            self.read(&configuration, &mut by_clients);
            let wanted = self.lock().clone();
            let began = Instant::now();
            let outcome = self.carry_out(&wanted, &mut raised).await;
            let may_repeat = began + REPEAT_INTERVAL.max(began.elapsed() * REPEAT_SHARE);
            let reports = outcome.reports();
            let is_failed = !reports.is_empty();
            self.outcome.send_replace(Arc::new(outcome));
            if (is_failed || has_told)
                && inputs.send(Input::Level(Source::Drains, reports)).await.is_err()
            {
                return;
            }
            has_told = is_failed;
            may_begin = may_begin.max(may_repeat);
            let changed = async {
                let changed = changes.next(&self.core, &configuration).await;
                sleep_until(may_begin).await;
                changed
            };
            let work = async {
                tokio::select! {
                    () = self.woken.notified() => true,
                    goes_on = changed => goes_on,
                }
            };
            let goes_on = match is_failed {
                true => timeout(RETRY_PAUSE, work).await.unwrap_or(true),
                false => work.await,
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Takes in what the configuration says of drains.
    fn read(&self, configuration: &Configuration, by_clients: &mut DrainedByClients) {
        let settings = self.nodes.settings(configuration.effective());
        self.nodes.update(by_clients, configuration.effective());
        let client = &by_clients.links;
        let mut wanted = self.lock();
        let is_known = wanted.known.contains(&FenceOwner::Client);
        if !is_known || wanted.settings != settings || wanted.of(&FenceOwner::Client) != *client {
            wanted.settings = settings;
            wanted.set(FenceOwner::Client, client.clone());
            wanted.version += 1;
        }
    }

    /// Finds what is to be raised, and has the differences carried out. `raised` is what was found last.
    async fn carry_out(
        &self,
        wanted: &Wanted,
        raised: &mut BTreeMap<Resource, Metrics>,
    ) -> Outcome {
        let mut outcome = Outcome { version: wanted.version, ..Outcome::default() };
        for (owner, resources) in &wanted.by_owner {
            for resource in resources {
                let standing = outcome.drains.entry(resource.clone()).or_default();
                standing.owners.insert(owner.clone());
            }
        }
        raised.retain(|resource, _| outcome.drains.contains_key(resource));
        let mut failed: BTreeMap<Resource, SmolStr> = BTreeMap::new();
        for (resource, standing) in &mut outcome.drains {
            let kept = raised.get(resource).into_iter().flat_map(BTreeMap::keys).cloned();
            match self.plan(resource, wanted.settings.metric, kept.collect()).await {
                Ok((metrics, left)) => {
                    raised.insert(resource.clone(), metrics);
                    standing.left = left.into();
                }
                Err(error) => {
                    // The next hops that were found earlier stay raised.
                    if !raised.contains_key(resource) {
                        standing.owners.clear();
                    }
                    failed.insert(resource.clone(), ErrorChain(&error).to_smolstr());
                }
            }
        }
        let now = self.raised_now();
        let owners: BTreeSet<&FenceOwner> =
            now.keys().filter(|owner| wanted.knows(owner)).chain(wanted.by_owner.keys()).collect();
        for owner in owners {
            let resources = wanted.of(owner);
            let errors = resources.iter().filter_map(|it| Some((it, failed.get(it)?)));
            let errors: Vec<_> = errors.map(|(it, text)| (it.clone(), text.clone())).collect();
            for (resource, text) in errors {
                outcome.errors.insert((owner.clone(), resource), text);
            }
            let mut due = Metrics::new();
            for (hop, metric) in resources.iter().filter_map(|it| raised.get(it)).flatten() {
                let highest = due.entry(hop.clone()).or_default();
                *highest = (*highest).max(*metric);
            }
            let none = Metrics::new();
            let before = now.get(owner).unwrap_or(&none);
            if let Err(error) = self.exchange(owner, before, &due).await {
                let text = ErrorChain(&error).to_smolstr();
                for resource in resources {
                    // The next hops that the owner has raised before stay so.
                    if before.is_empty()
                        && let Some(standing) = outcome.drains.get_mut(&resource)
                    {
                        standing.owners.remove(owner);
                    }
                    outcome.errors.insert((owner.clone(), resource), text.clone());
                }
            }
        }
        outcome.drains.retain(|_, standing| !standing.owners.is_empty());
        outcome
    }

    /// Next hops to raise for a resource, and the routes that stay.
    async fn plan(
        &self,
        resource: &Resource,
        metric: u32,
        kept: BTreeSet<InstancePath>,
    ) -> Result<(Metrics, Vec<InstancePath>), FenceError> {
        let target = match resource {
            Resource::Interface(name) => DrainTarget::Interface(name.clone()),
            Resource::NextHop(address) => {
                let configuration = self.core.configuration();
                let links = self.objects.links(configuration.effective()).map(SmolStr::from);
                DrainTarget::NextHop { address: *address, links: links.collect() }
            }
            _ => return Err(FenceError::NoWay(resource.clone())),
        };
        let plan = self.core.drain_plan(target, metric, kept).await?;
        let metrics = plan.metrics();
        Ok((metrics, plan.left))
    }

    /// Next hops that are raised now, by owner.
    fn raised_now(&self) -> BTreeMap<FenceOwner, Metrics> {
        let mut raised: BTreeMap<FenceOwner, Metrics> = BTreeMap::new();
        for (item, owners) in self.core.configuration().fence_items() {
            let FenceItem::Raise { next_hop, metric } = item else { continue };
            for owner in owners {
                raised.entry(owner).or_default().insert(next_hop.clone(), metric);
            }
        }
        raised
    }

    /// Changes the raised next hops of an owner; without a difference, nothing happens.
    async fn exchange(
        &self,
        owner: &FenceOwner,
        before: &Metrics,
        after: &Metrics,
    ) -> Result<(), FenceError> {
        let item = |(hop, metric): (&InstancePath, &u32)| FenceItem::Raise {
            next_hop: hop.clone(),
            metric: *metric,
        };
        let gone = before.iter().filter(|(hop, _)| !after.contains_key(*hop));
        let lifted: Vec<FenceItem> = gone.map(item).collect();
        let new = after.iter().filter(|(hop, metric)| before.get(*hop) != Some(metric));
        let set: Vec<FenceItem> = new.map(item).collect();
        if lifted.is_empty() && set.is_empty() {
            return Ok(());
        }
        fencer::change(&self.core, owner.clone(), Lift::Items(lifted), set).await
    }

    /// Packets that a link has carried, both ways together.
    async fn packets(&self, interface: &SmolStr) -> u64 {
        let is_counter = |leaf| self.nodes.counts_packets(leaf);
        let sources = self.core.polled_catalog().sources(Origin::Native, is_counter);
        let reading = self.core.polled(Origin::Native, &sources).await;
        self.nodes.packets(&reading.leaves, interface)
    }

    /// Changes what is wanted, and returns its version then.
    fn change(&self, change: impl FnOnce(&mut Wanted)) -> u64 {
        let mut wanted = self.lock();
        change(&mut wanted);
        wanted.version += 1;
        let version = wanted.version;
        drop(wanted);
        self.woken.notify_one();
        version
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until what is wanted in some version was carried out.
async fn carried_out(
    outcome: &mut watch::Receiver<Arc<Outcome>>,
    version: u64,
    owner: &FenceOwner,
    resource: &Resource,
) -> Result<(), DrainError> {
    let done = outcome.wait_for(|outcome| outcome.version >= version).await;
    let done = done.map_err(|_| DrainError::Stopped)?;
    match done.errors.get(&(owner.clone(), resource.clone())) {
        Some(reason) => {
            Err(DrainError::Refused { resource: resource.clone(), reason: reason.clone() })
        }
        None => Ok(()),
    }
}

impl Wanted {
    fn of(&self, owner: &FenceOwner) -> BTreeSet<Resource> {
        self.by_owner.get(owner).cloned().unwrap_or_default()
    }

    fn set(&mut self, owner: FenceOwner, resources: BTreeSet<Resource>) {
        self.known.insert(owner.clone());
        match resources.is_empty() {
            true => drop(self.by_owner.remove(&owner)),
            false => drop(self.by_owner.insert(owner, resources)),
        }
    }

    /// True for an owner that has said all that it wants.
    fn knows(&self, owner: &FenceOwner) -> bool {
        let is_of_faults = matches!(owner, FenceOwner::Policy(_) | FenceOwner::Group(_));
        self.known.contains(owner) || is_of_faults && self.has_level
    }
}

impl Outcome {
    fn reports(&self) -> Vec<Report> {
        let report = |((owner, resource), reason): (&(FenceOwner, Resource), &SmolStr)| {
            fencer::failure(owner, resource.clone(), &format!("drained: {reason}"))
        };
        self.errors.iter().map(report).collect()
    }
}

impl Drain {
    /// Waits until the metrics are in place. After that, whatever has another way takes it.
    ///
    /// # Errors
    /// When the core refuses them. They are tried again while the drain goes on.
    pub async fn moved(&mut self) -> Result<(), DrainError> {
        carried_out(&mut self.outcome, self.version, &self.owner, &self.resource).await
    }

    /// Routes that stay on the resource, since they have no other way, as entries of the native model.
    pub fn left(&self) -> Arc<[InstancePath]> {
        let outcome = self.outcome.borrow();
        outcome.drains.get(&self.resource).map(|it| Arc::clone(&it.left)).unwrap_or_default()
    }

    /// Waits until the resource is drained, or until the time for that has passed since the drain was asked for. A next hop is
    /// drained with its routes, since nobody counts its packets.
    ///
    /// # Errors
    /// When the core refuses the metrics. They are tried again while the drain goes on.
    pub async fn ended(&mut self) -> Result<DrainEnd, DrainError> {
        let DrainSettings { quiet_pps, timeout, .. } = self.drains.lock().settings;
        let deadline = self.began + timeout;
        let moved = carried_out(&mut self.outcome, self.version, &self.owner, &self.resource);
        match timeout_at(deadline, moved).await {
            Ok(moved) => moved?,
            Err(_) => return Ok(DrainEnd::TimedOut),
        }
        let Resource::Interface(interface) = &self.resource else {
            return Ok(DrainEnd::Drained);
        };
        let mut quiet_since = Instant::now();
        let mut seen_at = quiet_since;
        let mut packets = self.drains.packets(interface).await;
        while Instant::now() < deadline {
            sleep(SAMPLE_PAUSE).await;
            let before = std::mem::replace(&mut packets, self.drains.packets(interface).await);
            let earlier = std::mem::replace(&mut seen_at, Instant::now());
            let most = f64::from(quiet_pps) * (seen_at - earlier).as_secs_f64();
            // Counters of a link that was made anew begin again.
            if packets.abs_diff(before) as f64 >= most {
                quiet_since = seen_at;
            } else if seen_at - quiet_since >= QUIET_TIME {
                return Ok(DrainEnd::Drained);
            }
        }
        Ok(DrainEnd::TimedOut)
    }
}

/// Changes by which drains may be others.
struct Changes {
    graph: watch::Receiver<GraphVersion>,
    revisions: watch::Receiver<Arc<holdfast_telemetry::Revision>>,
}

impl Changes {
    fn new(core: &CoreHandle) -> Self {
        Self { graph: core.graph_version(), revisions: core.watch() }
    }

    /// Waits until the graph or the configuration is another one. False when the core has stopped.
    async fn next(&mut self, core: &CoreHandle, before: &Configuration) -> bool {
        loop {
            tokio::select! {
                changed = self.graph.changed() => return changed.is_ok(),
                changed = self.revisions.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                    if !core.configuration().is_same(before) {
                        return true;
                    }
                }
            }
        }
    }
}
