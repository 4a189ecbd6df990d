//! The image step of a bootstrap.

use std::path::Path;

use holdfast_bootz::client::{Install, Installed};

use crate::{
    image::{self, Digest, ImageError, Method, Runs, Source},
    network::Network,
};

/// The image while it is fetched and installed, in the folder of the bootstrap.
const FILE: &str = "image";

/// Fetches it, compares it with its digest, and has the command install it.
pub(super) async fn install(
    network: &Network,
    wanted: Install,
    command: &Path,
    folder: &Path,
) -> Result<Installed, ImageError> {
    let file = folder.join(FILE);
    let installed = fetch_and_install(network, wanted, command, &file).await;
    let _was_never_made = tokio::fs::remove_file(&file).await;
    installed.map(|runs| match runs {
        Runs::Now => Installed::Running,
        Runs::AfterReboot => Installed::AtReboot,
    })
}

async fn fetch_and_install(
    network: &Network,
    wanted: Install,
    command: &Path,
    file: &Path,
) -> Result<Runs, ImageError> {
    let Install { image, trusts } = wanted;
    let source = Source { network: network.clone(), trusts: Some(trusts) };
    image::fetch(&source, &image.url, file).await?;
    let digest = Digest { method: Method::Sha256, octets: image.digest.to_vec() };
    digest.require(file, &image.url).await?;
    image::install(command, file, &image.version).await
}
