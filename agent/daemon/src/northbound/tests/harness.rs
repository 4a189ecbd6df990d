//! A client and a server with a pipe between them, and messages as text.

use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{AuthMethod, Caller, Role};
use holdfast_config::Path;
use holdfast_core::{CoreHandle, Datastore};
use holdfast_proto::gnmi::g_nmi_client::GNmiClient;
use holdfast_proto::gnmi::{
    self, SubscribeRequest, SubscribeResponse, TypedValue, subscribe_request, subscribe_response,
    typed_value,
};
use holdfast_proto::gnmi_ext::config_subscription::Action;
use holdfast_proto::gnmi_ext::extension::Ext;
use holdfast_proto::gnmi_ext::{self, ConfigSubscription};
use http::Request;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};
use tower::layer::layer_fn;
use tower::{Layer as _, Service, service_fn};

use super::fake_datastore::FakeDatastore;
use crate::aaa::{self, CallPermission};
use crate::agent_tests::Agent;
use crate::device::Device;
use crate::gnsi::Gnsi;
use crate::northbound::{IgnoredSubscriptions, MAX_MESSAGE_SIZE, RouteParts, routes};
use crate::server::{self, MAX_STREAMS};

/// Bytes that the pipe holds.
const PIPE: usize = 64 * 1024;

pub(super) type Client = GNmiClient<Channel>;

/// A server side for a channel.
pub(super) trait TestBackend {
    type Core: Datastore;
    fn datastore(&self) -> Self::Core;
    fn device(&self) -> Device;
    fn gnsi(&self) -> Gnsi;
    fn ignored(&self) -> Arc<IgnoredSubscriptions>;
}

impl TestBackend for FakeDatastore {
    type Core = Self;

    fn datastore(&self) -> Self {
        self.clone()
    }

    fn device(&self) -> Device {
        FakeDatastore::device(self)
    }

    fn gnsi(&self) -> Gnsi {
        FakeDatastore::gnsi(self)
    }

    fn ignored(&self) -> Arc<IgnoredSubscriptions> {
        FakeDatastore::ignored(self)
    }
}

impl TestBackend for Agent {
    type Core = CoreHandle;

    fn datastore(&self) -> CoreHandle {
        self.handle.clone()
    }

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn gnsi(&self) -> Gnsi {
        self.gnsi.clone()
    }

    fn ignored(&self) -> Arc<IgnoredSubscriptions> {
        self.ignored.clone()
    }
}

/// A client with the role admin.
pub(super) async fn client(core: &impl TestBackend) -> Client {
    client_as(core, Role::Admin).await
}

pub(super) async fn client_as(core: &impl TestBackend, role: Role) -> Client {
    GNmiClient::new(channel(core, Some(role)).await)
        .max_decoding_message_size(MAX_MESSAGE_SIZE)
        .max_encoding_message_size(MAX_MESSAGE_SIZE)
}

pub(super) async fn channel(core: &impl TestBackend, role: Option<Role>) -> Channel {
    channel_of(core, role.map(|role| caller("test", role))).await
}

/// A caller who logged in with a password.
pub(super) fn caller(name: &str, role: Role) -> Caller {
    Caller { name: name.into(), role, auth_method: AuthMethod::Password, peer: None }
}

/// A channel of one caller, or without an authenticated caller.
pub(super) async fn channel_of(core: &impl TestBackend, caller: Option<Caller>) -> Channel {
    let gnsi = core.gnsi();
    let datastore = core.datastore();
    let device = core.device();
    let routes =
        routes(datastore, device, &gnsi, RouteParts::without_agent(core.ignored())).await.unwrap();
    // In place of the AAA layer: the caller is given, and the authz policy is asked.
    let authorize = layer_fn(move |routes: Routes| {
        let caller = caller.clone();
        let gnsi = gnsi.clone();
        service_fn(move |mut request: Request<Body>| {
            let allowed = match &caller {
                Some(caller) => aaa::authorize(&gnsi, caller, &request),
                None => Err(Status::unauthenticated("no caller")),
            };
            if let Some(caller) = &caller {
                request.extensions_mut().insert(caller.clone());
                request.extensions_mut().insert(CallPermission::permanent());
            }
            let mut routes = routes.clone();
            async move {
                match allowed {
                    Ok(()) => routes.call(request).await,
                    Err(status) => Ok(status.into_http()),
                }
            }
        })
    });
    let (near, far) = tokio::io::duplex(PIPE);
    let incoming = tokio_stream::once(Ok(far)).chain(tokio_stream::pending());
    let service = authorize.layer(routes.prepare());
    tokio::spawn(server::serve(incoming, MAX_STREAMS, service, std::future::pending()));
    let mut near = Some(TokioIo::new(near));
    Endpoint::from_static("http://pipe")
        .connect_with_connector(tower::service_fn(move |_| {
            std::future::ready(near.take().ok_or_else(|| std::io::Error::other("one pipe only")))
        }))
        .await
        .unwrap()
}

/// A wire path from its text; `origin:/path` names an origin.
pub(super) fn path(text: &str) -> gnmi::Path {
    let (origin, text) = match text.split_once(":/") {
        Some((origin, rest)) if !origin.contains('/') => (origin, format!("/{rest}")),
        _ => ("", text.to_owned()),
    };
    let parsed: Path = text.parse().unwrap();
    let elem = |elem: &holdfast_config::Elem| gnmi::PathElem {
        name: elem.name.clone(),
        key: elem.keys.iter().cloned().collect(),
    };
    gnmi::Path {
        origin: origin.to_owned(),
        elem: parsed.elems.iter().map(elem).collect(),
        ..Default::default()
    }
}

pub(super) fn text(path: Option<&gnmi::Path>) -> String {
    let Some(path) = path else { return "-".into() };
    let elem = |elem: &gnmi::PathElem| holdfast_config::Elem {
        name: elem.name.clone(),
        keys: elem.key.clone().into_iter().collect(),
    };
    Path { elems: path.elem.iter().map(elem).collect() }.to_string()
}

pub(super) fn json(document: &str) -> Option<TypedValue> {
    let text = document.as_bytes().to_vec().into();
    Some(TypedValue { value: Some(typed_value::Value::JsonIetfVal(text)) })
}

pub(super) fn update(at: &str, document: &str) -> gnmi::Update {
    gnmi::Update { path: Some(path(at)), val: json(document), ..Default::default() }
}

/// A Set as text: `delete PATH; replace PATH JSON; update PATH JSON`.
pub(super) fn set_request(operations: &str) -> gnmi::SetRequest {
    let mut request = gnmi::SetRequest::default();
    for operation in operations.split("; ").filter(|it| !it.is_empty()) {
        let mut words = operation.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("delete"), Some(at), None) => request.delete.push(path(at)),
            (Some("replace"), Some(at), Some(json)) => request.replace.push(update(at, json)),
            (Some("update"), Some(at), Some(json)) => request.update.push(update(at, json)),
            (Some("union"), Some(at), Some(json)) => request.union_replace.push(update(at, json)),
            _ => panic!("no operation: {operation}"),
        }
    }
    request
}

pub(super) async fn set(client: &mut Client, operations: &str) -> gnmi::SetResponse {
    client.set(set_request(operations)).await.unwrap().into_inner()
}

pub(super) fn get_request(paths: &[&str]) -> gnmi::GetRequest {
    gnmi::GetRequest {
        path: paths.iter().map(|it| path(it)).collect(),
        encoding: gnmi::Encoding::JsonIetf as i32,
        ..Default::default()
    }
}

pub(super) fn value(value: Option<&TypedValue>) -> String {
    let text = |octets: &[u8]| String::from_utf8(octets.to_vec()).unwrap();
    match value.and_then(|value| value.value.as_ref()) {
        None => "nothing".into(),
        Some(typed_value::Value::JsonVal(octets) | typed_value::Value::JsonIetfVal(octets)) => {
            text(octets)
        }
        Some(typed_value::Value::StringVal(value)) => format!("string {value}"),
        Some(typed_value::Value::UintVal(value)) => format!("uint {value}"),
        Some(typed_value::Value::IntVal(value)) => format!("int {value}"),
        Some(typed_value::Value::BoolVal(value)) => format!("bool {value}"),
        Some(other) => format!("{other:?}"),
    }
}

/// One Subscribe RPC.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) request_tx: mpsc::Sender<SubscribeRequest>,
    pub(super) responses: Streaming<SubscribeResponse>,
}

impl Subscription {
    pub(super) async fn open(client: &mut Client, first: SubscribeRequest) -> Self {
        let (request_tx, request_rx) = mpsc::channel(4);
        request_tx.send(first).await.unwrap();
        let responses =
            client.subscribe(ReceiverStream::new(request_rx)).await.unwrap().into_inner();
        Self { request_tx, responses }
    }

    pub(super) async fn poll(&self) {
        let request = Some(subscribe_request::Request::Poll(gnmi::Poll {}));
        self.request_tx.send(SubscribeRequest { request, ..Default::default() }).await.unwrap();
    }

    /// The next message as text; `end` for status OK, otherwise the code.
    pub(super) async fn next(&mut self) -> String {
        match self.responses.message().await {
            Ok(None) => "end".into(),
            Err(status) => format!("{:?}", status.code()),
            Ok(Some(message)) => match message.response {
                Some(subscribe_response::Response::SyncResponse(true)) => "sync".into(),
                Some(subscribe_response::Response::Update(notification)) => {
                    notification_text(&gnmi::Notification::decode(notification).unwrap())
                }
                None => message.extension.iter().map(extension_text).collect(),
                other => format!("{other:?}"),
            },
        }
    }

    /// All messages up to and including the next sync.
    pub(super) async fn until_sync(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        loop {
            messages.push(self.next().await);
            if let Some("sync" | "end") = messages.last().map(String::as_str) {
                return messages;
            }
        }
    }

    /// All messages within a time, including those that are due at its end.
    pub(super) async fn within(&mut self, time: Duration) -> Vec<String> {
        let deadline = tokio::time::Instant::now() + time + Duration::from_millis(1);
        let mut messages = Vec::new();
        while let Ok(message) = tokio::time::timeout_at(deadline, self.next()).await {
            messages.push(message);
        }
        messages
    }
}

/// `-/path` for a delete, `/path=value` for an update, followed by `*n` if it has n duplicates.
pub(super) fn notification_text(notification: &gnmi::Notification) -> String {
    let deletes = notification.delete.iter().map(|path| format!("-{}", text(Some(path))));
    let updates = notification.update.iter().map(|update| {
        let more = match update.duplicates {
            0 => String::new(),
            more => format!("*{more}"),
        };
        format!("{}={}{more}", text(update.path.as_ref()), value(update.val.as_ref()))
    });
    deletes.chain(updates).collect::<Vec<_>>().join(" ")
}

/// `done` with the client's id of a commit that it must confirm.
fn extension_text(extension: &gnmi_ext::Extension) -> String {
    match &extension.ext {
        Some(Ext::ConfigSubscription(ConfigSubscription {
            action: Some(Action::SyncDone(sync)),
        })) => {
            assert!(sync.done && sync.server_commit_id.parse::<u64>().is_ok(), "{sync:?}");
            format!("done {}", sync.commit_confirm_id).trim_end().to_owned()
        }
        other => format!("{other:?}"),
    }
}

/// A subscription as text: `MODE PATH [KEY=VALUE ...]` with interval, heartbeat (in seconds), suppress.
pub(super) fn subscription(text: &str) -> gnmi::Subscription {
    let mut words = text.split(' ');
    let mode = match words.next() {
        Some("change") => gnmi::SubscriptionMode::OnChange,
        Some("sample") => gnmi::SubscriptionMode::Sample,
        Some("target") => gnmi::SubscriptionMode::TargetDefined,
        other => panic!("no mode: {other:?}"),
    };
    let mut subscription = gnmi::Subscription {
        path: words.next().map(path),
        mode: mode as i32,
        ..Default::default()
    };
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, "1"));
        let seconds = value.parse::<u64>().unwrap() * 1_000_000_000;
        match name {
            "interval" => subscription.sample_interval = seconds,
            "heartbeat" => subscription.heartbeat_interval = seconds,
            "suppress" => subscription.suppress_redundant = true,
            _ => panic!("no such option: {word}"),
        }
    }
    subscription
}

pub(super) fn list(
    mode: gnmi::subscription_list::Mode,
    subscriptions: &[&str],
) -> gnmi::SubscriptionList {
    gnmi::SubscriptionList {
        subscription: subscriptions.iter().map(|it| subscription(it)).collect(),
        mode: mode as i32,
        encoding: gnmi::Encoding::JsonIetf as i32,
        ..Default::default()
    }
}

pub(super) fn subscribe(list: gnmi::SubscriptionList) -> SubscribeRequest {
    SubscribeRequest {
        request: Some(subscribe_request::Request::Subscribe(list)),
        ..Default::default()
    }
}

/// Behaviour of a client after it has sent the finalize of a rotation.
#[derive(Clone, Copy, Debug)]
pub(super) enum FinalizingClient {
    /// Closes its side of the stream without waiting for anything.
    Closes,
    /// Waits for another message first.
    Waits,
}

/// The stream of a rotation after its finalize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AfterFinalize {
    Ends,
    Continues,
}

impl FinalizingClient {
    pub(super) const ALL: [Self; 2] = [Self::Closes, Self::Waits];

    /// Sends `finalize`, which is answered by one empty message, and reads on to the end with status OK.
    pub(super) async fn finalizes<Q, A>(
        self,
        requests: mpsc::Sender<Q>,
        mut answers: Streaming<A>,
        finalize: Q,
        afterwards: AfterFinalize,
    ) where
        Q: std::fmt::Debug,
        A: Default + PartialEq + std::fmt::Debug,
    {
        requests.send(finalize).await.unwrap();
        let mut open = Some(requests).filter(|_| matches!(self, Self::Waits));
        assert_eq!(answers.message().await.unwrap(), Some(A::default()), "{self:?}");
        if afterwards == AfterFinalize::Continues {
            open = None;
        }
        assert_eq!(answers.message().await.unwrap(), None, "{self:?}");
        drop(open);
    }
}
