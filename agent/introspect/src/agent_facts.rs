//! Facts that the agent has beside its core: what suffers from an alarm, and counters of requests and of faults.

use std::fmt;

use futures::future::BoxFuture;
use holdfast_config::{EffectiveStatus, InstancePath};

/// Source of these facts.
pub trait AgentFacts: fmt::Debug + Send + Sync + 'static {
    /// The first objects that do not work, or work worse, because of an open alarm.
    fn affected<'f>(
        &'f self,
        alarm: &'f str,
        limit: usize,
    ) -> BoxFuture<'f, Result<Vec<(InstancePath, EffectiveStatus)>, AffectedError>>;

    /// Counters since the agent began.
    fn tallies(&self) -> BoxFuture<'_, AgentTallies>;
}

/// Reason for which nothing is known about an alarm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AffectedError {
    #[error("there is no open alarm `{0}`")]
    NotOpen(String),
    #[error("the agent is stopping, and no longer looks for faults")]
    Stopped,
}

/// Counters of requests, and times of faults.
#[derive(Clone, Debug, Default)]
pub struct AgentTallies {
    /// Sets that did not end with OK, by the name of their gRPC code.
    pub refused_sets: Vec<(String, u64)>,
    /// Logins that failed, by the kind of refusal.
    pub failed_logins: Vec<(&'static str, u64)>,
    /// Time from the report of a fault to a step on its way to those who are told.
    pub fault_times: Vec<(&'static str, Distribution)>,
}

/// Times, by classes.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// Upper end of each class in seconds, ascending, with the number of times up to it.
    pub classes: Vec<(f64, u64)>,
    pub sum_seconds: f64,
    pub count: u64,
}
