//! The hardware of the box as state: its parts, and how much of its resources is in use.
//!
//! Parts that do not change are published once, ports as links come and go. Leaves that change without an event are polled: a
//! reading is shared by all who ask within [`SHARED_FOR`], so that many collectors cost one reading.

mod components;
mod processes;
mod resources;
mod sensors;
mod sysfs;

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use self::components::Components;
pub(crate) use self::processes::Processes;
pub(crate) use self::resources::Resources;
pub(crate) use self::sensors::Sensors;

/// Age up to which a reading is shared. Shares of processor time need a span in which something happened.
const SHARED_FOR: Duration = Duration::from_secs(1);

/// Folders in which the kernel tells of the hardware; tests have others.
#[derive(Clone, Debug)]
pub(crate) struct KernelFolders {
    pub(crate) sys: PathBuf,
    pub(crate) proc: PathBuf,
    pub(crate) etc: PathBuf,
}

impl Default for KernelFolders {
    fn default() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), etc: "/etc".into() }
    }
}

/// A reading that is shared for a while.
#[derive(Debug)]
struct Shared<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone + Default> Shared<T> {
    /// The last reading, or a new one if that is too old. It is made from the last one.
    fn get(&self, read: impl FnOnce(T) -> T) -> T {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match last.take() {
            Some((time, reading)) if time.elapsed() < SHARED_FOR => {
                *last = Some((time, reading.clone()));
                reading
            }
            earlier => {
                let reading = read(earlier.map(|(_, reading)| reading).unwrap_or_default());
                *last = Some((Instant::now(), reading.clone()));
                reading
            }
        }
    }
}
