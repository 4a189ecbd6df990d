//! Ping and traceroute from the managed namespace.
//!
//! [`Probes`] opens the sockets, which belong to the namespace in which they are created; [`Ping`], [`Echo`] and [`Trace`]
//! then return one answer at a time. Dropping them ends the probe, as nothing runs in the background.
//!
//! Absent on purpose: host names (the caller resolves them), and the messages of client protocols.

mod echo;
mod neighbor;
mod packet;
mod ping;
mod socket;
mod trace;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

pub use echo::Echo;
pub use packet::{ProbeOutcome, UnreachableReason};
pub use ping::{
    DEFAULT_COUNT, DEFAULT_INTERVAL, DEFAULT_SIZE, DEFAULT_WAIT, Interval, MIN_INTERVAL, Ping,
    PingReply, PingSettings, PingStatistics,
};
use smol_str::SmolStr;
pub use trace::{HopAnswer, PROBES_PER_HOP, Trace, TraceProtocol, TraceSettings};

use crate::netns::{Netns, NetnsError};

/// Bytes before an ICMP message: an IPv4 header with all its options.
const MAX_IP_HEADER: usize = 60;

/// Destination of probes, and how to send them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Address of one host.
    pub destination: IpAddr,
    /// Source: an address of this box, of the same family; `None` lets the kernel choose.
    pub source: Option<IpAddr>,
    /// Link that packets leave by, if there is a route by it; `None` for the one of the best route.
    pub link: Option<SmolStr>,
    /// Refuses packets that are too large, instead of fragmenting them.
    pub do_not_fragment: bool,
}

/// Reason why nothing was sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The source address is not one of this box.
    #[error("`{address}` is not an address of this box")]
    Source {
        /// As it was given.
        address: IpAddr,
    },
    /// The box has no such link.
    #[error("cannot send by `{link}`")]
    Link {
        /// As it was given.
        link: SmolStr,
        /// Error of the system call.
        source: io::Error,
    },
    /// The packet exceeds the MTU of the path.
    #[error(
        "a packet of {octets} bytes cannot reach `{destination}` unfragmented: send fewer bytes"
    )]
    TooLong {
        /// Bytes after the ICMP header.
        octets: usize,
        /// Destination of the probe.
        destination: IpAddr,
    },
    /// The kernel refused to send.
    #[error("cannot send to `{destination}`")]
    Send {
        /// Destination of the probe.
        destination: IpAddr,
        /// Error of the system call.
        source: io::Error,
    },
    /// No socket could be opened.
    #[error("cannot open a socket for probes")]
    Open(#[source] io::Error),
}

/// Factory for probes in the managed namespace; clones share the namespace.
#[derive(Clone, Debug)]
pub struct Probes {
    netns: Arc<Netns>,
}

impl Probes {
    pub(crate) fn new(netns: Arc<Netns>) -> Self {
        Self { netns }
    }

    /// Probes from the namespace in which this process was started.
    pub fn here() -> Self {
        Self { netns: Arc::default() }
    }

    /// Runs `make` in the namespace, on a thread that ends afterwards.
    async fn inside<T: Send + 'static>(
        &self,
        make: impl FnOnce() -> Result<T, ProbeError> + Send + 'static,
    ) -> Result<T, ProbeError> {
        self.netns.run("probe", make).await.map_err(ProbeError::Open)??
    }
}
