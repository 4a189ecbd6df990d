//! Pings and traces for those who ask over gRPC or at the box: what they may ask for, and how many run at once.
//!
//! Each probe holds sockets and sends in the name of the box, so both ways share one [`ProbeService`] and the same limits.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_platform::probe::{ProbeError, Probes, Target};
use holdfast_platform::values::Family;
use tokio::net::lookup_host;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Pings and traces at the same time: each holds sockets, and each sends.
const AT_ONCE: usize = 16;
/// The longest time to wait for an answer; a later one says nothing about the present network.
pub const MAX_WAIT: Duration = Duration::from_secs(60);
/// The most bytes behind the ICMP header: 65 535 less the headers of ICMP and, for IPv4, IP.
const MAX_SIZE_V4: usize = 65_507;
const MAX_SIZE_V6: usize = 65_527;
/// Default number of hops of a trace.
pub const HOPS: u8 = 30;

/// Reason for which nothing is probed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbingError {
    #[error("{0}")]
    Invalid(String),
    /// There is no such host.
    #[error("{0}")]
    Missing(String),
    #[error("{AT_ONCE} pings and traces are under way already: try again later")]
    Exhausted,
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

/// Probes of other hosts, and permits that limit how many run at once; clones share both.
#[derive(Clone, Debug)]
pub struct ProbeService {
    probes: Probes,
    permits: Arc<Semaphore>,
}

impl ProbeService {
    pub fn new(probes: Probes) -> Self {
        Self { probes, permits: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    pub fn probes(&self) -> &Probes {
        &self.probes
    }

    /// Permit for one probe, for as long as it is kept.
    ///
    /// # Errors
    /// When as many probes run as may.
    pub fn turn(&self) -> Result<OwnedSemaphorePermit, ProbingError> {
        let turn = Arc::clone(&self.permits).try_acquire_owned();
        turn.map_err(|_| ProbingError::Exhausted)
    }
}

/// Destination and source as somebody wrote them.
#[derive(Clone, Copy, Debug)]
pub struct TargetText<'t> {
    pub destination: &'t str,
    /// Empty for any address of the box.
    pub source: &'t str,
    /// `None` for any.
    pub family: Option<Family>,
    pub do_not_fragment: bool,
}

impl TargetText<'_> {
    /// Resolves the destination, with the resolver of the agent's own namespace, and checks the source.
    ///
    /// # Errors
    /// When there is no such host, or the source cannot reach it.
    pub async fn resolved(self) -> Result<Target, ProbingError> {
        let destination = resolve(self.destination, self.family).await?;
        let source = match self.source {
            "" => None,
            text => Some(text.parse::<IpAddr>().map_err(|_| {
                ProbingError::Invalid(format!("source `{text}`: an address of this box is needed"))
            })?),
        };
        if let Some(source) = source
            && source.is_ipv4() != destination.is_ipv4()
        {
            return Err(ProbingError::Invalid(format!(
                "source `{source}` cannot reach `{destination}`: they are of different families"
            )));
        }
        let do_not_fragment = self.do_not_fragment;
        Ok(Target { destination, source, link: None, do_not_fragment })
    }
}

/// Resolves one host to an address of the wanted family.
async fn resolve(text: &str, family: Option<Family>) -> Result<IpAddr, ProbingError> {
    let fits = |address: &IpAddr| family.is_none_or(|family| Family::of(*address) == family);
    if text.is_empty() {
        return Err(ProbingError::Invalid("destination is missing".to_owned()));
    }
    let address = match text.parse::<IpAddr>() {
        Ok(address) if fits(&address) => address,
        Ok(_) => {
            let family = if family == Some(Family::V4) { "IPV4" } else { "IPV6" };
            let text = format!("destination `{text}` is not an address of {family}");
            return Err(ProbingError::Invalid(text));
        }
        Err(_) => {
            let addresses = lookup_host((text, 0)).await;
            let mut addresses = addresses.into_iter().flatten().map(|address| address.ip());
            let missing = || format!("destination `{text}`: no address is found");
            addresses.find(fits).ok_or_else(|| ProbingError::Missing(missing()))?
        }
    };
    if address.is_multicast() || address.is_unspecified() {
        return Err(ProbingError::Invalid(format!("destination `{address}` is not one host")));
    }
    Ok(address)
}

/// Checks the bytes of a ping behind its header.
///
/// # Errors
/// When no packet to the destination has so many.
pub fn checked_size(target: &Target, size: i64) -> Result<usize, ProbingError> {
    let most = if target.destination.is_ipv4() { MAX_SIZE_V4 } else { MAX_SIZE_V6 };
    usize::try_from(size).ok().filter(|size| *size <= most).ok_or_else(|| {
        ProbingError::Invalid(format!(
            "size {size}: a packet has 0 to {most} bytes behind its header"
        ))
    })
}
