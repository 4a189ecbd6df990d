//! Readiness of service instances in the commit that made their objects.
//!
//! A walk comes before the plan, so `ready` waits for the objects that it asks for. Once these are verified, `ready` of the
//! walked instances is judged again, before the commit is final. That takes neither claims nor operations: only rows of
//! service plans differ, and they go into the last write of the commit. All else is left to the walk that follows.

use holdfast_config::Configuration;
use holdfast_config::rows::layer_rows_diff;
use holdfast_config::services::Surroundings;
use holdfast_store::Change;

/// The configuration of a change with `ready` as its verified objects have it, and the rows by which it differs from the
/// one that was prepared.
#[derive(Debug)]
pub(crate) struct JudgedChange {
    pub(crate) configuration: Configuration,
    pub(crate) rows: Vec<Change>,
}

pub(crate) fn judged(before: Configuration, surroundings: &Surroundings) -> JudgedChange {
    let configuration = before.with_ready_judged(surroundings);
    let models = configuration.models();
    let rows = layer_rows_diff(models, before.layers(), configuration.layers());
    JudgedChange { rows: rows.into_iter().map(Change::from).collect(), configuration }
}
