//! HTTP/2 by hand, for input that no library sends: silent connections, and frames that break the protocol.
//!
//! All attacks end after a given time. [`call`] sends one request whose body was made by hand.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2;
use hyper::http::request;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The connection preface (RFC 9113, 3.4), with an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00";
/// `:method POST`, `:scheme https`, `:path /`, and a `connection: close`, which HTTP/2 forbids (RFC 9113, 8.2.2).
const MALFORMED: &[u8] = b"\x83\x87\x84\x00\x0aconnection\x05close";
/// Streams that are written at a time.
const BATCH: u32 = 256;
/// Pause before the next connection, after the server has closed one.
const PAUSE: Duration = Duration::from_millis(50);

/// A client that trusts `ca` (PEM) and offers HTTP/2.
///
/// # Panics
/// When `ca` is not a certificate.
pub fn client_config(ca: &str) -> Arc<ClientConfig> {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(ca.as_bytes()).expect("a certificate");
    roots.add(ca).expect("a certificate of an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the library supports its own defaults")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Opens a TCP connection from one address of this host.
///
/// # Errors
/// When it is refused.
pub async fn connect_from(source: IpAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(SocketAddr::new(source, 0))?;
    socket.connect(server).await
}

/// Opens a TLS connection from one address of this host.
///
/// # Errors
/// When the connection is refused, or the handshake fails.
pub async fn connect_tls_from(
    source: IpAddr,
    server: SocketAddr,
    config: &Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = connect_from(source, server).await?;
    let name = "localhost".try_into().expect("a name");
    TlsConnector::from(config.clone()).connect(name, stream).await
}

/// True when the other end has closed the connection.
pub fn is_closed(stream: &TcpStream) -> bool {
    match stream.try_read(&mut [0; 1024]) {
        Ok(octets) => octets == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

/// A socket of the agent that is attacked, with the way to it.
#[derive(Clone, Debug)]
pub enum AttackedSocket {
    Tls(SocketAddr, Arc<ClientConfig>),
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl AttackedSocket {
    async fn connect(&self) -> io::Result<Pin<Box<dyn AsyncWrite + Send>>> {
        Ok(match self {
            Self::Tls(server, config) => {
                Box::pin(connect_tls_from(server.ip(), *server, config).await?)
            }
            Self::Tcp(server) => Box::pin(TcpStream::connect(server).await?),
            Self::Unix(path) => Box::pin(UnixStream::connect(path).await?),
        })
    }
}

/// Sends malformed streams over `connections` at a time until the time is over, and reads nothing. A connection that
/// is ended by the server is followed by another one.
///
/// Runs on a thread in the namespace of the caller, and returns the number of streams that were sent.
pub fn flood_malformed_streams(
    socket: AttackedSocket,
    connections: usize,
    time: Duration,
) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime of this thread").block_on(async {
            let end = Instant::now() + time;
            let attackers: Vec<_> = (0..connections)
                .map(|_| tokio::spawn(send_malformed_streams(socket.clone(), end)))
                .collect();
            let mut sent = 0;
            for attacker in attackers {
                sent += attacker.await.expect("it does not panic");
            }
            sent
        })
    })
}

async fn send_malformed_streams(socket: AttackedSocket, end: Instant) -> u64 {
    let mut sent = 0;
    while Instant::now() < end {
        if let Ok(Ok(mut stream)) = timeout_at(end, socket.connect()).await {
            let writing = async {
                stream.write_all(PREFACE).await?;
                for first in (0..).step_by(BATCH as usize) {
                    stream.write_all(&malformed_streams(first)).await?;
                    stream.flush().await?;
                    sent += u64::from(BATCH);
                }
                io::Result::Ok(())
            };
            // The connection ends with the time, or is closed by the server.
            let _ = timeout_at(end, writing).await;
        }
        sleep(PAUSE).await;
    }
    sent
}

/// HEADERS frames (RFC 9113, 6.2) that end their streams; `first` is the number of the first stream, from 0.
fn malformed_streams(first: u32) -> Vec<u8> {
    const END_STREAM_AND_HEADERS: u8 = 0x5;
    let length = u8::try_from(MALFORMED.len()).expect("a few bytes");
    let frame = |number: u32| {
        let stream = (2 * number + 1).to_be_bytes();
        let head = [0, 0, length, 0x1, END_STREAM_AND_HEADERS];
        head.into_iter().chain(stream).chain(MALFORMED.iter().copied())
    };
    (first..first + BATCH).flat_map(frame).collect()
}

/// Calls over one connection whose client never gives room for an answer: its windows are empty.
#[derive(Debug)]
pub struct UntakenCalls {
    /// The answers as far as they came: headers, with the status where there is nothing else.
    pub responses: Vec<Response<Incoming>>,
    connection: JoinHandle<()>,
    /// Keeps the connection open.
    _sender: http2::SendRequest<Full<Bytes>>,
}

impl UntakenCalls {
    /// Statuses of the calls that were refused at once.
    #[must_use]
    pub fn refusals(&self) -> Vec<tonic::Status> {
        let headers = self.responses.iter().map(Response::headers);
        headers.filter_map(tonic::Status::from_header_map).collect()
    }
}

impl Drop for UntakenCalls {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Calls a method `count` times with the same message, and waits for the headers of all answers.
///
/// # Errors
/// When the connection breaks.
pub async fn untaken_calls(
    server: SocketAddr,
    config: &Arc<ClientConfig>,
    (path, message): (&str, &impl prost::Message),
    headers: &[(&str, &str)],
    count: usize,
) -> anyhow::Result<UntakenCalls> {
    let stream = connect_tls_from(server.ip(), server, config).await?;
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(0)
        .handshake(TokioIo::new(stream))
        .await?;
    let connection = tokio::spawn(async move { drop(connection.await) });
    let message = message.encode_to_vec();
    let length = u32::try_from(message.len())?.to_be_bytes();
    let body = Bytes::from([&[0], &length[..], &message].concat());
    let mut calls = JoinSet::new();
    for _ in 0..count {
        let mut sender = sender.clone();
        let request = grpc_request(server, path, headers).body(Full::new(body.clone()))?;
        calls.spawn(async move { sender.send_request(request).await });
    }
    let responses = calls.join_all().await.into_iter().collect::<Result<_, _>>()?;
    Ok(UntakenCalls { responses, connection, _sender: sender })
}

fn grpc_request(server: SocketAddr, path: &str, headers: &[(&str, &str)]) -> request::Builder {
    let request = Request::post(format!("https://{server}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    headers.iter().fold(request, |request, (name, value)| request.header(*name, *value))
}

/// Response to a call whose request body was made by hand: its headers, the bytes of its messages, its status.
#[derive(Debug)]
pub struct RawResponse {
    pub headers: HeaderMap,
    pub body: Bytes,
    pub status: tonic::Status,
}

/// Calls a method with the bytes of a body, in which frames and messages may be whatever they are.
///
/// # Errors
/// When the connection or the stream breaks.
pub async fn call(
    server: SocketAddr,
    config: &Arc<ClientConfig>,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> anyhow::Result<RawResponse> {
    let stream = connect_tls_from(server.ip(), server, config).await?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = grpc_request(server, path, headers);
    let response = sender.send_request(request.body(Full::new(Bytes::from(body)))?).await?;
    let (parts, body) = response.into_parts();
    let collected = body.collect().await?;
    connection.abort();
    let trailers = collected.trailers().cloned().unwrap_or_default();
    let status = tonic::Status::from_header_map(&trailers)
        .or_else(|| tonic::Status::from_header_map(&parts.headers));
    let status = status.context("the response has no status")?;
    Ok(RawResponse { headers: parts.headers, body: collected.to_bytes(), status })
}
