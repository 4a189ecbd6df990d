//! Service plans as a stream.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::Stream;
use futures::stream::unfold;
use holdfast_config::ServiceTag;
use holdfast_config::services::Book;
use holdfast_core::Datastore;
use holdfast_telemetry::Revision;
use tokio::sync::watch;

use super::{Operations, Progress};

/// A reader of plans: of each, it gets the newest version, and may miss earlier ones.
struct Watcher<C> {
    core: C,
    revisions: watch::Receiver<Arc<Revision>>,
    /// Tags, and names of types; none for all instances.
    services: Vec<String>,
    /// The plans as they were looked at last.
    book: Book,
    pending: VecDeque<Progress>,
    has_begun: bool,
}

impl<C: Datastore> Operations<C> {
    /// The plans of instances, then each that changes; one without a plan has gone. `services` are tags and names of types,
    /// also of those that are not there yet; none selects all instances.
    pub fn watch(&self, services: Vec<String>) -> impl Stream<Item = Progress> + Send + use<C> {
        let core = self.0.clone();
        let revisions = self.0.watch();
        let book = Book::default();
        let pending = VecDeque::new();
        let has_begun = false;
        let watcher = Watcher { core, revisions, services, book, pending, has_begun };
        unfold(watcher, |mut watcher| async move {
            let next = watcher.next().await?;
            Some((next, watcher))
        })
    }
}

impl<C: Datastore> Watcher<C> {
    /// The next plan; `None` when the core has stopped.
    async fn next(&mut self) -> Option<Progress> {
        loop {
            if let Some(next) = self.pending.pop_front() {
                return Some(next);
            }
            if self.has_begun {
                self.revisions.changed().await.ok()?;
            }
            self.has_begun = true;
            self.look();
        }
    }

    fn look(&mut self) {
        let new = self.core.configuration().layers().book.clone();
        let changed = Book::differences(&self.book, &new).map(|(tag, ..)| tag);
        let selected = changed.filter(|tag| self.selects(tag)).cloned();
        self.pending = selected.map(|tag| Progress { plan: new.get(&tag).cloned(), tag }).collect();
        self.book = new;
    }

    fn selects(&self, tag: &ServiceTag) -> bool {
        let is_of = |name: &String| *name == *tag.service || *name == tag.to_string();
        self.services.is_empty() || self.services.iter().any(is_of)
    }
}
