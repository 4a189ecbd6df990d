//! Times for equal work without an agent, for comparison.

use std::fs::File;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use holdfast_tests::agent::binary;
use holdfast_tests::netns::Netns;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::time::{ClockId, clock_gettime};

/// The protocol number of the routes of the yardstick, so that they can be told apart.
const PROTOCOL: u8 = 151;

/// Bytes in one send, as many as the kernel accepts at once with the default socket buffer.
const BATCH_BYTES: u32 = 64 * 1024;

/// From linux/rtnetlink.h and linux/netlink.h.
const RTM_NEWROUTE: u16 = 24;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_CREATE: u16 = 0x400;
const NLMSG_ERROR: u16 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;

/// The group into which links are put to be deleted by one message.
const GROUP: u32 = 4_711;

/// Bytes of one request: netlink header, route header, three attributes of eight bytes.
const REQUEST_BYTES: u32 = 16 + 12 + 3 * 8;

/// The destination of a route by its number: 10.0.0.0/8 has room for all.
pub(crate) fn destination(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 0, 0, 0)) + number)
}

/// Runs of a yardstick that a ratio is made of: a single run may be off by a fifth.
pub(crate) const REPETITIONS: usize = 5;

/// Time to add `count` routes by raw netlink: the median of several runs.
pub(crate) fn routes(net: &Netns, count: u32) -> Result<Duration> {
    let mut times =
        (0..REPETITIONS).map(|_| routes_once(net, count)).collect::<Result<Vec<_>>>()?;
    times.sort();
    Ok(times[REPETITIONS / 2])
}

/// Adds `count` routes by batches of raw netlink, and then removes them untimed.
fn routes_once(net: &Netns, count: u32) -> Result<Duration> {
    let index = net.link("eth0").index;
    let mut socket = Socket::new(NETLINK_ROUTE).context("a netlink socket")?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;

    let started = Instant::now();
    let per_batch = BATCH_BYTES / REQUEST_BYTES;
    let mut next = 0;
    while next < count {
        let end = count.min(next + per_batch);
        let batch: Vec<u8> =
            (next..end).flat_map(|number| request(number, index, number + 1 == end)).collect();
        socket.send(&batch, 0).context("a batch of routes")?;
        acknowledged(&socket)?;
        next = end;
    }
    let took = started.elapsed();

    let installed = net.routes(&PROTOCOL.to_string()).len();
    anyhow::ensure!(installed == count as usize, "{installed} of {count} routes are there");
    net.ip(&format!("route flush proto {PROTOCOL}"));
    Ok(took)
}

/// Makes `count` virtual cables with one `ip -batch`, and then removes them untimed.
pub(crate) fn cables(count: u32) -> Result<Duration> {
    let took =
        batch(0..count, |number| format!("link add a{number} type veth peer name b{number}"))?;
    batch(0..count, |number| format!("link delete a{number}"))?;
    Ok(took)
}

/// Time for one `ip -batch` with these lines for each number.
pub(crate) fn batch(numbers: Range<u32>, lines: impl Fn(u32) -> String) -> Result<Duration> {
    let mut file = tempfile::NamedTempFile::new()?;
    for number in numbers {
        writeln!(file, "{}", lines(number))?;
    }
    let started = Instant::now();
    let status = Command::new("ip").arg("-batch").arg(file.path()).status()?;
    anyhow::ensure!(status.success(), "ip -batch fails: {status}");
    Ok(started.elapsed())
}

/// Makes the pairs with `ip`, up like those of the agent, puts them into one group, and deletes the group by one
/// message.
pub(crate) fn teardown(net: &Netns, pairs: u32) -> Result<Duration> {
    batch(0..pairs, |number| {
        let add = format!("link add p{number} type veth peer name q{number}");
        format!("{add}\nlink set p{number} up group {GROUP}\nlink set q{number} up")
    })?;
    let started = Instant::now();
    net.ip(&format!("link del group {GROUP}"));
    Ok(started.elapsed())
}

/// One RTM_NEWROUTE; the kernel answers the last one of a batch, and each failure.
fn request(number: u32, interface: u32, last: bool) -> Vec<u8> {
    let flags = NLM_F_REQUEST | NLM_F_CREATE | if last { NLM_F_ACK } else { 0 };
    let gateway = Ipv4Addr::new(192, 0, 2, 2).octets();
    let mut message = Vec::new();
    message.extend(REQUEST_BYTES.to_ne_bytes());
    message.extend(RTM_NEWROUTE.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend([0; 8]); // sequence, port
    // AF_INET, /32, no source, no TOS; main table, our protocol, universe, unicast; no flags.
    message.extend([2, 32, 0, 0, 254, PROTOCOL, 0, 1, 0, 0, 0, 0]);
    let attributes = [
        (RTA_DST, destination(number).octets()),
        (RTA_GATEWAY, gateway),
        (RTA_OIF, interface.to_ne_bytes()),
    ];
    for (kind, value) in attributes {
        message.extend(8u16.to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(value);
    }
    message
}

/// Waits for the one answer to a batch.
pub(crate) fn acknowledged(socket: &Socket) -> Result<()> {
    let (answer, _) = socket.recv_from_full().context("the kernel's answer")?;
    let kind = answer.get(4..6).and_then(|octets| octets.try_into().ok()).map(u16::from_ne_bytes);
    let error =
        answer.get(16..20).and_then(|octets| octets.try_into().ok()).map(i32::from_ne_bytes);
    match (kind, error) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => {
            Err(io::Error::from_raw_os_error(-error)).context("a request is refused")
        }
        _ => bail!("the kernel's answer is none"),
    }
}

/// Time for a small synced write, the least that a commit needs; the median.
pub(crate) fn synced_write() -> Result<Duration> {
    let mut file = tempfile::tempfile_in(std::env::temp_dir())?;
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..100 {
        let started = Instant::now();
        sync(&mut file)?;
        times.push(started.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}

fn sync(file: &mut File) -> io::Result<()> {
    file.write_all(&[0; 4096])?;
    file.sync_data()
}

/// Time to start the binary just to print its version.
pub(crate) fn exec() -> Result<Duration> {
    let started = Instant::now();
    let status = Command::new(binary()).arg("--version").stdout(Stdio::null()).status()?;
    anyhow::ensure!(status.success(), "--version fails: {status}");
    Ok(started.elapsed())
}

/// Share of a processor that it takes a thread to read the counts of carriers of these links once in each period.
pub(crate) fn looks_at_carriers(
    links: &[String],
    period: Duration,
    sampled_for: Duration,
) -> Result<f64> {
    let count = |link: &String| File::open(format!("/sys/class/net/{link}/carrier_changes"));
    let counts = links.iter().map(count).collect::<io::Result<Vec<_>>>()?;
    let looks = thread::spawn(move || -> Result<f64> {
        let processor_time = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
        let (_open, pause) = mpsc::channel::<()>();
        let before = processor_time()?;
        let started = Instant::now();
        while started.elapsed() < sampled_for {
            let _timeout = pause.recv_timeout(period);
            for count in &counts {
                count.read_at(&mut [0; 16], 0)?;
            }
        }
        let used = processor_time()?.saturating_sub(before);
        Ok(used.div_duration_f64(started.elapsed()))
    });
    looks.join().map_err(|_| anyhow!("the thread has panicked"))?
}
