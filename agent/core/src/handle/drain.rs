//! Drains: which next hops of static routes get a higher metric, so that traffic leaves a link or a gateway.
//!
//! The walk of an impact knows which routes would go on without the link, and which ones would not. Of the former, the next
//! hops over it are raised; the latter stay as they are, and are named. A plan is a function of what is there now: whoever
//! drains makes it anew when that changes, and asks for the difference ([`CoreHandle::fence`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use holdfast_config::{Configuration, FenceItem, InstancePath, Keys, Value};
use holdfast_platform::failure;
use holdfast_platform::objects::{Registry, RouteHop};
use holdfast_platform::values::{KernelRoute, NextHopTarget, RouteTarget};
use holdfast_scheduler::{Engine, Failure};
use smol_str::SmolStr;
use tokio::task::spawn_blocking;

use super::CoreHandle;
use super::impact::EntryImpact;
use crate::request::CommitError;
use crate::shared_engine::SharedEngine;

/// Next hops that one drain raises. A link with more routes is drained as far as this goes; each item is a route that is
/// written anew.
pub const MAX_DRAINED_HOPS: usize = 20_000;

/// Routes that are looked at under one guard of the engine: a millisecond or two.
const PORTION: usize = 512;

/// Tries for a metric that no other next hop of the route has; a route has at most 256 of them.
const METRIC_TRIES: u32 = 256;

/// The interface or next hop that traffic is to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DrainTarget {
    Interface(SmolStr),
    /// A gateway, by whatever link of these it is reached.
    NextHop {
        address: IpAddr,
        links: Vec<SmolStr>,
    },
}

/// Next hops to raise, and what stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainPlan {
    pub items: Vec<FenceItem>,
    /// Routes that stay, as entries of the native model: they have no other way, or a stronger layer holds their metric.
    pub left: Vec<InstancePath>,
    /// There are more routes than are raised.
    pub is_truncated: bool,
}

impl DrainTarget {
    fn failure(&self) -> Failure {
        match self {
            Self::Interface(name) => failure::of_interface(name),
            Self::NextHop { address, links } => {
                failure::of_next_hop(*address, links.iter().map(SmolStr::as_str))
            }
        }
    }
}

impl DrainPlan {
    /// Next hops that are raised, by their entries, with their metrics.
    pub fn metrics(&self) -> BTreeMap<InstancePath, u32> {
        let metric = |item: &FenceItem| match item {
            FenceItem::Raise { next_hop, metric } => Some((next_hop.clone(), *metric)),
            FenceItem::Shut { .. } | FenceItem::Detach { .. } => None,
        };
        self.items.iter().filter_map(metric).collect()
    }
}

impl CoreHandle {
    /// Finds the next hops whose metric is to be raised by `metric`, so that traffic leaves the target where it has another way.
    /// Next hops in `kept` were raised before: they stay so while nothing tells whether their route has another way, for
    /// instance because the link is not there.
    ///
    /// # Errors
    /// When the walk has panicked.
    pub async fn drain_plan(
        &self,
        target: DrainTarget,
        metric: u32,
        kept: BTreeSet<InstancePath>,
    ) -> Result<DrainPlan, CommitError> {
        let impact = self.impact(target.failure()).await?;
        let mut planning = Planning {
            links: self.links_lost_with(&target, &impact),
            engine: self.engine.clone(),
            registry: self.registry.clone(),
            configuration: self.configuration_rx.borrow().clone(),
            target,
            metric,
            plan: DrainPlan { is_truncated: impact.is_truncated, ..DrainPlan::default() },
        };
        let plan = spawn_blocking(move || {
            planning.look_at(&impact, &kept);
            planning.plan
        });
        plan.await.map_err(|error| CommitError::Internal {
            reason: format!("the routes to drain cannot be found: {error}"),
        })
    }

    /// The link that is drained, and those that stand on it.
    fn links_lost_with(&self, target: &DrainTarget, impact: &EntryImpact) -> BTreeSet<SmolStr> {
        let DrainTarget::Interface(name) = target else { return BTreeSet::new() };
        let link = self.registry.link_path(name);
        let name_of = |entry: &InstancePath| match (entry.0.len(), entry.last(), link.last()) {
            (2, Some(step), Some(list)) if step.node == list.node => {
                step.keys.as_ref().and_then(only_text)
            }
            _ => None,
        };
        impact.down.iter().filter_map(name_of).chain([name.clone()]).collect()
    }
}

/// A plan in the making.
struct Planning {
    target: DrainTarget,
    metric: u32,
    /// Links that next hops are to leave.
    links: BTreeSet<SmolStr>,
    engine: SharedEngine,
    registry: std::sync::Arc<Registry>,
    configuration: Configuration,
    plan: DrainPlan,
}

impl Planning {
    fn look_at(&mut self, impact: &EntryImpact, kept: &BTreeSet<InstancePath>) {
        let is_route = |entry: &&InstancePath| self.registry.is_static_route(entry);
        let left: Vec<InstancePath> = impact.down.iter().filter(is_route).cloned().collect();
        let routes: Vec<InstancePath> = impact.degraded.iter().filter(is_route).cloned().collect();
        let known: BTreeSet<&InstancePath> = left.iter().chain(&routes).collect();
        let route_of =
            |hop: &InstancePath| hop.0.split_last().map(|(_, route)| InstancePath(route.to_vec()));
        let unknown: BTreeSet<InstancePath> = kept.iter().filter_map(route_of).collect();
        let unknown: Vec<InstancePath> =
            unknown.into_iter().filter(|route| !known.contains(route)).collect();
        self.plan.left = left;
        for portion in routes.chunks(PORTION) {
            let engine = self.engine.clone();
            let engine = engine.read();
            for route in portion {
                let hops = self.hops(route);
                let is_over = |hop: &RouteHop| self.is_over(&engine, hop);
                let over: Vec<bool> = hops.iter().map(is_over).collect();
                self.raise(route, &hops, &over);
            }
        }
        for route in unknown {
            let hops = self.hops(&route);
            let over: Vec<bool> = hops.iter().map(|hop| kept.contains(&hop.entry)).collect();
            self.raise(&route, &hops, &over);
        }
        self.plan.left.sort();
    }

    fn hops(&self, route: &InstancePath) -> Vec<RouteHop> {
        let entry = self.configuration.effective().find_branch(&route.0);
        entry.map(|entry| self.registry.route_hops(route, &entry)).unwrap_or_default()
    }

    /// True for a next hop that is to be left. The kernel says by which link a gateway is reached.
    fn is_over(&self, engine: &Engine, hop: &RouteHop) -> bool {
        let NextHopTarget::Gateway(address) = hop.hop.target else {
            return hop.hop.link.as_ref().is_some_and(|link| self.links.contains(link));
        };
        if let DrainTarget::NextHop { address: drained, .. } = &self.target {
            return address == *drained;
        }
        if let Some(link) = &hop.hop.link {
            return self.links.contains(link);
        }
        let [.., observed] = engine.planes(&hop.route);
        let observed = observed.and_then(|it| it.as_any().downcast_ref::<KernelRoute>());
        let Some(RouteTarget::Hops(hops)) = observed.map(|route| &route.target) else {
            return false;
        };
        let mut hops = hops.iter().filter(|it| it.gateway == Some(address));
        hops.any(|it| it.link.as_ref().is_some_and(|link| self.links.contains(link)))
    }

    /// Raises these next hops of a route, all by the same figure. No other one has the metric of one of them then: they would
    /// share the traffic.
    fn raise(&mut self, route: &InstancePath, hops: &[RouteHop], over: &[bool]) {
        let count = over.iter().filter(|is_over| **is_over).count();
        if count == 0 {
            return;
        }
        if self.plan.items.len() + count > MAX_DRAINED_HOPS {
            self.plan.is_truncated = true;
            return;
        }
        let metric = |hop: &RouteHop| self.configuration.metric_below_fences(&hop.entry);
        let metrics: Vec<Option<u32>> = hops.iter().map(metric).collect();
        let with = |wanted: bool| {
            let chosen = over.iter().zip(&metrics).filter(move |(over, _)| **over == wanted);
            chosen.map(|(_, metric)| *metric)
        };
        let Some(raised) = with(true).collect::<Option<Vec<u32>>>() else {
            self.plan.left.push(route.clone());
            return;
        };
        let others: BTreeSet<u32> = with(false).flatten().collect();
        let is_free =
            |by: &u32| raised.iter().all(|metric| !others.contains(&metric.saturating_add(*by)));
        let tries = self.metric..self.metric.saturating_add(METRIC_TRIES);
        let by = tries.into_iter().find(is_free).unwrap_or(self.metric);
        let drained = hops.iter().zip(over).filter(|(_, is_over)| **is_over);
        let items = drained.zip(raised).map(|((hop, _), metric)| FenceItem::Raise {
            next_hop: hop.entry.clone(),
            metric: metric.saturating_add(by),
        });
        self.plan.items.extend(items);
    }
}

fn only_text(keys: &Keys) -> Option<SmolStr> {
    match &**keys {
        [Value::Str(text)] => Some(text.clone()),
        _ => None,
    }
}
