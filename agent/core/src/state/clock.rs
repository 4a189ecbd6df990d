//! Time since the start of the core, and the next call of the engine.

use std::time::Duration;

use holdfast_base::now_ns;
use holdfast_scheduler::Now;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// Time of the next call of the engine, since `started`.
    engine_due: Option<Duration>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { started: Instant::now(), engine_due: None }
    }

    pub(crate) fn now(&self) -> Now {
        Now { monotonic: self.started.elapsed(), unix_ns: now_ns() }
    }

    /// Time from the start to a moment.
    pub(crate) fn since_start(&self, at: Instant) -> Duration {
        at.duration_since(self.started)
    }

    /// Moment at this time since the start.
    pub(crate) fn moment(&self, since_start: Duration) -> Instant {
        self.started + since_start
    }

    /// Time of the next call of the engine, since the start.
    pub(crate) fn engine_due(&self) -> Option<Duration> {
        self.engine_due
    }

    /// Sets the time of the next call of the engine.
    pub(crate) fn call_engine_at(&mut self, due: Option<Duration>) {
        self.engine_due = due;
    }

    /// True when the engine is to be called now, which is noted.
    pub(crate) fn take_engine_call(&mut self, now: Now) -> bool {
        self.engine_due.take_if(|at| *at <= now.monotonic).is_some()
    }
}
