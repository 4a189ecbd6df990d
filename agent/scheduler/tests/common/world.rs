//! A world in which every event waits until the test lets it happen.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use holdfast_scheduler::{
    Completion, Delta, Engine, EngineOutput, Fact, Key, Mode, Now, Operation, Plan, SharedValue,
    TransactionOutcome, TransportId, TxnId,
};

use super::{Lab, Reference, Thing, delta, error, fact, key, registry, watched};

/// Time longer than any pause between two tries.
const LONG: Duration = Duration::from_secs(3600);
/// Rounds of events after which the engine must be idle.
const MAX_ROUNDS: usize = 5_000;

/// An event.
#[derive(Clone, Debug)]
pub enum WorldEvent {
    Intend {
        change: String,
        atomic: bool,
    },
    /// Prepares a change without submitting it.
    Prepare {
        change: String,
        atomic: bool,
    },
    /// Submits the oldest prepared change.
    StartPrepared,
    /// Cancels the oldest prepared change.
    CancelPrepared,
    /// Carries out the oldest operation of this transport.
    CarryOut(u8),
    /// Fails the oldest operation of this transport.
    Fail(u8),
    /// Answers the oldest operation that was carried out.
    Answer,
    /// Answers the oldest read with the present value.
    Read,
    /// Delivers the oldest notice, with the value at the time it was written.
    Notice,
    /// Lets the next deadline pass.
    Time,
    /// Does the next portion of a plan that is taken over, or of a reading that is taken in, if one is under way.
    TakeOver,
    /// Reads the whole system.
    Resync,
    /// Kills the process and starts another one.
    Crash,
    /// Removes a value from the system, if it is there.
    RemoveValue(&'static str),
    /// Removes a member of a reducible value from the system, if it is there.
    RemoveMember(&'static str),
    /// Adds, changes or removes a foreign value.
    Foreign(u8, u32),
}

/// The engine, the system, and everything on its way between them.
#[derive(Debug, Default)]
pub struct World {
    lab: Lab,
    handed: BTreeMap<TransportId, VecDeque<Operation>>,
    /// Prepared changes that were not submitted yet.
    prepared: VecDeque<TxnId>,
    /// Operations that the engine submits at a time, unless it is the default.
    portion: Option<NonZeroUsize>,
    answers: VecDeque<Completion>,
    reads: VecDeque<Key>,
    notices: VecDeque<Fact>,
    /// Changes started, and whether they were answered with success.
    changes: BTreeMap<TxnId, (String, Option<bool>)>,
    /// Committed changes of earlier processes.
    committed: Vec<String>,
    /// Numbers of the operations that fail, counted from the first.
    failing: Vec<usize>,
    carried_out: usize,
    foreign: BTreeMap<Key, Thing>,
    happened: Vec<String>,
}

impl World {
    /// A system that equals the intent, with nothing on its way.
    pub fn having(ours: &str) -> Self {
        let mut world = Self::default();
        world.apply(WorldEvent::Intend { change: ours.to_owned(), atomic: false });
        world.rest();
        world.happened.clear();
        world
    }

    pub fn failing_at(failing: Vec<usize>) -> Self {
        Self { failing, ..Self::default() }
    }

    /// Sets the number of operations submitted at a time.
    #[must_use]
    pub fn in_portions(mut self, operations: usize) -> Self {
        self.portion = NonZeroUsize::new(operations);
        self.lab.engine = self.fresh();
        self
    }

    fn fresh(&self) -> Engine {
        let engine = Engine::new(registry());
        match self.portion {
            Some(portion) => engine.in_portions(portion),
            None => engine,
        }
    }

    pub fn apply(&mut self, step: WorldEvent) {
        // The system refuses values whose dependencies failed or were removed outside.
        self.lab.strict = false;
        self.lab.failed_in_batch = true;
        self.happened.push(format!("{step:?}"));
        match step {
            WorldEvent::Intend { change, atomic } => {
                self.intend(&change, atomic, Engine::start);
            }
            WorldEvent::Prepare { change, atomic } => {
                let txn = self.intend(&change, atomic, Engine::prepare);
                self.prepared.extend(txn);
            }
            WorldEvent::StartPrepared => self.act_on_prepared(Engine::start_prepared),
            WorldEvent::CancelPrepared => self.act_on_prepared(Engine::cancel),
            WorldEvent::CarryOut(transport) => self.execute(TransportId(transport), false),
            WorldEvent::Fail(transport) => self.execute(TransportId(transport), true),
            WorldEvent::Crash => self.crash(),
            WorldEvent::Answer => {
                if let Some(completion) = self.answers.pop_front() {
                    let step = self.lab.engine.completed(vec![completion], self.lab.now());
                    self.take(step);
                }
            }
            WorldEvent::Read => {
                if let Some(key) = self.reads.pop_front() {
                    self.report_fact(fact(&key, self.lab.system.get(&key)));
                }
            }
            WorldEvent::Notice => {
                if let Some(fact) = self.notices.pop_front() {
                    self.report_fact(fact);
                }
            }
            // Operations given up and answered later are tested elsewhere.
            WorldEvent::Time if self.is_answered() => self.pass_time(),
            WorldEvent::Time => {}
            WorldEvent::TakeOver if self.is_taking_over() => self.pass_time(),
            WorldEvent::TakeOver => {}
            WorldEvent::Resync => self.resync(),
            WorldEvent::RemoveValue(name) => {
                if self.lab.system.remove(&key(name)).is_some() {
                    self.notices.push_back(fact(&key(name), None));
                }
            }
            WorldEvent::RemoveMember(name) => {
                let thing = self.lab.system.get_mut(&key(name)).filter(|it| it.is_reducible());
                if let Some(thing) = thing {
                    let member = thing.tokens.iter().position(|token| token.starts_with('|'));
                    thing.tokens.remove(member.expect("it has several"));
                    self.notices.push_back(fact(&key(name), Some(thing)));
                }
            }
            WorldEvent::Foreign(which, state) => self.foreign(which, state),
        }
    }

    /// Applies an event that nobody is told of.
    pub fn apply_silently(&mut self, step: WorldEvent) {
        let told = self.notices.len();
        self.apply(step);
        self.notices.truncate(told);
    }

    fn intend(
        &mut self,
        change: &str,
        atomic: bool,
        start: impl FnOnce(&mut Engine, Plan, Now) -> (TxnId, EngineOutput),
    ) -> Option<TxnId> {
        let plan = self.lab.engine.plan(Self::delta(change, atomic)).ok()?;
        Some(self.begin(change, plan, start))
    }

    /// A change of intent whose values carry our mark, so that they are recognised after a crash.
    pub fn delta(change: &str, atomic: bool) -> Delta {
        let mut delta = delta(&Self::marked(change));
        delta.mode = if atomic { Mode::Atomic } else { Mode::BestEffort };
        delta
    }

    fn marked(change: &str) -> String {
        let marked = |item: &str| {
            if item.trim().starts_with('-') { item.trim().to_owned() } else { mark(item.trim()) }
        };
        let items = change.split(';').filter(|item| !item.trim().is_empty());
        items.map(marked).collect::<Vec<_>>().join("; ")
    }

    /// Starts a plan that was made for a change.
    pub fn start(&mut self, change: &str, plan: Plan) {
        self.happened.push(format!("start {change}"));
        self.begin(change, plan, Engine::start);
    }

    fn begin(
        &mut self,
        change: &str,
        plan: Plan,
        start: impl FnOnce(&mut Engine, Plan, Now) -> (TxnId, EngineOutput),
    ) -> TxnId {
        let now = self.lab.now();
        let (txn, step) = start(&mut self.lab.engine, plan, now);
        self.changes.insert(txn, (Self::marked(change), None));
        self.take(step);
        txn
    }

    pub fn engine(&self) -> &Engine {
        &self.lab.engine
    }

    /// Everything that happened, a line each.
    pub fn story(&self) -> String {
        self.happened.join("\n")
    }

    /// Acts on the oldest prepared change.
    fn act_on_prepared(&mut self, act: impl FnOnce(&mut Engine, TxnId, Now) -> EngineOutput) {
        let now = self.lab.now();
        if let Some(txn) = self.prepared.pop_front() {
            let step = act(&mut self.lab.engine, txn, now);
            self.take(step);
        }
    }

    fn execute(&mut self, transport: TransportId, fails: bool) {
        let Some(op) = self.handed.get_mut(&transport).and_then(VecDeque::pop_front) else {
            return;
        };
        self.carried_out += 1;
        let completion = if fails || self.failing.contains(&self.carried_out) {
            Completion { op: op.id, result: Err(error(16, "busy", true)), observed: None }
        } else {
            self.lab.execute(&op).expect("nothing is silent here")
        };
        self.happened.push(format!("  {} {} {:?}", op.action, op.key, completion.result));
        self.answers.push_back(completion);
        self.notices.push_back(fact(&op.key, self.lab.system.get(&op.key)));
    }

    fn foreign(&mut self, which: u8, state: u32) {
        let name = format!("m/foreign{which}");
        match state {
            0 => drop(self.foreign.remove(&key(&name))),
            _ => {
                drop(self.foreign.insert(key(&name), Thing::parse(&format!("{name} ={state} +f"))))
            }
        }
        match self.foreign.get(&key(&name)).cloned() {
            Some(thing) => drop(self.lab.system.insert(key(&name), thing)),
            None => drop(self.lab.system.remove(&key(&name))),
        }
        self.notices.push_back(fact(&key(&name), self.lab.system.get(&key(&name))));
    }

    /// True when everything submitted has been answered.
    fn is_answered(&self) -> bool {
        self.answers.is_empty() && self.handed.values().all(VecDeque::is_empty)
    }

    fn report_fact(&mut self, fact: Fact) {
        let step = self.lab.engine.observed(vec![fact], self.lab.now());
        self.take(step);
    }

    /// True while the engine has a portion of work that is due at once.
    pub fn is_taking_over(&self) -> bool {
        self.lab.deadline == Some(Duration::ZERO)
    }

    /// State and planes of every value.
    pub fn states(&self) -> BTreeMap<Key, String> {
        let statuses = self.lab.engine.statuses().into_iter();
        statuses.map(|it| (it.key.clone(), watched(&self.lab.engine, &it.key))).collect()
    }

    /// Whether the changes so far ended with success.
    pub fn outcomes(&self) -> Vec<Option<bool>> {
        self.changes.values().map(|(_, ended)| *ended).collect()
    }

    fn pass_time(&mut self) {
        let Some(deadline) = self.lab.deadline else { return };
        self.lab.now = self.lab.now.max(deadline);
        let step = self.lab.engine.due(self.lab.now());
        self.take(step);
    }

    fn take(&mut self, step: EngineOutput) {
        self.lab.deadline = step.deadline;
        for key in step.changed {
            let text = watched(&self.lab.engine, &key);
            self.lab.watched.insert(key, text);
        }
        for op in step.submit {
            self.handed.entry(op.transport).or_default().push_back(op);
        }
        self.reads.extend(step.read);
        for outcome in step.finished {
            let succeeded = matches!(outcome, TransactionOutcome::Done { .. });
            self.happened.push(format!("  {outcome:?}"));
            if let Some((_, ended)) = self.changes.get_mut(&outcome.txn()) {
                *ended = Some(succeeded);
            }
        }
    }

    /// Restarts the process: unanswered changes are rolled back in the store, and operations that were submitted and
    /// not carried out never will be.
    fn crash(&mut self) {
        let ended = std::mem::take(&mut self.changes).into_values();
        self.committed
            .extend(ended.filter(|(_, ended)| *ended == Some(true)).map(|(text, _)| text));
        self.handed.clear();
        self.prepared.clear();
        self.answers.clear();
        self.reads.clear();
        self.notices.clear();
        self.lab.watched.clear();
        let intent = self.reference().intent.into_iter();
        let intent = intent.map(|(key, thing)| (key, Arc::new(thing) as SharedValue)).collect();
        self.lab.engine = self.fresh();
        self.lab.engine.load(intent, Vec::new());
        for status in self.lab.engine.statuses() {
            let state = watched(&self.lab.engine, &status.key);
            self.lab.watched.insert(status.key, state);
        }
        self.resync();
    }

    fn resync(&mut self) {
        let step = self.lab.engine.resync(self.lab.facts(), self.lab.now());
        self.take(step);
    }

    /// Reference with all changes answered with success, in the order in which they were started.
    fn reference(&self) -> Reference {
        let mut reference = Reference { foreign: self.foreign.clone(), ..Reference::default() };
        let now = self.changes.values().filter(|(_, ended)| *ended == Some(true));
        for change in self.committed.iter().chain(now.map(|(change, _)| change)) {
            reference.apply(change);
        }
        reference
    }

    /// Delivers everything on its way, and lets time pass, until nothing is left to happen.
    pub fn rest(&mut self) {
        while !self.prepared.is_empty() {
            self.apply(WorldEvent::StartPrepared);
        }
        let mut until = self.lab.now + LONG;
        for _ in 0..MAX_ROUNDS {
            for step in [
                WorldEvent::CarryOut(0),
                WorldEvent::CarryOut(1),
                WorldEvent::Answer,
                WorldEvent::Notice,
                WorldEvent::Read,
            ] {
                self.apply(step);
            }
            let moving = self.handed.values().any(|queue| !queue.is_empty());
            if moving
                || !(self.answers.is_empty() && self.reads.is_empty() && self.notices.is_empty())
            {
                until = self.lab.now + LONG;
                continue;
            }
            match self.lab.deadline {
                Some(deadline) if deadline <= until => self.pass_time(),
                _ => return,
            }
        }
        panic!(
            "the engine never rests: {:#?}",
            self.happened.iter().rev().take(40).collect::<Vec<_>>()
        );
    }

    /// Events that may happen now, apart from outside ones.
    pub fn enabled(&self) -> Vec<WorldEvent> {
        let mut moves = Vec::new();
        let handed = self.handed.iter().filter(|(_, queue)| !queue.is_empty());
        moves.extend(handed.map(|(transport, _)| WorldEvent::CarryOut(transport.0)));
        if !self.answers.is_empty() {
            moves.push(WorldEvent::Answer);
        }
        if !self.reads.is_empty() {
            moves.push(WorldEvent::Read);
        }
        if !self.notices.is_empty() {
            moves.push(WorldEvent::Notice);
        }
        // Time passes when nothing else happens: giving up too early is tested elsewhere.
        let soon = self.lab.deadline.is_some_and(|deadline| deadline <= self.lab.now + LONG);
        if moves.is_empty() && soon {
            moves.push(WorldEvent::Time);
        }
        moves
    }

    /// Digest of the whole state: two worlds with equal digests behave alike.
    pub fn digest(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        let left = |at: Duration| at.saturating_sub(self.lab.now);
        for mut status in self.lab.engine.statuses() {
            status.detail.retry_at = status.detail.retry_at.map(left);
            format!("{status:?}").hash(&mut hasher);
        }
        let ended: Vec<_> = self.changes.values().map(|(_, ended)| ended).collect();
        let on_the_way = (&self.handed, &self.answers, &self.reads, &self.notices);
        format!("{on_the_way:?} {ended:?} {:?}", self.lab.deadline.map(left)).hash(&mut hasher);
        format!("{:?} {:?} {}", self.lab.system, self.committed, self.lab.engine.is_idle())
            .hash(&mut hasher);
        hasher.finish()
    }

    /// I1: nothing of ours lacks a dependency. Holds until something fails.
    pub fn check_needs(&self) {
        for thing in self.lab.system.values() {
            for need in thing.needs() {
                let met = self.lab.is_met(&need.target);
                assert!(met, "`{thing}` is without {}\n{}", need.label, self.happened.join("\n"));
            }
        }
    }

    /// I7, I11: counters and lists equal a recomputation.
    pub fn audit(&self) {
        if let Err(wrong) = self.lab.engine.audit() {
            panic!("{wrong}\n{}", self.happened.join("\n"));
        }
    }

    /// Checks the invariants at the end, each by its number.
    pub fn check(&mut self) {
        self.rest();
        let story = || self.happened.join("\n");
        let lab = &self.lab;
        assert!(lab.engine.is_idle(), "{}", story());
        let open: Vec<_> = self.changes.values().filter(|(_, ended)| ended.is_none()).collect();
        assert!(open.is_empty(), "never answered: {open:?}\n{}", story());
        // I7, I11.
        if let Err(wrong) = lab.engine.audit() {
            panic!("{wrong}\n{}", story());
        }
        assert_eq!(
            lab.engine.counters().slow_retries,
            0,
            "an event should have triggered the retry\n{}",
            story()
        );
        // I2, I10, I12: every satisfiable value of the intent is in the system, and nothing else of ours.
        let reference = self.reference();
        if let Err(wrong) = reference.check(&lab.system) {
            panic!("{wrong}: {}\n{}", lab.system_text(), story());
        }
        // I9.
        for status in lab.engine.statuses() {
            let notified = lab.watched.get(&status.key).map(String::as_str).unwrap_or_default();
            assert_eq!(
                notified,
                watched(&lab.engine, &status.key),
                "{}\n{}",
                status.label,
                story()
            );
        }
        // I3.
        let again: Vec<String> = reference.intent.values().map(Thing::to_string).collect();
        let plan = lab.engine.plan(delta(&again.join("; ")).best_effort()).unwrap();
        assert_eq!(plan.to_string(), "", "a second plan is empty\n{}", story());
    }
}

/// Adds our mark to a value and its parts.
fn mark(item: &str) -> String {
    let words = item.split(' ').map(|word| match (word.starts_with('.'), word.strip_suffix(')')) {
        (false, _) => word.to_owned(),
        (true, Some(open)) if open.ends_with("(.q") => {
            format!("{}(.q(mine),mine)", open.trim_end_matches("(.q"))
        }
        (true, Some(open)) => format!("{open},mine)"),
        (true, None) => format!("{word}(mine)"),
    });
    format!("{} mine", words.collect::<Vec<_>>().join(" ")).trim().to_owned()
}
