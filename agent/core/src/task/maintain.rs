//! Links that are maintained.

use holdfast_platform::failure;

use super::CoreTask;
use crate::planning::MaintainedLinks;

impl CoreTask {
    /// Takes in which links are maintained.
    pub(crate) fn maintain(&mut self, links: MaintainedLinks) {
        let now = self.now();
        let prefixes = links.in_work.iter().flat_map(|link| failure::keys_of_interface(link));
        let prefixes = prefixes.collect();
        self.maintained = links.into();
        let step = self.engine.write().report_drift_of(prefixes, now);
        self.follow(step);
    }
}
