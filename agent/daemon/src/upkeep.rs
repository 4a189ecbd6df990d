//! Upkeep of what clients from the network meet: the certificate of the box, its sockets as state, and one line about both
//! for the service manager.

use std::time::Duration;

use holdfast_base::now_ns;
use holdfast_config::schema::Schema;
use holdfast_config::{InstancePath, MissingNode, Value};
use holdfast_core::{CoreHandle, Datastore};
use holdfast_platform::objects::GRPC_SERVER;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::gnsi::TlsProfiles;
use crate::listeners::{ListenerKind, ListenerState, Listeners};
use crate::process;
use crate::sync_summary::SyncFollower;

/// Interval at which the names and addresses of the box are compared with its certificate: a client that is sent to a new
/// address tries for longer.
const IDENTITY_INTERVAL: Duration = Duration::from_secs(5);
/// Longest interval between two attempts to read an identity that cannot be used; each is twice the one before. SIGHUP reads
/// it at once.
const LONGEST_IDENTITY_INTERVAL: Duration = Duration::from_secs(60);
/// Interval at which the status for the service manager is looked at: a person who asks twice sees it follow.
const STATUS_INTERVAL: Duration = Duration::from_secs(2);
/// Time for which the first changes to the box may delay the notification that the agent is ready: half of the default
/// start timeout of service managers (systemd: 90 s).
const SETTLE_TIMEOUT: Duration = Duration::from_secs(45);

const NS_PER_S: u64 = 1_000_000_000;

/// Keeps the identity of the box usable without a restart, and warns once when the certificate that is shown expires.
pub fn keep_identity(profiles: TlsProfiles, listeners: Listeners) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut interval = IDENTITY_INTERVAL;
        let mut was_expired = false;
        loop {
            let expired = expiry(&profiles);
            if let (Some(when), false) = (&expired, was_expired) {
                warn!(%when, "the certificate that clients are shown has expired");
            }
            was_expired = expired.is_some();
            let here = profiles.clone();
            // Files are read, and the addresses of the box.
            let refreshed = tokio::task::spawn_blocking(move || here.refresh()).await;
            if matches!(refreshed, Ok(true)) {
                info!("the identity of this box was renewed");
                listeners.retry_now();
            }
            interval = if profiles.has_identity() {
                IDENTITY_INTERVAL
            } else {
                LONGEST_IDENTITY_INTERVAL.min(interval * 2)
            };
            sleep(interval).await;
        }
    }))
}

/// Text about the certificate of the next connection, if it has expired.
fn expiry(profiles: &TlsProfiles) -> Option<String> {
    let serving = profiles.server_profile();
    let expires_on = serving.expires_on.filter(|expires_on| *expires_on < now_ns() / NS_PER_S)?;
    day_of(expires_on)
}

/// The day of a second since 1970, in UTC.
pub(crate) fn day_of(second: u64) -> Option<String> {
    let second = i64::try_from(second).ok()?;
    let time = time::OffsetDateTime::from_unix_timestamp(second).ok()?;
    Some(time.date().to_string())
}

/// State leaves of the server that tell where it listens.
#[derive(Clone, Debug)]
pub struct ListenerLeaves {
    port: InstancePath,
    addresses: InstancePath,
    unavailable: InstancePath,
}

impl ListenerLeaves {
    /// Finds the leaves in the native model.
    ///
    /// # Errors
    /// When the model lacks one of them, which would be a bug that the first test finds.
    pub fn find(native: &Schema) -> Result<Self, MissingNode> {
        let leaf = |name: &str| {
            let server = ("grpc-server", &[("name", GRPC_SERVER)][..]);
            native.instance_path(&[("system", &[][..]), server, ("state", &[]), (name, &[])])
        };
        Ok(Self {
            port: leaf("port")?,
            addresses: leaf("listen-addresses")?,
            unavailable: leaf("unavailable-listeners")?,
        })
    }

    /// Publishes the leaves now, and then whenever a socket was opened or lost, until the handle is dropped.
    pub async fn follow(self, listeners: Listeners, core: CoreHandle) -> AbortOnDropHandle<()> {
        let mut changes = listeners.watch();
        changes.mark_unchanged();
        self.publish(&listeners, &core).await;
        AbortOnDropHandle::new(tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                self.publish(&listeners, &core).await;
            }
        }))
    }

    /// The model has one port, so only addresses with the first socket's are shown.
    async fn publish(&self, listeners: &Listeners, core: &CoreHandle) {
        let open = listeners.grpc_addresses();
        let port = open.first().map(std::net::SocketAddr::port);
        let with_port = open.iter().filter(|address| Some(address.port()) == port);
        let addresses = with_port.map(|address| address.ip().to_string());
        let unavailable: Vec<String> = listeners
            .watch()
            .borrow()
            .iter()
            .filter(|status| status.kind == ListenerKind::Grpc)
            .filter_map(|status| match &status.state {
                ListenerState::Waiting { reason, .. } => Some(format!("{}: {reason}", status.name)),
                _ => None,
            })
            .collect();
        core.show_state(vec![
            (self.port.clone(), port.map(|port| Value::Uint(port.into()))),
            (self.addresses.clone(), list(addresses)),
            (self.unavailable.clone(), list(unavailable.into_iter())),
        ])
        .await;
    }
}

/// Value of a leaf-list, in its canonical order; `None` when it is empty.
fn list(texts: impl Iterator<Item = String>) -> Option<Value> {
    let mut values: Vec<Value> = texts.map(|text| Value::Str(text.into())).collect();
    values.sort();
    values.dedup();
    (!values.is_empty()).then(|| Value::List(values.into()))
}

/// Notifies the service manager that the agent is ready once the box is configured as far as is possible at once, so
/// that services that are ordered after it find it configured. Sockets do not count: clients come second. After that it is
/// told of each change of the sockets and of the certificate, and of what is in sync or is not.
pub async fn announce(core: CoreHandle, listeners: Listeners, profiles: TlsProfiles) {
    match timeout(SETTLE_TIMEOUT, core.wait_until_idle()).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => return, // the core is stopping
        Err(_) => warn!(
            "ready, while changes that bring the box to its configuration are still under way"
        ),
    }
    let mut sockets = listeners.watch();
    let mut identity = profiles.identity_changes();
    let mut told = None;
    let mut sync = SyncFollower::new(core);
    loop {
        let Ok(summary) = sync.summary().await else { return }; // the core is stopping
        let mut status = format!("{summary}; {}", listeners.summary());
        if let Some(when) = expiry(&profiles) {
            status += &format!("; the certificate expired on {when}");
        }
        match &told {
            None => process::notify_ready(&status),
            Some(before) if *before != status => process::notify_status(&status),
            Some(_) => {}
        }
        told = Some(status);
        // Both senders live as long as this.
        tokio::select! {
            _ = sockets.changed() => {}
            _ = identity.changed() => {}
            // A certificate expires without an event, and objects have too many events to follow each.
            () = sleep(STATUS_INTERVAL) => {}
        }
    }
}
