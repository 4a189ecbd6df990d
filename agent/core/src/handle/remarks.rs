//! Values that are configured and do not have their effect, or not all of it.

use std::collections::BTreeSet;

use holdfast_platform::kinds;
use holdfast_platform::kinds::route::{hop_text, route_text};
use holdfast_platform::values::{Hop, KernelRoute};
use holdfast_platform::{BestRoutes, Destination};
use holdfast_scheduler::Key;

use super::view::CoreView;
use crate::state::{as_route, preferred_of};

/// A value that is configured and does not have its effect, for a reason outside of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    pub key: Key,
    pub label: String,
    /// Reason, as shown to users.
    pub reason: String,
}

impl CoreView<'_> {
    /// Routes of ours that the kernel does not use, because another program's route has a lower metric, and those with next
    /// hops that it does not use, because their links have no carrier. `best` are routes that the kernel was asked for, beside those
    /// that it announces. It takes time in proportion to the routes.
    pub(crate) fn remarks(&self, best: &BestRoutes) -> Vec<Remark> {
        let may_have_some = |key: &Key| {
            key.kind() == kinds::ROUTE
                && (!best.is_empty()
                    || self.foreign_routes.has_destination_of(key)
                    || self.unusable_hops(key).is_some())
        };
        let mut keys = self.engine.keys(may_have_some);
        keys.sort_unstable();
        keys.into_iter().flat_map(|key| self.remarks_of(&key, best)).collect()
    }

    /// Destinations of the routes of ours that are in the kernel, ascending.
    pub(crate) fn destinations_of_ours(&self) -> Vec<Destination> {
        let keys = self.engine.keys(|key| key.kind() == kinds::ROUTE);
        let observed = keys.iter().filter_map(|key| as_route(self.engine.planes(key)[2]?));
        let ours = observed.filter(|route| route.foreign.is_none());
        let destinations: BTreeSet<Destination> = ours.map(Destination::of).collect();
        destinations.into_iter().collect()
    }

    fn remarks_of(&self, key: &Key, best: &BestRoutes) -> Vec<Remark> {
        let [intended, ..] = self.engine.planes(key);
        let shadow = intended.and_then(as_route).and_then(|ours| self.shadow_of(key, ours, best));
        let carrier = self.unusable_hops(key).map(lost_carrier);
        let remark = |reason| Remark { label: self.engine.label(key), key: key.clone(), reason };
        shadow.into_iter().chain(carrier).map(remark).collect()
    }

    /// Next hops of a route of ours that the kernel does not use.
    fn unusable_hops(&self, key: &Key) -> Option<&[Hop]> {
        let [.., observed] = self.engine.planes(key);
        let observed = observed.and_then(as_route).filter(|route| route.foreign.is_none())?;
        observed.unusable.as_deref()
    }

    /// Reason for which the kernel uses another program's route.
    fn shadow_of(&self, key: &Key, ours: &KernelRoute, best: &BestRoutes) -> Option<String> {
        let announced = self.foreign_routes.has_destination_of(key);
        let announced = announced.then(|| self.foreign_routes.preferred_to(ours)).flatten();
        let theirs = announced.or_else(|| preferred_of(best, ours))?;
        Some(format!("shadowed by `{}`, which has a lower metric", route_text(theirs)))
    }
}

/// Reason for which the kernel does not use next hops.
fn lost_carrier(hops: &[Hop]) -> String {
    let hops: Vec<String> = hops.iter().map(hop_text).collect();
    let (next_hop, link) = match hops.len() {
        1 => ("next hop", "its link has"),
        _ => ("next hops", "their links have"),
    };
    format!("{next_hop} `{}` unusable: {link} no carrier", hops.join("`, `"))
}
