//! Threshold rules: each is evaluated at its period, on leaves as Get shows them.
//!
//! All rules that are due together read the same state of the box, and one reading of what is polled.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_config::resolve::PathPattern;
use holdfast_config::schema::Origin;
use holdfast_config::{InstancePath, Models, Value};
use holdfast_core::{CoreHandle, Datastore, ObservedBox};
use holdfast_faults::{AlarmRule, Condition, Input, Settings, Verdict};
use holdfast_services::expression::{Conditions, StateFacts, StateLeaf};
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tracing::{debug, error};

use super::visibility::{RuleOwners, permits};
use crate::deadline::wait_until;
use crate::gnsi::pathz::PathPermissions;

/// A number that a leaf had.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Instant,
    value: f64,
}

/// Numbers of leaves whose rate a rule asks for.
type Samples = HashMap<StateLeaf, Sample>;

/// A rule, between two periods.
#[derive(Debug)]
struct RunningRule {
    rule: Arc<AlarmRule>,
    due: Instant,
    samples: Samples,
    /// Its expression has read a leaf that is polled.
    reads_polled: bool,
}

/// Evaluates the rules of the newest settings until there are no more settings, or nobody takes the verdicts.
pub(super) async fn follow(
    core: CoreHandle,
    owners: RuleOwners,
    mut settings: watch::Receiver<Arc<Settings>>,
    inputs: mpsc::Sender<Input>,
) {
    let judge = Arc::new(Judge { core, owners, conditions: Conditions::new() });
    let mut running = BTreeMap::<Condition, RunningRule>::new();
    loop {
        let wanted = settings.borrow_and_update().clone();
        take_settings(&mut running, &wanted);
        let due = running.values().map(|it| it.due).min();
        tokio::select! {
            changed = settings.changed() => if changed.is_err() {
                return;
            },
            () = wait_until(due) => {
                let verdicts = judge.round(&mut running).await;
                if inputs.send(Input::Verdicts(verdicts)).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Keeps the rules that are as before. The others begin anew, with a first look at once.
fn take_settings(running: &mut BTreeMap<Condition, RunningRule>, settings: &Settings) {
    let mut before = std::mem::take(running);
    for (rule, _) in settings.threshold_rules() {
        let condition = rule.condition();
        let kept = before.remove(&condition).filter(|it| it.rule == *rule);
        let new = || RunningRule {
            rule: Arc::clone(rule),
            due: Instant::now(),
            samples: Samples::new(),
            reads_polled: false,
        };
        running.insert(condition, kept.unwrap_or_else(new));
    }
}

/// The state of the box that all rules of a round read.
#[derive(Debug)]
struct Round {
    models: Arc<Models>,
    state: ObservedBox,
    /// Leaves that are polled, once a rule has asked for one.
    polled: Option<HashMap<(Origin, InstancePath), Value>>,
    at: Instant,
}

/// The facts for one rule in a round.
#[derive(Debug)]
struct RuleFacts {
    round: Arc<Round>,
    rights: Option<Arc<PathPermissions>>,
    before: Samples,
    now: Mutex<Samples>,
    reads_polled: AtomicBool,
}

impl RuleFacts {
    fn read(&self, leaf: &StateLeaf) -> Option<Value> {
        let Round { state, polled, .. } = &*self.round;
        if self.rights.as_ref().is_some_and(|it| !permits(it, leaf.origin, &leaf.path)) {
            return None;
        }
        if leaf.is_polled {
            self.reads_polled.store(true, Ordering::Relaxed);
            return polled.as_ref()?.get(&(leaf.origin, leaf.path.clone())).cloned();
        }
        let found = state.state(leaf.origin, &PathPattern::from(&leaf.path));
        found.into_iter().next().map(|(_, value)| value)
    }
}

impl StateFacts for RuleFacts {
    fn state(&self, path: &str) -> Result<Option<Value>, String> {
        Ok(self.read(&StateLeaf::find(&self.round.models, path)?))
    }

    fn rate(&self, path: &str) -> Result<Option<f64>, String> {
        let leaf = StateLeaf::find(&self.round.models, path)?;
        let Some(found) = self.read(&leaf) else { return Ok(None) };
        let value = number(&found).ok_or_else(|| format!("`{path}` is not a number"))?;
        let sample = Sample { at: self.round.at, value };
        let before = self.before.get(&leaf).copied();
        self.now.lock().unwrap_or_else(PoisonError::into_inner).insert(leaf, sample);
        Ok(before.and_then(|before| rate(before, sample, matches!(found, Value::Uint(_)))))
    }
}

/// Rise in a second. A counter that has fallen began anew, so nothing is known of it.
fn rate(before: Sample, now: Sample, is_counter: bool) -> Option<f64> {
    let seconds = now.at.saturating_duration_since(before.at).as_secs_f64();
    let rise = now.value - before.value;
    let is_known = seconds > 0.0 && (rise >= 0.0 || !is_counter);
    is_known.then(|| rise / seconds)
}

#[allow(clippy::cast_precision_loss, reason = "expressions have no exact fractions")]
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(number) => Some(*number as f64),
        Value::Uint(number) => Some(*number as f64),
        Value::Decimal { digits, scale } => Some(*digits as f64 / 10_f64.powi(i32::from(*scale))),
        _ => None,
    }
}

/// Evaluates rules.
#[derive(Debug)]
struct Judge {
    core: CoreHandle,
    owners: RuleOwners,
    conditions: Conditions,
}

impl Judge {
    /// Evaluates the rules that are due.
    async fn round(
        self: &Arc<Self>,
        running: &mut BTreeMap<Condition, RunningRule>,
    ) -> Vec<(Condition, Verdict)> {
        let at = Instant::now();
        let state = || Round {
            models: self.core.models(),
            state: self.core.observed_box(),
            polled: None,
            at,
        };
        let due: Vec<&mut RunningRule> = running.values_mut().filter(|it| it.due <= at).collect();
        let knows_of_polled = due.iter().any(|it| it.reads_polled);
        let mut round = Arc::new(match knows_of_polled {
            true => self.with_polled(state()).await,
            false => state(),
        });
        let mut verdicts = Vec::with_capacity(due.len());
        for running in due {
            let mut result = self.evaluate(running, &round).await;
            if result.reads_polled && round.polled.is_none() {
                round = Arc::new(self.with_polled(state()).await);
                result = self.evaluate(running, &round).await;
            }
            running.due = next_round(running, at);
            running.samples = result.samples;
            running.reads_polled = result.reads_polled;
            verdicts.push((running.rule.condition(), result.verdict));
        }
        verdicts
    }

    async fn with_polled(&self, round: Round) -> Round {
        let mut leaves = HashMap::new();
        for origin in [Origin::Native, Origin::OpenConfig] {
            let polled = self.core.polled(origin).await;
            leaves.extend(polled.into_iter().map(|(path, value)| ((origin, path), value)));
        }
        Round { polled: Some(leaves), ..round }
    }

    /// Evaluates a rule on a thread of its own, since an expression may use up its fuel.
    async fn evaluate(self: &Arc<Self>, running: &RunningRule, round: &Arc<Round>) -> RuleResult {
        let judge = Arc::clone(self);
        let rule = Arc::clone(&running.rule);
        let facts = Arc::new(RuleFacts {
            round: Arc::clone(round),
            rights: self.owners.pathz.rights(&rule.owner, &round.models),
            before: running.samples.clone(),
            now: Mutex::default(),
            reads_polled: AtomicBool::new(false),
        });
        let evaluated = spawn_blocking(move || {
            let verdict = judge.verdict(&rule, &facts);
            let samples = facts.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let reads_polled = facts.reads_polled.load(Ordering::Relaxed);
            RuleResult { verdict, samples, reads_polled }
        });
        evaluated.await.unwrap_or_else(|bug| {
            error!(error = %bug, "an alarm rule could not be evaluated because of a bug");
            RuleResult { verdict: Verdict::Failed, samples: Samples::new(), reads_polled: false }
        })
    }

    fn verdict(&self, rule: &AlarmRule, facts: &Arc<RuleFacts>) -> Verdict {
        let Some(expression) = &rule.expression else { return Verdict::Failed };
        let facts: Arc<dyn StateFacts> = Arc::clone(facts) as _;
        match self.conditions.is_true_of_state(expression, &facts) {
            Ok(Some(true)) => Verdict::True,
            Ok(Some(false)) => Verdict::False,
            Ok(None) => Verdict::NoValue,
            Err(reason) => {
                debug!(owner = %rule.owner, name = %rule.name, %reason, "an alarm rule cannot be evaluated");
                Verdict::Failed
            }
        }
    }
}

/// The result of a rule in a round.
struct RuleResult {
    verdict: Verdict,
    samples: Samples,
    reads_polled: bool,
}

/// The next moment at which a rule is due. A period that was missed is not made up for.
fn next_round(running: &RunningRule, now: Instant) -> Instant {
    let period = running.rule.threshold.map(|it| it.period).unwrap_or_default();
    let next = running.due + period;
    if next > now { next } else { now + period }
}

/// Answers of a box with every leaf, to find paths that no box has.
#[derive(Debug)]
struct EveryLeaf {
    models: Arc<Models>,
    refusal: Mutex<Option<String>>,
}

impl EveryLeaf {
    fn find(&self, path: &str) -> Result<(), String> {
        StateLeaf::find(&self.models, path).map(drop).inspect_err(|reason| {
            let mut refusal = self.refusal.lock().unwrap_or_else(PoisonError::into_inner);
            refusal.get_or_insert_with(|| reason.clone());
        })
    }
}

impl StateFacts for EveryLeaf {
    fn state(&self, path: &str) -> Result<Option<Value>, String> {
        self.find(path).map(|()| Some(Value::Uint(0)))
    }

    fn rate(&self, path: &str) -> Result<Option<f64>, String> {
        self.find(path).map(|()| Some(0.0))
    }
}

/// Checks the form of an expression, and the paths that it reads. A path that is only read after another part of the
/// expression has become true is found when the rule runs.
///
/// # Errors
/// With place and reason.
pub(super) fn check(
    conditions: &Conditions,
    expression: &str,
    models: &Arc<Models>,
) -> Result<(), String> {
    conditions.check(expression)?;
    let facts = Arc::new(EveryLeaf { models: Arc::clone(models), refusal: Mutex::default() });
    let asked: Arc<dyn StateFacts> = Arc::clone(&facts) as _;
    // Whether it is true does not matter, and a value of another type than the leaf's may be refused.
    let _ = conditions.is_true_of_state(expression, &asked);
    let refusal = facts.refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
    refusal.map_or(Ok(()), Err)
}
