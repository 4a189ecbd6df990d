//! Execution of bootstraps: carries out the decisions of the state machine, and publishes its progress.
//!
//! Start at [`driver`] for the loop. The crate `holdfast-bootz` decides what to verify, refuse, repeat or give up;
//! this module has its sockets, clock, files and access to the core.

mod connect;
mod driver;
mod image;
mod record;
mod status;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use holdfast_bootz::{
    client::{BootstrapSettings, Client, Flows, OperatorCommand},
    identity::{IdentityError, IdevidChain, SigningKey},
    image::InstalledSoftware,
    retry::Backoff,
};
use holdfast_core::Datastore;
use holdfast_platform::netns::Netns;
use holdfast_store::StoreError;
use rustls_pki_types::{CertificateDer, pem, pem::PemObject};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::AbortOnDropHandle;

use self::{driver::Driver, status::BootzStatus};
use crate::systemd;
use crate::{
    device::Device,
    dhcp::{self, Dhcp, PortLeases},
    gnsi::Gnsi,
    network::Network,
    settings::{BootzRpc, BootzSettings},
    software::Software,
};

/// Author name of the configuration that a bootstrap sets.
const NAME: &str = "bootz";
/// Commands of the operator that may wait for the loop.
const COMMAND_QUEUE_DEPTH: usize = 4;

/// Reason why the box cannot be bootstrapped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootzError {
    #[error("`{option}` is needed to bootstrap this box")]
    Missing { option: &'static str },
    #[error("cannot read `{}`", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot read the certificates of the vendor from `{}`", path.display())]
    Vendor { path: PathBuf, source: pem::Error },
    #[error("`{}` holds no certificate of the vendor", path.display())]
    NoVendor { path: PathBuf },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("cannot use the IDevID for connections")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot begin to ask DHCP servers")]
    Dhcp(#[source] io::Error),
    #[error("cannot parse `{}`", path.display())]
    Record { path: PathBuf, source: serde_json::Error },
}

/// Handle of the running client; clones share it. The client ends with the process.
#[derive(Clone, Debug)]
pub struct Bootz {
    command_tx: mpsc::Sender<CommandRequest>,
    status_rx: watch::Receiver<BootzStatus>,
    leases_rx: Option<watch::Receiver<PortLeases>>,
}

/// A command, and the channel for its acceptance.
#[derive(Debug)]
struct CommandRequest {
    command: OperatorCommand,
    taken: oneshot::Sender<()>,
}

/// Resources of the driver, read once.
#[derive(Debug)]
struct DriverResources {
    key: SigningKey,
    tls: connect::BoxTls,
    software: Software,
    folder: PathBuf,
    network: Network,
    dhcp: Option<Dhcp>,
}

/// Starts the client of a box with an IDevID; a box without one is not bootstrapped. Connections are made from the
/// managed namespace.
///
/// # Errors
/// When a setting is missing, or a file cannot be used.
pub async fn start(
    settings: &BootzSettings,
    state: &Path,
    netns: Netns,
    core: impl Datastore,
    gnsi: Gnsi,
    device: &Device,
) -> Result<Option<(Bootz, AbortOnDropHandle<()>)>, BootzError> {
    if settings.bootz_port.is_none() {
        dhcp::withdraw(&core).await;
    }
    let Some((profile, equipment)) = open_resources(settings, state, netns, &core, device)? else {
        return Ok(None);
    };
    let held_rx = equipment.dhcp.as_ref().map(Dhcp::port_leases);
    let record = record::read(&equipment.folder)?;
    let client = Client::new(profile, record);
    let (command_tx, command_rx) = mpsc::channel(COMMAND_QUEUE_DEPTH);
    let (driver, shown_rx) = Driver::new(client, equipment, core, gnsi, device.reboots.clone());
    let task = tokio::spawn(driver.run(command_rx));
    Ok(Some((
        Bootz { command_tx, status_rx: shown_rx, leases_rx: held_rx },
        AbortOnDropHandle::new(task),
    )))
}

impl Bootz {
    /// Sends a command; true when it was accepted.
    pub async fn command(&self, command: OperatorCommand) -> bool {
        let (taken, answered) = oneshot::channel();
        self.command_tx.send(CommandRequest { command, taken }).await.is_ok()
            && answered.await.is_ok()
    }

    /// Status text: recent steps, leases, and the present state.
    pub fn status(&self) -> String {
        let leases = self.leases_rx.as_ref().map(|leases| leases.borrow().to_string());
        format!("{}{}", *self.status_rx.borrow(), leases.unwrap_or_default())
    }

    /// True when there is a port for DHCP.
    pub fn has_port(&self) -> bool {
        self.leases_rx.is_some()
    }
}

fn open_resources(
    settings: &BootzSettings,
    state: &Path,
    netns: Netns,
    core: &impl Datastore,
    device: &Device,
) -> Result<Option<(BootstrapSettings, DriverResources)>, BootzError> {
    let Some(certificate) = &settings.bootz_idevid_cert else { return Ok(None) };
    let missing = |option| BootzError::Missing { option };
    let key = settings.bootz_idevid_key.as_ref().ok_or_else(|| missing("--bootz-idevid-key"))?;
    let vendor = settings.bootz_vendor_ca.as_ref().ok_or_else(|| missing("--bootz-vendor-ca"))?;
    let serial = settings.bootz_serial.clone().ok_or_else(|| missing("--bootz-serial"))?;
    let chain = IdevidChain::from_pem(&read(certificate)?)?;
    let key = zeroize::Zeroizing::new(read(key)?);
    let folder = record::folder(state)?;
    let netns = Arc::new(netns);
    let port = settings.bootz_port.as_deref();
    let dhcp = port.map(|port| {
        let lost = device.lost_leases.clone();
        dhcp::start(port, netns.clone(), &folder, core.clone(), lost)
    });
    let equipment = DriverResources {
        tls: connect::BoxTls::new(&chain, &key)?,
        key: SigningKey::from_pem(&key, &chain)?,
        software: device.software.clone(),
        folder,
        network: Network::new(netns),
        dhcp: dhcp.transpose().map_err(BootzError::Dhcp)?,
    };
    let profile = BootstrapSettings {
        manufacturer: settings.bootz_manufacturer.clone(),
        part_number: settings.bootz_part_number.clone(),
        serial,
        idevid: chain,
        voucher_anchors: read_vendor(vendor)?,
        checks_ownership: !settings.bootz_trust_any_server,
        flows: match settings.bootz_rpc {
            BootzRpc::Either => Flows::Either,
            BootzRpc::Stream => Flows::Stream,
            BootzRpc::Unary => Flows::Unary,
        },
        software: InstalledSoftware {
            running: device.software.running().to_owned(),
            can_install: device.software.slots().program().is_ok(),
        },
        backoff: Backoff::default(),
        port: settings.bootz_port.clone(),
    };
    Ok(Some((profile, equipment)))
}

fn read(path: &Path) -> Result<Vec<u8>, BootzError> {
    let text = fs::read(path).map_err(|error| systemd::explained(path, error));
    text.map_err(|source| BootzError::File { path: path.to_owned(), source })
}

fn read_vendor(path: &Path) -> Result<Vec<CertificateDer<'static>>, BootzError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let vendor = read.map_err(|source| BootzError::Vendor { path: path.to_owned(), source })?;
    if vendor.is_empty() {
        return Err(BootzError::NoVendor { path: path.to_owned() });
    }
    Ok(vendor)
}
