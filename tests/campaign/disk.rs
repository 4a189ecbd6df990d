//! The database on a disk that fills, fails, and cannot be written.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_tests::agent::AgentProcess;
use holdfast_tests::mounts::{self, fill, mount};
use rand::Rng;
use tempfile::TempDir;
use tokio::time::sleep;

use crate::load::{Load, ports};
use crate::{Effort, Row};

/// Space for the database and some hundred changes.
const SMALL_DISK: &str = "size=24m";
/// Bytes of the image of a file system of its own.
const IMAGE: u64 = 64 << 20;
/// Longest time of load, in milliseconds.
const LOAD_MS: u64 = 400;

/// Time in which a start ends that cannot be.
const START_LIMIT: Duration = Duration::from_secs(2);
/// Pause between two looks at it.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// Changes are refused while the disk is full, and none is lost; the agent is killed and started on the full disk.
pub(crate) async fn full(effort: &mut Effort) -> Result<Row> {
    let mut row = Row::new("disk full, killed, free again");
    let net = ports();
    let mut agent = AgentProcess::start(&net).await;
    agent.kill();
    mounts::enter_own()?;
    mount(&["-t", "tmpfs", "-o", SMALL_DISK, "tmpfs"], &agent.state_dir())?;
    agent.restart().await;
    let mut load = Load::begin(&agent).await?;
    let mut refused = 0;
    for _ in effort.attempts() {
        load.start(&agent).await;
        let filler = agent.state_dir().join("filler");
        fill(&filler)?;
        sleep(Duration::from_millis(effort.random.random_range(0..LOAD_MS))).await;
        load.stop().await;
        let mut faults = load.faults(&agent, &net).await;
        agent.restart().await;
        faults.extend(load.faults(&agent, &net).await);
        fs::remove_file(&filler)?;
        let (acknowledged, more) = load.take_counts();
        refused += more;
        row.attempted(acknowledged, faults);
        // The next change succeeds.
        load.start(&agent).await;
        sleep(Duration::from_millis(LOAD_MS)).await;
        load.stop().await;
        let (acknowledged, _) = load.take_counts();
        let goes_on = (acknowledged == 0).then(|| "nothing is accepted any more".to_owned());
        let faults = load.faults(&agent, &net).await;
        row.attempted(acknowledged, goes_on.into_iter().chain(faults).collect());
    }
    row.note(format!("{refused} changes refused"));
    Ok(row)
}

/// A file system of its own in a file, which is taken away with this value.
struct Image {
    _folder: TempDir,
    file: PathBuf,
    place: PathBuf,
}

impl Image {
    /// `None` where the machine has no loop devices.
    fn mount_at(place: PathBuf) -> Result<Option<Self>> {
        let folder = TempDir::with_prefix("holdfast-image-")?;
        let file = folder.path().join("image");
        File::create(&file)?.set_len(IMAGE)?;
        let formatted = Command::new("mke2fs").args(["-q", "-t", "ext4", "-F"]).arg(&file).status();
        ensure!(formatted.context("mke2fs")?.success(), "no file system in {}", file.display());
        let image = Self { _folder: folder, file, place };
        Ok(image.mount().is_ok().then_some(image))
    }

    fn mount(&self) -> Result<()> {
        let file = self.file.to_str().context("a name in UTF-8")?;
        let mut command = Command::new("mount");
        command.args(["-o", "loop", file]).arg(&self.place).stderr(Stdio::null());
        ensure!(command.status()?.success(), "mount -o loop {file}");
        Ok(())
    }

    fn unmount(&self) -> Result<()> {
        let status = Command::new("umount").arg(&self.place).status()?;
        ensure!(status.success(), "umount {}: {status}", self.place.display());
        Ok(())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // An image whose mount failed is not mounted.
        let _ = Command::new("umount").arg("-l").arg(&self.place).stderr(Stdio::null()).status();
    }
}

/// The journal of the file system is aborted under load, so every further write is an error. After the disk was mounted again,
/// everything is there that was acknowledged. Then the agent is started on a disk that cannot be written.
pub(crate) async fn failing(effort: &mut Effort) -> Result<Row> {
    let mut row = Row::new("disk fails, then read-only");
    let net = ports();
    let mut agent = AgentProcess::start(&net).await;
    agent.kill();
    mounts::enter_own()?;
    let Some(image) = Image::mount_at(agent.state_dir())? else {
        row.note("left out: this machine mounts no images");
        return Ok(row);
    };
    fs::set_permissions(agent.state_dir(), std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
    agent.restart().await;
    let mut load = Load::begin(&agent).await?;
    let mut refused = 0;
    let mut starts_refused = 0;
    for _ in effort.attempts() {
        load.start(&agent).await;
        sleep(Duration::from_millis(effort.random.random_range(0..LOAD_MS))).await;
        mount(&["-o", "remount,abort"], &agent.state_dir())?;
        sleep(Duration::from_millis(LOAD_MS / 4)).await;
        load.stop().await;
        let faults = load.faults(&agent, &net).await;
        agent.kill();
        image.unmount()?;
        // 1 says that the journal was replayed.
        let mut check = Command::new("e2fsck");
        let code = check.arg("-p").arg(&image.file).stdout(Stdio::null()).status()?.code();
        ensure!(matches!(code, Some(0 | 1)), "e2fsck ended with {code:?}");
        image.mount()?;
        mount(&["-o", "remount,ro"], &agent.state_dir())?;
        starts_refused += u32::from(is_start_refused(&agent).await?);
        mount(&["-o", "remount,rw"], &agent.state_dir())?;
        agent.restart().await;
        let faults = faults.into_iter().chain(load.faults(&agent, &net).await).collect();
        let (acknowledged, more) = load.take_counts();
        refused += more;
        row.attempted(acknowledged, faults);
    }
    agent.kill();
    row.note(format!(
        "{refused} changes refused, {starts_refused} starts refused on a read-only disk"
    ));
    Ok(row)
}

/// Starts the agent where it cannot write. True when it ends with an error; it is killed where it does not.
async fn is_start_refused(agent: &AgentProcess) -> Result<bool> {
    let mut command = agent.command("run");
    command.args(["--listen", "127.0.0.1:9339", "--root"]).arg(agent.root());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let deadline = Instant::now() + START_LIMIT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(!status.success());
        }
        sleep(LOOK_PAUSE).await;
    }
    child.kill()?;
    child.wait()?;
    Ok(false)
}
