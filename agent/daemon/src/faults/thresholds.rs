//! Threshold rules: each is evaluated at its period, on leaves as Get shows them.
//!
//! All rules that are due together read the same state of the box, and one reading of what is polled.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_base::now_ns;
use holdfast_config::resolve::PathPattern;
use holdfast_config::schema::Origin;
use holdfast_config::tree::Tree;
use holdfast_config::{Models, NodeId, Value};
use holdfast_core::{CoreHandle, Datastore, ObservedBox};
use holdfast_faults::{AlarmRule, Condition, Input, Settings, Verdict};
use holdfast_services::expression::{Conditions, StateFacts, StateLeaf};
use holdfast_telemetry::LeafVersion;
use holdfast_telemetry::polled::with_polled_leaves;
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

/// Nodes of polled leaves.
type PolledNodes = BTreeSet<(Origin, NodeId)>;

/// Numbers of leaves whose rate a rule asks for.
type Samples = HashMap<StateLeaf, Sample>;

/// A rule, between two periods.
#[derive(Debug)]
struct RunningRule {
    rule: Arc<AlarmRule>,
    due: Instant,
    samples: Samples,
    /// Polled leaves that its expression has read.
    polled: PolledNodes,
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
            polled: PolledNodes::new(),
        };
        running.insert(condition, kept.unwrap_or_else(new));
    }
}

/// The state of the box that all rules of a round read.
#[derive(Debug)]
struct Round {
    models: Arc<Models>,
    state: ObservedBox,
    /// The polled leaves that the rules have read so far.
    nodes: PolledNodes,
    /// State with these leaves, by model.
    polled: BTreeMap<Origin, Tree<LeafVersion>>,
    at: Instant,
}

/// The facts for one rule in a round.
#[derive(Debug)]
struct RuleFacts {
    round: Arc<Round>,
    rights: Option<Arc<PathPermissions>>,
    before: Samples,
    now: Mutex<Samples>,
    polled: Mutex<PolledNodes>,
}

impl RuleFacts {
    fn read(&self, leaf: &StateLeaf) -> Option<Value> {
        let Round { state, polled, .. } = &*self.round;
        if self.rights.as_ref().is_some_and(|it| !permits(it, leaf.origin, &leaf.path)) {
            return None;
        }
        if leaf.is_polled {
            let mut read = self.polled.lock().unwrap_or_else(PoisonError::into_inner);
            read.extend(leaf.path.leaf().map(|node| (leaf.origin, node)));
            return Some(polled.get(&leaf.origin)?.find_leaf(&leaf.path)?.value);
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
        let due: Vec<&mut RunningRule> = running.values_mut().filter(|it| it.due <= at).collect();
        let known = due.iter().flat_map(|it| it.polled.clone()).collect();
        let mut round = Arc::new(self.state_with(known, at).await);
        let mut verdicts = Vec::with_capacity(due.len());
        for running in due {
            let mut result = self.evaluate(running, &round).await;
            if !result.polled.is_subset(&round.nodes) {
                let nodes = round.nodes.union(&result.polled).copied().collect();
                round = Arc::new(self.state_with(nodes, at).await);
                result = self.evaluate(running, &round).await;
            }
            running.due = next_round(running, at);
            running.samples = result.samples;
            running.polled = result.polled;
            verdicts.push((running.rule.condition(), result.verdict));
        }
        verdicts
    }

    /// The state of the box, with these polled leaves.
    async fn state_with(&self, nodes: PolledNodes, at: Instant) -> Round {
        let models = self.core.models();
        let state = self.core.observed_box();
        let catalog = self.core.polled_catalog();
        let mut polled = BTreeMap::new();
        for origin in [Origin::Native, Origin::OpenConfig] {
            let sources = catalog.sources(origin, |leaf| nodes.contains(&(origin, leaf)));
            if sources.is_empty() {
                continue;
            }
            let reading = self.core.polled(origin, &sources).await;
            let revision = self.core.revision();
            let tree = revision.tree(origin);
            let tree = with_polled_leaves(models.schema(origin), tree, reading, now_ns());
            polled.insert(origin, tree);
        }
        Round { models, state, nodes, polled, at }
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
            polled: Mutex::default(),
        });
        let evaluated = spawn_blocking(move || {
            let verdict = judge.verdict(&rule, &facts);
            let samples = facts.now.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let polled = facts.polled.lock().unwrap_or_else(PoisonError::into_inner).clone();
            RuleResult { verdict, samples, polled }
        });
        evaluated.await.unwrap_or_else(|bug| {
            error!(error = %bug, "an alarm rule could not be evaluated because of a bug");
            let samples = Samples::new();
            RuleResult { verdict: Verdict::Failed, samples, polled: PolledNodes::new() }
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
    polled: PolledNodes,
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

/// Functions that the expression of a threshold rule may call.
const NAMES_OF_STATE: [&str; 2] = ["state", "rate"];

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
    conditions.check(expression, &NAMES_OF_STATE)?;
    let facts = Arc::new(EveryLeaf { models: Arc::clone(models), refusal: Mutex::default() });
    let asked: Arc<dyn StateFacts> = Arc::clone(&facts) as _;
    // Whether it is true does not matter, and a value of another type than the leaf's may be refused.
    let _ = conditions.is_true_of_state(expression, &asked);
    let refusal = facts.refusal.lock().unwrap_or_else(PoisonError::into_inner).take();
    refusal.map_or(Ok(()), Err)
}
