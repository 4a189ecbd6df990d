//! The driver of rotations: feeds the client's messages into the state machine, and carries out its results.
//!
//! Start at [`serve`] for a stream, at [`try_uploads`] for artefacts that come without one. [`Rotation`] decides what
//! is accepted and what is rolled back, the service carries it out as [`Rotatable`], and [`RotateMessages`] translates. Every
//! end without finalize is a rollback: the stream is closed or broken, a step fails or panics, the client is silent for
//! too long, the agent stops. The rollback runs in a task of its own, so it happens even if the client has gone. After
//! an end without a rollback, such as kill -9, the next start has the final state, because uploads on trial are never
//! on disk.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use holdfast_base::{Caller, ErrorChain};
use holdfast_security::rotation::{
    FinalizeStep, RollBack, Rotation, RotationError, RotationFailure, RotationRules,
};
use holdfast_store::ArtefactChange;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};
use tracing::{info, warn};

use crate::aaa::CallPermission;
use crate::gnsi::{RotationGuard, Rotations, Rotator};
use crate::northbound::status::Refusal;

/// Answers that may wait for the client to read; each message has at most one.
const ANSWERS: usize = 4;

/// A service whose artefacts can be rotated.
pub(in crate::northbound) trait Rotatable: Send + Sync + 'static {
    /// State machine rules for the artefacts of the service.
    type Rules: RotationRules<
            State: Send + Sync + 'static,
            Upload: Send,
            Reply: Send,
            Refusal: Send + Sync + 'static,
        > + Sync;
    /// Name of the service in logs and messages.
    const NAME: &'static str;

    fn rules(&self) -> &Self::Rules;

    /// Lock of the rotation, and the store that keeps the artefacts.
    fn rotator(&self) -> &Rotator;

    /// The final state, which is in force when a rotation begins.
    fn last(&self) -> State<Self>;

    /// Status for an upload that is refused.
    fn refused(&self, refusal: &<Self::Rules as RotationRules>::Refusal) -> Refusal {
        Refusal::invalid(ErrorChain(refusal).to_string())
    }

    /// Brings an upload into force for the trial.
    fn activate(
        &self,
        before: &State<Self>,
        now: &State<Self>,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// Changes of the store that make `now` final instead of `before`.
    fn changes(&self, before: &State<Self>, now: &State<Self>) -> Vec<ArtefactChange>;

    /// Notes the final state. It is recorded already, so this cannot fail.
    fn mark_final(&self, now: &State<Self>) -> impl Future<Output = ()> + Send;

    /// Brings `to` back into force. Of `from`, all, a part or nothing may be in force.
    fn roll_back(&self, from: &State<Self>, to: &State<Self>) -> impl Future<Output = ()> + Send;
}

/// The messages of a stream that rotates, from wire to domain and back.
pub(in crate::northbound) trait RotateMessages<S: Rotatable>:
    Send + 'static
{
    type Request: Send + 'static;
    /// Answer of the stream; an empty one confirms a finalize.
    type Response: Default + Send + 'static;
    /// True when the stream goes on after a finalize.
    const CONTINUES_AFTER_FINALIZE: bool = false;

    /// Reads a message; `current` is the state in force. Steps that need time or random numbers, such as the generation
    /// of a key, belong here.
    fn read(
        service: &S,
        current: &State<S>,
        request: Self::Request,
    ) -> impl Future<Output = Result<Command<S>, Refusal>> + Send;

    /// Answer for an upload that is in force.
    fn answer(reply: Reply<S>) -> Self::Response;
}

/// All artefacts of a service.
pub(in crate::northbound) type State<S> = <<S as Rotatable>::Rules as RotationRules>::State;
/// Artefacts of one message.
pub(in crate::northbound) type Upload<S> = <<S as Rotatable>::Rules as RotationRules>::Upload;
/// Result of an upload that is in force.
pub(in crate::northbound) type Reply<S> = <<S as Rotatable>::Rules as RotationRules>::Reply;
/// Stream of answers to a client.
pub(in crate::northbound) type AnswerStream<R> = ReceiverStream<Result<R, Status>>;

/// One message of a client.
pub(in crate::northbound) enum Command<S: Rotatable + ?Sized> {
    Upload { upload: Upload<S>, overwrite: bool },
    Finalize,
}

/// Serves one stream, if no other rotation of the service is in progress.
///
/// # Errors
/// UNAVAILABLE when another rotation is in progress, or the agent is stopping.
pub(in crate::northbound) fn serve<S: Rotatable, M: RotateMessages<S>>(
    service: Arc<S>,
    rotations: &Rotations,
    caller: Caller,
    request: Request<Streaming<M::Request>>,
) -> Result<AnswerStream<M::Response>, Status> {
    let permission = CallPermission::of(request.extensions())?;
    let requests = request.into_inner();
    let guard = take(&*service)?;
    let (answers, stream) = mpsc::channel(ANSWERS);
    let own = rotations.clone();
    let idle = rotations.idle();
    let undertaking = rotations.undertakings().begin(format!("a rotation of {}", S::NAME));
    let stream_task = async move {
        let driver = Driver { service: &*service, caller: &caller };
        let mut client = Client { requests, answers, permission, rotations: &own, idle };
        let last = driver.follow::<M>(&mut client).await;
        // Released before the last answer, so that a client may begin the next rotation as soon as it has that.
        drop((guard, undertaking));
        client.end(last).await;
    };
    if rotations.spawn(stream_task) {
        Ok(ReceiverStream::new(stream))
    } else {
        Err(Refusal::stopping().into())
    }
}

/// Uploads that came without a stream, in force on trial. Dropping this does not roll them back.
#[must_use = "what is tried has to be kept or undone"]
pub(in crate::northbound) struct UploadTrial<S: Rotatable> {
    service: Arc<S>,
    caller: Caller,
    rotation: Rotation<S::Rules>,
    _guard: RotationGuard,
}

/// Tries uploads as one rotation.
///
/// # Errors
/// When one of them is refused or cannot be carried out; all are rolled back then.
pub(in crate::northbound) async fn try_uploads<S: Rotatable>(
    service: Arc<S>,
    caller: &Caller,
    uploads: Vec<Upload<S>>,
) -> Result<UploadTrial<S>, Refusal> {
    let guard = take(&*service)?;
    let driver = Driver { service: &*service, caller };
    let mut rotation = Rotation::open(service.last());
    for upload in uploads {
        match driver.upload(rotation, upload, true).await {
            Ok(step) => rotation = step.next,
            Err(fallen) => return Err(driver.fail(fallen).await),
        }
    }
    Ok(UploadTrial { service, caller: caller.clone(), rotation, _guard: guard })
}

/// Checks that an upload would be accepted now, without bringing it into force.
pub(super) fn examine_upload<S: Rotatable>(service: &S, upload: Upload<S>) -> Result<(), Refusal> {
    let trial = Rotation::open(service.last()).upload(service.rules(), upload, true);
    trial.map(drop).map_err(|broken| refusal_for(service, &broken.reason))
}

fn refusal_for<S: Rotatable>(
    service: &S,
    reason: &RotationError<<S::Rules as RotationRules>::Refusal>,
) -> Refusal {
    match reason {
        RotationError::Refused(refusal) => service.refused(refusal),
        reason @ RotationError::VersionInUse { .. } => Refusal::exists(reason.to_string()),
        reason @ RotationError::NothingUploaded => Refusal::precondition(reason.to_string()),
    }
}

impl<S: Rotatable> UploadTrial<S> {
    /// State that is in force.
    pub(in crate::northbound) fn now(&self) -> &State<S> {
        self.rotation.current()
    }

    /// Changes of the store that make the uploads final.
    pub(in crate::northbound) fn changes(&self) -> Vec<ArtefactChange> {
        self.service.changes(&self.service.last(), self.now())
    }

    /// Notes that the uploads are final, once they are recorded.
    pub(in crate::northbound) async fn mark_final(self) {
        let settled = async {
            self.service.mark_final(self.now()).await;
            Ok(())
        };
        // The panic is in the log; a restart has in force what is on disk.
        let _panicked = catch_panic("settling", settled).await;
        info!(service = S::NAME, caller = %self.caller.name, "an upload is final");
    }

    /// Rolls the uploads back.
    pub(in crate::northbound) async fn undo(self, why: &Refusal) {
        let driver = Driver { service: &*self.service, caller: &self.caller };
        driver.roll_back(self.rotation.end(), why).await;
    }
}

fn take<S: Rotatable>(service: &S) -> Result<RotationGuard, Refusal> {
    let busy = || Refusal::busy(format!("another rotation of {} is in progress", S::NAME));
    service.rotator().take().ok_or_else(busy)
}

/// The client of a stream.
struct Client<'a, Request, Response> {
    requests: Streaming<Request>,
    answers: mpsc::Sender<Result<Response, Status>>,
    permission: CallPermission,
    rotations: &'a Rotations,
    idle: Duration,
}

/// Reason for which there are no more messages of a client.
enum StreamEnd {
    /// The client has closed the stream without a finalize.
    Closed,
    Broken,
    Silent(Duration),
    Stopping,
}

impl<Request, Response> Client<'_, Request, Response> {
    async fn next(&mut self) -> Result<Request, StreamEnd> {
        let message = async {
            tokio::select! {
                biased; // messages that a client sent before it went count
                message = self.requests.message() => match message {
                    Ok(Some(request)) => Ok(request),
                    Ok(None) => Err(StreamEnd::Closed),
                    Err(_) => Err(StreamEnd::Broken),
                },
                () = self.answers.closed() => Err(StreamEnd::Broken),
                () = self.rotations.stopping() => Err(StreamEnd::Stopping),
            }
        };
        timeout(self.idle, message).await.unwrap_or(Err(StreamEnd::Silent(self.idle)))
    }

    async fn send_answer(&self, answer: Response) -> Result<(), StreamEnd> {
        match timeout(self.idle, self.answers.send(Ok(answer))).await {
            Ok(sent) => sent.map_err(|_| StreamEnd::Broken),
            Err(_) => Err(StreamEnd::Silent(self.idle)),
        }
    }

    /// Sends the last answer, or the status of the stream. A client that does not read delays neither its task nor a
    /// shutdown for long.
    async fn end(self, last: Option<Result<Response, Status>>) {
        let Some(last) = last else { return };
        tokio::select! {
            biased;
            _client_is_gone = timeout(self.idle, self.answers.send(last)) => {}
            () = self.rotations.stopping() => {}
        }
    }
}

impl StreamEnd {
    /// Status for the client, if it is still there, after the rollback.
    fn refusal(&self) -> Refusal {
        match self {
            Self::Closed | Self::Broken => {
                Refusal::aborted("the stream ended without finalize: the rotation is rolled back")
            }
            Self::Silent(idle) => Refusal::late(format!(
                "the client was silent for {idle:?}: the rotation is rolled back"
            )),
            Self::Stopping => Refusal::stopping(),
        }
    }
}

/// A step that succeeded.
struct StepSuccess<S: Rotatable> {
    next: Rotation<S::Rules>,
    outcome: StepOutcome<S>,
}

/// Result of a step, for the client.
enum StepOutcome<S: Rotatable> {
    Tried(Reply<S>),
    Final,
}

/// A step that failed, and the rollback that it needs.
struct StepFailure<S: Rotatable> {
    refusal: Refusal,
    roll_back: Option<RollBack<State<S>>>,
}

struct Driver<'a, S> {
    service: &'a S,
    caller: &'a Caller,
}

impl<S: Rotatable> Driver<'_, S> {
    /// Handles the messages of a stream to its end, and returns the last answer.
    async fn follow<M: RotateMessages<S>>(
        &self,
        client: &mut Client<'_, M::Request, M::Response>,
    ) -> Option<Result<M::Response, Status>> {
        info!(service = S::NAME, caller = %self.caller.name, "a rotation begins");
        let mut rotation = Rotation::open(self.service.last());
        loop {
            let request = match client.next().await {
                Ok(request) => request,
                Err(end) => return self.on_stream_end(rotation, &end).await.map(Err),
            };
            let step = match self.step::<M>(rotation, request, &client.permission).await {
                Ok(step) => step,
                Err(fallen) => return Some(Err(self.fail(fallen).await.into())),
            };
            rotation = step.next;
            let answer = match step.outcome {
                StepOutcome::Tried(reply) => M::answer(reply),
                StepOutcome::Final if M::CONTINUES_AFTER_FINALIZE => M::Response::default(),
                StepOutcome::Final => return Some(Ok(M::Response::default())),
            };
            if let Err(end) = client.send_answer(answer).await {
                return self.on_stream_end(rotation, &end).await.map(Err);
            }
        }
    }

    async fn step<M: RotateMessages<S>>(
        &self,
        rotation: Rotation<S::Rules>,
        request: M::Request,
        permission: &CallPermission,
    ) -> Result<StepSuccess<S>, StepFailure<S>> {
        let read = M::read(self.service, rotation.current(), request);
        match catch_panic("reading the message", read).await {
            Ok(Command::Upload { upload, overwrite }) => {
                self.upload(rotation, upload, overwrite).await
            }
            Ok(Command::Finalize) => {
                if let Err(refusal) = may_finalize(permission, !M::CONTINUES_AFTER_FINALIZE) {
                    return Err(StepFailure { refusal, roll_back: rotation.end() });
                }
                let finalizing = rotation.finalize().map_err(|broken| self.broken(broken))?;
                self.finalize(finalizing).await
            }
            Err(refusal) => Err(StepFailure { refusal, roll_back: rotation.end() }),
        }
    }

    async fn upload(
        &self,
        rotation: Rotation<S::Rules>,
        upload: Upload<S>,
        overwrite: bool,
    ) -> Result<StepSuccess<S>, StepFailure<S>> {
        let trial = rotation.upload(self.service.rules(), upload, overwrite);
        let trial = trial.map_err(|broken| self.broken(broken))?;
        let activated = self.service.activate(&trial.before, &trial.now);
        if let Err(refusal) = catch_panic("activating the upload", activated).await {
            return Err(StepFailure { refusal, roll_back: trial.rotation.end() });
        }
        info!(service = S::NAME, caller = %self.caller.name, "an upload is tried");
        Ok(StepSuccess { next: trial.rotation, outcome: StepOutcome::Tried(trial.reply) })
    }

    async fn finalize(
        &self,
        finalizing: FinalizeStep<S::Rules>,
    ) -> Result<StepSuccess<S>, StepFailure<S>> {
        let written = async {
            let changes = self.service.changes(finalizing.before(), finalizing.now());
            Ok(self.service.rotator().store().write_artefacts(changes).await?)
        };
        if let Err(refusal) = catch_panic("recording the upload", written).await {
            return Err(StepFailure { refusal, roll_back: Some(finalizing.failed()) });
        }
        let settled = async {
            self.service.mark_final(finalizing.now()).await;
            Ok(())
        };
        if let Err(refusal) = catch_panic("settling", settled).await {
            // The upload is on disk, so it is not rolled back: a restart has it in force.
            return Err(StepFailure { refusal, roll_back: None });
        }
        info!(service = S::NAME, caller = %self.caller.name, "an upload is final");
        Ok(StepSuccess { next: finalizing.written(), outcome: StepOutcome::Final })
    }

    fn broken(&self, broken: RotationFailure<S::Rules>) -> StepFailure<S> {
        StepFailure {
            refusal: refusal_for(self.service, &broken.reason),
            roll_back: broken.roll_back,
        }
    }

    async fn fail(&self, fallen: StepFailure<S>) -> Refusal {
        self.roll_back(fallen.roll_back, &fallen.refusal).await;
        fallen.refusal
    }

    /// Rolls back after the client has gone. A client that closed its stream with no upload on trial gets no status.
    async fn on_stream_end(&self, rotation: Rotation<S::Rules>, end: &StreamEnd) -> Option<Status> {
        let roll_back = rotation.end();
        let refusal = end.refusal();
        if roll_back.is_none() && matches!(end, StreamEnd::Closed) {
            return None;
        }
        self.roll_back(roll_back, &refusal).await;
        Some(refusal.into())
    }

    async fn roll_back(&self, roll_back: Option<RollBack<State<S>>>, why: &Refusal) {
        let Some(RollBack { from, to }) = roll_back else { return };
        warn!(service = S::NAME, caller = %self.caller.name, reason = %why.text(), "rolling back an upload");
        let back = async {
            self.service.roll_back(&from, &to).await;
            Ok(())
        };
        // The panic is in the log; the next start brings the final state into force.
        let _panicked = catch_panic("rolling back an upload", back).await;
    }
}

/// Checks the permission once more, since the caller may have been removed after the stream began. The finalized state
/// may withdraw the caller's own permission; with `is_end`, the call is allowed to end nevertheless.
pub(in crate::northbound) fn may_finalize(
    permission: &CallPermission,
    is_end: bool,
) -> Result<(), Refusal> {
    permission.recheck().map_err(Refusal::permission_revoked)?;
    if is_end {
        permission.allow_completion();
    }
    Ok(())
}

/// Turns a panic of one step into an error, so that the rotation is rolled back.
async fn catch_panic<T>(
    step: &'static str,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let panicked = |_| Err(Refusal::internal(format!("{step} panicked")));
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(panicked)
}
