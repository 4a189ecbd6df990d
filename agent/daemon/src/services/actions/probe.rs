//! The builtin action `ping`: its parameters, and its result.

use std::net::IpAddr;
use std::time::Duration;

use holdfast_base::ErrorChain;
use holdfast_platform::probe::{
    DEFAULT_COUNT, DEFAULT_INTERVAL, DEFAULT_SIZE, DEFAULT_WAIT, Interval, MIN_INTERVAL,
    PingSettings, PingStatistics, ProbeError, Probes, Target,
};
use serde::Deserialize;
use serde_json::json;

/// Name of the action.
pub(super) const PING: &str = "ping";
/// The most packets of one ping: a probe tells whether a host answers, and must not be a load.
const MAX_COUNT: u32 = 1000;
/// The most bytes behind the ICMP header: what fits into one Ethernet frame of IPv6.
const MAX_SIZE: usize = 1452;

/// Parameters of a ping. Times are in seconds.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PingParameters {
    destination: IpAddr,
    source: Option<IpAddr>,
    count: Option<u32>,
    interval: Option<f64>,
    wait: Option<f64>,
    size: Option<usize>,
}

/// Probes a host. The result is a JSON object: packets `sent` and `received`, and, if there were replies, the round-trip
/// times `min`, `mean` and `max` in milliseconds.
///
/// # Errors
/// With the reason for which nothing was sent.
pub(super) async fn ping(probes: &Probes, params: &str) -> Result<String, String> {
    let settings = settings(params)?;
    let failed = |error: ProbeError| ErrorChain(&error).to_string();
    let mut ping = probes.ping(settings).await.map_err(failed)?;
    while ping.next().await.map_err(failed)?.is_some() {}
    Ok(result(&ping.summary()))
}

fn settings(params: &str) -> Result<PingSettings, String> {
    let params: PingParameters =
        serde_json::from_str(params).map_err(|error| format!("parameters of `ping`: {error}"))?;
    let PingParameters { destination, source, count, interval, wait, size } = params;
    if destination.is_multicast() || destination.is_unspecified() {
        return Err(format!("destination `{destination}` is not one host"));
    }
    let count = count.unwrap_or(DEFAULT_COUNT);
    if !(1..=MAX_COUNT).contains(&count) {
        return Err(format!("count {count}: a ping has 1 to {MAX_COUNT} packets"));
    }
    let size = size.unwrap_or(DEFAULT_SIZE);
    if size > MAX_SIZE {
        return Err(format!("size {size}: a packet has at most {MAX_SIZE} bytes"));
    }
    let interval = seconds("interval", interval)?.unwrap_or(DEFAULT_INTERVAL);
    if interval < MIN_INTERVAL {
        return Err(format!("interval: it is at least {MIN_INTERVAL:?}"));
    }
    Ok(PingSettings {
        target: Target { destination, source, link: None, do_not_fragment: false },
        count: Some(count),
        interval: Interval::Every(interval),
        wait: seconds("wait", wait)?.unwrap_or(DEFAULT_WAIT),
        size,
    })
}

fn seconds(name: &str, value: Option<f64>) -> Result<Option<Duration>, String> {
    let duration = value.map(Duration::try_from_secs_f64).transpose();
    duration.map_err(|error| format!("{name}: {error}"))
}

fn result(statistics: &PingStatistics) -> String {
    let PingStatistics { sent, received, shortest, mean, longest, .. } = statistics;
    let mut result = json!({ "sent": sent, "received": received });
    if *received > 0 {
        for (name, time) in [("min", shortest), ("mean", mean), ("max", longest)] {
            result[name] = json!(time.as_secs_f64() * 1000.0);
        }
    }
    result.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_with_defaults_and_refused_by_name() {
        let read = settings(r#"{"destination": "192.0.2.1", "interval": 0.2}"#).unwrap();
        assert_eq!(read.count, Some(DEFAULT_COUNT));
        assert_eq!(read.interval, Interval::Every(Duration::from_millis(200)));
        for (params, reason) in [
            ("{}", "missing field `destination`"),
            (r#"{"destination": "there"}"#, "invalid IP address"),
            (r#"{"destination": "192.0.2.1", "tos": 1}"#, "unknown field `tos`"),
            (r#"{"destination": "224.0.0.1"}"#, "not one host"),
            (r#"{"destination": "192.0.2.1", "count": 0}"#, "1 to 1000 packets"),
            (r#"{"destination": "192.0.2.1", "size": 9000}"#, "at most 1452 bytes"),
            (r#"{"destination": "192.0.2.1", "interval": 0}"#, "at least"),
            (r#"{"destination": "192.0.2.1", "wait": -1}"#, "wait"),
        ] {
            let refused = settings(params).unwrap_err();
            assert!(refused.contains(reason), "`{reason}` is not in {refused}");
        }
    }

    #[test]
    fn packages_are_checked_for_the_parameters_that_are_read() {
        for name in holdfast_services::outline::PING_PARAMETERS {
            let refused = settings(&format!(r#"{{"{name}": "x"}}"#)).unwrap_err();
            assert!(!refused.contains("unknown field"), "{refused}");
        }
        let all = settings(r#"{"x": 1}"#).unwrap_err();
        let named = all.matches('`').count() / 2 - 2;
        assert_eq!(named, holdfast_services::outline::PING_PARAMETERS.len(), "{all}");
    }

    #[test]
    fn round_trip_times_are_there_when_there_were_replies() {
        assert_eq!(result(&PingStatistics::default()), r#"{"received":0,"sent":0}"#);
        let mean = Duration::from_micros(1500);
        let statistics = PingStatistics { sent: 2, received: 1, mean, ..Default::default() };
        assert!(result(&statistics).contains(r#""mean":1.5"#));
    }
}
