//! Software versions: the running one, the one activated to run next, and the configuration that comes with it.
//!
//! An activation is stored before the box is changed. Each start compares the running version with the activated
//! one ([`Software::begin`]): the activated version runs, or the box has booted another one, or it has not booted
//! since.

use std::{
    fmt, io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use holdfast_base::ErrorChain;
use holdfast_store::{Artefact, ArtefactChange, ArtefactTable, Artefacts, Store, StoreError};
use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};
use zeroize::Zeroizing;

use crate::{
    reboot::{RebootScope, Reboots, boot_id},
    slots::{ActivationTime, SlotError, Slots},
};

/// Version of a box without any information: that of the agent.
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");
/// Names of the stored artefacts: the activation, and the boot configuration that came with it.
const ACTIVATION: &str = "activation";
const BOOT_CONFIG: &str = "boot-config";

/// Reason why a version was not activated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActivateError {
    #[error("version `{version}` is not installed; installed are {}", there.join(", "))]
    NotInstalled { version: String, there: Vec<String> },
    #[error(transparent)]
    Slot(#[from] SlotError),
    #[error("cannot record the activation")]
    Store(#[from] StoreError),
}

/// Software of the box; clones share it.
#[derive(Clone, Debug)]
pub struct Software(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    slots: Slots,
    running: RunningVersion,
    boot: String,
    store: Store,
    activation: Mutex<Option<Activation>>,
    /// Serializes activations.
    turn: tokio::sync::Mutex<()>,
}

/// The running version, determined at the start of the agent.
#[derive(Clone, Debug)]
pub struct RunningVersion {
    version: String,
    /// False when the program failed to report it.
    is_certain: bool,
}

/// The last activation. Kept until its version runs, or longer if something failed.
#[derive(Clone)]
struct Activation {
    record: Record,
    /// The encoded boot configuration request that came with it. `Debug` omits it, because it has secrets.
    boot_config: Option<Zeroizing<Vec<u8>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: String,
    /// Caller that activated it.
    by: String,
    /// Boot id at the time of the activation.
    boot: String,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Waits,
    /// The box has booted another version.
    FellBack(String),
    /// The version runs, but its configuration could not be applied.
    Incomplete(String),
}

/// Boot configuration to apply, now that the activated version runs.
pub struct PendingBootConfig {
    pub version: String,
    /// Caller that activated the version.
    pub by: String,
    /// Encoded `SetBootConfigRequest`. `Debug` omits it, because it has secrets.
    pub boot_config: Zeroizing<Vec<u8>>,
}

/// State of an activation at a start.
#[derive(Debug, PartialEq, Eq)]
enum ActivationState {
    Unchanged,
    Runs,
    FellBack,
    /// The activation has no relevance any more.
    Outdated,
}

impl fmt::Debug for Activation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Activation").field("record", &self.record).finish_non_exhaustive()
    }
}

impl fmt::Debug for PendingBootConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingBootConfig").field("version", &self.version).finish_non_exhaustive()
    }
}

impl RunningVersion {
    pub fn certain(version: impl Into<String>) -> Self {
        Self { version: version.into(), is_certain: true }
    }

    /// Determines the running version: the one given, else the one that the program reports.
    pub async fn find(setting: Option<String>, slots: &Slots) -> Self {
        if let Some(version) = setting {
            return Self::certain(version);
        }
        match slots.list().await.map(|listed| listed.into_iter().next()) {
            Ok(version) => Self::certain(version.unwrap_or_else(|| OWN_VERSION.to_owned())),
            Err(SlotError::NoProgram) => Self::certain(OWN_VERSION),
            Err(error) => {
                warn!(error = %ErrorChain(&error), "cannot find out which software runs");
                Self { version: OWN_VERSION.to_owned(), is_certain: false }
            }
        }
    }
}

/// Boot id of the box, which differs after a reboot of the given extent.
///
/// # Errors
/// When the kernel's boot id cannot be read.
pub fn this_boot(extent: RebootScope, reboots: &Reboots) -> io::Result<String> {
    let kernel = boot_id()?;
    Ok(match extent {
        RebootScope::System => kernel,
        RebootScope::Agent => format!("{kernel}/{}", reboots.last().unwrap_or_default().count),
    })
}

impl Software {
    /// Restores the stored activation. `boot` is the result of [`this_boot`].
    pub fn new(
        slots: Slots,
        running: RunningVersion,
        boot: String,
        store: Store,
        stored: &Artefacts,
    ) -> Self {
        let activation = Mutex::new(read(stored));
        Self(Arc::new(Shared { slots, running, boot, store, activation, turn: Default::default() }))
    }

    pub fn slots(&self) -> &Slots {
        &self.0.slots
    }

    /// Running version, as in `/system/state/software-version`.
    pub fn running(&self) -> &str {
        &self.0.running.version
    }

    /// Reason why the last activated version does not run, or runs incompletely.
    pub fn failure(&self) -> Option<String> {
        match self.current()?.record.outcome {
            Outcome::Waits => None,
            Outcome::FellBack(why) | Outcome::Incomplete(why) => Some(why),
        }
    }

    /// True when a version is installed.
    ///
    /// # Errors
    /// When the program fails. Without a program, only the running version counts as installed.
    pub async fn is_installed(&self, version: &str) -> Result<bool, SlotError> {
        if version == self.running() {
            return Ok(true);
        }
        match self.0.slots.list().await {
            Ok(listed) => Ok(listed.iter().any(|it| it == version)),
            Err(SlotError::NoProgram) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Selects the installed version to boot. Its boot configuration is applied when it first runs, and dropped
    /// when the box boots another version instead. That of an earlier activation is dropped.
    ///
    /// # Errors
    /// When the version is not installed, or the program fails; the earlier activation then remains.
    pub async fn activate(
        &self,
        version: &str,
        by: &str,
        boot_config: Option<Vec<u8>>,
    ) -> Result<ActivationTime, ActivateError> {
        let _turn = self.0.turn.lock().await;
        let there = self.0.slots.list().await?;
        if !there.iter().any(|it| it == version) {
            return Err(ActivateError::NotInstalled { version: version.to_owned(), there });
        }
        self.run_next(version, by, boot_config).await
    }

    /// Installs an image and selects it to boot. The boot configuration of an earlier activation is dropped.
    ///
    /// # Errors
    /// When the program fails; the earlier activation then remains.
    pub async fn install_and_activate(
        &self,
        file: &Path,
        version: &str,
        by: &str,
    ) -> Result<ActivationTime, ActivateError> {
        let _turn = self.0.turn.lock().await;
        self.0.slots.install(file, version).await?;
        self.run_next(version, by, None).await
    }

    async fn run_next(
        &self,
        version: &str,
        by: &str,
        boot_config: Option<Vec<u8>>,
    ) -> Result<ActivationTime, ActivateError> {
        let record = Record {
            version: version.to_owned(),
            by: by.to_owned(),
            boot: self.0.boot.clone(),
            outcome: Outcome::Waits,
        };
        let before = self.current();
        let boot_config = boot_config.map(Zeroizing::new);
        self.keep(Some(Activation { record, boot_config })).await?;
        match self.0.slots.activate(version).await {
            Ok(runs) => {
                info!(version, by, "a version of the software is activated");
                Ok(runs)
            }
            Err(error) => {
                self.keep(before).await?;
                Err(error.into())
            }
        }
    }

    /// Determines the result of the activation, once at each start.
    ///
    /// # Errors
    /// When it cannot be stored.
    pub async fn begin(&self) -> Result<Option<PendingBootConfig>, StoreError> {
        let Some(Activation { record, boot_config }) = self.current() else { return Ok(None) };
        let running = &self.0.running;
        if !running.is_certain {
            return Ok(None);
        }
        let version = &record.version;
        match found(&record, &running.version, &self.0.boot) {
            ActivationState::Unchanged => Ok(None),
            ActivationState::Outdated => self.keep(None).await.map(|()| None),
            ActivationState::FellBack => {
                let why = format!("version {version} was activated, {} runs", running.version);
                error!(activated = version, running = running.version, "the box fell back");
                self.end(record, Outcome::FellBack(why)).await.map(|()| None)
            }
            ActivationState::Runs => {
                info!(version, "the version that was activated runs");
                let Record { version, by, .. } = record;
                match boot_config {
                    Some(boot_config) => Ok(Some(PendingBootConfig { version, by, boot_config })),
                    None => self.keep(None).await.map(|()| None),
                }
            }
        }
    }

    /// Changes to store when everything that came with an activation is applied.
    pub fn completion() -> Vec<ArtefactChange> {
        changes(None)
    }

    /// Records that the completion is stored.
    pub fn complete(&self) {
        self.set(None);
    }

    /// Drops the boot configuration of the activation after it could not be applied.
    ///
    /// # Errors
    /// When that cannot be stored.
    pub async fn incomplete(&self, why: String) -> Result<(), StoreError> {
        match self.current() {
            Some(Activation { record, .. }) => self.end(record, Outcome::Incomplete(why)).await,
            None => Ok(()),
        }
    }

    async fn end(&self, record: Record, outcome: Outcome) -> Result<(), StoreError> {
        let record = Record { outcome, ..record };
        self.keep(Some(Activation { record, boot_config: None })).await
    }

    async fn keep(&self, activation: Option<Activation>) -> Result<(), StoreError> {
        self.0.store.write_artefacts(changes(activation.as_ref())).await?;
        self.set(activation);
        Ok(())
    }

    fn set(&self, activation: Option<Activation>) {
        *self.0.activation.lock().unwrap_or_else(PoisonError::into_inner) = activation;
    }

    fn current(&self) -> Option<Activation> {
        self.0.activation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn found(record: &Record, running: &str, boot: &str) -> ActivationState {
    match (&record.outcome, record.version == running) {
        (Outcome::Waits, true) => ActivationState::Runs,
        (Outcome::Waits, false) if record.boot != boot => ActivationState::FellBack,
        (Outcome::FellBack(_), true) | (Outcome::Incomplete(_), false) => ActivationState::Outdated,
        _ => ActivationState::Unchanged,
    }
}

fn changes(activation: Option<&Activation>) -> Vec<ArtefactChange> {
    let row = |name: &str, content: Option<Vec<u8>>| ArtefactChange {
        table: ArtefactTable::Activation,
        name: name.to_owned(),
        artefact: content.map(|content| Artefact {
            version: String::new(),
            created_on: 0,
            content: Zeroizing::new(content),
        }),
    };
    let record = activation.map(|it| {
        serde_json::to_vec(&it.record).expect("texts and an enumeration have a JSON form")
    });
    let boot_config = activation.and_then(|it| it.boot_config.as_ref());
    vec![row(ACTIVATION, record), row(BOOT_CONFIG, boot_config.map(|it| it.to_vec()))]
}

/// An unreadable activation is kept until the next one: a newer agent may have written it.
fn read(stored: &Artefacts) -> Option<Activation> {
    let rows = stored.get(&ArtefactTable::Activation)?;
    let record = serde_json::from_slice(&rows.get(ACTIVATION)?.content);
    let record = record.inspect_err(|error| warn!(%error, "cannot read what was activated last"));
    let boot_config = rows.get(BOOT_CONFIG).map(|it| it.content.clone());
    Some(Activation { record: record.ok()?, boot_config })
}
