//! The image step of a bootstrap.

use std::path::Path;

use holdfast_bootz::client::{Install, InstallResult};

use crate::{
    http_client::HttpClient,
    image::{self, Digest, DigestMethod, ImageError},
    network::Network,
    slots::ActivationTime,
    software::{ActivateError, Software},
};

/// File of the image during download and installation, in the bootstrap folder.
const FILE: &str = "image";

/// Reason why an image was not installed.
#[derive(Debug, thiserror::Error)]
pub(super) enum InstallError {
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Activate(#[from] ActivateError),
}

/// Fetches the image, compares its digest, and installs it as the next to run.
pub(super) async fn install(
    network: &Network,
    image: Install,
    software: &Software,
    folder: &Path,
) -> Result<InstallResult, InstallError> {
    let file = folder.join(FILE);
    let installed = fetch_and_install(network, image, software, &file).await;
    let _was_never_made = tokio::fs::remove_file(&file).await;
    installed.map(|runs| match runs {
        ActivationTime::Now => InstallResult::Running,
        ActivationTime::AfterReboot => InstallResult::AtReboot,
    })
}

async fn fetch_and_install(
    network: &Network,
    install: Install,
    software: &Software,
    file: &Path,
) -> Result<ActivationTime, InstallError> {
    let Install { image, trust_anchor: trusts } = install;
    let client = HttpClient { network: network.clone(), trusts: vec![trusts] };
    image::fetch(&client, &image.url, file).await?;
    let digest = Digest { method: DigestMethod::Sha256, octets: image.digest.to_vec() };
    digest.require(file, &image.url).await?;
    Ok(software.install_and_activate(file, &image.version, super::NAME).await?)
}
