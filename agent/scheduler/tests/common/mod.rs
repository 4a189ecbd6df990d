//! A tiny language of values, a descriptor for them, and a simulated system that carries out operations.
//!
//! `a =1 <b <?f +g` is the value `a` with content 1, which needs `b` and any value with facet `f`, and offers facet `g`.
//! All tokens are listed at [`Thing::parse`]. Names in capitals belong to a second transport.

#![allow(dead_code, reason = "each test binary uses a part of this")]
#![allow(unreachable_pub, reason = "shared by test binaries as a module")]
#![allow(clippy::unwrap_used, reason = "a failing fixture fails its test")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_scheduler::{
    Action, Bond, Change, Claim, Completion, Delta, Dependency, Descriptor, Effect, Engine, Facet,
    Fact, Key, KindId, Now, Offer, Operation, OperationError, Outcome, Part, Plan, PlanError,
    Registry, SharedValue, Step, Taken, Target, TransportId, Value,
};

const THING: KindId = KindId(1);
const CAPITAL: KindId = KindId(2);
const PROPERTY: KindId = KindId(3);

/// One value of the language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thing {
    pub name: String,
    /// Changed in place.
    pub content: u32,
    /// Changed by making it anew.
    pub shape: u32,
    pub tokens: Vec<String>,
}

impl Thing {
    /// `=N` content, `!N` shape, `<b` needs b, `<b/` needs anything under b, `<?f` needs any with facet f,
    /// `<@IP` needs a prefix that covers it, `<>b` companion of b, `<!b` needs b and is renewed with it, `+f` offers a
    /// facet, `+PREFIX` offers a prefix, `#c` claims, `.p[=N]` part with operations, `:p` property, `:p~f` property that
    /// takes facet f along, `~f` takes facet f along, `~/` takes everything under its key along, `port` was there
    /// before us, `stays` is reset by a delete, `mine` carries our mark, `bad` invalid, `boom` panics, `twice` has two equal labels.
    pub fn parse(text: &str) -> Self {
        let mut words = text.split_whitespace();
        let mut thing = Self { name: words.next().expect("a name").to_owned(), ..Self::default() };
        for word in words {
            match word.split_at(1) {
                ("=", number) => thing.content = number.parse().expect("content"),
                ("!", number) => thing.shape = number.parse().expect("shape"),
                _ => thing.tokens.push(word.to_owned()),
            }
        }
        thing
    }

    pub fn key(&self) -> Key {
        key(&self.name)
    }

    pub fn has(&self, token: &str) -> bool {
        self.tokens.iter().any(|other| other == token)
    }

    fn starting<'t>(&'t self, start: &'t str) -> impl Iterator<Item = &'t str> {
        self.tokens.iter().filter_map(move |token| token.strip_prefix(start))
    }

    /// Facets and properties by name, for the invariants that the simulated system checks.
    fn offers(&self, target: &Target) -> bool {
        match target {
            Target::Exact(key) => {
                self.key() == *key
                    || self.properties().iter().any(|(name, _)| property(name) == *key)
            }
            Target::AnyOf(wanted) => self.starting("+").any(|name| facet(name) == *wanted),
            Target::Under(prefix) => self.key().starts_with(prefix),
            Target::Covering { address, .. } => self
                .starting("+")
                .filter_map(|text| text.parse::<ipnet::IpNet>().ok())
                .any(|net| net.contains(address)),
            Target::Whole(part) => self.parts().iter().any(|(key, _)| key == part),
        }
    }

    fn properties(&self) -> Vec<(String, Option<String>)> {
        let named = self.starting(":").map(|text| match text.split_once('~') {
            Some((name, taken)) => (format!("{}:{name}", self.name), Some(taken.to_owned())),
            None => (format!("{}:{text}", self.name), None),
        });
        named.collect()
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for text in self.starting(".") {
            let (name, content) = text.split_once('=').unwrap_or((text, "0"));
            let name = name
                .strip_prefix('*')
                .map_or_else(|| format!("{}.{name}", self.name), str::to_owned);
            let thing = Self { content: content.parse().expect("content"), ..Self::parse(&name) };
            parts.push((thing.key(), Arc::new(thing)));
        }
        for (name, taken) in self.properties() {
            parts.push((property(&name), Arc::new((name, taken))));
        }
        parts
    }

    fn needs(&self) -> Vec<Dependency> {
        let mut needs = Vec::new();
        for text in self.starting("<") {
            needs.push(match text.split_at(1) {
                ("?", name) => Dependency::any_of(text, facet(name)),
                ("@", ip) => Dependency::covering(text, 0, ip.parse().expect("an address")),
                (">", name) => Dependency::exact(text, key(name)).together(),
                ("!", name) => Dependency::exact(text, key(name)).renewing(),
                _ if text.ends_with('/') => {
                    Dependency::under(text, key(text.trim_end_matches('/')))
                }
                _ if text.contains(':') => Dependency::exact(text, property(text)),
                _ => Dependency::exact(text, key(text)),
            });
        }
        if self.has("twice") {
            needs
                .extend([Dependency::exact("same", key("x")), Dependency::exact("same", key("y"))]);
        }
        needs
    }

    /// For reference models.
    pub fn dependencies(&self) -> Vec<Dependency> {
        self.needs()
    }

    pub fn operation_parts(&self) -> Vec<(Key, Thing)> {
        let parts = self.parts().into_iter().filter(|(key, _)| key.kind() != PROPERTY);
        parts.map(|(key, value)| (key, thing(&value))).collect()
    }

    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.tokens.iter().map(String::as_str).filter(|token| token.starts_with('#'))
    }

    fn takes(&self, other: &Thing) -> bool {
        let facets =
            self.starting("~").any(|name| other.starting("+").any(|offered| offered == name));
        facets
            || self.has("~/") && other.key() != self.key() && other.key().starts_with(&self.key())
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if self.content > 0 {
            write!(f, " ={}", self.content)?;
        }
        if self.shape > 0 {
            write!(f, " !{}", self.shape)?;
        }
        self.tokens.iter().try_for_each(|token| write!(f, " {token}"))
    }
}

/// The key of a name: its segments are separated by slashes.
pub fn key(name: &str) -> Key {
    let kind = if name.starts_with(char::is_uppercase) { CAPITAL } else { THING };
    name.split('/').fold(Key::of(kind), Key::str)
}

fn property(name: &str) -> Key {
    Key::of(PROPERTY).str(name)
}

fn facet(name: &str) -> Facet {
    Facet::of(THING, name)
}

#[derive(Debug)]
struct ThingDescriptor(KindId);

impl Descriptor for ThingDescriptor {
    type Value = Thing;

    fn kind(&self) -> KindId {
        self.0
    }

    fn name(&self) -> &'static str {
        if self.0 == THING { "thing" } else { "capital" }
    }

    fn key(&self, thing: &Thing) -> Key {
        thing.key()
    }

    fn label(&self, thing: &Thing) -> String {
        thing.name.clone()
    }

    fn effect(&self) -> Effect {
        Effect::Operation(TransportId(u8::from(self.0 != THING)))
    }

    fn validate(&self, thing: &Thing) -> Result<(), String> {
        if thing.has("bad") { Err("it is bad".into()) } else { Ok(()) }
    }

    fn dependencies(&self, thing: &Thing) -> Vec<Dependency> {
        assert!(!thing.has("boom"), "boom");
        thing.needs()
    }

    fn provides(&self, thing: &Thing) -> Vec<Offer> {
        let offers = thing.starting("+").map(|text| match text.parse() {
            Ok(prefix) => Offer::prefix(0, prefix),
            Err(_) => facet(text).into(),
        });
        offers.collect()
    }

    fn claims(&self, thing: &Thing) -> Vec<Claim> {
        thing.starting("#").map(|name| Claim(facet(name))).collect()
    }

    fn parts(&self, thing: &Thing) -> Vec<Part> {
        thing.parts()
    }

    fn takes_along(&self, thing: &Thing) -> Vec<Taken> {
        let taken = thing.starting("~").map(|name| match name {
            "/" => Taken::Under(thing.key()),
            _ => Taken::Of(facet(name)),
        });
        taken.collect()
    }

    fn change(&self, old: &Thing, new: &Thing) -> Change {
        if old.shape == new.shape { Change::InPlace } else { Change::Recreate }
    }

    /// The mark may be missing from what is asked.
    fn satisfied_by(&self, expected: &Thing, observed: &Thing) -> bool {
        assert!(!expected.has("sick"), "sick");
        let mut observed = observed.clone();
        observed.tokens.retain(|token| token != "mine" || expected.has("mine"));
        *expected == observed
    }

    fn owned(&self, observed: &Thing) -> bool {
        observed.has("mine")
    }

    fn restore(&self, observed: &Thing) -> Option<Thing> {
        observed.has("port").then(|| observed.clone())
    }

    fn remainder(&self, deleted: &Thing) -> Option<Thing> {
        deleted.has("stays").then(|| Thing::parse(&format!("{} stays", deleted.name)))
    }
}

#[derive(Debug)]
struct PropertyDescriptor;

impl Descriptor for PropertyDescriptor {
    type Value = (String, Option<String>);

    fn kind(&self) -> KindId {
        PROPERTY
    }

    fn name(&self) -> &'static str {
        "property"
    }

    fn key(&self, value: &Self::Value) -> Key {
        property(&value.0)
    }

    fn label(&self, value: &Self::Value) -> String {
        value.0.clone()
    }

    fn effect(&self) -> Effect {
        Effect::Property
    }

    fn takes_along(&self, value: &Self::Value) -> Vec<Taken> {
        value.1.iter().map(|name| Taken::Of(facet(name))).collect()
    }
}

pub fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.register(ThingDescriptor(THING)).unwrap();
    registry.register(ThingDescriptor(CAPITAL)).unwrap();
    registry.register(PropertyDescriptor).unwrap();
    registry
}

/// `a =1 <b; c`
pub fn things(text: &str) -> Vec<Thing> {
    text.split(';').map(str::trim).filter(|text| !text.is_empty()).map(Thing::parse).collect()
}

/// `a =1; -b`: `a` is intended, `b` is not any more.
pub fn changes(text: &str) -> Vec<(Key, Option<SharedValue>)> {
    let items = text.split(';').map(str::trim).filter(|text| !text.is_empty());
    let changes = items.map(|item| match item.strip_prefix('-') {
        Some(name) => (key(name), None),
        None => {
            let thing = Thing::parse(item);
            (thing.key(), Some(Arc::new(thing) as SharedValue))
        }
    });
    changes.collect()
}

pub fn delta(text: &str) -> Delta {
    Delta::new(changes(text))
}

fn thing(value: &SharedValue) -> Thing {
    let value: &dyn Value = &**value;
    value.as_any().downcast_ref::<Thing>().expect("a thing").clone()
}

/// An engine, and the system it works on.
#[derive(Debug)]
pub struct Lab {
    pub engine: Engine,
    pub system: BTreeMap<Key, Thing>,
    pub now: Duration,
    /// `create a` fails so, as long as it is listed.
    pub failing: BTreeMap<String, OperationError>,
    /// Failures end after the first one.
    pub fails_once: bool,
    /// Something failed: what follows in the same batch may be without what it needs, and is refused.
    pub stumbled: bool,
    /// Operations that are carried out without effect: `create a`.
    pub lying: Vec<String>,
    /// Operations that nobody answers: `create a`.
    pub silent: Vec<String>,
    /// Everything the system carried out or refused, in order.
    pub log: Vec<String>,
    pub finished: Vec<Outcome>,
    pub restores: BTreeMap<Key, Thing>,
    /// Reads are answered; without, only notifications tell.
    pub deadline: Option<Duration>,
    pub reads: usize,
    /// What a watcher knows who only looks at what steps name.
    pub watched: BTreeMap<Key, String>,
    /// Whether each operation is checked against the needs of everything in the system.
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
            stumbled: false,
            lying: Vec::new(),
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
    /// A system with these foreign things in it, and an engine that knows them.
    pub fn with(system: &str) -> Self {
        let system = things(system).into_iter().map(|thing| (thing.key(), thing)).collect();
        let mut lab = Self { system, ..Self::default() };
        lab.resync();
        lab
    }

    /// The same, and these things made by the engine.
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

    pub fn plan(&self, text: &str) -> Result<Plan, PlanError> {
        self.engine.plan(delta(text))
    }

    /// Plans and carries out a change; how it ended.
    pub fn commit(&mut self, text: &str) -> Result<Outcome, PlanError> {
        self.commit_delta(delta(text))
    }

    pub fn commit_delta(&mut self, delta: Delta) -> Result<Outcome, PlanError> {
        let plan = self.engine.plan(delta)?;
        let (txn, step) = self.engine.start(plan, self.now());
        self.follow(step);
        let mut patience = 100;
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

    /// Lets time pass until nothing is planned any more, at most so long.
    pub fn settle(&mut self, most: Duration) {
        let until = self.now + most;
        let begun = self.log.len();
        while self.deadline.is_some_and(|deadline| deadline <= until) {
            assert!(self.log.len() < begun + 5_000, "{:?}", &self.log[self.log.len() - 20..]);
            self.pass_time();
        }
    }

    /// Something outside changes the system, and the engine hears of it.
    pub fn outside(&mut self, text: &str) {
        let facts = self.outside_unheard(text);
        self.tell(facts);
    }

    pub fn tell(&mut self, facts: Vec<Fact>) {
        let step = self.engine.observed(facts, self.now());
        self.follow(step);
    }

    pub fn outside_unheard(&mut self, text: &str) -> Vec<Fact> {
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

    /// Does what the engine asks for, until it asks for nothing.
    pub fn follow(&mut self, step: Step) {
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
                completions.extend(self.carry_out(&op));
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

    pub fn carry_out(&mut self, op: &Operation) -> Option<Completion> {
        let value = op.new.as_ref().or(op.old.as_ref()).map(thing).expect("a value");
        let text = format!("{} {}", op.action, value.name);
        if self.silent.contains(&text) {
            self.log.push(format!("{text} silent"));
            return None;
        }
        let result = match self.failing.get(&text).cloned() {
            Some(error) => {
                self.stumbled |= self.fails_once;
                if self.fails_once {
                    self.failing.remove(&text);
                }
                Err(error)
            }
            None if self.lying.contains(&text) => Ok(()),
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
                let gone = self.system.remove(&op.key).ok_or(error(2, "no such thing", false))?;
                if gone.has("stays") {
                    let rest = Thing::parse(&format!("{} stays", gone.name));
                    self.system.insert(op.key.clone(), rest);
                }
                if gone.starting("~").next().is_some() {
                    self.system.retain(|_, other| !gone.takes(other));
                }
                self.check_needs(&format!("delete {}", gone.name));
            }
            (Action::Create, Some(_)) if present => return Err(error(17, "exists", false)),
            (Action::Update | Action::Adopt | Action::Release, Some(_)) if !present => {
                return Err(error(2, "no such thing", false));
            }
            (_, Some(new)) => {
                let new = thing(new);
                if (self.stumbled || !self.failing.is_empty()) && !self.has_needs(&new) {
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
        let kept = new.properties();
        let lost: Vec<String> = old
            .properties()
            .into_iter()
            .filter(|p| !kept.contains(p))
            .filter_map(|(_, taken)| taken)
            .collect();
        if lost.is_empty() {
            return;
        }
        self.system.retain(|_, other| !lost.iter().any(|name| other.has(&format!("+{name}"))));
    }

    fn has_needs(&self, thing: &Thing) -> bool {
        thing
            .needs()
            .iter()
            .filter(|need| need.bond == Bond::After)
            .all(|need| self.is_met(&need.target))
    }

    pub fn is_met(&self, target: &Target) -> bool {
        self.system.values().any(|other| other.offers(target))
    }

    /// Nothing of ours is ever without what it needs. Companions come one after the other.
    fn check_needs(&self, after: &str) {
        if !self.strict || self.stumbled {
            return;
        }
        for thing in self.system.values() {
            let ours = self.engine.planes(&thing.key())[0].is_some();
            for need in thing.needs().iter().filter(|need| ours && need.bond == Bond::After) {
                let met = self.is_met(&need.target);
                assert!(
                    met,
                    "after `{after}`, `{thing}` is without {}; {:?}",
                    need.label, self.log
                );
            }
        }
    }

    /// Begins a change and stops dead after so many operations.
    pub fn start_and_crash(&mut self, delta: Delta, after: usize) {
        let plan = self.engine.plan(delta).unwrap();
        let (_, step) = self.engine.start(plan, self.now());
        for op in step.submit.iter().take(after) {
            self.carry_out(op);
        }
    }

    /// A new engine on the same system, with this intent in its store. What the old one made carries its mark.
    pub fn restarted(&self, intent: &BTreeMap<Key, Thing>) -> Self {
        let mut lab = Self { strict: false, stumbled: true, ..Self::default() };
        let values =
            intent.iter().map(|(key, thing)| (key.clone(), Arc::new(thing.clone()) as SharedValue));
        lab.engine.load(values.collect(), Vec::new());
        let statuses = lab.engine.statuses();
        let shown = statuses.iter().map(|it| (it.key.clone(), watched(&lab.engine, &it.key)));
        lab.watched = shown.collect();
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

    /// What the system has, sorted by key: `a =1 <b; c`.
    pub fn shown(&self) -> String {
        self.system.values().map(Thing::to_string).collect::<Vec<_>>().join("; ")
    }

    /// Everything carried out since the last time: `create a; delete b`.
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

/// What a watcher sees of a value.
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
