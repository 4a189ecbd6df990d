//! The local socket, on which the command line of this box talks to the running agent.
//!
//! HTTP on `holdfast.sock` in the state folder, mode 0600. The peer credentials from the kernel are checked too:
//! only root and the agent's own user are served. Users are managed here,
//! because the first one must exist before anyone can log in over the network.
//!
//! Other people of the box have a socket of their own, if the operator wants that ([`start_for_users`]). There an account has the
//! role of the user of the same name, and only what asks for the rights of its caller is served.

mod accounting;
mod bootz;
mod candidates;
mod client;
mod config;
mod config_log;
mod faults;
mod inspect;
mod maintenance;
mod online;
mod packages;
mod probes;
mod report;
mod rights;
mod service_operations;
mod service_waits;
mod services;
mod sessions;
mod table;
mod views;

use std::{
    fmt,
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{ConnectInfo, Extension, Request, State},
    http::{Method, StatusCode},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use holdfast_base::{AuthMethod, Caller, ErrorChain, Role, http1, is_root_or_own};
use holdfast_store::accounts::AccountingLog;
use nix::unistd::User as Account;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio_util::task::AbortOnDropHandle;
use zeroize::{Zeroize, Zeroizing};

pub use self::bootz::{BootzStartRequest, bootz_routes};
pub use self::candidates::completion_routes;
pub(crate) use self::client::AnswerLines;
pub use self::client::{Client, ClientError};
pub use self::config::{
    ChangeAnswer, ChangeContent, ChangeRequest, CheckpointRequest, ConfirmRequest, DiffRequest,
    Export, KeptLine, LogRequest, ObjectLine, PendingLine, SentDocument, ShowRequest,
    config_routes,
};
pub use self::faults::{fault_routes, raise_routes};
pub use self::inspect::{Inspect, Inspector, ValueLine, inspect_routes};
pub use self::maintenance::{SwitchEntry, maintenance_routes};
pub use self::online::{Unsettled, start_routes};
pub use self::probes::{ProbeEnd, ProbeText, probe_routes};
pub use self::report::{
    AgentReport, ClosedListener, OpenAlarm, REPAIR_WINDOW, RepairCount, report_routes,
};
pub use self::rights::CallRights;
use self::rights::Rpc;
pub use self::service_operations::service_routes;
pub use self::sessions::session_routes;
pub use self::table::Ink;
pub use self::views::{Look, showing_everything, text_of, view_routes};
use crate::{
    listeners::{ListenerKind, Listeners},
    services::Requester,
    socket_for_all::bind_for_all,
    trace::trace_of,
    users::{Password, UserError, Users},
};

/// Connections at one time, one for each person or script on the box. Clients are trusted, so there is no time
/// limit for reading an answer; but a script that leaks connections must not exhaust the file descriptors.
const MAX_CONNECTIONS: usize = 64;

/// The serving socket. Dropping it stops the task and removes the file.
#[derive(Debug)]
pub struct LocalServer {
    path: PathBuf,
    task: AbortOnDropHandle<()>,
}

impl LocalServer {
    /// Waits until the socket is no longer served, for any reason. Must not be called again afterwards.
    pub async fn ended(&mut self) {
        // A panic was logged when it happened.
        let _ = (&mut self.task).await;
    }
}

#[cfg(test)]
impl LocalServer {
    /// A socket served by the given task.
    pub(crate) fn of(task: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { path: PathBuf::new(), task: AbortOnDropHandle::new(tokio::spawn(task)) }
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        let _gone_already = fs::remove_file(&self.path);
    }
}

/// Time for a client that is not root to take any part of an answer.
const USER_WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Dependencies of the socket for people who are not root.
#[derive(Debug)]
pub struct UserDependencies {
    pub users: Users,
    pub rights: CallRights,
    /// Accounting records of requests.
    pub accounts: AccountingLog,
    /// Routes for which [`same_rpc`] names an RPC, or that ask for the rights of their [`Caller`] themselves.
    pub routes: Router,
}

/// Dependencies of the socket's handlers.
pub struct LocalDependencies {
    pub users: Users,
    /// Accounting records of requests.
    pub accounts: AccountingLog,
    /// Additional routes with paths of their own, for the same callers.
    pub more: Router,
}

impl fmt::Debug for LocalDependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalDependencies")
            .field("accounts", &self.accounts)
            .finish_non_exhaustive()
    }
}

/// Opens the socket, and serves it once the returned sender has what its handlers need. Commands that come before that
/// wait for it, so that they work as soon as the agent has been started.
///
/// An existing file is that of a killed agent: no other agent runs, because the database is locked already.
pub fn start(
    path: &Path,
    listeners: &Listeners,
) -> (LocalServer, oneshot::Sender<LocalDependencies>) {
    let (served_tx, served_rx) = oneshot::channel();
    let entry = listeners.add(ListenerKind::Local, path.to_string_lossy());
    let wanted = path.to_owned();
    let task = tokio::spawn(async move {
        let listener = entry.open(|| bind(&wanted)).await;
        if let Ok(served) = served_rx.await {
            serve(listener, served).await;
        }
    });
    (LocalServer { path: path.into(), task: AbortOnDropHandle::new(task) }, served_tx)
}

async fn serve(listener: UnixListener, served: LocalDependencies) {
    let LocalDependencies { users, accounts, more } = served;
    let routes = Router::new()
        .route("/users", get(list_users))
        .route("/users/set", post(set_user))
        .route("/users/delete", post(delete_user))
        .with_state(users)
        .merge(more)
        .layer(middleware::from_fn(admit))
        .layer(middleware::from_fn_with_state(accounts, accounting::record_request))
        .layer(middleware::from_fn_with_state(Admission::Root, identify));
    serve_peers(listener, None, routes).await;
}

/// Serves people of the box who are not root on a socket of their own, with routes that ask for the rights of their callers.
pub fn start_for_users(
    path: &Path,
    listeners: &Listeners,
    served: UserDependencies,
) -> LocalServer {
    let entry = listeners.add(ListenerKind::Users, path.to_string_lossy());
    let wanted = path.to_owned();
    let UserDependencies { users, rights, accounts, routes } = served;
    let routes = routes
        .fallback(async || failure(StatusCode::FORBIDDEN, FOR_ROOT.to_owned()))
        .layer(middleware::from_fn_with_state(rights, authorize))
        .layer(middleware::from_fn(admit))
        .layer(middleware::from_fn_with_state(accounts, accounting::record_request))
        .layer(middleware::from_fn_with_state(Admission::Users(users), identify));
    let task = tokio::spawn(async move {
        let listener = entry.open(|| bind_for_all(&wanted)).await;
        serve_peers(listener, Some(USER_WRITE_TIMEOUT), routes).await;
    });
    LocalServer { path: path.into(), task: AbortOnDropHandle::new(task) }
}

async fn serve_peers(listener: UnixListener, write_timeout: Option<Duration>, routes: Router) {
    let bounds = http1::Bounds { connections: MAX_CONNECTIONS, write_timeout };
    http1::serve(listener, bounds, move |stream| {
        routes.clone().layer(Extension(ConnectInfo(LocalPeer::of(stream))))
    })
    .await;
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?; // the folder is private, so there is no race with setting the mode
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// User id of the peer, from the kernel.
#[derive(Clone, Copy, Debug)]
struct LocalPeer {
    uid: Option<u32>,
}

impl LocalPeer {
    fn of(stream: &UnixStream) -> Self {
        Self { uid: stream.peer_cred().ok().map(|credentials| credentials.uid()) }
    }
}

/// Rule of a socket for whom it serves.
#[derive(Clone)]
enum Admission {
    /// Root and the agent's own user.
    Root,
    /// Accounts of the box that have the name of a user with a role, too.
    Users(Users),
}

impl Admission {
    /// The caller at the other end; `None` for one who is not served.
    async fn caller(&self, peer: LocalPeer) -> Option<Caller> {
        let uid = peer.uid?;
        let auth_method = AuthMethod::Local { uid };
        if is_root_or_own(uid) {
            let name = SmolStr::new_static("local");
            return Some(Caller { name, role: Role::Admin, auth_method, peer: None });
        }
        let Self::Users(users) = self else { return None };
        // The database of accounts may be on another box.
        let account = spawn_blocking(move || Account::from_uid(uid.into())).await;
        let name: SmolStr = account.ok()?.ok()??.name.into();
        let role = users.role(&name).filter(|role| *role != Role::None)?;
        Some(Caller { name, role, auth_method, peer: None })
    }
}

/// The caller of a request; `None` for one who is not served.
#[derive(Clone)]
struct Identified(Option<Caller>);

/// Adds [`Identified`] to a request.
async fn identify(
    State(admission): State<Admission>,
    ConnectInfo(peer): ConnectInfo<LocalPeer>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = admission.caller(peer).await;
    request.extensions_mut().insert(Identified(caller));
    next.run(request).await
}

/// Adds the [`Caller`] to a request of a permitted user, with its trace as [`Requester`], and refuses others.
async fn admit(
    Extension(Identified(caller)): Extension<Identified>,
    mut request: Request,
    next: Next,
) -> Response {
    match caller {
        Some(caller) => {
            let trace = trace_of(request.headers());
            request.extensions_mut().insert(Requester { caller: caller.clone(), trace });
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        None => failure(StatusCode::FORBIDDEN, NOT_SERVED.to_owned()),
    }
}

/// The call over the network that does the same as a request; `None` where the content of the request decides that, and its
/// handler asks.
fn same_rpc(method: &Method, path: &str) -> Option<Rpc> {
    match path {
        config::CHANGE | config::CONFIRM | config::CHECKPOINT => Some(SET),
        probes::PING => Some("/gnoi.system.System/Ping"),
        probes::TRACE => Some("/gnoi.system.System/Traceroute"),
        faults::QUESTION | sessions::QUESTION | service_operations::ADDRESS => None,
        faults::WATCH => Some(faults::WATCH_RPC),
        faults::RAISES => Some("/holdfast.faults.v1.Faults/Query"),
        sessions::WATCH => Some(sessions::WATCH_RPC),
        packages::REMOVE_PACKAGE => Some("/holdfast.services.v1.Packages/Remove"),
        packages::PACKAGES if *method == Method::GET => Some("/holdfast.services.v1.Packages/List"),
        packages::PACKAGES => Some("/holdfast.services.v1.Packages/Install"),
        inspect::BOOT => Some("/gnoi.bootconfig.BootConfig/GetBootConfig"),
        // Questions with a body, which only look.
        config::SHOW | config::LOG | config::DIFF | config::EXPORT | config::CHECKPOINTS => {
            Some(GET)
        }
        _ if *method == Method::GET => Some(GET),
        _ => Some(SET),
    }
}

const GET: Rpc = "/gnmi.gNMI/Get";
const SET: Rpc = "/gnmi.gNMI/Set";

/// Refuses what the role of the caller or the authz policy does not permit over the network either.
async fn authorize(
    State(rights): State<CallRights>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    if let Some(rpc) = same_rpc(request.method(), request.uri().path())
        && let Err(denied) = rights.permit(&caller, request.headers(), rpc)
    {
        return denied.into_response();
    }
    next.run(request).await
}

/// Text for a command that the socket for users does not serve.
const FOR_ROOT: &str = "this command is for root, on the socket in the state folder";

/// Text for a caller who is not served.
const NOT_SERVED: &str = "this socket serves root, the user of the agent, and where `--user-socket` opens one, accounts with \
                          the name of a user who has a role";

/// A user, in the wire format of the socket.
#[derive(Debug, Serialize, Deserialize)]
pub struct UserSummary {
    pub name: String,
    pub role: String,
}

/// A user to create, with a cleartext password: the socket does not leave the box.
#[derive(Serialize, Deserialize)]
struct SetUserRequest {
    name: String,
    /// The user keeps its role without one.
    role: Option<String>,
    password: Option<String>,
}

impl Drop for SetUserRequest {
    fn drop(&mut self) {
        self.password.zeroize();
    }
}

#[derive(Serialize, Deserialize)]
struct DeleteUserRequest {
    name: String,
}

/// Body of every refusal.
#[derive(Serialize, Deserialize)]
struct Failure {
    #[serde(rename = "Error")]
    error: String,
}

/// Wish for a document in place of a text.
#[derive(Debug, Deserialize)]
struct AnswerFormat {
    #[serde(default)]
    format: String,
}

impl AnswerFormat {
    fn is_json(&self) -> bool {
        self.format == "json"
    }
}

async fn list_users(State(users): State<Users>) -> Json<Vec<UserSummary>> {
    let entry =
        |(name, role): (SmolStr, Role)| UserSummary { name: name.into(), role: role.to_string() };
    Json(users.list().into_iter().map(entry).collect())
}

async fn set_user(State(users): State<Users>, Json(mut user): Json<SetUserRequest>) -> Response {
    let role = match user.role.as_deref().map(str::parse::<Role>) {
        Some(Ok(role)) => role,
        Some(Err(error)) => {
            return failure(StatusCode::BAD_REQUEST, ErrorChain(&error).to_string());
        }
        None => users.own_role(&user.name).unwrap_or(Role::None),
    };
    let password =
        user.password.take().map(Zeroizing::new).map(|text| Password::new(text.as_bytes()));
    match password.transpose() {
        Ok(password) => changed(users.set(user.name.as_str().into(), role, password).await),
        Err(error) => failure(StatusCode::BAD_REQUEST, ErrorChain(&error).to_string()),
    }
}

async fn delete_user(State(users): State<Users>, Json(user): Json<DeleteUserRequest>) -> Response {
    changed(users.delete(&user.name.into()).await)
}

fn changed(result: Result<(), UserError>) -> Response {
    match result {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => {
            let status = match error {
                UserError::Unknown(_) => StatusCode::NOT_FOUND,
                UserError::Name(_) | UserError::Password { .. } => StatusCode::BAD_REQUEST,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            };
            failure(status, ErrorChain(&error).to_string())
        }
    }
}

/// A JSON document in lines.
pub(crate) fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn failure(status: StatusCode, error: String) -> Response {
    (status, Json(Failure { error })).into_response()
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use holdfast_security::acctz::{Activity, AuthzOutcome, BoundedText, History};
    use tempfile::TempDir;

    use std::sync::Arc;

    use super::*;
    use crate::settings::ShowContent;
    use holdfast_store::Store;

    struct FakeInspect;

    #[tonic::async_trait]
    impl Inspect for FakeInspect {
        async fn show(
            &self,
            what: ShowContent,
            _json: bool,
        ) -> Result<String, Box<dyn Error + Send + Sync>> {
            match what {
                ShowContent::State => Err("the core is busy".into()),
                what => Ok(format!("this is {}\n", what.name())),
            }
        }
    }

    // proves 5.95, 5.101, sv.B96
    #[tokio::test]
    async fn the_command_line_reaches_the_agent() {
        let state = TempDir::new().unwrap();
        let path = state.path().join("holdfast.sock");
        let (store, loaded) = Store::open(state.path()).unwrap();
        fs::write(&path, "left by an agent that was killed").unwrap();
        let users = Users::new(loaded.users, store).unwrap();
        let accounts = AccountingLog::new(History::new(1 << 20, 1));
        let served = LocalDependencies {
            users: users.clone(),
            accounts: accounts.clone(),
            more: inspect_routes(Arc::new(FakeInspect)).route(
                "/trace",
                get(async |Extension(by): Extension<Requester>| {
                    by.trace.unwrap_or_default().to_string()
                }),
            ),
        };
        let listeners = Listeners::default();
        let (local, served_tx) = start(&path, &listeners);
        listeners.tried().await;
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

        let client = Client::new(&path);
        let early = tokio::spawn({
            let client = client.clone();
            async move { client.text("/show/config").await }
        });
        tokio::task::yield_now().await;
        served_tx.send(served).unwrap();
        assert_eq!(early.await.unwrap().unwrap(), "this is config\n", "it has waited");
        assert_eq!(client.text("/show/state").await.unwrap_err().to_string(), "the core is busy");

        let secret = || Some(Password::new("secret").unwrap());
        client.set_user("ada", Some(Role::Admin), secret().as_ref()).await.unwrap();
        client.set_user("cert-only", Some(Role::ReadOnly), None).await.unwrap();
        let list: Vec<_> =
            client.users().await.unwrap().into_iter().map(|user| (user.name, user.role)).collect();
        assert_eq!(
            list,
            [
                ("ada".to_owned(), "admin".to_owned()),
                ("cert-only".to_owned(), "read-only".to_owned())
            ]
        );
        assert_eq!(users.role("ada"), Some(Role::Admin));
        let bad_name =
            client.set_user("a b", Some(Role::Admin), secret().as_ref()).await.unwrap_err();
        assert!(bad_name.to_string().starts_with("`a b` is not a user name"), "{bad_name}");
        client.delete_user("ada").await.unwrap();
        assert_eq!(
            client.delete_user("ada").await.unwrap_err().to_string(),
            "there is no user `ada`"
        );

        let mut reader = accounts.read(0);
        for (command, arguments, detail) in [
            ("GET /show/config", "", ""),
            ("GET /show/state", "", "500 Internal Server Error"),
            ("POST /users/set", r#"{"name":"ada","password":"(withheld)","role":"admin"}"#, ""),
            (
                "POST /users/set",
                r#"{"name":"cert-only","password":"(withheld)","role":"read-only"}"#,
                "",
            ),
            ("GET /users", "", ""),
            (
                "POST /users/set",
                r#"{"name":"a b","password":"(withheld)","role":"admin"}"#,
                "400 Bad Request",
            ),
            ("POST /users/delete", r#"{"name":"ada"}"#, ""),
            ("POST /users/delete", r#"{"name":"ada"}"#, "404 Not Found"),
        ] {
            let record = reader.next().await.record;
            assert_eq!(record.account.session.user.identity.as_str(), "local");
            let Activity::Command(run) = &record.account.activity else { panic!("{record:?}") };
            let argument_text = run.arguments.iter().map(BoundedText::as_str).collect::<String>();
            let summary = (run.command.as_str(), argument_text.as_str(), run.authz.detail.as_str());
            assert_eq!(summary, (command, arguments, detail));
            assert_eq!(run.authz.outcome, AuthzOutcome::Permit);
        }

        assert_eq!(client.text("/trace").await.unwrap(), "", "the agent makes one");
        let traced = client.clone().with_trace(Some("change/7".into()));
        assert_eq!(traced.text("/trace").await.unwrap(), "change/7");

        drop(local);
        assert!(matches!(client.text("/show/config").await, Err(ClientError::NotRunning { .. })));
        assert!(!path.exists());
    }
}
