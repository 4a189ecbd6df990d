//! Readiness of service instances in the commit that made their objects.
//!
//! A walk comes before the plan, so `ready` waits for the objects that it asks for. Once these are verified, `ready` of the
//! walked instances is judged again, before the commit is final. That takes neither claims nor operations: only rows of
//! service plans differ, and they go into the last write of the commit. All else is left to the walk that follows.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_base::now_ns;
use holdfast_config::rows::layer_rows_diff;
use holdfast_config::services::{ChangeOrigin, Surroundings};
use holdfast_config::{Configuration, ServiceTag};
use holdfast_store::Change;
use tokio::task::spawn_blocking;
use tracing::error;

use super::box_state::ObservedBox;
use super::commit::{CommitInFlight, Input};
use super::task::{CoreTask, JobResult};

/// The configuration of a change with `ready` as its verified objects have it, and the rows by which it differs from the
/// one that was prepared.
#[derive(Debug)]
pub(super) struct JudgedChange {
    pub(super) configuration: Configuration,
    pub(super) rows: Vec<Change>,
}

impl CoreTask {
    /// Judges `ready` of these instances on another thread.
    pub(super) fn judge_ready(
        &mut self,
        commit: &CommitInFlight,
        (configuration, due): (Configuration, BTreeSet<ServiceTag>),
    ) {
        let state = ObservedBox {
            revision: self.publisher.chain().newest(),
            configuration: configuration.clone(),
            engine: self.engine.clone(),
            registry: Arc::clone(&self.examiner.registry),
        };
        let (ticket, origin) = (commit.ticket, commit.origin());
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

fn judged(before: Configuration, surroundings: &Surroundings) -> JudgedChange {
    let configuration = before.with_ready_judged(surroundings);
    let models = configuration.models();
    let rows = layer_rows_diff(models, before.layers(), configuration.layers());
    JudgedChange { rows: rows.into_iter().map(Change::from).collect(), configuration }
}
