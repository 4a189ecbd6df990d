//! Examinations that end when no client waits for the answer.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use holdfast_config::cli::Statement;
use holdfast_config::edit::{
    Edit, EditAuthorization, EditAuthorizer, EditTarget, Payload, RequestForms,
};
use holdfast_config::resolve::PatternStep;
use holdfast_config::schema::Origin;
use holdfast_config::tree::NodeRef;
use holdfast_config::{Configuration, InstancePath, Layers, LeafMark, Models};
use holdfast_core::{CommitError, CommitOptions, CommitStamp, Datastore};
use holdfast_platform::transport::SimulatedKernel;
use tokio::task::JoinHandle;

use super::{Agent, BOX, caller};

/// Sets that the core examines at the same time; further ones wait in its queue.
const EXAMINED_AT_ONCE: usize = 4;

/// Rules that permit everything, count what they are asked, and let the first question wait.
#[derive(Debug)]
struct SlowAdmission {
    questions: AtomicUsize,
    question_tx: mpsc::Sender<()>,
    /// Closed when examination may go on.
    wait_rx: Mutex<mpsc::Receiver<()>>,
}

impl EditAuthorizer for SlowAdmission {
    fn for_models(&self, _: &Arc<Models>) -> Option<Arc<dyn EditAuthorizer>> {
        None
    }

    fn may_clear(&self, _: Origin, _: &[PatternStep]) -> bool {
        true
    }

    fn may_send_cli_text(&self) -> bool {
        true
    }

    fn may_apply_statement(&self, _: &Configuration, _: &Statement) -> bool {
        true
    }

    fn may_write_payload(
        &self,
        _: &Configuration,
        _: Origin,
        _: &InstancePath,
        _: NodeRef<'_, LeafMark>,
    ) -> Result<(), InstancePath> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let _receiver_may_be_gone = self.question_tx.send(());
        let _closed = self.wait_rx.lock().unwrap().recv();
        Ok(())
    }

    fn may_change(
        &self,
        _: &Configuration,
        _: &Layers,
        _: RequestForms,
    ) -> Result<(), (Origin, InstancePath)> {
        Ok(())
    }

    fn may_read(&self, _: Origin, _: &InstancePath) -> bool {
        true
    }
}

/// A Set of two operations under way, which waits while its first one is examined.
struct SlowSet {
    rules: Arc<SlowAdmission>,
    go_on: mpsc::Sender<()>,
    task: JoinHandle<Result<CommitStamp, CommitError>>,
}

impl SlowSet {
    /// Starts the Set. The receiver gets a message when its examination begins.
    fn begin(agent: &Agent, mtu: u16) -> (Self, mpsc::Receiver<()>) {
        let (question_tx, question_rx) = mpsc::channel();
        let (go_on, wait_rx) = mpsc::channel();
        let questions = AtomicUsize::new(0);
        let wait_rx = Mutex::new(wait_rx);
        let rules = Arc::new(SlowAdmission { questions, question_tx, wait_rx });
        let update = |leaf: &str, value: &str| {
            let path = format!("/interfaces/interface[name=eth0]/config/{leaf}");
            let target = EditTarget { origin: Origin::OpenConfig, path: path.parse().unwrap() };
            (target, Payload::Json { text: value.as_bytes().to_vec().into(), ietf: true })
        };
        let updates = vec![update("mtu", &mtu.to_string()), update("description", "\"slow\"")];
        let gate = EditAuthorization::new(rules.clone());
        let edit = Edit { updates, authorization: gate, ..Edit::default() };
        let handle = agent.handle.clone();
        let commit = async move { handle.commit(&caller(), edit, CommitOptions::default()).await };
        (Self { rules, go_on, task: tokio::spawn(commit) }, question_rx)
    }

    fn authorizer_calls(&self) -> usize {
        self.rules.questions.load(Ordering::SeqCst)
    }

    /// Disconnects the client.
    async fn abandon(&mut self) {
        self.task.abort();
        assert!((&mut self.task).await.unwrap_err().is_cancelled());
    }
}

/// The MTU of the port; OpenConfig counts the Ethernet header too.
fn has_mtu(kernel: &SimulatedKernel, openconfig: u16) -> bool {
    kernel
        .contents()
        .iter()
        .any(|it| it.contains("eth0") && it.contains(&format!("mtu: Some({})", openconfig - 14)))
}

#[tokio::test]
async fn an_abandoned_set_ends_during_its_examination() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let (mut set, question_rx) = SlowSet::begin(&agent, 1600);
    tokio::task::spawn_blocking(move || question_rx.recv().unwrap()).await.unwrap();
    set.abandon().await;
    drop(set.go_on);
    agent.update(BOX).await.unwrap();
    let questions = set.rules.questions.load(Ordering::SeqCst);
    assert_eq!(questions, 1, "its second operation was examined");
    assert!(has_mtu(&kernel, 1414), "{:?}", kernel.contents());
    assert!(!agent.published_text().contains("slow"), "{}", agent.published_text());
    agent.stop().await;
}

#[tokio::test]
async fn an_abandoned_set_in_the_queue_is_not_examined() {
    let kernel = SimulatedKernel::new(&["eth0"]);
    let folder = tempfile::tempdir().unwrap();
    let agent = Agent::start(&kernel, folder.path()).await;
    let mut examined = Vec::new();
    for mtu in (1600..).take(EXAMINED_AT_ONCE) {
        let (set, begun) = SlowSet::begin(&agent, mtu);
        tokio::task::spawn_blocking(move || begun.recv().unwrap()).await.unwrap();
        examined.push(set);
    }
    let (mut queued, _) = SlowSet::begin(&agent, 1700);
    // It is handed over: a task runs until it has to wait.
    tokio::task::yield_now().await;
    queued.abandon().await;
    for set in examined {
        drop(set.go_on);
        set.task.await.unwrap().unwrap();
    }
    assert!(has_mtu(&kernel, 1603), "{:?}", kernel.contents());
    agent.update(BOX).await.unwrap();
    assert_eq!(queued.authorizer_calls(), 0, "it was examined");
    agent.stop().await;
}
