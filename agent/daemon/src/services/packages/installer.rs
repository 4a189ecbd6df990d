//! Packages that are installed and removed while the agent runs.
//!
//! ```text
//! archive --> read --> checked by a process of its own --> compiled with the models --> one commit: models, types, the
//!                                                             |                         instances, and the archive
//!                                                             ` with instances: a dry run, whose hash has to be named
//! ```
//!
//! A module that kills libyang kills the process that checks it. Over the network, packages have to be signed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use holdfast_base::ErrorChain;
use holdfast_bootz::cms::CmsError;
use holdfast_config::{ClaimKey, ExchangeMode, LimitExceeded, ServiceTag, TypeExchange};
use holdfast_core::{CommitError, CoreHandle, Datastore, Intent, PlanHash, Preview};
use holdfast_services::outline::Version;
use holdfast_services::{Package, PackageFiles, PackageSource, PackageVersion, ServiceTypes};
use rustls_pki_types::UnixTime;
use smol_str::SmolStr;
use tokio::sync::{Mutex, watch};
use tokio::task::spawn_blocking;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use super::offered::read_archive;
use super::signers::{PackageSigners, SignatureRefusal};
use super::stored::{self, PackageOrigin};
use super::trial::{self, Candidate, TrialError};
use super::upgrade::{Upgrade, UpgradePreview};
use super::{rendering, revocation, shown_types};
use crate::services::actions::{self, ActionResources};
use crate::services::handlers::Handlers;
use crate::services::requester::Requester;
use crate::services::walks::{applied, conductor};
use crate::services::{ServiceError, digest_text};

/// Instances that the refusal of a removal names.
const NAMED_INSTANCES: usize = 10;

/// Failure of an installation or a removal. Nothing has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    #[error(transparent)]
    Package(#[from] ServiceError),
    /// The signature does not hold, or its signer is not trusted.
    #[error("the signature of the package is refused")]
    Signature(#[source] CmsError),
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
    /// Another package has this name and version.
    #[error("{0}")]
    Exists(String),
    /// There are as many types as there may be.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    #[error(transparent)]
    Commit(#[from] CommitError),
}

impl From<TrialError> for InstallError {
    fn from(error: TrialError) -> Self {
        match error {
            TrialError::Refused(reason) => Self::Check(reason),
            TrialError::Process(error) => Self::Process(error),
        }
    }
}

impl From<SignatureRefusal> for InstallError {
    fn from(refusal: SignatureRefusal) -> Self {
        match refusal {
            SignatureRefusal::Lists(_) => Self::Precondition(refusal.to_string()),
            SignatureRefusal::Signature(error) => Self::Signature(error),
        }
    }
}

/// Installs and removes packages; clones share the types.
#[derive(Clone)]
pub struct PackageInstaller(Arc<Shared>);

pub(in crate::services) struct Shared {
    core: CoreHandle,
    actions: ActionResources,
    handlers: Handlers,
    pub(in crate::services) signers: PackageSigners,
    /// Follows the revocation lists of signers, where there are to be some.
    _revocation: Option<AbortOnDropHandle<()>>,
    /// Folder for the archive that is checked.
    folder: PathBuf,
    state: Mutex<InstallerState>,
}

struct InstallerState {
    types: ServiceTypes,
    /// The types, for those who show them.
    types_tx: watch::Sender<ServiceTypes>,
    /// Tasks that begin with the first type: walks, actions, the types as state, and what the system shows of states.
    tasks: Option<[AbortOnDropHandle<()>; 4]>,
}

/// A type that is loaded.
#[derive(Clone, Debug)]
pub struct LoadedPackage {
    pub name: SmolStr,
    /// Version with which instances are made.
    pub version: Version,
    /// Number of instances, those that are not deployed and zombies among them.
    pub instances: usize,
    /// SHA-256 of the archive.
    pub digest: String,
    pub is_installed: bool,
    /// False while the type is switched off: its instances wait.
    pub is_switched_on: bool,
    /// Signer of a package that came over the network.
    pub signer: Option<String>,
    /// Reason for which that is refused now.
    pub refusal: Option<String>,
    /// Other versions, with which instances were walked last.
    pub others: Vec<Version>,
}

/// Terms of an installation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstallTerms {
    /// Nothing changes; the answer is what would.
    pub is_dry_run: bool,
    /// The hash of the dry run of the same installation.
    pub expected: Option<PlanHash>,
    /// Each instance is walked in a change of its own. An instance that fails keeps its version.
    pub each: bool,
    /// Components of types that the new version lacks are dropped without being undone.
    pub force: bool,
    /// A lower version than the loaded one is wanted.
    pub downgrade: bool,
}

/// Answer to an installation.
#[derive(Debug)]
pub struct Installation {
    /// Name, states and grants, and what became of instances.
    pub summary: String,
    /// Of a dry run.
    pub preview: Option<Preview>,
    /// Of a dry run: parameters of instances that the version has no place for. They refuse it, and the preview is that without
    /// them.
    pub unfit: Vec<String>,
}

impl Installation {
    fn done(summary: String) -> Self {
        Self { summary, preview: None, unfit: Vec::new() }
    }
}

impl fmt::Debug for PackageInstaller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackageInstaller").field("folder", &self.0.folder).finish_non_exhaustive()
    }
}

impl PackageInstaller {
    /// An installer beside the types of the start; their walks and actions begin.
    pub fn new(
        actions: ActionResources,
        handlers: Handlers,
        folder: &Path,
        signers: PackageSigners,
        types: ServiceTypes,
    ) -> Self {
        trial::sweep(folder);
        let core = actions.core.clone();
        handlers.begin(core.clone());
        let types_tx = watch::Sender::new(types.clone());
        let tasks = (!types.is_empty()).then(|| begin(&actions, &handlers, &types_tx));
        let state = Mutex::new(InstallerState { types, types_tx, tasks });
        let folder = folder.to_path_buf();
        Self(Arc::new_cyclic(|shared| {
            let _revocation = signers.may_be_revoked().then(|| revocation::follow(shared.clone()));
            Shared { core, actions, handlers, signers, _revocation, folder, state }
        }))
    }

    /// Handlers of the types.
    pub fn handlers(&self) -> &Handlers {
        &self.0.handlers
    }

    /// Installs the type of a package whose signature is that of a trusted signer.
    ///
    /// # Errors
    /// When no signers are trusted, the signature does not hold or its signer is revoked, and as [`PackageInstaller::install`].
    pub async fn install_signed(
        &self,
        by: &Requester,
        archive: &[u8],
        signature: &[u8],
        terms: InstallTerms,
    ) -> Result<Installation, InstallError> {
        if self.0.signers.is_empty() {
            let reason = "no signers of packages are trusted: see --service-trust";
            return Err(InstallError::Precondition(reason.to_owned()));
        }
        let signer = self.signer(signature, archive).await?;
        info!(signer, "a package of services is signed");
        self.install_from(by, archive, Some((&signer, signature)), terms).await
    }

    /// The trusted signer of an archive. Reading the revocation lists may take long.
    async fn signer(&self, signature: &[u8], archive: &[u8]) -> Result<String, InstallError> {
        let signers = self.0.signers.clone();
        let signature = signature.to_vec();
        let archive = archive.to_vec();
        let verified = spawn_blocking(move || {
            Ok(signers.verifier().verify(&signature, &archive, UnixTime::now())?)
        });
        let ended = verified.await;
        ended.unwrap_or_else(|error| Err(InstallError::Check(ErrorChain(&error).to_string())))
    }

    /// Installs the type of a package: its list is in the models after that, also after a restart. It takes the place
    /// of another version, and walks the instances of that.
    ///
    /// # Errors
    /// When the package is wrong or too low, has instances that it does not fit, or is not what a dry run has shown.
    pub async fn install(
        &self,
        by: &Requester,
        archive: &[u8],
        terms: InstallTerms,
    ) -> Result<Installation, InstallError> {
        self.install_from(by, archive, None, terms).await
    }

    async fn install_from(
        &self,
        by: &Requester,
        archive: &[u8],
        signer: Option<(&str, &[u8])>,
        terms: InstallTerms,
    ) -> Result<Installation, InstallError> {
        let (outline, files) = read_archive(Path::new("the archive"), archive)?;
        let name = outline.name.text.clone();
        let version = outline.version;
        let mut state = self.0.state.lock().await;
        let digest = digest_text(archive);
        if let Some(summary) = state.verdict(&name, version, archive, terms.downgrade)? {
            return Ok(Installation::done(summary));
        }
        state.types.check_room(&name)?;
        let is_upgrade = state.newest(&name).is_some_and(|it| it.package.version() != version)
            && !self.instances(&name).is_empty();
        if is_upgrade && terms.expected.is_none() && !terms.is_dry_run {
            return Err(needs_dry_run(&name, version));
        }
        let candidate = Candidate { name: outline.archive_name(), archive };
        trial::check(&self.0.folder, &[candidate]).await?;
        let source = stored::source(PackageOrigin::Installed(signer), version, archive);
        let mut types = state.types.clone();
        types.forget_unused(&name, &self.0.core.configuration().layers().book);
        let (types, summary) = loaded(types, files, source, name.clone()).await?;
        let upgrade = Upgrade {
            core: &self.0.core,
            by,
            exchange: TypeExchange {
                services: Arc::new(types.clone()),
                models: Arc::clone(types.models()),
                service: name.clone(),
                digest: digest.as_str().into(),
                mode: ExchangeMode::Together,
                is_forced: terms.force,
                is_lenient: false,
                drops_unfit: false,
            },
            version,
        };
        if terms.is_dry_run {
            let UpgradePreview { preview, unfit } = upgrade.dry_run(terms.each).await?;
            return Ok(Installation { summary, preview: Some(preview), unfit });
        }
        let left = if terms.each && is_upgrade {
            upgrade.each(terms.expected).await?
        } else {
            upgrade.together(terms.expected).await?
        };
        info!(service = %name, %version, digest, caller = %by.caller.name, "installed a type of services");
        state.put(types);
        if state.tasks.is_none() {
            let tasks = begin(&self.0.actions, &self.0.handlers, &state.types_tx);
            state.tasks = Some(tasks);
        }
        Ok(Installation::done(summary + &left))
    }

    /// Removes an installed type, and its list from the models. Instances refuse that, unless it is forced: they go then,
    /// and what they made is left to nobody.
    ///
    /// # Errors
    /// When the type is not there, was not installed, or has instances.
    pub async fn remove(
        &self,
        by: &Requester,
        name: &str,
        is_forced: bool,
    ) -> Result<String, InstallError> {
        let mut state = self.0.state.lock().await;
        let missing = || InstallError::Missing(name.to_owned());
        let newest = state.newest(name).ok_or_else(missing)?;
        if !newest.source.as_ref().is_some_and(|it| it.is_installed) {
            let reason =
                format!("`{name}` was not installed: it comes from the folder of --services");
            return Err(InstallError::Precondition(reason));
        }
        let used = self.instances(name);
        if !used.is_empty() && !is_forced {
            let named: Vec<_> =
                used.iter().take(NAMED_INSTANCES).map(ToString::to_string).collect();
            let count = used.len();
            let named = named.join(", ");
            let reason = format!("`{name}` has {count} instances: {named}");
            return Err(InstallError::Precondition(reason));
        }
        let mut types = state.types.clone();
        types.remove(name).map_err(|error| InstallError::Check(ErrorChain(&error).to_string()))?;
        let exchange = TypeExchange {
            services: Arc::new(types.clone()),
            models: Arc::clone(types.models()),
            service: name.into(),
            digest: SmolStr::default(),
            mode: ExchangeMode::Remove,
            is_forced,
            is_lenient: false,
            drops_unfit: false,
        };
        by.change(&self.0.core, Intent::Package(exchange)).await?;
        info!(service = name, caller = %by.caller.name, "removed a type of services");
        state.put(types);
        let left: String =
            used.into_iter().map(|tag| format!("{} is left\n", ClaimKey::orphan(tag))).collect();
        Ok(format!("{name} is removed\n{left}"))
    }

    /// The loaded types, in the order in which they were.
    pub async fn list(&self) -> Vec<LoadedPackage> {
        let state = self.0.state.lock().await;
        let mut others = state.types.other_versions(&self.0.core.configuration().layers().book);
        let loaded = |package: &Package| {
            let name = package.outline.name.text.clone();
            let source = state.newest(&name).and_then(|it| it.source.as_ref());
            LoadedPackage {
                version: package.version(),
                instances: self.instances(&name).len(),
                digest: source.map(|it| digest_text(&it.archive.octets)).unwrap_or_default(),
                is_installed: source.is_some_and(|it| it.is_installed),
                is_switched_on: self.0.core.configuration().is_switched_on(&name),
                signer: source.and_then(stored::signer).map(ToOwned::to_owned),
                refusal: source.and_then(|it| it.refusal.as_ref()).map(ToString::to_string),
                others: others.remove(&name).unwrap_or_default(),
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
}

impl Shared {
    /// Judges the signers of all packages by the revocation lists as they are now.
    pub(in crate::services) async fn judge_signers(&self) {
        let mut state = self.state.lock().await;
        if let Some(types) = revocation::judged(self.signers.clone(), state.types.clone()).await {
            state.put(types);
        }
    }
}

impl InstallerState {
    fn put(&mut self, types: ServiceTypes) {
        self.types = types.clone();
        self.types_tx.send_replace(types);
    }

    fn newest(&self, name: &str) -> Option<&PackageVersion> {
        self.types.versions(name).next()
    }

    /// The answer to an installation of what is installed already; `None` for what may be installed.
    fn verdict(
        &self,
        name: &str,
        version: Version,
        archive: &[u8],
        downgrade: bool,
    ) -> Result<Option<String>, InstallError> {
        let Some(newest) = self.newest(name) else { return Ok(None) };
        let mut versions = self.types.versions(name);
        let same = versions.find(|it| it.package.version() == version);
        let source = same.and_then(|it| it.source.as_ref());
        if let Some(source) = source {
            if source.archive.octets[..] != *archive {
                let reason = format!("`{name}` {version} is loaded, with other content");
                return Err(InstallError::Exists(reason));
            }
            if source.is_installed && newest.package.version() == version {
                return Ok(Some(format!("{name} {version} is installed already\n")));
            }
        }
        let loaded = newest.package.version();
        if version < loaded && !downgrade {
            let reason = format!(
                "`{name}` {loaded} is loaded, which is newer: to go back to {version}, set `downgrade`"
            );
            return Err(InstallError::Precondition(reason));
        }
        Ok(None)
    }
}

fn needs_dry_run(name: &str, version: Version) -> InstallError {
    InstallError::Precondition(format!(
        "`{name}` has instances: {version} is installed with the hash of its own dry run alone, \
         see `holdfast service install --dry-run` and `--expected`"
    ))
}

fn begin(
    resources: &ActionResources,
    handlers: &Handlers,
    types_tx: &watch::Sender<ServiceTypes>,
) -> [AbortOnDropHandle<()>; 4] {
    let core = &resources.core;
    [
        conductor::conduct(core.clone(), handlers.clone()),
        actions::carry_out(resources.clone(), handlers.clone()),
        applied::show(core.clone()),
        shown_types::show(core.clone(), handlers.clone(), types_tx.subscribe()),
    ]
}

/// Types with this version of a package, and the text that tells of it. Compiling takes long.
async fn loaded(
    mut types: ServiceTypes,
    files: PackageFiles,
    source: PackageSource,
    name: SmolStr,
) -> Result<(ServiceTypes, String), InstallError> {
    let loaded = spawn_blocking(move || {
        let warnings = types.load(&files, Some(source)).map_err(|errors| {
            let path = PathBuf::from("the archive");
            ServiceError::Package { path, errors }
        })?;
        let newest = types.versions(&name).next();
        let summary = newest.map(|it| rendering::summary(&it.package, &warnings));
        let summary = summary.unwrap_or_default();
        Ok((types, summary))
    });
    let ended = loaded.await;
    ended.unwrap_or_else(|error| Err(InstallError::Check(ErrorChain(&error).to_string())))
}
