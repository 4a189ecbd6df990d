//! The record of one call, from its first byte to its end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_base::Caller;
use holdfast_security::acctz::{
    AccountingEvent, Activity, Authz, AuthzOutcome, BoundedText, Payload, Rpc, Session,
    SessionStage,
};
use holdfast_store::accounts::{AccountingLog, RefusalKind};
use http::{HeaderMap, Response};
use smol_str::SmolStr;
use tonic::body::Body;
use tonic::{Code, Status};

use super::login::Login;
use super::messages::FRAME;
use crate::auth::{Credentials, LoginRefusal};
use crate::methods::{MAX_PAYLOAD, Method, MethodRules, Methods};
use crate::refusals::RefusalCounters;
use crate::tls::{Peer, source_of};

/// Path of the calls that change the configuration.
const GNMI_SET: &str = "/gnmi.gNMI/Set";

/// Record of a call in progress. Shared by the bodies of request and response; either may outlive the other.
#[derive(Debug)]
pub(super) struct CallRecord {
    accounts: AccountingLog,
    refusals: Arc<RefusalCounters>,
    methods: Arc<Methods>,
    peer: Option<Peer>,
    channel: BoundedText,
    path: String,
    /// `None` for a method of no known service.
    method: Option<Method>,
    changes: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    login: Login,
    /// First bytes of the request.
    request: Vec<u8>,
    /// The client has finished sending.
    request_complete: bool,
    /// A streaming call was answered with more than a status.
    streaming: bool,
    /// The record of the stream's beginning is written.
    begun: bool,
    ended: bool,
}

impl CallRecord {
    pub(super) fn new(
        accounts: AccountingLog,
        refusals: Arc<RefusalCounters>,
        methods: Arc<Methods>,
        path: &str,
        rules: MethodRules,
        peer: Option<Peer>,
    ) -> Self {
        let channel = peer
            .as_ref()
            .map_or_else(BoundedText::default, |peer| peer.next_call().to_string().into());
        let method = methods.method(path).cloned();
        let state = Mutex::default();
        let changes = rules.changes_something();
        let path = path.to_owned();
        Self { accounts, refusals, methods, peer, channel, path, method, changes, state }
    }

    /// True for a method of a known service that sends one message in each direction.
    pub(super) fn is_unary(&self) -> bool {
        self.method.as_ref().is_some_and(|method| !method.streams)
    }

    /// Notes the credentials of the request, before they are checked.
    pub(super) fn received(&self, credentials: &Result<Credentials, LoginRefusal>) {
        match credentials {
            Ok(Credentials { name: Some(name), password: Some(_) }) => {
                self.state().login = Login::Tried(name.clone());
            }
            Ok(_) => {}
            Err(refusal) => self.refused(None, refusal),
        }
    }

    /// Notes a failed login; `name` is the one that was tried.
    pub(super) fn refused(&self, name: Option<SmolStr>, refusal: &LoginRefusal) {
        self.refusals.count_login(refusal.word());
        self.state().login = Login::Refused { name, refusal: refusal.clone() };
    }

    /// Notes the identified caller.
    pub(super) fn identified(&self, caller: &Caller) {
        self.state().login = Login::Identified(caller.clone());
    }

    /// Collects bytes of the request; only the beginning is kept.
    pub(super) fn request_octets(&self, octets: &[u8]) {
        let mut state = self.state();
        if state.begun || state.ended {
            return;
        }
        let room = (FRAME + MAX_PAYLOAD).saturating_sub(state.request.len());
        state.request.extend_from_slice(&octets[..octets.len().min(room)]);
        self.begin(&mut state);
    }

    /// Notes that the client has finished sending.
    pub(super) fn request_complete(&self) {
        let mut state = self.state();
        state.request_complete = true;
        self.begin(&mut state);
    }

    /// Notes the response of the service; with a status when there is no body.
    fn answered(&self, status: Option<Status>) {
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

    fn ended(&self, status: Status) {
        self.end(&mut self.state(), status);
    }

    /// Records that a stream was opened, as soon as its first request is known.
    fn begin(&self, state: &mut State) {
        let is_known = state.request_complete || first_message(&state.request).is_some();
        if state.streaming && is_known && !state.begun {
            state.begun = true;
            let authz = Authz { outcome: AuthzOutcome::Permit, detail: BoundedText::default() };
            self.write(state, SessionStage::Login, None, self.payload(state), authz);
            state.request = Vec::new();
        }
    }

    fn end(&self, state: &mut State, status: Status) {
        if std::mem::replace(&mut state.ended, true) {
            return;
        }
        if self.path == GNMI_SET {
            self.refusals.count_set(status.code());
        }
        state.request_complete = true;
        self.begin(state);
        let authz = authz(state, &status);
        if state.begun {
            self.write(state, SessionStage::Logout, None, None, authz);
        } else {
            let refusal = self.refused_kind(state, &status);
            self.write(state, SessionStage::Once, refusal, self.payload(state), authz);
        }
    }

    /// The request for the record. Requests of unidentified callers are not recorded.
    fn payload(&self, state: &State) -> Option<Payload> {
        let method = self.method.as_ref().filter(|_| state.login.is_identified())?;
        let (message, whole) = match first_message(&state.request) {
            Some(first) => first,
            None => (state.request.get(FRAME..)?, false),
        };
        Some(self.methods.payload(method, message, whole))
    }

    fn write(
        &self,
        state: &State,
        stage: SessionStage,
        refusal: Option<RefusalKind>,
        payload: Option<Payload>,
        authz: Authz,
    ) {
        let session = Session {
            transport: self.peer.as_ref().map(|peer| (peer.local, peer.address)),
            channel: self.channel.clone(),
            stage,
            user: state.login.user(),
            authn: state.login.authn().filter(|_| stage != SessionStage::Logout),
        };
        let family = Methods::family(&self.path);
        let path = self.path.as_str().into();
        let is_permitted = authz.outcome == AuthzOutcome::Permit;
        let activity = Activity::Rpc(Rpc { family, path, payload, authz });
        let account = AccountingEvent { session, activity };
        match refusal {
            Some(kind) => self.accounts.record_refused(kind, account),
            None if self.changes && is_permitted => self.accounts.record_change(account),
            None => self.accounts.record_read(account),
        }
    }

    /// Kind of refusal by which calls are counted together whose callers have shown no right to anything: those without an
    /// identified caller, and those that fail on a socket of the box, where every process is identified.
    fn refused_kind(&self, state: &State, status: &Status) -> Option<RefusalKind> {
        if let Some(name) = state.login.process().filter(|_| status.code() != Code::Ok) {
            return Some(RefusalKind {
                source: None,
                reason: "refused on a socket",
                name: Some(name),
            });
        }
        let (reason, name) = state.login.missing_caller()?;
        let source = self.peer.as_ref().map(|peer| source_of(peer.address.ip()));
        Some(RefusalKind { source, reason, name })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of a call. Dropping it unused means that the client or a failed handler has abandoned the call.
pub(super) struct CallEnd(Arc<CallRecord>);

impl CallEnd {
    pub(super) fn new(record: Arc<CallRecord>) -> Self {
        Self(record)
    }

    /// Ends the call with a response that has a status alone.
    pub(super) fn refuse(&self, status: Status) -> Response<Body> {
        self.0.ended(status.clone());
        status.into_http()
    }

    /// Notes the headers of the response, which have the status when there is no body.
    pub(super) fn answered(&self, headers: &HeaderMap) {
        self.0.answered(Status::from_header_map(headers));
    }

    /// Notes the trailers of the response.
    pub(super) fn trailers(&self, trailers: &HeaderMap) {
        self.0.ended(Status::from_header_map(trailers).unwrap_or_else(|| Status::unknown("")));
    }

    /// Notes the failure of the response body.
    pub(super) fn failed(&self, status: &Status) {
        self.0.ended(status.clone());
    }
}

impl Drop for CallEnd {
    fn drop(&mut self) {
        self.0.ended(Status::cancelled(""));
    }
}

fn authz(state: &State, status: &Status) -> Authz {
    let outcome = match status.code() {
        _ if !state.login.is_identified() => AuthzOutcome::Deny,
        Code::PermissionDenied | Code::Unauthenticated => AuthzOutcome::Deny,
        _ => AuthzOutcome::Permit,
    };
    Authz { outcome, detail: detail(status).into() }
}

/// The first message in the received bytes, once its length is known, and whether it is complete.
fn first_message(octets: &[u8]) -> Option<(&[u8], bool)> {
    let (frame, rest) = octets.split_first_chunk::<FRAME>()?;
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
