//! Local maintenance commands: switching a service's namespace, and factory reset.

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use holdfast_base::{Caller, ErrorChain};
use holdfast_config::{Configuration, layer::Namespace};
use holdfast_core::{CommitError, Datastore, Intent};
use serde::{Deserialize, Serialize};

use super::failure;
use crate::reboot::{Reboots, reset_to_factory};

/// Position of a switch, in the wire format of the socket.
#[derive(Debug, Serialize, Deserialize)]
pub struct SwitchEntry {
    pub service: String,
    pub on: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FactoryResetRequest {
    pub(super) retain_certificates: bool,
    /// Nothing is removed; the answer is what would be.
    pub(super) dry_run: bool,
}

#[derive(Clone)]
struct MaintenanceState<C> {
    core: C,
    reboots: Reboots,
}

/// Routes for maintenance, for [`super::start`].
pub fn maintenance_routes<C: Datastore>(core: C, reboots: Reboots) -> Router {
    Router::new()
        .route("/switches", get(switches::<C>))
        .route("/switches/set", post(switch::<C>))
        .route("/factory-reset", post(factory_reset::<C>))
        .with_state(MaintenanceState { core, reboots })
}

async fn switches<C: Datastore>(State(it): State<MaintenanceState<C>>) -> Json<Vec<SwitchEntry>> {
    let configuration = it.core.configuration();
    let entry = |service: Namespace| SwitchEntry {
        service: service.name().to_owned(),
        on: configuration.layers().is_on(service),
    };
    Json(Namespace::ALL.into_iter().map(entry).collect())
}

async fn switch<C: Datastore>(
    State(it): State<MaintenanceState<C>>,
    Extension(caller): Extension<Caller>,
    Json(entry): Json<SwitchEntry>,
) -> Response {
    let Some(service) = Namespace::by_name(&entry.service) else {
        return failure(StatusCode::NOT_FOUND, format!("there is no service `{}`", entry.service));
    };
    ok_or_refusal(it.core.change(&caller, Intent::Switch { service, on: entry.on }).await.map(drop))
}

async fn factory_reset<C: Datastore>(
    State(it): State<MaintenanceState<C>>,
    Extension(caller): Extension<Caller>,
    Json(FactoryResetRequest { retain_certificates, dry_run }): Json<FactoryResetRequest>,
) -> Response {
    let removed = removed_by_reset(&it.core.configuration(), retain_certificates);
    if dry_run {
        return removed.into_response();
    }
    match reset_to_factory(&it.core, &it.reboots, &caller, retain_certificates).await {
        Ok(()) => removed.into_response(),
        Err(why) => failure(StatusCode::CONFLICT, why),
    }
}

/// A line for each thing that a factory reset removes.
fn removed_by_reset(configuration: &Configuration, retain_certificates: bool) -> String {
    let instances = configuration.layers().book.iter().count();
    let services = format!("installed packages of services, and {instances} instances with them");
    let identity = "the TLS identity of the box, and its other certificates";
    [
        "the configuration of clients, and the boot configuration",
        "all users and their passwords",
        "the credentials and policies of gNSI",
        &services,
        "histories, alarms and accounting records",
    ]
    .into_iter()
    .chain((!retain_certificates).then_some(identity))
    .map(|thing| format!("  {thing}\n"))
    .collect()
}

fn ok_or_refusal(result: Result<(), CommitError>) -> Response {
    match result {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => failure(StatusCode::CONFLICT, ErrorChain(&error).to_string()),
    }
}
