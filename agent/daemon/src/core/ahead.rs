//! The next revision, begun while a large change is carried out.
//!
//! Its configuration is known when the plan is accepted. The state of an object follows when the engine has verified it,
//! if it is new and is shown as applied; everything else is shown when the change has ended. What is told here and
//! changes once more spoils all of it: then the revision is made in the end, as that of a small change is.
//!
//! The answer does not wait for it. So state is shown meanwhile only where the change itself leaves processors idle.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread;

use holdfast_config::{Configuration, parallel};
use holdfast_scheduler::{Engine, Key, SharedValue};
use imbl::OrdMap;
use tokio::task::JoinHandle;

use super::publish::{SHOWN_AS_APPLIED, Shown, Update, follow, look_at};
use super::startup::Objects;
use super::transaction::Changed;
use crate::telemetry::Revision;
use crate::telemetry::view::now_ns;

/// Objects that are shown at a time: what is in between stays in the processor's caches.
const PORTION: usize = 256;
/// Portions by which one tree may be ahead of the other.
const UPDATES_AHEAD: usize = 4;
/// Processors that a change keeps busy while it is carried out: one in the kernel, one with the engine.
const BUSY_PROCESSORS: usize = 2;

/// A revision in the making.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Not bounded: each object of the change is told once.
    told_tx: Option<Sender<Vec<Told>>>,
    /// Told next.
    portion: Vec<Told>,
    /// It is told as it comes, and not in the end.
    meanwhile: bool,
    making: Making,
}

/// A revision of which all is told.
#[derive(Debug)]
pub(super) struct Making {
    /// What it goes on from: it is of no use when another revision came meanwhile.
    last: Arc<Revision>,
    /// When its plan was accepted, in nanoseconds since 1970.
    time_ns: u64,
    made: JoinHandle<Made>,
}

/// What the engine holds of an object that is as it was asked: key, value, and what the system shows.
type Told = (Key, SharedValue, SharedValue);

/// What was made ahead.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) next: Revision,
    /// Told, and better shown in the end.
    pub(super) left: Vec<Key>,
}

impl Ahead {
    /// Begins, where that will take its time.
    pub(super) fn begin(
        objects: &Arc<Objects>,
        last: Arc<Revision>,
        (old, new): (&Configuration, &Configuration),
        changes: &[Changed],
    ) -> Option<Self> {
        if new.work().entries <= parallel::FEW {
            return None;
        }
        let (objects, old, new) = (Arc::clone(objects), old.clone(), new.clone());
        let (told_tx, told) = channel();
        // Of what was there before, state has to be taken away first.
        let adds = changes.iter().all(|change| !change.existed);
        let (from, time_ns) = (Arc::clone(&last), now_ns());
        let make = move || Made::of(&objects, &last, time_ns, (&old, &new), &told);
        let making = Making { last: from, time_ns, made: tokio::task::spawn_blocking(make) };
        let meanwhile = thread::available_parallelism().is_ok_and(|it| it.get() > BUSY_PROCESSORS);
        Some(Self { told_tx: adds.then_some(told_tx), portion: Vec::new(), meanwhile, making })
    }

    /// Takes an object whose planes or status changed; false when it is left for the end.
    pub(super) fn take(&mut self, engine: &Engine, key: &Key) -> bool {
        if self.told_tx.is_none() || !SHOWN_AS_APPLIED.contains(&key.kind()) {
            return false;
        }
        let [Some(intended), Some(applied), Some(observed)] = engine.planes(key) else {
            return false;
        };
        let is_done = Arc::ptr_eq(intended, applied);
        if is_done {
            self.portion.push((key.clone(), Arc::clone(applied), Arc::clone(observed)));
        }
        is_done
    }

    /// All that is new for the moment was taken.
    pub(super) fn tell(&mut self) {
        if self.meanwhile {
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        if let (Some(told_tx), false) = (&self.told_tx, self.portion.is_empty()) {
            // When the other end has panicked, all is made in the end.
            let _panicked = told_tx.send(std::mem::take(&mut self.portion));
        }
    }

    /// Nothing more will be told.
    pub(super) fn end(mut self) -> Making {
        self.hand_on();
        self.making
    }
}

impl Making {
    /// Whether it goes on from this revision.
    pub(super) fn follows(&self, last: &Arc<Revision>) -> bool {
        Arc::ptr_eq(&self.last, last)
    }

    pub(super) fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// `None` when whoever made it has panicked.
    pub(super) async fn made(self) -> Option<Made> {
        self.made.await.ok()
    }
}

impl Made {
    /// Takes as long as the difference is large, and until nothing more is told.
    fn of(
        objects: &Objects,
        last: &Revision,
        time_ns: u64,
        (old, new): (&Configuration, &Configuration),
        told: &Receiver<Vec<Told>>,
    ) -> Self {
        let (models, services) = (&objects.models, OrdMap::new()); // they matter where something is taken away
        let mut draft = last.draft(&models.openconfig, &models.native, time_ns);
        let [openconfig, native] = draft.trees_mut();
        let mut left = Vec::new();
        thread::scope(|scope| {
            // What is to be shown is worked out for both trees here.
            let (update_tx, updates) = sync_channel::<Arc<Update<'_>>>(UPDATES_AHEAD);
            scope.spawn(|| {
                follow(openconfig, old, new);
                updates.into_iter().for_each(|update| update.carry_out(openconfig));
            });
            follow(native, old, new);
            let mut told = told.iter().flatten().peekable();
            while told.peek().is_some() {
                let shown = shown(objects, last, told.by_ref().take(PORTION), &mut left);
                let update = Arc::new(Update { objects, last, services: &services, shown });
                // When the other thread has panicked, so does this one in the end.
                let _panicked = update_tx.send(Arc::clone(&update));
                update.carry_out(native);
            }
        });
        let next = draft.publish();
        Self { next, left }
    }
}

/// The state of new objects.
fn shown(
    objects: &Objects,
    last: &Revision,
    told: impl Iterator<Item = Told>,
    left: &mut Vec<Key>,
) -> Vec<Shown> {
    let mut shown = Vec::with_capacity(PORTION);
    for (key, value, observed) in told {
        let planes = [Some(&value), Some(&value), Some(&observed)];
        match look_at(objects, last, key, planes) {
            (key, now @ Some(_), None | Some(None)) => {
                shown.push(Shown { kind: key.kind(), before: None, now });
            }
            (key, ..) => left.push(key),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use holdfast_platform::descriptors::route;
    use holdfast_platform::transport::{Fault, SimulatedKernel};
    use holdfast_scheduler::State;

    use super::*;
    use crate::core::reconcile::tests::held;
    use crate::core::tests::{Agent, BOX, routes};

    /// `RT_TABLE_MAIN`.
    const MAIN_TABLE: u32 = 254;
    const FIRST: &str = "10.0.0.0/32";
    const SECOND: &str = "10.0.0.1/32";

    /// What is shown of the next hops of a static route.
    fn hops(agent: &Agent, prefix: &str) -> String {
        let shown: serde_json::Value = serde_json::from_str(&agent.shown()).unwrap();
        let find = |inside: &serde_json::Value, key: &str, value: &str| {
            let entries = inside.as_array().unwrap().iter();
            entries.clone().find(|it| it[key] == value).unwrap().clone()
        };
        let instances = &shown["openconfig-network-instance:network-instances"];
        let instance = find(&instances["network-instance"], "name", "DEFAULT");
        let protocol = find(&instance["protocols"]["protocol"], "name", "static");
        let route = find(&protocol["static-routes"]["static"], "prefix", prefix);
        route["next-hops"].to_string()
    }

    #[tokio::test]
    async fn what_changes_once_more_spoils_what_was_made_ahead() {
        let (kernel, folder) = (SimulatedKernel::new(&["eth0"]), tempfile::tempdir().unwrap());
        let agent = Agent::start(&kernel, folder.path()).await;
        agent.update(BOX).await.unwrap();
        held(&agent, r#"{"drift-policy": [{"object": "route", "action": "report"}]}"#)
            .await
            .unwrap();
        let all = parallel::FEW + 1;
        kernel.fault_at(all as u64, Fault::Hang);
        let document = routes(0, all);
        let meddle = async {
            let key = route::key(MAIN_TABLE, FIRST.parse().unwrap(), 0);
            let state = async || {
                let key = key.clone();
                agent.handle.look(move |inside| inside.engine.state(&key)).await.unwrap()
            };
            while !kernel.is_hung() || state().await != State::Configured {
                tokio::task::yield_now().await;
            }
            kernel.delete_route(FIRST.parse().unwrap());
            while state().await == State::Configured {
                tokio::task::yield_now().await;
            }
            kernel.resume();
        };
        let (done, ()) = tokio::join!(agent.update(&document), meddle);
        done.unwrap();
        assert!(hops(&agent, SECOND).contains("\"state\""), "{}", hops(&agent, SECOND));
        assert!(!hops(&agent, FIRST).contains("\"state\""), "{}", hops(&agent, FIRST));
        agent.stop().await;
    }
}
