//! The image step of a bootstrap.

use std::path::Path;

use holdfast_bootz::client::{Install, Installed};

use crate::{
    image::{self, Digest, ImageError, Method, Source},
    network::Network,
    slots::{Runs, Slots},
};

/// The image while it is fetched and installed, in the folder of the bootstrap.
const FILE: &str = "image";

/// Fetches it, compares it with its digest, and has it installed as what runs next.
pub(super) async fn install(
    network: &Network,
    wanted: Install,
    slots: &Slots,
    folder: &Path,
) -> Result<Installed, ImageError> {
    let file = folder.join(FILE);
    let installed = fetch_and_install(network, wanted, slots, &file).await;
    let _was_never_made = tokio::fs::remove_file(&file).await;
    installed.map(|runs| match runs {
        Runs::Now => Installed::Running,
        Runs::AfterReboot => Installed::AtReboot,
    })
}

async fn fetch_and_install(
    network: &Network,
    wanted: Install,
    slots: &Slots,
    file: &Path,
) -> Result<Runs, ImageError> {
    let Install { image, trusts } = wanted;
    let source = Source { network: network.clone(), trusts: Some(trusts) };
    image::fetch(&source, &image.url, file).await?;
    let digest = Digest { method: Method::Sha256, octets: image.digest.to_vec() };
    digest.require(file, &image.url).await?;
    Ok(slots.install_and_activate(file, &image.version).await?)
}
