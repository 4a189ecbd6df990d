//! Conditions of next hops: probes of the configuration, each with a task of its own.
//!
//! [`Pacer`] spreads the packets of all probes, so that neither their number nor their common start makes a burst.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use holdfast_base::{ErrorChain, now_ns};
use holdfast_faults::{Condition, Input, Probe, ProbeMode, Reachability, Report, Settings, Source};
use holdfast_platform::probe::{Echo, ProbeError, Probes, Target};
use smol_str::SmolStr;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::debug;

/// Packets a second of all probes together: no load for a box or its neighbours.
pub(super) const MAX_PACKETS: u32 = 200;
const PACKET_INTERVAL: Duration = Duration::from_millis(1000 / MAX_PACKETS as u64);
/// The longest time to wait for an answer, also where rounds are further apart: the other side of the world takes 0.3 s.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Receiver of the reports of probes, and their sockets.
#[derive(Clone, Debug)]
struct Outlet {
    probes: Probes,
    pacer: Arc<Pacer>,
    inputs: mpsc::Sender<Input>,
}

/// A probe that is run.
#[derive(Debug)]
struct Running {
    probe: Probe,
    condition: Condition,
    task: AbortHandle,
}

/// Runs the probes of the newest settings until there are no more settings. On `again`, all of them begin anew, so that each
/// reports its verdict.
pub(super) async fn follow(
    probes: Probes,
    mut settings: watch::Receiver<Arc<Settings>>,
    inputs: mpsc::Sender<Input>,
    again: Arc<Notify>,
) {
    let outlet = Outlet { probes, pacer: Arc::default(), inputs };
    let mut tasks = JoinSet::new();
    let mut running = BTreeMap::<SmolStr, Running>::new();
    loop {
        let wanted = settings.borrow_and_update().clone();
        running.retain(|_, it| {
            let stays = wanted
                .probes()
                .any(|(probe, condition)| (probe, &condition) == (&it.probe, &it.condition));
            if !stays {
                it.task.abort();
            }
            stays
        });
        for (probe, condition) in wanted.probes() {
            running.entry(probe.name.clone()).or_insert_with(|| {
                let prober = Prober::new(probe.clone(), condition.clone(), outlet.clone());
                Running { probe: probe.clone(), condition, task: tasks.spawn(prober.run()) }
            });
        }
        tokio::select! {
            changed = settings.changed() => if changed.is_err() {
                return;
            },
            () = again.notified() => {
                tasks.abort_all();
                running.clear();
            }
            Some(ended) = tasks.join_next() => match ended {
                Err(bug) if bug.is_panic() => resume_unwind(bug.into_panic()),
                // It was aborted above, or nobody takes the reports.
                _ => {}
            },
        }
    }
}

/// The task of a probe.
struct Prober {
    probe: Probe,
    condition: Condition,
    targets: Vec<AskedTarget>,
    outlet: Outlet,
}

/// A host that a probe asks.
struct AskedTarget {
    address: IpAddr,
    /// A socket whose last request was answered.
    echo: Option<Echo>,
}

impl Prober {
    fn new(probe: Probe, condition: Condition, outlet: Outlet) -> Self {
        let targets = probe.targets.iter();
        let targets = targets.map(|address| AskedTarget { address: *address, echo: None });
        Self { targets: targets.collect(), probe, condition, outlet }
    }

    /// Asks again and again until nobody takes the reports.
    async fn run(mut self) {
        let mut reachability = Reachability::default();
        let mut rounds = interval(self.probe.interval);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            rounds.tick().await;
            let is_reached = self.round().await;
            let Some(is_reachable) = reachability.take(&self.probe, is_reached) else { continue };
            let condition = self.condition.clone();
            let report = match is_reachable {
                true => Report::ended(condition, now_ns()),
                false => Report::holding(condition, self.probe.text(), now_ns()),
            };
            let input = Input::Reports(Source::Probes, vec![report]);
            if self.outlet.inputs.send(input).await.is_err() {
                return;
            }
        }
    }

    /// Asks all targets once. True when those that have to answer do.
    async fn round(&mut self) -> bool {
        let asked = self.targets.iter_mut().map(|it| it.is_there(&self.probe, &self.outlet));
        self.probe.is_reached(&join_all(asked).await)
    }
}

impl AskedTarget {
    async fn is_there(&mut self, probe: &Probe, outlet: &Outlet) -> bool {
        outlet.pacer.wait().await;
        let asked = match probe.mode {
            ProbeMode::Icmp => self.answers_echo(probe, &outlet.probes).await,
            ProbeMode::Neighbor => {
                outlet.probes.neighbor(self.address, probe.interface.clone()).await
            }
        };
        asked.unwrap_or_else(|error| {
            debug!(probe = %probe.name, error = %ErrorChain(&error), "a target is not asked");
            false
        })
    }

    /// Sends an echo request. After one without an answer, a socket is opened anew, since the address that it sends from, or the
    /// link, may be another one by then.
    async fn answers_echo(&mut self, probe: &Probe, probes: &Probes) -> Result<bool, ProbeError> {
        let mut echo = match self.echo.take() {
            Some(echo) => echo,
            None => {
                let target = Target {
                    destination: self.address,
                    source: None,
                    link: probe.interface.clone(),
                    do_not_fragment: false,
                };
                probes.echo(target).await?
            }
        };
        let is_answered = echo.ask(probe.interval.min(ANSWER_TIME)).await?;
        self.echo = is_answered.then_some(echo);
        Ok(is_answered)
    }
}

/// Turns of the packets of all probes.
#[derive(Debug, Default)]
struct Pacer {
    /// When the next packet may leave; `None` before the first one.
    next: Mutex<Option<Instant>>,
}

impl Pacer {
    /// Waits for a turn. Whoever asks first goes first.
    async fn wait(&self) {
        let now = Instant::now();
        let turn = {
            let mut next = self.next.lock().await;
            let turn = next.map_or(now, |next| next.max(now));
            *next = Some(turn + PACKET_INTERVAL);
            turn
        };
        sleep_until(turn).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn packets_of_all_probes_have_a_rate() {
        let pacer = Arc::new(Pacer::default());
        let began = Instant::now();
        let waits = (0..400).map(|_| pacer.wait());
        join_all(waits).await;
        let took = began.elapsed();
        assert!((1995..2010).contains(&took.as_millis()), "{took:?} of the paused clock");
    }
}
