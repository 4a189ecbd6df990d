//! One echo request at a time, and its reply.

use std::net::IpAddr;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::packet::{self, ECHO_HEADER, IcmpAnswer, ProbeId, ProbeOutcome};
use super::socket::{IcmpSocket, ReceivedMessage};
use super::{MAX_IP_HEADER, ProbeError, Probes, Target};

/// Bytes behind the ICMP header, by which a reply is known as ours.
const PAYLOAD_SIZE: usize = 8;

/// Requests to one host. Unlike [`Ping`](super::Ping), which keeps a rate, the caller says when each of them is sent.
#[derive(Debug)]
pub struct Echo {
    socket: IcmpSocket,
    destination: IpAddr,
    identifier: u16,
    sequence: u16,
    payload: [u8; PAYLOAD_SIZE],
    buffer: Vec<u8>,
}

impl Probes {
    /// Opens a socket for requests to one host. Source and link are those of now.
    ///
    /// # Errors
    /// When the source is not an address of this box, the link is not there, or there is no route to the destination.
    pub async fn echo(&self, target: Target) -> Result<Echo, ProbeError> {
        let destination = target.destination;
        let socket = self.inside(move || IcmpSocket::connected(&target)).await?;
        Ok(Echo {
            socket: socket.watched()?,
            destination,
            identifier: rand::random(),
            sequence: 0,
            payload: rand::random(),
            buffer: vec![0; MAX_IP_HEADER + ECHO_HEADER + PAYLOAD_SIZE],
        })
    }
}

impl Echo {
    /// Sends a request. True when its reply comes in time.
    ///
    /// # Errors
    /// When the request cannot be sent.
    pub async fn ask(&mut self, wait: Duration) -> Result<bool, ProbeError> {
        self.sequence = self.sequence.wrapping_add(1);
        let message = packet::echo(self.destination, self.identifier, self.sequence, &self.payload);
        let sent = self.socket.send(&message);
        sent.map_err(|error| ProbeError::send_failed(self.destination, PAYLOAD_SIZE, error))?;
        let deadline = Instant::now() + wait;
        loop {
            let Ok(received) = timeout_at(deadline, self.socket.receive(&mut self.buffer)).await
            else {
                return Ok(false);
            };
            // An error is a host's word on an earlier request, or on this one, which then gets no reply.
            if received.is_ok_and(|received| self.is_reply(&received)) {
                return Ok(true);
            }
        }
    }

    fn is_reply(&self, received: &ReceivedMessage) -> bool {
        let mark = ProbeId::Echo { identifier: self.identifier, sequence: self.sequence };
        received.icmp_answer(&self.buffer).is_some_and(|answer: IcmpAnswer<'_>| {
            answer.mark == mark
                && answer.outcome == ProbeOutcome::Reached
                && answer.payload == self.payload
        })
    }
}
