//! Traceroute: probes with a hop limit that grows by one each time.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use etherparse::ip_number;
use socket2::{Domain, Socket, Type};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::packet::{self, ECHO_HEADER, ProbeId, ProbeOutcome};
use super::socket::{IcmpSocket, ReceivedMessage, bind, prepare, require_route, set_hop_limit};
use super::{ProbeError, Probes, Target};

/// Probes for each hop: routers limit their answers, and there may be several paths.
pub const PROBES_PER_HOP: u16 = 3;
/// Bytes of a probe after its transport header of eight.
const PAYLOAD: usize = 32;
/// First destination port of UDP probes; traceroute's traditional choice, since nothing listens there.
const UDP_PORT: u16 = 33_434;
/// Destination port of TCP probes: firewalls permit it more often than others.
const TCP_PORT: u16 = 80;
/// Longest message of interest: an IP header, an ICMP header, and the part that routers quote (RFC 4884).
const MAX_MESSAGE: usize = 1_280;

/// Protocol of the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceProtocol {
    /// Echo requests.
    Icmp,
    /// Datagrams to closed ports.
    Udp,
    /// TCP connection attempts to port 80.
    Tcp,
}

/// Parameters of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceSettings {
    /// Destination and source.
    pub target: Target,
    /// Hop limit of the first probes, counted from 1.
    pub first: u8,
    /// Hop limit of the last probes.
    pub last: u8,
    /// Time to wait for an answer.
    pub wait: Duration,
    /// Protocol of the probes.
    pub by: TraceProtocol,
}

/// Result of one probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopAnswer {
    /// Hop limit of the probe.
    pub hop: u8,
    /// Sender of the answer; `None` without an answer.
    pub from: Option<IpAddr>,
    /// Time to the answer.
    pub time: Duration,
    /// Meaning of the answer.
    pub outcome: ProbeOutcome,
    /// The ICMP code of the answer.
    pub code: u8,
}

/// A trace in progress.
#[derive(Debug)]
pub struct Trace {
    probes: Probes,
    settings: TraceSettings,
    icmp: IcmpSocket,
    /// Socket for UDP probes.
    udp: Option<UdpSocket>,
    /// Connection attempts of TCP probes, which end when the destination itself answers.
    connections: JoinSet<ConnectResult>,
    identifier: u16,
    /// Hop limit of the current probes; before the first, one less.
    hop: u8,
    sent: u16,
    waiting: Vec<(ProbeId, Instant)>,
    deadline: Instant,
    /// The destination was reached, or is unreachable: no higher hop limit is needed.
    arrived: bool,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct ConnectResult {
    mark: ProbeId,
    answered: bool,
    at: Instant,
}

impl TraceSettings {
    /// Bytes of a probe with its IP header; `None` for TCP, where the kernel builds the packet.
    pub fn packet_size(&self) -> Option<usize> {
        let ip = if self.target.destination.is_ipv4() { 20 } else { 40 };
        (self.by != TraceProtocol::Tcp).then_some(ip + ECHO_HEADER + PAYLOAD)
    }
}

impl Probes {
    /// Starts a trace.
    ///
    /// # Errors
    /// When the source is not an address of this box, or there is no route to the destination.
    pub async fn trace(&self, settings: TraceSettings) -> Result<Trace, ProbeError> {
        let target = settings.target.clone();
        let by = settings.by;
        let opened = self.inside(move || {
            require_route(&target)?;
            let udp =
                (by == TraceProtocol::Udp).then(|| sender(&target, Type::DGRAM)).transpose()?;
            Ok((IcmpSocket::open(&target)?, udp))
        });
        let (icmp, udp) = opened.await?;
        let udp = udp.map(|socket| UdpSocket::from_std(socket.into())).transpose();
        Ok(Trace {
            probes: self.clone(),
            icmp: icmp.watched()?,
            udp: udp.map_err(ProbeError::Open)?,
            connections: JoinSet::new(),
            identifier: rand::random(),
            hop: settings.first - 1,
            sent: 0,
            waiting: Vec::new(),
            deadline: Instant::now(),
            arrived: false,
            buffer: vec![0; MAX_MESSAGE],
            settings,
        })
    }
}

impl Trace {
    /// Waits for the result of the next probe; `None` after the destination has answered or the last hop was
    /// tried.
    ///
    /// # Errors
    /// When the kernel cannot send a probe.
    pub async fn next(&mut self) -> Result<Option<HopAnswer>, ProbeError> {
        loop {
            if self.waiting.is_empty() && !self.send_next_hop().await? {
                return Ok(None);
            }
            let answer = tokio::select! {
                received = self.icmp.receive(&mut self.buffer) => {
                    received.ok().and_then(|received| self.take(&received))
                }
                Some(connected) = self.connections.join_next() => {
                    connected.ok().and_then(|connected| self.match_connection(&connected))
                }
                () = sleep_until(self.deadline) => self.expire_probe(),
            };
            if answer.is_some() {
                return Ok(answer);
            }
        }
    }

    /// Sends the probes of the next hop; false when there is none.
    async fn send_next_hop(&mut self) -> Result<bool, ProbeError> {
        if self.arrived || self.hop == self.settings.last {
            return Ok(false);
        }
        self.hop += 1;
        self.connections.abort_all();
        for _ in 0..PROBES_PER_HOP {
            let mark = self.send().await?;
            self.waiting.push((mark, Instant::now()));
            self.sent += 1;
        }
        self.deadline = Instant::now() + self.settings.wait;
        Ok(true)
    }

    async fn send(&mut self) -> Result<ProbeId, ProbeError> {
        let to = self.settings.target.destination;
        let unsent = |error| ProbeError::send_failed(to, PAYLOAD, error);
        match self.settings.by {
            TraceProtocol::Icmp => {
                let identifier = self.identifier;
                let sequence = self.sent + 1;
                self.icmp.set_hop_limit(self.hop).map_err(unsent)?;
                let message = packet::echo(to, identifier, sequence, &[0; PAYLOAD]);
                self.icmp.send_to(&message, to).map_err(unsent)?;
                Ok(ProbeId::Echo { identifier, sequence })
            }
            TraceProtocol::Udp => {
                let socket = self.udp.as_ref().expect("it is opened for such a trace");
                let port = UDP_PORT + self.sent;
                let is_v4 = to.is_ipv4();
                set_hop_limit(&socket2::SockRef::from(socket), is_v4, self.hop).map_err(unsent)?;
                socket.send_to(&[0; PAYLOAD], (to, port)).await.map_err(unsent)?;
                let from = socket.local_addr().map_err(unsent)?.port();
                Ok(ProbeId::Ports { protocol: ip_number::UDP.0, from, to: port })
            }
            TraceProtocol::Tcp => self.connect().await,
        }
    }

    /// Starts a TCP probe on a socket of its own: the kernel sends the packet and handles the destination's
    /// answer.
    async fn connect(&mut self) -> Result<ProbeId, ProbeError> {
        let target = self.settings.target.clone();
        let hops = self.hop;
        let socket = self.probes.inside(move || {
            let socket = sender(&target, Type::STREAM)?;
            let limited = set_hop_limit(&socket, target.destination.is_ipv4(), hops);
            limited.map(|()| socket).map_err(ProbeError::Open)
        });
        let socket = TcpSocket::from_std_stream(socket.await?.into());
        let from = socket.local_addr().map_err(ProbeError::Open)?.port();
        let mark = ProbeId::Ports { protocol: ip_number::TCP.0, from, to: TCP_PORT };
        let to = SocketAddr::new(self.settings.target.destination, TCP_PORT);
        self.connections.spawn(async move {
            let answered = match socket.connect(to).await {
                Ok(_) => true,
                // Any other result comes from a router, and is received as ICMP.
                Err(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
            };
            ConnectResult { mark, answered, at: Instant::now() }
        });
        Ok(mark)
    }

    fn take(&mut self, received: &ReceivedMessage) -> Option<HopAnswer> {
        let answer = received.icmp_answer(&self.buffer)?;
        let mark = answer.mark;
        let outcome = answer.outcome;
        let code = answer.code;
        let destination = self.settings.target.destination;
        if answer.about.unwrap_or(received.from) != destination {
            return None;
        }
        let sent = self.take_sent_time(mark)?;
        self.arrived |= outcome != ProbeOutcome::Expired;
        let time = sent.elapsed();
        Some(HopAnswer { hop: self.hop, from: Some(received.from), time, outcome, code })
    }

    fn match_connection(&mut self, connected: &ConnectResult) -> Option<HopAnswer> {
        if !connected.answered {
            return None;
        }
        let sent = self.take_sent_time(connected.mark)?;
        self.arrived = true;
        let time = connected.at - sent;
        let from = Some(self.settings.target.destination);
        Some(HopAnswer { hop: self.hop, from, time, outcome: ProbeOutcome::Reached, code: 0 })
    }

    /// Removes a probe from those waited for; returns when it was sent.
    fn take_sent_time(&mut self, mark: ProbeId) -> Option<Instant> {
        let at = self.waiting.iter().position(|(waiting, _)| *waiting == mark)?;
        Some(self.waiting.remove(at).1)
    }

    fn expire_probe(&mut self) -> Option<HopAnswer> {
        self.waiting.pop()?;
        let time = Duration::ZERO;
        let outcome = ProbeOutcome::NoAnswer;
        Some(HopAnswer { hop: self.hop, from: None, time, outcome, code: 0 })
    }
}

/// Opens a socket for TCP or UDP probes in the namespace of the calling thread.
fn sender(target: &Target, kind: Type) -> Result<Socket, ProbeError> {
    let domain = if target.destination.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, kind, None).map_err(ProbeError::Open)?;
    prepare(&socket, target)?;
    bind(&socket, target)?;
    Ok(socket)
}
