//! Conditions of what clients from the network meet: sockets, the certificate, and the version that runs.

use std::time::Duration;

use holdfast_base::now_ns;
use holdfast_faults::{Condition, Input, Report, Resource, Severity, Source};
use smol_str::{SmolStr, format_smolstr};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::level::ToldLevel;
use crate::gnsi::TlsProfiles;
use crate::listeners::{ListenerState, ListenerStatus, Listeners};
use crate::software::Software;
use crate::upkeep::day_of;

/// Pause between two looks at what changes without an event: a certificate expires, a version falls back.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// Time before its end in which a certificate counts as expiring: a month's certificate is renewed before the last two weeks.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 24 * 3600);

const NS_PER_S: u64 = 1_000_000_000;

/// Follows sockets, the certificate and the version until nobody takes the reports.
pub(super) async fn follow(
    listeners: Listeners,
    profiles: TlsProfiles,
    software: Software,
    inputs: mpsc::Sender<Input>,
) {
    let mut sockets = listeners.watch();
    let mut identity = profiles.identity_changes();
    let mut level = ToldLevel::new(Source::Server, inputs);
    loop {
        let now_ns = now_ns();
        let mut reports = socket_reports(&sockets.borrow_and_update(), now_ns);
        reports.extend(certificate_report(profiles.server_profile().expires_on, now_ns));
        reports.extend(software.failure().map(|why| {
            Report::holding(Condition::new("image-fell-back", Resource::Box), why, now_ns)
        }));
        if level.tell(reports).await.is_err() {
            return;
        }
        // Both senders live as long as this.
        tokio::select! {
            _ = sockets.changed() => {}
            _ = identity.changed() => {}
            () = sleep(LOOK_INTERVAL) => {}
        }
    }
}

fn socket_reports(sockets: &[ListenerStatus], now_ns: u64) -> Vec<Report> {
    let report = |socket: &ListenerStatus| {
        let ListenerState::Waiting { reason, .. } = &socket.state else { return None };
        let condition = Condition::new("listener-unavailable", Resource::Agent);
        let text = SmolStr::from(reason.as_str());
        Some(Report::holding(condition.qualified(&socket.name), text, now_ns))
    };
    sockets.iter().filter_map(report).collect()
}

/// The report about a certificate that ends at some second since 1970.
fn certificate_report(expires_on: Option<u64>, now_ns: u64) -> Option<Report> {
    let expires_on = expires_on?;
    let now = now_ns / NS_PER_S;
    if expires_on > now + EXPIRY_WARNING.as_secs() {
        return None;
    }
    let when = day_of(expires_on).unwrap_or_default();
    let has_expired = expires_on < now;
    let text = match has_expired {
        true => format_smolstr!("the certificate that clients are shown expired on {when}"),
        false => format_smolstr!("the certificate that clients are shown expires on {when}"),
    };
    let condition = Condition::new("certificate-expiring", Resource::Agent);
    let severity = has_expired.then_some(Severity::Major);
    Some(Report { severity, ..Report::holding(condition, text, now_ns) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600;

    #[test]
    fn a_certificate_is_named_two_weeks_before_its_end_and_after_it() {
        let now = 1_800_000_000;
        let report = |expires_on| certificate_report(Some(expires_on), now * NS_PER_S);
        assert_eq!(report(now + 15 * DAY), None);
        let soon = report(now + 13 * DAY).unwrap();
        assert!(soon.severity.is_none() && soon.text.contains("expires on 2027-01-28"), "{soon:?}");
        let over = report(now - DAY).unwrap();
        assert_eq!(over.severity, Some(Severity::Major));
        assert!(over.text.contains("expired on 2027-01-14"), "{over:?}");
        assert_eq!(certificate_report(None, 1), None, "no certificate of its own");
    }
}
