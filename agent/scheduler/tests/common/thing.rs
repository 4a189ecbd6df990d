//! Values of the test language, and their descriptors.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use holdfast_scheduler::{
    Cascade, ChangeMethod, Claim, Delta, Dependency, Descriptor, Effect, ErrorClass, Facet, Key,
    KindId, ObjectValue, Offer, OperationError, Part, PartsChanged, Registry, Segment, SharedValue,
    Space, Target, TransportId,
};

/// `errno` of an operation that the state of another object prevents: EACCES.
pub const PREVENTED: i32 = 13;

const THING: KindId = KindId(1);
const CAPITAL: KindId = KindId(2);
const PROPERTY: KindId = KindId(3);
/// Values that are removed after others are created.
const DIGIT: KindId = KindId(4);

/// One value of the test language.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thing {
    pub name: String,
    /// Changed in place.
    pub content: u32,
    /// Changed by delete and create.
    pub shape: u32,
    pub tokens: Vec<String>,
}

impl Thing {
    /// Parses one value: the tokens are listed in `tests/README.md`.
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

    /// The same without the number by which the system knows it.
    pub fn without_number(&self) -> Self {
        let mut thing = self.clone();
        thing.tokens.retain(|token| !token.starts_with('^'));
        thing
    }

    pub fn has(&self, token: &str) -> bool {
        self.tokens.iter().any(|other| other == token)
    }

    pub fn starting<'t>(&'t self, start: &'t str) -> impl Iterator<Item = &'t str> {
        self.tokens.iter().filter_map(move |token| token.strip_prefix(start))
    }

    /// True when the value provides a target, for the checks of the simulated system.
    pub fn offers(&self, target: &Target) -> bool {
        match target {
            Target::Exact(key) => {
                self.key() == *key
                    || self.properties().iter().any(|(name, _)| property(name) == *key)
            }
            Target::AnyOf(facet_name) => self.starting("+").any(|name| facet(name) == *facet_name),
            Target::Under(prefix) => self.key().starts_with(prefix),
            Target::Covering { address, .. } => self
                .starting("+")
                .filter_map(|text| text.parse::<ipnet::IpNet>().ok())
                .any(|net| net.contains(address)),
            Target::Whole(part) => self.parts().iter().any(|(key, _)| key == part),
        }
    }

    pub fn properties(&self) -> Vec<(String, Option<String>)> {
        let named = self.starting(":").map(|text| match text.split_once('~') {
            Some((name, taken)) => (format!("{}:{name}", self.name), Some(taken.to_owned())),
            None => (format!("{}:{text}", self.name), None),
        });
        named.collect()
    }

    pub fn parts(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for text in self.starting(".") {
            let (text, tokens) = match text.strip_suffix(')').and_then(|text| text.split_once('('))
            {
                Some((text, tokens)) => (text, tokens.replace(',', " ")),
                None => (text, String::new()),
            };
            let (name, content) = text.split_once('=').unwrap_or((text, "0"));
            let name = name
                .strip_prefix('*')
                .map_or_else(|| format!("{}.{name}", self.name), str::to_owned);
            let content = content.parse().expect("content");
            let thing = Self { content, ..Self::parse(&format!("{name} {tokens}")) };
            parts.push((thing.key(), Arc::new(thing)));
        }
        for (name, taken) in self.properties() {
            parts.push((property(&name), Arc::new((name, taken))));
        }
        parts
    }

    pub fn needs(&self) -> Vec<Dependency> {
        let mut needs = Vec::new();
        let of_members = self.starting("|").flat_map(|member| member.split('&'));
        for text in self.starting("<").chain(of_members) {
            if needs.iter().all(|other: &Dependency| other.label != text) {
                needs.push(need(text));
            }
        }
        if self.has("twice") {
            needs
                .extend([Dependency::exact("same", key("x")), Dependency::exact("same", key("y"))]);
        }
        needs
    }

    /// True for values with several members.
    pub fn is_reducible(&self) -> bool {
        self.starting("|").count() > 1
    }

    /// Drops the members with an unmet target; `None` when none is left.
    pub fn with_members(&self, met: impl Fn(&Target) -> bool) -> Option<Self> {
        let mut thing = self.clone();
        thing.tokens.retain(|token| {
            let member = token.strip_prefix('|');
            member.is_none_or(|it| it.split('&').all(|text| met(&need(text).target)))
        });
        let left = thing.starting("|").next().is_some() || !self.is_reducible();
        left.then_some(thing)
    }

    pub fn operation_parts(&self) -> Vec<(Key, Thing)> {
        let parts = self.parts().into_iter().filter(|(key, _)| key.kind() != PROPERTY);
        parts.map(|(key, value)| (key, thing(&value))).collect()
    }

    /// Claimed identities, with the side of each claim that others may share.
    pub fn claims(&self) -> BTreeMap<&str, Option<&'static str>> {
        let side = |name| match name {
            "s" => "s",
            "t" => "t",
            _ => panic!("`{name}` is not a side"),
        };
        let claims = self.starting("#").map(|text| match text.split_once('/') {
            Some((identity, name)) => (identity, Some(side(name))),
            None => (text, None),
        });
        claims.collect()
    }

    pub fn takes(&self, other: &Thing) -> bool {
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

/// Key of a name, whose segments are separated by slashes.
pub fn key(name: &str) -> Key {
    let kind = match name.chars().next() {
        Some(first) if first.is_uppercase() => CAPITAL,
        Some(first) if first.is_ascii_digit() => DIGIT,
        _ => THING,
    };
    name.split('/').fold(Key::of(kind), Key::str)
}

fn property(name: &str) -> Key {
    Key::of(PROPERTY).str(name)
}

fn facet(name: &str) -> Facet {
    Facet::of(THING, name)
}

fn need(text: &str) -> Dependency {
    match text.split_at(1) {
        ("?", name) => Dependency::any_of(text, facet(name)),
        ("@", ip) => Dependency::covering(text, Space::table(0), ip.parse().expect("an address")),
        _ if text.ends_with('/') => Dependency::under(text, key(text.trim_end_matches('/'))),
        _ if text.contains(':') => Dependency::exact(text, property(text)),
        _ => Dependency::exact(text, key(text)),
    }
}

#[derive(Debug)]
struct ThingDescriptor(KindId);

impl Descriptor for ThingDescriptor {
    type Value = Thing;

    fn kind(&self) -> KindId {
        self.0
    }

    fn name(&self) -> &'static str {
        match self.0 {
            CAPITAL => "capital",
            DIGIT => "digit",
            _ => "thing",
        }
    }

    fn key(&self, thing: &Thing) -> Key {
        thing.key()
    }

    fn label(&self, thing: &Thing) -> String {
        thing.name.clone()
    }

    fn effect(&self) -> Effect {
        Effect::Operation(TransportId(u8::from(self.0 == CAPITAL)))
    }

    fn dependencies(&self, thing: &Thing) -> Vec<Dependency> {
        assert!(!thing.has("boom"), "boom");
        thing.needs()
    }

    fn is_reducible(&self, thing: &Thing) -> bool {
        thing.is_reducible()
    }

    fn reduce(&self, thing: &Thing, lacking: &[Target]) -> Option<Thing> {
        thing.with_members(|target| !lacking.contains(target))
    }

    fn provides(&self, thing: &Thing) -> Vec<Offer> {
        let offers = thing.starting("+").map(|text| match text.parse() {
            Ok(prefix) => Offer::prefix(Space::table(0), prefix),
            Err(_) => facet(text).into(),
        });
        offers.collect()
    }

    fn claims(&self, thing: &Thing) -> Vec<Claim> {
        let claims = thing.claims().into_iter().map(|(identity, side)| match side {
            Some(side) => Claim::with_side(facet(identity), side),
            None => Claim::alone(facet(identity)),
        });
        claims.collect()
    }

    fn parts(&self, thing: &Thing) -> Vec<Part> {
        thing.parts()
    }

    fn parts_changed(&self, old: &Thing, new: &Thing) -> Option<PartsChanged> {
        let mut removed: BTreeMap<Key, SharedValue> = old.parts().into_iter().collect();
        let mut set = new.parts();
        set.retain(|(key, value)| !removed.remove(key).is_some_and(|old| old.same(&**value)));
        Some(PartsChanged { set, removed: removed.into_keys().collect() })
    }

    fn cascades(&self, thing: &Thing) -> Vec<Cascade> {
        let taken = thing.starting("~").map(|name| match name {
            "/" => Cascade::Under(thing.key()),
            _ => Cascade::Of(facet(name)),
        });
        taken.collect()
    }

    fn change(&self, old: &Thing, new: &Thing) -> ChangeMethod {
        if old.shape == new.shape { ChangeMethod::InPlace } else { ChangeMethod::Recreate }
    }

    /// The system may show our mark and a number where the expected value has none.
    fn satisfied_by(&self, expected: &Thing, observed: &Thing) -> bool {
        assert!(!expected.has("sick"), "sick");
        let mut observed = observed.clone();
        observed.tokens.retain(|token| token != "mine" || expected.has("mine"));
        expected.without_number() == observed.without_number()
    }

    fn is_on(&self, observed: &Thing, object: &Key) -> bool {
        observed.starting("<").any(|name| key(name) == *object)
    }

    fn owned(&self, observed: &Thing) -> bool {
        observed.has("mine")
    }

    fn restore(&self, observed: &Thing) -> Option<Thing> {
        observed.has("port").then(|| observed.clone())
    }

    fn refreshed_restore(&self, before: &Thing, _: &Thing, observed: &Thing) -> Option<Thing> {
        let another = ["%", "^"].iter().any(|it| before.starting(it).ne(observed.starting(it)));
        another.then(|| observed.clone())
    }

    fn identity(&self, observed: &Thing) -> Option<u64> {
        observed.starting("^").next().and_then(|number| number.parse().ok())
    }

    fn is_same_object(&self, before: &Thing, observed: &Thing) -> bool {
        before.shape == observed.shape
    }

    fn rekeyed(&self, thing: &Thing, key: &Key) -> Option<Thing> {
        let names = key.segments().filter_map(|segment| match segment {
            Segment::Str(name) => Some(name),
            _ => None,
        });
        Some(Thing { name: names.collect::<Vec<_>>().join("/"), ..thing.clone() })
    }

    /// `p.s` belongs to `p`.
    fn keys_along(&self, from: &Key, to: &Key) -> Vec<(Key, Key)> {
        let along = |key: &Key| match key.segments().next() {
            Some(Segment::Str(name)) => self::key(&format!("{name}.s")),
            _ => key.clone(),
        };
        vec![(along(from), along(to))]
    }

    fn removed_last(&self) -> bool {
        self.0 == DIGIT
    }

    fn classify(&self, error: &OperationError) -> ErrorClass {
        if error.errno == Some(PREVENTED) { ErrorClass::Unmet } else { error.class() }
    }

    fn after_delete(&self, deleted: &Thing) -> Option<Thing> {
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

    fn cascades(&self, value: &Self::Value) -> Vec<Cascade> {
        value.1.iter().map(|name| Cascade::Of(facet(name))).collect()
    }
}

pub fn registry() -> Registry {
    let mut registry = Registry::new();
    registry.register(ThingDescriptor(THING)).unwrap();
    registry.register(ThingDescriptor(CAPITAL)).unwrap();
    registry.register(ThingDescriptor(DIGIT)).unwrap();
    registry.register(PropertyDescriptor).unwrap();
    registry
}

/// Parses values: `a =1 <b; c`.
pub fn things(text: &str) -> Vec<Thing> {
    text.split(';').map(str::trim).filter(|text| !text.is_empty()).map(Thing::parse).collect()
}

/// Parses a change: `a =1; -b` intends `a`, and `b` no more.
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

pub fn thing(value: &SharedValue) -> Thing {
    let value: &dyn ObjectValue = &**value;
    value.as_any().downcast_ref::<Thing>().expect("a thing").clone()
}
