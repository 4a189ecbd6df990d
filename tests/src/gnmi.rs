//! A gNMI client for tests, and requests written as text.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use holdfast_proto::gnmi;
use holdfast_proto::gnmi::g_nmi_client::GNmiClient;
use holdfast_proto::gnmi::typed_value;
use serde_json::{Value, json};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Request, Status};

use crate::subscription::Subscription;

/// The largest message that either side sends: a whole-device Set, and the Get that reads it back.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// Time limit for an answer, or for the beginning of a stream; enough for the largest Set on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A connection as one user. Clones share it.
#[derive(Debug, Clone)]
pub struct GnmiClient {
    inner: GNmiClient<InterceptedService<Channel, Credentials>>,
}

/// A name and password, sent with each call.
#[derive(Debug, Clone)]
pub struct Credentials {
    username: MetadataValue<Ascii>,
    password: MetadataValue<Ascii>,
}

impl Credentials {
    /// # Errors
    /// When one of them cannot be sent as metadata.
    pub fn new(username: &str, password: &str) -> Result<Self> {
        Ok(Self { username: username.parse()?, password: password.parse()? })
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert("username", self.username.clone());
        request.metadata_mut().insert("password", self.password.clone());
        Ok(request)
    }
}

impl GnmiClient {
    /// A client for one user over a connection.
    pub fn over(channel: Channel, credentials: Credentials) -> Self {
        let inner = GNmiClient::with_interceptor(channel, credentials)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        Self { inner }
    }

    /// # Errors
    /// The status of the server.
    pub async fn capabilities(&self) -> Result<gnmi::CapabilityResponse, Status> {
        let request = gnmi::CapabilityRequest::default();
        Ok(self.inner.clone().capabilities(request).await?.into_inner())
    }

    /// # Errors
    /// The status of the server.
    pub async fn get(&self, request: gnmi::GetRequest) -> Result<gnmi::GetResponse, Status> {
        Ok(self.inner.clone().get(request).await?.into_inner())
    }

    /// Reads all data at a path, as `JSON_IETF`.
    ///
    /// # Errors
    /// The status of the server.
    pub async fn read(&self, path: &str) -> Result<Value, Status> {
        self.read_as(path, gnmi::get_request::DataType::All).await
    }

    /// Reads one type of data at a path, as `JSON_IETF`.
    ///
    /// # Errors
    /// With the status of the server.
    pub async fn read_as(
        &self,
        path: &str,
        of: gnmi::get_request::DataType,
    ) -> Result<Value, Status> {
        let request = gnmi::GetRequest {
            path: vec![parse_path(path)],
            r#type: of.into(),
            encoding: gnmi::Encoding::JsonIetf.into(),
            ..Default::default()
        };
        let response = self.get(request).await?;
        let update =
            response.notification.first().and_then(|notification| notification.update.first());
        Ok(update.and_then(|update| update.val.as_ref()).map_or(Value::Null, json_of))
    }

    /// # Errors
    /// The status of the server.
    pub async fn set(&self, request: gnmi::SetRequest) -> Result<gnmi::SetResponse, Status> {
        Ok(self.inner.clone().set(request).await?.into_inner())
    }

    /// # Errors
    /// The status of the server.
    pub async fn update(
        &self,
        path: &str,
        value: impl Into<Value>,
    ) -> Result<gnmi::SetResponse, Status> {
        self.set(gnmi::SetRequest { update: vec![update(path, value)], ..Default::default() }).await
    }

    /// # Errors
    /// The status of the server.
    pub async fn replace(
        &self,
        path: &str,
        value: impl Into<Value>,
    ) -> Result<gnmi::SetResponse, Status> {
        self.set(gnmi::SetRequest { replace: vec![update(path, value)], ..Default::default() })
            .await
    }

    /// # Errors
    /// The status of the server.
    pub async fn delete(&self, path: &str) -> Result<gnmi::SetResponse, Status> {
        self.set(gnmi::SetRequest { delete: vec![parse_path(path)], ..Default::default() }).await
    }

    /// # Errors
    /// The status of a server that refuses the subscription.
    pub async fn subscribe(&self, list: gnmi::SubscriptionList) -> Result<Subscription, Status> {
        Subscription::open(self.inner.clone(), list).await
    }

    /// The underlying client, for calls that have no method here.
    pub fn raw(&self) -> GNmiClient<InterceptedService<Channel, Credentials>> {
        self.inner.clone()
    }
}

/// Connects over TLS to a server that shows a certificate for `localhost` signed by `ca` (PEM).
///
/// # Errors
/// When no server listens, or its certificate is not valid.
pub async fn connect(address: SocketAddr, ca: &str) -> Result<Channel> {
    connect_to("localhost", address, ca).await
}

/// Connects to an agent whose certificate has to have this name or address.
///
/// # Errors
/// When the agent does not listen or shows another certificate.
pub async fn connect_to(name: &str, address: SocketAddr, ca: &str) -> Result<Channel> {
    let tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)).domain_name(name);
    let endpoint = Endpoint::from_shared(format!("https://{address}"))?
        .tls_config(tls)?
        .timeout(ANSWER_TIMEOUT);
    endpoint.connect().await.with_context(|| format!("cannot connect to {address}"))
}

/// A path written as text: `/interfaces/interface[name=eth0]`, or `origin:/...`.
///
/// # Panics
/// When the text is not a path.
#[track_caller]
pub fn parse_path(text: &str) -> gnmi::Path {
    let (origin, text) = match text.split_once(":/") {
        Some((origin, rest)) if !origin.contains(['/', '[']) => (origin, format!("/{rest}")),
        _ => ("", text.to_owned()),
    };
    let path: holdfast_config::path::Path = text.parse().unwrap_or_else(|error| panic!("{error}"));
    let elem = path
        .elems
        .into_iter()
        .map(|elem| gnmi::PathElem { name: elem.name, key: elem.keys.into_iter().collect() });
    gnmi::Path { origin: origin.into(), elem: elem.collect(), ..Default::default() }
}

/// A path as text.
pub fn path_text(path: &gnmi::Path) -> String {
    let mut text = String::new();
    for elem in &path.elem {
        text += &format!("/{}", elem.name);
        for (key, value) in &elem.key {
            text += &format!("[{key}={value}]");
        }
    }
    if text.is_empty() { "/".into() } else { text }
}

/// An update with a `JSON_IETF` value.
#[track_caller]
pub fn update(path: &str, value: impl Into<Value>) -> gnmi::Update {
    let json = typed_value::Value::JsonIetfVal(value.into().to_string().into());
    let val = Some(gnmi::TypedValue { value: Some(json) });
    gnmi::Update { path: Some(parse_path(path)), val, ..Default::default() }
}

/// A value in any encoding, as JSON for comparison.
///
/// # Panics
/// When JSON in it is malformed.
pub fn json_of(value: &gnmi::TypedValue) -> Value {
    match value.value.as_ref() {
        None => Value::Null,
        Some(typed_value::Value::StringVal(text) | typed_value::Value::AsciiVal(text)) => {
            json!(text)
        }
        Some(typed_value::Value::IntVal(number)) => json!(number),
        Some(typed_value::Value::UintVal(number)) => json!(number),
        Some(typed_value::Value::BoolVal(value)) => json!(value),
        Some(typed_value::Value::DoubleVal(number)) => json!(number),
        Some(typed_value::Value::BytesVal(bytes) | typed_value::Value::ProtoBytes(bytes)) => {
            json!(bytes.to_vec())
        }
        Some(typed_value::Value::LeaflistVal(list)) => list.element.iter().map(json_of).collect(),
        Some(typed_value::Value::JsonVal(text) | typed_value::Value::JsonIetfVal(text)) => {
            serde_json::from_slice(text).unwrap_or_else(|error| panic!("malformed JSON: {error}"))
        }
        Some(other) => json!(format!("{other:?}")),
    }
}
