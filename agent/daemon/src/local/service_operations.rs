//! `holdfast service` for instances: the operations, and the texts of their answers.
//!
//! A caller may do here what it may do by `holdfast.services.v1.Operations`.

use std::convert::Infallible;
use std::fmt::Write as _;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use futures::StreamExt;
use holdfast_base::ErrorChain;
use holdfast_config::schema::Origin;
use holdfast_config::services::Applied;
use holdfast_core::{Datastore, MAX_LISTED};

use super::rights::{CallRights, Rpc};
use super::{failure, packages, services};
use crate::services::{
    CallEntry, Modification, OperationError, Operations, PackageInstaller, Place, Progress,
    Requester, SyncCheck, action_wait, is_undeployed,
};
use crate::settings::{ActionResult, InstanceAction};

/// Address of all operations on instances; the body is an [`InstanceAction`].
pub(super) const ADDRESS: &str = "/services";

#[derive(Clone)]
struct OperationState<C> {
    operations: Operations<C>,
    rights: CallRights,
}

/// Routes of the operations on instances and packages, for [`super::start`].
pub fn service_routes<C: Datastore>(
    core: C,
    installer: PackageInstaller,
    rights: CallRights,
) -> Router {
    let state = OperationState { operations: Operations(core), rights };
    let instances = Router::new().route(ADDRESS, post(operate::<C>)).with_state(state);
    instances.merge(packages::routes(installer))
}

/// The RPC that does the same.
fn same_rpc(action: &InstanceAction) -> Rpc {
    match action {
        InstanceAction::Redeploy { dry_run: false, .. } => {
            "/holdfast.services.v1.Operations/Redeploy"
        }
        InstanceAction::Redeploy { dry_run: true, .. } | InstanceAction::CheckSync { .. } => {
            "/holdfast.services.v1.Operations/CheckSync"
        }
        InstanceAction::ReactiveRedeploy { .. } => {
            "/holdfast.services.v1.Operations/ReactiveRedeploy"
        }
        InstanceAction::Watch { .. } => "/holdfast.services.v1.Operations/Watch",
        InstanceAction::GetModifications { .. } => {
            "/holdfast.services.v1.Operations/GetModifications"
        }
        InstanceAction::UnDeploy { .. } => "/holdfast.services.v1.Operations/Undeploy",
        InstanceAction::Resurrect { .. } => "/holdfast.services.v1.Operations/Resurrect",
        InstanceAction::ForceBackTrack { .. } => "/holdfast.services.v1.Operations/ForceBackTrack",
        InstanceAction::Reschedule { .. } => "/holdfast.services.v1.Operations/Reschedule",
        InstanceAction::Cancel { .. } => "/holdfast.services.v1.Operations/Cancel",
        InstanceAction::Resolve { .. } => "/holdfast.services.v1.Operations/Resolve",
        InstanceAction::Purge { .. } => "/holdfast.services.v1.Operations/Purge",
    }
}

async fn operate<C: Datastore>(
    State(OperationState { operations, rights }): State<OperationState<C>>,
    Extension(by): Extension<Requester>,
    headers: HeaderMap,
    Json(action): Json<InstanceAction>,
) -> Response {
    if let Err(denied) = rights.permit(&by.caller, &headers, same_rpc(&action)) {
        return denied.into_response();
    }
    if let InstanceAction::Watch { services } = action {
        let texts = operations.watch(services);
        let texts = texts.map(move |it| Ok::<_, Infallible>(progress(&operations.0, &it)));
        return Body::from_stream(texts).into_response();
    }
    match answer(&operations, &by, action).await {
        Ok(text) => text.into_response(),
        Err(error) => {
            let status = match error {
                OperationError::Argument(_) => StatusCode::BAD_REQUEST,
                OperationError::Missing(_) => StatusCode::NOT_FOUND,
                OperationError::Precondition(_) | OperationError::Commit(_) => StatusCode::CONFLICT,
            };
            failure(status, ErrorChain(&error).to_string())
        }
    }
}

async fn answer<C: Datastore>(
    operations: &Operations<C>,
    by: &Requester,
    action: InstanceAction,
) -> Result<String, OperationError> {
    let core = &operations.0;
    Ok(match action {
        InstanceAction::Redeploy { services, dry_run: false } => {
            let walked = operations.redeploy(by, &services).await?;
            walked.iter().map(|it| progress(core, it)).collect()
        }
        InstanceAction::Redeploy { services, dry_run: true } => {
            sync_check(&operations.check_sync(by, &services, false).await?)
        }
        InstanceAction::CheckSync { services, deep } => {
            sync_check(&operations.check_sync(by, &services, deep).await?)
        }
        InstanceAction::ReactiveRedeploy { services } => {
            let tags = operations.reactive_redeploy(by.trace.clone(), &services)?;
            tags.iter().map(|tag| format!("{tag}\n")).collect()
        }
        // It has no end, and `operate` has taken it.
        InstanceAction::Watch { .. } => String::new(),
        InstanceAction::GetModifications { service, component_type, component, state } => {
            let component = component_type.zip(component).map(|(of, name)| [of, name]);
            let place = component.map(|component| place(component, state));
            modifications(&operations.modifications(&service, place.as_ref())?)
        }
        InstanceAction::UnDeploy { service } => {
            progress(core, &operations.undeploy(by, &service).await?)
        }
        InstanceAction::Resurrect { service } => {
            progress(core, &operations.resurrect(by, &service).await?)
        }
        InstanceAction::ForceBackTrack {
            service,
            component_type,
            component,
            state,
            acknowledge_inconsistent,
        } => {
            let place = place([component_type, component], state);
            let left =
                operations.force_back_track(by, &service, place, acknowledge_inconsistent).await?;
            progress(core, &left)
        }
        InstanceAction::Reschedule { id } => call(&operations.reschedule(by, id).await?),
        InstanceAction::Cancel { id } => call(&operations.cancel(by, id).await?),
        InstanceAction::Resolve { id, result } => {
            let is_done = result == ActionResult::Done;
            call(&operations.resolve(by, id, is_done).await?)
        }
        InstanceAction::Purge { claim } => {
            let purged = operations.purge(by, &claim).await?;
            format!("{purged} is taken back\n")
        }
    })
}

fn call(CallEntry { state, action }: &CallEntry) -> String {
    services::queue_line(state, action, None)
}

fn place(component: [String; 2], state: Option<String>) -> Place {
    Place { component: component.map(Into::into), state: state.map(Into::into) }
}

fn progress(core: &impl Datastore, Progress { tag, plan }: &Progress) -> String {
    match plan {
        Some(plan) => {
            let revision = core.revision();
            services::plan_table(tag, plan, |state| action_wait(&revision, state))
        }
        None if is_undeployed(&core.configuration(), tag) => services::undeployed_line(tag),
        None => format!("{tag}  nothing is left of it\n"),
    }
}

fn sync_check(check: &SyncCheck) -> String {
    let mut text = String::new();
    for tag in &check.left_out {
        let _infallible = writeln!(text, "{tag}  is left out: its type is switched off");
    }
    if check.is_checked_in_sync() {
        let what = if check.left_out.is_empty() { "in sync" } else { "all else is in sync" };
        return text + what + "\n";
    }
    let operations = &check.preview.operations;
    for (key, applied) in &check.unapplied {
        if let Applied::Pending(reason) | Applied::Failed(reason) = applied {
            let _infallible = writeln!(text, "{key}  {reason}");
        }
    }
    for change in &operations.first {
        let _infallible = writeln!(text, "{}  {}", change.object, change.effect.name());
    }
    if operations.total > MAX_LISTED {
        let _infallible = writeln!(text, "and {} more", operations.total - MAX_LISTED);
    }
    text
}

/// A heading for each claim, and a line for each leaf.
fn modifications(found: &[Modification]) -> String {
    let mut text = String::new();
    for of_claim in found.chunk_by(|one, other| one.claim == other.claim) {
        let [first, ..] = of_claim else { continue };
        let [component_type, name] = &first.claim.component;
        let _infallible = writeln!(text, "{component_type} {name}, {}", first.claim.state);
        for Modification { origin, path, value, others, .. } in of_claim {
            let origin = if *origin == Origin::OpenConfig { "openconfig:" } else { "" };
            let others: Vec<_> = others.iter().map(ToString::to_string).collect();
            let others = if others.is_empty() {
                String::new()
            } else {
                format!("  (also {})", others.join(", "))
            };
            let _infallible = writeln!(text, "  {origin}{path} {value}{others}");
        }
    }
    text
}
