//! Subscriptions to events.

use std::sync::Arc;

use holdfast_scheduler::TransactionRecord;
use tokio::sync::broadcast;

use super::CoreHandle;
use crate::reports::CoreEvent;

impl CoreHandle {
    /// Subscribes to all events from now on; the receiver is closed once the core has stopped.
    pub fn listen(&self) -> broadcast::Receiver<CoreEvent> {
        let sender = self.event_source.all.upgrade();
        sender.map_or_else(|| broadcast::channel(1).1, |sender| sender.subscribe())
    }

    /// Subscribes to ended transactions alone, for which no labels are made.
    pub fn listen_to_records(&self) -> broadcast::Receiver<Arc<TransactionRecord>> {
        let sender = self.event_source.records.upgrade();
        sender.map_or_else(|| broadcast::channel(1).1, |sender| sender.subscribe())
    }
}
