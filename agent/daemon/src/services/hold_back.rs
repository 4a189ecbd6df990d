//! Pauses of instances that walk again and again without an end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use holdfast_config::ServiceTag;
use tokio::time::Instant;

/// Walks of one instance within [`PERIOD`] that change something, before it has to pause: more than the states of any
/// staged plan that opens one by one.
const WALKS: usize = 10;
const PERIOD: Duration = Duration::from_secs(60);
/// First pause, which doubles up to [`LONGEST`].
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);

/// Walks of the instances in the last [`PERIOD`].
#[derive(Debug, Default)]
pub(super) struct HoldBack(BTreeMap<ServiceTag, Walks>);

#[derive(Debug, Default)]
struct Walks {
    times: VecDeque<Instant>,
    pause: Option<Duration>,
    until: Option<Instant>,
}

impl HoldBack {
    /// Notes that a walk has changed something. True when the instance has to pause from now on.
    pub(super) fn note(&mut self, tag: &ServiceTag, now: Instant) -> bool {
        let walks = self.0.entry(tag.clone()).or_default();
        while walks.times.front().is_some_and(|at| now.duration_since(*at) > PERIOD) {
            walks.times.pop_front();
        }
        if walks.times.is_empty() {
            walks.pause = None;
        }
        walks.times.push_back(now);
        if walks.times.len() <= WALKS {
            return false;
        }
        let pause = walks.pause.map_or(FIRST, |pause| (pause * 2).min(LONGEST));
        (walks.pause, walks.until) = (Some(pause), Some(now + pause));
        true
    }

    /// End of the pause of an instance, if it has one now.
    pub(super) fn until(&self, tag: &ServiceTag, now: Instant) -> Option<Instant> {
        self.0.get(tag)?.until.filter(|until| *until > now)
    }

    pub(super) fn forget(&mut self, tag: &ServiceTag) {
        self.0.remove(tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves sv.B28
    #[tokio::test(start_paused = true)]
    async fn an_instance_that_walks_without_an_end_pauses_for_longer_and_longer() {
        let tag: ServiceTag = "access[name='acme']".parse().unwrap();
        let mut walks = HoldBack::default();
        for _ in 0..WALKS {
            assert!(!walks.note(&tag, Instant::now()));
        }
        for pause in [1, 2, 4, 8] {
            assert!(walks.note(&tag, Instant::now()));
            let until = walks.until(&tag, Instant::now()).unwrap();
            assert_eq!(until - Instant::now(), Duration::from_secs(pause));
            tokio::time::advance(until - Instant::now()).await;
            assert_eq!(walks.until(&tag, Instant::now()), None);
        }
        tokio::time::advance(PERIOD * 2).await;
        assert!(!walks.note(&tag, Instant::now()), "a minute without walks ends it");
    }
}
