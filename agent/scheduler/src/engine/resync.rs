//! Periodic resync.
//!
//! In a resync everything is retrieved and given to [`Engine::resync`] or [`Engine::retrieved`]; only differences
//! become operations. The caller begins one on request and after an overrun, the engine asks for one periodically.

use std::time::Duration;

use crate::engine::Engine;
use crate::operation::Now;
use crate::output::EngineOutput;

impl Engine {
    /// Asks for a complete retrieval in this period: [`EngineOutput::retrieve`] says when. `None`, the default, turns it off.
    pub fn resync_every(&mut self, period: Option<Duration>, now: Now) -> EngineOutput {
        self.resync_period = period;
        self.resync_due = period.map(|period| now.monotonic + period);
        self.advance(EngineOutput::default(), now)
    }

    pub(crate) fn expire_resync(&mut self, now: Now, step: &mut EngineOutput) {
        if self.resync_due.is_some_and(|due| due <= now.monotonic) {
            step.retrieve = true;
            self.resync_due = self.resync_period.map(|period| now.monotonic + period);
        }
    }
}
