//! Log of what the disk refuses: one line a minute, however often clients try again.

use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_base::{DueLines, ErrorChain, LogThrottle, Merge};
use tracing::warn;

use super::StoreError;

/// Lines about one database within the last minute.
#[derive(Debug)]
pub(super) struct RefusalLog {
    /// Beginning of the time that the throttle counts.
    since: Instant,
    throttle: LogThrottle<(), Refusals>,
}

/// How often the disk refused, and why the last time.
#[derive(Debug, PartialEq, Eq)]
struct Refusals {
    count: u64,
    reason: String,
}

impl Merge for Refusals {
    fn merge(&mut self, later: Self) {
        self.count += later.count;
        self.reason = later.reason;
    }
}

impl Refusals {
    fn log(&self, file: &Path) {
        let Self { count, reason } = self;
        let file = file.display();
        warn!(%file, error = reason, count, "the disk refuses; the database is opened again, and what was answered is safe");
    }
}

impl Default for RefusalLog {
    fn default() -> Self {
        Self { since: Instant::now(), throttle: LogThrottle::default() }
    }
}

impl RefusalLog {
    /// Logs the result of a command if the disk has refused it, and what was kept for later and is due.
    pub(super) fn note<T>(&mut self, file: &Path, result: &Result<T, StoreError>) {
        let now = self.since.elapsed();
        let refusal = result.as_ref().err().filter(|error| error.is_of_disk());
        let now_due = refusal.and_then(|error| self.take(error, now));
        now_due.iter().for_each(|refusals| refusals.log(file));
        log_lines(file, self.throttle.due(now));
    }

    /// Logs all that was kept for later, at the end of the process.
    pub(super) fn finish(&mut self, file: &Path) {
        log_lines(file, self.throttle.finish());
    }

    /// Takes a refusal in. Returns the line to be logged now.
    fn take(&mut self, error: &StoreError, now: Duration) -> Option<Refusals> {
        let reason = ErrorChain(error).to_string();
        self.throttle.note(&(), Refusals { count: 1, reason }, now)
    }
}

fn log_lines(file: &Path, due: DueLines<(), Refusals>) {
    due.lines.iter().for_each(|((), refusals)| refusals.log(file));
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_disk_that_refuses_has_one_line_a_minute_with_the_count() {
        let mut log = RefusalLog::default();
        let full = StoreError::File {
            action: "write",
            path: "/state".into(),
            source: io::ErrorKind::StorageFull.into(),
        };
        assert!(full.is_of_disk() && !StoreError::Overloaded.is_of_disk());
        let lines: Vec<_> =
            (0..24_000).filter_map(|at| log.take(&full, Duration::from_millis(at))).collect();
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.count == 1 && line.reason.contains("/state"), "{line:?}");
        let due = log.throttle.due(Duration::from_secs(60)).lines;
        assert_eq!(due.iter().map(|((), line)| line.count).collect::<Vec<_>>(), [23_999]);
    }
}
