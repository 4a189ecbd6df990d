//! One call, from its first octet to its end: collects the content of its record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_security::acctz::{
    Account, Activity, Authn, AuthnOutcome, Authz, AuthzOutcome, BoundedText, Payload, Rpc,
    Session, SessionStage, User,
};
use holdfast_store::accounts::{AccountingLog, RefusalKind};
use smol_str::SmolStr;
use tonic::{Code, Status};

use super::{authn, given_up, refused, user};
use crate::auth::{Login, LoginOutcome, LoginRefusal};
use crate::methods::{MAX_PAYLOAD, Method, Methods};
use crate::tls::{Peer, source_of};

/// Octets of the gRPC frame header: compression flag and length.
const FRAME: usize = 5;

/// The caller of a login, or the name that was tried.
fn user_of(login: &Login) -> User {
    let name = match login.outcome() {
        LoginOutcome::Identified(caller) => return user(caller),
        LoginOutcome::Refused { name, .. } => name,
        LoginOutcome::Abandoned { name } => Some(name),
        LoginOutcome::Unknown => None,
    };
    let identity = name.map_or_else(BoundedText::default, |name| name.as_str().into());
    User { identity, ..User::default() }
}

fn authn_of(login: &Login) -> Option<Authn> {
    match login.outcome() {
        LoginOutcome::Identified(caller) => Some(authn(caller)),
        LoginOutcome::Refused { refusal, .. } => Some(refused(refusal)),
        LoginOutcome::Abandoned { .. } => Some(given_up()),
        LoginOutcome::Unknown => None,
    }
}

/// Reason for the lack of an identified caller, in a word; with the name, if a password was compared.
fn missing_caller(login: &Login) -> Option<(&'static str, Option<SmolStr>)> {
    match login.outcome() {
        LoginOutcome::Identified(_) => None,
        LoginOutcome::Refused { name, refusal } => {
            let compared = matches!(refusal, LoginRefusal::WrongPassword);
            Some((refusal.word(), name.filter(|_| compared).cloned()))
        }
        LoginOutcome::Abandoned { name } => Some(("given up", Some(name.clone()))),
        LoginOutcome::Unknown => Some(("unknown", None)),
    }
}

fn succeeded(login: &Login) -> bool {
    authn_of(login).is_some_and(|authn| authn.outcome == AuthnOutcome::Success)
}

/// One call in progress. Shared by the bodies of request and response, either of which may outlive the other.
#[derive(Debug)]
pub(super) struct Call {
    accounts: AccountingLog,
    methods: Arc<Methods>,
    pub(super) login: Login,
    peer: Option<Peer>,
    channel: BoundedText,
    path: String,
    /// `None` for a method of no known service.
    method: Option<Method>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// First octets from the client.
    heard: Vec<u8>,
    /// The client has finished sending.
    all_heard: bool,
    /// A streaming call was answered with more than a status.
    streaming: bool,
    /// The record of the stream's beginning is written.
    begun: bool,
    ended: bool,
}

impl Call {
    pub(super) fn new(
        accounts: AccountingLog,
        methods: Arc<Methods>,
        path: &str,
        peer: Option<Peer>,
    ) -> Self {
        let channel = peer
            .as_ref()
            .map_or_else(BoundedText::default, |peer| peer.next_call().to_string().into());
        let method = methods.method(path).cloned();
        let (login, state) = (Login::default(), Mutex::default());
        Self { accounts, methods, login, peer, channel, path: path.to_owned(), method, state }
    }

    /// Collects octets from the client; only the beginning is kept.
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

    /// Called when the service answers; with a status when there is no body.
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

    /// Called at the end of the response.
    pub(super) fn ended(&self, status: Status) {
        self.end(&mut self.state(), status);
    }

    /// Records that a stream was opened, as soon as its first request is known.
    fn begin(&self, state: &mut State) {
        let asked = state.all_heard || first_message(&state.heard).is_some();
        if state.streaming && asked && !state.begun {
            state.begun = true;
            let authz = Authz { outcome: AuthzOutcome::Permit, detail: BoundedText::default() };
            self.record(SessionStage::Login, self.payload(state), authz);
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
            true => self.record(SessionStage::Logout, None, authz),
            false => self.record(SessionStage::Once, self.payload(state), authz),
        }
    }

    /// The request for the record. Requests of unidentified callers are not recorded.
    fn payload(&self, state: &State) -> Option<Payload> {
        let method = self.method.as_ref().filter(|_| succeeded(&self.login))?;
        let (message, whole) = match first_message(&state.heard) {
            Some(first) => first,
            None => (state.heard.get(FRAME..)?, false),
        };
        Some(self.methods.payload(method, message, whole))
    }

    fn authz(&self, status: &Status) -> Authz {
        let outcome = match status.code() {
            _ if !succeeded(&self.login) => AuthzOutcome::Deny,
            Code::PermissionDenied | Code::Unauthenticated => AuthzOutcome::Deny,
            _ => AuthzOutcome::Permit,
        };
        Authz { outcome, detail: detail(status).into() }
    }

    fn record(&self, stage: SessionStage, payload: Option<Payload>, authz: Authz) {
        let session = Session {
            transport: self.peer.as_ref().map(|peer| (peer.local, peer.address)),
            channel: self.channel.clone(),
            stage,
            user: user_of(&self.login),
            authn: (stage != SessionStage::Logout).then(|| authn_of(&self.login)).flatten(),
        };
        let (family, path) = (Methods::family(&self.path), self.path.as_str().into());
        let activity = Activity::Rpc(Rpc { family, path, payload, authz });
        let account = Account { session, activity };
        match self.refused() {
            Some(kind) => self.accounts.record_refused(kind, account),
            None => self.accounts.record(account),
        }
    }

    /// Kind of refusal by which calls of strangers are counted together; `None` for an identified caller.
    fn refused(&self) -> Option<RefusalKind> {
        let (reason, name) = missing_caller(&self.login)?;
        let source = self.peer.as_ref().map(|peer| source_of(peer.address.ip()));
        Some(RefusalKind { source, reason, name })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first message in the received octets, once its length is known, and whether it is complete.
fn first_message(heard: &[u8]) -> Option<(&[u8], bool)> {
    let (frame, rest) = heard.split_first_chunk::<FRAME>()?;
    let [0, length @ ..] = *frame else { return Some((&[], false)) }; // compressed messages are not decoded
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    match rest.get(..length) {
        Some(message) => Some((message, true)),
        None if rest.len() >= MAX_PAYLOAD => Some((rest, false)),
        None => None,
    }
}

/// Result of a call, for its record. The message of a refusal names the missing permission; other messages may
/// repeat secrets of the request, and are left out.
fn detail(status: &Status) -> String {
    match status.code() {
        Code::Ok => String::new(),
        code @ (Code::PermissionDenied | Code::Unauthenticated | Code::Unimplemented) => {
            format!("{code:?}: {}", status.message())
        }
        code => format!("{code:?}"),
    }
}
