//! Packages that are installed and removed while the agent runs.
//!
//! ```text
//! archive --> read --> checked by a process of its own --> list appended to the models --> one commit: models, types
//!                                                                                        and the archive in the database
//! ```
//!
//! A module that kills libyang kills the process that checks it. Over the network, packages have to be signed. Absent:
//! other versions of a type that is loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{Caller, ErrorChain, now_ns};
use holdfast_bootz::cms::{self, CmsError};
use holdfast_config::ServiceTag;
use holdfast_core::{CommitError, CoreHandle, Datastore, Intent};
use holdfast_services::outline::{ARCHIVE_EXTENSION, Version};
use holdfast_services::{Package, PackageFiles, ServiceTypes};
use holdfast_store::{Artefact, ArtefactChange, ArtefactTable};
use rustls_pki_types::{CertificateDer, UnixTime};
use smol_str::SmolStr;
use tempfile::Builder;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::actions::{self, ActionResources};
use super::handlers::Handlers;
use super::offered::read_archive;
use super::{ServiceError, applied, conductor, digest_text, rendering};
use crate::executable;

/// Time for the check of a package by a process of its own. The largest package takes a second.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);
/// Beginning of the names of folders with archives that are checked.
const CHECK_FOLDER: &str = ".service-check-";
/// Instances that the refusal of a removal names.
const NAMED_INSTANCES: usize = 10;
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Failure of an installation or a removal. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    #[error(transparent)]
    Package(#[from] ServiceError),
    /// The signature does not hold, or its signer is not trusted.
    #[error("the signature of the package is refused")]
    Signature(#[from] CmsError),
    /// The process that checks the package refuses it, or was killed by it.
    #[error("the check of the package failed: {0}")]
    Check(String),
    #[error("cannot check the package")]
    Process(#[source] io::Error),
    #[error("there is no type of services `{0}`")]
    Missing(String),
    /// The box is not in a state for it.
    #[error("{0}")]
    Precondition(String),
    #[error(transparent)]
    Commit(#[from] CommitError),
}

/// Installs and removes packages; clones share the types.
#[derive(Clone)]
pub struct PackageInstaller(Arc<Shared>);

struct Shared {
    core: CoreHandle,
    actions: ActionResources,
    handlers: Handlers,
    /// Certificates of the signers of packages, or of their authorities.
    trusted: Vec<CertificateDer<'static>>,
    /// Folder for the archive that is checked.
    folder: PathBuf,
    state: Mutex<InstallerState>,
}

struct InstallerState {
    types: ServiceTypes,
    /// Digests of the installed archives.
    installed: BTreeMap<SmolStr, String>,
    /// Tasks that begin with the first type: walks, actions, and what the system shows of states.
    tasks: Option<[AbortOnDropHandle<()>; 3]>,
}

/// A type that is loaded.
#[derive(Clone, Debug)]
pub struct LoadedPackage {
    pub name: SmolStr,
    pub version: Version,
    /// Number of instances, those that are not deployed and zombies among them.
    pub instances: usize,
    /// SHA-256 of an installed archive.
    pub digest: Option<String>,
    pub is_removed: bool,
}

impl fmt::Debug for PackageInstaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackageInstaller").field("folder", &self.0.folder).finish_non_exhaustive()
    }
}

impl PackageInstaller {
    /// An installer beside the types of the start; their walks and actions begin.
    pub fn new(
        (actions, handlers): (ActionResources, Handlers),
        (folder, trusted): (&Path, Vec<CertificateDer<'static>>),
        (types, installed): (ServiceTypes, &BTreeMap<String, Artefact>),
    ) -> Self {
        let digest = |(name, it): (&String, &Artefact)| (name.into(), digest_text(&it.content));
        let installed = installed.iter().map(digest).collect();
        sweep(folder);
        let core = actions.core.clone();
        handlers.begin(core.clone());
        let tasks = (!types.is_empty()).then(|| begin(&actions, &handlers));
        let state = Mutex::new(InstallerState { types, installed, tasks });
        let folder = folder.to_path_buf();
        Self(Arc::new(Shared { core, actions, handlers, trusted, folder, state }))
    }

    /// Handlers of the types.
    pub fn handlers(&self) -> &Handlers {
        &self.0.handlers
    }

    /// Installs the type of a package whose signature is that of a trusted signer.
    ///
    /// # Errors
    /// When no signers are trusted or the signature does not hold, and as [`PackageInstaller::install`].
    pub async fn install_signed(
        &self,
        caller: &Caller,
        archive: Vec<u8>,
        signature: &[u8],
    ) -> Result<String, InstallError> {
        if self.0.trusted.is_empty() {
            let reason = "no signers of packages are trusted: see --service-trust";
            return Err(InstallError::Precondition(reason.to_owned()));
        }
        let signer = cms::verify_detached(signature, &archive, &self.0.trusted, UnixTime::now())?;
        info!(signer, "a package of services is signed");
        self.install(caller, archive).await
    }

    /// Installs the type of a package: its lists are in the models from then on, also after a restart. Returns its name,
    /// states and grants.
    ///
    /// # Errors
    /// When the package is wrong, or another one of its type is loaded.
    pub async fn install(&self, caller: &Caller, archive: Vec<u8>) -> Result<String, InstallError> {
        let (outline, files) = read_archive(Path::new("the archive"), &archive)?;
        let (name, version) = (outline.name.text, outline.version);
        let mut state = self.0.state.lock().await;
        let digest = digest_text(&archive);
        if let Some(text) = state.verdict(&name, version, &digest)? {
            return Ok(text);
        }
        self.check(&archive, &format!("{name}-{version}.{ARCHIVE_EXTENSION}")).await?;
        let (types, summary) = added(state.types.clone(), files).await?;
        let content = Zeroizing::new(archive);
        let created_on = now_ns() / NANOS_PER_SECOND;
        let artefact = Artefact { version: version.to_string(), created_on, content };
        self.change(caller, (&types, &name), Some(artefact)).await?;
        info!(service = %name, %version, digest, caller = %caller.name, "installed a type of services");
        state.types = types;
        state.installed.insert(name, digest);
        state.tasks.get_or_insert_with(|| begin(&self.0.actions, &self.0.handlers));
        Ok(summary)
    }

    /// Removes an installed type without instances. Its empty list stays in the models until the next start.
    ///
    /// # Errors
    /// When the type is not there, was not installed, or has instances.
    pub async fn remove(&self, caller: &Caller, name: &str) -> Result<String, InstallError> {
        let mut state = self.0.state.lock().await;
        if !state.installed.contains_key(name) {
            return Err(match state.types.packages().any(|it| it.outline.name.text == *name) {
                true => InstallError::Precondition(format!(
                    "`{name}` was not installed: it comes from the folder of --services, or was removed"
                )),
                false => InstallError::Missing(name.to_owned()),
            });
        }
        let used = self.instances(name);
        if !used.is_empty() {
            let named: Vec<_> =
                used.iter().take(NAMED_INSTANCES).map(ToString::to_string).collect();
            let (count, named) = (used.len(), named.join(", "));
            let reason = format!("`{name}` has {count} instances: {named}");
            return Err(InstallError::Precondition(reason));
        }
        let mut types = state.types.clone();
        types.remove(name);
        self.change(caller, (&types, name), None).await?;
        info!(service = name, caller = %caller.name, "removed a type of services");
        state.types = types;
        state.installed.remove(name);
        Ok(format!("{name} is removed; its empty list goes with the next start\n"))
    }

    /// The loaded types, in the order in which they were.
    pub async fn list(&self) -> Vec<LoadedPackage> {
        let state = self.0.state.lock().await;
        let loaded = |package: &Package| {
            let name = package.outline.name.text.clone();
            LoadedPackage {
                version: package.version(),
                instances: self.instances(&name).len(),
                digest: state.installed.get(&name).cloned(),
                is_removed: state.types.is_removed(&name),
                name,
            }
        };
        state.types.packages().map(loaded).collect()
    }

    /// Instances of a type, those that are not deployed and zombies among them.
    fn instances(&self, name: &str) -> BTreeSet<ServiceTag> {
        let configuration = self.0.core.configuration();
        let with_plans = configuration.layers().book.iter().map(|(tag, _)| tag.clone());
        let tags = configuration.instances().into_iter().chain(with_plans);
        tags.filter(|tag| tag.service == *name).collect()
    }

    async fn change(
        &self,
        caller: &Caller,
        (types, name): (&ServiceTypes, &str),
        artefact: Option<Artefact>,
    ) -> Result<(), InstallError> {
        let table = ArtefactTable::ServicePackages;
        let package = ArtefactChange { table, name: name.to_owned(), artefact };
        let (services, models) = (Arc::new(types.clone()), Arc::clone(types.models()));
        self.0.core.change(caller, Intent::Package { services, models, package }).await?;
        Ok(())
    }

    /// Has another process check the package, as `holdfast service check` does.
    async fn check(&self, archive: &[u8], name: &str) -> Result<(), InstallError> {
        let folder = Builder::new().prefix(CHECK_FOLDER).tempdir_in(&self.0.folder);
        let folder = folder.map_err(InstallError::Process)?;
        let path = folder.path().join(name);
        let mut file = fs::File::create_new(&path).map_err(InstallError::Process)?;
        file.write_all(archive).map_err(InstallError::Process)?;
        let mut check = Command::new(executable::SELF);
        check.args(["service", "check"]).arg(&path).stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(CHECK_TIMEOUT, check.output())
            .await
            .map_err(|_| InstallError::Check(format!("it did not end within {CHECK_TIMEOUT:?}")))?;
        let output = output.map_err(InstallError::Process)?;
        match output.status.success() {
            true => Ok(()),
            false => {
                let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                Err(InstallError::Check(match text.is_empty() {
                    true => output.status.to_string(),
                    false => text,
                }))
            }
        }
    }
}

impl InstallerState {
    /// The answer to an installation of what is installed already; `None` for a type that is not loaded.
    fn verdict(
        &self,
        name: &SmolStr,
        version: Version,
        digest: &str,
    ) -> Result<Option<String>, InstallError> {
        let loaded = self.types.packages().find(|it| it.outline.name.text == *name);
        let Some(loaded) = loaded else { return Ok(None) };
        if self.installed.get(name).is_some_and(|it| it == digest) {
            return Ok(Some(format!("{name} {version} is installed already\n")));
        }
        let reason = match (self.types.is_removed(name), loaded.version()) {
            (true, _) => {
                format!("`{name}` was removed: it can be installed again after the next start")
            }
            (false, other) if other == version => {
                format!("`{name}` {version} is loaded, with other content or from --services")
            }
            (false, other) => format!(
                "`{name}` {other} is loaded: this version of the agent exchanges a type that is loaded at a start alone"
            ),
        };
        Err(InstallError::Precondition(reason))
    }
}

fn begin(resources: &ActionResources, handlers: &Handlers) -> [AbortOnDropHandle<()>; 3] {
    let core = &resources.core;
    [
        conductor::conduct(core.clone(), handlers.clone()),
        actions::carry_out(resources.clone(), handlers.clone()),
        applied::show(core.clone()),
    ]
}

/// Removes archives whose check ended with an earlier agent.
fn sweep(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let left = entries.filter(|it| it.file_name().to_string_lossy().starts_with(CHECK_FOLDER));
    for entry in left {
        if let Err(error) = fs::remove_dir_all(entry.path()) {
            let path = entry.path();
            warn!(path = %path.display(), %error, "cannot remove what a check of a package left");
        }
    }
}

/// Types with that of a package, and the text that tells of it. Compiling takes long.
async fn added(
    mut types: ServiceTypes,
    files: PackageFiles,
) -> Result<(ServiceTypes, String), InstallError> {
    let added = spawn_blocking(move || {
        let warnings = types.add(&files).map_err(|errors| {
            let path = PathBuf::from("the archive");
            ServiceError::Package { path, errors }
        })?;
        let summary = types.packages().last().map(|it| rendering::summary(it, &warnings));
        Ok((types, summary.unwrap_or_default()))
    });
    let ended = added.await;
    ended.unwrap_or_else(|error| Err(InstallError::Check(ErrorChain(&error).to_string())))
}
