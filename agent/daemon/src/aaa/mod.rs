//! Authentication, authorization and accounting (AAA) in front of every service of the listener.
//!
//! ```text
//! request ─> record ─> identify ─> role ─> authz policy ─> frames, checked ─> service
//!              │           │         │          │                                │
//!              │        refused   refused     denied                          response
//!              └<──────────┴─────────┴──────────┴──────────── frames, checked <──┘
//! ```
//!
//! One [`Layer`] does all of it, by one table of methods ([`crate::methods`]), with one body for each direction ([`body`]):
//!
//! * The [`record`] of a call begins before anything else and ends with the call, so that refused and abandoned calls are
//!   accounted for, too.
//! * The [`permission`] of a call outlives its beginning: users, roles, policies, TLS profiles and the switch of gNSI count
//!   their changes in one [`holdfast_base::AccessEpoch`]. While the epoch does not move, a check is one comparison; when it
//!   moves, authentication and authorization are repeated, once for each call. A revocation ends both directions of a stream:
//!   the client reads the reason, the handler finds its stream broken. A unary call whose request has arrived in full is
//!   carried out.
//! * Memory that a call makes the agent hold is charged to the [budget](crate::budget) of its caller: an answer in
//!   one message once it is made ([`held`]), a stream for as long as it lasts.
//! * The size of [`messages`] is bounded before memory is allocated for them, and so is the text of a status. Messages in gzip
//!   are unpacked before ([`compression`]), so all of this is about what they hold.
//!
//! A change on trial revokes no permission of a stream: it goes on as long as either the final state or the state in force
//! allows it. Otherwise an administrator could not finalize passwords, authorities or policies that lock him out of the
//! running call.

mod body;
mod compression;
mod held;
mod login;
mod messages;
mod permission;
mod record;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use holdfast_base::{AuthMethod, Caller, Role, now_ns};
use holdfast_config::limits::{LimitExceeded, error_text};
use http::{Request, Response};
use nix::unistd::User;
use tonic::Status;
use tonic::body::Body;
use tonic::transport::server::UdsConnectInfo;
use tower::Service;
use tracing::info;

use self::body::{RequestBody, ResponseBody};
use self::compression::GzipBody;
use self::login::take_credentials;
use self::messages::{ExceededLimit, Frames};
pub(crate) use self::permission::CallPermission;
use self::permission::{Call, CallOrigin, Revocation};
use self::record::{CallEnd, CallRecord};
use crate::auth::{Authenticator, Credentials, LoginRefusal};
use crate::budget::{Budgets, CallerBudget};
use crate::gnsi::Gnsi;
use crate::methods::{MethodRules, Methods};
use crate::tls::Peer;

/// Wraps a service in [`AaaService`].
#[derive(Clone, Debug)]
pub struct Layer {
    callers: Callers,
    gnsi: Gnsi,
    budgets: Budgets,
    methods: Arc<Methods>,
}

/// Source of the identity of callers.
#[derive(Clone, Debug)]
enum Callers {
    /// Credentials and certificates of connections.
    Logins(Box<Authenticator>),
    /// The kernel, which knows the user of the peer of a socket.
    Kernel,
}

impl Layer {
    pub fn new(authenticator: Authenticator, gnsi: Gnsi) -> Self {
        Self::of(Callers::Logins(Box::new(authenticator)), gnsi)
    }

    /// A layer in front of a socket of the box.
    pub fn of_socket(gnsi: Gnsi) -> Self {
        Self::of(Callers::Kernel, gnsi)
    }

    fn of(callers: Callers, gnsi: Gnsi) -> Self {
        // Each listener has budgets of its own, so that clients of the network keep no handler from its work.
        Self { callers, gnsi, budgets: Budgets::default(), methods: Arc::new(Methods::new()) }
    }

    fn record(&self, request: &Request<Body>) -> CallRecord {
        let peer = request.extensions().get::<Peer>().cloned();
        let accounts = self.gnsi.accounts.clone();
        let methods = self.methods.clone();
        let path = request.uri().path();
        let rules = methods.rules(path);
        let refusals = Arc::clone(&self.gnsi.refusals);
        CallRecord::new(accounts, refusals, methods, path, rules, peer)
    }

    /// The share of the caller of an admitted call in what is held for all. The service finds it in the extensions of the
    /// request.
    fn budget(&self, request: &mut Request<Body>) -> Result<CallerBudget, Status> {
        let caller = request.extensions().get::<Caller>();
        let caller = caller.ok_or_else(|| Status::unauthenticated("the caller is not known"))?;
        let budget = self.budgets.of(caller, request.extensions().get::<Peer>());
        request.extensions_mut().insert(budget.clone());
        Ok(budget)
    }

    /// Identifies the caller and authorizes the call. The service finds the [`Caller`] and the [`CallPermission`] in the
    /// extensions of the request.
    ///
    /// # Errors
    ///
    /// The status that the call ends with.
    async fn admit(
        &self,
        credentials: Result<Credentials, LoginRefusal>,
        record: &CallRecord,
        rules: MethodRules,
        request: &mut Request<Body>,
    ) -> Result<CallPermission, Status> {
        let credentials = credentials?;
        let authenticator = match &self.callers {
            Callers::Logins(authenticator) => authenticator,
            Callers::Kernel => return self.admit_local(record, rules, request),
        };
        // The listener adds a peer to every request. Without one, nothing is known about the connection.
        let peer = request.extensions().get::<Peer>().cloned();
        let peer = peer.ok_or_else(|| Status::unauthenticated("the connection is not known"))?;
        let name = credentials.name.clone();
        let login = authenticator.login(credentials, &peer).await;
        let login = login.inspect_err(|refusal| record.refused(name, refusal))?;
        peer.identified.set();
        record.identified(&login.caller);

        let path = request.uri().path();
        rules.require_role(&login.caller, path)?;
        authorize(&self.gnsi, &login.caller, request)?;
        let caller = login.caller.clone();
        let authenticator = (**authenticator).clone();
        let permission = CallPermission::of_call(Call {
            gnsi: self.gnsi.clone(),
            by: CallOrigin::Login { authenticator, login, peer },
            path: path.to_owned(),
            rules,
            headers: request.headers().clone(),
        });
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(permission.clone());
        Ok(permission)
    }

    /// Identifies a caller by the user of its process, and authorizes the call.
    fn admit_local(
        &self,
        record: &CallRecord,
        rules: MethodRules,
        request: &mut Request<Body>,
    ) -> Result<CallPermission, Status> {
        let peer = request.extensions().get::<UdsConnectInfo>().and_then(|it| it.peer_cred);
        let uid = peer.map(|credentials| credentials.uid());
        let uid = uid.ok_or_else(|| Status::unauthenticated("the peer is not known"))?;
        let user = User::from_uid(uid.into()).ok().flatten();
        let name = user.map_or_else(|| uid.to_string(), |user| user.name);
        let name = name.into();
        let role = Role::ReadOnly;
        let caller = Caller { name, role, auth_method: AuthMethod::Local { uid }, peer: None };
        record.identified(&caller);
        let epoch = self.gnsi.access().number();
        let path = request.uri().path();
        rules.require_role(&caller, path)?;
        authorize(&self.gnsi, &caller, request)?;
        let permission = CallPermission::of_call(Call {
            gnsi: self.gnsi.clone(),
            by: CallOrigin::Process { caller: caller.clone(), epoch },
            path: path.to_owned(),
            rules,
            headers: request.headers().clone(),
        });
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(permission.clone());
        Ok(permission)
    }
}

impl<S> tower::Layer<S> for Layer {
    type Service = AaaService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AaaService { inner, layer: self.clone() }
    }
}

/// Passes on the calls of identified and authorized callers, without their passwords. Answers all others itself.
#[derive(Clone, Debug)]
pub struct AaaService<S> {
    inner: S,
    layer: Layer,
}

impl<S> Service<Request<Body>> for AaaService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let layer = self.layer.clone();
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh); // the one that was polled ready
        let rules = layer.methods.rules(request.uri().path());
        let record = Arc::new(layer.record(&request));
        let end = CallEnd::new(record.clone());
        // Noted before anything is awaited, so that an abandoned call is recorded with the name that it tried.
        let credentials = take_credentials(request.headers_mut());
        record.received(&credentials);
        Box::pin(async move {
            let permission = match layer.admit(credentials, &record, rules, &mut request).await {
                Ok(permission) => permission,
                Err(status) => return Ok(end.refuse(messages::cut(status))),
            };
            let budget = match layer.budget(&mut request) {
                Ok(budget) => budget,
                Err(status) => return Ok(end.refuse(status)),
            };
            // A change is not refused for what was read.
            if !rules.changes_something()
                && let Err(exceeded) = budget.check_answers()
            {
                return Ok(end.refuse(refused_by(exceeded)));
            }
            let takes_gzip = compression::takes_gzip(request.headers());
            let is_packed = match compression::is_packed(request.headers()) {
                Ok(is_packed) => is_packed,
                Err(status) => return Ok(end.refuse(status)),
            };
            let exceeded = ExceededLimit::default();
            if is_packed {
                compression::unmark(request.headers_mut());
                let limit = rules.message_limit;
                let exceeded = exceeded.clone();
                request = request.map(|body| Body::new(GzipBody::unpack(body, limit, exceeded)));
            }
            let is_unary = record.is_unary();
            let revocation = Revocation::of(permission.clone());
            let frames = Frames::new(rules.message_limit, exceeded.clone());
            let request =
                request.map(|body| Body::new(RequestBody::new(body, record, revocation, frames)));
            let mut response = inner.call(request).await?;
            if let Some(status) = permission.revocation() {
                return Ok(end.refuse(status)); // the request was cut
            }
            exceeded.restate(response.headers_mut());
            let mut octets = held::STREAM;
            if is_unary {
                (response, octets) = held::collected(response).await;
            }
            let charge = if rules.changes_something() {
                budget.hold_any_answer(octets)
            } else {
                match budget.hold_answer(octets) {
                    Ok(charge) => charge,
                    Err(exceeded) => return Ok(end.refuse(refused_by(exceeded))),
                }
            };
            end.answered(response.headers());
            // The change of a unary call is carried out, so the client has to learn its outcome.
            let revocation = (!is_unary).then(|| Revocation::of(permission));
            let is_packed = takes_gzip && !response.headers().contains_key(messages::CODE);
            if is_packed {
                compression::mark(response.headers_mut());
            }
            Ok(response.map(|body| {
                let body = Body::new(ResponseBody::new(body, revocation, exceeded, end, charge));
                if is_packed { Body::new(GzipBody::pack(body)) } else { body }
            }))
        })
    }
}

/// Refusal of a call for what is held already.
fn refused_by(exceeded: LimitExceeded) -> Status {
    Status::resource_exhausted(exceeded.to_string())
}

/// Asks the authz policy about a call of `caller`.
///
/// # Errors
///
/// `PERMISSION_DENIED` with the reason of the policy.
pub(crate) fn authorize<B>(
    gnsi: &Gnsi,
    caller: &Caller,
    request: &Request<B>,
) -> Result<(), Status> {
    let peer = request.extensions().get::<Peer>();
    let rpc = request.uri().path();
    gnsi.authz.authorize(caller, peer, rpc, request.headers(), now_ns()).map_err(|denial| {
        let reason = error_text(&denial);
        info!(caller = %caller.name, rpc, reason, "a call is denied");
        Status::permission_denied(reason)
    })
}
