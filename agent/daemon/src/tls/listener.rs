//! Acceptance of TCP connections, and the TLS handshake.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use nix::errno::Errno;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_stream::Stream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::server::Connected;
use tracing::{debug, warn};

use super::dscp::Dscp;
use super::{
    TlsError,
    login_grace::{Limits, LoginGrace},
    peer::{Peer, PeerCertificate},
};
use crate::connections::OpenConnections;
use crate::listeners::{ListenerEntry, ListenerKind, Listeners};
use crate::settings::ListenSocket;

/// Time limit for the handshake. A slower client is gone, or hostile.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that the kernel queues before we accept them.
const BACKLOG: i32 = 1024;
/// Completed handshakes in the queue to the server, which takes them at once.
const QUEUE_DEPTH: usize = 16;
/// Pause after a failed accept, which mostly means that file descriptors are exhausted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Idle time before the kernel probes the peer, and the interval of its probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Interval at which a socket of a link-local address compares the index of its link. The kernel binds it to the index, so
/// it hears nothing of a link that was made again. As long as a client takes for a few tries.
const LINK_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Connections after their handshake. Dropping it closes the sockets.
#[derive(Debug)]
pub struct Incoming {
    connection_rx: mpsc::Receiver<Connection>,
    _accepting: Vec<AbortOnDropHandle<()>>,
}

/// One encrypted connection.
#[derive(Debug)]
pub struct Connection {
    stream: TlsStream<TcpStream>,
    peer: Peer,
    /// DSCP set on the packets, if one was requested.
    marked: Option<u8>,
    probation: LoginGrace,
}

impl Incoming {
    /// Opens the sockets, as [`Listeners`] does, and accepts connections. Must run within the runtime.
    ///
    /// A socket is opened when there is a certificate to show. Changes of the profiles apply to new connections only.
    pub fn open(
        sockets: Vec<ListenSocket>,
        configs: &impl ServerConfigs,
        listeners: &Listeners,
    ) -> Self {
        let (connection_tx, connection_rx) = mpsc::channel(QUEUE_DEPTH);
        let limits = Arc::new(Limits::default());
        let accepting = sockets.into_iter().map(|wanted| {
            let task = AcceptTask {
                entry: listeners.add(ListenerKind::Grpc, wanted.address.to_string()),
                wanted,
                configs: configs.clone(),
                connection_tx: connection_tx.clone(),
                limits: limits.clone(),
                connections: listeners.connections().clone(),
            };
            AbortOnDropHandle::new(tokio::spawn(task.run()))
        });
        Self { _accepting: accepting.collect(), connection_rx }
    }
}

/// Binds a socket. On a kernel without IPv6, IPv4 serves instead where the socket takes both.
fn bind_or_fall_back(wanted: &ListenSocket) -> io::Result<TcpListener> {
    bind(wanted.address.resolve()?, wanted.only_v6).or_else(|error| {
        let errno = error.raw_os_error().map(Errno::from_raw);
        let no_v6 = matches!(errno, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL));
        match wanted.without_v6() {
            Some(v4) if no_v6 => bind(v4, false),
            _ => Err(error),
        }
    })
}

/// Binds an address, which need not be on the box yet: the stored configuration may bring it later than the agent gets
/// here, and a port may lose it and get it back.
fn bind(address: SocketAddr, only_v6: bool) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?; // a restart must not wait for connections in TIME_WAIT
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?; // whatever the sysctl says
        socket.set_freebind_v6(true)?;
    } else {
        socket.set_freebind_v4(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

/// The TLS settings of the server, and the count of its connections.
pub trait ServerConfigs: Clone + Send + Sync + 'static {
    /// Settings for the next handshake.
    ///
    /// # Errors
    /// With the reason for which there is no certificate to show.
    fn server_config(&self) -> Result<Arc<rustls::ServerConfig>, TlsError>;

    /// Counts a connection whose handshake succeeded.
    fn accepted(&self);

    /// Counts a connection that was refused, or whose handshake failed.
    fn rejected(&self);
}

/// Loop of one listening socket.
struct AcceptTask<C> {
    entry: ListenerEntry,
    wanted: ListenSocket,
    configs: C,
    connection_tx: mpsc::Sender<Connection>,
    limits: Arc<Limits>,
    connections: OpenConnections,
}

impl<C: ServerConfigs> AcceptTask<C> {
    async fn run(self) {
        loop {
            let socket = self.entry.open(|| self.open()).await;
            let link = self.wanted.address.link_index().ok();
            tokio::select! {
                () = self.accept(&socket) => {}
                () = self.link_changed(link) => {}
            }
        }
    }

    fn open(&self) -> Result<TcpListener, TlsError> {
        self.configs.server_config()?;
        bind_or_fall_back(&self.wanted)
            .map_err(|source| TlsError::Listen { address: self.wanted.address.to_string(), source })
    }

    /// Waits until the link of the address is another one than `bound`, or is gone.
    async fn link_changed(&self, bound: Option<Option<u32>>) {
        if bound == Some(None) {
            return std::future::pending().await; // an address without a link
        }
        loop {
            sleep(LINK_CHECK_INTERVAL).await;
            if self.wanted.address.link_index().ok() != bound {
                return;
            }
        }
    }

    /// Accepts connections, without end.
    async fn accept(&self, socket: &TcpListener) {
        loop {
            let (stream, address) = match socket.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(probation) = self.limits.admit(address.ip()) else {
                debug!(peer = %address, "connection refused: too many are open");
                self.configs.rejected();
                continue;
            };
            let configs = self.configs.clone();
            let connection_tx = self.connection_tx.clone();
            let connections = self.connections.clone();
            tokio::spawn(async move {
                match connect(&configs, stream, address, probation, &connections).await {
                    Ok(connection) => {
                        configs.accepted();
                        drop(connection_tx.send(connection).await); // fails only during shutdown
                    }
                    Err(error) => {
                        configs.rejected();
                        debug!(peer = %address, %error, "TLS handshake failed");
                    }
                }
            });
        }
    }
}

async fn connect(
    configs: &impl ServerConfigs,
    stream: TcpStream,
    address: SocketAddr,
    mut probation: LoginGrace,
    connections: &OpenConnections,
) -> io::Result<Connection> {
    let acceptor = TlsAcceptor::from(configs.server_config().map_err(io::Error::other)?);
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    let stream = tokio::select! {
        handshake = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => {
            handshake.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??
        }
        over = probation.over() => return Err(over),
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(PeerCertificate::of_chain);
    let certificate = certificate.map(Arc::new);
    let identified = probation.identified_flag();
    if certificate.is_some() {
        identified.set(); // the operator trusts the certificate's authority
    }
    let local = stream.get_ref().0.local_addr()?;
    let peer = Peer {
        address,
        local,
        calls: Arc::default(),
        certificate,
        verified_login: Arc::default(),
        identified,
        admin: connections.open(local.ip()),
        dscp: Dscp::default(),
    };
    Ok(Connection { stream, peer, marked: None, probation })
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.connection_rx.poll_recv(context).map(|connection| connection.map(Ok))
    }
}

impl Connection {
    /// Permits an I/O operation unless the connection has to end. Applies to reads and writes: an unidentified connection
    /// that does not read would otherwise hang in a write.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.probation.check(context).inspect_err(|over| {
            debug!(peer = %self.peer.address, %over, "connection closed: the caller was not identified");
        })
    }

    /// Sets the requested DSCP before the first packet is sent. The kernel keeps the two ECN bits.
    fn mark(&mut self) {
        let wished = self.peer.dscp.requested();
        if let (Some(dscp), true) = (wished, wished != self.marked) {
            self.marked = wished;
            let socket = SockRef::from(self.stream.get_ref().0);
            // An IPv6 socket may carry IPv4, and accepts both options.
            let v4 = socket.set_tos_v4(u32::from(dscp) << 2);
            let v6 = socket.set_tclass_v6(u32::from(dscp) << 2);
            if let (Err(error), Err(_)) = (v4, v6) {
                warn!(peer = %self.peer.address, dscp, %error, "cannot mark the packets of a connection");
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        self.mark();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        self.mark();
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
