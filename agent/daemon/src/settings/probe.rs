//! Arguments of `holdfast ping` and `holdfast traceroute`, and their form on the local socket.

use std::net::IpAddr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::StateDir;

/// Longest time between two packets, in seconds: an hour.
const LONGEST_PAUSE: f64 = 3_600.0;

/// Destination of probes, and how they are sent.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct ProbeTarget {
    /// Address of the host, or a name that the resolver of the box knows
    #[arg(value_name = "HOST|ADDRESS")]
    pub destination: String,
    /// Use IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Use IPv6 only
    #[arg(short = '6')]
    pub ipv6: bool,
    /// Address of this box from which packets are sent
    #[arg(long, short = 'S', value_name = "ADDRESS")]
    pub source: Option<IpAddr>,
    /// Refuse packets that are too large for the path, instead of fragmenting them
    #[arg(long, short = 'D')]
    pub do_not_fragment: bool,
    /// Longest time to wait for an answer
    #[arg(long, short = 'W', value_name = "SECONDS", value_parser = pause)]
    pub wait: Option<Duration>,
}

/// Content of a ping.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct PingQuestion {
    #[command(flatten)]
    pub target: ProbeTarget,
    /// Number of packets; with 0, send until interrupted
    #[arg(long, short, value_name = "PACKETS", default_value_t = 5)]
    pub count: u32,
    /// Time between packets
    #[arg(long, short, value_name = "SECONDS", value_parser = pause, default_value = "1")]
    pub interval: Duration,
    /// Bytes of each packet behind its ICMP header
    #[arg(long, short, value_name = "OCTETS", default_value_t = 56)]
    pub size: u16,
}

/// Content of a trace.
#[derive(Clone, Debug, Args, Serialize, Deserialize)]
pub struct TraceQuestion {
    #[command(flatten)]
    pub target: ProbeTarget,
    /// Largest number of hops
    #[arg(long, short = 'm', value_name = "HOPS", value_parser = clap::value_parser!(u8).range(1..), default_value = "30")]
    pub hops: u8,
    /// Kind of the packets
    #[arg(long, value_enum, default_value_t = TracePackets::Udp)]
    pub protocol: TracePackets,
}

/// Protocol of the packets of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum TracePackets {
    /// Datagrams to closed ports
    Udp,
    /// Echo requests
    Icmp,
    /// TCP connection attempts to port 80
    Tcp,
}

#[derive(Clone, Debug, Args)]
pub struct PingSettings {
    #[command(flatten)]
    pub state: StateDir,
    #[command(flatten)]
    pub question: PingQuestion,
    /// Print a JSON document for each line
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Args)]
pub struct TraceSettings {
    #[command(flatten)]
    pub state: StateDir,
    #[command(flatten)]
    pub question: TraceQuestion,
    /// Print a JSON document for each line
    #[arg(long)]
    pub json: bool,
}

/// Parses a number of seconds, with or without a fraction.
fn pause(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|it| (0.0..=LONGEST_PAUSE).contains(it));
    let seconds = seconds.map(Duration::from_secs_f64);
    seconds.ok_or_else(|| format!("`{text}` is not a number of seconds up to {LONGEST_PAUSE}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::{Command, CommandLine};
    use super::*;

    #[test]
    fn a_ping_has_the_usual_options() {
        let line = "holdfast ping r2 -c 3 -i 0.2 -s 1400 -D --source 192.0.2.1 -4 --json";
        let Command::Ping(ping) = CommandLine::try_parse_from(line.split(' ')).unwrap().command
        else {
            panic!("not a ping")
        };
        let PingQuestion { target, count, interval, size } = ping.question;
        assert_eq!((count, interval, size), (3, Duration::from_millis(200), 1400));
        assert!(target.do_not_fragment && target.ipv4 && !target.ipv6 && ping.json);
        assert_eq!(target.source, Some("192.0.2.1".parse().unwrap()));
        for wrong in ["ping", "ping r2 -4 -6", "ping r2 -i -1", "traceroute r2 -m 0"] {
            let line = ["holdfast"].into_iter().chain(wrong.split(' '));
            assert!(CommandLine::try_parse_from(line).is_err(), "{wrong}");
        }
    }
}
