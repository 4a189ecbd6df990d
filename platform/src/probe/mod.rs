//! Ping and traceroute: packets that ask whether, and by which way, an address is reached from the managed namespace.
//!
//! [`Probes`] opens the sockets, since they belong to the namespace in which they are made; then [`Ping`] and [`Trace`]
//! are asked for one answer after another. Whoever stops asking and drops them has stopped them: nothing goes on behind.
//!
//! Absent on purpose: names of hosts (the caller resolves them), and what protocols of clients say.

mod packet;
mod ping;
mod socket;
mod trace;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

pub use packet::{Outcome, Why};
pub use ping::{Echoed, Interval, MIN_INTERVAL, Ping, PingSettings, Summary};
use tokio::sync::oneshot;
pub use trace::{By, HopAnswer, PROBES_PER_HOP, Trace, TraceSettings};

use crate::netns::{Netns, NetnsError};

/// Whom to ask, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// An address of one host.
    pub destination: IpAddr,
    /// An address of this box, of the same family; the kernel chooses one otherwise.
    pub source: Option<IpAddr>,
    /// What does not fit is refused instead of being sent in pieces.
    pub do_not_fragment: bool,
}

/// Why nothing is asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// Nobody may be asked in its name.
    #[error("`{address}` is no address of this box")]
    Source {
        /// As it was given.
        address: IpAddr,
    },
    /// More octets than one packet on this way may have.
    #[error("{octets} octets do not get to `{destination}` in one piece")]
    TooLong {
        /// Octets behind the ICMP header.
        octets: usize,
        /// Whom was to be asked.
        destination: IpAddr,
    },
    /// The kernel does not send it.
    #[error("cannot send to `{destination}`")]
    Send {
        /// Whom was to be asked.
        destination: IpAddr,
        /// The reason.
        source: io::Error,
    },
    /// No socket.
    #[error("cannot open a socket that asks")]
    Open(#[source] io::Error),
}

/// Opens what asks, in the managed namespace; clones share it.
#[derive(Clone, Debug)]
pub struct Probes {
    netns: Arc<Netns>,
}

impl Probes {
    pub(crate) fn new(netns: Arc<Netns>) -> Self {
        Self { netns }
    }

    /// Those of the namespace that this process was started in.
    pub fn here() -> Self {
        Self { netns: Arc::default() }
    }

    /// Makes something in the namespace, on a thread that ends with it.
    async fn inside<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, ProbeError> + Send + 'static,
    ) -> Result<T, ProbeError> {
        let netns = Arc::clone(&self.netns);
        let (made_tx, made) = oneshot::channel();
        let thread = std::thread::Builder::new().name("probe".into()).spawn(move || {
            let result = netns.enter().map_err(ProbeError::from).and_then(|()| make());
            drop(made_tx.send(result)); // whoever asked may be gone
        });
        thread.map_err(ProbeError::Open)?;
        let vanished = |_| ProbeError::Open(io::Error::other("its thread panicked"));
        made.await.map_err(vanished)?
    }
}
