//! An engine and a simulated system, driven until both are idle.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_scheduler::{
    Action, Completion, Delta, DriftPolicy, Engine, EngineOutput, Fact, Key, Now, Operation,
    OperationError, Plan, PlanError, SharedValue, Target, TransactionOutcome,
};

use super::thing::{Thing, changes, delta, key, registry, thing, things};

/// Deadlines until a transaction has to end: large plans are taken over and released in portions, each with one.
const MAX_PORTIONS: usize = 10_000;

/// An engine, and the system it manages.
#[derive(Debug)]
pub struct Lab {
    pub engine: Engine,
    pub system: BTreeMap<Key, Thing>,
    pub now: Duration,
    /// Errors of operations, by text such as `create a`, for as long as they are listed.
    pub failing: BTreeMap<String, OperationError>,
    /// Drops an error once it has occurred.
    pub fails_once: bool,
    /// True after a failure: what follows in the same batch may lack a dependency, and is refused.
    pub failed_in_batch: bool,
    /// Operations that are carried out without effect: `create a`.
    pub without_effect: Vec<String>,
    /// Failing operations that are carried out nevertheless.
    pub with_effect: Vec<String>,
    /// Operations that are never answered: `create a`.
    pub silent: Vec<String>,
    /// Operations that the system carried out or refused, in order.
    pub log: Vec<String>,
    pub finished: Vec<TransactionOutcome>,
    pub restores: BTreeMap<Key, Thing>,
    /// Deadline of the last step.
    pub deadline: Option<Duration>,
    pub reads: usize,
    /// States as seen by a watcher that only looks at changed keys.
    pub watched: BTreeMap<Key, String>,
    /// Checks each operation against the dependencies of everything in the system.
    pub strict: bool,
}

impl Default for Lab {
    fn default() -> Self {
        Self {
            engine: Engine::new(registry()),
            system: BTreeMap::new(),
            now: Duration::from_secs(1000),
            failing: BTreeMap::new(),
            fails_once: false,
            failed_in_batch: false,
            without_effect: Vec::new(),
            with_effect: Vec::new(),
            silent: Vec::new(),
            log: Vec::new(),
            finished: Vec::new(),
            restores: BTreeMap::new(),
            deadline: None,
            reads: 0,
            watched: BTreeMap::new(),
            strict: true,
        }
    }
}

impl Lab {
    /// A system with these foreign values, and an engine that has read them.
    pub fn with(system: &str) -> Self {
        let system = things(system).into_iter().map(|thing| (thing.key(), thing)).collect();
        let mut lab = Self { system, ..Self::default() };
        lab.resync();
        lab
    }

    /// A system with foreign values, and values committed by the engine.
    pub fn having(system: &str, ours: &str) -> Self {
        let mut lab = Self::with(system);
        lab.commit(ours).unwrap();
        lab.log.clear();
        lab
    }

    pub fn now(&self) -> Now {
        Now { monotonic: self.now, unix_ns: u64::try_from(self.now.as_nanos()).unwrap() }
    }

    pub fn facts(&self) -> Vec<Fact> {
        self.system.values().map(|thing| fact(&thing.key(), Some(thing))).collect()
    }

    pub fn resync(&mut self) {
        let step = self.engine.resync(self.facts(), self.now());
        self.follow(step);
    }

    /// Sets the drift policy of a key prefix.
    pub fn drift(&mut self, prefix: &str, policy: Option<DriftPolicy>) {
        let step = self.engine.set_drift_policies([(key(prefix), policy)], self.now());
        self.follow(step);
    }

    pub fn plan(&self, text: &str) -> Result<Plan, PlanError> {
        self.engine.plan(delta(text))
    }

    /// Plans and carries out a change, and returns its outcome.
    pub fn commit(&mut self, text: &str) -> Result<TransactionOutcome, PlanError> {
        self.commit_delta(delta(text))
    }

    pub fn commit_delta(&mut self, delta: Delta) -> Result<TransactionOutcome, PlanError> {
        let plan = self.engine.plan(delta)?;
        let (txn, step) = self.engine.start(plan, self.now());
        self.follow(step);
        let mut patience = MAX_PORTIONS;
        while !self.finished.iter().any(|outcome| outcome.txn() == txn) && patience > 0 {
            patience -= 1;
            self.pass_time();
        }
        let outcome = self.finished.iter().find(|outcome| outcome.txn() == txn);
        Ok(outcome.expect("the transaction ends").clone())
    }

    /// Jumps to the next deadline.
    pub fn pass_time(&mut self) {
        if let Some(deadline) = self.deadline {
            self.now = self.now.max(deadline);
            let step = self.engine.due(self.now());
            self.follow(step);
        }
    }

    /// Lets time pass until nothing is planned any more, up to a limit.
    pub fn run_until_idle(&mut self, most: Duration) {
        let until = self.now + most;
        let begun = self.log.len();
        while self.deadline.is_some_and(|deadline| deadline <= until) {
            assert!(self.log.len() < begun + 5_000, "{:?}", &self.log[self.log.len() - 20..]);
            self.pass_time();
        }
    }

    /// Changes the system from outside, with a notification.
    pub fn outside(&mut self, text: &str) {
        let facts = self.change_outside_silently(text);
        self.report(facts);
    }

    pub fn report(&mut self, facts: Vec<Fact>) {
        let step = self.engine.observed(facts, self.now());
        self.follow(step);
    }

    /// Reports facts and leaves the reads they cause unanswered.
    pub fn report_facts_only(&mut self, facts: Vec<Fact>) {
        let step = self.engine.observed(facts, self.now());
        self.follow(EngineOutput { read: Vec::new(), ..step });
    }

    pub fn change_outside_silently(&mut self, text: &str) -> Vec<Fact> {
        let changes = changes(text);
        let mut facts = Vec::new();
        for (key, value) in changes {
            let value = value.as_ref().map(thing);
            facts.push(fact(&key, value.as_ref()));
            match value {
                Some(thing) => self.system.insert(key, thing),
                None => self.system.remove(&key),
            };
        }
        facts
    }

    /// Carries out steps until there is nothing left to do.
    pub fn follow(&mut self, step: EngineOutput) {
        let mut steps = std::collections::VecDeque::from([step]);
        let mut patience = 10_000;
        while let Some(step) = steps.pop_front() {
            patience -= 1;
            assert!(
                patience > 0,
                "the engine never rests: {:?}",
                &self.log[self.log.len().saturating_sub(20)..]
            );
            self.deadline = step.deadline;
            for (key, value) in step.restores {
                match value {
                    Some(value) => self.restores.insert(key, thing(&value)),
                    None => self.restores.remove(&key),
                };
            }
            for key in &step.changed {
                self.watched.insert(key.clone(), watched(&self.engine, key));
            }
            self.finished.extend(step.finished);
            let mut completions = Vec::new();
            for op in step.submit {
                completions.extend(self.execute(&op));
            }
            if !completions.is_empty() {
                let next = self.engine.completed(completions, self.now());
                steps.push_back(next);
            }
            if !step.read.is_empty() {
                self.reads += step.read.len();
                let facts = step.read.iter().map(|key| fact(key, self.system.get(key))).collect();
                let next = self.engine.observed(facts, self.now());
                steps.push_back(next);
            }
        }
    }

    pub fn execute(&mut self, op: &Operation) -> Option<Completion> {
        let value = op.new.as_ref().or(op.old.as_ref()).map(thing).expect("a value");
        let text = format!("{} {}", op.action, value.name);
        if self.silent.contains(&text) {
            self.log.push(format!("{text} silent"));
            return None;
        }
        let result = match self.failing.get(&text).cloned() {
            Some(error) => {
                if self.with_effect.contains(&text) {
                    self.effect(op).expect("the system can carry it out");
                }
                self.failed_in_batch |= self.fails_once;
                if self.fails_once {
                    self.failing.remove(&text);
                }
                Err(error)
            }
            None if self.without_effect.contains(&text) => Ok(()),
            None => self.effect(op),
        };
        self.log.push(match &result {
            Ok(()) => text,
            Err(error) => format!("{text} FAILED {error}"),
        });
        Some(Completion { op: op.id, result, observed: None })
    }

    fn effect(&mut self, op: &Operation) -> Result<(), OperationError> {
        let present = self.system.contains_key(&op.key);
        match (op.action, &op.new) {
            (Action::Delete, _) => {
                let removed =
                    self.system.remove(&op.key).ok_or(error(2, "no such thing", false))?;
                if removed.has("stays") {
                    let rest = Thing::parse(&format!("{} stays", removed.name));
                    self.system.insert(op.key.clone(), rest);
                }
                if removed.starting("~").next().is_some() {
                    self.system.retain(|_, other| !removed.takes(other));
                }
                self.check_needs(&format!("delete {}", removed.name));
            }
            (Action::Create, Some(_)) if present => return Err(error(17, "exists", false)),
            (Action::Update | Action::Adopt | Action::Release, Some(_)) if !present => {
                return Err(error(2, "no such thing", false));
            }
            (_, Some(new)) => {
                let mut new = thing(new);
                // The system keeps the number of an object.
                let number = self.system.get(&op.key).and_then(|old| old.starting("^").next());
                if let Some(number) = number {
                    new = new.without_number();
                    new.tokens.push(format!("^{number}"));
                }
                if (self.failed_in_batch || !self.failing.is_empty()) && !self.has_needs(&new) {
                    return Err(error(101, "unreachable", false));
                }
                self.lose_properties(&new);
                self.system.insert(op.key.clone(), new.clone());
                self.check_needs(&format!("{} {}", op.action, new.name));
            }
            (_, None) => panic!("nothing to make"),
        }
        Ok(())
    }

    fn lose_properties(&mut self, new: &Thing) {
        let Some(old) = self.system.get(&new.key()) else { return };
        let properties = new.properties();
        let lost: Vec<String> = old
            .properties()
            .into_iter()
            .filter(|p| !properties.contains(p))
            .filter_map(|(_, taken)| taken)
            .collect();
        if lost.is_empty() {
            return;
        }
        self.system.retain(|_, other| !lost.iter().any(|name| other.has(&format!("+{name}"))));
    }

    fn has_needs(&self, thing: &Thing) -> bool {
        thing.needs().iter().all(|need| self.is_met(&need.target))
    }

    pub fn is_met(&self, target: &Target) -> bool {
        self.system.values().any(|other| other.offers(target))
    }

    /// Checks that nothing of ours lacks a dependency.
    fn check_needs(&self, after: &str) {
        if !self.strict || self.failed_in_batch {
            return;
        }
        for thing in self.system.values() {
            let ours = self.engine.planes(&thing.key())[0].is_some();
            for need in thing.needs().iter().filter(|_| ours) {
                let met = self.is_met(&need.target);
                assert!(
                    met,
                    "after `{after}`, `{thing}` is without {}; {:?}",
                    need.label, self.log
                );
            }
        }
    }

    /// Starts a change and stops after this many operations.
    pub fn start_and_crash(&mut self, delta: Delta, after: usize) {
        let plan = self.engine.plan(delta).unwrap();
        let (_, step) = self.engine.start(plan, self.now());
        for op in step.submit.iter().take(after) {
            self.execute(op);
        }
    }

    /// New engine on the same system, with this intent in its store. Values of the old one carry its mark.
    pub fn restarted(&self, intent: &BTreeMap<Key, Thing>) -> Self {
        let mut lab = Self { strict: false, failed_in_batch: true, ..Self::default() };
        let values =
            intent.iter().map(|(key, thing)| (key.clone(), Arc::new(thing.clone()) as SharedValue));
        lab.engine.load(values.collect(), Vec::new());
        let statuses = lab.engine.statuses();
        let texts = statuses.iter().map(|it| (it.key.clone(), watched(&lab.engine, &it.key)));
        lab.watched = texts.collect();
        let marked = self.system.iter().map(|(key, thing)| {
            let mut thing = thing.clone();
            thing.tokens.push("mine".to_owned());
            (key.clone(), thing)
        });
        lab.system = marked.collect();
        lab.resync();
        for thing in lab.system.values_mut() {
            thing.tokens.retain(|token| token != "mine");
        }
        lab
    }

    /// Content of the system, sorted by key: `a =1 <b; c`.
    pub fn system_text(&self) -> String {
        self.system.values().map(Thing::to_string).collect::<Vec<_>>().join("; ")
    }

    /// Takes the log: `create a; delete b`.
    pub fn log(&mut self) -> String {
        std::mem::take(&mut self.log).join("; ")
    }

    /// State and unmet labels of a value: `PENDING <b`.
    pub fn state(&self, name: &str) -> String {
        let Some(status) = self.engine.status(&key(name)) else { return "-".to_owned() };
        let mut text = status.state.to_string();
        for label in &status.detail.unmet {
            text += &format!(" <{label}");
        }
        text
    }
}

/// State and planes of a value, as text.
pub fn watched(engine: &Engine, key: &Key) -> String {
    format!("{} {:?}", engine.state(key), engine.planes(key))
}

pub fn fact(key: &Key, value: Option<&Thing>) -> Fact {
    let value = value.map(|thing| Arc::new(thing.clone()) as SharedValue);
    Fact { key: key.clone(), value, time_ns: 0 }
}

pub fn error(errno: i32, message: &str, transient: bool) -> OperationError {
    OperationError { errno: Some(errno), message: message.into(), transient }
}
