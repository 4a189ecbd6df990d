//! `holdfast ping` and `holdfast traceroute`: probes from the managed namespace, with a line for each answer.
//!
//! An answer is a stream of JSON documents, a line each, as the answers of the network come; the command prints them or
//! makes text of them. It ends with the probe, or when the command goes.

use std::convert::Infallible;
use std::fmt::Write as _;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures::StreamExt as _;
use holdfast_base::{Caller, ErrorChain};
use holdfast_platform::probe::{
    DEFAULT_WAIT, HopAnswer, Interval, MIN_INTERVAL, PROBES_PER_HOP, Ping, PingReply, PingSettings,
    PingStatistics, ProbeError, ProbeOutcome, Target, Trace, TraceProtocol, TraceSettings,
    UnreachableReason,
};
use holdfast_platform::values::Family;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::rights::{LookError, require_admin};
use crate::probing::{MAX_WAIT, ProbeService, ProbingError, TargetText, checked_size};
use crate::settings::{PingQuestion, ProbeTarget, TracePackets, TraceQuestion};

/// Address of pings; the body is a [`PingQuestion`].
pub(super) const PING: &str = "/probes/ping";
/// Address of traces; the body is a [`TraceQuestion`].
pub(super) const TRACE: &str = "/probes/traceroute";

/// Lines that may wait for the command; the next packet waits when there are more.
const LINES: usize = 64;

/// Routes of probes, for [`super::start`].
pub fn probe_routes(probes: ProbeService) -> Router {
    Router::new().route(PING, post(ping)).route(TRACE, post(trace)).with_state(probes)
}

impl From<ProbingError> for LookError {
    fn from(error: ProbingError) -> Self {
        let text = ErrorChain(&error).to_string();
        match error {
            ProbingError::Missing(_) => Self::Missing(text),
            _ => Self::Invalid(text),
        }
    }
}

async fn ping(
    State(probes): State<ProbeService>,
    Extension(caller): Extension<Caller>,
    Json(question): Json<PingQuestion>,
) -> Result<Response, LookError> {
    require_admin(&caller, "ping")?;
    let target = target(&question.target).await?;
    let settings = PingSettings {
        count: (question.count > 0).then_some(question.count),
        interval: Interval::Every(question.interval.max(MIN_INTERVAL)),
        wait: question.target.wait.unwrap_or(DEFAULT_WAIT).min(MAX_WAIT),
        size: checked_size(&target, question.size.into())?,
        target,
    };
    let turn = probes.turn()?;
    let heading = heading(&question.target, &settings.target, "size", question.size.into());
    let ping = probes.probes().ping(settings).await.map_err(ProbingError::from)?;
    let (lines, answer) = answer();
    tokio::spawn(async move {
        tokio::select! {
            () = lines.closed() => {}
            () = tell_pings(ping, heading, &lines) => {}
        }
        drop(turn);
    });
    Ok(answer)
}

async fn trace(
    State(probes): State<ProbeService>,
    Extension(caller): Extension<Caller>,
    Json(question): Json<TraceQuestion>,
) -> Result<Response, LookError> {
    require_admin(&caller, "traceroute")?;
    let target = target(&question.target).await?;
    let heading = heading(&question.target, &target, "hops", question.hops.into());
    let settings = TraceSettings {
        target,
        first: 1,
        last: question.hops,
        wait: question.target.wait.unwrap_or(DEFAULT_WAIT).min(MAX_WAIT),
        by: match question.protocol {
            TracePackets::Udp => TraceProtocol::Udp,
            TracePackets::Icmp => TraceProtocol::Icmp,
            TracePackets::Tcp => TraceProtocol::Tcp,
        },
    };
    let turn = probes.turn()?;
    let trace = probes.probes().trace(settings).await.map_err(ProbingError::from)?;
    let (lines, answer) = answer();
    tokio::spawn(async move {
        tokio::select! {
            () = lines.closed() => {}
            () = tell_hops(trace, heading, &lines) => {}
        }
        drop(turn);
    });
    Ok(answer)
}

async fn target(of: &ProbeTarget) -> Result<Target, ProbingError> {
    let source = of.source.map(|it| it.to_string()).unwrap_or_default();
    let family = match (of.ipv4, of.ipv6) {
        (true, _) => Some(Family::V4),
        (_, true) => Some(Family::V6),
        _ => None,
    };
    let destination = &of.destination;
    let do_not_fragment = of.do_not_fragment;
    TargetText { destination, source: &source, family, do_not_fragment }.resolved().await
}

type LineSender = mpsc::Sender<Value>;

/// A stream of lines, and the answer with it.
fn answer() -> (LineSender, Response) {
    let (lines, lines_rx) = mpsc::channel::<Value>(LINES);
    let lines_rx = ReceiverStream::new(lines_rx);
    let octets = lines_rx.map(|document| Ok::<_, Infallible>(format!("{document}\n")));
    (lines, Body::from_stream(octets).into_response())
}

/// Tells the answers of a ping, and its end.
async fn tell_pings(mut ping: Ping, heading: Value, lines: &LineSender) {
    let mut sent = lines.send(heading).await;
    while sent.is_ok() {
        let (document, is_last) = match ping.next().await {
            Ok(Some(reply)) => (reply_document(&reply), false),
            Ok(None) => (summary_document(&ping.summary()), true),
            Err(error) => (error_document(&error), true),
        };
        sent = lines.send(document).await;
        if is_last {
            return;
        }
    }
}

async fn tell_hops(mut trace: Trace, heading: Value, lines: &LineSender) {
    let mut sent = lines.send(heading).await;
    while sent.is_ok() {
        let document = match trace.next().await {
            Ok(Some(answer)) => hop_document(&answer),
            Ok(None) => return,
            Err(error) => {
                let _client_is_gone = lines.send(error_document(&error)).await;
                return;
            }
        };
        sent = lines.send(document).await;
    }
}

fn heading(asked: &ProbeTarget, target: &Target, name: &str, number: u64) -> Value {
    let mut to = json!({ "destination": asked.destination, "address": target.destination });
    to[name] = number.into();
    json!({ "to": to })
}

fn reply_document(reply: &PingReply) -> Value {
    json!({ "reply": {
        "from": reply.from,
        "octets": reply.octets,
        "sequence": reply.sequence,
        "ttl": reply.hops_left,
        "time-ns": nanos(reply.time),
    } })
}

fn summary_document(summary: &PingStatistics) -> Value {
    json!({ "summary": {
        "sent": summary.sent,
        "received": summary.received,
        "elapsed-ns": nanos(summary.elapsed),
        "least-ns": nanos(summary.shortest),
        "mean-ns": nanos(summary.mean),
        "most-ns": nanos(summary.longest),
        "deviation-ns": nanos(summary.deviation),
    } })
}

fn hop_document(answer: &HopAnswer) -> Value {
    let (outcome, reason) = match answer.outcome {
        ProbeOutcome::Expired => ("expired", None),
        ProbeOutcome::Reached => ("reached", None),
        ProbeOutcome::NoAnswer => ("no-answer", None),
        ProbeOutcome::Unreachable(reason) => ("unreachable", Some(reason_text(reason))),
    };
    json!({ "hop": {
        "number": answer.hop,
        "from": answer.from,
        "time-ns": nanos(answer.time),
        "outcome": outcome,
        "reason": reason,
    } })
}

fn reason_text(reason: UnreachableReason) -> &'static str {
    match reason {
        UnreachableReason::Network => "no way to the network",
        UnreachableReason::Host => "no way to the host",
        UnreachableReason::Protocol => "the host does not know the protocol",
        UnreachableReason::SourceRoute => "the source route failed",
        UnreachableReason::TooLong => "the packet is too long",
        UnreachableReason::Prohibited => "prohibited",
        UnreachableReason::PrecedenceViolation => "its precedence is too high",
        UnreachableReason::PrecedenceCutoff => "its precedence is too low",
        UnreachableReason::Other => "unreachable",
    }
}

fn error_document(error: &ProbeError) -> Value {
    json!({ "error": ErrorChain(error).to_string() })
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Text of the lines of a probe, as they come.
#[derive(Debug, Default)]
pub struct ProbeText {
    /// Hop of the line that is being written, and how many of its answers are in it.
    hop: Option<u64>,
    answers: u16,
    /// Sender of the last answer in that line.
    from: String,
    /// True once something has answered.
    is_answered: bool,
    /// Reason for which the probe ended early.
    error: Option<String>,
}

impl ProbeText {
    /// Text of the next line of an answer. A line of a trace grows with each probe of its hop.
    pub fn next(&mut self, line: &str) -> String {
        let document: Value = serde_json::from_str(line).unwrap_or(Value::Null);
        let part = |name: &str| document.get(name).filter(|it| !it.is_null());
        if let Some(error) = part("error").and_then(Value::as_str) {
            self.error = Some(error.to_owned());
            return self.line_end();
        }
        if let Some(to) = part("to") {
            return heading_text(to);
        }
        if let Some(reply) = part("reply") {
            self.is_answered = true;
            return reply_text(reply);
        }
        if let Some(summary) = part("summary") {
            return summary_text(summary);
        }
        part("hop").map(|hop| self.hop_text(hop)).unwrap_or_default()
    }

    /// The rest that is to be printed, and how the probe ended.
    pub fn end(mut self) -> (String, ProbeEnd) {
        let text = self.line_end();
        let end = match self.error.take() {
            Some(error) => ProbeEnd::Failed(error),
            None if self.is_answered => ProbeEnd::Answered,
            None => ProbeEnd::Silent,
        };
        (text, end)
    }

    fn line_end(&mut self) -> String {
        if self.hop.take().is_some() { "\n".to_owned() } else { String::new() }
    }

    fn hop_text(&mut self, hop: &Value) -> String {
        let number = hop["number"].as_u64();
        let mut text = String::new();
        if self.hop != number {
            text += &self.line_end();
            self.hop = number;
            self.answers = 0;
            self.from.clear();
            let _never_fails = write!(text, "{:>3}", number.unwrap_or_default());
        }
        match hop["from"].as_str() {
            None => text += "  *",
            Some(from) => {
                self.is_answered = true;
                if from != self.from {
                    let _never_fails = write!(text, "  {from}");
                    self.from = from.to_owned();
                }
                let _never_fails = write!(text, "  {} ms", millis(&hop["time-ns"]));
            }
        }
        if let Some(reason) = hop["reason"].as_str() {
            let _never_fails = write!(text, " ({reason})");
        }
        self.answers += 1;
        if self.answers == PROBES_PER_HOP {
            text += &self.line_end();
        }
        text
    }
}

/// End of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeEnd {
    Answered,
    /// Nothing answered.
    Silent,
    Failed(String),
}

fn heading_text(to: &Value) -> String {
    let word = |name: &str| to[name].as_str().unwrap_or_default();
    let destination = word("destination");
    let address = word("address");
    let name = if destination == address { String::new() } else { format!("{destination}, ") };
    match (to["size"].as_u64(), to["hops"].as_u64()) {
        (Some(size), _) => format!("ping {name}{address}, {size} bytes\n"),
        (_, hops) => {
            format!("traceroute {name}{address}, at most {} hops\n", hops.unwrap_or_default())
        }
    }
}

fn reply_text(reply: &Value) -> String {
    let number = |name: &str| reply[name].as_u64().unwrap_or_default();
    let ttl = reply["ttl"].as_u64().map(|ttl| format!(", ttl {ttl}")).unwrap_or_default();
    let from = reply["from"].as_str().unwrap_or_default();
    let octets = number("octets");
    let sequence = number("sequence");
    let time = millis(&reply["time-ns"]);
    format!("{octets} bytes from {from}: sequence {sequence}{ttl}, {time} ms\n")
}

fn summary_text(summary: &Value) -> String {
    let number = |name: &str| summary[name].as_u64().unwrap_or_default();
    let sent = number("sent");
    let received = number("received");
    let lost = sent.saturating_sub(received);
    let percent = (lost * 100).checked_div(sent).unwrap_or_default();
    let mut text = format!("{sent} sent, {received} received, {percent} % lost\n");
    if received > 0 {
        let [least, mean, most, deviation] =
            ["least-ns", "mean-ns", "most-ns", "deviation-ns"].map(|name| millis(&summary[name]));
        let _never_fails = writeln!(
            text,
            "round trip: least {least} ms, mean {mean} ms, most {most} ms, deviation {deviation} ms"
        );
    }
    text
}

/// Milliseconds with three digits behind the point.
fn millis(nanos: &Value) -> String {
    let micros = nanos.as_u64().unwrap_or_default() / 1000;
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Value]) -> (String, ProbeEnd) {
        let mut all = ProbeText::default();
        let text: String = lines.iter().map(|line| all.next(&line.to_string())).collect();
        let (rest, end) = all.end();
        (text + &rest, end)
    }

    #[test]
    fn a_ping_is_a_line_for_each_reply_and_a_summary() {
        let to = json!({ "to": { "destination": "r2", "address": "192.0.2.2", "size": 56 } });
        let reply = json!({ "reply": { "from": "192.0.2.2", "octets": 64, "sequence": 1, "ttl": 63,
            "time-ns": 1_234_567 } });
        let summary = |received: u64| {
            json!({ "summary": { "sent": 3, "received": received, "least-ns": 1_000_000,
                "mean-ns": 2_000_000, "most-ns": 3_000_000, "deviation-ns": 500_000 } })
        };
        let want = "ping r2, 192.0.2.2, 56 bytes
64 bytes from 192.0.2.2: sequence 1, ttl 63, 1.234 ms
3 sent, 1 received, 66 % lost
round trip: least 1.000 ms, mean 2.000 ms, most 3.000 ms, deviation 0.500 ms
";
        let answered = texts(&[to, reply, summary(1)]);
        assert_eq!(answered, (want.to_owned(), ProbeEnd::Answered));
        let silent = texts(&[summary(0)]);
        assert_eq!(silent, ("3 sent, 0 received, 100 % lost\n".to_owned(), ProbeEnd::Silent));
    }

    #[test]
    fn a_trace_is_a_line_for_each_hop() {
        let hop = |number: u8, from: Option<&str>, reason: Option<&str>| json!({ "hop": { "number": number, "from": from, "time-ns": 500_000, "reason": reason } });
        let near = Some("192.0.2.2");
        let far = Some("198.51.100.2");
        let lines = [
            json!({ "to": { "destination": "192.0.2.9", "address": "192.0.2.9", "hops": 30 } }),
            hop(1, near, None),
            hop(1, near, None),
            hop(1, None, None),
            hop(2, near, None),
            hop(2, far, Some("prohibited")),
            json!({ "error": "cannot send" }),
        ];
        let want = "traceroute 192.0.2.9, at most 30 hops
  1  192.0.2.2  0.500 ms  0.500 ms  *
  2  192.0.2.2  0.500 ms  198.51.100.2  0.500 ms (prohibited)
";
        assert_eq!(texts(&lines), (want.to_owned(), ProbeEnd::Failed("cannot send".to_owned())));
    }
}
