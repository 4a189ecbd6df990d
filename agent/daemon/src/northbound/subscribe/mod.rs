//! Subscribe: the leaves that a client gets, and the times at which it gets them.
//!
//! Start at [`open`]. Each RPC is one task: [`plan`] is the checked subscription list, [`stream`] decides what is due,
//! [`outlet`] puts it into messages and ends a stream whose client does not read. The task holds snapshots of the
//! datastore and never a queue of changes.
//!
//! Absent on purpose: aggregation. `allow_aggregation` is ignored, an update is always one leaf;
//! several leaves of the same instant share one notification.

mod encoder;
mod ignored;
mod notifications;
mod plan;
pub(super) mod sampler;
mod stream;

use std::sync::Arc;

use holdfast_base::Caller;
use holdfast_core::Datastore;
use holdfast_proto::gnmi::{SubscribeRequest, subscribe_request, subscription_list};
use holdfast_telemetry::Revision;
use tokio::sync::{mpsc, watch};
use tokio_stream::{Stream, StreamExt};
use tonic::{Extensions, Status};

pub use self::ignored::IgnoredSubscriptions;
use self::notifications::UpdateSender;
pub(super) use self::notifications::Updates;
#[cfg(test)]
pub(super) use self::plan::DEFAULT_SAMPLE_INTERVAL;
use self::plan::SubscriptionPlan;
use self::sampler::Sampler;
use self::stream::Subscriber;
use super::reads::ReadPool;
use super::response_stream::StreamError;
use super::status::Refusal;
use crate::budget::CallerBudget;
use crate::gnsi::pathz::PolicyWatch;
use crate::tls::{Dscp, Peer};

/// Polls of one RPC that wait for the one being answered. The transport slows down a client that polls faster than it
/// reads.
const POLL_QUEUE_DEPTH: usize = 1;

/// Reason to end a stream that was opened under an earlier pathz policy.
const POLICY_REPLACED: &str =
    "the pathz policy has changed since this subscription began: subscribe again";

/// The subscriber, its pathz policy, and permits for its readings.
#[derive(Debug)]
pub(super) struct SubscriberContext {
    pub(super) caller: Caller,
    pub(super) policies: PolicyWatch,
    pub(super) reads: ReadPool,
    pub(super) ignored: Arc<IgnoredSubscriptions>,
    pub(super) budget: CallerBudget,
}

/// Starts the task of one Subscribe RPC. The task ends with the returned stream.
///
/// # Errors
/// When too many subscriptions are open.
pub(super) fn open<D, R>(
    sampler: Arc<Sampler<D>>,
    reader: SubscriberContext,
    extensions: &Extensions,
    requests: R,
) -> Result<Updates, Refusal>
where
    D: Datastore,
    R: Stream<Item = Result<SubscribeRequest, Status>> + Send + Unpin + 'static,
{
    let charge = reader.budget.open_subscription()?;
    let dscp = extensions.get::<Peer>().map(|peer| peer.dscp.clone());
    let updates =
        Updates::spawn(
            |outlet| async move { serve(&sampler, reader, dscp, requests, outlet).await },
        );
    Ok(updates.charged(charge))
}

/// Serves one RPC to its end, which is `Ok` for ONCE, and for POLL when the client has no more to ask.
async fn serve<D, R>(
    sampler: &Sampler<D>,
    mut reader: SubscriberContext,
    dscp: Option<Dscp>,
    mut requests: R,
    outlet: UpdateSender,
) -> Result<(), StreamError>
where
    D: Datastore,
    R: Stream<Item = Result<SubscribeRequest, Status>> + Send + Unpin,
{
    let first = requests.next().await.ok_or(StreamError::Gone)?.map_err(|_| StreamError::Gone)?;
    let rights = reader.policies.rights(&reader.caller.name, &sampler.core().models());
    let unknown = reader.ignored.setting(sampler.core());
    let plan =
        SubscriptionPlan::read(sampler.core(), &reader.reads, rights.as_ref(), unknown, first)
            .await;
    let fresh = rights.map(|_| reader.policies.fresh_state()).unwrap_or_default();
    if !fresh.is_empty() {
        sampler.core().show_state(fresh).await;
    }
    let plan = plan?;
    reader.ignored.note(sampler.core(), &plan.ignored).await;
    if let (Some(dscp), Some(marking)) = (dscp, plan.marking) {
        dscp.request(marking);
    }
    let (poll_tx, poll_rx) = mpsc::channel(POLL_QUEUE_DEPTH);
    let mode = plan.mode;
    let reads = reader.reads.clone();
    let budget = reader.budget.clone();
    let subscriber = Subscriber::new(sampler, plan, outlet, reads, budget);
    tokio::select! {
        end = subscriber.run(poll_rx) => end,
        end = watch_requests(requests, mode, poll_tx) => Err(end),
        () = reader.policies.replaced() => Err(Refusal::superseded(POLICY_REPLACED).into()),
        () = stopped(sampler.core().watch()) => Err(Refusal::stopping().into()),
    }
}

/// Resolves when no more revisions will be published, because open streams must not delay a shutdown.
async fn stopped(mut revision_rx: watch::Receiver<Arc<Revision>>) {
    while revision_rx.changed().await.is_ok() {}
}

/// Passes polls on, and ends the RPC when the client sends an invalid message.
async fn watch_requests<R>(
    mut requests: R,
    mode: subscription_list::Mode,
    poll_tx: mpsc::Sender<()>,
) -> StreamError
where
    R: Stream<Item = Result<SubscribeRequest, Status>> + Send + Unpin,
{
    while let Some(request) = requests.next().await {
        match request.map(|request| request.request) {
            Err(_) => return StreamError::Gone,
            Ok(Some(subscribe_request::Request::Poll(_)))
                if mode == subscription_list::Mode::Poll =>
            {
                if poll_tx.send(()).await.is_err() {
                    break;
                }
            }
            Ok(Some(subscribe_request::Request::Poll(_))) => {
                return Refusal::invalid(
                    "a Poll came, but the mode of the subscription is not POLL",
                )
                .into();
            }
            Ok(Some(subscribe_request::Request::Subscribe(_))) => {
                return Refusal::invalid("a second SubscriptionList came on one Subscribe RPC")
                    .into();
            }
            Ok(None) => {
                return Refusal::invalid("a message has neither subscription nor poll").into();
            }
        }
    }
    // The client has closed its side: in POLL that ends the RPC, otherwise it goes on reading.
    drop(poll_tx);
    std::future::pending().await
}
