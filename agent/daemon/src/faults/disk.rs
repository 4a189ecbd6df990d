//! Conditions of the disk with the state folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_base::now_ns;
use holdfast_faults::{Condition, Input, Report, Resource, Source};
use holdfast_store::Store;
use nix::sys::statvfs::statvfs;
use smol_str::format_smolstr;
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Pause between two looks at the free space: a disk that fills at 100 MB/s loses a gigabyte meanwhile.
const SPACE_INTERVAL: Duration = Duration::from_secs(10);
/// Share of the disk, in percent, below which its free space is low.
const LOW_PERCENT: u64 = 5;
/// Share of the disk, in percent, at which space that was low is not low any more.
const ENOUGH_PERCENT: u64 = 7;

/// Follows the disk until the store has ended.
pub(super) async fn follow(store: Store, folder: PathBuf, inputs: mpsc::Sender<Input>) {
    let mut health = store.health();
    let mut is_low = false;
    let mut told = None;
    loop {
        let refusal = health.borrow_and_update().clone();
        let free = free_percent(folder.clone()).await;
        is_low = free.is_some_and(|free| free < if is_low { ENOUGH_PERCENT } else { LOW_PERCENT });
        let found = (refusal, is_low);
        if told.as_ref() != Some(&found) {
            let level = level(found.0.as_deref(), found.1, &folder);
            if inputs.send(level).await.is_err() {
                return;
            }
            told = Some(found);
        }
        tokio::select! {
            changed = health.changed() => if changed.is_err() { return },
            () = sleep(SPACE_INTERVAL) => {}
        }
    }
}

/// Share of the disk that is free for the agent. A disk that does not answer keeps this waiting, and nobody else.
async fn free_percent(folder: PathBuf) -> Option<u64> {
    let disk = tokio::task::spawn_blocking(move || statvfs(&folder)).await.ok()?.ok()?;
    (disk.blocks_available() * 100).checked_div(disk.blocks())
}

fn level(refusal: Option<&str>, is_low: bool, folder: &Path) -> Input {
    let now_ns = now_ns();
    let condition = |kind| Condition::new(kind, Resource::Agent);
    let refused = refusal.map(|reason| {
        let text = format_smolstr!("the disk refuses writes, so changes are refused: {reason}");
        Report::holding(condition("store-failed"), text, now_ns)
    });
    let low = is_low.then(|| {
        let folder = folder.display();
        let text = format_smolstr!("less than {LOW_PERCENT} % of the disk with {folder} is free");
        Report::holding(condition("storage-low"), text, now_ns)
    });
    Input::Level(Source::Disk, refused.into_iter().chain(low).collect())
}
