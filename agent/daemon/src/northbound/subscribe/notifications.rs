//! The messages of a Subscribe RPC: leaves with one time stamp are bundled.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_config::Models;
use holdfast_config::schema::{Origin, Schema};
use holdfast_proto::gnmi::subscribe_response::Response;
use holdfast_proto::gnmi::{self, SubscribeResponse};
use holdfast_proto::gnmi_ext::config_subscription::Action;
use holdfast_proto::gnmi_ext::extension::Ext;
use holdfast_proto::gnmi_ext::{ConfigSubscription, ConfigSubscriptionSyncDone, Extension};
use holdfast_telemetry::{Boundary, TreeUpdate, Walk, WalkProgress};

use super::super::encoding::Encoding;
use super::super::reads::WalkQuota;
use super::super::response_stream::{self, StreamError};
use super::encoder::NotificationEncoder;

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

    /// Sends an encoded notification.
    async fn notify(&self, notification: Bytes) -> Result<(), StreamError> {
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
    /// The notification that is being made.
    pending: NotificationEncoder,
    /// Complete notifications that are not sent yet.
    complete: Vec<Bytes>,
}

impl<'a> NotificationWriter<'a> {
    pub(super) fn new(
        outlet: &'a UpdateSender,
        models: Arc<Models>,
        origin: Origin,
        encoding: Encoding,
        prefix: gnmi::Path,
        time: TimestampMode,
    ) -> Self {
        let pending = NotificationEncoder::default();
        Self { outlet, models, origin, encoding, prefix, time, pending, complete: Vec::new() }
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
                self.add(update);
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
        self.complete.extend(self.pending.take());
    }

    fn add(&mut self, update: TreeUpdate<'_>) {
        let timestamp = self.time_of(&update).cast_signed();
        if !self.pending.takes(timestamp) {
            self.finish();
        }
        let schema = self.models.schema(self.origin);
        self.pending.begin(timestamp, &self.prefix);
        match update {
            TreeUpdate::Deleted(path) | TreeUpdate::Recreated { path, .. } => {
                self.pending.delete(schema, path);
            }
            TreeUpdate::Leaf { path, leaf, missed } => {
                let Some(step) = path.last() else { return };
                let val = Some(self.encoding.leaf(schema, step.node, &leaf.value));
                let rest = gnmi::Update { val, duplicates: missed, ..gnmi::Update::default() };
                self.pending.update(schema, path, &rest);
            }
        }
    }

    fn time_of(&self, update: &TreeUpdate<'_>) -> u64 {
        match (self.time, update) {
            (TimestampMode::OfReading { time_ns }, _) => time_ns,
            (TimestampMode::OfEvent { .. }, TreeUpdate::Recreated { time_ns, .. }) => *time_ns,
            (TimestampMode::OfEvent { revision_ns }, TreeUpdate::Deleted(_)) => revision_ns,
            (TimestampMode::OfEvent { .. }, TreeUpdate::Leaf { leaf, .. }) => leaf.meta.time_ns,
        }
    }
}
