//! A malicious DHCPv4 server.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

use crate::netns::Netns;

/// Ports of servers and clients (RFC 2131 section 4.1).
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;
/// Bytes of a message before its options, the magic cookie included (RFC 2131 section 2).
const HEAD: usize = 240;
/// Interval at which the server checks if it has to end.
const PERIOD: Duration = Duration::from_millis(50);

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const ACK: u8 = 5;

/// Kinds of bad answers; each request gets all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MalformedReply {
    /// Ends within the fixed part of the message.
    Short,
    /// Has an option whose length exceeds the rest of the message.
    Overlong,
    /// Has options of random bytes.
    Random,
    /// Offers the unspecified address.
    NoAddress,
    /// Offers an address with an invalid mask.
    BadMask,
    /// Offers a multicast address, and lists of servers and routes that are cut within an entry.
    Multicast,
}

const MALFORMED_REPLIES: [MalformedReply; 6] = [
    MalformedReply::Short,
    MalformedReply::Overlong,
    MalformedReply::Random,
    MalformedReply::NoAddress,
    MalformedReply::BadMask,
    MalformedReply::Multicast,
];

impl MalformedReply {
    /// The answer to a question.
    fn encode(self, question: &[u8], number: usize) -> Vec<u8> {
        let kind = if message_type(question) == DISCOVER { OFFER } else { ACK };
        let address = match self {
            Self::NoAddress => Ipv4Addr::UNSPECIFIED,
            Self::Multicast => Ipv4Addr::new(224, 0, 0, 9),
            _ => Ipv4Addr::new(192, 0, 2, 9),
        };
        let mut answer = head(question, address);
        answer.extend([53, 1, kind]);
        answer.extend([54, 4, 192, 0, 2, 1]); // the server
        answer.extend([51, 4, 0, 0, 0, 0]); // leased for no time
        match self {
            Self::Short => answer.truncate(HEAD / 2),
            Self::Overlong => answer.extend([143, 255, 0, 200, b'b']),
            Self::Random => answer.extend((0..400).map(|at| octet(number * 400 + at))),
            Self::NoAddress => answer.extend([1, 4, 255, 255, 255, 0, 255]),
            Self::BadMask => answer.extend([1, 4, 1, 2, 3, 4, 255]),
            Self::Multicast => {
                answer.extend([1, 4, 0, 0, 0, 0]);
                answer.extend([143, 4, 0xff, 0xff, b'b', b'o']);
                answer.extend([121, 3, 32, 10, 0, 255]);
            }
        }
        answer
    }
}

/// The fixed part of a reply.
fn head(question: &[u8], address: Ipv4Addr) -> Vec<u8> {
    let mut head = question[..HEAD].to_vec();
    head[0] = 2; // BOOTREPLY
    head[16..20].copy_from_slice(&address.octets());
    head
}

/// The type of a message; 0 when it has none.
fn message_type(message: &[u8]) -> u8 {
    let mut options = &message[HEAD..];
    while let [code, length, rest @ ..] = options {
        match (code, rest.get(..usize::from(*length))) {
            (53, Some([kind])) => return *kind,
            (0, _) => options = &options[1..],
            (255, _) | (_, None) => return 0,
            (_, Some(value)) => options = &rest[value.len()..],
        }
    }
    0
}

/// A pseudo-random byte that depends on its place alone, so that failures can be reproduced.
fn octet(place: usize) -> u8 {
    let mixed = (place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[0]
}

/// A DHCP server that gives bad answers until it is dropped.
#[derive(Debug)]
pub struct HostileDhcp {
    answered: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HostileDhcp {
    /// Starts to answer all clients in a namespace.
    ///
    /// # Panics
    /// When it cannot listen.
    pub fn start(net: &Netns) -> Self {
        let namespace = File::open(net.path()).expect("the namespace is there");
        let answered = Arc::<AtomicUsize>::default();
        let stop = Arc::<AtomicBool>::default();
        let counted = Arc::clone(&answered);
        let stopped = Arc::clone(&stop);
        let (listens_tx, listens) = mpsc::channel();
        let thread = thread::spawn(move || {
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("root, or a user namespace");
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, SERVER_PORT))
                .expect("the port is free in a namespace of the test's own");
            socket.set_broadcast(true).expect("a socket of our own");
            socket.set_read_timeout(Some(PERIOD)).expect("a socket of our own");
            listens_tx.send(()).expect("the test waits");
            while !stopped.load(Ordering::Relaxed) {
                let number = counted.load(Ordering::Relaxed);
                if answer_one(&socket, number).is_ok() {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        listens.recv().expect("the server listens");
        Self { answered, stop, thread: Some(thread) }
    }

    /// Number of requests that were answered.
    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }
}

/// Waits for a request, and sends all kinds of bad answers.
fn answer_one(socket: &UdpSocket, number: usize) -> io::Result<()> {
    let mut question = [0; 1500];
    let length = socket.recv(&mut question)?;
    if length < HEAD {
        return Err(io::ErrorKind::InvalidData.into());
    }
    for answer in MALFORMED_REPLIES {
        let answer = answer.encode(&question[..length], number);
        socket.send_to(&answer, (Ipv4Addr::BROADCAST, CLIENT_PORT))?;
    }
    Ok(())
}

impl Drop for HostileDhcp {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _failed_already = thread.join();
        }
    }
}
