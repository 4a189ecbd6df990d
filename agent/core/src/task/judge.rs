//! Judgement of `ready`, on another thread.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_config::services::{ChangeOrigin, Surroundings};
use holdfast_config::{Configuration, ServiceTag};
use tokio::task::spawn_blocking;
use tracing::error;

use super::CoreTask;
use crate::commit::{CommitInFlight, Input};
use crate::examination::ObservedBox;
use crate::planning::judged;
use crate::state::JobResult;

impl CoreTask {
    /// Judges `ready` of these instances on another thread.
    pub(crate) fn judge_ready(
        &mut self,
        commit: &CommitInFlight,
        configuration: Configuration,
        due: BTreeSet<ServiceTag>,
    ) {
        let state = ObservedBox {
            revision: self.publisher.chain().newest(),
            configuration: configuration.clone(),
            engine: self.engine.clone(),
            registry: Arc::clone(&self.examiner.registry),
        };
        let ticket = commit.ticket;
        let origin = commit.origin();
        // The transaction is known as one that was asked for by its walks; this look changes no record.
        let origin = ChangeOrigin { is_requested: false, ..origin };
        let judged = spawn_blocking(move || {
            let surroundings = Surroundings {
                state: Some(Arc::new(state)),
                now_ns: now_ns(),
                is_lenient: true,
                due,
                origin,
                ..Surroundings::default()
            };
            judged(configuration, &surroundings)
        });
        self.jobs.push(async move {
            let judged = judged.await.inspect_err(|error| {
                error!(%error, "services cannot be judged; the walk that follows does it");
            });
            JobResult::Commit(ticket, Input::Judged(judged.ok().map(Box::new)))
        });
    }
}
