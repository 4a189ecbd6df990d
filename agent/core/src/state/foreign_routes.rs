//! Routes of other programs beside ours: what is taken over, and what wins over ours.
//!
//! An equal route of another program is adopted ([decision 008](../../../decisions/008-ownership-marks.md)), as any object that is there before
//! us. The engine finds it under the key of ours where both have the same metric. One of another metric is shown to the
//! engine under that key before the plan is made: the operation that adopts it adds ours first, and then removes it.

use holdfast_platform::descriptors::route::route_text;
use holdfast_platform::values::KernelRoute;
use holdfast_platform::{BestRoutes, Destination};
use holdfast_scheduler::SharedValue;
use tracing::warn;

pub(crate) fn warn_of_shadow(ours: &KernelRoute, theirs: &KernelRoute) {
    let route = route_text(ours);
    let shadowed_by = route_text(theirs);
    warn!(
        route,
        shadowed_by, "the kernel prefers another program's route, because its metric is lower"
    );
}

/// The route of another program that the kernel prefers to a route of ours, of those that it uses.
pub(crate) fn preferred_of<'b>(
    best: &'b BestRoutes,
    ours: &KernelRoute,
) -> Option<&'b KernelRoute> {
    best.get(&Destination::of(ours)).filter(|theirs| theirs.metric < ours.metric)
}

pub(crate) fn as_route(value: &SharedValue) -> Option<&KernelRoute> {
    value.as_any().downcast_ref()
}
