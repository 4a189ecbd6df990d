//! Checks of what clients meet: sockets, users, and the clock by which certificates are judged.

use std::io;
use std::net::{IpAddr, TcpListener};

use holdfast_base::Role;
use time::OffsetDateTime;

use super::subject::ToolAnswer;
use super::{Finding, Subject, Verdict};
use crate::listeners::ListenerKind;
use crate::settings::ListenSocket;

pub(super) fn sockets(subject: &Subject) -> Vec<Finding> {
    let Some(report) = subject.report() else { return free_ports(subject) };
    let closed = report.closed_listeners.iter().map(|it| {
        let text = format!("the agent does not listen on {}: {}", it.name, it.reason);
        let is_grpc = it.kind == ListenerKind::Grpc.to_string();
        Finding::new(if is_grpc { Verdict::Failure } else { Verdict::Warning }, text)
    });
    let closed: Vec<Finding> = closed.collect();
    match closed.is_empty() {
        true => Finding::good("all sockets are open"),
        false => closed,
    }
}

/// Opens the sockets of the agent that does not run, and closes them again.
fn free_ports(subject: &Subject) -> Vec<Finding> {
    let sockets = ListenSocket::of(&subject.settings.listen);
    let taken = sockets.iter().filter_map(|socket| {
        let address = socket.address.resolve();
        let opened = address.and_then(|address| {
            let opened = TcpListener::bind(address);
            opened.map_err(|error| io::Error::new(error.kind(), format!("{address}: {error}")))
        });
        match opened {
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => None,
            Err(error) => {
                let text = format!("the agent could not listen on {error}");
                Some(Finding::new(Verdict::Failure, text))
            }
            Ok(_) => None,
        }
    });
    let taken: Vec<Finding> = taken.collect();
    match taken.is_empty() {
        true => Finding::good("the ports of the agent are free"),
        false => taken,
    }
}

pub(super) fn addresses(subject: &Subject) -> Vec<Finding> {
    let here = match nix::ifaddrs::getifaddrs() {
        Ok(interfaces) => interfaces.filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        }),
        Err(errno) => return Finding::unknown(format!("cannot list the addresses: {errno}")),
    };
    let here: Vec<IpAddr> = here.collect();
    let listen = &subject.settings.listen;
    let missing = listen.iter().filter(|it| !it.ip.is_unspecified() && !here.contains(&it.ip));
    let missing: Vec<Finding> = missing
        .map(|it| {
            let text = format!("{} of --listen is not on the box: nobody reaches it", it.ip);
            Finding::new(Verdict::Warning, text)
        })
        .collect();
    match missing.is_empty() {
        true => Finding::good("listen addresses are on the box"),
        false => missing,
    }
}

pub(super) fn users(subject: &Subject) -> Vec<Finding> {
    let Some(facts) = subject.facts() else {
        return Finding::skipped("users are known to a running agent");
    };
    let admin = Role::Admin.to_string();
    let is_by_certificate = subject.settings.tls.tls_client_ca.is_some();
    if facts.users.iter().any(|user| user.role == admin) || is_by_certificate {
        return Finding::good(format!("{} users", facts.users.len()));
    }
    match facts.users.is_empty() {
        true => Finding::failure("there are no users: every login is refused"),
        false => Finding::warning("no user has the role admin: nobody can change anything by gNMI"),
    }
}

pub(super) fn clock(subject: &Subject) -> Vec<Finding> {
    if let Some(built) = subject.program_date.filter(|built| subject.now < *built) {
        let day = |time| OffsetDateTime::from(time).date();
        let text = format!(
            "the clock says {}, which is before the program was built ({})",
            day(subject.now),
            day(built)
        );
        return Finding::failure(text);
    }
    match &subject.clock {
        ToolAnswer::Text(text) if text.trim() == "yes" => {
            Finding::good("the clock is synchronised")
        }
        ToolAnswer::Text(_) => Finding::warning("the clock is not synchronised"),
        ToolAnswer::Missing | ToolAnswer::Failed(_) => {
            Finding::skipped("nothing tells whether the clock is synchronised")
        }
    }
}
