//! All transports of one managed box behind one [`Transport`].

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_config::schema::Schema;
use holdfast_scheduler::{Key, OpId, Operation};

use crate::collector::Collector;
use crate::hostname::HostnameWriter;
use crate::kinds::reading::Read;
use crate::kinds::row_of;
use crate::lag_state::{LacpPorts, LagSpeeds};
use crate::netns::{Netns, NetnsError, NetnsSetting};
use crate::probe::Probes;
use crate::route_table::RouteTable;
use crate::transport::codecs::Codecs;
use crate::transport::rtnetlink::{self, Rtnetlink};
use crate::transport::texts::{self, FileTransport, FileTransportSettings};
use crate::transport::{
    Events, RTNETLINK, RouteLookup, RtnetlinkError, SYSCTL, Transport, mailbox,
};
use crate::vault::Vault;

/// Choice of the managed box.
#[derive(Clone, Debug)]
pub struct PlatformSettings {
    /// Namespaces of its network and host name.
    pub netns: NetnsSetting,
    /// Folder below which files are written; `/` for the box itself.
    pub root: PathBuf,
    /// Writer of the host name. With a namespace, the thread that entered it writes the name instead.
    pub hostname: HostnameWriter,
    /// Source of secrets that operations write.
    pub vault: Arc<dyn Vault>,
}

/// Reason why a box cannot be managed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlatformError {
    /// The namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The network cannot be managed.
    #[error(transparent)]
    Rtnetlink(#[from] RtnetlinkError),
}

/// All transports of one box. Dropping it completes the submitted operations, then stops the transports.
#[derive(Debug)]
pub struct Platform {
    rtnetlink: Rtnetlink,
    texts: FileTransport,
    probes: Probes,
    route_table: RouteTable,
}

impl Platform {
    /// Starts the transports and a first complete report, which arrives as the first [`Event::Retrieved`] of
    /// everything.
    ///
    /// # Errors
    /// When the namespace does not exist, or managing it is not permitted.
    ///
    /// [`Event::Retrieved`]: crate::transport::Event::Retrieved
    pub fn start(settings: &PlatformSettings) -> Result<(Self, Events), PlatformError> {
        Self::start_with(settings, Codecs::default(), None)
    }

    /// `receive_buffer` is the size for kernel notifications in bytes; `None` for the largest possible.
    pub(crate) fn start_with(
        settings: &PlatformSettings,
        codecs: Codecs,
        receive_buffer: Option<usize>,
    ) -> Result<(Self, Events), PlatformError> {
        let netns = Arc::new(Netns::open(&settings.netns)?);
        let (mailbox, events) = mailbox();
        let rtnetlink =
            Rtnetlink::start(Arc::clone(&netns), codecs, mailbox.clone(), receive_buffer)?;
        let hostname = match settings.netns {
            NetnsSetting::Current => settings.hostname.clone(),
            NetnsSetting::Given(_) => HostnameWriter::Direct,
        };
        let root = settings.root.clone();
        let vault = Arc::clone(&settings.vault);
        let place = FileTransportSettings { root, hostname, vault };
        let texts = FileTransport::start(Arc::clone(&netns), place, codecs, mailbox)?;
        let route_table = RouteTable::new(Arc::clone(&netns));
        let mut platform = Self { rtnetlink, texts, probes: Probes::new(netns), route_table };
        platform.retrieve();
        Ok((platform, events))
    }

    /// Ping and traceroute from this box.
    pub fn probes(&self) -> Probes {
        self.probes.clone()
    }

    /// Reader of the routes of all programs.
    pub fn route_table(&self) -> RouteTable {
        self.route_table.clone()
    }

    /// Reader of the counters of links, as nodes of the native schema.
    pub fn collector(&self, native: &Schema) -> Collector {
        Collector::new(native, self.rtnetlink.line().clone())
    }

    /// Reader of what LACP counts and numbers on the members of bonds, as nodes of the native schema.
    pub fn lacp_ports(&self, native: &Schema) -> LacpPorts {
        LacpPorts::new(native, self.rtnetlink.line().clone())
    }

    /// Reader of the speeds of bonds, as nodes of the native schema.
    pub fn lag_speeds(&self, native: &Schema) -> LagSpeeds {
        LagSpeeds::new(native, self.rtnetlink.line().clone())
    }
}

impl Transport for Platform {
    fn submit(&mut self, batch: Vec<Operation>) {
        let network = |operation: &Operation| [RTNETLINK, SYSCTL].contains(&operation.transport);
        let (network, texts): (Vec<_>, Vec<_>) = batch.into_iter().partition(network);
        if !network.is_empty() {
            self.rtnetlink.line().command(rtnetlink::Command::Submit(network));
        }
        if !texts.is_empty() {
            self.texts.command(texts::Command::Submit(texts));
        }
    }

    fn cancel(&mut self, operations: Vec<OpId>) {
        self.rtnetlink.cancelled().add(&operations);
        self.texts.cancelled().add(&operations);
    }

    fn read(&mut self, keys: Vec<Key>) {
        let is_file =
            |key: &Key| row_of(key.kind()).is_some_and(|row| matches!(row.read, Read::Files));
        let (texts, network): (Vec<_>, Vec<_>) = keys.into_iter().partition(is_file);
        if !network.is_empty() {
            self.rtnetlink.line().command(rtnetlink::Command::Read(network));
        }
        if !texts.is_empty() {
            self.texts.command(texts::Command::Read(texts));
        }
    }

    fn route_lookup(&self) -> RouteLookup {
        RouteLookup::new(self.rtnetlink.line().clone())
    }

    /// Reads the texts first, and writes nothing until the report is complete. So no fact in it is older than a
    /// completion that was reported before it.
    fn retrieve(&mut self) {
        let line = self.rtnetlink.line().clone();
        self.texts.command(texts::Command::Retrieve(Box::new(move |others| {
            let (answer, ended) = std::sync::mpsc::channel();
            line.command(rtnetlink::Command::Retrieve { others, answer });
            let _ = ended.recv(); // always an error: the sender is dropped at the end
        })));
    }
}
