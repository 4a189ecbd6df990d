//! Local maintenance commands: switching a service's namespace, and factory reset.

use axum::{
    Extension, Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use holdfast_base::{Caller, ErrorChain};
use holdfast_config::layer::Namespace;
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
    let namespace = Namespace::ALL.into_iter().find(|service| service.name() == entry.service);
    let Some(service) = namespace else {
        return failure(StatusCode::NOT_FOUND, format!("there is no service `{}`", entry.service));
    };
    ok_or_refusal(it.core.change(&caller, Intent::Switch { service, on: entry.on }).await.map(drop))
}

async fn factory_reset<C: Datastore>(
    State(it): State<MaintenanceState<C>>,
    Extension(caller): Extension<Caller>,
    Json(FactoryResetRequest { retain_certificates }): Json<FactoryResetRequest>,
) -> Response {
    match reset_to_factory(&it.core, &it.reboots, &caller, retain_certificates).await {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(why) => failure(StatusCode::CONFLICT, why),
    }
}

fn ok_or_refusal(result: Result<(), CommitError>) -> Response {
    match result {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => failure(StatusCode::CONFLICT, ErrorChain(&error).to_string()),
    }
}
