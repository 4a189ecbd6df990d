//! All transports of one managed box behind one [`Transport`].

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_config::schema::Schema;
use holdfast_scheduler::{Key, OpId, Operation};

use crate::collector::Collector;
use crate::hostname::HostnameWriter;
use crate::netns::{Netns, NetnsError, NetnsSetting};
use crate::probe::Probes;
use crate::transport::codecs::Codecs;
use crate::transport::rtnetlink::{self, Rtnetlink};
use crate::transport::texts::{self, Place, Texts};
use crate::transport::{Events, Query, RTNETLINK, RtnetlinkError, SYSCTL, Transport, mailbox};
use crate::vault::Vault;

/// Which box is managed.
#[derive(Clone, Debug)]
pub struct PlatformSettings {
    /// The namespaces its network and host name are in.
    pub netns: NetnsSetting,
    /// The folder that stands for its `/` where files are written.
    pub root: PathBuf,
    /// The part that gives the kernel the host name; with a namespace, the thread that has entered it.
    pub hostname: HostnameWriter,
    /// Where secrets are found when they are written.
    pub vault: Arc<dyn Vault>,
}

/// Why a box cannot be managed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlatformError {
    /// Its namespace cannot be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// Its network cannot be managed.
    #[error(transparent)]
    Rtnetlink(#[from] RtnetlinkError),
}

/// The transports of one box. Dropping it lets what was submitted end, then stops them.
#[derive(Debug)]
pub struct Platform {
    rtnetlink: Rtnetlink,
    texts: Texts,
    probes: Probes,
}

impl Platform {
    /// Starts the transports and a first complete report: an [`Event::Retrieved`] of everything is
    /// the first of that kind among the events.
    ///
    /// # Errors
    /// When the namespace does not exist, or managing it is not permitted.
    ///
    /// [`Event::Retrieved`]: crate::transport::Event::Retrieved
    pub fn start(settings: &PlatformSettings) -> Result<(Self, Events), PlatformError> {
        Self::start_with(settings, Codecs::default(), None)
    }

    /// `receive_buffer`: octets for announcements of the kernel; `None` for as much as can be had.
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
        let (root, vault) = (settings.root.clone(), Arc::clone(&settings.vault));
        let place = Place { root, hostname, vault };
        let texts = Texts::start(Arc::clone(&netns), place, codecs, mailbox)?;
        let mut platform = Self { rtnetlink, texts, probes: Probes::new(netns) };
        platform.retrieve();
        Ok((platform, events))
    }

    /// Asks the hosts around this box.
    pub fn probes(&self) -> Probes {
        self.probes.clone()
    }

    /// Reads the polled leaves of this box, as nodes of the native schema.
    pub fn collector(&self, native: &Schema) -> Collector {
        Collector::new(native, self.rtnetlink.line().clone())
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
        let (texts, network): (Vec<_>, Vec<_>) =
            keys.into_iter().partition(|key| Query::of(key).is_text());
        if !network.is_empty() {
            self.rtnetlink.line().command(rtnetlink::Command::Read(network));
        }
        if !texts.is_empty() {
            self.texts.command(texts::Command::Read(texts));
        }
    }

    /// The texts are read first, and nothing more is written until the whole report is out: so no
    /// fact in it is older than a completion that was reported before it.
    fn retrieve(&mut self) {
        let line = self.rtnetlink.line().clone();
        self.texts.command(texts::Command::Retrieve(Box::new(move |others| {
            let (done, ended) = std::sync::mpsc::channel();
            line.command(rtnetlink::Command::Retrieve { others, done });
            let _ = ended.recv(); // an error, always: the sender is dropped when it is done
        })));
    }
}
