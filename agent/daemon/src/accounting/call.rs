//! One call, from its first octet to its end: gathers what the record of it says.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use holdfast_security::acctz::{
    Account, Authn, AuthnOutcome, Authz, AuthzOutcome, Deed, Payload, Rpc, Session, Stage, Text,
    User,
};
use smol_str::SmolStr;
use tonic::{Code, Status};

use super::{Accounts, Refused, authn, given_up, refused, user};
use crate::auth::{Refusal, source_of};
use crate::caller::Caller;
use crate::northbound::{MAX_PAYLOAD, Method, Methods};
use crate::tls::Peer;

/// Octets in front of a message: whether it is compressed, and its length.
const FRAME: usize = 5;

/// Where the authentication layer, which is inside of accounting, says who it is. In the extensions of each request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Login(Arc<Said>);

#[derive(Debug, Default)]
struct Said {
    /// The name that came with a password.
    tried: OnceLock<SmolStr>,
    known: OnceLock<Known>,
}

#[derive(Debug)]
enum Known {
    As(Caller),
    Not { name: Option<SmolStr>, refusal: Refusal },
}

impl Login {
    /// A name came with a password. Unless something is said of it later, the call was given up before.
    pub(crate) fn tried(&self, name: &SmolStr) {
        let _ = self.0.tried.set(name.clone()); // a request has one name
    }

    /// Whoever it is was identified, whether or not they may do what they ask.
    pub(crate) fn identified(&self, caller: &Caller) {
        // A request is authenticated once.
        let _ = self.0.known.set(Known::As(caller.clone()));
    }

    /// `name` is the one that was tried.
    pub(crate) fn refused(&self, name: Option<SmolStr>, refusal: &Refusal) {
        let _ = self.0.known.set(Known::Not { name, refusal: refusal.clone() });
    }

    fn user(&self) -> User {
        let name = match self.0.known.get() {
            Some(Known::As(caller)) => return user(caller),
            Some(Known::Not { name, .. }) => name.as_ref(),
            None => self.0.tried.get(),
        };
        let identity = name.map_or_else(Text::default, |name| name.as_str().into());
        User { identity, ..User::default() }
    }

    fn authn(&self) -> Option<Authn> {
        match (self.0.known.get(), self.0.tried.get()) {
            (Some(Known::As(caller)), _) => Some(authn(caller)),
            (Some(Known::Not { refusal, .. }), _) => Some(refused(refusal)),
            (None, Some(_)) => Some(given_up()),
            (None, None) => None,
        }
    }

    /// Why nobody was identified, in a word; with the name, where there was a password to compare.
    fn not_identified(&self) -> Option<(&'static str, Option<SmolStr>)> {
        match (self.0.known.get(), self.0.tried.get()) {
            (Some(Known::As(_)), _) => None,
            (Some(Known::Not { name, refusal }), _) => {
                let compared = matches!(refusal, Refusal::WrongPassword);
                Some((refusal.word(), name.clone().filter(|_| compared)))
            }
            (None, Some(name)) => Some(("given up", Some(name.clone()))),
            (None, None) => Some(("unknown", None)),
        }
    }

    fn succeeded(&self) -> bool {
        self.authn().is_some_and(|authn| authn.outcome == AuthnOutcome::Success)
    }
}

/// One call under way. Shared by the bodies of request and response, which outlive one another.
#[derive(Debug)]
pub(super) struct Call {
    accounts: Accounts,
    methods: Arc<Methods>,
    pub(super) login: Login,
    peer: Option<Peer>,
    channel: Text,
    path: String,
    /// Nothing when no protocol has it.
    method: Option<Method>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The beginning of what the client sent.
    heard: Vec<u8>,
    /// The client has sent all it has to say.
    all_heard: bool,
    /// A stream was answered with more than a status.
    streaming: bool,
    /// Its beginning is taken down.
    begun: bool,
    ended: bool,
}

impl Call {
    pub(super) fn new(
        accounts: Accounts,
        methods: Arc<Methods>,
        path: &str,
        peer: Option<Peer>,
    ) -> Self {
        let channel =
            peer.as_ref().map_or_else(Text::default, |peer| peer.next_call().to_string().into());
        let method = methods.method(path).cloned();
        let (login, state) = (Login::default(), Mutex::default());
        Self { accounts, methods, login, peer, channel, path: path.to_owned(), method, state }
    }

    /// The client sent this; only the beginning is kept.
    pub(super) fn heard(&self, octets: &[u8]) {
        let mut state = self.state();
        if state.begun || state.ended {
            return;
        }
        let room = (FRAME + MAX_PAYLOAD).saturating_sub(state.heard.len());
        state.heard.extend_from_slice(&octets[..octets.len().min(room)]);
        self.begin(&mut state);
    }

    pub(super) fn all_heard(&self) {
        let mut state = self.state();
        state.all_heard = true;
        self.begin(&mut state);
    }

    /// The service answers, with a status where it has nothing else to say.
    pub(super) fn answered(&self, status: Option<Status>) {
        let mut state = self.state();
        let streams = self.method.as_ref().is_some_and(|method| method.streams);
        match status {
            None if streams => {
                state.streaming = true;
                self.begin(&mut state);
            }
            status => self.end(&mut state, status.unwrap_or_else(|| Status::ok(""))),
        }
    }

    /// Nothing more will be sent.
    pub(super) fn ended(&self, status: Status) {
        self.end(&mut self.state(), status);
    }

    /// Takes down that a stream is open, as soon as it is known what was asked for.
    fn begin(&self, state: &mut State) {
        let asked = state.all_heard || first_message(&state.heard).is_some();
        if state.streaming && asked && !state.begun {
            state.begun = true;
            let authz = Authz { outcome: AuthzOutcome::Permit, detail: Text::default() };
            self.record(Stage::Login, self.payload(state), authz);
            state.heard = Vec::new();
        }
    }

    fn end(&self, state: &mut State, status: Status) {
        if std::mem::replace(&mut state.ended, true) {
            return;
        }
        state.all_heard = true;
        self.begin(state);
        let authz = self.authz(&status);
        match state.begun {
            true => self.record(Stage::Logout, None, authz),
            false => self.record(Stage::Once, self.payload(state), authz),
        }
    }

    /// Of whom nobody knows nothing is kept but that they tried.
    fn payload(&self, state: &State) -> Option<Payload> {
        let method = self.method.as_ref().filter(|_| self.login.succeeded())?;
        let (message, whole) = match first_message(&state.heard) {
            Some(first) => first,
            None => (state.heard.get(FRAME..)?, false),
        };
        Some(self.methods.payload(method, message, whole))
    }

    fn authz(&self, status: &Status) -> Authz {
        let outcome = match status.code() {
            _ if !self.login.succeeded() => AuthzOutcome::Deny,
            Code::PermissionDenied | Code::Unauthenticated => AuthzOutcome::Deny,
            _ => AuthzOutcome::Permit,
        };
        Authz { outcome, detail: detail(status).into() }
    }

    fn record(&self, stage: Stage, payload: Option<Payload>, authz: Authz) {
        let session = Session {
            transport: self.peer.as_ref().map(|peer| (peer.local, peer.address)),
            channel: self.channel.clone(),
            stage,
            user: self.login.user(),
            authn: (stage != Stage::Logout).then(|| self.login.authn()).flatten(),
        };
        let (family, path) = (Methods::family(&self.path), self.path.as_str().into());
        let deed = Deed::Rpc(Rpc { family, path, payload, authz });
        let account = Account { session, deed };
        match self.refused() {
            Some(kind) => self.accounts.record_refused(kind, account),
            None => self.accounts.record(account),
        }
    }

    /// Calls of strangers that are counted with this one, unless it was made by somebody who is known.
    fn refused(&self) -> Option<Refused> {
        let (reason, name) = self.login.not_identified()?;
        let source = self.peer.as_ref().map(|peer| source_of(peer.address.ip()));
        Some(Refused { source, reason, name })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first message of what was heard, once it is known, and whether that is all of it.
fn first_message(heard: &[u8]) -> Option<(&[u8], bool)> {
    let (frame, rest) = heard.split_first_chunk::<FRAME>()?;
    let [0, length @ ..] = *frame else { return Some((&[], false)) }; // compressed, which is not read
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    match rest.get(..length) {
        Some(message) => Some((message, true)),
        None if rest.len() >= MAX_PAYLOAD => Some((rest, false)),
        None => None,
    }
}

/// What became of a call. The words of a refusal say who may not do what; other words may repeat what was sent.
fn detail(status: &Status) -> String {
    match status.code() {
        Code::Ok => String::new(),
        code @ (Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented) => {
            format!("{code:?}: {}", status.message())
        }
        code => format!("{code:?}"),
    }
}
