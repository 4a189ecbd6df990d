//! What others may ask of the faults of the box.

use std::sync::Arc;

use holdfast_faults::{Alarm, Condition, OperatorError, OperatorState, Transition};
use tokio::sync::{broadcast, mpsc, oneshot};

/// Requests that wait for the task of faults, which answers each within microseconds.
const REQUESTS: usize = 64;

/// Access to the faults of the box. Clones share it.
#[derive(Clone, Debug)]
pub struct FaultService(mpsc::Sender<Request>);

/// The task of faults has ended, with the agent or by a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the agent does not look for faults any more")]
pub struct FaultsStopped;

/// One question, with the channel for its answer.
#[derive(Debug)]
pub(super) enum Request {
    Alarms(oneshot::Sender<Vec<Alarm>>),
    Log { after: u64, answer: oneshot::Sender<Vec<Arc<Transition>>> },
    Operate { word: OperatorWord, answer: oneshot::Sender<Result<bool, OperatorError>> },
    Listen { after: Option<u64>, answer: oneshot::Sender<Listening> },
}

/// What an operator says of an alarm.
#[derive(Clone, Debug)]
pub struct OperatorWord {
    pub condition: Condition,
    pub state: OperatorState,
    pub operator: String,
    pub text: String,
}

/// What a listener is told: first what it does not know yet, then each transition.
#[derive(Debug)]
pub struct Listening {
    /// Open alarms, for a listener that knows nothing, or of which some events are gone.
    pub snapshot: Option<Vec<Alarm>>,
    /// The listener asked for events that the log does not have any more.
    pub is_gap: bool,
    /// Transitions that it missed.
    pub missed: Vec<Arc<Transition>>,
    /// Id of the last transition that the two above contain.
    pub last_id: u64,
    pub transitions: broadcast::Receiver<Arc<Transition>>,
}

impl FaultService {
    pub(super) fn new() -> (Self, mpsc::Receiver<Request>) {
        let (request_tx, request_rx) = mpsc::channel(REQUESTS);
        (Self(request_tx), request_rx)
    }

    /// Open alarms, shelved ones among them.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn alarms(&self) -> Result<Vec<Alarm>, FaultsStopped> {
        self.ask(Request::Alarms).await
    }

    /// Transitions in the log after this one.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn log(&self, after: u64) -> Result<Vec<Arc<Transition>>, FaultsStopped> {
        self.ask(|answer| Request::Log { after, answer }).await
    }

    /// Sets what an operator says of an alarm. The answer tells whether that is on disk: it stands in either case.
    ///
    /// # Errors
    /// When nobody looks for faults any more; inside, when no such alarm is open.
    pub async fn operate(
        &self,
        word: OperatorWord,
    ) -> Result<Result<bool, OperatorError>, FaultsStopped> {
        self.ask(|answer| Request::Operate { word, answer }).await
    }

    /// Listens to all transitions after this one, or from now on.
    ///
    /// # Errors
    /// When nobody looks for faults any more.
    pub async fn listen(&self, after: Option<u64>) -> Result<Listening, FaultsStopped> {
        self.ask(|answer| Request::Listen { after, answer }).await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> Request,
    ) -> Result<T, FaultsStopped> {
        let (answer, answered) = oneshot::channel();
        self.0.send(request(answer)).await.map_err(|_| FaultsStopped)?;
        answered.await.map_err(|_| FaultsStopped)
    }
}
