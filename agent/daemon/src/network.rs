//! Connections out of the box: TCP and TLS to servers, by one interface or any, in the managed namespace or in
//! that of the agent.

use std::{
    fmt, io,
    net::{SocketAddr, ToSocketAddrs},
    sync::Arc,
};

use holdfast_platform::netns::{Netns, NetnsError, NetnsSetting};
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpSocket, TcpStream},
};
use tokio_rustls::TlsConnector;

/// Reasons why a server cannot be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    #[error("cannot resolve `{name}`")]
    Resolve { name: String, source: io::Error },
    #[error("`{name}` has no address")]
    NoAddress { name: String },
    #[error("cannot send through interface `{interface}`")]
    Interface { interface: String, source: io::Error },
    #[error("cannot connect to {address}")]
    Tcp { address: SocketAddr, source: io::Error },
    #[error("cannot make a TLS connection to {address}")]
    Tls { address: SocketAddr, source: io::Error },
    #[error("cannot run a thread in the managed namespace")]
    Thread(#[source] io::Error),
    #[error(transparent)]
    Netns(#[from] NetnsError),
}

/// Conditions of a connection to a server.
pub struct ConnectOptions<'a> {
    /// Name that the server's certificate must have.
    pub name: ServerName<'static>,
    /// None for a connection without TLS.
    pub tls: Option<TlsConnector>,
    /// Interface to go out by; without one, the routing table decides.
    pub interface: Option<&'a str>,
}

impl fmt::Debug for ConnectOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, tls, interface } = self;
        let mut output = f.debug_struct("ConnectOptions");
        output.field("name", name).field("tls", &tls.is_some()).field("interface", interface);
        output.finish()
    }
}

/// Byte stream to and from a server.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// One network namespace.
#[derive(Clone, Debug)]
pub struct Network(Arc<Netns>);

impl Network {
    pub fn new(netns: Arc<Netns>) -> Self {
        Self(netns)
    }

    /// The namespace in which the agent was started.
    ///
    /// # Panics
    ///
    /// Never: the namespace of the process needs no file to be opened.
    pub fn machine() -> Self {
        let current = Netns::open(&NetnsSetting::Current);
        Self(Arc::new(current.expect("the current namespace is there")))
    }

    /// Connects to the first address of a host that accepts.
    ///
    /// # Errors
    ///
    /// The failure at the last address.
    pub async fn reach(
        &self,
        host: &str,
        port: u16,
        way: &ConnectOptions<'_>,
    ) -> Result<(Box<dyn Stream>, SocketAddr), NetworkError> {
        let mut last = NetworkError::NoAddress { name: host.to_owned() };
        for address in self.resolve(host, port).await? {
            match self.open(address, way).await {
                Ok(stream) => return Ok((stream, address)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn open(
        &self,
        address: SocketAddr,
        way: &ConnectOptions<'_>,
    ) -> Result<Box<dyn Stream>, NetworkError> {
        let stream = self.connect(address, way.interface).await?;
        let Some(tls) = &way.tls else { return Ok(Box::new(stream)) };
        let connected = tls.connect(way.name.clone(), stream).await;
        Ok(Box::new(connected.map_err(|source| NetworkError::Tls { address, source })?))
    }

    /// The addresses of a host, by the resolver of the machine.
    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, NetworkError> {
        let name = host.to_owned();
        let found = self.within(move || Ok((&*name, port).to_socket_addrs()?.collect())).await?;
        let found: Vec<_> =
            found.map_err(|source| NetworkError::Resolve { name: host.to_owned(), source })?;
        if found.is_empty() {
            Err(NetworkError::NoAddress { name: host.to_owned() })
        } else {
            Ok(found)
        }
    }

    /// Connects by this interface; without one, the routing table decides.
    async fn connect(
        &self,
        address: SocketAddr,
        interface: Option<&str>,
    ) -> Result<TcpStream, NetworkError> {
        let failed = |source| NetworkError::Tcp { address, source };
        let connection = self.within(move || match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        });
        let socket = connection.await?.map_err(failed)?;
        if let Some(interface) = interface {
            socket.bind_device(Some(interface.as_bytes())).map_err(|source| {
                NetworkError::Interface { interface: interface.to_owned(), source }
            })?;
        }
        socket.connect(address).await.map_err(failed)
    }

    /// Runs `work` on a thread in this namespace.
    async fn within<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<io::Result<T>, NetworkError> {
        Ok(self.0.run("bootz-socket", work).await.map_err(NetworkError::Thread)??)
    }
}
