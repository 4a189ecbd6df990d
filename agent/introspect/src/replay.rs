//! Replay of a recorded transaction by another engine on another simulated kernel.

use std::time::Duration;

use holdfast_platform::transport::{Events, SimulatedKernel, SimulatedTransport, Transport};
use holdfast_platform::{kinds, value_json};
use holdfast_scheduler::{Delta, Engine, EngineOutput, Key, Now, SharedValue};
use serde_json::json;

use super::key_lookup;
use super::recording::{RecordedValue, Recording};
use super::tests::{BOX_CONFIG, TestAgent};

/// Longer than any relevant timer of the engine.
const IDLE_TIMEOUT: Duration = Duration::from_millis(1500);

/// An engine with its kernel.
struct Replay {
    engine: Engine,
    transport: SimulatedTransport,
    events: Events,
    started: std::time::Instant,
}

impl Replay {
    /// Brings the kernel to the previous state of the recording.
    async fn restore(recording: &Recording) -> Self {
        let ports: Vec<&str> = recording.ports.iter().map(String::as_str).collect();
        let (mut transport, events) = SimulatedKernel::new(&ports).connect();
        let mut engine = Engine::new(kinds::registry());
        let intent = recording.before.iter().map(value).map(|(key, it)| (key, it.unwrap()));
        engine.load(intent.collect(), Vec::new());
        transport.retrieve();
        let started = std::time::Instant::now();
        let mut replay = Self { engine, transport, events, started };
        replay.run_until_idle().await;
        replay
    }

    fn now(&self) -> Now {
        Now { monotonic: self.started.elapsed(), unix_ns: holdfast_base::now_ns() }
    }

    /// Runs until there are no more events.
    async fn run_until_idle(&mut self) {
        while let Ok(Some(event)) = tokio::time::timeout(IDLE_TIMEOUT, self.events.recv()).await {
            let now = self.now();
            let step = event.report_to(&mut self.engine, now);
            self.follow(step);
        }
        assert!(self.engine.is_idle());
    }

    fn follow(&mut self, step: EngineOutput) {
        if !step.submit.is_empty() {
            self.transport.submit(step.submit);
        }
        if !step.read.is_empty() {
            self.transport.read(step.read);
        }
    }

    /// Makes the recorded request, and returns the operations.
    async fn run_request(&mut self, requested: &[RecordedValue]) -> Vec<String> {
        let plan = self.engine.plan(Delta::new(requested.iter().map(value).collect())).unwrap();
        let now = self.now();
        let (txn, step) = self.engine.start(plan, now);
        self.follow(step);
        self.run_until_idle().await;
        let registry = self.engine.registry();
        let record = self.engine.history().record(txn).unwrap();
        let line = |it: &holdfast_scheduler::RecordedOperation| {
            let name = registry.key_text(&it.key);
            format!("{} {name}", it.action.to_string().to_uppercase())
        };
        record.operations.iter().map(line).collect()
    }
}

/// The value of a document, with its key by its descriptor.
fn value(it: &RecordedValue) -> (Key, Option<SharedValue>) {
    let registry = kinds::registry();
    let kind = registry.by_name(it.key.split('/').next().unwrap()).unwrap();
    if it.data.is_null() {
        let keys = key_lookup::key_prefixes(&registry, &it.key).unwrap_or_default();
        let found_key = keys.into_iter().find(|key| registry.key_text(key) == it.key);
        return (found_key.unwrap(), None);
    }
    let value = value_json::from_json(kind.kind(), it.data.clone()).unwrap();
    (kind.key(&*value), Some(value))
}

#[tokio::test]
async fn recording_replays_to_the_same_operations() {
    let agent = TestAgent::start(&["eth0"]).await;
    agent.set(BOX_CONFIG).await;
    let mtu = r#"{"openconfig-interfaces:interfaces": {"interface": [
        {"name": "eth0", "config": {"name": "eth0", "mtu": 1314, "description": "again"}}]}}"#;
    agent.set(mtu).await;
    agent.set(BOX_CONFIG).await;
    for number in 1..=3 {
        let document = agent.read(&format!("/scheduler/recording?seq-num={number}")).await;
        let recording: Recording = serde_json::from_value(document.clone()).unwrap();
        assert_eq!(recording.ports, ["eth0"]);
        assert!(!recording.operations.is_empty(), "{document:#}");
        assert_eq!(recording.before.is_empty(), number == 1, "{document:#}");
        let mut replay = Replay::restore(&recording).await;
        assert_eq!(
            replay.run_request(&recording.requested).await,
            recording.operations,
            "{document:#}"
        );
    }
    let missing = agent.get("/scheduler/recording?seq-num=9").await;
    assert_eq!(missing.status.as_u16(), 404);
    assert_eq!(agent.get("/scheduler/recording").await.status.as_u16(), 400);
    assert_eq!(agent.read("/scheduler/recording?seq-num=1").await["Format"], json!(1));
    agent.stop().await;
}
