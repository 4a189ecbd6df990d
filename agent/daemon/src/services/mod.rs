//! Services: walks that instances need without a request ([`conductor`](walks::conductor)), the queue of their actions ([`actions`]), what the
//! system shows of their states ([`applied`](walks::applied)), handlers ([`handlers`]), operations on instances ([`operations`]), the
//! packages that the agent loads at its start ([`offered`](packages::offered)) and while it runs ([`installer`](packages::installer)), and the commands `holdfast service`, which write, check, try and pack packages without an agent.
//!
//! Files are read and written here ([`folder`](packages::folder)); what is in them the crate `holdfast-services` decides.

mod actions;
pub mod handlers;
mod operations;
mod packages;
mod requester;
mod shown;
#[cfg(test)]
mod tests;
mod walks;

pub use actions::ActionResources;
pub use handlers::Handlers;
pub use operations::queue_operations::CallEntry;
pub use operations::{
    Modification, OperationError, Operations, Place, Progress, SyncCheck, is_undeployed,
};
pub use packages::installer::{
    InstallError, InstallTerms, Installation, LoadedPackage, PackageInstaller,
};
pub use packages::offered::{OfferedPackages, RefusedPackage};
pub use packages::signers::PackageSigners;
pub use packages::stored::reconcile;
pub use requester::Requester;
pub use shown::action_wait;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use holdfast_config::{Models, ModelsError};
use holdfast_core::UserSecrets;
use holdfast_services::offline::{Answers, OfflineError, OfflineInstance, OfflinePackage};
use holdfast_services::{
    Package, PackageError, PackageErrors, PackageFiles, ParametersError, WorkError, starter,
};
use time::OffsetDateTime;

use self::packages::rendering::Selection;
use self::packages::{folder, rendering};
use crate::settings::{PackageAction, ServiceRender};

/// Failure of a command.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    #[error("cannot {action} `{}`", path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("`{}` could be written by others than root and the user of the agent: {reason}", path.display())]
    Unsafe { path: PathBuf, reason: String },
    #[error("cannot load the models")]
    Models(#[from] ModelsError),
    #[error("the package `{}` is refused:\n{errors}", path.display())]
    Package { path: PathBuf, errors: PackageErrors },
    #[error("the parameters `{}` are refused:\n{}", path.display(), lines(errors))]
    Parameters { path: PathBuf, errors: Vec<ParametersError> },
    #[error("the answers `{}` are refused: {reason}", path.display())]
    Answers { path: PathBuf, reason: String },
    #[error("failed in {of}: {}", located(error))]
    Work { of: String, error: WorkError },
    #[error("{0}")]
    Unknown(String),
}

/// Reads the archive of a package.
///
/// # Errors
/// When it cannot be read, or is too large for a package.
pub fn read_file(path: &Path) -> Result<Vec<u8>, ServiceError> {
    folder::bounded(path)
}

/// Does one command, and gives what it prints.
///
/// # Errors
/// With what is wrong with a package, its parameters or a file.
pub fn run(action: &PackageAction) -> Result<String, ServiceError> {
    match action {
        PackageAction::New { name } => new(name),
        PackageAction::Check { packages } => check(packages),
        PackageAction::Render(render) => rendered(render),
        PackageAction::Pack { folder, output } => pack(folder, output),
    }
}

fn new(name: &str) -> Result<String, ServiceError> {
    let path = PathBuf::from(name);
    let refused = |errors| ServiceError::Package { path: path.clone(), errors };
    let date = OffsetDateTime::now_utc().date();
    let date = format!("{:04}-{:02}-{:02}", date.year(), u8::from(date.month()), date.day());
    let files = starter::files(name, &date).map_err(refused)?;
    // A name that no package can have is refused before anything is written.
    Package::read(&Models::load()?, &files).map_err(refused)?;
    folder::write(&path, &files)?;
    let written = files.iter().map(|(file, _)| format!("{name}/{file}\n"));
    Ok(written.collect())
}

/// Checks packages beside each other, as an agent loads them.
fn check(packages: &[PathBuf]) -> Result<String, ServiceError> {
    let mut models = Arc::new(Models::load()?);
    let mut summary = String::new();
    for path in packages {
        let (package, warnings) = read(&models, path)?;
        check_parts(&package, path)?;
        summary += &rendering::summary(&package, &warnings);
        models = package.list.models;
    }
    Ok(summary)
}

/// Refuses a package with a part that can never work. An agent loads it nevertheless: other parts may.
fn check_parts(package: &Package, path: &Path) -> Result<(), ServiceError> {
    let errors = package.lint();
    if errors.is_empty() {
        return Ok(());
    }
    Err(ServiceError::Package { path: path.to_path_buf(), errors: PackageErrors(errors) })
}

/// Reads the files of a package from its folder, or from its archive.
fn files(path: &Path) -> Result<PackageFiles, ServiceError> {
    if path.is_dir() {
        return folder::read(path);
    }
    let refused = |errors| ServiceError::Package { path: path.to_path_buf(), errors };
    PackageFiles::read(&folder::bounded(path)?).map_err(refused)
}

/// Reads a package from its folder, or from its archive.
fn read(models: &Models, path: &Path) -> Result<(Package, Vec<PackageError>), ServiceError> {
    let refused = |errors| ServiceError::Package { path: path.to_path_buf(), errors };
    let (package, warnings) = if path.is_dir() {
        Package::read(models, &folder::read(path)?).map_err(refused)?
    } else {
        let archive = folder::bounded(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Package::read_archive(models, &name, &archive).map_err(refused)?
    };
    Ok((package.with_keeper(UserSecrets::keeper()), warnings))
}

fn rendered(render: &ServiceRender) -> Result<String, ServiceError> {
    let models = Arc::new(Models::load()?);
    let (package, _) = read(&models, &render.package)?;
    let document = folder::bounded(&render.params)?;
    let parameters = package.parameters(&document);
    let parameters = parameters
        .map_err(|errors| ServiceError::Parameters { path: render.params.clone(), errors })?;
    let selection =
        Selection { component: render.component.as_deref(), state: render.state.as_deref() };
    selection.check(&package)?;
    if render.answers.is_none() && !render.assume_actions_done {
        return rendering::work(&package, &parameters, &selection);
    }
    let refused =
        |path: &Path, reason: String| ServiceError::Answers { path: path.to_path_buf(), reason };
    let answers = match &render.answers {
        None => Answers::default(),
        Some(path) => {
            Answers::read(&folder::bounded(path)?).map_err(|reason| refused(path, reason))?
        }
    };
    let files = files(&render.package)?;
    let of =
        OfflinePackage { models, package: &package, files: &files, keeper: UserSecrets::keeper() };
    let failed = |error: OfflineError| {
        refused(render.answers.as_deref().unwrap_or(&render.params), error.to_string())
    };
    let assumes = render.assume_actions_done;
    let instance = OfflineInstance::new(of, &parameters, &document, answers, assumes);
    let walks = instance.and_then(|instance| instance.walk()).map_err(failed)?;
    Ok(rendering::walks(&package, &walks, &selection))
}

/// Checks a folder, writes its archive, and gives the digest as `sha256sum` does.
fn pack(path: &Path, output: &Path) -> Result<String, ServiceError> {
    let refused = |errors| ServiceError::Package { path: path.to_path_buf(), errors };
    let files = folder::read(path)?;
    let (package, _) = Package::read(&Models::load()?, &files).map_err(refused)?;
    check_parts(&package, path)?;
    let archive = files.write().map_err(refused)?;
    let target = output.join(package.archive_name());
    fs::create_dir_all(output).map_err(|source| ServiceError::File {
        action: "make the folder",
        path: output.to_path_buf(),
        source,
    })?;
    fs::write(&target, &archive).map_err(|source| ServiceError::File {
        action: "write",
        path: target.clone(),
        source,
    })?;
    Ok(format!("{}  {}\n", digest_text(&archive), target.display()))
}

/// SHA-256 in hexadecimal digits.
fn digest_text(octets: &[u8]) -> String {
    let digest = digest(&SHA256, octets);
    digest.as_ref().iter().map(|octet| format!("{octet:02x}")).collect()
}

fn lines(errors: &[ParametersError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// A failure with line and column, as editors understand it.
fn located(error: &WorkError) -> String {
    let WorkError { file, position, reason, .. } = error;
    match position {
        Some(at) => format!("{file}:{}:{}: {reason}", at.line, at.column),
        None => format!("{file}: {reason}"),
    }
}
