//! Signers of loaded packages, judged again when the file with revocation lists has changed.
//!
//! The types stay with their instances, since what runs on them would go with them; the log, the state and the list of packages
//! say who is refused. Times of certificates and lists do not count, so a change of the file is all that is looked for.

use std::sync::Weak;
use std::time::Duration;

use holdfast_services::{PackageVersion, ServiceTypes};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

use super::installer::Shared;
use super::signers::{ListsStamp, PackageSigners};
use super::stored;

/// Time between two looks at the file. A look reads no list, and a signer that is revoked is told of within seconds.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// Follows the lists for as long as the handle is kept.
pub(in crate::services) fn follow(installer: Weak<Shared>) -> AbortOnDropHandle<()> {
    AbortOnDropHandle::new(tokio::spawn(run(installer)))
}

async fn run(installer: Weak<Shared>) {
    // The file may have changed since the start has read it, so the first look judges.
    let mut seen = None;
    loop {
        sleep(LOOK_INTERVAL).await;
        let Some(installer) = installer.upgrade() else { return };
        let signers = installer.signers.clone();
        let stamp: ListsStamp = spawn_blocking(move || signers.stamp()).await.unwrap_or_default();
        if seen != Some(stamp) {
            seen = Some(stamp);
            installer.judge_signers().await;
        }
    }
}

/// Types whose signers are judged by the lists as they are now; `None` where no verdict is another one. Reading them and
/// verifying may take long.
pub(in crate::services) async fn judged(
    signers: PackageSigners,
    mut types: ServiceTypes,
) -> Option<ServiceTypes> {
    let judged = spawn_blocking(move || {
        let verifier = signers.verifier();
        let judged = types.judge_signers(|source| stored::refusal(source, &verifier));
        judged.iter().for_each(|version| log(version));
        (!judged.is_empty()).then_some(types)
    });
    let ended = judged.await;
    ended.inspect_err(|error| error!(%error, "the signers of packages cannot be judged")).ok()?
}

fn log(version: &PackageVersion) {
    let package = &version.package.outline.name.text;
    let number = version.package.version();
    match version.source.as_ref().and_then(|it| it.refusal.as_ref()) {
        Some(reason) => {
            warn!(package = %package, version = %number, %reason, "the signer of a package of services is refused now; the package stays");
        }
        None => {
            info!(package = %package, version = %number, "the signer of a package of services is not refused any more");
        }
    }
}
