//! Drives a rotation: the client's messages go into the machine, what it says is carried out.
//!
//! Start at [`serve`] for a stream, at [`try_uploads`] for artefacts that come without one. What is accepted and what comes
//! back is decided by [`Rotation`]; what it means for the box by the service, as [`Rotated`]; how it is said by
//! [`Messages`]. Every end without
//! finalize is a roll-back, and happens in a task of its own, which the client's going does not end: the stream is
//! closed or broken, a step fails or panics, nothing is said for a named time, the agent stops. What no roll-back can
//! reach, as kill -9, is not on disk: a start finds what was final.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use holdfast_base::Caller;
use holdfast_base::Chain;
use holdfast_security::rotation::{Broken, Finalizing, Reason, RollBack, Rotating, Rotation};
use holdfast_store::{ArtefactChange, Store};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};
use tracing::{info, warn};

use crate::access::Right;
use crate::gnsi::{Held, Rotations, Turn};
use crate::northbound::status::Refusal;

/// Answers that wait for the client to read: each message has one at most.
const ANSWERS: usize = 4;

/// What a rotation means for the box.
pub(in crate::northbound) trait Rotated: Send + Sync + 'static {
    /// What it rotates.
    type Rules: Rotating<
            State: Send + Sync + 'static,
            Upload: Send,
            Reply: Send,
            Refusal: Send + Sync + 'static,
        > + Sync;
    /// What the log calls it.
    const NAME: &'static str;

    fn rules(&self) -> &Self::Rules;

    /// The right to rotate: rotations that must not run beside one another share it.
    fn turn(&self) -> &Turn;

    /// Where it is written down.
    fn store(&self) -> &Store;

    /// What is final, and so in force when a rotation begins.
    fn last(&self) -> State<Self>;

    /// The code and the text of an upload that is not taken.
    fn refused(&self, refusal: &<Self::Rules as Rotating>::Refusal) -> Refusal {
        Refusal::invalid(Chain(refusal).to_string())
    }

    /// Brings an upload into force for the time being.
    fn activate(
        &self,
        before: &State<Self>,
        now: &State<Self>,
    ) -> impl Future<Output = Result<(), Refusal>> + Send;

    /// What is to be written down so that `now` is final in place of `before`.
    fn changes(&self, before: &State<Self>, now: &State<Self>) -> Vec<ArtefactChange>;

    /// Takes note of what is final; it is written down, so this cannot fail.
    fn settle(&self, now: &State<Self>) -> impl Future<Output = ()> + Send;

    /// Brings `to` back into force; `from` may be in force as a whole, in part or not at all.
    fn roll_back(&self, from: &State<Self>, to: &State<Self>) -> impl Future<Output = ()> + Send;
}

/// The messages of a stream that rotates, from wire to domain and back.
pub(in crate::northbound) trait Messages<S: Rotated>: Send + 'static {
    type Request: Send + 'static;
    /// Empty, it says that a finalize is carried out.
    type Response: Default + Send + 'static;
    /// Whether the stream goes on after a finalize.
    const GOES_ON: bool = false;

    /// What a message says; `current` is what is in force. What takes time or randomness, as the making of a key, belongs
    /// here.
    fn read(
        service: &S,
        current: &State<S>,
        request: Self::Request,
    ) -> impl Future<Output = Result<Command<S>, Refusal>> + Send;

    /// What the client is told when its upload is in force.
    fn answer(reply: Reply<S>) -> Self::Response;
}

/// All that a service rotates.
pub(in crate::northbound) type State<S> = <<S as Rotated>::Rules as Rotating>::State;
/// What one message brings.
pub(in crate::northbound) type Upload<S> = <<S as Rotated>::Rules as Rotating>::Upload;
/// What an upload in force comes to.
pub(in crate::northbound) type Reply<S> = <<S as Rotated>::Rules as Rotating>::Reply;
/// What a client is told, until the stream ends.
pub(in crate::northbound) type Answers<R> = ReceiverStream<Result<R, Status>>;

/// One message of a client.
pub(in crate::northbound) enum Command<S: Rotated + ?Sized> {
    Upload { upload: Upload<S>, overwrite: bool },
    Finalize,
}

/// Serves one stream, if no other rotation of the service is in progress.
///
/// # Errors
/// UNAVAILABLE when one is, or the agent is stopping.
pub(in crate::northbound) fn serve<S: Rotated, M: Messages<S>>(
    service: Arc<S>,
    rotations: &Rotations,
    caller: Caller,
    request: Request<Streaming<M::Request>>,
) -> Result<Answers<M::Response>, Status> {
    let right = Right::of(request.extensions())?;
    let requests = request.into_inner();
    let held = take(&*service)?;
    let (answers, stream) = mpsc::channel(ANSWERS);
    let (own, idle) = (rotations.clone(), rotations.idle());
    let undertaking = rotations.undertakings().begin(format!("a rotation of {}", S::NAME));
    let stream_task = async move {
        let driver = Driver { service: &*service, caller: &caller };
        let mut client = Client { requests, answers, right, rotations: &own, idle };
        let last = driver.follow::<M>(&mut client).await;
        // All is done or taken back. Who learns of the end may begin the next one at once.
        drop((held, undertaking));
        client.end(last).await;
    };
    if rotations.spawn(stream_task) {
        Ok(ReceiverStream::new(stream))
    } else {
        Err(Refusal::stopping().into())
    }
}

/// Uploads that came without a stream, in force and not final yet. Nothing takes back one that is dropped.
#[must_use = "what is tried has to be kept or undone"]
pub(in crate::northbound) struct Trying<S: Rotated> {
    service: Arc<S>,
    caller: Caller,
    rotation: Rotation<S::Rules>,
    _held: Held,
}

/// Tries uploads as one rotation.
///
/// # Errors
/// When one of them is not taken or cannot be carried out: then all is as it was.
pub(in crate::northbound) async fn try_uploads<S: Rotated>(
    service: Arc<S>,
    caller: &Caller,
    uploads: Vec<Upload<S>>,
) -> Result<Trying<S>, Refusal> {
    let held = take(&*service)?;
    let driver = Driver { service: &*service, caller };
    let mut rotation = Rotation::open(service.last());
    for upload in uploads {
        match driver.upload(rotation, upload, true).await {
            Ok(done) => rotation = done.next,
            Err(fallen) => return Err(driver.fall(fallen).await),
        }
    }
    Ok(Trying { service, caller: caller.clone(), rotation, _held: held })
}

/// Looks whether an upload would be taken now. Nothing is tried.
pub(super) fn examine_upload<S: Rotated>(service: &S, upload: Upload<S>) -> Result<(), Refusal> {
    let trial = Rotation::open(service.last()).upload(service.rules(), upload, true);
    trial.map(drop).map_err(|broken| why(service, &broken.reason))
}

fn why<S: Rotated>(service: &S, reason: &Reason<<S::Rules as Rotating>::Refusal>) -> Refusal {
    match reason {
        Reason::Refused(refusal) => service.refused(refusal),
        reason @ Reason::VersionInUse { .. } => Refusal::exists(reason.to_string()),
        reason @ Reason::NothingUploaded => Refusal::precondition(reason.to_string()),
    }
}

impl<S: Rotated> Trying<S> {
    /// What is in force of it.
    pub(in crate::northbound) fn now(&self) -> &State<S> {
        self.rotation.current()
    }

    /// What has to be written down to keep it.
    pub(in crate::northbound) fn changes(&self) -> Vec<ArtefactChange> {
        self.service.changes(&self.service.last(), self.now())
    }

    /// It is written down.
    pub(in crate::northbound) async fn settle(self) {
        let settled = async {
            self.service.settle(self.now()).await;
            Ok(())
        };
        // The panic is in the log; a restart has in force what is on disk.
        let _panicked = guarded("settling", settled).await;
        info!(service = S::NAME, caller = %self.caller.name, "an upload is final");
    }

    /// Brings back what was there before.
    pub(in crate::northbound) async fn undo(self, why: &Refusal) {
        let driver = Driver { service: &*self.service, caller: &self.caller };
        driver.take_back(self.rotation.end(), why).await;
    }
}

fn take<S: Rotated>(service: &S) -> Result<Held, Refusal> {
    let busy = || Refusal::busy(format!("another rotation of {} is in progress", S::NAME));
    service.turn().take().ok_or_else(busy)
}

/// The other end of a stream.
struct Client<'a, Request, Response> {
    requests: Streaming<Request>,
    answers: mpsc::Sender<Result<Response, Status>>,
    right: Right,
    rotations: &'a Rotations,
    idle: Duration,
}

/// Why nothing more comes from a client.
enum Gone {
    /// It said that it is done, without a word about what it had uploaded.
    Closed,
    Broken,
    Silent(Duration),
    Stopping,
}

impl<Request, Response> Client<'_, Request, Response> {
    async fn next(&mut self) -> Result<Request, Gone> {
        let message = async {
            tokio::select! {
                biased; // what a client said before it went counts
                message = self.requests.message() => match message {
                    Ok(Some(request)) => Ok(request),
                    Ok(None) => Err(Gone::Closed),
                    Err(_) => Err(Gone::Broken),
                },
                () = self.answers.closed() => Err(Gone::Broken),
                () = self.rotations.stopping() => Err(Gone::Stopping),
            }
        };
        timeout(self.idle, message).await.unwrap_or(Err(Gone::Silent(self.idle)))
    }

    async fn tell(&self, answer: Response) -> Result<(), Gone> {
        match timeout(self.idle, self.answers.send(Ok(answer))).await {
            Ok(sent) => sent.map_err(|_| Gone::Broken),
            Err(_) => Err(Gone::Silent(self.idle)),
        }
    }

    /// Sends the last answer, or the error with which the stream ends. A client that does not listen any more is told
    /// nothing, and holds up no stop.
    async fn end(self, last: Option<Result<Response, Status>>) {
        let Some(last) = last else { return };
        tokio::select! {
            biased;
            _client_is_gone = timeout(self.idle, self.answers.send(last)) => {}
            () = self.rotations.stopping() => {}
        }
    }
}

impl Gone {
    /// What the client is told, if it still listens, after what it tried was taken back.
    fn refusal(&self) -> Refusal {
        match self {
            Self::Closed | Self::Broken => {
                Refusal::aborted("the stream ended without finalize: all is as it was")
            }
            Self::Silent(idle) => Refusal::late(format!(
                "the client was silent for {idle:?}: the rotation is rolled back"
            )),
            Self::Stopping => Refusal::stopping(),
        }
    }
}

/// A step that is done.
struct Done<S: Rotated> {
    next: Rotation<S::Rules>,
    outcome: Outcome<S>,
}

/// What a client is told of it.
enum Outcome<S: Rotated> {
    Tried(Reply<S>),
    Final,
}

/// A step that failed, and what it leaves to be taken back.
struct Fallen<S: Rotated> {
    refusal: Refusal,
    roll_back: Option<RollBack<State<S>>>,
}

struct Driver<'a, S> {
    service: &'a S,
    caller: &'a Caller,
}

impl<S: Rotated> Driver<'_, S> {
    /// From the first message of a stream to its end, and what the client is told of that.
    async fn follow<M: Messages<S>>(
        &self,
        client: &mut Client<'_, M::Request, M::Response>,
    ) -> Option<Result<M::Response, Status>> {
        info!(service = S::NAME, caller = %self.caller.name, "a rotation begins");
        let mut rotation = Rotation::open(self.service.last());
        loop {
            let request = match client.next().await {
                Ok(request) => request,
                Err(gone) => return self.gone(rotation, &gone).await.map(Err),
            };
            let done = match self.step::<M>(rotation, request, &client.right).await {
                Ok(done) => done,
                Err(fallen) => return Some(Err(self.fall(fallen).await.into())),
            };
            rotation = done.next;
            let answer = match done.outcome {
                Outcome::Tried(reply) => M::answer(reply),
                Outcome::Final if M::GOES_ON => M::Response::default(),
                Outcome::Final => return Some(Ok(M::Response::default())),
            };
            if let Err(gone) = client.tell(answer).await {
                return self.gone(rotation, &gone).await.map(Err);
            }
        }
    }

    async fn step<M: Messages<S>>(
        &self,
        rotation: Rotation<S::Rules>,
        request: M::Request,
        right: &Right,
    ) -> Result<Done<S>, Fallen<S>> {
        let read = M::read(self.service, rotation.current(), request);
        match guarded("reading the message", read).await {
            Ok(Command::Upload { upload, overwrite }) => {
                self.upload(rotation, upload, overwrite).await
            }
            Ok(Command::Finalize) => {
                if let Err(refusal) = may_finalize(right, !M::GOES_ON) {
                    return Err(Fallen { refusal, roll_back: rotation.end() });
                }
                let finalizing = rotation.finalize().map_err(|broken| self.broken(broken))?;
                self.finalize(finalizing).await
            }
            Err(refusal) => Err(Fallen { refusal, roll_back: rotation.end() }),
        }
    }

    async fn upload(
        &self,
        rotation: Rotation<S::Rules>,
        upload: Upload<S>,
        overwrite: bool,
    ) -> Result<Done<S>, Fallen<S>> {
        let trial = rotation.upload(self.service.rules(), upload, overwrite);
        let trial = trial.map_err(|broken| self.broken(broken))?;
        let activated = self.service.activate(&trial.before, &trial.now);
        if let Err(refusal) = guarded("activating the upload", activated).await {
            return Err(Fallen { refusal, roll_back: trial.rotation.end() });
        }
        info!(service = S::NAME, caller = %self.caller.name, "an upload is tried");
        Ok(Done { next: trial.rotation, outcome: Outcome::Tried(trial.reply) })
    }

    async fn finalize(&self, finalizing: Finalizing<S::Rules>) -> Result<Done<S>, Fallen<S>> {
        let written = async {
            let changes = self.service.changes(finalizing.before(), finalizing.now());
            Ok(self.service.store().write_artefacts(changes).await?)
        };
        if let Err(refusal) = guarded("writing the upload down", written).await {
            return Err(Fallen { refusal, roll_back: Some(finalizing.failed()) });
        }
        let settled = async {
            self.service.settle(finalizing.now()).await;
            Ok(())
        };
        if let Err(refusal) = guarded("settling", settled).await {
            // It is on disk, so there is no way back: a restart has it in force.
            return Err(Fallen { refusal, roll_back: None });
        }
        info!(service = S::NAME, caller = %self.caller.name, "an upload is final");
        Ok(Done { next: finalizing.written(), outcome: Outcome::Final })
    }

    fn broken(&self, broken: Broken<S::Rules>) -> Fallen<S> {
        Fallen { refusal: why(self.service, &broken.reason), roll_back: broken.roll_back }
    }

    async fn fall(&self, fallen: Fallen<S>) -> Refusal {
        self.take_back(fallen.roll_back, &fallen.refusal).await;
        fallen.refusal
    }

    /// A client that had nothing under way is told nothing when it goes.
    async fn gone(&self, rotation: Rotation<S::Rules>, gone: &Gone) -> Option<Status> {
        let (roll_back, refusal) = (rotation.end(), gone.refusal());
        if roll_back.is_none() && matches!(gone, Gone::Closed) {
            return None;
        }
        self.take_back(roll_back, &refusal).await;
        Some(refusal.into())
    }

    async fn take_back(&self, roll_back: Option<RollBack<State<S>>>, why: &Refusal) {
        let Some(RollBack { from, to }) = roll_back else { return };
        warn!(service = S::NAME, caller = %self.caller.name, reason = %why.text(), "taking an upload back");
        let back = async {
            self.service.roll_back(&from, &to).await;
            Ok(())
        };
        // The panic is in the log; whatever it left is as the service says at the next start.
        let _panicked = guarded("taking an upload back", back).await;
    }
}

/// Asks for the right once more: its caller may have been removed since the stream began. What is made final may take
/// the caller's own right away, and it `is_end` of the stream all the same.
pub(in crate::northbound) fn may_finalize(right: &Right, is_end: bool) -> Result<(), Refusal> {
    right.ask().map_err(Refusal::lost_right)?;
    if is_end {
        right.let_end();
    }
    Ok(())
}

/// A panic of one step is the end of its rotation, and not of what has to be taken back.
async fn guarded<T>(
    step: &'static str,
    work: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let panicked = |_| Err(Refusal::internal(format!("{step} panicked")));
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(panicked)
}
