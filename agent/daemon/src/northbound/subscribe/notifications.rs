//! The messages of a Subscribe RPC: leaves with one time stamp are bundled.

use std::sync::Arc;

use holdfast_config::schema::{Origin, Schema};
use holdfast_config::{Models, Step};
use holdfast_proto::gnmi::subscribe_response::Response;
use holdfast_proto::gnmi::{self, SubscribeResponse};
use holdfast_proto::gnmi_ext::config_subscription::Action;
use holdfast_proto::gnmi_ext::extension::Ext;
use holdfast_proto::gnmi_ext::{ConfigSubscription, ConfigSubscriptionSyncDone, Extension};
use holdfast_telemetry::{Boundary, TreeUpdate, Walk, WalkProgress};
use prost::Message;

use super::super::encoding::Encoding;
use super::super::path::to_wire;
use super::super::reads::WalkQuota;
use super::super::response_stream::{self, StreamError};
use crate::server::SEND_BUFFER;

/// Leaves and bytes after which a notification is sent although more belongs to its instant: one that waits for a client
/// that does not read costs ten times its bytes, and HTTP/2 holds no more than [`SEND_BUFFER`] either.
const MAX_LEAVES: usize = 512;
const MAX_OCTETS: usize = SEND_BUFFER / 4;
/// The sending half of one Subscribe RPC.
pub(super) type UpdateSender = response_stream::ResponseSender<SubscribeResponse>;
/// The messages of one Subscribe RPC, then its status.
pub(in super::super) type Updates = response_stream::ResponseStream<SubscribeResponse>;

impl UpdateSender {
    pub(super) async fn sync(&self) -> Result<(), StreamError> {
        self.respond(Some(Response::SyncResponse(true)), Vec::new()).await
    }

    /// Marks the end of all changes of one commit.
    pub(super) async fn sync_done(&self, boundary: &Boundary) -> Result<(), StreamError> {
        let message = ConfigSubscriptionSyncDone {
            commit_confirm_id: boundary.confirm_id.as_deref().unwrap_or_default().to_owned(),
            server_commit_id: boundary.transaction.to_string(),
            done: true,
        };
        let action = Some(Action::SyncDone(message));
        let ext = Some(Ext::ConfigSubscription(ConfigSubscription { action }));
        self.respond(None, vec![Extension { ext }]).await
    }

    pub(super) async fn notify(&self, notification: gnmi::Notification) -> Result<(), StreamError> {
        self.respond(Some(Response::Update(notification)), Vec::new()).await
    }

    async fn respond(
        &self,
        response: Option<Response>,
        extension: Vec<Extension>,
    ) -> Result<(), StreamError> {
        self.send(SubscribeResponse { response, extension }).await
    }
}

/// Time stamps of the notifications.
#[derive(Clone, Copy, Debug)]
pub(super) enum TimestampMode {
    /// The time at which each leaf changed; removals have the time of the revision that shows them.
    OfEvent { revision_ns: u64 },
    /// The time at which all leaves were read.
    OfReading { time_ns: u64 },
}

/// The part of a walk that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFilter {
    All,
    Deletes,
    /// Removals of what exists only in readings.
    DeletesOfPolledLists,
    /// Updates, and removals of what exists only in readings. An event tells of other removals.
    Updates,
}

/// Notifications that are being made: consecutive items with one time stamp go into one.
#[derive(Debug)]
pub(super) struct NotificationWriter<'a> {
    pub(super) outlet: &'a UpdateSender,
    models: Arc<Models>,
    origin: Origin,
    pub(super) encoding: Encoding,
    pub(super) prefix: gnmi::Path,
    pub(super) time: TimestampMode,
    pending: gnmi::Notification,
    octets: usize,
    /// Complete notifications that are not sent yet.
    complete: Vec<gnmi::Notification>,
}

impl<'a> NotificationWriter<'a> {
    pub(super) fn new(
        outlet: &'a UpdateSender,
        (models, origin): (Arc<Models>, Origin),
        encoding: Encoding,
        prefix: gnmi::Path,
        time: TimestampMode,
    ) -> Self {
        let pending = gnmi::Notification::default();
        let complete = Vec::new();
        Self { outlet, models, origin, encoding, prefix, time, pending, octets: 0, complete }
    }

    fn schema(&self) -> &Schema {
        self.models.schema(self.origin)
    }

    /// Sends a walk to its end, in portions.
    pub(super) async fn send_walk(
        &mut self,
        walk: &mut Walk,
        tell: SendFilter,
        portions: &mut WalkQuota,
    ) -> Result<(), StreamError> {
        while !self.send_portion(walk, tell, portions).await? {}
        Ok(())
    }

    /// Sends the notifications that one portion of a walk completes; true at the end of the walk. No permit is held while
    /// something is sent.
    pub(super) async fn send_portion(
        &mut self,
        walk: &mut Walk,
        tell: SendFilter,
        portions: &mut WalkQuota,
    ) -> Result<bool, StreamError> {
        let portion = portions.next().await;
        let before = walk.visited();
        let is_ended = self.write_portion(walk, tell, before + portion.nodes);
        portions.finish(portion, walk.visited() - before);
        for notification in std::mem::take(&mut self.complete) {
            self.outlet.notify(notification).await?;
        }
        Ok(is_ended)
    }

    /// Adds the items of one portion, up to the first notification that is complete; true at the end of the walk.
    fn write_portion(&mut self, walk: &mut Walk, tell: SendFilter, until: usize) -> bool {
        while self.complete.is_empty() {
            let update = match walk.next_within(until) {
                WalkProgress::Update(update) => update,
                WalkProgress::Paused => return false,
                WalkProgress::Ended => return true,
            };
            if self.is_sent(&update, tell) {
                let (time_ns, item) = self.to_wire(update);
                self.add(time_ns, item);
            }
        }
        false
    }

    fn is_sent(&self, update: &TreeUpdate<'_>, tell: SendFilter) -> bool {
        match (tell, update) {
            (SendFilter::All, _) => true,
            (SendFilter::Updates, TreeUpdate::Leaf { .. }) => true,
            (_, TreeUpdate::Leaf { .. }) => false,
            (SendFilter::Deletes, _) => true,
            (
                SendFilter::DeletesOfPolledLists | SendFilter::Updates,
                TreeUpdate::Deleted(path) | TreeUpdate::Recreated { path, .. },
            ) => path.last().is_some_and(|step| self.schema().is_only_polled(step.node)),
        }
    }

    /// Sends all notifications, also the incomplete one.
    pub(super) async fn flush(&mut self) -> Result<(), StreamError> {
        self.finish();
        for notification in std::mem::take(&mut self.complete) {
            self.outlet.notify(notification).await?;
        }
        Ok(())
    }

    fn finish(&mut self) {
        self.octets = 0;
        let notification = std::mem::take(&mut self.pending);
        if notification.update.is_empty() && notification.delete.is_empty() {
            return;
        }
        let prefix = Some(self.prefix.clone());
        self.complete.push(gnmi::Notification { prefix, ..notification });
    }

    fn add(&mut self, time_ns: u64, item: WireItem) {
        let timestamp = time_ns.cast_signed();
        let full = self.pending.update.len() + self.pending.delete.len() >= MAX_LEAVES
            || self.octets >= MAX_OCTETS;
        if full || self.pending.timestamp != timestamp {
            self.finish();
        }
        self.pending.timestamp = timestamp;
        match item {
            WireItem::Delete(path) => self.pending.delete.push(path),
            WireItem::Update(update) => {
                self.octets += update.encoded_len();
                self.pending.update.push(update);
            }
        }
    }

    fn to_wire(&self, item: TreeUpdate<'_>) -> (u64, WireItem) {
        match (item, self.time) {
            (TreeUpdate::Deleted(path), TimestampMode::OfEvent { revision_ns: time_ns })
            | (
                TreeUpdate::Deleted(path) | TreeUpdate::Recreated { path, .. },
                TimestampMode::OfReading { time_ns },
            )
            | (TreeUpdate::Recreated { path, time_ns }, TimestampMode::OfEvent { .. }) => {
                (time_ns, WireItem::Delete(to_wire(self.schema(), path)))
            }
            (TreeUpdate::Leaf { path, leaf, missed }, time) => {
                let time_ns = match time {
                    TimestampMode::OfEvent { .. } => leaf.meta.time_ns,
                    TimestampMode::OfReading { time_ns } => time_ns,
                };
                (time_ns, WireItem::Update(self.update(path, &leaf.value, missed)))
            }
        }
    }

    fn update(&self, path: &[Step], value: &holdfast_config::Value, missed: u32) -> gnmi::Update {
        let val = path.last().map(|step| self.encoding.leaf(self.schema(), step.node, value));
        gnmi::Update {
            path: Some(to_wire(self.schema(), path)),
            val,
            duplicates: missed,
            ..Default::default()
        }
    }
}

#[derive(Debug)]
enum WireItem {
    Delete(gnmi::Path),
    Update(gnmi::Update),
}
