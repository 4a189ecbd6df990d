//! Facts for introspection that the core does not have: impacts and times of faults, and refusals.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use holdfast_config::{EffectiveStatus, InstancePath};
use holdfast_faults::Condition;
use holdfast_introspect::{AffectedError, AgentFacts, AgentTallies};
use tokio::time::timeout;

use crate::faults::FaultService;
use crate::refusals::RefusalCounters;

/// Time limit for the times of faults. The task that has them answers at once, unless it begins anew after a bug: other
/// metrics do not wait for that.
const TIMES_WITHIN: Duration = Duration::from_secs(1);

/// The facts of a running agent.
pub(crate) struct RunningAgent {
    pub(crate) faults: FaultService,
    pub(crate) refusals: Arc<RefusalCounters>,
}

impl fmt::Debug for RunningAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RunningAgent")
    }
}

impl AgentFacts for RunningAgent {
    fn affected<'f>(
        &'f self,
        alarm: &'f str,
        limit: usize,
    ) -> BoxFuture<'f, Result<Vec<(InstancePath, EffectiveStatus)>, AffectedError>> {
        async move {
            let not_open = || AffectedError::NotOpen(alarm.to_owned());
            let condition: Condition = alarm.parse().map_err(|_| not_open())?;
            let stopped = |_| AffectedError::Stopped;
            let open = self.faults.alarms().await.map_err(stopped)?;
            if open.iter().all(|it| it.condition != condition) {
                return Err(not_open());
            }
            self.faults.affected_paths(&condition, limit).await.map_err(stopped)
        }
        .boxed()
    }

    fn tallies(&self) -> BoxFuture<'_, AgentTallies> {
        async move {
            // Without anybody who looks for faults there are no times.
            let times = timeout(TIMES_WITHIN, self.faults.times()).await;
            let times = times.ok().and_then(Result::ok);
            AgentTallies {
                refused_sets: self.refusals.sets(),
                failed_logins: self.refusals.logins(),
                fault_times: times.unwrap_or_default(),
            }
        }
        .boxed()
    }
}
