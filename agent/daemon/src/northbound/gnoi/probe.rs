//! Ping and Traceroute: requests translated for [`Probes`], and its answers as they arrive.
//!
//! Both send traffic in the name of the box, so both need the role admin. The probe ends when the client closes the
//! stream, and slows down when the client reads slowly.

use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use futures::Stream;
use holdfast_base::ErrorChain;
use holdfast_platform::objects::DEFAULT_INSTANCE;
use holdfast_platform::probe::{
    DEFAULT_COUNT, DEFAULT_INTERVAL, DEFAULT_SIZE, DEFAULT_WAIT, HopAnswer, Interval, MIN_INTERVAL,
    PingReply, PingSettings, PingStatistics, ProbeError, ProbeOutcome, Target, Trace,
    TraceProtocol, TraceSettings, UnreachableReason,
};
use holdfast_platform::values::Family;
use holdfast_proto::gnoi::system::traceroute_request::L4Protocol;
use holdfast_proto::gnoi::system::traceroute_response::State;
use holdfast_proto::gnoi::system::{
    PingRequest, PingResponse, TracerouteRequest, TracerouteResponse,
};
use holdfast_proto::gnoi::types::L3Protocol;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::northbound::status::Refusal;
use crate::probing::{HOPS, MAX_WAIT, ProbeService, ProbingError, TargetText, checked_size};

/// Answers that may wait for the client; the next packet waits when there are more.
const ANSWERS: usize = 64;
pub(in crate::northbound) type AnswerStream<T> =
    Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Calls of Ping and Traceroute.
#[derive(Debug)]
pub(super) struct ProbeCalls(ProbeService);

impl ProbeCalls {
    pub(super) fn new(prober: ProbeService) -> Self {
        Self(prober)
    }

    pub(super) async fn ping(
        &self,
        request: PingRequest,
    ) -> Result<AnswerStream<PingResponse>, Refusal> {
        let settings = ping_settings(&request).await?;
        let destination = settings.target.destination;
        let turn = self.0.turn()?;
        let mut ping = self.0.probes().ping(settings).await?;
        Ok(stream(turn, |answers| async move {
            while let Some(echoed) = ping.next().await? {
                if answers.send(Ok(answer(echoed))).await.is_err() {
                    return Ok(());
                }
            }
            let _client_is_gone = answers.send(Ok(summary(destination, ping.summary()))).await;
            Ok(())
        }))
    }

    pub(super) async fn trace(
        &self,
        request: TracerouteRequest,
    ) -> Result<AnswerStream<TracerouteResponse>, Refusal> {
        let settings = trace_settings(&request).await?;
        let first = introduction(&request, &settings);
        let turn = self.0.turn()?;
        let trace = self.0.probes().trace(settings).await?;
        Ok(stream(turn, |answers| send_hops(trace, first, answers)))
    }
}

type AnswerSender<T> = mpsc::Sender<Result<T, Status>>;

async fn send_hops(
    mut trace: Trace,
    first: TracerouteResponse,
    answers: AnswerSender<TracerouteResponse>,
) -> Result<(), ProbeError> {
    let mut sent = answers.send(Ok(first)).await;
    while sent.is_ok()
        && let Some(answer) = trace.next().await?
    {
        sent = answers.send(Ok(hop(answer))).await;
    }
    Ok(())
}

/// Starts a task that sends answers, and returns their stream. The task ends when the stream is dropped.
fn stream<T, F>(
    turn: OwnedSemaphorePermit,
    tell: impl FnOnce(AnswerSender<T>) -> F,
) -> AnswerStream<T>
where
    T: Send + 'static,
    F: Future<Output = Result<(), ProbeError>> + Send + 'static,
{
    let (answers, answers_rx) = mpsc::channel(ANSWERS);
    let telling = tell(answers.clone());
    tokio::spawn(async move {
        tokio::select! {
            () = answers.closed() => {}
            ended = telling => if let Err(error) = ended {
                let _client_is_gone = answers.send(Err(Refusal::from(error).into())).await;
            },
        }
        drop(turn);
    });
    Box::pin(ReceiverStream::new(answers_rx))
}

async fn ping_settings(request: &PingRequest) -> Result<PingSettings, Refusal> {
    only_default(&request.network_instance)?;
    let count = match request.count {
        -1 => None,
        0 => Some(DEFAULT_COUNT),
        count => Some(at_least_one(count, "count")?),
    };
    let interval = match request.interval {
        -1 => Interval::Flood,
        0 => Interval::Every(DEFAULT_INTERVAL),
        nanos => {
            let gap = u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| {
                Refusal::invalid(format!(
                    "interval {nanos} is out of range: give nanoseconds, 0 for the default, or -1 for a flood"
                ))
            })?;
            Interval::Every(gap.max(MIN_INTERVAL))
        }
    };
    let wait = wait(request.wait)?;
    let family = request.l3protocol;
    let target =
        target(&request.destination, &request.source, family, request.do_not_fragment).await?;
    let size = match request.size {
        0 => DEFAULT_SIZE,
        size => checked_size(&target, size.into())?,
    };
    Ok(PingSettings { target, count, interval, wait, size })
}

async fn trace_settings(request: &TracerouteRequest) -> Result<TraceSettings, Refusal> {
    only_default(&request.network_instance)?;
    let hops = |field, value: i64| {
        let hops = u8::try_from(value).ok().filter(|hops| *hops > 0);
        hops.ok_or_else(|| {
            Refusal::invalid(format!("{field} {value} is out of range: give 1 to 255 hops"))
        })
    };
    let last = match request.max_ttl {
        -1 => u8::MAX,
        0 => HOPS,
        last => hops("max_ttl", last.into())?,
    };
    let first = hops("initial_ttl", request.initial_ttl.max(1).into())?;
    if first > last {
        return Err(Refusal::invalid(format!(
            "initial_ttl {first} is greater than max_ttl {last}"
        )));
    }
    let by = match L4Protocol::try_from(request.l4protocol) {
        Ok(L4Protocol::Icmp) => TraceProtocol::Icmp,
        Ok(L4Protocol::Udp) => TraceProtocol::Udp,
        Ok(L4Protocol::Tcp) => TraceProtocol::Tcp,
        Err(_) => {
            let number = request.l4protocol;
            return Err(Refusal::invalid(format!(
                "l4protocol {number} is unknown: use ICMP, TCP or UDP"
            )));
        }
    };
    let wait = wait(request.wait)?;
    let family = request.l3protocol;
    let target =
        target(&request.destination, &request.source, family, request.do_not_fragment).await?;
    Ok(TraceSettings { target, first, last, wait, by })
}

fn at_least_one(value: i32, field: &str) -> Result<u32, Refusal> {
    let number = u32::try_from(value).ok().filter(|number| *number > 0);
    number.ok_or_else(|| {
        Refusal::invalid(format!("{field} {value} is out of range: give 1 or more, 0, or -1"))
    })
}

fn wait(nanos: i64) -> Result<Duration, Refusal> {
    let wait = match u64::try_from(nanos) {
        Ok(0) => Some(DEFAULT_WAIT),
        Ok(nanos) => Some(Duration::from_nanos(nanos)),
        Err(_) => None,
    };
    wait.filter(|wait| *wait <= MAX_WAIT).ok_or_else(|| {
        Refusal::invalid(format!(
            "wait {nanos} is out of range: give nanoseconds, {MAX_WAIT:?} at most"
        ))
    })
}

fn only_default(instance: &str) -> Result<(), Refusal> {
    match instance {
        "" | DEFAULT_INSTANCE => Ok(()),
        other => Err(Refusal::missing(format!(
            "there is no network instance `{other}`, only `{DEFAULT_INSTANCE}`"
        ))),
    }
}

async fn target(
    destination: &str,
    source: &str,
    family: i32,
    do_not_fragment: bool,
) -> Result<Target, Refusal> {
    let family = match L3Protocol::try_from(family) {
        Ok(L3Protocol::Unspecified) => None,
        Ok(L3Protocol::Ipv4) => Some(Family::V4),
        Ok(L3Protocol::Ipv6) => Some(Family::V6),
        Err(_) => {
            return Err(Refusal::invalid(format!(
                "l3protocol {family} is unknown: use IPV4 or IPV6"
            )));
        }
    };
    Ok(TargetText { destination, source, family, do_not_fragment }.resolved().await?)
}

/// The first message of a trace, with its target and limits. The others have none of these fields.
fn introduction(request: &TracerouteRequest, settings: &TraceSettings) -> TracerouteResponse {
    let address = settings.target.destination.to_string();
    let is_name = request.destination.parse::<IpAddr>().is_err();
    TracerouteResponse {
        destination_name: if is_name { request.destination.clone() } else { String::new() },
        destination_address: address,
        hops: settings.last.into(),
        packet_size: settings.packet_size().map_or(0, whole),
        ..Default::default()
    }
}

fn answer(echoed: PingReply) -> PingResponse {
    PingResponse {
        source: echoed.from.to_string(),
        time: nanos(echoed.time),
        bytes: whole(echoed.octets),
        sequence: whole(echoed.sequence),
        ttl: echoed.hops_left.unwrap_or_default().into(),
        ..Default::default()
    }
}

fn summary(destination: IpAddr, summary: PingStatistics) -> PingResponse {
    PingResponse {
        source: destination.to_string(),
        time: nanos(summary.elapsed),
        sent: whole(summary.sent),
        received: whole(summary.received),
        min_time: nanos(summary.shortest),
        avg_time: nanos(summary.mean),
        max_time: nanos(summary.longest),
        std_dev: nanos(summary.deviation),
        ..Default::default()
    }
}

fn hop(answer: HopAnswer) -> TracerouteResponse {
    TracerouteResponse {
        hop: answer.hop.into(),
        address: answer.from.map(|from| from.to_string()).unwrap_or_default(),
        rtt: nanos(answer.time),
        state: state(answer.outcome).into(),
        icmp_code: answer.code.into(),
        ..Default::default()
    }
}

fn state(outcome: ProbeOutcome) -> State {
    match outcome {
        ProbeOutcome::Expired | ProbeOutcome::Reached => State::Default,
        ProbeOutcome::NoAnswer => State::None,
        ProbeOutcome::Unreachable(why) => match why {
            UnreachableReason::Network => State::NetworkUnreachable,
            UnreachableReason::Host => State::HostUnreachable,
            UnreachableReason::Protocol => State::ProtocolUnreachable,
            UnreachableReason::SourceRoute => State::SourceRouteFailed,
            UnreachableReason::TooLong => State::FragmentationNeeded,
            UnreachableReason::Prohibited => State::Prohibited,
            UnreachableReason::PrecedenceViolation => State::PrecedenceViolation,
            UnreachableReason::PrecedenceCutoff => State::PrecedenceCutoff,
            UnreachableReason::Other => State::Icmp,
        },
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

fn whole(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

impl From<ProbingError> for Refusal {
    fn from(error: ProbingError) -> Self {
        match error {
            ProbingError::Invalid(text) => Self::invalid(text),
            ProbingError::Missing(text) => Self::missing(text),
            ProbingError::Exhausted => Self::exhausted(error.to_string()),
            ProbingError::Probe(error) => error.into(),
        }
    }
}

impl From<ProbeError> for Refusal {
    fn from(error: ProbeError) -> Self {
        let text = ErrorChain(&error).to_string();
        match error {
            ProbeError::Source { .. } | ProbeError::Link { .. } => Self::invalid(text),
            ProbeError::TooLong { .. } | ProbeError::Send { .. } => Self::precondition(text),
            _ => Self::internal(text),
        }
    }
}
