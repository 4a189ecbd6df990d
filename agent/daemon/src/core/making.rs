//! The revision that shows a large change, made beside the core when the change is final and answered.
//!
//! Its configuration goes into the trees, then the state of new objects that are as they were asked. Everything else the
//! core shows in the end.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread;

use holdfast_config::Configuration;
use holdfast_scheduler::{Key, SharedValue};
use holdfast_telemetry::Revision;
use imbl::OrdMap;

use super::publish::{Shown, Update, follow, look_at};
use super::startup::Objects;

/// Objects that are shown at a time: what is in between stays in the processor's caches.
const PORTION: usize = 256;
/// Portions by which one tree may be ahead of the other.
const UPDATES_AHEAD: usize = 4;

/// An object that is as intended: key, value, and observed value.
pub(super) type Told = (Key, SharedValue, SharedValue);

/// A revision to which the core adds what is left.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) next: Revision,
    /// True when the revision has state that the one before lacks.
    pub(super) is_told: bool,
    /// Told, and better shown in the end.
    pub(super) left: Vec<Key>,
}

impl Made {
    /// The revision after `last`, of what happened at `time_ns`. Takes as long as the difference is large.
    pub(super) fn of(
        objects: &Objects,
        last: &Revision,
        time_ns: u64,
        (old, new): (&Configuration, &Configuration),
        told: &[Told],
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
            for portion in told.chunks(PORTION) {
                let shown = shown(objects, last, portion, &mut left);
                let update = Arc::new(Update { objects, last, services: &services, shown });
                // When the other thread has panicked, so does this one in the end.
                let _panicked = update_tx.send(Arc::clone(&update));
                update.carry_out(native);
            }
            drop(update_tx);
        });
        Self { next: draft.publish(), is_told: !told.is_empty(), left }
    }
}

/// The state of new objects.
fn shown(objects: &Objects, last: &Revision, told: &[Told], left: &mut Vec<Key>) -> Vec<Shown> {
    let mut shown = Vec::with_capacity(told.len());
    for (key, value, observed) in told {
        let planes = [Some(value), Some(value), Some(observed)];
        match look_at(objects, last, key.clone(), planes) {
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
    use holdfast_config::parallel;
    use holdfast_platform::descriptors::route;
    use holdfast_platform::transport::{Fault, SimulatedKernel};
    use holdfast_scheduler::{Key, State};
    use tempfile::TempDir;

    use crate::core::reconcile::tests::held;
    use crate::core::tests::{Agent, BOX, routes};
    use crate::northbound::Datastore;

    /// `RT_TABLE_MAIN`.
    const MAIN_TABLE: u32 = 254;
    const FIRST: &str = "10.0.0.0/32";
    const SECOND: &str = "10.0.0.1/32";

    /// Next hops of a static route, as they are shown.
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

    /// An agent that tells of routes that vanish and does nothing about them.
    async fn watchful(kernel: &SimulatedKernel) -> (Agent, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let agent = Agent::start(kernel, folder.path()).await;
        agent.update(BOX).await.unwrap();
        let policy = r#"{"drift-policy": [{"object": "route", "action": "report"}]}"#;
        held(&agent, policy).await.unwrap();
        (agent, folder)
    }

    fn first() -> Key {
        route::key(MAIN_TABLE, FIRST.parse().unwrap(), 0)
    }

    async fn state(agent: &Agent, key: &Key) -> State {
        let key = key.clone();
        agent.handle.look(move |inside| inside.engine.state(&key)).await.unwrap()
    }

    #[tokio::test]
    async fn what_changes_once_more_is_shown_as_it_is_in_the_end() {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let (agent, _folder) = watchful(&kernel).await;
        let all = parallel::FEW + 1;
        kernel.fault_at(all as u64, Fault::Hang);
        let document = routes(0, all);
        let meddle = async {
            while !kernel.is_hung() || state(&agent, &first()).await != State::Configured {
                tokio::task::yield_now().await;
            }
            kernel.delete_route(FIRST.parse().unwrap());
            while state(&agent, &first()).await == State::Configured {
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

    #[tokio::test]
    async fn what_changes_before_it_is_shown_is_shown_as_it_is_then() {
        let kernel = SimulatedKernel::new(&["eth0"]);
        let (agent, _folder) = watchful(&kernel).await;
        let shown = agent.handle.revision().number;
        let done = agent.update_all(&[&routes(0, parallel::FEW + 1)]).await.unwrap();
        assert_eq!(agent.handle.revision().number, shown, "answered, and not yet shown");
        kernel.delete_route(FIRST.parse().unwrap());
        assert_eq!(agent.handle.current_revision().await.number, done.revision);
        while state(&agent, &first()).await == State::Configured {
            tokio::task::yield_now().await;
        }
        assert!(hops(&agent, SECOND).contains("\"state\""), "{}", hops(&agent, SECOND));
        assert!(!hops(&agent, FIRST).contains("\"state\""), "{}", hops(&agent, FIRST));
        agent.stop().await;
    }
}
