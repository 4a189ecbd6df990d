//! Calls of handlers, the processes outside of the agent that do the work of states, and their answers.
//!
//! A walk never waits for a handler. It looks for the answer to a call among those at hand, and names the calls that have
//! none; its caller asks, and walks again. An answer counts while everything that it depends on is as it was: the call,
//! and what the handler has read.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use imbl::OrdMap;
use smol_str::SmolStr;

use super::{Ground, LeafRead, WorkFailureKind};
use crate::claims::{Claim, ClaimKey, ServiceTag};
use crate::service_plan::{AnswerInput, CallPhase, SELF};
use crate::value::Value;

/// Place of a call: a state of one instance, or the instance as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallPlace {
    /// State, by the name of its claim. A modification call has its phase in the place of a state of `self`.
    pub state: ClaimKey,
    pub phase: CallPhase,
}

impl CallPlace {
    /// Place of a modification call.
    pub fn of_modification(tag: ServiceTag, phase: CallPhase) -> Self {
        let itself = || SmolStr::new_static(SELF);
        let state = SmolStr::new_static(phase.name());
        Self { state: ClaimKey { tag, component: [itself(), itself()], state }, phase }
    }
}

impl fmt::Display for CallPlace {
    /// Formats the place in its instance.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClaimKey { component: [component_type, name], state, .. } = &self.state;
        if self.phase.is_modification() {
            f.write_str(self.phase.name())
        } else {
            write!(f, "{component_type} {name}, {state}")
        }
    }
}

/// Call of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerCall {
    pub place: CallPlace,
    /// Version of the package.
    pub version: SmolStr,
    /// The whole instance with defaults: a JSON document (RFC 7951).
    pub params: Arc<str>,
    /// Variables of the tree nodes that made the component: a JSON object, empty for none.
    pub vars: Arc<str>,
    /// Opaque values that other states gave: a JSON object, empty for none.
    pub opaque: Arc<str>,
    /// Opaque values that this state gave. An answer does not depend on them: they stem from answers to this call.
    pub own_opaque: Arc<str>,
}

impl HandlerCall {
    /// The version of its type that the instance is walked with.
    pub fn type_version(&self) -> TypeVersion<'_> {
        TypeVersion { service: &self.place.state.tag.service, version: Some(&self.version) }
    }

    /// True when an answer to the one is an answer to the other.
    pub fn has_same_input(&self, other: &Self) -> bool {
        let input = |it: &Self| {
            let Self { place, version, params, vars, opaque, own_opaque: _ } = it.clone();
            (place, version, params, vars, opaque)
        };
        input(self) == input(other)
    }

    /// Digest of what an answer depends on, except what its handler reads.
    pub fn input_digest(&self) -> u64 {
        let Self { place: _, version, params, vars, opaque, own_opaque: _ } = self;
        digest_of((version, params, vars, opaque))
    }
}

/// A digest of 64 bits. Should another version of the agent compute another one, handlers are asked once more.
pub fn digest_of(content: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// Answer of a handler, or the reason for which there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerAnswer {
    Done(HandlerWork),
    Failed { kind: WorkFailureKind, text: Arc<str> },
}

/// Work of a handler for one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerWork {
    pub claim: Claim,
    /// New opaque values of the state, a JSON object; `None` keeps those that it has.
    pub opaque: Option<Arc<str>>,
    /// Reason for which the state is not to be left yet.
    pub keeps: Option<Arc<str>>,
    /// Leaves that the handler has read, with their values.
    pub reads: Vec<(LeafRead, Vec<Value>)>,
}

/// Calls that an attached handler takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServedCall {
    /// Name of the service type.
    pub service: SmolStr,
    /// Component type; `None` for all.
    pub component: Option<SmolStr>,
    /// State; `None` for all.
    pub state: Option<SmolStr>,
    pub phase: CallPhase,
}

impl ServedCall {
    /// True when a call at this place is one of these.
    pub fn includes(&self, place: &CallPlace) -> bool {
        let CallPlace { state: ClaimKey { tag, component: [component, _], state }, phase } = place;
        let is = |own: &Option<SmolStr>, other| own.as_ref().is_none_or(|own| own == other);
        self.service == tag.service
            && is(&self.component, component)
            && is(&self.state, state)
            && self.phase == *phase
    }

    /// True when there is a place that both include.
    pub fn overlaps(&self, other: &Self) -> bool {
        let is = |one: &Option<SmolStr>, other: &Option<SmolStr>| {
            one.is_none() || other.is_none() || one == other
        };
        self.service == other.service
            && self.phase == other.phase
            && is(&self.component, &other.component)
            && is(&self.state, &other.state)
    }
}

/// Answer that is kept in memory with its call.
#[derive(Debug)]
pub struct KeptAnswer {
    call: HandlerCall,
    pub answer: HandlerAnswer,
    /// Its input, from the first walk on that has needed it: while the answer counts, that is the same.
    input: OnceLock<AnswerInput>,
}

impl KeptAnswer {
    fn new(call: HandlerCall, answer: HandlerAnswer) -> Arc<Self> {
        Arc::new(Self { call, answer, input: OnceLock::new() })
    }

    /// Input that the answer depends on, computed once.
    pub fn input(&self, compute: impl FnOnce() -> AnswerInput) -> AnswerInput {
        self.input.get_or_init(compute).clone()
    }
}

/// Answers at hand, and the calls that an attached handler takes. A clone shares all memory.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// The last answer at each place.
    known: OrdMap<CallPlace, Arc<KeptAnswer>>,
    /// Answers that were asked for on behalf of the change.
    own: OrdMap<CallPlace, Arc<KeptAnswer>>,
    served: Arc<BTreeSet<ServedCall>>,
    /// Each call is asked, whatever is known.
    asks_all: bool,
}

impl Answers {
    /// Keeps an answer for later changes.
    pub fn know(&mut self, call: HandlerCall, answer: HandlerAnswer) {
        self.known.insert(call.place.clone(), KeptAnswer::new(call, answer));
    }

    /// Forgets answers of earlier changes.
    pub fn forget(&mut self, is_forgotten: impl Fn(&CallPlace, &HandlerAnswer) -> bool) {
        let known = self.known.iter().filter(|(place, known)| is_forgotten(place, &known.answer));
        let places: Vec<_> = known.map(|(place, _)| place.clone()).collect();
        places.iter().for_each(|place| drop(self.known.remove(place)));
    }

    /// These, with attached handlers that take these calls.
    #[must_use]
    pub fn with_served(self, served: BTreeSet<ServedCall>) -> Self {
        Self { served: Arc::new(served), ..self }
    }

    /// These, with the answers that were asked for on behalf of one change.
    #[must_use]
    pub fn with_own(mut self, own: impl IntoIterator<Item = (HandlerCall, HandlerAnswer)>) -> Self {
        let entry =
            |(call, answer): (HandlerCall, _)| (call.place.clone(), KeptAnswer::new(call, answer));
        self.own.extend(own.into_iter().map(entry));
        self
    }

    /// These without those of earlier changes: each call is asked.
    #[must_use]
    pub fn without_known(self) -> Self {
        Self { known: OrdMap::new(), asks_all: true, ..self }
    }

    /// True when each call is asked, although its answer is known or stored.
    pub fn asks_all(&self) -> bool {
        self.asks_all
    }

    /// The answer to a call. A failure of an earlier change counts `with_failures` alone.
    pub fn get(&self, call: &HandlerCall, with_failures: bool) -> Option<&KeptAnswer> {
        let own = self.own.get(&call.place).filter(|it| it.call.has_same_input(call));
        let known = self.known.get(&call.place).filter(|it| it.call.has_same_input(call));
        let counts =
            |it: &&Arc<KeptAnswer>| with_failures || matches!(it.answer, HandlerAnswer::Done(_));
        own.or_else(|| known.filter(counts)).map(|it| &**it)
    }

    /// True when the answer to a call was asked for on behalf of this change.
    pub fn is_own(&self, call: &HandlerCall) -> bool {
        self.own.get(&call.place).is_some_and(|it| it.call.has_same_input(call))
    }

    /// True when an attached handler takes a call.
    pub fn is_served(&self, call: &HandlerCall) -> bool {
        self.served.iter().any(|it| it.includes(&call.place))
    }
}

/// Version of a type whose grants count for a handler.
#[derive(Clone, Copy, Debug)]
pub struct TypeVersion<'a> {
    pub service: &'a str,
    /// `None` for the newest one.
    pub version: Option<&'a str>,
}

impl<'a> TypeVersion<'a> {
    /// The version that new instances are made with.
    pub fn newest(service: &'a str) -> Self {
        Self { service, version: None }
    }
}

/// Handlers in the outline of a type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandlerOutline {
    /// Name of the user of the process, on the socket of the box.
    pub user: Option<SmolStr>,
    /// Identities of client certificates, on the listener.
    pub identities: Vec<SmolStr>,
    /// Component types and states with work for a handler, and the modification calls.
    pub calls: Vec<(SmolStr, SmolStr, CallPhase)>,
    /// Names of the actions for a handler.
    pub actions: BTreeSet<SmolStr>,
}

/// Content of one edit of a handler.
#[derive(Clone, Copy, Debug)]
pub enum EditContent<'a> {
    /// A value at a path of the native model, or of OpenConfig after `openconfig:`: a document of RFC 7951.
    Document { path: &'a str, value: &'a [u8] },
    /// Lines of the command line.
    Lines(&'a str),
}

/// Reason to refuse an edit, a path or a registration of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerRefusal {
    pub kind: WorkFailureKind,
    pub text: String,
}

/// Calls that a change needs the answers of, before it can be examined to its end.
#[derive(Clone, Debug)]
pub struct NeededCalls {
    pub calls: Vec<HandlerCall>,
    /// The ground after the change, which handlers read.
    pub ground: Ground,
}

/// Calls of handlers that a change waits for. Equal when they are the same in memory.
#[derive(Clone, Debug)]
pub struct Unanswered(pub Arc<NeededCalls>);

impl PartialEq for Unanswered {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Unanswered {}
